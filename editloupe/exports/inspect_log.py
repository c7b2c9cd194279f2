"""A log of Inspect, format version 2, as JSON: opens in `inspect view` and reads with `inspect_ai.log.read_eval_log`.

Inspect has one transcript a sample, and we have one a finding: each finding is a sample, named SAMPLE#CRITERION. Written by
their published schema, without their package. What has no answer has no score: their own sign for that is NaN, which is no
JSON; it is counted under `unscored_samples` instead, with the status in the sample's metadata.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from editloupe.chat import Finish, ImagePart, Message, Reply, Usage
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Episode, Source
from editloupe.exports.messages import lost
from editloupe.exports.write import json_bytes, whole
from editloupe.findings import Finding
from editloupe.values import sample_key

VERSION: Final = 2

_STOP: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "max_tokens",
    "tools": "tool_calls",
    "refusal": "content_filter",
    "filter": "content_filter",
}
_BROKEN: Final = {"tool_failed", "backend_failed", "missing_output", "input_error"}
"""What an evaluation could not do, against what the model did: these are errors of a sample."""

_LIMITS: Final = {"turns": ("turn", "max_turns"), "tokens": ("token", "max_tokens"), "time": ("time", "max_seconds")}
"""How an over_budget reason begins → Inspect's limit and the field of our budget."""


def write_inspect(source: Source, path: Path) -> int:
    """Write one judge's findings as one log, and return how many there are.

    Raises ConfigError where the run has several judges and none was chosen: a log has one model. Raises StorageError.
    """
    if len(source.judges) != 1:
        known = "; ".join(f"{id_} {uri}" for id_, uri in source.judges.items()) or "none"
        raise ConfigError(f"a log of Inspect has one model; choose a judge with --judge: {known}")
    model = next(iter(source.judges.values())).partition("?")[0]
    samples: dict[str, dict[str, Any]] = {}
    span: list[str] = []
    # One trace at a time: of a large run, only what is written is held.
    for episode in source.episodes(forks=False):
        if episode.finding is not None:
            samples[episode.name] = _sample(source, episode.finding, episode, model)
            span = sorted((*span, episode.header.time, episode.trace.events[-1].time))
            span = [span[0], span[-1]]
    listed = [samples.get(f.trace or "") or _sample(source, f, None, model) for f in source.findings]
    data = _log(source, listed, span)
    with whole(path) as file:
        file.write(json_bytes(data, indent=1) + b"\n")
    return len(source.findings)


def _log(source: Source, samples: list[dict[str, Any]], span: list[str]) -> dict[str, Any]:
    """span: the first and the last time of the traces; empty where there is none."""
    judge_id, backend = next(iter(source.judges.items()))
    model = backend.partition("?")[0]
    info = source.store.info
    judges = info.get("judges")
    judge = judges.get(judge_id, {}) if isinstance(judges, Mapping) else {}
    identity = info["identity"]
    assert isinstance(judge, Mapping) and isinstance(identity, Mapping), "as the store has read them"
    findings = source.findings
    ids = list(dict.fromkeys(map(_sample_id, findings)))
    started, completed = span or ("", "")
    run_id = _id(source.folder.resolve().name, judge_id, started)
    sampling = judge.get("sampling")
    config = {k: v for k, v in sampling.items() if v is not None} if isinstance(sampling, Mapping) else {}
    total = Usage()
    for finding in findings:
        total += finding.usage
    name = f"editloupe/{identity.get('protocol', 'judge')}"
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": _id(run_id, "eval"),
            "run_id": run_id,
            "created": started or "1970-01-01T00:00:00+00:00",
            "task": name,
            "task_id": _id(run_id, "task"),
            "task_version": 1,
            "task_args": dict(identity),
            "solver": "editloupe",
            "dataset": {"name": source.folder.resolve().name, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": model,
            "model_generate_config": config,
            **_base_url(str(judge.get("endpoint", ""))),
            "config": {"epochs": 1 + max((f.repeat for f in findings), default=0)},
            "packages": {"editloupe": str(_record(info).get("editloupe", ""))},
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
            "model_usage": {model: _usage(total, source.cost(backend, total))} if total.to_json() else {},
        },
        "samples": samples,
    }


def _scores(source: Source, findings: list[Finding]) -> list[dict[str, Any]]:
    """A mean a criterion, of those that have a value, with the numbers of both."""
    names = source.store.criteria()
    found = []
    for criterion in dict.fromkeys(f.metric for f in findings):
        own = [f for f in findings if f.metric == criterion]
        values = [f.value for f in own if f.value is not None]
        mean = {"mean": {"name": "mean", "value": statistics.fmean(values)}} if values else {}
        found.append(
            {
                "name": criterion,
                "scorer": "editloupe",
                "scored_samples": len(values),
                "unscored_samples": len(own) - len(values),
                "metrics": mean,
                "metadata": {"short": names.get(criterion)},
            }
        )
    return found


def _sample(source: Source, finding: Finding, episode: Episode | None, model: str) -> dict[str, Any]:
    messages = () if episode is None else episode.trace.messages()
    sample = source.sample(finding)
    human = {} if sample is None else sample.human.get(finding.metric, {})
    first = messages[:1] or (Message.of_text("user", "" if sample is None else sample.instruction),)
    last = next((e.reply for e in reversed(episode.exchanges) if e.reply is not None), None) if episode else None
    found: dict[str, Any] = {
        "id": _sample_id(finding),
        "epoch": finding.repeat + 1,
        "uuid": _id(finding.task_id, finding.judge_id, str(finding.repeat)),
        "input": [_message(source, m, "", i, finding) for i, m in enumerate(first)],
        # What people said, where they did: the nearest thing to a right answer that a judge has.
        "target": [str(rating) for rating in human.values()] or "",
        "messages": [_message(source, m, model, i, finding) for i, m in enumerate(messages)],
        "output": _output(source, finding, last, model),
        "scores": {},
        "metadata": {
            "sample_id": finding.sample_id,
            "editor": finding.editor,
            "criterion": finding.metric,
            "target": finding.target,
            "status": finding.status,
            "reason": finding.reason,
            "edit_type": None if sample is None else sample.edit_type,
            "instruction": None if sample is None else sample.instruction,
            "trace": finding.trace,
        },
        "model_usage": {model: _usage(finding.usage, source.cost(source.judges.get(finding.judge_id), finding.usage))}
        if finding.usage.to_json()
        else {},
        "total_time": finding.seconds,
        "turn_count": finding.turns,
    }
    if episode is not None:
        found |= {"started_at": episode.header.time, "completed_at": episode.trace.events[-1].time}
    worth = finding.value if finding.value is not None else finding.label
    if worth is not None:
        found["scores"][finding.metric] = {
            "value": worth,
            "answer": finding.label,
            "explanation": finding.reason,
            "metadata": {"evidence": [e.to_json() for e in finding.evidence]},
        }
    if finding.status in _BROKEN:
        found["error"] = {"message": f"{finding.status}: {finding.reason}", "traceback": "", "traceback_ansi": ""}
    limit = _limit(finding, episode)
    if limit is not None:
        found["limit"] = limit
    return found


def _limit(finding: Finding, episode: Episode | None) -> dict[str, Any] | None:
    if finding.status != "over_budget" or episode is None:
        return None
    kind, field = _LIMITS.get(finding.reason.partition(":")[0], ("context", ""))
    size = episode.header.task["budget"].get(field)
    return {"type": kind, "limit": size if isinstance(size, int | float) else 0, "reason": finding.reason}


def _message(source: Source, message: Message, model: str, number: int, finding: Finding) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for part in message.parts:
        uri = source.image(part.image) if isinstance(part, ImagePart) else None
        if uri is not None:
            content.append({"type": "image", "image": uri})
        else:
            content.append({"type": "text", "text": lost(part) if isinstance(part, ImagePart) else part.text})
    found: dict[str, Any] = {
        "id": _id(finding.task_id, finding.judge_id, str(finding.repeat), str(number)),
        "role": message.role,
        "content": content,
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


def _output(source: Source, finding: Finding, reply: Reply | None, model: str) -> dict[str, Any]:
    if reply is None:
        return {"model": model, "choices": []}
    message = {"role": "assistant", "content": reply.text, "source": "generate", "model": model}
    return {
        "model": reply.model or model,
        "choices": [{"message": message, "stop_reason": _STOP[reply.finish]}],
        "completion": reply.text,
        "usage": _usage(reply.usage, source.cost(source.judges.get(finding.judge_id), reply.usage))
        if reply.usage.to_json()
        else None,
    }


def _usage(usage: Usage, cost: float | None) -> dict[str, Any]:
    """Inspect counts input apart from what came out of the cache; we count both as input, as most providers do."""
    cached = usage.cached_tokens
    found = {
        "input_tokens": max(0, (usage.input_tokens or 0) - (cached or 0)),
        "output_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total,
    }
    more = {"input_tokens_cache_read": cached, "reasoning_tokens": usage.reasoning_tokens, "total_cost": cost}
    return {**found, **{name: value for name, value in more.items() if value is not None}}


def _sample_id(finding: Finding) -> str:
    name = f"{sample_key(finding.editor, finding.sample_id)}#{finding.metric}"
    return name if finding.target is None else f"{name}@{finding.target}"


def _base_url(endpoint: str) -> dict[str, str]:
    return {"model_base_url": endpoint} if urlsplit(endpoint).scheme in ("http", "https") else {}


def _record(info: Mapping[str, Any]) -> Mapping[str, Any]:
    record = info.get("record")
    return record if isinstance(record, Mapping) else {}


def _id(*parts: str) -> str:
    """22 characters, the same for the same parts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:22]
