"""Answer from what is recorded, by ordinal, until the recording ends; then go on live. Resume is this and nothing more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from editloupe.agent.state import ToolOutcome
from editloupe.chat import Message, Reply, Request, ToolCall, message_hash
from editloupe.errors import BackendError, Interrupted, ReplayMiss
from editloupe.findings import Observation
from editloupe.traces.events import MessageEvent, ModelCall, ModelFailure, Note, ToolResult, ToolStarted
from editloupe.traces.record import TraceWriter
from editloupe.values import Json


class TraceTape:
    """The tape of one task over its trace file: recorded model and tool calls first, then live ones, recorded.

    stop: once set, nothing new is started (Interrupted). Raises ReplayMiss where the recording holds another request.
    """

    def __init__(self, writer: TraceWriter, *, stop: threading.Event | None = None) -> None:
        self.writer = writer
        self._stop = stop or threading.Event()
        self._messages: dict[str, Message] = {}
        self._recorded_models: list[ModelCall] = []
        self._recorded_tools: list[ToolResult] = []
        self._models = self._tools = 0
        for event in writer.events:
            if isinstance(event, MessageEvent):
                self._messages[event.hash] = Message.from_json(event.message)
            elif isinstance(event, ModelCall):
                self._recorded_models.append(event)
            elif isinstance(event, ToolResult):
                self._recorded_tools.append(event)

    @property
    def replaying(self) -> bool:
        """Whether recorded calls are still ahead."""
        return self._models < len(self._recorded_models) or self._tools < len(self._recorded_tools)

    def add(self, message: Message, parent: str | None) -> str:
        key = message_hash(message, parent)
        if key not in self._messages:
            self._messages[key] = message
            self.writer.append(MessageEvent(hash=key, parent=parent, message=message.to_json()))
        return key

    def messages(self, history: Sequence[str]) -> tuple[Message, ...]:
        return tuple(self._messages[key] for key in history)

    def complete(self, request: Request, head: str, live: Callable[[], Reply]) -> Reply:
        ordinal, key = self._models, request.key()
        if ordinal < len(self._recorded_models):
            recorded = self._recorded_models[ordinal]
            if recorded.request_key != key:
                raise ReplayMiss(self._difference(recorded, head, request))
            self._models += 1
            return Reply.from_json(recorded.reply)
        self._check_stop()
        began = time.monotonic()
        try:
            reply = live()
        except BackendError as error:
            if self._stop.is_set():
                raise Interrupted("the run was asked to stop while the backend was failing") from error
            self.writer.append(
                ModelFailure(
                    ordinal=ordinal, request_key=key, error=type(error).__name__, message=str(error), status=error.status
                )
            )
            raise
        self.writer.append(
            ModelCall(
                ordinal=ordinal,
                request_key=key,
                head=head,
                choices=None if request.choices is None else list(request.choices),
                reply=reply.to_json(),
                seconds=round(time.monotonic() - began, 4),
            )
        )
        self._models += 1
        return reply

    def call_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        ordinal = self._tools
        if ordinal < len(self._recorded_tools):
            recorded = self._recorded_tools[ordinal]
            if recorded.call != call.to_json():
                raise ReplayMiss(
                    f"tool call {ordinal + 1} was recorded as {recorded.call['name']}{recorded.call['arguments']}, "
                    f"and is now {call.name}{dict(call.arguments)}"
                )
            self._tools += 1
            return ToolOutcome(
                observation=Observation.from_json(recorded.observation),
                aliases=tuple(recorded.aliases),
                crashed=recorded.crashed,
                cached=recorded.cached,
            )
        self._check_stop()
        self.writer.append(ToolStarted(ordinal=ordinal, call=call.to_json()))
        began = time.monotonic()
        outcome = live()
        self.writer.append(
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
        self._tools += 1
        return outcome

    def note(self, text: str, data: Mapping[str, Json] | None = None) -> None:
        if not self.replaying:
            self.writer.append(Note(text=text, data=dict(data or {})))

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Interrupted("the run was asked to stop; this task goes on from here next time")

    def _difference(self, recorded: ModelCall, head: str, request: Request) -> str:
        where = f"model call {recorded.ordinal + 1}: the recorded request {recorded.request_key[:12]} differs from this one"
        if recorded.head != head:
            return f"{where} in its messages (recorded up to {recorded.head[:12]}, now {head[:12]})"
        choices = None if request.choices is None else list(request.choices)
        if recorded.choices != choices:
            return f"{where} in choices (recorded {recorded.choices}, now {choices})"
        return f"{where} in sampling or tools (now {request.sampling.to_json()})"


def set_aside(path: Path) -> Path | None:
    """Rename a trace that cannot be continued, so that the task starts anew and nothing is lost; None without a file."""
    if not path.exists():
        return None
    number = 1
    while (kept := path.with_name(f"{path.name.removesuffix('.jsonl')}.aside-{number}.jsonl")).exists():
        number += 1
    return path.rename(kept)
