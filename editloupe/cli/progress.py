"""How far a run is, in three forms: a panel in a terminal, plain lines where there is none, JSON events for programs."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from editloupe.cli.output import err, many, note, print_json
from editloupe.figures.escape import plain
from editloupe.runs.outcome import Progress
from editloupe.values import Json

EVERY_S: Final = 10.0
"""A plain line, and a JSON event, follows after so many seconds, or after 5 %."""
EVERY_SHARE: Final = 0.05
LEAST_S: Final = 1.0
"""No two follow faster, but for the last one."""
_RECENT_S: Final = 60.0
"""The rate is that of the last minute."""
_BAR: Final = (10, 40)
"""Least and most columns of the panel's bar."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a run stands at one moment, and what all forms say of it."""

    progress: Progress
    elapsed_s: float
    rate: float
    """Findings a second, of the last minute."""

    @property
    def left_s(self) -> float | None:
        """Seconds that are left at this rate; None while nothing can be said."""
        left = self.progress.total - self.progress.done
        return left / self.rate if self.rate > 0 and self.progress.total else None

    @property
    def share(self) -> float:
        """Of what is known, 0 to 1."""
        return self.progress.done / self.progress.total if self.progress.total else 0.0

    def stands(self) -> list[str]:
        """Return how many questions are done, since when, and how long the others may take."""
        counted = f"{self.progress.done:,} of {many(self.progress.total, 'question')} ({self.share:.0%})"
        counted += f", {self.progress.reused:,} from before" if self.progress.reused else ""
        counted += ", more may follow" if self.progress.grows else ""
        left = [] if self.left_s is None or self.share >= 1 else [f"about {_clock(self.left_s)} left"]
        return [counted, f"{_clock(self.elapsed_s)} elapsed", *left]

    def costs(self) -> list[str]:
        """Return what is under way and was spent, without what is nothing."""
        spent = self.progress.spent()
        tokens = f"{spent.tokens:,}" if spent.tokens < 1_000_000 else f"{spent.tokens / 1e6:.1f} M"
        retries = f"{spent.retries:,} {'retry' if spent.retries == 1 else 'retries'}"
        said = {
            f"{self.rate:.1f} a second": True,
            f"{many(spent.in_flight, 'call')} in flight": spent.in_flight,
            f"{tokens} tokens": spent.tokens,
            f"{spent.cost_usd or 0:.2f} USD": spent.cost_usd,
            retries: spent.retries,
            f"the endpoint asked to wait {_clock(spent.waits_s)}": spent.waits_s >= 1,
        }
        return [text for text, number in said.items() if number]

    def troubles(self) -> list[str]:
        """Return what failed, by status, and the rows that could not be read."""
        failures = sorted(self.progress.failures.items(), key=lambda one: -one[1])
        kinds = ", ".join(f"{count:,} {status}" for status, count in failures)
        failed = [f"{sum(count for _, count in failures):,} failed: {kinds}"] if failures else []
        return failed + ([f"{many(self.progress.rejected, 'row')} rejected"] if self.progress.rejected else [])

    def line(self) -> str:
        """Return all of it as a line of a log."""
        return f"{self.progress.phase}: " + ", ".join([*self.stands(), *self.costs(), *self.troubles()])

    def to_json(self) -> dict[str, Json]:
        """Return the event."""
        progress, spent = self.progress, self.progress.spent()
        return {
            "event": "progress",
            "phase": progress.phase,
            "done": progress.done,
            "total": progress.total,
            "grows": progress.grows,
            "elapsed_s": round(self.elapsed_s, 1),
            "left_s": None if self.left_s is None else round(self.left_s, 1),
            "rate": round(self.rate, 3),
            "calls": spent.calls,
            "in_flight": spent.in_flight,
            "retries": spent.retries,
            "waits_s": round(spent.waits_s, 1),
            "tokens": spent.tokens,
            "cost_usd": spent.cost_usd,
            "failures": dict(progress.failures),
            "rejected_rows": progress.rejected,
        }


class Watch:
    """Holds the last progress, and measures time and rate. Thread-safe.

    clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._began, self._last = clock(), Progress(phase="starting")
        self._recent: deque[tuple[float, int]] = deque()

    def take(self, progress: Progress) -> None:
        """Take the latest progress."""
        with self._lock:
            now = self._clock()
            if progress.total:
                self._began = self._began if self._recent else now
                self._recent.append((now, progress.done))
            self._last = replace(progress, finding=None)

    def state(self) -> State:
        """Return where the run stands now."""
        with self._lock:
            now, recent = self._clock(), self._recent
            while len(recent) > 2 and now - recent[1][0] > _RECENT_S:
                recent.popleft()
            seconds, count = (now - recent[0][0], recent[-1][1] - recent[0][1]) if recent else (0.0, 0)
            rate = count / seconds if seconds > 0 else 0.0
            return State(progress=self._last, elapsed_s=now - self._began, rate=rate)


class ProgressLines:
    """Tells states as lines for a log, or as JSON events, whenever one is due.   events: JSON on standard output."""

    def __init__(self, *, events: bool) -> None:
        self.events = events
        self._phase, self._elapsed_s, self._share = "", 0.0, 0.0

    def remark(self, text: str) -> None:
        """Tell what the user is to know before anything is asked."""
        print_json({"event": "remark", "text": text}) if self.events else note(text)

    def tell(self, state: State) -> None:
        """Tell a state if it is due: a new phase, some seconds or per cent after the last one, or the end."""
        new_phase = state.progress.phase != self._phase
        since, total = state.elapsed_s - self._elapsed_s, state.progress.total
        due = bool(total) and (
            since >= EVERY_S
            or (since >= LEAST_S and state.share - self._share >= EVERY_SHARE)
            or state.share >= 1 > self._share
        )
        self._phase = state.progress.phase
        if due:
            self._elapsed_s, self._share = state.elapsed_s, state.share
        if self.events and (due or new_phase):
            print_json(state.to_json())
        elif due or (new_phase and not total):
            note(state.line() if total else f"{self._phase} …")


def panel(state: State, width: int) -> RenderableType:
    """Return the panel of a terminal, with the figures of a log's line.   width: of the terminal, in columns."""
    progress = state.progress
    if not progress.total:
        return plain(f"{progress.phase} … {_clock(state.elapsed_s)}", "cyan")
    first, (least, most) = Table.grid(padding=(0, 1)), _BAR
    bar = ProgressBar(
        total=progress.total, completed=progress.done, width=max(least, min(most, width - 2 - cell_len(progress.phase)))
    )
    first.add_row(plain(progress.phase, "cyan"), bar)
    groups = {"": state.stands(), "dim": state.costs(), "yellow": state.troubles()}
    lines = [plain(line, style) for style, parts in groups.items() for line in _folded(parts, width - 1)]
    return Group(first, *lines)


def _folded(parts: Sequence[str], width: int) -> list[str]:
    """Return parts side by side, on as many lines as they need."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(f"{lines[-1]} · {part}") <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


@contextmanager
def progress(*, hidden: bool = False, events: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that shows how far a run is: a panel on standard error if that is a terminal, else a line there
    after every 10 s or 5 %.

    events: JSON events on standard output instead.   hidden: nothing at all.
    """
    watch = Watch()

    def take(progress: Progress) -> None:
        if progress.remark:
            note(progress.remark)
        else:
            watch.take(progress)

    if hidden:
        yield lambda progress: None
    elif not events and err().is_interactive and sys.stderr.isatty():
        # Rich calls for the panel four times a second, and prints what is noted meanwhile above it.
        with Live(get_renderable=lambda: panel(watch.state(), err().width), console=err(), transient=True,
                  redirect_stdout=False):  # fmt: skip
            yield take
    else:
        with _telling(watch, ProgressLines(events=events)) as listener:
            yield listener


@contextmanager
def _telling(watch: Watch, told: ProgressLines) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that tells what has come, and tells again as time passes."""
    ended, lock = threading.Event(), threading.Lock()

    def listen(progress: Progress) -> None:
        with lock:
            if progress.remark:
                told.remark(progress.remark)
                return
            watch.take(progress)
            if told.events and progress.finding is not None:
                print_json({"event": "finding", **progress.finding.to_json()})
            told.tell(watch.state())

    def tick() -> None:
        while not ended.wait(LEAST_S):
            with lock:
                told.tell(watch.state())

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield listen
    finally:
        ended.set()
        thread.join()


def _clock(seconds: float) -> str:
    """Return "0:07", "12:31" or "3:02:11"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
