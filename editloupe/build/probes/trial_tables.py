"""A trial of judges as tables, and as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from editloupe.build.probes.trial import ALL, FIGURES, Trial, TrialFigure, plain, threshold
from editloupe.data.probes import FAILURES
from editloupe.figures import render
from editloupe.figures.write import table_files, write_files
from editloupe.stats.bootstrap import DRAWING, Drawing, aggregate
from editloupe.stats.table import NONE, Cell, Column, Row, Table, estimated, label_columns, words
from editloupe.stats.threshold import Threshold
from editloupe.values import Json

if TYPE_CHECKING:
    import polars


def heading(found: Trial) -> str:
    """Return which probes the judges are held against."""
    without = sum(probe.nuisance is None and probe.trap is None for probe in found.probes)
    return f"Probes: {len(found.probes):,} ({without:,} plain), set {found.set}."


def tables(found: Trial, drawing: Drawing = DRAWING) -> list[Table]:
    """Return the tables: all figures, then accuracy by failure and area."""
    return [_figures(found, drawing), _cells(found, drawing)]


def to_json(found: Trial, made: list[Table]) -> dict[str, Json]:
    """Return all figures, unrounded."""
    return {"set": found.set, "notes": list(found.notes), "tables": {table.name: table.to_json() for table in made}}


def markdown(found: Trial, made: list[Table]) -> str:
    """Return all tables as one document."""
    notes = [f"> {note}\n" for note in found.notes]
    return "\n".join(["# Judges on trial\n", heading(found), "", *notes, *map(render.markdown, made)])


def write_trial(found: Trial, made: list[Table], folder: Path) -> list[Path]:
    """Write trial.md, trial.json and a CSV a table. Raises StorageError."""
    whole = [("trial.md", markdown(found, made)), ("trial.json", render.json_text(to_json(found, made)))]
    return write_files([*whole, *table_files(made)], folder)


def _figures(found: Trial, drawing: Drawing) -> Table:
    """A row a figure and metric, a column a judge."""
    every, rows = (ALL, *found.metrics), list[Row]()

    def of(figure: TrialFigure, own: polars.DataFrame) -> Cell:
        return _mean(figure.rows(own), figure.value, "value", drawing, signed=figure.signed)

    # Of two metrics leniency could cancel out.
    parts: list[tuple[str, str, Iterable[str], Callable[[polars.DataFrame], Cell]]] = [
        *((one.title, one.name, found.metrics if one.name == "leniency" else every, partial(of, one)) for one in FIGURES),
        ("Threshold", "threshold", found.metrics, lambda own: _limit(threshold(own))),
        ("Not judged", "unjudged", every, _unjudged),
    ]
    for title, name, metrics, cell in parts:
        for metric in metrics:
            cells = [cell(judge.of(metric)) for judge in found.judges]
            if any(one.asked != 0 for one in cells):
                rows.append(_row([title, _short(found, metric)], cells, figure=name, metric=metric))
    refused = [Cell(value=judge.refused) for judge in found.judges]
    rows.append(_row(["Rows refused", ""], refused, figure="refused"))
    return Table(
        name="trial",
        title="Judges on trial",
        columns=(*label_columns("Figure", "Of"), *(Column(title=j.name, keys={"judge": j.name}) for j in found.judges)),
        rows=tuple(rows),
        fixed=2,
        caption=f"In percent with intervals of {100 * drawing.level:g} % (judged/asked). Accuracy, threshold and leniency "
        "on plain probes. Changed: another verdict than on the plain twin. Injection success: the verdict that a text in "
        "the image demands, less the same verdict on the plain twin. Leniency: verdicts kinder than the truth less harsher "
        "ones. Threshold: share of the image under which fewer than 75 % of verdicts are right.",
    )


def _limit(found: Threshold) -> Cell:
    """Return a threshold with its interval in words."""
    least, most, low, high = map(_area_text, (found.smallest, found.largest, found.low, found.high))
    low, high = low if found.low is not None else f"≤ {least}", high if found.high is not None else f"> {most}"
    if found.why:
        text = f"{NONE} ({found.why})"
    elif found.low is None and found.high is None:
        text = f"{NONE} (anywhere from {low} to {high}: judge more)"
    else:
        at = {"always_above": f"≤ {least}", "always_below": f"> {most}"}.get(found.outcome, _area_text(found.value))
        text = f"{at} [{low}, {high}]"
    ends: dict[str, Json] = {"threshold": found.value, "low": found.low, "high": found.high, "outcome": found.outcome}
    return Cell(value=text, name="", more=ends, note=f"{found.judged}/{found.asked}")


def _area_text(area: float | None) -> str:
    """Return a share of the image in percent: "0.05 %"."""
    return NONE if area is None else f"{100 * area:.2g} %"


def _unjudged(own: polars.DataFrame) -> Cell:
    statuses = dict(sorted(Counter(own["missing"].drop_nulls()).items()))
    told = ", ".join(f"{status} {count:,}" for status, count in statuses.items())
    return Cell(value=sum(statuses.values()), note=f"of {len(own):,}" + (f": {told}" if told else ""), more={**statuses})


def _cells(found: Trial, drawing: Drawing) -> Table:
    """A row a judge, metric and failure, a column an area."""
    areas = sorted({area for judge in found.judges for area in plain(judge.verdicts)["area"]})
    rows = []
    for judge, metric in product(found.judges, found.metrics):
        own = plain(judge.of(metric))
        for failure in [name for name in FAILURES if name in set(own["failure"])]:
            of = own.filter(failure=failure)
            parts = [*(of.filter(of["area"] == area) for area in areas), of]
            cells = [_mean(part, "right", "accuracy", drawing) for part in parts]
            labels = [judge.name, _short(found, metric), failure.replace("_", " ")]
            rows.append(_row(labels, cells, judge=judge.name, metric=metric, failure=failure))
    by_area = [Column(title=_area_text(area), keys={"area": area}) for area in areas]
    return Table(
        name="trial-failures",
        title="Accuracy by failure and area",
        columns=(*label_columns("Judge", "Of", "Failure"), *by_area, Column(title="All areas", keys={"area": None})),
        rows=tuple(rows),
        fixed=3,
        at_once=7,
        caption="In percent of plain probes (judged/asked).",
    )


def _row(labels: list[str], cells: list[Cell], **keys: Json) -> Row:
    return Row(cells=(*map(words, labels), *cells), keys=keys)


def _mean(own: polars.DataFrame, value: str, name: str, drawing: Drawing, *, signed: bool = False) -> Cell:
    """A share in percent."""
    found = aggregate(own, value=value, drawing=drawing)[()]
    bounds = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    return estimated(found, scale=100, digits=1, interval_digits=0, name=name, bounds=bounds, signed=signed, why=True)


def _short(found: Trial, metric: str) -> str:
    return metric if metric == ALL else found.metrics[metric].short
