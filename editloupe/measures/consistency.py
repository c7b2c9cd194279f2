"""Measures of what an edit should have left alone: objects and background, by an encoder's tokens or by pixels.

EdiVal, Eq. 3 and appendix I.3. Places are boxes of the source. In an edited image of another size or shape a place has the
same share of the sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.align import resize
from editloupe.imaging.masked import Kept, share
from editloupe.measures.base import Args, BaseMeasure, Measured
from editloupe.measures.pair import cosine, summed, whole_pair
from editloupe.models.features.base import Features, Tokens
from editloupe.scores import Interval, Metric
from editloupe.values import Box, Json

_DUST_PX: Final = 0.01
"""A box that reaches this far into a pixel does not touch it: boxes are recorded in rounded thousandths."""
_WHOLE: Final = Box(0, 0, 1, 1)
_LEAST_SHARE: Final = 0.5
"""Of a patch that lies outside all boxes, for the patch to count."""

_Crops: TypeAlias = tuple[RGB, RGB]
"""The same place of the source and of the edited image."""
_Use: TypeAlias = Literal["paper", "official"]
"""Which tokens of an encoder count. paper: patches alone.   official: registers too, as in the published code."""


class ObjectArgs(Args):
    """Where the objects are."""

    boxes: tuple[Box, ...]
    """In thousandths of the source; the same places are compared in the edited image."""


class BackgroundArgs(Args):
    """Where the background is: outside all boxes."""

    source_boxes: tuple[Box, ...]
    """In thousandths of the source."""
    edited_boxes: tuple[Box, ...] = ()
    """In thousandths of the edited image."""


class _Objects(BaseMeasure):
    """The mean over objects of how alike a place of two images is."""

    Args: ClassVar[type[BaseModel]] = ObjectArgs

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the mean over the boxes.

        Raises MeasureError if there is no box, none shows anything of both images, or a picture is missing.
        """
        source, edited = whole_pair(images)
        crops, places = list[_Crops](), list[Box]()
        for box in args.boxes:
            place = _fraction(box).intersection(_WHOLE)
            one, other = (None if place is None else _cut(image, place) for image in (source, edited))
            if place is not None and one is not None and other is not None:
                crops.append((one, other))
                places.append(place)
        count = len(args.boxes)
        if not crops:
            found = f"none of the {count} boxes shows a part of the image" if count else "there is no box"
            raise MeasureError(f"{found}, so no object can be compared")
        rows, lost = self.compare(args, crops, models), count - len(crops)
        said = f"{f'{len(crops)} of {count}' if lost else count} place{'' if count == 1 else 's'} compared"
        boxes = [[round(v * 1000, 3) for v in place] for place in places]
        return Measured(
            answer=Number(value=float(np.mean([row["value"] for row in rows]))),
            reason="; ".join([said, *_sizes(source, edited)]),
            data={"places": [{"box": b, **row} for b, row in zip(boxes, rows, strict=True)], "left_out": lost},
        )

    def compare(self, args: Any, crops: Sequence[_Crops], models: Any) -> list[dict[str, float]]:
        """Return for each place its "value" and what it is made of. Raises MeasureError if it is not defined."""
        raise NotImplementedError


class ObjectConsistency(_Objects):
    """The mean over boxes of 0.5 · cosine of class tokens + 0.5 · cosine of mean patch tokens, -1 to 1 (higher is better).

    Equal crops give 1.
    """

    name = "object_consistency"
    needs = ("dino",)
    metric = Metric(
        id="object_consistency", name="Object consistency", short="Object", domain=Interval(low=-1, high=1), source="Eq. 3"
    )

    class Args(ObjectArgs):
        tokens: _Use = "paper"

    def compare(self, args: Any, crops: Sequence[_Crops], models: Any) -> list[dict[str, float]]:
        """Return the similarity of each place, with its two parts."""
        rows = []
        for one, other in _tokens(models.get("dino"), crops, args.tokens):
            whole = cosine(one.cls, other.cls)
            patches = cosine(*(tokens.patches.mean(axis=(0, 1), dtype=np.float64) for tokens in (one, other)))
            rows.append({"value": 0.5 * whole + 0.5 * patches, "cls": whole, "patches": patches})
        return rows


class ObjectL1(_Objects):
    """The mean over boxes of 1 - mean |difference| of R, G and B as shares of 255, 0 to 1 (higher is better)."""

    name = "object_l1"
    metric = Metric(
        id="object_l1", name="Object L1 consistency", short="Object L1", domain=Interval(low=0, high=1), source="Table 14"
    )

    def compare(self, args: Any, crops: Sequence[_Crops], models: Any) -> list[dict[str, float]]:
        """Return the similarity of each place; a crop of the edited image is brought to the size of the source's."""
        return [{"value": _l1(one, resize(other, width=one.shape[1], height=one.shape[0]))} for one, other in crops]


class BackgroundConsistency(BaseMeasure):
    """The cosine of the backgrounds of two images, -1 to 1 (higher is better). Equal images give 1.

    A background is the weighted mean of patch tokens of length 1. A patch counts by the share of it that lies outside all
    boxes, if that is at least a half.
    """

    name = "background_consistency"
    needs = ("dino",)
    metric = Metric(
        id="background_consistency", name="Background consistency", short="Background",
        domain=Interval(low=-1, high=1), source="Eq. 3",
    )  # fmt: skip

    class Args(BackgroundArgs):
        tokens: _Use = "paper"

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the cosine. Raises MeasureError if the boxes leave no patch, and ModelAbsent without weights."""
        source, edited = whole_pair(images)
        encoder: Features = models.get("dino")
        kept = _background(args, (encoder.side_px, encoder.side_px))
        ((one, other),) = _tokens(encoder, [(source, edited)], args.tokens)
        rows, columns = one.patches.shape[:2]
        weights = _pooled(kept, rows, columns)
        weights[weights < _LEAST_SHARE] = 0
        if not weights.any():
            raise MeasureError("the boxes cover at least half of every patch, so no background is left")
        value = cosine(*(np.einsum("rcd,rc->d", _unit_length(tokens.patches), weights) for tokens in (one, other)))
        part = float(np.count_nonzero(weights) / weights.size)
        return _of_background(value, part, "patches", source, edited, grid=[rows, columns])


class BackgroundL1(BaseMeasure):
    """1 - mean |difference| of R, G and B outside all boxes, as a share of 255, 0 to 1 (higher is better)."""

    name = "background_l1"
    Args = BackgroundArgs
    metric = Metric(
        id="background_l1", name="Background L1 consistency", short="Background L1",
        domain=Interval(low=0, high=1), source="Table 14",
    )  # fmt: skip

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the similarity, in px of the source. Raises MeasureError if the boxes cover the image."""
        source, edited = whole_pair(images)
        height, width = source.shape[:2]
        kept = _background(args, (height, width))
        value = _l1(source, resize(edited, width=width, height=height), kept)
        return _of_background(value, share(kept), "pixels", source, edited)


def _of_background(value: float, part: float, what: str, source: RGB, edited: RGB, **more: Json) -> Measured:
    said = [] if part == 1 else [f"{part * 100:.1f} % of the {what} are compared"]
    reason = "; ".join([*said, *_sizes(source, edited)])
    return Measured(answer=Number(value=value), reason=reason, data={"compared": part, **more})


def _sizes(source: RGB, edited: RGB) -> list[str]:
    """Return what is to be said of two images of different sizes."""
    if source.shape == edited.shape:
        return []
    (height, width), (other_height, other_width) = source.shape[:2], edited.shape[:2]
    shape = "" if width * other_height == height * other_width else " and another shape"
    return [
        f"the edited image has {other_width}×{other_height} px, the source {width}×{height} px{shape}: a place is the same "
        "share of the sides in both"
    ]


def _fraction(box: Box) -> Box:
    """Return a box in thousandths as fractions of an image's sides."""
    return box.scaled(1 / 1000, 1 / 1000)


def _touched(place: Box, height: int, width: int) -> tuple[slice, slice] | None:
    """Return the pixels that a place in fractions touches, inside an image of that size; None for none."""
    x0, y0 = math.floor(place.x0 * width + _DUST_PX), math.floor(place.y0 * height + _DUST_PX)
    x1, y1 = math.ceil(place.x1 * width - _DUST_PX), math.ceil(place.y1 * height - _DUST_PX)
    x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, width), min(y1, height)
    return (slice(y0, y1), slice(x0, x1)) if x0 < x1 and y0 < y1 else None


def _cut(image: RGB, place: Box) -> RGB | None:
    at = _touched(place, *image.shape[:2])
    return None if at is None else np.ascontiguousarray(image[at])


def _background(args: Any, shape: tuple[int, int]) -> Kept:
    """Return H×W of the shape: which pixels lie outside all boxes. Raises MeasureError if none does."""
    kept: Kept = np.ones(shape, dtype=np.bool_)
    boxes = [*args.source_boxes, *args.edited_boxes]
    for box in boxes:
        if at := _touched(_fraction(box), *shape):
            kept[at] = False
    if not kept.any():
        raise MeasureError(f"boxes cover all of the image ({len(boxes)}), so no background is left")
    return kept


def _tokens(encoder: Features, pairs: Sequence[_Crops], how: str) -> list[tuple[Tokens, Tokens]]:
    """Return the tokens of pairs of pictures. Equal pictures are encoded once, so that no rounding tells them apart."""
    given: list[RGB] = []
    at: list[tuple[int, int]] = []
    for one, other in pairs:
        given.append(one)
        first = len(given) - 1
        if not np.array_equal(one, other):
            given.append(other)
        at.append((first, len(given) - 1))
    found = encoder.tokens(given)
    if how == "official":
        found = [tokens.with_registers() for tokens in found]
    return [(found[first], found[second]) for first, second in at]


def _unit_length(patches: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(patches.astype(np.float64), axis=-1, keepdims=True)
    return np.asarray(patches / np.maximum(lengths, 1e-8))


def _pooled(kept: Kept, rows: int, columns: int) -> NDArray[np.float64]:
    """Return rows×columns: which share of each cell is kept. Cells of a grid that does not divide the picture overlap."""
    height, width = kept.shape

    def edges(length: int, count: int) -> list[tuple[int, int]]:
        return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]

    return np.array(
        [[kept[y0:y1, x0:x1].mean() for x0, x1 in edges(width, columns)] for y0, y1 in edges(height, rows)], np.float64
    )


def _l1(one: RGB, other: RGB, kept: Kept | None = None) -> float:
    """Return 1 - mean |difference| over pixels and channels, as a share of 255.   kept: H×W, at least one; None for all."""
    total, count = summed(one, other, kept)
    return 1 - total / (255 * count)
