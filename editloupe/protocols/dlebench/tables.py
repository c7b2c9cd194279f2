"""DLEBench's tables: scores by edit type and editor (Tables 1 and 4), and scores against target areas (Figures 4 and 6).

Means over edit types count every type the same, as the paper's do; means of all samples stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from editloupe.imaging.targets import AREAS, area_name
from editloupe.protocols.names import Names
from editloupe.scores import Metric
from editloupe.stats import bootstrap
from editloupe.stats.significance import pearson
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import (
    Cell,
    Column,
    Dots,
    HistogramPlot,
    Row,
    ScatterPlot,
    SizePlot,
    Table,
    estimated,
    label_columns,
    words,
)

if TYPE_CHECKING:
    import polars

ALIASES: Final = {
    "Change Material": ("material", "material alter", "material change", "change attribute material"),
    "Change Color": ("color", "colour", "change colour", "color alter", "color change", "recolor", "recolour"),
    "Change OCR": ("ocr", "text", "change text", "text change", "text alter"),
    "Change Shape": ("shape", "shape change", "shape alter"),
    "Removal Object": ("removal", "remove", "remove object", "object removal", "subject remove", "delete"),
    "Replace Object": ("replace", "replacement", "object replacement", "subject replace", "object replace"),
    "Change Count": ("count", "count change", "object count"),
}
"""Edit type → other spellings, in the order of the paper's Table 1."""

edit_type_name: Final = Names(ALIASES)
"""Edit type in any spelling → the paper's name of it."""

EDIT_TYPES: Final = tuple(ALIASES)

WINDOW: Final = 10
"""Samples of one window of the trend, as in the paper."""

_LEAST = 3

_Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of the frame of scores: those of one editor and metric."""


def tables(metrics: Sequence[Metric], *, mode: str, benchmark: bool) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return Table 1 (the mean of the metrics), Table 4 (a table a metric), and the target areas.

    benchmark: whether the rubric is DLEBench's. With another one the rows are the edit types of the data, and the mean is
    that of all samples.
    """
    ids = tuple(metric.id for metric in metrics)
    whole = [("overall", "Overall, by edit type (mean of the criteria)", "Table 1", ids)] if len(ids) > 1 else []
    return (
        *(
            TableSpec(
                name=f"scores-{name.replace('_', '-')}",
                title=title,
                metrics=only,
                rows="edit_type",
                columns="editor",
                cell="macro" if benchmark else "mean",
                order=EDIT_TYPES if benchmark else (),
                normalise=True,
                source=source if benchmark else "",
                caption="Of several targets of a sample the worst label counts." if mode == "oracle" else "",
            )
            for name, title, source, only in [
                *whole,
                *((metric.id, f"{metric.name}, by edit type", "Table 4", (metric.id,)) for metric in metrics),
            ]
        ),
        partial(areas, metrics=tuple(metrics)),
    )


def areas(frame: polars.DataFrame, *, metrics: Sequence[Metric]) -> Table | None:
    """Return the scores of each editor against the areas of the targets; None if no judged sample has a box.

    frame: one judge's scores with the columns `target_area`, `target_width` and `target_height`, shares of the source image
    and its sides, 0 to 1. Of the metrics those about the target, or all if none says what it is about.
    """
    if "target_area" not in frame.columns:
        return None
    asked = [metric for metric in metrics if metric.id in set(frame["metric"])]
    found = frame.partition_by("editor", "metric", as_dict=True)
    shown = [
        (editor, metric, rows)
        for editor in frame["editor"].unique(maintain_order=True)
        for metric in [metric for metric in asked if metric.concerns == "target"] or asked
        if (editor, metric.id) in found and _points(rows := found[editor, metric.id].to_dicts())
    ]
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
        plots=(
            *(
                make(f"{name}-{number}-{metric.id.replace('_', '-')}", editor, metric, rows)
                for number, (editor, metric, rows) in enumerate(shown, start=1)
                for name, make in (("area", _scatter), ("size", _sizes))
            ),
            _histogram(frame),
        ),
    )


def _row(editor: str, metric: Metric, rows: _Rows, names: Sequence[str]) -> Row:
    points = _points(rows)
    windows = trend(points)
    means = []
    for own in (_in(rows, name) for name in names):
        mean = bootstrap.mean([row["normalised"] for row in own], [row["source"] for row in own]) if own else None
        more = {} if mean is None else {"clusters": mean.clusters, "why": mean.why or None}
        means.append(replace(estimated(mean, name="value"), more=more))
    return Row(
        cells=(
            words(editor or "(not named)"),
            words(metric.short),
            *means,
            correlation(windows, none=f"under {WINDOW} samples"),
            correlation([(float(np.log10(area)), score) for area, score in points]),
            Cell(value=sum(row["target_area"] is None for row in rows), digits=0),
        ),
        keys={"editor": editor, "metric": metric.id},
    )


def _points(rows: _Rows) -> list[tuple[float, float]]:
    """(area, score 0 to 100) of what was judged, by area; those of one area in the order of the data."""
    points = [(row["target_area"], row["normalised"]) for row in rows]
    return sorted((point for point in points if None not in point), key=lambda point: point[0])


def _in(rows: _Rows, name: str) -> _Rows:
    return [row for row in rows if row["target_area"] is not None and area_name(row["target_area"]) == name]


def trend(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return (mean area, mean score) of every WINDOW neighbours; nothing for fewer points than that.

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


def correlation(points: Sequence[tuple[float, float]], *, none: str = "no points") -> Cell:
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


def _scatter(name: str, editor: str, metric: Metric, rows: _Rows) -> ScatterPlot:
    points = _points(rows)
    # The windows of fewer samples all overlap: their means say nothing of small against large.
    windows = trend(points) if len(points) >= 2 * WINDOW else ()
    count = f"{len(points)} sample{'s' * (len(points) != 1)}"
    if windows:
        r = correlation(windows)
        fit = f"no correlation: {r.why}" if r.value is None else f"r = {r.value:+z.2f}"
        trend_title = f"mean of windows of {WINDOW} samples ({fit})"
        description = f"{count}; the trend of windows of {WINDOW} has {fit}."
    else:
        have = "has" if len(points) == 1 else "have"
        trend_title = f"No trend: it takes two windows of {WINDOW} samples, and {count} {have} a box and a score"
        description = f"{trend_title}."
    return ScatterPlot(
        name=name,
        title=f"{metric.name} by target area" + (f": {editor}" if editor else ""),
        groups=_groups(metric, [(score, (area, score)) for area, score in points]),
        trend=windows,
        trend_title=trend_title,
        description=description,
    )


def _sizes(name: str, editor: str, metric: Metric, rows: _Rows) -> SizePlot:
    sizes = [(row["normalised"], (row["target_width"], row["target_height"])) for row in rows]
    known = [(score, size) for score, size in sizes if score is not None and all(map(_is_share, size))]
    return SizePlot(
        name=name,
        title=f"{metric.name} by target width and height" + (f": {editor}" if editor else ""),
        groups=_groups(metric, known),
        note="Of several targets of a sample, its largest. Dots of one size lie about their place.",
    )


def _histogram(frame: polars.DataFrame) -> HistogramPlot:
    """The areas of all samples that were asked, those of several editors once."""
    areas = frame.unique(["sample", "source"], maintain_order=True)["target_area"].to_list()
    known = tuple(filter(_is_share, areas))
    return HistogramPlot(name="areas", title="Samples by target area", shares=known, unknown=len(areas) - len(known))


def _is_share(value: float | None) -> bool:
    """Whether it can stand on a log axis of shares: a box in a run from elsewhere may be empty or leave its image."""
    return value is not None and 0 < value <= 1


def _groups(metric: Metric, points: Sequence[tuple[float, tuple[float, float]]]) -> tuple[Dots, ...]:
    """The points of (score, point) by the label that their score is, best first."""
    levels = [(level.name, metric.normalise(level.value) or 0.0) for level in reversed(metric.levels)]
    return tuple(
        Dots(name=name, points=tuple(point for score, point in points if abs(score - value) < 1e-6), good=value)
        for name, value in levels
    )
