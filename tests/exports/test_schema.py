"""Schemas are held against real files: every line that runs write is valid, and what breaks a rule is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from editloupe import plugins
from editloupe.exports.schema import File, schema
from tests import clients
from tests.exports.every_run import Program, every_run
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


def test_every_file_of_every_run_that_the_command_line_wrote_is_valid(tmp_path: Path, editloupe: Program):
    validators = {name: checked(name) for name in get_args(File)}
    runs = every_run(editloupe, tmp_path)
    protocols = set()
    for run in runs.values():
        head = json.loads((run / "run.json").read_text(encoding="utf-8"))
        protocols.add(head["identity"]["protocol"])
        validators["run"].validate(head)
        for name, paths in lines_of(run).items():
            for path in paths:
                for row in rows(path):
                    validators[name].validate(row)
    assert protocols == set(plugins.names("protocols")), "no protocol without a run here"
    named = json.loads((runs["dlebench"] / "run.json").read_text(encoding="utf-8"))["judges"].values()
    assert {judge.get("name") for judge in named} == {"first", "second"} and all(judge["options"] for judge in named)


@pytest.mark.clients
def test_check_jsonschema_takes_the_files_by_the_printed_schemas(tmp_path: Path, editloupe: Program):
    program = clients.client("schema", "check-jsonschema")
    runs = every_run(editloupe, tmp_path)
    found: dict[str, list[Path]] = {"run": [run / "run.json" for run in runs.values()]}
    for run in runs.values():
        for name, paths in lines_of(run).items():
            for path in paths:
                for number, row in enumerate(rows(path)):
                    file = tmp_path / "lines" / name / run.name / f"{path.stem}.{number}.json"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(json.dumps(row), encoding="utf-8")
                    found.setdefault(name, []).append(file)
    for name, files in found.items():
        code, said, failed = editloupe("schema", name)
        assert code == 0, failed
        (tmp_path / f"{name}.schema.json").write_text(said, encoding="utf-8")
        clients.run(program, "--check-metaschema", tmp_path / f"{name}.schema.json")
        told = clients.run(program, "--schemafile", tmp_path / f"{name}.schema.json", *files)
        assert "ok -- validation done" in told


def lines_of(run: Path) -> dict[str, list[Path]]:
    """The files of a run that hold JSON Lines, by the name of their schema."""
    return {
        "trace": [*run.glob("traces/*/*/*.jsonl"), *run.glob("forks/*/*.jsonl")],
        "findings": [run / "findings.jsonl"],
        "samples": [run / "samples.jsonl"],
    }


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
