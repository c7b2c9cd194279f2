"""The tags of the text protocol (DLEBench, Tables 7 to 14), and how they are kept out of text that is only data."""

from __future__ import annotations

import re

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

_TAG = re.compile(r"<\s*(/?)\s*(start\s+thinking|tool_call|start\s+final\s+answer)\s*>", re.IGNORECASE)


def neutralise(text: str) -> str:
    """Text from outside (instructions, captions, file names, text read in images) with our own tags made harmless.

    The angle brackets become ‹ ›, so that a reader still sees what stood there and no parser takes it for a tag.
    """
    return _TAG.sub(lambda m: f"‹{m.group(1)}{m.group(2)}›", text)
