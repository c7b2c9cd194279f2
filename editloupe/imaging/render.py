"""Makes pictures of pictures: crops, enlargements, two panes with a red line between them, boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe.data.images import RGB
from editloupe.imaging.align import resize
from editloupe.values import Box

SHORT_SIDE: Final = 256
"""px; a crop with a shorter side is enlarged before it is shown."""
LONG_SIDE: Final = 1024
"""px; longest side of a pane. A larger crop is reduced."""
DIVIDER_PX: Final = 8
DIVIDER_RGB: Final = (255, 0, 0)
LABEL_PX: Final = 20
"""px; height of the strip above two panes that says what they are."""
_TITLE_PX = 14
"""px; size of the font, whose capitals are about 10 px high: legible at the size sent."""

# Apart from each other also for most who are color-blind (Okabe and Ito's palette, without black and gray).
_BOX_RGB = ((213, 94, 0), (0, 114, 178), (240, 228, 66), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))

_MARK_RGB = (255, 0, 255)
_MARK_GAP = 0.02
"""Of the picture's shorter side, between what a mark holds and its line, so that the line hides nothing of it."""


def crop(rgb: RGB, box: Box) -> RGB:
    """Return the pixels of `box` (rounded outward, inside the image) as a copy, h×w×3 uint8 RGB, native resolution."""
    x0, y0, x1, y1 = box.ints()
    height, width = rgb.shape[:2]
    if x0 < 0 or y0 < 0 or x1 > width or y1 > height:
        raise ValueError(f"box {[x0, y0, x1, y1]} leaves the image of {width}×{height} px")
    return rgb[y0:y1, x0:x1].copy()


def filled(rgb: RGB, boxes: Sequence[Box], color: tuple[int, int, int]) -> RGB:
    """Return a copy of H×W×3 uint8 RGB with the boxes (px, rounded outward, clipped) painted in one color."""
    picture = rgb.copy()
    for box in boxes:
        x0, y0, x1, y1 = box.ints()
        picture[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)] = color
    return picture


def display_scale(width: float, height: float, *, long_side: int = LONG_SIDE) -> float:
    """Return the factor by which a picture of `width` × `height` px is enlarged (a whole number) or reduced to be shown.

    The smallest whole number that brings the shorter side to `SHORT_SIDE`, as far as the longer stays within `long_side`.
    """
    longest = max(width, height)
    if longest > long_side:
        return long_side / longest
    return float(max(1, min(math.ceil(SHORT_SIDE / min(width, height)), math.floor(long_side / longest))))


def side_by_side(left: RGB, right: RGB, *, titles: tuple[str, str] | None = None) -> tuple[RGB, Box, Box]:
    """Return two panes as a picture, with a red line between them, and the panes' windows in its px.

    Below the lower of two panes the picture is black.
    titles: ASCII, written above the panes, outside of what they show; the end of a long one is left out. None for none.
    """
    top = 0 if titles is None else LABEL_PX
    bottom, start = top + max(left.shape[0], right.shape[0]), left.shape[1] + DIVIDER_PX
    windows = [Box.whole(width=p.shape[1], height=p.shape[0]).shifted(x, top) for p, x in ((left, 0), (right, start))]
    picture = np.zeros((bottom, start + right.shape[1], 3), dtype=np.uint8)
    picture[top:, left.shape[1] : start] = DIVIDER_RGB
    for i, (pane, window) in enumerate(zip((left, right), windows, strict=True)):
        x0, y0, x1, y1 = window.ints()
        picture[y0:y1, x0:x1] = pane
        if titles is not None:
            picture[:top, x0:x1] = _title(titles[i], pane.shape[1])
    return picture, windows[0], windows[1]


def _title(text: str, width: int) -> RGB:
    """Return white text on black, `LABEL_PX` high."""
    font = ImageFont.load_default(_TITLE_PX)
    while text and font.getlength(text) > width - 6:
        text = text[:-1]
    return _written((width, LABEL_PX), text, (4, LABEL_PX // 2), font, (0, 0, 0), (255, 255, 255))


def _written(
    size: tuple[int, int],
    text: str,
    at: tuple[int, int],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    ground: tuple[int, int, int],
    ink: tuple[int, int, int],
) -> RGB:
    """Return h×w×3 of a size (w, h) with a text whose left middle lies at a place."""
    strip = Image.new("RGB", size, ground)
    ImageDraw.Draw(strip).text(at, text, fill=ink, font=font, anchor="lm")
    return np.array(strip, dtype=np.uint8)


def with_boxes(rgb: RGB, boxes: Sequence[Box]) -> RGB:
    """Return a copy with numbered boxes (1, 2, …), scaled to be looked at (`display_scale`); the first lies on top."""
    height, width = rgb.shape[:2]
    scale = display_scale(width, height)
    picture = resize(rgb, width=max(1, round(scale * width)), height=max(1, round(scale * height)))
    factors = picture.shape[1] / width, picture.shape[0] / height
    return outlined(picture, {number: box.scaled(*factors) for number, box in enumerate(boxes, start=1)})


def outlined(rgb: RGB, boxes: Mapping[int, Box], *, numbered: bool = True) -> RGB:
    """Return a copy with a thin outline around each box (px), in the color of its number; the first lies on top.

    A box is drawn just outside what it holds, black, colored, black, so that it is seen on any ground.
    """
    picture = rgb.copy()
    line = max(1, round(max(picture.shape[:2]) / 400))
    colors = {number: _BOX_RGB[(number - 1) % len(_BOX_RGB)] for number in boxes}
    for number, box in reversed(list(boxes.items())):
        x0, y0, x1, y1 = box.ints()
        for grow, shade in ((2 * line + 2, (0, 0, 0)), (2 * line + 1, colors[number]), (line, (0, 0, 0))):
            corners = (x0 - grow, y0 - grow), (x1 + grow - 1, y1 + grow - 1)
            cv2.rectangle(picture, *corners, shade, 1 if shade == (0, 0, 0) else line + 1)
    placed: list[Box] = []
    for number, box in boxes.items() if numbered else ():
        x0, y0, x1, y1 = box.ints()
        # Above the box, or else at another corner, so that no number hides another.
        ends = [(x0 - 2 * line, y0 - 2 * line), (x1, y0 - 2 * line), (x0, y1 + 3 * line), (x1, y1 + 3 * line)]
        placed.append(_label(picture, str(number), ends, colors[number], placed))
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
    """Return a picture of `marked` with its outlines filled from around. A pixel of exactly their color counts as one."""
    line = (rgb == np.array(_MARK_RGB, dtype=np.uint8)).all(axis=2)
    return np.asarray(cv2.inpaint(rgb, line.astype(np.uint8), 3, cv2.INPAINT_TELEA), dtype=np.uint8)


def _label(
    picture: RGB,
    text: str,
    corners: Sequence[tuple[int, int]],
    color: tuple[int, int, int],
    taken: Sequence[Box],
) -> Box:
    """Draw text on a filled ground at the first corner at which it covers nothing taken, inside the picture; return where.

    corners: (x, y) above the first two and below the others of which it is drawn; the first where each covers something.
    """
    height, width = picture.shape[:2]
    px = max(_TITLE_PX, round(max(height, width) / 50))
    font = ImageFont.load_default(px)
    label_w, label_h = min(width, math.ceil(font.getlength(text)) + 6), min(height, px + 4)
    places = []
    for index, (left, edge) in enumerate(corners):
        x = int(np.clip(left, 0, width - label_w))
        y = int(np.clip(edge - label_h if index < 2 else edge, 0, height - label_h))
        places.append(Box(x, y, x + label_w, y + label_h))
    where = next((place for place in places if all(place.intersection(box) is None for box in taken)), places[0])
    x0, y0, x1, y1 = where.ints()
    ink = (0, 0, 0) if sum(color) > 380 else (255, 255, 255)
    picture[y0:y1, x0:x1] = _written((label_w, label_h), text, (3, label_h // 2), font, color, ink)
    return where
