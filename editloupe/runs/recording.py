"""A recorded task, and the loop that runs it again with what answers live instead; its new trace lies in `forks/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

from editloupe import files, plugins
from editloupe.agent.judge import agent_digest
from editloupe.agent.recorder import Side, TraceRecorder
from editloupe.agent.state import Context, stopwatch
from editloupe.backends.base import LMM, parse_uri, reach
from editloupe.backends.recorded import Unasked
from editloupe.chat import ImagePart
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ReplayMiss, TraceError, UnknownPlugin
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs.lineage import FORKS, Parent, family, read_whole
from editloupe.tasks import Ask, Recipe, task_from_json
from editloupe.tools.base import Tool, Toolbox
from editloupe.traces.cassette import Cassette
from editloupe.traces.events import Header, Note
from editloupe.traces.read import Trace, last_finding
from editloupe.traces.record import TraceWriter
from editloupe.values import Box, Json, View, digest
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
            raise ReplayMiss("it holds no question")
        shown = {part.alias: part for part in cassette.question.images}
        return Recording(
            name=name,
            trace=trace,
            task=task,
            judge=JudgeSpec.from_json(trace.header.judge),
            views={recipe.alias: _view(recipe, shown[recipe.alias]) for recipe in task.views},
            cassette=cassette,
            finding=last_finding(trace.events),
        )
    except (ReplayMiss, *MALFORMED) as error:
        why = str(error) if isinstance(error, ReplayMiss) else f"its content is not of the expected shape ({error!r})"
        raise TraceError("; ".join((f"{name} cannot be replayed: {why}", *trace.problems[:1]))) from error


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


def listed_tools(toolbox: Toolbox, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the offered tools as a trace's header lists them."""
    return [
        {"name": spec.name, "version": toolbox.tools[spec.name].version, "schema": digest(spec.to_json())}
        for spec in toolbox.specs(names)
    ]


def _offered_tools(recording: Recording) -> Toolbox:
    """Return the offered tools by name, description and arguments, for requests that name them. They cannot be called.

    No weights are loaded and no device is opened. A tool that is no longer installed is left out.
    """
    tools: dict[str, Tool] = {}
    for name in (str(offered["name"]) for offered in recording.trace.header.tools):
        with suppress(UnknownPlugin):
            tools[name] = cast(Any, plugins.load("tools", name))
    return Toolbox(tools=tools)


@dataclass(frozen=True, kw_only=True)
class Live:
    """What answers live."""

    backend: LMM | None = None
    """The model; None if replies are recorded."""
    toolbox: Toolbox | None = None
    """The tools; None if observations are recorded."""

    @property
    def model(self) -> Side:
        """Where replies come from."""
        return "recorded" if self.backend is None else "live"

    @property
    def tools(self) -> Side:
        """Where observations come from."""
        return "recorded" if self.toolbox is None else "live"

    def check(self, judge: JudgeSpec) -> None:
        """Raise ConfigError if the backend cannot continue this judge's recording, Unavailable if nobody answers there."""
        if self.backend is None:
            return
        if judge.tool_protocol == "native" and not self.backend.traits.native_tools:
            raise ConfigError(
                f"the recording calls tools natively and {self.backend.uri} cannot: judge again, --set tool_protocol=text"
            )
        reach(self.backend)

    def judge(self, recorded: JudgeSpec) -> JudgeSpec:
        """Return who answers: the recorded judge, with the live parts put in where a model is live."""
        if self.backend is None:
            return recorded
        return replace(
            recorded,
            backend=self.backend.uri,
            backend_version=self.backend.version,
            endpoint=self.backend.endpoint,
            image_policy=str(self.backend.traits.image_policy),
            prompts=agent_digest(),
            tools=recorded.tools if self.toolbox is None else self.toolbox.versions(),
        )


@contextmanager
def reopened(
    folder: Path, recording: Recording, live: Live, *, changes: Mapping[str, str] | None = None, forks: bool = False
) -> Iterator[Context]:
    """Open the loop of a recorded task. Where a model is live, the recorder writes what is new to a trace in `forks/`.

    changes: as in `Parent`, the backend aside.   forks: whether all is recorded until the recorder goes live.
    """
    cassette, left_out = recording.cassette, ""
    other = live.backend is not None and parse_uri(live.backend.uri).provider != parse_uri(recording.judge.backend).provider
    if other and any(message.carry is not None for message in cassette.messages.values()):
        messages = {key: replace(message, carry=None) for key, message in cassette.messages.items()}
        cassette = replace(cassette, messages=messages)
        left_out = f"left out of the shared messages: what only {recording.judge.backend} understands"

    def begin(head: str, step: int, tools: int) -> TraceWriter:
        """Create the next free trace of the family, and write its header. Raises StorageError."""
        uri, old = "" if live.backend is None else live.backend.uri, recording.trace.header
        changed = {**({"backend": uri} if uri != recording.judge.backend else {}), **(changes or {})}
        why = "fork" if forks else "replay"
        parent = Parent(trace=recording.name, head=head, step=step, tools=tools, why=why, changes=changed)
        judge, box = live.judge(recording.judge), live.toolbox
        header = Header(
            editloupe=VERSION,
            run=old.run,
            task_id=recording.task.id,
            judge_id=judge.id,
            repeat=old.repeat,
            task=recording.task.to_json(),
            judge=judge.to_json(),
            tools=old.tools if box is None else listed_tools(box, recording.task.tools),
            absent={} if box is None else dict(box.absent),
            parent=parent.to_json(),
        )
        with files.writing(folder / FORKS):
            writer = TraceWriter(_free(folder, recording.name), below=folder)
            writer.append(header)
        if left_out:
            writer.append(Note(text=left_out))
        return writer

    sides: tuple[Side, Side] = ("recorded", "recorded") if forks else (live.model, live.tools)
    recorder = TraceRecorder(
        cassette=cassette,
        model=sides[0],
        tools=sides[1],
        exact=not forks and sides == ("recorded", "recorded"),
        open_trace=None if live.backend is None else begin,
    )
    held = any(call.held for call in cassette.models)
    try:
        yield Context(
            backend=live.backend or Unasked(recording.judge, held=held),
            judge=live.judge(recording.judge),
            toolbox=live.toolbox or _offered_tools(recording),
            # Each task has its own store, which frees the images that are compared and not kept.
            images=ImageStore(folder / "blobs", writes=live.backend is not None),
            recorder=recorder,
            task=recording.task,
            repeat=recording.trace.header.repeat,
            # Where no model is live, the clock stands still: recorded time is not spent again.
            elapsed=stopwatch() if live.backend else lambda: 0.0,
        )
    finally:
        if recorder.writer is not None:
            recorder.writer.close()


def outcome(finding: Finding) -> dict[str, Json]:
    """Return what a finding says, as JSON."""
    return {"status": finding.status, "label": finding.label, "value": finding.value}


def _free(folder: Path, name: str) -> Path:
    """Create the next free file of the family, so that no other process takes its name."""
    stem = family(name)
    for number in count(1):
        path = folder / FORKS / stem[:2] / f"{stem}.{number}.jsonl"
        with suppress(FileExistsError):
            files.append(path, below=folder, new=True).close()
            return path
    raise AssertionError("numbers do not end")
