"""Grounds of drawn scenes, each from a generator: lawn, sand, cork, terrazzo, linen, concrete and shelves.

None of them is among the backgrounds of `benchmarks/drawing.py`, on which the pixel baseline's rules were made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

Field: TypeAlias = NDArray[np.float32]
Ground: TypeAlias = Callable[[np.random.Generator, int, int], Field]
"""Takes a generator, the height and the width in px; returns H×W×3 float32, about 0..255."""

_TILE: Final = 1024
"""px of the noise that is made once and then cut from at chance."""


def noise(rng: np.random.Generator, height: int, width: int, sigma: float, *, streaks: float | None = None) -> Field:
    """Return H×W float32 noise of mean 0 and standard deviation 1, smooth over `sigma` px.

    streaks: degrees, anticlockwise from the right, along which it is drawn out. Cut at chance from one tile a process.
    """
    y, x = (int(v) for v in rng.integers(_TILE, size=2))
    tile = _tile(sigma, streaks)
    if y + height > 2 * _TILE or x + width > 2 * _TILE:
        tile = np.tile(tile, (1 + (y + height) // (2 * _TILE), 1 + (x + width) // (2 * _TILE)))
    return tile[y : y + height, x : x + width]


@functools.lru_cache(maxsize=16)
def _tile(sigma: float, streaks: float | None) -> Field:
    """Noise that goes on where it ends, twice in each direction. Made at one quarter of the size where it is smooth."""
    k = 4 if sigma >= 6 else 1
    side, sigma = _TILE // k, sigma / k
    white = np.random.default_rng([side, round(100 * sigma), round(streaks or 0)]).standard_normal(
        (side, side), dtype=np.float32
    )
    pad = min(side, int(6 * sigma) + 24)
    wide = np.pad(white, pad, mode="wrap")
    if streaks is not None:
        brush = np.zeros((23, 23), np.float32)
        turn = np.deg2rad(streaks)
        along = np.rint(np.array([np.cos(turn), -np.sin(turn)]) * 10).astype(int)
        cv2.line(brush, (11 - along[0], 11 - along[1]), (11 + along[0], 11 + along[1]), 1.0, 1, cv2.LINE_AA)
        wide = np.asarray(cv2.filter2D(wide, -1, brush), dtype=np.float32)
    smooth = cv2.GaussianBlur(wide, (0, 0), sigma)[pad:-pad, pad:-pad]
    if k > 1:
        large = cv2.resize(np.pad(smooth, 2, mode="wrap"), None, fx=k, fy=k, interpolation=cv2.INTER_CUBIC)
        smooth = large[2 * k : -2 * k, 2 * k : -2 * k]
    found = np.tile((smooth - smooth.mean()) / smooth.std(), (2, 2)).astype(np.float32)
    found.setflags(write=False)
    return found


def waves(rng: np.random.Generator, height: int, width: int, cells: int) -> Field:
    """Return H×W float32, very smooth, of about mean 0 and standard deviation 1, with so many swells across."""
    knots = rng.standard_normal((max(2, cells * height // max(height, width)) + 2, cells + 2)).astype(np.float32)
    return np.asarray(cv2.resize(knots, (width, height), interpolation=cv2.INTER_CUBIC), dtype=np.float32)


def _tinted(light: Field, colour: tuple[float, float, float], warmth: Field | None = None) -> Field:
    """A colour as light and dark as a field says; `warmth` makes it redder and less blue, in levels."""
    red, green, blue = (light * np.float32(v) for v in colour)
    if warmth is not None:
        red, blue = red + warmth, blue - warmth
    return np.asarray(cv2.merge([red, green, blue]), dtype=np.float32)


def _jitter(rng: np.random.Generator, colour: tuple[float, float, float], by: float) -> tuple[float, float, float]:
    r, g, b = (float(v + d) for v, d in zip(colour, rng.uniform(-by, by, 3), strict=True))
    return r, g, b


def _lawn(rng: np.random.Generator, height: int, width: int) -> Field:
    """Grass from above, in blades that lean several ways."""
    light = 1 + 0.07 * waves(rng, height, width, 7)
    for angle, strength in ((70.0, 0.1), (100.0, 0.12), (125.0, 0.08)):
        light = light + np.float32(strength) * noise(rng, height, width, 0.7, streaks=angle)
    return _tinted(light, _jitter(rng, (104, 126, 66), 9), 6 * waves(rng, height, width, 9))


def _sand(rng: np.random.Generator, height: int, width: int) -> Field:
    """Sand with ripples."""
    rows, columns = height // 2 + 1, width // 2 + 1
    ys, xs = np.mgrid[0:rows, 0:columns].astype(np.float32)
    turn, length = rng.uniform(-0.5, 0.5), rng.uniform(0.05, 0.09) * max(rows, columns)
    bent = waves(rng, rows, columns, 4) * np.float32(0.45 * length)
    crest = np.sin((ys * np.float32(np.cos(turn)) + xs * np.float32(np.sin(turn)) + bent) * np.float32(2 * np.pi / length))
    ripple = cv2.resize(crest, (width, height), interpolation=cv2.INTER_LINEAR)
    light = 1 + 0.05 * ripple + 0.035 * noise(rng, height, width, 0.6) + 0.02 * noise(rng, height, width, 1.6)
    return _tinted(light, _jitter(rng, (208, 188, 152), 8))


def _cork(rng: np.random.Generator, height: int, width: int) -> Field:
    """A board of pressed cork."""
    flecks = np.maximum(noise(rng, height, width, 2.2) - 1.1, 0)
    light = 1 - 0.16 * flecks + 0.06 * noise(rng, height, width, 1.1) + 0.05 * noise(rng, height, width, 8.0)
    return _tinted(light, _jitter(rng, (196, 152, 104), 8), 5 * noise(rng, height, width, 4.0))


def _terrazzo(rng: np.random.Generator, height: int, width: int) -> Field:
    """A worktop of pale stone with chips of grey and beige."""
    light = 1 + 0.012 * noise(rng, height, width, 0.8)
    planes = [light * np.float32(v) for v in _jitter(rng, (226, 222, 214), 6)]
    for sigma, least, colour in ((3.0, 1.5, (150, 150, 152)), (4.0, 1.7, (196, 176, 150)), (2.2, 1.8, (108, 104, 102))):
        chips = np.clip((noise(rng, height, width, sigma) - np.float32(least)) * 9, 0, 0.85)
        for plane, value in zip(planes, colour, strict=True):
            plane += chips * (np.float32(value) - plane)
    return np.asarray(cv2.merge(planes), dtype=np.float32)


def _linen(rng: np.random.Generator, height: int, width: int) -> Field:
    """A cloth that lies in soft folds."""
    ys, xs = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    weave = np.sin(ys * np.float32(2.1)) * np.sin(xs * np.float32(2.1))
    bend = waves(rng, height, width, 3)
    fold = np.abs(bend) * np.exp(-np.abs(bend))
    thread = noise(rng, height, width, 0.6, streaks=0.0) + noise(rng, height, width, 0.6, streaks=90.0)
    light = 0.9 + 0.3 * fold + 0.02 * weave + 0.025 * thread
    plain = ((208, 212, 216), (222, 210, 190), (150, 160, 172), (214, 196, 196))[int(rng.integers(4))]
    return _tinted(np.asarray(light, dtype=np.float32), _jitter(rng, plain, 6))


def _concrete(rng: np.random.Generator, height: int, width: int) -> Field:
    """Cast concrete with stains, pores and the joints of its boards."""
    pores = np.maximum(noise(rng, height, width, 1.1) - 2.1, 0)
    light = 1 + 0.05 * noise(rng, height, width, 20.0) + 0.025 * noise(rng, height, width, 0.7) - 0.3 * pores
    light = np.asarray(light + 0.04 * waves(rng, height, width, 5), dtype=np.float32)
    for row in np.cumsum(rng.uniform(0.3, 0.6, 3)):
        y = int(row * height)
        light[y : y + 2] *= 0.8
        light[y + 2 : y + 4] *= 1.06
    return _tinted(light, _jitter(rng, (162, 162, 160), 8))


def shelves(rng: np.random.Generator, height: int, width: int, boards: int) -> tuple[Field, tuple[int, ...]]:
    """Return wooden boards before a painted wall, and the y of each board's upper edge in px."""
    tone = ((206, 212, 206), (216, 206, 192), (186, 198, 210), (222, 218, 210))[int(rng.integers(4))]
    light = 1 + 0.012 * noise(rng, height, width, 0.8) + 0.02 * waves(rng, height, width, 4)
    field = _tinted(np.asarray(light, dtype=np.float32), _jitter(rng, tone, 6))
    thick = max(6, round(0.022 * height))
    step = height / boards
    tops = tuple(round((i + 1) * step - 1.6 * thick) for i in range(boards))
    wood = _jitter(rng, (168, 124, 82), 14)
    for top in tops:
        grain = noise(rng, thick, width, 0.7, streaks=0.0) * np.float32(0.07) + noise(rng, thick, width, 20.0) * np.float32(
            0.06
        )
        face = np.linspace(1.12, 0.86, thick, dtype=np.float32)[:, None] + grain
        field[top : top + thick] = _tinted(face, wood)
        below = min(height, top + thick + 3 * thick) - (top + thick)
        field[top + thick : top + thick + below] *= np.linspace(0.72, 1, below, dtype=np.float32)[:, None, None]
        field[max(0, top - thick // 2) : top] *= np.linspace(1, 0.88, thick // 2, dtype=np.float32)[:, None, None]
    return field, tops


FLAT: Final[Mapping[str, Ground]] = {
    "lawn": _lawn, "sand": _sand, "cork": _cork, "terrazzo": _terrazzo, "linen": _linen, "concrete": _concrete,
}  # fmt: skip
"""Grounds seen from above, on which things lie."""
SHELVES: Final = "shelves"
"""The ground on which things stand."""
GROUNDS: Final = (*FLAT, SHELVES)
