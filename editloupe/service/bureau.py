"""The judge behind the HTTP service: places for so many requests, a thread for each verdict, the run folder.

Everything but `_work` runs in the event loop's thread, so that places and flights need no lock.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import Interrupted
from editloupe.findings import Finding
from editloupe.runs.execute import Worker
from editloupe.runs.plan import set_stuck_aside
from editloupe.runs.sent_sizes import sent_targets
from editloupe.runs.setup import Bench
from editloupe.runs.store import RunStore
from editloupe.tasks import Task
from editloupe.values import Sample

CACHE_BYTES: Final = 64 * 2**20
"""Decoded, and again encoded, pictures of one request that are kept while it is judged."""

RECENT_S: Final = 60.0
"""How long before the last line of findings.jsonl a trace may have ended that has no line there."""

LISTED: Final = 4096
"""Samples that are known to stand in the run's list."""


class Full(Exception):
    """Every place is taken.   retry_after_s: whole seconds after which one may be free."""

    def __init__(self, places: int, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"all {places} places are taken; ask again in {retry_after_s} s")


class Closing(Exception):
    """The service shuts down and takes nothing new, or could not finish in time what it had."""


class Late(Exception):
    """A request's time is up."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A finding, and whether it was known before it was asked for."""

    finding: Finding
    reused: bool


@dataclass
class Seat:
    """Room for one request, or for the edits of a batch, from its first byte to its answer.

    until: the event loop's time at which the request's time is up.
    """

    size: int
    until: float


@dataclass
class _Flight:
    """One task under way, and how many requests wait for it."""

    job: Future[Given]
    future: asyncio.Future[Given]
    stop: threading.Event
    waiting: int = 0


@dataclass
class Bureau:
    """Answers tasks within bounds and writes each into the run.

    workers: verdicts at once.   max_queue: requests that may wait beside them.   timeout_s: of one request, waiting
    included.   seen: told of each finding that was made anew.
    """

    bench: Bench
    store: RunStore
    workers: int
    max_queue: int
    timeout_s: float
    seen: Callable[[Finding], None] = lambda _: None
    taken: int = 0
    closing: bool = False
    _flights: dict[tuple[str, int], _Flight] = field(default_factory=dict)
    _seconds: float = 1.0

    @classmethod
    def open(cls, bench: Bench, out: Path, *, workers: int, max_queue: int, timeout_s: float) -> Bureau:
        """Raises ConfigError, RunMismatch, StorageError: the run folder."""
        store = RunStore.write(out, bench.spec)
        written = out / "findings.jsonl"
        since = written.stat().st_mtime - RECENT_S if written.exists() else 0.0
        store.begin(bench.spec, bench.judge, Loaded(format="http", samples=(), rejected=()), config={}, narrowed=False)
        # A service that was killed has traces that ended, and no line yet for their findings.
        for finding in store.findings_from_traces(since=since):
            if finding.key not in store.findings:
                store.add_finding(finding)
        # What is on disk is looked up by its trace: a service that runs for weeks must not keep all of it in memory.
        store.forget()
        return cls(bench=bench, store=store, workers=workers, max_queue=max_queue, timeout_s=timeout_s)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="judge")
        self._over: asyncio.Future[None] | None = None
        self._closed = False
        self._listed: OrderedDict[str, None] = OrderedDict()

    @property
    def places(self) -> int:
        return self.workers + self.max_queue

    @property
    def running(self) -> int:
        """Tasks that a thread works on."""
        return sum(flight.job.running() for flight in self._flights.values())

    @property
    def under_way(self) -> int:
        """Tasks that run or wait for a thread."""
        return len(self._flights)

    def start(self) -> None:
        """In the event loop, before the first request."""
        self._over = asyncio.get_running_loop().create_future()

    def take(self) -> Seat:
        """A place for a request. Raises Full, Closing."""
        seat = Seat(size=0, until=asyncio.get_running_loop().time() + self.timeout_s)
        self.widen(seat, 1)
        return seat

    def widen(self, seat: Seat, size: int) -> None:
        """Make a seat one for `size` edits, or leave it as it was. Raises Full, Closing."""
        if self.closing:
            raise Closing("the service is shutting down; ask again later")
        if self.taken + size - seat.size > self.places:
            wait = math.ceil(self._seconds * self.taken / self.workers)
            raise Full(self.places, min(60, max(1, wait)))
        self.taken += size - seat.size
        seat.size = size

    def leave(self, seat: Seat) -> None:
        self.taken -= seat.size
        seat.size = 0

    async def judge(
        self, sample: Sample, images: ImageStore, *, criteria: Sequence[str], repeat: int, until: float
    ) -> list[Given]:
        """A finding a criterion, in oracle mode a target. Raises Late, Closing, StorageError."""
        tasks = [task for task in self.bench.protocol.plan([sample], {}) if task.criterion in criteria]
        waiting = [asyncio.ensure_future(self._given(task, sample, images, repeat, until)) for task in tasks]
        try:
            return list(await asyncio.gather(*waiting))
        finally:
            for one in waiting:
                one.cancel()

    async def _given(self, task: Task, sample: Sample, images: ImageStore, repeat: int, until: float) -> Given:
        key = task.id, repeat
        while True:
            flight = self._flights.get(key)
            if flight is None:
                flight = self._begin(task, sample, images, repeat)
            elif flight.stop.is_set():
                # Whoever asked for it has gone: it ends with its next step, and goes on for us from there.
                await self._until(flight.future, until)
                continue
            flight.waiting += 1
            try:
                await self._until(flight.future, until)
                return flight.future.result()
            except Interrupted:
                raise Closing("the service shut down before the verdict was there; what is recorded is kept") from None
            finally:
                flight.waiting -= 1
                if not flight.waiting and not flight.future.done():
                    flight.stop.set()
                    flight.job.cancel()

    def _begin(self, task: Task, sample: Sample, images: ImageStore, repeat: int) -> _Flight:
        if self.closing and self._over is not None and self._over.done():
            raise Closing("the service is shutting down; ask again later")
        key, stop = (task.id, repeat), threading.Event()
        job = self._pool.submit(self._work, task, sample, images, repeat, stop)
        flight = _Flight(job=job, future=asyncio.wrap_future(job), stop=stop)
        self._flights[key] = flight

        def ended(future: asyncio.Future[Given]) -> None:
            del self._flights[key]
            if not future.cancelled() and future.exception() is None and not future.result().reused:
                self._seconds += 0.1 * (future.result().finding.seconds - self._seconds)
                self.seen(future.result().finding)

        flight.future.add_done_callback(ended)
        return flight

    async def _until(self, future: asyncio.Future[Given], until: float) -> None:
        """Wait for a flight's end, however it ends. Raises Late, and Closing once the service is over."""
        assert self._over is not None, "the service has begun"
        left = until - asyncio.get_running_loop().time()
        either: set[asyncio.Future[Any]] = {future, self._over}
        await asyncio.wait(either, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return
        if self._over.done():
            raise Closing("the service shut down before the verdict was there; what is recorded is kept")
        raise Late(f"no verdict within {self.timeout_s:g} s; the same request goes on from what is recorded")

    def _work(self, task: Task, sample: Sample, images: ImageStore, repeat: int, stop: threading.Event) -> Given:
        """In a thread: the recorded finding, or a new one, written down."""
        if stop.is_set():
            raise Interrupted
        path = self.store.trace_path(self.bench.judge.id, task.id, repeat)
        if path.exists():
            set_stuck_aside(path)
        before = path.stat().st_size if path.exists() else 0
        targets = {sample.key: sent_targets(sample, self.bench.backend.traits.image_policy)}
        worker = Worker(bench=self.bench, images=images, stop=stop, targets=targets)
        if not before:
            self._write_down(sample)
        finding = worker.run_task(task, trace=path, name=str(path.relative_to(self.store.folder)), repeat=repeat)
        if before and path.stat().st_size == before:
            return Given(finding=finding, reused=True)
        with self._lock:
            if self._closed:
                # Its trace is whole, and the next visit finds the verdict there.
                raise Interrupted
            self.store.add_finding(finding)
            self.store.forget()
        return Given(finding=finding, reused=False)

    def _write_down(self, sample: Sample) -> None:
        """The sample into the run, once while it is among the last ones; a second line does no harm."""
        with self._lock:
            if self._closed:
                raise Interrupted
            if sample.id in self._listed:
                return
            self._listed[sample.id] = None
            while len(self._listed) > LISTED:
                self._listed.popitem(last=False)
            self.store.add_samples(Loaded(format="http", samples=(sample,), rejected=()))
            self.store.forget()

    def close_door(self) -> None:
        """Take nothing new; what has a place is finished."""
        self.closing = True

    def give_up(self) -> None:
        """Stop what is still under way with its next step; whoever waits is told."""
        for flight in self._flights.values():
            flight.stop.set()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def close(self, *, wait_s: float) -> int:
        """Give the run folder back, at the latest after `wait_s`; how many threads still hang in a call."""
        self.close_door()
        self.give_up()
        under_way = {flight.future for flight in self._flights.values()}
        hanging = (await asyncio.wait(under_way, timeout=wait_s))[1] if under_way else set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            self.store.close()
        return len(hanging)
