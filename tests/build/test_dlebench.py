"""`editloupe build dlebench`: targets, instructions and reference images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.build.conftest import left, lines, look_through, metadata, pictures, unwritten
from tests.build.test_people import DLE
from tests.build.toys import PX, SQUARE, Finder
from tests.conftest import Cli, refused

GIVEN = ("--set", "grounding=given")


def build(editloupe: Cli, path: Path, *words: str | Path, editor: str = "drawing") -> tuple[int, Any]:
    """(exit code, funnel) of a build by the toy."""
    command = ("build", "dlebench", path, "--out", "set", "--backend", "toy/a", "--set", f"editor={editor}")
    code, said, told = editloupe(*command, "--format", "json", *words)
    assert said, told
    return code, json.loads(said)


def pixels_of(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_images_become_rows_of_the_benchmark_with_reference_images(editloupe: Cli, tmp_path: Path, finder: Finder) -> None:
    images = pictures(tmp_path / "images")
    code, funnel = build(editloupe, images)
    assert code == 0 and (funnel["read"], funnel["written"], funnel["dropped"]) == (2, 2, 0)
    assert [stage["out"] for stage in funnel["stages"]] == [2, 2, 2, 2, 2] and finder.asked == ["red square"] * 2
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
    for command in (("show", "set/run", "0"), ("verify", "set/run"), ("replay", "set/run")):
        code, said, told = editloupe(*command)
        assert code == 0, (command, said, told)


@pytest.mark.parametrize(
    ("targets", "seen", "stages", "whys"),
    [
        ([], {}, {}, ["no_targets"]),
        ([["red square", [100, 100, 1200, 300]], ["", SQUARE]], {},
         {"listed": {"unusable_entry": 1, "unusable_name": 1}}, ["no_targets", "unusable_entry", "unusable_name"]),
        ([["ghost", SQUARE]], {"ghost": []}, {"grounded": {"not_found": 1}}, ["not_found"]),
        ([["ghost", [500, 500, 600, 600]]], {}, {"grounded": {"disagrees": 1}}, ["disagrees"]),
        ([["field", [0, 0, 400, 400]]], {"field": [((0, 0, 0.4, 0.4), 0.9)]}, {"small": {"too_large": 1}}, ["too_large"]),
        ([[name, SQUARE] for name in "abcd"], {}, {"listed": {"beyond_the_most": 1}}, ["beyond_the_most"]),
    ],
    ids=["none", "unusable", "not seen", "invented", "too large", "too many"],
)  # fmt: skip
def test_targets_that_do_not_count_are_left_out_with_the_reason(
    editloupe: Cli, tmp_path: Path, finder: Finder, toy: Any, targets: Any, seen: Any, stages: Any, whys: list[str]
) -> None:
    toy(targets=targets)
    finder.seen = seen
    code, funnel = build(editloupe, pictures(tmp_path / "images", 1))
    assert left(funnel) == stages and (code, funnel["written"]) == ((0, 3) if len(targets) == 4 else (1, 0))
    assert [one["why"] for one in lines("set/left_out.jsonl")] == whys
    assert all(one["detail"] for one in lines("set/left_out.jsonl"))


def test_boxes_of_the_data_count_as_they_stand(editloupe: Cli, tmp_path: Path, finder: Finder) -> None:
    images = metadata(
        pictures(tmp_path / "images", 3),
        {"file_name": "0.png", "bbox": list(PX), "target_name": "a red thing"},
        {"file_name": "1.png", "bbox": SQUARE, "bbox_format": "thousandths", "id": "own", "target_name": "x"},
        {"file_name": "2.png", "bbox": [300, 20, 400, 44], "target_name": "x"},
        {"file_name": "2.png", "id": "none"},
        {"file_name": "2.png", "id": "nameless", "bbox": list(PX)},
    )
    code, funnel = build(editloupe, images, *GIVEN)
    assert code == 3 and funnel["written"] == 2 and finder.asked == []
    assert funnel["images"]["left_out"] == {"box": 2, "row": 1}
    first, second = lines("set/data.jsonl")
    assert (first["id"], second["id"]) == ("0-1", "own-1") and first["bbox"] == [list(PX)]
    outside, none, nameless = (one["detail"] for one in lines("set/left_out.jsonl"))
    assert "reaches outside the image of 320×240 px" in outside and "--set grounding=given takes no others" in none
    assert "there is a box; expected the name of what it is of" in nameless


def test_a_question_of_the_data_says_what_is_edited(editloupe: Cli, tmp_path: Path) -> None:
    asked = {"file_name": "0.png", "bbox": list(PX), "target_name": "square", "question": "What color is the square?"}
    images = metadata(
        pictures(tmp_path / "images", 1),
        {**asked, "options": ["red", "green", "blue"], "answer": "A"},
        {**asked, "question": "And without options?", "answer": "red"},
        {**asked, "options": ["red"], "answer": "red"},
        {**asked, "options": ["red", "blue"], "answer": "pink"},
        {**asked, "options": "red, blue", "answer": "red"},
    )
    code, funnel = build(editloupe, images, *GIVEN)
    assert code == 3 and funnel["written"] == 2
    first, second = lines("set/data.jsonl")
    assert first["answer"] == "red" and first["wrong"] in ("green", "blue") and first["id"] != second["id"]
    assert first["reference_caption"] == f"The square is {first['wrong']}."
    # Without options the model chooses the other answer.
    assert (second["question"], second["answer"], second["wrong"]) == ("And without options?", "red", "")
    for row, told in zip(
        lines("set/left_out.jsonl"), ("a wrong option", "one of the options", "a list of texts"), strict=True
    ):
        assert told in row["detail"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"type": "None", "instruction": ""}, "no_edit"),
        ({"instruction": " "}, "unusable_text"),
        ({"reference_caption": "the square is RED"}, "captions_are_equal"),
        ({"type": "Change Mood"}, "unparsed"),
    ],
)
def test_an_instruction_that_cannot_be_used_is_dropped_with_the_reason(
    editloupe: Cli, tmp_path: Path, toy: Any, said: Any, why: str
) -> None:
    toy(metadata=said)
    code, funnel = build(editloupe, pictures(tmp_path / "images", 1), "--set", "fail_on_error=1")
    assert (code, left(funnel)) == (1, {"instructed": {why: 1}})


@pytest.mark.parametrize(
    ("editor", "why", "edits", "code"),
    [
        ("same", "unchanged", 3, 1),
        ("wide", "other_size", 3, 1),
        ("darkens", "seam", 3, 1),
        ("beside", "off_target", 3, 1),
        ("fails", "tool_failed", 1, 3),
    ],
)
def test_an_editor_that_gives_no_reference_loses_the_row_with_the_reason(
    editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editor: str, why: str, edits: int, code: int
) -> None:
    monkeypatch.setenv("TOY_EDITS", str(tmp_path / "edits"))
    found, funnel = build(editloupe, pictures(tmp_path / "images", 1), editor=f"odd:{editor}")
    assert (found, left(funnel)) == (code, {"edited": {why: 1}})
    # Each try has a seed of its own. What failed waits for the same command.
    seeds = [line.split()[0] for line in (tmp_path / "edits").read_text().splitlines()]
    assert seeds == ["1", "2", "3"][:edits] and lines("set/left_out.jsonl")[0]["detail"]
    monkeypatch.setenv("TOY_MENDED", "1")
    assert build(editloupe, tmp_path / "images", editor=f"odd:{editor}")[1]["written"] == (editor == "fails")


def test_without_an_editor_nothing_is_spent(editloupe: Cli, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    for words, told in (
        ((), "reference images need an editor: it needs an image editor; name one with --set editor=…"),
        (("--set", "editor=paint"), "unknown editor 'paint'"),
    ):
        err = refused(editloupe, "build", "dlebench", images, "--backend", "toy/a", *words, "--out", "none")
        assert told in err and unwritten("none")


def looked(editloupe: Cli, out: str, *said: dict[str, Any], **more: Any) -> Path:
    """A run in which a person answers about the rows to review."""
    return look_through(editloupe, "dlebench-review", DLE, out, *said, **more)


def test_a_reference_that_people_send_back_is_made_again_at_the_most_three_times(
    editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_EDITS", str(tmp_path / "edits"))
    images = pictures(tmp_path / "images", 1)
    build(editloupe, images, editor="odd:seeded")
    reviews: list[str | Path] = []
    for number in (2, 3, 4):
        bad = {"instruction_following": "Over Modification"} if number % 2 else {"visual_consistency": "Single Anomaly"}
        reviews += ["--review", looked(editloupe, f"round{number}", bad)]
        code, funnel = build(editloupe, images, *reviews, editor="odd:seeded")
        # The new one waits for people: the set has no row yet.
        assert (code, funnel["written"], funnel["made_again_for_people"]) == (1, 0, number - 1)
        (row,) = lines("set/to_review/metadata.jsonl")
        assert row["tries"] == number
        assert (pixels_of(Path("set/to_review") / row["reference_file_name"])[30, 30] == number).all()
    reviews += ["--review", looked(editloupe, "last", {"instruction_following": "Over Modification"})]
    _, funnel = build(editloupe, images, *reviews, editor="odd:seeded")
    assert left(funnel) == {"reviewed": {"instruction_following": 1}}
    assert len((tmp_path / "edits").read_text().splitlines()) == 4


def test_a_row_on_which_people_disagree_waits_until_it_is_settled(editloupe: Cli, tmp_path: Path) -> None:
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
