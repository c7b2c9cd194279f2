"""Tables on standard output, in the form that `--format` says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest
from typing import Final

from rich.cells import cell_len

from editloupe.cli.output import as_json, chosen_format, out, print_json, printing, write
from editloupe.errors import ConfigError
from editloupe.figures import render
from editloupe.figures.escape import safe
from editloupe.stats.table import Column, Row, Table, words
from editloupe.values import Json

_TOGETHER: Final = 10
"""Columns that a terminal shows side by side; words in them go on below."""


def table(*head: str, rows: Iterable[Sequence[object]], title: str = "", right: Collection[str] = ()) -> None:
    """Print a table of words.   right: columns of numbers."""
    columns = tuple(Column(title=name, words=name not in right) for name in head)
    # A large run has few different answers in very many cells.
    cell = cache(lambda name, text: words(text, name=name))
    made = (tuple(cell(name, str(text)) for name, text in zip(head, row, strict=True)) for row in rows)
    fixed = len(head) if len(head) <= _TOGETHER else 1
    show_table(Table(name="table", title=title, columns=columns, rows=tuple(Row(cells=of) for of in made), fixed=fixed))


def show_table(shown: Table) -> None:
    """Print one table in the form that was chosen."""
    if as_json():
        print_json(shown.to_json())
    elif chosen_format() == "csv":
        write(render.records_csv(shown.records()))
    elif chosen_format() == "md":
        write(render.markdown(shown) + "\n")
    elif chosen_format() == "latex":
        write(render.latex(shown) + "\n")
    elif out().is_terminal:
        with printing():
            out().print(render.Terminal(shown))
    else:
        write(_text(shown))


def show_tables(tables: Sequence[Table], wanted: str | None = None, *, choose: str = "name one with --table NAME") -> None:
    """Print tables, or the one of a name.   choose: what to do if there are several and CSV is asked for.

    Raises ConfigError: no table of this name; several in one CSV.
    """
    names = list(dict.fromkeys(one.name for one in tables))
    found = [one for one in tables if wanted in (None, one.name)]
    if wanted is not None and not found:
        raise ConfigError(f"--table {wanted}: there is no table of this name; there are {', '.join(names)}")
    if chosen_format() != "csv" or len(found) < 2:
        for one in found:
            show_table(one)
        return
    if wanted is None and len(names) > 1:
        raise ConfigError(f"a CSV holds one table, and there are {len(names)}: {', '.join(names)}; {choose}")
    # The same table of several judges: its records name the judge.
    write(render.records_csv(record for one in found for record in one.records()))


def show_whole(
    tables: Sequence[Table], name: str | None, to_json: Callable[[], Mapping[str, Json]], markdown: Callable[[], str]
) -> bool:
    """Print the table of a name, or all for programs. Return False where people read, who get it in a form of their own."""
    if name is not None or chosen_format() in ("csv", "latex"):
        show_tables(tables, name)
    elif as_json():
        print_json(to_json())
    elif chosen_format() == "md":
        write(markdown())
    else:
        return False
    return True


def _text(shown: Table) -> str:
    """Return a table without frames, for a pipe or a file. Rich takes most of a command's time for thousands of rows."""
    columns = [shown.columns[i] for i in shown.shown]
    texts = [[column.title for column in columns], *map(shown.text, shown.rows)]
    # A large run has few different answers in very many cells.
    parts_of = cache(lambda text: safe(text).split("\n"))
    rows = [[parts_of(cell) for cell in row] for row in texts]
    widths = [max(map(_width, set(chain(*column)))) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        for parts in zip_longest(*row, fillvalue=""):
            cells = []
            for part, width, column in zip(parts, widths, columns, strict=True):
                space = " " * (width - _width(part))
                cells.append(f" {part}{space} " if column.words else f" {space}{part} ")
            lines.append("".join(cells).rstrip())
        if row is rows[0]:
            lines.append(" " + "-" * (sum(widths) + 2 * len(widths) - 2))
    title = ["", safe(shown.title)] if shown.title else []
    caption = [safe(shown.caption)] if shown.caption else []
    return "\n".join([*title, "", *lines, "", *caption]) + "\n"


def _width(text: str) -> int:
    """Return how many cells of a terminal a line takes. That of plain letters needs no look at each."""
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)
