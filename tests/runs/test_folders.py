"""Runs in a folder, shards joined, pictures that nothing names, two writers."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, RunMismatch
from editloupe.runs.folders import orphans, remove, runs_below
from editloupe.runs.lock import writer
from editloupe.runs.merge import merge
from editloupe.runs.store import RunStore
from editloupe.traces import GALLERY
from editloupe.traces.read import read_trace
from editloupe.values import digest
from tests.conftest import LOOK
from tests.runs.test_resume import run, talker

Edits = Callable[..., Path]


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
    for finding in again.findings:
        assert read_trace(whole / str(finding.trace)).problems == ()
    assert merge(whole, shards).findings == 0
    # A line stands as its shard wrote it.
    written = {line for path in before if path.name == "findings.jsonl" for line in before[path].splitlines()}
    lines = (whole / "findings.jsonl").read_bytes().splitlines()
    assert set(lines) < written and len(lines) == 4 and RunStore.read(whole).problems == []


def test_a_finding_that_stands_goes_before_a_pending_one_and_no_trace_is_lost(edits: Edits, tmp_path: Path):
    folder = edits(1)
    run(ScriptedLMM([LOOK]), folder, tmp_path / "failed")
    run(talker(), folder, tmp_path / "judged")
    done = merge(tmp_path / "whole", [tmp_path / "failed", tmp_path / "judged"])
    assert (done.findings, done.stayed) == (2, 0)
    (finding,) = RunStore.read(tmp_path / "whole").current()
    assert finding.label == "Wrong Action"
    kept = sorted(path.name for path in (tmp_path / "whole").glob("traces/*/*/*"))
    assert [name.partition(".0.")[2] for name in kept] == ["aside-1.jsonl", "jsonl"]


def test_a_merge_keeps_the_findings_of_a_judge_that_a_shard_does_not_list(gallery: Path, tmp_path: Path):
    info = json.loads((gallery / "run.json").read_text())
    info["judges"].popitem()
    (gallery / "run.json").write_text(json.dumps(info))
    merge(tmp_path / "whole", [gallery])
    assert RunStore.read(tmp_path / "whole").findings == RunStore.read(gallery).findings


@pytest.mark.parametrize("how", ["twice", "torn", "of 0.2.0", "two names"])
def test_what_is_merged_is_the_last_sound_line_of_a_finding(how: str, edits: Edits, tmp_path: Path):
    run(talker(), edits(2), shard := tmp_path / "shard")
    path = shard / "findings.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    other = json.loads(second) | {"seconds": 1.5}
    changed = json.dumps(other).encode()
    key = json.dumps({"task_id": json.loads(first)["task_id"]})[1:-1].encode()
    path.write_bytes(
        {
            "twice": first + changed + b"\n" + second,
            "torn": first + second + changed,
            "of 0.2.0": json.dumps({**other, "digest": digest(other)}).encode() + b"\n" + first + second,
            "two names": b"{" + key + b", " + second[1:] + first,
        }[how]
    )
    merge(tmp_path / "whole", [shard])
    assert RunStore.read(tmp_path / "whole").findings == RunStore.read(shard).findings
    assert len((tmp_path / "whole" / "findings.jsonl").read_bytes().splitlines()) == 2
    assert (tmp_path / "whole" / "findings.jsonl").read_bytes() in (first + second, second + first)


def test_forks_of_two_shards_keep_apart(gallery: Path, tmp_path: Path):
    other = Path(shutil.copytree(gallery, tmp_path / "other"))
    name = next(str(f.trace) for f in RunStore.read(gallery).current() if f.metric == "visual_consistency")
    stem = ".".join(Path(name).name.split(".")[:2])
    for folder, told in ((gallery, "one"), (other, "two")):
        child = folder / "forks" / stem[:2] / f"{stem}.1.jsonl"
        child.parent.mkdir(parents=True)
        header = json.loads((folder / name).read_bytes().splitlines()[0])
        parent = {"trace": name, "head": told, "step": 1, "tools": 0, "why": "fork", "changes": {}}
        child.write_text(json.dumps(header | {"parent": parent}) + "\n", encoding="utf-8")
        grandchild = header | {"parent": parent | {"trace": f"forks/{stem[:2]}/{stem}.1.jsonl"}}
        child.with_name(f"{stem}.2.jsonl").write_text(json.dumps(grandchild) + "\n", encoding="utf-8")
    assert merge(tmp_path / "whole", [gallery, other]).forks == 4
    parents = {}
    for path in (tmp_path / "whole").glob("forks/*/*.jsonl"):
        parent = json.loads(path.read_bytes().splitlines()[0])["parent"]
        parents[path.name.split(".")[2]] = (Path(parent["trace"]).name.split(".")[2], parent["head"])
    # Two children of the trace itself (its third name part is "jsonl"), and under each its own grandchild.
    roots = {number for number, (above, _) in parents.items() if above == "jsonl"}
    assert len(roots) == 2
    assert {(parents[above][1], head) for above, head in parents.values() if above != "jsonl"} == {
        ("one", "one"),
        ("two", "two"),
    }


@pytest.mark.parametrize("torn", [b"", b'{"kind":"head', b"[]\n", b'{"kind":"header"}'])
def test_a_torn_fork_is_brought_as_it_is_and_named(gallery: Path, tmp_path: Path, torn: bytes):
    name = next(Path(str(f.trace)).name for f in RunStore.read(gallery).current())
    stem = ".".join(name.split(".")[:2])
    other = Path(shutil.copytree(gallery, tmp_path / "other"))
    for folder, data in ((gallery, b'{"kind":"header","parent":null}\n'), (other, torn)):
        (folder / "forks" / stem[:2]).mkdir(parents=True)
        (folder / "forks" / stem[:2] / f"{stem}.1.jsonl").write_bytes(data)
    for new in (2, 0):
        done = merge(tmp_path / "whole", [gallery, other])
        (problem,) = done.problems
        assert (done.forks, problem.endswith(f"brought as it is, as forks/{stem[:2]}/{stem}.2.jsonl")) == (new, True)
    forks = sorted((tmp_path / "whole" / "forks").glob("*/*.jsonl"))
    assert [path.read_bytes() for path in forks] == [b'{"kind":"header","parent":null}\n', torn]


def test_what_is_no_shard_of_the_same_run_is_refused_with_the_field(edits: Edits, tmp_path: Path):
    folder = edits(1)
    run(talker(), folder, tmp_path / "a")
    run(talker(), folder, tmp_path / "b", mode="plain")
    with pytest.raises(RunMismatch, match=r"b is no shard of the same run. --mode: plain there, tool in \S+a; tools"):
        merge(tmp_path / "whole", [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ConfigError, match="cannot be merged with itself"):
        merge(tmp_path / "a", [tmp_path / "a"])
    assert not (tmp_path / "whole").exists()


# Pictures


@pytest.mark.parametrize("trace", ["../pwn.jsonl", "/tmp/pwn.jsonl", "traces/../../pwn.jsonl", "..\\pwn.jsonl", "run.json"])
def test_a_trace_outside_the_run_is_neither_read_nor_merged(edits: Edits, tmp_path: Path, trace: str):
    out = tmp_path / "run"
    run(talker(), edits(1), out)
    file = out / "findings.jsonl"
    file.write_text(json.dumps(json.loads(file.read_text().splitlines()[0]) | {"trace": trace}) + "\n")
    (tmp_path / "pwn.jsonl").write_text("untouched")
    store = RunStore.read(out)
    assert store.findings == {}
    (problem,) = store.problems
    assert problem.startswith("findings.jsonl, line 1: not of the expected shape")
    assert "a trace is a path inside the run folder" in problem
    with pytest.raises(ConfigError, match="a trace is a path inside the run folder"):
        merge(tmp_path / "whole", [out])
    assert (tmp_path / "pwn.jsonl").read_text() == "untouched"


def test_a_cut_last_line_is_named_unless_somebody_writes(gallery: Path):
    with (gallery / "findings.jsonl").open("ab") as file:
        file.write(b'{"sample_id"')
    before = RunStore.read(gallery)
    count = (gallery / "findings.jsonl").read_bytes().count(b"\n") + 1
    assert before.problems == [f"findings.jsonl, line {count}: the last line is cut off (12 bytes), left out"]
    assert len(before.current()) == 7
    writer = RunStore.edit(gallery)
    try:
        assert RunStore.read(gallery).problems == []
    finally:
        writer.close()
    assert RunStore.read(gallery).problems == before.problems


def test_gc_finds_what_nothing_names_and_nothing_else(gallery: Path):
    assert orphans(gallery) == {}
    lost, half, foreign = "ab" * 32 + ".png", ".part-0", "readme.txt"
    (gallery / "blobs" / "ab").mkdir(exist_ok=True)
    for name in (lost, half, foreign):
        (gallery / "blobs" / "ab" / name).write_bytes(b"1234")
    # What a killed process left half written, wherever it was.
    halves = [gallery / ".part-1", gallery / "report" / ".part-2"]
    for path in halves:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1234")
    found = orphans(gallery)
    blobs = gallery / "blobs" / "ab"
    assert list(found.items()) == [(path, 4) for path in (halves[0], blobs / half, blobs / lost, halves[1])]
    remove(found, gallery)
    assert orphans(gallery) == {}
    assert (gallery / "blobs" / "ab" / foreign).exists()
    # Pictures that only a trace names are not lost.
    names = {p.name for p in (GALLERY / "blobs").glob("*/*")}
    assert {p.name for p in (gallery / "blobs").glob("*/*")} == names | {foreign}


# Two writers


def test_a_second_process_is_refused_with_the_firsts_process_and_host(gallery: Path):
    code = f"""
import sys
from pathlib import Path
from editloupe.runs.store import RunStore
store = RunStore.edit(Path({str(gallery)!r}))
print("ready", flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None and first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        with pytest.raises(ConfigError, match=f"being written by process {first.pid} on {socket.gethostname()}"):
            RunStore.edit(gallery)
        # Reading is never refused.
        assert len(RunStore.read(gallery).current()) == 7
        first.stdin.write("\n")
        first.stdin.close()
    RunStore.edit(gallery).close()


def test_who_asks_whether_a_run_is_written_keeps_no_writer_out(gallery: Path):
    RunStore.edit(gallery).close()
    assert writer(gallery) is None
    with (gallery / "run.lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (asking, fcntl.LOCK_UN)).start()
        store = RunStore.edit(gallery)
    assert writer(gallery) == os.getpid()
    store.close()
    assert writer(gallery) is None


def test_samples_that_a_run_holds_open_no_file_again(gallery: Path, monkeypatch: pytest.MonkeyPatch):
    with closing(RunStore.edit(gallery)) as store:
        known = Loaded(format="held", samples=tuple(store.samples.values()), rejected=())
        lines = (gallery / "samples.jsonl").read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr("editloupe.runs.jsonl.appended", None)
            store.add_samples(known)
        new = replace(known.samples[0], id="new")
        store.add_samples(replace(known, samples=(*known.samples, new)))
    assert (gallery / "samples.jsonl").read_bytes().startswith(lines)
    assert [*RunStore.read(gallery).samples] == [*(sample.key for sample in known.samples), new.key]


def test_a_number_that_is_none_and_a_picture_of_no_width_are_named_with_file_and_field(gallery: Path):
    lines = (gallery / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    first["source"]["width"] = 0
    (gallery / "samples.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n", encoding="utf-8")
    store = RunStore.read(gallery)
    assert len(store.samples) == len(lines) - 1
    (problem,) = (problem for problem in store.problems if problem.startswith("samples.jsonl, line 1: "))
    assert "source.width: Input should be greater than or equal to 1" in problem
    info = json.loads((gallery / "run.json").read_text(encoding="utf-8"))
    info["record"]["metrics"][0]["domain"]["levels"][1]["value"] = float("nan")
    (gallery / "run.json").write_text(json.dumps(info), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"run\.json: record\.metrics\.0\.domain\.levels\.1\.value is no finite number"):
        RunStore.read(gallery)
