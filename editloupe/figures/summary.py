"""What a table's specification makes of scores: which of them it counts, by which rows, and the number of a cell.

Every number is `stats.bootstrap.aggregate` of rows of the frame of scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from editloupe.errors import ConfigError
from editloupe.figures.frame import OURS
from editloupe.protocols.base import EvalProtocol
from editloupe.scores import NOT_JUDGED, Metric
from editloupe.stats.bootstrap import Drawing, Estimate, aggregate
from editloupe.stats.spec import TableSpec
from editloupe.tasks import STATUSES

if TYPE_CHECKING:
    import polars

OVERALL: Final = "overall"
"""Stands for the mean of all metrics, where they share a scale. A metric of this name goes before it."""

BY_EDITOR: Final = TableSpec(title="Scores", name="scores", rows="editor", columns="metric", overall=False)
BY_TURN: Final = TableSpec(title="Scores by turn", name="scores-by-turn", rows="turn", columns="metric", overall=False)
"""The tables of a protocol that has none; the second only if there are turns."""

_ALWAYS: Final = ("sample", "editor", "turn", "part", "metric", "label")
"""Columns by which every table may be."""


def specs(protocol: EvalProtocol) -> list[TableSpec]:
    """Return the tables that a protocol declares; for a protocol without any, by editor and by turn."""
    return [table for table in protocol.tables if isinstance(table, TableSpec)] or [BY_EDITOR, BY_TURN]


def counted(spec: TableSpec, frame: polars.DataFrame) -> polars.DataFrame:
    """Return the scores that a table counts.

    A table by turn or part counts the scores of turns or parts. For any other, a sample's score as a whole stands for those
    of its turns and parts, so that nothing counts twice.
    """
    import polars

    by = {spec.rows, spec.columns}
    turn, part = polars.col("turn") != 0, polars.col("part") != ""
    if by & {"turn", "part"}:
        return frame.filter(*(one for name, one in (("turn", turn), ("part", part)) if name in by))
    whole = ~turn & ~part
    return frame.filter(whole | ~whole.any().over("editor", "sample", "metric"))


def on_hundred(spec: TableSpec, metric: Metric) -> bool:
    """Return whether a table shows the metric on 0 to 100. A metric without bounds stays in its unit."""
    return spec.normalize and metric.domain.bounds is not None


def share_a_scale(spec: TableSpec, metrics: Sequence[Metric]) -> bool:
    """Return whether a mean of these metrics means something: all on 0 to 100, or all of one range and unit in one cell."""
    if all(on_hundred(spec, metric) for metric in metrics):
        return bool(metrics)
    scales = {(metric.domain.bounds, metric.unit) for metric in metrics}
    return spec.columns != "metric" and len(scales) == 1 and None not in {bounds for bounds, _ in scales}


@dataclass(frozen=True)
class TableScores:
    """The scores that a table counts, of its metrics, ready to be summed up."""

    spec: TableSpec
    metrics: Sequence[Metric]
    """Those of the table that the scores have."""
    frame: polars.DataFrame
    """With `row` and `column`, the places in the table as text, and `shown`, the value as the table counts it."""
    drawing: Drawing | None = None
    """How intervals are drawn; None for none."""

    @classmethod
    def of(
        cls, spec: TableSpec, frame: polars.DataFrame, metrics: Sequence[Metric], drawing: Drawing | None = None
    ) -> TableScores:
        """Return what a table counts of a frame. Raises ConfigError if no score has a column of the table."""
        import polars

        frame = counted(spec, frame)
        there, metric = set(frame["metric"]), polars.col("metric")
        own = [m for m in metrics if m.id in there and (not spec.metrics or m.id in spec.metrics)]
        frame = frame.filter(metric.is_in([m.id for m in own]))
        _check_columns(spec, frame)
        hundred = metric.is_in([m.id for m in own if on_hundred(spec, m)])
        shown = polars.when(hundred).then("normalized").otherwise("value") * (100 if spec.cell == "rate" else 1)
        places = [_text(frame, name).alias(place) for name, place in ((spec.rows, "row"), (spec.columns, "column"))]
        return cls(spec, own, frame.with_columns(shown=shown).with_columns(*places), drawing)

    @cached_property
    def rows(self) -> list[str]:
        """The rows that the scores have: the listed ones first, then others by name. Without a list, as they come."""
        found, listed = self.frame["row"].unique(maintain_order=True).to_list(), self.spec.order
        return (
            sorted(found, key=lambda row: (listed.index(row) if row in listed else len(listed), row)) if listed else found
        )

    def where(self, **values: str) -> TableScores:
        """Return the same of those scores alone that have these values: of a row, a column or a metric."""
        return replace(self, frame=self.frame.filter(**values))

    def of_metrics(self, metrics: Sequence[Metric]) -> TableScores:
        """Return the same of some metrics."""
        import polars

        return replace(self, metrics=metrics, frame=self.frame.filter(polars.col("metric").is_in([m.id for m in metrics])))

    def number(self, *, over: Sequence[str] = ()) -> Estimate:
        """Return the number of all these scores; of several metrics the mean of their numbers, if every metric has one.

        over: further columns whose values count alike.
        """
        judged = self.frame.drop_nulls("shown")
        base = Estimate(value=None, judged=len(judged), asked=len(self.frame))
        if judged["metric"].n_unique() < len(self.metrics) or not len(judged):
            return replace(base, why="nothing was judged")
        alike = [*(["metric"] if len(self.metrics) > 1 else []), *over]
        return aggregate(self.frame, over=alike, value="shown", drawing=self.drawing)[()]

    @property
    def listed(self) -> list[str]:
        """The rows that the table lists and the scores have."""
        return [row for row in self.rows if row in self.spec.order]

    @cached_property
    def whole_rows(self) -> list[str]:
        """The listed rows that have a number for every metric."""
        return [row for row in self.listed if replace(self.where(row=row), drawing=None).number().value is not None]

    def macro(self) -> Estimate:
        """Return the mean over the listed rows that have a number for every metric.

        A row without a number is missing, not zero. What was asked in it counts as asked.
        """
        import polars

        whole = replace(self, frame=self.frame.filter(polars.col("row").is_in(self.whole_rows)))
        return replace(whole.number(over=("row",)), asked=int(self.frame["row"].is_in(self.listed).sum()))


def _text(frame: polars.DataFrame, name: str) -> polars.Series:
    """A column of the frame as text: "(not named)" for no editor, "(none)" for nothing elsewhere."""
    import polars

    if name not in frame.columns:
        return polars.Series(["(none)"] * len(frame), dtype=polars.String)
    nothing = "0" if name == "turn" else ""
    found = frame[name].cast(polars.String).fill_null(nothing)
    return found.replace(nothing, "(not named)" if name == "editor" else "(none)")


def _check_columns(spec: TableSpec, frame: polars.DataFrame) -> None:
    """Raise ConfigError if a table is by a column that no score has. Without any value there may be no column either."""
    known = {*_ALWAYS, *(name for name in frame.columns if name not in OURS)}
    missing = next((name for name in (spec.rows, spec.columns) if name not in known), None)
    if missing is not None and frame["missing"].is_null().any():
        raise ConfigError(
            f"table {spec.title!r}: no score has the column {missing!r}; there are {', '.join(sorted(known))}"
        )


def statuses(missing: Iterable[str | None]) -> dict[str, int]:
    """Return how many scores are missing, by status."""
    counts = Counter(missing)
    return {status: counts[status] for status in (*STATUSES, NOT_JUDGED) if counts[status]}
