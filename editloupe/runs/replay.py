"""Run recorded tasks again: a replay, in which model and tools are each recorded or live, and a fork from a step on.

Both follow a recording (`runs.recording`) in the loop of every live task. What is new lies in the run's `forks/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, cast

from editloupe.agent.judge import finding_of, initial_state, run_loop
from editloupe.agent.state import Context, LoopState
from editloupe.backends.base import LMM
from editloupe.chat import Message
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ImageError, ReplayMiss, TraceError
from editloupe.findings import PENDING, Finding, Observation
from editloupe.prompts import render
from editloupe.replies import neutralise
from editloupe.runs.drift import ObservationDrift, compare
from editloupe.runs.executors import together
from editloupe.runs.lineage import Parent, mismatches
from editloupe.runs.recording import MALFORMED, Live, Recording, outcome, read_recording, reopened
from editloupe.tasks import About
from editloupe.tools.base import Toolbox
from editloupe.tools.outcome import ToolOutcome
from editloupe.tools.tolerance import tolerance_of
from editloupe.traces.cassette import RecordingEnds
from editloupe.traces.events import Header, ToolResult
from editloupe.values import Json

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
    compared: tuple[ObservationDrift, ...] = ()
    """Observations of live tools beside the recorded ones."""
    trace: str | None = None
    """Path of the new trace inside the run folder; None if nothing ran live."""
    problems: tuple[str, ...] = ()
    """Problems of the trace that was read."""

    def to_json(self) -> dict[str, Json]:
        """Return JSON for programs, with the two outcomes as status and label."""
        before, now = (None if f is None else {**outcome(f), "reason": f.reason} for f in (self.recorded, self.finding))
        return {
            "trace": self.name,
            **self.about.to_json(),
            "metric": self.metric,
            "verdict": self.verdict,
            "told": self.message,
            "recorded": before,
            "now": now,
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
    run: str | None = None
    """Digest of the run's identity, which each trace must name; None does not check."""

    def tasks(self, findings: Sequence[Finding], *, concurrency: int = 1) -> Iterator[Replayed]:
        """Replay each finding of a model that has a trace. With `concurrency` above 1, results come as they are ready."""
        traced = (f for f in findings if f.trace is not None and f.role != "measure")
        for ready in together(self.task, lambda: next(traced, None), width=concurrency):
            yield from ready

    def task(self, listed: Finding) -> Replayed:
        """Replay the trace of a finding of the run. A problem with the trace becomes a verdict, not an exception."""
        name = str(listed.trace)
        result = Replayed(name=name, about=listed.about, metric=listed.metric, recorded=listed)
        try:
            recording = read_recording(self.folder, name)
            foreign = mismatches(recording.trace, listed, self.run)
            result = replace(result, problems=(*foreign, *recording.trace.problems))
            for problem in (*foreign, *recording.trace.tampering):
                raise TraceError(problem)
            return self._replayed(replace(result, recorded=recording.finding), recording)
        except TraceError as error:
            return replace(result, verdict="damaged", message=str(error))
        except MALFORMED as error:
            misfit = f"{name} cannot be replayed: its content does not fit together ({error!r})"
            return replace(result, verdict="damaged", message=misfit)

    def _replayed(self, result: Replayed, recording: Recording) -> Replayed:
        """Run the loop of a recorded task again."""
        recorded, compared = recording.finding, list[ObservationDrift]()
        with reopened(self.folder, recording, self.live) as context:
            recorder, compare = context.recorder, partial(self._compared, images=context.images)
            recorder.compare_tool = lambda step, result, live: compared.append(compare(step, result, live))
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
                    result = replace(result, trace=recorder.trace, compared=tuple(compared))
                    return replace(result, verdict=verdict, message=str(miss))
                # A budget of time or a crash ended it there, and does so again.
                finding = recorded
        result = replace(result, trace=recorder.trace, compared=tuple(compared))
        drifted, message = any(one.verdict == "drift" for one in compared), _difference(recorded, finding)
        verdict = "drift" if drifted else "differs" if message else "same"
        return replace(result, verdict=verdict, message=message, finding=finding)

    def _compared(
        self, step: int, recorded: ToolResult, live: Callable[[], ToolOutcome], *, images: ImageStore
    ) -> ObservationDrift:
        """Compare a recorded observation with that of the live tool."""
        name, toolbox = str(recorded.call["name"]), self.live.toolbox or Toolbox(tools={})
        tolerance = tolerance_of(toolbox.tools.get(name))
        old = Observation.from_json(recorded.observation)
        try:
            if name in toolbox.absent and not old.error:
                raise ImageError(f"{name} is absent here ({toolbox.absent[name]})")
            return compare(old, live().observation, step=step, tool=name, tolerance=tolerance, images=images)
        except ImageError as error:
            return ObservationDrift(step=step, tool=name, verdict="not compared", tolerance=tolerance, told=(str(error),))


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
    """Return in words what a finding says otherwise than the recorded one; "" for nothing.

    Cached tool calls do not count, nor does the reason of a failure: it is in the words of the version that wrote it.
    """
    if recorded is None:
        return f"recorded without an end, now {_short(now)}"
    if _short(recorded) != _short(now):
        return f"recorded {_short(recorded)}, now {_short(now)}"
    one, other = (replace(f, counts={k: n for k, n in f.counts.items() if k != "cached_tools"}) for f in (recorded, now))
    old, new = one.to_json(), other.to_json()
    skipped = _NOT_COMPARED if now.status == "ok" else {*_NOT_COMPARED, "reason"}
    fields = ", ".join(name for name in old if name not in skipped and old[name] != new[name])
    return fields and f"{_short(now)} as recorded, and otherwise in {fields}"


def _short(finding: Finding) -> str:
    return repr(finding.label or str(finding.answer)) if finding.status == "ok" else finding.status


# Forks


@dataclass(frozen=True, kw_only=True)
class Forked:
    """The result of a fork."""

    trace: str
    """Path inside the run folder."""
    finding: Finding
    recorded: Finding | None
    """The finding of the parent trace."""
    parent: Parent


def fork(
    folder: Path,
    name: str,
    *,
    at: int,
    backend: LMM,
    toolbox: Toolbox,
    instruction: str | None = None,
) -> Forked:
    """Continue the trace `name` of a run live after its step `at`, in a new trace in the run's `forks/`.

    The parent's file stays as it is, and the shared beginning is not copied.
    at: number of steps that are kept, as `editloupe show` numbers them; 0 keeps only the question.
    toolbox: the tools that the fork may offer.   instruction: text of a new user message after the step.
    Raises TraceError if the trace cannot be read or was changed. Raises ConfigError if there is no such step, nothing to
    continue from, or if the question itself would change.
    """
    recording = read_recording(folder, name)
    if recording.trace.tampering:
        raise TraceError(f"{name} cannot be forked: {recording.trace.tampering[0]}")
    steps = len(recording.cassette.models)
    if not 0 <= at <= steps:
        raise ConfigError(f"{name} has {steps} steps; --at {at} is none of 0 to {steps}")
    changes = {} if instruction is None else {"instruction": " ".join(instruction.split())[:200]}
    if at == 0 and changes:
        raise ConfigError(
            "before step 1 there is only the question, and a changed question is a new run: judge with another --out, "
            "or fork after a step (--at 1)"
        )
    live = Live(backend=backend, toolbox=toolbox)
    live.check(recording.judge)
    with reopened(folder, recording, live, changes=changes, forks=True) as context:
        recorder = context.recorder
        state = _state_after(recording, context, at)
        recorder.go_live()
        state = run_loop(_resumed(state, context, instruction), context)
        if recorder.writer is None:
            recorder.note("the task's budget was spent before anything could be asked")
        finding = finding_of(state, context, trace=recorder.trace)
        assert recorder.writer is not None, "the note is written"
        recorder.writer.finish(finding)
    parent = Parent.from_json(cast(Header, recorder.writer.events[0]).parent)
    return Forked(trace=str(finding.trace), finding=finding, recorded=recording.finding, parent=parent)


def _state_after(recording: Recording, context: Context, at: int) -> LoopState:
    """Return the state of the loop after the shared steps, which the recording answers."""
    state = initial_state(context, recording.views, recording.cassette.question)
    try:
        return run_loop(state, context, until=lambda s: context.recorder.models_answered == at and s["next"] == "think")
    except ReplayMiss as miss:
        raise ConfigError(f"{recording.name} cannot be followed up to step {at}: {miss}") from miss


def _resumed(state: LoopState, context: Context, instruction: str | None) -> LoopState:
    """Return the state from which the loop continues with `think`, with the new message if there is one."""
    if instruction is None:
        if state["next"] != "think":
            answered = state["outcome"] is not None and state["outcome"]["ending"] == "answer"
            ended = "the judge answered" if answered else "the loop ended"
            raise ConfigError(f"at this step {ended}: keep fewer steps, or say something more with --add-instruction")
        return state
    text = render(
        "agent/fork",
        instruction=neutralise(instruction.strip()),
        native=context.native,
        calls=bool(context.task.tools) and not state["last"],
        answer=context.task.answer,
    )
    head = context.recorder.add(Message.of_text("user", text), state["history"][-1])
    return {**state, "history": [*state["history"], head], "answer": None, "outcome": None, "problem": "", "next": "think"}
