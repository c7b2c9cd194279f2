"""Where a command's words go: results to standard output, progress and remarks to standard error."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from editloupe.figures.escape import csv_cell, markdown_row, safe, safe_json
from editloupe.figures.escape import plain as plain
from editloupe.runs.executors import Stop
from editloupe.values import Json

_SIDE = re.compile(r"0*[1-9][0-9]{0,4}")
"""A width or height of a terminal."""


_WIDE: Final = 1000


class _Plain(Console):
    """Standard output that is no terminal: text without frames, and no space at a line's end."""

    plain_tables = True

    def print(self, *objects: Any, **how: Any) -> None:
        for one in objects:
            _plain_tables(one)
        with self.capture() as taken:
            super().print(*objects, **how)
        self.file.write("\n".join(line.rstrip() for line in taken.get().split("\n")))
        self.file.flush()


def _plain_tables(shown: object) -> None:
    if isinstance(shown, Table):
        from editloupe.figures.render import make_plain

        make_plain(shown)
    for part in getattr(shown, "renderables", ()):
        _plain_tables(part)


def out() -> Console:
    """Return standard output. Where it is no terminal, tables are plain text, as wide as they are."""
    return _out(_format.chosen)


@cache
def _out(form: Format) -> Console:
    # Named, so that tables are drawn with what its encoding has.
    if form != "table":
        return _Data(file=sys.stdout, highlight=False)
    if sys.stdout.isatty():
        return Console(file=sys.stdout, highlight=False, emoji=False, soft_wrap=False)
    width = None if "COLUMNS" in os.environ else _WIDE
    return _Plain(file=sys.stdout, width=width, highlight=False, emoji=False, soft_wrap=False)


Format: TypeAlias = Literal["table", "json", "csv", "md", "latex"]
"""How tables are printed. Of all but the first, standard output holds tables alone, and remarks go to standard error."""


class _Chosen:
    """The form of this command's tables."""

    chosen: Format = "table"


_format: Final = _Chosen()


def in_brief(full: bool) -> bool:
    """Return whether a command answers in a few lines: in a terminal, unless all is asked for. A pipe gets all."""
    return not full and _format.chosen == "table" and out().is_terminal


def for_programs() -> bool:
    """Return whether this command's tables are printed for programs."""
    return _format.chosen != "table"


def chosen_format() -> Format:
    """Return how this command's tables are printed."""
    return _format.chosen


def choose_format(form: Format) -> None:
    """Say how this command's tables are printed."""
    _format.chosen = form


class _Data(Console):
    """Standard output that holds tables for programs."""

    def print(self, *objects: Any, **how: Any) -> None:
        for one in objects:
            _print_data(one)


def _print_data(shown: object) -> None:
    from editloupe.figures import render
    from editloupe.stats.table import Table as ReportTable

    inner = getattr(shown, "table", None)
    if isinstance(inner, ReportTable):
        forms: dict[str, Callable[[ReportTable], str]] = {
            "json": lambda table: json.dumps(table.to_json(), ensure_ascii=False) + "\n",
            "csv": lambda table: render.records_csv(table.records()),
            "md": render.markdown,
        }
        write(forms[_format.chosen](inner), json_text=_format.chosen == "json")
    elif hasattr(shown, "renderables"):
        for part in shown.renderables:
            _print_data(part)
    elif str(shown).strip():
        note(str(shown))


@cache
def err() -> Console:
    """Return standard error."""
    return Console(stderr=True, highlight=False, emoji=False)


class _Unfailing(io.RawIOBase):
    """A standard stream of which the rest is dropped once it cannot be written: its reader has gone, or a disk is full.

    A command then ends its work as if it had been read.
    """

    failure: OSError | None = None

    def __init__(self, number: int) -> None:
        self._number = number

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return os.write(self._number, data)
            except OSError as error:
                self.failure = error
        return len(data)


def prepare_streams() -> None:
    """Make the standard streams take all that is printed: also characters that their encoding lacks, as escapes.

    A width or height in the environment in which nothing can be printed (0, -1, a word) counts as not set.
    """
    for name in ("COLUMNS", "LINES"):
        if not _SIDE.fullmatch(os.environ.get(name, "")):
            os.environ.pop(name, None)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It was closed before the start (`>&-`). The next file that is opened must not get its number.
            stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it stays open until the end
        elif stream is getattr(sys, f"__{name}__") and not stream.isatty():
            stream.flush()
            stream = io.TextIOWrapper(
                io.BufferedWriter(_Unfailing(stream.fileno())),
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)


def output_failure() -> OSError | None:
    """Return why standard output could not be written; None if it was, or if its reader has gone (`| head`)."""
    sys.stdout.flush()
    failure = getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "failure", None)
    return None if isinstance(failure, BrokenPipeError) else failure


def status(text: str, *, hidden: bool = False) -> Status:
    """Return a live line on standard error, to be used as a context."""
    return Status(text, console=Console(quiet=True) if hidden else err(), spinner="line")


def say(text: str, style: str = "") -> None:
    """Print text without markup on standard output. Long lines are not broken.

    Where tables are printed for programs, it is a remark.
    """
    if _format.chosen != "table":
        note(text)
        return
    out().print(plain(text, style), soft_wrap=True)


def many(count: int, noun: str) -> str:
    """Return "1 sample" or "1,200 samples"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def say_first(lines: Sequence[str], most: int, more: str = "") -> None:
    """Print the first lines, and how many there are beyond them.   more: where these can be seen."""
    for line in lines[:most]:
        say(line)
    if len(lines) > most:
        say(f"  … and {len(lines) - most} more{more}")


def table(*head: str, rows: Iterable[Sequence[str | Text]], title: str = "", right: Collection[str] = ()) -> None:
    """Print a table without markup on standard output.   right: columns of numbers.

    Where its words have no room beside each other, each row is a list of its cells, a line each with the column's name.
    """
    if _format.chosen != "table":
        _data_table(title, head, [[str(cell) for cell in row] for row in rows])
        return
    console = out()
    if isinstance(console, _Plain):
        # Of thousands of rows, laying them out took most of a command's time.
        told = [[cell.plain if isinstance(cell, Text) else safe(cell) for cell in row] for row in rows]
        text = _as_text([safe(name) for name in head], told, title=safe(title), right=right, width=console.width)
        if text is not None:
            write(text)
            return
        rows = told
    rows = list(rows)
    if not _has_room(head, rows, console):
        _say_rows(head, rows, title)
        return
    shown = Table(title=plain(title) if title else None, title_justify="left")
    for name in head:
        least = _longest_word(name)
        shown.add_column(plain(name), overflow="fold", min_width=least, justify="right" if name in right else "left")
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else plain(cell) for cell in row))
    console.print(shown)


_WORD: Final = 16
"""Columns of text up to which a word in a cell is kept whole; a longer one, such as a path, may be broken."""


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _has_room(head: Sequence[str], rows: Sequence[Sequence[str | Text]], console: Console) -> bool:
    """Whether a table fits without breaking a heading's word, or a usual word of a cell."""
    if not rows or len(head) < 3:
        return True
    columns = zip(*rows, strict=True)
    least = [
        max(_longest_word(name), min(_WORD, max(_longest_word(str(cell)) for cell in cells)))
        for name, cells in zip(head, columns, strict=True)
    ]
    return sum(least) + 3 * len(least) + 1 <= console.width


def _say_rows(head: Sequence[str], rows: Sequence[Sequence[str | Text]], title: str) -> None:
    """Print the rows of a table one below the other."""
    if title:
        say(title, "italic")
    names = max(map(cell_len, head))
    for row in rows:
        say("")
        for name, cell in zip(head, row, strict=True):
            if str(cell):
                padded = plain(name + " " * (names - cell_len(name) + 2), "dim")
                told = cell if isinstance(cell, Text) else plain(cell)
                shown = Table.grid()
                shown.add_column(no_wrap=True)
                shown.add_column(overflow="fold")
                shown.add_row(padded, told)
                out().print(shown)


def _as_text(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, right: Collection[str], width: int
) -> str | None:
    """Return a table as `_Plain` prints it, title and all; None where a line has to be broken, or
    begins or ends with a space, or a column is empty, which Rich treats in its own way.

    width: in columns of text.
    """
    cells = [[cell.split("\n") for cell in row] for row in (head, *rows)]
    # A large table has few different words in very many cells.
    width_of = {"": 0} | {line: cell_len(line) for row in cells for cell in row for line in cell}
    if any(line != line.strip() for line in width_of):
        return None
    widths = [max(width_of[line] for cell in column for line in cell) for column in zip(*cells, strict=True)]
    whole = sum(widths) + 2 * len(widths)
    if whole > width or cell_len(title) > whole or "\n" in title or 0 in widths:
        return None
    ends = [name in right for name in head]

    def padded(text: str, column: int) -> str:
        space = " " * (widths[column] - width_of[text])
        return space + text if ends[column] else text + space

    def row_lines(row: list[list[str]]) -> Iterator[str]:
        for lines in zip_longest(*row, fillvalue=""):
            yield " " + "  ".join(padded(line, column) for column, line in enumerate(lines))

    lines = [
        *([title] if title else []),
        "",
        *row_lines(cells[0]),
        f" {'-' * (whole - 2)}",
        *(line for row in cells[1:] for line in row_lines(row)),
        "",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _data_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if _format.chosen == "json":
        print_json({"title": title, "rows": [dict(zip(head, row, strict=True)) for row in rows]})
    elif _format.chosen == "csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([[csv_cell(cell) for cell in row] for row in (head, *rows)])
        write(file.getvalue())
    else:
        lines = [markdown_row(head), "|" + "---|" * len(head), *map(markdown_row, rows)]
        write("\n".join([*([f"## {title}\n"] if title else []), *lines, ""]) + "\n")


def print_json(data: Mapping[str, Json], *, indent: int | None = None) -> None:
    """Print one JSON object on standard output."""
    write(json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False) + "\n", json_text=True)


def write(text: str, *, json_text: bool = False) -> None:
    """Write a text to standard output.   json_text: controls, and what the encoding lacks, become escapes as in JSON."""
    text = safe_json(text) if json_text else text
    if json_text and not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        text = "".join(c if c < "\x7f" else json.dumps(c)[1:-1] for c in text)
    sys.stdout.write(text)


def command(*words: str | Path) -> str:
    """Return a command line of editloupe, quoted for a shell."""
    return shlex.join(["editloupe", *map(str, words)])


def fail(message: str) -> None:
    """Print an error on standard error."""
    err().print("error:", style="bold red", end=" ")
    note(message)


def warn(problems: Iterable[str]) -> None:
    """Print warnings on standard error."""
    for problem in problems:
        note(f"warning: {problem}")


def note(message: str) -> None:
    """Print a remark on standard error."""
    err().print(safe(message), markup=False, soft_wrap=True)


def tell_traces(wanted: bool) -> None:
    """Say that traces go to LangSmith, if they are wanted. Raises ConfigError where they cannot."""
    if wanted:
        from editloupe.backends.langsmith import announcement

        note(announcement())


def send_traces() -> None:
    """Wait a while until the traces that go to LangSmith are sent. Without any there is nothing to do."""
    module = sys.modules.get("editloupe.backends.langsmith")
    if module is not None and not module.flush():
        note("LangSmith did not take all traces.")


def slug(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


GRACE_S: Final = 5.0
"""So long calls that are under way may take after Ctrl-C. A model that thinks for minutes cannot be called off."""


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Yield what the first Ctrl-C (or SIGTERM) sets: waits and retries end, and calls under way have GRACE_S to end.

    The second one ends the process at once.
    """
    stop, pressed = Stop(), threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if pressed.is_set():
            if err().is_terminal:
                err().show_cursor(True)
                # Behind the panel, which stays.
                os.write(2, b"\n")
            os._exit(130)
        pressed.set()
        stop.within(GRACE_S)
        note(
            f"Stopping: nothing more is asked, and calls under way have {GRACE_S:g} s to end. Press again to stop at once; "
            "the same command continues the run."
        )

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
