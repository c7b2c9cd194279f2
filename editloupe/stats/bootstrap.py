"""The mean of scores, with its interval and how much was judged of what was asked: `aggregate`, for every command and page.

Intervals are percentile bootstrap intervals, resampled by cluster: the edits of one source image are drawn together, since
they share what makes them easy or hard. Clusters stand in the order of their names, so that the same rows give the same
interval in whatever order they come. Percentile and not BCa: labels are few and heavily tied, so that BCa's bias term is
often infinite (every resample on one side) where the percentiles are defined. With fewer than some twenty clusters the
interval is too narrow by a few points of its level (benchmarks/README.md has the measured coverage).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, PlainSerializer

from editloupe.values import Serializable

if TYPE_CHECKING:
    import polars

Floats: TypeAlias = npt.NDArray[np.float64]
OrNull: TypeAlias = Annotated[str, PlainSerializer(lambda text: text or None)]
"""Text that JSON gives as null where there is none."""

Averaging: TypeAlias = Literal["fisher", "mean", "tanh-mean"]

RESAMPLES: Final = 2000
LEVEL: Final = 0.95
SEED: Final = 0
LEAST_DEFINED: Final = 0.9
"""Share of resamples that must have a value; below it the values left are a selection, and there is no interval."""

LARGEST: Final = 1e100
"""Numbers beyond this are scaled before they are summed or squared, so that nothing overflows."""

_AT_ONCE: Final = 2**16
"""Numbers that are drawn at a time."""
_IN_MEMORY: Final = 2**22
"""Weights that are held as floats at once: 32 MB."""
_NOTHING: Final = {True: "nothing was judged", False: "nothing was asked"}


class Undefined(ValueError):
    """The figure does not exist for these values; the message says why, in words for a table's note."""


@dataclass(frozen=True, kw_only=True)
class Drawing(Serializable):
    """How intervals are drawn."""

    resamples: int = RESAMPLES
    level: float = LEVEL
    """Coverage of the intervals, 0 to 1."""
    seed: int = SEED


DRAWING: Final = Drawing()


@dataclass(frozen=True, kw_only=True)
class Estimate(Serializable):
    """One figure with what it rests on."""

    value: float | None
    """None if it does not exist; `why` then gives the reason."""
    low: float | None = None
    """Lower end of the interval; None if it cannot be computed."""
    high: float | None = None
    """Upper end of the interval; None if it cannot be computed."""
    judged: int
    """Items with what the figure needs."""
    asked: int
    """All items that should have it."""
    clusters: int = 0
    """Source images judged."""
    why: OrNull = ""
    """Why there is no value; "" if there is one."""
    adjusted: Annotated[float | None, Field(exclude_if=lambda adjusted: adjusted is None)] = None
    """Of a share of equal answers, what it is if the unjudged items count as wrong (`stats.agreement`)."""


def interval(values: Floats, *, level: float = LEVEL) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of the middle `level` of a statistic's resampled values (NaN: none).

    None twice where too few of them exist, and where all are equal: resampling twelve right answers would claim that the
    next is right for certain.
    """
    found = values[np.isfinite(values)]
    if not len(found) or len(found) < LEAST_DEFINED * len(values):
        return None, None
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    if np.ptp(found) <= 1e-12 * np.abs(found).max():
        return None, None
    return float(low), float(high)


@lru_cache(maxsize=4)
def draws(count: int, drawing: Drawing) -> npt.NDArray[np.uint8]:
    """resamples×count: how often each cluster is drawn when `count` are drawn with replacement. Read-only.

    The same count and seed give the same draws, so that figures on the same clusters are resampled together.
    """
    rng, drawn = np.random.default_rng(drawing.seed), np.empty((drawing.resamples, count), dtype=np.uint8)
    # Some rows at a time stay in the processor's cache; the draws are those of all at once.
    step = max(1, _AT_ONCE // count)
    for first in range(0, drawing.resamples, step):
        rows = drawn[first : first + step]
        picked = rng.integers(count, size=rows.shape)
        picked += np.arange(len(rows))[:, None] * count
        rows[:] = np.bincount(picked.ravel(), minlength=rows.size).reshape(rows.shape)
    drawn.flags.writeable = False
    return drawn


def resampled(sums: Floats, drawing: Drawing) -> Floats:
    """Return the sums of each resample, resamples×…, from those of each cluster, clusters×…"""
    drawn, flat = draws(len(sums), drawing), sums.reshape(len(sums), -1)
    # Counts are small numbers in one byte each, and made to floats some rows at a time.
    step = max(1, _IN_MEMORY // len(sums))
    blocks = [drawn[at : at + step] @ flat for at in range(0, drawing.resamples, step)]
    return np.concatenate(blocks).reshape(-1, *sums.shape[1:])


def in_order(names: Sequence[Hashable]) -> list[Hashable]:
    """Return the distinct names in their order, whatever the order in which they are met."""
    try:
        return sorted(set(names))  # type: ignore[type-var]
    except TypeError:
        return sorted(set(names), key=str)


def numbered(names: Sequence[Hashable]) -> tuple[npt.NDArray[np.intp], int]:
    """Return each name as a number from 0 in the order of the names, and how many there are."""
    known = {name: number for number, name in enumerate(in_order(names))}
    return np.fromiter((known[name] for name in names), dtype=np.intp, count=len(names)), len(known)


def aggregate(
    frame: polars.DataFrame,
    by: Sequence[str] = (),
    over: Sequence[str] = (),
    *,
    value: str = "value",
    drawing: Drawing | None = DRAWING,
) -> dict[tuple[Any, ...], Estimate]:
    """Return the mean of each group of rows, by the group's values in `by`, groups as they come.

    frame: a row a score, with `value`, which is null where nothing was judged; `source`, by which intervals are resampled;
    and `sample`, which stands for a source that is not known.   by: () for all rows together, under ().
    over: columns whose groups count alike: the mean of their means.   drawing: None for no intervals.
    """
    groups = frame.partition_by(list(by), as_dict=True, maintain_order=True) if by else {(): frame}
    found = {}
    for key, rows in groups.items():
        clusters = rows["source"].fill_null(rows["sample"]).to_list()
        alike = rows.select(over).rows() if over else None
        found[key] = mean(rows[value].to_list(), clusters, groups=alike, drawing=drawing)
    return found


def mean(
    values: Sequence[float | None],
    clusters: Sequence[Hashable],
    *,
    groups: Sequence[Hashable] | None = None,
    drawing: Drawing | None = DRAWING,
) -> Estimate:
    """Return the mean of what was judged; None among `values` was asked and not judged.

    groups: one name for each value; then the mean over the groups of each group's mean (a macro mean). Its resamples in
    which a group that has values loses all of them have no value. A paired difference is the mean of differences.
    drawing: None for no interval.
    """
    judged = [i for i, value in enumerate(values) if value is not None]
    if not judged:
        return Estimate(value=None, judged=0, asked=len(values), why=_NOTHING[bool(values)])
    x = np.array([values[i] for i in judged], dtype=np.float64)
    scale = float(np.abs(x).max())
    scale = scale if scale > LARGEST else 1.0
    cluster, count = numbered([clusters[i] for i in judged])
    group, many = numbered([None if groups is None else groups[i] for i in judged])
    # Sums and counts a cluster and group are all that a resample needs: clusters×groups instead of items. In one order,
    # so that not even the last bit depends on that of the rows.
    place = cluster * many + group
    order = np.lexsort((x, place))
    sums = np.bincount(place[order], weights=x[order] / scale, minlength=count * many).reshape(count, many)
    sizes = np.bincount(place, minlength=count * many).reshape(count, many).astype(np.float64)
    low, high = None, None
    if count > 1 and drawing is not None:
        both = resampled(np.hstack([sums, sizes]), drawing)
        with np.errstate(invalid="ignore", divide="ignore"):
            low, high = interval((both[:, :many] / both[:, many:]).mean(axis=1), level=drawing.level)
    return Estimate(
        value=float((sums.sum(axis=0) / sizes.sum(axis=0)).mean()) * scale,
        low=None if low is None else low * scale,
        high=None if high is None else high * scale,
        judged=len(judged),
        asked=len(values),
        clusters=count,
    )


def average(correlations: Sequence[float], how: Averaging = "fisher") -> float:
    """Return one correlation from those of several groups.

    fisher: tanh of the mean of arctanh r.   mean: the mean of r.   tanh-mean: tanh of the mean of r, which is what
    VIEScore publishes under the name of Fisher's average; it is always nearer to 0 than the mean.
    Raises Undefined: no group, or for fisher one with r = ±1, whose arctanh is infinite.
    """
    if not len(correlations):
        raise Undefined("no group has a correlation")
    # What is 1 on paper is often a bit below it in floating point, and arctanh makes 18 of that bit.
    if how == "fisher" and any(abs(r) > 1 - 1e-12 for r in correlations):
        raise Undefined("a group correlates at exactly 1 or -1, where Fisher's z is infinite; see --aggregate mean")
    return float(average_each(np.array(correlations)[:, None], how)[0])


def average_each(rows: Floats, how: Averaging = "fisher") -> Floats:
    """Return `average` of each column of groups×B correlations, NaN where it does not exist."""
    # A resample with a perfect group has arctanh = ±inf.
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (np.arctanh(rows) if how == "fisher" else rows).mean(axis=0)
    found: Floats = middle if how == "mean" else np.tanh(middle)
    return np.where(np.isfinite(middle), found, np.nan)


def averaged(
    found: Sequence[tuple[float, Floats]], base: Estimate, how: Averaging, *, level: float = LEVEL
) -> tuple[Estimate, Floats | None]:
    """Return the average of correlations with its interval, and its resamples; None where there is none.

    found: correlations, each with its resamples, drawn together.   base: what the average rests on.
    """
    try:
        value = average([value for value, _ in found], how)
    except Undefined as error:
        return replace(base, why=str(error)), None
    each = average_each(np.stack([rows for _, rows in found]), how)
    low, high = interval(each, level=level) if base.clusters > 1 else (None, None)
    return replace(base, value=value, low=low, high=high), each
