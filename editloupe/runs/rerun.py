"""Replay a run: run each task's loop again, with recorded or live model and tools, and report what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, cast

from editloupe.agent.cassette import RecordingEnds
from editloupe.agent.judge import finding_of, initial_state, run_loop
from editloupe.agent.recorder import Side, TraceRecorder
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError, MeasureError, ReplayMiss, TraceError
from editloupe.findings import PENDING, Finding, Observation
from editloupe.imaging.views import make_view
from editloupe.measures.base import Models, run_measure
from editloupe.runs.drift import Compared, compare
from editloupe.runs.executors import at_once
from editloupe.runs.lineage import Parent, mismatches, read_whole
from editloupe.runs.recording import MALFORMED, Live, Recording, begin_child, context_of, read_recording
from editloupe.tasks import About, Ask, Measure, Status, task_from_json
from editloupe.tools.outcome import ToolOutcome
from editloupe.tools.tolerance import EXACT, tolerance_of
from editloupe.traces.events import ToolResult
from editloupe.traces.read import last_finding
from editloupe.traces.record import TraceWriter
from editloupe.values import Json

RecordMode: TypeAlias = Literal["none", "once", "new_episodes", "all"]
"""What happens on a miss.

none: the task ends and the miss is reported.   once: a task without any recorded reply runs live.
new_episodes: whatever is not recorded runs live.   all: everything runs live.
"""

Verdict: TypeAlias = Literal["same", "differs", "drift", "miss", "damaged"]
"""Outcome of one replay.

same: the finding equals the recorded one.   differs: it does not.   drift: an observation is beyond its tool's tolerance.
miss: the recording has no answer.   damaged: the trace cannot be replayed.
"""

_NOT_COMPARED = ("seconds", "trace", "judge_id", "task_id", "ending")


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The result of one task's replay."""

    name: str
    """Path of the trace inside the run folder."""
    about: About
    """What the question is about."""
    metric: str
    verdict: Verdict
    message: str = ""
    """The first difference, the nearest recorded answer of a miss, or the reason why the trace is damaged."""
    recorded: Finding | None = None
    """The finding in the trace."""
    finding: Finding | None = None
    """The finding of the replay; None if it did not end."""
    compared: tuple[Compared, ...] = ()
    """Observations of live tools beside the recorded ones."""
    trace: str | None = None
    """Path of the new trace inside the run folder; None if nothing ran live."""
    problems: tuple[str, ...] = ()
    """Problems of the trace that was read."""
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Tool → (recorded version, version here), where they differ."""

    @classmethod
    def of(cls, name: str, asked: Ask | Measure | Finding | None, recorded: Finding | None) -> Replayed:
        """Return the result of a trace that replays as recorded; `asked` names what is judged."""
        about, metric = (About(sample_id=""), "") if asked is None else (asked.about, asked.metric)
        return cls(name=name, about=about, metric=metric, verdict="same", recorded=recorded)

    def to_json(self) -> dict[str, Json]:
        """Return JSON for programs, with the two outcomes as status and label."""
        return {
            "trace": self.name,
            **self.about.to_json(),
            "metric": self.metric,
            "verdict": self.verdict,
            "told": self.message,
            "recorded": _outcome(self.recorded),
            "now": _outcome(self.finding),
            "observations": [c.to_json() for c in self.compared],
            "written": self.trace,
            "problems": list(self.problems),
        }


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The settings of a replay."""

    folder: Path
    """The run folder. Without a live model, nothing is written into it."""
    live: Live
    """The backend and the tools of the live sides."""
    model: Side = "recorded"
    """Where replies come from."""
    tools: Side = "recorded"
    """Where observations come from."""
    record_mode: RecordMode = "none"
    """What happens on a miss."""
    run: str | None = None
    """Digest of the run's identity, which each trace must name; None does not check."""

    def tasks(self, findings: Sequence[Finding], *, concurrency: int = 1) -> Iterator[Replayed]:
        """Replay each finding that has a trace. With `concurrency` above 1, results come as they are ready."""
        traced = (f for f in findings if f.trace is not None)
        yield from at_once(lambda f: self.task(str(f.trace), f), lambda: next(traced, None), width=concurrency)

    def task(self, name: str, listed: Finding | None = None) -> Replayed:
        """Replay one trace. A problem with the trace becomes a verdict, not an exception.

        listed: the run's finding, which names the task if the trace cannot.
        """
        problems: tuple[str, ...] = ()
        try:
            if listed is not None and listed.role == "measure":
                return self._measured(name, listed)
            recording = read_recording(self.folder, name)
            foreign = mismatches(recording.trace, listed, self.run)
            problems = (*foreign, *recording.trace.problems)
            for problem in (*foreign, *recording.trace.tampering):
                raise TraceError(problem)
            return replace(self._replay(recording), problems=problems)
        except TraceError as error:
            message = str(error)
        except MALFORMED as error:
            message = f"{name} cannot be replayed: its content does not fit together ({error!r})"
        return replace(Replayed.of(name, listed, listed), verdict="damaged", message=message, problems=problems)

    def _measured(self, name: str, listed: Finding) -> Replayed:
        """Hold a measure's trace against the run's finding. With live tools, it is computed again first."""
        trace = read_whole(self.folder, self.folder / name)
        task = task_from_json(trace.header.task)
        recorded = last_finding(trace.events)
        if task.kind != "measure" or recorded is None:
            raise TraceError(f"{name} cannot be replayed: it holds no measure with a finding")
        now = recorded
        if self.tools == "live":
            images = ImageStore(self.folder / "blobs", writes=False)
            pixels = {r.alias: images.array(make_view(r, images).image) for r in task.views}
            try:
                now = replace(recorded, status="ok", answer=run_measure(task.measure, task.args, pixels, Models()))
            except MeasureError as error:
                now = replace(recorded, status=cast(Status, error.status), answer=None, reason=str(error))
        fields = _differing(listed, now)
        message = f"the measure says otherwise in {', '.join(fields)}" if fields else ""
        verdict: Verdict = "differs" if fields else "same"
        return replace(Replayed.of(name, task, listed), verdict=verdict, message=message, finding=now)

    def _replay(self, recording: Recording) -> Replayed:
        model, tools, mode = self.model, self.tools, self.record_mode
        if mode == "all" or (mode == "once" and not recording.cassette.models):
            model = tools = "live"
        # Each task has its own store, which frees the images that are compared and not kept.
        images = ImageStore(self.folder / "blobs", writes=self.live.backend is not None)
        compared: list[Compared] = []

        def open_trace(head: str, step: int, tools: int) -> TraceWriter:
            changes = {} if self.live.backend is None else {"backend": self.live.backend.uri}
            parent = Parent(trace=recording.name, head=head, step=step, tools=tools, why="replay", changes=changes)
            return begin_child(self.folder, recording, recording.task, self.live, parent)

        recorder = TraceRecorder(
            cassette=recording.cassette,
            model=model,
            tools=tools,
            exact=(model, tools) == ("recorded", "recorded") and mode != "new_episodes",
            on_miss="live" if mode == "new_episodes" else "raise",
            drop_carry=self.live.changes_provider(recording.judge),
            open_trace=open_trace if self.live.backend is not None else None,
            compare_tool=lambda step, result, live: compared.append(self._compare(step, result, live, images)),
        )
        context = context_of(recording, recorder, self.live, images)
        recorded = recording.finding
        result = Replayed.of(recording.name, recording.task, recorded)
        try:
            # The recorded question is asked, whatever this version would write today.
            state = initial_state(context, recording.views, recording.question)
            finding = finding_of(run_loop(state, context), context, trace=recording.name)
            finding = recorder.finish(finding, self.folder)
        except (ReplayMiss, ImageError) as miss:
            if not isinstance(miss, RecordingEnds) or recorded is None or recorded.status not in PENDING:
                recorder.note(f"the replay ends here: {miss}")
                trace = recorder.trace_name(self.folder)
                verdict: Verdict = "miss" if isinstance(miss, ReplayMiss) else "damaged"
                return replace(result, verdict=verdict, message=str(miss), compared=tuple(compared), trace=trace)
            # A budget of time or a crash ended it there, and does so again.
            finding = recorded
        finally:
            recorder.close()
        if recorded is None or _differing(recorded, finding):
            result = replace(result, verdict="differs", message=_difference(recorded, finding))
        old = {str(tool["name"]): str(tool["version"]) for tool in recording.trace.header.tools}
        here = {} if self.live.toolbox is None else self.live.toolbox.versions()
        return replace(
            result,
            verdict="drift" if any(c.verdict == "drift" for c in compared) else result.verdict,
            finding=finding,
            compared=tuple(compared),
            trace=recorder.trace_name(self.folder),
            versions={name: (old[name], new) for name, new in here.items() if old.get(name, new) != new},
        )

    def _compare(self, step: int, result: ToolResult, live: Callable[[], ToolOutcome], images: ImageStore) -> Compared:
        name = str(result.call["name"])
        toolbox = self.live.toolbox
        tool = None if toolbox is None else toolbox.tools.get(name)
        tolerance = EXACT if tool is None else tolerance_of(tool)
        recorded = Observation.from_json(result.observation)
        if toolbox is not None and name in toolbox.absent and not recorded.error:
            reason = f"{name} is absent here ({toolbox.absent[name]})"
            return Compared(step=step, tool=name, verdict="not compared", tolerance=tolerance, reasons=(reason,))
        try:
            now = live().observation
        except ImageError as error:
            return Compared(step=step, tool=name, verdict="not compared", tolerance=tolerance, reasons=(str(error),))
        return compare(recorded, now, step=step, tool=name, tolerance=tolerance, images=images)


def exit_code(replayed: Iterable[Replayed], *, live_model: bool) -> int:
    """Return the exit code of a replay: 4, 1 or 0.

    4: a replay drifted, missed or, with a recorded model, differs.   1: a trace is damaged, or an observation could not be
    compared.
    """
    verdicts: set[str] = {verdict for one in replayed for verdict in (one.verdict, *(c.verdict for c in one.compared))}
    if verdicts & ({"drift", "miss"} if live_model else {"drift", "miss", "differs"}):
        return 4
    return 1 if verdicts & {"damaged", "not compared"} else 0


def _difference(recorded: Finding | None, now: Finding) -> str:
    if recorded is None:
        return f"recorded without an end, now {_short(now)}"
    if _short(recorded) != _short(now):
        return f"recorded {_short(recorded)}, now {_short(now)}"
    return f"{_short(now)} as recorded, and otherwise in {', '.join(_differing(recorded, now))}"


def _differing(recorded: Finding, now: Finding) -> list[str]:
    """Return the fields in which two findings differ. Cached tool calls do not count.

    Nor does the reason of a failure: it is in the words of the version that wrote it. Its status counts.
    """
    old, new = (
        {**f.to_json(), "counts": {k: n for k, n in f.counts.items() if k != "cached_tools"}} for f in (recorded, now)
    )
    skipped = _NOT_COMPARED if recorded.status == "ok" or now.status == "ok" else {*_NOT_COMPARED, "reason"}
    return [name for name in old if name not in skipped and old[name] != new[name]]


def _short(finding: Finding) -> str:
    return repr(finding.label or str(finding.answer)) if finding.status == "ok" else finding.status


def _outcome(finding: Finding | None) -> Json:
    if finding is None:
        return None
    return {"status": finding.status, "label": finding.label, "value": finding.value, "reason": finding.reason}
