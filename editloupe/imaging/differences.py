"""Where two images differ: a map of differences, a threshold that follows the noise, and regions ranked by strength."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.align import Alignment, align
from editloupe.imaging.colour import Tone, estimate_tone
from editloupe.values import Box

FLOOR: Final = 25.0
"""Levels of 255 below which nothing counts, however clean the images are."""

MADS: Final = 6.0
"""The threshold lies so many median absolute deviations above the median (about four standard deviations of noise)."""

MIN_AREA_SHARE: Final = 0.0001
MIN_AREA_PX: Final = 36.0
"""A region has at least 0.01 % of the image and 36 px² of changed pixels, in px of image 1."""

REGENERATED_SHARE: Final = 0.4
"""Above this share of the image the two are said to differ as a whole."""

_CLOSING = 0.01
_GAP = 0.015
_STRONGEST_DECILE = 90.0


@dataclass(frozen=True, kw_only=True)
class Region:
    """One place that differs.

    box: the changed pixels' box in whole px of image 1.   changed_px: changed pixels, in px² of image 1.
    mean: mean difference of those pixels, 0..255.   strength: changed_px × mean, by which regions are ranked.
    """

    box: Box
    changed_px: float
    mean: float

    @property
    def strength(self) -> float:
        return self.changed_px * self.mean


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What `localize` found.

    regions: strongest first.   levels: h×w float32, 0..255, the map in the frame of `alignment.first`.
    threshold: levels above which a pixel counts as changed.   changed_share: 0..1, of the image above FLOOR.
    min_area_px: the smallest region, in px² of image 1.   identical: every pixel of both images is the same.
    """

    regions: tuple[Region, ...]
    levels: NDArray[np.float32]
    threshold: float
    changed_share: float
    min_area_px: float
    identical: bool
    alignment: Alignment
    tone: Tone

    @property
    def regenerated(self) -> bool:
        """More than 40 % of the image differs."""
        return self.changed_share > REGENERATED_SHARE

    @property
    def largest(self) -> float:
        """The largest difference on the map, 0..255."""
        return float(self.levels.max(initial=0.0))


def localize(image_1: RGB, image_2: RGB) -> Differences:
    """Compare two H×W×3 uint8 RGB images of any sizes: align, remove a global tone, threshold, group, rank."""
    alignment = align(image_1, image_2)
    identical = image_1.shape == image_2.shape and bool(np.array_equal(image_1, image_2))
    tone = Tone() if identical else estimate_tone(alignment.first, alignment.second)
    levels = difference_map(tone.applied(alignment.first), alignment.second.astype(np.float32))
    x0, y0, x1, y1 = alignment.valid.ints()
    inside = levels[y0:y1, x0:x1]
    levels = np.zeros_like(levels)
    levels[y0:y1, x0:x1] = inside

    changed_share = float(np.mean(inside > FLOOR))
    threshold = noise_threshold(inside)
    if changed_share > REGENERATED_SHARE:
        # No unchanged majority is left to measure noise on: show the strongest tenth.
        threshold = max(FLOOR, float(np.percentile(inside, _STRONGEST_DECILE)))
    width, height = alignment.size_1
    min_area_px = max(MIN_AREA_PX, MIN_AREA_SHARE * width * height)
    sx, sy = alignment.scale
    found = find_regions(levels, threshold=threshold, min_area=min_area_px * sx * sy)
    regions = [Region(box=alignment.to_image_1(r.box), changed_px=r.changed_px / (sx * sy), mean=r.mean) for r in found]
    return Differences(
        regions=tuple(regions),
        levels=levels,
        threshold=threshold,
        changed_share=changed_share,
        min_area_px=min_area_px,
        identical=identical,
        alignment=alignment,
        tone=tone,
    )


def difference_map(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """h×w float32, 0..255: how far each pixel lies outside what the other image shows within one px of it.

    first, second: h×w×3 float32, 0..255, aligned. Both are smoothed (Gaussian, σ 1 px); the largest of the three channels
    counts. The tolerance of one px keeps resampled edges from counting; a thin line that only one image has still does.
    """
    a = np.asarray(cv2.GaussianBlur(first, (0, 0), 1.0), dtype=np.float32)
    b = np.asarray(cv2.GaussianBlur(second, (0, 0), 1.0), dtype=np.float32)
    return np.asarray(np.maximum(_beyond(a, b), _beyond(b, a)).max(axis=2), dtype=np.float32)


def noise_threshold(levels: NDArray[np.float32]) -> float:
    """max(25, median + 6 · MAD) of the map: compression or VAE noise raises it; an edit of a small place does not."""
    median = float(np.median(levels))
    return max(FLOOR, median + MADS * float(np.median(np.abs(levels - median))))


def find_regions(levels: NDArray[np.float32], *, threshold: float, min_area: float) -> list[Region]:
    """Regions of an h×w map above `threshold`, strongest first, in px of the map.

    Fragments are joined where changed pixels come within about 1.5 % of the shorter side of each other, and where half
    of one box lies in another; what has fewer than `min_area` changed pixels in the end is dropped.
    """
    changed = levels > threshold
    side = min(levels.shape)
    # Specks of noise would chain distant objects together.
    specks = _components(_closed(changed, max(3, round(_CLOSING * side)))).labels
    changed &= np.bincount(specks[changed], minlength=int(specks.max()) + 1)[specks] >= min_area / 4
    grown = _components(_dilated(changed, max(3, round(_GAP * side))))
    parts = [_part(grown, index, changed, levels) for index in range(1, len(grown.boxes))]
    merged = [p for p in _merged(parts) if p.area >= min_area]
    regions = [Region(box=p.box, changed_px=p.area, mean=p.total / p.area) for p in merged]
    return sorted(regions, key=lambda r: (-r.strength, *r.box))


@dataclass(frozen=True, kw_only=True)
class _Part:
    box: Box
    area: float
    total: float


def _beyond(values: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """By how much `values` leaves the range that `other` has in the 3×3 neighbourhood; 0 inside it."""
    kernel = np.ones((3, 3), dtype=np.uint8)
    above, below = values - cv2.dilate(other, kernel), cv2.erode(other, kernel) - values
    return np.asarray(np.maximum(np.maximum(above, below), 0), dtype=np.float32)


def _closed(mask: NDArray[np.bool_], reach: int) -> NDArray[np.uint8]:
    return np.asarray(cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, _disc(reach)), dtype=np.uint8)


def _dilated(mask: NDArray[np.bool_], reach: int) -> NDArray[np.uint8]:
    """Two places `reach` px apart become one."""
    return np.asarray(cv2.dilate(mask.astype(np.uint8), _disc(reach)), dtype=np.uint8)


def _disc(diameter: int) -> NDArray[np.uint8]:
    size = diameter | 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)), dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class _Components:
    """labels: h×w, 0 for what is outside of all.   boxes: (x, y, width, height) by label."""

    labels: NDArray[np.int32]
    boxes: tuple[tuple[int, int, int, int], ...]


def _components(mask: NDArray[np.uint8]) -> _Components:
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    return _Components(
        labels=labels.astype(np.int32), boxes=tuple((int(x), int(y), int(w), int(h)) for x, y, w, h, _ in stats)
    )


def _part(grown: _Components, index: int, changed: NDArray[np.bool_], levels: NDArray[np.float32]) -> _Part:
    """The changed pixels of one component, boxed tightly."""
    x, y, width, height = grown.boxes[index]
    here = (slice(y, y + height), slice(x, x + width))
    own = changed[here] & (grown.labels[here] == index)
    ys, xs = np.nonzero(own)
    box = Box(x + int(xs.min()), y + int(ys.min()), x + int(xs.max()) + 1, y + int(ys.max()) + 1)
    return _Part(box=box, area=float(own.sum()), total=float(levels[here][own].sum(dtype=np.float64)))


def _merged(parts: list[_Part]) -> list[_Part]:
    """Parts of which half the smaller box lies in the other, joined until none do."""
    waiting, done = list(parts), list[_Part]()
    while waiting:
        part = waiting.pop()
        near = [p for p in done if _overlap(part.box, p.box) >= 0.5]
        if not near:
            done.append(part)
            continue
        done = [p for p in done if p not in near]
        for p in near:
            part = _Part(box=part.box.union(p.box), area=part.area + p.area, total=part.total + p.total)
        # The grown box may now reach parts that were far from each of its own.
        waiting.append(part)
    return done


def _overlap(a: Box, b: Box) -> float:
    """The share 0..1 of the smaller box that both cover."""
    common = a.intersection(b)
    return 0.0 if common is None else common.area / min(a.area, b.area)
