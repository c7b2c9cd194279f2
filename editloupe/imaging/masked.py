"""Which pixels of a source image count: those outside the mask of the edit."""

from __future__ import annotations

from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

Kept: TypeAlias = NDArray[np.bool_]
"""H×W, True where a pixel counts."""


def inside(mask: NDArray[np.uint8]) -> Kept:
    """Return where the edit was allowed, in the mask's own pixels.

    mask: h×w or h×w×3 uint8. A pixel is inside if its largest channel is more than half of the mask's largest value: masks
    of 0 and 1, of 0 and 255 and with soft edges mean the same.
    """
    level = mask if mask.ndim == 2 else mask.max(axis=2)
    return np.asarray(level > level.max() / 2) if level.any() else np.zeros(level.shape, dtype=np.bool_)


def share(kept: Kept) -> float:
    """Return which share of the pixels counts, 0 to 1."""
    return float(np.count_nonzero(kept) / kept.size)


def outside(mask: NDArray[np.uint8], shape: tuple[int, int], dilate: bool = True) -> Kept:
    """Return H×W bool: True for the pixels that lie outside the edit.

    mask: h×w or h×w×3 uint8, of any size; it is laid over the whole image by nearest neighbor.
    shape: (H, W) of the image.   dilate: grow a mask that is stretched by one of its own cells, since the edit's edge lies
    somewhere inside that cell. A mask that is not stretched stays as it is.
    """
    found = inside(mask).astype(np.uint8)
    height, width = shape
    stretched = found.shape[0] < height or found.shape[1] < width
    if dilate and stretched:
        found = np.asarray(cv2.dilate(found, np.ones((3, 3), dtype=np.uint8)), dtype=np.uint8)
    if found.shape != (height, width):
        # Stretched as GIE-Bench's scripts do; reduced, the cell under the middle of each pixel counts.
        nearest = cv2.INTER_NEAREST if stretched else cv2.INTER_NEAREST_EXACT
        found = np.asarray(cv2.resize(found, (width, height), interpolation=nearest), dtype=np.uint8)
    return np.asarray(found == 0)
