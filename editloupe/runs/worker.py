"""Answer one task: open its pictures, ask or measure, record."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editloupe.agent.judge import finding_of, initial_state, run_loop
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context, stopwatch
from editloupe.backends.stopping import stopping
from editloupe.cores import computing
from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError, ImageError, MeasureError, ProtocolError, ReplayMiss, StorageError
from editloupe.findings import PENDING, Finding
from editloupe.imaging.views import make_view
from editloupe.protocols.base import described
from editloupe.runs.lineage import seconds_spent, set_aside
from editloupe.runs.pool import Pool, measured_here
from editloupe.runs.recording import listed_tools
from editloupe.runs.selection import keep_pictures
from editloupe.runs.setup import Respondent, Setup, weights_of
from editloupe.tasks import Ask, Measure, Task
from editloupe.tools.cache import ToolCache
from editloupe.traces.events import End, Event, Header, ModelCall, Note, ToolResult
from editloupe.traces.read import last_finding
from editloupe.traces.record import TraceWriter
from editloupe.values import Sample, View, digest
from editloupe.version import VERSION

if TYPE_CHECKING:
    from editloupe.agent.graph import Loop


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Answers tasks, from any thread."""

    setup: Setup
    images: ImageStore
    run: Path | None = None
    """The run folder, into which traces go; None keeps them in memory."""
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """By key: their pictures are kept with those of the questions."""
    cache: ToolCache | None = None
    """What tools have said before in this run; None runs every call."""
    pool: Pool | None = None
    """Where measures compute; None for this process's threads."""
    graph: Loop | None = None
    """The graph of LangGraph's server, which has ways of its own to stop a task and to send traces; None for ours."""
    _listed: dict[tuple[str, ...], list[dict[str, Any]]] = field(default_factory=dict, init=False, repr=False)
    """Names of tools → how a header lists them, which is the same for thousands of tasks."""

    def run_task(self, task: Task, *, repeat: int = 0, anew: str = "") -> Finding:
        """Return the finding of one task, whose trace is continued where it exists. Every end but a stop is a finding.

        anew: why the earlier trace was set aside; that is done once.
        Raises Interrupted when asked to stop, StorageError if the run cannot be written, ConfigError for a
        measure that cannot be opened.
        """
        judge_id = self.setup.judge_of(task).id
        trace = None if self.run is None else trace_path(self.run, judge_id, task.id, repeat)
        end = partial(Finding.of, task, judge_id=judge_id, repeat=repeat)
        if task.blocked is not None:
            return end(status=task.blocked[0], reason=task.blocked[1], ending="blocked")
        # A measure may have its own way to share cores and devices.
        with stopping(self.stop), computing() if task.kind == "ask" else nullcontext():
            return self._ended(task, end, trace, repeat, anew)

    def _ended(self, task: Task, end: Callable[..., Finding], trace: Path | None, repeat: int, anew: str) -> Finding:
        name = None if trace is None or self.run is None else str(trace.relative_to(self.run))
        try:
            try:
                if self._looks_itself(task):
                    for recipe in task.views:
                        self.images.array(recipe.origin)  # decoded once, for the check and for the look
                views = {recipe.alias: make_view(recipe, self.images) for recipe in task.views}
                if self.run is not None and (sample := self.samples.get(task.about.key)) is not None:
                    # No question may depend on it.
                    keep_pictures(sample, self.images)
            except ImageError as error:
                return end(status="input_error", reason=str(error), ending="input")
            except ProtocolError as error:
                reason = f"{described(self.setup.protocol)} planned {task.metric}, {task.about}: {error}"
                return end(status="input_error", reason=reason, ending="protocol")
            if task.kind == "measure":
                return self._measured(task, views, trace, name)
            return self._answered(task, views, trace, repeat, anew)
        except (ReplayMiss, ImageError) as miss:
            # Another conversation, a damaged file, a picture that is gone: what is recorded cannot be gone on from.
            if trace is None or anew or not _recorded_calls(trace, self.run):
                return end(status="tool_failed", reason=str(miss), ending="recording", trace=name)
            kept = set_aside(trace, below=self.run)
            return self.run_task(task, repeat=repeat, anew=f"begun anew, the old trace is {kept and kept.name}: {miss}")
        except EditLoupeError:
            raise
        except OSError as error:
            raise StorageError(f"the run cannot be written ({error}); make room, then give the same command") from error
        except Exception as error:  # a fault of ours must not cost the other samples; it is recorded, and pending
            if self.graph is not None:
                raise
            reason = f"editloupe itself failed ({type(error).__name__}: {error}); please report it"
            reason += f"\n{traceback.format_exc(limit=-3)}"
            return end(status="tool_failed", reason=reason, ending="fault", trace=name)

    def _looks_itself(self, task: Task) -> bool:
        """Return whether this process needs the pixels of a task's pictures, and does not just pass their bytes on."""
        if task.kind == "measure":
            return self.pool is None
        in_process = self.setup.respondents[task.role].backend.endpoint == "in process"
        return in_process or (self.pool is None and bool(task.tools))

    def _measured(self, task: Measure, views: Mapping[str, View], trace: Path | None, name: str | None) -> Finding:
        began = self.clock()
        judge_id = self.setup.judge_of(task).id
        made = partial(Finding.of, task, judge_id=judge_id, repeat=0, ending="measure", trace=name)
        events: list[Event] = [self._header(task, 0)]
        try:
            compute = measured_here if self.pool is None else self.pool.measured
            found = compute(task.measure, task.args, views, self.images, self.setup.models)
            for data in found.pictures:
                self.images.add_bytes(data)
            finding = made(status="ok", answer=found.answer, reason=found.reason, seconds=self.clock() - began)
            if found.data:
                events.append(Note(text=found.reason or "how it was measured", data=dict(found.data)))
        except MeasureError as error:
            finding = made(status=error.status, reason=str(error), seconds=self.clock() - began)  # type: ignore[arg-type]
        if trace is not None:
            set_aside(trace, below=self.run)
        with TraceWriter(trace, below=self.run) as writer:
            for event in events:
                writer.append(event)
            writer.finish(finding)
        return finding

    def _answered(self, task: Ask, views: dict[str, View], trace: Path | None, repeat: int, anew: str) -> Finding:
        respondent = self.setup.respondents[task.role]
        with TraceWriter(trace, below=self.run) as writer:
            first, last = (writer.events[0], writer.events[-1]) if writer.events else (None, None)
            recorded = last_finding(writer.events) if isinstance(last, End) else None
            ours = (task.id, respondent.spec.id, repeat)
            if writer.tampering:
                raise ReplayMiss(f"the trace was changed: {'; '.join(writer.tampering)}")
            if first and not (isinstance(first, Header) and (first.task_id, first.judge_id, first.repeat) == ours):
                raise ReplayMiss("the trace has no header of this task")
            if recorded is not None and recorded.key != ours:
                raise ReplayMiss("the trace ends in the finding of another task")
            if recorded is not None and recorded.status not in PENDING:
                return recorded
            if writer.problems:
                raise ReplayMiss(f"the trace is damaged: {'; '.join(writer.problems)}")
            if not writer.events:
                writer.append(self._header(task, repeat))
                for note in self._notes(respondent, views, repeat, anew):
                    writer.append(note)
            context = Context(
                backend=respondent.backend,
                judge=respondent.spec,
                toolbox=self.setup.toolbox,
                images=self.images,
                recorder=TraceRecorder.resume(writer, stop=self.stop),
                task=task,
                repeat=repeat,
                elapsed=stopwatch(self.clock),
                earlier=seconds_spent(writer.events),
                cache=self.cache,
                langsmith=self.setup.config.langsmith if self.graph is None else None,
            )
            state = run_loop(initial_state(context, views), context, graph=self.graph)
            finding = finding_of(state, context, trace=writer.name)
            writer.finish(finding)
            return finding

    def _notes(self, respondent: Respondent, views: dict[str, View], repeat: int, anew: str) -> Iterator[Note]:
        """Yield the remarks at the beginning of a trace."""
        seed = respondent.spec.sampling.of_repeat(repeat).seed
        if anew:
            yield Note(text=anew)
        for alias, view in views.items():
            yield from (Note(text=f"{alias}: {remark}") for remark in self.images.notes(view.image))
        if repeat and seed is not None:
            yield Note(text=f"repeat {repeat + 1}: seed {seed}", data={"repeat": repeat, "seed": seed})

    def _header(self, task: Task, repeat: int) -> Header:
        box, judge = self.setup.toolbox, self.setup.judge_of(task)
        return Header(
            editloupe=VERSION,
            run=digest(dict(self.setup.spec.identity))[:16],
            task_id=task.id,
            judge_id=judge.id,
            repeat=repeat,
            task=task.to_json(),
            judge=judge.to_json(),
            tools=self._tools(task.tools) if task.kind == "ask" else [],
            absent=dict(box.absent) if task.kind == "ask" else {},
        )

    def _tools(self, names: tuple[str, ...]) -> list[dict[str, Any]]:
        if names not in self._listed:
            self._listed[names] = listed_tools(self.setup.toolbox, names)
        return self._listed[names]


def trace_path(run: Path, judge_id: str, task_id: str, repeat: int) -> Path:
    """Return where the trace of one unit of work lies."""
    return run / "traces" / judge_id / task_id[:2] / f"{task_id}.{repeat}.jsonl"


def tool_cache(setup: Setup, run: Path) -> ToolCache:
    """Return what a run's tools have said; the folder in which it lies may be deleted at any time."""
    return ToolCache(run / "cache" / "tools", device=weights_of(setup.config).device)


def ends_the_same(finding: Finding) -> bool:
    """Return True if the finding's trace, replayed, could only end as before.

    That holds for what a model or a broken tool did, and for a spent budget of turns or tokens.
    """
    if finding.status == "over_budget":
        return finding.ending in ("turns", "tokens")
    return finding.status not in PENDING or finding.status == "tool_failed"


def _recorded_calls(trace: Path, run: Path | None) -> bool:
    """Return whether a trace file holds more than a task that was begun anew: setting it aside once is enough."""
    with TraceWriter(trace, below=run) as writer:
        return bool(writer.problems or writer.tampering) or any(
            isinstance(e, ModelCall | ToolResult) for e in writer.events
        )
