"""Turn scores into the tables that a protocol declares (`TableSpec`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from editloupe.errors import ConfigError
from editloupe.figures.summary import OVERALL, TableScores, on_hundred, share_a_scale
from editloupe.scores import Metric
from editloupe.stats.bootstrap import Drawing, Estimate
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import (
    UNNAMED,
    Cell,
    Column,
    MeansPlot,
    Plot,
    RadarPlot,
    Row,
    Table,
    estimated,
    label_columns,
    transposed,
    words,
)
from editloupe.values import Json

if TYPE_CHECKING:
    import polars

_WORST: Final = ", missing outputs as the worst"


def spec_table(
    spec: TableSpec,
    frame: polars.DataFrame,
    metrics: Sequence[Metric],
    *,
    drawing: Drawing | None = None,
) -> Table | None:
    """Return the table of a spec; None if no score has its metrics, and for a mean of several metrics if only one is left.

    drawing: how intervals are drawn; None for none.
    Raises ConfigError if the scores lack a column of the spec, or metrics in one cell have no scale in common.
    """
    found = TableScores.of(spec, frame, metrics, drawing)
    by_metric = spec.columns == "metric"
    if not found.metrics or (not by_metric and len(found.metrics) == 1 < len(spec.metrics)):
        return None
    if not by_metric and len(found.metrics) > 1 and not share_a_scale(spec, found.metrics):
        shorts = ", ".join(metric.short for metric in found.metrics)
        raise ConfigError(
            f"table {spec.title!r}: {shorts} would share a cell and have no common scale; name one of them in `metrics`, "
            "set `normalize`, or give each a column (columns='metric')"
        )
    table = _Pivot(found).table()
    return transposed(table, _capital(spec.columns)) if spec.transposed else table


_Figures: TypeAlias = tuple[Column, TableScores]
"""A column, and the scores that its figures sum up; a figure of several metrics is the mean of theirs."""


class _Pivot:
    """One table in the making."""

    def __init__(self, found: TableScores) -> None:
        self.spec, self.metrics, self.scores = found.spec, found.metrics, found
        self.by_metric, self.rate = self.spec.columns == "metric", self.spec.cell == "rate"
        self.hundred = all(on_hundred(self.spec, metric) for metric in self.metrics)
        # A row over the only row would say the same again.
        self.sums = self.spec.overall and (bool(self.spec.order) or len(found.rows) > 1)

    def columns(self, found: TableScores) -> list[_Figures]:
        """Return the columns of these scores."""
        if self.by_metric:
            columns = [
                (Column(title=f"{m.short} ({m.unit})" if m.unit else m.short, keys={"metric": m.id}), found.of_metrics([m]))
                for m in self.metrics
            ]
            # A metric may be called "overall" itself.
            together = len(self.metrics) > 1 and self.hundred
            return [*columns, *([(Column(title="Overall", keys={"metric": OVERALL}), found)] if together else [])]
        columns = []
        for name in found.frame["column"].unique(maintain_order=True):
            own = found.where(column=name)
            there = set(own.frame["metric"])
            own = own.of_metrics([metric for metric in found.metrics if metric.id in there])
            columns.append((Column(title=name, keys={self.spec.columns: _raw(name)}), own))
        return columns

    def table(self) -> Table:
        """Return the table."""
        spec, columns = self.spec, self.columns(self.scores)
        single: dict[str, Json] = {"metric": self.metrics[0].id if len(self.metrics) == 1 else OVERALL}
        rows = [
            Row(cells=(words(name), *(self._of_row(own, name) for _, own in columns)), keys={spec.rows: _raw(name)})
            for name in self.scores.rows
        ]
        if self.sums:
            rows += self._sums("", columns)
            if spec.normalize and (self.scores.frame["missing"] == "missing_output").any():
                rows += self._sums(_WORST, self.columns(_as_worst(self.scores)))
        name = spec.name or re.sub(r"[^a-z0-9]+", "-", spec.title.lower()).strip("-")
        return Table(
            name=name,
            title=spec.title,
            columns=(*label_columns(_capital(spec.rows)), *(column for column, _ in columns)),
            rows=tuple(rows if self.by_metric else (replace(row, keys={**single, **row.keys}) for row in rows)),
            caption=" ".join(filter(None, (self._caption(), spec.caption))),
            plots=tuple(self._plots(name, columns)),
        )

    def _of_row(self, scores: TableScores, row: str, *, plotted: bool = False) -> Cell:
        """The figure of one row. Where rows are summed up, intervals stand there, and in plots."""
        own = scores.where(row=row)
        if self.sums and not plotted:
            own = replace(own, drawing=None)
        # A column of a metric counts 0 where another column does not exist.
        return self._cell(scores, own.number() if len(own.frame) or self.by_metric else None)

    def _sums(self, reading: str, columns: Sequence[_Figures]) -> list[Row]:
        """The rows that sum up: over the listed rows, each counting alike, and over all samples.

        The first leads if the data has exactly the rows that the protocol lists, as its benchmark has: of other data, the
        mean over the benchmark's rows is that of a part, or of too few.
        """
        spec = self.spec

        def row(sentence: str, key: str, cells: Iterable[Cell]) -> Row:
            return Row(cells=(words(sentence + reading), *cells), keys={spec.rows: key + reading}, strong=True)

        sentence = f"{'Rate' if self.rate else 'Mean'} of all samples"
        every = row(sentence, sentence.lower(), (self._cell(own, own.number()) for _, own in columns))
        there = [len(own.whole_rows) for _, own in columns if own.listed]
        if not there or spec.cell != "macro":
            return [every]
        noun = spec.rows.split("_")[-1]
        nouns = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
        alike, listed = len(set(there)) == 1, len(spec.order)
        of = "all" if alike and max(there) == listed else f"{'' if alike else 'up to '}{max(there)} of"
        cells = []
        for _, own in columns:
            n = len(own.whole_rows)
            # Where columns rest on different rows, each says on how many.
            note = "" if alike or self.by_metric else f"{n} {nouns if n != 1 else noun}"
            cells.append(replace(self._cell(own, own.macro()), note=note))
        sentence = f"Mean of {of} {listed}{'' if of == 'all' else ' benchmark'} {nouns}"
        over = row(sentence, f"mean over {nouns}", cells)
        return [over, every] if set(self.scores.rows) == set(spec.order) else [every, over]

    def _cell(self, scores: TableScores, found: Estimate | None) -> Cell:
        first = (scores.metrics or self.metrics)[0]
        hundred, bounds = on_hundred(self.spec, first), first.domain.bounds
        found = found or Estimate(value=None, judged=0, asked=0)
        narrow = max(map(abs, bounds)) <= 1 if bounds is not None else found.value is not None and abs(found.value) < 1
        digits = 3 if narrow and not hundred and not self.rate else 2
        return estimated(
            found,
            digits=digits,
            interval_digits=1 if hundred or self.rate else digits,
            name="rate" if self.rate else "mean",
            bounds=("low", "high") if self.scores.drawing is not None else None,
            meter=found.value if hundred else None,
        )

    def _caption(self) -> str:
        what = "Scores 0 to 100" if self.hundred else "Means in the unit of the metric"
        what = "Rates in percent" if self.rate else what
        shorts = [metric.short for metric in self.metrics if on_hundred(self.spec, metric)]
        what += f" ({', '.join(shorts)} on 0 to 100)" if shorts and not self.hundred else ""
        drawn = " with their 95 % interval, resampled by source image, where there is one" if self.scores.drawing else ""
        lower = [metric.short for metric in self.metrics if metric.better == "lower"]
        return f"{what}{drawn}; (judged/asked)." + (f" Lower is better: {', '.join(lower)}." if lower else "")

    def _plots(self, name: str, columns: Sequence[_Figures]) -> Iterator[Plot]:
        """The means of every row that the data has: a bar a column, and from three rows on a radar with a line a column."""
        rows = self.scores.rows
        if not self.spec.order or len(rows) < 2 or self.by_metric or not self.hundred:
            return
        series = tuple((c.title, tuple(self._of_row(own, row, plotted=True) for row in rows)) for c, own in columns)
        if any(cell.value is not None for _, cells in series for cell in cells):
            title = self.spec.title.split(" (")[0].replace(", by", " by")
            of = name.removeprefix("scores-")
            yield MeansPlot(name=f"types-{of}", title=title, rows=tuple(rows), series=series)
            if len(rows) > 2:
                yield RadarPlot(name=f"radar-{of}", title=title, rows=tuple(rows), series=series)


def _raw(value: str) -> str:
    return "" if value == UNNAMED else value


def _capital(column: str) -> str:
    return column.replace("_", " ").capitalize()


def _as_worst(found: TableScores) -> TableScores:
    """The other reading of missing outputs: the editor's fault, so the metric's worst value.

    A metric without bounds or direction has no worst value, and so no such reading.
    """
    import polars

    frame = found.frame
    for metric in found.metrics:
        bounds, own = metric.domain.bounds, polars.col("metric") == metric.id
        if bounds is None or metric.better is None:
            frame = frame.filter(~own)
            continue
        worst = bounds[metric.better == "lower"]
        shown = metric.normalize(worst) if on_hundred(found.spec, metric) else worst
        lost = own & (polars.col("missing") == "missing_output").fill_null(value=False)
        frame = frame.with_columns(shown=polars.when(lost).then(shown).otherwise("shown"))
    return replace(found, frame=frame)
