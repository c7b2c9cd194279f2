"""Work at once, with no queue beyond what runs: results come as they are ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def as_ready(start: Callable[[], Future[Result] | None], *, width: int, stop: threading.Event) -> Iterator[Result]:
    """Return results in the order of completion.

    start: begins the next piece of work; None if there is nothing to begin now. It is asked again after each result.
    width: pieces at once.   stop: once set, nothing further is begun; what is under way is finished.
    """
    running: set[Future[Result]] = set()
    # Each says itself that it is done: asking all of them costs more with every one that runs.
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    try:
        while True:
            while len(running) < width and not stop.is_set() and (future := start()) is not None:
                running.add(future)
                future.add_done_callback(ended.put)
            if not running:
                return
            try:
                # A time-out keeps the main thread open to signals.
                future = ended.get(timeout=0.2)
            except Empty:
                continue
            running.discard(future)
            yield future.result()
    finally:
        for future in running:
            future.cancel()


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], *, width: int, stop: threading.Event | None = None
) -> Iterator[Result]:
    """Return `work` of every item, `width` items at a time, in the order of completion. Raises ValueError for no width."""
    if width < 1:
        raise ValueError(f"expected at least 1 at once, found {width}")
    waiting = iter(items)
    with ThreadPoolExecutor(width, thread_name_prefix="judge") as pool:

        def start() -> Future[Result] | None:
            for item in waiting:
                return pool.submit(work, item)
            return None

        yield from as_ready(start, width=width, stop=stop or threading.Event())
