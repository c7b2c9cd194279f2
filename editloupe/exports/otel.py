"""Write OpenTelemetry spans of a run: OTLP as JSON, one line a trace, as the collector's file receiver reads it.

A trace is one AGENT span with an LLM span a request, a TOOL span a call and an EVALUATOR span for the finding. Each has the
attributes of the GenAI conventions and of OpenInference. A fork is a trace of its own with a link to where it parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import editloupe
from editloupe.exports import messages, semconv
from editloupe.exports.episodes import Episode, Exchange, Source, nanoseconds, response_id, sampling
from editloupe.exports.write import json_bytes, whole
from editloupe.findings import Finding
from editloupe.traces.events import Header, ToolResult
from editloupe.traces.lineage import Parent
from editloupe.traces.read import read_trace
from editloupe.values import Json

INTERNAL: Final = 1
CLIENT: Final = 3
ERROR: Final = 2

_SENT: Final = {
    "temperature": semconv.REQUEST_TEMPERATURE,
    "top_p": semconv.REQUEST_TOP_P,
    "seed": semconv.REQUEST_SEED,
    "max_tokens": semconv.REQUEST_MAX_TOKENS,
    "max_completion_tokens": semconv.REQUEST_MAX_TOKENS,
    "max_output_tokens": semconv.REQUEST_MAX_TOKENS,
}
_USAGE: Final = {
    "input_tokens": (semconv.USAGE_INPUT, semconv.OI_TOKENS_PROMPT),
    "output_tokens": (semconv.USAGE_OUTPUT, semconv.OI_TOKENS_COMPLETION),
    "cached_tokens": (semconv.USAGE_CACHED, semconv.OI_TOKENS_CACHED),
    "reasoning_tokens": (semconv.USAGE_REASONING, semconv.OI_TOKENS_REASONING),
    "image_tokens": (semconv.OURS + "usage.image_tokens",),
}


@dataclass(kw_only=True)
class _Span:
    """One span."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Json]
    """Plain values; None leaves one out."""
    events: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "traceId": self.trace_id,
            "spanId": self.span_id,
            **({} if self.parent_id is None else {"parentSpanId": self.parent_id}),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": str(self.start_ns),
            "endTimeUnixNano": str(max(self.start_ns, self.end_ns)),
            "attributes": attributes(self.attributes),
            "events": self.events,
            "links": self.links,
            "status": {} if self.error is None else {"code": ERROR, "message": self.error},
        }


def write_otel(
    source: Source, path: Path, *, content: bool = False, progress: Callable[[int], None] = lambda n: None
) -> int:
    """Write every trace as one line, and return how many there are. content: texts, arguments and image addresses too.

    Raises ConfigError, StorageError. What could not be read stands in `source.problems`.
    """
    written = 0
    with whole(path) as file:
        for episode in source.episodes():
            spans = [span.to_json() for span in _spans(source, episode, content=content)]
            scope = {"scope": {"name": "editloupe", "version": editloupe.__version__}, "spans": spans}
            resource = {semconv.SERVICE_NAME: "editloupe", semconv.SERVICE_VERSION: episode.header.editloupe}
            line: dict[str, Any] = {
                "resource": {"attributes": attributes(resource)},
                "scopeSpans": [{**scope, "schemaUrl": semconv.SCHEMA_URL}],
                "schemaUrl": semconv.SCHEMA_URL,
            }
            file.write(json_bytes({"resourceSpans": [line]}) + b"\n")
            written += 1
            progress(written)
    return written


def attributes(values: Mapping[str, Json]) -> list[dict[str, Any]]:
    """Return plain values as OTLP has them: integers as text, lists as arrays, None left out."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Json) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(v) for v in value]}}
        case _:
            return {"stringValue": _text(value)}


def _spans(source: Source, episode: Episode, *, content: bool) -> Iterator[_Span]:
    header = episode.header
    trace_id = _id(32, header, episode.name)
    root = _id(16, header, episode.name, "task")
    yield _root(source, episode, trace_id, root, content=content)
    for exchange in episode.exchanges:
        if exchange.shared:
            # It lies in the parent's trace, which the root's link names.
            continue
        yield _model(source, episode, exchange, trace_id, root, content=content)
        for result in exchange.results:
            yield _tool(episode, result, trace_id, root, content=content)
    if episode.finding is not None:
        yield _verdict(source, episode, episode.finding, trace_id, root, content=content)


def _root(source: Source, episode: Episode, trace_id: str, root: str, *, content: bool) -> _Span:
    header, finding = episode.header, episode.finding
    values: dict[str, Json] = {
        semconv.OPERATION: "invoke_agent",
        semconv.PROVIDER: semconv.PROVIDERS.get(episode.provider, episode.provider),
        semconv.AGENT_NAME: "editloupe",
        semconv.AGENT_ID: header.judge_id,
        semconv.AGENT_VERSION: header.editloupe,
        semconv.CONVERSATION: trace_id,
        semconv.REQUEST_MODEL: episode.model,
        semconv.OI_KIND: "AGENT",
        semconv.OI_AGENT_NAME: "editloupe",
        semconv.OI_SESSION: header.run,
        semconv.OI_TAGS: [episode.task.protocol, episode.task.metric],
        semconv.OI_METADATA: _text({"trace": episode.name, "task": header.task_id, "repeat": header.repeat}),
        **_asked(episode),
    }
    if episode.sample is not None:
        values[semconv.OURS + "sample.edit_type"] = episode.sample.edit_type
    if finding is not None:
        values |= _outcome(finding)
        values |= _evaluation(episode, finding, content=content)
    if content:
        first = episode.exchanges[0].messages if episode.exchanges else episode.trace.messages()
        values |= {semconv.OI_INPUT: first[0].text if first else None, semconv.OI_INPUT_TYPE: "text/plain"}
        if episode.sample is not None:
            values[semconv.OURS + "sample.instruction"] = episode.sample.instruction
        if finding is not None:
            values |= {semconv.OI_OUTPUT: _text(finding.to_json()), semconv.OI_OUTPUT_TYPE: "application/json"}
    span = _Span(
        trace_id=trace_id,
        span_id=root,
        parent_id=None,
        name="invoke_agent editloupe",
        kind=INTERNAL,
        start_ns=nanoseconds(header.time),
        end_ns=episode.ended_ns,
        attributes=values,
        error=None if finding is None or finding.status == "ok" else finding.status,
    )
    if episode.parent is not None:
        span.links.append(_link(source, episode))
    return span


def _link(source: Source, episode: Episode) -> dict[str, Any]:
    """To the parent's last request that a fork kept, or to its root."""
    parent = episode.parent
    assert parent is not None, "only a fork has a link"
    name, header = parent.trace, read_trace(source.folder / parent.trace).header
    # The last request that was kept may lie further up: a parent that is a fork holds only what is its own.
    while (above := Parent.of(header)) is not None and parent.step <= above.step:
        name, header = above.trace, read_trace(source.folder / above.trace).header
    what = ("model", str(parent.step - 1)) if parent.step else ("task",)
    fork: dict[str, Json] = {
        semconv.OURS + "fork.why": parent.why,
        semconv.OURS + "fork.step": parent.step,
        semconv.OURS + "fork.changes": sorted(parent.changes),
    }
    return {
        "traceId": _id(32, header, name),
        "spanId": _id(16, header, name, *what),
        "attributes": attributes(fork),
    }


def _model(source: Source, episode: Episode, exchange: Exchange, trace_id: str, root: str, *, content: bool) -> _Span:
    reply, failure = exchange.reply, exchange.failure
    # A request that failed shares its ordinal with the one that takes it up.
    mark = ("model", str(exchange.ordinal)) if failure is None else ("failure", str(exchange.number))
    span_id = _id(16, episode.header, episode.name, *mark)
    server = _server(str(episode.header.judge["endpoint"]))
    values: dict[str, Json] = {
        semconv.OPERATION: "chat",
        semconv.PROVIDER: semconv.PROVIDERS.get(episode.provider, episode.provider),
        semconv.REQUEST_MODEL: episode.model,
        semconv.OI_KIND: "LLM",
        semconv.OI_PROVIDER: episode.provider,
        semconv.OI_MODEL: episode.model,
        semconv.OI_REQUEST_MODEL: episode.model,
        semconv.OURS + "is_lmm": episode.is_lmm,
        **_node(span_id, f"step {exchange.number}", root),
        **server,
    }
    error = None
    if reply is not None:
        usage = reply.usage.to_json()
        for field_, names in _USAGE.items():
            values |= {name: usage[field_] for name in names if field_ in usage}
        if usage:
            values[semconv.OI_TOKENS_TOTAL] = reply.usage.total
        sent = sampling(reply)
        # A number that a convention wants as a double may have been sent as an integer.
        for name, attribute in _SENT.items():
            value = sent.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                values[attribute] = float(value) if name in ("temperature", "top_p") else int(value)
        values |= {
            semconv.RESPONSE_ID: response_id(reply),
            semconv.RESPONSE_MODEL: reply.model or None,
            semconv.OI_RESPONSE_MODEL: reply.model or None,
            semconv.RESPONSE_FINISH: [messages.FINISH[reply.finish]],
            semconv.OI_FINISH: messages.FINISH[reply.finish],
            semconv.OI_PARAMETERS: _text(sent) if sent else None,
            semconv.OI_COST: source.cost(episode.backend, reply.usage),
            semconv.OURS + "malformed_calls": len(reply.malformed_calls),
        }
    if failure is not None:
        error = failure.error
        values |= {semconv.ERROR_TYPE: failure.error, semconv.HTTP_STATUS: failure.status}
    if content:
        values |= messages.captured(source, exchange)
        # Offered natively; with the text protocol they stand in the question.
        if episode.header.judge.get("tool_protocol") == "native":
            values |= messages.tools(episode.header.tools)
        if failure is not None:
            error = f"{failure.error}: {failure.message}"
    return _Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=root,
        name=f"chat {episode.model}",
        kind=CLIENT if server else INTERNAL,
        start_ns=exchange.started_ns,
        end_ns=exchange.ended_ns,
        attributes=values,
        error=error,
    )


def _tool(episode: Episode, result: ToolResult, trace_id: str, root: str, *, content: bool) -> _Span:
    name, call_id = str(result.call["name"]), str(result.call["id"])
    span_id = _id(16, episode.header, episode.name, "tool", str(result.ordinal))
    offered = {str(tool["name"]): tool for tool in episode.header.tools}.get(name, {})
    described = offered.get("description")
    views, observation = result.observation["views"], result.observation
    values: dict[str, Json] = {
        semconv.OPERATION: "execute_tool",
        semconv.TOOL_NAME: name,
        semconv.TOOL_TYPE: "function",
        semconv.TOOL_CALL_ID: call_id,
        semconv.TOOL_DESCRIPTION: described,
        semconv.OI_KIND: "TOOL",
        semconv.OI_TOOL_NAME: name,
        semconv.OI_TOOL_ID: call_id,
        semconv.OI_TOOL_DESCRIPTION: described,
        semconv.OURS + "tool.version": offered.get("version"),
        **_node(span_id, name, root),
    }
    if views:
        values[semconv.OURS + "image.sha256"] = [str(v["image"]["sha256"]) for v in views]
        values[semconv.OURS + "image.width"] = [int(v["image"]["width"]) for v in views]
        values[semconv.OURS + "image.height"] = [int(v["image"]["height"]) for v in views]
        # What each picture shows of which other one, in px of that one.
        values[semconv.OURS + "image.lineage"] = [
            _text({"op": v["op"], "origin": v["origin"]["sha256"], "region": v["region"]}) for v in views
        ]
    error = None
    if result.crashed is not None:
        error = result.crashed.partition(":")[0]
    elif observation["error"]:
        error = "tool_error"
    if error is not None:
        values[semconv.ERROR_TYPE] = error
    if content:
        arguments = _text(result.call["arguments"])
        values |= {
            semconv.TOOL_ARGUMENTS: arguments,
            semconv.TOOL_RESULT: str(observation["text"]),
            semconv.OI_TOOL_PARAMETERS: arguments,
            semconv.OI_INPUT: arguments,
            semconv.OI_INPUT_TYPE: "application/json",
            semconv.OI_OUTPUT: str(observation["text"]),
            semconv.OI_OUTPUT_TYPE: "text/plain",
        }
        if result.crashed is not None:
            error = result.crashed
    end = nanoseconds(result.time)
    return _Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=root,
        name=f"execute_tool {name}",
        kind=INTERNAL,
        start_ns=end - round(result.seconds * 1e9),
        end_ns=end,
        attributes=values,
        error=error,
    )


def _verdict(source: Source, episode: Episode, finding: Finding, trace_id: str, root: str, *, content: bool) -> _Span:
    span_id = _id(16, episode.header, episode.name, "verdict")
    replies = [e for e in episode.exchanges if e.reply is not None]
    last = replies[-1].reply if replies else None
    result: dict[str, Json] = {
        semconv.EVALUATION_NAME: finding.metric,
        semconv.EVALUATION_VALUE: finding.value,
        semconv.EVALUATION_LABEL: finding.label,
        semconv.RESPONSE_ID: None if last is None else response_id(last),
        semconv.ERROR_TYPE: None if finding.status == "ok" else finding.status,
        semconv.EVALUATION_EXPLANATION: finding.reason if content and finding.reason else None,
    }
    values: dict[str, Json] = {
        semconv.OI_KIND: "EVALUATOR",
        semconv.ERROR_TYPE: result[semconv.ERROR_TYPE],
        **_node(span_id, f"verdict {finding.metric}", root),
        **_asked(episode),
        **_outcome(finding),
    }
    if content:
        values |= {semconv.OI_OUTPUT: _text(finding.to_json()), semconv.OI_OUTPUT_TYPE: "application/json"}
    start = max((e.ended_ns for e in episode.exchanges), default=episode.ended_ns)
    event = {"timeUnixNano": str(episode.ended_ns), "name": semconv.EVALUATION_EVENT, "attributes": attributes(result)}
    return _Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=root,
        name=f"verdict {finding.metric}",
        kind=INTERNAL,
        start_ns=start,
        end_ns=episode.ended_ns,
        attributes=values,
        events=[event],
        error=None if finding.status == "ok" else finding.status,
    )


def _evaluation(episode: Episode, finding: Finding, *, content: bool) -> dict[str, Json]:
    """The finding as OpenInference attaches it to a trace, with a score and a label if there are any."""
    found: dict[str, Json] = {
        semconv.OI_EVALUATION_NAME: finding.metric,
        semconv.OI_EVALUATION_SCORE: finding.value,
        semconv.OI_EVALUATION_LABEL: finding.label,
        semconv.OI_EVALUATION_EXPLANATION: finding.reason if content and finding.reason else None,
        semconv.OI_EVALUATION_ANNOTATOR: _annotator(episode),
        semconv.OI_EVALUATION_IDENTIFIER: finding.judge_id,
    }
    return {f"{semconv.OI_EVALUATIONS}.0.{name}": value for name, value in found.items()}


def _annotator(episode: Episode) -> str:
    if episode.is_lmm:
        return "LLM"
    return "HUMAN" if episode.header.judge.get("kind") == "human" else "CODE"


def _asked(episode: Episode) -> dict[str, Json]:
    about, judge = episode.task.about, episode.header.judge
    return {
        semconv.OURS + "sample.id": about.sample_id,
        semconv.OURS + "sample.editor": about.editor,
        # The name that docs/exports.md promises to other tools; its value is the metric's id.
        semconv.OURS + "criterion": episode.task.metric,
        semconv.OURS + "turn": about.turn or None,
        semconv.OURS + "part": about.part or None,
        semconv.OURS + "role": episode.task.role,
        semconv.OURS + "repeat": episode.header.repeat,
        semconv.OURS + "questions.hash": str(judge.get("questions") or judge.get("rubric") or "") or None,
        semconv.OURS + "is_lmm": episode.is_lmm,
    }


def _outcome(finding: Finding) -> dict[str, Json]:
    return {
        semconv.OURS + "status": finding.status,
        semconv.OURS + "kind": None if finding.answer is None else finding.answer.kind,
        semconv.OURS + "label": finding.label,
        semconv.OURS + "value": finding.value,
        semconv.OURS + "turns": finding.turns,
    }


def _node(span_id: str, name: str, parent: str) -> dict[str, Json]:
    return {semconv.OI_NODE_ID: span_id, semconv.OI_NODE_NAME: name, semconv.OI_NODE_PARENT: parent}


def _server(endpoint: str) -> dict[str, Json]:
    """Where a model answers; empty for one in this process."""
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        return {}
    return {} if url.hostname is None else {semconv.SERVER_ADDRESS: url.hostname, semconv.SERVER_PORT: port}


def _id(digits: int, header: Header, name: str, *parts: str) -> str:
    """The same id whenever this trace is exported, and another one for every other trace; never zero."""
    text = "\n".join((header.run, header.time, name, *parts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:digits]


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
