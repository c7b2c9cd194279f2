"""The photographs that are edited: scikit-image's own, and those of a folder that is named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator
from skimage import data

from editloupe.data.images import RGB

MOST_PX = 800_000
"""Larger photographs are reduced to so many px, so that a run takes minutes."""
_LEAST_SIDE = 300
_SHIPPED = ("astronaut", "chelsea", "coffee", "rocket", "motorcycle_left")
_TEXTURES = ("brick", "grass", "gravel")


def photographs(shared: Path | None) -> list[RGB]:
    """Return the photographs, H×W×3 uint8, at most 0.8 MP each.   shared: a folder whose `source/` holds more."""
    files = [Path(data.__file__).parent / f"{name}{suffix}" for name in _SHIPPED for suffix in (".png", ".jpg")]
    if shared is not None:
        files += sorted((shared / "source").iterdir())
    found = (_read(path) for path in files if path.is_file())
    return [_reduced(rgb) for rgb in found if min(rgb.shape[:2]) >= _LEAST_SIDE]


def textures() -> list[RGB]:
    """Return pictures in which one pattern repeats."""
    return [_read(Path(data.__file__).parent / f"{name}.png") for name in _TEXTURES]


def one_of(pictures: Sequence[RGB], rng: Generator) -> RGB:
    """Return one of them."""
    return pictures[int(rng.integers(len(pictures)))]


def _read(path: Path) -> RGB:
    return np.asarray(cv2.imread(str(path), cv2.IMREAD_COLOR)[..., ::-1], dtype=np.uint8)


def _reduced(rgb: RGB) -> RGB:
    factor = (MOST_PX / (rgb.shape[0] * rgb.shape[1])) ** 0.5
    if factor >= 1:
        return np.ascontiguousarray(rgb)
    return np.asarray(cv2.resize(rgb, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), dtype=np.uint8)
