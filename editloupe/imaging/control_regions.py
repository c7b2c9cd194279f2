"""Control regions: where two images do not differ, one for each difference and of about its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.align import luma
from editloupe.imaging.differences import CLEAR, Differences
from editloupe.imaging.geometry import expand
from editloupe.values import Box

_SHRINK: Final = (1.0, 0.7, 0.5, 0.35, 0.25)
"""Sizes to try, as shares of the region's sides. The first is taken where a place with its context holds no difference."""
_GRID: Final = 33
"""Number of places tried in each direction."""
_LEAST_SIDE_PX: Final = 6.0


@dataclass(frozen=True, kw_only=True)
class ControlRegion:
    """A place without a difference that stands for a region with one."""

    box: Box
    """Whole px of image 1."""
    busy: float
    """Share 0..1 of the place and its context that differs all the same; 0 where the images leave room for a better one."""
    mean: float
    """Mean difference of the place, in levels 0..255."""


def find_control_regions(found: Differences, context: Callable[[Box], Box] | None = None) -> tuple[ControlRegion, ...]:
    """Return one control for each of `found.regions`, in their order. They do not overlap as far as there is room.

    context: what is shown of image 1 with a box, both in px; None takes λ(s) of DLEBench Eq. 1.
    A control holds no difference in itself and in the context in which it would be shown. Of the
    places that differ least it is the one with as much detail as the region, so that no bare wall stands for an object. It
    is smaller than the region only where every place of that size differs. Where the images differ everywhere, it is the
    place that differs least, and `busy` says so. The same images give the same controls.
    """
    grey = luma(found.alignment.first).astype(np.float32)
    edges = cv2.magnitude(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    unfit = found.changed | (found.levels > CLEAR) | found.alignment.masked
    width, height = found.alignment.size_1
    shown = context or (lambda box: expand(box, width=width, height=height))
    busy, levels, detail = _Means(unfit), _Means(found.levels), _Means(edges)
    taken = np.zeros(found.levels.shape, dtype=bool)
    controls: list[ControlRegion] = []
    for region in found.regions:
        control = _control(region.box, found, shown, busy, levels, detail, _Means(taken))
        controls.append(control)
        taken[_window(control.box, found)] = True
    return tuple(controls)


def swap_regions(found: Differences, controls: Sequence[ControlRegion]) -> Differences:
    """Return `found` with each region moved to its control.

    The regions keep the strength and the mean that were measured where they really are.
    """
    moved = []
    for region, control in zip(found.regions, controls, strict=True):
        # At a smaller place there are proportionally fewer changed pixels.
        share = min(1.0, control.box.area / region.box.area)
        moved.append(replace(region, box=control.box, changed_px=region.changed_px * share))
    return replace(found, regions=tuple(moved))


class _Means:
    """Means over rectangles of a map, in constant time."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        self._sums = cv2.integral(values.astype(np.float32), sdepth=cv2.CV_64F)

    def mean(self, window: tuple[slice, slice]) -> float:
        y, x = window
        s = self._sums
        total = float(s[y.stop, x.stop] - s[y.start, x.stop] - s[y.stop, x.start] + s[y.start, x.start])
        return total / float((y.stop - y.start) * (x.stop - x.start))


def _control(
    box: Box, found: Differences, shown: Callable[[Box], Box], busy: _Means, levels: _Means, detail: _Means, taken: _Means
) -> ControlRegion:
    width, height = found.alignment.size_1
    ground = found.alignment.common()
    wanted = detail.mean(_window(box, found))
    fallback: ControlRegion | None = None
    for shrink in _SHRINK:
        w, h = (min(max(_LEAST_SIDE_PX, round(shrink * side)), side) for side in (box.width, box.height))
        tried: list[tuple[tuple[float, ...], ControlRegion]] = []
        for y in np.linspace(ground.y0, max(ground.y0, ground.y1 - h), _GRID):
            for x in np.linspace(ground.x0, max(ground.x0, ground.x1 - w), _GRID):
                control = Box(x, y, x + w, y + h).rounded_out().clipped(width=width, height=height)
                context, window = _window(shown(control), found), _window(control, found)
                share = busy.mean(context)
                # Whole levels: within one, what a place holds counts for more.
                level, unlike = float(round(levels.mean(context))), abs(detail.mean(window) - wanted)
                order = (share, taken.mean(window), level, unlike, taken.mean(context))
                tried.append((order, ControlRegion(box=control, busy=share, mean=levels.mean(window))))
        least, best = min(tried, key=lambda t: t[0])
        fallback = fallback or best
        if least[:2] == (0.0, 0.0):
            return best
    assert fallback is not None, "every image has room for a place"
    return fallback


def _window(box: Box, found: Differences) -> tuple[slice, slice]:
    """Return a box in px of image 1 as (rows, columns) of the maps, at least one px each."""
    sx, sy = found.alignment.scale
    height, width = found.levels.shape
    x0, y0 = min(int(box.x0 * sx), width - 1), min(int(box.y0 * sy), height - 1)
    x1, y1 = min(width, max(x0 + 1, round(box.x1 * sx))), min(height, max(y0 + 1, round(box.y1 * sy)))
    return slice(y0, y1), slice(x0, x1)
