"""Turn scores into the tables that a protocol declares (`TableSpec`), and into what every run has: labels, consistency."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from editloupe.errors import ConfigError
from editloupe.protocols.repeats import Repeats
from editloupe.reports.summary import (
    BY_EDITOR,
    OVERALL,
    Mean,
    asked_in,
    check_columns,
    column_of,
    counted,
    figure,
    macro,
    on_hundred,
    present,
    row_order,
    share_a_scale,
    statuses,
    value_of,
)
from editloupe.scores import Metric, Score
from editloupe.stats import bootstrap
from editloupe.stats.bootstrap import ConfidenceInterval
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import (
    BarPlot,
    Cell,
    Column,
    MeansPlot,
    Plot,
    Row,
    Table,
    label_columns,
    numbers,
    transposed,
    words,
)
from editloupe.values import Json

Cluster: TypeAlias = Callable[[Score], Hashable]
"""What is resampled together: the source image of a score."""

_LEAST_ROWS: Final = 2
_LABELS: Final = (
    "Samples by label, and the label's share of what was judged; samples judged of asked; then those without a label, and "
    "why."
)
_NAMES: Final = ("rate", "geometric_mean", "count")
"""Kinds of cells whose figure has a name of its own in files; the others are means."""


def spec_table(
    spec: TableSpec,
    scores: Sequence[Score],
    metrics: Sequence[Metric],
    *,
    cluster: Cluster | None = None,
    keys: Mapping[str, Json] | None = None,
) -> Table | None:
    """Return the table of a spec; None if no score has its metrics, and for a mean of several metrics if only one is left.

    cluster: by which intervals are resampled; None for no intervals.   keys: what all figures are of, for files.
    Raises ConfigError if the scores lack a column of the spec, or metrics in one cell have no scale in common.
    """
    scores = counted(spec, scores)
    metrics = asked_in(spec, metrics, scores)
    if not metrics or (spec.columns != "metric" and len(metrics) == 1 < len(spec.metrics)):
        return None
    shown = {metric.id for metric in metrics}
    scores = [score for score in scores if score.metric in shown]
    check_columns(spec, scores)
    if spec.columns != "metric" and len(metrics) > 1 and not share_a_scale(spec, metrics):
        shorts = ", ".join(metric.short for metric in metrics)
        raise ConfigError(
            f"table {spec.title!r}: {shorts} would share a cell and have no common scale; name one of them in `metrics`, "
            "set `normalise`, or give each a column (columns='metric')"
        )
    table = _Pivot(spec, scores, metrics, cluster).table(scores, keys or {})
    return transposed(table, spec.columns.replace("_", " ").capitalize()) if spec.transposed else table


@dataclass(frozen=True)
class _Column:
    """One column of figures."""

    title: str
    metrics: Sequence[Metric]
    """A figure of several is the mean of theirs."""
    keys: Mapping[str, Json]
    """What its figures are of, for files."""


class _Pivot:
    """One table in the making."""

    def __init__(
        self, spec: TableSpec, scores: Sequence[Score], metrics: Sequence[Metric], cluster: Cluster | None
    ) -> None:
        self.spec, self.metrics, self.cluster = spec, metrics, cluster
        self.by_metric = spec.columns == "metric"
        self.hundred = all(on_hundred(spec, metric) for metric in metrics)
        # A row over the only row would say the same again.
        rows = row_order(spec, scores)
        self.sums = spec.overall and (bool(spec.order) or len(rows) > 1)
        # Of other data, the mean over the benchmark's rows is that of a part, or of too few.
        self.of_benchmark = set(rows) == set(spec.order)
        columns: dict[str, _Column] = {}
        if self.by_metric:
            for m in metrics:
                columns[m.id] = _Column(f"{m.short} ({m.unit})" if m.unit else m.short, (m,), {"metric": m.id})
            if len(metrics) > 1 and self.hundred:
                # A metric may be called "overall" itself.
                columns[""] = _Column("Overall", metrics, {"metric": OVERALL})
        else:
            for name in dict.fromkeys(column_of(score, spec.columns) for score in scores):
                own = asked_in(spec, metrics, (s for s in scores if column_of(s, spec.columns) == name))
                columns[name] = _Column(name, own, {spec.columns: _raw(name)})
        self.columns = columns

    def table(self, scores: Sequence[Score], keys: Mapping[str, Json]) -> Table:
        spec, names, split = self.spec, row_order(self.spec, scores), self._split(scores)
        rows = []
        for name in names:
            cells = []
            for column, found in split:
                own = found.get(name, [])
                # A column of a metric counts 0 where another column does not exist.
                mean = figure(spec, column.metrics, own) if own or self.by_metric else None
                cells.append(self._cell(column, mean, [] if self.sums else own))
            rows.append(Row(cells=(words(name), *cells), keys={spec.rows: _raw(name)}))
        if self.sums:
            rows += self._sums("", split)
            if spec.normalise and any(score.missing == "missing_output" for score in scores):
                worst = [_as_worst(self.metrics, score) for score in scores]
                # A metric without bounds has no worst value, and so no such reading.
                again = [
                    (column, {} if any(_worst(metric) is None for metric in column.metrics) else found)
                    for column, found in self._split(worst)
                ]
                rows += self._sums(", missing outputs as the worst", again)
        name = spec.name or re.sub(r"[^a-z0-9]+", "-", spec.title.lower()).strip("-")
        single = {} if self.by_metric else {"metric": self.metrics[0].id if len(self.metrics) == 1 else OVERALL}
        return Table(
            name=name,
            title=spec.title,
            columns=(
                *label_columns(spec.rows.replace("_", " ").capitalize()),
                *(Column(title=column.title, keys=column.keys) for column in self.columns.values()),
            ),
            rows=tuple(replace(row, keys={**single, **row.keys}) for row in rows),
            caption=" ".join(filter(None, (self._caption(), *self._left_out(split), spec.caption))),
            keys=keys,
            plots=tuple(self._plots(name, split)),
        )

    def _split(self, scores: Sequence[Score]) -> list[tuple[_Column, dict[str, list[Score]]]]:
        """Each column with its scores by row."""
        found: dict[str, dict[str, list[Score]]] = {name: {} for name in self.columns}
        for score in scores:
            row, place = column_of(score, self.spec.rows), column_of(score, self.spec.columns)
            for name in (place, "") if self.by_metric and "" in found else (place,):
                found[name].setdefault(row, []).append(score)
        return [(column, found[name]) for name, column in self.columns.items()]

    def _sums(self, reading: str, split: Sequence[tuple[_Column, Mapping[str, list[Score]]]]) -> list[Row]:
        """The rows that sum up: over the listed rows, each counting alike, and over all samples.

        The first leads if the data has exactly the rows that the protocol lists, as its benchmark has.
        """
        spec, over_rows = self.spec, []
        noun = spec.rows.split("_")[-1]
        nouns = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
        known = [[found[row] for row in spec.order if row in found] for _, found in split]
        if any(known) and spec.cell == "macro":
            counts = [present(spec, column.metrics, own) for (column, _), own in zip(split, known, strict=True)]
            rest = [n for n, own in zip(counts, known, strict=True) if own]
            alike = len(set(rest)) == 1
            cells = []
            for (column, _), own, n in zip(split, known, counts, strict=True):
                # Where columns rest on different rows, each says on how many.
                note = "" if alike or self.by_metric else f"{n} {nouns if n != 1 else noun}"
                whole = [s for of in own if figure(spec, column.metrics, of).mean is not None for s in of]
                cell = self._cell(column, macro(spec, column.metrics, own), whole, macro=True)
                cells.append(replace(cell, note=note))
            most, listed = max(rest), len(spec.order)
            of = f"all {listed}" if alike and most == listed else f"{'' if alike else 'up to '}{most} of {listed} benchmark"
            sentence = f"Mean of {of} {nouns}{reading}"
            over_rows.append(
                Row(cells=(words(sentence), *cells), keys={spec.rows: f"mean over {nouns}{reading}"}, strong=True)
            )
        cells = []
        for column, found in split:
            every = [score for of in found.values() for score in of]
            cells.append(self._cell(column, figure(spec, column.metrics, every), every))
        kind = {"rate": "Rate", "geometric_mean": "Geometric mean", "count": "Count"}.get(spec.cell, "Mean")
        sentence = f"{kind} of all samples{reading}"
        over_all = [Row(cells=(words(sentence), *cells), keys={spec.rows: sentence.lower()}, strong=True)]
        return [*over_rows, *over_all] if self.of_benchmark else [*over_all, *over_rows]

    def _cell(self, column: _Column, figure: Mean | None, scores: Sequence[Score], *, macro: bool = False) -> Cell:
        """One figure, with the interval of these scores."""
        first, kind = column.metrics[0], self.spec.cell
        hundred, interval = on_hundred(self.spec, first), self._interval(scores, macro=macro)
        mean = None if figure is None else figure.mean
        bounds = first.domain.bounds
        narrow = max(map(abs, bounds)) <= 1 if bounds is not None else mean is not None and abs(mean) < 1
        digits = 0 if kind == "count" else 3 if narrow and not hundred and kind != "rate" else 2
        return Cell(
            value=mean,
            name=kind if kind in _NAMES else "mean",
            digits=digits,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            interval_digits=1 if hundred or kind == "rate" else digits,
            bounds=None if kind == "count" or self.cluster is None else ("low", "high"),
            judged=0 if figure is None else figure.judged,
            asked=0 if figure is None else figure.asked,
            meter=mean if hundred else None,
        )

    def _interval(self, scores: Sequence[Score], *, macro: bool) -> ConfidenceInterval | None:
        """The interval of one figure. None where metrics rest on different rows: no one resampling gives that mean."""
        spec = self.spec
        if self.cluster is None or not scores or spec.cell == "count":
            return None
        of = {metric.id: metric for metric in self.metrics}
        values = [value_of(spec, of[s.metric], s) for s in scores]
        groups = [(s.metric, column_of(s, spec.rows) if macro else "") for s in scores]
        rest: dict[str, set[str]] = {metric: set() for metric, _ in groups}
        for value, (metric, row) in zip(values, groups, strict=True):
            if value is not None:
                rest[metric].add(row)
        if len({frozenset(rows) for rows in rest.values()}) > 1:
            return None
        geometric = spec.cell == "geometric_mean"
        if geometric and any(value is not None and value <= 0 for value in values):
            return None
        known = [None if v is None else math.log(v) if geometric else 100 * v if spec.cell == "rate" else v for v in values]
        found = bootstrap.mean(known, [self.cluster(s) for s in scores], groups=groups).interval
        if found is None or not geometric:
            return found
        return replace(found, low=math.exp(found.low), high=math.exp(found.high))

    def _caption(self) -> str:
        interval = "with their 95 % interval, resampled by source image, where there is one"
        drawn = self.cluster is not None and self.spec.cell != "count"
        if self.hundred:
            several = len(self.metrics) > 1
            each = ", in Overall each once a metric" if several else ""
            sentence = f"Scores 0 to 100, higher is better; (samples judged/asked{each})."
            return f"{sentence} Means {interval}." if drawn else sentence
        what = {"rate": "Rates in percent", "geometric_mean": "Geometric means", "count": "Counts"}
        sentence = what.get(self.spec.cell, "Means in the unit of the metric")
        if shorts := [metric.short for metric in self.metrics if on_hundred(self.spec, metric)]:
            sentence += f" ({', '.join(shorts)} on 0 to 100)"
        sentence = f"{sentence}, {interval}; (judged/asked)." if drawn else f"{sentence}; (judged/asked)."
        lower = [metric.short for metric in self.metrics if metric.better == "lower"]
        return f"{sentence} Lower is better: {', '.join(lower)}." if lower else sentence

    def _left_out(self, split: Sequence[tuple[_Column, Mapping[str, list[Score]]]]) -> Iterable[str]:
        """Yield a sentence for each column whose mean over rows leaves out a row that only some of its metrics have."""
        spec = self.spec
        for column, found in split if spec.cell == "macro" else ():
            there = [row for row in spec.order if row in found]
            partly = [
                row for row in there
                if figure(spec, column.metrics, found[row]).mean is None
                and any(figure(spec, [metric], found[row]).mean is not None for metric in column.metrics)
            ]  # fmt: skip
            if partly and len(column.metrics) > 1:
                where = "" if len(split) == 1 or self.by_metric else f" of {column.title}"
                yield f"The mean{where} leaves out {', '.join(partly)}: not every metric has a number there."

    def _plots(self, name: str, split: Sequence[tuple[_Column, Mapping[str, list[Score]]]]) -> Iterable[Plot]:
        """The means of every row that the data has, a bar a column."""
        there = {score_row for _, found in split for score_row in found}
        listed = [row for row in self.spec.order if row in there]
        rows = [*listed, *sorted(there - set(listed))]
        if not self.spec.order or len(rows) < _LEAST_ROWS or self.by_metric or not self.hundred:
            return
        series = tuple(
            (
                c.title,
                tuple(
                    self._cell(c, figure(self.spec, c.metrics, own), own) for row in rows for own in [found.get(row, [])]
                ),
            )
            for c, found in split
        )
        if any(cell.value is not None for _, cells in series for cell in cells):
            yield MeansPlot(
                name=f"types-{name.removeprefix('scores-')}",
                title=self.spec.title.split(" (")[0].replace(", by", " by"),
                rows=tuple(rows),
                series=series,
            )


def _raw(value: str) -> str:
    return "" if value == "(not named)" else value


def _as_worst(metrics: Sequence[Metric], score: Score) -> Score:
    """The other reading of a missing output: the editor's fault, so the metric's worst value."""
    metric = next(metric for metric in metrics if metric.id == score.metric)
    worst = _worst(metric)
    if score.missing != "missing_output" or worst is None:
        return score
    return replace(score, value=worst, missing=None, normalised=metric.normalise(worst))


def _worst(metric: Metric) -> float | None:
    """Return the worst value of a metric; None without bounds or direction."""
    bounds = metric.domain.bounds
    return None if bounds is None or metric.better is None else bounds[metric.better == "lower"]


def label_tables(
    scores: Sequence[Score], metrics: Sequence[Metric], *, caption: str = "", keys: Mapping[str, Json] | None = None
) -> list[Table]:
    """Return how often each label was given to each editor, and why scores are missing.

    A metric with labels has a table of its own; the others share one of what is missing.
    """
    found, numbers = [], []
    for metric in metrics:
        own = counted(BY_EDITOR, [score for score in scores if score.metric == metric.id])
        given = sorted({score.label for score in own if score.label is not None})
        if labels := [level.name for level in reversed(metric.levels)] or given:
            found.append(_label_table(metric, _by_editor(own), labels, caption, keys or {}))
        elif own:
            numbers.append(metric)
    missing = _missing_table(numbers, _by_editor(counted(BY_EDITOR, scores)), keys or {})
    return found if missing is None else [*found, missing]


def _by_editor(scores: Iterable[Score]) -> dict[str, list[Score]]:
    """Editors in order of appearance."""
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.editor, []).append(score)
    return found


def _missing_table(metrics: Sequence[Metric], editors: Mapping[str, list[Score]], keys: Mapping[str, Json]) -> Table | None:
    """A row an editor and status, a column a metric; None if nothing is missing."""
    rows = []
    for editor, own in editors.items():
        lost = [statuses([score for score in own if score.metric == metric.id]) for metric in metrics]
        for status in dict.fromkeys(status for of in lost for status in of):
            counts = (Cell(value=of.get(status, 0), name="count") for of in lost)
            cells = (words(editor or "(not named)"), words(status), *counts)
            rows.append(Row(cells=cells, keys={"editor": editor, "status": status}))
    if not rows:
        return None
    return Table(
        name="missing",
        title="Not judged",
        columns=(*label_columns("Editor", "Status"), *(Column(title=m.short, keys={"metric": m.id}) for m in metrics)),
        rows=tuple(rows),
        fixed=2,
        caption="Scores without a value, by what happened to the question.",
        keys=keys,
        at_once=6,
    )


def _label_table(
    metric: Metric, editors: Mapping[str, list[Score]], labels: Sequence[str], caption: str, keys: Mapping[str, Json]
) -> Table:
    lost = [statuses(own) for own in editors.values()]
    counts = [{label: sum(s.label == label for s in own) for label in labels} for own in editors.values()]
    judged = [sum(s.value is not None for s in own) for own in editors.values()]
    rows = []
    for label in labels:
        cells = []
        for count, of in zip(counts, judged, strict=True):
            n, share = count[label], count[label] / of if of else None
            note = "" if share is None else f"{100 * n / of:.0f} %"
            cells.append(Cell(value=n, name="count", note=note, more={"share": share}))
        rows.append(Row(cells=(words(label), *cells), keys={"metric": metric.id, "label": label}))
    shares = (words(f"{n}/{len(own)}") for n, own in zip(judged, editors.values(), strict=True))
    rows.append(Row(cells=(words("Judged"), *shares), strong=True))
    for status in dict.fromkeys(status for of in lost for status in of):
        cells = [Cell(value=of.get(status, 0), name="count", more={"share": None}) for of in lost]
        rows.append(Row(cells=(words(f"({status})"), *cells), keys={"metric": metric.id, "label": f"({status})"}))
    names = {editor: editor or "(not named)" for editor in editors}
    name, title = f"labels-{metric.id.replace('_', '-')}", f"{metric.name}: labels"
    known = {level.name: metric.normalise(level.value) for level in metric.levels}
    goods = tuple(known[label] or 0.0 for label in labels) if metric.better and known.keys() >= set(labels) else ()
    if metric.better == "lower":
        goods = tuple(100 - good for good in goods)
    bars = tuple((editor, tuple(count.items())) for editor, count in zip(names.values(), counts, strict=True))
    return Table(
        name=name,
        title=title,
        columns=(*label_columns("Label"), *(Column(title=n, keys={"editor": editor}) for editor, n in names.items())),
        rows=tuple(rows),
        caption=" ".join(filter(None, (_LABELS, caption))),
        keys=keys,
        at_once=6,
        plots=(BarPlot(name=name, title=title, rows=bars, goods=goods),) if any(judged) else (),
    )


def consistency_table(
    scores: Sequence[Score], metrics: Sequence[Metric], rule: Repeats, *, keys: Mapping[str, Json] | None = None
) -> Table | None:
    """Return how far a judge agrees with itself, a row an editor and metric; None where each question was asked once."""
    if rule.count == 1:
        return None
    rows = []
    for editor, scores_ in _by_editor(scores).items():
        for metric in metrics:
            own = [score for score in scores_ if score.metric == metric.id]
            bits = [score.entropy for score in own if score.entropy is not None]
            same, mean = sum(b == 0 for b in bits), sum(bits) / len(bits) if bits else None
            highest: dict[str, Json] = {"highest_entropy_bits": max(bits, default=None)}
            cells = (
                words(editor or "(not named)"),
                words(metric.short),
                Cell(value=f"{same}/{len(bits)}", name="", more={"compared": len(bits), "unanimous": same}),
                Cell(value=mean, name="mean_entropy_bits", digits=2, more=highest),
                *(Cell(value=sum(s.missing == x for s in own), name=x) for x in ("abstained", "contradictory")),
            )
            if own:
                rows.append(Row(cells=cells, keys={"editor": editor, "metric": metric.id, "repeats": rule.count}))
    above = "" if rule.abstain_above is None else f" Above {rule.abstain_above:g} bits a question is abstained from."
    return numbers(
        "self-consistency",
        f"Self-consistency: {rule.count} repeats a question, the {rule.by} label counts",
        ("Editor", "", "All the same", "Mean entropy", "Abstained", "Contradictory"),
        rows,
        fixed=2,
        caption=f"Entropy of a question's labels in bits: 0 where all repeats give the same.{above}",
        keys=keys,
    )
