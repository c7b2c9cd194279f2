"""What commands say of a run folder: one that was stopped in the middle, one of other settings, and one that is no run."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from editloupe import files
from editloupe.runs.store import RunStore
from tests.guards.old_run import unpacked

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


def words(text: str) -> str:
    return " ".join(text.split())


def stop_after(run: Path, findings: int) -> None:
    """Leave what a run has on disk that was killed behind so many findings."""
    file = run / "findings.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:findings]))


def judged(editloupe: Run, folder: Path, *more: str) -> None:
    assert editloupe("judge", folder, "--mode", "plain", "--concurrency", "1", "--out", "runs/one", *more)[0] == 0


def test_a_run_that_was_stopped_says_what_was_not_asked_yet(editloupe: Run, edits: Edits):
    judged(editloupe, edits(4))
    assert "8 of 8 findings judged.\n" in editloupe("show", "runs/one")[1]
    stop_after(Path("runs/one"), 3)
    # Two criteria a sample: both of the first, one of the second.
    assert "3 of 3 findings judged; of 4 samples, 2 not asked yet, 1 asked in part." in editloupe("show", "runs/one")[1]
    assert "5 not judged yet of 8" in words(editloupe("gate", "runs/one", "--require", "unjudged<=0.02")[1])
    row = r"runs/one baseline incomplete: 3 samples plain Overall [\d.]+ \(3/8\) 2 of 4 3 of 3"
    assert re.search(row, words(editloupe("runs")[1]))
    listed = json.loads(editloupe("runs", "--format", "json")[1])
    assert (listed["samples"], listed["asked"], listed["statuses"]) == (4, 2, {"ok": 3})
    assert listed["status"] == "incomplete: 3 samples to go"
    said = editloupe("report", "runs/one")[1]
    assert said.startswith("Incomplete: runs/one; of 4 samples, baseline, plain has 3 to go.\n")
    assert "Incomplete: runs/one;" in json.loads(editloupe("report", "runs/one", "--format", "json")[1])["notes"][0]
    assert "> Incomplete: runs/one" in Path("runs/one/report/report.md").read_text()


def test_a_complete_run_says_what_failed(editloupe: Run, edits: Edits):
    judged(editloupe, edits(2))
    assert json.loads(editloupe("runs", "--format", "json")[1])["status"] == "complete"
    assert "Incomplete" not in editloupe("report", "runs/one")[1]
    Path("r.jsonl").write_text('"No label at all."\n')
    editloupe("judge", "edits", "--mode", "plain", "--out", "runs/one", "--backend", "second=scripted/r.jsonl")
    assert "complete, 4 failed" in editloupe("runs")[1]


def test_a_run_that_is_being_written_says_by_which_process(editloupe: Run, edits: Edits):
    judged(editloupe, edits(2))
    stop_after(Path("runs/one"), 0)
    with closing(RunStore.edit(Path("runs/one"))):
        for command in ("show", "report", "compare"):
            code, said, told = editloupe(command, "runs/one")
            assert (code, said) == (2, "")
            assert f"runs/one is under way (process {os.getpid()}), with no finding yet" in words(told)
        assert json.loads(editloupe("runs", "--format", "json")[1])["status"] == f"under way (process {os.getpid()})"
    told = words(editloupe("show", "runs/one")[2])
    assert "judge something first: editloupe judge --config runs/one/config.yaml --out runs/one" in told


def test_a_second_judge_that_was_not_asked_yet_leaves_the_run_open(editloupe: Run, edits: Edits):
    folder = edits(3)
    judged(editloupe, folder)
    Path("r.jsonl").write_text('"<Start Final Answer>Wrong Action</Start Final Answer>"\n')
    judged(editloupe, folder, "--backend", "second=scripted/r.jsonl", "--criteria", "if")
    assert json.loads(editloupe("runs", "--format", "json")[1])["asked"] == 3
    # Six of the first judge; of the second, one.
    stop_after(Path("runs/one"), 7)
    assert json.loads(editloupe("runs", "--format", "json")[1])["asked"] == 1
    said = editloupe("show", "runs/one")[1]
    assert "6 of 6 findings judged.\n" in said
    assert "1 of 1 findings judged; of 3 samples, 2 not asked yet." in said


def test_runs_are_told_apart_by_mode_and_means(
    editloupe: Run, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    judged(editloupe, edits(2))
    unpacked(tmp_path / "runs")
    told = words(editloupe("runs", "runs")[1])
    assert re.search(r"runs/one baseline complete plain Overall [\d.]+ \(4/4\) 2 of 2", told)
    # Of each judge the mean of both criteria: (46.67 + 93.33) / 2, and (40 + 41.67) / 2.
    assert "runs/run_0_2_0 rules complete, 5 failed tool rules: Overall 70 (10/12) 6 of 6 39 of 44" in told
    assert told.endswith("model: Overall 40.83 (9/12)")
    one = json.loads(editloupe("runs", "runs/run_0_2_0", "--format", "json")[1])
    assert one["mode"] == "tool"
    overall = [means[-1] for means in one["means"].values()]
    assert [(mean["metric"], mean["judged"], mean["asked"]) for mean in overall] == [
        ("overall", 10, 12),
        ("overall", 9, 12),
    ]
    assert [mean["mean"] for mean in overall] == [pytest.approx(70), pytest.approx(245 / 6)]


def test_words_stay_whole_where_the_list_of_runs_is_narrow(editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A run is a list of lines where its columns have no room; else a heading breaks between its words."""
    unpacked(tmp_path)
    for width, listed in ((40, True), (60, True), (100, False)):
        monkeypatch.setenv("COLUMNS", str(width))
        told = editloupe("runs", "run_0_2_0")[1]
        assert max(map(len, told.splitlines())) <= width
        assert {"Run", "Judges", "Mode", "Means", "Samples", "Findings", "judged", "Last", "written"} <= set(told.split())
        assert ("Samples asked      6 of 6\n" in told) == listed


def test_tags_stay_with_a_run_until_others_are_given(editloupe: Run, edits: Edits, tmp_path: Path):
    folder = edits(1)
    judged(editloupe, folder, "--set", "tags=nightly, v2")
    judged(editloupe, folder)
    assert json.loads(editloupe("runs", "--format", "json")[1])["tags"] == ["nightly", "v2"]
    assert "runs/one nightly, v2 baseline complete plain" in words(editloupe("runs")[1])
    assert editloupe("export", "runs/one", unpacked(tmp_path), "--html", "pages")[0] == 0
    listed = Path("pages/index.html").read_text()
    assert listed.count("nightly") == listed.count(">v2<") == 1
    judged(editloupe, folder, "--set", "tags=old")
    assert json.loads(editloupe("runs", "--format", "json")[1])["tags"] == ["old"]


def test_of_a_large_run_the_means_of_its_end_are_listed_until_findings_come(
    editloupe: Run, edits: Edits, monkeypatch: pytest.MonkeyPatch
):
    judged(editloupe, edits(2))
    (known,) = json.loads(editloupe("runs", "--format", "json")[1])["means"].items()
    monkeypatch.setattr("editloupe.runs.index.LARGE", 1)
    monkeypatch.setattr("editloupe.figures.closing.RunStore", None)  # the run is not read
    assert dict([known]) == json.loads(editloupe("runs", "--format", "json")[1])["means"]
    findings = Path("runs/one/findings.jsonl")
    os.utime(findings, (findings.stat().st_atime, findings.stat().st_mtime + 60))
    assert json.loads(editloupe("runs", "--format", "json")[1])["means"] == {}
    assert "baseline all samples begun plain – 2 of 2" in words(editloupe("runs")[1])


def test_what_differs_from_the_run_of_the_folder_is_said_in_words(editloupe: Run, edits: Edits):
    folder = edits(1)
    judged(editloupe, folder)
    command = ("judge", folder, "--mode", "plain", "--out", "runs/one", "--criteria", "if")
    code, _, told = editloupe(*command, "--max-turns", "3", "--set", "task_tokens=900")
    assert code == 2
    assert "runs/one belongs to another run, with other settings. " in words(told)
    assert "--task-tokens: was not set, is 900; --max-turns: was 6, is 3. Give that run's settings" in words(told)
    Path("mine.toml").write_text(_RUBRIC)
    told = words(editloupe(*command, "--rubric", "mine.toml")[2])
    assert "--rubric: was dlebench, is mine. " in told
    Path("mine.toml").write_text(_RUBRIC.replace('id = "mine"', 'id = "dlebench"'))
    told = words(editloupe(*command, "--rubric", "mine.toml")[2])
    assert '--rubric.title: was "DLEBench: edits of small objects", is Mine. Give that run\'s settings' in told
    told = words(editloupe(*command[:-2], "--mode", "tool")[2])
    assert "--mode: was plain, is tool;" in told
    assert "version of the tool enhancer: was not set, is " in told


_RUBRIC = """
id = "mine"
title = "Mine"
[criteria.instruction_following]
name = "Instruction Following"
short = "IF"
question = "Was it done?"
levels = [
    {name = "No", value = 1, description = "It was not."},
    {name = "Yes", value = 2, description = "It was."},
]
"""


def test_what_is_no_run_is_told_apart(editloupe: Run, tmp_path: Path):
    folder = tmp_path / "f"
    folder.mkdir()
    first = b'{"schema": 1, "identity": {"protocol": "dlebench", "mode": "tool"}, "record": {"editloupe": "0.1.0"}}'
    for content, told in (
        (None, " is no run folder: it has no run.json; expected the folder that editloupe judge names"),
        (bytes(range(128, 200)), "/run.json is no text; expected JSON"),
        (b"hello", "/run.json is not JSON: "),
        (b"[1]", "/run.json is of no run of editloupe: expected an object with the key 'identity'"),
        (b'{"name": "app"}', "/run.json is of no run of editloupe: expected an object with the key 'identity'"),
        (b'{"schema": 9}', "/run.json was written by a newer editloupe: run schema 9, and this version reads up to 2"),
        (
            first,
            "/run.json has the run schema 1, and this version reads 2. Runs of editloupe 0.1.0 are not read",
        ),
    ):
        if content is not None:
            (folder / "run.json").write_bytes(content)
        for command in ("show", "report"):
            code, said, err = editloupe(command, folder)
            assert (code, said) == (2, "")
            assert words(err).startswith(f"error: {folder}{told}"), err


def test_what_is_no_folder_of_a_run_is_told_apart(editloupe: Run, tmp_path: Path, edits: Edits):
    folder = edits(1)
    assert "nowhere is no run folder: there is no such folder" in words(editloupe("show", "nowhere")[2])
    assert "nowhere is no run folder: there is no such folder" in words(editloupe("view", "nowhere")[2])
    assert "metadata.jsonl is no run folder: it is a file" in words(editloupe("show", folder / "metadata.jsonl")[2])
    judged(editloupe, folder)
    assert "it has no run.json. Runs in it: one; name one of them" in words(editloupe("show", "runs")[2])
    (tmp_path / "runs" / "two" / "run.json").mkdir(parents=True)
    assert "run.json is a folder; expected a file of the run" in words(editloupe("show", "runs/two")[2])


def test_a_run_that_may_not_be_read_is_not_called_bad_json(editloupe: Run, edits: Edits, monkeypatch: pytest.MonkeyPatch):
    judged(editloupe, edits(1))
    opened = files.open_plain

    def refused(path: Path) -> BinaryIO:
        # Who may read everything, as in a container, is refused nothing by the file's mode.
        if path.name == "run.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path)

    monkeypatch.setattr(files, "open_plain", refused)
    for command in ("show", "runs"):
        said = editloupe(command, "runs/one" if command == "show" else "runs")
        assert "runs/one/run.json cannot be read: Permission denied" in words(said[2])
