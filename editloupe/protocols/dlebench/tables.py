"""DLEBench's tables: scores by edit type and editor (Tables 1 and 4), and scores against target areas (Figures 4 and 6).

Means over edit types count every type the same, as the paper's do; means of all samples stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from editloupe.imaging.targets import AREAS, area_name
from editloupe.scores import Metric, TableSpec
from editloupe.stats import bootstrap
from editloupe.tables import Cell, Column, Dots, Row, ScatterPlot, Table, estimated, label_columns, words

if TYPE_CHECKING:
    import polars

EDIT_TYPES: Final = (
    "Change Material",
    "Change Color",
    "Change OCR",
    "Change Shape",
    "Removal Object",
    "Replace Object",
    "Change Count",
)
"""In the order of the paper's Table 1."""

WORST: Final = "Of several targets of a sample the worst label counts."
"""What the oracle mode adds: it judges targets one by one."""

WINDOW: Final = 10
"""Samples of one window of the trend, as in the paper."""

_LEAST = 3


def tables(metrics: Sequence[Metric], *, mode: str) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return Table 1 (the mean of the metrics), Table 4 (a table a metric), and the target areas."""
    worst = WORST if mode == "oracle" else ""

    def spec(name: str, title: str, source: str, only: tuple[str, ...]) -> TableSpec:
        return TableSpec(
            name=f"scores-{name.replace('_', '-')}",
            title=title,
            metrics=only,
            rows="edit_type",
            columns="editor",
            cell="macro",
            order=EDIT_TYPES,
            normalise=True,
            source=source,
            caption=worst,
        )

    ids = tuple(metric.id for metric in metrics)
    return (
        *([spec("overall", "Overall, by edit type (mean of the criteria)", "Table 1", ids)] if len(ids) > 1 else []),
        *(spec(metric.id, f"{metric.name}, by edit type", "Table 4", (metric.id,)) for metric in metrics),
        partial(areas, metrics=tuple(metrics)),
    )


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Pearson's r of n points."""

    r: float | None
    """None if there is none; `why` says so."""

    p: float | None
    """Two-sided, of no correlation."""

    n: int
    why: str = ""


def areas(frame: polars.DataFrame, *, metrics: Sequence[Metric]) -> Table | None:
    """Return the scores of each editor against the areas of the targets; None if no judged sample has a box.

    frame: one judge's scores with the column `target_area`, shares of the source image 0 to 1. Of the metrics those about
    the target, or all if none says what it is about.
    """
    if "target_area" not in frame.columns:
        return None
    asked = [metric for metric in metrics if metric.id in set(frame["metric"])]
    about = [metric for metric in asked if metric.concerns == "target"] or asked
    found = [
        (editor, metric, [row for row in frame.to_dicts() if (row["editor"], row["metric"]) == (editor, metric.id)])
        for editor in frame["editor"].unique(maintain_order=True)
        for metric in about
    ]
    shown = [(editor, metric, rows) for editor, metric, rows in found if _points(rows)]
    if not shown:
        return None
    names = [name for _, name in AREAS if any(_in(rows, name) for _, _, rows in shown)]
    without = max(sum(row["target_area"] is None for row in rows) for _, _, rows in shown)
    have = "1 sample without a box is" if without == 1 else f"{without} samples without a box are"
    left_out = f" {have} left out." if without else ""
    return Table(
        name="scale",
        title="Target area and score",
        columns=(
            *label_columns("Editor", ""),
            *(Column(title=name, keys={"figure": f"mean, {name}"}) for name in names),
            Column(title=f"r (p), windows of {WINDOW}", keys={"figure": f"r, windows of {WINDOW}"}),
            Column(title="r (p), samples", keys={"figure": "r, samples, log area"}),
            Column(title="Without a box", keys={"figure": "without a box"}, files_only=True),
        ),
        rows=tuple(_row(editor, metric, rows, names) for editor, metric, rows in shown),
        fixed=2,
        caption=(
            "Mean scores 0 to 100 by target area (share of the source image), judged of asked in brackets. Pearson's r "
            f"of area and score: over sliding windows of {WINDOW} samples sorted by area, as in the paper's Figure 6, "
            f"where p is too small since windows overlap; and over single samples with the area's logarithm.{left_out}"
        ),
        plots=tuple(
            _scatter(f"area-{number}-{metric.id.replace('_', '-')}", editor, metric, _points(rows))
            for number, (editor, metric, rows) in enumerate(shown, start=1)
        ),
    )


def _row(editor: str, metric: Metric, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Row:
    points = _points(rows)
    windows = trend(points)
    single = correlation([float(np.log10(x)) for x, _ in points], [y for _, y in points])
    windowed = correlation([x for x, _ in windows], [y for _, y in windows])
    if points and not windows:
        windowed = Correlation(r=None, p=None, n=0, why=f"under {WINDOW} samples")
    means = []
    for name in names:
        own = _in(rows, name)
        mean = bootstrap.mean([row["normalised"] for row in own], [row["source"] for row in own]) if own else None
        more = {} if mean is None else {"clusters": mean.clusters, "why": mean.why or None}
        means.append(replace(estimated(mean, name="value"), more=more))
    return Row(
        cells=(
            words(editor or "(not named)"),
            words(metric.short),
            *means,
            _correlated(windowed),
            _correlated(single),
            Cell(value=sum(row["target_area"] is None for row in rows), digits=0),
        ),
        keys={"editor": editor, "metric": metric.id},
    )


def _points(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(area, score 0 to 100) of what was judged, by area; those of one area in the order of the data."""
    there = [row for row in rows if row["target_area"] is not None and row["normalised"] is not None]
    return sorted(((row["target_area"], row["normalised"]) for row in there), key=lambda point: point[0])


def _in(rows: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["target_area"] is not None and area_name(row["target_area"]) == name]


def _correlated(found: Correlation) -> Cell:
    p = "" if found.p is None else "<0.001" if found.p < 0.001 else f"{found.p:.3f}"
    more = {"judged": found.n, "p": found.p, "why": found.why or None}
    return Cell(value=found.r, digits=2, signed=True, note=p, why=found.why, more=more)


def trend(points: Sequence[tuple[float, float]], window: int = WINDOW) -> tuple[tuple[float, float], ...]:
    """Return (mean area, mean score) of every `window` neighbours; nothing for fewer points than that.

    Points of one area each count with their mean: which of them a window holds is chance, and any order among them (by
    score above all) would tilt the windows.
    """
    if len(points) < window:
        return ()
    x, score = np.array(points).T
    _, of, count = np.unique(x, return_inverse=True, return_counts=True)
    y = (np.bincount(of, weights=score) / count)[of]
    kernel = np.ones(window) / window
    means = (np.convolve(v, kernel, mode="valid").tolist() for v in (x, y))
    return tuple(zip(*means, strict=True))


def correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Return Pearson's r and its p; undefined for fewer than 3 points, or if all areas or all scores are the same."""
    if len(x) < _LEAST:
        why = "no points" if not x else "1 point" if len(x) == 1 else f"{len(x)} points"
        return Correlation(r=None, p=None, n=len(x), why=why)
    if np.ptp(x) == 0 or np.ptp(y) < 1e-9:
        return Correlation(r=None, p=None, n=len(x), why="one area" if np.ptp(x) == 0 else "one score")
    from scipy.stats import pearsonr  # 0.3 s, and most commands need none of it

    found = pearsonr(x, y)
    return Correlation(r=float(found.statistic), p=float(found.pvalue), n=len(x))


def _scatter(name: str, editor: str, metric: Metric, points: Sequence[tuple[float, float]]) -> ScatterPlot:
    windows = trend(points)
    r = correlation([x for x, _ in windows], [y for _, y in windows])
    told = f"r = {r.r:+z.2f}" if r.r is not None else f"no correlation: {r.why}"
    count = f"{len(points)} sample{'s' * (len(points) != 1)}"
    description = f"{count}; the trend of windows of {WINDOW} has {told}."
    trend_title = f"mean of windows of {WINDOW} samples ({told})"
    if not windows:
        have = "has" if len(points) == 1 else "have"
        trend_title = f"No trend: it takes windows of {WINDOW} samples, and {count} {have} a box and a score"
        description = f"{trend_title}."
    return ScatterPlot(
        name=name,
        title=f"{metric.name} by target area" + (f": {editor}" if editor else ""),
        groups=tuple(
            Dots(
                name=level.name,
                points=tuple(p for p in points if abs(p[1] - (metric.normalise(level.value) or 0.0)) < 1e-6),
            )
            for level in reversed(metric.levels)
        ),
        trend=windows,
        trend_title=trend_title,
        description=description,
    )
