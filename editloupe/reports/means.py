"""The means of all samples, a column a metric: at the end of a run, in lists of runs, and above the viewer's matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from editloupe import files
from editloupe.errors import EditLoupeError
from editloupe.protocols.base import EvalProtocol
from editloupe.reports.judged import judged_in, to_go
from editloupe.reports.pivot import Cluster, spec_table
from editloupe.reports.summary import specs
from editloupe.runs.index import is_large
from editloupe.runs.store import RunStore
from editloupe.scores import Score
from editloupe.stats.spec import CellKind
from editloupe.stats.table import Table
from editloupe.values import Serialisable, parse_json


@dataclass(frozen=True, kw_only=True)
class MeanOfAll(Serialisable):
    """The mean of all samples of a run for one metric, by one judge."""

    metric: str
    """Its id; "overall" for the mean of all metrics, where they share a scale."""
    short: str
    """Its name in columns."""
    mean: float | None
    """In the unit of the protocol's tables; None if nothing was judged."""
    judged: int
    asked: int

    @property
    def text(self) -> str:
        """What a list shows: "IF 56.67 (9/10)"."""
        return f"{self.short} {'–' if self.mean is None else f'{self.mean:.4g}'} ({self.judged}/{self.asked})"


def means_table(
    protocol: EvalProtocol, scores: Sequence[Score], *, together: bool, cluster: Cluster | None = None
) -> Table | None:
    """Return the means of all samples, a row an editor and a column a metric; None if there is no score.

    Where rows, such as languages, are never put together, they are the rows of the protocol's first table.
    together: add a row over all editors.   cluster: by which intervals are resampled; None for no intervals.
    """
    first = specs(protocol)[0]
    cell: CellKind = first.cell if first.cell in ("rate", "geometric_mean", "count") else "mean"
    spec = replace(first, title="Means of all samples", name="means", columns="metric", metrics=(), transposed=False)
    if first.apart:
        spec = replace(spec, overall=False)
    else:
        spec = replace(spec, rows="editor", order=(), cell=cell, overall=together)
    return spec_table(spec, scores, protocol.metrics, cluster=cluster)


def means_of_all(protocol: EvalProtocol, scores: Sequence[Score]) -> tuple[MeanOfAll, ...]:
    """Return the mean of each metric over all samples; () where rows are never put together, and without a score."""
    table = None if specs(protocol)[0].apart else means_table(protocol, scores, together=True)
    if table is None:
        return ()
    return tuple(
        MeanOfAll(
            metric=str(column.keys["metric"]),
            short=column.title,
            mean=cell.value if isinstance(cell.value, float) else None,
            judged=cell.judged or 0,
            asked=cell.asked or 0,
        )
        for column, cell in zip(table.columns[1:], table.rows[-1].cells[1:], strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands, as far as it is known."""

    means: Mapping[str, tuple[MeanOfAll, ...]] = field(default_factory=dict)
    """Judge id → means; "" for what nobody with the role "judge" found."""
    to_go: int | None = None
    """Samples about which some judge was not asked everything yet; None where they were not counted."""


def standing_of_run(folder: Path) -> Standing:
    """Return where a run stands.

    The means of a large run are those that `editloupe judge` wrote at its end, if no finding came since: it is not read
    whole.
    """
    if is_large(folder):
        return Standing(means=_remembered(folder) or {})
    try:
        store = RunStore.read(folder)
        found = judged_in(store)
    except EditLoupeError:
        return Standing()
    waiting = set().union(*map(to_go, found))
    unbegun = set(store.judges()) - {one.judge_id for one in found}
    return Standing(
        means={one.judge_id: means_of_all(one.protocol, one.scores) for one in found},
        to_go=len(store.samples) if unbegun else len(waiting),
    )


@dataclass(frozen=True, kw_only=True)
class _Written(Serialisable):
    """What of a summary is read again."""

    judge_id: str
    means: tuple[MeanOfAll, ...]


def _remembered(folder: Path) -> dict[str, tuple[MeanOfAll, ...]] | None:
    found: dict[str, tuple[MeanOfAll, ...]] = {}
    try:
        last = (folder / "findings.jsonl").stat().st_mtime_ns
        for path in sorted((folder / "report").glob("summary*.json")):
            if path.stat().st_mtime_ns >= last:
                one = _Written.from_json(parse_json(files.read_bytes(path)))
                found[one.judge_id] = one.means
    except (OSError, ValueError):
        return None
    return found or None
