"""Findings as a table: all three forms hold the same rows."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import polars
import pytest

from editloupe.backends.prices import ModelPrice, Prices
from editloupe.exports.episodes import Source
from editloupe.exports.findings import COLUMNS, write_findings
from editloupe.exports.inspect_log import write_inspect
from editloupe.runs.store import RunStore


def test_jsonl_keeps_each_finding_and_adds_its_sample_and_judge(native: Path, tmp_path: Path):
    path = tmp_path / "f.jsonl"
    assert write_findings(Source(folder=native), path) == 10
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row, finding in zip(rows, RunStore.read(native).current(), strict=True):
        assert finding.to_json().items() <= row.items()
    first = next(r for r in rows if r["sample_id"] == "s00")
    assert (first["backend"], first["edit_type"], first["instruction"]) == (
        "scripted/run",
        "Change Color",
        "Make square 0 red.",
    )


def test_a_turn_that_the_sample_lacks_has_no_instruction(native: Path, tmp_path: Path):
    run = Path(shutil.copytree(native, tmp_path / "run"))
    path = run / "findings.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps({**row, "turn": 7}) + "\n" for row in rows[:1]), encoding="utf-8")
    write_findings(Source(folder=run), tmp_path / "f.jsonl")
    (row,) = map(json.loads, (tmp_path / "f.jsonl").read_text(encoding="utf-8").splitlines())
    assert (row["turn"], row["instruction"], row["status"]) == (7, None, "input_error")
    log = json.loads(write_inspect(Source(folder=run), tmp_path / "log.json").read_text(encoding="utf-8"))
    (one,) = log["samples"]
    assert one["metadata"]["instruction"] is None


def test_csv_and_parquet_hold_the_same_rows(native: Path, oracle: Path, tmp_path: Path):
    for run in (native, oracle):
        write_findings(Source(folder=run), tmp_path / "f.csv")
        write_findings(Source(folder=run), tmp_path / "f.parquet")
        table = polars.read_parquet(tmp_path / "f.parquet")
        assert {name: str(kind).lower() for name, kind in table.schema.items()} == dict(COLUMNS)
        with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        told = [{k: "" if v is None else str(v) for k, v in row.items()} for row in table.to_dicts()]
        assert rows == told
    assert sorted(row["part"] for row in rows if row["status"] == "ok") == ["", "target 1", "target 2"]


def test_prices_of_a_file_count(native: Path, tmp_path: Path):
    # 2,700 tokens in at 1 USD and 54 out at 10 USD a million: 0.0027 + 0.00054.
    prices = Prices(by_name={"m": ModelPrice(input=1.0, output=10.0)})
    run = tmp_path / "run"
    shutil.copytree(native, run)
    info = (run / "run.json").read_text(encoding="utf-8")
    (run / "run.json").write_text(info.replace("scripted/run", "openai/m?base_url=x"), encoding="utf-8")
    write_findings(Source(folder=run, prices=prices), tmp_path / "f.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["cost_usd"] for row in rows if row["sample_id"] == "s00"] == [pytest.approx(0.00324)] * 2
