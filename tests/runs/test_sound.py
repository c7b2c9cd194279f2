"""What is remembered of a large run's files, so that they are read fast: never believed of other bytes, or of a copy."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from editloupe import Run, load_samples
from editloupe.findings import Finding
from editloupe.runs import index
from editloupe.runs.store import RunStore
from editloupe.traces import GALLERY
from tests.guards.old_run import unpacked
from tests.setups import open_with

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LARGE", 0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was read before."""
    run = Path(shutil.copytree(GALLERY, tmp_path / "run"))
    assert Run(run).findings
    assert (run / "index.json").exists()
    return run


def remembered(run: Path) -> Any:
    return json.loads((run / "index.json").read_text(encoding="utf-8"))


def change(run: Path) -> None:
    """Change the reason of the last finding by hand: it is no longer what was recorded."""
    path = run / "findings.jsonl"
    *before, last = path.read_text(encoding="utf-8").splitlines()
    data = json.loads(last)
    changed = json.dumps(data | {"reason": data["reason"] + "?"}, ensure_ascii=False)
    path.write_text("\n".join([*before, changed, ""]), encoding="utf-8")


@pytest.mark.parametrize("made_by", ["this version", "0.2.0"])
def test_a_run_that_was_read_before_says_the_same(made_by: str, gallery: Path, tmp_path: Path, editloupe: Program):
    run = gallery if made_by == "this version" else unpacked(tmp_path)
    cold = Run(run)
    findings, samples, problems = cold.findings, cold.samples, cold.problems
    shown, report = editloupe("show", run), editloupe("report", run)
    warm = Run(run)
    assert (warm.findings, warm.samples, warm.problems) == (findings, samples, problems)
    (run / "index.json").unlink(missing_ok=True)
    assert (editloupe("show", run), editloupe("report", run)) == (shown, report)


def test_what_is_remembered_is_all_of_both_files_and_grows_with_the_run(tmp_path: Path, editloupe: Program):
    out = tmp_path / "out"
    assert editloupe("judge", EXAMPLES, "--out", out, "--limit", "1")[0] == 0
    small = remembered(out)
    assert editloupe("judge", EXAMPLES, "--out", out, "--limit", "4")[0] == 0
    for name in ("samples.jsonl", "findings.jsonl"):
        content = (out / name).read_bytes()
        assert (remembered(out)[name]["bytes"], remembered(out)[name]["sha256"]) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        )
        assert small[name]["bytes"] < len(content)


@pytest.mark.parametrize("name", ["samples.jsonl", "findings.jsonl"])
def test_a_damaged_line_is_told_by_its_number_all_the_same(run: Path, editloupe: Program, name: str):
    path = run / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], lines[-1][:-20] + b"\n"]))
    code, out, err = editloupe("show", run)
    assert code == 0 and f"{name}, line {len(lines)}: not JSON, left out" in out + err


def test_a_line_behind_what_is_remembered_has_its_own_number(run: Path, editloupe: Program):
    path = run / "findings.jsonl"
    count = len(path.read_bytes().splitlines())
    with path.open("ab") as file:
        file.write(b"{}\n{\n")
    code, out, err = editloupe("show", run)
    assert code == 0
    assert f"findings.jsonl, line {count + 1}: not of the expected shape" in out + err
    assert f"findings.jsonl, line {count + 2}: not JSON, left out" in out + err


def test_lines_of_an_editor_that_ends_them_with_a_carriage_return_too_say_the_same(run: Path, editloupe: Program):
    shown = editloupe("show", run)
    path = run / "findings.jsonl"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert editloupe("show", run) == shown
    # An end that was cut off has the number of its line.
    path.write_bytes(content.replace(b"\n", b"\r\n") + b'{"task_id": ')
    code, out, err = editloupe("show", run)
    count = len(content.splitlines())
    assert code == 0 and f"findings.jsonl, line {count + 1}: the last line is cut off (12 bytes), left out" in out + err


def test_of_findings_that_cannot_all_be_written_those_before_are(run: Path):
    edits = load_samples(EXAMPLES)
    setup = open_with(backend="baseline")
    out = run.parent / "out"
    with closing(RunStore.begin(out, setup.spec, setup.entries(), edits)) as store:
        tasks = list(setup.protocol.plan([edits.samples[0]], {}))
        given: dict[str, Any] = {"judge_id": setup.judge.id, "repeat": 0, "status": "unparsed", "ending": "answer"}
        whole, broken = (Finding.of(task, **given, seconds=s) for task, s in zip(tasks, (1.0, math.nan), strict=True))
        with pytest.raises(ValueError, match="not JSON compliant"):
            store.add_findings([whole, broken])
    assert Run(out).findings == [whole]


def test_a_finding_that_was_changed_since_does_not_count(run: Path, editloupe: Program):
    change(run)
    code, out, err = editloupe("show", run)
    assert code == 0 and "not counted" in out + err
    # Nor is it remembered from then on.
    assert editloupe("show", run) == (code, out, err)


def test_what_is_remembered_of_another_file_is_not_believed_in_a_copy(run: Path, tmp_path: Path, editloupe: Program):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    change(copy)
    content = (copy / "findings.jsonl").read_bytes()
    forged = remembered(run)
    forged["findings.jsonl"] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (copy / "index.json").write_text(json.dumps(forged), encoding="utf-8")
    code, out, err = editloupe("show", copy)
    assert code == 0 and "not counted" in out + err


SPOILT: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"\xff" * 100,
    "a list": b"[]",
    "a list of lists": b'{"findings.jsonl": []}',
    "words": b'{"findings.jsonl": {"file": 1, "bytes": "many", "sha256": null}}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_memory_changes_nothing_and_is_made_anew(run: Path, editloupe: Program, content: bytes):
    good, shown = remembered(run), editloupe("show", run)
    (run / "index.json").write_bytes(content)
    assert editloupe("show", run) == shown
    assert remembered(run) == good


@pytest.mark.parametrize(
    "spoilt",
    [{"bytes": -1}, {"bytes": 10**18}, {"bytes": True}, {"bytes": 7}, {"bytes": 1e300}, {"sha256": "0" * 64}],
    ids=str,
)
def test_wrong_figures_of_this_very_file_change_nothing(run: Path, editloupe: Program, spoilt: dict[str, Any]):
    shown, known = editloupe("show", run), remembered(run)
    change(run)
    known["findings.jsonl"] |= spoilt
    (run / "index.json").write_text(json.dumps(known), encoding="utf-8")
    code, out, err = editloupe("show", run)
    assert code == 0 and "not counted" in out + err and (code, out, err) != shown


def test_a_folder_that_cannot_be_written_is_read_all_the_same(run: Path, editloupe: Program):
    shown = editloupe("show", run)
    (run / "index.json").unlink()
    (run / "index.json").mkdir()
    assert editloupe("show", run)[0] != 0  # no file of a run
    (run / "index.json").rmdir()
    run.chmod(0o555)
    try:
        assert editloupe("show", run) == shown
    finally:
        run.chmod(0o755)
