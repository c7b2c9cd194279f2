"""How a command runs for long: a live bar, and a Ctrl-C that leaves a run that can be continued."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from editloupe.cli.output import err, note
from editloupe.runs.execute import Progress


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
