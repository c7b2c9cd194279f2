"""CPU time and memory of a process and of all that it starts, seen from outside. Linux only: it reads /proc."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a tree of processes used while it was watched."""

    cpu: float
    """In seconds, of all."""
    own: float
    """In seconds, of the first process alone."""
    others: float
    """In seconds of CPU, of all other processes of the machine."""
    grown: float
    """In MB: the most at a time of what no other process shares, above what it was in the beginning."""


class Watch:
    """Looks at a process and its descendants ten times a second. Of one that ends, up to a tenth of a second is lost."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._machine = _busy()
        self._began, self._memory = _tree(pid)
        self._last = dict(self._began)
        self._peak = self._memory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> Used:
        """Return what was used since this object was made."""
        self._stop.set()
        self._thread.join()
        self._look()
        machine = _busy() - self._machine
        spent = {pid: ticks - self._began.get(pid, 0) for pid, ticks in self._last.items()}
        return Used(
            cpu=sum(spent.values()) / _TICK,
            own=spent[self._pid] / _TICK,
            others=max(0, machine - sum(spent.values())) / _TICK,
            grown=(self._peak - self._memory) * _PAGE / 1e6,
        )

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        ticks, pages = _tree(self._pid)
        self._last |= ticks
        self._peak = max(self._peak, pages)


def _busy() -> int:
    """Return the clock ticks in which the machine's cores did something."""
    user, nice, system, _, _, interrupts, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + interrupts + soft


def _tree(root: int) -> tuple[dict[int, int], int]:
    """Return the clock ticks of each process below and with `root`, and the unshared pages of all."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with suppress(OSError):
            # Behind the name, which may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    found, pages = {}, 0
    for pid in parents:
        at = pid
        while at != root and at in parents:
            at = parents[at]
        if at == root:
            with suppress(OSError):
                _, resident, shared, *_ = map(int, Path("/proc", str(pid), "statm").read_text().split())
                found[pid], pages = ticks[pid], pages + resident - shared
    return found, pages
