"""Changes parts of a picture: another color for a thing, a card on a calm spot; and names the color that a thing has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.files import read_toml
from editloupe.imaging.color_names import leading, share_of, shares, to_lab

Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float32]

FEATHER_PX: Final = 2
"""px outside a mask within which a pixel can have some of the thing's color."""
VISIBLE: Final = 20.0
"""ΔE (CIE76) that a change has in the median, so that nobody can miss it when looking there."""


class Paint(NamedTuple):
    """A color that things are given, in CIELAB."""

    hue: float
    """Degrees."""
    chroma: float
    lightness: tuple[float, float]
    """Mean lightness, 0 to 100, at which people call it by its name."""

    def hued(self) -> Floats:
        """Return its a and b."""
        return np.array((np.cos(np.deg2rad(self.hue)), np.sin(np.deg2rad(self.hue))), np.float32) * self.chroma


_TABLE: Final[Mapping[str, Any]] = read_toml(Path(__file__).with_name("paints.toml"), "paints.toml")
PAINTS: Final[Mapping[str, Paint]] = {
    name: Paint(hue, chroma, (low, high)) for name, (hue, chroma, low, high) in _TABLE["paints"].items()
}
NEAR: Final = frozenset(map(frozenset, _TABLE["near"]))
"""Colors about which two people may differ; one is never asked for, or shown, where the other is."""
_TEXTURE: Final = 0.35
"""Share of a thing's own differences of hue and chroma that stays."""
_CONTRAST: Final = 0.8
"""Least share of its differences of lightness that stays where they would be cut off."""
_RIM: Final = 1.5
"""px within a mask whose pixels can have some of the ground's color."""
_NEAR: Final = 9
"""Side in px of the window in which thing and ground next to a pixel of the rim are measured."""
_OF_LIGHT: Final = 0.2
"""How much lightness counts beside hue and chroma where the two are told apart: shade is on both."""


def part_of(mask: Mask, pad: int) -> tuple[slice, slice]:
    """Return the rows and columns about the True pixels, of which there is one at least, with so many px around."""
    x, y, w, h = cv2.boundingRect(mask.view(np.uint8))
    down, across = mask.shape
    return slice(max(0, y - pad), min(down, y + h + pad)), slice(max(0, x - pad), min(across, x + w + pad))


def size_of(mask: Mask) -> float:
    """Return the side, in px, of a square as large as the mask."""
    return float(np.sqrt(mask.sum()))


def grown(mask: Mask, px: float) -> Mask:
    """Return a mask with all that lies within so many px of it."""
    if not mask.any():
        return mask.copy()
    return np.asarray(cv2.distanceTransform(1 - mask.astype(np.uint8), cv2.DIST_L2, 5) <= px, np.bool_)


def from_lab(lab: Floats) -> RGB:
    """Return …×3 Lab as uint8 RGB; a color that sRGB lacks becomes the nearest that it has."""
    flat = cv2.cvtColor(lab.reshape(1, -1, 3), cv2.COLOR_LAB2RGB).reshape(lab.shape)
    return np.asarray(np.rint(np.clip(flat, 0, 1) * 255), np.uint8)


def recolored(rgb: RGB, mask: Mask, paint: Paint) -> RGB:
    """Return an image with the masked thing in another color: hue and chroma are new, light and shade stay.

    A thing too dark or too light for the color's name is brought to the nearest lightness that bears it; one without
    color gets chroma. Along its edge a pixel changes as far as it has the thing's color, so that none of the old one is
    left around it; no pixel farther than `FEATHER_PX` outside the mask changes.
    """
    rows, columns = part_of(mask, FEATHER_PX + _NEAR // 2)
    inside = mask[rows, columns]
    lab = to_lab(rgb[rows, columns])
    mean = lab[inside].mean(axis=0)
    light = float(np.clip(mean[0], *paint.lightness))
    shade = lab[..., 0] - mean[0]
    # A black thing has few shades and a white one, too: what moves far keeps its contrast, within what can be shown.
    spread, room = float(np.percentile(np.abs(shade[inside]), 95)), min(light - 8, 98 - light)
    painted = np.empty_like(lab)
    painted[..., 0] = np.clip(light + shade * (max(_CONTRAST, room / spread) if spread > room else 1.0), 3, 99)
    # Very dark and very light parts bear less chroma, as a glossy thing's do.
    bears = np.clip(np.minimum(painted[..., 0] / 20, (102 - painted[..., 0]) / 14), 0.15, 1.0)
    own = np.clip((lab[..., 1:] - mean[1:]) * _TEXTURE, -12, 12)
    painted[..., 1:] = bears[..., None] * (paint.hued() + own)
    # Above 0 within the mask, in px. A pixel next to the edge has the distance 1; the edge lies between two pixels.
    wide = np.pad(inside, 1).astype(np.uint8)
    apart_ = cv2.distanceTransform(wide, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - wide, cv2.DIST_L2, 5)
    depth = np.asarray(apart_[1:-1, 1:-1] - np.where(inside, 0.5, -0.5), np.float32)
    changes = depth > -FEATHER_PX
    rim = changes & (depth < _RIM)
    painted[rim] = _unmixed(lab, painted, depth)[rim]
    made = rgb.copy()
    made[rows, columns][changes] = from_lab(painted[changes])
    return made


def _unmixed(lab: Floats, painted: Floats, depth: Floats) -> Floats:
    """Give each pixel as much of a thing's new color as it has of its old one, between the thing and the ground near it.

    lab, painted: h×w×3 Lab, before and after.   depth: h×w, px within the mask, below 0 beyond it.
    """

    def near(of: Floats, weight: Floats) -> Floats:
        sums, all_ = (
            cv2.blur(one, (_NEAR, _NEAR), borderType=cv2.BORDER_CONSTANT) for one in (of * weight[..., None], weight)
        )
        return np.asarray(sums / np.maximum(all_, 1e-6)[..., None])

    # The rim itself counts where a thing is so thin that it has nothing else.
    thing = np.where(depth >= _RIM, 1, np.where(depth > 0, 0.02, 0)).astype(np.float32)
    ground = np.where(depth <= -FEATHER_PX, 1, np.where(depth < 0, 0.02, 0)).astype(np.float32)
    own, new, behind = near(lab, thing), near(painted, thing), near(lab, ground)
    scale = np.array((_OF_LIGHT, 1, 1), np.float32)
    across, at = (own - behind) * scale, (lab - behind) * scale
    share = np.clip((across * at).sum(axis=2) / np.maximum((across**2).sum(axis=2), 1e-5), 0, 1)
    return np.asarray(lab + share[..., None] * (new - own), np.float32)


def shares_of(rgb: RGB, mask: Mask) -> dict[str, float]:
    """Return which share of a thing has each color's name, 0 to 1, without its rim, where colors mix."""
    where = part_of(mask, 0)
    inside = mask[where]
    inner = cv2.erode(inside.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0).astype(bool)
    return shares(to_lab(rgb[where])[inner if inner.sum() * 2 >= inside.sum() else inside])


def color_of(rgb: RGB, mask: Mask) -> str:
    """Return the name of a thing's color; "" for one of several colors, or of one that people may call otherwise."""
    found = shares_of(rgb, mask)
    name = leading(found)
    return name if share_of(found, name) >= 0.75 and found[name] >= 0.55 else ""


def apart(first: RGB, second: RGB, mask: Mask) -> float:
    """Return the median ΔE (CIE76) of two images inside a mask."""
    where = part_of(mask, 0)
    inside = mask[where]
    return float(np.median(np.linalg.norm(to_lab(first[where])[inside] - to_lab(second[where])[inside], axis=1)))


def told_apart(first: str, second: str) -> bool:
    """Return whether nobody would take one color's name for the other's."""
    return first != second and frozenset((first, second)) not in NEAR


def stamped(rgb: RGB, part: RGB, place: tuple[int, int], shape: Mask | None = None) -> tuple[RGB, Mask]:
    """Return an image with a part laid over it at x and y, and where that is.   shape: of the part; None for all of it."""
    x, y = place
    h, w = part.shape[:2]
    mask = np.zeros(rgb.shape[:2], np.bool_)
    mask[y : y + h, x : x + w] = True if shape is None else shape
    made = rgb.copy()
    made[mask] = part.reshape(-1, 3) if shape is None else part[shape]
    return made, mask


def card(side: int, color: str) -> RGB:
    """Return a square card in a color, with a dark rim."""
    paint = PAINTS[color]
    lab = np.full((side, side, 3), (25, 0, 0), np.float32)
    lab[1:-1, 1:-1] = (sum(paint.lightness) / 2, *paint.hued())
    return from_lab(lab)


def spots(rgb: RGB, held: Mask, size: tuple[int, int], by: Random, *, gap: float, number: int) -> list[tuple[int, int]]:
    """Return places (x, y) for parts of this size (w, h in px) where nothing is held, apart from one another by `gap` px.

    Those come first where the picture is calm. Fewer than `number` where there is no room.
    """
    (height, width), (w, h) = rgb.shape[:2], size
    margin = max(2, round(0.02 * min(height, width)))
    if w + 2 * margin > width or h + 2 * margin > height:
        return []
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    drawn = [(by.randint(margin, width - w - margin), by.randint(margin, height - h - margin)) for _ in range(400)]
    free = [(x, y) for x, y in drawn if not held[y : y + h, x : x + w].any()]
    calm = sorted(free, key=lambda at: float(gray[at[1] : at[1] + h, at[0] : at[0] + w].std()))
    # A third of them is calm enough, and which of these it is should not depend on a grain of noise.
    calm = calm[: max(number * 4, len(free) // 3)]
    by.shuffle(calm)
    found = list[tuple[int, int]]()
    for x, y in calm:
        if len(found) < number and all(abs(x - u) >= w + gap or abs(y - v) >= h + gap for u, v in found):
            found.append((x, y))
    return found
