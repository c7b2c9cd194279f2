"""What makers draw: solids that are put into a picture, other media for it, and other places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Final

import cv2
import numpy as np

from editloupe.data.images import RGB
from editloupe.protocols.probes.colours import PAINTS, Floats, from_oklab

SOLIDS: Final = ("ball", "box", "cone")
_SUPER: Final = 3
"""Solids are drawn so many times larger, so that their edges are smooth."""


@lru_cache(maxsize=64)
def solid(kind: str, size: tuple[int, int], colour: str) -> tuple[RGB, Floats]:
    """Return a shaded solid of w×h px, and its weights: 1 on it, 0 beside it.

    kind: one of `SOLIDS`; a box fills its rectangle, the others stand in it. Light comes from the upper left.
    """
    w, h = (side * _SUPER for side in size)
    y, x = np.mgrid[0:h, 0:w].astype(np.float32)
    u, v = (x + 0.5) / w * 2 - 1, (y + 0.5) / h * 2 - 1
    if kind == "ball":
        inside = u * u + v * v <= 1
        depth = np.sqrt(np.clip(1 - u * u - v * v, 0, 1))
        light = np.clip(-0.5 * u - 0.6 * v + 0.62 * depth, -0.2, 1)
        shine = np.clip(-0.42 * u - 0.5 * v + 0.76 * depth, 0, 1) ** 40
    elif kind == "cone":
        half = np.clip((v + 1) / 2, 0, 1)
        inside = (np.abs(u) <= half) & (v <= 1 - 0.16 * (u * u))
        across = u / np.maximum(half, 1e-3)
        light = np.clip(0.55 - 0.6 * across, 0, 1)
        shine = np.clip(1 - np.abs(across + 0.45) * 5, 0, 1) * 0.35
    else:
        inside = np.ones((h, w), np.bool_)
        edge = np.abs(u - 0.42) < 2 / w * _SUPER
        light = np.where(u < 0.42, 0.62 - 0.15 * v, 0.10 - 0.10 * v)
        light = np.where(v < -0.62, 0.95, light)
        shine = np.where(edge & (v > -0.62), 0.08, 0).astype(np.float32)
    paint = PAINTS[colour]
    low, high = paint.lightness
    middle = (low + high) / 2
    lab = np.empty((h, w, 3), np.float32)
    lab[..., 0] = np.clip(middle + (light - 0.45) * 0.32 + shine * 0.4, 0.1, 0.98)
    angle, chroma = np.deg2rad(paint.hue), paint.chroma * (1 - shine)
    lab[..., 1], lab[..., 2] = chroma * np.cos(angle), chroma * np.sin(angle)
    part = np.asarray(cv2.resize(from_oklab(lab), size, interpolation=cv2.INTER_AREA), np.uint8)
    weight = np.asarray(cv2.resize(inside.astype(np.float32), size, interpolation=cv2.INTER_AREA), np.float32)
    part.flags.writeable = weight.flags.writeable = False
    return part, weight


def _pencil(rgb: RGB, by: Random) -> RGB:
    """Return the picture as a pencil drawing on white paper."""
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    blurred = cv2.GaussianBlur(cv2.bitwise_not(grey), (0, 0), max(2.0, 0.012 * max(rgb.shape)))
    drawn = np.clip(grey.astype(np.float32) * 256 / np.maximum(1, 256 - blurred.astype(np.float32)), 0, 255)
    drawn = 255 - np.clip((255 - drawn) * 1.8, 0, 235)
    paper = np.asarray(np.random.default_rng(by.randrange(2**32)).normal(0, 5, grey.shape))
    one = np.clip(drawn * 0.97 + cv2.GaussianBlur(paper, (0, 0), 0.8), 0, 255).astype(np.uint8)
    return np.repeat(one[..., None], 3, axis=2)


def _ink(rgb: RGB, by: Random) -> RGB:
    """Return the picture as a print in black ink on cream paper."""
    grey = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (0, 0), max(1.0, 0.002 * max(rgb.shape)))
    block = max(15, round(0.05 * max(rgb.shape[:2]))) | 1
    near = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_GAUSSIAN_C, cv2.THRESH_BINARY, block, 6)
    dark = grey < np.percentile(grey, 22)
    step = max(4, round(0.008 * max(rgb.shape[:2])))
    y, x = np.mgrid[0 : grey.shape[0], 0 : grey.shape[1]]
    hatched = dark & ((x + y) % step < step * 0.55)
    black = (near == 0) | hatched
    weight = cv2.GaussianBlur(black.astype(np.float32), (0, 0), 0.7)[..., None]
    paper, ink = np.array([242, 233, 212], np.float32), np.array([30, 26, 34], np.float32)
    return np.asarray(np.rint(paper * (1 - weight) + ink * weight), np.uint8)


def _mosaic(rgb: RGB, by: Random) -> RGB:
    """Return the picture as a mosaic of square tiles with light joints."""
    height, width = rgb.shape[:2]
    tile = max(7, round(max(height, width) / 46))
    small = cv2.resize(rgb, (-(-width // tile), -(-height // tile)), interpolation=cv2.INTER_AREA)
    lab = cv2.cvtColor(small, cv2.COLOR_RGB2LAB).astype(np.float32)
    drift = np.random.default_rng(by.randrange(2**32)).normal(0, 9, lab.shape[:2])
    lab[..., 0] = np.clip(np.round((lab[..., 0] + drift) / 32) * 32, 0, 255)
    lab[..., 1:] = np.clip((lab[..., 1:] - 128) * 1.9 + 128, 0, 255)
    small = cv2.cvtColor(lab.astype(np.uint8), cv2.COLOR_LAB2RGB)
    large = np.repeat(np.repeat(small, tile, axis=0), tile, axis=1)[:height, :width].copy()
    joint = max(1, tile // 9)
    y, x = np.mgrid[0:height, 0:width]
    large[((y % tile) < joint) | ((x % tile) < joint)] = (225, 222, 214)
    return np.asarray(large, np.uint8)


STYLES: Final[Mapping[str, Callable[[RGB, Random], RGB]]] = {
    "pencil drawing": _pencil,
    "ink print": _ink,
    "mosaic": _mosaic,
}
"""Media, by name."""


def _ridge(width: int, rng: np.random.Generator, *, base: float, height: float, octaves: int) -> Floats:
    """Return a line of hills: its y, for each of so many x."""
    x = np.linspace(0, 1, width)
    line = np.full(width, base)
    for octave in range(1, octaves + 1):
        line += height / octave**1.6 * np.sin(2 * np.pi * (octave * 1.3 * x + rng.random()))
    return np.asarray(line, np.float32)


def _graded(shape: tuple[int, int], top: tuple[int, int, int], bottom: tuple[int, int, int]) -> Floats:
    t = np.linspace(0, 1, shape[0], dtype=np.float32)[:, None, None]
    return np.asarray(np.broadcast_to(np.array(top) * (1 - t) + np.array(bottom) * t, (*shape, 3)), np.float32).copy()


def _grained(picture: Floats, rng: np.random.Generator, levels: float) -> Floats:
    noise = cv2.GaussianBlur(rng.normal(0, 1, picture.shape[:2]).astype(np.float32), (0, 0), 1.1)
    return np.asarray(np.clip(picture + (levels * 2.5 * noise)[..., None], 0, 255), np.float32)


def _desert(shape: tuple[int, int], by: Random) -> Floats:
    """Return a desert under a clear sky, H×W×3 float32."""
    rng = np.random.default_rng(by.randrange(2**32))
    height, width = shape
    picture = _graded(shape, (70, 130, 205), (240, 214, 178))
    y = np.arange(height, dtype=np.float32)[:, None]
    for level, colour in enumerate(((222, 170, 110), (206, 146, 84), (184, 122, 64), (160, 100, 50))):
        line = height * _ridge(width, rng, base=0.46 + 0.14 * level, height=0.035 + 0.015 * level, octaves=3)
        slope = np.gradient(line) * width / height
        lit = np.clip(1 - 0.22 * slope, 0.7, 1.15)[None, :, None]
        under = np.clip((y - line[None]) + 0.5, 0, 1)[..., None]
        picture = picture * (1 - under) + np.array(colour, np.float32) * lit * under
    return _grained(picture, rng, 3)


def _sea(shape: tuple[int, int], by: Random) -> Floats:
    """Return a sea at night under the moon, H×W×3 float32."""
    rng = np.random.default_rng(by.randrange(2**32))
    height, width = shape
    horizon = round(0.45 * height)
    picture = _graded(shape, (8, 10, 34), (38, 44, 92))
    picture[horizon:] = _graded((height - horizon, width), (30, 52, 86), (4, 14, 34))
    x, y, r = by.uniform(0.2, 0.8) * width, 0.18 * height, 0.055 * max(height, width)
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    away = np.hypot(xs - x, ys - y)
    glow = np.exp(-((away / (3.5 * r)) ** 2))[..., None] * 70
    disc = np.clip(r - away + 0.5, 0, 1)[..., None]
    picture = (picture + np.where(ys[..., None] < horizon, glow, 0)) * (1 - disc)
    picture += np.array((250, 244, 214), np.float32) * disc
    stars = rng.random(shape) > 0.9988
    picture[stars & (ys < horizon - 2)] = 225
    down = np.maximum(ys - horizon, 0)
    waves = np.sin(down**1.15 * 0.35 + 3 * np.sin(xs / width * 19 + ys * 0.05)) > 0.82
    light = 26 + 150 * np.exp(-(((xs - x) / (0.06 * width + 0.25 * down + 1)) ** 2))
    picture += np.where((waves & (ys > horizon))[..., None], light[..., None], 0).astype(np.float32)
    return _grained(picture, rng, 2)


def _meadow(shape: tuple[int, int], by: Random) -> Floats:
    """Return hills of grass with trees under an evening sky, H×W×3 float32."""
    rng = np.random.default_rng(by.randrange(2**32))
    height, width = shape
    picture = _graded(shape, (92, 84, 160), (255, 178, 118))
    y = np.arange(height, dtype=np.float32)[:, None]
    for level, colour in enumerate(((96, 120, 110), (66, 128, 66), (44, 108, 44))):
        line = height * _ridge(width, rng, base=0.5 + 0.15 * level, height=0.05, octaves=2)
        under = np.clip((y - line[None]) + 0.5, 0, 1)[..., None]
        picture = picture * (1 - under) + np.array(colour, np.float32) * under
        for _ in range(5 if level < 2 else 0):
            at = int(rng.integers(0, width))
            size = int((0.05 + 0.03 * level) * height)
            foot = round(float(line[at]))
            cv2.rectangle(picture, (at - size // 12, foot - size), (at + size // 12, foot + 2), (70, 48, 34), cv2.FILLED)
            crown, leaves = (size // 2, round(size * 0.7)), (28, 78 - 14 * level, 40)
            cv2.ellipse(picture, (at, foot - size), crown, 0, 0, 360, leaves, cv2.FILLED)
    return _grained(picture, rng, 3)


PLACES: Final[Mapping[str, Callable[[tuple[int, int], Random], Floats]]] = {
    "desert": _desert,
    "sea at night": _sea,
    "meadow": _meadow,
}
"""Other places, by name: functions of (height, width) and draws, which return H×W×3 float32, 0 to 255."""
