"""Separates a color or exposure change of the whole picture from a change of some place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.rank import at_rank, median

_Levels: TypeAlias = NDArray[np.float64]
"""256 values: what each level of a channel becomes."""

MAX_OFFSET: Final = 64.0
"""Levels at mid gray. A larger change is shown, not removed."""
_MOST_LEVELS = (0.02, 0.98)
_ENOUGH_LEVELS = 16
_MOST_CONTRAST = 2.0
"""A change of exposure at most doubles or halves contrast, between the 2 % and the 98 % level where these are 16 apart."""
_LEAST_MIX = 0.15
"""Determinant under which a mix of channels makes a picture gray: an edit."""
_LEAST_BIAS = 0.75
_SURE_PLACES = 20
"""Levels: what a level became, in the median of its pixels, is itself in the mean of all levels that occur so often. A
gamma of 0.95, a saturation of 0.8 or an offset of 1 moves it by more than 0.75; an edit or compression by less."""
_RIGHT = 1.0
"""Levels that single channels may leave: then a mix of them explains no more."""
_MIX_LEAVES = 0.85
"""Share of what single channels leave; a mix of them has to leave less, or it is not taken."""
_MOST_BEND = 24.0
"""Levels; a picture that differs by more from what its curve says, in the median, is another one and has no bends."""
_CELLS = 8
_CELLS_THAT_MAY_SUFFER = 0.25
_SAMPLES = 20_000
_LEAST_PLACES = 1_000
"""In a smaller picture single px are compared, not their means."""
_STEPS = 6
_STEADY = 0.02
"""Levels; a step that changes less is the last."""
_POWERS = np.array([1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.15, 1.3, 1.5, 1.75, 2.0])
_OF_BENDS = 0.004
"""Levels of error that a bend by one level counts for when a power is chosen."""
_OF_POWER = 0.2
"""Levels of error for a power e times as large: where few levels occur, no power is told from another."""
_RIDGE = np.diag([1e-9, 1e-3, 3e-3, 1e-2])
"""A few levels cannot tell gain from offset, nor a bend from either."""
_CAP = 16.0
"""Levels; a larger error counts no more."""
_KNOTS = np.linspace(0, 255, 33)
_NEAREST_KNOT = np.rint(np.arange(256) / 255 * (len(_KNOTS) - 1)).astype(int)
"""Of each level."""
_LEVELS = np.arange(256.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tone:
    """What the whole picture's colors became: channels are mixed, then each goes by a curve."""

    mix: NDArray[np.float64] | None = None
    """3×4: R, G, B and 1 to R, G, B, in levels; None where the channels stay apart."""
    curves: NDArray[np.float32] | None = None
    """256×3 float32, 0..255: what each level of each channel becomes after the mix; None for no change."""

    @property
    def neutral(self) -> bool:
        """True if nothing changes."""
        return self.curves is None

    @property
    def at_mid_gray(self) -> tuple[float, float, float]:
        """What is added to a level of 128, by channel."""
        r, g, b = (self.applied(np.full((1, 1, 3), 128, np.uint8)).ravel() - 128).tolist()
        return r, g, b

    def most(self, rgb: RGB) -> float:
        """Return the change in levels, 0..255, that 98 % of an H×W×3 uint8 picture's values do not exceed."""
        some = np.ascontiguousarray(rgb[::4, ::4])
        return max(at_rank(np.abs(self.applied(some) - some)[..., channel], _MOST_LEVELS[1]) for channel in range(3))

    def applied(self, rgb: RGB) -> NDArray[np.float32]:
        """Return H×W×3 uint8 RGB as H×W×3 float32, toned, 0..255."""
        return np.asarray(rgb if self.curves is None else self._toned(rgb, self.curves), dtype=np.float32)

    def rounded(self, rgb: RGB) -> RGB:
        """Return H×W×3 uint8 RGB, toned, as uint8."""
        return rgb if self.curves is None else self._toned(rgb, np.rint(self.curves).astype(np.uint8))

    def _toned(self, rgb: RGB, curves: NDArray[Any]) -> NDArray[Any]:
        return cv2.LUT(rgb if self.mix is None else cv2.transform(rgb, self.mix), curves.reshape(1, 256, 3))


def estimate_tone(first: RGB, second: RGB) -> Tone:
    """Return the tone that turns `first` into `second` over the whole picture; neutral where there is none.

    first, second: h×w×3 uint8 RGB, aligned. What is fitted follows the pixels that agree with it (edited places drop out).
    It is kept only if it makes no more than a quarter of an 8×8 grid's cells worse: a change of one large object is not a
    change of the picture.
    """
    step = max(1, int(np.sqrt(first.shape[0] * first.shape[1] / _SAMPLES)))
    a, b = (np.ascontiguousarray(rgb[::step, ::step]) for rgb in (first, second))
    if _bias(a, b) < _LEAST_BIAS:
        return Tone()
    plain = _left(Tone(), a, b)
    tone, left = _best(None, a, b)
    mix = _mix(a, b) if left > _RIGHT else None
    if mix is not None:
        mixed, of_mixed = _best(mix, a, b)
        if of_mixed < _MIX_LEAVES * left:
            tone, left = mixed, of_mixed
    if max(map(abs, tone.at_mid_gray)) > MAX_OFFSET or not _keeps_order(tone, a) or left > plain:
        return Tone()
    # On means of 3×3 px: where both pictures have grain, a flatter curve leaves less of single px, and helps nothing.
    # A small picture has too few places for that.
    if a.shape[0] * a.shape[1] >= _LEAST_PLACES:
        a, b = (_means(rgb, step) for rgb in (first, second))
    before, after = (_by_cell(_largest(np.abs(rgb - b))) for rgb in (a.astype(np.float32), tone.applied(a)))
    helps = after.mean() < before.mean() - 0.1
    return tone if helps and np.mean(after > before + 1.0) <= _CELLS_THAT_MAY_SUFFER else Tone()


def _bias(a: RGB, b: RGB) -> float:
    """Return by how much levels moved in one direction, in the mean of the levels and in the channel that moved most."""
    most = 0.0
    for levels, became in _told(a, b).values():
        medians, weights = _level_medians(levels, became)
        weights = np.where(weights**2 >= _SURE_PLACES, weights, 0.0)
        if weights.any():
            most = max(most, float(np.average(np.abs(medians - _LEVELS), weights=weights)))
    return most


def _best(mix: NDArray[np.float64] | None, a: RGB, b: RGB) -> tuple[Tone, float]:
    """Return the tone after a mix, with the power that fits best or with none, and what it leaves."""
    mixed = a if mix is None else np.asarray(cv2.transform(a, mix), dtype=np.uint8)
    tones = [Tone(mix=mix, curves=_curves(mixed, b, power)) for power in dict.fromkeys((1.0, _power(mixed, b)))]
    return min(((tone, _left(tone, a, b)) for tone in tones), key=lambda found: found[1])


def _left(tone: Tone, a: RGB, b: RGB) -> float:
    """Return the mean difference in levels that a tone leaves, each capped. Common levels count less than their pixels."""
    error, green = np.minimum(_largest(np.abs(tone.applied(a) - b)), _CAP), a[..., 1]
    weights = 1 / np.sqrt(np.maximum(1, np.bincount(green.ravel(), minlength=256)))
    return float(np.average(error, weights=weights[green]))


def _keeps_order(tone: Tone, rgb: RGB) -> bool:
    """Return True if the levels that occur stay apart and in order: a negative, or a picture made flat, is an edit."""
    assert tone.curves is not None
    mixed = rgb if tone.mix is None else np.asarray(cv2.transform(rgb, tone.mix), dtype=np.uint8)
    for channel in range(3):
        low, high = (int(at_rank(mixed[..., channel], share)) for share in _MOST_LEVELS)
        slope = float(tone.curves[high, channel] - tone.curves[low, channel]) / max(1, high - low)
        if high - low >= _ENOUGH_LEVELS and not 1 / _MOST_CONTRAST <= slope <= _MOST_CONTRAST:
            return False
    return True


def _mix(a: RGB, b: RGB) -> NDArray[np.float64] | None:
    """Return the 3×4 mix of channels by reweighted least squares (Tukey); None for too few pixels, or where it is an edit.

    An edit makes a picture gray, or a channel of more of another one than of itself.
    """
    inner = ((a > 2) & (a < 253) & (b > 2) & (b < 253)).all(axis=2)
    if np.count_nonzero(inner) < max(64, 0.05 * inner.size):
        return None
    x, y = a[inner].astype(np.float64), b[inner].astype(np.float64)
    x = np.column_stack([x, np.full(len(x), 255.0)])
    solved = np.eye(4)[:, :3]
    # What is said of a gray picture's channels apart says nothing: it stays as it is.
    ridge = len(x) * np.diag([4.0, 4.0, 4.0, 0.0])
    for _ in range(_STEPS):
        error = y - x @ solved
        size = np.sqrt((error * error).sum(axis=1))
        scale = max(1.0, 1.4826 * median(size) / 1.5)
        weight = np.maximum(0.0, 1 - (size / (4 * scale)) ** 2) ** 2
        weighted = x * weight[:, None]
        change = np.linalg.solve(weighted.T @ x + ridge * float(weight.mean()), weighted.T @ (y - x @ np.eye(4)[:, :3]))
        last, solved = solved, np.eye(4)[:, :3] + change
        if np.abs(solved - last).max() < _STEADY / 255:
            break
    mix = solved.T.copy()
    if np.linalg.det(mix[:, :3]) < _LEAST_MIX or (np.diag(mix) < mix[:, :3].max(axis=1)).any():
        return None
    mix[:, 3] *= 255
    return mix


def _curves(a: RGB, b: RGB, power: float) -> NDArray[np.float32]:
    """Return 256×3: what each level of each channel became: a power with gain, offset and two bends, and what these leave.

    Too few pixels leave the levels of a channel as they are.
    """
    basis, curves = _basis(power), [_LEVELS] * 3
    for channel, (levels, became) in _told(a, b).items():
        smooth = np.clip(_fitted(levels, became, basis), 0, 255)
        curves[channel] = np.clip(smooth + _bend(a[..., channel].ravel(), b[..., channel].ravel(), smooth), 0, 255)
    return np.stack(curves, axis=1, dtype=np.float32)


def _told(a: RGB, b: RGB) -> dict[int, tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Return channel → its levels in both pictures, without clipped ones, for the channels with enough of them."""
    told = {}
    for channel in range(3):
        x, y = a[..., channel].ravel(), b[..., channel].ravel()
        inner = (x > 2) & (x < 253) & (y > 2) & (y < 253)
        if np.count_nonzero(inner) >= max(64, 0.05 * x.size):
            told[channel] = (x[inner], y[inner])
    return told


def _basis(power: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return …×256×4 of 1, u, u(1−u), u(1−u)(1−2u), where u is the level, as 0..1, to each of these powers."""
    u = (_LEVELS / 255) ** np.asarray(power)[..., None]
    bend = u * (1 - u)
    return np.stack([np.ones_like(u), u, bend, bend * (1 - 2 * u)], axis=-1)


_BASES: Final = _basis(_POWERS)


def _power(a: RGB, b: RGB) -> float:
    """Return the power that fits the median of what each level of each channel became best, with the smallest bends.

    A polynomial bends as gamma does in the middle, and is wrong at both ends.
    """
    cost = _OF_POWER * np.abs(np.log(_POWERS))
    for levels, became in _told(a, b).values():
        medians, weights = _level_medians(levels, became)
        solved = _of_medians(medians, weights, _BASES)
        error = np.abs(medians - 255 * _BASES[..., 1] - (_BASES @ solved[..., None])[..., 0])
        # Many powers with bends fit the levels that occur. The one that needs no bends is right beyond them, too.
        cost += np.average(np.minimum(error, _CAP), axis=1, weights=weights) + _OF_BENDS * np.abs(solved[:, 2:]).sum(axis=1)
    return float(_POWERS[int(np.argmin(cost))])


def _level_medians(levels: NDArray[np.uint8], became: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two times 256 values: the median of what each level became, and its weight, 0 where it does not occur."""
    # Sorted by level and then by what it became, each level's median stands in the middle of its run.
    ordered = np.sort(levels.astype(np.int32) * 256 + became)
    ends = np.searchsorted(ordered, np.arange(257) * 256)
    middle = np.minimum((ends[:-1] + ends[1:]) // 2, len(ordered) - 1)
    return (ordered[middle] % 256).astype(np.float64), np.sqrt(np.diff(ends))


def _of_medians(medians: _Levels, weights: _Levels, basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the …×4 coefficients over …×256×4 that leave the least of the levels' medians, by absolute differences."""
    weight, change = weights, medians - 255 * basis[..., 1]
    for _ in range(4):
        weighted = (basis * weight[..., None]).swapaxes(-1, -2)
        solved = np.linalg.solve(weighted @ basis + _RIDGE, weighted @ change[..., None])
        weight = weights / np.maximum(1.0, np.abs(change - (basis @ solved)[..., 0]))
    return np.asarray(solved[..., 0])


def _fitted(levels: NDArray[np.uint8], became: NDArray[np.uint8], basis: NDArray[np.float64]) -> _Levels:
    """Return the curve over `basis` by reweighted least squares (Tukey)."""
    plain = 255 * basis[:, 1]
    change = became - plain[levels]
    # Begun where rare levels fit, too: from the common ones alone, they would pass for an edit.
    solved = _of_medians(*_level_medians(levels, became), basis)
    for _ in range(_STEPS):
        error = change - (basis @ solved)[levels]
        scale = max(1.0, 1.4826 * median(np.abs(error)))
        weight = np.maximum(0.0, 1 - (error / (4 * scale)) ** 2) ** 2
        # Pixels of one level have one row of the basis: their sums are enough.
        weights, changes = (np.bincount(levels, weights=w, minlength=256) for w in (weight, weight * change))
        normal = (basis.T * weights) @ basis + _RIDGE * float(weight.sum())
        last, solved = solved, np.asarray(np.linalg.solve(normal, basis.T @ changes), dtype=np.float64)
        if np.abs(solved - last).max() < _STEADY:
            break
    return np.asarray(plain + basis @ solved)


def _bend(x: NDArray[np.uint8], y: NDArray[np.uint8], smooth: _Levels) -> _Levels:
    """Return what a smooth curve leaves, at most 24 levels: the mean of the pixels near each knot, shrunk where few."""
    error = y - smooth[x]
    typical = median(np.abs(error))
    if typical > _MOST_BEND:
        # The curve says nothing of this picture: another one, or a white one, is no bend of it.
        return np.zeros(256)
    near = np.abs(error) < 3 * max(1.0, 1.4826 * typical) + 4
    nearest = _NEAREST_KNOT[x[near]]
    counts = np.bincount(nearest, minlength=len(_KNOTS))
    sums = np.bincount(nearest, weights=error[near], minlength=len(_KNOTS))
    means = np.clip(sums / np.maximum(counts, 1), -_MOST_BEND, _MOST_BEND)
    few = 0.001 * x.size
    return np.asarray(np.interp(_LEVELS, _KNOTS, means * counts / (counts + few)), dtype=np.float64)


def _means(rgb: RGB, step: int) -> RGB:
    """Return the means of 3×3 px around every `step`-th px, mirrored at the border."""
    near = (np.pad(np.arange(side), 1, mode="reflect") for side in rgb.shape[:2])
    rows, columns = (at[np.arange(0, len(at) - 2, step)[:, None] + (0, 1, 2)].ravel() for at in near)
    return np.asarray(cv2.blur(rgb[rows].take(columns, axis=1), (3, 3)), dtype=np.uint8)[1::3, 1::3]


def _largest(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return h×w of h×w×3: the largest of a place's three. A reduction over so short an axis takes ten times as long."""
    return np.maximum(np.maximum(values[..., 0], values[..., 1]), values[..., 2])


def _by_cell(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the median of each cell of an 8×8 grid over an h×w array, which may leave some px out at the end."""
    down, across = (min(_CELLS, side) for side in values.shape)
    h, w = values.shape[0] // down, values.shape[1] // across
    cells = values[: down * h, : across * w].reshape(down, h, across, w).swapaxes(1, 2).reshape(down * across, h * w)
    middle = h * w // 2
    return np.sort(cells, axis=1)[:, middle]
