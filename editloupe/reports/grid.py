"""A table once, shown four ways: in a terminal, as Markdown, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from editloupe.reports.escape import markdown_row, plain, safe
from editloupe.values import Json

COLUMNS_AT_ONCE = 4
"""Of those that repeat (an editor each), at the most: more are read column by column and no more line by line."""

_FIXED_SHARE = 0.4
"""Of the width for the first columns, whose words may go on below; a number is never broken where one column has room."""


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
    """As Rich tables, the moving columns as many at a time as fit, and `at_once` at the most."""
    return _Terminal(grid, at_once)


@dataclass(frozen=True)
class _Terminal:
    """A grid that looks at the width of the terminal where it is shown."""

    grid: Grid
    at_once: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = self.grid
        widths = _widths(grid, options.max_width)
        chosen = list(_parts(grid, widths, self.at_once, options.max_width))
        for number, columns in enumerate(chosen, start=1):
            part = f" ({number} of {len(chosen)})" if len(chosen) > 1 else ""
            table = Table()
            for i in columns:
                fixed = i < grid.fixed
                width = min(widths[i], options.max_width) if fixed else None
                table.add_column(
                    plain(grid.head[i]), justify="left" if fixed else "right", overflow="fold", max_width=width
                )
            for index, row in enumerate(grid.rows):
                follows = grid.rows[index + 1] if index + 1 < len(grid.rows) else None
                table.add_row(
                    *(plain(row.cells[i]) for i in columns),
                    style="bold" if row.strong else None,
                    end_section=follows is not None and follows.strong and not row.strong,
                )
            # Not the table's own title, which would break at the table's width.
            yield Group(Text(), plain(grid.title + part, "italic"), table)
        if grid.caption:
            yield plain(grid.caption, "dim")


def markdown(grid: Grid) -> str:
    """A heading, the table, the caption."""
    lines = [f"## {safe(grid.title)}", "", markdown_row(grid.head)]
    lines.append(markdown_row(["---" if index < grid.fixed else "---:" for index in range(len(grid.head))]))
    for row in grid.rows:
        lines.append(markdown_row([f"**{row.cells[0]}**", *row.cells[1:]] if row.strong else row.cells))
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


def _widths(grid: Grid, width: int) -> list[int]:
    """Cells that each column takes: a moving one its longest number and word of its heading, the first ones their words."""

    def longest(texts: Iterable[str]) -> int:
        return max(map(cell_len, texts), default=0)

    uncut = [longest((head, *(row.cells[i] for row in grid.rows))) for i, head in enumerate(grid.head)]
    if 1 + sum(n + 3 for n in uncut) <= width:
        return uncut
    found = []
    for i, head in enumerate(grid.head):
        cells = [row.cells[i] for row in grid.rows]
        if i < grid.fixed:
            words = longest(word for text in (head, *cells) for word in text.split())
            whole = longest((head, *cells))
            found.append(min(whole, max(words, int(_FIXED_SHARE * width / grid.fixed))))
        else:
            found.append(max(longest(cells), longest(head.split())))
    return found


def _parts(grid: Grid, widths: Sequence[int], at_once: int, width: int) -> Iterator[list[int]]:
    """Columns of one table after another: the fixed ones, and moving ones while there is room. A frame takes 3 of each."""
    fixed = list(range(grid.fixed))
    room = width - 1 - sum(widths[i] + 3 for i in fixed)
    part: list[int] = []
    for i in range(grid.fixed, len(grid.head)):
        if part and (len(part) == at_once or sum(widths[j] + 3 for j in (*part, i)) > room):
            yield fixed + part
            part = []
        part.append(i)
    yield fixed + part
