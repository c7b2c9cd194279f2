"""`editloupe show`: the list of runs, a run that was stopped in the middle, and what is no run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ANSWERED, Cli, Edits, refused, words_of
from tests.guards.old_run import unpacked


def stop_after(run: Path, findings: int) -> None:
    """Leave what a run has on disk that was killed behind so many findings."""
    file = run / "findings.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:findings]))


def judged(editloupe: Cli, folder: Path, *more: str) -> None:
    assert editloupe("judge", folder, "--mode", "plain", "--concurrency", "1", "--out", "runs/one", *more)[0] == 0


def listed(editloupe: Cli) -> Any:
    """What programs get of the one run of the list."""
    return json.loads(editloupe("show", "--format", "json")[1])


def test_a_run_that_was_stopped_says_what_was_not_asked_yet(editloupe: Cli, edits: Edits) -> None:
    judged(editloupe, edits(4, instruction=ANSWERED))
    assert listed(editloupe)["status"] == "complete" and "Incomplete" not in editloupe("report", "runs/one")[1]
    assert "8 of 8 findings judged.\n" in editloupe("show", "runs/one")[1]
    stop_after(Path("runs/one"), 3)
    # Two criteria a sample: both of the first, one of the second.
    assert "3 of 3 findings judged; 3 of 4 samples to go." in editloupe("show", "runs/one")[1]
    assert "5 not judged yet of 8" in words_of(editloupe("gate", "runs/one", "--require", "unjudged<=0.02")[1])
    row = r"runs/one baseline incomplete: 3 samples to go plain Overall [\d.]+ \(3/8\) 2 of 4 3 of 3"
    assert re.search(row, words_of(editloupe("show")[1]))
    one = listed(editloupe)
    assert (one["samples"], one["asked"], one["statuses"]) == (4, 2, {"ok": 3})
    said = editloupe("report", "runs/one")[1]
    assert said.startswith("Incomplete: runs/one; of 4 samples, baseline, plain has 3 to go.\n")
    assert "Incomplete: runs/one;" in json.loads(editloupe("report", "runs/one", "--format", "json")[1])["notes"][0]
    assert "> Incomplete: runs/one" in Path("runs/one/report/report.md").read_text()


def test_several_judges_of_a_run_are_listed_and_printed_apart(editloupe: Cli, edits: Edits) -> None:
    folder = edits(3, instruction=ANSWERED)
    judged(editloupe, folder)
    Path("r.jsonl").write_text('"<Start Final Answer>Wrong Action</Start Final Answer>"\n')
    judged(editloupe, folder, "--backend", "second=scripted/r.jsonl", "--criteria", "if")
    assert listed(editloupe)["asked"] == 3
    # Six of the first judge; of the second, one.
    stop_after(Path("runs/one"), 7)
    assert listed(editloupe)["asked"] == 1
    said = editloupe("show", "runs/one")[1]
    assert "6 of 6 findings judged.\n" in said and "1 of 1 findings judged; 2 of 3 samples to go." in said
    head, *rows = editloupe("show", "runs/one", "--format", "csv")[1].splitlines()
    assert head == "Judge,Sample,Instruction Following,Visual Consistency"
    assert [row.split(",")[:2] for row in rows] == [["baseline", f"s0{i}"] for i in range(3)] + [["second", "s00"]]


def test_runs_are_told_apart_by_mode_and_means(editloupe: Cli, edits: Edits, tmp_path: Path) -> None:
    judged(editloupe, edits(2, instruction=ANSWERED))
    unpacked(tmp_path / "runs")
    told = words_of(editloupe("show", "runs")[1])
    assert re.search(r"runs/one baseline complete plain Overall [\d.]+ \(4/4\) 2 of 2", told)
    # Of each judge the mean of both criteria: (46.67 + 93.33) / 2, and (40 + 41.67) / 2.
    assert "runs/run_0_2_0 rules complete, 5 failed tool rules: Overall 70 (10/12) 6 of 6 39 of 44" in told
    assert told.endswith("model: Overall 40.83 (9/12)")
    (one,) = [json.loads(line) for line in editloupe("show", "--format", "json")[1].splitlines() if "run_0_2_0" in line]
    overall = [means[-1] for means in one["means"].values()]
    assert one["mode"] == "tool" and [(m["metric"], m["judged"], m["asked"]) for m in overall] == [
        ("overall", 10, 12),
        ("overall", 9, 12),
    ]
    assert [mean["mean"] for mean in overall] == [pytest.approx(70), pytest.approx(245 / 6)]


def test_what_is_no_run_is_told_apart(editloupe: Cli, tmp_path: Path, edits: Edits) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    first = b'{"schema": 1, "identity": {"protocol": "dlebench", "mode": "tool"}, "record": {"editloupe": "0.1.0"}}'
    for content, told in (
        (b"hello", "/run.json is not JSON: "),
        (b'{"schema": 9}', "/run.json was written by a newer editloupe: run schema 9, and this version reads up to 2"),
        (first, "/run.json has the run schema 1, and this version reads 2. Runs of editloupe 0.1.0 are not read"),
    ):
        (folder / "run.json").write_bytes(content)
        for command in ("show", "report"):
            code, said, err = editloupe(command, folder)
            assert (code, said) == (2, "")
            assert words_of(err).startswith(f"error: {folder}{told}"), err
    data = edits(1)
    judged(editloupe, data)
    (tmp_path / "runs" / "two" / "run.json").mkdir(parents=True)
    for line, told in (
        (("show", "nowhere"), "nowhere is no run folder: there is no such folder"),
        (("view", "nowhere"), "nowhere is no run folder: there is no such folder"),
        (("show", data), "no run is below it; judge something first"),
        (("show", data / "metadata.jsonl"), "metadata.jsonl is no run folder: it is a file"),
        (("report", "runs"), "it has no run.json. Runs in it: one, two; name one of them"),
        (("report", "runs/two"), "run.json is a folder; expected a file of the run"),
        (("show", "runs", "--criterion", "if"), "--criterion is about one sample: name the sample behind the run"),
    ):
        assert told in refused(editloupe, *line)
