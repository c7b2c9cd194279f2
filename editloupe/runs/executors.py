"""Work at once, with no queue beyond what runs: results come as they are ready."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from editloupe.cores import waiting

Item = TypeVar("Item")
Result = TypeVar("Result")


class Stop(threading.Event):
    """Set to end a run: nothing further is begun, waits and retries end, and what is under way is finished."""

    _until_s = math.inf

    def within(self, seconds: float) -> None:
        """Set it, and wait so many seconds, no longer, for what is under way."""
        self._until_s = time.monotonic() + seconds
        self.set()

    @property
    def waits(self) -> bool:
        """Whether what is under way is still waited for."""
        return time.monotonic() < self._until_s


def together(
    work: Callable[[Item], Result],
    take: Callable[[], Item | None],
    *,
    width: int,
    stop: threading.Event | None = None,
) -> Iterator[list[Result]]:
    """Yield the results of `work` that are ready, one or more at a time, in the order of completion.

    While they are looked at, as when they are written to a disk, the next items are under way.

    take: returns the next item; None if there is nothing to begin now. It is asked again after each yield.
    width: items at once.   stop: once set, nothing further is begun, and what is under way is finished. A `Stop` that waits
    no longer ends this at once: threads that are still at work go on, and what they return is dropped.
    Raises ValueError for no width, and what `work` raises once the results before it were yielded.
    """
    if width < 1:
        raise ValueError(f"expected at least 1 at once, found {width}")
    stop = stop or threading.Event()
    running: set[Future[Result]] = set()
    # Each says itself that it is done: asking all of them costs more with every one that runs.
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    pool = ThreadPoolExecutor(width, thread_name_prefix="judge")

    def begin() -> None:
        while len(running) < width and not stop.is_set() and (item := take()) is not None:
            future = pool.submit(work, item)
            running.add(future)
            future.add_done_callback(ended.put)

    try:
        begin()
        while running and ((ready := _ready(ended)) or _waits(stop)):
            running.difference_update(ready)
            failed = next((n for n, future in enumerate(ready) if future.exception() is not None), len(ready))
            if failed == len(ready):
                begin()
            if results := [future.result() for future in ready[:failed]]:
                yield results
            for future in ready[failed:]:
                future.result()
            begin()
    except KeyboardInterrupt:
        # What waits for an endpoint ends too.
        stop.set()
        raise
    finally:
        with waiting():
            pool.shutdown(wait=_waits(stop), cancel_futures=True)


def _waits(stop: threading.Event) -> bool:
    return not isinstance(stop, Stop) or stop.waits


def _ready(ended: SimpleQueue[Future[Result]]) -> list[Future[Result]]:
    """Return those that have ended; none if a while goes by without one."""
    found = []
    with suppress(Empty):
        # A time-out keeps the main thread open to signals. A tool that asks a judge is a task that computes.
        with waiting():
            found.append(ended.get(timeout=0.2))
        while True:
            found.append(ended.get_nowait())
    return found
