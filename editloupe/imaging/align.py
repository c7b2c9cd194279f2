"""Two images brought to one size and one place, so that pixels can be compared. Estimates are kept only where they help."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.values import Box

WORKING_PIXELS: Final = 1_500_000
"""Differences are looked for on copies of at most so many px; crops are cut from the images themselves."""

MAX_SHIFT: Final = 0.05
"""A global translation above this share of the shorter side is no small misalignment, and is not corrected."""

_MIN_SHIFT_PX = 0.2
_MUST_FALL_TO = 0.85
_ASPECT_TOLERANCE = 0.02


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Two images as copies of one size, the second shifted onto the first.

    first, second: h×w×3 uint8 RGB, the same size, in the frame of image 1 times `scale` (0 < scale ≤ 1).
    size_1, size_2: (width, height) of the images in px.   shift: (dx, dy) in px of image 1; what lies at (x, y) in image 1
    lies at (x + dx, y + dy) of image 2 scaled to image 1's size; (0, 0) where no shift was accepted.
    valid: the part of the copies that both images cover, integer corners.
    """

    first: RGB
    second: RGB
    size_1: tuple[int, int]
    size_2: tuple[int, int]
    shift: tuple[float, float]
    valid: Box

    @property
    def scale(self) -> tuple[float, float]:
        """(x, y): px of the copies for one px of image 1."""
        height, width = self.first.shape[:2]
        return width / self.size_1[0], height / self.size_1[1]

    @property
    def resized(self) -> bool:
        """Whether the two images differ in size."""
        return self.size_1 != self.size_2

    @property
    def stretched(self) -> bool:
        """Whether the aspect ratios differ by more than 2 %: then places correspond only if the editor stretched too."""
        (w1, h1), (w2, h2) = self.size_1, self.size_2
        return abs(math.log((w1 / h1) / (w2 / h2))) > _ASPECT_TOLERANCE

    def to_image_1(self, box: Box) -> Box:
        """A box in px of the copies as the box around it in whole px of image 1."""
        sx, sy = self.scale
        return box.scaled(1 / sx, 1 / sy).rounded_out().clipped(width=self.size_1[0], height=self.size_1[1])

    def to_image_2(self, box: Box) -> Box | None:
        """A box in px of image 1 as the box around the same place in whole px of image 2; None where it lies outside."""
        (w1, h1), (w2, h2) = self.size_1, self.size_2
        there = box.shifted(*self.shift).scaled(w2 / w1, h2 / h1).rounded_out()
        return there.intersection(Box.whole(width=w2, height=h2))

    def common(self) -> Box:
        """The part of image 1, in its px, that image 2 shows as well."""
        (w1, h1), (dx, dy) = self.size_1, self.shift
        return Box(max(0.0, -dx), max(0.0, -dy), min(w1, w1 - dx), min(h1, h1 - dy))


def align(image_1: RGB, image_2: RGB, *, max_pixels: int = WORKING_PIXELS) -> Alignment:
    """Copies of both images in the frame of image 1, at most `max_pixels` and never larger than the smaller image.

    image_1, image_2: H×W×3 uint8 RGB, any sizes. A small translation of the whole picture is estimated by phase
    correlation and corrected only where that lowers what differs by 15 % or more.
    """
    (h1, w1), (h2, w2) = image_1.shape[:2], image_2.shape[:2]
    # Not enlarging either one: a blurred copy differs from a sharp one at every edge.
    factor = math.sqrt(min(1.0, max_pixels / (w1 * h1), (w2 * h2) / (w1 * h1)))
    width, height = max(1, round(w1 * factor)), max(1, round(h1 * factor))
    first, second = resize(image_1, width=width, height=height), resize(image_2, width=width, height=height)
    dx, dy = estimate_shift(first, second)
    if (dx, dy) != (0.0, 0.0):
        second = translate(second, dx=dx, dy=dy)
    right, bottom = min(width, math.floor(width - dx)), min(height, math.floor(height - dy))
    valid = Box(max(0, math.ceil(-dx)), max(0, math.ceil(-dy)), right, bottom)
    return Alignment(
        first=first,
        second=second,
        size_1=(w1, h1),
        size_2=(w2, h2),
        shift=(dx * w1 / width, dy * h1 / height),
        valid=valid,
    )


def resize(rgb: RGB, *, width: int, height: int) -> RGB:
    """H×W×3 uint8 RGB at another size: area averaging where it shrinks, Lanczos (8×8) where it grows."""
    if rgb.shape[:2] == (height, width):
        return rgb
    shrinks = width * height < rgb.shape[0] * rgb.shape[1]
    kind = cv2.INTER_AREA if shrinks else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(rgb, (width, height), interpolation=kind), dtype=np.uint8)


def translate(rgb: RGB, *, dx: float, dy: float) -> RGB:
    """H×W×3 uint8 RGB whose pixel (x, y) is the input's (x + dx, y + dy); the border repeats its last pixels."""
    matrix = np.array([[1, 0, dx], [0, 1, dy]], dtype=np.float64)
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    size = (rgb.shape[1], rgb.shape[0])
    moved = cv2.warpAffine(rgb, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, dtype=np.uint8)


def estimate_shift(first: RGB, second: RGB) -> tuple[float, float]:
    """(dx, dy) in px with first(x, y) ≈ second(x + dx, y + dy); (0, 0) where no small shift explains the differences.

    first, second: h×w×3 uint8 RGB, the same size.
    """
    height, width = first.shape[:2]
    if min(height, width) < 32:  # too little picture for a correlation peak to mean anything
        return 0.0, 0.0
    a, b = _grey(first), _grey(second)
    before = _residual(a, b)
    if before < 0.5:
        return 0.0, 0.0
    window = cv2.createHanningWindow((width, height), cv2.CV_32F)
    (dx, dy), _ = cv2.phaseCorrelate(a - a.mean(), b - b.mean(), window)
    limit = MAX_SHIFT * min(height, width)
    if not _MIN_SHIFT_PX <= math.hypot(dx, dy) <= limit:
        return 0.0, 0.0
    margin = math.ceil(limit)
    inner = (slice(margin, height - margin), slice(margin, width - margin))
    after = _residual(a[inner], _grey(translate(second, dx=dx, dy=dy))[inner])
    return (float(dx), float(dy)) if after <= _MUST_FALL_TO * _residual(a[inner], b[inner]) else (0.0, 0.0)


def _grey(rgb: RGB) -> NDArray[np.float32]:
    return np.asarray(cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (0, 0), 1.0), dtype=np.float32)


def _residual(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Mean difference in grey levels without a global offset; capped, lest an edited object outvote the rest."""
    difference = a - b
    return float(np.minimum(np.abs(difference - np.median(difference)), 40.0).mean())
