"""Things that drawn scenes are made of: outlines in a unit square, painted, rounded and lit.

None of them is among the things that `benchmarks/drawing.py` draws, on which the pixel baseline's rules were made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

Field: TypeAlias = NDArray[np.float32]
Points: TypeAlias = NDArray[np.float64]
Shape: TypeAlias = Literal["poly", "curve", "oval", "stroke"]
"""A polygon, a smooth closed curve through points, an ellipse in x0, y0, x1, y1, and a smooth line of `width`."""
Paint: TypeAlias = Literal["main", "dark", "pale", "ink"]
"""A thing has one colour, in three shades: one that takes another colour takes it as a whole. Ink is black."""

COLOURS: Final[Mapping[str, tuple[int, int, int]]] = {
    "red": (196, 32, 40), "orange": (236, 122, 26), "yellow": (240, 204, 40), "green": (46, 138, 62),
    "blue": (40, 88, 190), "purple": (116, 56, 160), "pink": (238, 130, 172), "turquoise": (36, 178, 176),
    "brown": (112, 70, 42), "white": (236, 234, 228), "black": (38, 38, 42), "gray": (140, 142, 146),
}  # fmt: skip
"""sRGB of each colour's name. A thing varies a little around it."""
VIVID: Final = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "turquoise")
"""Colours of targets: an edit of their hue is seen."""

_LIGHT: Final = (-0.45, -0.55, 0.7036)
"""Towards the light, upper left and above; of length 1."""
_COARSE: Final = 110
"""px of a side above which light is worked out at half the size."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a thing."""

    shape: Shape
    paint: Paint
    at: tuple[float, ...]
    """x, y, x, y … in a unit square, y downwards."""
    width: float = 0.0
    """Of a stroke, as a share of the thing's side."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a thing is, and what it is made of."""

    parts: tuple[Part, ...]
    bevel: float = 0.2
    """How far its rounding reaches inwards, as a share of its side."""
    gloss: float = 0.25
    """Strength of the highlight, 0 to 1."""
    weave: float = 0.0
    """Strength of a cloth's texture, in levels."""
    tiny: bool = False
    """Whether its outline alone tells what it is at some 20 px."""


def _part(shape: Shape, paint: Paint, *at: float, width: float = 0.0) -> Part:
    return Part(shape=shape, paint=paint, at=at, width=width)


def _star(points: int, inner: float) -> tuple[float, ...]:
    turns = [(i * math.pi / points, 0.48 if i % 2 == 0 else inner) for i in range(2 * points)]
    return tuple(v for turn, r in turns for v in (0.5 + r * math.sin(turn), 0.52 - r * math.cos(turn)))


def _rays(points: int, radii: tuple[float, ...]) -> list[tuple[float, float]]:
    turns = [2 * i * math.pi / points for i in range(points)]
    return [(0.5 + r * math.sin(turn), 0.52 - r * math.cos(turn)) for turn in turns for r in radii]


KINDS: Final[Mapping[str, Kind]] = {
    "sock": Kind(weave=7, gloss=0, tiny=True, parts=(
        _part("curve", "main", 0.31, 0.05, 0.47, 0.04, 0.64, 0.05, 0.64, 0.3, 0.66, 0.5, 0.8, 0.64, 0.94, 0.8, 0.84, 0.95,
              0.64, 0.94, 0.42, 0.8, 0.31, 0.64, 0.31, 0.3),
        _part("curve", "dark", 0.76, 0.64, 0.88, 0.7, 0.94, 0.81, 0.83, 0.95, 0.71, 0.95, 0.8, 0.82),
        _part("poly", "pale", 0.295, 0.04, 0.655, 0.04, 0.655, 0.19, 0.295, 0.19))),
    "mitten": Kind(weave=7, gloss=0, tiny=True, parts=(
        _part("curve", "main", 0.62, 0.52, 0.8, 0.36, 0.95, 0.36, 0.92, 0.52, 0.74, 0.72, 0.6, 0.74),
        _part("curve", "main", 0.27, 0.72, 0.21, 0.42, 0.28, 0.14, 0.46, 0.04, 0.63, 0.14, 0.69, 0.42, 0.66, 0.72),
        _part("poly", "pale", 0.25, 0.7, 0.69, 0.7, 0.71, 0.95, 0.23, 0.95))),
    "T-shirt": Kind(weave=4, gloss=0, bevel=0.12, tiny=True, parts=(
        _part("poly", "main", 0.32, 0.1, 0.5, 0.16, 0.68, 0.1, 0.98, 0.32, 0.86, 0.52, 0.75, 0.44, 0.76, 0.94, 0.24, 0.94,
              0.25, 0.44, 0.14, 0.52, 0.02, 0.32),
        _part("curve", "dark", 0.36, 0.1, 0.5, 0.14, 0.64, 0.1, 0.6, 0.22, 0.5, 0.26, 0.4, 0.22),
        _part("poly", "dark", 0.86, 0.52, 0.98, 0.32, 0.945, 0.295, 0.825, 0.496),
        _part("poly", "dark", 0.14, 0.52, 0.02, 0.32, 0.055, 0.295, 0.175, 0.496))),
    "leaf": Kind(gloss=0.15, bevel=0.14, tiny=True, parts=(
        _part("stroke", "dark", 0.5, 0.8, 0.52, 0.9, 0.58, 0.98, width=0.045),
        _part("curve", "main", 0.5, 0.02, 0.68, 0.2, 0.8, 0.46, 0.7, 0.74, 0.5, 0.86, 0.3, 0.74, 0.2, 0.46, 0.32, 0.2),
        _part("stroke", "dark", 0.5, 0.12, 0.49, 0.5, 0.5, 0.84, width=0.025),
        _part("stroke", "dark", 0.5, 0.5, 0.6, 0.4, 0.7, 0.35, width=0.018),
        _part("stroke", "dark", 0.5, 0.5, 0.4, 0.4, 0.3, 0.35, width=0.018),
        _part("stroke", "dark", 0.5, 0.7, 0.6, 0.62, 0.7, 0.58, width=0.018),
        _part("stroke", "dark", 0.5, 0.7, 0.4, 0.62, 0.3, 0.58, width=0.018))),
    "butterfly": Kind(gloss=0.1, bevel=0.1, tiny=True, parts=(
        _part("curve", "main", 0.5, 0.42, 0.62, 0.16, 0.86, 0.06, 0.98, 0.2, 0.9, 0.44, 0.7, 0.54, 0.5, 0.52),
        _part("curve", "main", 0.5, 0.42, 0.38, 0.16, 0.14, 0.06, 0.02, 0.2, 0.1, 0.44, 0.3, 0.54, 0.5, 0.52),
        _part("curve", "main", 0.5, 0.52, 0.74, 0.54, 0.86, 0.7, 0.76, 0.92, 0.6, 0.84, 0.52, 0.64),
        _part("curve", "main", 0.5, 0.52, 0.26, 0.54, 0.14, 0.7, 0.24, 0.92, 0.4, 0.84, 0.48, 0.64),
        _part("oval", "pale", 0.74, 0.18, 0.88, 0.32), _part("oval", "pale", 0.12, 0.18, 0.26, 0.32),
        _part("oval", "pale", 0.66, 0.66, 0.76, 0.77), _part("oval", "pale", 0.24, 0.66, 0.34, 0.77),
        _part("oval", "ink", 0.46, 0.26, 0.54, 0.78))),
    "vase": Kind(gloss=0.6, tiny=True, bevel=0.3, parts=(
        _part("curve", "main", 0.38, 0.06, 0.5, 0.05, 0.62, 0.06, 0.58, 0.2, 0.6, 0.3, 0.78, 0.48, 0.8, 0.68, 0.68, 0.9,
              0.64, 0.97, 0.5, 0.98, 0.36, 0.97, 0.32, 0.9, 0.2, 0.68, 0.22, 0.48, 0.4, 0.3, 0.42, 0.2),
        _part("oval", "dark", 0.36, 0.02, 0.64, 0.1),
        _part("curve", "pale", 0.21, 0.55, 0.5, 0.6, 0.79, 0.55, 0.79, 0.63, 0.5, 0.68, 0.21, 0.63))),
    "teapot": Kind(gloss=0.6, bevel=0.3, parts=(
        _part("stroke", "main", 0.22, 0.44, 0.06, 0.42, 0.06, 0.66, 0.26, 0.72, width=0.06),
        _part("curve", "main", 0.7, 0.62, 0.82, 0.54, 0.86, 0.36, 0.98, 0.3, 0.94, 0.42, 0.9, 0.62, 0.74, 0.78),
        _part("curve", "main", 0.5, 0.32, 0.7, 0.37, 0.8, 0.56, 0.76, 0.78, 0.64, 0.9, 0.5, 0.91, 0.36, 0.9, 0.24, 0.78,
              0.2, 0.56, 0.3, 0.37),
        _part("curve", "pale", 0.32, 0.35, 0.4, 0.28, 0.5, 0.26, 0.6, 0.28, 0.68, 0.35, 0.5, 0.39),
        _part("oval", "dark", 0.45, 0.17, 0.55, 0.28))),
    "book": Kind(gloss=0.1, bevel=0.03, parts=(
        _part("poly", "pale", 0.2, 0.1, 0.88, 0.1, 0.88, 0.95, 0.2, 0.95),
        _part("poly", "main", 0.12, 0.05, 0.84, 0.05, 0.84, 0.9, 0.2, 0.9, 0.12, 0.95),
        _part("poly", "dark", 0.12, 0.05, 0.2, 0.05, 0.2, 0.9, 0.12, 0.95),
        _part("poly", "pale", 0.32, 0.2, 0.74, 0.2, 0.74, 0.36, 0.32, 0.36),
        _part("stroke", "pale", 0.36, 0.74, 0.7, 0.74, width=0.025))),
    "backpack": Kind(weave=4, gloss=0.05, bevel=0.16, parts=(
        _part("stroke", "dark", 0.42, 0.12, 0.44, 0.03, 0.56, 0.03, 0.58, 0.12, width=0.045),
        _part("curve", "dark", 0.16, 0.5, 0.06, 0.6, 0.08, 0.84, 0.18, 0.9),
        _part("curve", "dark", 0.84, 0.5, 0.94, 0.6, 0.92, 0.84, 0.82, 0.9),
        _part("curve", "main", 0.16, 0.92, 0.15, 0.6, 0.18, 0.26, 0.32, 0.1, 0.5, 0.08, 0.68, 0.1, 0.82, 0.26, 0.85, 0.6,
              0.84, 0.92, 0.66, 0.96, 0.34, 0.96),
        _part("stroke", "dark", 0.22, 0.4, 0.5, 0.44, 0.78, 0.4, width=0.022),
        _part("curve", "pale", 0.26, 0.58, 0.5, 0.56, 0.74, 0.58, 0.75, 0.84, 0.5, 0.88, 0.25, 0.84),
        _part("stroke", "ink", 0.32, 0.65, 0.68, 0.65, width=0.02))),
    "duck": Kind(gloss=0.4, bevel=0.3, parts=(
        _part("curve", "dark", 0.76, 0.26, 0.95, 0.25, 0.96, 0.32, 0.78, 0.38),
        _part("curve", "main", 0.02, 0.44, 0.2, 0.58, 0.44, 0.54, 0.7, 0.5, 0.86, 0.6, 0.86, 0.8, 0.7, 0.94, 0.34, 0.94,
              0.12, 0.82),
        _part("oval", "main", 0.44, 0.06, 0.86, 0.5),
        _part("curve", "dark", 0.24, 0.68, 0.44, 0.62, 0.58, 0.68, 0.5, 0.8, 0.32, 0.8),
        _part("oval", "ink", 0.68, 0.18, 0.75, 0.26))),
    "button": Kind(gloss=0.5, bevel=0.1, tiny=True, parts=(
        _part("oval", "main", 0.04, 0.04, 0.96, 0.96), _part("oval", "dark", 0.18, 0.18, 0.82, 0.82),
        _part("oval", "main", 0.2, 0.2, 0.8, 0.8),
        *(_part("oval", "ink", x, y, x + 0.12, y + 0.12) for x in (0.33, 0.55) for y in (0.33, 0.55)))),
    "heart": Kind(gloss=0.5, bevel=0.3, tiny=True, parts=(
        _part("curve", "main", 0.5, 0.22, 0.6, 0.1, 0.78, 0.06, 0.95, 0.2, 0.94, 0.44, 0.76, 0.7, 0.53, 0.93, 0.5, 0.95,
              0.47, 0.93, 0.24, 0.7, 0.06, 0.44, 0.05, 0.2, 0.22, 0.06, 0.4, 0.1),)),
    "bell": Kind(gloss=0.7, bevel=0.3, tiny=True, parts=(
        _part("oval", "dark", 0.4, 0.82, 0.6, 0.99), _part("oval", "dark", 0.44, 0.02, 0.56, 0.14),
        _part("curve", "main", 0.5, 0.09, 0.66, 0.16, 0.73, 0.38, 0.78, 0.66, 0.92, 0.82, 0.88, 0.88, 0.5, 0.9, 0.12, 0.88,
              0.08, 0.82, 0.22, 0.66, 0.27, 0.38, 0.34, 0.16),
        _part("curve", "pale", 0.24, 0.62, 0.5, 0.65, 0.76, 0.62, 0.785, 0.68, 0.5, 0.71, 0.215, 0.68))),
    "bow": Kind(weave=3, gloss=0.2, bevel=0.16, tiny=True, parts=(
        _part("poly", "dark", 0.47, 0.5, 0.56, 0.54, 0.72, 0.86, 0.62, 0.86, 0.56, 0.93),
        _part("poly", "dark", 0.53, 0.5, 0.44, 0.54, 0.28, 0.86, 0.38, 0.86, 0.44, 0.93),
        _part("curve", "main", 0.5, 0.46, 0.7, 0.2, 0.92, 0.14, 0.98, 0.42, 0.92, 0.7, 0.7, 0.64, 0.5, 0.5),
        _part("curve", "main", 0.5, 0.46, 0.3, 0.2, 0.08, 0.14, 0.02, 0.42, 0.08, 0.7, 0.3, 0.64, 0.5, 0.5),
        _part("curve", "pale", 0.42, 0.36, 0.58, 0.36, 0.6, 0.58, 0.4, 0.58))),
    "watering can": Kind(gloss=0.4, bevel=0.2, parts=(
        _part("stroke", "dark", 0.64, 0.46, 0.74, 0.22, 0.96, 0.34, 0.92, 0.62, 0.76, 0.8, width=0.05),
        _part("poly", "main", 0.34, 0.62, 0.14, 0.3, 0.2, 0.26, 0.38, 0.5),
        _part("poly", "dark", 0.04, 0.34, 0.24, 0.18, 0.28, 0.24, 0.09, 0.4),
        _part("poly", "main", 0.34, 0.42, 0.78, 0.42, 0.82, 0.92, 0.3, 0.92),
        _part("poly", "pale", 0.32, 0.64, 0.8, 0.64, 0.805, 0.72, 0.315, 0.72),
        _part("oval", "dark", 0.34, 0.37, 0.78, 0.47))),
    "mushroom": Kind(gloss=0.3, bevel=0.26, parts=(
        _part("curve", "pale", 0.38, 0.5, 0.62, 0.5, 0.6, 0.74, 0.68, 0.94, 0.5, 0.97, 0.32, 0.94, 0.4, 0.74),
        _part("curve", "main", 0.03, 0.5, 0.1, 0.26, 0.3, 0.08, 0.5, 0.04, 0.7, 0.08, 0.9, 0.26, 0.97, 0.5, 0.8, 0.6,
              0.5, 0.57, 0.2, 0.6),
        _part("oval", "pale", 0.2, 0.26, 0.34, 0.4), _part("oval", "pale", 0.46, 0.14, 0.6, 0.27),
        _part("oval", "pale", 0.66, 0.32, 0.82, 0.46), _part("oval", "pale", 0.44, 0.4, 0.54, 0.49))),
    "pear": Kind(gloss=0.4, bevel=0.34, tiny=True, parts=(
        _part("stroke", "ink", 0.51, 0.2, 0.52, 0.1, 0.58, 0.02, width=0.05),
        _part("curve", "main", 0.5, 0.13, 0.62, 0.18, 0.66, 0.36, 0.8, 0.56, 0.84, 0.76, 0.7, 0.94, 0.5, 0.97, 0.3, 0.94,
              0.16, 0.76, 0.2, 0.56, 0.34, 0.36, 0.38, 0.18))),
    "bucket": Kind(gloss=0.4, bevel=0.24, parts=(
        _part("stroke", "dark", 0.12, 0.26, 0.2, 0.06, 0.5, 0.01, 0.8, 0.06, 0.88, 0.26, width=0.03),
        _part("poly", "main", 0.08, 0.26, 0.92, 0.26, 0.78, 0.96, 0.22, 0.96),
        _part("oval", "dark", 0.07, 0.18, 0.93, 0.34),
        _part("poly", "pale", 0.13, 0.5, 0.87, 0.5, 0.855, 0.58, 0.145, 0.58))),
    "boot": Kind(gloss=0.5, bevel=0.2, tiny=True, parts=(
        _part("curve", "main", 0.22, 0.05, 0.4, 0.04, 0.58, 0.05, 0.58, 0.3, 0.6, 0.5, 0.78, 0.6, 0.95, 0.74, 0.95, 0.88,
              0.6, 0.9, 0.22, 0.89, 0.22, 0.6, 0.21, 0.3),
        _part("poly", "dark", 0.2, 0.86, 0.96, 0.86, 0.95, 0.96, 0.5, 0.96, 0.48, 0.92, 0.4, 0.92, 0.4, 0.96, 0.2, 0.96),
        _part("poly", "pale", 0.2, 0.04, 0.6, 0.04, 0.6, 0.14, 0.2, 0.14))),
    "starfish": Kind(gloss=0.1, bevel=0.16, weave=6, tiny=True, parts=(
        _part("curve", "main", *_star(5, 0.24)),
        _part("oval", "pale", 0.46, 0.47, 0.54, 0.55),
        *(_part("oval", "pale", x - 0.018, y - 0.018, x + 0.018, y + 0.018) for x, y in _rays(5, (0.14, 0.25, 0.34))))),
}  # fmt: skip
"""Nouns of things."""


@dataclass(frozen=True, kw_only=True)
class Sprite:
    """A thing as it is pasted: what covers what, where."""

    left: int
    top: int
    """Of its upper left corner in the picture, px. May lie outside."""
    colours: Field
    """h×w×3 float32, 0..255."""
    alpha: Field
    """h×w float32, 0..1."""


@dataclass(frozen=True, kw_only=True)
class Pose:
    """Where a thing lies, how large and how turned."""

    x: float
    y: float
    """Of its middle, px."""
    side: float
    """Of its unit square, px."""
    angle: float = 0.0
    """Radians, clockwise."""
    mirrored: bool = False

    def placed(self, unit: Points) -> Points:
        """Return points of the unit square, N×2, in px of the picture."""
        centred = unit - 0.5
        if self.mirrored:
            centred = centred * (-1.0, 1.0)
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return np.asarray(centred @ np.array([[cos, sin], [-sin, cos]]) * self.side + (self.x, self.y), dtype=np.float64)


def extent(noun: str, pose: Pose) -> tuple[float, float, float, float]:
    """Return x0, y0, x1, y1 of a thing in px of the picture."""
    points, thick = _hull(noun)
    placed, thick = pose.placed(points), thick * pose.side
    low, high = (placed - thick).min(axis=0), (placed + thick).max(axis=0)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


@functools.lru_cache(maxsize=len(KINDS))
def _hull(noun: str) -> tuple[Points, Points]:
    """Points of the unit square that bound a thing, N×2, and how far it reaches beyond each, N×1."""
    parts = list(zip(KINDS[noun].parts, _outlines(noun), strict=True))
    thick = np.concatenate([np.full((len(unit), 1), part.width / 2) for part, unit in parts])
    return np.concatenate([unit for _, unit in parts]), thick


@functools.lru_cache(maxsize=len(KINDS))
def filling(noun: str) -> float:
    """Return the share of its unit square that a thing covers, 0 to 1."""
    return covered(noun, Pose(x=0, y=0, side=200)) / 200**2


def covered(noun: str, pose: Pose) -> int:
    """Return how many pixels a thing covers at least by half."""
    _, _, width, height = _frame(noun, pose)
    alpha = np.zeros((height, width), np.float32)
    for _, window, cover in _pieces(noun, pose):
        alpha[window] += cover * (1 - alpha[window])
    return int((alpha >= 0.5).sum())


def sprite(noun: str, pose: Pose, *, colour: tuple[float, float, float], seed: int) -> Sprite:
    """Draw a thing. colour: sRGB, 0..255. seed: of its texture. Equal arguments give equal pixels."""
    kind = KINDS[noun]
    left, top, width, height = _frame(noun, pose)
    base = np.array(colour, dtype=np.float32)
    paints: dict[Paint, Field] = {
        "main": base, "dark": base * np.float32(0.62), "pale": base * np.float32(0.5) + np.float32(118),
        "ink": np.array((42, 40, 40), np.float32),
    }  # fmt: skip
    colours, alpha = np.zeros((height, width, 3), np.float32), np.zeros((height, width), np.float32)
    for part, window, cover in _pieces(noun, pose):
        shade, shine = _lit(cover, pose.side, kind)
        lit = shade[..., None] * paints[part.paint] + shine[..., None]
        colours[window] += cover[..., None] * (lit - colours[window])
        alpha[window] += cover * (1 - alpha[window])
    noise = np.random.default_rng(seed).standard_normal((height, width), dtype=np.float32)
    grain = cv2.GaussianBlur(noise, (0, 0), 0.8) * np.float32(4 + 2 * kind.weave)
    colours += grain[..., None]
    return Sprite(left=left, top=top, colours=colours, alpha=alpha)


def _frame(noun: str, pose: Pose) -> tuple[int, int, int, int]:
    """Left, top, width and height of a thing's sprite in px of the picture."""
    x0, y0, x1, y1 = extent(noun, pose)
    left, top = math.floor(x0) - 2, math.floor(y0) - 2
    return left, top, math.ceil(x1) + 3 - left, math.ceil(y1) + 3 - top


def _pieces(noun: str, pose: Pose) -> Iterator[tuple[Part, tuple[slice, slice], Field]]:
    """Each part of a thing, the rows and columns of the sprite around it, and how much of each pixel there it covers."""
    left, top, width, height = _frame(noun, pose)
    for part, unit in zip(KINDS[noun].parts, _outlines(noun), strict=True):
        points, thick = pose.placed(unit) - (left, top), part.width * pose.side
        x0, y0 = (max(0, int(v)) for v in np.floor(points.min(axis=0) - thick / 2) - 1)
        x1, y1 = (int(v) for v in np.ceil(points.max(axis=0) + thick / 2) + 2)
        window = (slice(y0, min(y1, height)), slice(x0, min(x1, width)))
        shape = (window[0].stop - y0, window[1].stop - x0)
        yield (
            part,
            window,
            _coverage(points - (x0, y0), shape, closed=part.shape != "stroke", thick=thick, fine=pose.side < 96),
        )


@functools.lru_cache(maxsize=len(KINDS))
def _outlines(noun: str) -> tuple[Points, ...]:
    """Points of each part in the unit square, N×2, close enough together for any size."""
    return tuple(_outline(part) for part in KINDS[noun].parts)


def _outline(part: Part) -> Points:
    if part.shape == "oval":
        x0, y0, x1, y1 = part.at
        turn = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        return np.stack(
            [(x0 + x1) / 2 + (x1 - x0) / 2 * np.cos(turn), (y0 + y1) / 2 + (y1 - y0) / 2 * np.sin(turn)], axis=1
        )
    points = np.array(part.at, dtype=np.float64).reshape(-1, 2)
    if part.shape == "poly":
        return points
    closed = part.shape == "curve"
    pad = np.concatenate([points[-1:], points, points[:2]] if closed else [points[:1], points, points[-1:]])
    a, b, c, d = pad[:-3], pad[1:-2], pad[2:-1], pad[3:]
    t = np.linspace(0, 1, 9)[None, :-1, None]
    a, b, c, d = (p[:, None] for p in (a, b, c, d))
    smooth = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - 3 * c + d - a) * t**3)
    return np.concatenate([smooth.reshape(-1, 2), points[:0] if closed else points[-1:]])


def _coverage(points: Points, shape: tuple[int, int], *, closed: bool, thick: float, fine: bool) -> Field:
    """How much of each pixel an outline covers, 0..1, by drawing it two or four times as large."""
    k = 4 if fine else 2
    large = np.zeros((shape[0] * k, shape[1] * k), np.uint8)
    # OpenCV counts from the middles of pixels, and takes coordinates in sixteenths.
    fixed = np.rint((points * k - 0.5) * 16).astype(np.int32)
    if closed:
        cv2.fillPoly(large, [fixed], 255, cv2.LINE_8 if fine else cv2.LINE_AA, 4)
    else:
        cv2.polylines(large, [fixed], False, 255, max(1, round(thick * k)), cv2.LINE_AA, 4)
    small = cv2.resize(large, (shape[1], shape[0]), interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


def _lit(cover: Field, side: float, kind: Kind) -> tuple[Field, Field]:
    """What a rounded surface reflects: a factor of its colour, and what is added to it, in levels."""
    if side > _COARSE:
        # Light is smooth: at half the size it looks the same.
        halved = (-(-cover.shape[1] // 2), -(-cover.shape[0] // 2))
        small = np.asarray(cv2.resize(cover, halved, interpolation=cv2.INTER_AREA), dtype=np.float32)
        size = (cover.shape[1], cover.shape[0])
        shade, shine = (cv2.resize(v, size, interpolation=cv2.INTER_LINEAR) for v in _lit(small, side / 2, kind))
        return np.asarray(shade, dtype=np.float32), np.asarray(shine, dtype=np.float32)
    inside = np.pad((cover > 0.5).astype(np.uint8), 1)
    depth = cv2.distanceTransform(inside, cv2.DIST_L2, 3)[1:-1, 1:-1]
    reach = max(1.5, kind.bevel * side)
    t = 1 - np.minimum(depth / np.float32(reach), 1)
    height = cv2.GaussianBlur(np.sqrt(1 - t * t) * np.float32(0.8 * reach), (0, 0), max(0.6, 0.018 * side))
    right = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3, scale=1 / 8, borderType=cv2.BORDER_REPLICATE)
    down = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3, scale=1 / 8, borderType=cv2.BORDER_REPLICATE)
    steep = 1 / np.sqrt(1 + right * right + down * down)
    lx, ly, lz = (np.float32(v) for v in _LIGHT)
    facing = np.maximum((lz - lx * right - ly * down) * steep, 0)
    shade = np.float32(0.46) + np.float32(0.54 / _LIGHT[2]) * facing
    half = math.hypot(_LIGHT[0], _LIGHT[1], _LIGHT[2] + 1)
    mirror = np.maximum(((lz + 1) - lx * right - ly * down) * steep / np.float32(half), 0)
    # Nothing shines where the surface lies flat: else all of a thing would.
    shine = np.maximum(mirror**24 - np.float32(((_LIGHT[2] + 1) / half) ** 24), 0) * np.float32(190 * kind.gloss)
    return np.asarray(shade, dtype=np.float32), np.asarray(shine, dtype=np.float32)
