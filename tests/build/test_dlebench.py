"""`editloupe build dlebench`: targets, instructions and reference images."""

from __future__ import annotations

import json
import shutil
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


@pytest.mark.parametrize("mode", ["oracle", *(pytest.param(m, marks=pytest.mark.slow) for m in ("plain", "tool"))])
def test_the_set_is_judged_in_every_mode(editloupe: Run, tmp_path: Path, mode: str) -> None:
    build(editloupe, pictures(tmp_path / "images"))
    # Editors' outputs: the references themselves, and images in which nothing was done.
    shutil.copytree("set/Source_Images", "nothing")
    options = ["--edited", "right=set/Reference_Images", "--edited", "nothing=nothing"]
    code, _, told = editloupe("judge", "set", *options, "--protocol", "dlebench", "--mode", mode, "--out", "judged")
    assert code == 0, told
    store = RunStore.read(Path("judged"))
    store.close()
    assert len(store.samples) == 4 and {f.status for f in store.findings.values()} == {"ok"}
    labels = {(f.editor, f.label) for f in store.findings.values() if f.metric == "instruction_following"}
    assert ("nothing", "Localization Failure") in labels and ("right", "Localization Failure") not in labels


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


def test_the_bounds_of_a_target_are_options(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    # The square covers 0.75 %.
    for words, why in ((("--set", "most_area=0.0074"), "too_large"), (("--set", "least_area=0.01"), "too_small")):
        assert left(build(editloupe, images, *words, out=why)[1]) == {"small": {why: 1}}
    assert build(editloupe, images, "--set", "least_area=0.0074", "--set", "most_area=0.008", out="in")[1]["written"] == 1


def test_things_of_one_name_are_one_target(editloupe: Run, tmp_path: Path, finder: Finder, toy: Any) -> None:
    other = [300, 300, 400, 400]
    toy(targets=[["red square", SQUARE], ["A red square", other]])
    finder.seen = {"red square": [((0.29, 0.3, 0.4, 0.4), 0.5), ((0.0625, 0.08333, 0.1375, 0.18333), 0.9)]}
    _, funnel = build(editloupe, pictures(tmp_path / "images", 1))
    (row,) = lines("set/data.jsonl")
    # Each box has the detector's that overlaps it most, in the order of the model.
    assert row["bbox"] == [[20.0, 20.0, 44.0, 44.0], [92.8, 72.0, 128.0, 96.0]]
    finder.seen["red square"].pop(0)
    _, funnel = build(editloupe, tmp_path / "images", out="one")
    assert left(funnel) == {"grounded": {"disagrees": 1}}


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


def test_a_later_try_may_give_the_reference(editloupe: Run, tmp_path: Path) -> None:
    assert build(editloupe, pictures(tmp_path / "images", 1), editor="odd:third")[1]["written"] == 1
    assert lines("set/data.jsonl")[0]["tries"] == 3
    code, funnel = build(editloupe, tmp_path / "images", "--set", "tries=2", editor="odd:third", out="two")
    assert (code, left(funnel)) == (1, {"edited": {"unchanged": 1}})


def test_a_seam_is_blended_and_said(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    _, funnel = build(editloupe, images, editor="odd:brighter")
    (row,) = lines("set/data.jsonl")
    # The right and lower sides lie inside the image, 72 px from the square: half of it.
    assert funnel["blended"] == 1 and row["feather_px"] == 36 and row["seam_levels"] == pytest.approx(12, abs=0.1)
    source, made = pixels_of(images / "0.png"), pixels_of(Path("set/Reference_Images/0-1.png"))
    assert np.abs(made - source)[60, 115].max() <= 1 and np.array_equal(made[:, 116:], source[:, 116:])


def test_what_cannot_be_built_is_said_before_anything_is_spent(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    assert "reference images need an editor: it needs an image editor; name one with --set editor=…" in refused(
        editloupe, images
    )
    assert "unknown editor 'paint'" in refused(editloupe, images, "--set", "editor=paint")
    words = ("--set", "editor=drawing", "--set", "least_area=0.2")
    assert "--set least_area=0.2 and most_area=0.1 leave no target" in refused(editloupe, images, *words)
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


def test_people_correct_texts(editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_EDITS", str(tmp_path / "edits"))
    images = pictures(tmp_path / "images", 2)
    build(editloupe, images, editor="odd:seeded")
    better = {"texts": "no", "instruction": "Paint the square green.", "reference_caption": "The square is green."}
    # Of the first the reference is right all the same; the second is made again by the better instruction.
    wrong = {**better, "instruction_following": "Over Modification"}
    first = looked(editloupe, "looked", {"texts": "no", "source_caption": "It is red."}, wrong)
    _, funnel = build(editloupe, images, "--review", first, editor="odd:seeded")
    assert funnel["written"] == 1 and lines("set/data.jsonl")[0]["prompt_clean"] == "It is red."
    assert (tmp_path / "edits").read_text().splitlines()[-1] == "2 Paint the square green."
    second = looked(editloupe, "again", {})
    _, funnel = build(editloupe, images, "--review", first, "--review", second, editor="odd:seeded")
    row = lines("set/data.jsonl")[1]
    assert (row["id"], row["instruction"]) == ("1-1", "Paint the square green.")
    assert (row["reference_caption"], row["prompt_clean"]) == ("The square is green.", "The square is red.")
    made = pixels_of(Path("set/Reference_Images") / row["reference_image"])[24:28, 24:28]
    assert (made[..., 1] > made[..., 0]).all()


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


def test_what_is_removed_with_its_row_is_an_image_of_the_set(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    build(editloupe, images)
    (Path("set/Reference_Images") / "notes.txt").write_text("mine")
    shutil.rmtree("set/Source_Images")
    Path("set/Source_Images").symlink_to(images)
    review = looked(editloupe, "looked", {"box": "no"})
    assert build(editloupe, images, "--review", review)[1]["written"] == 0
    assert (images / "0.png").exists() and [path.name for path in Path("set/Reference_Images").iterdir()] == ["notes.txt"]


def test_a_review_of_something_else_is_refused(editloupe: Run, tmp_path: Path) -> None:
    images = pictures(tmp_path / "images", 1)
    build(editloupe, images)
    words = ("--set", "editor=drawing", "--review")
    assert "is a run of dlebench-build; expected one of dlebench-review" in refused(editloupe, images, *words, "set/run")
    assert "looked" in refused(editloupe, images, *words, "looked")
    code, _, told = editloupe(
        "judge", images, "--set", "null_edit=true", "--protocol", "dlebench-review", "--backend", "toy/b"
    )
    assert code == 2, told
