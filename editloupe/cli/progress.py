"""How far a run is, in three forms: a panel in a terminal, plain lines where there is none, JSON events for programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from editloupe.cli.output import err, note, print_json
from editloupe.reports.escape import safe
from editloupe.runs.execute import Progress, Spent
from editloupe.values import Json

EVERY_S: Final = 10.0
"""A plain line, and a JSON event, follows after so many seconds, or after 5 %."""
EVERY_SHARE: Final = 0.05
LEAST_S: Final = 1.0
"""No two follow faster, but for the last one."""
_SLOWEST_REFRESH: Final = 4
"""Times a second that the panel is drawn."""
_RECENT_S: Final = 60.0
"""The rate is that of the last minute."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What all three forms say."""

    progress: Progress
    elapsed_s: float
    rate: float
    """Findings a second, of the last minute."""

    @property
    def spent(self) -> Spent:
        return self.progress.spent()

    @property
    def left_s(self) -> float | None:
        """Seconds that are left at this rate; None while nothing can be said."""
        left = self.progress.total - self.progress.done
        return left / self.rate if self.rate > 0 and self.progress.total else None

    @property
    def share(self) -> float:
        """Of what is known, 0 to 1."""
        return self.progress.done / self.progress.total if self.progress.total else 0.0

    def counted(self) -> str:
        """Return "412 of 1,889 (22 %)", how many of them are from before, and that the number may grow."""
        more = ", more may follow" if self.progress.grows else ""
        percent = f" ({self.share:.0%})" if self.progress.total else ""
        before = f", {self.progress.reused:,} from before" if self.progress.reused else ""
        return f"{self.progress.done:,} of {self.progress.total:,}{percent}{before}{more}"

    def costs(self) -> list[str]:
        """Return what is under way and was spent, without what is nothing."""
        spent, said = self.spent, [f"{self.rate:.1f} a second"]
        if spent.in_flight:
            said.append(f"{spent.in_flight} {'call' if spent.in_flight == 1 else 'calls'} in flight")
        if spent.tokens:
            said.append(f"{_large(spent.tokens)} tokens")
        if spent.cost_usd:
            said.append(f"{spent.cost_usd:.2f} USD")
        if spent.retries:
            said.append(f"{spent.retries:,} {'retry' if spent.retries == 1 else 'retries'}")
        return said

    def troubles(self) -> list[str]:
        """Return what failed, by status, and the rows that could not be read."""
        said = []
        if self.progress.failures:
            kinds = sorted(self.progress.failures.items(), key=lambda one: -one[1])
            total = sum(self.progress.failures.values())
            said.append(f"{total:,} failed: {', '.join(f'{count:,} {status}' for status, count in kinds)}")
        if self.progress.rejected:
            said.append(f"{self.progress.rejected:,} {'row' if self.progress.rejected == 1 else 'rows'} rejected")
        return said

    def to_json(self) -> dict[str, Json]:
        """Return the event."""
        progress, spent = self.progress, self.spent
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
            "tokens": spent.tokens,
            "cost_usd": spent.cost_usd,
            "failures": dict(progress.failures),
            "rejected_rows": progress.rejected,
        }


class _Form(Protocol):
    """How a state is shown."""

    def show(self, state: State, *, due: bool) -> None:
        """Show a state.   due: whether some seconds or per cent have passed since the last one that was due."""


class _Lines:
    """A line now and then, for a log file."""

    def __init__(self) -> None:
        self._phase = ""

    def show(self, state: State, *, due: bool) -> None:
        if state.progress.phase != self._phase:
            self._phase = state.progress.phase
            if not state.progress.total:
                note(f"{self._phase} …")
                return
        if due and state.progress.total:
            times = [f"{_clock(state.elapsed_s)} elapsed"]
            if state.left_s is not None and state.share < 1:
                times.append(f"about {_clock(state.left_s)} left")
            note(", ".join([f"{state.progress.phase}: {state.counted()}", *times, *state.costs(), *state.troubles()]))


class _Events:
    """JSON, an object a line, on standard output."""

    def __init__(self) -> None:
        self._phase = ""

    def show(self, state: State, *, due: bool) -> None:
        if state.progress.finding is not None:
            print_json({"event": "finding", **state.progress.finding.to_json()})
        if due or state.progress.phase != self._phase:
            self._phase = state.progress.phase
            print_json(state.to_json())


class _Panel:
    """Three lines that stay where they are, in a terminal."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, state: State, *, due: bool) -> None:
        self._live.update(panel(state))


def panel(state: State) -> RenderableType:
    """Return the panel of a terminal."""
    progress = state.progress
    if not progress.total:
        return Text(f"{progress.phase} … {_clock(state.elapsed_s)}", style="cyan")
    times = f"{_clock(state.elapsed_s)} elapsed"
    if state.left_s is not None and state.share < 1:
        times += f", about {_clock(state.left_s)} left"
    first = Table.grid(padding=(0, 2))
    first.add_row(
        Text(progress.phase, style="cyan"),
        ProgressBar(total=progress.total, completed=progress.done, width=28),
        Text(state.counted()),
        Text(times),
    )
    lines: list[RenderableType] = [first, Text("  " + " · ".join(state.costs()), style="dim")]
    if troubles := state.troubles():
        lines.append(Text("  " + " · ".join(safe(one) for one in troubles), style="yellow"))
    return Group(*lines)


class _Watch:
    """Holds the last state, and shows it again as time passes."""

    def __init__(self, form: _Form, clock: Callable[[], float] = time.monotonic) -> None:
        self._form, self._clock = form, clock
        self._lock = threading.Lock()
        self._began = clock()
        self._last: Progress | None = None
        self._shown_s, self._shown_share = self._began, 0.0
        self._recent: list[tuple[float, int]] = []

    def listen(self, progress: Progress) -> None:
        with self._lock:
            now = self._clock()
            if not self._recent and progress.total:
                self._began, self._shown_s = now, now
            if progress.total:
                self._recent.append((now, progress.done))
                while len(self._recent) > 2 and now - self._recent[1][0] > _RECENT_S:
                    self._recent.pop(0)
            self._last = progress
            self._show(now)

    def tick(self) -> None:
        with self._lock:
            if self._last is not None:
                self._show(self._clock(), again=True)

    def _show(self, now: float, *, again: bool = False) -> None:
        assert self._last is not None
        last = replace(self._last, finding=None) if again else self._last
        state = State(progress=last, elapsed_s=now - self._began, rate=self._rate(now))
        since = now - self._shown_s
        due = bool(last.total) and (
            since >= EVERY_S
            or (since >= LEAST_S and state.share - self._shown_share >= EVERY_SHARE)
            or state.share >= 1 > self._shown_share
        )
        if due:
            self._shown_s, self._shown_share = now, state.share
        self._form.show(state, due=due)

    def _rate(self, now: float) -> float:
        if not self._recent:
            return 0.0
        (began, before), (_, done) = self._recent[0], self._recent[-1]
        return (done - before) / (now - began) if now > began else 0.0


@contextmanager
def progress(*, hidden: bool = False, events: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that shows how far a run is: a panel on standard error if that is a terminal, else a line there
    after every 10 s or 5 %.

    events: JSON events on standard output instead.   hidden: nothing at all.
    """
    if hidden:
        yield lambda progress: None
        return
    ended = threading.Event()

    def ticking(watch: _Watch) -> None:
        while not ended.wait(1 / _SLOWEST_REFRESH if isinstance(form, _Panel) else 1.0):
            watch.tick()

    live: Live | None = None
    form: _Form
    if events:
        form = _Events()
    elif err().is_terminal:
        live = Live(console=err(), transient=True, auto_refresh=False, refresh_per_second=_SLOWEST_REFRESH)
        form = _Panel(live)
    else:
        form = _Lines()
    watch = _Watch(form)
    thread = threading.Thread(target=ticking, args=(watch,), daemon=True)
    if live is not None:
        live.start()
    thread.start()
    try:
        yield watch.listen
    finally:
        ended.set()
        thread.join()
        if live is not None:
            live.stop()


def _clock(seconds: float) -> str:
    """Return "0:07", "12:31" or "3:02:11"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _large(number: int) -> str:
    """Return "12,345" or "1.2 M"."""
    return f"{number:,}" if number < 1_000_000 else f"{number / 1e6:.1f} M"
