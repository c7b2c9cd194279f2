"""Tells whether a picture was mirrored or turned by quarter turns, and undoes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.geometry import CELLS
from editloupe.imaging.rank import median
from editloupe.imaging.register import SMALLEST_SIDE
from editloupe.imaging.residual import Map
from editloupe.values import Box

_SIDE = 64
"""px; both pictures are squeezed to squares of this side, so that a quarter turn changes no size."""
_LEAST_ALIKE = 0.5
_MUST_FALL_TO = 0.5
"""Light, and the edges' strength, each correlate by at least 0.5 once the turn is undone, and what is left to 1 is at most
half of what any other orientation leaves."""
_LEAST_PLACES = 24.0
"""Cells of an 8×8 grid over which the edges spread; a thing on a plain ground that moved across is no mirrored picture."""
_LEAST_DIFFERENT = 0.15
"""Median difference, in mean sizes of the light; nor is a thing that moved across a symmetric ground. Photographs and their
mirror images differ by at least 0.24."""
_ALIKE = 0.98
"""Correlation from which two pictures lie the same way without a further look."""


@dataclass(frozen=True, kw_only=True)
class Orientation:
    """How the second picture lies: as the first one, perhaps mirrored left to right, then turned clockwise."""

    mirrored: bool = False
    """True if left and right changed places before the turn."""
    quarters: int = 0
    """Quarter turns clockwise, 0 to 3."""

    @property
    def inverse(self) -> Orientation:
        """What undoes it. A mirrored picture is undone as it was made, whatever the turn."""
        return self if self.mirrored else Orientation(quarters=-self.quarters % 4)

    def applied(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return an h×w or h×w×3 array over the first picture as it lies in the second."""
        return np.ascontiguousarray(np.rot90(values[:, ::-1] if self.mirrored else values, -self.quarters))

    def box(self, box: Box, size: tuple[int, int]) -> Box:
        """Return a box of a picture, `size` (width, height) large, where it lies in the second."""
        width, height = size
        if self.mirrored:
            box = Box(width - box.x1, box.y0, width - box.x0, box.y1)
        for _ in range(self.quarters):
            box, width, height = Box(height - box.y1, box.x0, height - box.y0, box.x1), height, width
        return box

    @property
    def in_words(self) -> str:
        """What was done to the first picture: "mirrored left to right", "turned by 90° clockwise"; "" for nothing."""
        if self.mirrored and self.quarters == 2:
            return "mirrored top to bottom"
        turn = ("", "turned by 90° clockwise", "turned by 180°", "turned by 90° anticlockwise")[self.quarters]
        return ", then ".join(filter(None, ("mirrored left to right" * self.mirrored, turn)))


UPRIGHT: Final = Orientation()
"""Neither mirrored nor turned."""
_ALL: Final = tuple(Orientation(mirrored=m, quarters=q) for m in (False, True) for q in range(4))


def find_orientation(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> Orientation:
    """Return how the second picture lies. It is `UPRIGHT` where the pictures do not clearly say otherwise.

    first, second: luma, uint8, of any sizes. A local edit, another style and an unrelated picture are no turns; nor is a
    turn told where a picture nearly is its own mirror image. A symmetric picture that was turned lies in two ways at once;
    the one that fits better is told.
    """
    if min(*first.shape, *second.shape) < SMALLEST_SIDE:
        return UPRIGHT
    light_1, light_2 = _structure(first), _structure(second)
    alike = correlation(light_1, light_2)
    if alike >= _ALIKE:
        return UPRIGHT
    edges_1, edges_2 = edges(light_1), edges(light_2)
    shares = cv2.resize(edges_1, (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    if shares.sum() ** 2 < _LEAST_PLACES * (shares**2).sum():
        return UPRIGHT
    if median(np.abs(light_1 - light_2)) < _LEAST_DIFFERENT * float(np.abs(light_1).mean()):
        return UPRIGHT
    lights = {o: o.applied(light_1) for o in _ALL}
    scores = {o: (correlation(lights[o], light_2), correlation(o.applied(edges_1), edges_2)) for o in _ALL}
    best = max(_ALL, key=lambda o: sum(scores[o]))
    others = [scores[o] for o in _ALL if o == UPRIGHT != best or correlation(lights[o], lights[best]) < _ALIKE]
    clear = all(
        mine >= _LEAST_ALIKE and 1 - mine <= _MUST_FALL_TO * (1 - max(other[i] for other in others))
        for i, mine in enumerate(scores[best])
    )
    return best if clear else UPRIGHT


def _structure(luma: NDArray[np.uint8]) -> Map:
    """Return 64×64: the light, a little smoothed, less that of its wider surroundings."""
    # Four px or more for each of the small picture's are enough.
    step = max(1, min(luma.shape) // (4 * _SIDE))
    small = cv2.resize(luma[::step, ::step], (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    return np.asarray(cv2.GaussianBlur(small, (0, 0), 1.0) - cv2.GaussianBlur(small, (0, 0), _SIDE / 8), dtype=np.float32)


def edges(light: Map) -> Map:
    """Return the strength of the edges of an h×w plane, in eight times levels per px."""
    return np.asarray(cv2.magnitude(cv2.Sobel(light, cv2.CV_32F, 1, 0), cv2.Sobel(light, cv2.CV_32F, 0, 1)), np.float32)


def correlation(a: Map, b: Map) -> float:
    """Return how two arrays of h×w or h×w×c correlate over all places and channels, -1 to 1; 0 for a plain one."""
    a, b = a - a.mean((0, 1)), b - b.mean((0, 1))
    return float((a * b).sum() / max(1e-6, float(np.sqrt((a * a).sum() * (b * b).sum()))))
