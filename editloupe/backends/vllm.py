"""A model served by vLLM: chat completions with what vLLM adds to them.

vllm/MODEL                                          http://127.0.0.1:8000/v1, where `vllm serve MODEL` answers
vllm/MODEL?base_url=http://gpu-box:8000/v1          another address

Parameters are those of the openai backend; no key is needed, `VLLM_API_KEY` is sent where it is set. Beyond the openai
backend: answers from a closed list (`Request.choices`) with the label's log-probability, pictures inside a tool's message,
and each picture's digest as its `uuid`, so that the server's cache knows it again without reading it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from editloupe.backends import openai, retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.openai import OpenAIBackend, Service
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Request
from editloupe.values import Json

KEY_VARIABLE: Final = "VLLM_API_KEY"

_HINTS: Final = (
    (
        re.compile(r"at most \d+ image", re.IGNORECASE),
        "start the server with --limit-mm-per-prompt '{\"image\": N}' and a larger N, or lower --max-turns",
    ),
    (
        re.compile(r"enable-auto-tool-choice|tool-call-parser", re.IGNORECASE),
        "start the server with --enable-auto-tool-choice --tool-call-parser hermes, or use --tool-protocol text",
    ),
)


def _extras(request: Request) -> dict[str, Json]:
    """Return the schema of the answer, or the closed list of answers with the probabilities of what is chosen."""
    if request.answer_schema is not None:
        return {"structured_outputs": {"json": dict(request.answer_schema)}}
    if request.choices is None:
        return {}
    # The older name, guided_choice, is ignored without a word. vLLM gives each token's probability among those that the
    # list still allows, so that the label's says how it stood against the other labels.
    told: dict[str, Json] = {"logprobs": True, "top_logprobs": 5} if request.top_logprobs is None else {}
    return {"structured_outputs": {"choice": list(request.choices)}, **told}


VLLM: Final = Service(
    traits=Traits(
        describes="served by vLLM at {place}",
        native_tools=True,
        tool_result_images=True,
        constrains_choices=True,
        constrains_schema=True,
        gives_logprobs=True,
    ),
    base_url="http://127.0.0.1:8000/v1",
    key_variables=(KEY_VARIABLE,),
    key_needed=False,
    extras=_extras,
    image_ids=True,
    hints=_HINTS,
)


def open_backend(uri: BackendURI, *, place: str | None = None, policy: RetryPolicy = retry.DEFAULT_POLICY) -> OpenAIBackend:
    """Open the backend behind `vllm/MODEL`. Nothing is sent yet; place and errors as `openai.open_backend` has them."""
    service = VLLM
    if place is not None:
        service = replace(VLLM, traits=replace(VLLM.traits, describes="served by a vLLM that this run started"))
    return openai.open_backend(uri, service=service, place=place, policy=policy)
