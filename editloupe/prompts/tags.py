"""The tags of the text protocol (DLEBench, Tables 7 to 14), and how they are kept out of text that is only data."""

from __future__ import annotations

import re

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

TAGS = re.compile(
    r"<\s*(?P<slash>/?)\s*(?:(?P<thinking>start\s+thinking)|(?P<call>tool_call)|(?P<answer>(?:start\s+)?final\s+answer))\s*>",
    re.IGNORECASE,
)
"""Every spelling that the parser takes for one of our tags; `neutralise` makes the same ones harmless."""


def neutralise(text: str) -> str:
    """Text from outside (instructions, captions, file names, text read in images) with our own tags made harmless.

    The angle brackets become ‹ ›, so that a reader still sees what stood there and no parser takes it for a tag.
    """
    return TAGS.sub(lambda m: f"‹{m[0][1:-1]}›", text)
