"""Rules on wordings that langchain.py still reads; they go with its rewrite (failures.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from editloupe.backends.failures import retry_after_s
from editloupe.backends.payload import at, clean_text, cleaned, count, items_at, one_line, text_at

__all__ = ["at", "clean_text", "cleaned", "count", "items_at", "one_line", "retry_after_s", "text_at"]

# OpenAI and vLLM say "maximum context length", newer vLLM "maximum model length", llama.cpp "context size".
TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (context|model) length|context (length|size|window)"
    r"|prompt is too long|input is too long",
    re.IGNORECASE,
)

REPLY_BOUND = re.compile(
    r"max_?(completion_?|new_?|output_?)?tokens\b.{0,80}?(too (large|big|high)|at most|exceed|must be|less than|range"
    r"|maximum|[<>]=?)|(in|for) the completion",
    re.IGNORECASE,
)
"""How endpoints say that a reply may not have so many tokens: their own bound is lower, or what the context leaves."""

REFUSES = re.compile(
    r"support|only the default|not allowed|not permitted|deprecated|unknown|unrecognized|unexpected|extra_forbidden",
    re.IGNORECASE,
)
"""How endpoints say that they do not take a parameter."""

# Azure says content_filter, OpenAI content_policy_violation, some gateways "moderation".
FILTERED = re.compile(r"content_filter|content_policy|moderation|ResponsibleAIPolicyViolation", re.IGNORECASE)

FLAGGED = re.compile(r"moderat|flagged|content.?policy|safety", re.IGNORECASE)
"""How gateways say that it is the prompt that they forbid, and not the caller."""
NO_VISION: Final = (
    # OpenAI's words, vLLM's, those of gateways, of servers that read text only, and Gemini's.
    re.compile(
        r"image_url is only supported|not a multimodal model|not support (multimodal|image)|support image input"
        r"|image input (is not|modality is not)|unknown variant `image_url`|content must be a string",
        re.IGNORECASE,
    ),
    "the model takes no images: name one that does, such as Qwen/Qwen3-VL-8B-Instruct (editloupe backends probe asks it)",
)
"""How servers say that a model takes no images, and what to do about it."""


def error_body(body: object) -> object:
    """Return what stands under "error" in a failed answer, else the whole."""
    return at(body, "error") or body


def error_code(body: object) -> str:
    """Return the failure's code, or its type; "" where there is neither."""
    inner = error_body(body)
    return str(at(inner, "code") or at(inner, "type") or "")


def said(body: object) -> str:
    """Return what the endpoint says about its failure: one line of at most 400 characters."""
    inner = error_body(body)
    if isinstance(inner, Mapping):
        inner = inner.get("message") or inner.get("detail") or json.dumps(inner)
    return "" if inner is None else one_line(str(inner))
