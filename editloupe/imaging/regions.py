"""Turns maps of evidence into objects: hysteresis, boxes as tight as the finest scale allows, fragments joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.residual import Map
from editloupe.imaging.significance import SCALES
from editloupe.values import Box

STRONG: Final = 12.0
"""Least evidence of an object's strongest place. Normal noise stays far below, but real residuals have long tails."""
WEAK: Final = 6.0
"""Least evidence of what is connected to a strong place and belongs to the object."""
_FAINT = 18.0
_WEAK_IF_FAINT = 4.5
"""The same where no place of the picture reaches 18: at 6, little of a faint thing is left beside its strongest place."""
_OF_PEAK = 0.3
"""A pixel below this share of the strongest within two px, or within the reach of the averaging, is its spill."""
_LEAST_RADIUS = 2
_JOIN = 0.008
"""Of the shorter side: places so near each other are one object before sizes are asked."""
_GAP_FOR_SIZE = 0.5
"""Of the larger object's shorter side: fragments of a recolored thing lie apart by less, two things by more."""
_SMOOTH = 0.15
"""Of the gradient that an object's rim has: light and soft shadows have less, rims and texture more."""
_RIM = 9
"""px about a rim over which its gradient reaches."""
_FADED = 0.7
"""Of the level at the rim, about half of the object's own: what is stronger is the object, however smooth."""
_TIGHTER = 0.7
"""Of a box's area: the objects' boxes together have at most so much of it where light around them is told apart."""
_MOSTLY = 0.9
"""Of what lies outside the objects' boxes: so much of it is smooth and weak, or an edit with texture would be torn."""
_CRUMB = 0.02
"""Of the strongest object: a weaker place in its light is no object of its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Object:
    """Changed places that belong together."""

    box: Box
    """In px of the evidence's maps; integer corners."""
    changed: NDArray[np.bool_]
    """h×w of the box: its changed pixels."""
    significance: float
    """The evidence summed over the changed pixels."""


def find_objects(evidence: Sequence[Map], together: Map | None = None) -> list[Object]:
    """Return the connected places in h×w maps of evidence, the most significant first.

    evidence: one map for each of `SCALES`, the largest of all channels.   together: h×w, what all channels and scales say
    together. It tells which places are strong in a picture that has faint ones alone; None asks for no faint ones.
    """
    if together is None or max(float(values.max()) for values in evidence) >= _FAINT:
        total, mask = _significant(evidence, WEAK)
        together = total
    else:
        total, mask = _significant(evidence, _WEAK_IF_FAINT)
    reach = max(3, round(_JOIN * min(total.shape))) | 1
    grown = cv2.dilate(mask.astype(np.uint8), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach)))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(grown, connectivity=8)
    found = []
    for index in range(1, count):
        x, y, width, height = (int(v) for v in stats[index, :4])
        here = (slice(y, y + height), slice(x, x + width))
        own = mask[here] & (labels[here] == index)
        values = total[here]
        if together[here][own].max(initial=0.0) < STRONG:
            continue
        found.append(_object(own, x, y, float(values[own].sum(dtype=np.float64))))
    return sorted(found, key=_order)


def _object(mask: NDArray[np.bool_], x0: float, y0: float, significance: float) -> Object:
    """Return the object that an h×w mask shows, whose first px lies at (x0, y0)."""
    ys, xs = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = Box(xs[0], ys[0], xs[-1] + 1, ys[-1] + 1)
    left, top, right, bottom = box.ints()
    return Object(box=box.shifted(x0, y0), changed=_closed(mask[top:bottom, left:right]), significance=significance)


def _order(o: Object) -> tuple[float, ...]:
    return (-o.significance, *o.box)


def _significant(evidence: Sequence[Map], weak: float) -> tuple[Map, NDArray[np.bool_]]:
    """Return the largest evidence of any scale, and the pixels with over `weak` of it that no stronger neighbor spilled."""
    total = np.zeros_like(evidence[0])
    mask = np.zeros(total.shape, dtype=bool)
    least = np.empty_like(total)
    for values, reach in zip(evidence, SCALES, strict=True):
        # Compared with the finer scales as well: what those place exactly, a wide average only smears.
        np.maximum(total, values, out=total)
        around = 2 * max(_LEAST_RADIUS, round(2.5 * reach)) + 1
        cv2.dilate(total, np.ones((around, around), dtype=np.uint8), dst=least)
        least *= np.float32(_OF_PEAK)
        mask |= values > np.maximum(weak, least, out=least)
    return total, mask


def _closed(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask without the gaps where an object happens to have the color of what it covers."""
    closed = cv2.morphologyEx(np.pad(mask.astype(np.uint8), 3), cv2.MORPH_CLOSE, np.ones((7, 7), dtype=np.uint8))
    return np.asarray(closed[3:-3, 3:-3] > 0)


def joined(objects: Sequence[Object], *, most_gap: float) -> list[Object]:
    """Return the objects with fragments joined, the most significant first.

    Fragments are joined where their gap is small for their size, or one lies in the other's box.

    most_gap: px beyond which nothing is joined, however large.
    """
    waiting, done = sorted(objects, key=lambda o: -o.significance), list[Object]()
    while waiting:
        one = waiting.pop()
        near = [o for o in done if _belong(one.box, o.box, most_gap=most_gap)]
        if not near:
            done.append(one)
            continue
        done = [o for o in done if o not in near]
        # The grown box may now reach fragments that were far from each of its parts.
        waiting.append(reduce(_union, near, one))
    return sorted(done, key=_order)


def apart(found: Object, levels: Map, *, most_gap: float) -> list[Object]:
    """Return the parts of an object: one or several objects, and last of all the light or soft shadow that surrounds them.

    An object's rim is sharp in a map of differences; bounce light and soft shadows are weaker, and fade. The object itself
    is returned where it has no such surroundings, and where the boxes would hardly become tighter.

    levels: h×w, how much each place differs, in the px of the object's box.   most_gap: see `joined`.
    """
    x0, y0, x1, y1 = found.box.ints()
    own = levels[y0:y1, x0:x1]
    px = _RIM // 2
    padded = cv2.copyMakeBorder(own, px, px, px, px, cv2.BORDER_REPLICATE)
    dx, dy = cv2.Sobel(padded, cv2.CV_32F, 1, 0, scale=1 / 8), cv2.Sobel(padded, cv2.CV_32F, 0, 1, scale=1 / 8)
    slope = cv2.magnitude(dx, dy)[px:-px, px:-px]
    # Weighted by the slope's square, rims alone count, however small the object is in its light.
    weight = np.where(found.changed, slope * slope, np.float32(0))
    total = float(weight.sum())
    if total == 0:
        return [found]
    at_rim, sharp = float((weight * own).sum()) / total, float((weight * slope).sum()) / total
    kernel = np.ones((_RIM, _RIM), dtype=np.uint8)
    weak = found.changed & (own < _FADED * at_rim)
    smooth = weak & (cv2.dilate((slope > _SMOOTH * sharp).astype(np.uint8), kernel) == 0)
    # A rim's gradient reaches outward, into what surrounds it.
    light = weak & (cv2.dilate(smooth.astype(np.uint8), kernel) > 0)
    labels = cv2.connectedComponents((found.changed & ~light).astype(np.uint8), connectivity=8)[1]
    sums = np.bincount(labels.ravel(), weights=own.ravel())
    strong = [index for index in np.unique(labels[own > at_rim]) if index > 0]
    least = _CRUMB * max((sums[index] for index in strong), default=0.0)
    objects = joined([_part(found, labels == index, own) for index in strong if sums[index] >= least], most_gap=most_gap)
    rest = found.changed.copy()
    for o in objects:
        ox0, oy0, ox1, oy1 = o.box.shifted(-x0, -y0).ints()
        rest[oy0:oy1, ox0:ox1] = False
    tighter = sum(o.box.area for o in objects) <= _TIGHTER * found.box.area
    if not (tighter and rest.any() and light[rest].mean() >= _MOSTLY):
        return [found]
    return [*objects, _part(found, rest, own)]


def _part(whole: Object, mask: NDArray[np.bool_], levels: Map) -> Object:
    """Return what lies in h×w `mask` of an object's box. Its evidence is shared out by the levels."""
    share = float(levels[mask].sum()) / float(levels[whole.changed].sum())
    return _object(mask, whole.box.x0, whole.box.y0, share * whole.significance)


def _belong(a: Box, b: Box, *, most_gap: float) -> bool:
    gap = max(max(a.x0, b.x0) - min(a.x1, b.x1), max(a.y0, b.y0) - min(a.y1, b.y1))
    size = max(min(a.width, a.height), min(b.width, b.height))
    return gap <= min(_GAP_FOR_SIZE * size, most_gap)


def _union(a: Object, b: Object) -> Object:
    box = a.box.union(b.box)
    changed = np.zeros((int(box.height), int(box.width)), dtype=bool)
    for part in (a, b):
        x0, y0, x1, y1 = part.box.shifted(-box.x0, -box.y0).ints()
        changed[y0:y1, x0:x1] |= part.changed
    return Object(box=box, changed=changed, significance=a.significance + b.significance)
