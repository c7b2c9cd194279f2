"""Run folders written by hand: labels and answers in, a folder that `report` and `compare` read out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from editloupe.protocols.base import make_protocol
from editloupe.rubrics import load_rubric
from editloupe.runs.setup import options_of
from editloupe.scores import Metric
from editloupe.values import digest

IF, VC = "instruction_following", "visual_consistency"
RUBRIC = load_rubric("dlebench")
LEVELS = {level.value: level.name for level in RUBRIC.criterion("if").levels}
VALUES = {level.name: level.value for criterion in RUBRIC.criteria for level in criterion.levels}
Row: TypeAlias = dict[str, Any]


def sample(
    id: str,
    *,
    source: str = "",
    editor: str = "",
    edit_type: str | None = None,
    instruction: str = "Do it.",
    boxes: Sequence[tuple[int, int, int, int]] = (),
) -> Row:
    """A line of samples.jsonl, in images of 1000×1000 px. source: names the source image; "" one of its own."""

    def image(name: str) -> Row:
        return {"sha256": digest(name), "width": 1000, "height": 1000, "media_type": "image/png"}

    return {
        "id": id,
        "dataset": "edits",
        "editor": editor,
        "source": image(f"source {source or id}"),
        "turns": [{"instruction": instruction, "edited": image(f"edited {editor}/{id}")}],
        "targets": [{"name": None, "boxes": {"source": list(box)}} for box in boxes],
        "edit_type": edit_type,
        "reference": None,
        "masks": {},
        "human": {},
        "extra": {},
        "warnings": [],
    }


def finding(of: Row, given: str, *, criterion: str = IF, repeat: int = 0, **more: Any) -> Row:
    """A line of findings.jsonl. given: a label, or a status in brackets."""
    failed = given.startswith("(")
    label = None if failed else given
    value = None if failed else VALUES[given]
    return {
        "task_id": digest([of["editor"], of["id"], criterion]),
        "repeat": repeat,
        "sample_id": of["id"],
        "editor": of["editor"],
        "metric": criterion,
        "status": given.strip("()") if failed else "ok",
        "label": label,
        "value": value,
        "answer": None if failed else {"kind": "label", "name": label, "value": value},
        "reason": "",
        "evidence": [],
        "usage": {},
        "counts": {},
        "turns": 1,
        "seconds": 2.0,
        "trace": "traces/none.jsonl",
        **more,
    }


def write_run(
    folder: Path,
    samples: Sequence[Row],
    judges: Mapping[str, Sequence[Row]],
    *,
    backends: Mapping[str, str] | None = None,
    mode: str = "tool",
    repeats: int = 1,
) -> Path:
    """A run folder of DLEBench. judges: name → findings.   backends: name → URI where it is not the baseline."""
    protocol = make_protocol("dlebench", {"mode": mode})
    record = {
        "options": options_of(protocol),
        "metrics": [metric.to_json() for metric in protocol.metrics],
        "repeats": {"count": repeats, "by": "median", "abstain_above": None},
    }
    listed = {name: {"name": name, "backend": (backends or {}).get(name, "baseline")} for name in judges}
    return _written(folder, "dlebench", record, listed, samples, judges)


def answered(
    of: Row, metric: str, given: float | str | None, *, turn: int = 0, part: str = "", status: str = "ok", **more: Any
) -> Row:
    """A line of findings.jsonl. given: a number, "yes" or "no"; None with a status."""
    answer: Row | None = None
    if isinstance(given, str):
        answer = {"kind": "choice", "name": given}
    elif given is not None:
        answer = {"kind": "number", "value": given}
    return {
        "task_id": digest([of["editor"], of["id"], metric, turn, part]),
        "repeat": 0,
        "sample_id": of["id"],
        "editor": of["editor"],
        "turn": turn,
        "part": part,
        "metric": metric,
        "status": status,
        "answer": answer,
        "usage": {"input_tokens": 100, "output_tokens": 10},
        "turns": 1,
        "seconds": 2.0,
        **more,
    }


def write_protocol_run(
    folder: Path,
    protocol: str,
    metrics: Sequence[Metric],
    samples: Sequence[Row],
    judges: Mapping[str, Sequence[Row]],
    *,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder of any protocol. judges: backend URI → findings."""
    record = {"options": dict(options or {}), "metrics": [metric.to_json() for metric in metrics]}
    return _written(folder, protocol, record, {uri: {"backend": uri} for uri in judges}, samples, judges)


def _written(
    folder: Path,
    protocol: str,
    record: Row,
    listed: Mapping[str, Row],
    samples: Sequence[Row],
    judges: Mapping[str, Sequence[Row]],
) -> Path:
    folder.mkdir(parents=True)
    ids = {name: digest(name)[:16] for name in judges}
    info = {
        "schema": 2,
        "identity": {"protocol": protocol},
        "record": record,
        "judges": {ids[name]: judge for name, judge in listed.items()},
    }
    rows = [{"judge_id": ids[name], **row} for name, findings in judges.items() for row in findings]
    rows = [{**row, "digest": digest(row)} for row in rows]
    (folder / "run.json").write_text(json.dumps(info), encoding="utf-8")
    for file, lines in (("samples.jsonl", samples), ("findings.jsonl", rows)):
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder
