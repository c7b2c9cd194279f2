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
from editloupe.errors import ConfigError
from editloupe.values import Json, finite

Numbers: TypeAlias = tuple[float, ...]

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


def in_dialect(traits: Traits, request: Request, ask: Callable[[Request], Reply]) -> Reply:
    """Return the reply to a request that is asked in the model's dialect, with its boxes in thousandths again."""
    return incoming(ask(outgoing(request, traits)), request, traits)


def outgoing(request: Request, traits: Traits) -> Request:
    """Return the request in a model's dialect. A box of an image that it does not show stays as it is."""
    if traits.boxes == DEFAULT:
        return request
    talk = _Talk(request, traits)
    schemas = (json.loads(talk.worded(json.dumps(tool.parameters, ensure_ascii=False))) for tool in request.tools)
    tools = tuple(replace(tool, parameters=schema) for tool, schema in zip(request.tools, schemas, strict=True))
    return replace(request, messages=tuple(map(talk.message, request.messages)), tools=tools)


def incoming(reply: Reply, request: Request, traits: Traits) -> Reply:
    """Return the reply to a request with its boxes in thousandths: native calls, calls as text, and those of an answer.

    `raw` and `tokens` stay what the model wrote.
    """
    if traits.boxes == DEFAULT:
        return reply
    talk = _Talk(request, traits, back=True)
    return replace(reply, text=talk.spoken(reply.text), tool_calls=tuple(map(talk.call, reply.tool_calls)))


def converted(box: Numbers, dialect: str, size: tuple[int, int] | None, *, back: bool = False) -> Numbers:
    """Convert a box from thousandths into a dialect, or back. It stays where the dialect needs an unknown size."""
    if dialect == "thousandths_yx":
        return box[1], box[0], box[3], box[2]
    if dialect == DEFAULT or size is None:
        return box
    return tuple(round(at * 1000 / side if back else at * side / 1000) for at, side in zip(box, size * 2, strict=True))


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


class _Talk:
    """A conversation that is rendered to its model's dialect, or back."""

    def __init__(self, request: Request, traits: Traits, *, back: bool = False) -> None:
        self._dialect, self._back, policy = traits.boxes, back, traits.image_policy
        shown = (part for message in request.messages for part in message.images)
        self._sizes = {part.alias.lower(): policy.size(part.image.width, part.image.height) for part in shown}
        """Image name in small letters → (width, height) in px, as the image is sent."""
        self._first = next((message for message in request.messages if message.role == "user"), None)
        last = self._first.parts[-1] if self._first and len(self._first.parts) > 1 else None
        self._form = last.text if isinstance(last, TextPart) else ""
        """How to reply: the last of several texts of the user's first message. Before it stands the user's instruction."""
        rule = _ANSWER.search(self._form)
        name = str(ast.literal_eval(rule[1])) if rule else ""
        self._answer = name if name.lower() in self._sizes else None
        """The image in which the answer gives boxes, by the rule in the form."""
        self._asked: dict[str, str] = {}
        """Boxes of calls, as they are recorded and as they were written."""

    def message(self, message: Message) -> Message:
        parts = (replace(p, text=self._text(p.text, message)) if isinstance(p, TextPart) else p for p in message.parts)
        return replace(message, parts=tuple(parts), tool_calls=tuple(map(self.call, message.tool_calls)))

    def _text(self, text: str, message: Message) -> str:
        if message.role == "assistant":
            return self.spoken(text)
        if message.role == "system" or (message is self._first and text != self._form):
            return text
        observed = message is not self._first and text.startswith(
            ("Observation of ", "Not run, since it could not be read")
        )
        return self.worded(self._observed(text) if observed else text)

    def _convert(self, box: Numbers, image: str) -> Numbers:
        new = converted(box, self._dialect, self._sizes.get(image.strip().lower()), back=self._back)
        # What a tool repeats of a call is written as the call was, also where it does not name the image.
        self._asked[_written(box)] = _written(new)
        return new

    def call(self, call: ToolCall) -> ToolCall:
        box, target = box_numbers(call.arguments.get("bbox")), call.arguments.get("target_image")
        if box is None:
            return call
        new = self._convert(box, target if isinstance(target, str) else "")
        return replace(call, arguments={**call.arguments, "bbox": [int(v) if v == int(v) else v for v in new]})

    def spoken(self, text: str) -> str:
        """Return a model's text with the boxes of its calls and of its answer converted, and all else as it was."""

        def in_image(image: str, found: re.Match[str]) -> str:
            return f"{found[1]}{_written(self._convert(_numbers(found[2]), image))}"

        def in_call(call: str) -> str:
            target = _TARGET.search(call)
            return _IN_CALL.sub(partial(in_image, target[1] if target else ""), call)

        pieces = _BLOCK.split(text)
        pieces[1::2] = ["".join(map(in_call, _NEXT_CALL.split(block))) for block in pieces[1::2]]
        if self._answer is not None:
            pieces[::2] = [_IN_ANSWER.sub(partial(in_image, self._answer), piece) for piece in pieces[::2]]
        return "".join(pieces)

    def _observed(self, text: str) -> str:
        """Return an observation with its boxes in the dialect."""
        names = re.compile("|".join(re.escape(repr(name)) for name in self._sizes) or "(?!)", re.IGNORECASE)
        above = names.search(text.partition("\n")[2].partition("\n")[0])

        def replaced(found: re.Match[str]) -> str:
            px, box = found[1] or "", found[2]
            if px and self._dialect == "pixels":
                return found[0]
            named = names.search(found.string, found.end()) or above
            if not px and not named and box in self._asked:
                return self._asked[box]
            size = self._sizes[str(ast.literal_eval(named[0])).lower()] if named else None
            return px + _written(converted(_numbers(box), self._dialect, size))

        lines = (_PX_ADVICE.sub("", text) if self._dialect == "pixels" else text).split("\n")
        # Behind the mark stand the model's own words.
        parted = (line.partition(" Looking for: ") for line in lines)
        return "\n".join(_BOX.sub(replaced, ours) + mark + theirs for ours, mark, theirs in parted)

    def worded(self, text: str) -> str:
        """Return one of our texts with what it says of boxes in the dialect's words."""
        for plain, words in zip(_PLAIN, DIALECTS[self._dialect], strict=True):
            text = text.replace(plain, words)
        # An image may have more px a side than 1000; the tool checks the range itself, for each image its own.
        in_px = self._dialect == "pixels" and DIALECTS[self._dialect][1] in text
        return text.replace('"maximum": 1000, ', "") if in_px else text


def _numbers(text: str) -> Numbers:
    return tuple(map(float, re.findall(_NUMBER, text)))


def _written(box: Numbers) -> str:
    return "[" + ", ".join(f"{value:g}" for value in box) + "]"
