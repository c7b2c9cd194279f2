"""A log of Inspect: by the numbers, and by Inspect's own reader where it is installed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.inspect_log import write_inspect
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests import clients
from tests.conftest import final


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


def test_pictures_are_attached_once(native: Path, tmp_path: Path):
    sample = {s["id"]: s for s in exported(native, tmp_path)["samples"]}["painter/s00#instruction_following"]
    # The two inputs and the crop, however often they are named.
    named = re.findall(r'"image": "attachment://([0-9a-f]{64})"', json.dumps([sample["input"], sample["messages"]]))
    assert set(named) == set(sample["attachments"]) and len(set(named)) == 3 < len(named)
    for sha256, address in sample["attachments"].items():
        assert address.startswith("data:image/png;base64,")
        assert hashlib.sha256(base64.b64decode(address.partition(",")[2])).hexdigest() == sha256


def test_what_has_no_answer_has_no_score_and_is_counted(native: Path, tmp_path: Path):
    log = exported(native, tmp_path)
    by_id = {s["id"]: s for s in log["samples"]}
    assert by_id["painter/s01#instruction_following"]["scores"] == {}
    assert by_id["painter/s01#instruction_following"]["metadata"]["status"] == "unparsed"
    assert "error" not in by_id["painter/s01#instruction_following"], "the model's own doing is no error of the evaluation"
    assert by_id["painter/s02#instruction_following"]["error"]["message"].startswith("backend_failed: ")
    assert by_id["painter/s04#instruction_following"]["messages"] == []
    # s00 and s03 of five: both Flawless Execution, worth 4.
    (instruction,) = [s for s in log["results"]["scores"] if s["name"] == "instruction_following"]
    assert (instruction["scored_samples"], instruction["unscored_samples"]) == (2, 3)
    assert instruction["metrics"]["mean"]["value"] == 4.0
    # Two criteria each: 10 findings, of which s02's and s04's were never answered.
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (10, 6)


def test_a_log_has_one_judge(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    judge = JudgeConfig(backend=ScriptedLMM([final("Wrong Action")], name="two"))
    two = open_setup(RunConfig(path=native.parent / "edits", limit=1, judge=judge, concurrency=1))
    drive(two, run)
    with pytest.raises(ConfigError, match="choose a judge with --judge"):
        exported(run, tmp_path)
    assert len(exported(run, tmp_path, judge=two.judge.id[:6])["samples"]) == 2
    with pytest.raises(ConfigError, match="names 0 of this run's judges"):
        exported(run, tmp_path, judge="zz")


def test_a_folder_gets_a_file_under_the_name_that_inspect_looks_for(native: Path, tmp_path: Path):
    file = write_inspect(Source(folder=native), tmp_path / "logs")
    assert file.parent == tmp_path / "logs"
    # inspect_ai.log._file takes TIME_TASK_ID, and tells the parts by the underscores.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[^_]*_editloupe-dlebench_[0-9a-f]{22}\.json", file.name)
    again = write_inspect(Source(folder=native), tmp_path / "logs")
    assert again == file, "the same run is the same log"


@pytest.mark.clients
def test_inspect_lists_reads_and_tabulates_the_logs(native: Path, oracle: Path, tmp_path: Path):
    inspect = clients.client("inspect")
    logs = tmp_path / "logs"
    files = {write_inspect(Source(folder=run), logs).name for run in (native, oracle)}
    listed = clients.run(inspect.parent / "inspect", "log", "list", "--log-dir", logs, cwd=tmp_path)
    assert {Path(line).name for line in listed.split()} == files
    told = json.loads(clients.run(inspect, "-c", _READ, logs).splitlines()[-1])
    assert told["headers"] == [[2, "success", "editloupe/dlebench"]] * 2
    # Ten findings and five; s00 and s03 are answered there, s00 with its two targets here.
    assert (told["samples"], told["scored"]) == (15, 4 + 3)
    assert told["roles"] == ["assistant", "tool", "user"]
    assert told["pictures"] == 3


_READ = """
import json, sys, warnings
warnings.simplefilter("ignore")
from inspect_ai.analysis import messages_df, samples_df
from inspect_ai.log import list_eval_logs, read_eval_log, resolve_sample_attachments
logs = sys.argv[1]
read = [read_eval_log(info) for info in list_eval_logs(logs)]
samples, messages = (make(logs, quiet=True) for make in (samples_df, messages_df))
native = next(log for log in read if len(log.samples) == 10)
sample = resolve_sample_attachments(native.samples[0])
pictures = {c.image for m in sample.messages for c in m.content if c.type == "image"}
assert all(p.startswith("data:image/png;base64,") for p in pictures)
scores = samples[[c for c in samples.columns if c.startswith("score_")]]
print(json.dumps({
    "headers": [[log.version, log.status, log.eval.task] for log in read],
    "samples": len(samples),
    "scored": int(scores.notna().any(axis=1).sum()),
    "roles": sorted(set(messages["role"])),
    "pictures": len(pictures),
}))
"""
