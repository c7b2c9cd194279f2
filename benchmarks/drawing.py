"""Pictures from numbers: backgrounds, small named things, materials, styles and camera noise. Deterministic.

An image is H×W×3 uint8 RGB. A scene is a background and a list of things; an edit is another list of things, so that
what differs between the two pictures is known by construction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

RGB: TypeAlias = NDArray[np.uint8]
Field: TypeAlias = NDArray[np.float64]
Stroke: TypeAlias = tuple[str, str, tuple[float, ...]]
"""(primitive, paint, coordinates in a unit square): "oval", "rect", "poly" or "line"; paint is a key of `_paints`."""

PAINTS: Mapping[str, tuple[int, int, int]] = {
    "red": (205, 38, 40), "orange": (240, 138, 30), "yellow": (243, 212, 45), "green": (46, 148, 62),
    "blue": (40, 84, 200), "purple": (128, 54, 168), "pink": (243, 136, 178), "brown": (120, 72, 36),
    "black": (28, 28, 32), "white": (244, 244, 240), "gray": (134, 136, 140), "turquoise": (44, 190, 190),
}  # fmt: skip
"""The colors of things; each thing varies a little around its own."""

FORMS: Mapping[str, tuple[float, ...]] = {
    "square": (0.08, 0.08, 0.92, 0.08, 0.92, 0.92, 0.08, 0.92),
    "triangular": (0.5, 0.02, 0.99, 0.94, 0.01, 0.94),
    "star-shaped": tuple(
        v
        for i in range(10)
        for v in (
            0.5 + (0.5 if i % 2 == 0 else 0.22) * math.sin(i * math.pi / 5),
            0.5 - (0.5 if i % 2 == 0 else 0.22) * math.cos(i * math.pi / 5),
        )
    ),
}
"""Outlines besides "round"."""

KINDS: Mapping[str, tuple[Stroke, ...]] = {
    "mug": (("oval", "dark", (0.62, 0.28, 0.98, 0.76)), ("oval", "hole", (0.7, 0.38, 0.9, 0.66)),
            ("rect", "main", (0.1, 0.14, 0.74, 0.94)), ("oval", "dark", (0.1, 0.06, 0.74, 0.24)),
            ("rect", "light", (0.1, 0.5, 0.74, 0.58))),
    "ball": (("oval", "main", (0.04, 0.04, 0.96, 0.96)), ("poly", "light", (0.3, 0.2, 0.5, 0.12, 0.44, 0.4)),
             ("line", "dark", (0.06, 0.56, 0.94, 0.62)), ("line", "dark", (0.62, 0.06, 0.44, 0.95))),
    "box": (("poly", "light", (0.05, 0.3, 0.3, 0.08, 0.97, 0.08, 0.74, 0.3)),
            ("poly", "dark", (0.74, 0.3, 0.97, 0.08, 0.97, 0.72, 0.74, 0.96)),
            ("rect", "main", (0.05, 0.3, 0.74, 0.96)), ("rect", "dark", (0.34, 0.3, 0.44, 0.96))),
    "kite": (("poly", "main", (0.5, 0.0, 0.9, 0.36, 0.5, 0.8, 0.1, 0.36)), ("line", "dark", (0.5, 0.0, 0.5, 0.8)),
             ("line", "dark", (0.1, 0.36, 0.9, 0.36)), ("line", "main", (0.5, 0.8, 0.6, 0.9, 0.46, 1.0))),
    "apple": (("oval", "main", (0.06, 0.2, 0.6, 0.96)), ("oval", "main", (0.4, 0.2, 0.94, 0.96)),
              ("line", "dark", (0.5, 0.3, 0.54, 0.04)), ("oval", "light", (0.18, 0.32, 0.32, 0.5))),
    "fish": (("oval", "main", (0.02, 0.24, 0.76, 0.78)), ("poly", "main", (0.66, 0.5, 0.98, 0.2, 0.98, 0.82)),
             ("oval", "light", (0.12, 0.4, 0.24, 0.52)), ("line", "dark", (0.36, 0.28, 0.42, 0.5, 0.36, 0.74))),
    "umbrella": (("line", "pole", (0.5, 0.4, 0.5, 0.94, 0.4, 0.98)), ("oval", "main", (0.02, 0.04, 0.98, 0.92)),
                 ("rect", "hole", (0.0, 0.5, 0.49, 0.93)), ("rect", "hole", (0.53, 0.5, 1.0, 0.93)),
                 ("poly", "light", (0.5, 0.04, 0.36, 0.49, 0.64, 0.49)), ("line", "pole", (0.51, 0.5, 0.51, 0.96))),
    "car": (("poly", "main", (0.2, 0.5, 0.32, 0.24, 0.7, 0.24, 0.84, 0.5)), ("rect", "main", (0.02, 0.46, 0.98, 0.74)),
            ("poly", "glass", (0.28, 0.47, 0.36, 0.3, 0.5, 0.3, 0.5, 0.47)), ("rect", "glass", (0.54, 0.3, 0.68, 0.47)),
            ("oval", "tire", (0.12, 0.6, 0.34, 0.84)), ("oval", "tire", (0.66, 0.6, 0.88, 0.84))),
    "balloon": (("oval", "main", (0.14, 0.0, 0.86, 0.72)), ("poly", "dark", (0.5, 0.68, 0.58, 0.78, 0.42, 0.78)),
                ("line", "pole", (0.5, 0.78, 0.46, 0.88, 0.54, 1.0)), ("oval", "light", (0.28, 0.12, 0.44, 0.34))),
    "bottle": (("rect", "dark", (0.4, 0.0, 0.6, 0.1)), ("rect", "main", (0.42, 0.08, 0.58, 0.36)),
               ("poly", "main", (0.42, 0.3, 0.58, 0.3, 0.74, 0.46, 0.74, 0.98, 0.26, 0.98, 0.26, 0.46)),
               ("rect", "light", (0.28, 0.56, 0.72, 0.76))),
    "hat": (("oval", "main", (0.0, 0.6, 1.0, 0.92)), ("poly", "main", (0.24, 0.74, 0.32, 0.14, 0.68, 0.14, 0.76, 0.74)),
            ("poly", "dark", (0.25, 0.7, 0.28, 0.54, 0.72, 0.54, 0.75, 0.7))),
    "boat": (("poly", "main", (0.0, 0.62, 1.0, 0.62, 0.84, 0.94, 0.16, 0.94)), ("line", "pole", (0.48, 0.62, 0.48, 0.04)),
             ("poly", "light", (0.52, 0.08, 0.52, 0.56, 0.9, 0.56)), ("rect", "dark", (0.08, 0.7, 0.92, 0.76))),
    "lamp": (("poly", "main", (0.3, 0.04, 0.7, 0.04, 0.96, 0.5, 0.04, 0.5)), ("line", "pole", (0.5, 0.5, 0.5, 0.9)),
             ("rect", "dark", (0.28, 0.9, 0.72, 0.98)), ("poly", "light", (0.4, 0.06, 0.46, 0.06, 0.36, 0.48, 0.24, 0.48))),
}  # fmt: skip
FORMED = ("badge", "plate", "clock")
"""Things whose outline is a field of its own (`Thing.form`)."""
LETTERED = ("sign",)
"""Things that carry a text (`Thing.text`), 2.6 times as wide as high."""

_FORM_MARKS: Mapping[str, tuple[Stroke, ...]] = {
    "badge": (("oval", "light", (0.34, 0.38, 0.66, 0.7)),),
    "plate": (("oval", "dark", (0.26, 0.3, 0.74, 0.78)), ("oval", "main", (0.31, 0.35, 0.69, 0.73))),
    "clock": (("oval", "light", (0.28, 0.32, 0.72, 0.76)), ("line", "pole", (0.5, 0.54, 0.5, 0.36)),
              ("line", "pole", (0.5, 0.54, 0.62, 0.6))),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Thing:
    """One small thing.

    x, y: center, px.   size: height of its square (of its board for lettered things), px.   grain: seed of its own
    variation, so that an untouched thing is drawn alike in both pictures.   material: "" is plain paint.
    warp, soft: what an over-eager editor does to it: bent outline, blur (sigma as a part of size).
    """

    kind: str
    color: str
    x: float
    y: float
    size: float
    grain: int = 0
    form: str = "round"
    text: str = ""
    material: str = ""
    warp: float = 0.0
    soft: float = 0.0

    @property
    def box(self) -> tuple[int, int, int, int]:
        """x0, y0, x1, y1 in px."""
        half_w = self.size * (1.3 if self.kind in LETTERED else 0.5)
        half_h = self.size / 2
        return (round(self.x - half_w), round(self.y - half_h), round(self.x + half_w), round(self.y + half_h))


def render(background: RGB, things: Sequence[Thing]) -> RGB:
    """The things on the background, the later ones in front."""
    canvas = background.astype(np.float64)
    for thing in things:
        _paste(canvas, thing)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


def _paste(canvas: Field, thing: Thing) -> None:
    colors, alpha = _sprite(thing)
    x0, y0 = round(thing.x - alpha.shape[1] / 2), round(thing.y - alpha.shape[0] / 2)
    height, width = canvas.shape[:2]
    left, top = max(0, x0), max(0, y0)
    right, bottom = min(width, x0 + alpha.shape[1]), min(height, y0 + alpha.shape[0])
    if right <= left or bottom <= top:
        return
    a = alpha[top - y0 : bottom - y0, left - x0 : right - x0, None]
    canvas[top:bottom, left:right] *= 1 - a
    canvas[top:bottom, left:right] += a * colors[top - y0 : bottom - y0, left - x0 : right - x0]


def _sprite(thing: Thing) -> tuple[Field, Field]:
    """Colors (H×W×3, 0..255) and alpha (H×W, 0..1) of a thing, with a margin of a quarter of its size."""
    rng = np.random.default_rng(thing.grain)
    height = max(8, round(thing.size))
    width = round(height * 2.6) if thing.kind in LETTERED else height
    margin = height // 4
    shape = (height + 2 * margin, width + 2 * margin)
    base = np.array(PAINTS[thing.color], np.float64) + rng.uniform(-10, 10, 3)
    skin = _skin(thing.material, base, shape)
    paints = {
        "main": skin, "dark": skin * 0.58, "light": skin * 0.45 + 255 * 0.55,
        "pole": np.full((*shape, 3), 58.0), "tire": np.full((*shape, 3), 36.0),
        "glass": np.broadcast_to(np.array([196.0, 222.0, 234.0]), (*shape, 3)),
    }  # fmt: skip
    colors, alpha = np.zeros((*shape, 3)), np.zeros(shape)
    for primitive, paint, coordinates in _strokes(thing):
        mask = _mask(primitive, coordinates, width, height, margin)
        if paint == "hole":
            alpha *= 1 - mask
            continue
        colors += mask[..., None] * (paints[paint] - colors)
        alpha = alpha + mask * (1 - alpha)
    if thing.text:
        mask = _lettering(thing.text, width, height, margin)
        ink = 245.0 if base.mean() < 120 else 25.0
        colors += mask[..., None] * (ink - colors)
    colors = colors + rng.normal(0, 3.0, (*shape, 1))
    return _spoiled(thing, colors, alpha)


def _strokes(thing: Thing) -> tuple[Stroke, ...]:
    if thing.kind in LETTERED:
        return (("rect", "dark", (0.0, 0.0, 1.0, 1.0)), ("rect", "main", (0.02, 0.06, 0.98, 0.94)))
    if thing.kind in FORMED:
        outline = FORMS.get(thing.form)
        body: Stroke = ("oval", "main", (0.03, 0.03, 0.97, 0.97)) if outline is None else ("poly", "main", outline)
        return (body, *_FORM_MARKS[thing.kind])
    return KINDS[thing.kind]


def _mask(primitive: str, coordinates: tuple[float, ...], width: int, height: int, margin: int) -> Field:
    """A primitive as coverage 0..1, antialiased by drawing it four times as large."""
    k = 4
    image = Image.new("L", ((width + 2 * margin) * k, (height + 2 * margin) * k), 0)
    pen = ImageDraw.Draw(image)
    xs = [(margin + v * (width if i % 2 == 0 else height)) * k for i, v in enumerate(coordinates)]
    if primitive == "oval":
        pen.ellipse(xs, fill=255)
    elif primitive == "rect":
        pen.rectangle(xs, fill=255)
    elif primitive == "poly":
        pen.polygon(xs, fill=255)
    else:
        pen.line(xs, fill=255, width=max(k, round(height * 0.05 * k)), joint="curve")
    small = image.resize((width + 2 * margin, height + 2 * margin), Image.Resampling.BOX)
    return np.asarray(small, np.float64) / 255


def _lettering(text: str, width: int, height: int, margin: int) -> Field:
    """The text, as large as its board allows, as coverage 0..1."""
    font = ImageFont.load_default(size=96)
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("L", (round(right - left) + 8, round(bottom - top) + 8), 0)
    ImageDraw.Draw(image).text((4 - left, 4 - top), text, fill=255, font=font)
    scale = min(0.86 * width / image.width, 0.66 * height / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = np.asarray(image.resize(size, Image.Resampling.LANCZOS), np.float64) / 255
    mask = np.zeros((height + 2 * margin, width + 2 * margin))
    x, y = (mask.shape[1] - size[0]) // 2, (mask.shape[0] - size[1]) // 2
    mask[y : y + size[1], x : x + size[0]] = small
    return mask


def _spoiled(thing: Thing, colors: Field, alpha: Field) -> tuple[Field, Field]:
    """The sprite bent and blurred as the thing says."""
    if thing.warp:
        height, width = alpha.shape
        ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
        wave = thing.warp * thing.size
        map_x = (xs + wave * np.sin(2 * np.pi * ys / (0.55 * thing.size))).astype(np.float32)
        map_y = (ys + 0.7 * wave * np.sin(2 * np.pi * xs / (0.7 * thing.size) + 1)).astype(np.float32)
        colors = cv2.remap(colors, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        alpha = cv2.remap(alpha, map_x, map_y, cv2.INTER_LINEAR)
    if thing.soft:
        sigma = thing.soft * thing.size
        # Blur premultiplied colors: else the empty margin would darken the rim.
        weighted = cv2.GaussianBlur(colors * alpha[..., None], (0, 0), sigma)
        alpha = cv2.GaussianBlur(alpha, (0, 0), sigma)
        colors = weighted / np.maximum(alpha[..., None], 1e-3)
    return colors, alpha


def _skin(material: str, base: Field, shape: tuple[int, int]) -> Field:
    """The surface of a thing: its paint or its material, lit from the upper left."""
    height, width = shape
    ys, xs = np.mgrid[0:height, 0:width] / height
    light = (1.12 - 0.22 * ys - 0.1 * xs)[..., None]
    if material == "metal":
        shine = np.exp(-(((xs + ys) % 0.9 - 0.45) ** 2) / 0.012)[..., None]
        return (np.array([138.0, 142.0, 148.0]) + 84 * shine) * light
    if material == "gold":
        shine = np.exp(-(((xs - ys) % 0.8 - 0.4) ** 2) / 0.02)[..., None]
        return (np.array([206.0, 160.0, 44.0]) + np.array([46.0, 62.0, 90.0]) * shine) * light
    return base * light


def wall(rng: np.random.Generator, width: int, height: int) -> RGB:
    """A plain wall above a plain floor."""
    ys = np.linspace(0, 1, height)[:, None, None]
    wall, floor = rng.uniform(120, 225, 3), rng.uniform(80, 170, 3)
    wall, floor = wall * 0.4 + wall.mean() * 0.6, floor * 0.5 + floor.mean() * 0.5
    edge = rng.uniform(0.45, 0.75)
    field = np.where(ys < edge, wall + 24 * (edge - ys), floor * (0.85 + 0.4 * (ys - edge)))
    noise = cv2.GaussianBlur(rng.normal(size=(height, width)), (0, 0), 0.8)
    noise = noise / max(1e-9, float(noise.std())) * 2.0
    noisy = np.broadcast_to(field, (height, width, 3)) + noise[..., None]
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def sketched(image: RGB) -> RGB:
    """As a pencil drawing."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    lines = cv2.divide(gray, cv2.GaussianBlur(gray, (0, 0), 4), scale=244)
    return np.repeat(lines[..., None], 3, axis=2)
