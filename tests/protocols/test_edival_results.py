"""`editloupe import edival`: the official code's result files, made here after its source, since none is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.protocols.edival.instructions import Edit
from editloupe.protocols.edival.results import EDIVAL, followed
from editloupe.protocols.result_mapping import ResultSaid, read_said
from tests.protocols import edival_files

Program = Callable[..., tuple[int, str, str]]
EDITS = (
    Edit(edit_type="subject_remove", target="cup"),
    Edit(edit_type="color_alter", target="jar", new="blue"),
    Edit(edit_type="background_change", new="park", keep=("jar",)),
)
CHAIN = tuple((edit.edit_type, edit.sentence(), edit.sentence(brackets=True)) for edit in EDITS)
SOURCE = "Failed to detect [cup] in images. Source detected: {}, Target detected: {}"
REFERENCE = "Failed to detect required objects. Reference object [jar] detected: False, Target object [cup] detected: True"
MISS = "Failed to detect [cup] in source image."


def entry(turn: int, score: Any = 1, reason: str = "It was done.", **changes: Any) -> dict[str, Any]:
    """What eval.py writes about a turn of a chain."""
    edit = EDITS[turn - 1]
    consistent = {
        "object_dinov3_consistency_mean": 0.8, "object_l1_consistency_mean": 0.9,
        "background_dinov3_consistency": 0.95, "background_l1_consistency": 0.9,
        "object_details": {"label": ["jar"], "object_dinov3_consistency": [0.8], "object_l1_consistency": [0.9]},
        "bg_details": {"bg_l1_consistency": 0.9, "total_boxes_used": 2},
    }  # fmt: skip
    return {
        "instruction": f'"{edit.sentence()}"',
        "format_instructions": edit.sentence(brackets=True),
        "task_type": edit.edit_type,
        "instruction_following": score,
        "instruction_following_reason": reason,
        **(consistent if turn < 3 else dict.fromkeys(consistent)),
        "p99": 0.7,
        "human_preference_score": 5.0,
        **changes,
    }


def prompt(edits: int, scores: list[Any], reasons: list[str] | None = None) -> dict[str, Any]:
    """What eval.py writes about a complex prompt."""
    reasons = reasons or ["It was done."] * edits
    return {
        **entry(edits, scores[-1], reasons[-1]),
        "instructions": [edit.sentence() for edit in EDITS[:edits]],
        "format_instructions": [edit.sentence(brackets=True) for edit in EDITS[:edits]],
        "task_types": [edit.edit_type for edit in EDITS[:edits]],
        "instruction_following_list": scores,
        "instruction_following_reason_list": reasons,
    }


def put(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three images. The object of the first edit of image 1 was not seen; image 2 has no result in singlepass."""
    monkeypatch.chdir(tmp_path)
    edival_files.write(tmp_path / "data", edival_files.lines({0: CHAIN, 1: CHAIN, 2: CHAIN}))
    results = tmp_path / "results" / "bagel"
    base = {"base_image_quality": {"base_image_p99": 0.6, "base_image_human_preference_score": 4.5}}
    multi = {
        0: [entry(1), entry(2), entry(3, 0, "Failed to change background to [park]. VLM response: 'no'")],
        1: [entry(1, 0, MISS), entry(2), entry(3)],
        2: [entry(1, 1, "Successfully removed [cup] from the image."), entry(2, 0), entry(3)],
    }
    for index, turns in multi.items():
        named = {str(turn): one for turn, one in enumerate(turns, start=1)}
        put(results / "multipass" / f"{index}_input_raw.json", {**base, **named})
    put(results / "multipass" / "image_rate.json", {"0": [1, 1, 0]})
    for index in (0, 1):
        for edits in (1, 2, 3):
            scores = [1] * edits if index == 0 else [0, 1, 1][:edits]
            put(results / "singlepass" / f"{index}_input_raw_turn_{edits}.json", prompt(edits, scores))
    return tmp_path


def words(text: str) -> str:
    return " ".join(text.split())


def said(metric: str, row: dict[str, Any]) -> ResultSaid:
    return read_said(metric, EDIVAL.mapping.metrics[metric], row)


IMPORT = ("import", "edival", "results", "--data", "data", "--out", "run")


def test_results_become_a_run_that_says_how_each_mean_moves(folder: Path, editloupe: Program) -> None:
    code, out, err = editloupe(*IMPORT, "--format", "json")
    assert code == 0, err
    data = json.loads(out)
    means = {
        (one["mode"], one["turns"], one["metric"]): (one["published"], one["mean"], one["judged"], one["asked"])
        for one in data["records"]
    }
    # Turn 1 of multipass: 1, 0 for an object that was not seen, 1. Without the 0: 2 of 2.
    assert means["multipass", 1, "instruction_following"] == (pytest.approx(2 / 3), 1.0, 2, 3)
    # All of T1 to T3: 0, 0, 0 as published; image 1 has no verdict, which leaves 0 and 0.
    assert means["multipass", 3, "image_success"] == (0.0, 0.0, 2, 3)
    assert means["multipass", 2, "image_success"] == (pytest.approx(1 / 3), pytest.approx(1 / 2), 2, 3)
    # Complex prompts of three edits: 1 1 1 and 0 1 1: five of six edits, one of two images.
    assert means["singlepass", 3, "instruction_following"][:2] == (pytest.approx(5 / 6), pytest.approx(5 / 6))
    assert means["singlepass", 3, "image_success"] == (0.5, 0.5, 2, 2)
    said = words(err)
    for note in (
        "editor 'bagel', multipass: 3 of 3 samples have an entry",
        "scores that are not_defined (the detector did not find the object before the edit): 1",
        "0 after a model's no, which the code also writes for a model that failed: 1",
        "1 for an object that is not seen, which the code also writes for a detector that failed: 1",
        "editor 'bagel', singlepass: 6 of 9 samples have an entry; not judged yet: 3",
        "no outputs of bagel are known",
    ):
        assert note in said, note
    # How the code judged is recorded, and no option of the protocol.
    run = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    assert run["record"]["imported"]["rules"]["like"] == "official"
    assert run["identity"]["options"]["rules"] == {"like": "paper", "chains": "complete"}


@pytest.mark.parametrize(
    ("value", "reason", "kind", "status"),
    [
        (1, "", "subject_add", "ok"),
        (True, "", "subject_add", "ok"),
        (0, "Failed to remove [cup] from the image.", "subject_remove", "ok"),
        (0, "Invalid instruction format: Add a cup", "subject_add", "input_error"),
        (0, "Unknown task type: paint", "paint", "input_error"),
        (0, "Error during evaluation: CUDA out of memory", "count_change", "tool_failed"),
        (0, "VLM error while checking material change for [a] to [b]", "material_alter", "backend_failed"),
        (0, MISS, "subject_remove", "not_defined"),
        (0, SOURCE.format(False, True), "count_change", "not_defined"),
        (0, SOURCE.format(True, False), "count_change", "ok"),
        (0, REFERENCE, "subject_add", "not_defined"),
        # Of a move both are looked for after the edit.
        (0, REFERENCE, "position_change", "ok"),
        (1, "Error during evaluation: none", "subject_add", "ok"),
        (None, "", "subject_add", "unparsed"),
        ("1", "", "subject_add", "unparsed"),
        (float("nan"), "", "subject_add", "unparsed"),
        (0.5, "", "subject_add", "off_menu"),
    ],
)  # fmt: skip
def test_a_zero_that_is_no_verdict_is_a_status(value: Any, reason: str, kind: str, status: str) -> None:
    given = {"instruction_following": value, "instruction_following_reason": reason, "task_type": kind}
    assert said("instruction_following", followed(given)).status == status
