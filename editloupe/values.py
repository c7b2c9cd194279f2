"""What an edit is made of: images, boxes, views, targets, turns, samples, scores. Frozen values without I/O.

Coordinates are pixels of one image unless a name says otherwise: x to the right, y down, the end exclusive.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema, from_json

from editloupe.errors import ConfigError

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
else:
    # The same type as pydantic reads it: a recursive alias of covariant parts is more than it can resolve.
    from pydantic import JsonValue as Json

_MOST: Final = 1_000_000
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)

MAX_NESTING: Final = 100
"""How many brackets of a JSON text may stand in one another. What Python itself reads depends on its version and stack."""

_ENDS: Final = (".", "!", "?", "。", "！", "？")
"""What ends a sentence."""
_NO_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[^][{}"]+', re.DOTALL)


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Return the value of a JSON text. `hooks` are those of `json.loads`.

    Raises ValueError for text that is no JSON, and for one nested deeper than `MAX_NESTING`.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    check_nesting(text)
    return json.loads(text, **hooks)


def finite_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError as `parse_json`, and for NaN, infinity and 1e999."""
    # pydantic's parser is three times as fast and keeps short words once. It says less of what is wrong, and of 1e999
    # makes an infinity.
    if isinstance(text, bytes) and text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        try:
            value = from_json(text, allow_inf_nan=False)
        except ValueError:
            value = math.inf
        if _all_finite(value):
            return value
    return parse_json(text, parse_constant=_finite, parse_float=_finite)


def _all_finite(value: Any) -> bool:
    """Return whether all numbers of a JSON value are finite."""
    parts: list[Any] = [[value]]
    for part in parts:
        for one in part.values() if isinstance(part, dict) else part:
            kind = type(one)
            if kind is float:
                if not math.isfinite(one):
                    return False
            elif one and (kind is dict or kind is list):
                parts.append(one)
    return True


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"holds {text[:20]}, which is no finite number")
    return number


def check_nesting(text: str) -> None:
    """Raise ValueError where more than `MAX_NESTING` brackets of a JSON text stand in one another."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return
    depth = 0
    for bracket in _NO_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise ValueError(f"brackets are nested deeper than {MAX_NESTING}")


def not_finite(value: Json) -> str:
    """Return where a JSON value holds NaN or an infinity, such as "identity.options.mask_pad"; "" where it holds none."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else "it"
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        if found := not_finite(inner):
            return f"{name}" if found == "it" else f"{name}.{found}"
    return ""


def distinct_keys(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    """Return a JSON object of its pairs, as a hook of `parse_json`. Raises ValueError for a key that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"holds the key {twice[:60]!r} twice")
    return found


def check_extent(value: object) -> None:
    """Raise ValueError for a value of lists and objects that is nested too deep, or too large, to be worked with.

    Every part counts as often as it occurs: with YAML's aliases a short text stands for more than fits into memory.
    """
    parts = [value]
    for _ in range(MAX_NESTING):
        within = (p.values() if isinstance(p, dict) else p for p in parts if isinstance(p, dict | list | tuple))
        parts = list(islice(chain.from_iterable(within), _MOST + 1))
        if not parts:
            return
        if len(parts) > _MOST:
            raise ValueError(f"holds more than {_MOST:,} values")
    raise ValueError(f"is nested too deep, in more than {MAX_NESTING} levels")


def finite(value: object) -> float | None:
    """Return a number as a float; None for a truth value, for anything else, and for what is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def canonical_json(value: Json) -> str:
    """Return the one text of a JSON value: keys sorted, no spaces, UTF-8 kept, NaN and infinity refused (ValueError)."""
    return _CANONICAL.encode(value)


def compact_bytes(value: Json) -> bytes:
    """Return a JSON value without spaces, keys in their order. Half a surrogate pair becomes its JSON escape.

    Raises ValueError for NaN and infinity.
    """
    return _COMPACT.encode(value).encode("utf-8", "backslashreplace")


def json_line(row: Mapping[str, Json]) -> bytes:
    """Return the canonical JSON of a row as a line of a JSON Lines file. Half a surrogate pair becomes a question mark."""
    return canonical_json(row).encode("utf-8", "replace") + b"\n"


def digest(value: Json) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of `value`."""
    # Half a surrogate pair, which JSON allows and UTF-8 does not, becomes its JSON escape.
    return hashlib.sha256(canonical_json(value).encode("utf-8", "backslashreplace")).hexdigest()


_doors: Final[dict[str, Callable[..., Any]]] = {}


def opened(**doors: Callable[..., Any]) -> None:
    """Enter what values do by modules above them: `html(kind, value)`, `from_images` and `from_row`."""
    _doors.update(doors)


def notebook_html(kind: str, value: object) -> str | None:
    """Return how a finding, a trace or a run shows itself in a notebook; None, which is as text, without a renderer."""
    html: str | None = _doors["html"](kind, value) if "html" in _doors else None
    return html


def source_digest(function: object) -> str:
    """Return 12 hex digits of a function's or a class's source; "" where Python does not have it."""
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 - as that of functools, which it stands for
        """Compute an attribute once and keep it in the instance, as `functools.cached_property` does from 3.12 on.

        That of 3.11 holds one lock for all instances of a class while it computes: the threads of a run would wait for it.
        Here two threads that ask at once may both compute, so that the function must return equal values.
        """

        def __init__(self, compute):
            self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**53)]
"""A number of things, so bounded that sums of many fit into 64 bits. Checked where a record is read."""


class Serializable:
    """Give a frozen dataclass `to_json` and `from_json`, both made by pydantic from its fields."""

    __slots__ = ()

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON: objects, lists, strings, numbers, booleans and None."""
        data: dict[str, Json] = _adapter(type(self)).dump_python(self, mode="json", warnings=False)
        return data

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Return the value that `to_json` wrote. Keys that are no field are ignored.

        Raises ValueError (pydantic's ValidationError, which names the field) for data of another shape.
        """
        value: Self = _adapter(cls).validator.validate_python(data)
        return value


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
_MAKING = threading.Lock()
"""An adapter takes milliseconds to make; without it every thread of a run that begins would make each for itself."""


def _adapter(cls: type) -> TypeAdapter[Any]:
    found = _ADAPTERS.get(cls)
    if found is None:
        with _MAKING:
            found = _ADAPTERS.get(cls) or _ADAPTERS.setdefault(cls, TypeAdapter(cls))
    return found


_CONTAINERS: Final = (str, tuple, list, Mapping)


def is_empty(value: object) -> bool:
    """Return True for None, "" and empty containers: fields that JSON leaves out where they say nothing."""
    return value is None or (not value and isinstance(value, _CONTAINERS))


_LocalPath = Annotated[Path | None, Field(exclude=True), BeforeValidator(lambda _: None)]
"""A path of this machine. It is never written, and a path in a file of somebody else is never believed."""


_LocalBytes = Annotated[bytes | Callable[[], bytes] | None, Field(exclude=True), BeforeValidator(lambda _: None)]
"""Bytes in this process's memory. They are never written beside a value, and those of a file are never believed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRef(Serializable):
    """One image, known by the SHA-256 of its bytes."""

    sha256: str
    """64 hex digits, of the file's bytes."""
    width: Annotated[int, Field(ge=1)]
    """In px, after EXIF rotation."""
    height: Annotated[int, Field(ge=1)]
    """In px, after EXIF rotation."""
    media_type: str
    """For example "image/png"."""
    path: _LocalPath = field(default=None, compare=False, repr=False)
    """Where the bytes were read from. It is not compared, not hashed and not recorded."""
    data: _LocalBytes = field(default=None, compare=False, repr=False)
    """Of an image that lies in no file of its own: its bytes, or what reads them. Not compared, hashed or recorded."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels of one image: x right, y down, end exclusive, at least a sliver wide and high.

    Raises ValueError for a value that is not finite and for an inverted or empty box.
    """

    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        # Floats throughout, so that a box has one JSON and one digest, however it was given.
        if not type(self.x0) is type(self.y0) is type(self.x1) is type(self.y1) is float:
            for name in ("x0", "y0", "x1", "y1"):
                object.__setattr__(self, name, float(getattr(self, name)))
        # A finite sum has finite parts.
        if not math.isfinite(self.x0 + self.y0 + self.x1 + self.y1) and not all(map(math.isfinite, self)):
            raise ValueError(f"box {list(self)} has a value that is not a finite number")
        if self.x1 <= self.x0 or self.y1 <= self.y0:
            raise ValueError(f"box {list(self)} is empty or inverted: expected [x0, y0, x1, y1] with x0 < x1 and y0 < y1")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Box], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema by which a box is a list of four numbers in JSON."""
        four = core_schema.list_schema(core_schema.float_schema(), min_length=4, max_length=4)
        from_list = core_schema.no_info_after_validator_function(lambda values: cls(*values), four)
        return core_schema.json_or_python_schema(
            json_schema=from_list,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_list]),
            serialization=core_schema.plain_serializer_function_ser_schema(list, return_schema=four),
        )

    def __iter__(self) -> Iterator[float]:
        return iter((self.x0, self.y0, self.x1, self.y1))

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        """In square pixels."""
        return self.width * self.height

    @property
    def center(self) -> tuple[float, float]:
        """(x, y) in px."""
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    @classmethod
    def whole(cls, *, width: float, height: float) -> Box:
        """Return the box that is the whole image."""
        return cls(0.0, 0.0, float(width), float(height))

    @classmethod
    def from_thousandths(cls, values: Sequence[float], *, width: float, height: float) -> Box:
        """Return a box from [x0, y0, x1, y1] in 0..1000 of an image that is `width` × `height` px."""
        x0, y0, x1, y1 = (v / 1000 for v in values)
        return cls(x0 * width, y0 * height, x1 * width, y1 * height)

    def to_unit(self, *, width: float, height: float) -> tuple[float, float, float, float]:
        """Return fractions 0..1 of an image that is `width` × `height` px."""
        return self.x0 / width, self.y0 / height, self.x1 / width, self.y1 / height

    def to_thousandths(self, *, width: float, height: float) -> tuple[int, int, int, int]:
        """Return integers 0..1000, rounded outward, so that the box never loses a pixel."""
        x0, y0, x1, y1 = (v * 1000 for v in self.to_unit(width=width, height=height))
        # 1e-9 keeps a value that is an integer but for floating-point dust from growing by one.
        low = [max(0, math.floor(v + 1e-9)) for v in (x0, y0)]
        high = [min(1000, math.ceil(v - 1e-9)) for v in (x1, y1)]
        return low[0], low[1], high[0], high[1]

    def rounded_out(self) -> Box:
        """Return the smallest box with integer corners that contains this one."""
        return Box(
            math.floor(self.x0 + 1e-9), math.floor(self.y0 + 1e-9), math.ceil(self.x1 - 1e-9), math.ceil(self.y1 - 1e-9)
        )

    def ints(self) -> tuple[int, int, int, int]:
        """Return the corners of `rounded_out()` as integers, ready to slice an H×W array."""
        x0, y0, x1, y1 = self.rounded_out()
        return int(x0), int(y0), int(x1), int(y1)

    def clipped(self, *, width: float, height: float) -> Box:
        """Return the part that lies inside a `width` × `height` image. Raises ValueError if nothing does."""
        return Box(max(self.x0, 0.0), max(self.y0, 0.0), min(self.x1, float(width)), min(self.y1, float(height)))

    def intersection(self, other: Box) -> Box | None:
        """Return what both cover; None if they do not overlap."""
        x0, y0 = max(self.x0, other.x0), max(self.y0, other.y0)
        x1, y1 = min(self.x1, other.x1), min(self.y1, other.y1)
        return Box(x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def union(self, other: Box) -> Box:
        """Return the smallest box around both."""
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))

    def iou(self, other: Box) -> float:
        """Return the intersection over union, 0..1."""
        common = self.intersection(other)
        return 0.0 if common is None else common.area / (self.area + other.area - common.area)

    def scaled(self, sx: float, sy: float) -> Box:
        """Return the box with every x times `sx` and every y times `sy`."""
        return Box(self.x0 * sx, self.y0 * sy, self.x1 * sx, self.y1 * sy)

    def shifted(self, dx: float, dy: float) -> Box:
        return Box(self.x0 + dx, self.y0 + dy, self.x1 + dx, self.y1 + dy)


@dataclass(frozen=True, kw_only=True)
class View(Serializable):
    """Where an image that we made came from: `window` of `image` shows `region` of `origin`."""

    image: ImageRef
    """The picture that is shown."""
    origin: ImageRef
    """The image that it was made from."""
    region: Box
    """In px of `origin`."""
    window: Box
    """In px of `image`. It is the whole picture, except in a picture of several panes, which has one View a pane."""
    op: str
    """"whole", "crop", "side_by_side", "enhance", ..."""
    params: Mapping[str, Json] = field(default_factory=dict)
    """What the operation was given."""

    @classmethod
    def whole(cls, image: ImageRef) -> View:
        """Return the view of an image as it is."""
        box = Box.whole(width=image.width, height=image.height)
        return cls(image=image, origin=image, region=box, window=box, op="whole")

    def to_origin(self, box: Box) -> Box:
        """Return a box in px of `image` as a box in px of `origin`."""
        sx, sy = self.region.width / self.window.width, self.region.height / self.window.height
        return box.shifted(-self.window.x0, -self.window.y0).scaled(sx, sy).shifted(self.region.x0, self.region.y0)

    def from_origin(self, box: Box) -> Box:
        """Return a box in px of `origin` as a box in px of `image`."""
        sx, sy = self.window.width / self.region.width, self.window.height / self.region.height
        return box.shifted(-self.region.x0, -self.region.y0).scaled(sx, sy).shifted(self.window.x0, self.window.y0)


ORIGINAL: Final = "Original Image"
"""What questions call the source."""
Role: TypeAlias = Literal["source", "edited", "reference"]


@dataclass(frozen=True, kw_only=True)
class Target(Serializable):
    """The object that the instruction is about."""

    name: str | None = None
    """In words; None where nobody named it."""
    boxes: Mapping[Role, Box] = field(default_factory=dict)
    """By role, each in px of that role's image. A missing role is scaled from the source box, and the view says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn(Serializable):
    """One instruction and the editor's output."""

    instruction: str
    """As the editor was given it."""
    edited: ImageRef | None
    """None where no output exists."""


@dataclass(frozen=True, kw_only=True)
class Sample(Serializable):
    """One edit to be judged."""

    id: str
    """Unique per editor."""
    dataset: str = ""
    """Where it comes from."""
    editor: str = ""
    """The editing model; "" where unknown."""
    source: ImageRef
    """The image before the edit; of several input images the first, which tools and measures take."""
    further: Annotated[tuple[ImageRef, ...], Field(exclude_if=is_empty)] = ()
    """Input images after the source, in the order in which the editor got them."""
    turns: tuple[Turn, ...]
    """At least one."""
    reference: ImageRef | None = None
    """A right outcome, where one exists."""
    targets: tuple[Target, ...] = ()
    """The objects that the instruction is about."""
    masks: Mapping[str, ImageRef] = field(default_factory=dict)
    """Images by role; "edit" is white where change was allowed."""
    edit_type: str | None = None
    """As the data set spells it."""
    human: Mapping[str, Mapping[str, str | int | float]] = field(default_factory=dict)
    """Ratings by metric, then by rater."""
    extra: Mapping[str, Json] = field(default_factory=dict)
    """Every other column."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What a reader should know about the files, for example "alpha composited on white"."""

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError(f"sample {self.id!r} has no turn; expected at least one instruction")

    @classmethod
    def from_images(cls, source: Any, edited: Any, instruction: str, **more: Any) -> Sample:
        """Make a sample of two images and an instruction: `editloupe.data.samples.load_sample`.

        An image is a path, the bytes of an image file, a PIL image, or an H×W×3 uint8 array.
        more: id, editor, edit_type, reference, mask, extra.
        """
        return _made("from_images", source, edited, instruction, **more)

    @classmethod
    def from_row(cls, row: Mapping[str, Any], map: Mapping[str, str] | None = None) -> Sample:
        """Make a sample of a row with its images, such as one of `datasets`: `editloupe.data.samples.sample_of_row`.

        map: source, edited, instruction, id, editor, edit_type, reference or mask → the row's column.
        """
        return _made("from_row", row, map)

    @property
    def sources(self) -> tuple[ImageRef, ...]:
        """All input images, in their order."""
        return (self.source, *self.further)

    @property
    def originals(self) -> dict[str, ImageRef]:
        """The input images by the names that questions give them: "Original Image", "Original Image 2", …"""
        return {f"{ORIGINAL} {n}" if n > 1 else ORIGINAL: image for n, image in enumerate(self.sources, start=1)}

    @property
    def instruction(self) -> str:
        """What leads from the source to `edited`: the instructions of all turns, as `in_one` joins them."""
        return in_one([turn.instruction for turn in self.turns])

    @property
    def edited(self) -> ImageRef | None:
        """The output of the last turn; None where it is missing."""
        return self.turns[-1].edited

    def asked(self, turn: int) -> str:
        """Return the instruction of a turn, from 1; 0 for that of the sample as a whole."""
        return self.turns[turn - 1].instruction if turn else self.instruction

    @cached_property
    def key(self) -> str:
        """`sample_key(editor, id)`: unique in a run."""
        return sample_key(self.editor, self.id)

    @cached_property
    def content(self) -> str:
        """Digest of what a judge sees: images, instructions, targets. Ratings, notes and extra columns do not count."""
        return digest(
            {
                "source": self.source.sha256,
                **({"further": [ref.sha256 for ref in self.further]} if self.further else {}),
                "turns": [[t.instruction, None if t.edited is None else t.edited.sha256] for t in self.turns],
                "reference": None if self.reference is None else self.reference.sha256,
                "targets": [t.to_json() for t in self.targets],
                "masks": {name: ref.sha256 for name, ref in self.masks.items()},
                "edit_type": self.edit_type,
            }
        )

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON, with the digest of the content."""
        return {**super().to_json(), "content": self.content}


def _made(door: str, *given: Any, **more: Any) -> Sample:
    if door not in _doors:
        raise ConfigError(f"Sample.{door} reads images: take it from editloupe, as in `from editloupe import Sample`")
    sample: Sample = _doors[door](*given, **more)
    return sample


def with_images(sample: Sample, made: Callable[[ImageRef], ImageRef]) -> Sample:
    """Return a sample with what `made` makes of each of its images."""
    return replace(
        sample,
        source=made(sample.source),
        further=tuple(map(made, sample.further)),
        turns=tuple(turn if turn.edited is None else replace(turn, edited=made(turn.edited)) for turn in sample.turns),
        reference=None if sample.reference is None else made(sample.reference),
        masks={name: made(ref) for name, ref in sample.masks.items()},
    )


def in_one(instructions: Sequence[str]) -> str:
    """Return instructions as one: a single one as it is, several as sentences in their order."""
    if len(instructions) == 1:
        return instructions[0]
    return " ".join(text if text.endswith(_ENDS) else f"{text}." for text in map(str.strip, instructions))


def sample_key(editor: str, id: str) -> str:
    """Return `id`, or `EDITOR/id` with an editor. A "/" in the editor's name becomes %2F, so that keys differ."""
    return f"{editor.replace('%', '%25').replace('/', '%2F')}/{id}" if editor else id


def box_from_json(value: Json) -> Box:
    """Return a list of four numbers as a Box. Raises ValueError for anything else."""
    box: Box = _adapter(Box).validate_python(value)
    return box
