"""Tests of no difference between two judges, with the correction for many tests."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from editloupe.stats.bootstrap import OrNull
from editloupe.values import Serialisable

_LEAST_TESTED: Final = 6
"""Source images that differ: with fewer, no outcome of the signed-rank test is below 0.05."""


@dataclass(frozen=True, kw_only=True)
class Significance(Serialisable):
    """The outcome of one test."""

    p: float | None
    """Two-sided; None if `why` says why there is none."""
    p_holm: float | None = None
    """p corrected by Holm for all tests of its table."""
    n: int
    """Source images or samples that it rests on."""
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
    from scipy.stats import wilcoxon  # 0.3 s, and most commands need none of it

    return Significance(p=float(wilcoxon(moved).pvalue), n=len(moved))


def mcnemar(first_alone: int, second_alone: int) -> Significance:
    """Return McNemar's exact test: a binomial test of the samples on which one judge alone is right."""
    n = first_alone + second_alone
    if not n:
        return Significance(p=None, n=0, why="they are right on the same samples")
    from scipy.stats import binomtest  # as above

    return Significance(p=float(binomtest(first_alone, n).pvalue), n=n)


def holm(tests: Sequence[Significance]) -> list[Significance]:
    """Return the tests with p corrected for how many they are (Holm's step-down)."""
    order = sorted((t.p, i) for i, t in enumerate(tests) if t.p is not None)
    found = list(tests)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        found[index] = replace(tests[index], p_holm=highest)
    return found
