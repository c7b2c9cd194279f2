"""Carry out a run: load, plan, answer, record, score. One bad sample never stops the others, and nothing done is lost."""

from __future__ import annotations

import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import editloupe
from editloupe.agent.judge import answer
from editloupe.agent.state import Context
from editloupe.backends.base import LMM
from editloupe.backends.limits import MOST, ConnectionLimit, limit_of
from editloupe.backends.prices import Prices
from editloupe.chat import Sampling
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import EditLoupeError, ImageError, Interrupted, ReplayMiss, StorageError
from editloupe.protocols.base import Summary, rejected_scores, scored
from editloupe.records import PENDING, Finding, Status, Task
from editloupe.runs.budget import Ledger, Metered, RunBudget
from editloupe.runs.executors import Executor, ThreadExecutor
from editloupe.runs.judges import Entry
from editloupe.runs.plan import Due, criteria_of, due_tasks, places_of, rejected_findings, selected, tasks_of
from editloupe.runs.recorder import TraceRecorder
from editloupe.runs.sent_sizes import SMALLEST_TARGET_PX, SentTarget, sent_targets, small_targets_message
from editloupe.runs.spec import Bench, Source, device_of
from editloupe.runs.store import RunStore
from editloupe.runs.views import make_view
from editloupe.tools.cache import ToolCache
from editloupe.traces.events import End, FindingEvent, Header, ModelCall, Note, ToolResult
from editloupe.traces.record import TraceWriter, set_aside
from editloupe.values import Json, Score, View, digest, sample_key


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands. failed: findings that are not ok, of those `done`."""

    done: int
    total: int
    failed: int
    finding: Finding | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run as it ended. `findings` are those of this judge for the samples asked, in the order of the samples.

    ledger: what this visit spent, and which budget ended it.   tool_calls, cached: calls of tools in this visit that ran,
    and that were answered from equal ones before.   notes: what a reader should know of the data and of how it was sent.
    """

    store: RunStore
    bench: Bench
    loaded: Loaded
    findings: tuple[Finding, ...]
    scores: tuple[Score, ...]
    summaries: tuple[Summary, ...]
    asked: int
    reused: int
    interrupted: bool
    seconds: float
    ledger: Ledger
    tool_calls: int = 0
    cached: int = 0
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every sample of the run was asked for, and not a part of it."""
        keys = {s.key for s in self.loaded.samples} | {r.key for r in self.loaded.rejected}
        return keys >= set(self.store.samples) | set(self.store.rejected)

    @property
    def failed(self) -> int:
        """Of those asked, how many have no answer (those not yet judged included)."""
        return self.asked - sum(f.status == "ok" for f in self.findings)


Listener = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Answers tasks: the one thing that an executor calls, from any thread."""

    bench: Bench
    images: ImageStore
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic
    targets: Mapping[str, Sequence[SentTarget]] = field(default_factory=dict)
    """By sample key: what the trace says of the size at which the targets are sent."""
    cache: ToolCache | None = None
    """What tools have said before in this run; None runs every call."""

    def run_task(
        self, task: Task, *, trace: Path | None = None, name: str | None = None, repeat: int = 0, anew: str = ""
    ) -> Finding:
        """The finding of one task. Raises Interrupted when asked to stop; every other end is a finding.

        trace: the trace file, continued where it exists; None keeps the trace in memory.   name: its path in the run.
        anew: why the earlier trace was set aside; that is done once.
        """
        end = partial(self._ended, task, repeat)
        if task.blocked is not None:
            return end(*task.blocked, trace=None)
        try:
            try:
                views = {recipe.alias: make_view(recipe, self.images) for recipe in task.views}
            except ImageError as error:
                return end("input_error", str(error), trace=None)
            return self._answered(task, views, trace, name, repeat, anew)
        except (ReplayMiss, ImageError) as miss:
            # Another conversation, a damaged file, a picture that is gone: what is recorded cannot be gone on from.
            if trace is None or anew or not _recorded_calls(trace):
                return end("tool_failed", str(miss), trace=name)
            kept = set_aside(trace)
            why = f"begun anew, the old trace is {kept and kept.name}: {miss}"
            return self.run_task(task, trace=trace, name=name, repeat=repeat, anew=why)
        except EditLoupeError:
            raise
        except OSError as error:
            raise StorageError(f"the run cannot be written ({error}); make room, then give the same command") from error
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the other samples; it is recorded, and pending
            told = f"editloupe itself failed ({type(error).__name__}: {error}); please report it"
            return end("tool_failed", f"{told}\n{traceback.format_exc(limit=-3)}", trace=name)

    def _answered(
        self, task: Task, views: dict[str, View], trace: Path | None, name: str | None, repeat: int, anew: str
    ) -> Finding:
        with TraceWriter(trace) as writer:
            recorded = _finished(writer)
            if recorded is not None:
                return recorded
            if writer.problems or (writer.events and not isinstance(writer.events[0], Header)):
                raise ReplayMiss(f"the trace is damaged: {'; '.join(writer.problems) or 'it has no header'}")
            if not writer.events:
                writer.append(self._header(task, repeat))
                if anew:
                    writer.append(Note(text=anew))
                for alias, view in views.items():
                    for remark in self.images.notes(view.image):
                        writer.append(Note(text=f"{alias}: {remark}"))
                for remark, data in self._on_the_wire(task, views):
                    writer.append(Note(text=remark, data=data))
            context = Context(
                backend=self.bench.backend,
                toolbox=self.bench.toolbox,
                images=self.images,
                recorder=TraceRecorder.resume(writer, stop=self.stop),
                task=task,
                clock=self.clock,
                started=self.clock(),
                sampling=self._sampling(repeat, writer),
                cache=self.cache,
                constrain_labels=self.bench.settings.constrain_labels,
                tool_protocol=self.bench.tool_protocol,
            )
            finding = answer(context, views, judge_id=self.bench.judge.id, repeat=repeat, trace=name)
            writer.append(FindingEvent(finding=finding.to_json()))
            writer.append(End())
            return finding

    def _sampling(self, repeat: int, writer: TraceWriter) -> Sampling:
        sampling = self.bench.settings.sampling.of_repeat(repeat)
        if repeat and sampling.seed is not None:
            told = f"repeat {repeat + 1}: seed {sampling.seed}"
            if not any(isinstance(event, Note) and event.text == told for event in writer.events):
                writer.append(Note(text=told, data={"repeat": repeat, "seed": sampling.seed}))
        return sampling

    def _on_the_wire(self, task: Task, views: dict[str, View]) -> Iterable[tuple[str, dict[str, Json]]]:
        """What the backend gets of each image and of the sample's targets; nothing for one that sees pixels themselves."""
        if not self.bench.backend.traits.is_lmm:
            return
        policy = self.bench.backend.traits.image_policy
        for alias, view in views.items():
            made = self.images.encoded(view.image, policy)
            told = f"{alias} is sent as {made.media_type}, {made.width}×{made.height} px, {len(made.data):,} bytes"
            yield told, {"alias": alias, "px": [made.width, made.height], "bytes": len(made.data), "type": made.media_type}
        shown_whole = all(view.op == "whole" for view in views.values())
        for target in self.targets.get(sample_key(task.editor, task.sample_id), ()) if shown_whole else ():
            small = f", under {SMALLEST_TARGET_PX:.0f} px: the model may not see it" if target.small else ""
            told = (
                f"{target.name} is {target.sent_width:.0f}×{target.sent_height:.0f} px of the {target.role} image as sent"
            )
            yield told + small, {"target": target.to_json()}

    def _header(self, task: Task, repeat: int) -> Header:
        box = self.bench.toolbox
        tools = [
            {"name": s.name, "version": box.tools[s.name].version, "schema": digest(s.to_json())}
            for s in box.specs(task.tools)
        ]
        return Header(
            editloupe=editloupe.__version__,
            run=digest(dict(self.bench.spec.identity))[:16],
            task_id=task.id,
            judge_id=self.bench.judge.id,
            repeat=repeat,
            task=task.to_json(),
            judge=self.bench.judge.to_json(),
            tools=tools,
            absent=dict(box.absent),
        )

    def _ended(self, task: Task, repeat: int, status: Status, reason: str, *, trace: str | None) -> Finding:
        return Finding(
            task_id=task.id,
            judge_id=self.bench.judge.id,
            repeat=repeat,
            sample_id=task.sample_id,
            editor=task.editor,
            criterion=task.criterion,
            status=status,
            reason=reason,
            trace=trace,
            target=task.target,
        )


def execute(
    bench: Bench,
    source: Source | Loaded,
    out: Path,
    *,
    config: dict[str, Json],
    concurrency: int | None = None,
    redo: frozenset[str] = PENDING,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
    connections: int | None = None,
    budget: RunBudget | None = None,
    prices: Prices | None = None,
    executor: Executor | None = None,
    entries: Sequence[Entry] = (),
) -> Outcome:
    """Judge `source` into the run folder `out`; the same call again goes on where it stopped.

    source: where edits are, or edits at hand.
    concurrency: tasks at once.   connections: calls at once at the endpoint; None adapts to what it takes.
    redo: statuses of earlier findings that are judged again.   stop: set it to stop; what is done is kept.
    budget: of this visit to the run, counted in `prices`; it ends like a stop, and the same call goes on. So does a backend
    that refuses the key, the account, the model's name or the address: it is asked no more (`Ledger.refused`).
    entries: this judge's name and options, and judges that are to come; they are recorded before anything is asked.
    Raises ConfigError, RunMismatch and DataError before anything is spent.
    """
    began = time.monotonic()
    stop = stop or threading.Event()
    ledger = Ledger(budget=budget or RunBudget(), prices=prices or Prices(), stop=stop)
    ledger.check(bench.backend)
    limit = limit_of(bench.backend.endpoint)
    throttled = limit.throttled
    images = ImageStore(out / "blobs")
    loaded = source if isinstance(source, Loaded) else selected(source, images)
    bench.protocol.check(loaded.samples)
    store = RunStore.write(out, bench.spec)
    try:
        narrowed = isinstance(source, Loaded) or source.narrowed
        store.begin(bench.spec, bench.judge, loaded, config=config, narrowed=narrowed, entries=entries)
        policy = bench.backend.traits.image_policy
        targets = {sample.key: sent_targets(sample, policy) for sample in loaded.samples}
        metered = replace(bench, backend=Metered(bench.backend, ledger))
        cache = ToolCache(tool_cache_of(out), device=device_of(bench.settings))
        worker = Worker(bench=metered, images=images, stop=stop, targets=targets, cache=cache)
        tasks = tasks_of(bench, loaded)
        places = places_of(tasks, bench.settings.repeats.count)
        refused = rejected_findings(bench, loaded)
        asked = len(places) + len(refused)
        findings: dict[tuple[str, int], Finding] = {}
        for finding in refused:
            findings[finding.task_id, 0] = finding
            if store.latest(finding) != finding:
                store.add_finding(finding)
        due, reused = due_tasks(places, store, bench.judge.id, redo)
        if due:
            # Weights that cannot be loaded are found before anything is spent.
            bench.toolbox.prepare()
        findings |= reused
        seen = _Count(done=len(findings), failed=sum(f.status != "ok" for f in findings.values()), total=asked)
        if listener:
            listener(Progress(done=seen.done, total=asked, failed=seen.failed))
        runner = executor or ThreadExecutor(concurrency or default_concurrency(bench, connections))
        with limit.fixed(connections):
            for finding in filter(None, runner.run(partial(_work, worker, store, ledger), due, stop=stop)):
                store.add_finding(finding)
                findings[finding.task_id, finding.repeat] = finding
                ledger.look()
                seen.done += 1
                seen.failed += finding.status != "ok"
                if listener:
                    listener(Progress(done=seen.done, total=asked, failed=seen.failed, finding=finding))
            told_of_rates = _told_of_rates(limit, limit.throttled - throttled)
    finally:
        store.close()
    scores = _scores(bench, loaded, findings.values())
    # Those of one question stand together, whenever they were asked.
    rank = {task.id: number for number, task in enumerate(tasks)}
    order = sorted(((task.id, repeat) for task, repeat in places), key=lambda place: rank[place[0]])
    order += [(finding.task_id, 0) for finding in refused]
    return Outcome(
        store=store,
        bench=bench,
        loaded=loaded,
        findings=tuple(findings[place] for place in order if place in findings),
        scores=tuple(scores),
        summaries=tuple(bench.protocol.summarise(scores)),
        asked=asked,
        reused=len(reused),
        interrupted=stop.is_set() and len(findings) < asked,
        seconds=time.monotonic() - began,
        ledger=ledger,
        tool_calls=cache.ran,
        cached=cache.hits,
        notes=(
            *loaded.notes,
            *_told_of_targets(bench, loaded),
            *told_of_rates,
            *_told_of_repeats(bench),
        ),
    )


def tool_cache_of(run: Path) -> Path:
    """Where a run keeps what its tools have said; it may be deleted at any time."""
    return run / "cache" / "tools"


def _told_of_targets(bench: Bench, loaded: Loaded) -> tuple[str, ...]:
    # The oracle mode shows targets in crops that are enlarged where they are small.
    if not bench.backend.traits.is_lmm or bench.settings.mode == "oracle":
        return ()
    told = small_targets_message(loaded.samples, bench.backend.traits.image_policy)
    return () if told is None else (told,)


def _told_of_repeats(bench: Bench) -> tuple[str, ...]:
    """Where repeats cannot differ, their agreement says nothing."""
    sampling = bench.settings.sampling
    if bench.settings.repeats.count == 1:
        return ()
    if bench.backend.uri == "baseline":
        return ("The pixel baseline answers the same each time: its repeats say nothing of doubt.",)
    if sampling.temperature == 0:
        return (
            "Repeats were asked at temperature 0, where most models answer (nearly) the same each time; "
            "--temperature 1 lets them differ.",
        )
    return ()


def _told_of_rates(limit: ConnectionLimit, throttled: int) -> tuple[str, ...]:
    if not throttled:
        return ()
    times = "once" if throttled == 1 else f"{throttled} times"
    return (f"The endpoint refused calls for their rate {times}; at the end {limit.limit} at once were tried.",)


def default_concurrency(bench: Bench, connections: int | None = None) -> int:
    """Tasks at once; connections: at once at the endpoint, None for as many as it takes."""
    return concurrency_of(bench.backend, connections)


def concurrency_of(backend: LMM, connections: int | None = None) -> int:
    """In-process judges are bound by cores, remote ones by the endpoint, whose ConnectionLimit holds back the rest.

    Half as many tasks more than connections: those that run a tool, or wait between two attempts, leave theirs to others.
    """
    if backend.endpoint == "in process":
        return max(1, os.cpu_count() or 1)
    return math.ceil(1.5 * (connections or MOST))


@dataclass
class _Count:
    done: int
    failed: int
    total: int


def _work(worker: Worker, store: RunStore, ledger: Ledger, due: Due) -> Finding | None:
    task = due.task
    path = store.trace_path(worker.bench.judge.id, task.id, due.repeat)
    if worker.stop.is_set() or ledger.refused:
        return None
    if due.anew:
        set_aside(path)
    try:
        return worker.run_task(task, trace=path, name=str(path.relative_to(store.folder)), repeat=due.repeat)
    except Interrupted:
        return None


def _recorded_calls(trace: Path) -> bool:
    """Whether a trace file holds more than a task that was begun anew: setting it aside once is enough."""
    with TraceWriter(trace) as writer:
        return bool(writer.problems) or any(isinstance(e, ModelCall | ToolResult) for e in writer.events)


def _finished(writer: TraceWriter) -> Finding | None:
    """The finding of a trace that has ended with a status that stands."""
    if len(writer.events) >= 2 and isinstance(writer.events[-1], End):
        before = writer.events[-2]
        if isinstance(before, FindingEvent):
            finding = Finding.from_json(before.finding)
            return None if finding.status in PENDING else finding
    return None


def _scores(bench: Bench, loaded: Loaded, findings: Iterable[Finding]) -> list[Score]:
    rows = [(row.editor, row.id, row.edit_type) for row in loaded.rejected]
    scores = scored(bench.protocol, loaded.samples, findings, bench.settings.repeats)
    return [*scores, *rejected_scores(rows, criteria_of(bench))]
