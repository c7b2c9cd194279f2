"""UnicBench's tables: by editor (Table 4), by task (Tables 9 to 12), and by subtask.

Every mean is over samples, on the scale of the metrics. Languages stand in rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from editloupe.protocols.unicbench.terms import OVERALL, TASKS
from editloupe.scores import Metric
from editloupe.stats.coverage import coverage
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

_NAMES: Final = {"en": "English", "cn": "Chinese", "": "(not named)"}
_COVERAGE: Final = (
    "Judged: samples with every metric that applies, of those asked. A metric's mean is over what was judged of it, so "
    "that editors with missing outputs stand on fewer samples."
)
_JENSEN: Final = (
    "Overall is the mean of the samples' geometric means, and so at most the geometric mean of the columns (Jensen)."
)
_By: TypeAlias = Literal["task", "subtask"]


def tables(metrics: Sequence[Metric], *, mode: str) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the scores by language, Tables 4 and 9 to 12, those by subtask."""
    ours = "" if mode == "plain" else f" (mode {mode}: not the paper's)"
    by_language = TableSpec(
        title=f"Scores by language{ours}", name="scores-by-language", rows="language", overall=False, apart=True
    )
    means = partial(_means, metrics=tuple(metrics), ours=ours)
    return (
        by_language,
        partial(means, source="Table 4"),
        partial(means, source="Tables 9 to 12", by="task"),
        partial(means, source="Figures 10 and 11", by="subtask"),
    )


def _means(
    frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str, source: str, by: _By | None = None
) -> Table | None:
    """Return means by language, task or subtask, and editor; None without rows.

    frame: one judge's scores, with the dimensions of the protocol.   source: the paper's table.   ours: behind the title.
    """
    rows = frame.to_dicts()
    shown = [metric for metric in metrics if any(row["metric"] == metric.id for row in rows)]
    shorts = {metric.short for metric in shown}
    if by:
        how = ["Read Judged and Overall as in Scores by editor."]
    else:
        how = [
            "95 % intervals, resampled by source image.",
            _COVERAGE,
            _JENSEN if any(metric.id == OVERALL for metric in shown) else "",
            "IF and NC both count extra edits." if {"IF", "NC"} <= shorts else "",
            "RA is asked of Reasoning Editing alone." if "RA" in shorts else "",
        ]
    names = ("language", *([by] if by else []), "editor")
    lines = grouped(rows, *names)
    known = {"language": tuple(_NAMES), "task": TASKS}
    order = [[*known.get(name, ()), *dict.fromkeys(key[place] for key in lines)] for place, name in enumerate(names)]
    return pivot(
        f"by-{by or 'editor'}",
        f"Scores by {by or 'editor'}{ours}",
        dict(sorted(lines.items(), key=lambda line: [its.index(v) for its, v in zip(order, line[0], strict=True)])),
        [
            *(Figure(m.short, partial(_mean, drawn=by is None), {"metric": m.id}, {"metric": m.id}) for m in shown),
            Figure("Judged", coverage, keys={"metric": "all"}),
        ],
        by=names,
        shown={"language": _NAMES},
        at_once=6,
        caption=(f"Means over samples, on the scale of the metrics, as in the paper's {source}.", *how),
    )


def _mean(rows: Rows, *, drawn: bool) -> Cell:
    """Return the mean of what was judged. Counts stand in files.   drawn: with its interval."""
    known = [row["value"] for row in rows if row["value"] is not None]
    more = {"judged": len(known), "asked": len(rows)}
    if drawn and rows:
        return replace(mean(rows, digits=4, interval_digits=2), judged=None, asked=None, more=more)
    return Cell(value=sum(known) / len(known) if known else None, name="mean", digits=4, more=more)
