"""The tags of a reply in the text protocol of DLEBench (Tables 7 to 14): found, and taken out of texts from outside.

`traces.parsing` reads a reply by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

_OWN = "think thinking thought thoughts reasoning reflection scratchpad seed:think |beginofthought| |endofthought|"
_KINDS = dict.fromkeys(_OWN.split(), "own") | {
    **dict.fromkeys(("startthinking", "endthinking"), "thinking"),
    **dict.fromkeys(("startfinalanswer", "endfinalanswer", "finalanswer"), "answer"),
    **dict.fromkeys(("|channel|", "|message|", "|start|", "|end|", "|return|", "|call|"), "channel"),
    "toolcall": "call",
}
"""Name of a tag, without slash, case, blanks and underscores → what it parts."""
_MARK = re.compile(r"<([^<>]{5,40})>|\[(/?THINK)\]|◁(/?think)▷")


class Tag(NamedTuple):
    """A tag of the text protocol, or a mark of a model's own thought, in any spelling that the parser accepts."""

    kind: str
    """"own" (a model's own thought), "thinking", "call", "answer", or "channel"."""
    closes: bool
    """Whether it is written as a closing tag: `</…>` or `<End …>`."""
    start: int
    end: int


def tags_in(text: str) -> Iterator[Tag]:
    """Yield the tags of a text, in any spelling that the parser accepts."""
    for mark in _MARK.finditer(text):
        if (known := _known(mark[0])) is not None:
            yield Tag(*known, *mark.span())


@lru_cache(maxsize=4096)
def _known(mark: str) -> tuple[str, bool] | None:
    """Return the kind of a tag, and whether it closes; None for what is no tag of ours."""
    written = "".join(mark[1:-1].casefold().replace("_", "").split())
    name = written.lstrip("/\\")
    kind = _KINDS.get(name)
    return None if kind is None else (kind, name != written or name.startswith(("end", "|endof")))


def neutralise(text: str) -> str:
    """Return text from outside (instructions, captions, file names, text in images) without our tags.

    Their brackets become ‹ ›: a reader still sees the text, and the parser finds no tag.
    """
    return _MARK.sub(lambda mark: mark[0] if _known(mark[0]) is None else f"‹{mark[0][1:-1]}›", text)


def one_line(text: str) -> str:
    """Return a text from outside on one line, without our tags, as it may stand inside a question."""
    return neutralise(" ".join(text.split()))
