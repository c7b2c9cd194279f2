"""`editloupe build giebench`: edits with questions, and masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.build.giebench.masks import reduced
from editloupe.protocols.giebench.tables import EDIT_TYPES
from tests.build.conftest import left, lines, look_through, metadata, pictures
from tests.build.test_people import GIE
from tests.build.toys import PX, Finder, Reds
from tests.conftest import Cli, refused


def build(editloupe: Cli, path: Path, *words: str | Path, out: str = "set") -> tuple[int, Any]:
    """(exit code, funnel) of a build by the toy."""
    code, said, told = editloupe("build", "giebench", path, "--out", out, "--backend", "toy/a", "--format", "json", *words)
    assert said, told
    return code, json.loads(said)


def rows_of(out: str = "set") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(Path(out, "gie_bench.json").read_text(encoding="utf-8"))
    return rows


def test_images_become_rows_of_the_benchmark(editloupe: Cli, tmp_path: Path, seers: tuple[Finder, Reds]) -> None:
    images = pictures(tmp_path / "images")
    code, funnel = build(editloupe, images)
    assert code == 0 and (funnel["read"], funnel["written"], funnel["dropped"]) == (6, 6, 0)
    assert [stage["out"] for stage in funnel["stages"]] == [6] * 5
    assert funnel["images"] == {"read": 2, "left_out": {}} and funnel["masks"] == {"segmenter": 6}
    assert funnel["before_the_edit"] == {"other": 6}
    rows = rows_of()
    assert [row["row_id"] for row in rows] == ["0-1", "0-2", "0-3", "1-1", "1-2", "1-3"]
    for row in rows:
        assert set(row["multiple_choice_options"][:3]) == {"Red", "Blue", "Green"}
        # One who cannot tell has an option too, and it comes last.
        assert row["multiple_choice_options"][3] == "I can not tell from the image" and row["expected_answer"] == "Blue"
        assert row["evaluation_question"] == "Which color has the square?" and row["edit_type"] in row["edit_instruction"]
        assert row["edit_type"] in EDIT_TYPES and row["edit_target"] == "red square"
    assert rows[0]["image"] == "/0.png" and Path("set/images/0.png").read_bytes() == (images / "0.png").read_bytes()
    # The surest box, and of it what is red: 24 × 24 px from (20, 20). A cell of 224 counts if it touches one of these:
    # across 20 · 224 / 320 = 14 to 44 · 224 / 320 = 30.8, down 20 · 224 / 240 = 18.7 to 44 · 224 / 240 = 41.1.
    expected = np.zeros((224, 224), dtype=int)
    expected[18:42, 14:31] = 1
    assert np.array_equal(np.array(rows[0]["object_mask"]), expected)
    assert seers[0].asked == ["red square"] * 6 and {tuple(box) for box in seers[1].boxes} == {PX}
    assert lines("set/left_out.jsonl") == []
    for command in (("show", "set/run", "0"), ("verify", "set/run"), ("replay", "set/run"), ("report", "set/run")):
        code, said, told = editloupe(*command)
        assert code == 0, (command, said, told)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"fits": False, "options": []}, "no_edit"),
        ({"answer": "Purple"}, "unusable_edit"),
        ({"options": ["Red", "Blue", "blue."]}, "unusable_edit"),
        ({"options": ["Blue"]}, "unusable_edit"),
        ({"options": ["Blue", "I cannot tell from the image"]}, "unusable_edit"),
        ({"options": list("ABCDEF"), "answer": "A"}, "unusable_edit"),
        ({"question": " "}, "unusable_edit"),
        ({"instruction": "x" * 401}, "unusable_edit"),
        ({"options": "Blue, Red"}, "off_menu"),
    ],
)
def test_an_edit_that_makes_no_question_is_left_out_with_the_reason(
    editloupe: Cli, tmp_path: Path, toy: Any, edit: Any, why: str
) -> None:
    toy(edit=edit)
    words = ("--set", "edits=1", "--set", "seed=1", "--set", "fail_on_error=1", "--set", "max_reminders=0")
    images = metadata(pictures(tmp_path / "images", 1), {"file_name": "0.png"})
    code, funnel = build(editloupe, images, *words)
    assert (code, funnel["written"], left(funnel)) == (1, 0, {"written": {why: 1}})
    (line,) = lines("set/left_out.jsonl")
    assert line["why"] == why and line["detail"] and line["edit_type"] in EDIT_TYPES and rows_of() == []


def test_a_question_that_is_answered_right_before_the_edit_is_dropped(editloupe: Cli, tmp_path: Path, toy: Any) -> None:
    images = pictures(tmp_path / "images", 1)
    toy(unedited="Blue")
    code, funnel = build(editloupe, images)
    assert (code, left(funnel)) == (1, {"unedited": {"answered_unedited": 3}})
    assert funnel["before_the_edit"]["right"] == 3
    assert all("'Blue' is the answer before the edit too" in line["detail"] for line in lines("set/left_out.jsonl"))


def test_an_edit_of_the_entire_image_has_a_full_mask_and_asks_no_detector(
    editloupe: Cli, tmp_path: Path, toy: Any, seers: tuple[Finder, Reds]
) -> None:
    toy(phrase="The entire image.")
    _, funnel = build(editloupe, pictures(tmp_path / "images", 1))
    assert funnel["masks"] == {"entire image": 3} and seers[0].asked == []
    assert all(np.all(np.array(row["object_mask"]) == 1) for row in rows_of())


def test_masks_and_boxes_of_the_metadata_count(editloupe: Cli, tmp_path: Path, seers: tuple[Finder, Reds]) -> None:
    images = pictures(tmp_path / "images", 3)
    mask = np.zeros((240, 320), np.uint8)
    mask[120:, :] = 255
    Image.fromarray(mask).save(images / "mask.png")
    Image.fromarray(mask * 0).save(images / "empty.png")
    Image.fromarray(mask * 0 + 255).save(images / "full.png")
    metadata(
        images,
        {"file_name": "0.png", "mask_file_name": "mask.png", "target_name": "lower half"},
        {"file_name": "1.png", "bbox": list(PX), "target_name": "a red thing"},
        {"file_name": "2.png"},
        {"file_name": "2.png", "id": "bare", "bbox": list(PX)},
        {"file_name": "2.png", "id": "empty", "mask_file_name": "empty.png", "target_name": "x"},
        {"file_name": "2.png", "id": "full", "mask_file_name": "full.png", "target_name": "x"},
        {"file_name": "2.png", "id": "gone", "mask_file_name": "gone.png", "target_name": "x"},
    )
    code, funnel = build(editloupe, images, "--set", "masks=given", "--set", "edits=8", "--set", "fail_on_error=1")
    assert code == 0 and funnel["written"] == 24 and seers[0].asked == [] and seers[1].boxes == []
    # An edit of the surroundings is not about the thing that the metadata names: nothing says where it is.
    assert funnel["masks"] == {"absent": 10, "boxes": 7, "data": 7}
    by_mask = {row["mask_by"]: row for row in rows_of()}
    assert by_mask["data"]["edit_target"] == "lower half" and by_mask["boxes"]["edit_target"] == "red thing"
    assert np.array(by_mask["data"]["object_mask"])[:112].sum() == 0
    assert np.array(by_mask["data"]["object_mask"])[112:].all()
    expected = np.zeros((224, 224), dtype=int)
    expected[18:42, 14:31] = 1
    assert np.array_equal(np.array(by_mask["boxes"]["object_mask"]), expected)
    assert by_mask["absent"]["object_mask"] is None
    scene = [row["mask_by"] for row in rows_of() if row["edit_type"] == "Scene / Background Change"]
    assert scene == ["absent"] * 3
    said = {one["image"]: one["detail"] for one in lines("set/left_out.jsonl")}
    assert "there is a box; expected the name of what it is of" in said["bare"]
    assert "line 5: the mask is empty" in said["empty"] and "line 6: the mask is full" in said["full"]
    assert "gone.png" in said["gone"]


def test_what_people_passed_is_kept_and_what_they_rejected_is_dropped(editloupe: Cli, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 2)
    build(editloupe, images)
    answers: Any = ({}, {"instruction": "no"}, {"question": "no"}, {"mask": "no"}, {"question": None}, {})
    words = ("giebench-review", GIE)
    review = look_through(editloupe, *words, "looked", *answers, note="not so")
    code, funnel = build(editloupe, images, "--review", review)
    assert code == 0 and funnel["reviewed"] and funnel["written"] == 2 and funnel["to_review"] == 1
    assert left(funnel) == {"reviewed": {"instruction": 1, "mask": 1, "not_reviewed": 1, "question": 1}}
    assert [(row["row_id"], row["reviewed"]) for row in rows_of()] == [("0-1", True), ("1-3", True)]
    said = {one["id"]: (one["why"], one["detail"]) for one in lines("set/left_out.jsonl")}
    assert said["0-2"] == ("instruction", "not so") and said["1-2"][0] == "not_reviewed"
    assert [row["id"] for row in lines("set/to_review/metadata.jsonl")] == ["1-2"]
    # Of several people the strictest counts.
    second = look_through(editloupe, *words, "again", {}, rater="ben")
    _, funnel = build(editloupe, images, "--review", review, "--review", second)
    assert funnel["written"] == 3 and funnel["to_review"] == 0
    err = refused(editloupe, "build", "giebench", images, "--out", "set", "--backend", "toy/a", "--review", "set/run")
    assert "is a run of giebench-build; expected one of giebench-review" in err


def test_a_reduced_mask_has_every_cell_that_is_touched() -> None:
    for size, pixel, cells in (
        # Two px of 10 are 0.4 cells of 2: the first. The pixel 5 begins the second half.
        (10, (1, 5), (0, 1)),
        # One px of three reaches from 2/3 to 4/3 of a cell: both touch it.
        (3, (1, 0), (slice(0, 2), 0)),
        # An image smaller than the grid: its one pixel is all cells.
        (1, (0, 0), (slice(0, 2), slice(0, 2))),
    ):
        mask, expected = np.zeros((size, size), dtype=bool), np.zeros((2, 2), dtype=bool)
        mask[pixel], expected[cells] = True, True
        assert np.array_equal(reduced(mask, side=2), expected)
