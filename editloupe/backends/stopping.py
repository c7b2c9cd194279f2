"""The run's stop event, where a backend waits: Ctrl-C ends waits, and nothing is asked again after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from editloupe.errors import Interrupted

LOOK_S: Final = 0.2
"""Seconds after which a wait for others looks at the event again."""

_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Let backends that are asked in this block, and in threads that share its context, end their waits with `stop`."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


def check_stop() -> None:
    """Raise Interrupted once the run is to stop."""
    stop = _STOP.get()
    if stop is not None and stop.is_set():
        raise Interrupted("the run was asked to stop; this task goes on from here next time")


def sleep(seconds: float) -> None:
    """Wait. Raises Interrupted as soon as the run is to stop."""
    stop = _STOP.get()
    time.sleep(seconds) if stop is None else stop.wait(seconds)
    check_stop()
