"""Do two readings of the same items agree: a judge's and people's, or two judges'.

Every figure is a function of weighted points (distinct pairs of values and how often each occurs), so that one definition
gives the figure and all its bootstrap resamples at once. Rank correlations are SciPy's; their weighted forms serve the
resamples, and a test holds the two equal. Kappa, F1 and alpha are written out here: the library for alpha is under the
GPL, and those for kappa bring pandas or all of scikit-learn for a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from editloupe.reports.estimate import LEVEL, RESAMPLES, SEED, Estimate, Floats, Undefined, draws, interval

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]
Points: TypeAlias = Callable[[Floats, Floats, Floats], Floats]
"""(values of x, m; values of y, m; weights, B×m) → the figure for each of the B weightings, NaN where it has none."""

DECIMALS: Final = 9
"""Values that are equal to this many decimals are ties: the square root of a product may differ in its last bit."""

MOST_POINTS: Final = 4000
"""Distinct pairs up to which Kendall's tau and alpha are resampled: both look at every pair of points."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The labels that both readings choose from.

    values: ascending; a label's place on the scale.   names: one for each.
    ordered: False where the values are only numbers for names, so that nothing but equality counts.
    good: the value from which on a label counts as good, for F1 and accuracy; None where the scale is not divided.
    """

    values: tuple[float, ...]
    names: tuple[str, ...]
    ordered: bool = True
    good: float | None = None

    def name(self, value: float) -> str:
        return self.names[self.values.index(value)]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two readings of n items, NaN where one is missing.

    x, y: n float64.   clusters: the source image of each.   names: who they are, in words ("the judge", "people").
    An item is asked for where y has a reading; it is judged where x has one too.
    """

    x: Floats
    y: Floats
    clusters: tuple[Hashable, ...]
    names: tuple[str, str] = ("the judge", "people")

    @classmethod
    def of(
        cls,
        x: Sequence[float | None],
        y: Sequence[float | None],
        clusters: Sequence[Hashable],
        names: tuple[str, str] = ("the judge", "people"),
    ) -> Paired:
        """Readings with None for what is missing, rounded to `DECIMALS`."""
        a, b = (np.array([np.nan if v is None else round(v, DECIMALS) for v in values], dtype=float) for values in (x, y))
        return cls(x=a, y=b, clusters=tuple(clusters), names=names)

    def where(self, keep: npt.NDArray[np.bool_]) -> Paired:
        """The items where `keep` (n bool) is True."""
        kept = tuple(c for c, k in zip(self.clusters, keep, strict=True) if k)
        return Paired(x=self.x[keep], y=self.y[keep], clusters=kept, names=self.names)

    @property
    def asked(self) -> int:
        return int((~np.isnan(self.y)).sum())

    @property
    def both(self) -> npt.NDArray[np.bool_]:
        """n bool: where both readings are there."""
        return ~np.isnan(self.x) & ~np.isnan(self.y)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An estimate and what it is when the unjudged count against the judge.

    adjusted: shares count an unjudged item as wrong; correlations, kappa and alpha are what they would be if each
    unjudged item had been labelled at random from the judge's own labels, which is the figure times the coverage (squared
    for Kendall's tau, which is about pairs). None for errors on a scale and where there is no figure.
    """

    estimate: Estimate
    adjusted: float | None

    def to_json(self) -> dict[str, object]:
        return {**self.estimate.to_json(), "adjusted": self.adjusted}


def correlations(
    paired: Paired, *, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = SEED
) -> dict[str, Figure]:
    """Spearman's rho and Kendall's tau-b (ties get their average rank), and Pearson's r."""
    return _figures(paired, CORRELATIONS, resamples, level, seed)


def errors(paired: Paired, *, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = SEED) -> dict[str, Figure]:
    """mae: mean |x − y|; bias: mean x − y, positive where x is the more lenient."""
    return _figures(paired, {"mae": mae, "bias": bias}, resamples, level, seed)


def label_figures(
    paired: Paired, scale: Scale, *, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = SEED
) -> dict[str, Figure]:
    """Agreement in labels: exact match, Cohen's kappa, alpha; on ordered scales also those that weigh distances.

    Every value must be one of the scale's. accuracy and f1 where `scale.good` divides it; F1 is that of the good labels.
    """
    found: dict[str, Points] = {"exact": exact, "kappa": kappa()}
    if scale.ordered:
        found["weighted_kappa"] = kappa(quadratic=True)
    found["alpha_nominal"] = pair_alpha(scale, "nominal")
    if scale.ordered:
        found |= {"alpha_ordinal": pair_alpha(scale, "ordinal"), "alpha_interval": pair_alpha(scale, "interval")}
    if scale.good is not None:
        found |= {"accuracy": accuracy(scale.good), "f1": f1(scale.good)}
    figures = _figures(paired, found, resamples, level, seed)
    if scale.good is not None and figures["f1"].adjusted is not None:
        figures["f1"] = Figure(estimate=figures["f1"].estimate, adjusted=_f1_adjusted(paired, scale.good))
    return figures


def confusion(paired: Paired, scale: Scale) -> list[list[int]]:
    """Counts by y (rows) and x (columns), in the order of `scale.values`; a last column for those that x does not judge."""
    rows = [[0] * (len(scale.values) + 1) for _ in scale.values]
    for x, y in zip(paired.x, paired.y, strict=True):
        if not np.isnan(y):
            rows[scale.values.index(y)][len(scale.values) if np.isnan(x) else scale.values.index(x)] += 1
    return rows


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
    """The share of items that both call good (at least `good`) or both do not."""
    return lambda x, y, w: exact((x >= good).astype(float), (y >= good).astype(float), w)


def f1(good: float) -> Points:
    """2 TP / (2 TP + FP + FN), good labels being the positives and y the truth."""

    def figure(x: Floats, y: Floats, w: Floats) -> Floats:
        hit, wrong = w @ ((x >= good) & (y >= good)), w @ ((x >= good) != (y >= good))
        return _over(2 * hit, 2 * hit + wrong)

    return figure


def pair_alpha(scale: Scale, level: Level) -> Points:
    """Krippendorff's alpha of two raters."""
    values = np.array(scale.values)

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


def correlation(name: str, paired: Paired) -> float:
    """One of `CORRELATIONS` as SciPy has it. Raises Undefined: fewer than 2 pairs, one value only."""
    from scipy import stats

    both = paired.both
    x, y = paired.x[both], paired.y[both]
    if why := _undefined(x, y, paired):
        raise Undefined(why)
    test = {"spearman": stats.spearmanr, "kendall": stats.kendalltau, "pearson": stats.pearsonr}[name]
    return float(test(x, y).statistic)


class Cells:
    """The items of a Paired that have both readings, gathered by distinct pairs of values.

    frame: the clusters that are drawn, where they are more than those of these items (several groups drawn together).
    """

    def __init__(self, paired: Paired, frame: Sequence[Hashable] | None = None) -> None:
        both = paired.both
        names = [c for c, k in zip(paired.clusters, both, strict=True) if k]
        places = {name: i for i, name in enumerate(dict.fromkeys(names if frame is None else frame))}
        self.clusters = len(places)
        cluster = np.array([places[name] for name in names], dtype=np.intp)
        points, cell = np.unique(np.stack([paired.x[both], paired.y[both]], axis=1), axis=0, return_inverse=True)
        self.x, self.y = points[:, 0], points[:, 1]
        self._counts = np.zeros((self.clusters, len(points)))
        np.add.at(self._counts, (cluster, cell.ravel()), 1)

    def value(self, figure: Points) -> float | None:
        """The figure itself."""
        found = figure(self.x, self.y, self._counts.sum(axis=0)[None])[0]
        return float(found) if np.isfinite(found) else None

    def resampled(self, figure: Points, *, resamples: int, seed: int) -> Floats:
        """The figure in each resample, NaN where it has no value; all NaN where it looks at too many pairs of points."""
        if len(self.x) > MOST_POINTS and figure is kendall:
            return np.full(resamples, np.nan)
        drawn = draws(self.clusters, resamples=resamples, seed=seed)
        step = max(1, 4_000_000 // max(1, len(self.x)))
        return np.concatenate(
            [figure(self.x, self.y, drawn[at : at + step] @ self._counts) for at in range(0, resamples, step)]
        )


def _figures(paired: Paired, figures: Mapping[str, Points], resamples: int, level: float, seed: int) -> dict[str, Figure]:
    cells = Cells(paired)
    judged, asked = int(paired.both.sum()), paired.asked
    found = {}
    for name, figure in figures.items():
        why = ""
        if name in CORRELATIONS:
            try:
                value: float | None = correlation(name, paired)
            except Undefined as error:
                value, why = None, str(error)
        else:
            value = cells.value(figure) if judged else None
            why = "" if value is not None else _why(name, paired)
        inside = None
        if value is not None and cells.clusters > 1:
            inside = interval(cells.resampled(figure, resamples=resamples, seed=seed), level=level)
        estimate = Estimate(value=value, judged=judged, asked=asked, clusters=cells.clusters, interval=inside, why=why)
        found[name] = Figure(estimate=estimate, adjusted=_adjusted(name, estimate))
    return found


def _adjusted(name: str, estimate: Estimate) -> float | None:
    coverage = estimate.coverage
    if estimate.value is None or coverage is None or name in ("mae", "bias"):
        return None
    return estimate.value * (coverage**2 if name == "kendall" else coverage)


def _f1_adjusted(paired: Paired, good: float) -> float:
    """F1 with an unjudged good item as one that was missed, and an unjudged bad one as one wrongly called good."""
    asked = ~np.isnan(paired.y)
    x, y = paired.x[asked], paired.y[asked] >= good
    called = np.where(np.isnan(x), ~y, x >= good)
    hit = int((called & y).sum())
    return 2 * hit / (2 * hit + int((called != y).sum()))


def _why(name: str, paired: Paired) -> str:
    if not paired.both.any():
        return _nothing(paired)
    if name == "f1":
        return "neither calls any item good"
    return f"{paired.names[0]} and {paired.names[1]} gave one value only, and the same"


def _undefined(x: Floats, y: Floats, paired: Paired) -> str:
    """Why two readings have no correlation; empty where they have one."""
    if not len(x):
        return _nothing(paired)
    if len(x) < 2:
        return "fewer than 2 pairs"
    constant = [f"{name} gave one value only" for name, v in zip(paired.names, (x, y), strict=True) if np.ptp(v) == 0]
    return " and ".join(constant)


def _nothing(paired: Paired) -> str:
    return "nothing was judged" if paired.asked else f"nothing was labelled by {paired.names[1]}"


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
