"""The tags of the text protocol (DLEBench, Tables 7 to 14), and how to keep them out of data."""

from __future__ import annotations

import re

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

TAGS = re.compile(
    r"<\s*(?P<slash>[/\\]*)\s*(?:(?P<own>think|thinking|thoughts?|reasoning|reflection|scratchpad|seed:think)"
    r"|(?P<thinking>(?:start|(?P<end>end))[\s_]*thinking)|(?P<call>tool_call)"
    r"|(?P<answer>(?:(?:start|(?P<over>end))[\s_]*)?final[\s_]*answer))\s*>",
    re.IGNORECASE,
)
"""Every spelling that the parser accepts as a tag, `<think>` of the models' own included. `neutralise` changes the same."""

_MODELS_OWN = re.compile(r"\[(?P<s1>/?)THINK\]|<\|(?:begin|(?P<s2>end))_of_thought\|>|◁(?P<s3>/?)think▷")
"""Marks of a thought that models write in other brackets."""


_CHANNEL = re.compile(r"<\|channel\|>(?:analysis|commentary)<\|message\|>(.*?)(?:<\|end\|>|\Z)", re.DOTALL)
_FINAL_CHANNEL = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>")


def with_think_tags(text: str) -> str:
    """Return a reply whose thoughts are all in `<think>…</think>`, in whatever brackets or channel the model wrote them."""
    text = _FINAL_CHANNEL.sub("", _CHANNEL.sub(r"<think>\1</think>", text))
    return _MODELS_OWN.sub(lambda m: "</think>" if any(m.groups()) else "<think>", text)


def closes(tag: re.Match[str]) -> bool:
    """Return whether a match of TAGS is a closing tag: `</…>` or `<End …>`."""
    return bool(tag["slash"] or tag["end"] or tag["over"])


def neutralise(text: str) -> str:
    """Return text from outside (instructions, captions, file names, text in images) without our tags.

    Their angle brackets become ‹ ›: a reader still sees the text, and the parser finds no tag.
    """
    return TAGS.sub(lambda m: f"‹{m[0][1:-1]}›", _MODELS_OWN.sub(lambda m: f"‹{m[0][1:-1]}›", text))


def one_line(text: str) -> str:
    """Return a text from outside on one line, without our tags, as it may stand inside a question."""
    return neutralise(" ".join(text.split()))
