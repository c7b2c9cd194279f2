"""Micro-batching: calls that come from many samples at about the same time run as one batch on one model.

No torch here: `run` is any function over a list, and it raises MemoryError where the list is too long.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from editloupe.errors import ToolError

In = TypeVar("In")
Out = TypeVar("Out")

WINDOW_S: Final = 0.01
"""Seconds that the first call of a batch waits for others."""


@dataclass
class _Job(Generic[In, Out]):
    """One item on its way."""

    item: In
    done: threading.Event = field(default_factory=threading.Event)
    """Set once `results` or `error` is there."""
    results: list[Out] = field(default_factory=list)
    """The one result; empty until then."""
    error: BaseException | None = None
    """What the item's caller raises."""


class Batcher(Generic[In, Out]):
    """Gathers items from many threads for `window_s`, runs them together, and gives each caller its own result or error.

    run: takes a list of items and returns as many results, in order. It raises MemoryError where the list does not fit into
    memory. It is called from one thread at a time.
    key: items with different keys never share a batch, for example pictures of different sizes.
    max_batch: most items in one `run`.
    max_queue: most items that wait; a further caller waits for room.

    A batch that does not fit into memory is split in halves, down to one item. An item that does not fit alone is a
    ToolError of its own caller. Any other exception makes the items of the batch run one by one, so that it reaches the
    right caller.
    The worker is a daemon thread that starts with the first item.
    """

    def __init__(
        self,
        run: Callable[[list[In]], Sequence[Out]],
        *,
        name: str,
        key: Callable[[In], Hashable] = lambda _: None,
        max_batch: int = 8,
        window_s: float = WINDOW_S,
        max_queue: int = 256,
    ) -> None:
        if max_batch < 1 or max_queue < 1 or window_s < 0:
            raise ValueError(f"expected max_batch and max_queue of at least 1, window_s of at least 0; found {max_batch}, "
                             f"{max_queue}, {window_s}")  # fmt: skip
        self.name, self.max_batch, self.window_s = name, max_batch, window_s
        self._run, self._key = run, key
        self._queue: queue.Queue[_Job[In, Out] | None] = queue.Queue(max_queue)
        self._worker: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def __call__(self, item: In) -> Out:
        """Return the result of one item. Raises what `run` raises for it; ToolError where it does not fit into memory."""
        return self.map([item])[0]

    def map(self, items: Iterable[In]) -> list[Out]:
        """Return the results of several items, which may share batches with those of other threads.

        Raises as a call does.
        """
        jobs: list[_Job[In, Out]] = [_Job(item) for item in items]
        for job in jobs:
            self._put(job)
        for job in jobs:
            job.done.wait()
        for job in jobs:
            if job.error is not None:
                raise job.error
        return [job.results[0] for job in jobs]

    def close(self) -> None:
        """Finish what waits, then end the worker. Further calls raise RuntimeError. Closing twice is fine."""
        with self._lock:
            already, self._closed = self._closed, True
            worker = self._worker
        if worker is not None:
            if not already:
                self._queue.put(None)
            worker.join()

    def _put(self, job: _Job[In, Out]) -> None:
        while True:
            # Under the lock, so that no job is queued behind the mark that ends the worker.
            with self._lock:
                if self._closed:
                    raise RuntimeError(f"{self.name}: closed")
                if self._worker is None:
                    self._worker = threading.Thread(target=self._work, name=f"batch-{self.name}", daemon=True)
                    self._worker.start()
                try:
                    self._queue.put_nowait(job)
                    return
                except queue.Full:
                    pass
            # Full: wait outside the lock for the worker to take something.
            time.sleep(self.window_s or 0.001)

    def _work(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            jobs, ended = self._gather(first)
            groups: dict[Hashable, list[_Job[In, Out]]] = {}
            for job in jobs:
                groups.setdefault(self._key(job.item), []).append(job)
            for group in groups.values():
                self._answer(group)
            if ended:
                return

    def _gather(self, first: _Job[In, Out]) -> tuple[list[_Job[In, Out]], bool]:
        """Return what comes within the window, at most a batch, and True if the end came with it."""
        jobs, until = [first], time.monotonic() + self.window_s
        while len(jobs) < self.max_batch:
            try:
                job = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if job is None:
                return jobs, True
            jobs.append(job)
        return jobs, False

    def _answer(self, jobs: list[_Job[In, Out]]) -> None:
        """Run one batch, in parts where it must be; every job is done afterwards."""
        failed: Exception
        try:
            results = self._run([job.item for job in jobs])
            if len(results) != len(jobs):
                raise RuntimeError(f"{self.name}: {len(jobs)} items gave {len(results)} results")
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to a caller, who raises it; the worker lives on
            failed = error
        else:
            for job, result in zip(jobs, results, strict=True):
                job.results.append(result)
                job.done.set()
            return
        # Outside the handler: what the failed batch held is free before its parts are tried.
        if len(jobs) == 1:
            jobs[0].error = _too_large(self.name, failed) if isinstance(failed, MemoryError) else failed
            jobs[0].done.set()
            return
        step = (len(jobs) + 1) // 2 if isinstance(failed, MemoryError) else 1
        del failed
        for start in range(0, len(jobs), step):
            self._answer(jobs[start : start + step])


def _too_large(name: str, error: MemoryError) -> ToolError:
    failed = ToolError(f"{name} ran out of memory on this picture alone ({error}); ask for a smaller part of the image")
    failed.__cause__ = error
    return failed
