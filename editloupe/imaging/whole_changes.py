"""Says what happened to a picture as a whole: mirrored, turned, unrelated, grey, coloured, tinted."""

from __future__ import annotations

from typing import Literal, TypeAlias

import cv2
import numpy as np

from editloupe.data.images import RGB
from editloupe.imaging.align import resize
from editloupe.imaging.alignment import Alignment
from editloupe.imaging.orientation import Orientation, correlation, edges
from editloupe.imaging.register import SMALLEST_SIDE
from editloupe.imaging.residual import Map

WholeChange: TypeAlias = Literal["mirrored", "flipped", "turned", "unrelated", "grey", "coloured", "tinted"]
"""mirrored: left to right; flipped: top to bottom; turned: by 90°, 180° or 270°; unrelated: no structure in common; grey,
coloured: colours gone or new; tinted: all colours moved one way, by more than the tone undid, or lie in one hue."""

_SIDE = 64
"""px of the squares to which both pictures are squeezed."""
_WINDOW = 6
_ALIKE = 0.6
"""px of the window of a place, and the correlation from which two places are alike."""
_MOST_ALIKE = 0.2
_MOST_EDGES_ALIKE = 0.22
_MOST_PLACES_ALIKE = 0.15
"""Unrelated photographs correlate by less in light, in colour and in the strength of their edges, and fewer of their places
are alike."""
_PLAIN = 2.0
"""Standard deviation of lightness, without what is wider than an eighth of a picture, under which it shows nothing."""
_GREY = 4.0
_COLOURED = 12.0
"""Chroma in CIELAB under which 95 % of a grey picture lie, and over which 5 % of a coloured one do."""
_SAME_PICTURE = 0.5
"""Correlation of light from which a picture kept its structure."""
_TINT = 8.0
"""Least mean chroma of a tint in CIELAB units."""
_ONE_HUE = 3.0
_OF_SPREAD = 0.4
"""CIELAB units by which colours of one hue differ at most from what lightness says, and as a share of image 1's."""
_OF_CHANGE = 0.4
_LEAST_ALONG = 0.25
_NEARLY_ALL = 0.85
"""A tint leaves at most 40 % of the change of colour unexplained. It moves 85 % of the places by a quarter of the mean."""


def turns_of(orientation: Orientation) -> tuple[WholeChange, ...]:
    """Return what an orientation is called."""
    if orientation.mirrored and orientation.quarters == 2:
        return ("flipped",)
    mirrored: tuple[WholeChange, ...] = ("mirrored",) if orientation.mirrored else ()
    return (*mirrored, "turned") if orientation.quarters else mirrored


def find_whole_changes(alignment: Alignment) -> tuple[WholeChange, ...]:
    """Return what happened to image 2 as a whole, of "unrelated", or else of "grey", "coloured", "tinted".

    It is meant for two pictures much of which differs. A picture that shows nothing, as a white one, has no name for it.
    """
    small_1, small_2 = (resize(rgb, width=_SIDE, height=_SIDE) for rgb in (alignment.first, alignment.second))
    first, second = _lab(small_1), _lab(small_2)
    if min(float(_structure(lab[..., 0]).std()) for lab in (first, second)) < _PLAIN:
        return ()
    # Of smaller pictures neither a turn nor a motion was sought.
    large = min(alignment.first.shape[:2]) >= SMALLEST_SIDE
    if large and not alignment.moved and _unrelated(first, second):
        return ("unrelated",)
    chroma_1, chroma_2 = (float(np.percentile(np.hypot(lab[..., 1], lab[..., 2]), 95)) for lab in (first, second))
    if chroma_2 < _GREY and chroma_1 > _COLOURED:
        return ("grey",)
    if chroma_1 < _GREY and chroma_2 > _COLOURED:
        return ("coloured",)
    toned = _lab(alignment.tone.rounded(small_1))
    return ("tinted",) if _tinted(first, toned, second) else ()


def _lab(rgb: RGB) -> Map:
    """Return h×w×3 float32 CIELAB of h×w×3 uint8 RGB, a little smoothed."""
    smooth = cv2.GaussianBlur(rgb.astype(np.float32) / 255, (0, 0), 0.7)
    return np.asarray(cv2.cvtColor(smooth, cv2.COLOR_RGB2LAB), dtype=np.float32)


def _structure(values: Map) -> Map:
    return np.asarray(values - cv2.GaussianBlur(values, (0, 0), _SIDE / 8), dtype=np.float32)


def _unrelated(first: Map, second: Map) -> bool:
    """Return True if the pictures have no structure in common: in light, its edges and colour, nor place by place."""
    one, other = _structure(first), _structure(second)
    light = one[..., 0], other[..., 0]
    return (
        correlation(*light) < _MOST_ALIKE
        and correlation(one[..., 1:], other[..., 1:]) < _MOST_ALIKE
        and correlation(*map(edges, light)) < _MOST_EDGES_ALIKE
        and _places_alike(*light) < _MOST_PLACES_ALIKE
    )


def _places_alike(a: Map, b: Map) -> float:
    """Return the share 0..1 of the places around which two h×w planes correlate by 0.6 and more."""

    def mean(values: Map) -> Map:
        return np.asarray(cv2.boxFilter(values, cv2.CV_32F, (_WINDOW, _WINDOW)), dtype=np.float32)

    mean_a, mean_b = mean(a), mean(b)
    spread = np.maximum(mean(a * a) - mean_a**2, 1.0) * np.maximum(mean(b * b) - mean_b**2, 1.0)
    return float(np.mean(mean(a * b) - mean_a * mean_b > _ALIKE * np.sqrt(spread)))


def _tinted(first: Map, toned: Map, second: Map) -> bool:
    """Return True if a picture kept its structure, and all its colours lie in one hue or moved one way."""
    if correlation(_structure(first)[..., 0], _structure(second)[..., 0]) < _SAME_PICTURE:
        return False
    # What lightness alone says of the colours, and what it leaves.
    hue, spread = _by_lightness(second[..., 0], second[..., 1:])
    _, spread_before = _by_lightness(first[..., 0], first[..., 1:])
    if spread < min(_ONE_HUE, _OF_SPREAD * spread_before) and np.hypot(*hue.mean((0, 1))) >= _TINT:
        return True
    change = second[..., 1:] - toned[..., 1:]
    explained, left = _by_lightness(toned[..., 0], change)
    way = explained.mean((0, 1))
    size = float(np.hypot(*way))
    along = (change @ way) / max(1e-6, size)
    return (
        size >= _TINT
        and left <= _OF_CHANGE * float(np.sqrt((change**2).sum(axis=2).mean()))
        and float(np.mean(along > _LEAST_ALONG * size)) >= _NEARLY_ALL
    )


def _by_lightness(light: Map, colours: Map) -> tuple[Map, float]:
    """Return h×w×2 of what a parabola of lightness says of the colours, and the root mean square of what it leaves."""
    x = light.ravel() / 100
    basis = np.stack([np.ones_like(x), x, x * x], axis=1)
    solved, *_ = np.linalg.lstsq(basis, colours.reshape(-1, 2), rcond=None)
    said = (basis @ solved).reshape(colours.shape).astype(np.float32)
    return said, float(np.sqrt(((colours - said) ** 2).sum(axis=2).mean()))
