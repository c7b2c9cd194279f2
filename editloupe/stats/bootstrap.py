"""What every report says beside a number: an interval, how much was judged of what was asked, or why there is no number.

Intervals are percentile bootstrap intervals, resampled by cluster: the edits of one source image are drawn together, since
they share what makes them easy or hard. Percentile and not BCa: labels are few and heavily tied, so that BCa's bias term is
often infinite (every resample on one side) where the percentiles are defined, and an interval that stays inside the
figure's own range is read rightly. With fewer than some twenty clusters it is too narrow by a few points of its level
(docs/agreement.md has the measured coverage).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer

from editloupe.values import Serialisable

Floats: TypeAlias = npt.NDArray[np.float64]
OrNull: TypeAlias = Annotated[str, PlainSerializer(lambda text: text or None)]
"""Text that JSON gives as null where there is none."""

Aggregate: TypeAlias = Literal["fisher", "mean", "tanh-mean"]

RESAMPLES: Final = 2000
LEVEL: Final = 0.95
SEED: Final = 0
LEAST_DEFINED: Final = 0.9
"""Share of resamples that must have a value; below it the values left are a selection, and there is no interval."""

_AT_ONCE: Final = 2**16
"""Numbers that are drawn at a time."""
_NOTHING: Final = {True: "nothing was judged", False: "nothing was asked"}


class Undefined(ValueError):
    """The figure does not exist for these values; the message says why, in words for a table's note."""


@dataclass(frozen=True, kw_only=True)
class Drawing(Serialisable):
    """How intervals are drawn."""

    resamples: int = RESAMPLES
    level: float = LEVEL
    """Coverage of the intervals, 0 to 1."""
    seed: int = SEED


DRAWING: Final = Drawing()


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval(Serialisable):
    """Where the figure would fall in `level` of all samples of source images (0.95: 95 %)."""

    low: float
    high: float
    level: float = LEVEL


@dataclass(frozen=True, kw_only=True)
class Estimate(Serialisable):
    """One figure with what it rests on."""

    value: float | None
    """None if it does not exist; `why` then gives the reason."""
    interval: ConfidenceInterval | None = None
    """None if it cannot be computed."""
    judged: int
    """Items with what the figure needs."""
    asked: int
    """All items that should have it."""
    clusters: int = 0
    """Source images judged."""
    why: OrNull = ""
    """Why there is no value; "" if there is one."""

    @property
    def coverage(self) -> float | None:
        """Return judged / asked, 0 to 1; None if nothing was asked."""
        return self.judged / self.asked if self.asked else None


def interval(values: Floats, *, level: float = LEVEL) -> ConfidenceInterval | None:
    """The middle `level` of a statistic's resampled values (NaN: none).

    None where too few of them exist, and where all are equal: resampling twelve right answers would claim that the next is
    right for certain.
    """
    found = values[np.isfinite(values)]
    if not len(found) or len(found) < LEAST_DEFINED * len(values):
        return None
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    if np.ptp(found) <= 1e-12 * np.abs(found).max():
        return None
    return ConfidenceInterval(low=float(low), high=float(high), level=level)


def ends(found: ConfidenceInterval | None) -> tuple[float, float] | tuple[None, None]:
    """Return an interval's ends; None twice where there is none."""
    return (None, None) if found is None else (found.low, found.high)


@lru_cache(maxsize=4)
def draws(count: int, *, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """resamples×count: how often each cluster is drawn when `count` are drawn with replacement. Read-only.

    The same count and seed give the same draws, so that figures on the same clusters are resampled together.
    """
    rng, drawn = np.random.default_rng(seed), np.empty((resamples, count))
    # Some rows at a time stay in the processor's cache; the draws are those of all at once.
    step = max(1, _AT_ONCE // count)
    for first in range(0, resamples, step):
        rows = drawn[first : first + step]
        picked = rng.integers(count, size=rows.shape)
        picked += np.arange(len(rows))[:, None] * count
        rows[:] = np.bincount(picked.ravel(), minlength=rows.size).reshape(rows.shape)
    drawn.flags.writeable = False
    return drawn


def numbered(names: Sequence[Hashable]) -> tuple[npt.NDArray[np.intp], int]:
    """Each name as a number from 0 in order of appearance, and how many there are."""
    known: dict[Hashable, int] = {}
    index = np.fromiter((known.setdefault(name, len(known)) for name in names), dtype=np.intp, count=len(names))
    return index, len(known)


def mean(
    values: Sequence[float | None],
    clusters: Sequence[Hashable],
    *,
    groups: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = SEED,
) -> Estimate:
    """The mean of what was judged; None among `values` was asked and not judged.

    groups: one name for each value; then the mean over the groups of each group's mean (a macro mean). Its resamples in
    which a group that has values loses all of them have no value. A paired difference is the mean of differences.
    """
    judged = [i for i, value in enumerate(values) if value is not None]
    if not judged:
        return Estimate(value=None, judged=0, asked=len(values), why=_NOTHING[bool(values)])
    x = np.array([values[i] for i in judged], dtype=np.float64)
    cluster, count = numbered([clusters[i] for i in judged])
    group, many = numbered([None if groups is None else groups[i] for i in judged])
    # Sums and counts a cluster and group are all that a resample needs: clusters×groups instead of items.
    place = cluster * many + group
    sums = np.bincount(place, weights=x, minlength=count * many).reshape(count, many)
    sizes = np.bincount(place, minlength=count * many).reshape(count, many).astype(np.float64)
    found = None
    if count > 1:
        drawn = draws(count, resamples=resamples, seed=seed)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = interval(((drawn @ sums) / (drawn @ sizes)).mean(axis=1), level=level)
    value = float((sums.sum(axis=0) / sizes.sum(axis=0)).mean())
    return Estimate(value=value, interval=found, judged=len(judged), asked=len(values), clusters=count)


def aggregate(correlations: Sequence[float], how: Aggregate = "fisher") -> float:
    """One correlation from those of several groups.

    fisher: tanh of the mean of arctanh r.   mean: the mean of r.   tanh-mean: tanh of the mean of r, which is what
    VIEScore publishes under the name of Fisher's average; it is always nearer to 0 than the mean.
    Raises Undefined: no group, or for fisher one with r = ±1, whose arctanh is infinite.
    """
    if not len(correlations):
        raise Undefined("no group has a correlation")
    # What is 1 on paper is often a bit below it in floating point, and arctanh makes 18 of that bit.
    if how == "fisher" and any(abs(r) > 1 - 1e-12 for r in correlations):
        raise Undefined("a group correlates at exactly 1 or -1, where Fisher's z is infinite; see --aggregate mean")
    return float(aggregate_each(np.array(correlations)[:, None], how)[0])


def aggregate_each(rows: Floats, how: Aggregate = "fisher") -> Floats:
    """`aggregate` of each column of groups×B correlations, NaN where it does not exist."""
    # A resample with a perfect group has arctanh = ±inf.
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.arctanh(rows) if how == "fisher" else rows).mean(axis=0)
    found: Floats = mean if how == "mean" else np.tanh(mean)
    return np.where(np.isfinite(mean), found, np.nan)
