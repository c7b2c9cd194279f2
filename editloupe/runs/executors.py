"""How many tasks run at once. An executor sees a function and items, nothing else; results come as they are ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs `work` over `items`."""

    def run(self, work: Callable[[Item], Result], items: Iterable[Item], *, stop: threading.Event) -> Iterator[Result]:
        """Results in the order of completion. Once `stop` is set no further item is begun; those under way are finished."""


class ThreadExecutor:
    """Threads of this process; `concurrency` items at a time, and no queue beyond them."""

    def __init__(self, concurrency: int) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, found {concurrency}")
        self.concurrency = concurrency

    def run(self, work: Callable[[Item], Result], items: Iterable[Item], *, stop: threading.Event) -> Iterator[Result]:
        waiting = iter(items)
        running: set[Future[Result]] = set()
        # Each says itself that it is done: asking all of them costs more with every one that runs.
        ended: SimpleQueue[Future[Result]] = SimpleQueue()
        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="judge") as pool:
            try:
                while True:
                    while len(running) < self.concurrency and not stop.is_set():
                        item = next(waiting, _END)
                        if item is _END:
                            break
                        future = pool.submit(work, item)  # type: ignore[arg-type]
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


_END = object()
