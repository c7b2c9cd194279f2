"""Whose turn it is to compute: no more tasks of this process at once than there are cores.

Dozens of tasks wait for an endpoint, and their answers come close together. If all went on at once, each would stop and
start many times over and end as late as the last; one after another, the first asks again soon.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

_FREE: Final[SimpleQueue[None]] = SimpleQueue()
for _ in range(os.cpu_count() or 1):
    _FREE.put(None)
_here: Final = threading.local()


@contextmanager
def computing() -> Iterator[None]:
    """Hold one of the cores for the block: wait for it, unless this thread has one."""
    if getattr(_here, "held", False):
        yield
        return
    _FREE.get()
    _here.held = True
    try:
        yield
    finally:
        _here.held = False
        _FREE.put(None)


@contextmanager
def waiting() -> Iterator[None]:
    """Leave this thread's core, if it has one, to others for the block, which waits for something else than a core."""
    if not getattr(_here, "held", False):
        yield
        return
    _here.held = False
    _FREE.put(None)
    try:
        yield
    finally:
        _FREE.get()
        _here.held = True
