"""An editor that draws: for examples and tests, where no model is at hand. It understands a few words and no picture.

It takes the thing in the middle of the image: the largest patch of pixels there that stand out from the image's border and
do not reach it, or an ellipse where there is none. "remove", "erase" and "delete" continue the surroundings over it. Any
other instruction colors it, light and shade kept: in the last color that the instruction names, or in orange. It is
deterministic.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.models.edit.base import Editor

COLORS: Final = {
    "red": (200, 30, 30), "orange": (230, 130, 20), "yellow": (230, 210, 40), "green": (30, 150, 60), "blue": (30, 70, 200),
    "purple": (130, 50, 170), "pink": (235, 130, 175), "brown": (120, 75, 40), "black": (25, 25, 25),
    "white": (240, 240, 240), "gray": (128, 128, 128), "grey": (128, 128, 128),
}  # fmt: skip
_STANDS_OUT: Final = 48
"""Levels by which a pixel of the thing differs from the border's median in some channel."""
_LEAST: Final = 1 / 500
"""Share of the image below which a patch is no thing. In the crop of Eq. 1 a target fills at least 1/49."""
_COLOR: Final = re.compile(rf"\b({'|'.join(COLORS)})\b", re.IGNORECASE)
_REMOVE: Final = re.compile(r"\b(remove|erase|delete)\b", re.IGNORECASE)


class DrawingEditor:
    """The editor that draws."""

    name = "the drawing editor"
    version = "drawing 3"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        thing = _thing(rgb)
        if _REMOVE.search(instruction):
            around = np.asarray(cv2.dilate(thing.astype(np.uint8), np.ones((5, 5), np.uint8)))
            return np.asarray(cv2.inpaint(rgb, around, 3, cv2.INPAINT_TELEA), np.uint8)
        # Of "from red to blue" the last is meant.
        color = COLORS[["orange", *_COLOR.findall(instruction)][-1].lower()]
        gray = rgb[thing].astype(np.float64).mean(axis=1)
        made = rgb.copy()
        made[thing] = np.clip(np.rint(np.array(color) + (gray - gray.mean())[:, None]), 0, 255).astype(np.uint8)
        return made


@cache
def open_drawing(name: str, device: str) -> Editor:
    """Return the editor that draws.   name, device: do not count."""
    return DrawingEditor()


def _thing(rgb: RGB) -> NDArray[np.bool_]:
    """Return H×W, True on the thing in the middle."""
    height, width = rgb.shape[:2]
    border = np.concatenate([rgb[0], rgb[-1], rgb[:, 0], rgb[:, -1]])
    apart = np.abs(rgb.astype(np.int16) - np.median(border, axis=0)).max(axis=2) > _STANDS_OUT
    _, labels, stats, _ = cv2.connectedComponentsWithStats(apart.astype(np.uint8), connectivity=8)
    x, y, w, h, area = stats.T
    inside = (x > 1) & (y > 1) & (x + w < width - 1) & (y + h < height - 1)
    found = np.where(inside & (area >= max(12, _LEAST * height * width)), area, 0)
    if found[1:].any():
        return np.asarray(labels == 1 + found[1:].argmax())
    mask = np.zeros((height, width), np.uint8)
    axes = max(1, width // 7), max(1, height // 7)
    cv2.ellipse(mask, (width // 2, height // 2), axes, 0, 0, 360, 255, cv2.FILLED)
    return mask > 0
