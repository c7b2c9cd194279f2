"""The recorder of one task: it answers from a recording, goes live where it may, and writes what is new to a trace.

A live task, a resume, a replay and a fork differ only in the recording and in `RecorderMode`.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from editloupe.agent.state import ToolOutcome
from editloupe.chat import Message, Reply, Request, ToolCall, message_hash
from editloupe.errors import BackendError, Interrupted
from editloupe.findings import Finding, Observation
from editloupe.runs.cassette import Cassette, content_key
from editloupe.traces.events import (
    Event,
    MessageEvent,
    ModelCall,
    ModelFailure,
    Note,
    ToolResult,
    ToolStarted,
)
from editloupe.traces.record import TraceWriter
from editloupe.values import Json

Side: TypeAlias = Literal["recorded", "live"]

OpenTrace: TypeAlias = Callable[[str, int, int], TraceWriter]
"""Opens the trace for what is new: (hash of the last shared message, shared model calls, shared tool results)."""

CompareTool: TypeAlias = Callable[[int, ToolResult, Callable[[], ToolOutcome]], None]
"""Compares a recorded tool result with a live call: (step from 1, recorded result, the live call)."""


@dataclass(frozen=True, kw_only=True)
class RecorderMode:
    """Where the answers of a task come from."""

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


class TraceRecorder:
    """Answers the calls of one task and records them. Not thread-safe: each task has its own.

    Up to the first thing that is not recorded, all is shared with the recording and nothing is written.
    """

    def __init__(
        self,
        cassette: Cassette,
        mode: RecorderMode | None = None,
        *,
        open_trace: OpenTrace | None = None,
        compare_tool: CompareTool | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Begin at the start of the recording.

        open_trace: called at the first event that is not shared; None keeps nothing.
        compare_tool: called where a recorded model meets live tools. The loop still gets the recorded result, so that a
        difference has no consequences.
        stop: once it is set, each live call raises Interrupted.
        """
        self.cassette = cassette
        self.mode = mode or RecorderMode()
        self.models_answered = self.tools_answered = 0
        self.writer: TraceWriter | None = None
        self._open_trace, self._compare_tool = open_trace, compare_tool
        self._stop = stop or threading.Event()
        self._model, self._tools = self.mode.model, self.mode.tools
        self._messages = dict(cassette.messages)
        self._shared = True
        self._shared_head = cassette.following.get(None, "")
        self._shared_models = self._shared_tools = 0
        self._added: set[str] = set()
        self._image_names = cassette.question_images()
        self._asked: defaultdict[str, int] = defaultdict(int)

    @classmethod
    def resume(cls, writer: TraceWriter, *, stop: threading.Event | None = None) -> TraceRecorder:
        """Return a recorder that continues the trace of `writer`, which may be empty: first recorded answers, then live
        ones. Raises ReplayMiss if a call in the middle of the trace is missing.
        """
        mode = RecorderMode(exact=True, on_miss="live")
        return cls(Cassette.of(writer.events), mode, open_trace=lambda *_: writer, stop=stop)

    def go_live(self) -> None:
        """Answer nothing more from the recording, and share nothing more with it."""
        self._model = self._tools = "live"
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

    # The `Recorder` protocol, for the loop

    def add(self, message: Message, parent: str | None) -> str:
        """Record a message behind `parent` and return its hash."""
        follows = self._model == "recorded" and not self.mode.exact and self._shared
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
            replace(m, carry=None) if self.mode.drop_carry and key in self.cassette.messages else m for key, m in messages
        )

    def complete(self, request: Request, head: str, live: Callable[[], Reply]) -> Reply:
        """Return the recorded reply, else the live one, recorded. Raises ReplayMiss, Interrupted and what `live` raises."""
        ordinal = self.models_answered
        if self._model == "recorded":
            recorded = self.cassette.models[ordinal] if ordinal < len(self.cassette.models) else None
            if recorded is not None and (not self.mode.exact or recorded.request_key == request.key()):
                self.models_answered += 1
                if self._shared:
                    self._shared_models = self.models_answered
                else:
                    self._write(recorded)
                return Reply.from_json(recorded.reply)
            if recorded is not None or self.mode.on_miss == "raise":
                raise self.cassette.request_miss(ordinal, request)
            self._model = "live"
            self._tools = "live" if self.mode.exact else self._tools
        self._begin_live()
        key, began = request.key(), time.monotonic()
        try:
            reply = live()
        except BackendError as error:
            if self._stop.is_set():
                raise Interrupted("the run was asked to stop while the backend was failing") from error
            name = type(error).__name__
            self._write(ModelFailure(ordinal=ordinal, request_key=key, error=name, message=str(error), status=error.status))
            raise
        self._write(
            ModelCall(
                ordinal=ordinal,
                request_key=key,
                head=head,
                choices=None if request.choices is None else list(request.choices),
                reply=reply.to_json(),
                seconds=round(time.monotonic() - began, 4),
            )
        )
        self.models_answered += 1
        return reply

    def call_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        """Return the recorded outcome, else the live one, recorded. Raises as `complete`."""
        ordinal = self.tools_answered
        recorded = self._recorded_result(call, ordinal)
        if recorded is None and self._tools == "recorded" and self.mode.on_miss == "raise":
            raise self.cassette.tool_miss(ordinal, call)
        if recorded is None or (self._tools == "live" and self._compare_tool is None):
            outcome = self._run_tool(call, ordinal, live)
        else:
            if self._tools == "live" and self._compare_tool is not None:
                self._compare_tool(self.cassette.tool_steps[ordinal], recorded, live)
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
        if self.writer is None and self._open_trace is not None:
            self.writer = self._open_trace(self._shared_head, self._shared_models, self._shared_tools)
        if self.writer is not None:
            self.writer.append(event)

    def _begin_live(self) -> None:
        if self._stop.is_set():
            raise Interrupted("the run was asked to stop; this task goes on from here next time")
        self._shared = False

    def _recorded_result(self, call: ToolCall, ordinal: int) -> ToolResult | None:
        """Return the recorded result: the next one while the model is recorded, else one of the same call on the same
        images whose own images would get the same names."""
        if self._model == "recorded":
            if ordinal >= len(self.cassette.tools):
                return None
            recorded = self.cassette.tools[ordinal]
            if recorded.call == call.to_json():
                return recorded
            if self.mode.exact or self.mode.on_miss == "raise":
                raise self.cassette.order_miss(ordinal, call)
            return None
        if self._tools == "live":
            return None
        key = content_key(call, self._image_names)
        found, at = self.cassette.tools_by_content.get(key, []), self._asked[key]
        self._asked[key] += 1
        return found[at] if at < len(found) else None

    def _reuse_result(self, recorded: ToolResult, call: ToolCall, ordinal: int) -> ToolOutcome:
        observation = Observation.from_json(recorded.observation)
        if ordinal in self.mode.edits:
            observation = replace(observation, text=self.mode.edits[ordinal])
            self._shared = False
        if self._shared:
            self._shared_tools = ordinal + 1
        else:
            update = {"ordinal": ordinal, "call": call.to_json(), "observation": observation.to_json()}
            self._write(recorded.model_copy(update=update))
        return ToolOutcome(
            observation=observation,
            aliases=tuple(recorded.aliases),
            crashed=recorded.crashed,
            cached=recorded.cached,
        )

    def _run_tool(self, call: ToolCall, ordinal: int, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        self._begin_live()
        self._write(ToolStarted(ordinal=ordinal, call=call.to_json()))
        began = time.monotonic()
        outcome = live()
        self._write(
            ToolResult(
                ordinal=ordinal,
                call=call.to_json(),
                observation=outcome.observation.to_json(),
                aliases=list(outcome.aliases),
                crashed=outcome.crashed,
                cached=outcome.cached,
                seconds=round(time.monotonic() - began, 4),
            )
        )
        return outcome
