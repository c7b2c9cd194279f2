"""Reads the conversation and its instruction, as far as rules can. An object's noun is only a name here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from editloupe.chat import Request
from editloupe.imaging.color_names import NAMES, SYNONYMS
from editloupe.values import Box, ImageRef

ORIGINAL, EDITED = "Original Image", "Edited Image"
_INSTRUCTION = re.compile(r"^[ \t]*(Editing Instruction|Name the object of this instruction):[ \t]?(.*)$", re.MULTILINE)
_LABEL = re.compile(r"^[ \t]*[-*][ \t]+\*\*(.+?)\*\*[ \t]*:", re.MULTILINE)
_TOOL = re.compile(r"^[ \t]*[-*][ \t]+`(\w+)`[ \t]*:", re.MULTILINE)
_HIDDEN = re.compile(r"^Covered, as \[.+$", re.MULTILINE)
_CALLED = re.compile(r'"name"\s*:\s*"(\w+)"')
_BOX = re.compile(r"\[\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+)\s*\]")
_CROP = re.compile(r"^(Crop \d+): region \d+, bbox (\[[\d, ]+\])", re.MULTILINE)

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|“([^”]*)”|‘([^’]*)’")
_KINDS: Final = (
    ("text", r"\b(text|words?|letters?|writing|reads?|says?)\b"),
    ("shape", r"\bshape\b|\b(round|square|triang\w+)\W*$"),
    ("material", r"\bmaterial\b|\bmade of\b"),
    ("replace", r"\breplac\w+|\bswap\w*|\binto an? \w+ \w"),
    ("remove", r"\b(remov\w+|delet\w+|eras\w+|reduce|take away|get rid of)\b"),
    ("add", r"\b(add|adds|added|insert\w*|increase)\b"),
)
_NUMBERS: Final = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_PLACE = re.compile(r"\b(left|right|top|bottom|middle|center|upper|lower|between|behind|beside|next)\b")
_GROUND = re.compile(r"\b(on|in|under|over|near|at|around) \w")
_OBJECT = re.compile(
    r"\b(?:remov|delet|eras|replac|swap|chang|mak|turn|paint)\w*\s+"
    r"(?:the (?:colou?r|material|shape|text|number)\w* (?:of|on) )?(?:the |an? )?"
    r"(.+?)(?:\s(?:with|to|from|into|by|in|on|of)\s|[.,]|$)"
)


class Asked(NamedTuple):
    """What an instruction asks for. kind: "color", "count", or a word of `_KINDS`. What it does not name is ""."""

    kind: str
    of: str
    """The target's color before the edit; of what is added, its own."""
    to: str
    outline: str
    change: int
    """How many more things are asked for; negative for fewer."""
    texts: tuple[str, ...]
    located: bool
    """True if the words tell where it is, which no rule reads."""

    @property
    def unread(self) -> str:
        """Return why the instruction cannot be judged; "" where it can."""
        if not self.kind or (self.kind == "shape" and not self.outline):
            return "The instruction asks for something that pixels alone cannot confirm."
        if not self.of:
            return "The instruction names no color of its target, and the rules know things by color alone."
        return "The instruction says where the target is, which the rules do not read." if self.located else ""


def asked_for(instruction: str) -> Asked:
    """Return what an instruction asks for."""
    plain = _QUOTED.sub(" ", instruction.casefold().replace("→", " to "))
    words = re.findall(r"[a-z]+|\d+", plain)
    colors = [(at, SYNONYMS.get(word, word)) for at, word in enumerate(words) if SYNONYMS.get(word, word) in NAMES]
    kind = next((kind for kind, pattern in _KINDS if re.search(pattern, plain)), "")
    if not kind and colors and colors[-1][0] == len(words) - 1:
        kind = "color"
    located = bool(_PLACE.search(plain) or (kind == "add" and _GROUND.search(plain)))
    numbers = [int(word) if word.isdigit() else _NUMBERS[word] for word in words if word.isdigit() or word in _NUMBERS]
    change = 0
    if kind in ("remove", "add") and numbers:
        change, kind = (numbers[0] if kind == "add" else -numbers[0]), "count"
        change = numbers[1] - numbers[0] if "from" in words and len(numbers) == 2 else change
    split = next((at for at, word in enumerate(words) if word in ("with", "by", "for", "into", "to")), len(words))
    split = colors[-1][0] if kind == "color" else split
    before, after = ([name for at, name in colors if (at < split) == early] for early in (True, False))
    outlines = re.findall(r"\b(round|square|triang)", plain)
    of, to, outline = "".join(before[:1]), "".join(after[-1:]), "".join(outlines[-1:])
    texts = tuple("".join(groups) for groups in _QUOTED.findall(instruction))
    return Asked(kind=kind, of=of, to=to, outline=outline, change=change, texts=texts, located=located)


def object_of(instruction: str) -> str | None:
    """Return what an instruction changes, replaces or removes, "image" for "it"; None where its verb is none of a few."""
    found = _OBJECT.search(_QUOTED.sub(" ", " ".join(instruction.casefold().split())))
    words = found[1].split() if found else []
    words = words[:-1] if len(words) > 1 and words[-1] in NAMES else words
    return "image" if words[:1] == ["it"] else " ".join(words) or None


class AskedEdit(NamedTuple):
    """What is asked. naming: of the object's name.   covered: where white rectangles hide targets, in thousandths."""

    instruction: str
    naming: bool
    labels: set[str]
    images: Mapping[str, ImageRef]
    marked: bool
    covered: tuple[Box, ...]
    tools: set[str]
    crops: Mapping[str, str]
    """Box, as the observation wrote it → the crop that shows it."""


def read_request(request: Request) -> AskedEdit:
    """Return the whole conversation as one question. The prompt's own lines stand after the instruction."""
    heard = [m for m in request.messages if m.role in ("user", "tool")]
    text = heard[0].text if heard else ""
    asked = _INSTRUCTION.search(text)
    rest = text[asked.end() :] if asked else ""
    said = [m for m in request.messages if m.role == "assistant"]
    called = {call.name for m in said for call in m.tool_calls}.union(*(_CALLED.findall(m.text) for m in said))
    offered = set(_TOOL.findall(rest)) | {tool.name for tool in request.tools}
    return AskedEdit(
        instruction="" if asked is None else asked[2],
        naming=asked is not None and asked[1] == "Name the object of this instruction",
        labels=set(_LABEL.findall(rest)),
        images={part.alias: part.image for m in request.messages if m.role == "user" for part in m.images},
        marked="\nMarked, as [" in rest,
        covered=tuple(Box(*map(int, box)) for line in _HIDDEN.findall(rest) for box in _BOX.findall(line)),
        tools=set() if heard and "Tools are no longer available" in heard[-1].text else offered - called,
        crops={box: crop for message in heard[1:] for crop, box in _CROP.findall(message.text)},
    )
