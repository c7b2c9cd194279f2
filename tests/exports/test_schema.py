"""Schemas are held against real files: every line that runs write is valid, and what breaks a rule is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from editloupe.exports.schema import schema
from tests.exports.runs import add_fork, baseline_run, native_run


@pytest.fixture(scope="module")
def runs(native: Path, oracle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    forked = native_run(tmp_path_factory.mktemp("forked"))
    add_fork(forked)
    return [native, oracle, forked, baseline_run(tmp_path_factory.mktemp("baseline"))]


def checked(name: Any) -> jsonschema.Draft202012Validator:
    made = schema(name)
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_line_of_every_trace_is_valid(runs: list[Path]):
    validator = checked("trace")
    kinds = set()
    for run in runs:
        for path in (*run.glob("traces/*/*/*.jsonl"), *run.glob("forks/*/*.jsonl")):
            for row in rows(path):
                validator.validate(row)
                kinds.add(row["kind"])
    assert {"header", "message", "model_call", "model_failure", "tool_started", "tool_call", "finding", "end"} <= kinds


def test_every_finding_and_run_file_is_valid(runs: list[Path]):
    findings, run_file = checked("findings"), checked("run")
    for run in runs:
        for row in rows(run / "findings.jsonl"):
            findings.validate(row)
        run_file.validate(json.loads((run / "run.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "change",
    [
        {"status": "backend_failed"},
        {"answer": None},
        {"status": "splendid"},
        {"value": "4"},
        {"repeat": "1"},
        {"extra": 1},
        {"evidence": [{"image": "Edited Image", "box": [0, 0, 1]}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_finding_that_breaks_a_rule_is_invalid(native: Path, change: dict[str, Any]):
    row = next(row for row in rows(native / "findings.jsonl") if row["status"] == "ok")
    assert not checked("findings").is_valid(row | change)


def test_an_event_that_breaks_a_rule_is_invalid(native: Path):
    validator = checked("trace")
    path = next(native.glob("traces/*/*/*.jsonl"))
    header = rows(path)[0]
    assert validator.is_valid(header)
    assert not validator.is_valid(header | {"kind": "unknown"})
    assert not validator.is_valid({k: v for k, v in header.items() if k != "task_id"})
    message = next(row for row in rows(path) if row["kind"] == "message")
    assert not validator.is_valid(message | {"message": {"role": "nobody", "parts": []}})
