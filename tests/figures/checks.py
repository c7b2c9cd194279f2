"""A protocol of a test's own package: yes/no, a grade from 0 to 10 and an error in px, of turns and parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import polars

from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.scores import Binary, Interval, Metric, Real, Score
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Column, Row, Table, label_columns, words
from editloupe.tasks import About

PLACES = ((0, ""), (1, ""), (2, ""), (0, "left"), (0, "right"))
"""Turns and parts that findings may be about."""


class ChecksOptions(Options):
    tables: Literal["none", "declared", "computed", "broken", "no table", "mixed", "no column"] = "none"


def largest(frame: Any) -> Table:
    """The largest error of each sample."""
    errors = frame.filter(polars.col("metric") == "error")
    rows = errors.group_by("sample", maintain_order=True).agg(error=polars.col("value").max())
    return Table(
        name="largest",
        title="Largest error",
        columns=(*label_columns("Sample"), Column(title="px")),
        rows=tuple(
            Row(cells=(words(row["sample"]), Cell(value=row["error"], digits=1)), keys={"sample": row["sample"]})
            for row in rows.to_dicts()
        ),
    )


def broken(frame: Any) -> Table:
    raise ZeroDivisionError("no error at all")


class Checks(BaseProtocol):
    """Each finding is a score."""

    name = "checks"
    Options = ChecksOptions
    metrics = (
        Metric(id="kept", domain=Binary()),
        Metric(id="grade", domain=Interval(low=0, high=10)),
        Metric(id="error", domain=Real(), better="lower", unit="px"),
    )

    @property
    def tables(self) -> tuple[Any, ...]:  # type: ignore[override]
        return {
            "none": (),
            "declared": (
                TableSpec(title="Kept", metrics=("kept",), rows="task", cell="rate", columns="editor"),
                TableSpec(
                    title="Grades", metrics=("grade",), rows="task", cell="macro", order=("add", "swap"), normalize=True
                ),
                TableSpec(title="Errors", metrics=("error",), rows="editor", overall=False),
            ),
            "computed": (largest,),
            "broken": (broken,),
            "mixed": (TableSpec(title="Mixed", columns="task"),),
            "no column": (TableSpec(title="Colors", rows="color"),),
            "no table": (lambda frame: "words",),
        }[self.options.tables]

    def plan(self, group: Group, known: Known) -> Iterable[Any]:
        return ()

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        for sample in group:
            for metric in self.metrics:
                places = (About(sample_id=sample.id, editor=sample.editor, turn=t, part=p) for t, p in PLACES)
                for finding in filter(None, (known.finding(metric.id, place) for place in places)):
                    yield Score(
                        sample_id=sample.id,
                        editor=sample.editor,
                        turn=finding.turn,
                        part=finding.part,
                        metric=metric.id,
                        value=float(finding.label == "yes") if finding.label else finding.value,
                        label=finding.label,
                        missing=None if finding.status == "ok" else finding.status,
                        findings=(finding.task_id,),
                        dims={"task": sample.edit_type},
                    )
