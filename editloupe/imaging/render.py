"""Makes pictures of pictures: crops, enlargements, two panes with a red line between them, boxes, a map of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.align import resize
from editloupe.values import Box

SHORT_SIDE: Final = 256
"""px; a crop with a shorter side is enlarged before it is shown."""
LONG_SIDE: Final = 1024
"""px; longest side of a pane. A larger crop is reduced."""
DIVIDER_PX: Final = 8
DIVIDER_RGB: Final = (255, 0, 0)

# Apart from each other also for most who are colour-blind (Okabe and Ito's palette, without black and grey).
_BOX_RGB = ((213, 94, 0), (0, 114, 178), (240, 228, 66), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))

_MARK_RGB = (255, 0, 255)
_MARK_GAP = 0.02
"""Of the picture's shorter side, between what a mark holds and its line, so that the line hides nothing of it."""

_MAP_SIDE = 768
_MAP_CELL = 16


def crop(rgb: RGB, box: Box) -> RGB:
    """Return the pixels of `box` (rounded outward, inside the image) as a copy, h×w×3 uint8 RGB, native resolution."""
    x0, y0, x1, y1 = box.ints()
    height, width = rgb.shape[:2]
    if x0 < 0 or y0 < 0 or x1 > width or y1 > height:
        raise ValueError(f"box {[x0, y0, x1, y1]} leaves the image of {width}×{height} px")
    return rgb[y0:y1, x0:x1].copy()


def masked(rgb: RGB, boxes: Sequence[Box]) -> RGB:
    """Return a copy of H×W×3 uint8 RGB with the boxes (px, rounded outward, clipped) painted white."""
    picture = rgb.copy()
    for box in boxes:
        x0, y0, x1, y1 = box.ints()
        picture[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)] = 255
    return picture


def display_scale(width: float, height: float, *, long_side: int = LONG_SIDE) -> float:
    """Return the factor by which a picture of `width` × `height` px is enlarged (a whole number) or reduced to be shown.

    The smallest whole number that brings the shorter side to `SHORT_SIDE`, as far as the longer stays within `long_side`.
    """
    longest = max(width, height)
    if longest > long_side:
        return long_side / longest
    return float(max(1, min(math.ceil(SHORT_SIDE / min(width, height)), math.floor(long_side / longest))))


def scaled(rgb: RGB, factor: float) -> RGB:
    """Return H×W×3 uint8 RGB times `factor`: Lanczos to enlarge, area averaging to reduce."""
    height, width = rgb.shape[:2]
    return resize(rgb, width=max(1, round(width * factor)), height=max(1, round(height * factor)))


def side_by_side(left: RGB, right: RGB) -> tuple[RGB, Box, Box]:
    """Return two panes of one size as a picture, with a red line between them, and the panes' windows in its px.

    Raises ValueError where the sizes differ.
    """
    if left.shape != right.shape:
        raise ValueError(f"panes must have one size, found {left.shape} and {right.shape}")
    height, width = left.shape[:2]
    divider = np.full((height, DIVIDER_PX, 3), DIVIDER_RGB, dtype=np.uint8)
    picture: RGB = np.concatenate([left, divider, right], axis=1)
    return picture, Box(0, 0, width, height), Box(width + DIVIDER_PX, 0, 2 * width + DIVIDER_PX, height)


def with_boxes(rgb: RGB, boxes: Sequence[Box]) -> RGB:
    """Return a copy with numbered boxes (1, 2, …), scaled to be looked at (`display_scale`); the first lies on top.

    A box is drawn just outside what it holds, black, coloured, black, so that it is seen on any ground.
    """
    scale = display_scale(rgb.shape[1], rgb.shape[0])
    picture = scaled(rgb, scale).copy()
    height, width = picture.shape[:2]
    line = max(1, round(max(width, height) / 400))
    for number, box in reversed(list(enumerate(boxes, start=1))):
        colour = _BOX_RGB[(number - 1) % len(_BOX_RGB)]
        x0, y0, x1, y1 = box.scaled(width / rgb.shape[1], height / rgb.shape[0]).ints()
        for grow, shade in ((2 * line + 2, (0, 0, 0)), (2 * line + 1, colour), (line, (0, 0, 0))):
            corners = (x0 - grow, y0 - grow), (x1 + grow - 1, y1 + grow - 1)
            cv2.rectangle(picture, *corners, shade, 1 if shade == (0, 0, 0) else line + 1)
        _label(picture, str(number), (x0 - 2 * line, y0 - 2 * line), colour)
    return picture


def marked(rgb: RGB, boxes: Sequence[Box]) -> RGB:
    """Return a copy of H×W×3 uint8 RGB with a thin magenta outline around each box (px), a little apart from it."""
    picture = rgb.copy()
    height, width = picture.shape[:2]
    gap, line = max(4, round(_MARK_GAP * min(width, height))), max(2, round(max(width, height) / 400))
    for box in boxes:
        x0, y0, x1, y1 = box.ints()
        cv2.rectangle(picture, (x0 - gap, y0 - gap), (x1 + gap - 1, y1 + gap - 1), _MARK_RGB, line)
    return picture


def unmarked(rgb: RGB) -> RGB:
    """Return a picture of `marked` with its outlines filled from around. A pixel of exactly their colour counts as one."""
    line = (rgb == np.array(_MARK_RGB, dtype=np.uint8)).all(axis=2)
    return np.asarray(cv2.inpaint(rgb, line.astype(np.uint8), 3, cv2.INPAINT_TELEA), dtype=np.uint8)


def _label(picture: RGB, text: str, corner: tuple[int, int], colour: tuple[int, int, int]) -> None:
    """Draw text on a filled ground above `corner`, or inside the picture where there is no room above. In place."""
    height, width = picture.shape[:2]
    size = max(0.4, max(width, height) / 1600)
    thickness = max(1, round(2 * size))
    (text_w, text_h), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, thickness)
    x = int(np.clip(corner[0], 0, max(0, width - text_w - 4)))
    y = int(np.clip(corner[1] - 2, text_h + base, max(text_h + base, height - 1)))
    cv2.rectangle(picture, (x, y - text_h - base), (x + text_w + 4, y + 1), colour, cv2.FILLED)
    ink = (0, 0, 0) if sum(colour) > 380 else (255, 255, 255)
    cv2.putText(picture, text, (x + 2, y - base // 2), cv2.FONT_HERSHEY_SIMPLEX, size, ink, thickness, cv2.LINE_AA)


def heat_map(rgb: RGB, levels: NDArray[np.float32]) -> RGB:
    """Return a coarse map of differences over a grey copy of the image, at most 768 px a side: dark blue little, red much.

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
