"""How a model writes boxes. What is recorded is in thousandths, x first; an adapter speaks its model's dialect.

thousandths      [x0, y0, x1, y1], integers 0 to 1000 of width and height: what everything recorded holds
thousandths_yx   [y0, x0, y1, x1], the same numbers: Gemini's own convention
pixels           [x0, y0, x1, y1], px of the image as it was sent, after any resizing: Qwen2.5-VL's own convention

`outgoing` renders a request to a dialect, `incoming` parses a reply back; both are pure, and the identity for thousandths.
Only our own texts are rendered: the rule in the first message and in the tools' schemas, the rule of an answer with boxes,
observations of tools, and the calls and answers in the model's earlier messages. The instruction and whatever else a user
or an image says stay as they are.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from editloupe.answers import BOX, BOX_RULE
from editloupe.chat import Message, Part, Reply, Request, TextPart, ToolCall
from editloupe.data.images import ImagePolicy
from editloupe.errors import ConfigError
from editloupe.values import Json

Sizes: TypeAlias = Mapping[str, tuple[int, int]]
"""Image name → (width, height) in px, as the image is sent."""
Four: TypeAlias = tuple[float, float, float, float]

DEFAULT: Final = "thousandths"
ARGUMENT: Final = "bbox"
"""The tools' argument that holds a box; the image it belongs to is named beside it, in TARGET."""
TARGET: Final = "target_image"


@dataclass(frozen=True, kw_only=True)
class _Words:
    """What our texts say of boxes, in one dialect."""

    rule: str
    """In the first message."""
    schema: str
    """Of the argument."""
    note: str
    """At the end of observations."""
    range: str
    """In a tool's error."""
    answer: str
    """In the instructions for an answer with boxes of the image `image`."""


DIALECTS: Final[Mapping[str, _Words]] = {
    "thousandths": _Words(
        rule="Boxes are four integers [x0, y0, x1, y1] in thousandths (0 to 1000) of the width and height of the image "
        "they belong to, the origin at the top left.",
        schema="four integers [x0, y0, x1, y1] from 0 to 1000, thousandths of the image's width and height, x to the "
        "right, y down, x0 < x1 and y0 < y1.",
        note="Boxes are [x0, y0, x1, y1] in thousandths of width and height.",
        range="expected four integers between 0 and 1000, [x0, y0, x1, y1] as thousandths of the image's width and height",
        answer=BOX_RULE,
    ),
    "thousandths_yx": _Words(
        rule="Boxes are four integers [y0, x0, y1, x1], y first, in thousandths (0 to 1000) of the height and width of the "
        "image they belong to, the origin at the top left.",
        schema="four integers [y0, x0, y1, x1], y first, from 0 to 1000, thousandths of the image's height and width, "
        "x to the right, y down, x0 < x1 and y0 < y1.",
        note="Boxes are [y0, x0, y1, x1], y first, in thousandths of height and width.",
        range="expected four integers between 0 and 1000, [y0, x0, y1, x1], y first, as thousandths of the image's height "
        "and width",
        answer="A box is four whole numbers [y0, x0, y1, x1], y first, in thousandths (0 to 1000) of the height and width "
        "of the image {image!r}, the origin at the top left.",
    ),
    "pixels": _Words(
        rule="Boxes are four integers [x0, y0, x1, y1] in pixels of the image they belong to, as you see it, the origin at "
        "the top left.",
        schema="four integers [x0, y0, x1, y1] in pixels of the image, from 0 to its width and height, x to the right, "
        "y down, x0 < x1 and y0 < y1.",
        note="Boxes are [x0, y0, x1, y1] in pixels.",
        range="expected four integers inside the image, [x0, y0, x1, y1] in pixels",
        answer="A box is four whole numbers [x0, y0, x1, y1] in pixels of the image {image!r}, as you see it, the origin "
        "at the top left.",
    ),
}
"""Name of a dialect → what our texts say in it. The first holds the texts that tools and prompts really have."""


def checked(name: str) -> str:
    """Return the name. Raises ConfigError where no dialect has it."""
    if name not in DIALECTS:
        raise ConfigError(f"boxes={name!r}: expected how the model writes boxes, one of {', '.join(DIALECTS)}")
    return name


def sizes_of(request: Request, policy: ImagePolicy) -> dict[str, tuple[int, int]]:
    """Return the sizes in px in which the images of a request are sent, by name."""
    images = (part for message in request.messages for part in message.images)
    return {part.alias: policy.size(part.image.width, part.image.height) for part in images}


def answer_image(request: Request, sizes: Sizes) -> str | None:
    """Return the image in which the answer to a question gives boxes, as the rule in the first message names it.

    None where there is no such rule, and where the image is not shown.
    """
    first = next((message for message in request.messages if message.role == "user"), None)
    texts = [] if first is None else [part.text for part in first.parts[1:] if isinstance(part, TextPart)]
    found = _ANSWER.search(texts[-1]) if texts else None
    name = str(ast.literal_eval(found["image"])) if found else ""
    return name if _size(sizes, name) is not None else None


def outgoing(request: Request, dialect: str, sizes: Sizes) -> Request:
    """Return the request in a dialect. A box of an image that `sizes` does not know stays as it is."""
    if dialect == DEFAULT:
        return request
    view = _Outgoing(dialect, sizes, answer_image(request, sizes))
    # The first message of a user holds the rule.
    first = next((i for i, message in enumerate(request.messages) if message.role == "user"), -1)
    return replace(
        request,
        messages=tuple(view.message(message, first=i == first) for i, message in enumerate(request.messages)),
        tools=tuple(replace(tool, parameters=view.schema(tool.parameters)) for tool in request.tools),
    )


def incoming(reply: Reply, dialect: str, sizes: Sizes, *, answer: str | None = None) -> Reply:
    """Return the reply with its boxes in thousandths: native calls, calls as text, and those of an answer.

    answer: the `answer_image` of the request.   `raw` and `tokens` stay what the model wrote.
    """
    if dialect == DEFAULT:
        return reply

    def convert(box: Four, image: str) -> Four:
        return to_thousandths(box, dialect, _size(sizes, image))

    calls = tuple(_call(call, convert) for call in reply.tool_calls)
    text = _calls_in_text(reply.text, convert)
    return replace(reply, text=text if answer is None else _answer_in_text(text, answer, convert), tool_calls=calls)


def _size(sizes: Sizes, name: str) -> tuple[int, int] | None:
    """Return the image's size. As with the tools, case does not count where no name fits exactly."""
    folded = name.strip().casefold()
    return sizes.get(name) or next((size for known, size in sizes.items() if known.casefold() == folded), None)


def from_thousandths(box: Four, dialect: str, size: tuple[int, int] | None) -> Four:
    """Convert [x0, y0, x1, y1] from thousandths into a dialect. It stays where the dialect needs an unknown size."""
    if dialect == "thousandths_yx":
        return box[1], box[0], box[3], box[2]
    if dialect == "pixels" and size is not None:
        return _scaled(box, (1000, 1000), size)
    return box


def to_thousandths(box: Four, dialect: str, size: tuple[int, int] | None) -> Four:
    """Convert a box the other way. What is out of range, inverted or empty stays so: the tool's check tells the model."""
    if dialect == "thousandths_yx":
        return box[1], box[0], box[3], box[2]
    if dialect == "pixels" and size is not None:
        if all(0 <= v <= 1 for v in box) and any(v != round(v) for v in box):
            # Fractions: as px they would be nothing at all, and the tool has a word for them.
            return box
        return _scaled(box, size, (1000, 1000))
    return box


def _scaled(box: Four, whole: tuple[int, int], into: tuple[int, int]) -> Four:
    """Return the box scaled, rounded to the nearest: nothing is lost on the way to px and back from 1000 px a side.

    Two edges that fall on one stay one apart where they were apart before.
    """
    edges = [0.0, 0.0, 0.0, 0.0]
    for axis in (0, 1):
        low, high = box[axis], box[axis + 2]
        one, other = (_edge(v, whole[axis], into[axis]) for v in (low, high))
        if one == other and low < high:
            scaled = low * into[axis] / whole[axis]
            one = min(one, math.floor(scaled + 1e-9)) if one > 0 else one
            other = one + 1
            if other > into[axis] >= high * into[axis] / whole[axis]:
                one, other = into[axis] - 1, into[axis]
        edges[axis], edges[axis + 2] = one, other
    return edges[0], edges[1], edges[2], edges[3]


def _edge(value: float, whole: int, into: int) -> int:
    scaled = math.floor(value * into / whole + 0.5)
    if value < 0:
        return min(-1, scaled)
    return max(into + 1, scaled) if value > whole else min(into, scaled)


# Boxes in calls


Convert: TypeAlias = Callable[[Four, str], Four]

# Whatever the parser of replies takes, since it mends quotes: a box that it reads and that is not converted would be
# another place.
_QUOTE = "[\"'“”„‟‘’]"
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_LIST = rf"\[\s*{_NUMBER}(?:\s*,\s*{_NUMBER}){{3}}\s*,?\s*\]"
_IN_CALL = re.compile(rf"({_QUOTE}?\b{ARGUMENT}{_QUOTE}?\s*:\s*)({_LIST})")
_TARGET = re.compile(rf"\b{TARGET}{_QUOTE}?\s*:\s*{_QUOTE}((?:[^\"'“”„‟‘’\\]|\\.)*){_QUOTE}")
_IN_ANSWER = re.compile(rf"({_QUOTE}?\b{BOX}{_QUOTE}?\s*:\s*)({_LIST})")
_REPR = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
_ANSWER = re.compile(f"(?P<image>{_REPR})".join(map(re.escape, BOX_RULE.split("{image!r}"))))
_BLOCK = re.compile(r"<\s*tool_call\s*>.*?(?=<\s*/?\s*tool_call\s*>|\Z)", re.DOTALL | re.IGNORECASE)


def _call(call: ToolCall, convert: Convert) -> ToolCall:
    box, target = _four(call.arguments.get(ARGUMENT)), call.arguments.get(TARGET)
    if box is None:
        return call
    new: list[Json] = [_plain(v) for v in convert(box, target if isinstance(target, str) else "")]
    return replace(call, arguments={**call.arguments, ARGUMENT: new})


def _calls_in_text(text: str, convert: Convert) -> str:
    """Return the text with the boxes of its <tool_call> blocks converted and every other character as it was."""

    def converted(match: re.Match[str]) -> str:
        box = _numbers(match[2])
        named = _TARGET.search(match.string, *_object_around(match.string, match.start()))
        new = convert(box, named[1] if named else "")
        return match[0] if new == box else match[1] + _written(new)

    return _BLOCK.sub(lambda block: _IN_CALL.sub(converted, block[0]), text)


def _answer_in_text(text: str, image: str, convert: Convert) -> str:
    """Return the text with every `box` outside its <tool_call> blocks converted, and every other character as it was."""

    def converted(match: re.Match[str]) -> str:
        box = _numbers(match[2])
        new = convert(box, image)
        return match[0] if new == box else match[1] + _written(new)

    pieces, at = [], 0
    for block in _BLOCK.finditer(text):
        pieces += [_IN_ANSWER.sub(converted, text[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*pieces, _IN_ANSWER.sub(converted, text[at:])])


def _object_around(text: str, at: int) -> tuple[int, int]:
    """Return where the innermost {…} around a place begins and ends. Braces in strings do not count."""
    opened: list[int] = []
    quoted = skipped = False
    for index, sign in enumerate(text):
        if skipped:
            skipped = False
        elif sign == "\\" and quoted:
            skipped = True
        elif sign == '"':
            quoted = not quoted
        elif sign == "{" and not quoted:
            opened.append(index)
        elif sign == "}" and not quoted and opened:
            begun = opened.pop()
            if begun < at < index:
                return begun, index
    return opened[-1] if opened and opened[-1] < at else 0, len(text)


def _numbers(text: str) -> Four:
    """Return the four numbers of a match of _LIST."""
    x, y, z, w = (float(number) for number in re.findall(_NUMBER, text))
    return x, y, z, w


def _four(value: Json) -> Four | None:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 4:
        return None
    numbers = [v for v in value if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if len(numbers) == 4 else None


def _plain(value: float) -> int | float:
    return int(value) if math.isfinite(value) and value == round(value) else value


def _written(box: Four) -> str:
    return "[" + ", ".join(str(_plain(v)) for v in box) + "]"


# Our own texts


_OBSERVED = re.compile(r"Observation of |Not run, since it could not be read")
_OURS = re.compile(r"(?:Crop \d+|\d+): |Not shown: |Error: ")
"""How the lines of an observation begin that hold boxes."""
_BOX = re.compile(r"(\bpx )?(\[-?\d+(?:\.\d+)?(?:, -?\d+(?:\.\d+)?){3}\])")
_LEAST = re.compile(r"x1 - x0 ≥ (\d+) and y1 - y0 ≥ (\d+)")


class _Outgoing:
    """One request on its way to a model of a dialect. answer: the image in which its answer gives boxes; None for none."""

    def __init__(self, dialect: str, sizes: Sizes, answer: str | None) -> None:
        self._dialect, self._sizes, self._answer = dialect, sizes, answer
        self._words, self._plain = DIALECTS[dialect], DIALECTS[DEFAULT]
        self._by_repr = {repr(name): name for name in sizes}
        known = sorted(self._by_repr, key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, known)) or r"(?!)")
        self._asked: dict[str, str] = {}

    def message(self, message: Message, *, first: bool) -> Message:
        if message.role == "assistant":
            return self._said(message)
        parts = list(message.parts)
        if first:
            # The last text is the tools' and the reply's form; the question before it holds the user's instruction.
            last = max((i for i, p in enumerate(parts) if isinstance(p, TextPart)), default=-1)
            parts = [self._rule(p) if i == last and i > 0 and isinstance(p, TextPart) else p for i, p in enumerate(parts)]
        elif message.role in ("user", "tool"):
            parts = [self._observed(p) if isinstance(p, TextPart) and _OBSERVED.match(p.text) else p for p in parts]
            if message.role == "user" and parts and isinstance(closing := parts[-1], TextPart):
                # The form of the answer is said again in the last turn, and in a reminder.
                parts[-1] = replace(closing, text=self._answer_rule(closing.text))
        return replace(message, parts=tuple(parts))

    def schema(self, schema: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the schema of a tool's arguments. Only the box's own part changes."""
        properties = schema.get("properties")
        box = properties.get(ARGUMENT) if isinstance(properties, Mapping) else None
        if not isinstance(properties, Mapping) or not isinstance(box, Mapping):
            return schema
        said = str(box.get("description", ""))
        if self._plain.schema in said:
            said = said.replace(self._plain.schema, self._words.schema)
        else:
            said = f"{said} It is {self._words.schema}".strip()
        new: dict[str, Json] = {**box, "description": said}
        items = box.get("items")
        if self._dialect == "pixels" and isinstance(items, Mapping):
            # A side may have more px than 1000; the tool checks the range itself, for each image its own.
            new["items"] = {key: value for key, value in items.items() if key != "maximum"}
        return {**schema, "properties": {**properties, ARGUMENT: new}}

    def _box(self, box: Four, image: str) -> Four:
        return from_thousandths(box, self._dialect, _size(self._sizes, image))

    def _said(self, message: Message) -> Message:
        self._asked = {}

        def convert(box: Four, image: str) -> Four:
            spoken = self._box(box, image)
            # What a tool repeats of a call is written as the call was, also where it does not name the image.
            self._asked[_written(box)] = _written(spoken)
            return spoken

        def spoken(text: str) -> str:
            text = _calls_in_text(text, convert)
            return text if self._answer is None else _answer_in_text(text, self._answer, self._box)

        parts: tuple[Part, ...] = tuple(
            replace(p, text=spoken(p.text)) if isinstance(p, TextPart) else p for p in message.parts
        )
        return replace(message, parts=parts, tool_calls=tuple(_call(c, convert) for c in message.tool_calls))

    def _answer_rule(self, text: str) -> str:
        if self._answer is None:
            return text
        return _ANSWER.sub(lambda _: self._words.answer.format(image=self._answer), text, count=1)

    def _rule(self, part: TextPart) -> TextPart:
        """Render the rules once, and the schemas, each on a line of its own."""
        head = "  Parameters (JSON Schema): "
        lines = part.text.replace(self._plain.rule, self._words.rule, 1).split("\n")
        for i, line in enumerate(lines):
            if line.startswith(head):
                try:
                    schema = json.loads(line.removeprefix(head))
                except ValueError:
                    continue
                if isinstance(schema, Mapping):
                    lines[i] = head + json.dumps(self.schema(schema), ensure_ascii=False)
        return replace(part, text=self._answer_rule("\n".join(lines)))

    def _observed(self, part: TextPart) -> TextPart:
        lines = part.text.split("\n")
        name = self._named(lines[1]) if len(lines) > 1 else ""
        return replace(part, text="\n".join(self._line(line, name) for line in lines))

    def _named(self, text: str, start: int = 0) -> str:
        """Return the first image that a text names; "" for none."""
        found = self._names.search(text, start)
        return self._by_repr[found[0]] if found else ""

    def _line(self, line: str, above: str) -> str:
        """Return a line of an observation. above: the image that the observation is of."""
        plain, words = self._plain, self._words
        if line.startswith(plain.note):
            return words.note + line.removeprefix(plain.note)
        if not _OURS.match(line):
            return line
        # Behind these stand the model's own words.
        ours, mark, theirs = line.partition(" Looking for: ")

        def converted(match: re.Match[str]) -> str:
            in_px, text = match[1] or "", match[2]
            name = self._named(match.string, match.end()) or above
            if in_px and self._dialect == "pixels":
                return match[0]
            if not in_px and not name and text in self._asked:
                return self._asked[text]
            return in_px + _written(self._box(_numbers(text), name))

        def least(match: re.Match[str]) -> str:
            size = _size(self._sizes, self._named(match.string))
            if self._dialect != "pixels" or size is None:
                return match[0]
            x, y = (math.ceil(int(n) * side / 1000 - 1e-9) for n, side in zip(match.groups(), size, strict=True))
            return f"x1 - x0 ≥ {x} and y1 - y0 ≥ {y}"

        ours = ours.replace(plain.range, words.range).replace(plain.schema, words.schema)
        return _LEAST.sub(least, _BOX.sub(converted, ours)) + mark + theirs
