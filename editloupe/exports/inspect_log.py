"""Write a log of Inspect, format version 2, as JSON: opens in `inspect view`, reads with `inspect_ai.log.read_eval_log`.

Inspect has one conversation a sample, and a run has one a finding: each finding is a sample, named SAMPLE#METRIC. Written
by their published schema, without their package. A finding without an answer has no score. Inspect's sign for that is NaN,
which is no JSON; it is counted under `unscored_samples` instead, with the status in the sample's metadata.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from editloupe.chat import Finish, ImagePart, Message, Reply, TextPart, Usage
from editloupe.data.human import of_turn
from editloupe.data.images import extension
from editloupe.errors import ConfigError, ImageError
from editloupe.exports.episodes import Episode, Source, lost
from editloupe.exports.write import json_bytes, whole, without_none
from editloupe.files import read_bytes
from editloupe.findings import Finding
from editloupe.values import Json

VERSION: Final = 2

_STOP: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "max_tokens",
    "tools": "tool_calls",
    "refusal": "content_filter",
    "filter": "content_filter",
}
_METADATA: Final = ("sample_id", "editor", "metric", "turn", "part", "role", "status", "reason", "trace")
"""Fields of a finding that a sample's metadata keeps."""

_BROKEN: Final = {"tool_failed", "backend_failed", "missing_output", "input_error"}
"""Failures of the evaluation, not of the model: these are errors of a sample."""


def write_inspect(source: Source, path: Path) -> Path:
    """Write one judge's findings, with those of other roles and measures, as one log. Return its file.

    path: a folder, in which the file gets the name by which Inspect finds logs; or a file that ends in .json.
    Raises ConfigError if the run has several judges and none was chosen: a log has one model. Raises StorageError.
    """
    if len(source.judges) != 1:
        known = "; ".join(f"{id_} {uri}" for id_, uri in source.judges.items()) or "none"
        raise ConfigError(f"a log of Inspect has one model; choose a judge with --judge: {known}")
    times: list[str] = []
    # Samples with their pictures may be large: one at a time, and behind the head, which alone is read for a list.
    with tempfile.TemporaryFile() as samples:
        for finding in source.findings:
            episode = None if finding.trace is None else source.episode(finding)
            if episode is not None:
                times += episode.header.time, episode.ended
            comma = b",\n" if samples.tell() else b""
            samples.write(comma + json_bytes(_Sample(source, finding, episode).to_json()))
        head = _log(source, min(times, default=""), max(times, default=""))
        path = path if path.suffix == ".json" else path / _file_name(head)
        samples.seek(0)
        with whole(path) as file:
            file.write(json_bytes(head)[:-1] + b',"samples":[\n')
            shutil.copyfileobj(samples, file)
            file.write(b"\n]}\n")
    return path


class _Sample:
    """One finding as Inspect has a sample. `attachments` fills while `to_json` runs."""

    def __init__(self, source: Source, finding: Finding, episode: Episode | None) -> None:
        self._source, self._finding, self._episode = source, finding, episode
        self._backend = source.backends[finding.judge_id]
        self._model = self._backend.partition("?")[0]
        self._attachments: dict[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        finding, episode = self._finding, self._episode
        instruction = self._source.instruction(finding)
        about = self._source.sample(finding)
        messages = () if episode is None else episode.trace.messages()
        replies = [e.reply for e in episode.exchanges if e.reply is not None] if episode else []
        # What people said is the nearest thing to a right answer that a judge has.
        rated = {} if about is None else about.human.get(of_turn(finding.turn, finding.metric), {})
        usage = _usage(self._source, self._backend, finding.usage)
        found: dict[str, Any] = {
            "id": _sample_id(finding),
            "epoch": finding.repeat + 1,
            "uuid": self._id(),
            "input": self._listed(messages[:1] or (Message.of_text("user", instruction or ""),)),
            "target": [str(rating) for rating in rated.values()] or "",
            "messages": self._listed(messages),
            "output": self._output(replies[-1] if replies else None, len(messages) - 1),
            "scores": {} if finding.answer is None else {finding.metric: self._score()},
            "metadata": {
                **{name: getattr(finding, name) for name in _METADATA},
                "edit_type": None if about is None else about.edit_type,
                "instruction": instruction,
            },
            "model_usage": {self._model: usage} if usage else {},
            "total_time": finding.seconds,
            "turn_count": finding.turns,
        }
        if episode is not None:
            found |= {"started_at": episode.header.time, "completed_at": episode.ended}
        if replies:
            # Inspect's table of messages is read from events: the last request holds all messages before its reply.
            asked, time = found["messages"][:-1], {"timestamp": found["started_at"], "working_start": 0.0}
            event = {"event": "model", "uuid": self._id("model"), "model": self._model, "input": asked, **time}
            found["events"] = [event | {"tools": [], "tool_choice": "auto", "config": {}, "output": found["output"]}]
        if finding.status in _BROKEN:
            message = f"{finding.status}: {finding.reason}"
            found["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
        return found | {"attachments": self._attachments}

    def _score(self) -> dict[str, Any]:
        finding = self._finding
        return {
            "value": str(finding.answer) if finding.value is None else finding.value,
            "answer": str(finding.answer),
            "explanation": finding.reason,
            "metadata": {"evidence": [e.to_json() for e in finding.evidence]},
        }

    def _listed(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [self._message(message, number) for number, message in enumerate(messages)]

    def _message(self, message: Message, number: int) -> dict[str, Any]:
        content = [
            {"type": "text", "text": part.text} if isinstance(part, TextPart) else self._picture(part)
            for part in message.parts
        ]
        found: dict[str, Any] = {"id": self._id(str(number)), "role": message.role, "content": content}
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

    def _picture(self, part: ImagePart) -> dict[str, str]:
        """Attach a picture, unless its file is not there or is no picture."""
        ref, path = part.image, self._source.image_path(part.image)
        try:
            if path is None:
                return {"type": "text", "text": lost(part)}
            if ref.sha256 not in self._attachments:
                data = read_bytes(path)
                extension(data, name=path.name)
                self._attachments[ref.sha256] = f"data:{ref.media_type};base64,{base64.b64encode(data).decode('ascii')}"
        except (OSError, ImageError):
            return {"type": "text", "text": lost(part)}
        return {"type": "image", "image": f"attachment://{ref.sha256}"}

    def _output(self, reply: Reply | None, number: int) -> dict[str, Any]:
        """number: the place of the reply in the conversation."""
        if reply is None:
            return {"model": self._model, "choices": []}
        message = self._message(Message.of_text("assistant", reply.text), number)
        return {
            "model": reply.model or self._model,
            "choices": [{"message": message, "stop_reason": _STOP[reply.finish]}],
            "completion": reply.text,
            "usage": _usage(self._source, self._backend, reply.usage),
        }

    def _id(self, *parts: str) -> str:
        return _short_id(self._finding.task_id, self._finding.judge_id, str(self._finding.repeat), *parts)


def _log(source: Source, started: str, completed: str) -> dict[str, Any]:
    """Return the log without its samples.

    started, completed: the first and the last time of the traces; "" where there is none.
    """
    judge_id, backend = next(iter(source.judges.items()))
    spec, findings, name = source.store.spec, source.findings, source.folder.resolve().name
    judge: Any = source.store.info["judges"]
    judge = dict(judge[judge_id])
    config = without_none(**dict(judge.get("sampling") or {}))
    ids = list(dict.fromkeys(map(_sample_id, findings)))
    run_id = _short_id(name, judge_id, started)
    spent = {id_: Usage.total_of(f.usage for f in findings if f.judge_id == id_) for id_ in source.backends}
    usages = {uri.partition("?")[0]: _usage(source, uri, spent[id_]) for id_, uri in source.backends.items()}
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": _short_id(run_id, "eval"),
            "run_id": run_id,
            "created": started or "1970-01-01T00:00:00+00:00",
            "task": f"editloupe/{source.store.protocol}",
            "task_id": _short_id(run_id, "task"),
            "task_version": 1,
            "task_args": dict(spec.identity),
            "solver": "editloupe",
            "dataset": {"name": name, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": backend.partition("?")[0],
            "model_generate_config": config,
            "config": {"epochs": 1 + max((f.repeat for f in findings), default=0)},
            "metadata": {"judge_id": judge_id, "judge": judge},
        },
        "plan": {"name": "editloupe", "steps": [], "config": config},
        "results": {
            "total_samples": len(findings),
            "completed_samples": sum(f.status not in _BROKEN for f in findings),
            "scores": [_scores(metric, findings) for metric in dict.fromkeys(f.metric for f in findings)],
        },
        "stats": {"started_at": started, "completed_at": completed, "model_usage": without_none(**usages)},
    }


def _scores(metric: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """The mean of the findings of one question that have a value, with the number of both kinds."""
    own = [f for f in findings if f.metric == metric]
    values = [f.value for f in own if f.value is not None]
    return {
        "name": metric,
        "scorer": "editloupe",
        "scored_samples": sum(f.answer is not None for f in own),
        "unscored_samples": sum(f.answer is None for f in own),
        "metrics": {"mean": {"name": "mean", "value": statistics.fmean(values)}} if values else {},
    }


def _usage(source: Source, backend: str, usage: Usage) -> dict[str, Json] | None:
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


def _file_name(log: Mapping[str, Any]) -> str:
    """Return TIME_TASK_ID.json, as Inspect names logs. A part holds no underscore."""
    spec = log["eval"]
    time, task = spec["created"].replace(":", "-"), re.sub(r"[^\w.+-]|_", "-", spec["task"])
    return f"{time}_{task}_{spec['task_id']}.json"


def _sample_id(finding: Finding) -> str:
    """Return SAMPLE#METRIC, with the turn and the part that a finding is about."""
    about = finding.about
    turn, part = f"@turn {about.turn}" if about.turn else "", about.part.removeprefix("target ")
    return f"{about.key}#{finding.metric}{turn}" + (f"@{part}" if part else "")


def _short_id(*parts: str) -> str:
    """Return 22 characters, the same for the same parts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:22]
