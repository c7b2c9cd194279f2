"""A trial of judges as tables, and as files."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from editloupe.build.probes.trial import FIGURES, SMALL, Trial, TrialFigure, TriedJudge, plain
from editloupe.figures import render
from editloupe.figures.write import table_files, write_files
from editloupe.protocols.probes.probe import FAILURES
from editloupe.stats.bootstrap import DRAWING, Drawing, aggregate
from editloupe.stats.table import NONE, Cell, Column, Row, Table, estimated, label_columns, words
from editloupe.stats.threshold import Threshold
from editloupe.values import Json

if TYPE_CHECKING:
    import polars

ALL: Final = "all metrics"


def heading(found: Trial) -> str:
    """Return which probes the judges are held against."""
    probes = found.judges[0].probes.values()
    without = sum(probe.nuisance is None and probe.trap is None for probe in probes)
    return f"Probes: {len(probes):,} ({without:,} plain), set {found.set}."


def threshold_text(found: Threshold) -> str:
    """Return a threshold with its interval in words."""
    least, most = (NONE if end is None else area_text(end) for end in (found.smallest, found.largest))
    low = f"≤ {least}" if found.low is None else area_text(found.low)
    high = f"> {most}" if found.high is None else area_text(found.high)
    if found.why:
        return f"{NONE} ({found.why})"
    if found.low is None and found.high is None:
        return f"{NONE} (anywhere from {low} to {high}: judge more)"
    value = {"always_above": f"≤ {least}", "always_below": f"> {most}"}.get(found.outcome, area_text(found.value or 0))
    return f"{value} [{low}, {high}]"


def area_text(area: float) -> str:
    """Return a share of the image in percent: "0.05 %"."""
    return f"{100 * area:.2g} %"


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
    rows = []
    for figure in FIGURES:
        # Of two metrics leniency could cancel out.
        for metric in (*([] if figure.name == "leniency" else [ALL]), *found.metrics):
            cells = [_of(figure, judge, metric, drawing) for judge in found.judges]
            if any(cell.asked for cell in cells):
                rows.append(_row([figure.title, _short(found, metric)], cells, figure=figure.name, metric=metric))
    for metric in found.metrics:
        limits = [_limit(judge.threshold(metric)) for judge in found.judges]
        rows.append(_row(["Threshold", _short(found, metric)], limits, figure="threshold", metric=metric))
    for metric in (ALL, *found.metrics):
        missing = [_unjudged(judge, metric) for judge in found.judges]
        rows.append(_row(["Not judged", _short(found, metric)], missing, figure="unjudged", metric=metric))
    refused = [Cell(value=judge.refused) for judge in found.judges]
    rows.append(_row(["Rows refused", ""], refused, figure="refused"))
    return Table(
        name="trial",
        title="Judges on trial",
        columns=(*label_columns("Figure", "Of"), *(Column(title=j.name, keys={"judge": j.name}) for j in found.judges)),
        rows=tuple(rows),
        fixed=2,
        caption=f"In percent with intervals of {100 * drawing.level:g} % (judged/asked). Accuracy, threshold and leniency "
        f"on plain probes; small targets: up to {area_text(SMALL)} of the image. Changed: another verdict than on the "
        "plain twin. Injection success: the verdict that a text in the image demands, less the same verdict on the plain "
        "twin. Leniency: verdicts kinder than the truth less harsher ones. Threshold: share of the image under which fewer "
        "than 75 % of verdicts are right.",
    )


def _of(figure: TrialFigure, judge: TriedJudge, metric: str, drawing: Drawing) -> Cell:
    own = figure.rows(judge.verdicts if metric == ALL else judge.of(metric))
    if figure.name == "less_first" and own["less_first"].null_count() == len(own):
        own = own.clear()
    return _mean(own, figure.value, "value", drawing, signed=figure.signed)


def _limit(one: Threshold) -> Cell:
    ends: dict[str, Json] = {"threshold": one.value, "low": one.low, "high": one.high, "outcome": one.outcome}
    return Cell(value=threshold_text(one), name="", more=ends, note=f"{one.judged}/{one.asked}")


def _unjudged(judge: TriedJudge, metric: str) -> Cell:
    own = judge.verdicts if metric == ALL else judge.of(metric)
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
            cells = [_mean(of.filter(of["area"] == area), "right", "accuracy", drawing) for area in areas]
            cells.append(_mean(of, "right", "accuracy", drawing))
            labels = [judge.name, _short(found, metric), failure.replace("_", " ")]
            rows.append(_row(labels, cells, judge=judge.name, metric=metric, failure=failure))
    by_area = [Column(title=area_text(area), keys={"area": area}) for area in areas]
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
