"""A table once, shown four ways: in a terminal, as Markdown, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from editloupe.reports.plain import plain, safe
from editloupe.values import Json

COLUMNS_AT_ONCE = 4
"""Of those that repeat (an editor each), so that a table fits into a terminal of 120 characters."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of text cells; a strong one sums up the lines above it."""

    cells: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One table.

    name: of its file, without ending.   head: the columns; the first `fixed` of them stand in every part of a wide table.
    records: the same for programs, an object a figure, numbers unrounded and None where there is none.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    fixed: int = 1
    records: tuple[Mapping[str, Json], ...] = ()


def terminal(grid: Grid, *, at_once: int = COLUMNS_AT_ONCE) -> RenderableType:
    """As Rich tables, the moving columns a few at a time."""
    parts: list[RenderableType] = []
    chosen = list(_parts(grid, at_once))
    for number, columns in enumerate(chosen, start=1):
        part = f" ({number} of {len(chosen)})" if len(chosen) > 1 else ""
        table = Table(title=plain(grid.title + part), title_justify="left")
        for index in columns:
            table.add_column(plain(grid.head[index]), justify="left" if index < grid.fixed else "right", overflow="fold")
        for index, row in enumerate(grid.rows):
            follows = grid.rows[index + 1] if index + 1 < len(grid.rows) else None
            table.add_row(
                *(plain(row.cells[i]) for i in columns),
                style="bold" if row.strong else None,
                end_section=follows is not None and follows.strong and not row.strong,
            )
        parts += [Text(), table]
    if grid.caption:
        parts.append(plain(grid.caption, "dim"))
    return Group(*parts)


def markdown(grid: Grid) -> str:
    """A heading, the table, the caption."""
    lines = [f"## {safe(grid.title)}", "", _line(grid.head)]
    lines.append(_line(["---" if index < grid.fixed else "---:" for index in range(len(grid.head))]))
    for row in grid.rows:
        lines.append(_line([f"**{row.cells[0]}**", *row.cells[1:]] if row.strong else row.cells))
    return "\n".join([*lines, *(["", grid.caption] if grid.caption else [])]) + "\n"


def csv_text(grid: Grid) -> str:
    """The records, a line each; what there is none of is empty."""
    names = list(dict.fromkeys(name for record in grid.records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(grid.records)
    return text.getvalue()


def to_json(grid: Grid) -> dict[str, Json]:
    return {"title": grid.title, "caption": grid.caption, "records": [dict(record) for record in grid.records]}


def _parts(grid: Grid, at_once: int) -> Iterator[list[int]]:
    moving = range(grid.fixed, len(grid.head))
    for start in range(grid.fixed, max(len(grid.head), grid.fixed + 1), at_once):
        yield [*range(grid.fixed), *(i for i in moving if start <= i < start + at_once)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(safe(cell).split()).replace("|", "\\|") for cell in cells) + " |"
