"""Make a sample of an Inspect log of one finding: its messages, its events, and its pictures as attachments."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from editloupe.chat import Finish, ImagePart, Message, Part, Reply, TextPart, Usage
from editloupe.data.human import of_turn
from editloupe.data.images import extension
from editloupe.errors import ImageError
from editloupe.exports.episodes import Episode, Exchange, Source, function, instruction_of, lost
from editloupe.exports.write import without_none
from editloupe.files import read_bytes
from editloupe.findings import Finding
from editloupe.traces.events import ModelCall, ToolResult
from editloupe.values import ImageRef, Json

_STOP: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "max_tokens",
    "tools": "tool_calls",
    "refusal": "content_filter",
    "filter": "content_filter",
}
_METADATA: Final = ("sample_id", "editor", "metric", "turn", "part", "role", "status", "reason", "trace")
"""Fields of a finding that a sample's metadata keeps."""

BROKEN: Final = {"tool_failed", "backend_failed", "missing_output", "input_error"}
"""Failures of the evaluation, not of the model: these are errors of a sample."""

_LIMITS: Final = {"turns": ("turn", "max_turns"), "tokens": ("token", "max_tokens"), "time": ("time", "max_seconds")}
"""Ending of an over_budget finding → Inspect's limit and the field of our budget."""

_SAMPLING: Final = ("temperature", "top_p", "seed", "max_tokens")
"""Parameters of a reply that Inspect's configuration of a call has, too."""


class InspectSample:
    """One finding as Inspect has a sample. `attachments` fills while `to_json` runs."""

    def __init__(self, source: Source, finding: Finding, episode: Episode | None) -> None:
        self._source, self._finding, self._episode = source, finding, episode
        self._backend = source.backends[finding.judge_id]
        self._model = self._backend.partition("?")[0]
        self._about = source.sample(finding)
        self._attachments: dict[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the sample."""
        finding, episode = self._finding, self._episode
        messages = () if episode is None else episode.trace.messages()
        first = messages[:1] or (Message.of_text("user", self._instruction or ""),)
        replies = [e.reply for e in episode.exchanges if e.reply is not None] if episode else []
        asked = self._listed(first)
        found: dict[str, Any] = {
            "id": sample_id(finding),
            "epoch": finding.repeat + 1,
            "uuid": self._id(),
            "input": asked,
            "target": self._target,
            "messages": self._listed(messages),
            "output": self._output(replies[-1] if replies else None, len(messages) - 1),
            "scores": {} if finding.answer is None else {finding.metric: self._score()},
            "metadata": self._metadata,
            "model_usage": {self._model: usage} if (usage := usage_of(self._source, self._backend, finding.usage)) else {},
            "total_time": finding.seconds,
            "turn_count": finding.turns,
        }
        if episode is not None:
            found |= {"started_at": episode.header.time, "completed_at": episode.trace.events[-1].time}
            found["events"] = list(self._events(episode, asked))
        if finding.status in BROKEN:
            message = f"{finding.status}: {finding.reason}"
            found["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
        if finding.status == "over_budget" and episode is not None and episode.task.kind == "ask":
            kind, field = _LIMITS.get(finding.ending, ("context", ""))
            limit = getattr(episode.task.budget, field, None) or 0
            found["limit"] = {"type": kind, "limit": limit, "reason": finding.reason}
        return found | {"attachments": self._attachments}

    @property
    def _instruction(self) -> str | None:
        return instruction_of(self._about, self._finding.turn)

    @property
    def _target(self) -> list[str] | str:
        """What people said: the nearest thing to a right answer that a judge has."""
        rated = {} if self._about is None else self._about.human
        return [str(r) for r in rated.get(of_turn(self._finding.turn, self._finding.metric), {}).values()] or ""

    @property
    def _metadata(self) -> dict[str, Json]:
        return {
            **{name: getattr(self._finding, name) for name in _METADATA},
            "edit_type": None if self._about is None else self._about.edit_type,
            "instruction": self._instruction,
        }

    def _score(self) -> dict[str, Any]:
        finding = self._finding
        return {
            "value": str(finding.answer) if finding.value is None else finding.value,
            "answer": str(finding.answer),
            "explanation": finding.reason,
            "metadata": {"evidence": [e.to_json() for e in finding.evidence]},
        }

    def _events(self, episode: Episode, asked: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the transcript: the question, each request with its reply, each tool call, the score."""
        began = episode.header.time
        init = {"input": asked, "target": self._target, "id": sample_id(self._finding), "metadata": self._metadata}
        yield self._event("sample_init", "init", began, began, sample=init)
        for exchange in episode.exchanges:
            yield self._call(episode, exchange)
            for result in exchange.results:
                yield self._tool(episode, result)
        if self._finding.answer is not None:
            ended = episode.trace.events[-1].time
            yield self._event("score", "score", ended, began, score=self._score(), target=self._target)

    def _event(self, kind: str, name: str, time: str, began: str, **more: Any) -> dict[str, Any]:
        since = max(0.0, (datetime.fromisoformat(time) - datetime.fromisoformat(began)).total_seconds())
        return {"event": kind, "uuid": self._id(name), "timestamp": time, "working_start": since, **more}

    def _call(self, episode: Episode, exchange: Exchange) -> dict[str, Any]:
        event, reply = exchange.event, exchange.reply
        seconds = event.seconds if isinstance(event, ModelCall) else 0.0
        native = episode.header.judge.get("tool_protocol") == "native"
        sent = {} if reply is None else {name: reply.sent[name] for name in _SAMPLING if name in reply.sent}
        return self._event(
            "model",
            f"call {exchange.number}",
            _before(event.time, seconds),
            episode.header.time,
            model=self._model,
            role=None if self._finding.role == "judge" else self._finding.role,
            input=self._listed(exchange.messages),
            # Through text they stand in the first message.
            tools=[_described(tool) for tool in episode.header.tools] if native else [],
            tool_choice="auto" if native else "none",
            config=sent,
            output=self._output(reply, len(exchange.messages), exchange.said),
            error=None if exchange.failure is None else f"{exchange.failure.error}: {exchange.failure.message}",
            completed=event.time,
            working_time=seconds,
        )

    def _tool(self, episode: Episode, result: ToolResult) -> dict[str, Any]:
        observation = result.observation
        parts: list[Part] = [TextPart(text=str(observation["text"]))]
        images = dict.fromkeys(ImageRef.from_json(view["image"]) for view in observation["views"])
        for alias, image in zip(result.aliases, images, strict=False):
            parts += [TextPart(text=f"{alias}:"), ImagePart(image=image, alias=alias)]
        error = {"type": "unknown", "message": result.crashed or str(observation["text"])}
        return self._event(
            "tool",
            f"tool {result.ordinal}",
            _before(result.time, result.seconds),
            episode.header.time,
            id=str(result.call["id"]),
            function=str(result.call["name"]),
            arguments=dict(result.call["arguments"]),
            result=self._content(parts),
            error=error if result.crashed or observation["error"] else None,
            completed=result.time,
            working_time=result.seconds,
        )

    def _listed(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [self._message(message, number) for number, message in enumerate(messages)]

    def _message(self, message: Message, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {
            # Of its place, so that all requests of a conversation name a message alike.
            "id": self._id(str(number)),
            "role": message.role,
            "content": self._content(message.parts),
        }
        if message.role == "assistant":
            found |= {"source": "generate", "model": self._model}
            if message.tool_calls:
                found["tool_calls"] = [
                    {"id": c.id, "function": c.name, "arguments": dict(c.arguments), "type": "function"}
                    for c in message.tool_calls
                ]
        if message.tool_call_id is not None:
            found["tool_call_id"] = message.tool_call_id
        return found

    def _content(self, parts: Sequence[Part]) -> list[dict[str, str]]:
        return [
            {"type": "text", "text": part.text} if isinstance(part, TextPart) else self._picture(part) for part in parts
        ]

    def _picture(self, part: ImagePart) -> dict[str, str]:
        """Return a picture as an attachment, or by its address where the run's pictures can be reached."""
        ref, address = part.image, None
        if self._source.blob_base_url is not None:
            address = self._source.image(ref)
        elif ref.sha256 in self._attachments or self._attached(ref):
            address = f"attachment://{ref.sha256}"
        return {"type": "text", "text": lost(part)} if address is None else {"type": "image", "image": address}

    def _attached(self, ref: ImageRef) -> bool:
        """Attach a picture. Return False if its file is not there, or is no picture."""
        path = self._source.image_path(ref)
        if path is None:
            return False
        try:
            data = read_bytes(path)
            extension(data, name=path.name)
        except (OSError, ImageError):
            return False
        self._attachments[ref.sha256] = f"data:{ref.media_type};base64,{base64.b64encode(data).decode('ascii')}"
        return True

    def _output(self, reply: Reply | None, number: int, said: Message | None = None) -> dict[str, Any]:
        """number: the place of the reply in the conversation. said: the message by which the conversation keeps it."""
        if reply is None:
            return {"model": self._model, "choices": []}
        message = self._message(said or Message.of_text("assistant", reply.text), number)
        return {
            "model": reply.model or self._model,
            "choices": [{"message": message, "stop_reason": _STOP[reply.finish]}],
            "completion": reply.text,
            "usage": usage_of(self._source, self._backend, reply.usage),
        }

    def _id(self, *parts: str) -> str:
        return short_id(self._finding.task_id, self._finding.judge_id, str(self._finding.repeat), *parts)


def usage_of(source: Source, backend: str, usage: Usage) -> dict[str, Any] | None:
    """Return tokens and cost as Inspect counts them; None if nothing was counted.

    Inspect counts input apart from what came out of the cache; most providers do not.
    """
    if not usage.to_json():
        return None
    return without_none(
        input_tokens=max(0, (usage.input_tokens or 0) - (usage.cached_tokens or 0)),
        output_tokens=usage.output_tokens or 0,
        total_tokens=usage.total,
        input_tokens_cache_read=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_cost=source.cost(backend, usage),
    )


def sample_id(finding: Finding) -> str:
    """Return SAMPLE#METRIC, with the turn and the part that a finding is about."""
    about = finding.about
    turn, part = f"@turn {about.turn}" if about.turn else "", about.part.removeprefix("target ")
    return f"{about.key}#{finding.metric}{turn}" + (f"@{part}" if part else "")


def short_id(*parts: str) -> str:
    """Return 22 characters, the same for the same parts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:22]


def _before(time: str, seconds: float) -> str:
    return (datetime.fromisoformat(time) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def _described(tool: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = function(tool)["function"]
    return {"description": "", **described}
