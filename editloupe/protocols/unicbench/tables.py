"""UnicBench's tables: by editor (Table 4), by task (Tables 9 to 12), by subtask, and how much was judged.

Every mean is over samples, on the scale of the metrics. Languages stand in rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from editloupe.protocols.unicbench.terms import OVERALL, TASKS
from editloupe.scores import Metric
from editloupe.stats import bootstrap
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words

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
_Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of the frame of scores."""
_Key: TypeAlias = tuple[str, str, str]
"""Language, task or subtask or "", editor."""
_By: TypeAlias = Literal["task", "subtask"]


def tables(metrics: Sequence[Metric], *, mode: str) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the scores by language, Table 4, Table 9, the same by subtask, both on the common subset, and the counts."""
    ours = "" if mode == "plain" else f" (mode {mode}: not the paper's)"
    by_language = TableSpec(
        title=f"Scores by language{ours}", name="scores-by-language", rows="language", overall=False, apart=True
    )
    makers = (by_editor, by_task, by_subtask, common_by_editor, common_by_task, judged)
    return (by_language, *(partial(make, metrics=tuple(metrics), ours=ours) for make in makers))


def by_editor(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return the mean scores by language and editor (Table 4).

    frame: one judge's scores, with the dimensions of the protocol.   ours: behind the title.
    """
    return _means(_rows(frame), metrics, name="by-editor", title=f"Scores by editor{ours}", source="Table 4")


def by_task(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return the mean scores by language, task and editor (Tables 9 to 12)."""
    title = f"Scores by task{ours}"
    return _means(_rows(frame), metrics, name="by-task", title=title, source="Tables 9 to 12", by="task")


def by_subtask(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return the mean scores by language, subtask and editor (Figures 10 and 11)."""
    title = f"Scores by subtask{ours}"
    return _means(_rows(frame), metrics, name="by-subtask", title=title, source="Figures 10 and 11", by="subtask")


def common_by_editor(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return the mean scores by language and editor, on the common subset; None where no editor has judged more."""
    rows, said = _common(_rows(frame))
    title = f"Scores by editor, on the common subset{ours}"
    return _means(rows, metrics, name="by-editor-common", title=title, common=said)


def common_by_task(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return the mean scores by language, task and editor, on the common subset; None where no editor has judged more."""
    rows, said = _common(_rows(frame))
    title = f"Scores by task, on the common subset{ours}"
    return _means(rows, metrics, name="by-task-common", title=title, by="task", common=said)


def judged(frame: polars.DataFrame, *, metrics: Sequence[Metric], ours: str) -> Table | None:
    """Return how many samples of each editor were judged, by metric and task, and how many scores are fractions."""
    groups = _grouped(_rows(frame))
    tasks = [task for task in TASKS if any(row["task"] == task for rows in groups.values() for row in rows)]
    if not groups:
        return None
    return Table(
        name="judged",
        title=f"Judged of asked{ours}",
        columns=(
            *label_columns("Language", "Editor"),
            *(Column(title=metric.short, keys={"metric": metric.id}) for metric in metrics),
            *(Column(title=task, keys={"task": task}) for task in tasks),
            Column(title="Fractions", keys={"of": "fractions"}),
        ),
        rows=tuple(
            Row(
                cells=(
                    words(_NAMES[language]),
                    words(editor or "(not named)"),
                    *(_coverage([row for row in rows if row["metric"] == metric.id]) for metric in metrics),
                    *(_coverage([row for row in rows if row["task"] == task]) for task in tasks),
                    Cell(value=sum((row["value"] or 0) % 1 > 0 for row in rows if row["metric"] != OVERALL), name="count"),
                ),
                keys={"language": language, "editor": editor},
            )
            for (language, _, editor), rows in groups.items()
        ),
        fixed=2,
        caption=(
            "Samples judged of those asked, by metric; by task, those with every metric that applies. Why the others are "
            "missing stands in the table Not judged. Fractions: scores that are no whole numbers, although the prompt asks "
            "for them; they count as they are."
        ),
    )


def _means(
    rows: _Rows,
    metrics: Sequence[Metric],
    *,
    name: str,
    title: str,
    source: str = "",
    by: _By | None = None,
    common: str | None = None,
) -> Table | None:
    """Return means by language, task or subtask, and editor; None without rows. common: which samples those are."""
    groups = _grouped(rows, by)
    if not groups:
        return None
    shown = [metric for metric in metrics if any(row["metric"] == metric.id for row in rows)]
    shorts = {metric.short for metric in shown}
    sentences = [
        f"Means over samples, on the scale of the metrics, as in the paper's {source}." if source else "",
        common or "",
    ]
    if by:
        sentences.append("Read Judged and Overall as in Scores by editor.")
    else:
        sentences += [
            "95 % intervals, resampled by source image.",
            "" if common else _COVERAGE,
            _JENSEN if any(metric.id == OVERALL for metric in shown) else "",
            "IF and NC both count extra edits." if {"IF", "NC"} <= shorts else "",
            "RA is asked of Reasoning Editing alone." if "RA" in shorts else "",
        ]
    return Table(
        name=name,
        title=title,
        columns=(
            *label_columns("Language", *([by.capitalize()] if by else []), "Editor"),
            *(Column(title=metric.short, keys={"metric": metric.id}) for metric in shown),
            Column(title="Judged", keys={"metric": "all"}),
        ),
        rows=tuple(
            Row(
                cells=(
                    words(_NAMES[language]),
                    *([words(group or "(none)")] if by else []),
                    words(editor or "(not named)"),
                    *(_mean([row for row in own if row["metric"] == metric.id], by) for metric in shown),
                    _coverage(own),
                ),
                keys={"language": language, **({by: group} if by else {}), "editor": editor},
            )
            for (language, group, editor), own in groups.items()
        ),
        fixed=3 if by else 2,
        at_once=6,
        caption=" ".join(filter(None, sentences)),
    )


def _mean(rows: _Rows, by: _By | None) -> Cell:
    """Return the mean of what was judged, with its interval in a table by editor. Counts stand in files."""
    values = [row["value"] for row in rows]
    known = [value for value in values if value is not None]
    more = {"judged": len(known), "asked": len(rows)}
    if by is None and rows:
        found = bootstrap.mean(values, [row["source"] or row["sample"] for row in rows])
        cell = estimated(found, digits=4, interval_digits=2, counts=False)
        return replace(cell, more=more)
    return Cell(value=sum(known) / len(known) if known else None, name="mean", digits=4, more=more)


def _coverage(rows: _Rows) -> Cell:
    """Return "1038/1100": samples that were judged on every metric that they were asked, of all."""
    samples = {row["sample"] for row in rows}
    whole = len(samples) - len({row["sample"] for row in rows if row["value"] is None})
    return Cell(
        value=f"{whole}/{len(samples)}" if samples else None, name="", more={"judged": whole, "asked": len(samples)}
    )


def _common(rows: _Rows) -> tuple[_Rows, str]:
    """Return the rows of the samples that every editor of a language has judged on every metric, and how many those are.

    No rows where there is one editor, or where no editor has judged more than the others.
    """
    kept, said, differ = list[Mapping[str, Any]](), list[str](), False
    for language in _NAMES:
        own = [row for row in rows if row["language"] == language]
        asked: dict[str, set[str]] = {}
        for row in own:
            asked.setdefault(row["editor"], set()).add(row["sample"])
        if len(asked) < 2:
            continue
        lost = {(row["editor"], row["sample"]) for row in own if row["value"] is None}
        whole = {editor: {s for s in samples if (editor, s) not in lost} for editor, samples in asked.items()}
        shared = set.intersection(*whole.values())
        differ = differ or any(samples != shared for samples in whole.values())
        kept += [row for row in own if row["sample"] in shared]
        said.append(f"{len(shared)} in {_NAMES[language]}")
    sentence = f"On the samples that every editor of the language has judged on every metric: {', '.join(said)}."
    return (kept if differ else []), sentence


def _rows(frame: polars.DataFrame) -> list[dict[str, Any]]:
    """Return the frame's rows with language, task and subtask as text, "" where there is none."""
    dims = ("language", "task", "subtask")
    there = [name for name in ("editor", "sample", "source", "metric", "value", *dims) if name in frame.columns]
    return [
        {**row, "editor": row["editor"] or "", **{name: row.get(name) or "" for name in dims}}
        for row in frame.select(there).to_dicts()
    ]


def _grouped(rows: _Rows, by: _By | None = None) -> dict[_Key, list[Mapping[str, Any]]]:
    """Return the rows by language, then task (in the paper's order) or subtask, then editor, as they come."""
    found: dict[_Key, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["language"], row[by] if by else "", row["editor"]), []).append(row)
    languages, editors = _places(_NAMES), _places(key[2] for key in found)
    groups = _places((*TASKS, *(key[1] for key in found)))
    return dict(sorted(found.items(), key=lambda one: (languages[one[0][0]], groups[one[0][1]], editors[one[0][2]])))


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
