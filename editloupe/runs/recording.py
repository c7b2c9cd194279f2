"""Run a recorded task again: its recording, what answers live instead, and the new trace in `forks/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from editloupe import files, plugins
from editloupe.agent.cassette import Cassette
from editloupe.agent.judge import agent_digest
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context, stopwatch
from editloupe.backends.base import LMM, NOT_LMMS, Traits, parse_uri, reach
from editloupe.backends.endpoint import max_image_side
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.chat import ImagePart, Message, Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ReplayMiss, StorageError, TraceError, UnknownPlugin
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs.lineage import FORKS, Parent, family, read_whole
from editloupe.tasks import Ask, Recipe, task_from_json
from editloupe.tools.base import Tool, Toolbox
from editloupe.traces.events import Header, Note
from editloupe.traces.read import Trace, held, last_finding
from editloupe.traces.record import TraceWriter
from editloupe.values import Box, View, digest
from editloupe.version import VERSION

MALFORMED = (KeyError, TypeError, ValueError, AssertionError, IndexError, AttributeError)
"""Exceptions of reading content that was changed by hand."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The trace of one task. For a fork, it includes what it shares with its parents."""

    name: str
    """Path inside the run folder."""
    trace: Trace
    task: Ask
    judge: JudgeSpec
    question: Message
    """The first message."""
    views: Mapping[str, View]
    """The images of the question by name."""
    cassette: Cassette
    """The recorded answers."""
    finding: Finding | None
    """The last finding; None if the task was interrupted."""


def read_recording(folder: Path, name: str) -> Recording:
    """Read the trace `name` of a run folder. Raises TraceError if there is none, or if it cannot be replayed."""
    trace = read_whole(folder, folder / name)
    try:
        task, cassette = task_from_json(trace.header.task), Cassette.of(trace.events)
        if task.kind != "ask":
            raise TraceError(f"{name} holds a measure, not a conversation")
        if cassette.question is None:
            raise TraceError(f"{name} cannot be replayed: it holds no question")
        shown = {part.alias: part for part in cassette.question.images}
        return Recording(
            name=name,
            trace=trace,
            task=task,
            judge=JudgeSpec.from_json(trace.header.judge),
            question=cassette.question,
            views={recipe.alias: _view(recipe, shown[recipe.alias]) for recipe in task.views},
            cassette=cassette,
            finding=last_finding(trace.events),
        )
    except ReplayMiss as error:
        problem = trace.problems[0] if trace.problems else "the trace does not say why"
        raise TraceError(f"{name} cannot be replayed: {error} ({problem})") from error
    except MALFORMED as error:
        more = f"; {trace.problems[0]}" if trace.problems else ""
        raise TraceError(
            f"{name} cannot be replayed: its content is not of the expected shape ({error!r}){more}"
        ) from error


def _view(recipe: Recipe, shown: ImagePart) -> View:
    """Return an image of the question as it was shown. Nothing is decoded."""
    if recipe.op == "whole":
        return View.whole(recipe.origin)
    return View(
        image=shown.image,
        origin=recipe.origin,
        region=recipe.region or Box.whole(width=recipe.origin.width, height=recipe.origin.height),
        window=Box.whole(width=shown.image.width, height=shown.image.height),
        op=recipe.op,
        params=recipe.params,
    )


class RecordedTraits:
    """Stands in for the backend of a replay without one: it has the recorded traits and gives no answers."""

    def __init__(self, recording: Recording) -> None:
        judge = recording.judge
        self.uri, self.endpoint, self.version = judge.backend, judge.endpoint, judge.backend_version
        recorded = parse_uri(judge.backend)
        self.traits = Traits(
            describes=f"what {judge.backend} answered",
            is_lmm=recorded.provider not in NOT_LMMS,
            image_tokens=image_tokens_of(recorded.model),
            max_image_side=max_image_side(recorded),
            native_tools=judge.tool_protocol == "native",
            constrains_schema=held(recording.trace.events),
        )

    def complete(self, request: Request, images: ImageStore) -> Reply:
        raise ReplayMiss(f"{self.uri} is not asked in a replay")


def listed_tools(toolbox: Toolbox, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the offered tools as a trace's header lists them."""
    return [
        {"name": spec.name, "version": toolbox.tools[spec.name].version, "schema": digest(spec.to_json())}
        for spec in toolbox.specs(names)
    ]


def offered_tools(recording: Recording) -> Toolbox:
    """Return the offered tools by name, description and arguments, for requests that name them. They cannot be called.

    No weights are loaded and no device is opened. A tool that is no longer installed is left out.
    """
    tools: dict[str, Tool] = {}
    for offered in recording.trace.header.tools:
        try:
            tools[str(offered["name"])] = cast(Any, plugins.load("tools", str(offered["name"])))
        except UnknownPlugin:
            continue
    return Toolbox(tools=tools)


@dataclass(frozen=True, kw_only=True)
class Live:
    """What answers live."""

    backend: LMM | None = None
    """The model; None if replies are recorded."""
    toolbox: Toolbox | None = None
    """The tools; None if observations are recorded."""
    langsmith: bool = False
    """Whether traces of the loop go to LangSmith."""

    def check(self, judge: JudgeSpec) -> None:
        """Raise ConfigError if the backend cannot continue this judge's recording, Unavailable if nobody answers there."""
        if self.backend is not None and judge.tool_protocol == "native" and not self.backend.traits.native_tools:
            raise ConfigError(
                f"the recording calls tools natively and {self.backend.uri} cannot: judge anew with --tool-protocol text"
            )
        if self.backend is not None:
            reach(self.backend)

    def changes_provider(self, judge: JudgeSpec) -> bool:
        """Return whether the live provider differs from the recorded one, whose private data must then be left out."""
        return self.backend is not None and parse_uri(self.backend.uri).provider != parse_uri(judge.backend).provider


def context_of(
    recording: Recording, recorder: TraceRecorder, live: Live, images: ImageStore, task: Ask | None = None
) -> Context:
    """Return the loop's context. Where no model is live, the clock stands still: recorded time is not spent again."""
    return Context(
        backend=live.backend or RecordedTraits(recording),
        judge=judge_of(recording, live),
        toolbox=live.toolbox or offered_tools(recording),
        images=images,
        recorder=recorder,
        task=task or recording.task,
        repeat=recording.trace.header.repeat,
        elapsed=stopwatch() if live.backend else lambda: 0.0,
        langsmith=live.langsmith,
    )


def judge_of(recording: Recording, live: Live) -> JudgeSpec:
    """Return who answers: the recorded judge, with the live parts put in where a model is live."""
    if live.backend is None:
        return recording.judge
    return replace(
        recording.judge,
        backend=live.backend.uri,
        backend_version=live.backend.version,
        endpoint=live.backend.endpoint,
        image_policy=str(live.backend.traits.image_policy),
        prompts=agent_digest(),
        tools=recording.judge.tools if live.toolbox is None else live.toolbox.versions(),
    )


def begin_child(folder: Path, recording: Recording, task: Ask, live: Live, parent: Parent) -> TraceWriter:
    """Create a trace in the run's `forks/` and write its header. Raises StorageError."""
    judge, old = judge_of(recording, live), recording.trace.header
    header = Header(
        editloupe=VERSION,
        run=old.run,
        task_id=task.id,
        judge_id=judge.id,
        repeat=old.repeat,
        task=task.to_json(),
        judge=judge.to_json(),
        tools=old.tools if live.toolbox is None else listed_tools(live.toolbox, task.tools),
        absent={} if live.toolbox is None else dict(live.toolbox.absent),
        parent=parent.to_json(),
    )
    try:
        writer = TraceWriter(_free(folder, recording.name), below=folder)
        writer.append(header)
    except OSError as error:
        raise StorageError(f"{folder / FORKS} cannot be written: {error.strerror or error}") from error
    if live.changes_provider(recording.judge) and any(m.carry is not None for m in recording.cassette.messages.values()):
        writer.append(Note(text=f"left out of the shared messages: what only {recording.judge.backend} understands"))
    return writer


def _free(folder: Path, name: str) -> Path:
    """Create the next free file of the family, so that no other process takes its name."""
    stem = family(name)
    number = 1
    while True:
        path = folder / FORKS / stem[:2] / f"{stem}.{number}.jsonl"
        try:
            files.append(path, below=folder, new=True).close()
        except FileExistsError:
            number += 1
            continue
        return path
