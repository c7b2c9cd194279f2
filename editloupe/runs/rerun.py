"""Replay a run: run each task's loop again, with recorded or live model and tools, and report what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from editloupe.agent.judge import finding_of, initial_state, run_loop
from editloupe.agent.recorder import Side
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError, MeasureError, ReplayMiss, TraceError
from editloupe.findings import PENDING, Finding, Observation
from editloupe.imaging.views import make_view
from editloupe.measures.base import Models, run_measure
from editloupe.runs.drift import Compared, compare
from editloupe.runs.executors import at_once
from editloupe.runs.lineage import mismatches, read_whole
from editloupe.runs.recording import MALFORMED, Live, Recording, outcome, read_recording, reopened
from editloupe.tasks import About, Status, task_from_json
from editloupe.tools.base import Toolbox
from editloupe.tools.outcome import ToolOutcome
from editloupe.tools.tolerance import tolerance_of
from editloupe.traces.cassette import RecordingEnds
from editloupe.traces.events import ToolResult
from editloupe.traces.read import last_finding
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
    verdict: Verdict = "same"
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

    def to_json(self) -> dict[str, Json]:
        """Return JSON for programs, with the two outcomes as status and label."""
        return {
            "trace": self.name,
            **self.about.to_json(),
            "metric": self.metric,
            "verdict": self.verdict,
            "told": self.message,
            "recorded": _told(self.recorded),
            "now": _told(self.finding),
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
        yield from at_once(self.task, lambda: next(traced, None), width=concurrency)

    def task(self, listed: Finding) -> Replayed:
        """Replay the trace of a finding of the run. A problem with the trace becomes a verdict, not an exception."""
        name = str(listed.trace)
        result = Replayed(name=name, about=listed.about, metric=listed.metric, recorded=listed)
        try:
            if listed.role == "measure":
                return self._measured(result, listed)
            recording = read_recording(self.folder, name)
            foreign = mismatches(recording.trace, listed, self.run)
            result = replace(result, problems=(*foreign, *recording.trace.problems))
            for problem in (*foreign, *recording.trace.tampering):
                raise TraceError(problem)
            return self._replayed(replace(result, recorded=recording.finding), recording)
        except (TraceError, *MALFORMED) as error:
            misfit = f"{name} cannot be replayed: its content does not fit together ({error!r})"
            return replace(result, verdict="damaged", message=str(error) if isinstance(error, TraceError) else misfit)

    def _measured(self, result: Replayed, listed: Finding) -> Replayed:
        """Hold a measure's trace against the run's finding. With live tools, it is computed again first."""
        trace = read_whole(self.folder, self.folder / result.name)
        task, now = task_from_json(trace.header.task), last_finding(trace.events)
        if task.kind != "measure" or now is None:
            raise TraceError(f"{result.name} cannot be replayed: it holds no measure with a finding")
        if self.tools == "live":
            images = ImageStore(self.folder / "blobs", writes=False)
            pixels = {r.alias: images.array(make_view(r, images).image) for r in task.views}
            try:
                now = replace(now, status="ok", answer=run_measure(task.measure, task.args, pixels, Models()))
            except MeasureError as error:
                now = replace(now, status=cast(Status, error.status), answer=None, reason=str(error))
        if fields := _differing(listed, now):
            result = replace(result, verdict="differs", message=f"the measure says otherwise in {', '.join(fields)}")
        return replace(result, finding=now)

    def _replayed(self, result: Replayed, recording: Recording) -> Replayed:
        """Run the loop of a recorded task again."""
        mode, recorded, live = self.record_mode, recording.finding, self.live
        anew = mode == "all" or (mode == "once" and not recording.cassette.models)
        model, tools = ("live", "live") if anew else (self.model, self.tools)
        settings: dict[str, Any] = {
            "model": model,
            "tools": tools,
            "exact": model == tools == "recorded" and mode != "new_episodes",
            "on_miss": "live" if mode == "new_episodes" else "raise",
        }
        compared: list[Compared] = []
        with reopened(self.folder, recording, live, why="replay", **settings) as context:
            recorder = context.recorder
            recorder.compare_tool = lambda step, result, live: compared.append(
                self._compared(step, result, live, context.images)
            )
            try:
                # The recorded question is asked, whatever this version would write today.
                state = initial_state(context, recording.views, recording.cassette.question)
                state = run_loop(state, context)
                finding = finding_of(state, context, trace=recorder.trace or recording.name)
                if recorder.writer is not None:
                    recorder.writer.finish(finding)
            except (ReplayMiss, ImageError) as miss:
                if not isinstance(miss, RecordingEnds) or recorded is None or recorded.status not in PENDING:
                    recorder.note(f"the replay ends here: {miss}")
                    verdict: Verdict = "miss" if isinstance(miss, ReplayMiss) else "damaged"
                    result = replace(result, verdict=verdict, message=str(miss), trace=recorder.trace)
                    return replace(result, compared=tuple(compared))
                # A budget of time or a crash ended it there, and does so again.
                finding = recorded
        drifted = any(one.verdict == "drift" for one in compared)
        if message := _difference(recorded, finding):
            result = replace(result, verdict="differs", message=message)
        return replace(
            result,
            verdict="drift" if drifted else result.verdict,
            finding=finding,
            compared=tuple(compared),
            trace=recorder.trace,
            versions=_changed_versions(recording, live.toolbox),
        )

    def _compared(self, step: int, recorded: ToolResult, live: Callable[[], ToolOutcome], images: ImageStore) -> Compared:
        """Compare a recorded observation with that of the live tool."""
        name, toolbox = str(recorded.call["name"]), self.live.toolbox or Toolbox(tools={})
        tolerance = tolerance_of(toolbox.tools.get(name))
        old = Observation.from_json(recorded.observation)
        try:
            if name in toolbox.absent and not old.error:
                raise ImageError(f"{name} is absent here ({toolbox.absent[name]})")
            return compare(old, live().observation, step=step, tool=name, tolerance=tolerance, images=images)
        except ImageError as error:
            return Compared(step=step, tool=name, verdict="not compared", tolerance=tolerance, told=(str(error),))


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
    """Return in words what a finding says otherwise than the recorded one; "" for nothing."""
    if recorded is None:
        return f"recorded without an end, now {_short(now)}"
    if _short(recorded) != _short(now):
        return f"recorded {_short(recorded)}, now {_short(now)}"
    fields = ", ".join(_differing(recorded, now))
    return fields and f"{_short(now)} as recorded, and otherwise in {fields}"


def _changed_versions(recording: Recording, toolbox: Toolbox | None) -> dict[str, tuple[str, str]]:
    here = {} if toolbox is None else toolbox.versions()
    then = {str(tool["name"]): str(tool["version"]) for tool in recording.trace.header.tools}
    return {name: (then[name], now) for name, now in here.items() if then.get(name, now) != now}


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


def _told(finding: Finding | None) -> Json:
    return None if finding is None else {**(outcome(finding) or {}), "reason": finding.reason}
