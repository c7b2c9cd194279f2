"""Brings two images to one size and one place, so that pixels can be compared. Estimates are kept only where they help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.alignment import Alignment, shown
from editloupe.imaging.color import Tone, estimate_tone
from editloupe.imaging.drift import estimate_drift
from editloupe.imaging.orientation import UPRIGHT, Orientation, find_orientation
from editloupe.imaging.placement import find_placement, places_alike
from editloupe.imaging.register import STILL, Floats, Gray, register
from editloupe.values import Box, cached_property

WORKING_PIXELS: Final = 1_050_000
"""Most px of the copies on which differences are sought. Crops are cut from the images themselves."""
_MARGIN_PX = 3
"""Interpolation reaches so far over the border of what image 2 shows."""
_RIM_PX = 4
"""Resampling, and one sharpness for both, carry a mask's edge so far beyond it."""
_WHOLE_LEAVES = 0.7
_LEAST_PART = 0.05
"""Share of image 1; a smaller common part is a thing that was found again, and no other frame."""
_ALIKE = 0.55
"""Share of the places from which two pictures lie on each other."""
_GAIN = 0.1
"""More places than before must be alike once image 2 is taken for another frame."""
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
    orientation, size_2 = UPRIGHT, _size(image_2)
    copies = _as_wholes(image_1, image_2, masks_1, masks_2, max_pixels)
    if turns and not copies.same:
        orientation = find_orientation(copies.light_1, copies.light_2)
    if orientation != UPRIGHT:
        masks_2 = [orientation.inverse.box(box, size_2) for box in masks_2]
        image_2 = orientation.inverse.applied(image_2)
        copies = _as_wholes(image_1, image_2, masks_1, masks_2, max_pixels)
    large = float(np.abs(copies.motion[:, :2] - STILL[:, :2]).max()) > _LARGE
    if copies.alike < (_SURE if large else _ALIKE):
        placed = _as_placed(image_1, image_2, masks_1, masks_2, max_pixels)
        if placed is not None and places_alike(placed.light_1, placed.light_2) > copies.alike + _GAIN:
            copies = placed
    return _aligned(copies, _size(image_1), size_2, orientation)


@dataclass(frozen=True, kw_only=True)
class _Copies:
    """Copies of what both images show, at one scale, before a motion is sought."""

    first: RGB
    second: RGB
    """All of image 2."""
    cut: Floats
    """2×3: px of the first copy to px of the second; `STILL` where both show wholes."""
    masked: Gray
    """h×w of `first`: 255 under a mask, 0 elsewhere."""
    masked_second: Gray
    """h×w of `second`: the same."""
    part: Box
    base: Floats
    """As `Alignment` has them."""

    @cached_property
    def same(self) -> bool:
        """True if both are equal, px by px."""
        return self.cut is STILL and equal(self.first, self.second)

    @cached_property
    def light_1(self) -> Gray:
        """Luma of the first copy."""
        return luma(self.first)

    @cached_property
    def light_2(self) -> Gray:
        """Luma of image 2 in the frame of the first copy, before a motion."""
        return luma(self.moved(self.second, STILL))

    @cached_property
    def motion(self) -> Floats:
        """The motion that lays image 2 best onto the first copy."""
        return STILL if self.same else register(self.light_1, self.light_2)

    @cached_property
    def laid(self) -> RGB:
        """Image 2 in the frame of the first copy, after the motion."""
        return self.moved(self.second, self.motion)

    @cached_property
    def light_laid(self) -> Gray:
        """Luma of it."""
        return self.light_2 if self.motion is STILL else luma(self.laid)

    @cached_property
    def alike(self) -> float:
        """Share 0..1 of the places that are alike after the motion."""
        return 1.0 if self.same else places_alike(self.light_1, self.light_laid)

    def moved(self, picture: NDArray[np.uint8], matrix: Floats) -> NDArray[np.uint8]:
        """Return a picture in px of `second` in the frame of `first`, after a 2×3 motion: one interpolation in all."""
        way = self.cut if matrix is STILL else matrix if self.cut is STILL else _after(self.cut, matrix)
        if way is STILL:
            return picture
        flags, border = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP, cv2.BORDER_REPLICATE
        return np.asarray(cv2.warpAffine(picture, way, _size(self.first), flags=flags, borderMode=border), dtype=np.uint8)


def _as_wholes(image_1: RGB, image_2: RGB, masks_1: Sequence[Box], masks_2: Sequence[Box], max_pixels: int) -> _Copies:
    """Return copies of both images as wholes, one stretched to the other's shape if need be.

    The smaller image keeps its own grid where it can: not enlarging either one, since a blurred copy differs from a sharp
    one at every edge, and resampling only one of them, since each resampling leaves a beat of sharper and softer edges.
    """
    (w1, h1), (w2, h2) = _size(image_1), _size(image_2)
    size = (w1, h1) if w1 * h1 <= w2 * h2 else (w2, h2)
    if size[0] * size[1] > max_pixels:
        factor = _reduction(w1 * h1, max_pixels)
        size = (max(1, round(w1 / factor)), max(1, round(h1 / factor)))
    part = Box.whole(width=w1, height=h1)
    # What is filled in one of them alone would pass for a change.
    masked = np.maximum(_drawn(masks_1, part, size), _drawn(masks_2, Box.whole(width=w2, height=h2), size))
    return _Copies(
        first=_filled(resize(image_1, width=size[0], height=size[1]), masked),
        second=_filled(resize(image_2, width=size[0], height=size[1]), masked),
        cut=STILL,
        masked=masked,
        masked_second=masked,
        part=part,
        base=_scaling(w2 / size[0], h2 / size[1]),
    )


def _as_placed(
    image_1: RGB, image_2: RGB, masks_1: Sequence[Box], masks_2: Sequence[Box], max_pixels: int
) -> _Copies | None:
    """Return copies of the part of image 1 that image 2 shows too, and of image 2; None where no such part is found."""
    found = find_placement(luma(image_1), luma(image_2))
    if found is None:
        return None
    (w1, h1), (w2, h2) = _size(image_1), _size(image_2)
    seen = shown(found, (w1, h1), (w2, h2))
    if seen.area < _LEAST_PART * w1 * h1:
        return None
    x0, y0 = math.ceil(seen.x0 - _EVEN), math.ceil(seen.y0 - _EVEN)
    part = Box(x0, y0, math.floor(seen.x1 + _EVEN), math.floor(seen.y1 + _EVEN))
    zoom = math.hypot(found[0, 0], found[1, 0])
    # As fine as the coarser image, and no larger than what is compared at all.
    scale = min(1.0, zoom, math.sqrt(max_pixels / part.area))
    size, size_2 = (
        (max(1, round(width * reduced)), max(1, round(height * reduced)))
        for width, height, reduced in ((part.width, part.height, scale), (w2, h2, scale / zoom))
    )
    to_part = _scaling(part.width / size[0], part.height / size[1])
    base = _after(found, _after(np.array([[1.0, 0, x0], [0, 1, y0]]), to_part))
    masked, masked_second = _drawn(masks_1, part, size), _drawn(masks_2, Box.whole(width=w2, height=h2), size_2)
    here = image_1[y0 : int(part.y1), x0 : int(part.x1)]
    return _Copies(
        first=_filled(resize(here, width=size[0], height=size[1]), masked),
        second=_filled(resize(image_2, width=size_2[0], height=size_2[1]), masked_second),
        cut=_after(_scaling(size_2[0] / w2, size_2[1] / h2), base),
        masked=masked,
        masked_second=masked_second,
        part=part,
        base=base,
    )


def _drawn(boxes: Sequence[Box], part: Box, size: tuple[int, int]) -> Gray:
    """Return a part of an image at a size (width, height): 255 under the boxes, which are in px of the image, else 0."""
    drawn = np.zeros(size[::-1], dtype=np.uint8)
    for box in boxes:
        there = box.shifted(-part.x0, -part.y0).scaled(size[0] / part.width, size[1] / part.height)
        x0, y0, x1, y1 = there.ints()
        drawn[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)] = 255
    return drawn


def _aligned(copies: _Copies, size_1: tuple[int, int], size_2: tuple[int, int], orientation: Orientation) -> Alignment:
    """Return the alignment by the copies' motion, with tone and drift."""
    first, second, masked, matrix = copies.first, copies.laid, copies.masked, copies.motion
    if copies.masked_second.any():
        masked = np.maximum(masked, copies.moved(copies.masked_second, matrix))
    valid = _valid(matrix, drifted=False, size=_size(first))
    tone, drift, toned = Tone(), None, first
    if not copies.same:
        x0, y0, x1, y1 = valid.ints()
        tone = estimate_tone(first[y0:y1, x0:x1], second[y0:y1, x0:x1])
        toned = tone.rounded(first)
        drift = estimate_drift(copies.light_1 if tone.neutral else luma(toned), copies.light_laid)
    if drift is not None:
        second = drift.undone(second)
        masked = drift.undone(masked) if masked.any() else masked
        valid = _valid(matrix, drifted=True, size=_size(first))
    return Alignment(
        first=first,
        second=second,
        size_1=size_1,
        size_2=size_2,
        part=copies.part,
        placed=copies.cut is not STILL,
        base=copies.base,
        orientation=orientation,
        tone=tone,
        toned=toned,
        matrix=matrix,
        drift=drift,
        valid=valid,
        masked=_grown(masked) > 0,
    )


def _after(outer: Floats, inner: Floats) -> Floats:
    """Return the 2×3 motion that does `inner` and then `outer`."""
    return np.asarray(outer[:, :2] @ inner + np.array([[0, 0, 1]]) * outer[:, 2:])


def _scaling(x: float, y: float) -> Floats:
    """Return the map of px to px of a picture x and y times as large. The center of pixel 0 is half a px from its edge."""
    return np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2]])


def _size(picture: NDArray[np.uint8]) -> tuple[int, int]:
    """Return (width, height) in px."""
    return picture.shape[1], picture.shape[0]


def _reduction(pixels: int, most: int) -> float:
    """Return how many times smaller each side becomes, so that at most so many px are left.

    A whole number where that leaves 70 % of `most`: means of whole blocks are many times as fast, and equally sharp.
    """
    factor = math.sqrt(pixels / most)
    whole = math.ceil(factor)
    return whole if (factor / whole) ** 2 >= _WHOLE_LEAVES else factor


def _grown(masked: Gray) -> Gray:
    side = 2 * _RIM_PX + 1
    return np.asarray(cv2.dilate(masked, np.ones((side, side), dtype=np.uint8)), dtype=np.uint8)


def _filled(rgb: RGB, masked: Gray) -> RGB:
    """Return the picture with its masks and their rims filled smoothly from around; the picture itself for no mask."""
    if not masked.any():
        return rgb
    width, height = _size(rgb)
    grown = _grown(masked)
    factor = min(1.0, _FILL_SIDE / max(width, height))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    small, hole = (cv2.resize(picture, size, interpolation=cv2.INTER_AREA) for picture in (rgb, grown))
    filled = cv2.inpaint(small, (hole > 0).astype(np.uint8), 3, cv2.INPAINT_TELEA)
    filled = cv2.resize(filled, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(grown[..., None] > 0, filled, rgb).astype(np.uint8)


def _valid(matrix: Floats, *, drifted: bool, size: tuple[int, int]) -> Box:
    """Return what the copies share, without the rim that interpolation made of pixels from beyond the border."""
    seen = shown(matrix, size, size)
    # On the other sides a motion brings near what only the second image shows.
    margin = _MARGIN_PX * (drifted or matrix is not STILL)
    x0, y0 = math.ceil(seen.x0) + margin, math.ceil(seen.y0) + margin
    x1, y1 = math.floor(seen.x1) - margin, math.floor(seen.y1) - margin
    return Box(x0, y0, max(x0 + 1, x1), max(y0 + 1, y1)).clipped(width=size[0], height=size[1])


def equal(first: RGB, second: RGB) -> bool:
    """Return True if two pictures have one size and the same pixels."""
    return first.shape == second.shape and all(np.array_equal(first[::n], second[::n]) for n in (_ROWS_APART, 1))


def luma(rgb: RGB) -> Gray:
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
