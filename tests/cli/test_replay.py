"""`editloupe replay` as a user types it: drift of tools, a judge asked again, forks, and another rubric."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.imaging import render
from editloupe.rubrics import rubric_path
from editloupe.runs.lineage import read_whole
from editloupe.runs.store import RunStore
from editloupe.traces import GALLERY
from editloupe.traces.read import read_trace
from tests.conftest import Cli, Edits, final, refused, scripted
from tests.runs.test_replay import trace_of

MUG = ("mug-blue", "--criterion", "if")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def script(*lines: object, name: str = "script.jsonl") -> str:
    return scripted(name, *lines)


def test_live_tools_are_compared_with_the_recorded_ones(
    gallery: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told, _ = editloupe("replay", GALLERY, "--observations", "live")
    assert code == 0 and "localize_differences" in told and "7 as recorded" in told
    before, crop = contents(gallery), render.crop
    # Forty levels brighter: enough for every crop to be another picture, at the same place.
    monkeypatch.setattr(render, "crop", lambda rgb, box: np.minimum(crop(rgb, box), 215) + np.uint8(40))
    code, told, _ = editloupe("replay", gallery, *MUG, "--observations", "live")
    assert code == 4 and "with drifted tools" in told and "step 2, zoom_in: drift" in told
    # Enlarging overshoots by a level or two at edges.
    assert re.search(r"picture 1: differs by up to 4\d of 255, PSNR 16\.\d dB \(at most 8, at least 45 dB\)", told)
    code, told, _ = editloupe("replay", gallery, "--observations", "live", "--format", "json")
    observed = [o for line in told.splitlines() for o in json.loads(line)["observations"]]
    zoomed = [o for o in observed if o["tool"] == "zoom_in" and o["max_abs"]]
    assert code == 4 and {(o["verdict"], o["tolerance"]["psnr_db"]) for o in zoomed} == {("drift", 45.0)}
    told = editloupe("replay", gallery, "--observations", "live", "--format", "csv")[1]
    assert told.startswith("tool,calls,identical,within,drift,not_compared,worst\n") and "\nzoom_in,7," in told
    assert contents(gallery) == before


def test_a_damaged_trace_is_shown_and_not_replayed(gallery: Path, editloupe: Cli) -> None:
    path = trace_of(gallery, "closer-look")
    path.write_text(path.read_text(encoding="utf-8").replace("Is the handle", "Is a handle"), encoding="utf-8")
    next((gallery / "blobs").glob(f"*/{RunStore.read(gallery).samples['mug-blue'].source.sha256}.*")).unlink()
    code, told, err = editloupe("show", gallery, *MUG)
    assert code == 0 and "hash mismatch" in err and "Is a handle" in told and "missing: blobs/ has no " in told
    assert "1,500 input tokens, 40 output tokens)" in told
    code, told, _ = editloupe("replay", gallery)
    assert code == 1 and "1 could not be replayed" in told


@pytest.fixture
def run(edits: Edits, editloupe: Cli) -> Path:
    """Six edits, all flawless by a script."""
    told = script(final("Flawless Execution"), name="then.jsonl")
    code, _, said = editloupe("judge", edits(6), "--backend", told, "--criteria", "if", "--out", "run")
    assert code == 0, said
    return Path("run")


def flips(told: str) -> dict[str, Any]:
    """The last object of JSON."""
    return dict(json.loads(told[told.rindex('{"event": "flips"') :]))


def test_the_share_of_answers_that_a_judge_changes_is_counted(run: Path, editloupe: Cli) -> None:
    live = ("replay", run, "--model", "live", "--backend")
    same, other = script(final("Flawless Execution")), script(final("Wrong Action"), name="now.jsonl")
    code, told, said = editloupe(*live, same, "--limit", "4", "--fail-above", "0")
    assert code == 0, said
    assert "Share of answers that are others now" in told and "0.000 (4/4)" in told
    assert (run / "findings.jsonl").read_text().count("\n") == 6, "the run itself is left as it is"
    code, told, _ = editloupe(*live, other, "--fail-above", "0.5", "--format", "json")
    found = flips(told)
    share = found["shares"]["instruction_following"]
    assert (code, share["value"], share["judged"], share["asked"]) == (4, 1.0, 6, 6)
    assert found["model_changed"] is True and found["highest"] == 1.0
    code, told, _ = editloupe(*live, other)
    assert code == 0
    assert "ANOTHER model" in told and "recorded 'Flawless Execution', now 'Wrong Action'" in " ".join(told.split())
    # What has no answer now is no flip; and a judge that does not answer has not passed.
    silent = (*live, script({"error": "unavailable"}, name="silent.jsonl"), "--limit", "2", "--fail-above", "0.5")
    code, told, _ = editloupe(*silent, "--format", "json")
    share = flips(told)["shares"]["instruction_following"]
    assert (share["value"], share["judged"], share["asked"], share["why"]) == (None, 0, 2, "nothing was judged")
    assert code == 4 and "Nothing was judged, so that --fail-above cannot be held." in editloupe(*silent)[1]


def test_a_fork_shares_its_beginning_and_follows_what_is_changed(gallery: Path, editloupe: Cli, tmp_path: Path) -> None:
    path = trace_of(gallery, "closer-look")
    before, parent = path.read_bytes(), read_trace(path)
    (tmp_path / "hint.txt").write_text("Mind the handle.", encoding="utf-8")
    # Two kept steps: the third line is the first one asked for.
    words = ("replay", gallery, *MUG, "--judge", parent.header.judge_id, "--at", "2")
    more = ("--backend", script("-", "-", final("Over Modification")))
    code, told, err = editloupe(*words, *more, "--add-instruction", tmp_path / "hint.txt", "--format", "json")
    assert (code, err) == (0, "")
    data = json.loads(told)
    assert data["finding"]["label"] == "Over Modification" and data["recorded"]["label"] == "Flawless Execution"
    changes = {"instruction": "Mind the handle."}
    assert data["parent"]["changes"] | {"backend": ""} == {"backend": "", **changes}
    child = read_whole(gallery, gallery / data["trace"])
    hashes = [[e.hash for e in trace.events if e.kind == "message"] for trace in (parent, child)]
    # The question, two replies and two observations; what follows is the child's own.
    assert hashes[0][:5] == hashes[1][:5] and hashes[0][5:] != hashes[1][5:]
    added = child.messages()[5].text
    assert "Mind the handle." in added
    assert path.read_bytes() == before


def test_a_fork_that_cannot_be_is_refused_and_leaves_nothing(gallery: Path, editloupe: Cli) -> None:
    judge = ("--judge", read_trace(trace_of(gallery, "closer-look")).header.judge_id, "--backend", "baseline")
    for words, told in (
        ((*MUG, *judge, "--at", "9"), "has 4 steps; --at 9 is none of 0 to 4"),
        ((*MUG, *judge, "--at", "4"), "at this step the judge answered"),
        ((*MUG, *judge, "--at", "1", "--add-instruction", "none.txt"), "--add-instruction none.txt cannot be read"),
        ((*MUG, "--at", "1", "--backend", "baseline"), "has 3 traces; choose one with --criterion, --judge or --repeat"),
        (("--at", "1"), "name the sample behind the run"),
        ((*MUG, "--at", "1", "--rubric", "dlebench"), "three ways to use a recording; give one of them"),
        (("--limit", "2", "--fail-above", "0"), "--limit, --fail-above: only with --model live"),
        (("--backend", "baseline"), "--backend: only with --model live or --at STEP"),
        (("--out", "there"), "--out: only with --model live, --at STEP or --rubric"),
        (("--rubric", "dlebench", "--observations", "live"), "--observations: only with a replay"),
    ):
        assert told in refused(editloupe, "replay", gallery, *words), words
        assert not list(gallery.glob("forks/*/*.jsonl")) and not Path("there").exists()


def test_recorded_answers_are_read_by_another_rubric(gallery: Path, editloupe: Cli, tmp_path: Path) -> None:
    text, rubric = rubric_path("dlebench").read_text(encoding="utf-8"), tmp_path / "own.toml"
    # The best of both criteria is worth 6 here, and one label is spelt otherwise.
    text = text.replace("value = 4", "value = 6").replace('"Perfect Consistency"', '"No Anomaly"')
    rubric.write_text(text, encoding="utf-8")
    before = contents(gallery)
    code, told, err = editloupe("replay", gallery, "--rubric", rubric)
    assert (code, err) == (0, "")
    assert "mug-blue, visual_consistency: Perfect Consistency (4) → (off_menu)" in told
    assert "plate-gone, instruction_following: Flawless Execution (4) → Flawless Execution (6)" in told
    assert "7 of 7 findings change; no model was asked." in told
    assert contents(gallery) == before
    code, told, _ = editloupe("replay", gallery, "--rubric", "dlebench", "--format", "json")
    assert code == 0 and [json.loads(line)["changed"] for line in told.splitlines()] == [False] * 7
    assert editloupe("replay", gallery, "--rubric", rubric, "--out", "again")[0] == 0
    values = sorted((f.status, f.value or 0) for f in RunStore.read(Path("again")).current())
    assert values == [("off_menu", 0.0)] * 2 + [("ok", 6.0)] * 5
    code, told, err = editloupe("show", "again", "mug-blue")
    assert (code, err) == (0, "")
    for words, told in (
        (("replay", "again"), "re-scored findings of another run"),
        (("replay", gallery, "--rubric", rubric, "--out", gallery), "name another folder"),
        (("merge", gallery, "again"), "belongs to another run, with other settings"),
    ):
        assert told in refused(editloupe, *words)
