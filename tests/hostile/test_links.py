"""Links that are put into a run after it was looked through: no command writes, renames or deletes anything outside."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from editloupe.runs.verify import verify
from tests.conftest import Cli
from tests.hostile.kinds import link, replaced, trace
from tests.hostile.test_runs import surroundings, words

PLACES = ("blobs", "traces", "forks", "report", "cache", "probes", "run.lock", "run.json", "findings.jsonl",
          "samples.jsonl", "config.yaml", "report/.files.json",
          "report/report.md", "the trace", "the judge's traces")  # fmt: skip
"""Where a stranger puts a link."""

NAMES = ("report", "retry", "verify", "merge", "merge into it", "fork", "rescore", "show", "judge", "pages",
         "exports", "rescore into it", "compare into it")  # fmt: skip
"""Commands that write into a run, or read one and write elsewhere."""
WRITTEN = ("run.lock", "report/report.md")
"""Files that commands write anew."""
DAILY = ("report", "verify", "merge into it", "judge")
"""What writes reports, deletes, adds files and goes on: the other commands are `slow`."""


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The links come after the look."""
    for module in ("contents", "store"):
        monkeypatch.setattr(f"editloupe.runs.{module}.check_contents", lambda folder: None)


@pytest.mark.parametrize("command", [pytest.param(c, marks=[] if c in DAILY else pytest.mark.slow) for c in NAMES])
def test_a_link_that_comes_after_the_look_leads_nowhere(
    command: str, good: Path, tmp_path: Path, editloupe: Cli, unseen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, place in enumerate(PLACES):
        home = tmp_path / str(number)
        outside, run = home / "outside", home / "run"
        shutil.copytree(good / "data", home / "data")
        # What is outside looks like what belongs there, so that a command has something to write to or to delete.
        for name in ("run", "other", "outside"):
            shutil.copytree(good / "run", home / name)
        for name in (*WRITTEN, "probes/x", "forks/x", "report/old.md"):
            replaced(outside / name).write_text("")
        (outside / "report" / ".files.json").write_text(json.dumps({"report": ["report.md", "old.md"]}))
        for name in ("ab" * 32 + ".png", ".part-" + "0" * 32):
            replaced(outside / "blobs" / "ab" / name).write_text("precious")
        if place == "the trace":
            replaced(trace(run)).symlink_to(trace(outside))
        elif place == "the judge's traces":
            judge = trace(run).parent.parent
            replaced(judge).symlink_to(outside / "traces" / judge.name)
        else:
            link(place, place)(run, outside)
        before = surroundings(outside)
        monkeypatch.chdir(run)
        _, out, err = editloupe(*words(command, run))
        assert surroundings(outside) == before, place
        assert "Traceback" not in out + err, place


@pytest.mark.parametrize("command", NAMES)
def test_a_file_that_has_a_second_name_outside_is_not_written_through(
    command: str, good: Path, tmp_path: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of the run is a hard link. One finding is left to do, and lines are cut off."""
    shutil.copytree(good / "data", tmp_path / "data")
    shutil.copytree(good / "run", tmp_path / "other")
    shutil.copytree(good / "run", tmp_path / "outside")
    outside, run = tmp_path / "outside", tmp_path / "run"
    findings = (outside / "findings.jsonl").read_bytes().splitlines(keepends=True)
    last = outside / str(json.loads(findings[-1])["trace"])
    last.write_bytes(b"".join(last.read_bytes().splitlines(keepends=True)[:-3]) + b'{"cut')
    (outside / "findings.jsonl").write_bytes(b"".join(findings[:-1]) + b'{"cut')
    with (outside / "samples.jsonl").open("ab") as file:
        file.write(b'{"cut')
    for name in (*WRITTEN, "report/summary.md"):
        replaced(outside / name).write_text("")
    shutil.copytree(outside, run, copy_function=os.link)
    before = surroundings(outside)
    monkeypatch.chdir(run)
    code, out, err = editloupe(*words(command, run))
    assert surroundings(outside) == before
    assert "Traceback" not in out + err
    if command == "judge":
        assert code == 0 and len((run / "findings.jsonl").read_bytes().splitlines()) == len(findings)
        assert [part.wrong for part in verify(run)] == [[]] * 4
