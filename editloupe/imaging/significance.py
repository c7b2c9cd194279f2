"""Measures how surprising each place's residual is, at several scales, in units of the picture's own noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.rank import at_rank, median
from editloupe.imaging.residual import Map, Residual

Number = TypeVar("Number", np.uint8, np.float32)

SCALES: Final = (0.8, 2.0)
"""Standard deviations in px of the half-size maps over which signed differences are averaged."""
_FLOOR_LIGHT = 0.8
_FLOOR_COLOR = 0.6
_FLOOR_MEAN = 0.15
"""Levels that count as noise in any case: rounding leaves 0.3 to 0.4; over many px, a tone is known to about 0.15."""
_OF_GRADIENT = 0.04
"""Noise at least this share of the local gradient: registration is good to a few hundredths of a px."""
_CLIP = 6.0
"""Averages count no pixel for more, so that a strong object does not spread over the reach of the wide ones."""
_SAMPLES = 40_000
"""Places at which noise is measured: a hundredth of them, the smallest group, still gives a median to 5 %."""
_GROUP_ENDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Groups by rank of activity; the last ones are small, since noise grows fastest where activity is highest."""
_STEPS_PER_E = 40
"""Activity in logarithmic steps of 2.5 %, so that 256 of them reach from 0 to 600 levels a px."""
_TAIL_AT_MOST = 6.0
"""Tails of noise may be so many times as long as a normal distribution's; longer ones are an edit in the group."""
_MOST_NOISE = 3.0
_MOST_SLIP = 1.0
_MOST_GRAIN = 3.0
"""Noise is at most 3 levels, plus a slip of a px over the gradient, plus three times the grain that one of the pictures has
for itself. Compression, autoencoders and local drift leave a third of the first two at most places."""
_MOST_SPREAD = 0.7
"""Units of noise that the wider averages leave where nothing changed: 0.4 by autoencoders, 0.7 by drift, 1 by edits."""
_CELLS = 24
"""Rows and columns of cells in which a large edit is told from noise."""
_LOW = 0.25
_LOW_OF_NORMAL = 0.3186
"""Share of the sizes below which a picture's noise is read off, and the size there of normal noise: an edit over three
quarters of a kind of place leaves it as it is."""
_STANDS_OUT = 4.0
_MOST_OUT = 0.4
"""Standard deviations from which a place stands out, and the share of such places from which a cell changed as a whole."""
_LEAST_CALM = 0.15
"""Least share of the cells that must be left to measure noise on."""
_SLIP = 0.25
"""px of the half-size maps by which places may have slipped where nothing tells: half a px of the picture."""


@dataclass(frozen=True, kw_only=True)
class SignificanceMaps:
    """The evidence at all scales, and the noise it is measured in."""

    evidence: tuple[Map, ...]
    """h×w of the half size at each of `SCALES`, ≥ 0, in units of its own noise: the largest of light and the two colors."""
    together: Map
    """h×w: the largest of the scales, of light and both colors together (the root of their squares' sum), so that what is
    faint in each of them counts."""
    noise: float
    """Levels of light at the finest scale and a typical place."""
    color_noise: float
    """Levels of Cb or Cr at the finest scale and a typical place."""


def significance(residual: Residual) -> SignificanceMaps:
    """Return means of the residual at two scales, each divided by its typical size at places as active."""
    calm = unchanged(residual)
    of_light = _Calibration(residual.activity, residual.grain, calm)
    of_color = _Calibration(residual.color_activity, residual.color_grain, calm)
    planes = (
        (residual.light, of_light, _FLOOR_LIGHT),
        (residual.blue, of_color, _FLOOR_COLOR),
        (residual.red, of_color, _FLOOR_COLOR),
    )
    largest, noise = _means(*planes[0])
    together = [one.copy() for one in largest]
    color_noise = 0.0
    for plane in planes[1:]:
        means, typical = _means(*plane)
        color_noise = max(color_noise, typical)
        # Into the maps at hand: at every scale of every plane at once, these would be the most memory of all.
        for one, both, other in zip(largest, together, means, strict=True):
            np.maximum(one, other, out=one)
            cv2.magnitude(both, other, both)
    of_all = reduce(np.maximum, together)
    return SignificanceMaps(evidence=tuple(largest), together=of_all, noise=noise, color_noise=color_noise)


def unchanged(residual: Residual) -> NDArray[np.bool_]:
    """Return h×w: the places that are shown, without the cells that changed as a whole. All that are shown where hardly any
    place would be left.

    A large edit is told from noise by its place: noise is mixed over a picture, an edit fills cells of it.
    """
    shown = residual.shown
    height, width = shown.shape
    step = max(1, int(np.sqrt(shown.size / _SAMPLES)))
    places = _places(shown, step)
    cell = _cells(places)
    out = np.zeros(len(cell), dtype=bool)
    counts = np.bincount(cell, minlength=_CELLS * _CELLS)
    for activity, floor, planes in (
        (residual.activity, _FLOOR_LIGHT, (residual.light,)),
        (residual.color_activity, _FLOOR_COLOR, (residual.blue, residual.red)),
    ):
        level = _at(activity, places, step)
        groups = np.array_split(np.argsort(_steps(level), kind="stable"), 8)
        least = _OF_GRADIENT * level
        for plane in planes:
            values = _at(plane, places, step)
            values = np.abs(values - _mode(values))
            noise = np.empty_like(values)
            for group in groups:
                noise[group] = max(floor, at_rank(values[group], _LOW) / _LOW_OF_NORMAL) if len(group) else floor
            out |= values > _STANDS_OUT * np.maximum(noise, least)
    share = np.bincount(cell, weights=out, minlength=_CELLS * _CELLS) / np.maximum(counts, 1)
    changed = (share > _MOST_OUT).reshape(_CELLS, _CELLS)
    measured = counts.reshape(_CELLS, _CELLS) > 0
    # With the cells around them, into which the rim of an edit reaches.
    for leave_out in (cv2.dilate(changed.astype(np.uint8), np.ones((3, 3), dtype=np.uint8)) > 0, changed):
        if leave_out[measured].mean() <= 1 - _LEAST_CALM:
            ys, xs = np.arange(height) * _CELLS // height, np.arange(width) * _CELLS // width
            calm = np.asarray(shown & ~leave_out[ys].take(xs, axis=1))
            return calm if calm.any() else shown
    return shown


def _mode(values: NDArray[np.float32]) -> float:
    """Return the middle of the shortest half: where most values lie, even if nearly half of them lie elsewhere."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    at = int(np.argmin(ordered[half:] - ordered[: len(ordered) - half]))
    return float((ordered[at] + ordered[at + half]) / 2)


def _means(plane: Map, calibration: _Calibration, floor: float) -> tuple[Sequence[Map], float]:
    """Return the statistic of one plane at each scale, and the finest one's typical noise in levels."""
    measured = _places(calibration.shown, 4)
    values = np.asarray(plane - np.float32(median(_at(plane, measured, 4))))
    noise = calibration.noise(values, floor=floor, of_gradient=_OF_GRADIENT)
    finest = _mean_size(values, SCALES[0])
    finest_noise = calibration.noise(finest, floor=floor / 2, of_gradient=_OF_GRADIENT)
    typical = median(_at(finest_noise, measured, 4))
    means = [np.divide(finest, finest_noise, out=finest)]
    # In place from here on: these maps are the most that is in memory at once.
    np.clip(np.divide(values, noise, out=values), -_CLIP, _CLIP, out=values)
    least = np.divide(np.float32(_FLOOR_MEAN), noise, out=noise)
    for sigma in SCALES[1:]:
        mean = _mean_size(values, sigma)
        spread = calibration.noise(mean, floor=0.0, most=_MOST_SPREAD, out=finest_noise)
        means.append(np.divide(mean, np.maximum(spread, least, out=spread), out=mean))
    return means, typical


def _mean_size(values: Map, sigma: float) -> Map:
    """Return the size of the signed mean. Noise cancels in it; a changed place does not."""
    mean = np.asarray(cv2.GaussianBlur(values, (0, 0), sigma), dtype=np.float32)
    return np.abs(mean, out=mean)


class _Calibration:
    """Measures the noise at places as active as each one: flat sky has its own measure beside foliage and lettering.

    shown: h×w, the places that are measured.
    """

    def __init__(self, activity: Map, grain: float, shown: NDArray[np.bool_]) -> None:
        self._level = _steps(activity)
        self._step = max(1, int(np.sqrt(activity.size / _SAMPLES)))
        self.shown = shown
        places = _places(shown, self._step)
        levels = _at(self._level, places, self._step)
        # Places of one level stay in one group, however many they are: on a plain ground nearly all are.
        until = np.cumsum(np.bincount(levels, minlength=256))
        ends = np.unique(np.searchsorted(until, np.floor(np.multiply(_GROUP_ENDS, len(levels) - 1)), side="right"))
        group_of = np.searchsorted(ends, np.arange(256)).astype(np.uint8)[levels]
        order = np.argsort(group_of, kind="stable")
        # Where the samples of one group after the other lie in the grid, and where each further group begins.
        self._samples = np.flatnonzero(places)[order]
        self._begins = np.flatnonzero(np.diff(group_of[order])) + 1
        groups = np.split(order, self._begins)
        self._at = np.array([float(levels[group].mean()) for group in groups])
        self._activities = np.expm1(np.arange(256) / _STEPS_PER_E)
        # Where edits fill the places of one kind, or the whole picture, their size is not its noise.
        self._most = _MOST_NOISE + _MOST_SLIP * np.expm1(self._at / _STEPS_PER_E) + _MOST_GRAIN * grain
        # Above the most active group the noise is taken to grow as the gradient does, and by no more than a slip of it.
        last = float(np.expm1(self._at[-1] / _STEPS_PER_E))
        self._growth = np.maximum(1.0, self._activities / max(1e-3, last))
        self._slip = _SLIP * np.maximum(self._activities - last, 0.0)

    def _typical(self, size: Map) -> NDArray[np.float64]:
        """Return the typical size in each group."""
        sizes = np.abs(size[:: self._step, :: self._step].ravel()[self._samples])
        return np.array([_spread(group) for group in np.split(sizes, self._begins)])

    def noise(
        self, size: Map, *, floor: float, of_gradient: float = 0.0, most: float | None = None, out: Map | None = None
    ) -> Map:
        """Return h×w float32: the standard deviation of what has the sizes |`size`|, by their median and 80 % point.

        out: where to write it; None for a new array.
        most: what it cannot exceed; None takes levels that no delivery of an unchanged picture was seen to reach.
        """
        # Of a normal distribution: half lies within 0.6745 standard deviations, 80 % within 1.2816.
        typical = np.minimum(self._typical(size), self._most if most is None else most)
        table = np.interp(np.arange(256), self._at, np.maximum(typical, floor))
        grown = table * self._growth
        table = np.minimum(grown, table + self._slip) if of_gradient else grown
        table = np.maximum(table, of_gradient * self._activities).astype(np.float32)
        return np.asarray(cv2.LUT(self._level, table.reshape(1, 256), dst=out), dtype=np.float32)


def _steps(activity: Map) -> NDArray[np.uint8]:
    """Return activity in steps of 2.5 %, of the same shape."""
    steps = np.log1p(activity)
    steps *= _STEPS_PER_E
    return np.asarray(np.clip(steps, 0, 255, out=steps), dtype=np.uint8)


def _places(shown: NDArray[np.bool_], step: int) -> NDArray[np.bool_]:
    """Return which places of every `step`-th row and column are measured: those shown, or all where none is."""
    places = shown[::step, ::step]
    return places if places.any() else np.ones_like(places)


def _at(values: NDArray[Number], places: NDArray[np.bool_], step: int) -> NDArray[Number]:
    """Return the values of `places` among every `step`-th row and column, row by row."""
    return values[::step, ::step][places]


def _cells(places: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return in which of `_CELLS` × `_CELLS` cells, row by row, each of `places` lies."""
    rows, columns = (np.arange(side) * _CELLS // side for side in places.shape)
    return np.asarray((rows[:, None] * _CELLS + columns)[places], dtype=np.intp)


def _spread(sizes: NDArray[np.float32]) -> float:
    ordered = np.sort(sizes)
    half, most = float(ordered[len(sizes) // 2]), float(ordered[len(sizes) * 4 // 5])
    # Long tails make the second larger; an edit of a fifth of the pixels would make it far larger.
    typical = half / 0.6745
    return max(typical, min(most / 1.2816, _TAIL_AT_MOST * typical))
