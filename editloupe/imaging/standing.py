"""What stands out from its surroundings at a place of two aligned pictures, in each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.color_names import Lab, to_lab
from editloupe.imaging.differences import Differences
from editloupe.values import Box, cached_property

Mask: TypeAlias = NDArray[np.bool_]

_LARGEST_SIDE: Final = 112
"""px; a larger place is measured on a smaller copy. Shapes and colors survive that, and time does not grow."""
_SAMPLES: Final = 160
_LEAST: Final = 0.12
"""Share of the box that a thing fills at least."""
_LITTLE: Final = 0.3
"""Share of what stands out in one picture below which the other has nearly nothing there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangedPlace:
    """One place in both pictures, with its surroundings, h×w px of its own."""

    box: Box
    """In px of the original image."""
    before: Lab
    after: Lab
    changed: Mask
    """The pixels that differ."""
    stood: Mask
    """What stood out from the surroundings in the original image."""
    stands: Mask
    """What stands out in the edited image."""
    area: int
    """px of the box."""

    @cached_property
    def core(self) -> tuple[Lab, Lab]:
        """Return the n×3 pixels of the changed thing without its rim, where colors mix, before and after."""
        touched, found = grown(self.changed, 1), []
        for lab, mask in ((self.before, self.stood & touched), (self.after, self.stands & touched)):
            able = (grown(mask, -1), mask, touched, np.ones(mask.shape, bool))
            found.append(lab[next(one for one in able if one.sum() >= 12 or one.all())])
        return found[0], found[1]

    @cached_property
    def shift(self) -> float:
        """Return the distance of the two median colors of the thing, ΔE."""
        return float(np.linalg.norm(np.median(self.core[0], axis=0) - np.median(self.core[1], axis=0)))

    @cached_property
    def cover(self) -> float:
        """Return how well the two silhouettes cover each other, within 1 px at the rim, 0 to 1."""
        a, b = self.stood, self.stands
        return float(min((a & grown(b, 1)).sum() / max(1, a.sum()), (b & grown(a, 1)).sum() / max(1, b.sum())))

    @cached_property
    def edges(self) -> float:
        """Return the correlation of the edges around and inside the thing, -1 to 1."""
        either = self.stood | self.stands
        around = grown(either if either.any() else self.changed, 2)
        first, second = (_edge_strength(lab)[around] for lab in (self.before, self.after))
        flat = [float(one.std()) < 1e-6 for one in (first, second)]
        return float(all(flat)) if any(flat) else float(np.corrcoef(first, second)[0, 1])

    @property
    def sizes(self) -> tuple[float, float]:
        """Return what stands out where something changed as a share of the box, before and after."""
        touched = grown(self.changed, 1)
        return float((self.stood & touched).sum()) / self.area, float((self.stands & touched).sum()) / self.area

    @property
    def vanished(self) -> bool:
        """True if something stood out here before and nearly nothing does now."""
        before, after = self.sizes
        return before >= _LEAST and after < _LITTLE * before

    @property
    def appeared(self) -> bool:
        """True if something stands out here now and nearly nothing did before."""
        before, after = self.sizes
        return after >= _LEAST and before < _LITTLE * after


def place(found: Differences, box: Box) -> ChangedPlace:
    """Measure one place. box: px of the original image."""
    alignment = found.alignment
    height, width = alignment.second.shape[:2]
    inner = _at_least(alignment.to_copies(box), 4.0).clipped(width=width, height=height)
    margin = max(8.0, 0.4 * max(inner.width, inner.height))
    outer = Box(inner.x0 - margin, inner.y0 - margin, inner.x1 + margin, inner.y1 + margin)
    x0, y0, x1, y1 = outer.clipped(width=width, height=height).ints()
    scale = min(1.0, _LARGEST_SIDE / max(x1 - x0, y1 - y0))
    first = found.tone.applied(alignment.first[y0:y1, x0:x1])
    # What stands under a mask was filled in each copy by itself, and is no difference.
    second = np.where(alignment.masked[y0:y1, x0:x1, None], np.rint(first).astype(np.uint8), alignment.second[y0:y1, x0:x1])
    labs = (_scaled(to_lab(image), scale) for image in (first, second))
    before, after = (cv2.GaussianBlur(lab, (0, 0), 0.7).astype(np.float32) for lab in labs)
    changed = _scaled(found.changed[y0:y1, x0:x1].astype(np.float32), scale) >= 0.5
    inside = np.zeros(changed.shape, bool)
    left, top, right, bottom = _at_least(inner.shifted(-x0, -y0).scaled(scale, scale), 2.0).ints()
    inside[max(0, top) : max(1, bottom), max(0, left) : max(1, right)] = True
    near = grown(inside, 2)
    ring = ~near & ~changed
    if ring.sum() < 24:
        ring = np.ones(ring.shape, bool) if near.all() else ~near
    around = np.concatenate([before[ring], after[ring]])
    around = around[:: max(1, len(around) // _SAMPLES)]
    stood, stands = (_standing_out(lab, around, near) for lab in (before, after))
    area = max(1, int(inside.sum()))
    return ChangedPlace(box=box, before=before, after=after, changed=changed, stood=stood, stands=stands, area=area)


def _standing_out(lab: Lab, around: Lab, near: Mask) -> Mask:
    """Return the pixels near the place whose color is rare around it. Specks are dropped."""
    rank = max(1, len(around) // 25)
    # The surroundings' own spread sets the tolerance: a carpet allows more than a wall.
    spread = float(np.percentile(np.sort(_distances(around, around), axis=1)[:, rank], 90))
    tolerance = min(max(7.0, 1.3 * spread), 20.0)
    out = np.zeros(lab.shape[:2], np.uint8)
    out[near] = (_distances(lab[near], around) < tolerance).mean(axis=1) < 0.02
    _, labels, stats, _ = cv2.connectedComponentsWithStats(out, connectivity=8)
    areas = stats[:, cv2.CC_STAT_AREA]
    keep = areas >= max(6, 0.04 * int(areas[1:].max(initial=0)))
    keep[0] = False
    kept: Mask = keep[labels]
    return kept


def _edge_strength(lab: Lab) -> NDArray[np.float32]:
    """Return the length of the gradient over all three channels, per pixel."""
    across, down = (cv2.Sobel(lab, cv2.CV_32F, dx, 1 - dx, ksize=3) for dx in (1, 0))
    return np.asarray(np.sqrt((across**2 + down**2).sum(axis=2)), np.float32)


def _distances(a: Lab, b: Lab) -> NDArray[np.float32]:
    """Return N×M Euclidean distances, ΔE76."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)), np.float32)


def grown(mask: Mask, by: int) -> Mask:
    """Return the mask with a rim of `by` px more; of less where `by` is negative."""
    kernel = np.ones((2 * abs(by) + 1, 2 * abs(by) + 1), np.uint8)
    return (cv2.dilate if by >= 0 else cv2.erode)(mask.astype(np.uint8), kernel).astype(bool)


def _scaled(values: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    if scale >= 1.0:
        return values
    return cv2.resize(values, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)


def _at_least(box: Box, side: float) -> Box:
    (cx, cy), w, h = box.center, max(box.width, side), max(box.height, side)
    return Box(cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
