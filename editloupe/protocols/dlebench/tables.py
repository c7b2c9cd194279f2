"""DLEBench's tables: scores by edit type and editor (Tables 1 and 4), and scores against target areas (Figures 4 and 6).

Means over edit types count every type the same, as the paper's do; means of all samples stand beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from editloupe.files import read_toml
from editloupe.protocols.names import Names
from editloupe.scores import Metric
from editloupe.stats import bootstrap
from editloupe.stats.areas import WINDOW, area_plot, correlation, points_of, scatter_plot, size_plot, trend
from editloupe.stats.pivot import Rows
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words

if TYPE_CHECKING:
    import polars

_DATA: Final = read_toml(Path(__file__).with_name("tables.toml"), "the built-in tables")
EDIT_TYPES: Final = tuple(_DATA["edit_types"])
"""In the order of the paper's Table 1."""

edit_type_name: Final = Names(_DATA["edit_types"])
"""Edit type in any spelling → the paper's name of it."""

AREAS: Final = ((0.0007, "under 0.07 %"), (0.008, "0.07 to 0.8 %"), (0.1, "0.8 to 10 %"), (math.inf, "10 % and more"))
"""Shares of the image: (upper bound, name), smallest first; the bulk of DLEBench lies in the second (its Figure 4)."""


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
                normalize=True,
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


_PLACED: Final = ("source", "normalized", "target_area", "target_width", "target_height")


def areas(frame: polars.DataFrame, *, metrics: Sequence[Metric]) -> Table | None:
    """Return the scores of each editor against the areas of the targets; None if no judged sample has a box.

    frame: one judge's scores with the columns `target_area`, `target_width` and `target_height`, shares of the source image
    and its sides, 0 to 1. Of the metrics those about the target, or all if none says what it is about.
    """
    if "target_area" not in frame.columns:
        return None
    asked = [metric for metric in metrics if metric.id in set(frame["metric"])]
    found = frame.select("editor", "metric", *_PLACED).partition_by("editor", "metric", as_dict=True)
    shown = [
        (editor, metric, rows)
        for editor in frame["editor"].unique(maintain_order=True)
        for metric in [metric for metric in asked if metric.concerns == "target"] or asked
        if (editor, metric.id) in found and points_of(rows := found[editor, metric.id].to_dicts())
    ]
    if not shown:
        return None
    names = [name for _, name in AREAS if any(_in(rows, name) for _, _, rows in shown)]
    without = max(sum(row["target_area"] is None for row in rows) for _, _, rows in shown)
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
        caption=" ".join(
            text.format(window=WINDOW, without=without)
            for text in (_DATA["captions"]["areas"], _DATA["captions"]["no_box"] if without else "")
        ).rstrip(),
        plots=(
            *(
                make(f"{name}-{number}-{metric.id.replace('_', '-')}", editor, metric, rows)
                for number, (editor, metric, rows) in enumerate(shown, start=1)
                for name, make in (("area", scatter_plot), ("size", size_plot))
            ),
            area_plot(frame.unique(["sample", "source"], maintain_order=True)["target_area"].to_list()),
        ),
    )


def _row(editor: str, metric: Metric, rows: Rows, names: Sequence[str]) -> Row:
    points = points_of(rows)
    windows = trend(points)
    means = []
    for own in (_in(rows, name) for name in names):
        mean = bootstrap.mean([row["normalized"] for row in own], [row["source"] for row in own]) if own else None
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


def _in(rows: Rows, name: str) -> Rows:
    return [row for row in rows if row["target_area"] is not None and _area_name(row["target_area"]) == name]


def _area_name(area: float) -> str:
    """Return the interval of a target area (share of the image, 0 to 1)."""
    return next(name for bound, name in AREAS if area < bound)
