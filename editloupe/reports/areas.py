"""Target areas: in intervals, and whether they decide how well a target is edited (DLEBench, section 5.2, Figures 4, 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from editloupe.imaging.targets import relative_area
from editloupe.reports.judged import Judged
from editloupe.scores import Score
from editloupe.stats import bootstrap as estimate
from editloupe.stats.bootstrap import Estimate
from editloupe.values import sample_key

AREAS: Final = ((0.0007, "under 0.07 %"), (0.008, "0.07 to 0.8 %"), (0.1, "0.8 to 10 %"), (float("inf"), "10 % and more"))
"""Shares of the image: (upper bound, name), smallest first; the bulk of DLEBench lies in the second (Figure 4)."""

WINDOW: Final = 10
"""Samples of one window of the trend, as in the paper."""

_LEAST = 3


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Pearson's r of n points with the two-sided p of no correlation; r None where `why` says why there is none."""

    r: float | None
    p: float | None
    n: int
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ByArea:
    """One editor's scores of one criterion against the areas of the targets.

    points: (share of the source image 0..1, score 0..100), by area, those of one area in the order of the data.
    trend: the means of sliding windows of 10 points, in which points of one area each count with their mean: which of
    them a window holds is chance, and any order among them (by score above all) would tilt the windows.
    windowed: r of the trend's points, areas as they are.   single: r of the points, areas by their logarithm.
    buckets: interval of areas → mean.   without: samples that have no box.
    """

    editor: str
    criterion: str
    points: tuple[tuple[float, float], ...]
    trend: tuple[tuple[float, float], ...]
    windowed: Correlation
    single: Correlation
    buckets: Mapping[str, Estimate] = field(default_factory=dict)
    without: int = 0


def area_name(area: float) -> str:
    """The interval of a target area (share of the image, 0..1)."""
    return next(name for bound, name in AREAS if area < bound)


def by_area(judged: Judged) -> list[ByArea]:
    """One an editor and criterion about the target; about all criteria where the rubric does not say."""
    areas = {key: relative_area(sample) for key, sample in judged.samples.items()}
    about = [c for c in judged.criteria if judged.metrics.metric(c).concerns == "target"] or list(judged.criteria)
    return [
        _by_area(judged, [s for s in judged.scores if s.editor == editor and s.metric == criterion], areas)
        for editor in judged.editors
        for criterion in about
    ]


def _by_area(judged: Judged, scores: Sequence[Score], areas: Mapping[str, float | None]) -> ByArea:
    by_bucket: dict[str, list[Score]] = {}
    points, without = [], 0
    for score in scores:
        area = areas.get(sample_key(score.editor, score.sample_id))
        if area is None:
            without += 1
            continue
        by_bucket.setdefault(area_name(area), []).append(score)
        if score.normalised is not None:
            points.append((area, score.normalised))
    points.sort(key=lambda point: point[0])
    trend = _trend(points)
    buckets = {
        name: estimate.mean([s.normalised for s in found], [judged.cluster(s) for s in found])
        for _, name in AREAS
        if (found := by_bucket.get(name))
    }
    return ByArea(
        editor=scores[0].editor if scores else "",
        criterion=scores[0].metric if scores else "",
        points=tuple(points),
        trend=trend,
        windowed=_windowed(points, trend),
        single=correlation([float(np.log10(x)) for x, _ in points], [y for _, y in points]),
        buckets=buckets,
        without=without,
    )


def _trend(points: Sequence[tuple[float, float]], window: int = WINDOW) -> tuple[tuple[float, float], ...]:
    """(mean area, mean score) of every `window` neighbours; nothing where there are fewer points than that.

    The score of a window is its mean over all orders of the points that share an area.
    """
    if len(points) < window:
        return ()
    x, score = np.array(points).T
    _, of, count = np.unique(x, return_inverse=True, return_counts=True)
    y = (np.bincount(of, weights=score) / count)[of]
    kernel = np.ones(window) / window
    means = (np.convolve(v, kernel, mode="valid").tolist() for v in (x, y))
    return tuple(zip(*means, strict=True))


def _windowed(points: Sequence[tuple[float, float]], trend: Sequence[tuple[float, float]]) -> Correlation:
    if points and not trend:
        return Correlation(r=None, p=None, n=0, why=f"under {WINDOW} samples")
    return correlation([x for x, _ in trend], [y for _, y in trend])


def correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Pearson's r and its p; undefined for fewer than 3 points, or where all areas or all scores are the same."""
    if len(x) < _LEAST:
        return Correlation(r=None, p=None, n=len(x), why=_points(len(x)))
    if np.ptp(x) == 0 or np.ptp(y) < 1e-9:
        return Correlation(r=None, p=None, n=len(x), why="one area" if np.ptp(x) == 0 else "one score")
    from scipy.stats import pearsonr  # 0.3 s, and most commands need none of it

    found = pearsonr(x, y)
    return Correlation(r=float(found.statistic), p=float(found.pvalue), n=len(x))


def _points(n: int) -> str:
    return "no points" if not n else "1 point" if n == 1 else f"{n} points"
