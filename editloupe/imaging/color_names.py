"""Names of colors: a small table of shades in CIELAB, and the name of the nearest one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB

Lab: TypeAlias = NDArray[np.float32]
"""…×3 float32: L 0..100, a and b about -100..100."""
SHADES: Final[Mapping[str, tuple[str, ...]]] = {
    "red": ("#ff0000", "#dc143c", "#b22222", "#8b0000", "#e04040", "#c83232", "#6e1418"),
    "orange": ("#ffa500", "#ff8c00", "#ff7f3f", "#e87818", "#d26914", "#f4a460"),
    "yellow": ("#ffff00", "#ffd700", "#f0e050", "#fff280", "#c8b41e", "#a08c1e"),
    "green": ("#008000", "#00c800", "#228b22", "#006400", "#32cd32", "#6b8e23", "#3cb371", "#90ee90", "#1e5028"),
    "turquoise": ("#40e0d0", "#00ced1", "#20b2aa", "#008b8b", "#00ffff", "#1e6e72", "#a0e8e4"),
    "blue": ("#0000ff", "#1e50c8", "#4169e1", "#00008b", "#4682b4", "#87ceeb", "#1e90ff", "#28468c", "#a0b8f0"),
    "purple": ("#800080", "#6a0dad", "#9932cc", "#8a2be2", "#4b0082", "#ba70d2", "#ee82ee", "#c8a0e0", "#50285f"),
    "pink": ("#ffc0cb", "#ff69b4", "#f088b0", "#ff1493", "#e0a0b4", "#c86e8c"),
    "brown": ("#8b4513", "#a0522d", "#5c3317", "#7b4a2a", "#a5713c", "#462814", "#c09060"),
    "black": ("#000000", "#1e1e1e", "#2d2d2d"),
    "gray": ("#808080", "#696969", "#a9a9a9", "#505050", "#bebebe"),
    "white": ("#ffffff", "#f5f5f5", "#e6e6e6", "#fffaf0"),
    "beige": ("#f5f5dc", "#e1d2aa", "#d2be96"),
}  # fmt: skip

NAMES: Final = tuple(SHADES)
CLEAR_NAMES: Final = frozenset(("red", "orange", "yellow", "green", "turquoise", "blue", "purple"))
"""Names that light does not take away: white, gray, beige and brown pass for each other in a photograph."""

SYNONYMS: Final[Mapping[str, str]] = {
    "crimson": "red", "scarlet": "red", "maroon": "red", "burgundy": "red", "golden": "yellow", "lime": "green",
    "olive": "green", "cyan": "turquoise", "teal": "turquoise", "aqua": "turquoise", "navy": "blue", "azure": "blue",
    "violet": "purple", "magenta": "purple", "lilac": "purple", "lavender": "purple", "rose": "pink", "tan": "beige",
    "cream": "beige", "chocolate": "brown", "grey": "gray", "silver": "gray",
}  # fmt: skip

_NEIGHBORS: Final = frozenset(
    map(frozenset, (("red", "brown"), ("orange", "brown"), ("orange", "yellow"), ("red", "orange"), ("pink", "purple"),
                    ("pink", "red"), ("blue", "purple"), ("turquoise", "blue"), ("turquoise", "green"), ("gray", "black"),
                    ("gray", "white"), ("beige", "white"), ("beige", "yellow"), ("beige", "brown"), ("beige", "pink")))
)  # fmt: skip
"""Names between which shade and light decide; a pixel of a neighbor counts half."""
_ENOUGH: Final = 800


def to_lab(rgb: RGB | NDArray[np.float32]) -> Lab:
    """Return H×W×3 RGB, uint8 or float32 in 0..255, as Lab."""
    unit = np.asarray(rgb, np.float32) / np.float32(255)
    return cv2.cvtColor(unit, cv2.COLOR_RGB2LAB).astype(np.float32, copy=False)


def shares(pixels: Lab) -> dict[str, float]:
    """Return which share of N×3 Lab pixels has each name, 0..1. A name that none has is left out.

    Of more than about 800 pixels an even sample is taken.
    """
    if not len(pixels):
        return {}
    table, owner = _table()
    pixels = pixels[:: max(1, len(pixels) // _ENOUGH)]
    # |p - t|² without |p|², which is the same for every shade.
    nearest = ((table**2).sum(axis=1) - 2 * pixels @ table.T).argmin(axis=1)
    counts = np.bincount(owner[nearest], minlength=len(NAMES)) / len(pixels)
    return {name: float(c) for name, c in zip(NAMES, counts, strict=True) if c > 0}


def share_of(found: Mapping[str, float], name: str) -> float:
    """Return which share of what was found has this name, 0..1. Shades of a neighboring name count half."""
    return sum(s if n == name else s / 2 if frozenset((n, name)) in _NEIGHBORS else 0.0 for n, s in found.items())


def leading(found: Mapping[str, float]) -> str:
    """Return the name that most pixels have; "nothing" where there are none."""
    return max(found, key=lambda name: found[name]) if found else "nothing"


@cache
def _table() -> tuple[Lab, NDArray[np.int64]]:
    """Return the N×3 shades, and for each the index of its name."""
    rgb = np.array([[list(bytes.fromhex(code[1:])) for name in NAMES for code in SHADES[name]]], np.uint8)
    owner = np.array([i for i, name in enumerate(NAMES) for _ in SHADES[name]])
    return to_lab(rgb)[0], owner
