"""What an edit is made of: images, boxes, views, targets, turns, samples, scores. Frozen values without I/O.

Coordinates are pixels of one image unless a name says otherwise: x to the right, y down, the end exclusive.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast, get_args

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
AxisOrder: TypeAlias = Literal["xyxy", "yxyx"]


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Json) -> str:
    """The one text of a JSON value: keys sorted, no spaces, UTF-8 kept, NaN and infinity refused (ValueError)."""
    return _CANONICAL.encode(value)


def digest(value: Json) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of `value`."""
    return text_digest(canonical_json(value))


def text_digest(canonical: str) -> str:
    """`digest` of the value whose canonical JSON this is."""
    # Half a surrogate pair, which JSON allows and UTF-8 does not, becomes its JSON escape.
    return hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ImageRef:
    """One image, known by the SHA-256 of its bytes.

    width, height: px after EXIF rotation.   media_type: "image/png", "image/jpeg", ...
    path: where the bytes were read from; no part of what the image is (not compared, not hashed, not recorded).
    """

    sha256: str
    width: int
    height: int
    media_type: str
    path: Path | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Json]:
        return {"sha256": self.sha256, "width": self.width, "height": self.height, "media_type": self.media_type}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ImageRef:
        return cls(
            sha256=str(data["sha256"]),
            width=_int(data["width"]),
            height=_int(data["height"]),
            media_type=str(data["media_type"]),
        )


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
        for name in ("x0", "y0", "x1", "y1"):
            # Floats throughout, so that a box has one JSON and one digest, however it was given.
            object.__setattr__(self, name, float(getattr(self, name)))
        if not all(math.isfinite(v) for v in self):
            raise ValueError(f"box {list(self)} has a value that is not a finite number")
        if self.x1 <= self.x0 or self.y1 <= self.y0:
            raise ValueError(f"box {list(self)} is empty or inverted: expected [x0, y0, x1, y1] with x0 < x1 and y0 < y1")

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
        """The box that is the whole image."""
        return cls(0.0, 0.0, float(width), float(height))

    @classmethod
    def from_unit(cls, values: Sequence[float], *, width: float, height: float, order: AxisOrder = "xyxy") -> Box:
        """From four numbers in 0..1 of an image that is `width` × `height` px."""
        a, b, c, d = values
        x0, y0, x1, y1 = (a, b, c, d) if order == "xyxy" else (b, a, d, c)
        return cls(x0 * width, y0 * height, x1 * width, y1 * height)

    @classmethod
    def from_thousandths(cls, values: Sequence[float], *, width: float, height: float, order: AxisOrder = "xyxy") -> Box:
        """From four numbers in 0..1000 of an image that is `width` × `height` px."""
        return cls.from_unit([v / 1000 for v in values], width=width, height=height, order=order)

    def to_unit(self, *, width: float, height: float, order: AxisOrder = "xyxy") -> tuple[float, float, float, float]:
        """As fractions 0..1 of an image that is `width` × `height` px."""
        x0, y0, x1, y1 = self.x0 / width, self.y0 / height, self.x1 / width, self.y1 / height
        return (x0, y0, x1, y1) if order == "xyxy" else (y0, x0, y1, x1)

    def to_thousandths(self, *, width: float, height: float, order: AxisOrder = "xyxy") -> tuple[int, int, int, int]:
        """As integers 0..1000, rounded outward, so that the box never loses a pixel."""
        x0, y0, x1, y1 = self.to_unit(width=width, height=height)
        # 1e-9 keeps a value that is an integer but for floating-point dust from growing by one.
        low = [max(0, math.floor(v * 1000 + 1e-9)) for v in (x0, y0)]
        high = [min(1000, math.ceil(v * 1000 - 1e-9)) for v in (x1, y1)]
        if order == "xyxy":
            return low[0], low[1], high[0], high[1]
        return low[1], low[0], high[1], high[0]

    def rounded_out(self) -> Box:
        """The smallest box with integer corners that contains this one."""
        return Box(
            math.floor(self.x0 + 1e-9), math.floor(self.y0 + 1e-9), math.ceil(self.x1 - 1e-9), math.ceil(self.y1 - 1e-9)
        )

    def ints(self) -> tuple[int, int, int, int]:
        """The corners of `rounded_out()` as integers, ready to slice an H×W array."""
        x0, y0, x1, y1 = self.rounded_out()
        return int(x0), int(y0), int(x1), int(y1)

    def clipped(self, *, width: float, height: float) -> Box:
        """The part that lies inside a `width` × `height` image. Raises ValueError where nothing does."""
        return Box(max(self.x0, 0.0), max(self.y0, 0.0), min(self.x1, float(width)), min(self.y1, float(height)))

    def intersection(self, other: Box) -> Box | None:
        """What both cover; None where they do not overlap."""
        x0, y0 = max(self.x0, other.x0), max(self.y0, other.y0)
        x1, y1 = min(self.x1, other.x1), min(self.y1, other.y1)
        return Box(x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def union(self, other: Box) -> Box:
        """The smallest box around both."""
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))

    def iou(self, other: Box) -> float:
        """Intersection over union, 0..1."""
        common = self.intersection(other)
        return 0.0 if common is None else common.area / (self.area + other.area - common.area)

    def scaled(self, sx: float, sy: float) -> Box:
        """Every x times `sx`, every y times `sy`."""
        return Box(self.x0 * sx, self.y0 * sy, self.x1 * sx, self.y1 * sy)

    def shifted(self, dx: float, dy: float) -> Box:
        return Box(self.x0 + dx, self.y0 + dy, self.x1 + dx, self.y1 + dy)


@dataclass(frozen=True, kw_only=True)
class View:
    """Where an image that we made came from: `window` of `image` shows `region` of `origin`.

    region: px of `origin`.   window: px of `image`; the whole of it, but for a picture of several panes, which has one
    View a pane.   op: "whole", "crop", "side_by_side", "enhance", ...   params: what the operation was given.
    """

    image: ImageRef
    origin: ImageRef
    region: Box
    window: Box
    op: str
    params: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def whole(cls, image: ImageRef) -> View:
        """The image as it is."""
        box = Box.whole(width=image.width, height=image.height)
        return cls(image=image, origin=image, region=box, window=box, op="whole")

    def to_origin(self, box: Box) -> Box:
        """A box in px of `image` as a box in px of `origin`."""
        sx, sy = self.region.width / self.window.width, self.region.height / self.window.height
        return box.shifted(-self.window.x0, -self.window.y0).scaled(sx, sy).shifted(self.region.x0, self.region.y0)

    def from_origin(self, box: Box) -> Box:
        """A box in px of `origin` as a box in px of `image`."""
        sx, sy = self.window.width / self.region.width, self.window.height / self.region.height
        return box.shifted(-self.region.x0, -self.region.y0).scaled(sx, sy).shifted(self.window.x0, self.window.y0)

    def to_json(self) -> dict[str, Json]:
        return {
            "image": self.image.to_json(),
            "origin": self.origin.to_json(),
            "region": list(self.region),
            "window": list(self.window),
            "op": self.op,
            "params": dict(self.params),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> View:
        return cls(
            image=ImageRef.from_json(_mapping(data["image"])),
            origin=ImageRef.from_json(_mapping(data["origin"])),
            region=box_from_json(data["region"]),
            window=box_from_json(data["window"]),
            op=str(data["op"]),
            params=_mapping(data["params"]),
        )


Role: TypeAlias = Literal["source", "edited", "reference"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The object that the instruction is about.

    boxes: by role, each in px of that role's image. A role that is missing is scaled from the source box, and said so.
    """

    name: str | None = None
    boxes: Mapping[Role, Box] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "boxes": {role: list(box) for role, box in sorted(self.boxes.items())}}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One instruction and what the editor made of it; `edited` is None where no output exists."""

    instruction: str
    edited: ImageRef | None

    def to_json(self) -> dict[str, Json]:
        return {"instruction": self.instruction, "edited": None if self.edited is None else self.edited.to_json()}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One edit to be judged.

    id: unique per editor.   dataset: where it comes from.   editor: the editing model ("" where unknown).
    source: the image before.   turns: at least one.   reference: a right answer, where one exists.
    masks: images by role ("edit": white where change was allowed).   edit_type: as the data set spells it.
    human: rating by criterion, then by rater.   extra: every other column.
    warnings: what a reader should know about the files ("alpha composited on white", "first of 12 frames").
    """

    id: str
    dataset: str = ""
    editor: str = ""
    source: ImageRef
    turns: tuple[Turn, ...]
    reference: ImageRef | None = None
    targets: tuple[Target, ...] = ()
    masks: Mapping[str, ImageRef] = field(default_factory=dict)
    edit_type: str | None = None
    human: Mapping[str, Mapping[str, str | float]] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError(f"sample {self.id!r} has no turn; expected at least one instruction")

    @property
    def instruction(self) -> str:
        """Of the last turn."""
        return self.turns[-1].instruction

    @property
    def edited(self) -> ImageRef | None:
        """The output of the last turn; None where it is missing."""
        return self.turns[-1].edited

    @property
    def key(self) -> str:
        """`sample_key(editor, id)`: unique in a run."""
        return sample_key(self.editor, self.id)

    @property
    def content(self) -> str:
        """Digest of what a judge sees: images, instructions, targets. Ratings, notes and extra columns do not count."""
        return digest(
            {
                "source": self.source.sha256,
                "turns": [[t.instruction, None if t.edited is None else t.edited.sha256] for t in self.turns],
                "reference": None if self.reference is None else self.reference.sha256,
                "targets": [t.to_json() for t in self.targets],
                "masks": {name: ref.sha256 for name, ref in self.masks.items()},
                "edit_type": self.edit_type,
            }
        )

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "dataset": self.dataset,
            "editor": self.editor,
            "source": self.source.to_json(),
            "turns": [t.to_json() for t in self.turns],
            "reference": None if self.reference is None else self.reference.to_json(),
            "targets": [t.to_json() for t in self.targets],
            "masks": {name: ref.to_json() for name, ref in sorted(self.masks.items())},
            "edit_type": self.edit_type,
            "human": {c: dict(by_rater) for c, by_rater in self.human.items()},
            "extra": dict(self.extra),
            "warnings": list(self.warnings),
            "content": self.content,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Sample:
        """The inverse of `to_json`."""
        targets = [
            Target(
                name=None if t["name"] is None else str(t["name"]),
                boxes={_role(role): box_from_json(b) for role, b in _mapping(t["boxes"]).items()},
            )
            for t in map(_mapping, _list(data["targets"]))
        ]
        turns = [
            Turn(instruction=str(t["instruction"]), edited=_optional_ref(t["edited"]))
            for t in map(_mapping, _list(data["turns"]))
        ]
        edit_type = data["edit_type"]
        return cls(
            id=str(data["id"]),
            dataset=str(data["dataset"]),
            editor=str(data["editor"]),
            source=ImageRef.from_json(_mapping(data["source"])),
            turns=tuple(turns),
            reference=_optional_ref(data["reference"]),
            targets=tuple(targets),
            masks={name: ImageRef.from_json(_mapping(ref)) for name, ref in _mapping(data["masks"]).items()},
            edit_type=None if edit_type is None else str(edit_type),
            human={
                criterion: {rater: v for rater, v in _mapping(by).items() if isinstance(v, str | int | float)}
                for criterion, by in _mapping(data["human"]).items()
            },
            extra=_mapping(data["extra"]),
            warnings=tuple(str(w) for w in _list(data["warnings"])),
        )


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of one sample.

    metric: the criterion's id.   value: in the rubric's own units (higher is better); None where `missing` says why.
    normalised: 0..100.   findings: keys of the findings that it rests on.
    by_target: where each target was judged on its own, its label, or its status in brackets, in the targets' order.
    entropy: bits by which the labels of repeats differ; None where the question was asked once.
    """

    sample_id: str
    editor: str
    edit_type: str | None
    metric: str
    value: float | None
    normalised: float | None
    label: str | None = None
    missing: str | None = None
    findings: tuple[str, ...] = ()
    by_target: tuple[str, ...] = ()
    entropy: float | None = None


def sample_key(editor: str, id: str) -> str:
    """`id`, or `EDITOR/id` where an editor is named. A "/" in an editor's name is written %2F, so that no two keys meet."""
    return f"{editor.replace('%', '%25').replace('/', '%2F')}/{id}" if editor else id


def box_from_json(value: Json) -> Box:
    """A list of four numbers as a Box."""
    x0, y0, x1, y1 = (_float(v) for v in _list(value))
    return Box(x0, y0, x1, y1)


def _optional_ref(value: Json) -> ImageRef | None:
    return None if value is None else ImageRef.from_json(_mapping(value))


def _role(text: str) -> Role:
    for role in get_args(Role):
        if text == role:
            return cast(Role, role)
    raise ValueError(f"unknown role {text!r}; expected source, edited or reference")


def _mapping(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected an object, found {value!r}")
    return value


def _list(value: Json) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"expected a list, found {value!r}")
    return value


def _int(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected an integer, found {value!r}")
    return value


def _float(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {value!r}")
    return float(value)
