"""`editloupe import edival`: the official code's result files, made here after its source, since none is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.figures.run import Run
from editloupe.protocols.edival.chain import Chain, Pools, columns
from editloupe.protocols.edival.instructions import Edit
from editloupe.protocols.edival.results import EDIVAL, followed
from editloupe.protocols.importer import ResultSaid, read_said
from tests.protocols import edival_files

Program = Callable[..., tuple[int, str, str]]
EDITS = (
    Edit(edit_type="subject_remove", target="cup"),
    Edit(edit_type="color_alter", target="jar", new="blue"),
    Edit(edit_type="background_change", new="park", keep=("jar",)),
)
PEOPLE = """sample,editor,turn,part,if
0,bagel,1,,yes
0,bagel,3,,yes
1,bagel,2,,no
1.c2,bagel,1,instruction 2,yes
"""
SOURCE = "Failed to detect [cup] in images. Source detected: {}, Target detected: {}"
REFERENCE = "Failed to detect required objects. Reference object [jar] detected: False, Target object [cup] detected: True"
MISS = "Failed to detect [cup] in source image."


def chain() -> Chain:
    pools = [
        Pools(ever=("cup", "jar"), unchanged=("jar",), available=("jar",), background_kept=number < 2)
        for number in range(3)
    ]
    return Chain(mode="multipass", edits=EDITS, pools=tuple(pools))


def write_data(root: Path, images: int = 3, **more: Any) -> Path:
    """Chains of three turns as an ImageFolder, without outputs. more: further columns."""
    root.mkdir()
    rows = []
    for index in range(images):
        Image.new("RGB", (16, 16), (40 * index, 90, 120)).save(root / f"{index}.png")
        row = {name: value for name, value in columns(chain()).items() if name != "instructions"}
        sentences = [edit.sentence() for edit in EDITS]
        rows.append({"id": str(index), "source_file_name": f"{index}.png", "instructions": sentences, **row, **more})
    (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return root


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
    write_data(tmp_path / "data")
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
    code, out, err = editloupe(*IMPORT, "--json")
    assert code == 0, err
    means = {
        (one["mode"], one["turns"], one["metric"]): (one["published"], one["mean"], one["judged"], one["asked"])
        for one in json.loads(out)["means"]
    }
    # Turn 1 of multipass: 1, 0 for an object that was not seen, 1. Without the 0: 2 of 2.
    assert means["multipass", 1, "instruction_following"] == (pytest.approx(2 / 3), 1.0, 2, 3)
    # All of T1 to T3: 0, 0, 0 as published; image 1 has no verdict, which leaves 0 and 0.
    assert means["multipass", 3, "image_success"] == (0.0, 0.0, 2, 3)
    assert means["multipass", 2, "image_success"] == (pytest.approx(1 / 3), pytest.approx(1 / 2), 2, 3)
    # Complex prompts of three edits: 1 1 1 and 0 1 1: five of six edits, one of two images.
    assert means["singlepass", 3, "instruction_following"][:2] == (pytest.approx(5 / 6), pytest.approx(5 / 6))
    assert means["singlepass", 3, "image_success"] == (0.5, 0.5, 2, 2)


def test_notes_count_what_is_no_verdict_and_what_cannot_be_told(folder: Path, editloupe: Program) -> None:
    code, _, err = editloupe(*IMPORT)
    said = words(err)
    assert code == 0
    for note in (
        "editor 'bagel', multipass: 3 of 3 samples have an entry",
        "scores that are not_defined (the detector did not find the object before the edit): 1",
        "0 after a model's no, which the code also writes for a model that failed: 1",
        "1 for an object that is not seen, which the code also writes for a detector that failed: 1",
        "editor 'bagel', singlepass: 6 of 9 samples have an entry; not judged yet: 3",
        "no outputs beside the results of bagel: pages show the sources alone",
    ):
        assert note in said, note


def test_the_run_is_read_by_report_compare_and_align(folder: Path, editloupe: Program) -> None:
    assert editloupe(*IMPORT)[0] == 0
    scores = {
        (one["sample"], one["turn"], one["part"]): (one["value"], one["missing"])
        for one in Run("run").frame().to_dicts()
        if one["metric"] == "image_success"
    }
    assert [scores["1", turn, ""] for turn in (1, 2, 3)] == [(None, "not_defined")] * 3
    assert [scores["2", turn, ""] for turn in (1, 2, 3)] == [(1.0, None), (0.0, None), (0.0, None)]
    assert [scores["1.c3", 1, f"instruction {n}"] for n in (1, 2, 3)] == [(0.0, None)] * 3
    code, out, err = editloupe("report", "run", "--json")
    assert code == 0, err
    tables = json.loads(out)["judges"][0]["tables"]
    assert {"multi-turn-success", "complex-success", "complex-by-type", "multi-turn-success-whole", "published"} <= {
        *tables
    }
    put(folder / "people.csv", PEOPLE)
    code, out, err = editloupe("align", "run", "--human", "people.csv", "--json", "--resamples", "100")
    assert code == 0, err
    found = json.loads(out)["judges"][0]["criteria"][0]["all"]["figures"]["accuracy"]
    # Yes to yes, no to yes, yes to no, yes to yes.
    assert (found["value"], found["judged"], found["asked"]) == (0.5, 4, 4)
    assert editloupe("import", "edival", "results", "--data", "data", "--out", "other")[0] == 0
    assert editloupe("compare", "run", "other")[0] == 0


def test_data_may_carry_peoples_ratings_of_turns(folder: Path, editloupe: Program) -> None:
    """Of each image turn 2 by two people and turn 3 by one; judged: 1 and 0, 1 and 1, 0 and 1."""
    rated = {"human_turn2_if_ann": "yes", "human_turn2_if_ben": "yes", "human_turn3_if_ann": "no"}
    write_data(folder / "rated", **rated)
    assert editloupe("import", "edival", "results", "--data", "rated", "--out", "run")[0] == 0
    code, out, err = editloupe("align", "run", "--json", "--resamples", "100")
    assert code == 0, err
    found = json.loads(out)["judges"][0]["criteria"][0]["all"]["figures"]["accuracy"]
    # Right: turn 2 of images 0 and 1, turn 3 of image 0.
    assert (found["value"], found["judged"], found["asked"]) == (0.5, 6, 6)
    people = Run("run").frame().to_dicts()
    assert {(one["judge"], one["turn"]) for one in people if one["kind"] == "human"} == {("ann", 2), ("ben", 2), ("ann", 3)}


def test_consistency_and_quality_come_along_and_no_box_is_no_0(folder: Path, editloupe: Program) -> None:
    nothing = {"object_dinov3_consistency": [], "object_l1_consistency": []}
    turn = entry(2, object_dinov3_consistency_mean=0.0, object_l1_consistency_mean=0.0, object_details=nothing)
    base = {"base_image_quality": {"base_image_human_preference_score": 4.5}}
    put(folder / "results" / "bagel" / "multipass" / "0_input_raw.json", {**base, "1": entry(1), "2": turn, "3": entry(3)})
    code, _, err = editloupe(*IMPORT)
    assert code == 0 and "scores that are not_defined (no box of an unchanged object): 2" in words(err)
    found = {
        (one["metric"], one["turn"]): one["missing"] or one["value"]
        for one in Run("run").frame().to_dicts()
        if one["sample"] == "0"
    }
    assert [found["object_consistency", n] for n in (1, 2, 3)] == [0.8, "not_defined", "not_defined"]
    assert [found["background_consistency", n] for n in (1, 2, 3)] == [0.95, 0.95, "not_defined"]
    assert [found["content_consistency", n] for n in (1, 2)] == [pytest.approx(0.875), 0.95]
    assert (found["preference", 1], found["preference_change", 1]) == (5.0, 0.5)


def test_a_number_off_its_scale_takes_no_other_score_along(folder: Path, editloupe: Program) -> None:
    turn = entry(1, p99=70.5, contrast=0.4, human_preference_score="high")
    put(folder / "results" / "bagel" / "multipass" / "0_input_raw.json", {"1": turn, "2": entry(2), "3": entry(3)})
    code, _, err = editloupe(*IMPORT)
    assert code == 0
    for metric in ("luminance_p99", "preference"):
        assert f"{metric} that is no number on its scale): 1" in words(err)
    found = {
        (one["metric"], one["turn"]): one["missing"] or one["value"]
        for one in Run("run").frame().to_dicts()
        if one["sample"] == "0"
    }
    assert (found["instruction_following", 1], found["contrast", 1]) == (1.0, 0.4)
    assert (found["luminance_p99", 1], found["preference", 1]) == ("not_defined", "unparsed")


@pytest.mark.parametrize(
    "turns", [{"1": entry(1), "3": entry(3)}, {"1": entry(1), "2": entry(2, None), "3": entry(3)}], ids=["gap", "null"]
)
def test_an_image_of_which_an_edit_has_no_number_is_in_no_published_success(
    folder: Path, editloupe: Program, turns: dict[str, Any]
) -> None:
    put(folder / "results" / "bagel" / "multipass" / "0_input_raw.json", turns)
    code, out, err = editloupe(*IMPORT, "--json")
    assert code == 0, err
    found = {
        (one["turns"], one["metric"]): (one["published"], one["published_count"])
        for one in json.loads(out)["means"]
        if one["mode"] == "multipass"
    }
    # Images 1 and 2 fail at turn 1 and at turn 2.
    assert found[3, "image_success"] == (0.0, 2)


def test_results_of_one_editor_in_two_folders_are_refused(folder: Path, editloupe: Program) -> None:
    for place, score in (("first", 1), ("second", 0)):
        put(folder / "all" / place / "bagel" / "multipass" / "0_input_raw.json", {"1": entry(1, score)})
    code, _, err = editloupe("import", "edival", "all", "--data", "data", "--out", "run")
    assert code == 2 and "two folders hold results of bagel, multipass" in words(err)
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("0_input_raw.json", "{", "0_input_raw.json: "),
        ("0_input_raw.json", [1], "expected an object, found the list [1]"),
        ("0_input_raw.json", {"base_image_quality": None}, "holds no turn; expected the keys 1, 2"),
        ("0_input_raw.json", {"01": entry(1)}, "holds no turn; expected the keys 1, 2"),
        ("0_input_raw.json", {"1": 5}, "turn 1 is the number 5; expected an object"),
        ("0_input_raw.json", {"4": entry(1)}, "it is about 4 edits, and the data has 3"),
        ("9_input_raw.json", {"1": entry(1)}, "the data has no sample '9'"),
        ("0_input_raw.json", {"1": entry(2)}, "the data's 'Remove cup'"),
        ("0_input_raw.json", {"1": entry(1, task_type="paint")}, "unknown edit type 'paint'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_the_others_count(
    folder: Path, editloupe: Program, name: str, values: Any, said: str
) -> None:
    put(folder / "results" / "bagel" / "multipass" / name, values)
    code, _, err = editloupe(*IMPORT)
    assert code == 0 and "multipass: entries not counted: 1" in words(err) and said in words(err)


def test_a_prompt_with_a_list_of_another_length_is_named(folder: Path, editloupe: Program) -> None:
    path = folder / "results" / "bagel" / "singlepass" / "0_input_raw_turn_2.json"
    put(path, {**prompt(2, [1, 1]), "instruction_following_list": [1]})
    code, _, err = editloupe(*IMPORT)
    assert code == 0 and "expected 2 of 'instruction_following_list', found 1" in words(err)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("import", "edival", "data", "--data", "data", "--out", "run"),
            "data: no result file; expected EDITOR/",
        ),
        (("import", "edival", "gone", "--data", "data", "--out", "run"), "gone: no such folder"),
        ((*IMPORT, "--edited", "omni=data"), "--edited omni: no result of this editor below results; there are bagel"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_written(
    folder: Path, editloupe: Program, command: tuple[str, ...], said: str
) -> None:
    code, out, err = editloupe(*command)
    assert code == 2 and said in words(err) and out == ""
    assert not (folder / "run").exists()


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


@pytest.mark.parametrize(
    ("changes", "value", "status"),
    [
        ({}, 0.8, "ok"),
        ({"object_dinov3_consistency_mean": -0.1}, -0.1, "ok"),
        # No box was found: the code writes a mean of 0.
        ({"object_dinov3_consistency_mean": 0.0, "object_details": {"object_dinov3_consistency": []}}, None, "not_defined"),
        ({"object_dinov3_consistency_mean": 0.0, "object_details": None}, None, "not_defined"),
        # A box of which nothing is left.
        ({"object_dinov3_consistency_mean": 0.0, "object_details": {"object_dinov3_consistency": [0.0]}}, 0.0, "ok"),
        ({"object_dinov3_consistency_mean": None}, None, "not_defined"),
        ({"object_dinov3_consistency_mean": "high"}, None, "unparsed"),
        ({"object_dinov3_consistency_mean": 2}, None, "off_menu"),
    ],
)
def test_consistency_of_no_box_is_not_defined(changes: dict[str, Any], value: float | None, status: str) -> None:
    found = said("object_consistency", EDIVAL.beside(entry(1, **changes)))
    assert (found.answer and found.answer.value, found.status) == (value, status)


def test_a_background_of_0_is_a_value_and_one_of_none_is_not() -> None:
    found = said("background_l1", EDIVAL.beside(entry(1, background_l1_consistency=0.0)))
    assert found.answer is not None and found.answer.value == 0.0
    assert "change of background" in said("background_l1", EDIVAL.beside(entry(3))).reason


def test_results_on_the_benchmark_as_it_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editloupe: Program
) -> None:
    """Image 0 has results in both modes; image 1 has none, and its second output is missing."""
    monkeypatch.chdir(tmp_path)
    edival_files.write(tmp_path / "data", edival_files.lines())
    edival_files.edit(tmp_path / "bagel")
    (tmp_path / "bagel" / "multipass" / "1_input_raw_turn_2.png").unlink()
    given = edival_files.CHAINS[0]
    turns = {
        str(turn): {
            "task_type": kind, "instruction": plain, "format_instructions": bracketed, "instruction_following": 1,
        }
        for turn, (kind, plain, bracketed) in enumerate(given, start=1)
    }  # fmt: skip
    put(tmp_path / "results" / "bagel" / "multipass" / "0_input_raw.json", turns)
    kinds, plain, bracketed = (list(column) for column in zip(*given[:2], strict=True))
    values = {"task_types": kinds, "instructions": plain, "format_instructions": bracketed}
    values |= {"instruction_following_list": [1, 0], "instruction_following_reason_list": ["", ""]}
    put(tmp_path / "results" / "bagel" / "singlepass" / "0_input_raw_turn_2.json", values)
    code, _, err = editloupe(*IMPORT, "--edited", "bagel=bagel")
    assert code == 0, err
    assert "multipass: 1 of 2 samples have an entry" in words(err) and "no outputs" not in err
    found = {
        (one["sample"], one["turn"], one["part"]): one["missing"] or one["value"]
        for one in Run("run").frame().to_dicts()
        if one["metric"] == "instruction_following"
    }
    assert [found["0", turn, ""] for turn in (1, 2, 3)] == [1.0, 1.0, 1.0]
    # The official code leaves a chain out of which an output is missing.
    assert [found["1", turn, ""] for turn in (1, 2, 3)] == ["missing_output"] * 3
    assert [found["0.c2", 1, f"instruction {n}"] for n in (1, 2)] == [1.0, 0.0]
    assert found["0.c1", 1, "instruction 1"] == "not judged yet"
