"""Reads the conversation: instruction, labels, images, tools on offer, and what the observations reported.

The prompt's own lines are trusted in the order in which they stand: the labels after the instruction. The instruction is
one line, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.chat import Message, Request
from editloupe.values import Box, ImageRef

ORIGINAL: Final = "Original Image"
EDITED: Final = "Edited Image"

_INSTRUCTION = re.compile(r"^\s*Editing Instruction:\s?(.*)$")
_TO_BE_NAMED = re.compile(r"^\s*Name the object of this instruction:\s?(.*)$")
_LABEL = re.compile(r"^\s*[-*]\s+\*\*(.+?)\*\*\s*:")
_TOOL = re.compile(r"^\s*[-*]\s+`(\w+)`\s*:")
_BOXES = re.compile(r"^(Marked|Covered), as \[x0, y0, x1, y1\] in thousandths of width and height: (.+)$")
_CALLED = re.compile(r'"name"\s*:\s*"(\w+)"')
_NO_TOOLS = "Tools are no longer available"
_BOX = r"\[\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+)\s*\]"
_CROP = re.compile(rf"^(Crop \d+): region \d+, bbox ({_BOX})")
_NOT_SHOWN = re.compile(r"^Not shown: \d+ weaker")
_NONE = re.compile(r"^No (region differs|difference)\b")


@dataclass(frozen=True, kw_only=True)
class ObservedRegion:
    """A region that an observation named."""

    box: Box
    """In px of the original image."""
    crop: str = ""
    """The name of its picture; "" where none was shown."""


@dataclass(frozen=True, kw_only=True)
class BaselineQuestion:
    """What is asked, and what has been seen so far."""

    instruction: str
    """The editing instruction; "" where the prompt has none."""
    to_be_named: str | None
    """The instruction whose object is to be named; None where the question is another."""
    labels: frozenset[str]
    """Names of the labels on offer."""
    original: ImageRef | None
    """The image before the edit; None where the request lacks it."""
    edited: ImageRef | None
    """The image after the edit; None where the request lacks it."""
    marked: tuple[Box, ...]
    """Where the pictures, which are crops, mark the targets, in thousandths; () for whole images."""
    covered: tuple[Box, ...]
    """Where white rectangles cover the targets, in thousandths; () where none do."""
    tools: frozenset[str]
    """Names of the tools on offer; empty once they are withdrawn."""
    called: frozenset[str]
    """Names of the tools that the baseline has called."""
    observed: tuple[ObservedRegion, ...] | None
    """Regions that differ, strongest first; None where nothing was observed."""


def read_request(request: Request) -> BaselineQuestion:
    """Return the whole conversation as one question."""
    first = next((m for m in request.messages if m.role == "user"), None)
    lines = [] if first is None else first.text.splitlines()
    at = next((i for i, line in enumerate(lines) if _INSTRUCTION.match(line)), len(lines))
    asked = _INSTRUCTION.match(lines[at]) if at < len(lines) else None
    images = {part.alias: part.image for m in request.messages if m.role == "user" for part in m.images}
    original = images.get(ORIGINAL)
    said = [m for m in request.messages if m.role == "assistant"]
    boxes = {m.group(1): m.group(2) for line in lines[at + 1 :] if (m := _BOXES.match(line))}
    marked, covered = (_thousandths(boxes.get(word, "")) for word in ("Marked", "Covered"))
    called = [call.name for m in said for call in m.tool_calls] + [name for m in said for name in _CALLED.findall(m.text)]
    withdrawn = bool(request.messages) and _NO_TOOLS in request.messages[-1].text
    offered = {m.group(1) for line in lines[at + 1 :] if (m := _TOOL.match(line))} | {t.name for t in request.tools}
    return BaselineQuestion(
        instruction="" if asked is None else asked.group(1),
        to_be_named=None if asked else next((m.group(1) for line in lines if (m := _TO_BE_NAMED.match(line))), None),
        labels=frozenset(m.group(1) for line in lines[at + 1 :] if (m := _LABEL.match(line))),
        original=original,
        edited=images.get(EDITED),
        marked=marked,
        covered=covered,
        tools=frozenset() if withdrawn else frozenset(offered),
        called=frozenset(called),
        observed=None if original is None else _observed(request.messages, first, original),
    )


def _observed(messages: Sequence[Message], first: Message | None, original: ImageRef) -> tuple[ObservedRegion, ...] | None:
    places: list[ObservedRegion] = []
    heard = False
    for message in messages:
        if message is first or message.role not in ("user", "tool"):
            continue
        for line in message.text.splitlines():
            if match := _CROP.match(line):
                places += _places(match.group(2), original, crop=match.group(1))
            elif _NOT_SHOWN.match(line):
                places += _places(line, original)
            heard = heard or bool(match) or bool(_NONE.match(line))
    return tuple(places) if heard else None


def _places(text: str, original: ImageRef, *, crop: str = "") -> list[ObservedRegion]:
    """Return the boxes in a text as regions."""
    width, height = original.width, original.height
    boxes = [Box.from_thousandths(tuple(box), width=width, height=height) for box in _thousandths(text)]
    return [ObservedRegion(box=box, crop=crop) for box in boxes]


def _thousandths(text: str) -> tuple[Box, ...]:
    """Return the boxes in a text, in thousandths. What is no box is left out."""
    found = [tuple(map(int, numbers)) for numbers in re.findall(_BOX, text)]
    return tuple(Box(*n) for n in found if n[0] < n[2] <= 1000 and n[1] < n[3] <= 1000)
