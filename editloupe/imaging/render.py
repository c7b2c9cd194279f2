"""Pictures made of pictures: crops, enlargements, two panes with a red line between them, a map of differences."""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.align import resize
from editloupe.values import Box

SHORT_SIDE: Final = 256
"""A crop whose shorter side has fewer px is enlarged before it is shown."""

LONG_SIDE: Final = 1024
"""No pane is longer than so many px; a larger crop is reduced."""

DIVIDER_PX: Final = 8
DIVIDER_RGB: Final = (255, 0, 0)

_MAP_SIDE = 768
_MAP_CELL = 16


def crop(rgb: RGB, box: Box) -> RGB:
    """The pixels of `box` (rounded outward, inside the image) as a copy, h×w×3 uint8 RGB, native resolution."""
    x0, y0, x1, y1 = box.ints()
    height, width = rgb.shape[:2]
    if x0 < 0 or y0 < 0 or x1 > width or y1 > height:
        raise ValueError(f"box {[x0, y0, x1, y1]} leaves the image of {width}×{height} px")
    return rgb[y0:y1, x0:x1].copy()


def display_scale(width: float, height: float, *, short_side: int = SHORT_SIDE, long_side: int = LONG_SIDE) -> float:
    """By how much a picture of `width` × `height` px is enlarged (a whole number) or reduced (below 1) to be shown.

    The smallest whole number that brings the shorter side to `short_side`, as far as the longer stays within `long_side`.
    """
    if max(width, height) > long_side:
        return long_side / max(width, height)
    wanted = math.ceil(short_side / min(width, height))
    return float(max(1, min(wanted, math.floor(long_side / max(width, height)))))


def scaled(rgb: RGB, factor: float) -> RGB:
    """H×W×3 uint8 RGB times `factor`: Lanczos to enlarge, area averaging to reduce."""
    height, width = rgb.shape[:2]
    return resize(rgb, width=max(1, round(width * factor)), height=max(1, round(height * factor)))


def side_by_side(left: RGB, right: RGB) -> tuple[RGB, Box, Box]:
    """Two panes of the same size with a red line between them; the picture and the panes' windows in its px.

    Raises ValueError where the sizes differ.
    """
    if left.shape != right.shape:
        raise ValueError(f"panes must have one size, found {left.shape} and {right.shape}")
    height, width = left.shape[:2]
    divider = np.full((height, DIVIDER_PX, 3), DIVIDER_RGB, dtype=np.uint8)
    picture: RGB = np.concatenate([left, divider, right], axis=1)
    return picture, Box(0, 0, width, height), Box(width + DIVIDER_PX, 0, 2 * width + DIVIDER_PX, height)


def heat_map(rgb: RGB, levels: NDArray[np.float32]) -> RGB:
    """A coarse map of differences over a grey copy of the image, at most 768 px a side: dark blue little, red much.

    rgb: h×w×3 uint8, the frame of `levels`.   levels: h×w float32, 0..255; averaged over 16×16 px of the map.
    """
    base = scaled(rgb, min(1.0, _MAP_SIDE / max(rgb.shape[:2])))
    height, width = base.shape[:2]
    cells = (max(1, width // _MAP_CELL), max(1, height // _MAP_CELL))
    coarse = cv2.resize(levels, cells, interpolation=cv2.INTER_AREA)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    shade = np.clip(smooth * (255.0 / max(1.0, float(smooth.max()))), 0, 255).astype(np.uint8)
    colours = cv2.cvtColor(cv2.applyColorMap(shade, cv2.COLORMAP_JET), cv2.COLOR_BGR2RGB)
    grey = cv2.cvtColor(cv2.cvtColor(base, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return np.asarray(cv2.addWeighted(grey, 0.5, colours, 0.5, 0.0), dtype=np.uint8)
