"""replay, fork, rescore and show on the gallery, as a user runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from editloupe import Run
from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import TraceError
from editloupe.imaging import render
from editloupe.rubrics import rubric_path
from editloupe.runs.lineage import read_whole
from editloupe.runs.replay import fork
from editloupe.runs.rescore import protocol_with, rescore
from editloupe.runs.store import RunStore
from editloupe.tools.base import open_toolbox
from editloupe.traces import GALLERY
from editloupe.traces.read import read_trace
from tests.conftest import draw_edits, final
from tests.runs.test_replay import trace_of

Editloupe = Callable[..., tuple[int, str, str]]


MUG = ("mug-blue", "--criterion", "if")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_live_tools_on_the_gallery_stay_within_their_tolerances(editloupe: Editloupe):
    code, told, _ = editloupe("replay", GALLERY, "--observations", "live")
    assert code == 0
    assert "localize_differences" in told
    assert "7 as recorded" in told


def test_a_drift_check_writes_nothing(gallery: Path, editloupe: Editloupe, monkeypatch: pytest.MonkeyPatch):
    before = contents(gallery)
    crop = render.crop
    monkeypatch.setattr(render, "crop", lambda rgb, box: crop(rgb, box) // 2)
    assert editloupe("replay", gallery, "--observations", "live")[0] == 4
    assert contents(gallery) == before


def test_a_changed_tool_makes_the_drift_check_fail_with_a_report_that_can_be_read(
    editloupe: Editloupe, monkeypatch: pytest.MonkeyPatch
):
    crop = render.crop
    # Forty levels brighter: enough for every crop to be another picture, at the same place.
    monkeypatch.setattr(render, "crop", lambda rgb, box: np.minimum(crop(rgb, box), 215) + np.uint8(40))
    code, told, _ = editloupe("replay", GALLERY, "--observations", "live", "--sample", *MUG)
    assert code == 4
    assert "with drifted tools" in told
    assert "step 2, zoom_in: drift" in told
    # Enlarging overshoots by a level or two at edges.
    assert re.search(r"picture 1: differs by up to 4\d of 255, PSNR 16\.\d dB \(at most 8, at least 45 dB\)", told)
    code, told, _ = editloupe("replay", GALLERY, "--observations", "live", "--json")
    rows = [json.loads(line) for line in told.splitlines()]
    assert code == 4
    zoomed = [o for row in rows for o in row["observations"] if o["tool"] == "zoom_in" and o["max_abs"]]
    assert {o["verdict"] for o in zoomed} == {"drift"}
    assert {o["tolerance"]["psnr_db"] for o in zoomed} == {45.0}


def test_show_tells_what_is_wrong_with_a_trace_and_shows_the_rest(gallery: Path, editloupe: Editloupe):
    path = trace_of(gallery, "closer-look")
    path.write_text(path.read_text(encoding="utf-8").replace("Is the handle", "Is a handle"), encoding="utf-8")
    next((gallery / "blobs").glob(f"*/{RunStore.read(gallery).samples['mug-blue'].source.sha256}.*")).unlink()
    code, told, err = editloupe("show", gallery, *MUG)
    assert code == 0
    assert "hash mismatch" in err
    assert "Is a handle" in told
    assert "missing: blobs/ has no " in told
    code, told, err = editloupe("replay", gallery)
    assert (code, "1 could not be replayed" in told) == (1, True)


def test_show_tells_tokens_images_time_and_cost_of_each_step(editloupe: Editloupe):
    told = editloupe("show", GALLERY, *MUG)[1]
    assert "1,500 input tokens, 900 of them for images, 40 output tokens, no cost)" in told


def script(*lines: str) -> str:
    Path("script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return "scripted/script.jsonl"


def test_a_fork_under_another_backbone_shares_its_beginning_and_show_draws_it(
    gallery: Path, editloupe: Editloupe, tmp_path: Path
):
    path = trace_of(gallery, "closer-look")
    before = path.read_bytes()
    judge = read_trace(path).header.judge_id
    # Two kept steps: the third line is the first one asked for.
    uri = script("-", "-", final("Over Modification"))
    words = ("fork", gallery, *MUG, "--judge", judge)
    code, told, _ = editloupe(*words, "--at", "2", "--backend", uri)
    assert code == 0
    assert "Parent: Flawless Execution\nFork:   Over Modification" in told
    (child,) = gallery.glob("forks/*/*.jsonl")
    hashes = [[e.hash for e in t.events if e.kind == "message"] for t in (read_trace(path), read_whole(gallery, child))]
    # The question, two replies and two observations; what follows is the child's own.
    assert hashes[0][:5] == hashes[1][:5]
    assert hashes[0][5:] != hashes[1][5:]
    assert [e.hash for e in read_trace(child).events if e.kind == "message"] == hashes[1][5:]
    assert path.read_bytes() == before
    (tmp_path / "hint.txt").write_text("Mind the handle.", encoding="utf-8")
    uri = script("-", "-", "-", final("Wrong Action"))
    code, _, _ = editloupe(*words, "--of", "1", "--at", "3", "--add-instruction", tmp_path / "hint.txt", "--backend", uri)
    assert code == 0
    code, told, err = editloupe("show", gallery, *MUG)
    assert (code, err) == (0, "")
    lines = [line for line in told.splitlines() if "fork " in line]
    assert lines[0].startswith("└── fork 1 after step 2, backend: scripted/")
    assert lines[1].startswith("    └── fork 2 after step 3, backend: scripted/")
    code, told, _ = editloupe("show", gallery, *MUG, "--judge", judge, "--fork", "2")
    assert "Step 3, shared with what it continues" in told
    assert "Verdict: Wrong Action" in told


def test_a_file_among_the_forks_that_no_fork_is_called_is_passed_over(gallery: Path, editloupe: Editloupe):
    for trace in (gallery / "traces").rglob("*.jsonl"):
        file = gallery / "forks" / trace.name[:2] / f"{trace.stem}.mine.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("notes")
    code, _, error = editloupe("show", gallery, "mug-blue")
    assert (code, error) == (0, "")


def test_a_fork_that_cannot_be_is_refused_and_leaves_nothing(gallery: Path, editloupe: Editloupe):
    judge = read_trace(trace_of(gallery, "closer-look")).header.judge_id
    for at, more, told in (
        ("9", (), "has 4 steps; --at 9 is none of 0 to 4"),
        ("0", ("--tools", "zoom_in"), "a changed question is a new run"),
        ("4", (), "at this step the judge answered"),
        ("3", ("--tools", "no_such"), "unknown tool 'no_such'"),
        ("1", ("--of", "7"), "has no fork 7"),
        ("1", ("--add-instruction", "none.txt"), "--add-instruction none.txt cannot be read"),
    ):
        code, _, err = editloupe("fork", gallery, *MUG, "--judge", judge, "--backend", "baseline", "--at", at, *more)
        assert code == 2 and told in err, (at, more, err)
        assert not list(gallery.glob("forks/*/*.jsonl"))


def test_other_tools_reach_the_model(gallery: Path, editloupe: Editloupe):
    judge = read_trace(trace_of(gallery, "closer-look")).header.judge_id
    words = ("fork", gallery, *MUG, "--judge", judge)
    uri = script("-", "-", final("Localization Failure"))
    code, told, err = editloupe(*words, "--at", "2", "--backend", uri, "--tools", "enhancer", "--json")
    assert (code, err) == (0, "")
    data = json.loads(told)
    assert data["finding"]["label"] == "Localization Failure"
    assert data["parent"]["changes"] | {"backend": ""} == {"backend": "", "tools": "enhancer"}
    child = read_whole(gallery, gallery / data["trace"])
    assert "From here on your tools are enhancer, and no others." in child.messages()[5].text
    assert [t["name"] for t in child.header.tools] == ["enhancer"]
    assert child.problems == ()


def test_rescore_reads_recorded_answers_by_another_rubric(gallery: Path, editloupe: Editloupe, tmp_path: Path):
    text = rubric_path("dlebench").read_text(encoding="utf-8")
    rubric = tmp_path / "own.toml"
    # The best of both criteria is worth 6 here, and one label is spelt otherwise.
    rubric.write_text(
        text.replace("value = 4", "value = 6").replace('"Perfect Consistency"', '"No Anomaly"'), encoding="utf-8"
    )
    before = contents(gallery)
    code, told, err = editloupe("rescore", gallery, "--rubric", rubric)
    assert (code, err) == (0, "")
    assert "mug-blue, visual_consistency: Perfect Consistency (4) → (off_menu)" in told
    assert "plate-gone, instruction_following: Flawless Execution (4) → Flawless Execution (6)" in told
    assert "7 of 7 findings change; no model was asked." in told
    assert contents(gallery) == before
    code, told, _ = editloupe("rescore", gallery, "--rubric", "dlebench", "--json")
    assert code == 0
    assert [json.loads(line)["changed"] for line in told.splitlines()] == [False] * 7
    code, _, _ = editloupe("rescore", gallery, "--rubric", rubric, "--out", tmp_path / "again")
    assert code == 0
    values = sorted((f.status, f.value or 0) for f in RunStore.read(tmp_path / "again").current())
    assert values == [("off_menu", 0.0)] * 2 + [("ok", 6.0)] * 5
    code, told, err = editloupe("show", tmp_path / "again", "mug-blue")
    assert (code, err) == (0, "")
    code, _, err = editloupe("replay", tmp_path / "again")
    assert (code, "re-scored findings of another run" in err) == (2, True)
    code, _, err = editloupe("rescore", gallery, "--rubric", rubric, "--out", gallery)
    assert (code, "name another folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("of", "told"), [("message", "(hash mismatch)"), ("model_call", "its reply is not that of message")]
)
def test_a_trace_that_was_changed_is_neither_forked_nor_rescored(gallery: Path, editloupe: Editloupe, of: str, told: str):
    store = RunStore.read(gallery)
    finding = next(f for f in store.current() if f.label == "Flawless Execution")
    path = gallery / str(finding.trace)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # Replies stand in both; only the last has a label.
    at = max(i for i, x in enumerate(lines) if f'"kind":"{of}"' in x and "Flawless Execution" in x)
    lines[at] = lines[at].replace("Flawless Execution", "Wrong Action")
    path.write_text("".join(lines), encoding="utf-8")
    code, out, err = editloupe("rescore", gallery, "--rubric", "dlebench")
    assert (code, "0 of 7 findings change" in out, "1 finding left out" in err, told in err) == (0, True, True, True)
    (one,) = (r for r in rescore(store, protocol_with(store, {"rubric": "dlebench"})) if r.reason)
    assert (one.before, one.now, one.changed) == (finding, None, False)
    with pytest.raises(TraceError, match="cannot be forked"):
        fork(gallery, str(finding.trace), at=1, backend=ScriptedLMM(["-"]), toolbox=open_toolbox(()))
    assert not (gallery / "forks").exists()


def test_diff_finds_the_first_step_at_which_two_traces_part(gallery: Path, editloupe: Editloupe):
    code, told, _ = editloupe("show", gallery, "plate-gone", "--criterion", "vc", "--diff", GALLERY)
    assert (code, "The same conversation to the end" in told) == (0, True)
    code, told, _ = editloupe("show", gallery, *MUG, "--diff", GALLERY)
    # Every judge of the one with every judge of the other: baseline and script part at the first reply.
    assert "They part at step 1, in the reply: parts 1, text, from character" in told
    code, _, err = editloupe("show", gallery, "--diff", GALLERY)
    assert (code, "name it behind the run" in err) == (2, True)


def test_of_two_questions_a_difference_shows_all_steps_of_both(tmp_path: Path, editloupe: Editloupe):
    folder = draw_edits(tmp_path / "edits", 1)
    for mode in ("tool", "plain"):
        assert editloupe("judge", folder, "--mode", mode, "--criteria", "if", "--out", mode)[0] == 0
    _, told, _ = editloupe("show", "tool", "s00", "--diff", "plain")
    assert "They part in the question" in told
    here, there = (len(Run.open(mode).trace(Run.open(mode).findings[0]).steps()) for mode in ("tool", "plain"))
    assert (told.count(", here ("), told.count(", there (")) == (here, there) and here > there >= 1
    assert told.index(", here (") < told.index(", there (") and told.count("Thought") == here + there
