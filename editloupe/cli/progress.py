"""How far a run is: a panel in a terminal, plain lines elsewhere, findings for programs."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from rich.live import Live
from rich.text import Text

from editloupe.cli.output import err, many, note, print_json
from editloupe.figures.escape import plain
from editloupe.runs.outcome import Progress

EVERY_S: Final = 10.0
"""Seconds between two plain lines of one phase."""
_RECENT_S: Final = 60.0
"""The rate is that of the last minute."""


class Watch:
    """Knows how far a run is, and says it. Thread-safe.

    clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock, self._began = clock, threading.Lock(), clock()
        self._last, self._said = Progress(phase="starting"), ""
        self._recent: deque[tuple[float, int]] = deque()
        """(seconds, findings done) of the last minute, once their number is known."""

    def take(self, progress: Progress) -> bool:
        """Take the latest progress, and return whether a new phase begins with it."""
        with self._lock:
            now, new = self._clock(), progress.phase != self._last.phase
            if progress.total:
                self._began = self._began if self._recent else now
                self._recent.append((now, progress.done))
            while len(self._recent) > 2 and now - self._recent[1][0] > _RECENT_S:
                self._recent.popleft()
            self._last = replace(progress, finding=None)
            return new

    def parts(self) -> dict[str, list[str]]:
        """Return what there is to say, by the style of its line: what is done, what it takes, what failed."""
        with self._lock:
            one, now, recent = self._last, self._clock(), self._recent
            since, done = (now - recent[0][0], recent[-1][1] - recent[0][1]) if recent else (0.0, 0)
        elapsed = f"{_clock(now - self._began)} elapsed"
        if not one.total:
            return {"": [elapsed]}
        rate, left, spent = done / since if since > 0 else 0.0, one.total - one.done, one.spent()
        counted = f"{one.done:,} of {many(one.total, 'question')} ({one.done / one.total:.0%})"
        counted += f", {one.reused:,} from before" if one.reused else ""
        counted += ", more may follow" if one.grows else ""
        tokens = f"{spent.tokens:,}" if spent.tokens < 1_000_000 else f"{spent.tokens / 1e6:.1f} M"
        costs = {
            f"{rate:.1f} a second": rate,
            f"{many(spent.in_flight, 'call')} in flight": spent.in_flight,
            f"{tokens} tokens": spent.tokens,
            f"{spent.cost_usd or 0:.2f} USD": spent.cost_usd,
            f"{spent.retries:,} {'retry' if spent.retries == 1 else 'retries'}": spent.retries,
            f"the endpoint asked to wait {_clock(spent.waits_s)}": spent.waits_s >= 1,
        }
        kinds = ", ".join(f"{count:,} {status}" for status, count in sorted(one.failures.items(), key=lambda of: -of[1]))
        failures = {
            f"{sum(one.failures.values()):,} failed: {kinds}": kinds,
            f"{many(one.rejected, 'row')} rejected": one.rejected,
        }
        return {
            "": [counted, elapsed, *([f"about {_clock(left / rate)} left"] if left and rate else [])],
            "dim": [text for text, number in costs.items() if number],
            "yellow": [text for text, number in failures.items() if number],
        }

    def line(self) -> str:
        """Return all of it as a line of a log."""
        if not self._last.total:
            return f"{self._last.phase} …"
        return f"{self._last.phase}: " + ", ".join(part for parts in self.parts().values() for part in parts)

    def tell(self) -> None:
        """Print the line, unless it is the last one again."""
        if (line := self.line()) != self._said:
            self._said = line
            note(line)

    def panel(self) -> Text:
        """Return the panel of a terminal, with the figures of a log's line."""
        lines = (plain(" · ".join(parts), style) for style, parts in self.parts().items() if parts)
        return Text("\n").join([plain(self._last.phase, "cyan"), *lines])


@contextmanager
def progress(*, hidden: bool = False, events: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that shows how far a run is: a panel on standard error if that is a terminal, else a line there
    with each phase, every 10 s, and at the end.

    events: findings as JSON on standard output instead.   hidden: nothing at all.
    """
    watch, lock, in_panel = Watch(), threading.Lock(), err().is_interactive and sys.stderr.isatty()

    def listen(progress: Progress) -> None:
        if progress.remark:
            note(progress.remark)
        elif watch.take(progress) and not in_panel:
            watch.tell()

    def listen_for_programs(progress: Progress) -> None:
        if progress.remark:
            note(progress.remark)
        if progress.finding is not None:
            with lock:
                print_json({"event": "finding", **progress.finding.to_json()})

    if hidden or events:
        yield listen_for_programs if events else lambda progress: None
    elif in_panel:
        # Rich calls for the panel four times a second, and prints what is noted meanwhile above it.
        with Live(get_renderable=watch.panel, console=err(), transient=True, redirect_stdout=False):
            yield listen
    else:
        with _lines(watch):
            yield listen


@contextmanager
def _lines(watch: Watch) -> Iterator[None]:
    """Print a line every 10 s, also while nothing arrives, and one at the end."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(EVERY_S):
            watch.tell()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        watch.tell()


def _clock(seconds: float) -> str:
    """Return "0:07", "12:31" or "3:02:11"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
