"""Estimates what an affine motion leaves: places that drift smoothly, as when a model draws a picture again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.rank import median
from editloupe.imaging.register import SMALLEST_SIDE, Gray

_CELL = 32
"""px of the half-size picture that agree on a drift: 64 px at full size, far more than an edit may hide in."""
_STEPS = 3
_LEAST_PX = 0.2
_MOST_PX = 4.0
_MUST_FALL_TO = 0.98
_CAP = 25.0
"""Levels; a larger difference counts no more: it is an edit, not a drift."""
_RIDGE = 0.5
"""(Levels per px)²: a cell with no more structure than sensor noise has keeps no drift."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A displacement for every pixel of a picture, smooth over about 64 px."""

    cells: NDArray[np.float32]
    """rows×columns×2: (dx, dy) in px of the picture, one for each cell of an even grid."""
    width: int
    """Of the picture in px."""
    height: int
    """Of the picture in px."""

    @property
    def size(self) -> float:
        """Root mean square displacement in px of the picture."""
        return float(np.sqrt((self.cells**2).sum(axis=2).mean()))

    @property
    def field(self) -> NDArray[np.float32]:
        """height×width×2: (dx, dy) of every pixel, cubic between cells."""
        return np.asarray(cv2.resize(self.cells, (self.width, self.height), interpolation=cv2.INTER_CUBIC), np.float32)

    def undone(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the picture with the drift undone, h×w or h×w×3 uint8: at (x, y) what was at (x + dx, y + dy).

        The border is repeated.
        """
        return np.asarray(_drawn_back(picture, self.field, cv2.INTER_CUBIC), dtype=np.uint8)

    def over(self, *, x0: int, y0: int, x1: int, y1: int) -> NDArray[np.float64]:
        """Return (dx, dy): the mean displacement over a box of the picture, integer corners, clipped to it."""
        y0, y1 = min(max(0, y0), self.height - 1), max(1, min(y1, self.height))
        x0, x1 = min(max(0, x0), self.width - 1), max(1, min(x1, self.width))
        return np.asarray(self.field[y0:y1, x0:x1].mean(axis=(0, 1)), dtype=np.float64)


def estimate_drift(first: Gray, second: Gray) -> Drift | None:
    """Return the displacement with first(x, y) ≈ second(x + dx, y + dy), smooth over about 64 px; None for no drift.

    first, second: h×w uint8, the affine motion already undone. Lucas and Kanade's equations summed over cells, so that a
    whole neighborhood has to agree: a picture drawn again drifts so, an edited object does not.
    """
    height, width = first.shape
    if min(height, width) < 4 * SMALLEST_SIDE:
        return None
    a, b = (np.asarray(cv2.pyrDown(gray), dtype=np.float32) for gray in (first, second))
    h, w = a.shape
    grid = (max(2, round(w / _CELL)), max(2, round(h / _CELL)))
    gx, gy = cv2.Sobel(a, cv2.CV_32F, 1, 0, scale=1 / 8), cv2.Sobel(a, cv2.CV_32F, 0, 1, scale=1 / 8)
    field: NDArray[np.float32] = np.zeros((grid[1], grid[0], 2), dtype=np.float32)
    error = _error(a, b, field)
    before = _misfit(error)
    for step in range(_STEPS):
        scale = max(1.0, 1.4826 * median(np.abs(error[::3, ::3])))
        weight = 1 / (1 + (error / np.float32(2 * scale)) ** 2) ** 2
        wx, wy = weight * gx, weight * gy
        xx, xy, yy, xt, yt = (_cell_mean(v * w, grid) for v, w in ((wx, gx), (wx, gy), (wy, gy), (wx, error), (wy, error)))
        # The ridge pulls the whole displacement, not only this step, toward zero.
        left = np.stack([xx + _RIDGE, xy, xy, yy + _RIDGE], axis=2).reshape(*xx.shape, 2, 2)
        right = np.stack([xt, yt], axis=2) + _RIDGE * field
        moved = field - np.linalg.solve(left, right[..., None])[..., 0]
        field = np.asarray(np.clip(moved, -_MOST_PX / 2, _MOST_PX / 2), dtype=np.float32)
        if step == 0 and float(np.abs(field).max()) < _LEAST_PX / 2:
            return None
        error = _error(a, b, field)
    # Drawing back smooths grain, whichever way: a drift leaves less than its opposite does.
    if _misfit(error) > _MUST_FALL_TO * min(before, _misfit(_error(a, b, -field))):
        return None
    # A px of half size is two of the picture.
    return Drift(cells=2 * field, width=width, height=height)


def _error(a: NDArray[np.float32], b: NDArray[np.float32], field: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return h×w: what differs once `b` is drawn back by the field, without a global offset."""
    if field.any():
        dense = cv2.resize(field, a.shape[::-1], interpolation=cv2.INTER_CUBIC)
        b = np.asarray(_drawn_back(b, dense, cv2.INTER_LINEAR), dtype=np.float32)
    error = b - a
    error -= np.float32(median(error[::4, ::4]))
    return error


def _drawn_back(picture: NDArray[Any], field: NDArray[Any], how: int) -> NDArray[Any]:
    """Return a picture with a displacement undone: at (x, y) what was at (x + dx, y + dy). The border is repeated."""
    height, width = field.shape[:2]
    x, y = field[..., 0] + np.arange(width, dtype=np.float32), field[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    return cv2.remap(picture, x, y, how, borderMode=cv2.BORDER_REPLICATE)


def _misfit(error: NDArray[np.float32]) -> float:
    return float(np.minimum(np.abs(error[::3, ::3]), _CAP).mean())


def _cell_mean(values: NDArray[np.floating], grid: tuple[int, int]) -> NDArray[np.float32]:
    cells = cv2.resize(values, grid, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.GaussianBlur(cells, (0, 0), 1.0), dtype=np.float32)
