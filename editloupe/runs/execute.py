"""Carry out a run: load, plan, answer, record, score. One bad sample never stops the others, and nothing done is lost."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import cv2

from editloupe.backends.base import reach
from editloupe.backends.limits import MOST, limit_of
from editloupe.backends.prices import Prices
from editloupe.backends.stopping import stopping
from editloupe.config import RunConfig
from editloupe.cores import usable_cores
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, RejectedRow, load
from editloupe.errors import ConfigError, DataError, ImageError, Interrupted, TraceError, Unavailable
from editloupe.findings import PENDING, Finding
from editloupe.protocols.base import looks_at_outputs, rejected_scores, scored
from editloupe.runs.budget import Ledger, Metered, RunBudget
from editloupe.runs.executors import together
from editloupe.runs.judges import Entry
from editloupe.runs.lineage import set_aside
from editloupe.runs.schedule import Schedule, ScheduledTask
from editloupe.runs.sent_sizes import shown_whole, small_targets_message
from editloupe.runs.setup import Setup, settled_tools, weights_of
from editloupe.runs.store import RunStore
from editloupe.runs.worker import Worker, ends_the_same, tool_cache_of, trace_path
from editloupe.runs.workers import Crew, Job, Launcher, Local
from editloupe.scores import Score, protocol_faults
from editloupe.tasks import Task
from editloupe.tools.cache import ToolCache
from editloupe.traces.read import last_finding, read_trace
from editloupe.values import Json, Sample, digest


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a visit has spent so far, and what is under way."""

    calls: int = 0
    in_flight: int = 0
    """Calls at the endpoint now."""
    retries: int = 0
    """Attempts of calls that were made again."""
    tokens: int = 0
    """Input and output, estimated where the endpoint does not tell."""
    cost_usd: float | None = None
    """None where no price is known."""
    waits_s: float = 0.0
    """Seconds until the endpoint is asked again, where it named a wait."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands."""

    phase: str = "judging"
    """What is done now, in words: reading the data, loading weights, judging."""
    done: int = 0
    total: int = 0
    """Of the tasks that are known so far; it grows while findings make further tasks ready. 0 before the first is known."""
    failed: int = 0
    """Findings that are not ok, of those `done`."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Status → how many of these, without rows that could not be read."""
    rejected: int = 0
    """Rows of the data that could not be read."""
    reused: int = 0
    """Of those `done`, findings of earlier visits."""
    grows: bool = False
    """True if further tasks may follow from findings that are not there yet."""
    finding: Finding | None = None
    """What has just arrived."""
    spent: Callable[[], Spent] = Spent
    """Returns what is spent at the moment of asking."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run as it ended, for one judge and the samples asked."""

    store: RunStore
    setup: Setup
    loaded: Loaded
    findings: tuple[Finding, ...]
    """In the order of the samples, those of the other roles and of measures included; what a key says is none of them."""
    judged: tuple[Finding, ...]
    """Those that scores are made of."""
    scores: tuple[Score, ...] = field(repr=False)
    """All scores of the samples asked, those that are missing included."""
    asked: int
    reused: int
    """Findings of earlier visits."""
    interrupted: bool
    seconds: float
    ledger: Ledger
    """What this visit spent, and which budget ended it."""
    tool_calls: int = 0
    """Calls of tools in this visit that ran."""
    cached: int = 0
    """Calls of tools that were answered from equal ones before."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the data and of how it was sent."""

    @property
    def whole(self) -> bool:
        """Whether every sample of the run was asked for, and not a part of it."""
        keys = {s.key for s in self.loaded.samples} | {r.key for r in self.loaded.rejected}
        return keys >= set(self.store.samples) | set(self.store.rejected)

    @property
    def unscored(self) -> dict[str, str]:
        """Sample key → what the protocol's `score` raised, of the samples that have no score for that reason."""
        return protocol_faults(self.scores)

    @property
    def unusable(self) -> int:
        """Of those asked, how many have no answer, or one of which no score could be made.

        A measure that is not defined on a pair has said so: that is no failure.
        """
        lost = self.unscored
        said = ({"ok"}, {"ok", "not_defined"})
        return self.asked - sum(f.status in said[f.role == "measure"] and f.sample_key not in lost for f in self.findings)

    @property
    def failed(self) -> int:
        """Of those asked, how many have no answer (those not yet judged included)."""
        return self.asked - sum(f.status == "ok" for f in self.findings)


Listener = Callable[[Progress], None]


def execute(
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
    entries: Sequence[Entry] = (),
) -> Outcome:
    """Judge the data of `setup.config` into the run folder `out`. The same call again goes on where it stopped.

    loaded: samples at hand; None loads those that the config names.   config: options for config.yaml; none is written
    without any.   redo: statuses of earlier findings that are judged again.   stop: set it to stop; what is done is kept.
    budget: of this visit to the run, counted in `prices`. It ends like a stop, and the same call goes on. A backend that
    refuses the key, the account, the model's name or the address is asked no more (`Ledger.refused`). Nor is one whose
    address takes no connection: one is tried before the first question, unless other machines ask.
    entries: this judge's name and options, and judges that are to come; they are recorded before anything is asked.
    Raises ConfigError, RunMismatch and DataError before anything is spent; WorkerError where the config's `workers` cannot
    work.
    """
    began = time.monotonic()
    plan = setup.config
    stop = stop or threading.Event()
    ledger = Ledger(budget=budget or RunBudget(), prices=prices or Prices(), stop=stop, at_least=plan.workers or 1)
    ledger.check(setup.backend)
    limit = limit_of(setup.backend.endpoint)
    throttled = limit.throttled
    # What a loader draws, such as masks, is written when the folder is known to be a run.
    images = ImageStore(out / "blobs", writes=False)
    tell = listener or (lambda progress: None)
    tell(Progress(phase="reading the data"))
    found = selected(plan, images, outputs=looks_at_outputs(setup.protocol)) if loaded is None else loaded
    setup.protocol.check(found.samples)
    launcher = _launcher(plan)
    setup = settled_tools(setup)
    store = RunStore.begin(out, setup.spec, [*setup.entries(), *entries], found, config=config)
    with closing(store), closing(launcher) if launcher else nullcontext():
        images.write()
        for mask in (mask for sample in found.samples for mask in sample.masks.values()):
            # So that a run can be measured and shown without the data that it was made from.
            with suppress(ImageError):
                images.keep(mask)
        refused = rejected_findings(setup, found.rejected)
        for finding in refused:
            if store.latest(finding) != finding:
                store.add_finding(finding)
        schedule = Schedule(setup.protocol, found.samples, setup.repeats, standing_in(store, setup, redo))
        with_tools = any(p.task.kind == "ask" and p.task.tools and p.task.blocked is None for p in schedule.ready)
        if with_tools and launcher is None:
            # Weights that cannot be loaded are found before anything is spent.
            tell(Progress(phase="opening tools"))
            setup.toolbox.prepare()
        cache = ToolCache(tool_cache_of(out), device=weights_of(plan).device)
        done = schedule.reused + len(refused)
        failures: Counter[str] = Counter(f.status for f in schedule.findings if f.status != "ok")
        retried = limit.retried

        def spent() -> Spent:
            cost = ledger.cost if setup.backend.traits.is_lmm else None
            return Spent(
                calls=ledger.calls,
                in_flight=limit.under_way,
                retries=limit.retried - retried,
                tokens=ledger.tokens,
                cost_usd=cost,
                waits_s=limit.opens_in_s,
            )

        def report(finding: Finding | None = None) -> None:
            phase = "measuring" if setup.judge.kind == "measure" else "judging"
            if crew is not None and finding is None:
                phase = f"starting {plan.workers} workers"
            tell(
                Progress(
                    phase=phase,
                    done=done,
                    total=schedule.total + len(refused),
                    failed=len(refused) + failures.total(),
                    failures=dict(failures),
                    rejected=len(found.rejected),
                    reused=schedule.reused,
                    grows=schedule.grows,
                    finding=finding,
                    spent=spent,
                )
            )

        changed = [f"{problem}, and judged again where this command asks for it" for problem in store.invalid]
        samples = {sample.key: sample for sample in found.samples}
        metered = setup.with_backends(lambda backend: Metered(backend, ledger))
        worker = Worker(setup=metered, images=images, run=out, stop=stop, samples=samples, cache=cache)
        width = plan.concurrency or default_concurrency(setup, plan.max_connections)
        crew: Crew | None = None
        if launcher is not None and plan.workers and schedule.ready:
            seats = math.ceil(width / plan.workers)
            crew = Crew(launcher, setup, out, ledger, count=plan.workers, seats=seats, tools=with_tools)

        def answer(place: ScheduledTask) -> Finding | None:
            if stop.is_set() or ledger.refused:
                return None
            task, repeat, judge_id = place.task, place.repeat, setup.judge_of(place.task).id
            before = store.findings.get((task.id, judge_id, repeat))
            if before is not None and ends_the_same(before):
                set_aside(trace_path(out, judge_id, task.id, repeat), below=out)
            try:
                if crew is None:
                    return worker.run_task(task, repeat=repeat)
                with stopping(stop):
                    return crew.answer(Job(task=task, repeat=repeat, sample=samples.get(task.about.key)))
            except Interrupted:
                return None

        if plan.executor == "local":
            if setup.backend.endpoint != "in process":
                tell(Progress(phase=f"connecting to {setup.backend.endpoint}"))
            ledger.refused = _unreachable(setup, schedule)
        report()
        with crew or nullcontext(), limit.fixed(plan.max_connections), _one_opencv_thread(width):
            for ended in together(answer, schedule.next, width=crew.width if crew else width, stop=stop):
                if not (findings := [finding for finding in ended if finding is not None]):
                    continue
                for task in (schedule.places[finding.task_id, finding.repeat].task for finding in findings):
                    store.add_judge(Entry(judge=setup.judge_of(task), role=task.role))
                # A disk takes as long for one as for all that have come meanwhile.
                store.add_findings(findings)
                for finding in findings:
                    schedule.arrived(finding)
                    done += 1
                    failures.update([finding.status] if finding.status != "ok" else [])
                    report(finding)
                ledger.check_time()
            judged = schedule.findings
            small = _small_targets(setup, found, schedule)
            if stop.is_set() and (left := limit.under_way):
                calls = "1 call was" if left == 1 else f"{left} calls were"
                changed.append(f"{calls} still under way and not waited for: asked again next time, perhaps paid twice.")
            notes = (*changed, *_notes(setup, found, small, schedule, judged, limit.limit, limit.throttled - throttled))
    keys = {place.task.id for place in schedule.places.values() if setup.judge_of(place.task).kind == "key"}
    findings = [f for f in (*judged, *schedule.problems(), *refused) if f.task_id not in keys]
    asked = schedule.total + len(refused) - sum(id_ in keys for id_, _ in schedule.places)
    return Outcome(
        store=store,
        setup=setup,
        loaded=found,
        findings=tuple(findings),
        judged=tuple(judged),
        scores=_scores(setup, found, judged),
        asked=asked,
        reused=schedule.reused,
        interrupted=stop.is_set() and len(findings) < asked,
        seconds=time.monotonic() - began,
        ledger=ledger,
        tool_calls=cache.ran + (crew.tool_calls[0] if crew else 0),
        cached=cache.hits + (crew.tool_calls[1] if crew else 0),
        notes=notes,
    )


def _scores(setup: Setup, loaded: Loaded, judged: Sequence[Finding]) -> tuple[Score, ...]:
    found = scored(setup.protocol, loaded.samples, judged, setup.repeats)
    unread = [(row.editor, row.id, row.edit_type) for row in loaded.rejected]
    return (*found, *rejected_scores(setup.protocol, unread, setup.metrics))


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


def _unreachable(setup: Setup, schedule: Schedule) -> str:
    """Return why a backend that is asked now cannot be reached; "" if all can, as far as one connection tells."""
    roles = {p.task.role for p in schedule.ready if p.task.kind == "ask" and p.task.blocked is None}
    for role in sorted(roles):
        try:
            reach(setup.respondents[role].backend)
        except Unavailable as error:
            return str(error)
    return ""


def _launcher(plan: RunConfig) -> Launcher | None:
    """Return what starts a run's workers; None without any. Raises ConfigError for what no other process can be given."""
    if plan.workers is None:
        return None
    if any(not isinstance(judge.backend, str | None) for judge in (plan.judge, *plan.role.values())):
        raise ConfigError("a backend that is an object cannot go to another process; name it by its URI")
    if plan.executor == "ray":
        from editloupe.runs.cluster import Cluster

        return Cluster(plan.worker_gpus)
    return Local()


def selected(config: RunConfig, images: ImageStore, *, outputs: bool = True) -> Loaded:
    """Return the edits that a config's `sample` and `limit` leave of its data.

    outputs: False for a protocol that looks at no edited image; they may be absent as a whole.
    Raises DataError for an id that is not there, and what `load` raises.
    """
    if config.path is None:
        raise ConfigError("PATH is missing: name the folder of edits to judge")
    if config.null_edit and config.edited:
        raise ConfigError("--null-edit judges the originals themselves; leave --edited out")
    needed = outputs and not config.null_edit
    loaded = load(
        config.path, store=images, format=config.format, edited=config.edited, fields=config.fields,
        columns=config.columns, outputs=needed,
    )  # fmt: skip
    # A row that cannot be judged counts like any other: --limit must not put a later sample in its place.
    rows = loaded.in_order()
    if config.null_edit:
        rows = [null_edit(row) if isinstance(row, Sample) else row for row in rows]
    if config.sample:
        wanted = set(config.sample)
        rows = [row for row in rows if row.id in wanted or row.key in wanted]
        if missing := wanted - {row.id for row in rows} - {row.key for row in rows}:
            known = ", ".join(s.id for s in loaded.samples[:5])
            raise DataError(f"{config.path}: no sample {', '.join(sorted(missing))}; the first ones are {known}, …")
    rows = rows[: config.limit]
    samples = tuple(row for row in rows if isinstance(row, Sample))
    rejected = tuple(row for row in rows if isinstance(row, RejectedRow))
    return Loaded(format=loaded.format, samples=samples, rejected=rejected, notes=loaded.notes)


def null_edit(sample: Sample) -> Sample:
    """Return a sample whose edit is the original itself, under the editor "null edit" where none is named."""
    turns = tuple(replace(turn, edited=sample.source) for turn in sample.turns)
    return replace(sample, turns=turns, editor=sample.editor or "null edit", warnings=())


def rejected_findings(setup: Setup, rows: Iterable[RejectedRow]) -> list[Finding]:
    """Return one finding a metric for each row that cannot be judged."""
    return [
        Finding(
            task_id=digest({"rejected": row.key, "metric": metric, "protocol": setup.protocol.name}),
            judge_id=setup.judge.id,
            repeat=0,
            sample_id=row.id,
            editor=row.editor,
            metric=metric,
            status="input_error",
            ending="input",
            reason=row.message,
        )
        for row in rows
        for metric in setup.metrics
    ]


def standing_in(store: RunStore, setup: Setup, redo: frozenset[str]) -> Callable[[Task, int], Finding | None]:
    """Return the look-up of findings that stand: those of the run whose status is not to be judged again."""

    def standing(task: Task, repeat: int) -> Finding | None:
        finding = store.findings.get((task.id, setup.judge_of(task).id, repeat))
        return None if finding is None or finding.status in redo else finding

    return standing


def standing_in_trace(trace: Path, run: Path) -> Finding | None:
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


def _small_targets(setup: Setup, loaded: Loaded, schedule: Schedule) -> str:
    """Return what is to be said of targets that are small in the images as they are sent; "" for nothing."""
    if not setup.backend.traits.is_lmm:
        return ""
    whole = {place.task.about.key for place in schedule.places.values() if shown_whole(place.task)}
    shown = [sample for sample in loaded.samples if sample.key in whole]
    return small_targets_message(shown, setup.backend.traits.image_policy) or ""


def _notes(
    setup: Setup,
    loaded: Loaded,
    small_targets: str,
    schedule: Schedule,
    judged: Sequence[Finding],
    limit: int,
    throttled: int,
) -> Iterator[str]:
    yield from loaded.notes
    if small_targets:
        yield small_targets
    if left_off := sorted(getattr(setup.backend, "left_off", ())):
        tags = "; answers were asked for without a schema" if "answer_schema" in left_off else ""
        yield f"The endpoint refused {', '.join(left_off)}, which it was then asked without{tags}."
    crashed = [finding for finding in judged if finding.counts.get("tool_crashes")]
    if crashed:
        total = sum(finding.counts["tool_crashes"] for finding in crashed)
        times = "once" if total == 1 else f"{total} times"
        yield (
            f"Tools crashed {times}, in {len(crashed)} of {len(judged)} findings, first in sample "
            f"{crashed[0].sample_id}; `editloupe show` with this sample says how."
        )
    if throttled:
        times = "once" if throttled == 1 else f"{throttled} times"
        calls = "one call" if limit == 1 else f"{limit} calls"
        yield f"The endpoint refused calls for their rate {times}; at the end it was asked {calls} at a time."
    if setup.repeats.count > 1 and setup.backend.uri == "baseline":
        yield "The pixel baseline answers the same each time: its repeats say nothing of doubt."
    elif setup.repeats.count > 1 and setup.judge.sampling.temperature == 0:
        yield (
            "Repeats were asked at temperature 0, where most models answer (nearly) the same each time; "
            "--temperature 1 lets them differ."
        )
    yield from dict.fromkeys(problem.reason for problem in schedule.problems())


def default_concurrency(setup: Setup, connections: int | None = None) -> int:
    """Return how many tasks run at once.

    In-process judges are bound by cores, remote ones by the endpoint, whose ConnectionLimit holds back the rest. There are
    half as many tasks more than connections: those that run a tool, or wait between two attempts, leave theirs to others.
    connections: at once at the endpoint; None for as many as it takes.
    """
    config = setup.config
    if setup.backend.endpoint == "in process":
        # A worker of Ray has a core.
        return max(1 if config.executor == "ray" else usable_cores(), config.workers or 1)
    return math.ceil(1.5 * (connections or MOST))
