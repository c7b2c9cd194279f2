"""A colour or exposure change of the whole picture, told apart from a change of some place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB

MAX_OFFSET: Final = 64.0
"""Levels at mid grey. A larger change is shown, not removed."""

_GAINS = (0.7, 1.4)
_CELLS = 8
_CELLS_THAT_MAY_SUFFER = 0.25
_SAMPLE_STEP_PIXELS = 200_000


@dataclass(frozen=True, kw_only=True)
class Tone:
    """second ≈ gain · first + offset, for each of R, G, B, in levels of 0..255."""

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def neutral(self) -> bool:
        return self == Tone()

    @property
    def at_mid_grey(self) -> tuple[float, float, float]:
        """What is added to a level of 128, by channel."""
        r, g, b = (gain * 128 + offset - 128 for gain, offset in zip(self.gain, self.offset, strict=True))
        return r, g, b

    def applied(self, rgb: RGB) -> NDArray[np.float32]:
        """H×W×3 uint8 RGB as H×W×3 float32, toned and clipped to 0..255."""
        toned = rgb * np.array(self.gain, dtype=np.float32) + np.array(self.offset, dtype=np.float32)
        return np.asarray(np.clip(toned, 0, 255), dtype=np.float32)


def estimate_tone(first: RGB, second: RGB) -> Tone:
    """The tone that turns `first` into `second` over the whole picture; neutral where there is none.

    first, second: h×w×3 uint8 RGB, aligned. Each channel's line is fitted to the pixels that agree with it (edited
    places drop out) and kept only if it makes no more than a quarter of an 8×8 grid's cells worse: a change of one
    large object is not a change of the picture.
    """
    step = max(1, int(np.sqrt(first.shape[0] * first.shape[1] / _SAMPLE_STEP_PIXELS)))
    a, b = first[::step, ::step].astype(np.float32), second[::step, ::step].astype(np.float32)
    lines = [_robust_line(a[..., c].ravel(), b[..., c].ravel()) for c in range(3)]
    gains, offsets = zip(*lines, strict=True)
    tone = Tone(gain=gains, offset=offsets)
    if max(map(abs, tone.at_mid_grey)) > MAX_OFFSET or tone.neutral:
        return Tone()
    before = _by_cell(np.abs(a - b).max(axis=2))
    after = _by_cell(np.abs(tone.applied(first[::step, ::step]) - b).max(axis=2))
    helps = np.median(after) < np.median(before) - 0.25
    return tone if helps and np.mean(after > before + 1.0) <= _CELLS_THAT_MAY_SUFFER else Tone()


def _robust_line(x: NDArray[np.float32], y: NDArray[np.float32]) -> tuple[float, float]:
    """(gain, offset) of y ≈ gain · x + offset by repeated least squares on the agreeing half or more; (1, 0) in doubt."""
    unclipped = (x > 2) & (x < 253) & (y > 2) & (y < 253)
    if unclipped.sum() < 0.1 * x.size or unclipped.sum() < 64:
        return 1.0, 0.0
    x, y = x[unclipped].astype(np.float64), y[unclipped].astype(np.float64)
    gain, offset = 1.0, float(np.median(y - x))
    for _ in range(6):
        error = np.abs(y - (gain * x + offset))
        near = error <= max(4.0, 2.0 * float(np.median(error)))
        centre_x, centre_y = float(x[near].mean()), float(y[near].mean())
        spread = float(((x[near] - centre_x) ** 2).mean())
        # A nearly flat channel cannot tell gain from offset.
        gain = 1.0 if spread < 25.0 else float(((x[near] - centre_x) * (y[near] - centre_y)).mean()) / spread
        gain = min(max(gain, _GAINS[0]), _GAINS[1])
        offset = centre_y - gain * centre_x
    return gain, offset


def _by_cell(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The median of each cell of an 8×8 grid over an h×w array."""
    rows = np.array_split(values, min(_CELLS, values.shape[0]), axis=0)
    return np.array([float(np.median(c)) for row in rows for c in np.array_split(row, min(_CELLS, row.shape[1]), axis=1)])
