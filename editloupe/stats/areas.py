"""Scores against the share of the image that a thing takes: points, sliding windows, Pearson's r, and their plots.

Rows are those of the frame of scores for one editor and metric, with the columns `target_area`, `target_width` and
`target_height`: shares of the image and its sides, 0 to 1, None where they are not known. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from editloupe.scores import Metric
from editloupe.stats.pivot import Rows
from editloupe.stats.significance import pearson
from editloupe.stats.table import Cell, Dots, HistogramPlot, ScatterPlot, SizePlot

WINDOW: Final = 10
"""Samples of one window of the trend."""
_LEAST: Final = 3
"""Points that a correlation takes."""
Points: TypeAlias = Sequence[tuple[float, float]]
"""(area, score 0 to 100)."""


def points_of(rows: Rows) -> list[tuple[float, float]]:
    """Return (area, score 0 to 100) of what was judged, by area; those of one area in the order of the data."""
    points = [(row["target_area"], row["normalized"]) for row in rows]
    return sorted((point for point in points if None not in point), key=lambda point: point[0])


def trend(points: Points) -> tuple[tuple[float, float], ...]:
    """Return (mean area, mean score) of every WINDOW neighbors; nothing for fewer points than that.

    Points of one area each count with their mean: which of them a window holds is chance, and any order among them (by
    score above all) would tilt the windows.
    """
    if len(points) < WINDOW:
        return ()
    x, score = np.array(points).T
    _, of, count = np.unique(x, return_inverse=True, return_counts=True)
    y = (np.bincount(of, weights=score) / count)[of]
    kernel = np.ones(WINDOW) / WINDOW
    means = (np.convolve(v, kernel, mode="valid").tolist() for v in (x, y))
    return tuple(zip(*means, strict=True))


def correlation(points: Points, *, none: str = "no points") -> Cell:
    """Return Pearson's r of (area, score) with its two-sided p.

    It is undefined for fewer than 3 points, or if all areas or all scores are the same; the cell says why.
    none: what it says for no point.
    """
    n, r, p, why = len(points), None, None, ""
    x, y = zip(*points, strict=True) if points else ((), ())
    if n < _LEAST:
        why = none if not n else "1 point" if n == 1 else f"{n} points"
    elif np.ptp(x) == 0 or np.ptp(y) < 1e-9:
        why = "one area" if np.ptp(x) == 0 else "one score"
    else:
        r, p = pearson(x, y)
    note = "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
    return Cell(value=r, digits=2, signed=True, note=note, why=why, more={"judged": n, "p": p, "why": why or None})


def scatter_plot(name: str, editor: str, metric: Metric, rows: Rows) -> ScatterPlot:
    """Return the scores of an editor by area, with the trend of their windows."""
    points = points_of(rows)
    # The windows of fewer samples all overlap: their means say nothing of small against large.
    windows = trend(points) if len(points) >= 2 * WINDOW else ()
    count = f"{len(points)} sample{'s' * (len(points) != 1)}"
    if windows:
        r = correlation(windows)
        fit = f"no correlation: {r.why}" if r.value is None else f"r = {r.value:+z.2f}"
        told = f"mean of windows of {WINDOW} samples ({fit})", f"{count}; the trend of windows of {WINDOW} has {fit}."
    else:
        have = "has" if len(points) == 1 else "have"
        why = f"No trend: it takes two windows of {WINDOW} samples, and {count} {have} a box and a score"
        told = why, f"{why}."
    return ScatterPlot(
        name=name,
        title=f"{metric.name} by target area" + (f": {editor}" if editor else ""),
        groups=_groups(metric, [(score, (area, score)) for area, score in points]),
        trend=windows,
        trend_title=told[0],
        description=told[1],
    )


def size_plot(name: str, editor: str, metric: Metric, rows: Rows) -> SizePlot:
    """Return the scores of an editor by width and height."""
    sizes = [(row["normalized"], (row["target_width"], row["target_height"])) for row in rows]
    known = [(score, size) for score, size in sizes if score is not None and all(map(_is_share, size))]
    title = f"{metric.name} by target width and height" + (f": {editor}" if editor else "")
    groups = _groups(metric, known)
    counts = ", ".join(f"{group.name} {len(group.points)}" for group in groups)
    told = f"{title}: {counts}. Of several targets of a sample, its largest. Dots of one size lie about their place."
    return SizePlot(name=name, title=title, groups=groups, description=told)


def area_plot(areas: Sequence[float | None]) -> HistogramPlot:
    """Return how many samples have which area.   areas: one for each sample."""
    known = tuple(area for area in areas if area is not None and _is_share(area))
    return HistogramPlot(name="areas", title="Samples by target area", shares=known, unknown=len(areas) - len(known))


def _is_share(value: float | None) -> bool:
    """Whether it can stand on a log axis of shares: a box in a run from elsewhere may be empty or leave its image."""
    return value is not None and 0 < value <= 1


def _groups(metric: Metric, points: Sequence[tuple[float, tuple[float, float]]]) -> tuple[Dots, ...]:
    """The points of (score, point) by the label that their score is, best first."""
    levels = [(level.name, metric.normalize(level.value) or 0.0) for level in reversed(metric.levels)]
    return tuple(
        Dots(name=name, points=tuple(point for score, point in points if abs(score - value) < 1e-6), good=value)
        for name, value in levels
    )
