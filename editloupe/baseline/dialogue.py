"""The conversation, read: criterion, instruction, images, tools on offer, and what the observations reported.

The prompt's own lines are trusted in the order in which they stand: the criterion before the instruction, the labels
after it. The instruction is one line, whatever it says.
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

_CRITERION = re.compile(r"^\s*Criterion:\s*(.+?)\s*$")
_INSTRUCTION = re.compile(r"^\s*Editing Instruction:\s?(.*)$")
_LABEL = re.compile(r"^\s*[-*]\s+\*\*(.+?)\*\*\s*:")
_TOOL = re.compile(r"^\s*[-*]\s+`(\w+)`\s*:")
_CALLED = re.compile(r'"name"\s*:\s*"(\w+)"')
_NO_TOOLS = "Tools are no longer available"
_BOX = r"\[\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+)\s*\]"
_CROP = re.compile(r"^(Crop \d+): bbox " + _BOX)
_NOT_SHOWN = re.compile(r"^Not shown: \d+ weaker")
_NONE = re.compile(r"^No (region differs|difference)\b")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place that an observation named. box: px of the original image.   crop: its picture, "" where none was shown."""

    box: Box
    crop: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and what has been seen so far.

    criterion: as the prompt names it.   labels: on offer.   tools: names on offer, empty once withdrawn.   called: tools
    that we asked for.   observed: places that differ, strongest first; None where nothing was observed.
    """

    criterion: str
    instruction: str
    labels: frozenset[str]
    original: ImageRef | None
    edited: ImageRef | None
    tools: frozenset[str]
    called: tuple[str, ...]
    observed: tuple[Place, ...] | None


def read(request: Request) -> Question:
    """The whole conversation as one question."""
    first = next((m for m in request.messages if m.role == "user"), None)
    lines = [] if first is None else first.text.splitlines()
    at = next((i for i, line in enumerate(lines) if _INSTRUCTION.match(line)), len(lines))
    criterion = next((m.group(1) for line in lines[:at] if (m := _CRITERION.match(line))), "")
    asked = _INSTRUCTION.match(lines[at]) if at < len(lines) else None
    images = {part.alias: part.image for m in request.messages if m.role == "user" for part in m.images}
    original = images.get(ORIGINAL)
    withdrawn = bool(request.messages) and _NO_TOOLS in request.messages[-1].text
    offered = {m.group(1) for line in lines[at + 1 :] if (m := _TOOL.match(line))} | {t.name for t in request.tools}
    return Question(
        criterion=criterion,
        instruction="" if asked is None else asked.group(1),
        labels=frozenset(m.group(1) for line in lines[at + 1 :] if (m := _LABEL.match(line))),
        original=original,
        edited=images.get(EDITED),
        tools=frozenset() if withdrawn else frozenset(offered),
        called=_called(request.messages),
        observed=None if original is None else _observed(request.messages, first, original),
    )


def _called(messages: Sequence[Message]) -> tuple[str, ...]:
    """Names of the tools that we asked for, in order."""
    native = [call.name for m in messages if m.role == "assistant" for call in m.tool_calls]
    return (*native, *(name for m in messages if m.role == "assistant" for name in _CALLED.findall(m.text)))


def _observed(messages: Sequence[Message], first: Message | None, original: ImageRef) -> tuple[Place, ...] | None:
    places: list[Place] = []
    heard = False
    for message in messages:
        if message is first or message.role not in ("user", "tool"):
            continue
        for line in message.text.splitlines():
            if match := _CROP.match(line):
                places += _places([match.groups()[1:]], original, crop=match.group(1))
            elif _NOT_SHOWN.match(line):
                places += _places(re.findall(_BOX, line), original)
            heard = heard or bool(match) or bool(_NONE.match(line))
    return tuple(places) if heard else None


def _places(found: Sequence[Sequence[str]], original: ImageRef, *, crop: str = "") -> list[Place]:
    """Boxes in thousandths as places; what is no box is left out."""
    numbers = [tuple(map(int, texts)) for texts in found]
    return [
        Place(box=Box.from_thousandths(n, width=original.width, height=original.height), crop=crop)
        for n in numbers
        if n[0] < n[2] <= 1000 and n[1] < n[3] <= 1000
    ]
