"""Puts things into a scene and takes them out: what is laid over it, where there is room, and what was behind a thing."""

from __future__ import annotations

from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np

from editloupe.build.probes.colours import PAINTS, Floats, Mask, from_lab, part_of, soft
from editloupe.build.probes.photographs import Scene
from editloupe.data.images import RGB
from editloupe.imaging.color_names import to_lab

Place: TypeAlias = tuple[int, int]
"""x and y of a part's upper left corner, in px."""

_RING: Final = 0.35
"""Width of the ring around a thing in which its surroundings are measured, as a share of its size."""
_ROUGH: Final = 3.5
"""ΔE (root mean square) of the ring around a thing from a smooth ground, up to which what was behind it is known."""
_SHADE: Final = 2.0
"""The same next to the thing, in the direction where it is largest, up to which nothing of its shadow is left."""
_DIRECTIONS: Final = 8


def grown(mask: Mask, px: float) -> Mask:
    """Return a mask with all that lies within so many px of it."""
    wider = mask.copy()
    if mask.any():
        where = part_of(mask, int(px) + 1)
        wider[where] = cv2.distanceTransform(1 - mask[where].astype(np.uint8), cv2.DIST_L2, 5) <= px
    return wider


def size_of(mask: Mask) -> float:
    """Return the side, in px, of a square as large as the mask."""
    return float(np.sqrt(mask.sum()))


def taken(scene: Scene) -> Mask:
    """Return where a scene's things are."""
    return np.asarray(np.logical_or.reduce([scene.target.mask, *(one.mask for one in scene.others)]), np.bool_)


def filled(rgb: RGB, mask: Mask, by: np.random.Generator, *, avoid: Mask) -> RGB | None:
    """Return an image with a part filled by the smooth ground around it, with that ground's grain.

    None where the ground is not so smooth that nobody could say that what is put there is wrong.
    mask: H×W, what is filled; its edge is soft.   avoid: H×W, what is no ground, such as other things.
    """
    size = size_of(mask)
    pad = max(6, round(_RING * size)) + 3
    where = part_of(mask, pad)
    part = rgb[where].astype(np.float64)
    hole = grown(mask[where], max(2.5, 0.05 * size))
    ring = ~(hole | avoid[where])
    if ring.sum() < 40:
        return None
    h, w = hole.shape
    y, x = np.mgrid[0:h, 0:w]
    x, y = (x - w / 2) / w, (y - h / 2) / h
    basis = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=-1)
    solved, *_ = np.linalg.lstsq(basis[ring], part[ring], rcond=None)
    ground = basis @ solved
    off = to_lab(part.astype(np.float32)) - to_lab(np.clip(ground, 0, 255).astype(np.float32))
    near = ring & grown(hole, max(3.0, 0.12 * size))
    sector = np.floor((np.arctan2(y * h, x * w) / np.pi + 1) / 2 * _DIRECTIONS)
    sides = [near & (sector == direction) for direction in range(_DIRECTIONS)]
    shades = [float(np.linalg.norm(off[side].mean(axis=0))) for side in sides if side.sum() > 8]
    if float(np.sqrt((off[ring] ** 2).sum(axis=1).mean())) > _ROUGH or max(shades, default=0.0) > _SHADE:
        return None
    # What the ring has beside the smooth ground goes on into the hole, fading, and the ring's grain comes on top.
    left = np.where(ring[..., None], part - ground, 0)
    weight = cv2.GaussianBlur(ring.astype(np.float64), (0, 0), max(2.0, pad / 3)) + 1e-6
    slow = cv2.GaussianBlur(left, (0, 0), max(2.0, pad / 3)) / weight[..., None]
    grain = part - cv2.GaussianBlur(part, (0, 0), 1.5)
    noise = cv2.GaussianBlur(by.normal(0, 1, (h, w)), (0, 0), 0.6)
    noise = noise * (float(np.median(np.abs(grain[ring]))) * 1.4826 / max(1e-6, float(noise.std())))
    new = np.clip(ground + slow + noise[..., None], 0, 255)
    made = rgb.copy()
    alpha = soft(hole, inside=1.5, outside=1.5)[..., None]
    made[where] = np.rint(part * (1 - alpha) + new * alpha).astype(np.uint8)
    return made


def sized(rgb: RGB, size: tuple[int, int]) -> RGB:
    """Return an image of another size (w, h)."""
    smaller = size[0] < rgb.shape[1]
    return np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC), np.uint8)


def stamped(rgb: RGB, part: RGB, weight: Floats, place: Place) -> tuple[RGB, Mask]:
    """Return an image with a part laid over it, as far as the weights (h×w, 0 to 1) say; and where that is."""
    x, y = place
    h, w = weight.shape
    made, mask = rgb.copy(), np.zeros(rgb.shape[:2], np.bool_)
    own = rgb[y : y + h, x : x + w].astype(np.float32)
    made[y : y + h, x : x + w] = np.rint(own + weight[..., None] * (part.astype(np.float32) - own)).astype(np.uint8)
    mask[y : y + h, x : x + w] = weight > 0
    return made, mask


def card(size: tuple[int, int], colour: str) -> tuple[RGB, Floats]:
    """Return a card of w×h px in a colour, with a dark rim; and its weights, as `stamped` takes them."""
    paint = PAINTS[colour]
    lab = np.full((size[1], size[0], 3), (25, 0, 0), np.float32)
    lab[1:-1, 1:-1] = (sum(paint.lightness) / 2, *paint.hued())
    return from_lab(lab), np.ones(lab.shape[:2], np.float32)


def spots(scene: Scene, size: tuple[int, int], by: Random, *, gap: float, number: int) -> list[Place]:
    """Return places for parts of this size (w, h in px), apart from all things and from one another by `gap` px.

    Those come first where the picture is calm. Fewer than `number` where there is no room.
    """
    height, width = scene.image.shape[:2]
    w, h = size
    margin = max(2, round(0.02 * min(height, width)))
    if w + 2 * margin > width or h + 2 * margin > height:
        return []
    held = grown(taken(scene), gap)
    grey = cv2.cvtColor(scene.image, cv2.COLOR_RGB2GRAY)
    drawn = [(by.randint(margin, width - w - margin), by.randint(margin, height - h - margin)) for _ in range(400)]
    free = [(x, y) for x, y in drawn if not held[y : y + h, x : x + w].any()]
    calm = sorted(free, key=lambda at: float(grey[at[1] : at[1] + h, at[0] : at[0] + w].std()))
    # A third of them is calm enough, and which of these it is should not depend on a grain of noise.
    calm = calm[: max(number * 4, len(free) // 3)]
    by.shuffle(calm)
    found = list[Place]()
    for x, y in calm:
        if len(found) < number and all(abs(x - u) >= w + gap or abs(y - v) >= h + gap for u, v in found):
            found.append((x, y))
    return found
