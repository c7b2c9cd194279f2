"""Where something can be put into a scene, what can be seen apart in it, and how smooth it is around a thing."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.baseline.naming import to_lab
from editloupe.data.images import RGB
from editloupe.protocols.probes.colours import Floats, Mask, part_of, soft
from editloupe.protocols.probes.scene import Scene

Place: TypeAlias = tuple[int, int]
"""x and y of a part's upper left corner, in px."""

_SMALL_PX: Final = 320
"""px of the longer side at which patches are looked for."""
_RING: Final = 0.35
"""Width of the ring around a thing in which its surroundings are measured, as a share of its size."""
_ROUGH: Final = 3.5
"""ΔE (root mean square) from a smooth ground up to which what was behind a thing is known."""
_SHADE: Final = 2.0
"""ΔE next to a thing up to which nothing of its shadow is left when it is gone."""
_DIRECTIONS: Final = 8
_FULL: Final = 0.6
"""Share of a patch's box that it fills at least."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What surrounds a thing."""

    rough: float
    """ΔE, root mean square, between the ring around it and a smooth ground through that ring."""
    shade: float
    """ΔE between the two next to the thing, in the direction where it is largest: its shadow, or what it touches."""

    @property
    def smooth(self) -> bool:
        """Whether nobody could say that what is put in its place is wrong."""
        return self.rough <= _ROUGH and self.shade <= _SHADE

    @property
    def even(self) -> bool:
        """Whether a copy of the thing can stand beside it, without its shadow, and nobody would miss that."""
        return self.rough <= 2 * _ROUGH and self.shade <= 2 * _SHADE


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


def free_of(scene: Scene, px: float) -> Mask:
    """Return where there is none of a scene's things, nor anything within so many px of them."""
    taken = scene.target.mask.copy()
    for one in scene.others:
        taken |= one.mask
    return ~grown(taken, px)


def filled(rgb: RGB, mask: Mask, by: np.random.Generator, *, avoid: Mask | None = None) -> tuple[RGB, Ground]:
    """Return an image with a part filled by the smooth ground around it, with that ground's grain; and how smooth it is.

    mask: H×W, what is filled; its edge is soft.   avoid: H×W, what is no ground, such as other things.
    """
    pad = max(6, round(_RING * size_of(mask))) + 3
    where = part_of(mask, pad)
    part, inside = rgb[where].astype(np.float64), mask[where]
    hole = grown(inside, max(2.5, 0.05 * size_of(mask)))
    ring = ~hole if avoid is None else ~(hole | avoid[where])
    h, w = inside.shape
    if ring.sum() < 40:
        return rgb.copy(), Ground(rough=float("inf"), shade=float("inf"))
    y, x = np.mgrid[0:h, 0:w]
    x, y = (x - w / 2) / w, (y - h / 2) / h
    basis = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=-1)
    solved, *_ = np.linalg.lstsq(basis[ring], part[ring], rcond=None)
    ground = basis @ solved
    off = to_lab(part.astype(np.float32)) - to_lab(np.clip(ground, 0, 255).astype(np.float32))
    rough = float(np.sqrt((off[ring] ** 2).sum(axis=1).mean()))
    near = ring & grown(hole, max(3.0, 0.12 * size_of(mask)))
    sector = np.floor((np.arctan2(y * h, x * w) / np.pi + 1) / 2 * _DIRECTIONS)
    sides = [near & (sector == direction) for direction in range(_DIRECTIONS)]
    shades = [np.linalg.norm(off[side].mean(axis=0)) for side in sides if side.sum() > 8]
    # What the ring has beside the smooth ground goes on into the hole, fading, and the ring's grain comes on top.
    left = np.where(ring[..., None], part - ground, 0)
    weight = cv2.GaussianBlur(ring.astype(np.float64), (0, 0), max(2.0, pad / 3)) + 1e-6
    slow = cv2.GaussianBlur(left, (0, 0), max(2.0, pad / 3)) / weight[..., None]
    grain = part - cv2.GaussianBlur(part, (0, 0), 1.5)
    spread = float(np.median(np.abs(grain[ring]))) * 1.4826
    noise = cv2.GaussianBlur(by.normal(0, 1, (h, w)), (0, 0), 0.6)
    noise = noise * (spread / max(1e-6, float(noise.std())))
    new = np.clip(ground + slow + noise[..., None], 0, 255)
    alpha = soft(hole, inside=1.5, outside=1.5)[..., None]
    made = rgb.copy()
    made[where] = np.rint(part * (1 - alpha) + new * alpha).astype(np.uint8)
    return made, Ground(rough=rough, shade=float(max(shades, default=0.0)))


def stamped(rgb: RGB, part: RGB, weight: Floats, place: Place) -> RGB:
    """Return an image with a part laid over it, as far as the weights (h×w, 0 to 1) say."""
    x, y = place
    h, w = weight.shape
    made = rgb.copy()
    own = rgb[y : y + h, x : x + w].astype(np.float32)
    made[y : y + h, x : x + w] = np.rint(own + weight[..., None] * (part.astype(np.float32) - own)).astype(np.uint8)
    return made


def laid(shape: tuple[int, ...], weight: Floats, place: Place) -> Mask:
    """Return where a part that was laid over an image of this shape is."""
    x, y = place
    mask = np.zeros(shape[:2], np.bool_)
    mask[y : y + weight.shape[0], x : x + weight.shape[1]] = weight > 0
    return mask


def spots(scene: Scene, size: tuple[int, int], by: Random, *, gap: float, number: int, tries: int = 400) -> list[Place]:
    """Return places for parts of this size (w, h in px), apart from all things and from one another by `gap` px.

    Calmer places come first among those that are drawn. Fewer than `number` where there is no room.
    """
    height, width = scene.image.shape[:2]
    w, h = size
    margin = max(2, round(0.02 * min(height, width)))
    if w + 2 * margin > width or h + 2 * margin > height:
        return []
    free = free_of(scene, gap).astype(np.uint8)
    taken = cv2.integral(1 - free)
    grey = cv2.cvtColor(scene.image, cv2.COLOR_RGB2GRAY)
    sums, squares = cv2.integral2(grey)
    drawn: list[tuple[float, Place]] = []
    for _ in range(tries):
        x, y = by.randint(margin, width - w - margin), by.randint(margin, height - h - margin)
        if _sum(taken, x, y, w, h):
            continue
        mean = _sum(sums, x, y, w, h) / (w * h)
        drawn.append((_sum(squares, x, y, w, h) / (w * h) - mean * mean, (x, y)))
    # Half of them are calm enough, and which of these it is should not depend on a grain of noise.
    calm = sorted(drawn)[: max(number * 4, len(drawn) // 3)]
    by.shuffle(calm)
    found: list[Place] = []
    for _, (x, y) in calm:
        if all(abs(x - u) >= w + gap or abs(y - v) >= h + gap for u, v in found):
            found.append((x, y))
        if len(found) == number:
            break
    return found


def _sum(table: NDArray[np.generic], x: int, y: int, w: int, h: int) -> float:
    a, b, c, d = (float(table[v, u]) for v, u in ((y + h, x + w), (y, x + w), (y + h, x), (y, x)))
    return a - b - c + d


def beside_target(scene: Scene, number: int) -> list[Place]:
    """Return places, beside the target on ground like its own, for so many copies of it; [] where there are fewer."""
    rows, columns = part_of(scene.target.mask, 1)
    w, h = columns.stop - columns.start, rows.stop - rows.start
    height, width = scene.image.shape[:2]
    gap = max(3, round(0.15 * w))
    lab = to_lab(scene.image)
    free = free_of(scene, 2)
    ring = grown(scene.target.mask, max(3.0, _RING * size_of(scene.target.mask))) & free
    if not ring.any():
        return []
    own = np.median(lab[ring], axis=0)
    most = max(6.0, 1.3 * float(np.percentile(np.linalg.norm(lab[ring] - own, axis=1), 90)))
    found: list[Place] = []
    steps = [(side * step, shift) for step in (1, 1.3, 1.6, 2, 2.5, 3, 4) for shift in (0, 0.12, -0.12) for side in (1, -1)]
    for across, shift in steps:
        x, y = round(columns.start + across * (w + gap)), round(rows.start + shift * h)
        if x < 2 or y < 2 or x + w > width - 2 or y + h > height - 2:
            continue
        place = slice(y, y + h), slice(x, x + w)
        ground = lab[place].reshape(-1, 3)
        if not free[place].all() or any(abs(x - u) < w + gap / 2 and abs(y - v) < h for u, v in found):
            continue
        off = np.linalg.norm(ground - own, axis=1)
        if np.median(off) > 0.6 * most or np.percentile(off, 90) > most:
            continue
        found.append((x, y))
        if len(found) == number:
            return found
    return []


def patches(scene: Scene) -> list[Mask]:
    """Return parts of a scene that stand out by their colour, such as a door or a leaf, for want of named things.

    Each is of about the target's size or larger, compact, one piece, and lies apart from the target.
    """
    height, width = scene.image.shape[:2]
    scale = min(1.0, _SMALL_PX / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = np.asarray(cv2.resize(scene.image, size, interpolation=cv2.INTER_AREA), np.uint8)
    lab = to_lab(small)
    calm = cv2.pyrMeanShiftFiltering(cv2.medianBlur(small, 3), 6, 14, maxLevel=1)
    taken = ~free_of(scene, 0.5 * size_of(scene.target.mask) + 4)
    free = cv2.resize((~taken).astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    least = max(float(scene.target.mask.mean()), 0.0025)
    most = max(0.05, 2.5 * least)
    area = size[0] * size[1]
    seen = np.zeros((size[1] + 2, size[0] + 2), np.uint8)
    found: list[tuple[float, Mask]] = []
    for y in range(4, size[1] - 4, 7):
        for x in range(4, size[0] - 4, 7):
            if seen[y + 1, x + 1] or not free[y, x]:
                continue
            grain = np.zeros_like(seen)
            grain[seen > 0] = 1
            cv2.floodFill(calm, grain, (x, y), 0, (7,) * 3, (7,) * 3, 4 | (2 << 8) | cv2.FLOODFILL_MASK_ONLY)
            piece = grain[1:-1, 1:-1] == 2
            seen[1:-1, 1:-1][piece] = 1
            share = float(piece.sum()) / area
            if not least <= share <= most:
                continue
            closed = cv2.morphologyEx(piece.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
            ys, xs = np.nonzero(closed)
            w, h = int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1
            near = xs.min() < 2 or ys.min() < 2 or xs.max() > size[0] - 3 or ys.max() > size[1] - 3
            if near or closed.sum() < _FULL * w * h or max(w, h) > 4 * min(w, h) or not free[closed > 0].all():
                continue
            outer = (cv2.dilate(closed, np.ones((5, 5), np.uint8)) > 0) & (closed == 0)
            contrast = float(np.linalg.norm(np.median(lab[closed > 0], axis=0) - np.median(lab[outer], axis=0)))
            if contrast < 8:
                continue
            soft_edge = cv2.GaussianBlur(closed.astype(np.float32), (0, 0), 0.7)
            whole = cv2.resize(soft_edge, (width, height), interpolation=cv2.INTER_LINEAR) >= 0.5
            if whole.any():
                found.append((contrast, np.asarray(whole, np.bool_)))
    return [mask for _, mask in sorted(found, key=lambda one: -one[0])[:12]]
