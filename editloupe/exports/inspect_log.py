"""Write a log of Inspect, format version 2, as JSON: opens in `inspect view`, reads with `inspect_ai.log.read_eval_log`.

Inspect has one transcript a sample, and a run has one a finding: each finding is a sample, named SAMPLE#METRIC. Written by
their published schema, without their package. A finding without an answer has no score. Inspect's sign for that is NaN,
which is no JSON; it is counted under `unscored_samples` instead, with the status in the sample's metadata.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.inspect_sample import BROKEN, InspectSample, sample_id, short_id, usage_of
from editloupe.exports.write import json_bytes, whole
from editloupe.findings import Finding

VERSION: Final = 2


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
            episode = None if finding.trace is None else source.episode(finding.trace, finding)
            if episode is not None:
                times += episode.header.time, episode.trace.events[-1].time
                source.problems += episode.trace.problems
            samples.write(
                (b",\n" if samples.tell() else b"") + json_bytes(InspectSample(source, finding, episode).to_json())
            )
        head = _log(source, min(times, default=""), max(times, default=""))
        path = path if path.suffix == ".json" else path / _file_name(head)
        samples.seek(0)
        with whole(path) as file:
            file.write(json_bytes(head)[:-1] + b',"samples":[\n')
            shutil.copyfileobj(samples, file)
            file.write(b"\n]}\n")
    return path


def _file_name(log: Mapping[str, Any]) -> str:
    """Return TIME_TASK_ID.json, as Inspect names logs. A part holds no underscore."""
    spec = log["eval"]
    time, task = spec["created"].replace(":", "-"), re.sub(r"[^\w.+-]|_", "-", spec["task"])
    return f"{time}_{task}_{spec['task_id']}.json"


def _log(source: Source, started: str, completed: str) -> dict[str, Any]:
    """Return the log without its samples.

    started, completed: the first and the last time of the traces; "" where there is none.
    """
    judge_id, backend = next(iter(source.judges.items()))
    model = backend.partition("?")[0]
    spec, judges = source.store.spec, source.store.info.get("judges")
    judge = judges.get(judge_id) if isinstance(judges, Mapping) else None
    assert isinstance(judge, Mapping), "as the store has read it"
    findings = source.findings
    ids = list(dict.fromkeys(map(sample_id, findings)))
    run_id = short_id(source.folder.resolve().name, judge_id, started)
    sampling = judge.get("sampling")
    config = {k: v for k, v in sampling.items() if v is not None} if isinstance(sampling, Mapping) else {}
    endpoint = str(judge.get("endpoint", ""))
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": short_id(run_id, "eval"),
            "run_id": run_id,
            "created": started or "1970-01-01T00:00:00+00:00",
            "task": f"editloupe/{spec.identity.get('protocol', 'judge')}",
            "task_id": short_id(run_id, "task"),
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
            "completed_samples": sum(f.status not in BROKEN for f in findings),
            "scores": _scores(source, findings),
        },
        "stats": {
            "started_at": started,
            "completed_at": completed,
            "model_usage": {
                uri.partition("?")[0]: usage
                for id_, uri in source.backends.items()
                if (usage := usage_of(source, uri, sum((f.usage for f in findings if f.judge_id == id_), Usage())))
            },
        },
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
