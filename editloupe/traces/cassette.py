"""The recorded answers of one trace, by place and by request, and the words for what is not recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from editloupe import errors
from editloupe.chat import Message, Request, Sampling, ToolCall
from editloupe.errors import BackendError, ReplayMiss
from editloupe.findings import Observation
from editloupe.traces.difference import first_difference, short
from editloupe.traces.events import Event, Header, MessageEvent, ModelCall, ModelFailure, ToolResult
from editloupe.values import Json, cached_property, canonical_json, digest


class RecordingEnds(ReplayMiss):
    """All recorded model calls have been answered, and the loop asks again."""


@dataclass(frozen=True, kw_only=True)
class Cassette:
    """The recorded messages, model calls and tool results of one trace."""

    events: tuple[Event, ...]
    """All events, in the order of the trace."""
    messages: Mapping[str, Message]
    """Message hash → message."""
    following: Mapping[str | None, str]
    """Message hash → hash of the next message. None leads to the question."""
    models: tuple[ModelCall, ...]
    """Answered requests, by ordinal."""
    tools: tuple[ToolResult, ...]
    """Tool results, by ordinal."""
    failures: Mapping[int, ModelFailure]
    """Ordinal → the last failure of a request that was never answered."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Cassette:
        """Index the events of a trace. Raises ReplayMiss if a call in the middle is missing."""
        events = tuple(events)
        messages = [event for event in events if isinstance(event, MessageEvent)]
        # By ordinal: a resumed trace holds each call once.
        models = {event.ordinal: event for event in events if isinstance(event, ModelCall)}
        tools = {event.ordinal: event for event in events if isinstance(event, ToolResult)}
        failures = {event.ordinal: event for event in events if isinstance(event, ModelFailure)}
        for kind, ordinals in (("model", models), ("tool", tools)):
            if sorted(ordinals) != list(range(len(ordinals))):
                raise ReplayMiss(f"a {kind} call is missing from the trace")
        return cls(
            events=events,
            messages={event.hash: event.content for event in messages},
            following={event.parent: event.hash for event in messages},
            models=tuple(models[i] for i in range(len(models))),
            tools=tuple(tools[i] for i in range(len(tools))),
            failures={i: failure for i, failure in failures.items() if i not in models},
        )

    @property
    def question(self) -> Message | None:
        """The first message; None if there is none."""
        return self.messages.get(self.following.get(None, ""))

    @cached_property
    def tool_steps(self) -> list[int]:
        """For each tool result, the step in which it was called, from 1."""
        steps: list[int] = []
        step = 0
        for event in self.events:
            step += isinstance(event, ModelCall)
            if isinstance(event, ToolResult):
                steps.append(step)
        return steps

    def question_images(self) -> dict[str, str]:
        """Return alias → SHA-256 of the images in the question."""
        return {} if self.question is None else {part.alias: part.image.sha256 for part in self.question.images}

    @cached_property
    def tools_by_content(self) -> dict[str, list[ToolResult]]:
        """Content key of a call (`content_key`) → its recorded results, in order."""
        names = self.question_images()
        table: dict[str, list[ToolResult]] = {}
        for result in self.tools:
            table.setdefault(content_key(ToolCall.from_json(result.call), names), []).append(result)
            images = Observation.from_json(result.observation).images
            names |= dict(zip(result.aliases, (image.sha256 for image in images), strict=True))
        return table

    def request_miss(self, ordinal: int, request: Request) -> Exception:
        """Return the error for a request that has no recorded reply: the recorded failure, or a ReplayMiss."""
        if ordinal < len(self.models):
            differs = f"it differs in {self.difference(request)}"
            return ReplayMiss(f"model call {ordinal + 1}: this request is not the recorded one; {differs}")
        failure = self.failures.get(ordinal)
        if failure is None:
            return RecordingEnds(f"the recording ends after {ordinal} model calls, and the loop would ask again")
        kind = getattr(errors, failure.error, BackendError)
        known = isinstance(kind, type) and issubclass(kind, BackendError)
        return (kind if known else BackendError)(failure.message, status=failure.status)

    def difference(self, request: Request) -> str:
        """Return the first field in which a request differs from those of the recorded conversation."""
        messages = [event for event in self.events if isinstance(event, MessageEvent)][: len(request.messages)]
        call = next((call for call in self.models if messages and call.head == messages[-1].hash), None)
        header = next(event for event in self.events if isinstance(event, Header))
        native = header.judge.get("tool_protocol") == "native"
        recorded: dict[str, Json] = {
            "message": [event.content.to_json() for event in messages],
            "whether it is asked here": call is not None,
            "digest of the tool": {str(tool["name"]): tool["schema"] for tool in header.tools} if native else {},
            "sampling": Sampling.from_json(header.judge["sampling"]).of_repeat(header.repeat).to_json(),
            "whether the answer is held to a schema": call is not None and call.held,
        }
        now: dict[str, Json] = {
            "message": [message.to_json() for message in request.messages],
            "whether it is asked here": True,
            "digest of the tool": {tool.name: digest(tool.to_json()) for tool in request.tools},
            "sampling": request.sampling.to_json(),
            "whether the answer is held to a schema": request.answer_schema is not None,
        }
        unnamed = f"the schema, the probabilities asked for, or whether tools may be called (now {request.calls_allowed})"
        return first_difference(recorded, now) or unnamed

    def tool_miss(self, ordinal: int, call: ToolCall) -> ReplayMiss:
        """Return the error for a tool call that is not recorded in this place. It names the nearest recorded one."""

        def distance(result: ToolResult) -> tuple[bool, int, int]:
            recorded = result.call["arguments"]
            differing = sum(recorded.get(name) != call.arguments.get(name) for name in {*recorded, *call.arguments})
            return result.call["name"] != call.name, differing, abs(result.ordinal - ordinal)

        wanted = f"tool call {ordinal + 1}: {call.name} {short(dict(call.arguments))} is not recorded here"
        if not self.tools:
            return ReplayMiss(f"{wanted}, nor is any tool call")
        nearest = min(self.tools, key=distance)
        where = f"call {nearest.ordinal + 1} (step {self.tool_steps[nearest.ordinal]})"
        return ReplayMiss(f"{wanted}; the nearest is {where}: {nearest.call['name']} {short(nearest.call['arguments'])}")


def content_key(call: ToolCall, names: Mapping[str, str]) -> str:
    """Return a key of what a call is about: its tool, its arguments with image names replaced by what they show, and how
    many images have a name, which decides the names of the images that it returns.

    names: image name → SHA-256.
    """
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
