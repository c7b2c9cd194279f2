"""How far a run is: a panel in a terminal, plain lines elsewhere, findings for programs."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from rich.live import Live
from rich.text import Text

from editloupe.cli.output import err, many, note, print_json
from editloupe.figures.escape import plain
from editloupe.runs.outcome import Progress

EVERY_S: Final = 10.0
"""A plain line follows after so many seconds, or after 5 %."""
EVERY_SHARE: Final = 0.05
LEAST_S: Final = 1.0
"""No two follow faster, except the last one."""
_RECENT_S: Final = 60.0
"""The rate is that of the last minute."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a run at one moment, and what is said of it."""

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

    def parts(self) -> dict[str, list[str]]:
        """Return what is said, by the style of its line: what is done, what it takes, what failed."""
        one, spent = self.progress, self.progress.spent()
        counted = f"{one.done:,} of {many(one.total, 'question')} ({self.share:.0%})"
        counted += f", {one.reused:,} from before" if one.reused else ""
        counted += ", more may follow" if one.grows else ""
        left = [] if self.left_s is None or self.share >= 1 else [f"about {_clock(self.left_s)} left"]
        tokens = f"{spent.tokens:,}" if spent.tokens < 1_000_000 else f"{spent.tokens / 1e6:.1f} M"
        costs = {
            f"{self.rate:.1f} a second": True,
            f"{many(spent.in_flight, 'call')} in flight": spent.in_flight,
            f"{tokens} tokens": spent.tokens,
            f"{spent.cost_usd or 0:.2f} USD": spent.cost_usd,
            f"{spent.retries:,} {'retry' if spent.retries == 1 else 'retries'}": spent.retries,
            f"the endpoint asked to wait {_clock(spent.waits_s)}": spent.waits_s >= 1,
        }
        failures = sorted(one.failures.items(), key=lambda kind: -kind[1])
        kinds = ", ".join(f"{count:,} {status}" for status, count in failures)
        failed = [f"{sum(one.failures.values()):,} failed: {kinds}"] if failures else []
        rejected = [f"{many(one.rejected, 'row')} rejected"] if one.rejected else []
        return {
            "": [counted, f"{_clock(self.elapsed_s)} elapsed", *left],
            "dim": [text for text, number in costs.items() if number],
            "yellow": failed + rejected,
        }

    def line(self) -> str:
        """Return all of it as a line of a log."""
        return f"{self.progress.phase}: " + ", ".join(part for parts in self.parts().values() for part in parts)


class Watch:
    """Holds the last progress, measures time and rate, and tells when a line is due. Thread-safe.

    clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._began, self._last = clock(), Progress(phase="starting")
        self._recent: deque[tuple[float, int]] = deque()
        self._told = State(progress=Progress(phase=""), elapsed_s=0.0, rate=0.0)

    def take(self, progress: Progress) -> None:
        """Take the latest progress."""
        with self._lock:
            now = self._clock()
            if progress.total:
                self._began = self._began if self._recent else now
                self._recent.append((now, progress.done))
            self._last = replace(progress, finding=None)

    def state(self) -> State:
        """Return the state of the run now."""
        with self._lock:
            now, recent = self._clock(), self._recent
            while len(recent) > 2 and now - recent[1][0] > _RECENT_S:
                recent.popleft()
            seconds, count = (now - recent[0][0], recent[-1][1] - recent[0][1]) if recent else (0.0, 0)
            rate = count / seconds if seconds > 0 else 0.0
            return State(progress=self._last, elapsed_s=now - self._began, rate=rate)

    def due(self) -> State | None:
        """Return the state if a line is due: a new phase, some seconds or per cent after the last one, or the end."""
        now, told = self.state(), self._told
        since = now.elapsed_s - (told.elapsed_s if told.progress.total else 0)
        moved = (
            since >= EVERY_S or (since >= LEAST_S and now.share - told.share >= EVERY_SHARE) or now.share >= 1 > told.share
        )
        if now.progress.phase == told.progress.phase and not (now.progress.total and moved):
            return None
        self._told = now
        return now


def panel(state: State) -> Text:
    """Return the panel of a terminal, with the figures of a log's line."""
    progress = state.progress
    if not progress.total:
        return plain(f"{progress.phase} … {_clock(state.elapsed_s)}", "cyan")
    lines = (plain(" · ".join(parts), style) for style, parts in state.parts().items() if parts)
    return Text("\n").join([plain(progress.phase, "cyan"), *lines])


@contextmanager
def progress(*, hidden: bool = False, events: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that shows how far a run is: a panel on standard error if that is a terminal, else a line there
    after every 10 s or 5 %.

    events: findings as JSON on standard output instead.   hidden: nothing at all.
    """
    watch, ended, lock = Watch(), threading.Event(), threading.Lock()
    in_panel = err().is_interactive and sys.stderr.isatty()

    def tell() -> None:
        with lock:
            if (state := watch.due()) is not None:
                note(state.line() if state.progress.total else f"{state.progress.phase} …")

    def listen(progress: Progress) -> None:
        if progress.remark:
            note(progress.remark)
            return
        watch.take(progress)
        if not in_panel:
            tell()

    def listen_for_programs(progress: Progress) -> None:
        if progress.remark:
            note(progress.remark)
        if progress.finding is not None:
            with lock:
                print_json({"event": "finding", **progress.finding.to_json()})

    def tick() -> None:
        while not ended.wait(LEAST_S):
            tell()

    if hidden or events:
        yield listen_for_programs if events else lambda progress: None
    elif in_panel:
        # Rich calls for the panel four times a second, and prints what is noted meanwhile above it.
        with Live(get_renderable=lambda: panel(watch.state()), console=err(), transient=True,
                  redirect_stdout=False):  # fmt: skip
            yield listen
    else:
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
