"""Scores of one editor as means by edit type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from editloupe.protocols.base import EvalProtocol
from editloupe.scores import NOT_JUDGED, Metric, Score, TableSpec
from editloupe.tasks import STATUSES
from editloupe.values import Serialisable


@dataclass(frozen=True, kw_only=True)
class Cell(Serialisable):
    """One mean with what it rests on."""

    mean: float | None
    """0 to 100; None if nothing was judged."""

    judged: int
    """Scores with a value."""

    asked: int
    """All scores."""


@dataclass(frozen=True, kw_only=True)
class Summary(Serialisable):
    """The table of one editor."""

    editor: str
    criteria: tuple[str, ...]
    """Ids of the metrics."""

    rows: Mapping[str, Mapping[str, Cell]]
    """Edit type → metric (and "overall") → cell."""

    macro: Mapping[str, Cell]
    """Metric → mean over the protocol's edit types that are present."""

    micro: Mapping[str, Cell]
    """Metric → mean over all samples."""

    types_present: Mapping[str, int]
    """Metric (and "overall") → edit types with a mean."""

    types_known: int
    """How many edit types the protocol has."""

    histogram: Mapping[str, Mapping[str, int]]
    """Metric → label → count, every label of the metric."""

    statuses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Metric → status → count, for what is not ok."""


def edit_types(protocol: EvalProtocol) -> tuple[str, ...]:
    """Return the edit types that a protocol's tables list, in their order; () if it has none."""
    return next((t.order for t in protocol.tables if isinstance(t, TableSpec) and t.rows == "edit_type"), ())


def type_order(types: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """Return a sort key: the given types in their order, then others by name."""
    return lambda name: (types.index(name), "") if name in types else (len(types), name)


def summarise(protocol: EvalProtocol, scores: Sequence[Score]) -> list[Summary]:
    """Return one summary an editor, editors in order of appearance."""
    types, metrics = edit_types(protocol), list(protocol.metrics)
    editors = dict.fromkeys(score.editor for score in scores)
    return [_summary(editor, [s for s in scores if s.editor == editor], metrics, types) for editor in editors]


def _summary(editor: str, scores: Sequence[Score], metrics: Sequence[Metric], known_types: Sequence[str]) -> Summary:
    asked = {score.metric for score in scores}
    metrics = [metric for metric in metrics if metric.id in asked]
    ids = [metric.id for metric in metrics]
    types = sorted({s.edit_type for s in scores}, key=type_order(known_types))
    rows = {
        t: _with_overall({m: _cell([s for s in scores if s.metric == m and s.edit_type == t]) for m in ids}) for t in types
    }
    known = [t for t in types if t in known_types]
    macro = _with_overall({m: _macro([rows[t][m] for t in known]) for m in ids})
    return Summary(
        editor=editor,
        criteria=tuple(ids),
        rows=rows,
        macro=macro,
        micro=_with_overall({m: _cell([s for s in scores if s.metric == m]) for m in ids}),
        types_present={m: sum(rows[t][m].mean is not None for t in known) for m in macro},
        types_known=len(known_types),
        histogram={metric.id: _histogram(metric, scores) for metric in metrics},
        statuses={m: _statuses([s for s in scores if s.metric == m]) for m in ids},
    )


def _histogram(metric: Metric, scores: Sequence[Score]) -> dict[str, int]:
    names = [level.name for level in metric.levels]
    return {name: sum(s.label == name for s in scores if s.metric == metric.id) for name in names}


def _statuses(scores: Sequence[Score]) -> dict[str, int]:
    names = (*STATUSES, NOT_JUDGED)
    return {status: n for status in names if (n := sum(s.missing == status for s in scores))}


def _cell(scores: Sequence[Score]) -> Cell:
    values = [s.normalised for s in scores if s.normalised is not None]
    return Cell(mean=sum(values) / len(values) if values else None, judged=len(values), asked=len(scores))


def _macro(cells: Sequence[Cell]) -> Cell:
    """Over the types where something was judged; a type where nothing was is missing, not zero."""
    means = [c.mean for c in cells if c.mean is not None]
    return Cell(
        mean=sum(means) / len(means) if means else None,
        judged=sum(c.judged for c in cells),
        asked=sum(c.asked for c in cells),
    )


def _with_overall(cells: dict[str, Cell]) -> dict[str, Cell]:
    """Add "overall": the mean of the metrics, there only where every metric has a mean."""
    means = [cell.mean for cell in cells.values() if cell.mean is not None]
    complete = len(means) == len(cells)
    whole = Cell(
        mean=sum(means) / len(means) if complete and means else None,
        judged=sum(c.judged for c in cells.values()),
        asked=sum(c.asked for c in cells.values()),
    )
    return cells | {"overall": whole}
