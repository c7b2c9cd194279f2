"""Separates a colour or exposure change of the whole picture from a change of some place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB, profile_name, read_with_profile
from editloupe.imaging.rank import at_rank, median

Curve: TypeAlias = tuple[float, float, float, float]

MAX_OFFSET: Final = 64.0
"""Levels at mid grey. A larger change is shown, not removed."""
_MOST_LEVELS = (0.02, 0.98)
_ENOUGH_LEVELS = 16
_MOST_BEND = 24.0
"""Levels; a picture that differs by more from what its curve says, in the median, is another one and has no bends."""
_MOST_CONTRAST = 2.0
"""A change of exposure at most doubles or halves contrast, between the 2 % and the 98 % level where these are 16 apart."""
_PROFILE_SIDE = 64
"""px; longest side of the copies on which a lost profile is sought, so small that a shift and noise count for little."""
_COLOURED = 3
_LEAST_COLOURED = 0.01
"""A profile is sought where it moves at least 1 % of the pixels, by at least 3 levels; grey ones it moves by none."""
_CELLS = 8
_CELLS_THAT_MAY_SUFFER = 0.25
_SAMPLES = 20_000
_STEPS = 6
_STEADY = 0.02
"""Levels; a step that changes less is the last."""
_KNOTS = np.linspace(0, 255, 33)
_NEAREST_KNOT = np.rint(np.arange(256) / 255 * (len(_KNOTS) - 1)).astype(int)
"""Of each level."""
_STRAIGHT: Curve = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Tone:
    """What the whole picture's levels became, for each of R, G, B: second ≈ first + a + b·x + c·x(1−x) + d·x(1−x)(1−2x)."""

    curves: tuple[Curve, Curve, Curve] = (_STRAIGHT, _STRAIGHT, _STRAIGHT)
    """(a, b, c, d) by channel, in levels of 0..255; x is the first picture's level ÷ 255.

    a is an offset, b a gain, c bends the curve as gamma does, d makes it an S.
    """
    bends: tuple[tuple[float, ...], ...] = ()
    """What the curves leave, by channel, in levels at 33 knots from 0 to 255: clipping, and steep ends. () for nothing."""

    @property
    def neutral(self) -> bool:
        return self == Tone()

    @property
    def at_mid_grey(self) -> tuple[float, float, float]:
        """What is added to a level of 128, by channel."""
        r, g, b = (float(_basis(np.array([128.0]))[0] @ np.array(curve)) for curve in self.curves)
        return r, g, b

    def most(self, rgb: RGB) -> float:
        """Return the largest change in levels, 0..255, of the levels that occur in an H×W×3 uint8 picture (2 to 98 %)."""
        change = np.abs(self.table - np.arange(256)[:, None])
        spans = (_span(rgb[::4, ::4, channel]) for channel in range(3))
        return max(float(change[low : high + 1, channel].max()) for channel, (low, high) in enumerate(spans))

    @property
    def table(self) -> NDArray[np.float32]:
        """256×3 float32, 0..255: what each level of each channel became."""
        levels = np.arange(256, dtype=np.float64)
        added = _basis(levels) @ np.array(self.curves).T
        if self.bends:
            added += np.stack([np.interp(levels, _KNOTS, bend) for bend in self.bends], axis=1)
        return np.asarray(np.clip(levels[:, None] + added, 0, 255), dtype=np.float32)

    def applied(self, rgb: RGB) -> NDArray[np.float32]:
        """Return H×W×3 uint8 RGB as H×W×3 float32, toned and clipped to 0..255."""
        return np.asarray(cv2.LUT(rgb, self.table.reshape(1, 256, 3)), dtype=np.float32)

    def rounded(self, rgb: RGB) -> RGB:
        """Return H×W×3 uint8 RGB, toned, as uint8."""
        if self.neutral:
            return rgb
        table = np.rint(self.table).astype(np.uint8).reshape(1, 256, 3)
        return np.asarray(cv2.LUT(rgb, table), dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class LostProfile:
    """An ICC profile that one image of a pair has and the other seems to have lost."""

    name: str
    """What it calls itself, such as "Display P3"."""
    image: Literal[1, 2]
    """The one that lacks it."""


def undo_lost_profile(
    image_1: RGB, image_2: RGB, profiles: tuple[bytes | None, bytes | None]
) -> tuple[RGB, RGB, LostProfile | None]:
    """Return both images in sRGB, the one that lost the other's ICC profile read with it; and what was lost, if so.

    image_1, image_2: H×W×3 uint8 RGB, any sizes.
    profiles: by which each was brought to sRGB; None for an image that had none, or sRGB's own.
    A profile is lost where only one image has it and the levels of the other, read with it, agree at least twice as well:
    the median difference of the places that it moves falls to half or less.
    """
    if (profiles[0] is None) == (profiles[1] is None):
        return image_1, image_2, None
    profile = profiles[0] or profiles[1] or b""
    bare, tagged = (image_2, image_1) if profiles[0] else (image_1, image_2)
    factor = min(1.0, _PROFILE_SIDE / max(tagged.shape[:2]))
    size = (max(1, round(tagged.shape[1] * factor)), max(1, round(tagged.shape[0] * factor)))
    there, here = (
        np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), dtype=np.uint8) for rgb in (tagged, bare)
    )
    read = read_with_profile(here, profile)
    if read is None:
        return image_1, image_2, None
    moved = cv2.absdiff(read, here).max(axis=2) >= _COLOURED
    before, after = (cv2.absdiff(rgb, there).max(axis=2)[moved] for rgb in (here, read))
    if moved.mean() < _LEAST_COLOURED or np.median(after) > np.median(before) / 2:
        return image_1, image_2, None
    whole = read_with_profile(bare, profile)
    assert whole is not None
    name = profile_name(profile)
    if profiles[0]:
        return image_1, whole, LostProfile(name=name, image=2)
    return whole, image_2, LostProfile(name=name, image=1)


def estimate_tone(first: RGB, second: RGB) -> Tone:
    """Return the tone that turns `first` into `second` over the whole picture; neutral where there is none.

    first, second: h×w×3 uint8 RGB, aligned. Each channel's curve is fitted to the pixels that agree with it (edited
    places drop out) and kept only if it makes no more than a quarter of an 8×8 grid's cells worse: a change of one
    large object is not a change of the picture.
    """
    step = max(1, int(np.sqrt(first.shape[0] * first.shape[1] / _SAMPLES)))
    a, b = (np.ascontiguousarray(rgb[::step, ::step]) for rgb in (first, second))
    channels = [(a[..., c].ravel(), b[..., c].ravel()) for c in range(3)]
    curves = [_robust_curve(x, y) for x, y in channels]
    bends = tuple(_bend(x, y, curve) for (x, y), curve in zip(channels, curves, strict=True))
    tone = Tone(curves=(curves[0], curves[1], curves[2]), bends=bends)
    if tone.neutral or max(map(abs, tone.at_mid_grey)) > MAX_OFFSET or not _keeps_order(tone, a):
        return Tone()
    before, after = (_by_cell(_largest(np.abs(rgb - b))) for rgb in (a.astype(np.float32), tone.applied(a)))
    helps = after.mean() < before.mean() - 0.1
    return tone if helps and np.mean(after > before + 1.0) <= _CELLS_THAT_MAY_SUFFER else Tone()


def _keeps_order(tone: Tone, rgb: RGB) -> bool:
    """Return True if the levels that occur stay apart and in order: a negative, or a picture made flat, is an edit."""
    table = tone.table
    for channel in range(3):
        low, high = _span(rgb[..., channel])
        slope = (float(table[high, channel]) - float(table[low, channel])) / max(1, high - low)
        if high - low >= _ENOUGH_LEVELS and not 1 / _MOST_CONTRAST <= slope <= _MOST_CONTRAST:
            return False
    return True


def _span(channel: NDArray[np.uint8]) -> tuple[int, int]:
    """Return the levels between which all but the least and the greatest 2 % lie."""
    low, high = (int(at_rank(channel, share)) for share in _MOST_LEVELS)
    return low, high


def _basis(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return N×4 of 1, x, x(1−x), x(1−x)(1−2x)."""
    x = levels / 255
    bend = x * (1 - x)
    return np.stack([np.ones_like(x), x, bend, bend * (1 - 2 * x)], axis=1)


def _robust_curve(x: NDArray[np.uint8], y: NDArray[np.uint8]) -> Curve:
    """Return (a, b, c, d) of y − x by reweighted least squares (Tukey). Too few pixels give a straight curve."""
    unclipped = (x > 2) & (x < 253) & (y > 2) & (y < 253)
    if unclipped.sum() < max(64, 0.05 * x.size):
        return _STRAIGHT
    levels = x[unclipped]
    whole = y[unclipped].astype(np.int16) - levels
    change = whole.astype(np.float64)
    basis = _basis(np.arange(256.0))
    # A few levels cannot tell gain from offset, nor a bend from either.
    ridge = np.diag([0.0, 1e-3, 3e-3, 1e-2]) * len(levels)
    solved = np.array([median(whole), 0.0, 0.0, 0.0])
    for _ in range(_STEPS):
        error = change - (basis @ solved)[levels]
        scale = max(1.0, 1.4826 * median(np.abs(error)))
        weight = np.maximum(0.0, 1 - (error / (4 * scale)) ** 2) ** 2
        # Pixels of one level have one row of the basis: their sums are enough.
        weights, changes = (np.bincount(levels, weights=w, minlength=256) for w in (weight, weight * change))
        normal = (basis.T * weights) @ basis + ridge * float(weight.mean())
        last, solved = solved, np.linalg.solve(normal, basis.T @ changes)
        if np.abs(solved - last).max() < _STEADY:
            break
    a, b, c, d = solved.tolist()
    return a, b, c, d


def _bend(x: NDArray[np.uint8], y: NDArray[np.uint8], curve: Curve) -> tuple[float, ...]:
    """Return what the curve leaves at each knot, at most 24 levels: the mean of the pixels near it, shrunk where few."""
    table = np.clip(np.arange(256) + _basis(np.arange(256.0)) @ np.array(curve), 0, 255)
    error = y - table[x]
    typical = median(np.abs(error))
    if typical > _MOST_BEND:
        # The curve says nothing of this picture: another one, or a white one, is no bend of it.
        return (0.0,) * len(_KNOTS)
    scale = max(1.0, 1.4826 * typical)
    near = np.abs(error) < 3 * scale + 4
    nearest = _NEAREST_KNOT[x[near]]
    counts = np.bincount(nearest, minlength=len(_KNOTS))
    sums = np.bincount(nearest, weights=error[near], minlength=len(_KNOTS))
    means = np.clip(sums / np.maximum(counts, 1), -_MOST_BEND, _MOST_BEND)
    few = 0.001 * x.size
    return tuple((means * counts / (counts + few)).tolist())


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
