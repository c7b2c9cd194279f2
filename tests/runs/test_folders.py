"""Runs in a folder, shards joined, pictures that nothing names, two writers."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import ConfigError, RunMismatch
from editloupe.runs.folders import runs_below
from editloupe.runs.lock import is_written
from editloupe.runs.merge import merge
from editloupe.runs.store import RunStore
from editloupe.traces.read import read_trace
from tests.conftest import LOOK, Edits
from tests.runs.test_resume import run, talker


def changed(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def findings(folder: Path) -> list[bytes]:
    return (folder / "findings.jsonl").read_bytes().splitlines(keepends=True)


def test_runs_are_listed_with_their_judges_and_what_is_judged(gallery: Path):
    broken = gallery.parent / "deeper" / "broken"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{", encoding="utf-8")
    found = {one.folder.name: one for one in runs_below(gallery.parent)}
    assert sorted(found) == ["broken", "gallery"]
    assert (found["gallery"].samples, found["gallery"].statuses, len(found["gallery"].judges)) == (2, {"ok": 7}, 4)
    assert "run.json is not JSON" in found["broken"].problem
    with pytest.raises(ConfigError, match="is no folder"):
        list(runs_below(gallery / "nowhere"))


# Shards


def test_shards_of_one_run_are_joined_and_the_whole_needs_no_call_more(edits: Edits, tmp_path: Path):
    folder, whole = edits(4), tmp_path / "whole"
    shards = [tmp_path / "a", tmp_path / "b"]
    run(talker(), folder, shards[0], only=("s00", "s02"))
    run(talker(), folder, shards[1], only=("s01", "s02", "s03"))
    before = {path: path.read_bytes() for shard in shards for path in shard.rglob("*.jsonl")}
    done = merge(whole, shards)
    assert (done.samples, done.findings, done.stayed) == (4, 4, 1)
    assert {path: path.read_bytes() for path in before} == before
    lmm = talker()
    again = run(lmm, folder, whole)
    assert (len(lmm.requests), again.reused, again.failed) == (0, 4, 0)
    assert all(read_trace(whole / str(finding.trace)).problems == () for finding in again.findings)
    assert merge(whole, shards).findings == 0
    # A line stands as its shard wrote it.
    assert set(findings(whole)) < {*findings(shards[0]), *findings(shards[1])} and len(findings(whole)) == 4


def test_a_finding_that_stands_goes_before_a_pending_one_whose_trace_is_set_aside(edits: Edits, tmp_path: Path):
    folder = edits(1)
    run(ScriptedLMM([LOOK]), folder, tmp_path / "failed")
    run(talker(), folder, tmp_path / "judged")
    done = merge(tmp_path / "whole", [tmp_path / "failed", tmp_path / "judged"])
    assert (done.findings, done.stayed) == (2, 0)
    (finding,) = RunStore.read(tmp_path / "whole").current()
    assert finding.label == "Wrong Action"
    kept = sorted(path.name for path in (tmp_path / "whole").glob("traces/*/*/*"))
    assert [name.partition(".0.")[2] for name in kept] == ["aside-1.jsonl", "jsonl"]


def test_what_is_no_shard_of_the_same_run_is_refused_with_the_field(edits: Edits, tmp_path: Path):
    folder = edits(1)
    run(talker(), folder, tmp_path / "a")
    run(talker(), folder, tmp_path / "b", mode="plain")
    with pytest.raises(RunMismatch, match=r"b is no shard of the same run as \S+a. --mode: was tool, is plain; "):
        merge(tmp_path / "whole", [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ConfigError, match="cannot be merged with itself"):
        merge(tmp_path / "a", [tmp_path / "a"])
    assert not (tmp_path / "whole").exists()


def test_a_trace_outside_the_run_is_neither_read_nor_merged(gallery: Path, tmp_path: Path):
    (tmp_path / "pwn.jsonl").write_text("untouched")
    first = json.loads(findings(gallery)[0])
    for trace in ("../pwn.jsonl", "/tmp/pwn.jsonl", "traces/../../pwn.jsonl", "..\\pwn.jsonl", "run.json"):
        (gallery / "findings.jsonl").write_text(json.dumps(first | {"trace": trace}) + "\n")
        store = RunStore.read(gallery)
        assert store.findings == {}
        (problem,) = store.problems
        assert problem.startswith("findings.jsonl, line 1: not of the expected shape")
        assert "a trace is a path inside the run folder" in problem
        with pytest.raises(ConfigError, match="a trace is a path inside the run folder"):
            merge(tmp_path / "whole", [gallery])
    assert (tmp_path / "pwn.jsonl").read_text() == "untouched"


# Two writers


def test_a_second_writer_is_refused_and_readers_never_are(gallery: Path):
    with closing(RunStore.edit(gallery)):
        assert is_written(gallery)
        with pytest.raises(ConfigError, match="being written by another process"):
            RunStore.edit(gallery)
        assert len(RunStore.read(gallery).current()) == 7
    # Who asks whether a run is written keeps no writer out.
    with (gallery / "run.lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (asking, fcntl.LOCK_UN)).start()
        RunStore.edit(gallery).close()
    assert not is_written(gallery)
