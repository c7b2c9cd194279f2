"""Work at once, with no queue beyond what runs: results come as they are ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from editloupe.cores import waiting

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(
    work: Callable[[Item], Result],
    take: Callable[[], Item | None],
    *,
    width: int,
    stop: threading.Event | None = None,
) -> Iterator[Result]:
    """Return `work` of every item, in the order of completion. Arguments and errors as of `together`."""
    for results in together(work, take, width=width, stop=stop):
        yield from results


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
    width: items at once.   stop: once set, nothing further is begun; what is under way is finished.
    Raises ValueError for no width, and what `work` raises once the results before it were yielded.
    """
    if width < 1:
        raise ValueError(f"expected at least 1 at once, found {width}")
    stop = stop or threading.Event()
    running: set[Future[Result]] = set()
    # Each says itself that it is done: asking all of them costs more with every one that runs.
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    with ThreadPoolExecutor(width, thread_name_prefix="judge") as pool:

        def begin() -> None:
            while len(running) < width and not stop.is_set() and (item := take()) is not None:
                future = pool.submit(work, item)
                running.add(future)
                future.add_done_callback(ended.put)

        try:
            while True:
                begin()
                if not running:
                    return
                try:
                    # A time-out keeps the main thread open to signals. A tool that asks a judge is a task that computes.
                    with waiting():
                        ready = [ended.get(timeout=0.2)]
                except Empty:
                    continue
                with suppress(Empty):
                    while True:
                        ready.append(ended.get_nowait())
                running.difference_update(ready)
                failed = next((n for n, future in enumerate(ready) if future.exception() is not None), len(ready))
                if failed == len(ready):
                    begin()
                if results := [future.result() for future in ready[:failed]]:
                    yield results
                for future in ready[failed:]:
                    future.result()
        except KeyboardInterrupt:
            # What waits for an endpoint ends too.
            stop.set()
            raise
        finally:
            for future in running:
                future.cancel()
            with waiting():
                pool.shutdown()
