"""An editor that draws: for examples and tests, where no model is at hand. It understands a few words and no picture.

It takes the thing in the middle of the image: the largest patch of pixels there that stand out from the image's border and
do not reach it, or an ellipse where there is none. What it does follows from the instruction:

    a name of a colour           the thing gets that colour, light and shade kept
    "remove", "erase", "delete"  the surroundings are continued over it
    a text in quotes             the text is written on it
    "replace", "shape"           an ellipse or a rectangle stands in its place
    "material", "made of"        it gets stripes
    a number, "add"              a copy of it is set beside it

It is deterministic. An instruction of none of these kinds leaves the image as it is.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.errors import ConfigError
from editloupe.models.edit.base import Editor

COLOURS: Final = {
    "red": (200, 30, 30),
    "orange": (230, 130, 20),
    "yellow": (230, 210, 40),
    "green": (30, 150, 60),
    "blue": (30, 70, 200),
    "purple": (130, 50, 170),
    "pink": (235, 130, 175),
    "brown": (120, 75, 40),
    "black": (25, 25, 25),
    "white": (240, 240, 240),
    "gray": (128, 128, 128),
    "grey": (128, 128, 128),
}
_STANDS_OUT: Final = 48
"""Levels by which a pixel of the thing differs from the border's median in some channel."""
_LEAST: Final = 1 / 500
"""Share of the image below which a patch is no thing. In the crop of Eq. 1 a target fills at least 1/49."""
_COLOUR: Final = re.compile(rf"\b({'|'.join(COLOURS)})\b", re.IGNORECASE)
_QUOTED: Final = re.compile(r"[\"“'‘]([^\"”'’]{1,40})[\"”'’]")
_REMOVE: Final = re.compile(r"\b(remove|erase|delete)\b", re.IGNORECASE)
_REPLACE: Final = re.compile(r"\b(replace|shape)\b", re.IGNORECASE)
_MATERIAL: Final = re.compile(r"\b(material|made of|wooden|metal|glass|plastic|stone)\b", re.IGNORECASE)
_COUNT: Final = re.compile(r"\b(add|two|three|four|[2-9])\b", re.IGNORECASE)


class DrawingEditor:
    """The editor that draws."""

    name = "the drawing editor"
    version = "drawing 1"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        thing = _thing(rgb)
        if _REMOVE.search(instruction):
            return np.asarray(cv2.inpaint(rgb, _grown(thing), 3, cv2.INPAINT_TELEA), np.uint8)
        text = _QUOTED.search(instruction)
        if text:
            return _written(rgb, thing, text[1])
        # Of "from red to blue" the last is meant.
        named = _COLOUR.findall(instruction)
        colour = COLOURS[named[-1].lower()] if named else None
        if _REPLACE.search(instruction):
            return _replaced(rgb, thing, colour or COLOURS["orange"])
        if colour is not None:
            return _coloured(rgb, thing, colour)
        if _MATERIAL.search(instruction):
            return _striped(rgb, thing)
        return _doubled(rgb, thing) if _COUNT.search(instruction) else rgb.copy()


def open_drawing(name: str, device: str) -> Editor:
    """Return the editor that draws.   device: does not count. Raises ConfigError for another name than "drawing"."""
    if name != "drawing":
        raise ConfigError(f"editor {name!r}: expected drawing alone; it takes no settings")
    return _shared()


@cache
def _shared() -> Editor:
    return DrawingEditor()


def _thing(rgb: RGB) -> NDArray[np.uint8]:
    """Return an H×W mask, 255 on the thing in the middle."""
    height, width = rgb.shape[:2]
    border = np.concatenate([rgb[0], rgb[-1], rgb[:, 0], rgb[:, -1]])
    apart = np.abs(rgb.astype(np.int16) - np.median(border, axis=0)).max(axis=2) > _STANDS_OUT
    count, labels, stats, centres = cv2.connectedComponentsWithStats(apart.astype(np.uint8), connectivity=8)
    middle = np.array([width / 2, height / 2])
    near = []
    for one in range(1, count):
        x, y, w, h, area = (int(v) for v in stats[one])
        apart_from_border = x > 1 and y > 1 and x + w < width - 1 and y + h < height - 1
        offset = np.abs(centres[one] - middle)
        if (
            area >= max(12, _LEAST * height * width)
            and apart_from_border
            and (offset < np.array([width, height]) / 4).all()
        ):
            near.append((-area, one))
    if near:
        return np.where(labels == min(near)[1], 255, 0).astype(np.uint8)
    mask = np.zeros((height, width), np.uint8)
    axes = max(1, width // 7), max(1, height // 7)
    cv2.ellipse(mask, (width // 2, height // 2), axes, 0, 0, 360, 255, cv2.FILLED)
    return mask


def _grown(thing: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(cv2.dilate(thing, np.ones((5, 5), np.uint8)), np.uint8)


def _box(thing: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return x, y, width and height of the thing, in px."""
    x, y, width, height = cv2.boundingRect(thing)
    return x, y, width, height


def _coloured(rgb: RGB, thing: NDArray[np.uint8], colour: tuple[int, int, int]) -> RGB:
    """Return the image with the thing in a colour, what is light or dark on it kept."""
    inside = thing > 0
    grey = rgb[inside].astype(np.float64).mean(axis=1)
    shade = (grey - grey.mean())[:, None]
    made = rgb.copy()
    made[inside] = np.clip(np.array(colour) + shade, 0, 255).astype(np.uint8)
    return made


def _written(rgb: RGB, thing: NDArray[np.uint8], text: str) -> RGB:
    x, y, width, height = _box(thing)
    made = rgb.copy()
    made[y : y + height, x : x + width] = COLOURS["white"]
    scale = min(width / max(1, 19 * len(text)), height / 24)
    cv2.putText(
        made, text, (x + 1, y + round(height * 0.7)), cv2.FONT_HERSHEY_SIMPLEX, scale, COLOURS["black"], 1, cv2.LINE_AA
    )
    return made


def _replaced(rgb: RGB, thing: NDArray[np.uint8], colour: tuple[int, int, int]) -> RGB:
    x, y, width, height = _box(thing)
    made = np.asarray(cv2.inpaint(rgb, _grown(thing), 3, cv2.INPAINT_TELEA), np.uint8)
    full = float((thing > 0).sum()) > 0.9 * width * height
    if full:
        cv2.ellipse(made, (x + width // 2, y + height // 2), (width // 2, height // 2), 0, 0, 360, colour, cv2.FILLED)
    else:
        cv2.rectangle(made, (x, y), (x + width - 1, y + height - 1), colour, cv2.FILLED)
    return made


def _striped(rgb: RGB, thing: NDArray[np.uint8]) -> RGB:
    made = rgb.copy()
    rows = np.arange(rgb.shape[0])[:, None] // 3 % 2 == 0
    made[(thing > 0) & rows] = COLOURS["brown"]
    return made


def _doubled(rgb: RGB, thing: NDArray[np.uint8]) -> RGB:
    """Return the image with a copy of the thing on its right, or on its left where there is no room."""
    x, y, width, height = _box(thing)
    there = x + width + 2 if x + 2 * width + 2 <= rgb.shape[1] else max(0, x - width - 2)
    made, inside = rgb.copy(), thing[y : y + height, x : x + width] > 0
    place = made[y : y + height, there : there + width]
    part = place.shape[1]
    place[inside[:, :part]] = rgb[y : y + height, x : x + part][inside[:, :part]]
    return made
