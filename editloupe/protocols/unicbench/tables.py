"""UnicBench's tables: by editor (Table 4), by task (Tables 9 to 12), by subtask, and how much was judged.

Every mean is over samples, on the scale of the metrics. Languages stand in rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from editloupe.protocols.unicbench.terms import OVERALL, TASKS
from editloupe.scores import Metric
from editloupe.stats.pivot import Figure, Rows, coverage, grouped, mean, on_common, pivot, select
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

_NAMES: Final = {"en": "English", "cn": "Chinese", "": "(not named)"}
_COVERAGE: Final = (
    "Judged: samples with every metric that applies, of those asked. A metric's mean is over what was judged of it, so "
    "that editors with missing outputs stand on fewer samples; then the common subset has a table of its own."
)
_JENSEN: Final = (
    "Overall is the mean of the samples' geometric means, and so at most the geometric mean of the columns (Jensen)."
)
_By: TypeAlias = Literal["task", "subtask"]


def tables(metrics: Sequence[Metric], *, mode: str) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the scores by language, Tables 4 and 9 to 12, those by subtask, two on the common subset, and the counts."""
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
        partial(means),
        partial(means, by="task"),
        partial(judged, metrics=tuple(metrics), ours=ours),
    )


def judged(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return how many samples of each editor were judged, by metric and task, and how many scores are fractions.

    frame: one judge's scores, with the dimensions of the protocol.   ours: behind the title.
    """
    rows = _rows(frame)
    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]

    def fractions(rows: Rows) -> Cell:
        return Cell(value=sum((row["value"] or 0) % 1 > 0 for row in rows if row["metric"] != OVERALL), name="count")

    return pivot(
        "judged",
        f"Judged of asked{ours}",
        _grouped(rows, "language", "editor"),
        [
            *(Figure(m.short, coverage, {"metric": m.id}, {"metric": m.id}) for m in metrics),
            *(Figure(task, coverage, {"task": task}, {"task": task}) for task in tasks),
            Figure("Fractions", fractions, keys={"of": "fractions"}),
        ],
        by=("language", "editor"),
        shown={"language": _NAMES},
        caption=(
            "Samples judged of those asked, by metric; by task, those with every metric that applies. Why the others are "
            "missing stands in the table Not judged. Fractions: scores that are no whole numbers, although the prompt asks "
            "for them; they count as they are.",
        ),
    )


def _means(
    frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str, source: str = "", by: _By | None = None
) -> Table | None:
    """Return means by language, task or subtask, and editor; None without rows.

    source: the paper's table; "" for those on the common subset, which is there where an editor has judged more.
    """
    rows, common = (_rows(frame), "") if source else _common(_rows(frame))
    shown = [metric for metric in metrics if any(row["metric"] == metric.id for row in rows)]
    shorts = {metric.short for metric in shown}
    if by:
        how = ["Read Judged and Overall as in Scores by editor."]
    else:
        how = [
            "95 % intervals, resampled by source image.",
            "" if common else _COVERAGE,
            _JENSEN if any(metric.id == OVERALL for metric in shown) else "",
            "IF and NC both count extra edits." if {"IF", "NC"} <= shorts else "",
            "RA is asked of Reasoning Editing alone." if "RA" in shorts else "",
        ]
    names = ("language", *([by] if by else []), "editor")
    return pivot(
        f"by-{by or 'editor'}{'' if source else '-common'}",
        f"Scores by {by or 'editor'}{'' if source else ', on the common subset'}{ours}",
        _grouped(rows, *names),
        [
            *(Figure(m.short, partial(_mean, drawn=by is None), {"metric": m.id}, {"metric": m.id}) for m in shown),
            Figure("Judged", coverage, keys={"metric": "all"}),
        ],
        by=names,
        shown={"language": _NAMES},
        at_once=6,
        caption=(
            f"Means over samples, on the scale of the metrics, as in the paper's {source}." if source else "", common, *how
        ),
    )  # fmt: skip


def _mean(rows: Rows, *, drawn: bool) -> Cell:
    """Return the mean of what was judged. Counts stand in files.   drawn: with its interval."""
    known = [row["value"] for row in rows if row["value"] is not None]
    more = {"judged": len(known), "asked": len(rows)}
    if drawn and rows:
        return replace(mean(rows, digits=4, interval_digits=2), judged=None, asked=None, more=more)
    return Cell(value=sum(known) / len(known) if known else None, name="mean", digits=4, more=more)


def _common(rows: Rows) -> tuple[Rows, str]:
    """Return the rows on which a language's editors are compared, and how many samples those are."""
    of_language = {name: select(rows, {"language": name}) for name in _NAMES}
    found = {name: common for name, own in of_language.items() if (common := on_common(own)) is not None}
    said = ", ".join(f"{len({row['sample'] for row in own})} in {_NAMES[name]}" for name, (own, _) in found.items())
    kept = [row for own, _ in found.values() for row in own]
    return (
        kept if any(differ for _, differ in found.values()) else [],
        f"On the samples that every editor of the language has judged on every metric: {said}.",
    )


def _rows(frame: polars.DataFrame) -> list[dict[str, Any]]:
    """Return the frame's rows with language, task and subtask as text, "" where there is none."""
    dims = ("language", "task", "subtask")
    there = [name for name in ("editor", "sample", "source", "metric", "value", *dims) if name in frame.columns]
    return [
        {**row, "editor": row["editor"] or "", **{name: row.get(name) or "" for name in dims}}
        for row in frame.select(there).to_dicts()
    ]


def _grouped(rows: Rows, *by: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the rows by language, task (in the paper's order) or subtask, and editor, as they come."""
    found = grouped(rows, *by)
    known = {"language": tuple(_NAMES), "task": TASKS}
    places = [
        {value: number for number, value in enumerate(dict.fromkeys((*known.get(name, ()), *values)))}
        for name, values in zip(by, zip(*found, strict=True), strict=True)
    ] if found else []  # fmt: skip
    return dict(sorted(found.items(), key=lambda one: [place[value] for place, value in zip(places, one[0], strict=True)]))
