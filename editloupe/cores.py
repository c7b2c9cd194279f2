"""Whose turn it is to compute: no more tasks of this process at once than there are cores.

Dozens of tasks wait for an endpoint, and their answers come close together. If all went on at once, each would stop and
start many times over and end as late as the last; one after another, the first asks again soon.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from typing import Final

_here: Final = threading.local()


def usable_cores() -> int:
    """Return on how many cores this process may run, which a container or `taskset` may hold to a few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_cores(count: int) -> None:
    """Let no more than `count` tasks compute at once in this process. Call it before the first task."""
    global _free
    _free = SimpleQueue()
    for _ in range(count):
        _free.put(None)


_free: SimpleQueue[None] = SimpleQueue()
use_cores(usable_cores())


def computing() -> AbstractContextManager[None]:
    """Hold one of the cores for the block: wait for it, unless this thread has one."""
    return _turn(held=True)


def waiting() -> AbstractContextManager[None]:
    """Leave this thread's core, if it has one, to others for the block, which waits for something else than a core."""
    return _turn(held=False)


@contextmanager
def _turn(*, held: bool) -> Iterator[None]:
    before = getattr(_here, "held", False)
    _change(before, held)
    try:
        yield
    finally:
        _change(held, before)


def _change(before: bool, held: bool) -> None:
    if held and not before:
        _free.get()
    elif before and not held:
        _free.put(None)
    _here.held = held
