"""Gives a thing another colour, by hue and chroma in OKLab, and says by name which colour it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.baseline.naming import leading, share_of, shares, to_lab
from editloupe.data.images import RGB

Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float32]

FEATHER_PX: Final = 2
"""px outside a mask within which a pixel can have some of the thing's colour."""
VISIBLE: Final = 20.0
"""ΔE (CIE76) that a change has in the median, so that nobody can miss it when looking there."""


@dataclass(frozen=True, kw_only=True)
class Paint:
    """A colour that things are given."""

    hue: float
    """Of OKLab, in degrees."""
    chroma: float
    """Of OKLab."""
    lightness: tuple[float, float]
    """Of OKLab, 0 to 1: mean lightness at which people call it by its name."""


PAINTS: Final[Mapping[str, Paint]] = {
    "red": Paint(hue=27, chroma=0.22, lightness=(0.46, 0.60)),
    "orange": Paint(hue=58, chroma=0.18, lightness=(0.68, 0.78)),
    "yellow": Paint(hue=103, chroma=0.18, lightness=(0.82, 0.92)),
    "green": Paint(hue=144, chroma=0.19, lightness=(0.45, 0.70)),
    "turquoise": Paint(hue=190, chroma=0.13, lightness=(0.68, 0.84)),
    "blue": Paint(hue=262, chroma=0.20, lightness=(0.40, 0.56)),
    "purple": Paint(hue=305, chroma=0.22, lightness=(0.38, 0.55)),
    "pink": Paint(hue=355, chroma=0.17, lightness=(0.70, 0.80)),
}
NEAR: Final = frozenset(
    map(frozenset, (("red", "orange"), ("red", "pink"), ("red", "brown"), ("orange", "yellow"), ("orange", "brown"),
                    ("orange", "beige"), ("orange", "pink"), ("yellow", "beige"), ("yellow", "brown"), ("yellow", "green"),
                    ("green", "turquoise"), ("turquoise", "blue"), ("blue", "purple"), ("purple", "pink"),
                    ("pink", "beige")))
)  # fmt: skip
"""Colours about which two people may differ; one is never asked for, or shown, where the other is."""
_TEXTURE: Final = 0.35
"""Share of a thing's own differences of hue and chroma that stays."""
_CONTRAST: Final = 0.8
"""Least share of its differences of lightness that stays where they would be cut off."""
_RIM: Final = 1.5
"""px within a mask whose pixels can have some of the ground's colour."""
_NEAR: Final = 9
"""Side in px of the window in which thing and ground next to a pixel of the rim are measured."""
_OF_LIGHT: Final = 0.2
"""How much lightness counts beside hue and chroma where the two are told apart: shade is on both."""
_NAMED: Final = 0.75
"""Share of a thing's pixels that have a name, those of a neighbouring shade half, for it to be the thing's colour."""

_TO_LMS = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929],
     [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]],
    np.float32,
)  # fmt: skip
_TO_LAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468],
     [1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]],
    np.float32,
)  # fmt: skip
_LMS_TO = np.linalg.inv(_TO_LMS).astype(np.float32)
_LAB_TO = np.linalg.inv(_TO_LAB).astype(np.float32)
_LINEAR: Final = np.array(
    [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.arange(256) / 255], np.float32
)


def to_oklab(rgb: RGB) -> Floats:
    """Return …×3 uint8 RGB as OKLab (Ottosson 2020): L 0 to 1, a and b about -0.4 to 0.4."""
    return np.asarray(np.cbrt(_LINEAR[rgb] @ _TO_LMS.T) @ _TO_LAB.T, np.float32)


def from_oklab(lab: Floats) -> RGB:
    """Return …×3 OKLab as uint8 RGB. A colour that sRGB lacks loses chroma until it fits."""
    best, scale = _linear(lab), np.ones(lab.shape[:-1], np.float32)
    for step in np.linspace(0.95, 0.0, 20, dtype=np.float32):
        out = ((best < -0.002) | (best > 1.002)).any(axis=-1)
        if not out.any():
            break
        scale = np.where(out, step, scale)
        best = _linear(lab * np.stack([np.ones_like(scale), scale, scale], axis=-1))
    best = np.clip(best, 0, 1)
    coded = np.where(best <= 0.0031308, best * 12.92, 1.055 * np.power(best, 1 / 2.4) - 0.055)
    return np.asarray(np.rint(np.clip(coded, 0, 1) * 255), np.uint8)


def _linear(lab: Floats) -> Floats:
    return np.asarray((lab @ _LAB_TO.T) ** 3 @ _LMS_TO.T, np.float32)


def soft(mask: Mask, *, inside: float = 1.0, outside: float = 1.0) -> Floats:
    """Return H×W weights 0 to 1 of a mask whose edge is soft: 0 from `outside` px beyond it, 1 from `inside` px within."""
    return np.asarray(np.clip((_depth(mask) + outside) / (inside + outside), 0, 1), np.float32)


def _depth(mask: Mask) -> Floats:
    """H×W, how far each pixel's middle lies within a mask in px, below 0 beyond it."""
    wide = np.pad(mask, 1).astype(np.uint8)
    depth = cv2.distanceTransform(wide, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - wide, cv2.DIST_L2, 5)
    # A pixel next to the edge has the distance 1; the edge itself lies between two pixels.
    return np.asarray(depth[1:-1, 1:-1] - np.where(mask, 0.5, -0.5), np.float32)


def part_of(mask: Mask, pad: int) -> tuple[slice, slice]:
    """Return the rows and columns about the True pixels, with so many px around. Raises ValueError where there is none."""
    x, y, w, h = cv2.boundingRect(mask.view(np.uint8))
    if not w:
        raise ValueError("the mask is empty")
    down, across = mask.shape
    return slice(max(0, y - pad), min(down, y + h + pad)), slice(max(0, x - pad), min(across, x + w + pad))


def recoloured(rgb: RGB, mask: Mask, paint: Paint) -> RGB:
    """Return an image with the masked thing in another colour: hue and chroma are new, light and shade stay.

    A thing too dark or too light for the colour's name is brought to the nearest lightness that bears it; one without
    colour gets chroma. Along its edge a pixel changes as far as it has the thing's colour, so that none of the old one is
    left around it; no pixel farther than `FEATHER_PX` outside the mask changes.
    """
    rows, columns = part_of(mask, FEATHER_PX + _NEAR // 2)
    part, inside = rgb[rows, columns], mask[rows, columns]
    lab = to_oklab(part)
    mean = lab[inside].mean(axis=0)
    low, high = paint.lightness
    light = float(np.clip(mean[0], low, high))
    shade = lab[..., 0] - mean[0]
    # A black thing has few shades and a white one, too: what moves far keeps its contrast, within what can be shown.
    spread = float(np.percentile(np.abs(shade[inside]), 95))
    room = min(light - 0.12, 0.97 - light)
    factor = max(_CONTRAST, room / spread) if spread > room else 1.0
    painted = np.empty_like(lab)
    painted[..., 0] = np.clip(light + shade * factor, 0.05, 0.98)
    # Very dark and very light parts bear less chroma, as a glossy thing's do.
    bears = np.clip(np.minimum(painted[..., 0] / 0.30, (1.02 - painted[..., 0]) / 0.14), 0.15, 1.0)
    angle = np.deg2rad(paint.hue)
    for channel, value in ((1, np.cos(angle)), (2, np.sin(angle))):
        own = np.clip((lab[..., channel] - mean[channel]) * _TEXTURE, -0.04, 0.04)
        painted[..., channel] = bears * (paint.chroma * value + own)
    depth = _depth(inside)
    changes = depth > -FEATHER_PX
    rim = changes & (depth < _RIM)
    painted[rim] = _unmixed(lab, painted, depth)[rim]
    made = rgb.copy()
    made[rows, columns][changes] = from_oklab(painted[changes])
    return made


def _unmixed(lab: Floats, painted: Floats, depth: Floats) -> Floats:
    """Give each pixel as much of a thing's new colour as it has of its old one, between the thing and the ground near it.

    lab, painted: h×w×3 OKLab, before and after.   depth: as of `_depth`.
    """
    # The rim itself counts where a thing is so thin that it has nothing else.
    thing = np.where(depth >= _RIM, 1, np.where(depth > 0, 0.02, 0)).astype(np.float32)
    ground = np.where(depth <= -FEATHER_PX, 1, np.where(depth < 0, 0.02, 0)).astype(np.float32)
    own, new, behind = (mean_near(of, weight) for of, weight in ((lab, thing), (painted, thing), (lab, ground)))
    scale = np.array((_OF_LIGHT, 1, 1), np.float32)
    across, at = (own - behind) * scale, (lab - behind) * scale
    share = np.clip((across * at).sum(axis=2) / np.maximum((across**2).sum(axis=2), 1e-5), 0, 1)
    return np.asarray(lab + share[..., None] * (new - own), np.float32)


def mean_near(lab: Floats, weight: Floats) -> Floats:
    """Return the weighted mean of the pixels around each."""
    sums = cv2.blur(lab * weight[..., None], (_NEAR, _NEAR), borderType=cv2.BORDER_CONSTANT)
    return np.asarray(sums / np.maximum(cv2.blur(weight, (_NEAR, _NEAR), borderType=cv2.BORDER_CONSTANT), 1e-6)[..., None])


def _core(mask: Mask) -> Mask:
    """Return a mask without its rim of 1 px, where colours mix; the mask itself where that leaves less than half of it."""
    inner = cv2.erode(mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0).astype(bool)
    return inner if inner.sum() * 2 >= mask.sum() else mask


def colour_of(rgb: RGB, mask: Mask) -> str:
    """Return the name of a thing's colour; "" for one of several colours, or of one that people may call otherwise."""
    where = part_of(mask, 0)
    found = shares(to_lab(rgb[where])[_core(mask[where])])
    name = leading(found)
    return name if share_of(found, name) >= _NAMED and found[name] >= 0.55 else ""


def shares_of(rgb: RGB, mask: Mask) -> dict[str, float]:
    """Return which share of a thing has each colour's name, 0 to 1."""
    where = part_of(mask, 0)
    return shares(to_lab(rgb[where])[_core(mask[where])])


def apart(first: RGB, second: RGB, mask: Mask) -> float:
    """Return the median ΔE (CIE76) of two images inside a mask."""
    where = part_of(mask, 0)
    inside = mask[where]
    return float(np.median(np.linalg.norm(to_lab(first[where])[inside] - to_lab(second[where])[inside], axis=1)))


def told_apart(first: str, second: str) -> bool:
    """Return whether nobody would take one colour's name for the other's."""
    return first != second and frozenset((first, second)) not in NEAR
