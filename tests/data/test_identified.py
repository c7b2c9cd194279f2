"""What is remembered of the files of a large data set: never believed of another file, and never in place of its bytes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import files
from editloupe.data import identified

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"
Program = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some files are worth remembering, and all were written long ago."""
    monkeypatch.setattr(identified, "MANY", 1)
    monkeypatch.setattr(identified, "_SETTLED", -(10**18))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The image files that are read from now on."""
    found: list[Path] = []

    def noted(path: Path) -> tuple[bytes, files.Stamp]:
        found.append(path)
        return stamped(path)

    stamped = files.read_stamped
    monkeypatch.setattr(files, "read_stamped", noted)
    return found


@pytest.fixture
def edits(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "edits"))


@pytest.fixture
def run(edits: Path, tmp_path: Path, editloupe: Program) -> Path:
    """A run of two samples, of which all files are known."""
    out = tmp_path / "run"
    assert judge(editloupe, edits, out)[0] == 0
    assert (out / identified.FILE).exists()
    return out


def judge(editloupe: Program, edits: Path, out: Path, *more: str) -> tuple[int, str, str]:
    return editloupe("judge", edits, "--out", out, "--mode", "plain", "--limit", "2", *more)


def named(edits: Path) -> list[Path]:
    """The images that rows of the data name: all are identified, whatever is judged."""
    rows = map(json.loads, (edits / "metadata.jsonl").read_text(encoding="utf-8").splitlines())
    return sorted({edits / row[f"{side}_file_name"] for row in rows for side in ("source", "edited")})


def findings(run: Path) -> list[tuple[str, str, str | None]]:
    lines = map(json.loads, (run / "findings.jsonl").read_text(encoding="utf-8").splitlines())
    return [(line["sample_id"], line["status"], line["label"]) for line in lines]


def test_a_run_that_goes_on_reads_no_file_that_it_knows(run: Path, edits: Path, read: list[Path], editloupe: Program):
    before = findings(run)
    code, out, err = judge(editloupe, edits, run)
    assert code == 0 and "4 of them from before" in out + err
    assert read == [] and findings(run) == before


def test_a_file_with_other_bytes_is_found_although_size_and_time_are_set_back(run: Path, edits: Path, editloupe: Program):
    row = json.loads((edits / "metadata.jsonl").read_text(encoding="utf-8").splitlines()[0])
    path = edits / row["edited_file_name"]
    at, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    code, _, err = judge(editloupe, edits, run)
    assert code == 2 and "the edited image has changed" in err


def test_the_same_files_elsewhere_are_read_anew(
    run: Path, edits: Path, tmp_path: Path, read: list[Path], editloupe: Program
):
    copy = shutil.copytree(edits, tmp_path / "copy")
    code, out, err = judge(editloupe, copy, run)
    assert code == 0 and "4 of them from before" in out + err
    assert sorted(read) == named(copy)


def test_bytes_are_never_taken_on_trust(run: Path, edits: Path, tmp_path: Path, editloupe: Program):
    known = run / identified.FILE
    head, first, second, *rest = known.read_text(encoding="utf-8").splitlines()
    stamp = first.rpartition(" image/")[0].rsplit(" ", 3)[0]
    # The first file is said to hold what the second one holds.
    forged = f"{stamp} {second.split(' ', 5)[5]}"
    other = tmp_path / "other"
    other.mkdir()
    (other / identified.FILE).write_text("\n".join([head, forged, second, *rest, ""]), encoding="utf-8")
    shutil.copy(run / "run.json", other)
    judge(editloupe, edits, other)
    lines = findings(run)
    for sample_id, status, label in findings(other):
        assert status == "input_error" or (sample_id, status, label) in lines
    assert "input_error" in {status for _, status, _ in findings(other)}


SPOILT = {
    "nothing": b"",
    "bytes": b"\xff\xfe",
    "another version": b"editloupe images 2\n1 2 3 4 5 6\n",
    "no lines": b"editloupe images 1: device, number, bytes, ns of two times, SHA-256, width, height, type\nx\n\n1 2 3\n",
}


@pytest.mark.parametrize("content", SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_memory_changes_nothing_and_is_made_anew(run: Path, edits: Path, content: bytes, editloupe: Program):
    known = run / identified.FILE
    good = known.read_bytes()
    known.write_bytes(content)
    code, out, err = judge(editloupe, edits, run)
    assert code == 0 and "4 of them from before" in out + err
    assert known.read_bytes() == good


def test_a_memory_that_cannot_be_read_or_written_is_done_without(
    run: Path, edits: Path, read: list[Path], editloupe: Program
):
    (run / identified.FILE).unlink()
    (run / identified.FILE).mkdir()
    code, out, err = judge(editloupe, edits, run)
    assert code == 0 and "4 of them from before" in out + err
    assert sorted(read) == named(edits)


def test_few_files_and_such_as_were_written_just_now_are_not_remembered(
    edits: Path, tmp_path: Path, editloupe: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(identified, "MANY", len(named(edits)) + 1)
    assert judge(editloupe, edits, tmp_path / "few")[0] == 0
    assert not (tmp_path / "few" / identified.FILE).exists()
    monkeypatch.setattr(identified, "MANY", 1)
    monkeypatch.setattr(identified, "_SETTLED", 3 * 10**9)
    assert judge(editloupe, edits, tmp_path / "new")[0] == 0
    assert not (tmp_path / "new" / identified.FILE).exists()
