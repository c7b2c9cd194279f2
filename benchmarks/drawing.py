"""Pictures from numbers: backgrounds, small named things, materials, styles and camera noise. Deterministic.

An image is H×W×3 uint8 RGB. A scene is a background and a list of things; an edit is another list of things, so that
what differs between the two pictures is known by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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

MATERIALS = ("wood", "metal", "stone", "gold", "brick", "marble")

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
    # made for the rules
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
    # kept for the measurement
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
FORMED = ("badge", "plate", "clock", "cushion")
"""Things whose outline is a field of its own (`Thing.form`)."""
LETTERED = ("sign", "label", "number plate", "banner")
"""Things that carry a text (`Thing.text`), 2.6 times as wide as high."""

_FORM_MARKS: Mapping[str, tuple[Stroke, ...]] = {
    "badge": (("oval", "light", (0.34, 0.38, 0.66, 0.7)),),
    "plate": (("oval", "dark", (0.26, 0.3, 0.74, 0.78)), ("oval", "main", (0.31, 0.35, 0.69, 0.73))),
    "clock": (("oval", "light", (0.28, 0.32, 0.72, 0.76)), ("line", "pole", (0.5, 0.54, 0.5, 0.36)),
              ("line", "pole", (0.5, 0.54, 0.62, 0.6))),
    "cushion": (("line", "dark", (0.32, 0.4, 0.68, 0.76)), ("line", "dark", (0.68, 0.4, 0.32, 0.76)),
                ("oval", "light", (0.45, 0.53, 0.55, 0.63))),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Thing:
    """One small thing.

    x, y: center, px.   size: height of its square (of its board for lettered things), px.   grain: seed of its own
    variation, so that an untouched thing is drawn alike in both pictures.   material: "" is plain paint.
    warp, soft, plain: what an over-eager editor does to it: bent outline, blur (sigma as a part of size), lost details.
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
    plain: bool = False

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
    skin = _skin(thing.material, base, shape, rng)
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
        return (body,) if thing.plain else (body, *_FORM_MARKS[thing.kind])
    strokes = KINDS[thing.kind]
    if not thing.plain:
        return strokes
    return tuple((p, "main" if paint in ("light", "dark") else paint, xs) for p, paint, xs in strokes)


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


def _skin(material: str, base: Field, shape: tuple[int, int], rng: np.random.Generator) -> Field:
    """The surface of a thing: its paint or its material, lit from the upper left."""
    height, width = shape
    ys, xs = np.mgrid[0:height, 0:width] / height
    light = (1.12 - 0.22 * ys - 0.1 * xs)[..., None]
    if material == "wood":
        rings = np.sin(38 * ys + 5 * np.sin(5 * xs) + rng.uniform(0, 6))[..., None]
        return (np.array([156.0, 104.0, 58.0]) + 26 * rings) * light
    if material == "metal":
        shine = np.exp(-(((xs + ys) % 0.9 - 0.45) ** 2) / 0.012)[..., None]
        return (np.array([138.0, 142.0, 148.0]) + 84 * shine) * light
    if material == "stone":
        return (np.array([140.0, 136.0, 128.0]) + _speckle(shape, rng, 30, 1.2)[..., None]) * light
    if material == "gold":
        shine = np.exp(-(((xs - ys) % 0.8 - 0.4) ** 2) / 0.02)[..., None]
        return (np.array([206.0, 160.0, 44.0]) + np.array([46.0, 62.0, 90.0]) * shine) * light
    if material == "brick":
        row = np.floor(ys * 6)
        joint = ((ys * 6) % 1 < 0.2) | ((xs * 3 + 0.5 * (row % 2)) % 1 < 0.12)
        return np.where(joint[..., None], np.array([202.0, 190.0, 176.0]), np.array([168.0, 74.0, 52.0])) * light
    if material == "marble":
        veins = np.abs(_speckle(shape, rng, 1.0, 5.0))[..., None]
        return (np.array([232.0, 230.0, 226.0]) - 70 * np.exp(-((veins / 0.25) ** 2))) * light
    return base * light


def _speckle(shape: tuple[int, int], rng: np.random.Generator, amplitude: float, sigma: float) -> Field:
    noise = cv2.GaussianBlur(rng.normal(size=shape), (0, 0), sigma)
    return np.asarray(noise / max(1e-9, float(noise.std())) * amplitude, np.float64)


# Backgrounds ------------------------------------------------------------------------------------------------------------


def _wall(rng: np.random.Generator, width: int, height: int) -> Field:
    """A plain wall above a plain floor."""
    ys = np.linspace(0, 1, height)[:, None, None]
    wall, floor = rng.uniform(120, 225, 3), rng.uniform(80, 170, 3)
    wall, floor = wall * 0.4 + wall.mean() * 0.6, floor * 0.5 + floor.mean() * 0.5
    edge = rng.uniform(0.45, 0.75)
    field = np.where(ys < edge, wall + 24 * (edge - ys), floor * (0.85 + 0.4 * (ys - edge)))
    return np.broadcast_to(field, (height, width, 3)) + _speckle((height, width), rng, 2.0, 0.8)[..., None]


def _carpet(rng: np.random.Generator, width: int, height: int) -> Field:
    """Fine colored noise."""
    base = rng.uniform(90, 190, 3)
    base = base * 0.4 + base.mean() * 0.6
    return base + _speckle((height, width), rng, 11, 1.0)[..., None] + _speckle((height, width), rng, 7, 14)[..., None]


def _tiles(rng: np.random.Generator, width: int, height: int) -> Field:
    """Square tiles with joints."""
    side = int(rng.integers(36, 72))
    a = rng.uniform(140, 215, 3)
    a = a * 0.35 + a.mean() * 0.65
    b = a * rng.uniform(0.78, 0.94)
    ys, xs = np.mgrid[0:height, 0:width]
    field = np.where((((ys // side) + (xs // side)) % 2 == 0)[..., None], a, b)
    joint = (ys % side < 2) | (xs % side < 2)
    return np.where(joint[..., None], a * 0.6, field) + _speckle((height, width), rng, 2.5, 0.7)[..., None]


def _planks(rng: np.random.Generator, width: int, height: int) -> Field:
    """Wooden boards."""
    side = int(rng.integers(40, 80))
    ys, xs = np.mgrid[0:height, 0:width]
    tone = rng.uniform(0.8, 1.15, height // side + 2)[ys // side]
    grain = 9 * np.sin(ys * 0.9 + 3 * np.sin(xs / 60.0 + 7 * tone))
    field = np.array([176.0, 138.0, 100.0]) * tone[..., None] + grain[..., None]
    return np.where((ys % side < 2)[..., None], field * 0.55, field)


def _blurred_photo(rng: np.random.Generator, width: int, height: int) -> Field:
    """Soft color blobs of several sizes under fine grain: what is out of focus in a photograph."""
    field = np.zeros((height, width, 3)) + rng.uniform(100, 170, 3)
    for sigma, amplitude in ((70, 26), (28, 14), (9, 7), (0.8, 3)):
        tint = rng.uniform(0.7, 1.3, 3)
        field = field + _speckle((height, width), rng, amplitude, sigma)[..., None] * tint
    return field


def _skyline(rng: np.random.Generator, width: int, height: int) -> Field:
    """Buildings with windows in front of an evening sky."""
    ys = np.linspace(0, 1, height)[:, None, None]
    field = np.array([120.0, 150.0, 190.0]) + ys * np.array([90.0, 40.0, -30.0])
    field = np.broadcast_to(field, (height, width, 3)).copy()
    x = 0
    while x < width:
        w, top = int(rng.integers(40, 110)), int(height * rng.uniform(0.3, 0.75))
        field[top:, x : x + w] = rng.uniform(60, 110) + rng.uniform(-8, 8, 3)
        for wy in range(top + 8, height - 8, 18):
            for wx in range(x + 7, min(x + w, width) - 10, 16):
                field[wy : wy + 8, wx : wx + 7] = 210.0 if rng.random() < 0.3 else 80.0
        x += w
    return field + _speckle((height, width), rng, 2.5, 0.8)[..., None]


def _hills(rng: np.random.Generator, width: int, height: int) -> Field:
    """Rows of hills, duller with distance."""
    xs = np.arange(width)
    field = np.zeros((height, width, 3)) + np.array([188.0, 208.0, 226.0])
    for i in range(4):
        crest = height * (0.3 + 0.17 * i) + 26 * np.sin(xs / rng.uniform(50, 130) + rng.uniform(0, 6))
        tone = np.array([130.0, 150.0, 120.0]) * (1 - 0.12 * i) + rng.uniform(-10, 10, 3)
        field = np.where((np.arange(height)[:, None] > crest[None, :])[..., None], tone, field)
    return field + _speckle((height, width), rng, 5, 1.5)[..., None]


def _plaid(rng: np.random.Generator, width: int, height: int) -> Field:
    """A woven cloth with crossing bands."""
    base = rng.uniform(150, 215, 3)
    base = base * 0.5 + base.mean() * 0.5
    period = int(rng.integers(50, 90))
    ys, xs = np.mgrid[0:height, 0:width]
    bands = (xs % period < period // 3).astype(float) + (ys % period < period // 3)
    return base * (1 - 0.13 * bands)[..., None] + (2.5 * np.sin(xs * 1.9) * np.sin(ys * 1.9))[..., None]


def _white(rng: np.random.Generator, width: int, height: int) -> Field:
    """Nothing at all, as in a product picture."""
    return np.full((height, width, 3), 255.0)


def _card(rng: np.random.Generator, width: int, height: int) -> Field:
    """One light or middling color."""
    return np.zeros((height, width, 3)) + rng.uniform(110, 215) + rng.uniform(-22, 22, 3)


def _sweep(rng: np.random.Generator, width: int, height: int) -> Field:
    """A color that gets darker downwards."""
    ys = np.linspace(0, 1, height)[:, None, None]
    return np.zeros((height, width, 3)) + rng.uniform(150, 225) + rng.uniform(-18, 18, 3) - ys * rng.uniform(25, 60)


def _slate(rng: np.random.Generator, width: int, height: int) -> Field:
    """One dark color."""
    return np.zeros((height, width, 3)) + rng.uniform(25, 80) + rng.uniform(-12, 12, 3)


def _cream(rng: np.random.Generator, width: int, height: int) -> Field:
    """A warm off-white."""
    return np.zeros((height, width, 3)) + np.array([250.0, 243.0, 226.0]) + rng.uniform(-6, 4)


def _vignette(rng: np.random.Generator, width: int, height: int) -> Field:
    """A cold color, brightest in the middle."""
    ys, xs = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    base = np.array([168.0, 190.0, 214.0]) + rng.uniform(-14, 14, 3)
    return base * (1 - rng.uniform(0.1, 0.22) * (xs**2 + ys**2))[..., None]


BACKGROUNDS: Mapping[str, Callable[[np.random.Generator, int, int], Field]] = {
    "wall": _wall, "carpet": _carpet, "tiles": _tiles, "planks": _planks,
    "blurred photo": _blurred_photo, "skyline": _skyline, "hills": _hills, "plaid": _plaid,
    "white": _white, "card": _card, "sweep": _sweep,
    "slate": _slate, "cream": _cream, "vignette": _vignette,
}  # fmt: skip


def backdrop(name: str, rng: np.random.Generator, width: int, height: int) -> RGB:
    """The named background."""
    return np.clip(np.rint(BACKGROUNDS[name](rng, width, height)), 0, 255).astype(np.uint8)


# What a careless editor does to the whole picture -----------------------------------------------------------------------


def sketched(image: RGB) -> RGB:
    """As a pencil drawing."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    lines = cv2.divide(gray, cv2.GaussianBlur(gray, (0, 0), 4), scale=244)
    return np.repeat(lines[..., None], 3, axis=2)


def painted(image: RGB) -> RGB:
    """As flat brush strokes: colors stay, details and grain go."""
    flat = cv2.pyrMeanShiftFiltering(image, 9, 26)
    strokes = cv2.medianBlur(flat, 7)
    return (strokes // 32 * 32 + 16).astype(np.uint8)
