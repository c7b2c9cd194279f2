"""Tests of no difference between two judges, with the correction for many tests, and of no correlation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import numpy as np

from editloupe.stats.bootstrap import OrNull
from editloupe.values import Serializable

_LEAST_TESTED: Final = 6
"""Source images that differ: with fewer, no outcome of the signed-rank test is below 0.05."""

_MOST_FLIPPED: Final = 13
"""Source images whose flips SciPy lists, where ranks are tied; for more it takes the normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Significance(Serializable):
    """The outcome of one test."""

    p: float | None
    """Two-sided; None if `why` says why there is none."""
    p_holm: float | None = None
    """p corrected by Holm for all tests of its table."""
    n: int
    """Source images that it rests on."""
    why: OrNull = ""


def signed_ranks(differences: Sequence[float | None], clusters: Sequence[Hashable]) -> Significance:
    """Return Wilcoxon's signed-rank test of the mean difference of each source image.

    Edits of one source are not independent, their means are. No p with fewer than 6 source images that differ.
    """
    by_cluster: dict[Hashable, list[float]] = {}
    for difference, cluster in zip(differences, clusters, strict=True):
        if difference is not None:
            by_cluster.setdefault(cluster, []).append(difference)
    means = [round(math.fsum(found) / len(found), 9) for found in by_cluster.values()]
    moved = [m for m in means if m]
    if len(moved) < _LEAST_TESTED:
        why = f"{len(moved)} of {len(means)} source images differ; {_LEAST_TESTED} are needed"
        return Significance(p=None, n=len(means), why=why)
    from scipy.stats import rankdata, wilcoxon  # 0.3 s, and most commands need none of it

    sizes = np.abs(moved)
    if len(moved) > _MOST_FLIPPED or len(set(sizes)) == len(sizes):
        return Significance(p=float(wilcoxon(moved).pvalue), n=len(moved))
    # Of tied ranks, whose distribution is in no table, SciPy calls a function for each of the 2^n flips: some seconds.
    # A tie may share a rank and a half: twice that is whole.
    ranks = (2 * rankdata(sizes) * np.sign(moved)).astype(int).tolist()
    return Significance(p=_as_far(ranks), n=len(moved))


def pearson(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return Pearson's r, -1 to 1, and the two-sided p of no correlation between normal values.

    x, y: of the same length, 3 or more, neither of one value alone.
    """
    from scipy.special import betainc  # scipy.stats has both figures and takes 0.4 s to import

    r = float(np.corrcoef(x, y)[0, 1])
    # Under no correlation (1 + r) / 2 has the beta distribution of half of n - 2, twice.
    half = len(x) / 2 - 1
    return r, float(2 * betainc(half, half, (1 - abs(r)) / 2))


def sign_flips(outcomes: Sequence[int], clusters: Sequence[Hashable]) -> Significance:
    """Return the exact sign-flip permutation test of which of two judges is right more often.

    outcomes: one for each sample; 1 where the first judge alone is right, -1 where the second is, 0 where neither is alone.
    Edits of one source image are not independent, so that all outcomes of an image are flipped together, and all 2^n flips
    of n images count. Where each image has one edit this is McNemar's exact test. No p with fewer than 2 images.
    """
    net: dict[Hashable, int] = {}
    for outcome, cluster in zip(outcomes, clusters, strict=True):
        if outcome:
            net[cluster] = net.get(cluster, 0) + outcome
    if len(net) < 2:
        why = (
            "one alone is right on samples of 1 source image only; 2 are needed"
            if net
            else "they are right on the same samples"
        )
        return Significance(p=None, n=len(net), why=why)
    return Significance(p=_as_far(net.values()), n=len(net))


def _as_far(signed: Collection[int]) -> float:
    """Return the share of all flips of the signs of these numbers whose sum is as far from 0 as theirs, or farther."""
    # Of the numbers ±size, how many are positive is binomial: 2^n flips need no list.
    chances = np.ones(1)
    for size, count in Counter(abs(one) for one in signed if one).items():
        own = np.zeros(size * count + 1)
        own[::size] = _binomial(count)
        chances = np.convolve(chances, own)
    most = len(chances) - 1
    as_far = np.abs(2 * np.arange(most + 1) - most) >= abs(sum(signed))
    return min(1.0, float(chances[as_far].sum()))


def _binomial(n: int) -> list[float]:
    """Return the chances of 0 to n heads of n coins, each as near as a float can be."""
    ways = accumulate(range(n), lambda known, k: known * (n - k) // (k + 1), initial=1)
    return [found / 2**n for found in ways]


def holm(tests: Sequence[Significance]) -> list[Significance]:
    """Return the tests with p corrected for how many they are (Holm's step-down)."""
    order = sorted((t.p, i) for i, t in enumerate(tests) if t.p is not None)
    found = list(tests)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        found[index] = replace(tests[index], p_holm=highest)
    return found
