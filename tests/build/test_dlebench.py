"""`editloupe build dlebench`: targets, instructions and reference images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.runs.store import RunStore
from tests.build.conftest import Run, left, lines, look_through, metadata, pictures, written
from tests.build.test_people import DLE
from tests.build.toys import PX, SQUARE, Finder


def build(editloupe: Run, path: Path, *words: str | Path, out: str = "set", editor: str = "drawing") -> tuple[int, Any]:
    """(exit code, funnel) of a build by the toy."""
    command = (
        "build",
        "dlebench",
        path,
        "--out",
        out,
        "--backend",
        "toy/a",
        "--set",
        f"editor={editor}",
        "--format",
        "json",
    )
    code, said, told = editloupe(*command, *words)
    assert said, told
    return code, json.loads(said)


def refused(editloupe: Run, path: Path, *words: str | Path, out: str = "set") -> str:
    code, said, told = editloupe("build", "dlebench", path, "--out", out, "--backend", "toy/a", *words)
    assert (code, said) == (2, ""), told
    return " ".join(told.split())


def findings(run: str) -> list[Any]:
    store = RunStore.read(Path(run))
    store.close()
    return list(store.findings.values())


def pixels_of(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_images_become_rows_of_the_benchmark_with_reference_images(editloupe: Run, tmp_path: Path, finder: Finder) -> None:
    images = pictures(tmp_path / "images")
    code, funnel = build(editloupe, images)
    assert code == 0 and (funnel["read"], funnel["written"], funnel["dropped"]) == (2, 2, 0)
    assert [stage["out"] for stage in funnel["stages"]] == [2, 2, 2, 2, 2]
    assert funnel["images"] == {"read": 2, "left_out": {}}
    assert finder.asked == ["red square"] * 2
    first, second = lines("set/data.jsonl")
    assert first["id"] == "0-1" and second["id"] == "1-1"
    assert (first["image"], first["reference_image"], first["target_object"]) == ("0.png", "0-1.png", "red square")
    assert first["instruction"] == "Change the color of the red square to blue." and first["edit_type"] == "Change Color"
    assert (first["prompt_clean"], first["reference_caption"]) == ("The square is red.", "The square is blue.")
    # Of the detector, in px: 24 × 24 of 320 × 240. λ = 6 makes 168 px about (32, 32), cut off at the border.
    assert first["bbox"] == [list(PX)] and first["bbox_format"] == "xyxy" and first["target_area"] == 0.0075
    assert first["crop"] == [0, 0, 116, 116] and first["seam_levels"] == 0 and not first["reviewed"]
    assert Path("set/Source_Images/0.png").read_bytes() == (images / "0.png").read_bytes()
    source, made = pixels_of(images / "0.png"), pixels_of(Path("set/Reference_Images/0-1.png"))
    assert made[24:40, 24:40, 2].min() > 150 and made[24:40, 24:40, 0].max() < 90
    apart = (source != made).any(axis=2)
    assert apart[20:44, 20:44].all() and not apart[44:].any() and not apart[:, 44:].any()
    assert lines("set/left_out.jsonl") == []
    for command in (("show", "set/run", "0"), ("verify", "set/run"), ("replay", "set/run"), ("report", "set/run")):
        code, said, told = editloupe(*command)
        assert code == 0, (command, said, told)


@pytest.mark.parametrize(
    ("targets", "seen", "stages"),
    [
        ([], {}, {}),
        (
            [["red square", [100, 100, 1200, 300]], ["ghost", [500, 500, 600, 600]]],
            {},
            {"listed": {"unusable_entry": 1}, "grounded": {"disagrees": 1}},
        ),
        ([["", SQUARE]], {}, {"listed": {"unusable_name": 1}}),
        ([["ghost", SQUARE]], {"ghost": []}, {"grounded": {"not_found": 1}}),
        ([["ghost", [500, 500, 600, 600]]], {}, {"grounded": {"disagrees": 1}}),
        ([["field", [0, 0, 400, 400]]], {"field": [((0, 0, 0.4, 0.4), 0.9)]}, {"small": {"too_large": 1}}),
        (
            [["a", SQUARE], ["b", SQUARE], ["c", SQUARE], ["d", SQUARE]],
            {},
            {"listed": {"beyond_the_most": 1}},
        ),
    ],
    ids=["none", "off the image", "no name", "not seen", "invented", "too large", "too many"],
)
def test_targets_that_do_not_count_are_left_out_with_the_reason(
    editloupe: Run, tmp_path: Path, finder: Finder, toy: Any, targets: Any, seen: Any, stages: Any
) -> None:
    toy(targets=targets)
    finder.seen = seen
    code, funnel = build(editloupe, pictures(tmp_path / "images", 1))
    assert left(funnel) == stages
    kept = 3 if len(targets) == 4 else 0
    assert (code, funnel["written"]) == ((0, kept) if kept else (1, 0))
    reasons = [why for stage in stages.values() for why in stage]
    listed = "grounded" in stages or "small" in stages or kept
    assert [one["why"] for one in lines("set/left_out.jsonl")] == ([] if listed else ["no_targets"]) + reasons
    assert all(one["detail"] for one in lines("set/left_out.jsonl"))


def test_boxes_of_the_data_count_as_they_stand(editloupe: Run, tmp_path: Path, finder: Finder) -> None:
    images = metadata(
        pictures(tmp_path / "images", 3),
        {"file_name": "0.png", "bbox": list(PX), "target_name": "a red thing"},
        {"file_name": "1.png", "bbox": SQUARE, "bbox_format": "thousandths", "id": "own", "target_name": "x"},
        {"file_name": "2.png", "bbox": [300, 20, 400, 44], "target_name": "x"},
        {"file_name": "2.png", "id": "none"},
        {"file_name": "2.png", "id": "nameless", "bbox": list(PX)},
    )
    code, funnel = build(editloupe, images, "--set", "grounding=given")
    assert code == 3 and funnel["written"] == 2 and finder.asked == []
    assert funnel["images"]["left_out"] == {"box": 2, "row": 1}
    first, second = lines("set/data.jsonl")
    assert (first["id"], second["id"]) == ("0-1", "own-1") and first["bbox"] == [list(PX)]
    targets = {one["id"]: one["target_name"] for one in lines("set/imagefolder/metadata.jsonl")}
    assert targets == {"0-1": "red square", "own-1": "red square"}
    outside, none, nameless = (one["detail"] for one in lines("set/left_out.jsonl"))
    assert "reaches outside the image of 320×240 px" in outside and "--set grounding=given takes no others" in none
    assert "there is a box; expected the name of what it is of" in nameless
    # The model, which would have named a target, was not asked.
    assert "targets" not in {one.metric for one in findings("set/run") if one.status == "ok"}


def test_a_question_of_the_data_says_what_is_edited(editloupe: Run, tmp_path: Path) -> None:
    asked = {"file_name": "0.png", "bbox": list(PX), "target_name": "square", "question": "What colour is the square?"}
    images = metadata(
        pictures(tmp_path / "images", 1),
        {**asked, "options": ["red", "green", "blue"], "answer": "A"},
        {**asked, "question": "And its hue?", "options": ["red", "yellow"], "answer": "Red"},
        {**asked, "options": ["red"], "answer": "red"},
        {**asked, "options": ["red", "blue"], "answer": "pink"},
        {**asked, "options": "red, blue", "answer": "red"},
        {**asked, "question": "And without options?", "answer": "red"},
    )
    code, funnel = build(editloupe, images, "--set", "grounding=given")
    assert code == 3 and funnel["written"] == 3
    first, second, third = lines("set/data.jsonl")
    # Without options the model chooses the other answer.
    assert (third["question"], third["answer"], third["wrong"]) == ("And without options?", "red", "")
    assert first["answer"] == "red" and first["wrong"] in ("green", "blue") and second["wrong"] == "yellow"
    assert first["reference_caption"] == f"The square is {first['wrong']}." and "yellow" in second["instruction"]
    assert first["id"] != second["id"] and first["image"] != second["image"]
    reasons = [one["detail"] for one in lines("set/left_out.jsonl")]
    assert "expected a wrong option beside the answer" in reasons[0] and "expected one of the options" in reasons[1]
    assert "column 'options': expected a list of texts" in reasons[2]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"type": "None", "instruction": ""}, "no_edit"),
        ({"instruction": " "}, "unusable_text"),
        ({"instruction": "x" * 401}, "unusable_text"),
        ({"reference_caption": "the square is RED"}, "captions_are_equal"),
        ({"type": "Change Mood"}, "unparsed"),
    ],
)
def test_an_instruction_that_cannot_be_used_is_dropped_with_the_reason(
    editloupe: Run, tmp_path: Path, toy: Any, said: Any, why: str
) -> None:
    toy(metadata=said)
    code, funnel = build(editloupe, pictures(tmp_path / "images", 1), "--set", "fail_on_error=1")
    assert (code, left(funnel)) == (1, {"instructed": {why: 1}})


@pytest.mark.parametrize(
    ("editor", "why", "edits", "code"),
    [
        ("same", "unchanged", 3, 1),
        ("wide", "other_size", 3, 1),
        ("nothing", "no_image", 3, 1),
        ("darkens", "seam", 3, 1),
        ("beside", "off_target", 3, 1),
        ("fails", "tool_failed", 1, 3),
        ("hangs", "tool_failed", 1, 3),
    ],
)
def test_an_editor_that_gives_no_reference_loses_the_row_with_the_reason(
    editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editor: str, why: str, edits: int, code: int
) -> None:
    monkeypatch.setenv("TOY_EDITS", str(tmp_path / "edits"))
    found, funnel = build(editloupe, pictures(tmp_path / "images", 1), editor=f"odd:{editor}")
    assert (found, left(funnel)) == (code, {"edited": {why: 1}})
    # Each try has a seed of its own. What failed waits for the same command.
    seeds = [line.split()[0] for line in (tmp_path / "edits").read_text().splitlines()]
    assert seeds == ["1", "2", "3"][:edits]
    (lost,) = lines("set/left_out.jsonl")
    assert lost["detail"] and lost["id"] == "0-1"
    monkeypatch.setenv("TOY_MENDED", "1")
    assert build(editloupe, tmp_path / "images", editor=f"odd:{editor}")[1]["written"] == (editor == "fails")


def test_what_cannot_be_built_is_said_before_anything_is_spent(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    assert "reference images need an editor: it needs an image editor; name one with --set editor=…" in refused(
        editloupe, images
    )
    assert "unknown editor 'paint'" in refused(editloupe, images, "--set", "editor=paint")
    assert "holds no image" in refused(editloupe, tmp_path / "site", "--set", "editor=drawing")
    assert not Path("set").exists()
    code, _, told = editloupe("build", "dlebench", images, "--out", "y", "--set", "editor=drawing")
    assert code == 2 and "--set role.describe=provider/model" in " ".join(told.split())
    # Other commands know no such option.
    assert editloupe("judge", images, "--set", "editor=drawing")[0] == 2


def looked(editloupe: Run, out: str, *said: dict[str, Any], **more: Any) -> Path:
    """A run in which a person answers about the rows to review."""
    return look_through(editloupe, "dlebench-review", DLE, out, *said, **more)


def test_what_people_passed_is_kept_and_what_they_rejected_is_dropped(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 4)
    build(editloupe, images)
    answers: Any = ({}, {"box": "no"}, {"texts": "no"}, {"visual_consistency": None})
    review = looked(editloupe, "looked", *answers)
    code, funnel = build(editloupe, images, "--review", review)
    assert code == 0 and funnel["reviewed"] and funnel["written"] == 1
    assert left(funnel) == {"reviewed": {"box": 1, "not_reviewed": 1, "texts": 1}}
    assert [(row["id"], row["reviewed"]) for row in lines("set/data.jsonl")] == [("0-1", True)]
    assert [path.name for path in Path("set/Reference_Images").iterdir()] == ["0-1.png"]
    assert [row["id"] for row in lines("set/to_review/metadata.jsonl")] == ["3-1"]
    assert {one["id"]: one["why"] for one in lines("set/left_out.jsonl")} == {
        "1-1": "box",
        "2-1": "texts",
        "3-1": "not_reviewed",
    }
    # A second round has the rest; both runs together say all.
    second = looked(editloupe, "again", {})
    _, funnel = build(editloupe, images, "--review", review, "--review", second)
    assert funnel["written"] == 2 and funnel["to_review"] == 0
    before = written("set")
    build(editloupe, images, "--review", review, "--review", second)
    assert written("set") == before


def test_a_reference_that_people_send_back_is_made_again_at_the_most_three_times(
    editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_EDITS", str(tmp_path / "edits"))
    images = pictures(tmp_path / "images", 1)
    build(editloupe, images, editor="odd:seeded")
    seen: list[Path] = []
    for number in (2, 3, 4):
        bad = {"instruction_following": "Over Modification"} if number % 2 else {"visual_consistency": "Single Anomaly"}
        seen.append(looked(editloupe, f"round{number}", bad))
        reviews = [word for run in seen for word in ("--review", run)]
        code, funnel = build(editloupe, images, *reviews, editor="odd:seeded")
        # The new one waits for people: the set has no row yet.
        assert (code, funnel["written"], funnel["made_again_for_people"]) == (1, 0, number - 1)
        (row,) = lines("set/to_review/metadata.jsonl")
        assert row["tries"] == number
        assert (pixels_of(Path("set/to_review") / row["reference_file_name"])[30, 30] == number).all()
    seen.append(looked(editloupe, "last", {"instruction_following": "Over Modification"}))
    _, funnel = build(editloupe, images, *[word for run in seen for word in ("--review", run)], editor="odd:seeded")
    assert left(funnel) == {"reviewed": {"instruction_following": 1}}
    assert len((tmp_path / "edits").read_text().splitlines()) == 4


def test_a_row_on_which_people_disagree_waits_until_it_is_settled(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    build(editloupe, images)
    looked(editloupe, "looked", {})
    review = looked(editloupe, "looked", {"box": "no"}, rater="ben", note="too wide")
    code, funnel = build(editloupe, images, "--review", review)
    assert (code, left(funnel), funnel["to_review"]) == (1, {"reviewed": {"people_disagree": 1}}, 1)
    (row,) = lines("set/left_out.jsonl")
    assert (row["id"], row["why"], row["detail"]) == ("0-1", "people_disagree", "too wide")
    review = looked(editloupe, "looked", {"box": "no"}, rater="adjudicated", note="too wide")
    code, funnel = build(editloupe, images, "--review", review)
    assert (code, left(funnel), funnel["to_review"]) == (1, {"reviewed": {"box": 1}}, 0)
