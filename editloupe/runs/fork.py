"""Fork a trace: keep it up to a step, change something there, and continue live with the same backend or another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from editloupe.agent.judge import finding_of, initial_state, run_loop, tool_specs
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context, LoopState
from editloupe.backends.base import LMM
from editloupe.chat import Message
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ReplayMiss, TraceError
from editloupe.findings import Finding
from editloupe.prompts import render
from editloupe.replies import neutralise
from editloupe.runs.lineage import Parent
from editloupe.runs.recording import Live, Recording, context_of, read_recording, reopened
from editloupe.tools.base import Toolbox
from editloupe.traces.cassette import Cassette
from editloupe.traces.events import Header


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a fork changes at its step."""

    instruction: str | None = None
    """Text of a new user message after the step."""
    tools: tuple[str, ...] | None = None
    """Names of the tools offered from then on; None keeps them."""
    observation: str | None = None
    """New text for the observation of one call of the step."""
    call: int | None = None
    """Number of that call in the step, from 1; None if the step has one call."""

    def summary(self) -> dict[str, str]:
        """Return name → short text of each change, for the header of the new trace."""
        tools = None if self.tools is None else ", ".join(self.tools) or "none"
        texts = {"instruction": self.instruction, "tools": tools, "observation": self.observation}
        return {name: " ".join(text.split())[:200] for name, text in texts.items() if text is not None}


@dataclass(frozen=True, kw_only=True)
class Forked:
    """The result of a fork."""

    trace: str
    """Path of the new trace inside the run folder."""
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
    changes: Changes | None = None,
    langsmith: bool = False,
) -> Forked:
    """Continue the trace `name` of a run live after its step `at`, in a new trace in the run's `forks/`.

    The parent's file stays as it is, and the shared beginning is not copied.
    at: number of steps that are kept, as `editloupe show` numbers them; 0 keeps only the question.
    toolbox: the tools that the fork may offer.   langsmith: whether traces of the loop go to LangSmith.
    Raises TraceError if the trace cannot be read or was changed. Raises ConfigError if there is no such step, nothing to
    continue from, or if the question itself would change.
    """
    changes = changes or Changes()
    recording = read_recording(folder, name)
    if recording.trace.tampering:
        raise TraceError(f"{name} cannot be forked: {recording.trace.tampering[0]}")
    steps = len(recording.cassette.models)
    if not 0 <= at <= steps:
        raise ConfigError(f"{name} has {steps} steps; --at {at} is none of 0 to {steps}")
    if at == 0 and changes.summary():
        raise ConfigError(
            "before step 1 there is only the question, and a changed question is a new run: judge with another --out, "
            "or fork after a step (--at 1)"
        )
    live = Live(backend=backend, toolbox=toolbox, langsmith=langsmith)
    live.check(recording.judge)
    missing = [tool for tool in changes.tools or () if tool not in toolbox.tools]
    if missing:
        raise ConfigError(f"no tool {', '.join(missing)} is at hand; there are {', '.join(toolbox.tools) or 'none'}")
    task = recording.task if changes.tools is None else replace(recording.task, tools=changes.tools)
    edits = _edits(recording.cassette, at, changes)
    with reopened(folder, recording, live, why="fork", changes=changes.summary(), task=task, edits=edits) as context:
        recorder = context.recorder
        state = _state_after(recording, recorder, at, context.images)
        recorder.go_live()
        state = run_loop(_apply(state, context, changes), context)
        if recorder.writer is None:
            recorder.note("the task's budget was spent before anything could be asked")
        finding = finding_of(state, context, trace=recorder.trace)
        assert recorder.writer is not None, "the note is written"
        recorder.writer.finish(finding)
    parent = Parent.from_json(cast(Header, recorder.writer.events[0]).parent)
    return Forked(trace=str(finding.trace), finding=finding, recorded=recording.finding, parent=parent)


def _edits(cassette: Cassette, at: int, changes: Changes) -> dict[int, str]:
    """Return ordinal → new text of the edited tool result. Raises ConfigError if the call is ambiguous or missing."""
    if changes.observation is None:
        return {}
    calls = [i for i, step in enumerate(cassette.tool_steps) if step == at]
    listed = ", ".join(f"{n} {cassette.tools[i].call['name']}" for n, i in enumerate(calls, start=1))
    if not calls:
        raise ConfigError(f"step {at} has no observation that could be edited: no tool was called there")
    if changes.call is None and len(calls) > 1:
        raise ConfigError(f"step {at} has {len(calls)} observations ({listed}); say which with --call")
    number = changes.call or 1
    if not 1 <= number <= len(calls):
        raise ConfigError(f"--call {number}: step {at} has {len(calls)} calls ({listed})")
    return {calls[number - 1]: changes.observation}


def _state_after(recording: Recording, recorder: TraceRecorder, at: int, images: ImageStore) -> LoopState:
    """Return the state of the loop after the shared steps."""
    prefix = context_of(recording, Live(), recorder, images, recording.task)
    state = initial_state(prefix, recording.views, recording.cassette.question)
    try:
        return run_loop(state, prefix, until=lambda s: recorder.models_answered == at and s["next"] == "think")
    except ReplayMiss as miss:
        raise ConfigError(f"{recording.name} cannot be followed up to step {at}: {miss}") from miss


def _apply(state: LoopState, context: Context, changes: Changes) -> LoopState:
    """Return the state from which the loop continues with `think`, with the new message if there is one."""
    if changes.instruction is None and changes.tools is None:
        if state["next"] != "think":
            answered = state["outcome"] is not None and state["outcome"]["ending"] == "answer"
            ended = "the judge answered" if answered else "the loop ended"
            raise ConfigError(f"at this step {ended}: keep fewer steps, or say something more with --add-instruction")
        return state
    text = render(
        "agent/fork",
        instruction=None if changes.instruction is None else neutralise(changes.instruction.strip()),
        tools=None if changes.tools is None else tool_specs(context.toolbox, context.task.tools),
        native=context.native,
        calls=bool(context.task.tools) and not state["last"],
        answer=context.task.answer,
    )
    head = context.recorder.add(Message.of_text("user", text), state["history"][-1])
    return {**state, "history": [*state["history"], head], "answer": None, "outcome": None, "problem": "", "next": "think"}
