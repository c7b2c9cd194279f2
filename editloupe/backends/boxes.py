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
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from editloupe.answers import BOX_RULE
from editloupe.backends.base import Traits
from editloupe.chat import Message, Reply, Request, TextPart, ToolCall
from editloupe.data.images import ImagePolicy
from editloupe.errors import ConfigError
from editloupe.values import Json, finite

Sizes: TypeAlias = Mapping[str, tuple[int, int]]
"""Image name in small letters → (width, height) in px, as the image is sent."""
Numbers: TypeAlias = tuple[float, ...]
Convert: TypeAlias = Callable[[Numbers, str], Numbers]

DEFAULT: Final = "thousandths"
BBOX_RULE: Final = (
    "four integers [x0, y0, x1, y1] from 0 to 1000, thousandths of the image's width and height, x to the right, y down, "
    "x0 < x1 and y0 < y1."
)
"""How a tool's schema describes a box."""
_PLAIN: Final = (
    "four integers [x0, y0, x1, y1] in thousandths (0 to 1000) of the width and height of the image they belong to",
    BBOX_RULE,
    "Boxes are [x0, y0, x1, y1] in thousandths of width and height.",
    "four integers between 0 and 1000, [x0, y0, x1, y1] as thousandths of the image's width and height",
    BOX_RULE.partition("{image!r}")[0],
)
"""What our texts say of boxes: the rule, the schema, an observation's note, an error's range, the rule of an answer."""
DIALECTS: Final[Mapping[str, tuple[str, ...]]] = {
    DEFAULT: _PLAIN,
    "thousandths_yx": tuple(
        text.replace("[x0, y0, x1, y1]", "[y0, x0, y1, x1], y first,").replace("width and height", "height and width")
        for text in _PLAIN
    ),
    "pixels": (
        "four integers [x0, y0, x1, y1] in pixels of the image they belong to, as you see it",
        "four integers [x0, y0, x1, y1] in pixels of the image, from 0 to its width and height, x to the right, y down, "
        "x0 < x1 and y0 < y1.",
        "Boxes are [x0, y0, x1, y1] in pixels.",
        "four integers inside the image, [x0, y0, x1, y1] in pixels",
        "A box is four whole numbers [x0, y0, x1, y1] in pixels, as you see it, of the image ",
    ),
}
"""The same texts by dialect."""

_QUOTE: Final = "[\"'“”„‟‘’]"
"""Calls are mended by their parser: a box that it reads and that is not converted would be another place."""
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_LIST: Final = rf"{_QUOTE}?\s*:\s*)(\[\s*{_NUMBER}(?:\s*,\s*{_NUMBER}){{3}}(?:\s*,)?\s*\])"
# Tools take numbers as strings, a list as a string and one nesting too many; answers do not.
_ITEM: Final = rf"{_QUOTE}?{_NUMBER}{_QUOTE}?"
_DRESSED: Final = (
    rf"{_QUOTE}?\s*:\s*)({_QUOTE}?(?:\[\s*)?\[\s*{_ITEM}(?:\s*,\s*{_ITEM}){{3}}(?:\s*,)?\s*\](?:\s*\])?{_QUOTE}?)"
)
_IN_CALL, _IN_ANSWER = re.compile(rf"(\bbbox{_DRESSED}"), re.compile(rf"(\bbox{_LIST}")
_TARGET: Final = re.compile(rf"\btarget_image{_QUOTE}?\s*:\s*{_QUOTE}([^\"'“”„‟‘’]*)")
_BLOCK: Final = re.compile(r"(<\s*tool_call\s*>.*?(?=<\s*/?\s*tool_call\s*>|\Z))", re.DOTALL | re.IGNORECASE)
_NEXT_CALL: Final = re.compile(r"(\}\s*,?\s*\{)")
_ANSWER: Final = re.compile(re.escape(_PLAIN[-1]) + r"('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")")
PX_HINT: Final = " If these are px of the image, "
"""With what a tool's error begins its advice on a box in px; it is cut where a model writes px."""
_PX_ADVICE: Final = re.compile(re.escape(PX_HINT) + r"[^\n]*\]")
_BOX: Final = re.compile(r"(\bpx )?(\[-?\d+(?:\.\d+)?(?:, -?\d+(?:\.\d+)?){3}\])")


def checked(name: str) -> str:
    """Return the name. Raises ConfigError where no dialect has it."""
    if name not in DIALECTS:
        raise ConfigError(f"boxes={name!r}: expected how the model writes boxes, one of {', '.join(DIALECTS)}")
    return name


def sizes_of(request: Request, policy: ImagePolicy) -> dict[str, tuple[int, int]]:
    """Return the sizes in px in which the images of a request are sent, by name."""
    images = (part for message in request.messages for part in message.images)
    return {part.alias.lower(): policy.size(part.image.width, part.image.height) for part in images}


def in_dialect(traits: Traits, request: Request, ask: Callable[[Request], Reply]) -> Reply:
    """Return the reply to a request that is asked in the model's dialect, with its boxes in thousandths again."""
    sizes = sizes_of(request, traits.image_policy)
    reply = ask(outgoing(request, traits.boxes, sizes))
    return incoming(reply, traits.boxes, sizes, answer=answer_image(request, sizes))


def box_numbers(given: Json) -> Numbers | None:
    """Return the four numbers of a box, also from strings, from a list in a string, and from one nesting too many.

    None for anything else.
    """
    value = given
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    numbers = [_number(number) for number in value] if isinstance(value, list | tuple) else []
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) == 4 else None


def _number(given: object) -> float | None:
    try:
        return finite(float(given) if isinstance(given, str) else given)
    except ValueError:
        return None


def answer_image(request: Request, sizes: Sizes) -> str | None:
    """Return the image in which the answer gives boxes, by the rule in the first message; None without one of `sizes`."""
    found = _ANSWER.search(_form(request)[1])
    name = str(ast.literal_eval(found[1])) if found else ""
    return name if name.lower() in sizes else None


def outgoing(request: Request, dialect: str, sizes: Sizes) -> Request:
    """Return the request in a dialect. A box of an image that `sizes` does not know stays as it is."""
    if dialect == DEFAULT:
        return request
    answer, (first, form) = answer_image(request, sizes), _form(request)
    asked: dict[str, str] = {}

    def convert(box: Numbers, image: str) -> Numbers:
        spoken = converted(box, dialect, sizes.get(image.strip().lower()))
        # What a tool repeats of a call is written as the call was, also where it does not name the image.
        asked[_written(box)] = _written(spoken)
        return spoken

    def rendered(text: str, message: Message) -> str:
        if message.role == "assistant":
            return _spoken(text, convert, answer)
        # Before the form the first message holds the user's instruction.
        if message.role == "system" or (message is first and text != form):
            return text
        observed = message is not first and text.startswith(("Observation of ", "Not run, since it could not be read"))
        return _worded(_observed(text, dialect, sizes, asked) if observed else text, dialect)

    def turned(message: Message) -> Message:
        calls = tuple(_call(call, convert) for call in message.tool_calls)
        parts = (replace(p, text=rendered(p.text, message)) if isinstance(p, TextPart) else p for p in message.parts)
        return replace(message, parts=tuple(parts), tool_calls=calls)

    schemas = (json.loads(_worded(json.dumps(tool.parameters, ensure_ascii=False), dialect)) for tool in request.tools)
    tools = tuple(replace(tool, parameters=schema) for tool, schema in zip(request.tools, schemas, strict=True))
    return replace(request, messages=tuple(map(turned, request.messages)), tools=tools)


def incoming(reply: Reply, dialect: str, sizes: Sizes, *, answer: str | None = None) -> Reply:
    """Return the reply with its boxes in thousandths: native calls, calls as text, and those of an answer.

    answer: the `answer_image` of the request.   `raw` and `tokens` stay what the model wrote.
    """
    if dialect == DEFAULT:
        return reply

    def convert(box: Numbers, image: str) -> Numbers:
        return converted(box, dialect, sizes.get(image.strip().lower()), back=True)

    calls = tuple(_call(call, convert) for call in reply.tool_calls)
    return replace(reply, text=_spoken(reply.text, convert, answer), tool_calls=calls)


def converted(box: Numbers, dialect: str, size: tuple[int, int] | None, *, back: bool = False) -> Numbers:
    """Convert a box from thousandths into a dialect, or back. It stays where the dialect needs an unknown size."""
    if dialect == "thousandths_yx":
        return box[1], box[0], box[3], box[2]
    if dialect == DEFAULT or size is None:
        return box
    return tuple(round(at * 1000 / side if back else at * side / 1000) for at, side in zip(box, size * 2, strict=True))


def _form(request: Request) -> tuple[Message | None, str]:
    """Return the first message of the user, and its form: the last of several texts."""
    first = next((message for message in request.messages if message.role == "user"), None)
    last = first.parts[-1] if first and len(first.parts) > 1 else None
    return first, last.text if isinstance(last, TextPart) else ""


def _call(call: ToolCall, convert: Convert) -> ToolCall:
    box, target = call.arguments.get("bbox"), call.arguments.get("target_image")
    known = box_numbers(box)
    if known is None:
        return call
    new = convert(known, target if isinstance(target, str) else "")
    return replace(call, arguments={**call.arguments, "bbox": [int(v) if v == int(v) else v for v in new]})


def _spoken(text: str, convert: Convert, answer: str | None) -> str:
    """Return a model's text with the boxes of its calls and of its answer converted, and all else as it was."""

    def in_image(image: str, found: re.Match[str]) -> str:
        return f"{found[1]}{_written(convert(_numbers(found[2]), image))}"

    def in_call(call: str) -> str:
        target = _TARGET.search(call)
        return _IN_CALL.sub(partial(in_image, target[1] if target else ""), call)

    pieces = _BLOCK.split(text)
    for at, piece in enumerate(pieces):
        if at % 2:
            pieces[at] = "".join(map(in_call, _NEXT_CALL.split(piece)))
        elif answer is not None:
            pieces[at] = _IN_ANSWER.sub(partial(in_image, answer), piece)
    return "".join(pieces)


def _observed(text: str, dialect: str, sizes: Sizes, asked: Mapping[str, str]) -> str:
    """Return an observation with its boxes in the dialect. asked: a call's boxes, as they were written."""
    names = re.compile("|".join(re.escape(repr(name)) for name in sizes) or "(?!)", re.IGNORECASE)
    above = names.search(text.partition("\n")[2].partition("\n")[0])

    def replaced(found: re.Match[str]) -> str:
        px, box = found[1] or "", found[2]
        if px and dialect == "pixels":
            return found[0]
        named = names.search(found.string, found.end()) or above
        if not px and not named and box in asked:
            return asked[box]
        size = sizes[str(ast.literal_eval(named[0])).lower()] if named else None
        return px + _written(converted(_numbers(box), dialect, size))

    if dialect == "pixels":
        text = _PX_ADVICE.sub("", text)
    lines = text.split("\n")
    for at, line in enumerate(lines):
        # Behind the mark stand the model's own words.
        ours, mark, theirs = line.partition(" Looking for: ")
        lines[at] = _BOX.sub(replaced, ours) + mark + theirs
    return "\n".join(lines)


def _worded(text: str, dialect: str) -> str:
    """Return one of our texts with what it says of boxes in the dialect's words."""
    for plain, words in zip(_PLAIN, DIALECTS[dialect], strict=True):
        text = text.replace(plain, words)
    # An image may have more px a side than 1000; the tool checks the range itself, for each image its own.
    return text.replace('"maximum": 1000, ', "") if dialect == "pixels" and DIALECTS[dialect][1] in text else text


def _numbers(text: str) -> Numbers:
    return tuple(map(float, re.findall(_NUMBER, text)))


def _written(box: Numbers) -> str:
    return "[" + ", ".join(f"{value:g}" for value in box) + "]"
