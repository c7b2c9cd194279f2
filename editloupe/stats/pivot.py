"""Tables of the frame of scores: a line for each group of its rows, a column for each figure of them. No I/O.

With figures that rest on all lines: ranks, and values between the least and the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from editloupe.stats import bootstrap
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words
from editloupe.values import Json

if TYPE_CHECKING:
    import polars

Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of the frame of scores."""

_UNNAMED = {"editor": "(not named)"}
_SAME = 1e-9
"""Difference up to which two scores are a tie."""


def mean(
    rows: Rows, values: Iterable[float | None] | None = None, *, scale: float = 1, digits: int = 2, interval_digits: int = 1
) -> Cell:
    """Return the mean of what was judged, with its interval, resampled by source image.

    values: one for each row; None for the scores, times `scale`.
    """
    if values is None:
        values = [None if row["value"] is None else scale * row["value"] for row in rows]
    found = bootstrap.mean(list(values), [row["source"] or row["sample"] for row in rows]) if rows else None
    return estimated(found, digits=digits, interval_digits=interval_digits)


@dataclass(frozen=True)
class Figure:
    """One column of figures."""

    title: str
    cell: Callable[[Rows], Cell] = mean
    """What the figure is of its rows."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """What the rows of a line must have to count here, such as {"metric": "accuracy"}."""
    keys: Mapping[str, Json] = field(default_factory=dict)
    """What its figures are of, for files."""


def rows_of(frame: polars.DataFrame, *metrics: str) -> list[dict[str, Any]]:
    """Return the rows of some metrics, in the order of the frame."""
    return frame.filter(frame["metric"].is_in(metrics)).to_dicts()


def select(rows: Rows, where: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]


def grouped(rows: Iterable[Mapping[str, Any]], *by: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the rows by their values in some columns, "" for none, in the order in which they are met."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) or "" for name in by), []).append(row)
    return found


def pivot(
    name: str,
    title: str,
    lines: Mapping[tuple[Any, ...], Rows],
    figures: Sequence[Figure],
    *,
    by: Sequence[str] = ("editor",),
    heads: Sequence[str] = (),
    shown: Mapping[str, Mapping[Any, str]] | None = None,
    caption: Iterable[str] = (),
    at_once: int = 4,
) -> Table | None:
    """Return a table with a line for each group and a column for each figure; None without lines.

    lines: the values by which a group is named → its rows.   by: what those values are, for files, which leave "" out.
    heads: titles of the columns of these names; () for those of `by`.   shown: column → value → words for it.
    caption: sentences, of which empty ones fall away.
    """
    if not lines:
        return None
    heads = heads or [one.replace("_", " ").capitalize() for one in by]

    def named(column: str, value: Any) -> Cell:
        known = (shown or {}).get(column, {})
        return words(known.get(value) or str(value) or _UNNAMED.get(column, "(none)"))

    return Table(
        name=name,
        title=title,
        columns=(*label_columns(*heads), *(Column(title=one.title, keys=one.keys) for one in figures)),
        rows=tuple(
            Row(
                cells=(*map(named, by, key), *(one.cell(select(rows, one.where)) for one in figures)),
                keys={column: value for column, value in zip(by, key, strict=True) if column},
            )
            for key, rows in lines.items()
        ),
        fixed=len(by),
        at_once=at_once,
        caption=sentences(*caption),
    )


def sentences(*found: str) -> str:
    """Return the sentences that are not empty, as one text."""
    return " ".join(filter(None, found))


def coverage(rows: Rows) -> Cell:
    """Return "1038/1100": samples that were judged on every metric that they were asked, of all."""
    samples = {row["sample"] for row in rows}
    whole = len(samples) - len({row["sample"] for row in rows if row["value"] is None})
    counts = {"judged": whole, "asked": len(samples)}
    return Cell(value=f"{whole}/{len(samples)}" if samples else None, name="", more=counts)


def class_table(
    name: str, title: str, head: str, rows: Rows, classes: Sequence[str], *, truth: str, caption: str
) -> Table | None:
    """Return how often each class of people's was judged as each class, and how often they agree; None without rows.

    rows: of one metric, whose `label` is the judge's class.   truth: the column with people's class.   head: its title.
    """

    def given(rows: Rows, *, what: str) -> Cell:
        return Cell(value=sum((row["label"] or row["missing"]) == what for row in rows), name="count")

    def right(rows: Rows) -> Cell:
        return mean(rows, [None if row["label"] is None else 100.0 * (row["label"] == row[truth]) for row in rows])

    lost = dict.fromkeys(row["missing"] for row in rows if row["missing"] is not None)
    titles = {one: one for one in classes} | {status: f"({status})" for status in lost}
    said = (Figure(title, partial(given, what=what), keys={"judge_says": title}) for what, title in titles.items())
    return pivot(
        name,
        title,
        {(editor, one): select(own, {truth: one}) for (editor,), own in grouped(rows, "editor").items() for one in classes},
        [*said, Figure("Right, %", right, keys={"figure": "right"})],
        by=("editor", truth),
        heads=("Editor", head),
        at_once=7,
        caption=(caption,),
    )


def ranks(scores: Mapping[str, float | None]) -> dict[str, Cell]:
    """Return the rank of each name, 1 for the highest score. Names that tie share the better rank; None has no rank."""
    known = [score for score in scores.values() if score is not None]

    def cell(own: float | None) -> Cell:
        if own is None:
            return Cell(name="rank")
        tied = sum(abs(score - own) <= _SAME for score in known) > 1
        return Cell(value=1 + sum(score > own + _SAME for score in known), name="rank", note="tie" if tied else "")

    return {name: cell(own) for name, own in scores.items()}


def inverted(values: Sequence[float | None]) -> list[float | None] | None:
    """Return values as 1 at the least and 0 at the largest; None without two that differ, since there is no scale then."""
    known = [value for value in values if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    if least == most:
        return None
    return [None if value is None else (most - value) / (most - least) for value in values]
