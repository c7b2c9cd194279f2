"""Do two readings of the same items agree: a judge's and people's, or two judges'.

Correlations are SciPy's; their weighted forms (weighted.py) serve the resamples, and a test holds the two equal.

The adjusted share of equal labels, and of good or not, counts an unjudged item as wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from editloupe.stats.bootstrap import DRAWING, LARGEST, Drawing, Estimate, Floats, Undefined, draws, in_order, interval
from editloupe.stats.weighted import CORRELATIONS, Level, Points, accuracy, bias, exact, f1, kappa, kendall, mae, pair_alpha

DECIMALS: Final = 9
"""Values that are equal to this many decimals are ties: the square root of a product may differ in its last bit."""

_CHANCE: Final = ("kappa", "weighted_kappa", "alpha_nominal", "alpha_ordinal", "alpha_interval")
"""Figures that take off the agreement expected by chance, which one pair does not show."""

_SHARES: Final = ("exact", "accuracy")
"""Figures that have an adjusted one."""

_BLOCK: Final = 4_000_000
"""Weights that are held at once: 32 MB."""

MOST_POINTS: Final = 1500
"""Distinct pairs of values up to which Kendall's tau has an interval: each resample looks at every pair of them."""


@dataclass(frozen=True, kw_only=True)
class LabelScale:
    """The labels that both readings choose from."""

    values: tuple[float, ...]
    """Ascending: a label's place on the scale."""
    names: tuple[str, ...]
    """One for each value."""
    ordered: bool = True
    """False if the values only stand for names, so that nothing but equality counts."""

    def name(self, value: float) -> str:
        return self.names[self.values.index(value)]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two readings of n items. An item is asked for where y has a reading; it is judged where x has one too."""

    x: Floats
    """n float64, NaN where the first reading is missing."""
    y: Floats
    """n float64, NaN where the second reading is missing."""
    clusters: tuple[Hashable, ...]
    """The source image of each item."""
    names: tuple[str, str] = ("the judge", "people")
    """Who the readings are of, in words."""

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

    def at(self, places: Sequence[int]) -> Paired:
        """Return the items at these places, 0 to n − 1."""
        index, clusters = np.array(places, dtype=np.intp), tuple(self.clusters[i] for i in places)
        return Paired(x=self.x[index], y=self.y[index], clusters=clusters, names=self.names)

    def on(self, scale: LabelScale) -> Paired:
        """Return the same with readings that are labels of the scale; a median of repeats may lie between two."""
        x, y = (np.where(np.isin(values, scale.values), values, np.nan) for values in (self.x, self.y))
        return Paired(x=x, y=y, clusters=self.clusters, names=self.names)

    def in_order(self) -> Paired:
        """Return the same items by source image and readings, so that no figure depends on the order in which they came."""
        by_cluster = {name: number for number, name in enumerate(in_order(self.clusters))}
        place = np.array([by_cluster[name] for name in self.clusters])
        return self.at(np.lexsort((self.x, self.y, place)).tolist())

    @property
    def asked(self) -> int:
        """Return how many items y has a reading of."""
        return int((~np.isnan(self.y)).sum())

    @property
    def too_large(self) -> bool:
        """Whether squares of the readings would overflow."""
        return bool((np.abs(self.x[self.both]) > LARGEST).any() or (np.abs(self.y[self.both]) > LARGEST).any())

    @property
    def both(self) -> npt.NDArray[np.bool_]:
        """n bool: where both readings are there."""
        return ~np.isnan(self.x) & ~np.isnan(self.y)


def figures(
    numbers: Paired,
    labels: Paired | None = None,
    scale: LabelScale | None = None,
    *,
    good: float | None = None,
    one_scale: bool = True,
    drawing: Drawing = DRAWING,
) -> dict[str, Estimate]:
    """Return every figure that the two readings allow, by name.

    numbers: for correlations (ties get their average rank), if the scale has an order, and for errors: mae, the mean of
    |x − y|, and bias, the mean of x − y, positive where x is the more lenient.   labels: the readings that are labels of
    the scale; None for those of `numbers`.   scale: None if the readings are numbers without labels. Of labels there are
    exact match, Cohen's kappa and alpha; of ordered ones also those that weigh distances. Two labels without an order have
    Pearson's r all the same: it is φ, whichever of them is 1.   good: adds accuracy and F1 of good (at least
    `good`) or not; F1 is that of the good ones, y being the truth.   one_scale: False for readings in two units, which have
    correlations alone.
    """
    if not one_scale:
        return _figures(numbers, CORRELATIONS, drawing)
    found: dict[str, Estimate] = {}
    labels = (numbers if scale is None else numbers.on(scale)) if labels is None else labels
    ordered = scale is None or scale.ordered
    if ordered:
        found |= _figures(numbers, {**CORRELATIONS, "mae": mae, "bias": bias}, drawing)
    of_labels: dict[str, Points] = {}
    if scale is not None:
        of_labels |= {"exact": exact, "kappa": kappa()}
        of_labels |= {"weighted_kappa": kappa(quadratic=True)} if ordered else {}
        levels: tuple[Level, ...] = ("nominal", "ordinal", "interval") if ordered else ("nominal",)
        of_labels |= {f"alpha_{level}": pair_alpha(scale.values, level) for level in levels}
        of_labels |= {} if ordered or len(scale.values) != 2 else {"pearson": CORRELATIONS["pearson"]}
    if good is not None:
        of_labels |= {"accuracy": accuracy(good), "f1": f1(good)}
    return found | _figures(labels, of_labels, drawing)


def confusion(paired: Paired, scale: LabelScale) -> list[list[int]]:
    """Counts by y (rows) and x (columns), in the order of `scale.values`; a last column for those that x does not judge."""
    rows = [[0] * (len(scale.values) + 1) for _ in scale.values]
    for x, y in zip(paired.x, paired.y, strict=True):
        if not np.isnan(y):
            rows[scale.values.index(y)][len(scale.values) if np.isnan(x) else scale.values.index(x)] += 1
    return rows


def correlation(name: str, paired: Paired) -> float:
    """Return one of `CORRELATIONS` as SciPy has it. Raises Undefined: fewer than 2 pairs, one value only."""
    from scipy import stats  # 0.3 s, and most commands need none of it

    both = paired.both
    x, y = paired.x[both], paired.y[both]
    if why := _undefined(x, y, paired):
        raise Undefined(why)
    test = {"spearman": stats.spearmanr, "kendall": stats.kendalltau, "pearson": stats.pearsonr}[name]
    return float(test(x, y).statistic)


class Cells:
    """The items of a Paired that have both readings, gathered by distinct pairs of values where these are few (labels).

    frame: the clusters that are drawn, where they are more than those of these items (several groups drawn together).
    """

    def __init__(self, paired: Paired, frame: Sequence[Hashable] | None = None) -> None:
        both = paired.both
        names = [c for c, k in zip(paired.clusters, both, strict=True) if k]
        places = {name: i for i, name in enumerate(in_order(names if frame is None else frame))}
        self.clusters = len(places)
        self._cluster = np.array([places[name] for name in names], dtype=np.intp)
        self.x, self.y = paired.x[both], paired.y[both]
        self._counts: Floats | None = None
        points, cell = np.unique(np.stack([self.x, self.y], axis=1), axis=0, return_inverse=True)
        if 2 * len(points) <= len(self.x):
            self.x, self.y = points[:, 0], points[:, 1]
            self._counts = np.zeros((self.clusters, len(points)))
            np.add.at(self._counts, (self._cluster, cell.ravel()), 1)
        self._kept: dict[Drawing, Floats] = {}

    def value(self, figure: Points) -> float | None:
        """Return the figure itself."""
        found = figure(self.x, self.y, self._drawn(np.ones((1, self.clusters))))[0]
        return float(found) if np.isfinite(found) else None

    def resampled(self, figure: Points, drawing: Drawing) -> Floats:
        """Return the figure in each resample, NaN where it has none; all NaN where it looks at too many pairs of points."""
        if len(self.x) > MOST_POINTS and figure is kendall:
            return np.full(drawing.resamples, np.nan)
        return np.concatenate([figure(self.x, self.y, weights) for weights in self._weights(drawing)])

    def _weights(self, drawing: Drawing) -> Iterable[Floats]:
        """resamples×points in blocks; kept for the next figure where one block holds them all."""
        if drawing in self._kept:
            return [self._kept[drawing]]
        drawn = draws(self.clusters, drawing)
        step = max(1, _BLOCK // max(1, len(self.x), self.clusters))
        if step < drawing.resamples:
            return (self._drawn(drawn[at : at + step]) for at in range(0, drawing.resamples, step))
        self._kept[drawing] = self._drawn(drawn)
        return [self._kept[drawing]]

    def _drawn(self, clusters: npt.NDArray[np.number[Any]]) -> Floats:
        """B×clusters, how often each is drawn, as B×points."""
        found = clusters[:, self._cluster] if self._counts is None else clusters @ self._counts
        return found.astype(np.float64, copy=False)


def resampled_correlation(name: str, paired: Paired, frame: Sequence[Hashable], drawing: Drawing) -> tuple[float, Floats]:
    """Return a correlation with its resamples.   frame: as for `Cells`.   Raises Undefined as `correlation`."""
    return correlation(name, paired), Cells(paired, frame).resampled(CORRELATIONS[name], drawing)


def _figures(paired: Paired, figures: Mapping[str, Points], drawing: Drawing) -> dict[str, Estimate]:
    base = Estimate(value=None, judged=int(paired.both.sum()), asked=paired.asked)
    if paired.too_large:
        why = f"the values of {paired.names[0]} or {paired.names[1]} are too large to compute with"
        return dict.fromkeys(figures, replace(base, why=why))
    paired = paired.in_order()
    cells = Cells(paired)
    base = replace(base, clusters=cells.clusters)
    found = {}
    for name, figure in figures.items():
        try:
            value = correlation(name, paired) if name in CORRELATIONS else _value(name, figure, cells, paired)
        except Undefined as error:
            found[name] = replace(base, why=str(error))
            continue
        low, high = None, None
        if cells.clusters > 1:
            low, high = interval(cells.resampled(figure, drawing), level=drawing.level)
        adjusted = value * base.judged / base.asked if name in _SHARES and base.asked else None
        found[name] = replace(base, value=value, low=low, high=high, adjusted=adjusted)
    return found


def _value(name: str, figure: Points, cells: Cells, paired: Paired) -> float:
    """The figure of all items. Raises Undefined, which says why there is none."""
    judged = int(paired.both.sum())
    if not judged:
        raise Undefined(_nothing(paired))
    if name in _CHANCE and judged < 2:
        raise Undefined("fewer than 2 pairs")
    if (value := cells.value(figure)) is None:
        same = f"{paired.names[0]} and {paired.names[1]} gave one value only, and the same"
        raise Undefined("neither calls any item good" if name == "f1" else same)
    return value


def _undefined(x: Floats, y: Floats, paired: Paired) -> str:
    """Why two readings have no correlation; empty where they have one."""
    if not len(x):
        return _nothing(paired)
    if len(x) < 2:
        return "fewer than 2 pairs"
    constant = [f"{name} gave one value only" for name, v in zip(paired.names, (x, y), strict=True) if np.ptp(v) == 0]
    return " and ".join(constant)


def _nothing(paired: Paired) -> str:
    return "nothing was judged" if paired.asked else f"nothing was labeled by {paired.names[1]}"
