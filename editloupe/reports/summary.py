"""Sum up scores: one number a metric and row, with how many were judged of how many asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from editloupe.errors import ConfigError
from editloupe.protocols.base import EvalProtocol
from editloupe.scores import NOT_JUDGED, Metric, Score
from editloupe.stats.spec import CellKind, TableSpec
from editloupe.tasks import STATUSES
from editloupe.values import Serialisable

OVERALL: Final = "overall"
"""Stands for the mean of all metrics, where they share a scale. A metric of this name goes before it."""

BY_EDITOR: Final = TableSpec(title="Scores", name="scores", rows="editor", columns="metric", overall=False)
BY_TURN: Final = TableSpec(title="Scores by turn", name="scores-by-turn", rows="turn", columns="metric", overall=False)
"""The tables of a protocol that has none; the second only if there are turns."""


@dataclass(frozen=True, kw_only=True)
class Mean(Serialisable):
    """One mean, rate or count with what it rests on."""

    mean: float | None
    """0 to 100, or in the metric's unit; None if nothing was judged."""
    judged: int
    """Scores with a value."""
    asked: int
    """All scores."""


@dataclass(frozen=True, kw_only=True)
class Summary(Serialisable):
    """The scores of one editor, or of any other group, by row and metric."""

    editor: str
    metrics: tuple[str, ...]
    """Ids of the metrics."""
    rows: Mapping[str, Mapping[str, Mean]]
    """Row, such as an edit type → metric (and "overall", where all metrics are on 0 to 100) → cell."""
    macro: Mapping[str, Mean]
    """Metric → mean over the rows that the protocol lists and that are present."""
    micro: Mapping[str, Mean]
    """Metric → the same of all samples."""
    types_present: Mapping[str, int]
    """Metric → listed rows with a mean."""
    types_known: int
    """How many rows the protocol lists."""
    histogram: Mapping[str, Mapping[str, int]]
    """Metric → label → count, every label of the metric."""
    statuses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Metric → status → count, for what is not ok."""


def specs(protocol: EvalProtocol) -> list[TableSpec]:
    """Return the tables that a protocol declares; for a protocol without any, by editor and by turn."""
    return [table for table in protocol.tables if isinstance(table, TableSpec)] or [BY_EDITOR, BY_TURN]


def counted(spec: TableSpec, scores: Iterable[Score]) -> list[Score]:
    """Return the scores that a table counts.

    A table by turn or part counts the scores of turns or parts. For any other, a sample's score as a whole stands for those
    of its turns and parts, so that nothing counts twice.
    """
    by = {spec.rows, spec.columns}
    scores = [s for s in scores if (s.turn or "turn" not in by) and (s.part or "part" not in by)]
    if by & {"turn", "part"} or not any(s.turn or s.part for s in scores):
        return scores
    whole = {(s.key, s.metric) for s in scores if not s.turn and not s.part}
    return [s for s in scores if (s.key, s.metric) not in whole or (not s.turn and not s.part)]


def column_of(score: Score, name: str) -> str:
    """Return a score's value in a column of the frame, or a dimension of the protocol, as text; "(none)" if it has none."""
    value: Any
    match name:
        case "sample":
            value = score.sample_id
        case "editor":
            value = score.editor or "(not named)"
        case "turn":
            value = score.turn or None
        case "part" | "metric" | "label":
            value = getattr(score, name)
        case _:
            value = score.dims.get(name)
    return "(none)" if value is None or value == "" else str(value)


def check_columns(spec: TableSpec, scores: Sequence[Score]) -> None:
    """Raise ConfigError if a table is by a column that no score has. Without any value there may be no column either."""
    if all(score.missing is not None for score in scores):
        return
    known = {"sample", "editor", "turn", "part", "metric", "label", *(name for score in scores for name in score.dims)}
    for name in (spec.rows, spec.columns):
        if name not in known:
            raise ConfigError(
                f"table {spec.title!r}: no score has the column {name!r}; there are {', '.join(sorted(known))}"
            )


def summarise(protocol: EvalProtocol, scores: Sequence[Score]) -> list[Summary]:
    """Return one summary an editor, editors in order of appearance, rows as in the protocol's first table."""
    spec = specs(protocol)[0]
    editors = dict.fromkeys(score.editor for score in scores)
    return [summary(spec, protocol.metrics, [s for s in scores if s.editor == e], editor=e) for e in editors]


def summary(spec: TableSpec, metrics: Sequence[Metric], scores: Sequence[Score], *, editor: str = "") -> Summary:
    """Return the summary of these scores, by the rows of a table. Metrics that no score has are left out."""
    scores = counted(spec, scores)
    metrics = asked_in(spec, metrics, scores)
    rows = {row: list[Score]() for row in row_order(spec, scores)}
    for score in scores:
        rows[column_of(score, spec.rows)].append(score)
    known = [own for row, own in rows.items() if row in spec.order]
    wanted = ({OVERALL: metrics} if share_a_scale(spec, metrics) else {}) | {m.id: [m] for m in metrics}
    own = {m.id: [s for s in scores if s.metric == m.id] for m in metrics}
    return Summary(
        editor=editor,
        metrics=tuple(own),
        rows={row: {name: figure(spec, of, found) for name, of in wanted.items()} for row, found in rows.items()},
        macro={name: macro(spec, of, known) for name, of in wanted.items()},
        micro={name: figure(spec, of, scores) for name, of in wanted.items()},
        types_present={name: present(spec, of, known) for name, of in wanted.items()},
        types_known=len(spec.order),
        histogram={m.id: histogram(m, own[m.id]) for m in metrics},
        statuses={m.id: statuses(own[m.id]) for m in metrics},
    )


def asked_in(spec: TableSpec, metrics: Sequence[Metric], scores: Iterable[Score]) -> list[Metric]:
    """Return the metrics of a table that these scores have."""
    asked = {score.metric for score in scores}
    return [m for m in metrics if m.id in asked and (not spec.metrics or m.id in spec.metrics)]


def row_order(spec: TableSpec, scores: Iterable[Score]) -> list[str]:
    """Return the rows that the scores have: the listed ones in order, then others by name. Without a list, as they come."""
    rows = list(dict.fromkeys(column_of(score, spec.rows) for score in scores))
    listed = {name: number for number, name in enumerate(spec.order)}
    return sorted(rows, key=lambda row: (listed.get(row, len(listed)), row)) if spec.order else rows


def on_hundred(spec: TableSpec, metric: Metric) -> bool:
    """Return whether a table shows the metric on 0 to 100. A metric without bounds stays in its unit."""
    return spec.normalise and metric.domain.bounds is not None


def share_a_scale(spec: TableSpec, metrics: Sequence[Metric]) -> bool:
    """Return whether a mean of these metrics means something: all on 0 to 100, or all of one range and unit in one cell."""
    if all(on_hundred(spec, metric) for metric in metrics):
        return bool(metrics)
    scales = {(metric.domain.bounds, metric.unit) for metric in metrics}
    return spec.columns != "metric" and len(scales) == 1 and None not in {bounds for bounds, _ in scales}


def value_of(spec: TableSpec, metric: Metric, score: Score) -> float | None:
    """Return the score's value as the table shows it."""
    return score.normalised if on_hundred(spec, metric) else score.value


def figure(spec: TableSpec, metrics: Sequence[Metric], scores: Sequence[Score]) -> Mean:
    """Return the number of these scores; of several metrics the mean of their numbers, if every metric has one."""
    cells = []
    for metric in metrics:
        own = [score for score in scores if score.metric == metric.id]
        # Asked once: a large run has many scores in many cells.
        hundred = on_hundred(spec, metric)
        values = [value for s in own if (value := s.normalised if hundred else s.value) is not None]
        cells.append(Mean(mean=aggregate(values, spec.cell), judged=len(values), asked=len(own)))
    return cells[0] if len(cells) == 1 else _mean_of(cells, whole=True)


def macro(spec: TableSpec, metrics: Sequence[Metric], rows: Iterable[Sequence[Score]]) -> Mean:
    """Return the mean over the rows that have a number for every metric; of several metrics the mean of their means.

    A row without a number is missing, not zero. What was asked in it counts as asked.
    """
    rows = list(rows)
    whole = [own for own in rows if figure(spec, metrics, own).mean is not None]
    cells = [_mean_of([figure(spec, [metric], own) for own in whole]) for metric in metrics]
    found = cells[0] if len(cells) == 1 else _mean_of(cells, whole=True)
    return replace(found, asked=sum(figure(spec, metrics, own).asked for own in rows))


def present(spec: TableSpec, metrics: Sequence[Metric], rows: Iterable[Sequence[Score]]) -> int:
    """Return how many rows have a number."""
    return sum(figure(spec, metrics, own).mean is not None for own in rows)


def aggregate(values: Sequence[float], how: CellKind) -> float | None:
    """Return one number of several; None for none, and for the geometric mean of values of which one is negative."""
    match how:
        case "count":
            return float(len(values))
        case _ if not values:
            return None
        case "rate":
            return 100 * sum(values) / len(values)
        case "geometric_mean":
            if min(values) <= 0:
                return 0.0 if min(values) == 0 else None
            return math.exp(math.fsum(map(math.log, values)) / len(values))
        case _:
            return sum(values) / len(values)


def histogram(metric: Metric, scores: Iterable[Score]) -> dict[str, int]:
    """Return how often each label of a metric was given."""
    counts = Counter(score.label for score in scores)
    return {level.name: counts[level.name] for level in metric.levels}


def statuses(scores: Sequence[Score]) -> dict[str, int]:
    """Return how many scores are missing, by status."""
    counts = Counter(score.missing for score in scores)
    return {status: counts[status] for status in (*STATUSES, NOT_JUDGED) if counts[status]}


def _mean_of(cells: Sequence[Mean], *, whole: bool = False) -> Mean:
    """The mean of those cells that have one; whole: none if a cell has none."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    return Mean(
        mean=sum(means) / len(means) if means and not (whole and len(means) < len(cells)) else None,
        judged=sum(cell.judged for cell in cells),
        asked=sum(cell.asked for cell in cells),
    )
