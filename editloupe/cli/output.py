"""Where a command's words go: results to standard output, progress and remarks to standard error."""

from __future__ import annotations

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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.status import Status
from rich.table import Table
from rich.text import Text

from editloupe.reports.escape import plain as plain
from editloupe.reports.escape import safe, safe_json
from editloupe.values import Json

if TYPE_CHECKING:
    from editloupe.runs.execute import Progress


_SIDE = re.compile(r"0*[1-9][0-9]{0,4}")
"""A width or height of a terminal."""


@cache
def out() -> Console:
    """Return standard output; wide enough for a table if it is no terminal."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110
    # Named, so that tables are drawn with what its encoding has.
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)


@cache
def err() -> Console:
    """Return standard error."""
    return Console(stderr=True, highlight=False)


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
    """Print text without markup on standard output. Long lines are not broken."""
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
    """Print a table without markup on standard output.   right: columns of numbers."""
    shown = Table(title=plain(title) if title else None, title_justify="left")
    for name in head:
        shown.add_column(plain(name), overflow="fold", justify="right" if name in right else "left")
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else plain(cell) for cell in row))
    out().print(shown)


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


@contextmanager
def stoppable(at_once: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C (or SIGTERM) sets: the run stops after the calls under way and can be continued.

    at_once: called when the second one ends the process at once, for what would outlive it.
    """
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            err().show_cursor(True)
            at_once()
            os._exit(130)
        stop.set()
        note("Stopping after the calls under way; press again to stop at once. The same command continues the run.")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress(*, hidden: bool) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that shows a live bar on standard error: done, total, failed, rate, time left."""
    columns: list[Any] = [
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[grows]}", style="dim"),
        TextColumn("{task.fields[failed]} failed", style="red"),
        TextColumn("{task.fields[rate]:.1f} a second"),
        TimeRemainingColumn(),
    ]
    with Bar(*columns, console=err(), transient=True, disable=hidden) as bar:
        task = bar.add_task("judging", total=None, failed=0, rate=0.0, grows="")
        first: list[int] = []

        def listen(progress: Progress) -> None:
            first[:] = first or [progress.done]
            bar.update(
                task,
                total=progress.total,
                completed=progress.done,
                failed=progress.failed,
                rate=(progress.done - first[0]) / (bar.tasks[0].elapsed or 1.0),
                grows="so far; more questions may follow from the answers" if progress.grows else "",
            )

        yield listen
