"""The tape of a replay: each side, model and tools, answered from a recording or live."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from editloupe import errors
from editloupe.agent.state import ToolOutcome
from editloupe.backends.request_diff import chain, difference, short
from editloupe.chat import Message, Reply, Request, ToolCall, message_hash
from editloupe.errors import BackendError, ReplayMiss
from editloupe.findings import Observation
from editloupe.runs.recording import Recording
from editloupe.traces.events import Event, MessageEvent, ModelCall, ModelFailure, Note, ToolResult, ToolStarted
from editloupe.traces.record import TraceWriter
from editloupe.values import Json, canonical_json

Side: TypeAlias = Literal["recorded", "live"]
RecordMode: TypeAlias = Literal["none", "once", "new_episodes", "all"]

Begin: TypeAlias = Callable[[str, int, int], TraceWriter]
"""Opens the trace of what is not shared: (hash of the last shared message, shared model calls, shared tool results)."""

Look: TypeAlias = Callable[[int, ToolResult, Callable[[], ToolOutcome]], None]
"""Sees each recorded tool result (its step, itself, the call made live) where a recorded model meets live tools."""


class RecordingEnds(ReplayMiss):
    """Everything recorded has been answered, and the loop would go on."""


@dataclass
class PlayTape:
    """Answers a loop from a recording.

    model, tools: where answers come from.   strict: requests must be the very same as recorded; otherwise the conversation
    is followed as it was, whatever this version would write today.   extend: what is not recorded is done live; otherwise
    it is a ReplayMiss, which names the nearest recording and the first difference.   edits: tool result (from 0) → another
    text of its observation.   look: see `Look`; the loop is given what was recorded, so that each call is seen alone.
    without_carry: recorded messages without what only the provider of their replies understands.
    begin: see `Begin`; called with the first event that is not shared. None keeps nothing.
    Not thread-safe: one tape a task.
    """

    recording: Recording
    model: Side = "recorded"
    tools: Side = "recorded"
    strict: bool = False
    extend: bool = False
    edits: Mapping[int, str] | None = None
    look: Look | None = None
    without_carry: bool = False
    begin: Begin | None = None

    def __post_init__(self) -> None:
        self.models_told = self.tools_told = 0
        self.writer: TraceWriter | None = None
        self._messages = dict(self.recording.messages)
        # Until the first thing that is not recorded, everything is shared with the recording.
        self._shares = True
        self._head = self.recording.first
        self._kept: set[str] = set()
        self._shared_models = self._shared_tools = 0
        self._names = {alias: view.image.sha256 for alias, view in self.recording.views.items()}
        self._steps = self.recording.steps_of_tools()
        self._asked: defaultdict[str, int] = defaultdict(int)
        self._table: dict[str, list[ToolResult]] | None = None

    def leave(self) -> None:
        """From here on both sides are live, and nothing is shared any more."""
        self.model = self.tools = "live"
        self._shares = False

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    # The loop's side

    def add(self, message: Message, parent: str | None) -> str:
        known = self.recording.following.get(parent) if self._follows else None
        key = known or message_hash(message, parent)
        if self._shares and key in self.recording.messages:
            self._head = key
        elif key not in self._kept:
            self._shares = False
            self._messages[key] = message
            self._write(MessageEvent(hash=key, parent=parent, message=message.to_json()))
        self._kept.add(key)
        return key

    def messages(self, history: Sequence[str]) -> tuple[Message, ...]:
        return tuple(self._sent(key) for key in history)

    def complete(self, request: Request, head: str, live: Callable[[], Reply]) -> Reply:
        ordinal = self.models_told
        if self.model == "recorded":
            recorded = self.recording.models[ordinal] if ordinal < len(self.recording.models) else None
            if recorded is not None and (not self.strict or recorded.request_key == request.key()):
                self.models_told += 1
                if self._shares:
                    self._shared_models = self.models_told
                else:
                    self._write(recorded)
                return Reply.from_json(recorded.reply)
            if not self.extend:
                raise self._no_answer(recorded, request)
            # Another conversation begins here; its observations may still be recorded ones.
            self.model = "live"
        self._shares = False
        began = time.monotonic()
        try:
            reply = live()
        except BackendError as error:
            failure = type(error).__name__
            self._write(
                ModelFailure(
                    ordinal=ordinal, request_key=request.key(), error=failure, message=str(error), status=error.status
                )
            )
            raise
        self.models_told += 1
        self._write(
            ModelCall(
                ordinal=ordinal,
                request_key=request.key(),
                head=head,
                choices=None if request.choices is None else list(request.choices),
                reply=reply.to_json(),
                seconds=round(time.monotonic() - began, 4),
            )
        )
        return reply

    def call_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        ordinal = self.tools_told
        recorded = self._by_order(call, ordinal) if self.model == "recorded" else self._by_content(call)
        if recorded is not None and self.tools == "live" and self.look is not None:
            self.look(self._steps[ordinal], recorded, live)
        elif self.tools == "live" or recorded is None:
            if self.tools == "recorded" and not self.extend:
                raise ReplayMiss(self._no_observation(call))
            return self._ran(call, ordinal, live)
        self.tools_told += 1
        observation = Observation.from_json(recorded.observation)
        if self.edits is not None and ordinal in self.edits:
            observation = replace(observation, text=self.edits[ordinal])
            self._shares = False
        if self._shares:
            self._shared_tools = self.tools_told
        else:
            told = {"ordinal": ordinal, "call": call.to_json(), "observation": observation.to_json()}
            self._write(recorded.model_copy(update=told))
        outcome = ToolOutcome(
            observation=observation,
            aliases=tuple(recorded.aliases),
            crashed=recorded.crashed,
            cached=recorded.cached,
        )
        self._shown(outcome)
        return outcome

    def note(self, text: str, data: Mapping[str, Json] | None = None) -> None:
        if not self._shares:
            self._write(Note(text=text, data=dict(data or {})))

    # Inside

    @property
    def _follows(self) -> bool:
        return self.model == "recorded" and not self.strict and self._shares

    def _write(self, event: Event) -> None:
        if self.writer is None and self.begin is not None:
            self.writer = self.begin(self._head, self._shared_models, self._shared_tools)
        if self.writer is not None:
            self.writer.append(event)

    def _sent(self, key: str) -> Message:
        message = self._messages[key]
        if self.without_carry and message.carry is not None and key in self.recording.messages:
            return replace(message, carry=None)
        return message

    def _ran(self, call: ToolCall, ordinal: int, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        self._shares = False
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
        self.tools_told += 1
        self._shown(outcome)
        return outcome

    def _shown(self, outcome: ToolOutcome) -> None:
        for name, image in zip(outcome.aliases, outcome.observation.images, strict=True):
            self._names[name] = image.sha256

    def _by_order(self, call: ToolCall, ordinal: int) -> ToolResult | None:
        """The recorded result of the next call, where it is this very one."""
        if ordinal >= len(self.recording.tools):
            return None
        recorded = self.recording.tools[ordinal]
        if recorded.call != call.to_json() and not self.extend:
            now = f"{call.name} {short(dict(call.arguments))}"
            was = f"{recorded.call['name']} {short(recorded.call['arguments'])}"
            raise ReplayMiss(
                f"tool call {ordinal + 1} (step {self._steps[ordinal]}) was recorded as {was}, and is now {now}"
            )
        return recorded if recorded.call == call.to_json() else None

    def _by_content(self, call: ToolCall) -> ToolResult | None:
        """The recorded result of the same call on the same pictures, whose own pictures would get the same names."""
        if self._table is None:
            self._table = self._recorded_by_content()
        key = _content(call, self._names)
        found = self._table.get(key, [])
        at = self._asked[key]
        self._asked[key] += 1
        return found[at] if at < len(found) else None

    def _recorded_by_content(self) -> dict[str, list[ToolResult]]:
        names = {alias: view.image.sha256 for alias, view in self.recording.views.items()}
        table: dict[str, list[ToolResult]] = {}
        for result in self.recording.tools:
            table.setdefault(_content(ToolCall.from_json(result.call), names), []).append(result)
            observation = Observation.from_json(result.observation)
            names |= dict(zip(result.aliases, (image.sha256 for image in observation.images), strict=True))
        return table

    # Misses

    def _no_answer(self, recorded: ModelCall | None, request: Request) -> Exception:
        ordinal = self.models_told
        if recorded is None:
            failure = self.recording.failures.get(ordinal)
            if failure is not None:
                kind = getattr(errors, failure.error, BackendError)
                known = isinstance(kind, type) and issubclass(kind, BackendError)
                return (kind if known else BackendError)(failure.message, status=failure.status)
            return RecordingEnds(f"the recording ends after {ordinal} model calls, and the loop would ask again")
        hashes = chain(request.messages)
        shared = next((i for i in range(len(hashes), 0, -1) if hashes[i - 1] in self.recording.messages), 0)
        return ReplayMiss(
            f"model call {ordinal + 1}: this request is not the recorded one; it differs in "
            f"{difference(self.recording.trace, request, shared)}"
        )

    def _no_observation(self, call: ToolCall) -> str:
        head = f"tool call {self.tools_told + 1}: {call.name} {short(dict(call.arguments))} is not recorded"
        near = [r for r in self.recording.tools if r.call["name"] == call.name]
        if not near:
            names = sorted({str(r.call["name"]) for r in self.recording.tools})
            return f"{head}: no call of {call.name} is ({', '.join(names) or 'no tool was called'})"

        def differing(result: ToolResult) -> list[str]:
            then = result.call["arguments"]
            return sorted(k for k in {*then, *call.arguments} if then.get(k) != call.arguments.get(k))

        nearest = min(near, key=lambda result: len(differing(result)))
        step = self._steps[self.recording.tools.index(nearest)]
        fields = differing(nearest)
        if not fields:
            return f"{head} on these pictures; the nearest is step {step}'s, when the names stood for others"
        was, now = nearest.call["arguments"].get(fields[0]), call.arguments.get(fields[0])
        return f"{head}; the nearest is step {step}'s and differs in {fields[0]}: recorded {short(was)}, now {short(now)}"


def _content(call: ToolCall, names: Mapping[str, str]) -> str:
    """A call by what it is about: image names replaced by what they show, and how many pictures there are to name after."""
    folded = {name.casefold(): sha for name, sha in names.items()}
    arguments: dict[str, Json] = {
        key: folded.get(value.strip().casefold(), value) if isinstance(value, str) else value
        for key, value in call.arguments.items()
    }
    try:
        return canonical_json([call.name, arguments, len(names)])
    except ValueError:
        # NaN among the arguments: no such call succeeds.
        return repr((call.name, call.arguments))
