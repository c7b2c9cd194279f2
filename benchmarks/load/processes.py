"""CPU time and memory of a process and of all that it starts, seen from outside."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

import psutil

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
        self._root = psutil.Process(pid)
        self._machine = _busy()
        self._began, self._memory = self._tree()
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
        spent = {pid: seconds - self._began.get(pid, 0) for pid, seconds in self._last.items()}
        return Used(
            cpu=sum(spent.values()),
            own=spent[self._root.pid],
            others=max(0, machine - sum(spent.values())),
            grown=(self._peak - self._memory) / 1e6,
        )

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        seconds, memory = self._tree()
        self._last |= seconds
        self._peak = max(self._peak, memory)

    def _tree(self) -> tuple[dict[int, float], int]:
        """Return the CPU seconds of each process below and with the first, and the unshared bytes of all."""
        seconds, memory = {}, 0
        for process in (self._root, *self._root.children(recursive=True)):
            # A process may end meanwhile.
            with suppress(psutil.NoSuchProcess), process.oneshot():
                used, held = process.cpu_times(), process.memory_info()
                seconds[process.pid], memory = used.user + used.system, memory + held.rss - held.shared
        return seconds, memory


def _busy() -> float:
    """Return the CPU seconds in which the machine's cores did something."""
    spent = psutil.cpu_times()
    return spent.user + spent.nice + spent.system + spent.irq + spent.softirq
