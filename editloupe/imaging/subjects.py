"""Finds what a picture that changed throughout is about: few coherent regions, the subject before ground, sky and corners.

A subject is what its surroundings enclose, in either picture or in the map of differences. Thresholds cut each plane into
connected places; a place counts the more, the less of the border it touches (Zhang and Sclaroff, "Saliency Detection: A
Boolean Map Approach", 2013, with the boundary connectivity of Zhu et al., 2014). Beside it counts what does not follow the
style that the rest took on: an edit in a picture drawn anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.regions import Object
from editloupe.imaging.residual import COLOUR_IN_LEVELS, Map, Residual
from editloupe.values import Box

MOST: Final = 5
"""Regions at most."""
LEAST_SIDE: Final = 0.08
"""Least side of a region, as a share of the picture's shorter side."""
_MOST_AREA = 0.6
"""Share of the picture; a larger box shows no more than the picture does."""
_SIDE = 64
"""px; longest side of the copies on which subjects are sought."""
_CUTS = 6
"""Thresholds for each plane."""
_FULL_RANGE = 60.0
_FULL_COLOUR_RANGE = 40.0
"""Levels; a plane whose values span less counts less, since its noise is cut into places too."""
_MOST_ODD = 1.2
"""Times the full range; what follows the picture's new style less counts no more."""
_LEAST_AREA = 0.004
"""Share of the picture; smaller places are no subjects."""
_CUTS_OF_PLACES = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Thresholds that cut maps of 0 to about 1 into places."""
_OFF_CENTRE = 0.6
_CENTRE_REACH = 0.35
"""Weight of what lies far from the centre, and the standard deviation of the centre's weight, as a share of each side."""
_RING_PX = 4
"""What lies nearer to a place, on the small copies, is its surroundings."""
_CLEARLY_DIFFERENT = 25.0
"""Mean levels from which a place counts in full: what was kept is no difference, however much it stands out."""
_OVERLAP = 0.35
"""Share of the smaller box; two places that share more are one."""
_LARGE = 0.3
_PART = 0.4
_INSIDE = 0.9
"""But a place of 30 % of the picture and more may have parts, as a person has a head: at most 40 % as large, 90 % in it."""
_OF_BEST = 0.2
"""Places that stand out by less than this share of the best are left out."""

_Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Place:
    """A connected place of the small copies."""

    box: Box
    mask: _Mask
    """Of the box."""
    score: float


def find_subjects(left: Residual, levels: Map, *, least_mean: float) -> list[Object]:
    """Return at most 5 coherent regions of what differs, the one that stands out most as a subject first.

    levels: h×w float32, 0..255, how much each place of `left` differs.   least_mean: levels that a region differs by at
    least. The objects are in px of `levels`; significance is how much an object stands out, from 0 to about 1. No side is
    under 8 % of the picture's shorter side.
    """
    height, width = levels.shape
    factor = min(1.0, _SIDE / max(height, width))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    differs = _small(levels, size)
    ranges = (_FULL_RANGE, _FULL_COLOUR_RANGE, _FULL_COLOUR_RANGE)
    first, second = ([_small(pair[i], size) for pair in left.planes] for i in (0, 1))
    planes = [list(zip(picture, ranges, strict=True)) for picture in (first, second)]
    planes.append([(np.asarray(cv2.GaussianBlur(differs, (0, 0), 1.0), dtype=np.float32), _FULL_RANGE)])
    maps = [_normed(np.sum([_enclosed(*plane) for plane in of_one], axis=0)) for of_one in planes]
    attention = _normed(np.mean(maps, axis=0) * _centred(differs.shape))
    odd = _odd(first, second)
    masks = [values > cut for values in (attention, *maps, odd) for cut in _CUTS_OF_PLACES]
    places = [place for mask in masks for place in _places(mask, attention, odd, differs, least_mean)]
    kx, ky = width / differs.shape[1], height / differs.shape[0]
    return [_object(place, kx, ky, (height, width)) for place in _chosen(places, differs.size)]


def _small(plane: NDArray[np.uint8] | Map, size: tuple[int, int]) -> Map:
    return np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_AREA), dtype=np.float32)


def _normed(values: Map) -> Map:
    smooth = cv2.GaussianBlur(np.asarray(values, dtype=np.float32), (0, 0), 1.0)
    return np.asarray(smooth / max(0.3, float(np.percentile(smooth, 99))), dtype=np.float32)


def _centred(shape: tuple[int, ...]) -> Map:
    """Return h×w: 1 at the centre, less towards the corners."""
    y, x = (np.exp(-(((np.arange(n) + 0.5) / n - 0.5) ** 2) / (2 * _CENTRE_REACH**2)) for n in shape)
    return np.asarray(_OFF_CENTRE + (1 - _OFF_CENTRE) * np.outer(y, x), dtype=np.float32)


def _enclosed(plane: Map, full_range: float) -> Map:
    """Return h×w float32: how much the surroundings enclose each place of a plane, from 0 to 1."""
    smooth = cv2.GaussianBlur(plane, (0, 0), 0.8)
    low, high = (float(v) for v in np.percentile(smooth, (2, 98)))
    total = np.zeros(plane.shape, dtype=np.float32)
    if high - low < 8:
        return total
    least = _LEAST_AREA * plane.size
    for cut in np.linspace(low, high, _CUTS + 2)[1:-1]:
        above = (smooth > cut).astype(np.uint8)
        for side in (above, 1 - above):
            count, labels, stats, _ = cv2.connectedComponentsWithStats(side, connectivity=4)
            border = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
            area = stats[:, cv2.CC_STAT_AREA].astype(np.float32)
            weight = np.exp(-(np.bincount(border, minlength=count) ** 2) / (2 * area)).astype(np.float32)
            weight[area < least] = 0
            weight[0] = 0
            total += weight[labels]
    return total * np.float32(min(1.0, (high - low) / full_range) / _CUTS)


def _odd(first: Sequence[Map], second: Sequence[Map]) -> Map:
    """Return h×w: how far each place's colour is from what the whole picture's colours became, 1 for 60 levels.

    first, second: Y, Cr, Cb of h×w. Another style moves equal colours equally; a local edit does not follow it.
    """
    y, red, blue = (plane.ravel() / 128 - 1 for plane in first)
    basis = np.stack([np.ones_like(y), y, red, blue, y * y, red * red, blue * blue, y * red, y * blue, red * blue], axis=1)
    became = np.stack([plane.ravel() for plane in second], axis=1)
    solved, *_ = np.linalg.lstsq(basis, became, rcond=None)
    left = np.abs(became - basis @ solved) * (1, COLOUR_IN_LEVELS, COLOUR_IN_LEVELS)
    odd = cv2.GaussianBlur(left.max(axis=1).reshape(first[0].shape).astype(np.float32), (0, 0), 1.0)
    return np.asarray(np.minimum(odd / _FULL_RANGE, _MOST_ODD), dtype=np.float32)


def _places(mask: _Mask, attention: Map, odd: Map, differs: Map, least_mean: float) -> list[_Place]:
    height, width = mask.shape
    least = max(2.0, LEAST_SIDE * min(height, width))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    found = []
    for index in range(1, count):
        x, y, w, h, area = (int(v) for v in stats[index])
        if min(w, h) < least or w * h > _MOST_AREA * mask.size:
            continue
        x0, y0 = max(0, x - _RING_PX), max(0, y - _RING_PX)
        here = (slice(y0, y + h + _RING_PX), slice(x0, x + w + _RING_PX))
        own = labels[here] == index
        around = cv2.dilate(own.astype(np.uint8), np.ones((2 * _RING_PX + 1,) * 2, dtype=np.uint8)).astype(bool) & ~own
        mean = float(differs[here][own].mean())
        if mean < least_mean or not around.any():
            continue
        stands_out, strange = (float(v[here][own].mean() - v[here][around].mean()) for v in (attention, odd))
        contact = (x == 0) * h + (x + w == width) * h + (y == 0) * w + (y + h == height) * w
        score = (
            max(0.0, stands_out, strange * float(np.exp(-(contact**2) / (2 * area))))
            * (area / mask.size) ** 0.3
            * (area / (w * h)) ** 0.5
        )
        score *= min(1.0, mean / _CLEARLY_DIFFERENT) ** 0.5
        inner = own[y - y0 : y - y0 + h, x - x0 : x - x0 + w]
        found.append(_Place(box=Box(x, y, x + w, y + h), mask=inner, score=score))
    return found


def _chosen(places: Sequence[_Place], picture: float) -> list[_Place]:
    """Return the best places that do not overlap, best first."""
    chosen: list[_Place] = []
    for place in sorted(places, key=lambda p: (-p.score, *p.box)):
        if len(chosen) == MOST or (chosen and place.score < _OF_BEST * chosen[0].score):
            break
        if all(_apart(place.box, other.box, picture) for other in chosen):
            chosen.append(place)
    return chosen


def _apart(a: Box, b: Box, picture: float) -> bool:
    """Return True if two boxes share little, or one is a small part, as a head is, of the other, which is large."""
    small, large = sorted((a.area, b.area))
    part = small <= _PART * large and large >= _LARGE * picture
    return _shared(a, b) <= _OVERLAP or (part and _shared(a, b) > _INSIDE)


def _shared(a: Box, b: Box) -> float:
    """Return what two boxes share, as a share of the smaller one."""
    common = a.intersection(b)
    return 0.0 if common is None else common.area / min(a.area, b.area)


def _object(place: _Place, kx: float, ky: float, shape: tuple[int, int]) -> Object:
    height, width = shape
    box = place.box.scaled(kx, ky).rounded_out().clipped(width=width, height=height)
    size = (int(box.width), int(box.height))
    mask = cv2.resize(place.mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    return Object(box=box, changed=mask > 0, significance=place.score)
