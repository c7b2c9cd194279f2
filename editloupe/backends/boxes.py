"""How a model writes boxes. What is recorded is in thousandths, x first; an adapter speaks its model's dialect.

thousandths      [x0, y0, x1, y1], integers 0 to 1000 of width and height: what everything recorded holds
thousandths_yx   [y0, x0, y1, x1], the same numbers: Gemini's own convention
pixels           [x0, y0, x1, y1], px of the image as it was sent, after any resizing: Qwen2.5-VL's own convention

`outgoing` renders a request to a dialect, `incoming` parses a reply back; both are pure, and the identity for thousandths.
Only our own texts are rendered: the rules in the prompt, tools' schemas, observations, and the model's earlier messages.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from editloupe.answers import BOX_RULE
from editloupe.chat import Message, Part, Reply, Request, TextPart, ToolCall
from editloupe.data.images import ImagePolicy
from editloupe.errors import ConfigError

Sizes: TypeAlias = Mapping[str, tuple[int, int]]
"""Image name → (width, height) in px, as the image is sent."""
Four: TypeAlias = tuple[float, float, float, float]
Convert: TypeAlias = Callable[[Four, str], Four]
"""(box, name of its image) → the box in the other convention."""

DEFAULT: Final = "thousandths"
_YX: Final = "[y0, x0, y1, x1], y first,"
_RIGHT: Final = "x to the right, y down, x0 < x1 and y0 < y1."

DIALECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "thousandths": (
        "four integers [x0, y0, x1, y1] in thousandths (0 to 1000) of the width and height of the image they belong to",
        f"four integers [x0, y0, x1, y1] from 0 to 1000, thousandths of the image's width and height, {_RIGHT}",
        "Boxes are [x0, y0, x1, y1] in thousandths of width and height.",
        "four integers between 0 and 1000, [x0, y0, x1, y1] as thousandths of the image's width and height",
        BOX_RULE.partition("{image!r}")[0],
    ),
    "thousandths_yx": (
        f"four integers {_YX} in thousandths (0 to 1000) of the height and width of the image they belong to",
        f"four integers {_YX} from 0 to 1000, thousandths of the image's height and width, {_RIGHT}",
        f"Boxes are {_YX} in thousandths of height and width.",
        f"four integers between 0 and 1000, {_YX} as thousandths of the image's height and width",
        f"A box is four whole numbers {_YX} in thousandths (0 to 1000) of the height and width of the image ",
    ),
    "pixels": (
        "four integers [x0, y0, x1, y1] in pixels of the image they belong to, as you see it",
        f"four integers [x0, y0, x1, y1] in pixels of the image, from 0 to its width and height, {_RIGHT}",
        "Boxes are [x0, y0, x1, y1] in pixels.",
        "four integers inside the image, [x0, y0, x1, y1] in pixels",
        "A box is four whole numbers [x0, y0, x1, y1] in pixels, as you see it, of the image ",
    ),
}
"""What our texts say of boxes: the rule, the schema, an observation's note, an error's range, the rule of an answer."""

_QUOTE: Final = "[\"'“”„‟‘’]"
"""Calls are mended by their parser: a box that it reads and that is not converted would be another place."""
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_LIST: Final = rf"({_QUOTE}?\s*:\s*)(\[\s*{_NUMBER}(?:\s*,\s*{_NUMBER}){{3}}(?:\s*,)?\s*\])"
_IN_CALL, _IN_ANSWER = re.compile(rf"(\bbbox){_LIST}"), re.compile(rf"(\bbox){_LIST}")
_TARGET: Final = re.compile(rf"\btarget_image{_QUOTE}?\s*:\s*{_QUOTE}([^\"'“”„‟‘’]*)")
_BLOCK: Final = re.compile(r"(<\s*tool_call\s*>.*?(?=<\s*/?\s*tool_call\s*>|\Z))", re.DOTALL | re.IGNORECASE)
_NEXT_CALL: Final = re.compile(r"(\}\s*,?\s*\{)")
_ANSWER: Final = re.compile(re.escape(DIALECTS[DEFAULT][-1]) + r"('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")")
_OURS: Final = re.compile(r"(?:Crop \d+|\d+): |Not shown: |Error: ")
"""How the lines of an observation begin that hold boxes. Behind "Looking for: " stand the model's own words."""
_BOX: Final = re.compile(r"(\bpx )?(\[-?\d+(?:\.\d+)?(?:, -?\d+(?:\.\d+)?){3}\])")


def checked(name: str) -> str:
    """Return the name. Raises ConfigError where no dialect has it."""
    if name not in DIALECTS:
        raise ConfigError(f"boxes={name!r}: expected how the model writes boxes, one of {', '.join(DIALECTS)}")
    return name


def sizes_of(request: Request, policy: ImagePolicy) -> dict[str, tuple[int, int]]:
    """Return the sizes in px in which the images of a request are sent, by name."""
    images = (part for message in request.messages for part in message.images)
    return {part.alias: policy.size(part.image.width, part.image.height) for part in images}


def in_dialect(traits: Traits, request: Request, ask: Callable[[Request], Reply]) -> Reply:
    """Return the reply to a request that is asked in the model's dialect, with its boxes in thousandths again."""
    sizes = sizes_of(request, traits.image_policy)
    reply = ask(outgoing(request, traits.boxes, sizes))
    return incoming(reply, traits.boxes, sizes, answer=answer_image(request, sizes))


def answer_image(request: Request, sizes: Sizes) -> str | None:
    """Return the image in which the answer gives boxes, by the rule in the first message; None without one of `sizes`."""
    first = next((message for message in request.messages if message.role == "user"), None)
    texts = [part.text for part in first.parts[1:] if isinstance(part, TextPart)] if first else []
    found = _ANSWER.search(texts[-1]) if texts else None
    name = str(ast.literal_eval(found[1])) if found else ""
    return name if _size(sizes, name) is not None else None


def outgoing(request: Request, dialect: str, sizes: Sizes) -> Request:
    """Return the request in a dialect. A box of an image that `sizes` does not know stays as it is."""
    if dialect == DEFAULT:
        return request
    answer = answer_image(request, sizes)
    asked: dict[str, str] = {}

    def convert(box: Four, image: str) -> Four:
        spoken = converted(box, dialect, _size(sizes, image))
        # What a tool repeats of a call is written as the call was, also where it does not name the image.
        asked[_written(box)] = _written(spoken)
        return spoken

    def rendered(message: Message, at: int, *, first: bool) -> Part:
        part = message.parts[at]
        texts = [i for i, one in enumerate(message.parts) if isinstance(one, TextPart)]
        if not isinstance(part, TextPart):
            return part
        if message.role == "assistant":
            return replace(part, text=_spoken(part.text, convert, answer))
        if not first and part.text.startswith(("Observation of ", "Not run, since it could not be read")):
            return replace(part, text=_worded(_observed(part.text, dialect, sizes, asked), dialect))
        # In the first message the last text is the form; the one before it holds the user's instruction.
        ours = at == texts[-1] and message.role == "user" and (at > 0 if first else _ANSWER.search(part.text))
        return replace(part, text=_worded(part.text, dialect)) if ours else part

    first = next((message for message in request.messages if message.role == "user"), None)
    messages = tuple(
        replace(
            message,
            parts=tuple(rendered(message, at, first=message is first) for at in range(len(message.parts))),
            tool_calls=tuple(_call(call, convert) for call in message.tool_calls),
        )
        for message in request.messages
    )
    schemas = (json.loads(_worded(json.dumps(tool.parameters, ensure_ascii=False), dialect)) for tool in request.tools)
    tools = tuple(replace(tool, parameters=schema) for tool, schema in zip(request.tools, schemas, strict=True))
    return replace(request, messages=messages, tools=tools)


def incoming(reply: Reply, dialect: str, sizes: Sizes, *, answer: str | None = None) -> Reply:
    """Return the reply with its boxes in thousandths: native calls, calls as text, and those of an answer.

    answer: the `answer_image` of the request.   `raw` and `tokens` stay what the model wrote.
    """
    if dialect == DEFAULT:
        return reply

    def convert(box: Four, image: str) -> Four:
        return converted(box, dialect, _size(sizes, image), back=True)

    calls = tuple(_call(call, convert) for call in reply.tool_calls)
    return replace(reply, text=_spoken(reply.text, convert, answer), tool_calls=calls)


def converted(box: Four, dialect: str, size: tuple[int, int] | None, *, back: bool = False) -> Four:
    """Convert a box from thousandths into a dialect, or back. It stays where the dialect needs an unknown size.

    What is out of range, inverted or empty stays so: the tool's check tells the model.
    """
    if dialect == "thousandths_yx":
        return box[1], box[0], box[3], box[2]
    # Fractions of 1 would be a corner as px, and the tool has a word for them.
    fractions = back and any(v != round(v) for v in box) and all(0 <= v <= 1 for v in box)
    if dialect == DEFAULT or size is None or fractions:
        return box
    edges = []
    for low, high, side in ((box[0], box[2], size[0]), (box[1], box[3], size[1])):
        whole, into = (side, 1000) if back else (1000, side)
        one, other = _edge(low, whole, into), _edge(high, whole, into)
        if one == other and 0 <= low < high <= whole:
            # Edges that fall on one stay one apart.
            one = min(math.floor(low * into / whole), into - 1)
            other = one + 1
        edges.append((one, other))
    return edges[0][0], edges[1][0], edges[0][1], edges[1][1]


def _edge(value: float, whole: int, into: int) -> int:
    scaled = math.floor(value * into / whole + 0.5)
    return min(-1, scaled) if value < 0 else max(into + 1, scaled) if value > whole else min(into, scaled)


def _size(sizes: Sizes, name: str) -> tuple[int, int] | None:
    """Return the image's size. As with the tools, case does not count where no name fits exactly."""
    folded = name.strip().casefold()
    return sizes.get(name) or next((size for known, size in sizes.items() if known.casefold() == folded), None)


def _call(call: ToolCall, convert: Convert) -> ToolCall:
    box, target = call.arguments.get("bbox"), call.arguments.get("target_image")
    numbers = [v for v in box if type(v) in (int, float) and math.isfinite(v)] if isinstance(box, Sequence) else []  # type: ignore[arg-type]
    if not isinstance(box, Sequence) or len(box) != 4 or len(numbers) != 4:
        return call
    new = convert((numbers[0], numbers[1], numbers[2], numbers[3]), target if isinstance(target, str) else "")  # type: ignore[arg-type]
    return replace(call, arguments={**call.arguments, "bbox": [_plain(v) for v in new]})


def _spoken(text: str, convert: Convert, answer: str | None) -> str:
    """Return a model's text with the boxes of its calls and of its answer converted, and all else as it was."""

    def replaced(found: re.Match[str], image: str) -> str:
        old = _numbers(found[3])
        return found[0] if (new := convert(old, image)) == old else f"{found[1]}{found[2]}{_written(new)}"

    pieces = _BLOCK.split(text)
    if answer is not None:
        pieces[::2] = [_IN_ANSWER.sub(lambda found: replaced(found, answer), piece) for piece in pieces[::2]]
    for at in range(1, len(pieces), 2):
        calls = _NEXT_CALL.split(pieces[at])
        for one, call in enumerate(calls):
            image = target[1] if (target := _TARGET.search(call)) else ""
            calls[one] = _IN_CALL.sub(lambda found, image=image: replaced(found, image), call)
        pieces[at] = "".join(calls)
    return "".join(pieces)


def _observed(text: str, dialect: str, sizes: Sizes, asked: Mapping[str, str]) -> str:
    """Return an observation with the boxes of our lines in the dialect. asked: a call's boxes, as they were written."""
    by_repr = {repr(name): name for name in sizes}
    names = re.compile("|".join(map(re.escape, sorted(by_repr, key=len, reverse=True))) or r"(?!)")
    lines = text.split("\n")
    above = names.search(lines[1]) if len(lines) > 1 else None

    def replaced(found: re.Match[str]) -> str:
        in_px, box = found[1] or "", found[2]
        named = names.search(found.string, found.end()) or above
        if in_px and dialect == "pixels":
            return found[0]
        if not in_px and not named and box in asked:
            return asked[box]
        return in_px + _written(converted(_numbers(box), dialect, sizes[by_repr[named[0]]] if named else None))

    for at, line in enumerate(lines):
        ours, mark, theirs = line.partition(" Looking for: ")
        lines[at] = _BOX.sub(replaced, ours) + mark + theirs if _OURS.match(line) else line
    return "\n".join(lines)


def _worded(text: str, dialect: str) -> str:
    """Return one of our texts with what it says of boxes in the dialect's words."""
    for plain, words in zip(DIALECTS[DEFAULT], DIALECTS[dialect], strict=True):
        text = text.replace(plain, words)
    # An image may have more px a side than 1000; the tool checks the range itself, for each image its own.
    return text.replace('"maximum": 1000, ', "") if dialect == "pixels" and DIALECTS[dialect][1] in text else text


def _numbers(text: str) -> Four:
    x, y, z, w = (float(number) for number in re.findall(_NUMBER, text))
    return x, y, z, w


def _plain(value: float) -> int | float:
    return int(value) if value == round(value) else value


def _written(box: Four) -> str:
    return "[" + ", ".join(str(_plain(v)) for v in box) + "]"
