"""A log of Inspect: by the numbers, and by Inspect's own reader where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.inspect_log import write_inspect
from editloupe.runs.execute import execute
from editloupe.runs.setup import open_setup
from tests.conftest import LOOK, final
from tests.exports.runs import add_fork, edits


def exported(run: Path, out: Path, **options: Any) -> dict[str, Any]:
    path = out / "log.json"
    write_inspect(Source(folder=run, **options), path)
    return json.loads(path.read_text(encoding="utf-8"))


def test_each_finding_is_a_sample_with_its_transcript(native: Path, tmp_path: Path):
    log = exported(native, tmp_path)
    assert (log["version"], log["eval"]["task"], log["eval"]["model"]) == (2, "editloupe/dlebench", "scripted/run")
    by_id = {s["id"]: s for s in log["samples"]}
    assert len(by_id) == 10
    sample = by_id["painter/s00#instruction_following"]
    assert [m["role"] for m in sample["messages"]] == ["user", "assistant", "tool", "user", "assistant"]
    assert sample["messages"][1]["tool_calls"][0]["function"] == "zoom_in"
    assert sample["messages"][2]["tool_call_id"] == "a"
    assert [c["type"] for c in sample["input"][0]["content"]].count("image") == 2
    assert sample["scores"]["instruction_following"]["value"] == 4.0
    assert sample["target"] == ["Wrong Action"], "what people said"
    # 2,700 tokens in, of which 200 came from the cache; Inspect counts those apart.
    usage = sample["model_usage"]["scripted/run"]
    assert (usage["input_tokens"], usage["input_tokens_cache_read"], usage["total_tokens"]) == (2500, 200, 2754)


def test_what_has_no_answer_has_no_score_and_is_counted(native: Path, tmp_path: Path):
    log = exported(native, tmp_path)
    by_id = {s["id"]: s for s in log["samples"]}
    assert by_id["painter/s01#instruction_following"]["scores"] == {}
    assert by_id["painter/s01#instruction_following"]["metadata"]["status"] == "off_menu"
    assert "error" not in by_id["painter/s01#instruction_following"], "the model's own doing is no error of the evaluation"
    assert by_id["painter/s02#instruction_following"]["error"]["message"].startswith("backend_failed: ")
    assert by_id["painter/s04#instruction_following"]["messages"] == []
    # s00 and s03 of five: both Flawless Execution, worth 4.
    (instruction,) = [s for s in log["results"]["scores"] if s["name"] == "instruction_following"]
    assert (instruction["scored_samples"], instruction["unscored_samples"]) == (2, 3)
    assert instruction["metrics"]["mean"]["value"] == 4.0
    # Two criteria each: 10 findings, of which s02's and s04's were never answered.
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (10, 6)


def test_targets_have_names_of_their_own(oracle: Path, tmp_path: Path):
    ids = [s["id"] for s in exported(oracle, tmp_path)["samples"]]
    assert "painter/s00#instruction_following@1" in ids and "painter/s00#instruction_following@2" in ids


def test_a_log_has_one_judge(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    judge = JudgeConfig(backend=ScriptedLMM([final("Wrong Action")], name="two"))
    two = open_setup(RunConfig(path=native.parent / "edits", limit=1, judge=judge, concurrency=1))
    execute(two, run)
    with pytest.raises(ConfigError, match="choose a judge with --judge"):
        exported(run, tmp_path)
    assert len(exported(run, tmp_path, judge=two.judge.id[:6])["samples"]) == 2
    with pytest.raises(ConfigError, match="names 0 of this run's judges"):
        exported(run, tmp_path, judge="zz")


def test_forks_are_no_findings(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    add_fork(run)
    assert len(exported(run, tmp_path)["samples"]) == 10


def test_inspects_own_reader_takes_the_log(native: Path, oracle: Path, tmp_path: Path):
    pytest.importorskip("inspect_ai", reason="the package inspect-ai is not here")
    for run, count in ((native, 10), (oracle, 5)):
        exported(run, tmp_path)
        # In a process of its own: importing it warns, and warnings are errors here.
        code = (
            "from inspect_ai.log import read_eval_log; "
            f"log = read_eval_log({str(tmp_path / 'log.json')!r}); print(log.version, log.status, len(log.samples))"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert told.stdout.split() == ["2", "success", str(count)]


def test_a_budget_that_is_used_up_is_a_limit(tmp_path: Path):
    """One turn is allowed, and the last word holds no label, whatever the reminders say."""
    judge = JudgeConfig(backend=ScriptedLMM([LOOK, *["I cannot tell."] * 3]))
    config = RunConfig(path=edits(tmp_path / "edits", count=2), judge=judge, max_turns=1, concurrency=1)
    execute(open_setup(config), tmp_path / "run")
    sample = exported(tmp_path / "run", tmp_path)["samples"]
    limits = [s["limit"] for s in sample if s["metadata"]["status"] == "over_budget"]
    assert [(limit["type"], limit["limit"]) for limit in limits] == [("turn", 1)] * 2
