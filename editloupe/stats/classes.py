"""Classes that people gave beside those of the judge, as a table. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot, select
from editloupe.stats.table import Cell, Table


def class_table(
    name: str, title: str, head: str, rows: Rows, classes: Sequence[str], *, truth: str, caption: str
) -> Table | None:
    """Return how often each class of people's was judged as each class, and how often they agree; None without rows.

    rows: of one metric, whose `label` is the judge's class.   truth: the column with people's class.   head: its title.
    """
    lost = dict.fromkeys(row["missing"] for row in rows if row["missing"] is not None)
    titles = {one: one for one in classes} | {status: f"({status})" for status in lost}
    return pivot(
        name,
        title,
        {(editor, one): select(own, {truth: one}) for (editor,), own in grouped(rows, "editor").items() for one in classes},
        [
            *(Figure(title, partial(_given, what=what), keys={"judge_says": title}) for what, title in titles.items()),
            Figure("Right, %", partial(_right, truth=truth), keys={"figure": "right"}),
        ],
        by=("editor", truth),
        heads=("Editor", head),
        at_once=7,
        caption=(caption,),
    )


def _given(rows: Rows, *, what: str) -> Cell:
    return Cell(value=sum((row["label"] or row["missing"]) == what for row in rows), name="count")


def _right(rows: Rows, *, truth: str) -> Cell:
    return mean(rows, [None if row["label"] is None else 100.0 * (row["label"] == row[truth]) for row in rows])
