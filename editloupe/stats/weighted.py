"""Figures of agreement as functions of weighted points: distinct pairs of values (x, y), and how often each occurs.

One definition so gives a figure and all its bootstrap resamples at once. Krippendorff's alpha is written out here because
the library for it is under the GPL, Cohen's kappa because those for it bring pandas or all of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from editloupe.stats.bootstrap import Floats

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]
Points: TypeAlias = Callable[[Floats, Floats, Floats], Floats]
"""(values of x, m; values of y, m; weights, B×m) → the figure for each of the B weightings, NaN where it has none."""


def pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    return _pearson(np.broadcast_to(x, w.shape), np.broadcast_to(y, w.shape), w)


def spearman(x: Floats, y: Floats, w: Floats) -> Floats:
    return _pearson(_ranks(x, w), _ranks(y, w), w)


def kendall(x: Floats, y: Floats, w: Floats) -> Floats:
    """tau-b: (concordant − discordant) / sqrt((pairs not tied in x) · (pairs not tied in y))."""
    signs = np.sign(x[:, None] - x[None, :]) * np.sign(y[:, None] - y[None, :])
    surplus = ((w @ signs) * w).sum(axis=1) / 2
    pairs = _pairs(w.sum(axis=1, keepdims=True))
    return _over(surplus, np.sqrt((pairs - _pairs(_counts(x, w))) * (pairs - _pairs(_counts(y, w)))))


CORRELATIONS: Final[Mapping[str, Points]] = {"spearman": spearman, "kendall": kendall, "pearson": pearson}


def mae(x: Floats, y: Floats, w: Floats) -> Floats:
    return _over(w @ np.abs(x - y), w.sum(axis=1))


def bias(x: Floats, y: Floats, w: Floats) -> Floats:
    return _over(w @ (x - y), w.sum(axis=1))


def exact(x: Floats, y: Floats, w: Floats) -> Floats:
    return _over(w @ (x == y), w.sum(axis=1))


def kappa(*, quadratic: bool = False) -> Points:
    """Cohen's: 1 − observed / expected disagreement; with `quadratic` a disagreement weighs its squared distance in value.

    On scales whose labels are equally far apart that is the usual weighting by rank.
    """

    def figure(x: Floats, y: Floats, w: Floats) -> Floats:
        values = np.unique(np.concatenate([x, y]))
        apart = values[:, None] - values[None, :]
        weight = apart**2 if quadratic else (apart != 0).astype(float)
        in_x, in_y = w @ (x[:, None] == values), w @ (y[:, None] == values)
        observed = w @ ((x - y) ** 2 if quadratic else (x != y))
        expected = ((in_x @ weight) * in_y).sum(axis=1) / np.maximum(w.sum(axis=1), 1)
        return 1 - _over(observed, expected)

    return figure


def accuracy(good: float) -> Points:
    """Return the share of items that both call good (at least `good`) or both do not."""
    return lambda x, y, w: exact((x >= good).astype(float), (y >= good).astype(float), w)


def f1(good: float) -> Points:
    """2 TP / (2 TP + FP + FN), good labels being the positives and y the truth."""

    def figure(x: Floats, y: Floats, w: Floats) -> Floats:
        hit, wrong = w @ ((x >= good) & (y >= good)), w @ ((x >= good) != (y >= good))
        return _over(2 * hit, 2 * hit + wrong)

    return figure


def pair_alpha(scale: Sequence[float], level: Level) -> Points:
    """Krippendorff's alpha of two raters, whose ratings are values of `scale` (ascending)."""
    values = np.array(scale)

    def figure(x: Floats, y: Floats, w: Floats) -> Floats:
        in_x, in_y = (x[:, None] == values).astype(float), (y[:, None] == values).astype(float)
        together = in_x[:, :, None] * in_y[:, None, :]
        together = together + together.transpose(0, 2, 1)
        return alpha(np.tensordot(w, together, axes=1), values, level)

    return figure


def alpha(together: Floats, values: Floats, level: Level) -> Floats:
    """Krippendorff's alpha from B×V×V coincidences of V ascending values.

    1 − (n − 1) · Σ o·δ² / Σ n_v·n_v'·δ², δ² being 1 for different values, the squared distance between the values, or
    (ordinal) between their mid ranks among all n values that were paired.
    """
    totals = together.sum(axis=2)
    n = totals.sum(axis=1)
    if level == "nominal":
        apart = np.broadcast_to(1 - np.eye(len(values)), together.shape)
    else:
        place = np.cumsum(totals, axis=1) - totals / 2 if level == "ordinal" else np.broadcast_to(values, totals.shape)
        apart = (place[:, :, None] - place[:, None, :]) ** 2
    observed = (together * apart).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * apart).sum(axis=(1, 2))
    return 1 - _over((n - 1) * observed, expected)


def _pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    """x, y, w: B×m."""
    n = np.maximum(w.sum(axis=1, keepdims=True), 1)
    dx, dy = x - (w * x).sum(axis=1, keepdims=True) / n, y - (w * y).sum(axis=1, keepdims=True) / n
    xx, yy = (w * dx * dx).sum(axis=1), (w * dy * dy).sum(axis=1)
    # What is constant on paper leaves rounding behind, which must not pass for spread.
    spread = (xx > 1e-12 * (w * x * x).sum(axis=1)) & (yy > 1e-12 * (w * y * y).sum(axis=1))
    return np.where(spread, _over((w * dx * dy).sum(axis=1), np.sqrt(xx * yy)), np.nan)


def _ranks(x: Floats, w: Floats) -> Floats:
    """B×m: each point's mid rank among all, counted by weight."""
    place = np.unique(x, return_inverse=True)[1]
    counts = _counts(x, w)
    ranks: Floats = (np.cumsum(counts, axis=1) - counts / 2)[:, place.ravel()]
    return ranks


def _counts(x: Floats, w: Floats) -> Floats:
    """B×(distinct values of x, ascending): how much weight each value has."""
    values, place = np.unique(x, return_inverse=True)
    where = np.zeros((len(x), len(values)))
    where[np.arange(len(x)), place.ravel()] = 1
    return w @ where


def _pairs(n: Floats) -> Floats:
    """How many pairs n things make, summed over the last axis."""
    found: Floats = (n * (n - 1) / 2).sum(axis=1)
    return found


def _over(a: Floats, b: Floats) -> Floats:
    """a / b, NaN where b is 0."""
    found: Floats = np.divide(a, b, out=np.full(np.broadcast_shapes(a.shape, b.shape), np.nan), where=b != 0)
    return found
