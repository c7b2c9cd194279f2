"""Lays one picture onto another of the same size: an affine motion, found coarse to fine by robust Gauss-Newton steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.geometry import cells_covered
from editloupe.imaging.rank import median

Gray: TypeAlias = NDArray[np.uint8]
"""h×w uint8, luma."""
Floats: TypeAlias = NDArray[np.float64]

SMALLEST_SIDE: Final = 32
"""px; a smaller picture holds too little for a motion to mean anything."""
_POINTS = 8_000
_GRID = 32_000
"""Places that are looked at for structure."""
_STEPS = 8
_COARSEST_SIDE = 40
_STILL_PX = 0.01
_WORTH_PX = 0.04
_MUST_FALL_TO = 0.95
_FAR_PX = 3.0
_FAR_MUST_FALL_TO = 0.8
"""A far motion has to explain more: two unrelated pictures have some motion, too, that lowers what differs a little."""
_LEAST_PLACES = 6.0
_NARROW_MUST_FALL_TO = 0.5
"""Structure in few cells of an 8×8 grid may be the edit itself; a motion of the picture explains nearly all of it."""
_CAP = 25.0
"""Levels; a larger difference counts no more: it is an edit, not a motion."""
STILL: Final[Floats] = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
"""No motion. A motion takes pixel (x, y) of the first picture to matrix · (x, y, 1) of the second, centers at integers."""


@dataclass(frozen=True, kw_only=True)
class _Points:
    """N places where the first picture has structure: its level there, and its gradient in levels per px."""

    x: Floats
    y: Floats
    value: Floats
    dx: Floats
    dy: Floats


def register(first: Gray, second: Gray) -> Floats:
    """Return the 2×3 affine motion from `first` to `second`.

    Return `STILL` where no motion lowers what differs by 5 % (by 20 % where a corner moves 3 px or more).

    first, second: h×w uint8, the same size.
    The search goes from coarse to fine. Each level takes Gauss-Newton steps on at most 8 000 places with structure, and
    estimates gain and offset with the motion. By Tukey's weights an edited object does not count.
    """
    if min(first.shape) < SMALLEST_SIDE:
        return STILL
    firsts, seconds = _pyramid(first), _pyramid(second)
    points = _points(firsts[0])
    if len(points.x) < 50:
        return STILL
    before = _misfit(points, seconds[0], STILL)
    if before < 0.3:
        return STILL
    matrix = STILL
    for level in range(len(firsts) - 1, -1, -1):
        at = points if level == 0 else _points(firsts[level])
        if len(at.x) >= 50:
            matrix = _scaled(_descend(at, seconds[level], _scaled(matrix, 0.5**level)), 2.0**level)
    corners = np.array([[0, 0], [first.shape[1], 0], [0, first.shape[0]], first.shape[::-1]], dtype=np.float64)
    moved = float(np.abs(_apply(matrix, corners[:, 0], corners[:, 1]) - corners.T).max())
    if not _WORTH_PX < moved < 0.25 * min(first.shape):
        return STILL
    must_fall_to = _MUST_FALL_TO if moved < _FAR_PX else _FAR_MUST_FALL_TO
    if cells_covered(points.x, points.y, width=first.shape[1], height=first.shape[0]) < _LEAST_PLACES:
        must_fall_to = _NARROW_MUST_FALL_TO
    return matrix if _misfit(points, seconds[0], matrix) <= must_fall_to * before else STILL


def _pyramid(gray: Gray) -> list[NDArray[np.uint8]]:
    """Return the picture smoothed, then halved until its shorter side has about 40 px: pixel i is pixel 2 i of the last."""
    levels = [np.asarray(cv2.GaussianBlur(gray, (0, 0), 1.0), dtype=np.uint8)]
    while min(levels[-1].shape) >= 2 * _COARSEST_SIDE:
        levels.append(np.asarray(cv2.pyrDown(levels[-1]), dtype=np.uint8))
    return levels


def _points(gray: NDArray[np.uint8]) -> _Points:
    height, width = gray.shape
    step = max(1, int(math.sqrt(height * width / _GRID)))

    def grid(down: int, right: int) -> NDArray[np.float32]:
        return gray[2 + down : height - 2 + down : step, 2 + right : width - 2 + right : step].astype(np.float32)

    dx, dy = (grid(0, 1) - grid(0, -1)) / 2, (grid(1, 0) - grid(-1, 0)) / 2
    strength = dx * dx + dy * dy
    # From a dense grid, so that a lone thing has enough of them.
    keep = np.flatnonzero(strength > max(2.0, median(strength)))
    keep = keep[:: math.ceil(len(keep) / _POINTS) or 1]
    y, x = (2.0 + step * at for at in np.divmod(keep, dx.shape[1]))
    value, dx_there, dy_there = (v.ravel()[keep].astype(np.float64) for v in (grid(0, 0), dx, dy))
    return _Points(x=x, y=y, value=value, dx=dx_there, dy=dy_there)


def _descend(points: _Points, second: NDArray[np.uint8], matrix: Floats) -> Floats:
    """Return the motion after Gauss-Newton steps from `matrix`, in which gain and offset are solved for with it."""
    height, width = second.shape
    # Centered and scaled coordinates keep the normal equations well conditioned.
    half = max(height, width) / 2
    u, v = (points.x - width / 2) / half, (points.y - height / 2) / half
    ones = np.ones_like(u)
    base = np.stack([ones, u, v])
    columns = np.concatenate([base * points.dx, base * points.dy, -points.value[None] / 64, -ones[None]])
    gain, offset = 1.0, 0.0
    motion = matrix.copy()
    for step in range(_STEPS):
        place = _apply(motion, points.x, points.y)
        seen, inside = _sample(second, place)
        if inside.sum() < 50:
            return matrix
        error = seen - gain * points.value - offset
        if step == 0:
            offset = median(error[inside])
            error -= offset
        scale = max(1.0, 1.4826 * median(np.abs(error[inside])))
        weight = np.where(inside, np.maximum(0.0, 1 - (error / (4 * scale)) ** 2) ** 2, 0.0)
        weighted = columns * weight
        normal = weighted @ columns.T
        normal[np.diag_indices(8)] *= 1 + 1e-6
        normal[np.diag_indices(8)] += 1e-6
        delta = np.linalg.solve(normal, -weighted @ error)
        # In px: d(x, y) = a + b u + c v, back in the frame of x and y.
        for row, (a, b, c) in enumerate((delta[0:3], delta[3:6])):
            motion[row] += (b / half, c / half, a - (b * width + c * height) / (2 * half))
        gain, offset = gain + delta[6] / 64, offset + delta[7]
        if float(np.abs(delta[:6]).max()) < _STILL_PX:
            break
    return motion


def _misfit(points: _Points, second: NDArray[np.uint8], matrix: Floats) -> float:
    """Return the mean difference in levels at the points after a robust gain and offset, each capped at 25."""
    seen, inside = _sample(second, _apply(matrix, points.x, points.y))
    if inside.sum() < 50:
        return float("inf")
    seen, value = seen[inside], points.value[inside]
    gain = 1.0
    for _ in range(2):
        error = seen - gain * value
        error -= median(error)
        near = np.abs(error) <= max(2.0, 2 * median(np.abs(error)))
        centered = value[near] - value[near].mean()
        # Sums, and no dot products: for those a BLAS wakes its threads, which costs more than the work.
        gain += float((centered * error[near]).sum()) / max(1.0, float((centered * centered).sum()))
    error = seen - gain * value
    return float(np.minimum(np.abs(error - median(error)), _CAP).mean())


def _apply(matrix: Floats, x: Floats, y: Floats) -> Floats:
    return matrix[:, :2] @ np.stack([x, y]) + matrix[:, 2:]


def _scaled(matrix: Floats, factor: float) -> Floats:
    """Return the same motion on a pyramid level `factor` times as large."""
    scaled = matrix.copy()
    scaled[:, 2] *= factor
    return scaled


def _sample(gray: NDArray[np.uint8], place: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the bilinear values at `place` (2×N), and which of them lie inside."""
    height, width = gray.shape
    x, y = place
    inside = (x >= 0) & (y >= 0) & (x < width - 1) & (y < height - 1)
    x, y = np.where(inside, x, 0), np.where(inside, y, 0)
    column, row = x.astype(np.intp), y.astype(np.intp)
    fx, fy = x - column, y - row
    flat = gray.ravel()
    at = row * width + column
    top = flat[at] * (1 - fx) + flat[at + 1] * fx
    bottom = flat[at + width] * (1 - fx) + flat[at + width + 1] * fx
    return top * (1 - fy) + bottom * fy, inside
