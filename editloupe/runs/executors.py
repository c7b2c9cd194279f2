"""Work at once, with no queue beyond what runs: results come as they are ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(
    work: Callable[[Item], Result],
    take: Callable[[], Item | None],
    *,
    width: int,
    stop: threading.Event | None = None,
) -> Iterator[Result]:
    """Return `work` of every item, in the order of completion. Raises ValueError for no width.

    take: returns the next item; None if there is nothing to begin now. It is asked again after each result.
    width: items at once.   stop: once set, nothing further is begun; what is under way is finished.
    """
    if width < 1:
        raise ValueError(f"expected at least 1 at once, found {width}")
    stop = stop or threading.Event()
    running: set[Future[Result]] = set()
    # Each says itself that it is done: asking all of them costs more with every one that runs.
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    with ThreadPoolExecutor(width, thread_name_prefix="judge") as pool:
        try:
            while True:
                while len(running) < width and not stop.is_set() and (item := take()) is not None:
                    future = pool.submit(work, item)
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
