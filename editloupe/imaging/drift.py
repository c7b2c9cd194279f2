"""Estimates what an affine motion leaves: places that drift smoothly, as when a model draws a picture again."""

from __future__ import annotations

from dataclasses import dataclass

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
_BAND = 64
"""Rows that are drawn back at a time: a displacement for every pixel at once would take the most memory of all."""


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

    def rows(self, y0: int, y1: int) -> NDArray[np.float32]:
        """Return (y1 − y0)×width×2 float32: the displacements of the rows from y0 up to y1, cubic between cells."""
        rows = self.cells.shape[0]
        across = cv2.resize(self.cells, (self.width, rows), interpolation=cv2.INTER_CUBIC)
        # Resizing the identity gives the weights of each cell row in each picture row.
        weights = cv2.resize(np.eye(rows, dtype=np.float32), (rows, self.height), interpolation=cv2.INTER_CUBIC)
        return np.asarray(np.tensordot(weights[y0:y1], across.reshape(rows, self.width, 2), axes=1), dtype=np.float32)

    def undone(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the picture with the drift undone, h×w or h×w×3 uint8: at (x, y) what was at (x + dx, y + dy).

        The border is repeated.
        """
        drawn = np.empty_like(picture)
        for y0 in range(0, self.height, _BAND):
            y1 = min(self.height, y0 + _BAND)
            place = self.rows(y0, y1)
            x = place[..., 0] + np.arange(self.width, dtype=np.float32)
            y = place[..., 1] + np.arange(y0, y1, dtype=np.float32)[:, None]
            drawn[y0:y1] = cv2.remap(picture, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        return drawn

    def over(self, *, x0: int, y0: int, x1: int, y1: int) -> NDArray[np.float64]:
        """Return (dx, dy): the mean displacement over a box of the picture, integer corners, clipped to it."""
        y0, y1 = min(max(0, y0), self.height - 1), max(1, min(y1, self.height))
        x0, x1 = min(max(0, x0), self.width - 1), max(1, min(x1, self.width))
        return np.asarray(self.rows(y0, y1)[:, x0:x1].mean(axis=(0, 1)), dtype=np.float64)


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
        # 1 / (1 + (error / (2 scale))²)², in place: a further map costs more than what is computed in it.
        weight = error / np.float32(2 * scale)
        weight *= weight
        weight += 1
        weight *= weight
        np.divide(1, weight, out=weight)
        wx, wy = weight * gx, np.multiply(weight, gy, out=weight)
        product = np.empty_like(error)
        xx, xy, yy, xt, yt = (
            _cell_mean(np.multiply(v, w, out=product), grid)
            for v, w in ((wx, gx), (wx, gy), (wy, gy), (wx, error), (wy, error))
        )
        # The ridge pulls the whole displacement, not only this step, toward zero.
        xx, yy = xx + _RIDGE, yy + _RIDGE
        xt, yt = xt + _RIDGE * field[..., 0], yt + _RIDGE * field[..., 1]
        determinant = xx * yy - xy * xy
        step_xy = np.stack([(yy * xt - xy * yt) / determinant, (xx * yt - xy * xt) / determinant], axis=2)
        field = np.asarray(np.clip(field - step_xy, -_MOST_PX / 2, _MOST_PX / 2), dtype=np.float32)
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
    height, width = a.shape
    if field.any():
        dense = cv2.resize(field, (width, height), interpolation=cv2.INTER_CUBIC)
        x = dense[..., 0] + np.arange(width, dtype=np.float32)
        y = dense[..., 1] + np.arange(height, dtype=np.float32)[:, None]
        b = np.asarray(cv2.remap(b, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), dtype=np.float32)
    error = b - a
    error -= np.float32(median(error[::4, ::4]))
    return error


def _misfit(error: NDArray[np.float32]) -> float:
    return float(np.minimum(np.abs(error[::3, ::3]), _CAP).mean())


def _cell_mean(values: NDArray[np.floating], grid: tuple[int, int]) -> NDArray[np.float32]:
    cells = cv2.resize(values, grid, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.GaussianBlur(cells, (0, 0), 1.0), dtype=np.float32)
