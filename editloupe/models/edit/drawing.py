"""An editor that draws: for examples and tests, where no model is at hand. It understands a few words and no picture.

It edits an ellipse in the middle of the image. "remove", "erase" and "delete" continue the surroundings over it. Any other
instruction colors it, light and shade kept, in the last color that the instruction names. It is deterministic.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import cv2
import numpy as np

from editloupe.data.images import RGB
from editloupe.models.edit.base import Editor

COLORS: Final = {
    "orange": (230, 130, 20), "red": (200, 30, 30), "yellow": (230, 210, 40), "green": (30, 150, 60), "blue": (30, 70, 200),
    "purple": (130, 50, 170), "black": (25, 25, 25), "white": (240, 240, 240),
}  # fmt: skip
_COLOR: Final = re.compile(rf"\b({'|'.join(COLORS)})\b", re.IGNORECASE)
_REMOVE: Final = re.compile(r"\b(remove|erase|delete)\b", re.IGNORECASE)


class DrawingEditor:
    """The editor that draws."""

    name = "the drawing editor"
    version = "drawing 3"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        height, width = rgb.shape[:2]
        mask = np.zeros((height, width), np.uint8)
        cv2.ellipse(mask, (width // 2, height // 2), (max(1, width // 7), max(1, height // 7)), 0, 0, 360, 255, cv2.FILLED)
        if _REMOVE.search(instruction):
            return np.asarray(cv2.inpaint(rgb, mask, 3, cv2.INPAINT_TELEA), np.uint8)
        # Of "from red to blue" the last is meant.
        color = COLORS[["orange", *_COLOR.findall(instruction)][-1].lower()]
        gray, made = rgb[mask > 0].astype(np.float64).mean(axis=1), rgb.copy()
        made[mask > 0] = np.clip(np.rint(np.array(color) + (gray - gray.mean())[:, None]), 0, 255).astype(np.uint8)
        return made


@cache
def open_drawing(name: str, device: str) -> Editor:
    """Return the editor that draws.   name, device: do not count."""
    return DrawingEditor()
