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

from editloupe import Run
from editloupe.answers import Number
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, DataError, ReplyError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.models import opening
from editloupe.models.detect.base import Detection, DetectionResult
from editloupe.protocols.base import make_protocol, scored
from editloupe.protocols.edival.instructions import Edit
from editloupe.protocols.edival.protocol import EdiVal
from editloupe.runs.outcome import Outcome
from editloupe.tasks import About, Measure
from editloupe.testing import check_protocol
from editloupe.values import Box, Json, Sample, Turn
from tests.conftest import final
from tests.protocols.edival_play import (
    ADD,
    ADD_TEXT,
    COLOR,
    COUNT,
    LEFT,
    MATERIAL,
    MIDDLE,
    MOVE,
    NEW_TEXT,
    PARK,
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


def test_the_code_counts_by_short_names() -> None:
    seen = {(1, "red cup"): LEFT, (1, "glass jar"): RIGHT}
    counted = {(turn, name): MIDDLE for turn in (0, 1) for name in ("cup", "jar")}
    said = {"short_name": "'Cup'."}
    play = Play(options=OFFICIAL, seen={**seen, **counted}, said=said)
    # Both names are shortened to "Cup", as the script says.
    assert play.verdict(chain_of(MOVE)) == (1, None)
    asked = [(task.role, task.about.part, task.views) for task in play.questions]
    assert asked == [("shorten", f"name: {name}", ()) for name in ("red cup", "glass jar")]
    assert play.looked == [(1, "red cup"), (1, "glass jar"), (0, "cup"), (1, "cup")]
    more = Play(options=OFFICIAL, seen={**seen, (0, "cup"): MIDDLE, (1, "cup"): [*MIDDLE, *LEFT]}, said=said)
    assert more.verdict(chain_of(MOVE)) == (0, None)
    # A move that fails already is not counted, and no name is asked for.
    lost = Play(options=OFFICIAL, seen={(1, "red cup"): RIGHT, (1, "glass jar"): LEFT})
    assert lost.verdict(chain_of(MOVE)) == (0, None) and not lost.questions
    assert set(EdiVal().roles) == {"judge"} and set(make_protocol("edival", OFFICIAL).roles) == {"judge", "shorten"}


@pytest.mark.parametrize("preset", ["paper", "official"])
def test_what_failed_is_no_verdict(preset: str) -> None:
    for status in ("tool_failed", "not_defined", "input_error"):
        play = Play(options={"rules": preset}, seen={(0, "red cup"): LEFT, (1, "red cup"): status})
        score = play.scores(chain_of(REMOVE))["instruction_following", 1, ""]
        told = "'red cup' could not be looked for in the image after turn 1: because"
        assert (score.value, score.missing, score.reason) == (None, status, told)
    for status in ("refused", "backend_failed", "abstained"):
        play = Play(options={"rules": {"like": preset, "background_objects": "ignored"}}, said={"background": (status,)})
        assert play.verdict(chain_of(PARK)) == (None, status)


def test_yes_is_parsed_or_found_anywhere() -> None:
    def value(reply: str, yes: str) -> float | None:
        try:
            return Play(options={"rules": {"yes": yes}}, said={"background": reply}).verdict(chain_of(PARK))[0]
        except ReplyError:
            return None  # a run makes it a finding with a status

    replies = (("yes", 1, 1), ("no", 0, 0), ("Yes.", 1, 1), ("Its eyes are red", None, 1), ("not at all", None, 0))
    for reply, parsed, anywhere in replies:
        assert (value(reply, "parsed"), value(reply, "anywhere")) == (parsed, anywhere), reply


def test_given_boxes_decide_without_a_detector() -> None:
    boxes: Json = [{"red cup": LEFT, "jar": []}, {"Red Cup": []}]
    play = Play(seen={(0, "red cup"): "tool_failed"})
    assert play.verdict(chain_of(REMOVE, boxes=boxes)) == (1, None)
    assert {task.measure for task in play.asked if isinstance(task, Measure)} == {"key"}
    # The base image of a chain is given, the images after it are not.
    play = Play(seen={(1, "red cup"): LEFT})
    assert play.verdict(chain_of(REMOVE, boxes=[{"red cup": LEFT}, None])) == (0, None)
    assert [task.measure for task in play.asked if isinstance(task, Measure)] == ["key", "detections"]


def test_a_verdict_from_elsewhere_is_taken_as_it_is() -> None:
    sample, protocol = chain_of(REMOVE, COUNT, outputs="--"), make_protocol("edival", VERDICTS_ALONE)
    made = [
        Finding(
            task_id=f"t{turn}", judge_id="j", repeat=0, **vars(About.of(sample, turn=turn)), metric="instruction_following",
            role="measure", status=status, answer=answer, reason="as in the file",
        )
        for turn, status, answer in ((1, "ok", Number(value=1)), (2, "not_defined", None))
    ]  # fmt: skip
    scores = {(s.metric, s.turn): s for s in scored(protocol, [sample], made)}
    told = [(s.value, s.missing) for s in scores.values()]
    assert told == [(1, None), (1, None), (None, "not_defined"), (None, "not_defined")]
    assert scores["instruction_following", 1].reason == "as in the file"
    assert (scores["instruction_following", 1].findings, scores["image_success", 2].findings) == (("t1",), ("t1", "t2"))


def test_samples_that_do_not_fit_are_refused_before_anything_is_spent() -> None:
    plain = Sample(id="1", source=PICTURES[0], turns=(Turn(instruction="x", edited=PICTURES[1]),))
    for sample, said in (
        (plain, "sample '1': column 'task_type' is not there; expected a list of texts"),
        (chain_of(REMOVE, boxes={}), "column 'boxes' needs a list"),
    ):
        with pytest.raises(DataError, match=said):
            make_protocol("edival", VERDICTS_ALONE).check([sample])
    with pytest.raises(ConfigError, match="unknown option 'if'; it has: rules, mode, cc, quality, direction"):
        make_protocol("edival", {"if": "official"})


def test_it_keeps_the_contract_of_protocols() -> None:
    every = (ADD, REMOVE, REPLACE, COLOR, MATERIAL, ADD_TEXT, NEW_TEXT, MOVE, COUNT, PARK)
    names = {name for edit in every for name in (edit.target, edit.new, edit.reference, *edit.keep) if name}
    given: Json = {**dict.fromkeys([*names, "mug"], LEFT), "cup": [*LEFT, *MIDDLE, *RIGHT]}
    samples = [
        *(chain_of(edit, id=f"{n}", boxes=[given, given]) for n, edit in enumerate(every)),
        chain_of(*every[:3], id="three", boxes=[given] * 4),
        chain_of(*every[:3], id="complex", mode="singlepass", boxes=[given] * 2),
        chain_of(*every[:3], id="gap", outputs=".-.", boxes=[given] * 4),
        chain_of(REMOVE, id="gone", outputs="-"),
        # No detector is here: it fails.
        chain_of(*every[1:4], id="detector"),
    ]
    for rules in ("paper", "official", {"position_moved": True, "miss": "failure"}):
        options = {**VERDICTS_ALONE, "rules": rules}
        assert {s.value for s in check_protocol(EdiVal, options=options, samples=samples, images=STORE)} == {0, 1, None}


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
    assert recorded == {**VERDICTS_ALONE, "rules": "paper", "mode": "plain", "direction": False}
    run, pages = tmp_path / "run", tmp_path / "pages"
    export = ("export", run, "--html", pages)
    for command in (("report", run), ("show", run, "a/7"), ("replay", run), ("verify", run), export):
        code, out, err = editloupe(*command)
        assert code == 0, (command, out, err)
    (page,) = (pages / "samples").glob("*.html")
    assert "nothing found" in page.read_text(encoding="utf-8")


class Seer:
    """Sees a cup before the edit with 0.9 and after it with 0.32; notes how often it is asked."""

    name, version, threshold, side_px, asked = "Seer", "seer 1", 0.3, 800, 0

    def __call__(self, images: Any, phrase: str, **thresholds: Any) -> Any:
        Seer.asked += 1
        score = 0.9 if images[0][0, 0, 0] == 0 else 0.32
        found = (Detection(box=Box(10, 20, 50, 60), score=score, label="cup"),)
        return [DetectionResult(detections=found, width=200, height=100)]


def test_a_recorded_run_is_judged_by_other_thresholds_without_a_model(
    tmp_path: Path, boxed: Loaded, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "DETECTOR", lambda name, device: Seer())
    monkeypatch.setattr(Seer, "asked", 0)
    sample = boxed.samples[0]
    one = replace(sample, turns=sample.turns[:1], extra=chain_of(REMOVE).extra)
    outcome = judged(replace(boxed, samples=(one,)), tmp_path / "run")
    # 0.32 is under 0.35: the cup counts as gone.
    assert [s.value for s in outcome.scores] == [1, 1] and Seer.asked == 2
    (tmp_path / "low.toml").write_text("remove_threshold = 0.3\n")
    code, said, _ = editloupe("replay", "run", "--set", "rules=low.toml", "--out", "lower")
    assert code == 0 and "no model was asked" in said and Seer.asked == 2
    assert "0 of 2 findings change" in said and "follow the new options: " in said
    (before,), (after,) = (Run(name).frame().filter(metric="instruction_following").to_dicts() for name in ("run", "lower"))
    assert (before["value"], after["value"], after["reason"]) == (1, 0, "the object is still seen")
    assert editloupe("verify", "lower")[0] == 0


def test_what_consistency_rests_on_stays_where_verdicts_are_judged_again(
    tmp_path: Path, boxed: Loaded, editloupe: Cli
) -> None:
    # Nothing of what no edit touched is found in the base image.
    sample = boxed.samples[0]
    extra = {**sample.extra, "unchanged_objects": [["jar"]] * 3}
    extra["boxes"] = [{**dict(names), "jar": []} for names in extra["boxes"]]  # type: ignore[arg-type,union-attr]
    judged(replace(boxed, samples=(replace(sample, extra=extra),)), tmp_path / "run", cc="l1")
    for out, rule in (("other", "remove_threshold = 0.5"), ("zero", "cc_no_box = 'zero'")):
        (tmp_path / "own.toml").write_text(rule)
        code, said, err = editloupe("replay", "run", "--set", "rules=own.toml", "--out", out)
        assert code == 0 and "left out" not in said + err
    assert {f.task_id for f in Run("other").findings} == {f.task_id for f in Run("run").findings}
    for folder, due in (("run", (None, "not_defined")), ("other", (None, "not_defined")), ("zero", (0, None))):
        rows = Run(folder).frame().filter(metric="object_l1").to_dicts()
        assert [(row["value"], row["missing"]) for row in rows] == [due] * 3, folder
