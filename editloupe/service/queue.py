"""A bounded queue before the judge: equal tasks that are asked at once share an answer, and each answer joins the run.

Everything but `_work` runs in the event loop's thread, so that slots and tasks in flight need no lock.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import Interrupted, TraceError
from editloupe.findings import PENDING, Finding
from editloupe.protocols.repeats import Repeats
from editloupe.runs.judges import Entry
from editloupe.runs.lineage import set_aside
from editloupe.runs.run import Driver
from editloupe.runs.schedule import Schedule, ScheduledTask, repeatable
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.runs.worker import ends_the_same, trace_path
from editloupe.tasks import Task
from editloupe.traces.read import last_finding, read_trace
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
    """Whether the run held it before the request."""


@dataclass
class Slot:
    """Places for one request, from its first byte to its answer."""

    size: int
    """How many edits it has room for."""
    until: float
    """The event loop's time at which the request's time is up."""


@dataclass
class InFlight:
    """One task that runs or waits for a thread."""

    job: Future[Result]
    future: asyncio.Future[Result]
    """The job, for the event loop."""
    stop: threading.Event
    """Ends the job with its next step."""
    waiting: int = 0
    """Requests that wait for it."""


class JudgeQueue:
    """Judges samples within bounds, and writes each finding into the run."""

    def __init__(self, setup: Setup, out: Path, *, concurrency: int, max_queue: int, timeout_s: float) -> None:
        """Open the run folder `out`.

        concurrency: tasks at once.   max_queue: edits that may wait beside them.   timeout_s: of a request, with its wait.
        Raises ConfigError, RunMismatch and StorageError as `RunStore.begin` does.
        """
        self.setup, self.concurrency, self.timeout_s = setup, concurrency, timeout_s
        self.store = _open_store(setup, out)
        self._driver = Driver(setup, self.store)
        self.capacity = concurrency + max_queue
        """Edits that may be judged or wait at once."""

        self.taken = 0
        """Edits that are judged or wait."""

        self.closing = False
        """Once set, nothing new is taken; what has a place is finished."""

        self.in_flight: dict[tuple[str, int], InFlight] = {}
        """By task id and repeat."""

        self.on_finding: Callable[[Finding], None] = lambda _: None
        """Called with each new finding."""

        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="judge")
        self._mean_seconds = 1.0
        self._over = False
        self._deadlines: set[asyncio.Timeout] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listed: set[str] = set()

    @property
    def running(self) -> int:
        """Tasks that a thread works on."""
        return sum(one.job.running() for one in self.in_flight.values())

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
        results: dict[str, Result] = {}

        async def answer(task: Task) -> None:
            number = repeat if repeatable(task) else 0
            results[task.id] = await self._result(task, sample, images, number)
            # The schedule knows one repeat; which one it is, only the request knows.
            schedule.arrived(replace(results[task.id].finding, repeat=0))
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
            raise errors.exceptions[0] from None
        finally:
            self._deadlines.discard(deadline)
        problems = [Result(finding=f, reused=False) for f in schedule.problems() if f.metric not in left_out]
        return problems + [results[finding.task_id] for finding in schedule.findings]

    async def _result(self, task: Task, sample: Sample, images: ImageStore, repeat: int) -> Result:
        key = task.id, repeat
        while (shared := self.in_flight.get(key)) is not None and shared.stop.is_set():
            # Nobody waits for it any more. It ends with its next step, and a new one goes on from there.
            await asyncio.wait([shared.future])
        shared = shared or self._begin(task, sample, images, repeat)
        shared.waiting += 1
        try:
            await asyncio.wait([shared.future])
            return shared.future.result()
        except Interrupted:
            raise ShuttingDown(UNFINISHED) from None
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.future.done():
                shared.stop.set()
                shared.job.cancel()

    def _begin(self, task: Task, sample: Sample, images: ImageStore, repeat: int) -> InFlight:
        key, stop = (task.id, repeat), threading.Event()
        job = self._pool.submit(self._work, task, sample, images, repeat, stop)
        self.in_flight[key] = begun = InFlight(job=job, future=asyncio.wrap_future(job), stop=stop)

        def ended(future: asyncio.Future[Result]) -> None:
            del self.in_flight[key]
            if not future.cancelled() and future.exception() is None and not future.result().reused:
                finding = future.result().finding
                self._mean_seconds += 0.1 * (finding.seconds - self._mean_seconds)
                self.on_finding(finding)

        begun.future.add_done_callback(ended)
        return begun

    def _work(self, task: Task, sample: Sample, images: ImageStore, repeat: int, stop: threading.Event) -> Result:
        """Return the recorded finding of a task, or a new one. Runs in a thread of the pool."""
        if stop.is_set():
            raise Interrupted
        judge, folder = self.setup.judge_of(task), self.store.folder
        trace = trace_path(folder, judge.id, task.id, repeat)
        recorded = _standing(trace, folder)
        if recorded is not None:
            return Result(finding=recorded, reused=True)
        if not trace.exists():
            self._list(sample, Entry(judge=judge, role=task.role))
        worker = self._driver.worker([sample], images, stop)
        finding = self._driver.answer(ScheduledTask(task=task, repeat=repeat), worker.run_task)
        with self._writing() as store:
            store.add_finding(finding)
        return Result(finding=finding, reused=False)

    def _list(self, sample: Sample, entry: Entry) -> None:
        """Write a sample and who answers into the run, before the first trace. A second line of a sample does no harm."""
        with self._writing() as store:
            store.add_judge(entry)
            if sample.id not in self._listed:
                store.add_samples(Loaded(format="http", samples=(sample,), rejected=()))
                if len(self._listed) == LISTED:
                    self._listed.clear()
                self._listed.add(sample.id)

    @contextmanager
    def _writing(self) -> Iterator[RunStore]:
        """The store, for one thread at a time. Raises Interrupted once it is closed; the trace then holds what was done."""
        with self._lock:
            if self._closed:
                raise Interrupted
            try:
                yield self.store
            finally:
                self.store.forget()

    def give_up(self) -> None:
        """Stop what is in flight with its next step, and answer now those who wait for it."""
        self._over = True
        for one in self.in_flight.values():
            one.stop.set()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(0)

    async def close(self, *, wait_s: float) -> int:
        """Close the run folder, at the latest after `wait_s`. Return how many threads still hang in a call."""
        self.closing = True
        self.give_up()
        in_flight = {one.future for one in self.in_flight.values()}
        hanging = (await asyncio.wait(in_flight, timeout=wait_s))[1] if in_flight else set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            self.store.close()
        return len(hanging)


def _standing(trace: Path, run: Path) -> Finding | None:
    """Return the finding that stands in a trace; None if there is none. One that could only end as before is set aside."""
    try:
        recorded = read_trace(trace)
    except TraceError:
        return None  # no file, or the worker says what is wrong with it and begins anew
    finding = None if recorded.tampering else last_finding(recorded.events)
    if finding is None or finding.status not in PENDING:
        return finding
    if ends_the_same(finding):
        set_aside(trace, below=run)
    return None


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
