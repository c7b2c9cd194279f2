"""Write OpenTelemetry spans of a run: OTLP as JSON, one line a trace, as the collector's file receiver reads it.

A trace is one AGENT span with an LLM span a request, a TOOL span a call and an EVALUATOR span for the finding. Each has the
attributes of the GenAI conventions (core conventions 1.44.0) and of OpenInference; what neither has a word for begins with
"editloupe.". A fork is a trace of its own with a link to where it parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from editloupe.chat import Finish, Message, Reply, ToolCall
from editloupe.exports.episodes import Episode, Exchange, Source, function, instruction_of, nanoseconds, sampling
from editloupe.exports.write import json_bytes, whole
from editloupe.findings import Finding
from editloupe.runs.lineage import Parent
from editloupe.traces.events import Header, ToolResult
from editloupe.traces.read import read_trace
from editloupe.values import Json
from editloupe.version import VERSION

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

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
    "max_completion_tokens": ("gen_ai.request.max_tokens", int),
    "max_output_tokens": ("gen_ai.request.max_tokens", int),
}
"""Parameter → attribute and its type: a number that a convention wants as a double may have been sent as an integer."""

_USAGE: Final = {
    "input_tokens": ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
    "output_tokens": ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
    "image_tokens": ("editloupe.usage.image_tokens",),
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
            scope = {"name": "editloupe", "version": VERSION}
            spans = list(_Spans(source, episode, content=content).all())
            resource = {"service.name": "editloupe", "service.version": episode.header.editloupe}
            line: dict[str, Any] = {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": spans, "schemaUrl": SCHEMA_URL}],
                "schemaUrl": SCHEMA_URL,
            }
            file.write(json_bytes({"resourceSpans": [line]}) + b"\n")
            written += 1
            progress(written)
    return written


class _Spans:
    """Makes the spans of one trace, as OTLP's JSON."""

    def __init__(self, source: Source, episode: Episode, *, content: bool) -> None:
        self.source, self.episode, self.content = source, episode, content
        self.header, self.finding = episode.header, episode.finding
        self.trace_id = _id(32, self.header, episode.name)
        self.root_id = _id(16, self.header, episode.name, "task")

    def all(self) -> Iterator[dict[str, Any]]:
        yield self._root()
        for exchange in self.episode.exchanges:
            # What is shared lies in the parent's trace, which the root's link names.
            if not exchange.shared:
                yield self._model(exchange)
                yield from map(self._tool, exchange.results)
        if self.finding is not None:
            yield self._verdict(self.finding)

    def _span(
        self,
        name: str,
        attributes: Mapping[str, Json],
        *,
        mark: tuple[str, ...] = (),
        node: str = "",
        kind: int = _INTERNAL,
        start_ns: int,
        end_ns: int,
        error: str | None,
        **more: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """mark: what tells the span from others of its trace; () for the root.   node: its name in OpenInference's graph.

        more: events and links.
        """
        span_id, parent, graph = self.root_id, {}, {}
        if mark:
            span_id, parent = _id(16, self.header, self.episode.name, *mark), {"parentSpanId": self.root_id}
            graph = {"graph.node.id": span_id, "graph.node.name": node, "graph.node.parent_id": self.root_id}
        return {
            "traceId": self.trace_id,
            "spanId": span_id,
            **parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(start_ns),
            "endTimeUnixNano": str(max(start_ns, end_ns)),
            "attributes": _attributes({**attributes, **graph}),
            "events": [],
            "links": [],
            **more,
            "status": {} if error is None else {"code": _ERROR, "message": error},
        }

    def _root(self) -> dict[str, Any]:
        episode, header, finding = self.episode, self.header, self.finding
        values: dict[str, Json] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _PROVIDERS.get(episode.provider, episode.provider),
            "gen_ai.agent.name": "editloupe",
            "gen_ai.agent.id": header.judge_id,
            "gen_ai.agent.version": header.editloupe,
            "gen_ai.conversation.id": self.trace_id,
            "gen_ai.request.model": episode.model,
            "openinference.span.kind": "AGENT",
            "agent.name": "editloupe",
            "session.id": header.run,
            "tag.tags": [episode.task.protocol, episode.task.metric],
            "metadata": _text({"trace": episode.name, "task": header.task_id, "repeat": header.repeat}),
            **self._asked(),
            "editloupe.sample.edit_type": None if episode.sample is None else episode.sample.edit_type,
        }
        if finding is not None:
            values |= _outcome(finding) | self._evaluation(finding)
        if self.content:
            first = episode.exchanges[0].messages if episode.exchanges else episode.trace.messages()
            values |= {
                "input.value": first[0].text if first else None,
                "input.mime_type": "text/plain",
                "editloupe.sample.instruction": instruction_of(episode.sample, episode.task.about.turn),
            }
        return self._span(
            "invoke_agent editloupe",
            values,
            start_ns=nanoseconds(header.time),
            end_ns=episode.ended_ns,
            error=_failure(finding),
            links=[] if episode.parent is None else [self._link(episode.parent)],
        )

    def _link(self, parent: Parent) -> dict[str, Any]:
        """To the parent's last request that a fork kept, or to its root."""
        folder = self.source.folder
        name, header = parent.trace, read_trace(folder / parent.trace).header
        # The last request that was kept may lie further up: a parent that is a fork holds only what is its own.
        while (above := Parent.of(header)) is not None and parent.step <= above.step:
            name, header = above.trace, read_trace(folder / above.trace).header
        what = ("model", str(parent.step - 1)) if parent.step else ("task",)
        fork: dict[str, Json] = {
            "editloupe.fork.why": parent.why,
            "editloupe.fork.step": parent.step,
            "editloupe.fork.changes": sorted(parent.changes),
        }
        ids = {"traceId": _id(32, header, name), "spanId": _id(16, header, name, *what)}
        return {**ids, "attributes": _attributes(fork)}

    def _model(self, exchange: Exchange) -> dict[str, Any]:
        episode, reply, failure = self.episode, exchange.reply, exchange.failure
        server = _server(str(self.header.judge["endpoint"]))
        values: dict[str, Json] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(episode.provider, episode.provider),
            "gen_ai.request.model": episode.model,
            "openinference.span.kind": "LLM",
            "llm.provider": episode.provider,
            "llm.model_name": episode.model,
            "llm.request.model_name": episode.model,
            "editloupe.is_lmm": episode.is_lmm,
            **server,
        }
        error = None
        if reply is not None:
            usage, sent = reply.usage.to_json(), sampling(reply)
            for field, value in usage.items():
                values |= dict.fromkeys(_USAGE[field], value)
            for name, (attribute, number) in _SENT.items():
                value = sent.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    values[attribute] = number(value)
            values |= {
                "gen_ai.response.id": _response_id(reply),
                "gen_ai.response.model": reply.model or None,
                "llm.response.model_name": reply.model or None,
                "gen_ai.response.finish_reasons": [_FINISH[reply.finish]],
                "llm.finish_reason": _FINISH[reply.finish],
                "llm.invocation_parameters": _text(sent) if sent else None,
                "llm.token_count.total": reply.usage.total if usage else None,
                "llm.cost.total": self.source.cost(episode.backend, reply.usage),
                "editloupe.malformed_calls": len(reply.malformed_calls),
            }
        if failure is not None:
            error = f"{failure.error}: {failure.message}" if self.content else failure.error
            values |= {"error.type": failure.error, "http.response.status_code": failure.status}
        if self.content:
            values |= self._said(exchange)
        return self._span(
            f"chat {episode.model}",
            values,
            # A request that failed shares its ordinal with the one that takes it up.
            mark=("model", str(exchange.event.ordinal)) if failure is None else ("failure", str(exchange.number)),
            node=f"step {exchange.number}",
            kind=_CLIENT if server else _INTERNAL,
            start_ns=exchange.started_ns,
            end_ns=exchange.ended_ns,
            error=error,
        )

    def _said(self, exchange: Exchange) -> dict[str, Json]:
        """What was sent and what came back, under both conventions' names. Images are addresses, never bytes."""
        asked = [{"role": m.role, "parts": self._parts(m)} for m in exchange.messages]
        found: dict[str, Json] = {"gen_ai.input.messages": _json(asked)}
        found |= _flat("llm.input_messages", [self._message(m) for m in exchange.messages])
        reply = exchange.reply
        if reply is not None:
            thought = [{"type": "reasoning", "content": reply.reasoning}] if reply.reasoning else []
            text = [{"type": "text", "content": reply.text}] if reply.text else []
            parts = [*thought, *text, *map(_call, reply.tool_calls)]
            said = {"role": "assistant", "parts": parts, "finish_reason": _FINISH[reply.finish]}
            message = exchange.said or Message.of_text("assistant", reply.text)
            found |= {"gen_ai.output.messages": _json([said]), "output.value": reply.text, "output.mime_type": "text/plain"}
            found |= _flat("llm.output_messages", [self._message(message)])
        # Offered natively; with the text protocol they stand in the question.
        if self.header.judge.get("tool_protocol") == "native":
            tools = [function(tool) for tool in self.header.tools]
            found["gen_ai.tool.definitions"] = _json([{"type": "function", **tool["function"]} for tool in tools])
            found |= _flat("llm.tools", [{"tool.json_schema": _json(tool)} for tool in tools])
        return found

    def _parts(self, message: Message) -> list[dict[str, Any]]:
        """A message's parts by the GenAI conventions."""
        pieces: list[dict[str, Any]] = [
            {"type": "text", "content": text}
            if image is None
            else {"type": "uri", "modality": "image", "mime_type": image.media_type, "uri": text}
            for text, image in self.source.pieces(message)
        ]
        if message.role == "tool":
            return [{"type": "tool_call_response", "id": message.tool_call_id, "response": pieces}]
        return pieces + [_call(call) for call in message.tool_calls]

    def _message(self, message: Message) -> dict[str, Json]:
        """A message by OpenInference, not flat yet."""
        return {
            "message.role": message.role,
            "message.tool_call_id": message.tool_call_id,
            "message.contents": [
                {"message_content.type": "text", "message_content.text": text}
                if image is None
                else {"message_content.type": "image", "message_content.image.image.url": text}
                for text, image in self.source.pieces(message)
            ],
            "message.tool_calls": [
                {
                    "tool_call.id": call.id,
                    "tool_call.function.name": call.name,
                    "tool_call.function.arguments": _json(dict(call.arguments)),
                }
                for call in message.tool_calls
            ],
        }

    def _tool(self, result: ToolResult) -> dict[str, Any]:
        name, call_id = str(result.call["name"]), str(result.call["id"])
        offered = {str(tool["name"]): tool for tool in self.header.tools}.get(name, {})
        views, text = result.observation["views"], str(result.observation["text"])
        error = "tool_error" if result.observation["error"] else None
        if result.crashed is not None:
            error = result.crashed.partition(":")[0]
        values: dict[str, Json] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.description": offered.get("description"),
            "openinference.span.kind": "TOOL",
            "tool.name": name,
            "tool.id": call_id,
            "tool.description": offered.get("description"),
            "editloupe.tool.version": offered.get("version"),
            "error.type": error,
        }
        if views:
            values |= {
                "editloupe.image.sha256": [str(v["image"]["sha256"]) for v in views],
                "editloupe.image.width": [int(v["image"]["width"]) for v in views],
                "editloupe.image.height": [int(v["image"]["height"]) for v in views],
                # What each picture shows of which other one, in px of that one.
                "editloupe.image.lineage": [
                    _text({"op": v["op"], "origin": v["origin"]["sha256"], "region": v["region"]}) for v in views
                ],
            }
        if self.content:
            arguments = _text(result.call["arguments"])
            values |= {
                "gen_ai.tool.call.arguments": arguments,
                "gen_ai.tool.call.result": text,
                "tool.parameters": arguments,
                "input.value": arguments,
                "input.mime_type": "application/json",
                "output.value": text,
                "output.mime_type": "text/plain",
            }
        end = nanoseconds(result.time)
        return self._span(
            f"execute_tool {name}",
            values,
            mark=("tool", str(result.ordinal)),
            node=name,
            start_ns=end - round(result.seconds * 1e9),
            end_ns=end,
            error=result.crashed if self.content and result.crashed is not None else error,
        )

    def _verdict(self, finding: Finding) -> dict[str, Any]:
        exchanges, end = self.episode.exchanges, self.episode.ended_ns
        last = next((e.reply for e in reversed(exchanges) if e.reply is not None), None)
        result: dict[str, Json] = {
            "gen_ai.evaluation.name": finding.metric,
            "gen_ai.evaluation.score.value": finding.value,
            "gen_ai.evaluation.score.label": finding.label,
            "gen_ai.response.id": None if last is None else _response_id(last),
            "error.type": _failure(finding),
            "gen_ai.evaluation.explanation": self._reason(finding),
        }
        values: dict[str, Json] = {
            "openinference.span.kind": "EVALUATOR",
            "error.type": _failure(finding),
            **self._asked(),
            **_outcome(finding),
            **self._found(finding),
        }
        event = {"timeUnixNano": str(end), "name": "gen_ai.evaluation.result", "attributes": _attributes(result)}
        return self._span(
            f"verdict {finding.metric}",
            values,
            mark=("verdict",),
            node=f"verdict {finding.metric}",
            start_ns=max((e.ended_ns for e in exchanges), default=end),
            end_ns=end,
            events=[event],
            error=_failure(finding),
        )

    def _evaluation(self, finding: Finding) -> dict[str, Json]:
        """The finding as OpenInference attaches it to a trace, with a score and a label if there are any."""
        human = self.header.judge.get("kind") == "human"
        evaluation: dict[str, Json] = {
            "evaluation.name": finding.metric,
            "evaluation.score": finding.value,
            "evaluation.label": finding.label,
            "evaluation.explanation": self._reason(finding),
            "evaluation.annotator_kind": "LLM" if self.episode.is_lmm else "HUMAN" if human else "CODE",
            "evaluation.identifier": finding.judge_id,
        }
        return _flat("trace.evaluations", [evaluation]) | self._found(finding)

    def _reason(self, finding: Finding) -> str | None:
        return finding.reason if self.content and finding.reason else None

    def _found(self, finding: Finding) -> dict[str, Json]:
        """The whole finding as the output of a span."""
        if not self.content:
            return {}
        return {"output.value": _text(finding.to_json()), "output.mime_type": "application/json"}

    def _asked(self) -> dict[str, Json]:
        task, judge = self.episode.task, self.header.judge
        return {
            "editloupe.sample.id": task.about.sample_id,
            "editloupe.sample.editor": task.about.editor,
            # The name that docs/exports.md promises to other tools; its value is the metric's id.
            "editloupe.criterion": task.metric,
            "editloupe.turn": task.about.turn or None,
            "editloupe.part": task.about.part or None,
            "editloupe.role": task.role,
            "editloupe.repeat": self.header.repeat,
            "editloupe.questions.hash": str(judge.get("questions") or judge.get("rubric") or "") or None,
            "editloupe.is_lmm": self.episode.is_lmm,
        }


def _outcome(finding: Finding) -> dict[str, Json]:
    return {
        "editloupe.status": finding.status,
        "editloupe.kind": None if finding.answer is None else finding.answer.kind,
        "editloupe.label": finding.label,
        "editloupe.value": finding.value,
        "editloupe.turns": finding.turns,
    }


def _failure(finding: Finding | None) -> str | None:
    return None if finding is None or finding.status == "ok" else finding.status


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}


def _response_id(reply: Reply) -> str | None:
    """The provider's own id of a reply; None if it gave none."""
    raw = reply.raw
    found = raw.get("id", raw.get("response_id")) if isinstance(raw, Mapping) else None
    return found if isinstance(found, str) and found else None


def _server(endpoint: str) -> dict[str, Json]:
    """Where a model answers; empty for one in this process."""
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        return {}
    return {} if url.hostname is None else {"server.address": url.hostname, "server.port": port}


def _id(digits: int, header: Header, name: str, *parts: str) -> str:
    """The same id whenever this trace is exported, and another one for every other trace; never zero."""
    text = "\n".join((header.run, header.time, name, *parts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:digits]


def _flat(prefix: str, listed: list[dict[str, Json]]) -> dict[str, Json]:
    """OpenInference has no nested values: one attribute a leaf, lists of objects numbered."""
    found: dict[str, Json] = {}
    for number, values in enumerate(listed):
        for name, value in values.items():
            at = f"{prefix}.{number}.{name}"
            found |= _flat(at, value) if isinstance(value, list) else {at: value}
    return found


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
        case str():
            return {"stringValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(v) for v in value]}}
        case _:
            return {"stringValue": _text(value)}


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
