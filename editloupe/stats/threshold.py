"""The detection threshold: the area of a change under which a judge is not right often enough.

Accuracy is taken to rise with the area and nothing more. The threshold is where the weighted isotonic regression of right
answers on area crosses the level, on a straight line over the logarithm of the area. Its interval needs no shape of the
curve: it joins the gaps between neighboring areas in which a crossing is not rejected by a likelihood ratio test (Banerjee
and Wellner 2001), so that its ends are areas that were asked. A logistic curve would give narrower intervals, which hold
for judges whose curve is logistic: not for a step, a plateau, or a mixture of failures of which some are seen at any size.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit, xlogy

from editloupe.stats.bootstrap import LEVEL, Floats, OrNull, numbered
from editloupe.values import Serializable

ACCURACY: Final = 0.75
"""Accuracy at the threshold."""

LEAST: Final = 20
"""Judged items without which no threshold is given."""

Outcome: TypeAlias = Literal["found", "always_above", "always_below", "falls", "too_few"]
"""found: accuracy crosses the level.   always_above: it is reached at the smallest area; the threshold is at most that.
always_below: it is not reached at the largest area.   falls: it is reached at the smallest area and not at the largest; no
rising curve fits as well.   too_few: fewer than `LEAST` judged items, or one area.
"""


@dataclass(frozen=True, kw_only=True)
class Threshold(Serializable):
    """The area at which accuracy falls under `accuracy`."""

    outcome: Outcome
    value: float | None = None
    """Share of the image, 0 to 1; None unless the outcome is "found"."""
    low: float | None = None
    """Lower end of the interval; None where it lies below the smallest area, and without an interval."""
    high: float | None = None
    """Upper end; None where it lies above the largest area, and without an interval."""
    level: float = LEVEL
    """Coverage of the interval."""
    accuracy: float = ACCURACY
    smallest: float | None = None
    """The smallest area that was judged; None without any."""
    largest: float | None = None
    judged: int
    asked: int
    clusters: int = 0
    why: OrNull = ""
    """Why there is neither threshold nor bound; "" otherwise."""


def detection_threshold(hits: Sequence[bool | None], areas: Sequence[float], clusters: Sequence[Hashable]) -> Threshold:
    """Return the area at which the share of hits falls under `ACCURACY`.

    hits: None for what was asked and not judged.   areas: shares of the image above 0, one for each item; items of one
    nominal area share it.   clusters: items of one cluster need not be independent: the test is widened by the variance
    between clusters, where it is more than that of independent items.
    """
    judged = [i for i, hit in enumerate(hits) if hit is not None]
    known = sorted({areas[i] for i in judged})
    names = [clusters[i] for i in judged]
    ends = (known[0], known[-1]) if known else (None, None)

    def threshold(outcome: Outcome, **more: float | str | None) -> Threshold:
        return Threshold(
            outcome=outcome, smallest=ends[0], largest=ends[1], judged=len(judged), asked=len(hits),
            clusters=len(set(names)), **more,  # type: ignore[arg-type]
        )  # fmt: skip

    if len(judged) < LEAST:
        return threshold("too_few", why=f"{len(judged)} judged; a threshold needs {LEAST}")
    if len(known) < 2:
        return threshold("too_few", why="all have one area")
    place = np.searchsorted(known, [areas[i] for i in judged])
    right = np.array([bool(hits[i]) for i in judged], float)
    n = np.bincount(place, minlength=len(known)).astype(float)
    k = np.bincount(place, weights=right, minlength=len(known)).astype(float)
    curve = _Curve(k=k, n=n, x=np.log(known))
    limit = _limit(right - curve.fit[place], names) / 2
    kept = [gap for gap, value in enumerate(curve.profile()) if curve.best - value <= limit]
    # Gap j lies between the areas j - 1 and j; the first and the last one are open.
    low = known[kept[0] - 1] if kept[0] else None
    high = known[kept[-1]] if kept[-1] < len(known) else None
    falling = curve.falling
    if falling[0] >= ACCURACY > falling[-1] and curve.likelihood(falling) - curve.best > limit:
        return threshold("falls", low=low, high=high, why="accuracy falls with the area")
    at = curve.crossing
    if np.isinf(at):
        return threshold("always_above" if at < 0 else "always_below", low=low, high=high)
    return threshold("found", value=float(np.exp(at)), low=low, high=high)


def _limit(rest: Floats, names: Sequence[Hashable]) -> float:
    """How far twice the log likelihood may fall: χ² of one degree, times the design effect of clusters.

    rest: right or not, less the curve. One cluster says nothing of their variance, so that nothing is rejected.
    """
    cluster, count = numbered(names)
    if count == 1:
        return np.inf
    if count == len(names):
        return float(stdtrit(np.inf, (1 + LEVEL) / 2)) ** 2
    sums, spread = np.bincount(cluster, weights=rest), float((rest**2).sum())
    effect = max(1.0, float((sums**2).sum()) / spread) if spread else 1.0
    return effect * float(stdtrit(count - 1, (1 + LEVEL) / 2)) ** 2


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """Rising accuracies by area.   k, n, x: right answers, all answers and log area, ascending."""

    k: Floats
    n: Floats
    x: Floats

    @property
    def fit(self) -> Floats:
        """The accuracies of the best rising curve."""
        return np.asarray(isotonic_regression(self.k / self.n, weights=self.n).x, dtype=np.float64)

    @property
    def best(self) -> float:
        """Its log likelihood."""
        return float(self.likelihood(self.fit))

    @property
    def falling(self) -> Floats:
        """The accuracies of the best curve that falls."""
        return -np.asarray(isotonic_regression(-self.k / self.n, weights=self.n).x, dtype=np.float64)

    @property
    def crossing(self) -> float:
        """Log area at which the curve reaches the accuracy; −inf if it does at the smallest, inf if it does nowhere."""
        fit = self.fit
        j = int(np.searchsorted(fit, ACCURACY - 1e-9))
        if j in (0, len(fit)):
            return float(np.inf if j else -np.inf)
        share = (ACCURACY - fit[j - 1]) / (fit[j] - fit[j - 1])
        return float(self.x[j - 1] + share * (self.x[j] - self.x[j - 1]))

    def profile(self) -> list[float]:
        """Return the log likelihood of the best rising curve that crosses the accuracy in each gap between areas.

        The first gap lies below the smallest area, the last one above the largest.
        """
        gaps = np.arange(len(self.x) + 1)[:, None]
        # With a bound, the best rising curve is the best without it, clipped.
        clipped = np.where(np.arange(len(self.x)) < gaps, np.minimum(self.fit, ACCURACY), np.maximum(self.fit, ACCURACY))
        return [float(value) for value in self.likelihood(clipped)]

    def likelihood(self, p: Floats) -> Floats:
        """Return the log likelihood of accuracies, summed over the last axis."""
        found: Floats = (xlogy(self.k, p) + xlogy(self.n - self.k, 1 - p)).sum(axis=-1)
        return found
