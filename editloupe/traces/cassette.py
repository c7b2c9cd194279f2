"""The recorded answers of one trace, by place and by request, and the words for what is not recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from typing import Any

from editloupe import errors
from editloupe.chat import Message, Request, ToolCall
from editloupe.errors import BackendError, ReplayMiss
from editloupe.findings import Observation
from editloupe.traces.events import Event, MessageEvent, ModelCall, ModelFailure, ToolResult
from editloupe.values import Json, cached_property, canonical_json

_SHOWN = 160
"""Characters of a value that is printed."""


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
        steps = accumulate(isinstance(event, ModelCall) for event in self.events)
        return [step for step, event in zip(steps, self.events, strict=True) if isinstance(event, ToolResult)]

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
        """Return the first place in which a request differs from those of the recorded conversation."""
        recorded: list[Json] = [event.message for event in self.events if isinstance(event, MessageEvent)]
        now: list[Json] = [message.to_json() for message in request.messages]
        where = first_difference({"message": recorded[: len(now)]}, {"message": now})
        return where or "its tools, its sampling, its schema, or whether it is asked here"

    def tool_miss(self, ordinal: int, call: ToolCall) -> ReplayMiss:
        """Return the error for a tool call that is not recorded in this place. It names the one that is."""
        wanted = f"tool call {ordinal + 1}: {call.name} {short(dict(call.arguments))} is not recorded here"
        if ordinal >= len(self.tools):
            return ReplayMiss(f"{wanted}, nor is any further one")
        there = self.tools[ordinal]
        where = f"step {self.tool_steps[ordinal]}"
        return ReplayMiss(f"{wanted}; recorded is, in {where}: {there.call['name']} {short(there.call['arguments'])}")


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


def first_difference(one: Json, other: Json) -> str:
    """Return where two JSON values first differ, and what stands there: "message 3, role: recorded …, now …".

    Return "" if they are equal. A key without a value is no difference.
    """
    place = ""
    while isinstance(one, dict | list) and type(one) is type(other):
        both: tuple[Any, Any] = one, other
        if isinstance(one, dict):
            pairs = [(f", {key}", *(side.get(key) for side in both)) for key in chain(*both)]
        else:
            pairs = [(f" {number}", *pair) for number, pair in enumerate(zip_longest(*both), start=1)]
        step, one, other = next((pair for pair in pairs if pair[1] != pair[2]), ("", None, None))
        place += step
    if one == other:
        return ""
    if isinstance(one, str) and isinstance(other, str):
        at = next(n for n, (mine, its) in enumerate(zip_longest(one, other)) if mine != its)
        place, before, now = f"{place}, from character {at + 1}", _around(one, at), _around(other, at)
    else:
        before, now = short(one), short(other)
    return f"{place.lstrip(', ')}: recorded {before}, now {now}"


def short(value: Json) -> str:
    """Return JSON on one line, cut where it is long."""
    text = " ".join(json.dumps(value, ensure_ascii=False).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _around(text: str, at: int) -> str:
    """Return the text near a character, quoted."""
    start, end = max(0, at - 20), at + 40
    return repr(f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}")
