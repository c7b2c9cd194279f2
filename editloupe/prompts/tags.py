"""The tags of the text protocol (DLEBench, Tables 7 to 14), and how to keep them out of data."""

from __future__ import annotations

import re

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

TAGS = re.compile(
    r"<\s*(?P<slash>/?)\s*(?:(?P<thinking>start\s+thinking)|(?P<call>tool_call)|(?P<answer>(?:start\s+)?final\s+answer))\s*>",
    re.IGNORECASE,
)
"""Every spelling that the parser accepts as a tag. `neutralise` changes the same spellings."""


def neutralise(text: str) -> str:
    """Return text from outside (instructions, captions, file names, text in images) without our tags.

    Their angle brackets become ‹ ›: a reader still sees the text, and the parser finds no tag.
    """
    return TAGS.sub(lambda m: f"‹{m[0][1:-1]}›", text)


def one_line(text: str) -> str:
    """Return a text from outside on one line, without our tags, as it may stand inside a question."""
    return neutralise(" ".join(text.split()))
