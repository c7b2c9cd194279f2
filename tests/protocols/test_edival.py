"""EdiVal-IF: what is looked for and asked, chains to their first gap, both modes, runs judged again by other rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.answers import Number
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.protocols.base import make_protocol, scored
from editloupe.protocols.edival.instructions import Edit
from editloupe.runs.outcome import Outcome
from editloupe.values import Json
from tests.conftest import final
from tests.protocols.edival_play import (
    ADD,
    ADD_TEXT,
    COLOR,
    COUNT,
    LEFT,
    MATERIAL,
    MIDDLE,
    NEW_TEXT,
    PICTURES,
    REMOVE,
    REPLACE,
    RIGHT,
    STORE,
    VERDICTS_ALONE,
    Play,
    chain_of,
)  # fmt: skip
from tests.setups import open_with, run_over

Cli = Callable[..., tuple[int, str, str]]
OFFICIAL = {"rules": "official"}
HAT = Edit(edit_type="subject_remove", target="hat")


def test_a_turn_is_judged_against_the_turn_before_and_no_picture_is_searched_twice() -> None:
    play = Play(seen={(0, "cup"): LEFT, (1, "cup"): LEFT, (2, "cup"): []})
    count, gone = Edit(edit_type="count_change", target="cup", count=1), Edit(edit_type="subject_remove", target="Cup")
    scores = play.scores(chain_of(count, gone))
    assert play.looked == [(0, "cup"), (1, "cup"), (2, "cup")] and not play.questions
    assert {score.value for score in scores.values()} == {1}
    assert scores["instruction_following", 2, ""].dims == {"edit_type": "subject_remove", "mode": "multipass", "turns": 2}
    assert scores["instruction_following", 1, ""].reason == "the object is seen 1 time; 1 were asked for"
    assert len(scores["instruction_following", 1, ""].findings) == 2
    assert len(scores["image_success", 2, ""].findings) == 3


def test_in_complex_mode_each_instruction_is_judged_from_the_base_image() -> None:
    play = Play(seen={(0, "red cup"): LEFT, (0, "cup"): LEFT, (1, "cup"): [*LEFT, *MIDDLE, *RIGHT], (1, "red cup"): LEFT})
    scores = play.scores(chain_of(COUNT, REMOVE, mode="singlepass"))
    assert {turn for turn, _ in play.looked} == {0, 1}
    values = {(metric, part): s.value for (metric, turn, part), s in scores.items() if turn == 1}
    both = ("instruction_following", "image_success")
    assert values == {(metric, f"instruction {n}"): value for metric in both for n, value in ((1, 1), (2, 0))}
    last = scores["image_success", 1, "instruction 2"]
    assert last.dims == {"edit_type": "subject_remove", "mode": "singlepass", "turns": 2}
    assert last.reason == "edit 2 was not followed: the object is still seen"


def test_a_chain_with_one_edit_unknown_has_no_success_from_there_on() -> None:
    # 1, missing (the cup is not seen before turn 2), 1.
    seen = {(0, "hat"): LEFT, (2, "jar"): RIGHT, (3, "jar"): RIGHT, (3, "lamp"): LEFT}
    scores = Play(seen=seen).scores(chain_of(HAT, REMOVE, ADD))
    values = [[scores[metric, t, ""].value for t in (1, 2, 3)] for metric in ("instruction_following", "image_success")]
    assert values == [[1, None, 1], [1, None, None]]
    success = scores["image_success", 3, ""]
    assert (success.missing, success.reason.partition(":")[0]) == ("not_defined", "edit 2 has no verdict")
    # The published code: a miss before the edit is a failure.
    scores = Play(options=OFFICIAL, seen=seen).scores(chain_of(REMOVE, REMOVE))
    assert [scores["image_success", t, ""].value for t in (1, 2)] == [0, 0]


def test_a_chain_is_judged_to_its_first_gap_and_by_the_code_not_at_all() -> None:
    missing = "the output of turn 2 is missing"
    for rules, values, reasons in (
        ("paper", [1, None, None], ["", missing, "judged up to its first missing output"]),
        ("official", [None] * 3, [f"{missing}, and chains=complete leaves such a chain out"] * 3),
    ):
        play = Play(options={"rules": rules}, seen={(0, "hat"): LEFT})
        scores = play.scores(chain_of(HAT, REMOVE, COUNT, outputs=".-."))
        for metric in ("instruction_following", "image_success"):
            assert [scores[metric, turn, ""].value for turn in (1, 2, 3)] == values
        for turn, value, reason in zip((1, 2, 3), values, reasons, strict=True):
            score = scores["instruction_following", turn, ""]
            assert score.missing == (None if value is not None else "missing_output") and reason in score.reason
        assert play.looked == ([(0, "hat"), (1, "hat")] if rules == "paper" else [])
        assert scores["instruction_following", 2, ""].findings
    for sample in (chain_of(REMOVE, outputs="-"), *(chain_of(REMOVE, COUNT, outputs=gaps) for gaps in ("--", "-."))):
        play = Play()
        assert {score.missing for score in play.scores(sample).values()} == {"missing_output"} and play.looked == []


def test_a_model_is_asked_only_where_detections_leave_it_open() -> None:
    play = Play(seen={(0, "cups"): LEFT, (1, "jar"): LEFT}, said={"replaced": "yes"})
    assert play.verdict(chain_of(REPLACE)) == (1, None)
    (task,) = play.questions
    assert (task.metric, task.role, len(task.rests_on)) == ("replaced", "judge", 3)
    shown = [("Image Before", PICTURES[0]), ("Image After", PICTURES[1])]
    assert [(view.alias, view.origin) for view in task.views] == shown
    assert "Old object: cups" in task.prompt and "New object: jar" in task.prompt
    play = Play(seen={(0, "cups"): LEFT})
    assert play.verdict(chain_of(REPLACE)) == (0, None) and not play.questions
    # The paper asks nobody about an added object, the code does, and does not look for the reference after the edit.
    seen = {(0, "jar"): RIGHT, (1, "jar"): RIGHT, (1, "lamp"): LEFT}
    for options, questions, looked in (({}, 0, 3), (OFFICIAL, 1, 2)):
        play = Play(options=options, seen=seen, said={"newly_added": "yes"})
        assert play.verdict(chain_of(ADD)) == (1, None)
        assert (len(play.questions), len(play.looked)) == (questions, looked)


def test_colour_and_material_are_judged_on_crops_or_on_whole_images() -> None:
    play = Play(seen={(0, "jar"): [([20, 10, 30, 20], 0.5), ([0, 0, 9, 9], 0.3)]}, said={"attribute_in_crop": "yes"})
    assert play.verdict(chain_of(COLOR)) == (1, None)
    (task,) = play.questions
    # The box is taken before the edit, and shown in both pictures.
    crops = [("Crop Before", PICTURES[0]), ("Crop After", PICTURES[1])]
    shown = [(v.alias, v.origin, v.op, list(v.region or ())) for v in task.views]
    assert shown == [(alias, origin, "crop", [20, 10, 30, 20]) for alias, origin in crops]
    assert "Color that was asked for: blue" in task.prompt and play.looked == [(0, "jar")]
    # 10 px a side: 26 times is the least whole factor with 256 px or more.
    crop = make_view(task.views[0], STORE).image
    assert (crop.width, crop.height) == (260, 260)
    play = Play(options=OFFICIAL, said={"attribute_in_image": "No. It is not."})
    assert play.verdict(chain_of(MATERIAL)) == (0, None)
    (task,) = play.questions
    assert "Editing instruction: Change the material of jar to wood" in task.prompt and len(task.views) == 2
    assert play.looked == []


def test_text_is_read_and_compared_by_the_protocol() -> None:
    play = Play(said={"text_in_image": "We are “Open”!"})
    assert play.verdict(chain_of(ADD_TEXT)) == (1, None)
    (task,) = play.questions
    assert [view.origin for view in task.views] == [PICTURES[1]] and "OPEN" not in task.prompt and play.looked == []
    other = Finding.of(task, judge_id="j", repeat=0, status="ok", ending="answer", answer=Number(value=1))
    score = scored(make_protocol("edival", VERDICTS_ALONE), [chain_of(ADD_TEXT)], [other])[0]
    assert (score.value, score.missing, score.reason) == (None, "off_menu", "1 is no text")
    play = Play(seen={(0, "sign"): MIDDLE}, said={"text_in_crop": "open"})
    assert play.verdict(chain_of(NEW_TEXT)) == (1, None)
    (task,) = play.questions
    assert [(v.origin, list(v.region or ())) for v in task.views] == [(PICTURES[1], [80, 20, 120, 60])]


@pytest.fixture
def boxed(tmp_path: Path) -> Loaded:
    """A chain of three edits with given boxes, of which the last one counts one lamp with a score that is low."""
    store, pictures = ImageStore(), []
    for n in range(4):
        Image.fromarray(np.full((100, 200, 3), 40 * n, np.uint8)).save(tmp_path / f"{n}.png")
        pictures.append(store.add_file(tmp_path / f"{n}.png"))
    boxes: Json = [{"red cup": LEFT}, {"red cup": [], "jar": LEFT}, {"sign": [], "jar": LEFT}, {"jar": LEFT}]
    sample = chain_of(REMOVE, COLOR, ADD_TEXT, boxes=boxes)
    turns = tuple(replace(turn, edited=pictures[n]) for n, turn in enumerate(sample.turns, start=1))
    return Loaded(format="edival", samples=(replace(sample, source=pictures[0], turns=turns, editor="a"),), rejected=())


def judged(loaded: Loaded, out: Path, **options: Any) -> Outcome:
    def reply(request: Request) -> str:
        return final("Open daily") if "Read the text" in str(request) else final("yes")

    options = {**VERDICTS_ALONE, **options}
    return run_over(open_with(protocol="edival", backend=ScriptedLMM(reply), options=options), loaded, out)


def test_a_chain_runs_with_given_boxes_and_a_script(tmp_path: Path, boxed: Loaded, editloupe: Cli) -> None:
    outcome = judged(boxed, tmp_path / "run")
    values = [(s.metric, s.turn, s.value) for s in outcome.scores]
    assert values == [(m, t, 1) for t in (1, 2, 3) for m in ("instruction_following", "image_success")]
    by_question = {(f.metric, f.part): f for f in outcome.findings}
    assert by_question["attribute_in_crop", ""].turn == 2
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["identity"]["options"]
    assert recorded == {**VERDICTS_ALONE, "rules": "paper", "mode": "plain"}
    run, pages = tmp_path / "run", tmp_path / "pages"
    export = ("export", run, "--html", pages)
    for command in (("report", run), ("show", run, "a/7"), ("replay", run), ("verify", run), export):
        code, out, err = editloupe(*command)
        assert code == 0, (command, out, err)
    (page,) = (pages / "samples").glob("*.html")
    assert "nothing found" in page.read_text(encoding="utf-8")
