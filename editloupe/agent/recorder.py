"""The recorder of one task: it answers from a recording, goes live where it may, and writes what is new to a trace.

A live task, a resume, a replay and a fork differ only in the recording and in the settings of `TraceRecorder`.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from editloupe.agent.cassette import Cassette, content_key
from editloupe.chat import Message, Reply, Request, ToolCall, message_hash
from editloupe.errors import BackendError, Interrupted
from editloupe.findings import Finding
from editloupe.tools.outcome import ToolOutcome
from editloupe.traces.events import Event, MessageEvent, ModelCall, ModelFailure, Note, ToolResult, ToolStarted
from editloupe.traces.record import TraceWriter
from editloupe.values import Json

Side: TypeAlias = Literal["recorded", "live"]


@dataclass(kw_only=True, eq=False)
class TraceRecorder:
    """Answers the calls of one task and records them. Not thread-safe: each task has its own.

    Up to the first thing that is not recorded, all is shared with the recording and nothing is written.
    """

    cassette: Cassette
    """The recording."""
    model: Side = "recorded"
    """Where replies come from."""
    tools: Side = "recorded"
    """Where observations come from."""
    exact: bool = False
    """Whether requests and calls must equal the recorded ones. Otherwise the recorded conversation is followed, whatever
    this version would write today."""
    on_miss: Literal["raise", "live"] = "raise"
    """What happens where the recording ends. "raise": ReplayMiss. "live": the model goes live; later tool calls are looked
    up in the recording by content, or with `exact` go live too."""
    edits: Mapping[int, str] = field(default_factory=dict)
    """Ordinal of a tool result → another text of its observation."""
    drop_carry: bool = False
    """Whether recorded messages are sent without the data that only their own provider understands."""

    open_trace: Callable[[str, int, int], TraceWriter] | None = None
    """Opens the trace at the first event that is not shared: (hash of the last shared message, shared model calls, shared
    tool results). None keeps nothing."""
    compare_tool: Callable[[int, ToolResult, Callable[[], ToolOutcome]], None] | None = None
    """Called where a recorded model meets live tools: (step from 1, recorded result, the live call). The loop still gets
    the recorded result, so that a difference has no consequences."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Once it is set, each live call raises Interrupted."""

    writer: TraceWriter | None = field(default=None, init=False)
    """The new trace, once there is one."""
    models_answered: int = field(default=0, init=False)
    tools_answered: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._messages = dict(self.cassette.messages)
        self._shared = True
        self._shared_head = self.cassette.following.get(None, "")
        self._added: set[str] = set()
        self._image_names = self.cassette.question_images()
        self._asked: defaultdict[str, int] = defaultdict(int)

    @classmethod
    def resume(cls, writer: TraceWriter, *, stop: threading.Event | None = None) -> TraceRecorder:
        """Return a recorder that continues the trace of `writer`, which may be empty: first recorded answers, then live
        ones. Raises ReplayMiss if a call in the middle of the trace is missing.
        """
        return cls(
            cassette=Cassette.of(writer.events),
            exact=True,
            on_miss="live",
            open_trace=lambda *_: writer,
            stop=stop or threading.Event(),
        )

    def go_live(self) -> None:
        """Answer nothing more from the recording, and share nothing more with it."""
        self.model = self.tools = "live"
        self._shared = False

    def trace_name(self, folder: Path) -> str | None:
        """Return the path of the new trace inside the run folder; None if nothing was written to a file."""
        path = None if self.writer is None else self.writer.path
        return None if path is None else str(path.relative_to(folder))

    def finish(self, finding: Finding, folder: Path) -> Finding:
        """Write the finding and the end to the new trace, if there is one. Return the finding with the trace's path."""
        finding = replace(finding, trace=self.trace_name(folder) or finding.trace)
        if self.writer is not None:
            self.writer.finish(finding)
        return finding

    def close(self) -> None:
        """Close the new trace, if there is one."""
        if self.writer is not None:
            self.writer.close()

    # For the loop

    def add(self, message: Message, parent: str | None) -> str:
        """Record a message behind `parent` and return its hash."""
        follows = self.model == "recorded" and not self.exact and self._shared
        key = (self.cassette.following.get(parent) if follows else None) or message_hash(message, parent)
        if self._shared and key in self.cassette.messages:
            self._shared_head = key
        elif key not in self._added:
            self._shared = False
            self._messages[key] = message
            self._write(MessageEvent(hash=key, parent=parent, message=message.to_json()))
        self._added.add(key)
        return key

    def messages(self, history: Sequence[str]) -> tuple[Message, ...]:
        """Return the messages with these hashes."""
        messages = [(key, self._messages[key]) for key in history]
        return tuple(
            replace(m, carry=None) if self.drop_carry and key in self.cassette.messages else m for key, m in messages
        )

    def complete(self, request: Request, head: str, live: Callable[[], Reply]) -> Reply:
        """Return the recorded reply, else the live one, recorded. Raises ReplayMiss, Interrupted and what `live` raises."""
        ordinal = self.models_answered
        if self.model == "recorded":
            recorded = self.cassette.models[ordinal] if ordinal < len(self.cassette.models) else None
            if recorded is not None and (not self.exact or recorded.request_key == request.key()):
                if not self._shared:
                    self._write(recorded)
                self.models_answered += 1
                return recorded.content
            if recorded is not None or self.on_miss == "raise":
                raise self.cassette.request_miss(ordinal, request)
            self.model = "live"
            self.tools = "live" if self.exact else self.tools
        self._begin_live()
        key, began = request.key(), time.monotonic()
        try:
            reply = live()
        except BackendError as error:
            if self.stop.is_set():
                raise Interrupted("the run was asked to stop while the backend was failing") from error
            name = type(error).__name__
            self._write(ModelFailure(ordinal=ordinal, request_key=key, error=name, message=str(error), status=error.status))
            raise
        held, seconds = request.answer_schema is not None, round(time.monotonic() - began, 4)
        self._write(
            ModelCall(ordinal=ordinal, request_key=key, head=head, held=held, reply=reply.to_json(), seconds=seconds)
        )
        self.models_answered += 1
        return reply

    def call_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        """Return the recorded outcome, else the live one, recorded. Raises as `complete`."""
        ordinal = self.tools_answered
        recorded = self._recorded_result(call, ordinal)
        if recorded is None and self.tools == "recorded" and self.on_miss == "raise":
            raise self.cassette.tool_miss(ordinal, call)
        if recorded is None or (self.tools == "live" and self.compare_tool is None):
            outcome = self._run_tool(call, ordinal, live)
        else:
            if self.tools == "live" and self.compare_tool is not None:
                self.compare_tool(self.cassette.tool_steps[ordinal], recorded, live)
            outcome = self._reuse_result(recorded, call, ordinal)
        self.tools_answered += 1
        images = outcome.observation.images
        self._image_names |= dict(zip(outcome.aliases, (image.sha256 for image in images), strict=True))
        return outcome

    def note(self, text: str, data: Mapping[str, Json] | None = None) -> None:
        """Write a remark for readers. What is shared has its remarks already."""
        if not self._shared:
            self._write(Note(text=text, data=dict(data or {})))

    # Inside

    def _write(self, event: Event) -> None:
        if self.writer is None and self.open_trace is not None:
            self.writer = self.open_trace(self._shared_head, self.models_answered, self.tools_answered)
        if self.writer is not None:
            self.writer.append(event)

    def _begin_live(self) -> None:
        if self.stop.is_set():
            raise Interrupted("the run was asked to stop; this task goes on from here next time")
        self._shared = False

    def _recorded_result(self, call: ToolCall, ordinal: int) -> ToolResult | None:
        """Return the recorded result: the next one while the model is recorded, else one of the same call on the same
        images whose own images would get the same names."""
        if self.model == "recorded":
            recorded = self.cassette.tools[ordinal] if ordinal < len(self.cassette.tools) else None
            if recorded is None or recorded.call == call.to_json():
                return recorded
            if self.exact or self.on_miss == "raise":
                raise self.cassette.tool_miss(ordinal, call)
            return None
        if self.tools == "live":
            return None
        key = content_key(call, self._image_names)
        found, at = self.cassette.tools_by_content.get(key, []), self._asked[key]
        self._asked[key] += 1
        return found[at] if at < len(found) else None

    def _reuse_result(self, recorded: ToolResult, call: ToolCall, ordinal: int) -> ToolOutcome:
        outcome = ToolOutcome.from_json(dict(recorded))
        if ordinal in self.edits:
            outcome = replace(outcome, observation=replace(outcome.observation, text=self.edits[ordinal]))
            self._shared = False
        if not self._shared:
            update = {"ordinal": ordinal, "call": call.to_json(), "observation": outcome.observation.to_json()}
            self._write(recorded.model_copy(update=update))
        return outcome

    def _run_tool(self, call: ToolCall, ordinal: int, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        self._begin_live()
        self._write(ToolStarted(ordinal=ordinal, call=call.to_json()))
        began = time.monotonic()
        outcome = live()
        took = {"ordinal": ordinal, "call": call.to_json(), "seconds": round(time.monotonic() - began, 4)}
        self._write(ToolResult.model_validate({**took, **outcome.to_json()}))
        return outcome
