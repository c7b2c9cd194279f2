"""Computes boxes around small things: the expansion ratio λ(s) of DLEBench and crops with context.

Eq. 1 is the paper's rule for the crops in which it edits reference images (section 3.1). Its use for the crops of the
oracle mode and of tools is ours: the paper does not say how large those are.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from editloupe.values import Box

LAMBDA_MAX = 6.0
LAMBDA_MIN = 0.3
S_MIN = 32.0
S_MAX = 256.0


def expansion_ratio(
    s: float, *, lambda_max: float = LAMBDA_MAX, lambda_min: float = LAMBDA_MIN, s_min: float = S_MIN, s_max: float = S_MAX
) -> float:
    """Return λ(s) of DLEBench Eq. 1: 6.0 for s ≤ 32, 0.3 for s ≥ 256, linear between.

    s: the shorter side of a box in source px. Raises ValueError unless s > 0.
    """
    if not s > 0:
        raise ValueError(f"s must be a positive number of px, found {s!r}")
    if s <= s_min:
        return lambda_max
    if s >= s_max:
        return lambda_min
    alpha = (s - s_min) / (s_max - s_min)
    return (1 - alpha) * lambda_max + alpha * lambda_min


def expand(box: Box, *, width: float, height: float, ratio: float | None = None) -> Box:
    """Return a box with context: sides (1 + λ)·w and (1 + λ)·h about its center, rounded outward, clipped, not shifted.

    ratio: λ; None takes λ(min(w, h)) of Eq. 1.   width, height: of the image, in px.
    """
    grow = expansion_ratio(min(box.width, box.height)) if ratio is None else ratio
    cx, cy = box.center
    half_w, half_h = (1 + grow) * box.width / 2, (1 + grow) * box.height / 2
    return Box(cx - half_w, cy - half_h, cx + half_w, cy + half_h).rounded_out().clipped(width=width, height=height)


def spans(length: int, *, tile: int, overlap: int) -> list[tuple[int, int]]:
    """Return stretches (start, end) that cover 0..length, each `tile` long, neighbors sharing at least `overlap`.

    Where `tile` covers all, it is one stretch, 0..length. Raises ValueError unless 0 ≤ overlap < tile.
    """
    if not 0 <= overlap < tile:
        raise ValueError(f"expected 0 ≤ overlap < tile, found overlap {overlap} and tile {tile}")
    if length <= tile:
        return [(0, length)]
    count = math.ceil((length - overlap) / (tile - overlap))
    # Spread evenly, so that all tiles have one size and can share a batch.
    starts = [round(i * (length - tile) / (count - 1)) for i in range(count)]
    return [(start, start + tile) for start in starts]


CELLS: Final = 8
"""Rows and columns of cells by which it is asked whether something is all over a picture or in one place."""


def cells_covered(x: NDArray[Any], y: NDArray[Any], *, width: int, height: int) -> float:
    """Return the number of a picture's 8×8 cells over which N points spread: 1 / Σ share², from 1 (all in one cell) to 64.

    x, y: N coordinates each in px, 0 ≤ x < width, 0 ≤ y < height; N > 0.
    """
    rows, columns = (y * CELLS // height).astype(np.intp), (x * CELLS // width).astype(np.intp)
    shares = np.bincount(rows * CELLS + columns, minlength=CELLS * CELLS) / len(rows)
    return float(1 / (shares @ shares))
