"""UnicBench's tables: by editor (Table 4), by task (Tables 9 to 12), and by subtask.

Every mean is over samples, on the scale of the metrics. Languages stand in rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.files import read_toml
from editloupe.scores import Metric
from editloupe.stats.pivot import Figure, Rows, coverage, grouped, mean, pivot
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

REASONING: Final = "Reasoning Editing"
"""The task whose rows have reasoning points, and are asked Reasoning Accuracy."""
TASKS: Final = ("Attribute Editing", "Object Editing", "Scene Editing", REASONING)
"""In the order of the paper's tables."""
OVERALL: Final = "overall"
"""Id of the geometric mean of the metrics that apply to a sample."""
_NAMES: Final = {"en": "English", "cn": "Chinese", "": "(not named)"}
_CAPTIONS: Final = read_toml(Path(__file__).with_name("tables.toml"), "the built-in captions")


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


def _means(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str, source: str, by: str = "") -> Table | None:
    """Return means by language, task or subtask, and editor; None without rows.

    frame: one judge's scores, with the dimensions of the protocol.   source: the paper's table.   ours: behind the title.
    """
    rows = frame.to_dicts()
    shown = [metric for metric in metrics if any(row["metric"] == metric.id for row in rows)]
    shorts = {metric.short for metric in shown}
    told = {"overall": any(m.id == OVERALL for m in shown), "extra": {"IF", "NC"} <= shorts, "reasoning": "RA" in shorts}
    how = ["again"] if by else ["judged", *(name for name, holds in told.items() if holds)]
    names = ("language", *([by] if by else []), "editor")
    lines = grouped(rows, *names)
    known = {"language": tuple(_NAMES), "task": TASKS}
    order = [[*known.get(name, ()), *dict.fromkeys(key[place] for key in lines)] for place, name in enumerate(names)]
    return pivot(
        f"by-{by or 'editor'}",
        f"Scores by {by or 'editor'}{ours}",
        dict(sorted(lines.items(), key=lambda line: [its.index(v) for its, v in zip(order, line[0], strict=True)])),
        [
            *(Figure(m.short, partial(_mean, drawn=not by), {"metric": m.id}, {"metric": m.id}) for m in shown),
            Figure("Judged", coverage, keys={"metric": "all"}),
        ],
        by=names,
        shown={"language": _NAMES},
        at_once=6,
        caption=(_CAPTIONS["means"].format(source=source), *(_CAPTIONS[name] for name in how)),
    )


def _mean(rows: Rows, *, drawn: bool) -> Cell:
    """Return the mean of what was judged. Counts stand in files.   drawn: with its interval."""
    known = [row["value"] for row in rows if row["value"] is not None]
    more = {"judged": len(known), "asked": len(rows)}
    if drawn and rows:
        return replace(mean(rows, digits=4, interval_digits=2), judged=None, asked=None, more=more)
    return Cell(value=sum(known) / len(known) if known else None, name="mean", digits=4, more=more)
