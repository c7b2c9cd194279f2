"""Replay of a run: each task's loop once more, model and tools each recorded or live; and what came out otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from editloupe.agent.judge import finding_of, initial_state, resume_loop
from editloupe.agent.nodes import run_nodes
from editloupe.agent.state import ToolOutcome
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError, ReplayMiss, TraceError
from editloupe.findings import PENDING, Finding, Observation
from editloupe.runs.cassette import RecordingEnds
from editloupe.runs.drift import Compared, compare
from editloupe.runs.executors import in_threads
from editloupe.runs.live import Live, begin_child, context_of, judge_of, versions_changed
from editloupe.runs.recorder import RecorderMode, Side, TraceRecorder
from editloupe.runs.recording import MALFORMED, Recording, read_recording
from editloupe.tools.tolerance import EXACT, tolerance_of
from editloupe.traces.events import End, FindingEvent, ToolResult
from editloupe.traces.lineage import Parent, strangers
from editloupe.traces.read import untrue
from editloupe.traces.record import TraceWriter
from editloupe.values import Json

RecordMode: TypeAlias = Literal["none", "once", "new_episodes", "all"]

Verdict: TypeAlias = Literal["same", "differs", "drift", "miss", "damaged"]

_NOT_COMPARED = ("seconds", "trace", "judge_id")


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One task replayed.

    verdict: "same" as recorded; "differs": another finding; "drift": an observation beyond its tool's tolerance; "miss":
    the recording has no answer, `told` says which is the nearest; "damaged": it cannot be replayed, `told` says why.
    recorded, finding: as it was, and as it came out now.   compared: observations, where recorded calls met live tools.
    trace: of what was done live, inside the run folder.   problems: of the trace that was read.
    versions: tool → (recorded, here), where they differ.
    """

    name: str
    sample_id: str
    editor: str
    criterion: str
    verdict: Verdict
    told: str = ""
    recorded: Finding | None = None
    finding: Finding | None = None
    compared: tuple[Compared, ...] = ()
    trace: str | None = None
    problems: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, str]] | None = None

    def to_json(self) -> dict[str, Json]:
        """For programs; the two outcomes as status and label."""
        return {
            "trace": self.name,
            "sample_id": self.sample_id,
            "editor": self.editor,
            "criterion": self.criterion,
            "verdict": self.verdict,
            "told": self.told,
            "recorded": _outcome(self.recorded),
            "now": _outcome(self.finding),
            "observations": [c.to_json() for c in self.compared],
            "written": self.trace,
            "problems": list(self.problems),
        }


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How to replay.

    model, tools: where answers come from.   record_mode: what is done about a miss. "none": it is named and that task
    ends; "once": a task without any recorded answer is done live; "new_episodes": whatever is not recorded is done live;
    "all": everything is.   live: what the live sides are.   folder: the run's; without a live model nothing is written.
    run: digest of the run's identity, as its traces name it; None does not look.
    """

    folder: Path
    live: Live
    model: Side = "recorded"
    tools: Side = "recorded"
    record_mode: RecordMode = "none"
    run: str | None = None

    def tasks(self, findings: Sequence[Finding], *, concurrency: int = 1) -> Iterator[Replayed]:
        """Each finding that has a trace; in their order, or with several at once as they are ready."""
        traced = [f for f in findings if f.trace is not None]
        if concurrency == 1:
            yield from (self.task(str(f.trace), f) for f in traced)
            return
        yield from in_threads(lambda f: self.task(str(f.trace), f), traced, width=concurrency)

    def task(self, name: str, listed: Finding | None = None) -> Replayed:
        """One trace. What goes wrong with it is a verdict, never an exception.

        listed: the run's finding, which names the task where the trace cannot.
        """
        try:
            recording = read_recording(self.folder, name)
        except TraceError as error:
            return _damaged(name, listed, str(error))
        strange = strangers(recording.trace, listed, self.run)
        problems = (*strange, *recording.trace.problems)
        found = [*strange, *untrue(recording.trace.problems)]
        if found:
            return _damaged(name, listed, found[0], problems)
        try:
            return replace(self._played(recording), problems=problems)
        except MALFORMED as error:
            return _damaged(
                name, listed, f"{name} cannot be replayed: its content does not fit together ({error!r})", problems
            )

    def _played(self, recording: Recording) -> Replayed:
        model, tools, mode = self.model, self.tools, self.record_mode
        unanswered = not recording.cassette.models
        if mode == "all" or (mode == "once" and unanswered):
            model = tools = "live"
        compared: list[Compared] = []
        wholly = (model, tools) == ("recorded", "recorded")

        def begin(head: str, step: int, tools: int) -> TraceWriter:
            changes = {} if self.live.backend is None else {"backend": self.live.backend.uri}
            parent = Parent(trace=recording.name, head=head, step=step, tools=tools, why="replay", changes=changes)
            return begin_child(self.folder, recording, recording.task, self.live, parent)

        # A store of its own for each task, so that pictures that are compared and not kept go with it.
        images = ImageStore(self.folder / "blobs", writes=self.live.backend is not None)

        def look(step: int, result: ToolResult, live: Callable[[], ToolOutcome]) -> None:
            compared.append(self._looked(step, result, live, images))

        recorder_mode = RecorderMode(
            model=model,
            tools=tools,
            exact=wholly and mode != "new_episodes",
            on_miss="live" if mode == "new_episodes" else "raise",
            drop_carry=self.live.changes_provider(recording.judge),
        )
        recorder = TraceRecorder(
            recording.cassette,
            recorder_mode,
            open_trace=begin if self.live.backend is not None else None,
            compare_tool=look,
        )
        context = context_of(recording, recorder, self.live, images)
        try:
            # The question is asked as it was asked then, whatever this version would write today.
            state = initial_state(context, recording.views, recording.question)
            recorded_only = model == "recorded" and mode != "new_episodes"
            state = run_nodes(state, context) if recorded_only else resume_loop(state, context)
        except RecordingEnds as end:
            recorder.close()
            if recording.finding is not None and recording.finding.status in PENDING:
                # A budget of time, a crash: it ended there then, and does now.
                return _replayed(recording, recording.finding, tuple(compared), recorder, self.folder, self.live)
            return _missed(recording, end, tuple(compared))
        except (ReplayMiss, ImageError) as miss:
            recorder.note(f"the replay ends here: {miss}")
            recorder.close()
            return _missed(recording, miss, tuple(compared), recorder.writer, self.folder)
        judge_id = recording.trace.header.judge_id if self.live.backend is None else judge_of(recording, self.live).id
        finding = finding_of(state, context, judge_id=judge_id, repeat=recording.trace.header.repeat, trace=recording.name)
        if recorder.writer is not None:
            finding = replace(finding, trace=_name(recorder.writer, self.folder))
            recorder.writer.append(FindingEvent(finding=finding.to_json()))
            recorder.writer.append(End())
            recorder.close()
        return _replayed(recording, finding, tuple(compared), recorder, self.folder, self.live)

    def _looked(self, step: int, result: ToolResult, live: Callable[[], ToolOutcome], images: ImageStore) -> Compared:
        """A live tool beside its recording."""
        name = str(result.call["name"])
        toolbox = self.live.toolbox
        tool = None if toolbox is None else toolbox.tools.get(name)
        tolerance = EXACT if tool is None else tolerance_of(tool)
        recorded = Observation.from_json(result.observation)
        if toolbox is not None and name in toolbox.absent and not recorded.error:
            why = f"{name} is absent here ({toolbox.absent[name]})"
            return Compared(step=step, tool=name, verdict="not compared", tolerance=tolerance, told=(why,))
        try:
            now = live().observation
        except ImageError as error:
            return Compared(step=step, tool=name, verdict="not compared", tolerance=tolerance, told=(str(error),))
        return compare(recorded, now, step=step, tool=name, tolerance=tolerance, images=images)


def same(recorded: Finding, now: Finding) -> bool:
    """Whether two findings say the same; when and where does not matter."""
    return not _differing(recorded, now)


def exit_code(replayed: Iterable[Replayed], *, live_model: bool) -> int:
    """4 where a replay drifted, missed or (with a recorded model) came out otherwise; 1 where a trace was no good, or an
    observation could not be compared."""
    verdicts: set[str] = set()
    for one in replayed:
        verdicts |= {one.verdict, *(c.verdict for c in one.compared)}
    if verdicts & ({"drift", "miss"} if live_model else {"drift", "miss", "differs"}):
        return 4
    return 1 if verdicts & {"damaged", "not compared"} else 0


def _replayed(
    recording: Recording,
    finding: Finding,
    compared: tuple[Compared, ...],
    recorder: TraceRecorder,
    folder: Path,
    live: Live,
) -> Replayed:
    recorded = recording.finding
    told = ""
    verdict: Verdict = "same" if recorded is not None and same(recorded, finding) else "differs"
    if verdict == "differs":
        told = _difference(recorded, finding)
    if any(c.verdict == "drift" for c in compared):
        verdict = "drift"
    return _made(
        recording,
        verdict=verdict,
        told=told,
        finding=finding,
        compared=compared,
        trace=None if recorder.writer is None else _name(recorder.writer, folder),
        versions=None if live.toolbox is None else versions_changed(recording, live.toolbox),
    )


def _missed(
    recording: Recording,
    miss: Exception,
    compared: tuple[Compared, ...],
    writer: TraceWriter | None = None,
    folder: Path | None = None,
) -> Replayed:
    return _made(
        recording,
        verdict="miss" if isinstance(miss, ReplayMiss) else "damaged",
        told=str(miss),
        compared=compared,
        trace=None if writer is None or folder is None else _name(writer, folder),
    )


def _made(recording: Recording, **values: object) -> Replayed:
    task = recording.task
    return Replayed(
        name=recording.name,
        sample_id=task.about.sample_id,
        editor=task.about.editor,
        criterion=task.metric,
        recorded=recording.finding,
        **values,  # type: ignore[arg-type]
    )


def _damaged(name: str, listed: Finding | None, why: str, problems: tuple[str, ...] = ()) -> Replayed:
    return Replayed(
        name=name,
        sample_id="" if listed is None else listed.sample_id,
        editor="" if listed is None else listed.editor,
        criterion="" if listed is None else listed.metric,
        verdict="damaged",
        told=why,
        recorded=listed,
        problems=problems,
    )


def _name(writer: TraceWriter, folder: Path) -> str:
    assert writer.path is not None
    return str(writer.path.relative_to(folder))


def _difference(recorded: Finding | None, now: Finding) -> str:
    if recorded is None:
        return f"recorded without an end, now {_short(now)}"
    if (recorded.status, recorded.label) != (now.status, now.label):
        return f"recorded {_short(recorded)}, now {_short(now)}"
    return f"{_short(now)} as recorded, and otherwise in {', '.join(_differing(recorded, now))}"


def _differing(recorded: Finding, now: Finding) -> list[str]:
    """The fields in which two findings differ. Which tools did not have to run is no part of what was found."""
    old, new = (
        {**f.to_json(), "counts": {k: n for k, n in f.counts.items() if k != "cached_tools"}} for f in (recorded, now)
    )
    return [name for name in old if name not in _NOT_COMPARED and old[name] != new[name]]


def _short(finding: Finding) -> str:
    return repr(finding.label) if finding.status == "ok" else finding.status


def _outcome(finding: Finding | None) -> Json:
    if finding is None:
        return None
    return {"status": finding.status, "label": finding.label, "value": finding.value, "reason": finding.reason}
