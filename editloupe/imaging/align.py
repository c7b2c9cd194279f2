"""Brings two images to one size and one place, so that pixels can be compared. Estimates are kept only where they help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.alignment import Alignment, shown
from editloupe.imaging.color import Tone, estimate_tone
from editloupe.imaging.drift import estimate_drift
from editloupe.imaging.orientation import UPRIGHT, find_orientation
from editloupe.imaging.placement import ALIKE, find_placement, is_better, places_alike
from editloupe.imaging.register import STILL, Floats, register
from editloupe.values import Box

WORKING_PIXELS: Final = 1_050_000
"""Most px of the copies on which differences are sought. Crops are cut from the images themselves."""
_MARGIN_PX = 3
"""Interpolation reaches so far over the border of what image 2 shows."""
_RIM_PX = 4
"""Resampling, and one sharpness for both, carry a mask's edge so far beyond it."""
_WHOLE_LEAVES = 0.7
_LEAST_PART = 0.05
"""Share of image 1; a smaller common part is a thing that was found again, and no other frame."""
_SURE = 0.9
_LARGE = 0.05
"""A motion that changes lengths by more than 5 % is right where 90 % of the places are then alike. Where fewer are, it may
be half of the way to another frame."""
_EVEN = 0.25
"""px of image 1 by which a border may be missed."""
_ROWS_APART = 64
"""Rows between those that are compared first: most pairs differ in them already."""
_FILL_SIDE = 256
"""px; longest side of the copies from which masks are filled."""


def align(
    image_1: RGB,
    image_2: RGB,
    *,
    masks_1: Sequence[Box] = (),
    masks_2: Sequence[Box] = (),
    max_pixels: int = WORKING_PIXELS,
    turns: bool = True,
) -> Alignment:
    """Return copies of what both images show, in the frame of image 1, at most `max_pixels`, no finer than either.

    image_1, image_2: H×W×3 uint8 RGB, any sizes. A mirror or quarter turn, another frame (a crop, a zoom, borders), a small
    affine motion, a tone, and what then is left as a smooth local drift are estimated in this order, each kept only where
    it lowers what differs.

    masks_1, masks_2: boxes that were painted over, in px of each image. Their edges do not move with a picture, so both
    images are filled there from around before anything is estimated.
    turns: False takes image 2 as it lies, mirrored or turned as it may be.
    """
    copies = _as_wholes(image_1, image_2, masks_1, masks_2, max_pixels)
    size_2 = _size(image_2)
    if equal(copies.first, copies.whole_second):
        return _aligned(copies, STILL, size_2=size_2)
    if turns:
        orientation = find_orientation(luma(copies.first), luma(copies.whole_second))
        if orientation != UPRIGHT:
            upright = align(
                image_1,
                orientation.undone(image_2),
                masks_1=masks_1,
                masks_2=[orientation.box_undone(box, size_2) for box in masks_2],
                max_pixels=max_pixels,
                turns=False,
            )
            return replace(upright, size_2=size_2, orientation=orientation)
    matrix = copies.motion()
    alike = copies.alike(matrix)
    if alike < ALIKE or (alike < _SURE and float(np.abs(matrix[:, :2] - STILL[:, :2]).max()) > _LARGE):
        placed = _as_placed(image_1, image_2, masks_1, masks_2, max_pixels)
        if placed is not None and is_better(alike, placed.alike(STILL)):
            copies, matrix = placed, placed.motion()
    return _aligned(copies, matrix, size_2=size_2)


@dataclass(frozen=True, kw_only=True)
class _Copies:
    """Copies of what both images show, of one size, before a motion is sought."""

    first: RGB
    whole_second: RGB
    """Image 2 at the scale of the first copy."""
    cut: Floats
    """2×3: px of the first copy to px of `whole_second`."""
    masked: NDArray[np.uint8] | None
    """h×w of `first`: 255 under a mask; None where none is."""
    masked_second: NDArray[np.uint8] | None
    """h×w of `whole_second`: the same."""
    part: Box
    size_1: tuple[int, int]
    base: Floats
    """As `Alignment` has them."""

    @property
    def placed(self) -> bool:
        return self.cut is not STILL

    def second(self, matrix: Floats) -> RGB:
        """Return h×w×3 of image 2 in the frame of `first`, moved by a 2×3 motion: one interpolation in all."""
        height, width = self.first.shape[:2]
        return _moved(self.whole_second, self._way(matrix), width=width, height=height)

    def masked_on(self, matrix: Floats) -> NDArray[np.uint8] | None:
        """Return the masks of image 2 in the same frame."""
        height, width = self.first.shape[:2]
        masked = self.masked_second
        return None if masked is None else _moved(masked, self._way(matrix), width=width, height=height)

    def motion(self) -> Floats:
        """Return the motion that lays image 2 best onto the first copy."""
        return register(luma(self.first), luma(self.second(STILL)))

    def alike(self, matrix: Floats) -> float:
        """Return the share of the places that are alike after a motion."""
        return places_alike(luma(self.first), luma(self.second(matrix)))

    def _way(self, matrix: Floats) -> Floats:
        return self.cut if matrix is STILL else matrix if self.cut is STILL else _after(self.cut, matrix)


def _as_wholes(image_1: RGB, image_2: RGB, masks_1: Sequence[Box], masks_2: Sequence[Box], max_pixels: int) -> _Copies:
    """Return copies of both images as wholes, one stretched to the other's shape if need be.

    The smaller image keeps its own grid where it can: not enlarging either one, since a blurred copy differs from a sharp
    one at every edge, and resampling only one of them, since each resampling leaves a beat of sharper and softer edges.
    """
    (w1, h1), (w2, h2) = _size(image_1), _size(image_2)
    width, height = (w1, h1) if w1 * h1 <= w2 * h2 else (w2, h2)
    if width * height > max_pixels:
        factor = _reduction(w1 * h1, max_pixels)
        width, height = max(1, round(w1 / factor)), max(1, round(h1 / factor))
    second = resize(image_2, width=width, height=height)
    masked_1, masked_2 = (
        _drawn(boxes, size, width=width, height=height) for boxes, size in ((masks_1, (w1, h1)), (masks_2, (w2, h2)))
    )
    return _filled_where_masked(
        _Copies(
            first=resize(image_1, width=width, height=height),
            whole_second=second,
            cut=STILL,
            masked=masked_1,
            masked_second=masked_2,
            part=Box.whole(width=w1, height=h1),
            size_1=(w1, h1),
            base=_scaling(w2 / width, h2 / height),
        )
    )


def _as_placed(
    image_1: RGB, image_2: RGB, masks_1: Sequence[Box], masks_2: Sequence[Box], max_pixels: int
) -> _Copies | None:
    """Return copies of the part of image 1 that image 2 shows too; None where no such part is found."""
    (w1, h1), (w2, h2) = _size(image_1), _size(image_2)
    found = find_placement(luma(image_1), luma(image_2))
    if found is None:
        return None
    common = _inside(found, (w1, h1), (w2, h2))
    if common is None or common.area < _LEAST_PART * w1 * h1:
        return None
    zoom = math.hypot(found[0, 0], found[1, 0])
    # As fine as the coarser image, and no larger than what is compared at all.
    scale = min(1.0, zoom, math.sqrt(max_pixels / common.area))
    width, height = max(1, round(common.width * scale)), max(1, round(common.height * scale))
    x0, y0, x1, y1 = common.ints()
    reduced = min(1.0, scale / zoom)
    whole = resize(image_2, width=max(1, round(w2 * reduced)), height=max(1, round(h2 * reduced)))
    there = (whole.shape[1] / w2, whole.shape[0] / h2)
    to_image_1 = _after(np.array([[1.0, 0, x0], [0, 1, y0]]), _scaling(common.width / width, common.height / height))
    base = _after(found, to_image_1)
    masked_1 = _drawn([box.shifted(-x0, -y0) for box in masks_1], (x1 - x0, y1 - y0), width=width, height=height)
    return _filled_where_masked(
        _Copies(
            first=resize(image_1[y0:y1, x0:x1], width=width, height=height),
            whole_second=whole,
            cut=_after(_scaling(*there), base),
            masked=masked_1,
            masked_second=_drawn(masks_2, (w2, h2), width=whole.shape[1], height=whole.shape[0]),
            part=common,
            size_1=(w1, h1),
            base=base,
        )
    )


def _filled_where_masked(copies: _Copies) -> _Copies:
    """Return the copies with both filled where either is masked: what is filled in one alone would pass for a change."""
    if copies.masked is None and copies.masked_second is None:
        return copies
    height, width = copies.first.shape[:2]
    there = None if copies.masked_second is None else _moved(copies.masked_second, copies.cut, width=width, height=height)
    masked = _either(copies.masked, there)
    back = np.asarray(cv2.invertAffineTransform(copies.cut), dtype=np.float64)
    size = (copies.whole_second.shape[1], copies.whole_second.shape[0])
    on_second = None if masked is None else _moved(masked, back, width=size[0], height=size[1])
    masked_second = _either(copies.masked_second, on_second)
    return replace(
        copies,
        first=_filled(copies.first, masked),
        whole_second=_filled(copies.whole_second, masked_second),
        masked=masked,
        masked_second=masked_second,
    )


def _aligned(copies: _Copies, matrix: Floats, *, size_2: tuple[int, int]) -> Alignment:
    """Return the alignment by a motion of the copies, with tone and drift."""
    first, second = copies.first, copies.second(matrix)
    height, width = first.shape[:2]
    valid = _valid(matrix, drifted=False, width=width, height=height)
    tone, drift, toned = Tone(), None, first
    if not equal(first, second):
        x0, y0, x1, y1 = valid.ints()
        tone = estimate_tone(first[y0:y1, x0:x1], second[y0:y1, x0:x1])
        toned = tone.rounded(first)
        drift = estimate_drift(luma(toned), luma(second))
    masked_2 = copies.masked_on(matrix)
    if drift is not None:
        second = drift.undone(second)
        masked_2 = None if masked_2 is None else drift.undone(masked_2)
        valid = _valid(matrix, drifted=True, width=width, height=height)
    masked = _either(copies.masked, masked_2)
    return Alignment(
        first=first,
        second=second,
        size_1=copies.size_1,
        size_2=size_2,
        part=copies.part,
        placed=copies.placed,
        base=copies.base,
        tone=tone,
        toned=toned,
        matrix=matrix,
        drift=drift,
        valid=valid,
        masked=np.zeros((height, width), dtype=np.bool_) if masked is None else _grown(masked) > 0,
    )


def _inside(matrix: Floats, size_1: tuple[int, int], size_2: tuple[int, int]) -> Box | None:
    """Return the upright box of image 1, in whole px, all of which lies inside image 2; None where there is none.

    matrix: px of image 1 to px of image 2, with a small turn at most.
    """
    (w1, h1), (w2, h2) = size_1, size_2
    back = cv2.invertAffineTransform(matrix)
    corners = np.array([[0, 0], [w2, 0], [0, h2], [w2, h2]], dtype=np.float64) - 0.5
    lt, rt, lb, rb = corners @ back[:, :2].T + back[:, 2] + 0.5
    x0, x1 = max(0, math.ceil(max(lt[0], lb[0]) - _EVEN)), min(w1, math.floor(min(rt[0], rb[0]) + _EVEN))
    y0, y1 = max(0, math.ceil(max(lt[1], rt[1]) - _EVEN)), min(h1, math.floor(min(lb[1], rb[1]) + _EVEN))
    return Box(x0, y0, x1, y1) if x1 > x0 and y1 > y0 else None


def _after(outer: Floats, inner: Floats) -> Floats:
    """Return the 2×3 motion that does `inner` and then `outer`."""
    return np.asarray(outer[:, :2] @ inner + np.array([[0, 0, 1]]) * outer[:, 2:])


def _scaling(x: float, y: float) -> Floats:
    """Return the map of px to px of a picture x and y times as large. The center of pixel 0 is half a px from its edge."""
    return np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2]])


def _moved(picture: NDArray[np.uint8], matrix: Floats, *, width: int, height: int) -> NDArray[np.uint8]:
    """Return width×height px of a picture: at (x, y) what was at matrix · (x, y, 1). The border is repeated."""
    if matrix is STILL:
        return picture
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return np.asarray(
        cv2.warpAffine(picture, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE), dtype=np.uint8
    )


def _size(rgb: RGB) -> tuple[int, int]:
    """Return (width, height) in px."""
    return rgb.shape[1], rgb.shape[0]


def _reduction(pixels: int, most: int) -> float:
    """Return how many times smaller each side becomes, so that at most so many px are left.

    A whole number where that leaves 70 % of `most`: means of whole blocks are many times as fast, and equally sharp.
    """
    factor = math.sqrt(pixels / most)
    whole = math.ceil(factor)
    return whole if (factor / whole) ** 2 >= _WHOLE_LEAVES else factor


def _drawn(boxes: Sequence[Box], size: tuple[int, int], *, width: int, height: int) -> NDArray[np.uint8] | None:
    """Return h×w uint8: 255 under the boxes, which are px of an image of `size` (width, height), and 0 elsewhere.

    None where no px lies under a box.
    """
    if not boxes:
        return None
    drawn = np.zeros((height, width), dtype=np.uint8)
    for box in boxes:
        x0, y0, x1, y1 = box.scaled(width / size[0], height / size[1]).ints()
        drawn[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)] = 255
    return drawn if drawn.any() else None


def _either(one: NDArray[np.uint8] | None, other: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
    """Return what lies under either of two masks of one size; None stands for an empty one."""
    if one is None or other is None or one is other:
        return other if one is None else one
    return np.maximum(one, other)


def _grown(masked: NDArray[np.uint8]) -> NDArray[np.uint8]:
    side = 2 * _RIM_PX + 1
    return np.asarray(cv2.dilate(masked, np.ones((side, side), dtype=np.uint8)), dtype=np.uint8)


def _filled(rgb: RGB, masked: NDArray[np.uint8] | None) -> RGB:
    """Return the picture with its masks and their rims filled smoothly from around; the picture itself for no mask."""
    if masked is None:
        return rgb
    height, width = masked.shape
    grown = _grown(masked)
    factor = min(1.0, _FILL_SIDE / max(width, height))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    small, hole = (cv2.resize(picture, size, interpolation=cv2.INTER_AREA) for picture in (rgb, grown))
    filled = cv2.inpaint(small, (hole > 0).astype(np.uint8), 3, cv2.INPAINT_TELEA)
    filled = cv2.resize(filled, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(grown[..., None] > 0, filled, rgb).astype(np.uint8)


def _valid(matrix: Floats, *, drifted: bool, width: int, height: int) -> Box:
    """Return what the copies share, without the rim that interpolation made of pixels from beyond the border."""
    seen = shown(matrix, width=width, height=height)
    # On the other sides a motion brings near what only the second image shows.
    margin = _MARGIN_PX * (drifted or matrix is not STILL)
    x0, y0 = math.ceil(seen.x0) + margin, math.ceil(seen.y0) + margin
    x1, y1 = math.floor(seen.x1) - margin, math.floor(seen.y1) - margin
    return Box(x0, y0, max(x0 + 1, x1), max(y0 + 1, y1)).clipped(width=width, height=height)


def equal(first: RGB, second: RGB) -> bool:
    """Return True if two pictures have one size and the same pixels."""
    return first.shape == second.shape and all(np.array_equal(first[::n], second[::n]) for n in (_ROWS_APART, 1))


def luma(rgb: RGB) -> NDArray[np.uint8]:
    """Return h×w of h×w×3 uint8 RGB: ITU-R 601, in whole levels."""
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def resize(rgb: RGB, *, width: int, height: int) -> RGB:
    """Return H×W×3 uint8 RGB at another size: area averaging where it shrinks, Lanczos (8×8) where it grows."""
    if rgb.shape[:2] == (height, width):
        return rgb
    shrinks = width * height < rgb.shape[0] * rgb.shape[1]
    # OpenCV has a fast way for means of 2×2 px. In steps, only a whole factor gives the means of areas.
    while rgb.shape[0] % (2 * height) == 0 and rgb.shape[1] % (2 * width) == 0:
        half = (rgb.shape[1] // 2, rgb.shape[0] // 2)
        rgb = np.asarray(cv2.resize(rgb, half, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    kind = cv2.INTER_AREA if shrinks else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(rgb, (width, height), interpolation=kind), dtype=np.uint8)
