"""EdiVal-IF: what is looked for and asked, chains to their first gap, both modes, runs judged again by other rules."""

from __future__ import annotations

from editloupe.protocols.edival.instructions import Edit
from tests.protocols.edival_play import (
    ADD,
    COUNT,
    LEFT,
    MIDDLE,
    PICTURES,
    REMOVE,
    REPLACE,
    RIGHT,
    Play,
    chain_of,
)  # fmt: skip

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
