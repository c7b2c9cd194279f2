"""Answer one task: open its pictures, ask or measure, record. `run_task` does it in any process."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import editloupe
from editloupe.agent.judge import answer
from editloupe.agent.state import Context
from editloupe.chat import Sampling
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError, ImageError, MeasureError, ProtocolError, ReplayMiss, StorageError
from editloupe.findings import PENDING, Ending, Finding
from editloupe.imaging.views import make_view
from editloupe.measures.base import run_measure
from editloupe.protocols.base import described
from editloupe.runs.recorder import TraceRecorder
from editloupe.runs.recording import listed_tools
from editloupe.runs.sent_sizes import SMALLEST_TARGET_PX, SentTarget, sent_targets, shown_whole
from editloupe.runs.setup import Respondent, Setup, open_setup, weights_of
from editloupe.tasks import Ask, Measure, Status, Task
from editloupe.tools.cache import ToolCache
from editloupe.traces.events import End, FindingEvent, Header, ModelCall, Note, ToolResult
from editloupe.traces.record import TraceWriter, set_aside
from editloupe.values import Json, Sample, View, digest


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Answers tasks, from any thread."""

    setup: Setup
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
        """Return the finding of one task. Every end but a stop is a finding.

        trace: the trace file, continued where it exists; None keeps the trace in memory.   name: its path in the run.
        anew: why the earlier trace was set aside; that is done once.
        Raises Interrupted when asked to stop, StorageError if the run cannot be written, ConfigError for a
        measure that cannot be opened.
        """
        end = partial(self._ended, task, repeat)
        if task.blocked is not None:
            return end(*task.blocked, ending="blocked", trace=None)
        try:
            try:
                views = {recipe.alias: make_view(recipe, self.images) for recipe in task.views}
            except ImageError as error:
                return end("input_error", str(error), ending="input", trace=None)
            except ProtocolError as error:
                reason = f"{described(self.setup.protocol)} planned {task.metric}, {task.about}: {error}"
                return end("input_error", reason, ending="protocol", trace=None)
            if task.kind == "measure":
                return self._measured(task, views, trace, name)
            return self._answered(task, views, trace, name, repeat, anew)
        except (ReplayMiss, ImageError) as miss:
            # Another conversation, a damaged file, a picture that is gone: what is recorded cannot be gone on from.
            if trace is None or anew or not _recorded_calls(trace):
                return end("tool_failed", str(miss), ending="recording", trace=name)
            kept = set_aside(trace)
            why = f"begun anew, the old trace is {kept and kept.name}: {miss}"
            return self.run_task(task, trace=trace, name=name, repeat=repeat, anew=why)
        except EditLoupeError:
            raise
        except OSError as error:
            raise StorageError(f"the run cannot be written ({error}); make room, then give the same command") from error
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the other samples; it is recorded, and pending
            reason = f"editloupe itself failed ({type(error).__name__}: {error}); please report it"
            return end("tool_failed", f"{reason}\n{traceback.format_exc(limit=-3)}", ending="fault", trace=name)

    def _measured(self, task: Measure, views: Mapping[str, View], trace: Path | None, name: str | None) -> Finding:
        began = self.clock()
        judge = self.setup.judge_of(task)
        pixels = {alias: self.images.array(view.image) for alias, view in views.items()}
        made = partial(Finding.of, task, judge_id=judge.id, repeat=0, ending="measure", trace=name)
        try:
            result = run_measure(task.measure, task.args, pixels, self.setup.models)
            finding = made(status="ok", answer=result, seconds=self.clock() - began)
        except MeasureError as error:
            finding = made(status=error.status, reason=str(error), seconds=self.clock() - began)  # type: ignore[arg-type]
        if trace is not None:
            set_aside(trace)
        with TraceWriter(trace) as writer:
            writer.append(self._header(task, 0))
            writer.append(FindingEvent(finding=finding.to_json()))
            writer.append(End())
        return finding

    def _answered(
        self, task: Ask, views: dict[str, View], trace: Path | None, name: str | None, repeat: int, anew: str
    ) -> Finding:
        respondent = self.setup.respondents[task.role]
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
                for remark, data in self._as_sent(task, respondent, views):
                    writer.append(Note(text=remark, data=data))
            context = Context(
                backend=respondent.backend,
                toolbox=self.setup.toolbox,
                images=self.images,
                recorder=TraceRecorder.resume(writer, stop=self.stop),
                task=task,
                clock=self.clock,
                started=self.clock(),
                sampling=_sampling(respondent, repeat, writer),
                cache=self.cache,
                constrain_labels=respondent.constrain_labels,
                tool_protocol=respondent.tool_protocol,
            )
            finding = answer(context, views, judge_id=respondent.spec.id, repeat=repeat, trace=name)
            writer.append(FindingEvent(finding=finding.to_json()))
            writer.append(End())
            return finding

    def _as_sent(self, task: Ask, respondent: Respondent, views: dict[str, View]) -> Iterable[tuple[str, dict[str, Json]]]:
        """Yield what the backend gets of each image and of the sample's targets; nothing for one that sees the pixels."""
        if not respondent.backend.traits.is_lmm:
            return
        policy = respondent.backend.traits.image_policy
        for alias, view in views.items():
            made = self.images.encoded(view.image, policy)
            note = f"{alias} is sent as {made.media_type}, {made.width}×{made.height} px, {len(made.data):,} bytes"
            yield note, {"alias": alias, "px": [made.width, made.height], "bytes": len(made.data), "type": made.media_type}
        for target in self.targets.get(task.about.key, ()) if shown_whole(task) else ():
            small = f", under {SMALLEST_TARGET_PX:.0f} px: the model may not see it" if target.small else ""
            size = f"{target.sent_width:.0f}×{target.sent_height:.0f} px"
            yield f"{target.name} is {size} of the {target.role} image as sent{small}", {"target": target.to_json()}

    def _header(self, task: Task, repeat: int) -> Header:
        box, judge = self.setup.toolbox, self.setup.judge_of(task)
        return Header(
            editloupe=editloupe.__version__,
            run=digest(dict(self.setup.spec.identity))[:16],
            task_id=task.id,
            judge_id=judge.id,
            repeat=repeat,
            task=task.to_json(),
            judge=judge.to_json(),
            tools=listed_tools(box, task.tools) if task.kind == "ask" else [],
            absent=dict(box.absent) if task.kind == "ask" else {},
        )

    def _ended(self, task: Task, repeat: int, status: Status, reason: str, *, ending: Ending, trace: str | None) -> Finding:
        judge_id = self.setup.judge_of(task).id
        return Finding.of(task, judge_id=judge_id, repeat=repeat, status=status, ending=ending, reason=reason, trace=trace)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One task with all that another process needs to answer it. It can be pickled."""

    config: RunConfig
    """With the judge's backend as a URI."""
    run: Path
    """The run folder."""
    task: Task
    repeat: int = 0
    sample: Sample | None = None
    """For the remarks on how large its targets are sent."""


def run_task(job: Job) -> Finding:
    """Return the finding of one task, and write its trace into the run folder.

    Works in any process: the judge is opened once in each. The caller appends the finding to the run. Raises what
    `open_setup` and `Worker.run_task` raise.
    """
    worker = _opened(job.config.model_dump_json(), job.run)
    if job.sample is not None:
        policy = worker.setup.backend.traits.image_policy
        worker = replace(worker, targets={job.sample.key: sent_targets(job.sample, policy)})
    path = trace_path(job.run, worker.setup.judge_of(job.task).id, job.task.id, job.repeat)
    return worker.run_task(job.task, trace=path, name=str(path.relative_to(job.run)), repeat=job.repeat)


@cache
def _opened(config: str, run: Path) -> Worker:
    setup = open_setup(RunConfig.model_validate_json(config))
    cache = ToolCache(tool_cache_of(run), device=weights_of(setup.config).device)
    return Worker(setup=setup, images=ImageStore(run / "blobs"), cache=cache)


def trace_path(run: Path, judge_id: str, task_id: str, repeat: int) -> Path:
    """Return where the trace of one unit of work lies."""
    return run / "traces" / judge_id / task_id[:2] / f"{task_id}.{repeat}.jsonl"


def tool_cache_of(run: Path) -> Path:
    """Return where a run keeps what its tools have said; it may be deleted at any time."""
    return run / "cache" / "tools"


def ends_the_same(finding: Finding) -> bool:
    """Return True if the finding's trace, replayed, could only end as before.

    That holds for what a model or a broken tool did, and for a spent budget of turns or tokens.
    """
    if finding.status == "over_budget":
        return finding.ending in ("turns", "tokens")
    return finding.status not in PENDING or finding.status == "tool_failed"


def _sampling(respondent: Respondent, repeat: int, writer: TraceWriter) -> Sampling:
    sampling = respondent.sampling.of_repeat(repeat)
    if repeat and sampling.seed is not None:
        data = {"repeat": repeat, "seed": sampling.seed}
        if not any(isinstance(event, Note) and event.data == data for event in writer.events):
            writer.append(Note(text=f"repeat {repeat + 1}: seed {sampling.seed}", data=data))
    return sampling


def _recorded_calls(trace: Path) -> bool:
    """Return whether a trace file holds more than a task that was begun anew: setting it aside once is enough."""
    with TraceWriter(trace) as writer:
        return bool(writer.problems) or any(isinstance(e, ModelCall | ToolResult) for e in writer.events)


def _finished(writer: TraceWriter) -> Finding | None:
    """Return the finding of a trace that has ended with a status that stands; None for other traces."""
    if len(writer.events) >= 2 and isinstance(writer.events[-1], End):
        before = writer.events[-2]
        if isinstance(before, FindingEvent):
            finding = Finding.from_json(before.finding)
            return None if finding.status in PENDING else finding
    return None
