"""Where change is allowed: a row's mask at the size of its image, and as the benchmark's few cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from editloupe.data.folders import RowError
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError
from editloupe.imaging.masked import inside
from editloupe.protocols.giebench.loader import MASK_PX
from editloupe.values import Box, ImageRef

Mask = NDArray[np.bool_]


def check(store: ImageStore, mask: ImageRef) -> None:
    """Raise RowError for a mask that cannot be read, or has all pixels on one side."""
    try:
        share = float(inside(store.array(mask)).mean())
    except ImageError as error:
        raise RowError("row", f"the mask cannot be read: {error}") from error
    if share in (0.0, 1.0):
        raise RowError("row", "the mask is full: nothing lies outside it" if share else "the mask is empty")


def of_boxes(image: ImageRef, boxes: Sequence[Box], *, whole: bool) -> Mask:
    """Return the inside of boxes as a mask of an image.   whole: whether all of the image is inside."""
    found = np.full((image.height, image.width), whole)
    for box in boxes:
        x0, y0, x1, y1 = box.clipped(width=image.width, height=image.height).ints()
        found[y0:y1, x0:x1] = True
    return found


def reduced(mask: Mask, side: int = MASK_PX) -> Mask:
    """Return a mask as side×side cells, True where any pixel of a cell is: what is small is never lost."""
    found = mask
    for axis in (0, 1):
        length, cells = found.shape[axis], np.arange(side)
        # Each cell has whole pixels, at least one: those that it touches.
        low, high = cells * length // side, -(-(cells + 1) * length // side)
        sums = np.insert(np.cumsum(found, axis=axis, dtype=np.int64), 0, 0, axis=axis)
        found = np.take(sums, high, axis=axis) > np.take(sums, low, axis=axis)
    return found
