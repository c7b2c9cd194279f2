"""The recorder of one task: it answers from a recording, goes live where it may, and writes what is new to a trace.

A live task, a resume, a replay and a fork differ only in the recording and in the settings of `TraceRecorder`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from editloupe.chat import Message, Reply, Request, ToolCall, message_hash
from editloupe.errors import BackendError, Interrupted
from editloupe.tools.outcome import ToolOutcome
from editloupe.traces.cassette import Cassette, content_key
from editloupe.traces.events import Event, MessageEvent, ModelCall, ModelFailure, Note, ToolResult, ToolStarted
from editloupe.traces.record import TraceWriter

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
    resumes: bool = False
    """Whether model and tools go live where the recording ends, which is a ReplayMiss otherwise."""
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
        self._asked: Counter[str] = Counter()

    @classmethod
    def resume(cls, writer: TraceWriter, *, stop: threading.Event | None = None) -> TraceRecorder:
        """Return a recorder that continues the trace of `writer`, which may be empty. Raises as `Cassette.of`."""
        cassette, stop = Cassette.of(writer.events), stop or threading.Event()
        return cls(cassette=cassette, exact=True, resumes=True, open_trace=lambda *_: writer, stop=stop)

    def go_live(self) -> None:
        """Answer nothing more from the recording, and share nothing more with it."""
        self.model = self.tools = "live"
        self._shared = False

    @property
    def trace(self) -> str | None:
        """Path of the new trace inside the run folder; None if nothing was written to a file."""
        return None if self.writer is None else self.writer.name

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
        return tuple(self._messages[key] for key in history)

    def note(self, text: str) -> None:
        """Write a remark for readers. What is shared has its remarks already."""
        if not self._shared:
            self._write(Note(text=text))

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
            if recorded is not None or not self.resumes:
                raise self.cassette.request_miss(ordinal, request)
            self.model = self.tools = "live"
        self._begin_live()
        asked, began = {"ordinal": ordinal, "request_key": request.key()}, time.monotonic()
        try:
            reply = live()
        except BackendError as error:
            if self.stop.is_set():
                raise Interrupted("the run was asked to stop while the backend was failing") from error
            failed = {"error": type(error).__name__, "message": str(error), "status": error.status}
            self._write(ModelFailure.model_validate(asked | failed))
            raise
        answered = {"head": head, "held": request.answer_schema is not None, "reply": reply.to_json()}
        self._write(ModelCall.model_validate({**asked, **answered, "seconds": round(time.monotonic() - began, 4)}))
        self.models_answered += 1
        return reply

    def call_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        """Return the recorded outcome, else the live one, recorded. Raises as `complete`."""
        recorded = self._recorded_result(call)
        if recorded is None and self.tools == "recorded" and not self.resumes:
            raise self.cassette.tool_miss(self.tools_answered, call)
        if recorded is not None and self.tools == "live":
            if self.compare_tool is None:
                recorded = None
            else:
                self.compare_tool(self.cassette.tool_steps[self.tools_answered], recorded, live)
        if recorded is None:
            outcome = self._run_tool(call, live)
        else:
            outcome = ToolOutcome.from_json(dict(recorded))
            if not self._shared:
                place = {"ordinal": self.tools_answered, "call": call.to_json()}
                self._write(recorded.model_copy(update=place))
        self.tools_answered += 1
        images = outcome.observation.images
        self._image_names |= dict(zip(outcome.aliases, (image.sha256 for image in images), strict=True))
        return outcome

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

    def _recorded_result(self, call: ToolCall) -> ToolResult | None:
        """Return the recorded result: the next one while the model is recorded, else one of the same call on the same
        images whose own images would get the same names."""
        ordinal = self.tools_answered
        if self.model == "recorded":
            recorded = self.cassette.tools[ordinal] if ordinal < len(self.cassette.tools) else None
            if recorded is not None and recorded.call != call.to_json():
                raise self.cassette.tool_miss(ordinal, call)
            return recorded
        if self.tools == "live":
            return None
        key = content_key(call, self._image_names)
        self._asked[key] += 1
        return next(iter(self.cassette.tools_by_content.get(key, [])[self._asked[key] - 1 :]), None)

    def _run_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        self._begin_live()
        asked, began = {"ordinal": self.tools_answered, "call": call.to_json()}, time.monotonic()
        self._write(ToolStarted.model_validate(asked))
        outcome = live()
        seconds = round(time.monotonic() - began, 4)
        self._write(ToolResult.model_validate({**asked, "seconds": seconds, **outcome.to_json()}))
        return outcome
