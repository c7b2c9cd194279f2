"""Waits that end as soon as whoever asks is told to stop.

    with stops_with(stop):
        backend.complete(request, images)

Within the block, in this thread, a backend's waits raise Interrupted once `stop` is set, and nothing further is sent. A
request that is under way cannot be taken back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from editloupe.errors import Interrupted

_stop: Final[ContextVar[threading.Event | None]] = ContextVar("stop", default=None)


@contextmanager
def stops_with(stop: threading.Event) -> Iterator[None]:
    """Let the waits of this block end once `stop` is set."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def go_on() -> None:
    """Return if more may be asked. Raises Interrupted once whoever asks was told to stop."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise Interrupted("the run was asked to stop; this task goes on from here next time")


def pause(seconds: float) -> None:
    """Wait. Raises Interrupted, at once, when whoever asks is told to stop."""
    stop = _stop.get()
    if stop is None:
        time.sleep(seconds)
    else:
        stop.wait(seconds)
        go_on()
