"""Write a log of Inspect, format version 2, as JSON: opens in `inspect view`, reads with `inspect_ai.log.read_eval_log`.

Inspect has one transcript a sample, and a run has one a finding: each finding is a sample, named SAMPLE#METRIC. Written by
their published schema, without their package. A finding without an answer has no score. Inspect's sign for that is NaN,
which is no JSON; it is counted under `unscored_samples` instead, with the status in the sample's metadata.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from editloupe.chat import Finish, Message, Reply, Usage
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Episode, Source
from editloupe.exports.write import json_bytes, whole, without_none
from editloupe.findings import Finding

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

_BROKEN: Final = {"tool_failed", "backend_failed", "missing_output", "input_error", "invalid"}
"""Failures of the evaluation, not of the model: these are errors of a sample."""

_LIMITS: Final = {"turns": ("turn", "max_turns"), "tokens": ("token", "max_tokens"), "time": ("time", "max_seconds")}
"""Ending of an over_budget finding → Inspect's limit and the field of our budget."""


def write_inspect(source: Source, path: Path) -> int:
    """Write one judge's findings, with those of other roles and measures, as one log. Return how many there are.

    Raises ConfigError if the run has several judges and none was chosen: a log has one model. Raises StorageError.
    """
    if len(source.judges) != 1:
        known = "; ".join(f"{id_} {uri}" for id_, uri in source.judges.items()) or "none"
        raise ConfigError(f"a log of Inspect has one model; choose a judge with --judge: {known}")
    samples: dict[str, dict[str, Any]] = {}
    times: list[str] = []
    # One trace at a time: of a large run, only what is written is held.
    for episode in source.episodes(forks=False):
        if episode.finding is not None:
            samples[episode.name] = _sample(source, episode.finding, episode)
            times += episode.header.time, episode.trace.events[-1].time
    listed = [samples.get(f.trace or "") or _sample(source, f, None) for f in source.findings]
    data = _log(source, listed, min(times, default=""), max(times, default=""))
    with whole(path) as file:
        file.write(json_bytes(data, indent=1) + b"\n")
    return len(source.findings)


def _log(source: Source, samples: list[dict[str, Any]], started: str, completed: str) -> dict[str, Any]:
    """started, completed: the first and the last time of the traces; "" where there is none."""
    judge_id, backend = next(iter(source.judges.items()))
    model = backend.partition("?")[0]
    spec, judges = source.store.spec, source.store.info.get("judges")
    judge = judges.get(judge_id) if isinstance(judges, Mapping) else None
    assert isinstance(judge, Mapping), "as the store has read it"
    findings = source.findings
    ids = list(dict.fromkeys(map(_sample_id, findings)))
    run_id = _id(source.folder.resolve().name, judge_id, started)
    sampling = judge.get("sampling")
    config = {k: v for k, v in sampling.items() if v is not None} if isinstance(sampling, Mapping) else {}
    endpoint = str(judge.get("endpoint", ""))
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": _id(run_id, "eval"),
            "run_id": run_id,
            "created": started or "1970-01-01T00:00:00+00:00",
            "task": f"editloupe/{spec.identity.get('protocol', 'judge')}",
            "task_id": _id(run_id, "task"),
            "task_version": 1,
            "task_args": dict(spec.identity),
            "solver": "editloupe",
            "dataset": {"name": source.folder.resolve().name, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": model,
            "model_generate_config": config,
            **({"model_base_url": endpoint} if urlsplit(endpoint).scheme in ("http", "https") else {}),
            "config": {"epochs": 1 + max((f.repeat for f in findings), default=0)},
            "packages": {"editloupe": str(spec.record.get("editloupe", ""))},
            "metadata": {"judge_id": judge_id, "judge": dict(judge)},
        },
        "plan": {"name": "editloupe", "steps": [{"solver": "editloupe", "params": {}}], "config": config},
        "results": {
            "total_samples": len(findings),
            "completed_samples": sum(f.status not in _BROKEN for f in findings),
            "scores": _scores(source, findings),
        },
        "stats": {
            "started_at": started,
            "completed_at": completed,
            "model_usage": {
                uri.partition("?")[0]: usage
                for id_, uri in source.backends.items()
                if (usage := _usage(source, uri, sum((f.usage for f in findings if f.judge_id == id_), Usage())))
            },
        },
        "samples": samples,
    }


def _scores(source: Source, findings: list[Finding]) -> list[dict[str, Any]]:
    """A mean for each question, of the findings that have a value, with the number of both kinds."""
    metrics = source.store.metrics()
    found = []
    for id_ in dict.fromkeys(f.metric for f in findings):
        own = [f for f in findings if f.metric == id_]
        values = [f.value for f in own if f.value is not None]
        mean = {"mean": {"name": "mean", "value": statistics.fmean(values)}} if values else {}
        found.append(
            {
                "name": id_,
                "scorer": "editloupe",
                "scored_samples": sum(f.answer is not None for f in own),
                "unscored_samples": sum(f.answer is None for f in own),
                "metrics": mean,
                "metadata": {"short": metrics[id_].short if id_ in metrics else None},
            }
        )
    return found


def _sample(source: Source, finding: Finding, episode: Episode | None) -> dict[str, Any]:
    messages = () if episode is None else episode.trace.messages()
    sample = source.sample(finding)
    backend = source.backends[finding.judge_id]
    model = backend.partition("?")[0]
    first = messages[:1] or (Message.of_text("user", "" if sample is None else sample.asked(finding.turn)),)
    replies = [e.reply for e in episode.exchanges if e.reply is not None] if episode else []
    found: dict[str, Any] = {
        "id": _sample_id(finding),
        "epoch": finding.repeat + 1,
        "uuid": _id(finding.task_id, finding.judge_id, str(finding.repeat)),
        "input": [_message(source, m, "", i, finding) for i, m in enumerate(first)],
        # What people said: the nearest thing to a right answer that a judge has.
        "target": [str(rating) for rating in sample.human.get(finding.metric, {}).values()] or "" if sample else "",
        "messages": [_message(source, m, model, i, finding) for i, m in enumerate(messages)],
        "output": _output(source, backend, replies[-1] if replies else None),
        "scores": {},
        "metadata": {
            **{name: getattr(finding, name) for name in _METADATA},
            "edit_type": None if sample is None else sample.edit_type,
            "instruction": None if sample is None else sample.asked(finding.turn),
        },
        "model_usage": {model: usage} if (usage := _usage(source, backend, finding.usage)) else {},
        "total_time": finding.seconds,
        "turn_count": finding.turns,
    }
    if episode is not None:
        found |= {"started_at": episode.header.time, "completed_at": episode.trace.events[-1].time}
    if finding.answer is not None:
        found["scores"][finding.metric] = {
            "value": str(finding.answer) if finding.value is None else finding.value,
            "answer": str(finding.answer),
            "explanation": finding.reason,
            "metadata": {"evidence": [e.to_json() for e in finding.evidence]},
        }
    if finding.status in _BROKEN:
        found["error"] = {"message": f"{finding.status}: {finding.reason}", "traceback": "", "traceback_ansi": ""}
    if finding.status == "over_budget" and episode is not None and episode.task.kind == "ask":
        # Version 1 said what ended a task in its reason alone.
        kind, field = _LIMITS.get(finding.ending or finding.reason.partition(":")[0], ("context", ""))
        found["limit"] = {"type": kind, "limit": getattr(episode.task.budget, field, None) or 0, "reason": finding.reason}
    return found


def _message(source: Source, message: Message, model: str, number: int, finding: Finding) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": _id(finding.task_id, finding.judge_id, str(finding.repeat), str(number)),
        "role": message.role,
        "content": [
            {"type": "text", "text": text} if image is None else {"type": "image", "image": text}
            for text, image in source.pieces(message)
        ],
    }
    if message.role == "assistant":
        found |= {"source": "generate", "model": model}
        if message.tool_calls:
            found["tool_calls"] = [
                {"id": c.id, "function": c.name, "arguments": dict(c.arguments), "type": "function"}
                for c in message.tool_calls
            ]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    return found


def _output(source: Source, backend: str, reply: Reply | None) -> dict[str, Any]:
    model = backend.partition("?")[0]
    if reply is None:
        return {"model": model, "choices": []}
    message = {"role": "assistant", "content": reply.text, "source": "generate", "model": model}
    return {
        "model": reply.model or model,
        "choices": [{"message": message, "stop_reason": _STOP[reply.finish]}],
        "completion": reply.text,
        "usage": _usage(source, backend, reply.usage),
    }


def _usage(source: Source, backend: str, usage: Usage) -> dict[str, Any] | None:
    """None if nothing was counted. Inspect counts input apart from what came out of the cache; most providers do not."""
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


def _sample_id(finding: Finding) -> str:
    about = finding.about
    turn, part = f"@turn {about.turn}" if about.turn else "", about.part.removeprefix("target ")
    return f"{about.key}#{finding.metric}{turn}" + (f"@{part}" if part else "")


def _id(*parts: str) -> str:
    """Return 22 characters, the same for the same parts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:22]
