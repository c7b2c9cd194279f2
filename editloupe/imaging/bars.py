"""Finds the black bars that pad a picture to another shape."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.values import Box

_BLACK: Final = 8.0
"""Levels of 0 to 255. A line of a bar is darker on average; JPEG leaves a little light beside the picture's edge."""


def without_bars(rgb: RGB) -> Box:
    """Return the part of H×W×3 uint8 RGB that lies between black bars, in px.

    Bars stand on two opposite sides and are equally wide: a picture that is dark on one side has none. A picture that is
    black all over has none either.
    """
    height, width = rgb.shape[:2]
    brightest = rgb.max(axis=2)
    rows, columns = (_bar(brightest.mean(axis=axis, dtype=np.float64)) for axis in (1, 0))
    return Box(columns, rows, width - columns, height - rows)


def _bar(lines: NDArray[np.float64]) -> int:
    """Return how many lines at each end are black; 0 where all are."""
    lit = np.flatnonzero(lines > _BLACK)
    return 0 if not len(lit) else int(min(lit[0], len(lines) - 1 - lit[-1]))
