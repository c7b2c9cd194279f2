"""The driver: from samples to findings, for the command line, Python, HTTP and Studio alike.

`Driver` asks the questions of one setup about samples, in whatever thread calls it. `drive` is one invocation on a run
folder: load, plan, answer, record, score. One bad sample never stops the others, and nothing done is lost.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

import cv2

from editloupe.backends.base import LMM, reach
from editloupe.backends.limits import MOST, limit_of
from editloupe.backends.prices import Prices, read_prices
from editloupe.cores import usable_cores
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, RejectedRow
from editloupe.errors import BackendError, ImageError, Interrupted, Parked, TraceError, Unavailable
from editloupe.findings import PENDING, Finding
from editloupe.protocols.base import looks_at_outputs, rejected_scores, scored
from editloupe.runs.batches import REASON, RunBatches, told_open
from editloupe.runs.budget import Ledger, Metered, RunBudget
from editloupe.runs.executors import together
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.lineage import set_aside
from editloupe.runs.outcome import Listener, Outcome, Progress, Spent, added, notes_of, reach_new
from editloupe.runs.pool import Pool, pool_of
from editloupe.runs.schedule import Schedule, ScheduledTask
from editloupe.runs.selection import rejected_findings, selected
from editloupe.runs.setup import Setup, settled_tools
from editloupe.runs.store import RunStore
from editloupe.runs.worker import Worker, ends_the_same, tool_cache, trace_path
from editloupe.tasks import Task
from editloupe.traces.read import last_finding, read_trace
from editloupe.values import Json, Sample

if TYPE_CHECKING:
    from editloupe.agent.graph import Loop
    from editloupe.runs.ray import Cluster

RunTask: TypeAlias = Callable[..., Finding]
"""Who answers one question: `Worker.run_task`, or one like it in another process."""


def drive(
    setup: Setup,
    out: Path,
    *,
    loaded: Loaded | None = None,
    config: Mapping[str, Json] | None = None,
    redo: frozenset[str] = PENDING,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
    budget: RunBudget | None = None,
    prices: Prices | None = None,
    entries: Sequence[JudgeEntry] = (),
    spreads: bool = False,
) -> Outcome:
    """Judge the data of `setup.config` into the run folder `out`. The same call again goes on where it stopped.

    loaded: samples at hand; None loads those that the config names.   config: options for config.yaml; none is written
    without any.   redo: statuses of earlier findings that are judged again.   stop: set it to stop; what is done is kept.
    budget, prices: of this invocation; None takes the config's. A budget ends an invocation like a stop, and the same call
    goes on.   entries: judges that are to come, which are listed before anything is asked.
    spreads: let tools and measures compute in processes unasked (`runs.pool`), as the command line does.

    A backend that refuses the key, the account or the model's name is asked no more (`Ledger.refused`). Nor is one whose
    address takes no connection: one is tried before the first question, unless other machines ask.
    Raises ConfigError, RunMismatch and DataError before anything is spent, and Unavailable for an address that takes no
    connection, where the run does not list its judge yet: it is then left as it was.
    """
    stop = stop or threading.Event()
    budget, prices = budget or RunBudget.of(setup.config), prices or read_prices(setup.config.prices)
    budget.check(setup.backend, prices)
    ledger = Ledger(budget=budget, prices=prices, stop=stop)
    invocation = _Invocation(setup, out, ledger=ledger, redo=redo, stop=stop, listener=listener or (lambda progress: None))
    with closing(invocation):
        invocation.begin(loaded, entries, config, spreads=spreads)
        invocation.answer()
        return invocation.outcome()


class Driver:
    """Asks the questions of one setup about samples. Thread-safe: in a run, equal questions asked at once share an answer.

    store: the run that findings go to; None keeps nothing.   ledger: grants and counts calls; None counts none.
    redo: statuses of earlier findings that are asked again.   stop: set it to stop; what is under way ends.
    graph: that of LangGraph's server; None for ours.   pool: where tools and measures compute; None for threads.
    forgets: look up in its trace what stands, so that a service that runs for weeks keeps no finding in memory.
    """

    def __init__(
        self,
        setup: Setup,
        store: RunStore | None = None,
        *,
        ledger: Ledger | None = None,
        redo: frozenset[str] = PENDING,
        stop: threading.Event | None = None,
        graph: Loop | None = None,
        pool: Pool | None = None,
        forgets: bool = False,
    ) -> None:
        self.setup = setup if ledger is None else setup.with_backends(lambda backend: Metered(backend, ledger))
        if pool is not None:
            self.setup = replace(self.setup, toolbox=pool.tools(setup.toolbox))
        self.store, self.redo, self.stop = store, redo, stop or threading.Event()
        folder = None if store is None else store.folder
        self.cache = None if folder is None else tool_cache(setup, folder)
        self._made = partial(Worker, setup=self.setup, run=folder, cache=self.cache, graph=graph, pool=pool)
        self._ledger, self._forgets = ledger, forgets
        self._blobs = store.blobs if store is not None else pool.folder if pool is not None else None
        self._lock, self._closed = threading.Lock(), False
        self._busy: WeakValueDictionary[tuple[str, int], threading.Lock] = WeakValueDictionary()

    def planned(self, samples: Sequence[Sample]) -> Schedule:
        """Return what is to be asked about samples; what stands from before has arrived."""
        return Schedule(self.setup.protocol, samples, self.setup.repeats, self._standing)

    def worker(self, samples: Iterable[Sample], images: ImageStore, stop: threading.Event | None = None) -> Worker:
        """Return who answers single questions about these samples."""
        return self._made(images=images, stop=stop or self.stop, samples={sample.key: sample for sample in samples})

    def answer(self, place: ScheduledTask, run_task: RunTask) -> Finding:
        """Answer one question, whose earlier trace is set aside if it could only end as before. Raises Interrupted."""
        if self.store is not None and not self.goes_on(place):
            set_aside(self._trace(place.task, place.repeat), below=self.store.folder)
        return run_task(place.task, repeat=place.repeat)

    def goes_on(self, place: ScheduledTask) -> bool:
        """Return whether a question goes on from its earlier trace: there is one, and it could end in another way."""
        if self.store is None or not self._trace(place.task, place.repeat).exists():
            return False
        before = self._known(place.task, place.repeat)
        return before is None or not ends_the_same(before)

    def add(self, loaded: Loaded) -> None:
        """List samples, and rows that cannot be judged, in the run. Raises RunMismatch for a sample that has changed."""
        with self._writing() as store:
            if store is not None:
                store.add_samples(loaded)
        self.refuse(loaded.rejected)

    def refuse(self, rows: Sequence[RejectedRow]) -> list[Finding]:
        """Return a finding a metric for each row that cannot be judged, and write those that the run lacks."""
        found = rejected_findings(self.setup, rows)
        with self._writing() as store:
            if store is not None and found:
                store.add_findings([finding for finding in found if store.latest(finding) != finding])
        return found

    def keep(self, findings: Sequence[tuple[Task, Finding]]) -> None:
        """Write findings into the run, and list who answered."""
        with self._writing() as store:
            if store is not None:
                for task, _ in findings:
                    store.add_judge(JudgeEntry(judge=self.setup.judge_of(task), role=task.role))
                # A disk takes as long for one as for all that have come meanwhile.
                store.add_findings([finding for _, finding in findings])

    def judge(self, sample: Sample) -> list[Finding]:
        """Return the findings of one sample, asked one question after another in this thread.

        Raises Interrupted once the driver is to stop, or its budget is used up.
        """
        # Of its own for each sample, so that a driver that lives long does not keep every crop.
        worker = self.worker([sample], ImageStore(self._blobs))
        schedule = self.planned([sample])
        while (place := schedule.next()) is not None:
            schedule.arrived(self.found(place, worker)[0])
        return [*schedule.findings, *schedule.problems()]

    def found(self, place: ScheduledTask, worker: Worker) -> tuple[Finding, bool]:
        """Return the finding of one question, and whether it stood before. Equal questions at once are asked once.

        Raises Interrupted once the worker is to stop, or the budget is used up.
        """
        with self._turn(place):
            if (standing := self._standing(place.task, place.repeat)) is not None:
                return standing, True
            try:
                finding = self.answer(place, worker.run_task)
            except Interrupted:
                if self._ledger is None or not self._ledger.reason:
                    raise
                raise Interrupted(f"the budget is used up ({self._ledger.reason})") from None
            self.keep([(place.task, finding)])
            return finding, False

    def close(self) -> None:
        """Give the run folder back. Who answers still keeps its trace, and writes nothing more into the run."""
        with self._lock:
            self._closed = True
            if self.store is not None:
                self.store.close()

    def in_other_words(self, schedule: Schedule) -> str:
        """Return how many questions that have an answer are asked again, since their prompt or pictures changed; or ""."""
        if self.store is None or not schedule.ready:
            return ""
        due = {(self.setup.judge_of(place.task).id, place.repeat, place.task.question) for place in schedule.ready}
        answered = {(f.judge_id, f.repeat, f.question) for f in self.store.findings.values() if f.status not in self.redo}
        if not (again := len(due & answered)):
            return ""
        return (
            f"Asked again: {again:,} of the questions that {self.store.folder} holds answers to, since the prompt, or what "
            "is shown with it, has changed. The answers of before stay in findings.jsonl and count no more."
        )

    def _trace(self, task: Task, repeat: int) -> Path:
        assert self.store is not None
        return trace_path(self.store.folder, self.setup.judge_of(task).id, task.id, repeat)

    def _standing(self, task: Task, repeat: int) -> Finding | None:
        """Return the finding of a question that the run holds and that is not to be asked again."""
        found = self._known(task, repeat)
        return None if found is None or found.status in self.redo else found

    def _known(self, task: Task, repeat: int) -> Finding | None:
        if self.store is None:
            return None
        if not self._forgets:
            return self.store.findings.get((task.id, self.setup.judge_of(task).id, repeat))
        try:
            recorded = read_trace(self._trace(task, repeat))
        except TraceError:
            return None  # no file, or the worker says what is wrong with it and begins anew
        return None if recorded.tampering else last_finding(recorded.events)

    @contextmanager
    def _writing(self) -> Iterator[RunStore | None]:
        """The store, for one thread at a time. Raises Interrupted once it is closed."""
        with self._lock:
            if self._closed:
                raise Interrupted("the run folder is closed; the trace holds what was done")
            yield self.store
            if self._forgets and self.store is not None:
                self.store.forget()

    def _turn(self, place: ScheduledTask) -> AbstractContextManager[object]:
        """Return what holds off others that ask the same: they take the answer from the run."""
        if self.store is None:
            return nullcontext()
        with self._lock:
            return self._busy.setdefault((place.task.id, place.repeat), threading.Lock())


class _Invocation:
    """One invocation on a run folder, in three steps: `begin`, `answer`, `outcome`."""

    def __init__(
        self, setup: Setup, out: Path, *, ledger: Ledger, redo: frozenset[str], stop: threading.Event, listener: Listener
    ) -> None:
        self._began = time.monotonic()
        self._setup, self._out, self._ledger, self._redo, self._stop = setup, out, ledger, redo, stop
        self._tell = listener
        self._limit = limit_of(setup.backend.endpoint)
        self._seen = self._limit.seen
        self._before = self._seen()
        self._left = ExitStack()
        self._failures: Counter[str] = Counter()
        self._batches: RunBatches | None = None
        self._waiting = 0
        self._notes: list[str] = []

    def close(self) -> None:
        """Give the run folder back, and end processes."""
        self._left.close()

    def begin(
        self, loaded: Loaded | None, entries: Sequence[JudgeEntry], config: Mapping[str, Json] | None, *, spreads: bool
    ) -> None:
        """Load the samples, open the run folder, plan, and open the tools that will be called."""
        # What a loader draws, such as masks, is written when the folder is known to be a run.
        self._images = ImageStore(self._out / "blobs", writes=False)
        self._tell(Progress(phase="reading the data"))
        outputs = looks_at_outputs(self._setup.protocol)
        # Samples at hand may be none.
        self._loaded = selected(self._setup.config, self._images, outputs=outputs) if loaded is None else loaded
        self._setup.protocol.check(self._loaded.samples)
        self._cluster: Cluster | None = None
        if self._setup.config.executor == "ray":
            from editloupe.runs.ray import Cluster

            self._cluster = self._left.enter_context(closing(Cluster(self._setup)))
        self._setup = settled_tools(self._setup)
        if self._setup.config.batch:
            self._batches = RunBatches(self._setup, self._out)
            self._left.enter_context(closing(self._batches))
            self._setup = self._batches.setup
        listed = [*self._setup.entries(options=config is not None), *entries]

        def first(store: RunStore) -> None:
            if remark := added(self._setup, store, {entry.judge.id for entry in entries}):
                self._tell(Progress(remark=remark))
            if self._cluster is None:
                reach_new(self._setup, store, self._reaching)

        self._store = RunStore.begin(self._out, self._setup.spec, listed, self._loaded, config=config, first=first)
        self._left.enter_context(closing(self._store))
        if self._batches is not None:
            self._tell(Progress(phase="looking at batches"))
            self._batches.fetch()
        elif told := told_open(self._out):
            self._tell(Progress(remark=told))
        self._images.write()
        for mask in (mask for sample in self._loaded.samples for mask in sample.masks.values()):
            # So that a run can be measured and shown without the data that it was made from.
            with suppress(ImageError):
                self._images.keep(mask)
        self._notes += [f"{text}, and judged again where this command asks for it" for text in self._store.invalid]
        pool = pool_of(self._setup.config, unasked=spreads)
        self._left.enter_context(pool or nullcontext())
        self._driver = Driver(self._setup, self._store, ledger=self._ledger, redo=self._redo, stop=self._stop, pool=pool)
        self._plan()

    def _reaching(self, backend: LMM) -> None:
        """Try the address of one who is asked. Raises Unavailable."""
        if backend.endpoint != "in process":
            self._tell(Progress(phase=f"connecting to {backend.endpoint}"))
        reach(backend)

    def _plan(self) -> None:
        """Find what is to be asked, and whether it can be: who asks, and with which tools."""
        self._refused = self._driver.refuse(self._loaded.rejected)
        self._schedule = self._driver.planned(self._loaded.samples)
        self._done = self._schedule.reused + len(self._refused)
        self._failures.update(f.status for f in self._schedule.findings if f.status != "ok")
        if again := self._driver.in_other_words(self._schedule):
            self._tell(Progress(remark=again))
        asked = [place.task for place in self._schedule.ready if place.task.kind == "ask" and not place.task.blocked]
        self._calls_tools = any(task.tools for task in asked)
        if self._cluster is not None:
            return
        try:
            for role in sorted({task.role for task in asked}):
                self._reaching(self._setup.respondents[role].backend)
        except Unavailable as error:
            self._ledger.refused = str(error)
        if self._calls_tools and not self._ledger.refused:
            # Weights that cannot be loaded are found before anything is spent.
            self._tell(Progress(phase="opening tools"))
            self._setup.toolbox.prepare()

    def answer(self) -> None:
        """Answer all that is planned, and what follows from the answers."""
        cluster = self._cluster if self._schedule.ready else None
        width = default_concurrency(self._setup, cores=self._cluster.places if self._cluster else None)
        samples = {sample.key: sample for sample in self._loaded.samples}
        run_task: RunTask = self._driver.worker(samples.values(), self._images).run_task
        with ExitStack() as left:
            if cluster is not None:
                run_task = cluster.run_task
                self._report(phase="starting on the cluster")
                cluster.open(self._setup, self._out, self._ledger, samples, width=width, tools=self._calls_tools)
                self._seen, self._before = cluster.seen, cluster.seen()
            self._report()
            left.enter_context(self._limit.fixed(self._setup.config.max_connections))
            left.enter_context(_one_opencv_thread(width))

            def ask(place: ScheduledTask) -> tuple[Task, Finding] | None:
                if self._stop.is_set() or self._ledger.refused:
                    return None
                try:
                    return place.task, self._driver.answer(place, run_task)
                except Parked:
                    waits = partial(Finding.of, place.task, judge_id=self._setup.judge_of(place.task).id)
                    return place.task, waits(repeat=place.repeat, status="waiting", ending="batch", reason=REASON)
                except Interrupted:
                    return None

            for ended in together(ask, self._schedule.next, width=width, stop=self._stop):
                self._arrived([found for found in ended if found is not None])
                self._ledger.check_time()
            if cluster is not None:
                cluster.look()
                self._tools = cluster.tool_calls
            elif self._driver.cache is not None:
                self._tools = self._driver.cache.ran, self._driver.cache.hits

        self._send()

    def _send(self) -> None:
        """Send the questions that wait, unless the invocation was ended."""
        if self._batches is None:
            return
        if self._waiting and not self._stop.is_set() and not self._ledger.refused:
            self._tell(Progress(phase="sending batches"))
            try:
                self._batches.send()
            except BackendError as error:
                self._ledger.refused = str(error)
        self._notes += self._batches.remarks

    def _arrived(self, found: Sequence[tuple[Task, Finding]]) -> None:
        """Write findings, and tell the schedule of all but those that wait: nothing follows from these."""
        waiting = [finding for _, finding in found if finding.status == "waiting"]
        self._waiting += len(waiting)
        told = {f.key for f in waiting if self._store.findings.get(f.key) == f}
        if new := [(task, finding) for task, finding in found if finding.key not in told]:
            self._driver.keep(new)
        for finding in (finding for _, finding in found if finding.status != "waiting"):
            self._schedule.arrived(finding)
            self._done += 1
            self._failures.update([finding.status] if finding.status != "ok" else [])
            self._report(finding)

    def _report(self, finding: Finding | None = None, *, phase: str = "") -> None:
        measures = self._setup.judge.kind == "measure"
        self._tell(
            Progress(
                phase=phase or ("measuring" if measures else "judging"),
                done=self._done,
                total=self._schedule.total + len(self._refused),
                failures=dict(self._failures),
                rejected=len(self._loaded.rejected),
                reused=self._schedule.reused,
                grows=self._schedule.grows,
                finding=finding,
                spent=self._spent,
            )
        )

    def _spent(self) -> Spent:
        seen = self._seen()
        return Spent(
            calls=self._ledger.calls,
            in_flight=seen.under_way,
            retries=seen.retried - self._before.retried,
            tokens=self._ledger.tokens,
            cost_usd=self._ledger.cost if self._setup.backend.traits.is_lmm else None,
            waits_s=seen.opens_in_s,
        )

    def outcome(self) -> Outcome:
        """Score, and return how the invocation ended."""
        judged, places, seen = self._schedule.findings, self._schedule.places, self._seen()
        if self._stop.is_set() and (left := seen.under_way):
            calls = "1 call was" if left == 1 else f"{left} calls were"
            self._notes.append(f"{calls} still under way and not waited for: asked again next time, perhaps paid twice.")
        throttled = seen.throttled - self._before.throttled
        self._notes += notes_of(self._setup, self._loaded, self._schedule, throttled=throttled)
        keys = {place.task.id for place in places.values() if self._setup.judge_of(place.task).kind == "key"}
        findings = [f for f in (*judged, *self._schedule.problems(), *self._refused) if f.task_id not in keys]
        asked = self._schedule.total + len(self._refused) - sum(id_ in keys for id_, _ in places)
        protocol, unread = self._setup.protocol, [(row.editor, row.id, row.edit_type) for row in self._loaded.rejected]
        scores = scored(protocol, self._loaded.samples, judged, self._setup.repeats)
        return Outcome(
            store=self._store,
            setup=self._setup,
            loaded=self._loaded,
            findings=tuple(findings),
            judged=tuple(judged),
            scores=(*scores, *rejected_scores(protocol, unread, self._setup.metrics)),
            asked=asked,
            reused=self._schedule.reused,
            interrupted=self._stop.is_set() and len(findings) < asked,
            seconds=time.monotonic() - self._began,
            ledger=self._ledger,
            tool_calls=self._tools[0],
            cached=self._tools[1],
            waiting=self._waiting,
            notes=tuple(self._notes),
        )


@contextmanager
def _one_opencv_thread(width: int) -> Iterator[None]:
    """Let OpenCV use one thread a task while several tasks run at once: its own threads would fight for the cores."""
    before = cv2.getNumThreads()
    if width > 1:
        cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)


def default_concurrency(setup: Setup, *, cores: int | None = None) -> int:
    """Return how many tasks run at once: as many as the config says, if it does.

    In-process judges are bound by cores, remote ones by the endpoint, whose ConnectionLimit holds back the rest. There are
    half as many tasks more than connections: those that run a tool, or wait between two attempts, leave theirs to others.
    cores: None for those of this machine.
    """
    if setup.config.concurrency is not None:
        return setup.config.concurrency
    if setup.backend.endpoint == "in process":
        return cores or usable_cores()
    return math.ceil(1.5 * (setup.config.max_connections or MOST))
