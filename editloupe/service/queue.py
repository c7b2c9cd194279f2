"""A bounded queue before the driver, for requests that have a time and no more than so many places.

Everything but `_work` runs in the event loop's thread, so that slots and questions in flight need no lock.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import Interrupted
from editloupe.findings import Finding
from editloupe.protocols.repeats import Repeats
from editloupe.runs.run import Driver
from editloupe.runs.schedule import Schedule, ScheduledTask, repeatable
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.runs.worker import Worker
from editloupe.tasks import Task
from editloupe.values import Sample

RECENT_S: Final = 60.0
"""A trace that ended this long before the last line of findings.jsonl, or later, may have no line there."""

LISTED: Final = 4096
"""How many samples are remembered as listed in the run."""

UNFINISHED: Final = "the service shut down before the verdict was there; what is recorded is kept"


class QueueFull(Exception):
    """Every place is taken."""

    def __init__(self, capacity: int, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        """Whole seconds after which a place may be free."""

        super().__init__(f"all {capacity} places are taken; ask again in {retry_after_s} s")


class ShuttingDown(Exception):
    """The service takes nothing new, or could not finish in time what it had."""

    retry_after_s = 5
    """Whole seconds after which another one may be there."""

    def __init__(self, message: str = "the service is shutting down; ask again later") -> None:
        super().__init__(message)


class Timeout(Exception):
    """A request's time is up."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finding for one request."""

    finding: Finding
    reused: bool
    """Whether it stood before this request asked."""


@dataclass
class Slot:
    """Places for one request, from its first byte to its answer."""

    size: int
    """How many edits it has room for."""
    until: float
    """The event loop's time at which the request's time is up."""


class JudgeQueue:
    """Judges samples within bounds, and writes each finding into the run."""

    def __init__(self, setup: Setup, out: Path, *, concurrency: int, max_queue: int, timeout_s: float) -> None:
        """Open the run folder `out`.

        concurrency: tasks at once.   max_queue: edits that may wait beside them.   timeout_s: of a request, with its wait.
        Raises ConfigError, RunMismatch and StorageError as `RunStore.begin` does.
        """
        self.setup, self.concurrency, self.timeout_s = setup, concurrency, timeout_s
        self.store = _open_store(setup, out)
        self._driver = Driver(setup, self.store, forgets=True)
        self.capacity = concurrency + max_queue
        """Edits that may be judged or wait at once."""

        self.taken = 0
        """Edits that are judged or wait."""

        self.closing = False
        """Once set, nothing new is taken; what has a place is finished."""

        self.in_flight: dict[Future[tuple[Finding, bool]], threading.Event] = {}
        """Questions that a thread answers or will answer, each with what ends it."""

        self.on_finding: Callable[[Finding], None] = lambda _: None
        """Called with each new finding."""

        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="judge")
        self._mean_seconds = 1.0
        self._over = False
        self._deadlines: set[asyncio.Timeout] = set()
        self._listed: set[str] = set()

    @property
    def running(self) -> int:
        """Questions that a thread works on."""
        return sum(job.running() for job in self.in_flight)

    def acquire(self) -> Slot:
        """Return a slot for one edit. Raises QueueFull, ShuttingDown."""
        slot = Slot(size=0, until=asyncio.get_running_loop().time() + self.timeout_s)
        self.resize(slot, 1)
        return slot

    def resize(self, slot: Slot, size: int) -> None:
        """Give a slot room for `size` edits, or leave it as it was. Raises QueueFull, ShuttingDown."""
        if self.closing:
            raise ShuttingDown
        if self.taken + size - slot.size > self.capacity:
            wait = math.ceil(self._mean_seconds * self.taken / self.concurrency)
            raise QueueFull(self.capacity, min(60, max(1, wait)))
        self.taken += size - slot.size
        slot.size = size

    def release(self, slot: Slot) -> None:
        """Free a slot's places."""
        self.taken -= slot.size
        slot.size = 0

    async def judge(
        self, sample: Sample, images: ImageStore, *, metrics: Collection[str], repeat: int, until: float
    ) -> list[Result]:
        """Return a result for each question about a sample, in the protocol's order.

        metrics: ids; questions on the protocol's other metrics are left out, those on no metric are always asked.
        A protocol that cannot plan gives a finding with a status for each metric.
        Raises Timeout, ShuttingDown and StorageError.
        """
        if self._over:
            raise ShuttingDown
        left_out = set(self.setup.metrics).difference(metrics)
        schedule = Schedule(self.setup.protocol, [sample], Repeats(), lambda task, repeat: None)
        stop, results = threading.Event(), dict[str, Result]()
        worker = self._driver.worker([sample], images, stop)

        async def answer(task: Task) -> None:
            place = ScheduledTask(task=task, repeat=repeat if repeatable(task) else 0)
            finding, reused = await self._begun(place, worker, sample, stop)
            results[task.id] = Result(finding=finding, reused=reused)
            # The schedule knows one repeat; which one it is, only the request knows.
            schedule.arrived(replace(finding, repeat=0))
            begin()

        def begin() -> None:
            for place in iter(schedule.next, None):
                if place.task.metric not in left_out:
                    group.create_task(answer(place.task))

        deadline = asyncio.timeout_at(until)
        self._deadlines.add(deadline)
        try:
            async with deadline, asyncio.TaskGroup() as group:
                begin()
        except TimeoutError:
            if self._over:
                raise ShuttingDown(UNFINISHED) from None
            message = f"no verdict within {self.timeout_s:g} s; the same request goes on from what is recorded"
            raise Timeout(message) from None
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            raise (ShuttingDown(UNFINISHED) if isinstance(first, Interrupted) else first) from None
        finally:
            # What nobody waits for any more ends with its next step. The same question goes on from there.
            stop.set()
            self._deadlines.discard(deadline)
        problems = [Result(finding=f, reused=False) for f in schedule.problems() if f.metric not in left_out]
        return problems + [results[finding.task_id] for finding in schedule.findings]

    def _begun(
        self, place: ScheduledTask, worker: Worker, sample: Sample, stop: threading.Event
    ) -> asyncio.Future[tuple[Finding, bool]]:
        """Let a thread answer one question. What it returns goes to the counters, whoever still waits for it."""
        loop = asyncio.get_running_loop()
        job = self._pool.submit(self._work, place, worker, sample)
        self.in_flight[job] = stop

        def ended() -> None:
            del self.in_flight[job]
            if job.cancelled() or job.exception() is not None or job.result()[1]:
                return
            finding = job.result()[0]
            self._mean_seconds += 0.1 * (finding.seconds - self._mean_seconds)
            self.on_finding(finding)

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # a thread that hung until the loop was closed
                loop.call_soon_threadsafe(ended)

        job.add_done_callback(tell)
        return asyncio.wrap_future(job)

    def _work(self, place: ScheduledTask, worker: Worker, sample: Sample) -> tuple[Finding, bool]:
        """Return what the driver does. Runs in a thread of the pool."""
        if worker.stop.is_set():
            raise Interrupted(UNFINISHED)
        if sample.id not in self._listed:
            self._driver.add(Loaded(format="http", samples=(sample,), rejected=()))
            if len(self._listed) == LISTED:
                self._listed.clear()
            self._listed.add(sample.id)
        return self._driver.found(place, worker)

    def give_up(self) -> None:
        """Stop what is in flight with its next step, and answer now those who wait for it."""
        self._over = True
        for stop in self.in_flight.values():
            stop.set()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(0)

    async def close(self, *, wait_s: float) -> int:
        """Close the run folder, at the latest after `wait_s`. Return how many threads still hang in a call."""
        self.closing = True
        self.give_up()
        self._pool.shutdown(wait=False, cancel_futures=True)
        in_flight = {asyncio.wrap_future(job) for job in self.in_flight}
        hanging = (await asyncio.wait(in_flight, timeout=wait_s))[1] if in_flight else set()
        self._driver.close()
        return len(hanging)


def _open_store(setup: Setup, out: Path) -> RunStore:
    written = out / "findings.jsonl"
    since = written.stat().st_mtime - RECENT_S if written.exists() else 0.0
    store = RunStore.begin(out, setup.spec, setup.entries(), Loaded(format="http", samples=(), rejected=()))
    # A service that was killed has traces that ended, and no line yet for their findings.
    for finding in store.findings_from_traces(since=since):
        if finding.key not in store.findings:
            store.add_finding(finding)
    # A finding is looked up by its trace: a service that runs for weeks must not keep all of them in memory.
    store.forget()
    return store
