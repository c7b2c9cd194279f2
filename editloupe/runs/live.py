"""The live side of a replay or a fork: the backend, the tools, and the new trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import editloupe
from editloupe.agent.judge import agent_digest
from editloupe.agent.state import Context, Recorder, stopwatch
from editloupe.backends.base import LMM, parse_uri
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, StorageError
from editloupe.findings import JudgeSpec
from editloupe.runs.recording import RecordedTraits, Recording, listed_tools, offered_tools
from editloupe.tasks import Ask
from editloupe.tools.base import Toolbox
from editloupe.traces.events import Header, Note
from editloupe.traces.lineage import FORKS, Parent, family
from editloupe.traces.record import TraceWriter


@dataclass(frozen=True, kw_only=True)
class Live:
    """What answers live."""

    backend: LMM | None = None
    """The model; None if replies are recorded."""
    toolbox: Toolbox | None = None
    """The tools; None if observations are recorded."""

    def check(self, judge: JudgeSpec) -> None:
        """Raise ConfigError if the backend cannot continue a recording of this judge."""
        if self.backend is not None and judge.tool_protocol == "native" and not self.backend.traits.native_tools:
            raise ConfigError(
                f"the recording calls tools natively and {self.backend.uri} cannot: judge anew with --tool-protocol text"
            )

    def changes_provider(self, judge: JudgeSpec) -> bool:
        """Return whether the live provider differs from the recorded one, whose private data must then be left out."""
        return self.backend is not None and parse_uri(self.backend.uri).provider != parse_uri(judge.backend).provider


def context_of(
    recording: Recording, recorder: Recorder, live: Live, images: ImageStore, task: Ask | None = None
) -> Context:
    """Return the loop's context. Where no model is live, the clock stands still: recorded time is not spent again."""
    return Context(
        backend=live.backend or RecordedTraits(recording),
        judge=recording.judge if live.backend is None else judge_of(recording, live),
        toolbox=live.toolbox or offered_tools(recording),
        images=images,
        recorder=recorder,
        task=task or recording.task,
        repeat=recording.trace.header.repeat,
        elapsed=stopwatch() if live.backend else lambda: 0.0,
    )


def judge_of(recording: Recording, live: Live) -> JudgeSpec:
    """Return the judge of a new trace: the recorded judge with the live parts put in."""
    judge = recording.judge
    if live.toolbox is not None:
        judge = replace(judge, tools=live.toolbox.versions())
    if live.backend is None:
        return judge
    return replace(
        judge,
        backend=live.backend.uri,
        backend_version=live.backend.version,
        endpoint=live.backend.endpoint,
        image_policy=str(live.backend.traits.image_policy),
        prompts=agent_digest(),
    )


def begin_child(folder: Path, recording: Recording, task: Ask, live: Live, parent: Parent) -> TraceWriter:
    """Create a trace in the run's `forks/` and write its header. Raises StorageError."""
    toolbox = live.toolbox or offered_tools(recording)
    judge = judge_of(recording, live)
    old = recording.trace.header
    header = Header(
        editloupe=editloupe.__version__,
        run=old.run,
        task_id=task.id,
        judge_id=judge.id,
        repeat=old.repeat,
        task=task.to_json(),
        judge=judge.to_json(),
        tools=old.tools if live.toolbox is None else listed_tools(live.toolbox, task.tools),
        absent=dict(toolbox.absent),
        parent=parent.to_json(),
    )
    try:
        writer = TraceWriter(_free(folder, recording.name))
        writer.append(header)
    except OSError as error:
        raise StorageError(f"{folder / FORKS} cannot be written: {error.strerror or error}") from error
    if live.changes_provider(recording.judge) and any(m.carry is not None for m in recording.cassette.messages.values()):
        writer.append(Note(text=f"left out of the shared messages: what only {recording.judge.backend} understands"))
    return writer


def _free(folder: Path, name: str) -> Path:
    """Create the next free file of the family, so that no other process takes its name."""
    stem = family(name)
    where = folder / FORKS / stem[:2]
    where.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = where / f"{stem}.{number}.jsonl"
        try:
            path.open("xb").close()
        except FileExistsError:
            number += 1
            continue
        return path


def versions_changed(recording: Recording, toolbox: Toolbox) -> Mapping[str, tuple[str, str]]:
    """Return tool → (recorded version, version here) where they differ."""
    then = {str(t["name"]): str(t["version"]) for t in recording.trace.header.tools}
    now = toolbox.versions()
    return {name: (then[name], now[name]) for name in then if name in now and then[name] != now[name]}
