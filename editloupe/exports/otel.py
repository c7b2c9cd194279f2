"""Write OpenTelemetry spans of a run: OTLP as JSON, one line a trace, as the collector's file receiver reads it.

A finding is an agent's span, with a span for each request and each tool call, and the verdict as an event. Attributes are
those of the GenAI conventions (core conventions 1.44.0); what these have no word for begins with "editloupe.".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from editloupe.chat import Finish, Message, Part, Reply, TextPart
from editloupe.exports.episodes import Episode, Exchange, Source, lost
from editloupe.exports.write import json_bytes, whole
from editloupe.findings import Observation
from editloupe.traces.events import ModelCall, ModelFailure, ToolResult
from editloupe.values import Json
from editloupe.version import VERSION

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTERNAL: Final = 1
_CLIENT: Final = 3
_ERROR: Final = 2

_PROVIDERS: Final = {"google": "gcp.gemini", "baseline": "editloupe", "scripted": "editloupe", "recorded": "editloupe"}
"""Backends whose provider has another name in the GenAI conventions."""

_FINISH: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tools": "tool_call",
    "refusal": "content_filter",
    "filter": "content_filter",
}
"""Why a reply ended, as the GenAI conventions say it."""

_SENT: Final[Mapping[str, tuple[str, type[int | float]]]] = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "seed": ("gen_ai.request.seed", int),
    "max_tokens": ("gen_ai.request.max_tokens", int),
}
"""Parameter → attribute and its type: a number that a convention wants as a double may have been sent as an integer."""

_USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "image_tokens": "editloupe.usage.image_tokens",
}


def write_otel(source: Source, path: Path, *, content: bool = False) -> int:
    """Write the trace of every finding as one line, and return how many there are.

    content: texts, arguments and image addresses too.
    Raises ConfigError, StorageError. What could not be read stands in `source.problems`.
    """
    blobs = (source.folder / "blobs").resolve().as_uri()
    written = 0
    with whole(path) as file:
        for episode in source.episodes():
            spans = list(_Spans(source, episode, blobs=blobs, content=content).all())
            resource = {"service.name": "editloupe", "service.version": episode.header.editloupe}
            line: dict[str, Any] = {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [
                    {"scope": {"name": "editloupe", "version": VERSION}, "spans": spans, "schemaUrl": SCHEMA_URL}
                ],
                "schemaUrl": SCHEMA_URL,
            }
            file.write(json_bytes({"resourceSpans": [line]}) + b"\n")
            written += 1
    return written


class _Spans:
    """Makes the spans of one trace, as OTLP's JSON."""

    def __init__(self, source: Source, episode: Episode, *, blobs: str, content: bool) -> None:
        self.source, self.episode, self.blobs, self.content = source, episode, blobs, content
        self.header, self.finding = episode.header, episode.finding
        self.trace_id, self.root_id = self._id(32), self._id(16, "task")

    def all(self) -> Iterator[dict[str, Any]]:
        yield self._root()
        for number, exchange in enumerate(self.episode.exchanges, start=1):
            yield self._request(exchange, number)
            yield from map(self._tool, exchange.results)

    def _id(self, digits: int, *parts: str) -> str:
        """Return the same id whenever this trace is exported."""
        text = "\n".join((self.header.run, self.header.time, str(self.finding.trace), *parts))
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:digits]

    def _span(
        self,
        name: str,
        values: Mapping[str, Json],
        *,
        mark: tuple[str, ...] = (),
        kind: int = _INTERNAL,
        start_ns: int,
        end_ns: int,
        error: str | None,
        events: Sequence[dict[str, Any]] = (),
    ) -> dict[str, Any]:
        """mark: what tells the span from others of its trace; () for the root."""
        ids = {"spanId": self._id(16, *mark), "parentSpanId": self.root_id} if mark else {"spanId": self.root_id}
        return {
            "traceId": self.trace_id,
            **ids,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(start_ns),
            "endTimeUnixNano": str(max(start_ns, end_ns)),
            "attributes": _attributes(values),
            "events": list(events),
            "status": {} if error is None else {"code": _ERROR, "message": error},
        }

    def _root(self) -> dict[str, Any]:
        header, finding, about = self.header, self.finding, self.finding.about
        sample = self.source.sample(finding)
        end_ns, error = _nanoseconds(self.episode.ended), None if finding.status == "ok" else finding.status
        values: dict[str, Json] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "editloupe",
            "gen_ai.agent.id": header.judge_id,
            "gen_ai.agent.version": header.editloupe,
            **self._model(),
            "error.type": error,
            "editloupe.protocol": self.source.store.protocol,
            "editloupe.sample.id": about.sample_id,
            "editloupe.sample.editor": about.editor,
            "editloupe.sample.edit_type": None if sample is None else sample.edit_type,
            # The name that docs/traces.md promises to other tools; its value is the metric's id.
            "editloupe.criterion": finding.metric,
            "editloupe.turn": about.turn or None,
            "editloupe.part": about.part or None,
            "editloupe.role": finding.role,
            "editloupe.repeat": header.repeat,
            "editloupe.status": finding.status,
            "editloupe.label": finding.label,
            "editloupe.value": finding.value,
        }
        if self.content:
            values["editloupe.sample.instruction"] = self.source.instruction(finding)
        start_ns, events = _nanoseconds(header.time), [self._verdict(end_ns)]
        return self._span("invoke_agent editloupe", values, start_ns=start_ns, end_ns=end_ns, error=error, events=events)

    def _verdict(self, time_ns: int) -> dict[str, Any]:
        """A finding without an answer has neither score nor label."""
        finding = self.finding
        values: dict[str, Json] = {
            "gen_ai.evaluation.name": finding.metric,
            "gen_ai.evaluation.score.value": finding.value,
            "gen_ai.evaluation.score.label": finding.label,
            "gen_ai.evaluation.explanation": finding.reason or None if self.content else None,
            "error.type": None if finding.status == "ok" else finding.status,
        }
        return {"timeUnixNano": str(time_ns), "name": "gen_ai.evaluation.result", "attributes": _attributes(values)}

    def _model(self) -> dict[str, Json]:
        episode = self.episode
        return {
            "gen_ai.provider.name": _PROVIDERS.get(episode.provider, episode.provider),
            "gen_ai.request.model": episode.model,
            "editloupe.is_lmm": episode.is_lmm,
        }

    def _request(self, exchange: Exchange, number: int) -> dict[str, Any]:
        values: dict[str, Json] = {"gen_ai.operation.name": "chat", **self._model()}
        error, event = None, exchange.event
        if exchange.reply is not None:
            values |= self._answered(exchange.reply)
        if isinstance(event, ModelFailure):
            error = f"{event.error}: {event.message}" if self.content else event.error
            values |= {"error.type": event.error, "http.response.status_code": event.status}
        if self.content:
            values |= self._said(exchange)
        end_ns = _nanoseconds(event.time)
        return self._span(
            f"chat {self.episode.model}",
            values,
            mark=("request", str(number)),
            kind=_CLIENT if self.episode.is_lmm else _INTERNAL,
            start_ns=end_ns - (round(event.seconds * 1e9) if isinstance(event, ModelCall) else 0),
            end_ns=end_ns,
            error=error,
        )

    def _answered(self, reply: Reply) -> dict[str, Json]:
        values: dict[str, Json] = {_USAGE[name]: value for name, value in reply.usage.to_json().items()}
        for name, (attribute, number) in _SENT.items():
            value = reply.sent.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                values[attribute] = number(value)
        return values | {
            "gen_ai.response.model": reply.model or None,
            "gen_ai.response.finish_reasons": [_FINISH[reply.finish]],
            "editloupe.cost_usd": self.source.cost(self.episode.backend, reply.usage),
            "editloupe.malformed_calls": len(reply.malformed_calls),
        }

    def _said(self, exchange: Exchange) -> dict[str, Json]:
        """What was sent and what came back."""
        asked = [{"role": m.role, "parts": self._message(m)} for m in exchange.messages]
        found: dict[str, Json] = {"gen_ai.input.messages": _text(asked)}
        if (reply := exchange.reply) is not None:
            thought = [{"type": "reasoning", "content": reply.reasoning}] if reply.reasoning else []
            text = [{"type": "text", "content": reply.text}] if reply.text else []
            said = {"role": "assistant", "parts": thought + text + _calls(reply), "finish_reason": _FINISH[reply.finish]}
            found["gen_ai.output.messages"] = _text([said])
        return found

    def _message(self, message: Message) -> list[dict[str, Any]]:
        parts = [self._part(part) for part in message.parts]
        if message.role == "tool":
            return [{"type": "tool_call_response", "id": message.tool_call_id, "response": parts}]
        return parts + _calls(message)

    def _part(self, part: Part) -> dict[str, Any]:
        """A text, or an image's address; never its bytes."""
        if isinstance(part, TextPart):
            return {"type": "text", "content": part.text}
        path = self.source.image_path(part.image)
        if path is None:
            return {"type": "text", "content": lost(part)}
        uri = f"{self.blobs}/{path.parent.name}/{path.name}"
        return {"type": "uri", "modality": "image", "mime_type": part.image.media_type, "uri": uri}

    def _tool(self, result: ToolResult) -> dict[str, Any]:
        name, observation = str(result.call["name"]), Observation.from_json(result.observation)
        error = "tool_error" if observation.error else None
        if result.crashed is not None:
            error = result.crashed.partition(":")[0]
        values: dict[str, Json] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": str(result.call["id"]),
            "error.type": error,
        }
        if observation.views:
            values["editloupe.image.sha256"] = [view.image.sha256 for view in observation.views]
        if self.content:
            values["gen_ai.tool.call.arguments"] = _text(result.call["arguments"])
            values["gen_ai.tool.call.result"] = observation.text
        end_ns = _nanoseconds(result.time)
        return self._span(
            f"execute_tool {name}",
            values,
            mark=("tool", str(result.ordinal)),
            start_ns=end_ns - round(result.seconds * 1e9),
            end_ns=end_ns,
            error=result.crashed if self.content and result.crashed is not None else error,
        )


def _nanoseconds(time: str) -> int:
    """Return a recorded time as nanoseconds of Unix time; recorded are milliseconds."""
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1) * 1000


def _calls(said: Message | Reply) -> list[dict[str, Any]]:
    return [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        for call in said.tool_calls
    ]


def _attributes(values: Mapping[str, Json]) -> list[dict[str, Any]]:
    """Plain values as OTLP has them: integers as text, lists as arrays, None left out."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Json) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(v) for v in value]}}
        case _:
            return {"stringValue": str(value)}


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
