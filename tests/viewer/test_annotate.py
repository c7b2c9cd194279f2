"""`editloupe annotate`: what is asked, of whom, what is taken, and what stands in the run afterwards. No browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.errors import ConfigError
from editloupe.figures.human_labels import read_people
from editloupe.runs import people
from editloupe.runs.annotation import Assignment
from editloupe.runs.store import RunStore
from tests.conftest import draw_edits
from tests.viewer.annotating import Desk, Session, annotate
from tests.viewer.runs import make_run

Run = Callable[..., tuple[int, str, str]]
Open = Callable[[str], Desk]

IF, VC = "Instruction Following", "Visual Consistency"

__all__ = ["annotate"]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "people.jsonl").read_text(encoding="utf-8").splitlines()]


def given(folder: Path) -> dict[tuple[str, str, str], str]:
    """What counts: (rater, sample, metric) → the answer, or the status in brackets."""
    store = RunStore.read(folder)
    assert store.problems == []
    return {
        (one.rater, one.finding.sample_id, one.finding.metric): str(one.finding.answer or f"({one.finding.status})")
        for one in store.people.values()
    }


# ---- What is asked ---------------------------------------------------------------------------------------------------


def test_data_become_a_run_without_judges_whose_questions_are_a_judges(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)

    def do(desk: Open) -> None:
        anna = desk("anna")
        assert [(q["sample"], q["name"], q["status"]) for q in anna.queue()] == [
            ("s00", IF, "open"), ("s00", VC, "open"), ("s01", IF, "open"), ("s01", VC, "open"),
        ]  # fmt: skip
        asked = anna.question("s00", IF)
        assert asked["instructions"] == ["Make square 0 red."]
        assert [view["alias"] for view in asked["views"]] == ["Original Image", "Edited Image"]
        best, *_ = asked["options"]
        assert best["name"] == "Flawless Execution" and best["about"].startswith("Nothing to fault")
        for view in asked["views"]:
            status, _ = anna.ask("GET", f"/{view['address']}")
            assert status == 200
        assert anna.answer(asked, "Wrong Action", "Too blue.")[0] == 200

    code, out, _ = annotate(edits, "--raters", "anna", "--out", "run", do=do)
    assert code == 0 and "anna: 1 of 4 questions answered, 0 skipped, 3 open" in out
    (line,) = lines(tmp_path / "run")
    assert line["label"] == "Wrong Action" and line["reason"] == "Too blue." and line["seconds"] == 1.5
    assert json.loads((tmp_path / "run" / "run.json").read_text())["judges"] == {}
    code, out, _ = annotate("run", "--status", do=lambda desk: pytest.fail("nothing is served"))
    assert code == 0 and "anna: 1 of 4 questions answered, 0 skipped, 3 open" in out and "http" not in out
    # The same command goes on; so does the run by itself, with the raters that it keeps.
    for words in ((edits, "--raters", "anna", "--out", "run"), ("run",)):
        code, out, _ = annotate(*words)
        assert code == 0 and "anna: 1 of 4 questions answered" in out


def test_commands_about_judges_say_that_only_people_answered(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    annotate(draw_edits(tmp_path / "edits", 1), "--out", run)
    assert f"has no judge and no answer yet; ask people with editloupe annotate {run}" in editloupe("show", run)[2]

    def answers(desk: Open) -> None:
        asked = desk("ann").question("s00", IF)
        assert desk("ann").answer(asked, "Wrong Action")[0] == 200

    annotate(run, "--raters", "ann", do=answers)
    for command in (("show", run), ("show", run, "s00"), ("report", run)):
        code, _, err = editloupe(*command)
        assert code == 2 and f"{run} has no judge, only people answered" in err and f"editloupe compare {run}" in err
    code, _, err = editloupe("retry", run)
    assert code == 2 and err.startswith("error: nobody was asked, so that there is nothing to ask again: ")
    assert not (run / "findings.jsonl").read_bytes()
    assert json.loads(editloupe("runs", run, "--json")[1])["status"] == "no judge"


def test_a_judge_may_join_and_is_compared_with_people(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)

    def do(desk: Open) -> None:
        for sample in ("s00", "s01"):
            assert desk("anna").answer(desk("anna").question(sample, IF), "Flawless Execution")[0] == 200

    annotate(edits, "--raters", "anna", "--out", "run", do=do)
    code, _, err = editloupe("compare", "run")
    assert code == 2 and "1 rater (anna) only" in err and "editloupe annotate run --raters A,B" in err
    code, _, err = editloupe("judge", edits, "--out", "run")
    assert code == 0, err
    code, out, _ = editloupe("compare", "run", "--criteria", "if", "--resamples", "100")
    assert code == 0 and "1 rater (anna)" in out
    assert len(RunStore.read(tmp_path / "run").people) == 2


def test_questions_of_a_judged_run_are_asked_again_of_people_and_nothing_of_the_judge_is_told(
    annotate: Session, tmp_path: Path
) -> None:
    folder = make_run(tmp_path, count=2)

    def do(desk: Open) -> None:
        anna, (first, *_) = desk("anna"), desk("anna").queue()
        asked = anna.fetch(first["id"])
        assert anna.answer(asked, "Wrong Action")[0] == 200
        told = json.dumps([desk("ben").queue(), desk("ben").fetch(first["id"])])
        assert "Wrong Action" in told  # an option
        assert '"given": null' in told and '"votes": []' in told and "anna" not in told

    code, out, _ = annotate(folder, "--criteria", "if", do=do)
    assert code == 0 and "anna: 1 of" in out
    assert {key[2] for key in given(folder)} == {"instruction_following"}


@pytest.mark.usefixtures("toys")
def test_every_kind_of_answer_is_taken_by_the_rules_of_its_spec(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)
    good = {
        "size": ("Medium", "Medium"),
        "quality": ("62.5", "62.5"),
        "stars": ("10", "10"),
        "where": ("[[10, 20, 300, 400]]", "10, 20, 300, 400"),
        "listed": ('{"object": "mug", "count": 2}', '{"count":2,"object":"mug"}'),
        "Keep it": ("yes", "yes"),
        "name": ("a red mug", "a red mug"),
    }
    bad = {
        "size": ("Tiny", "expected one of Large, Medium, Small"),
        "quality": ("101", "off the scale"),
        "stars": ("2.5", "off the scale"),
        "where": ("[[10, 20, 5, 400]]", "box"),
        "listed": ('{"object": "", "count": 2}', "does not fit the schema at $.object"),
        "Keep it": ("perhaps", "expected one of yes, no; found 'perhaps'"),
        "name": ("one two three four", "the answer has 4 words; expected your answer, at most 3 words"),
    }

    def do(desk: Open) -> None:
        anna = desk("anna")
        # The question about the name rests on whether it is kept.
        assert "name" not in [q["name"] for q in anna.queue()]
        for name, (said, _) in good.items():
            asked = anna.question("s00", name)
            wrong, why = bad[name]
            status, told = anna.answer(asked, wrong)
            assert (status, why in told["error"]) == (422, True), told
            status, told = anna.answer(asked, said)
            assert status == 200, told
        assert {q["status"] for q in anna.queue()} == {"answered"}

    code, _, err = annotate(edits, "--protocol", "review", "--raters", "anna", "--out", "run", do=do)
    assert code == 0, err
    code, _, err = editloupe("export", "run", "--human", "people.jsonl")
    assert code == 0, err
    table = [json.loads(line) for line in (tmp_path / "people.jsonl").read_text().splitlines()]
    assert {row["criterion"]: row["label"] for row in table if row["criterion"] in ("name", "keep", "where")} == {
        "name": "a red mug", "keep": "yes", "where": "10, 20, 300, 400",
    }  # fmt: skip
    said = {key[2]: answer for key, answer in given(tmp_path / "run").items()}
    assert said == {("keep" if name == "Keep it" else name): answer for name, (_, answer) in good.items()}


@pytest.mark.usefixtures("toys")
def test_texts_that_differ_in_case_alone_are_no_disagreement(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        for rater, name, where in (("anna", "Red mug.", "[[0, 0, 9, 9]]"), ("ben", "red  mug", "[[0, 0, 9, 8]]")):
            for asked, said in (("Keep it", "yes"), ("name", name), ("where", where)):
                assert desk(rater).answer(desk(rater).question("s00", asked), said)[0] == 200

    words = (draw_edits(tmp_path / "edits", 1), "--protocol", "review", "--raters", "anna,ben", "--out", "run")
    assert annotate(*words, do=do)[0] == 0
    code, out, _ = annotate("run", "--adjudicate", "--status")
    assert code == 0 and "Raters disagree on 1 of the 3 questions" in out


def test_the_reference_and_the_crops_that_a_judge_gets_are_shown(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)
    first, second = (json.loads(line) for line in (edits / "metadata.jsonl").read_text().splitlines())
    first |= {"reference_file_name": second["edited_file_name"], "bbox": [20, 20, 44, 44]}
    (edits / "metadata.jsonl").write_text(json.dumps(first))

    def whole(desk: Open) -> None:
        asked = desk("anna").question("s00", IF)
        assert [view["alias"] for view in asked["views"]] == ["Original Image", "Edited Image", "Reference Image"]
        # The target's place as shares of 320×240 px, for the key z; its outline is on the first two.
        assert asked["home"] == pytest.approx([20 / 320, 20 / 240, 44 / 320, 44 / 240])
        assert [len(view["boxes"]) for view in asked["views"]] == [1, 1, 0]

    def oracle(desk: Open) -> None:
        crop, mask = desk("anna").question("s00", IF, "target 1"), desk("anna").question("s00", VC)
        assert {view["op"] for view in crop["views"]} == {"crop"} and crop["home"] is None
        assert all((view["width"], view["height"]) != (320, 240) for view in crop["views"])
        assert {view["op"] for view in mask["views"]} == {"mask"} and mask["home"] is not None
        for view in (*crop["views"], *mask["views"]):
            assert desk("anna").ask("GET", f"/{view['address']}")[0] == 200

    assert annotate(edits, "--option", "reference=always", "--out", "one", do=whole)[0] == 0
    code, _, err = annotate(edits, "--mode", "oracle", do=oracle)
    assert code == 0, err
    assert (tmp_path / "runs" / "edits-people-oracle" / "run.json").exists()


@pytest.mark.usefixtures("toys")
def test_a_sample_that_the_protocol_cannot_ask_about_costs_no_other(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)
    rows = (edits / "metadata.jsonl").read_text().replace('"id": "s01"', '"id": "b"')
    (edits / "metadata.jsonl").write_text(rows)

    def do(desk: Open) -> None:
        assert [q["sample"] for q in desk("anna").queue()] == ["s00"]
        assert desk("anna").answer(desk("anna").question("s00", "right"), "yes")[0] == 200

    code, _, err = annotate(edits, "--protocol", "faulty", "--out", "run", do=do)
    assert code == 0 and "b: not asked: protocol 'faulty'" in err and "no such column" in err


@pytest.mark.usefixtures("toys")
def test_a_picture_that_cannot_be_made_is_said_and_the_question_can_be_skipped(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)
    rows = (edits / "metadata.jsonl").read_text().replace('"id": "s00"', '"id": "b"')
    (edits / "metadata.jsonl").write_text(rows)

    def do(desk: Open) -> None:
        asked = desk("anna").question("b", "right")
        assert asked["views"] == [] and "op 'crop'" in asked["problem"]
        assert desk("anna").answer(asked, None, "A picture is broken")[0] == 200

    assert annotate(edits, "--protocol", "faulty", "--option", "fault=crop", "--out", "run", do=do)[0] == 0


@pytest.mark.usefixtures("toys")
def test_an_instruction_that_a_judge_is_not_told_is_not_shown(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        assert desk("anna").question("s00", "differences")["instructions"] == []

    assert annotate(draw_edits(tmp_path / "edits", 1), "--protocol", "changes", "--out", "run", do=do)[0] == 0


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("json", '{"differences": [{"op": "ADD", "object": "mug", "box": [10, 20, 30, 40]}]}'),
        ("lines", "ADD: mug, [0.01, 0.02, 0.03, 0.04]"),
    ],
)
def test_boxes_with_labels_and_names_are_read_in_the_form_that_is_asked_for(
    annotate: Session, tmp_path: Path, form: str, said: str
) -> None:
    def do(desk: Open) -> None:
        asked = desk("anna").question("s00", "differences")
        assert asked["spec"]["form"] == form
        status, told = desk("anna").answer(asked, "PAINT: mug, [0.01, 0.02, 0.03, 0.04]")
        assert status == 422, told
        status, told = desk("anna").answer(asked, said)
        assert status == 200 and told["given"]["answer"]["data"]["differences"][0]["box"] == [10, 20, 30, 40]

    words = ("--protocol", "changes", "--option", f"form={form}", "--out", "run")
    assert annotate(draw_edits(tmp_path / "edits", 1), *words, do=do)[0] == 0


@pytest.mark.usefixtures("toys")
def test_a_description_of_a_label_comes_from_the_question(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        options = desk("anna").question("s00", "size")["options"]
        assert [(o["name"], o["about"]) for o in options] == [
            ("Large", "more than half."), ("Medium", ""), ("Small", "hardly seen."),
        ]  # fmt: skip

    assert annotate(draw_edits(tmp_path / "edits", 1), "--protocol", "review", "--out", "run", do=do)[0] == 0


@pytest.mark.usefixtures("toys")
def test_what_another_role_found_is_not_asked_and_what_rests_on_it_is(
    annotate: Session, editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_CALLS", str(tmp_path / "calls"))
    edits = draw_edits(tmp_path / "edits", 1)
    rows = (edits / "metadata.jsonl").read_text().replace("Make square 0 red.", "Keep all. [objects=cup,cat]")
    (edits / "metadata.jsonl").write_text(rows)
    words = ("--protocol", "objects", "--backend", "toy/x", "--role", "parser=toy/y")
    assert editloupe("judge", edits, *words, "--out", "run")[0] == 0

    def do(desk: Open) -> None:
        assert [(q["name"], q["scope"]) for q in desk("anna").queue()] == [("kept", "cup"), ("kept", "cat")]
        assert desk("anna").answer(desk("anna").question("s00", "kept", "cat"), "no")[0] == 200

    assert annotate("run", do=do)[0] == 0
    (one,) = RunStore.read(tmp_path / "run").people.values()
    # "no" is no number from 0 to 1: it is an answer, and no rating of the metric.
    assert (one.finding.part, one.finding.label, one.of_metric, one.rating) == ("cat", "no", False, None)
    # One of two objects is answered: no score yet. With the other one it is the share that is kept.
    with pytest.raises(ConfigError, match="carry no human labels"):
        read_people(RunStore.read(tmp_path / "run"))

    def rest(desk: Open) -> None:
        assert desk("anna").answer(desk("anna").question("s00", "kept", "cup"), "yes")[0] == 200

    assert annotate("run", do=rest)[0] == 0
    assert read_people(RunStore.read(tmp_path / "run")).ratings == {("", "s00", 0, ""): {"kept": {"anna": 0.5}}}


@pytest.mark.usefixtures("toys")
def test_the_option_that_abstains_is_a_skipped_question(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)
    row = {**json.loads((edits / "metadata.jsonl").read_text()), "question": "Which?", "options": ["red", "cannot tell"]}
    (edits / "metadata.jsonl").write_text(json.dumps({**row, "answer": "red"}))

    def do(desk: Open) -> None:
        asked = desk("anna").question("s00", "accuracy")
        assert desk("anna").answer(asked, "cannot tell")[0] == 200
        assert [q["status"] for q in desk("anna").queue()] == ["skipped"]

    code, _, err = annotate(edits, "--protocol", "choice", "--out", "run", do=do)
    assert code == 0, err
    assert given(tmp_path / "run") == {("anna", "s00", "accuracy"): "(abstained)"}


# ---- Pairs -----------------------------------------------------------------------------------------------------------


def two_editors(folder: Path) -> Path:
    edits = draw_edits(folder, 2)
    rows = [json.loads(line) for line in (edits / "metadata.jsonl").read_text().splitlines()]
    for row, editor in zip(rows, ("left", "right"), strict=True):
        row |= {"id": "s", "editor": editor, "instruction": "Make it red.", "source_file_name": "source/s00.png"}
    (edits / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return edits


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
def test_pairs_are_shown_in_both_orders_and_stored_as_if_they_were_not_exchanged(
    annotate: Session, tmp_path: Path, seed: str
) -> None:
    edits = two_editors(tmp_path / "edits")
    first: dict[str, str] = {}

    def do(desk: Open) -> None:
        anna, shas = desk("anna"), {}
        samples = RunStore.read(tmp_path / "run").samples
        for key, sample in samples.items():
            assert sample.edited is not None
            shas[sample.edited.sha256] = key
        for number, one in enumerate(anna.queue()):
            asked = anna.fetch(one["id"])
            # Neither editor is named.
            assert (one["sample"], one["scope"]) == ("s", "two edits") and not {"left", "right"} & set(
                map(str, asked.values())
            )
            assert "left/s" not in json.dumps(asked)
            shown = [shas[view["address"].split("/")[-1][:64]] for view in asked["views"][1:]]
            assert [view["alias"] for view in asked["views"]] == ["Original Image", "Edit A", "Edit B"]
            first[("left/s", "right/s")[number]] = shown[0]
            # Anna prefers the edit by "right", wherever it stands.
            said = ("Edit A", "Edit B")[shown.index("right/s")]
            assert anna.answer(asked, said)[0] == 200
            again = anna.fetch(one["id"])
            assert again["given"]["answer"]["name"] == said

    code, _, err = annotate(edits, "--protocol", "pairwise", "--criteria", "if", "--seed", seed, "--out", "run", do=do)
    assert code == 0, err
    # Both orders are asked, and the two are shown in opposite orders.
    assert len(first) == 2 and set(first.values()) == {"left/s", "right/s"}
    said = {one.finding.about.key: one.finding for one in RunStore.read(tmp_path / "run").people.values()}
    assert {key: finding.label for key, finding in said.items()} == {"left/s": "Edit B", "right/s": "Edit A"}
    assert {key: finding.value for key, finding in said.items()} == {"left/s": -1.0, "right/s": 1.0}
    swapped = {line.get("swapped", False) for line in lines(tmp_path / "run")}
    assert swapped == {first["left/s"] != "left/s"}


def test_some_seed_exchanges_the_places_of_a_pair_and_some_does_not(annotate: Session, tmp_path: Path) -> None:
    edits, seen = two_editors(tmp_path / "edits"), set()

    def do(desk: Open) -> None:
        for rater in "abcdefghijkl":
            asked = desk(rater).fetch(desk(rater).queue()[0]["id"])
            seen.add(asked["views"][1]["address"])

    assert annotate(edits, "--protocol", "pairwise", "--out", "run", do=do)[0] == 0
    assert len(seen) == 2


def test_votes_on_pairs_become_ratings_as_a_judges_become_scores(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    edits = two_editors(tmp_path / "edits")

    def do(desk: Open) -> None:
        # Anna always prefers the edit by "right"; Ben prefers what is shown first, which is no preference.
        shas = {s.edited.sha256: key for key, s in RunStore.read(tmp_path / "run").samples.items() if s.edited}
        for rater in ("anna", "ben"):
            for one in desk(rater).queue():
                asked = desk(rater).fetch(one["id"])
                shown = [shas[view["address"].split("/")[-1][:64]] for view in asked["views"][1:]]
                said = ("Edit A", "Edit B")[shown.index("right/s")] if rater == "anna" else "Edit A"
                assert desk(rater).answer(asked, said)[0] == 200

    assert annotate(edits, "--protocol", "pairwise", "--criteria", "if", "--out", "run", do=do)[0] == 0
    found = read_people(RunStore.read(tmp_path / "run")).ratings
    ratings = {key[0]: by_metric["instruction_following"] for key, by_metric in found.items()}
    # The share of pairs that are won; one that is won in one order only is a tie.
    assert ratings == {"left": {"anna": 0.0, "ben": 0.5}, "right": {"anna": 1.0, "ben": 0.5}}
    code, out, err = editloupe("compare", "run", "--json", "--resamples", "100")
    assert code == 0, err
    (one,) = json.loads(out)["raters"]
    assert sorted(one["raters"]) == ["anna", "ben"] and one["all"]["ceiling"]["alpha_interval"]["judged"] == 2


# ---- Who is asked ----------------------------------------------------------------------------------------------------


def test_the_share_of_all_raters_is_dealt_by_the_seed() -> None:
    names = [f"s{i:03}" for i in range(100)]
    deal = Assignment(raters=("anna", "ben"), overlap=0.2, shares={"anna": 3, "ben": 1}).dealt(names)
    everybody = [name for name, who in zip(names, deal, strict=True) if who is None]
    mine = [name for name, who in zip(names, deal, strict=True) if who == {"anna"}]
    # 20 of 100 are everybody's; of the other 80 three in four are anna's.
    assert (len(everybody), len(mine)) == (20, 60)
    assert deal == Assignment(raters=("anna", "ben"), overlap=0.2, shares={"anna": 3, "ben": 1}).dealt(names)
    other = Assignment(raters=("anna", "ben"), overlap=0.2, seed=1).dealt(names)
    assert [who for who in other if who is None] != [] and other != deal
    # A share of few is rounded up, so that agreement can be measured at all; nothing shared stays nothing.
    few = Assignment(raters=("anna", "ben"), overlap=0.1).dealt(names[:3])
    assert few.count(None) == 1
    assert None not in Assignment(raters=("anna", "ben"), overlap=0.0).dealt(names)
    assert Assignment().dealt(names) == [None] * 100


def test_each_rater_gets_what_is_everybodys_and_their_own(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 10)

    def do(desk: Open) -> None:
        anna, ben = ({q["sample"] for q in desk(name).queue()} for name in ("anna", "ben"))
        assert len(anna & ben) == 2 and len(anna | ben) == 10 and len(anna) == len(ben) == 6
        only_ben = desk("ben").question(min(ben - anna), IF)
        status, told = desk("anna").answer(only_ben, "Wrong Action")
        assert status == 422 and "not asked this question" in told["error"]

    words = (edits, "--criteria", "if", "--raters", "anna,ben", "--overlap", "0.2", "--out", "run")
    code, out, _ = annotate(*words, do=do)
    assert code == 0 and "anna: 0 of 6 questions answered" in out
    # Kept in the run; a change is said.
    _, out, err = annotate("run")
    assert "anna: 0 of 6" in out and "has changed" not in err
    _, out, err = annotate("run", "--overlap", "1")
    assert "anna: 0 of 10" in out and "overlap was 0.2 and is 1.0" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--overlap", "0.2"], "--overlap needs the names of all raters"),
        (["--raters", "anna,anna"], "names 'anna' twice"),
        (["--raters", "anna,adjudicated"], "this name is kept"),
        (["--raters", "anna,ben", "--share", "anna=2,ben=1"], "--share divides what --overlap leaves"),
        (["--raters", "anna,ben", "--overlap", "0.5", "--share", "anna=2"], "a weight for each of anna, ben"),
        (["--raters", "anna,ben", "--overlap", "0.5", "--share", "anna=2,ben=x"], "expected a number for each rater"),
        (["--names"], "--names goes with --adjudicate"),
        (["--adjudicate"], "there is nothing to settle"),
        (["--raters", "a" * 81], "expected a name of 1 to 80 printable characters"),
        (["--criteria", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_meant_is_refused(annotate: Session, tmp_path: Path, words: list[str], why: str) -> None:
    code, _, err = annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", *words)
    assert code == 2 and why in err
    assert (tmp_path / "run").exists() == (words == ["--adjudicate"])  # else refused before a run is made


def test_a_run_of_some_criteria_asks_no_other(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)
    assert editloupe("judge", edits, "--criteria", "if", "--backend", "baseline", "--out", "run")[0] == 0
    code, out, _ = annotate("run", "--status")
    assert code == 0 and "2 questions on 2 samples" in out
    code, _, err = annotate("run", "--criteria", "visual_consistency", "--status")
    assert code == 2 and "has no such question here; it has IF" in err
    assert editloupe("judge", edits, "--backend", "baseline", "--out", "run")[0] == 0
    code, out, _ = annotate("run", "--status")
    assert code == 0 and "4 questions on 2 samples" in out


def test_a_question_that_a_run_does_not_have_is_refused(annotate: Session, tmp_path: Path) -> None:
    folder = make_run(tmp_path, count=2)
    code, _, err = annotate(folder, "--criteria", "if,vcc")
    assert code == 2 and "--criteria vcc: 'dlebench' has no such question here; it has IF, VC" in err
    assert not (folder / "annotation.json").exists()


def test_what_of_the_data_is_not_asked_is_told(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 4)
    metadata = edits / "metadata.jsonl"
    rows = [json.loads(line) for line in metadata.read_text().splitlines()]
    rows[0]["edited_file_name"] = None
    for row in rows[1:3]:
        (edits / row["edited_file_name"]).write_bytes(b"no image")
    metadata.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    code, out, err = annotate(edits, "--out", "run", "--status")
    assert code == 0 and "2 questions on 2 samples" in out
    assert "2 rows of the data could not be read, and nothing is asked of them: s01: metadata.jsonl, line 2: " in err
    assert "; and 1 more" in err
    assert "2 questions cannot be asked: missing_output" in err


def test_a_run_knows_its_own_questions(annotate: Session, tmp_path: Path) -> None:
    folder = make_run(tmp_path, count=2)
    code, _, err = annotate(folder, "--protocol", "pairwise")
    assert code == 2 and "is a run, which knows its data and its questions; leave --protocol out" in err
    code, _, err = annotate()
    assert code == 2 and "PATH is missing" in err


def test_only_named_raters_may_answer_and_any_name_where_none_is_given(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)

    def named(desk: Open) -> None:
        assert desk("zoe").ask("GET", "/queue.json?rater=zoe") == (404, "'zoe' is none of the raters: anna.\n")
        assert desk("zoe").ask("GET", "/annotate.html?rater=zoe")[0] == 404
        status, page = desk("anna").ask("GET", "/index.html")
        assert status == 200 and "anna" in page and "Your name" not in page

    def free(desk: Open) -> None:
        assert len(desk("zoe").queue()) == 2
        assert "Your name" in desk("zoe").ask("GET", "/index.html")[1]
        assert desk("x").ask("GET", "/queue.json?rater=adjudicated")[0] == 404
        assert desk("x").ask("GET", "/queue.json")[0] == 404
        assert desk("x").ask("GET", "/nothing.html?rater=zoe")[0] == 404

    assert annotate(edits, "--raters", "anna", "--out", "one", do=named)[0] == 0
    assert annotate(edits, "--out", "two", do=free)[0] == 0


# ---- Saving ----------------------------------------------------------------------------------------------------------


def test_undo_skip_and_change_append_and_the_last_word_counts(annotate: Session, tmp_path: Path) -> None:
    edits, run = draw_edits(tmp_path / "edits", 1), tmp_path / "run"

    def do(desk: Open) -> None:
        anna = desk("anna")
        anna.answer(anna.question("s00", IF), "Wrong Action")
        status, told = anna.undo()
        assert status == 200 and told["id"] == anna.question("s00", IF)["id"]
        assert [q["status"] for q in anna.queue()] == ["open", "open"] and given(run) == {}
        assert anna.undo() == (200, {"id": None, "progress": {"total": 2, "answered": 0, "skipped": 0, "open": 2}})
        status, told = anna.answer(anna.question("s00", IF), None)
        assert status == 422 and "needs a reason" in told["error"]
        assert anna.answer(anna.question("s00", IF), None, "Too dark.")[0] == 200
        assert given(run) == {("anna", "s00", "instruction_following"): "(abstained)"}
        assert anna.answer(anna.question("s00", IF), "Flawless Execution")[0] == 200

    assert annotate(edits, "--out", "run", do=do)[0] == 0
    assert given(run) == {("anna", "s00", "instruction_following"): "Flawless Execution"}
    assert [(line["status"], line.get("retracted", False)) for line in lines(run)] == [
        ("ok", False), ("ok", True), ("abstained", False), ("ok", False),
    ]  # fmt: skip
    # A skipped question is a status and never a number; one that was taken back is nothing at all.
    assert lines(run)[2]["value"] is None
    assert RunStore.read(run).samples["s00"].human["instruction_following"] == {"anna": "Flawless Execution"}


def test_a_second_tab_is_told_what_was_stored_meanwhile_and_may_overwrite_it(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        one, other = desk("anna").question("s00", IF), desk("anna").question("s00", IF)
        assert desk("anna").answer(one, "Wrong Action")[0] == 200
        status, told = desk("anna").answer(other, "Over Modification")
        assert status == 409 and told["given"]["answer"]["name"] == "Wrong Action" and len(lines(tmp_path / "run")) == 1
        # The same answer, sent again since its reply was lost, is no second line and no conflict.
        assert desk("anna").answer(one, "Wrong Action")[0] == 200 and len(lines(tmp_path / "run")) == 1
        assert desk("anna").answer({**other, "revision": told["revision"]}, "Over Modification")[0] == 200
        # Taken back in one tab, answered in the other.
        stale = desk("anna").question("s00", IF)
        desk("anna").undo()
        status, told = desk("anna").answer(stale, "Flawless Execution")
        assert (status, told["given"], told["revision"]) == (409, None, "")

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    assert [line["label"] for line in lines(tmp_path / "run")] == ["Wrong Action", "Over Modification", "Over Modification"]


def test_two_raters_and_another_process_lose_nothing(annotate: Session, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def do(desk: Open) -> None:
        import threading

        def answers(rater: str) -> None:
            for sample in ("s00", "s01", "s02"):
                for name in (IF, VC):
                    asked = desk(rater).question(sample, name)
                    assert desk(rater).answer(asked, asked["options"][0]["name"])[0] == 200

        threads = [threading.Thread(target=answers, args=(rater,)) for rater in ("anna", "ben", "cleo")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        # A line of another process is seen at once.
        first = next(iter(RunStore.read(run).people.values()))
        people.add(run, people.Given(finding=first.finding, rater="dora", time="2026-01-01T00:00:00+00:00"))
        assert [q["status"] for q in desk("dora").queue()].count("answered") == 1

    assert annotate(draw_edits(tmp_path / "edits", 3), "--out", "run", do=do)[0] == 0
    assert len(given(run)) == 3 * 6 + 1


def test_what_cannot_be_written_is_said_and_not_counted(
    annotate: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do(desk: Open) -> None:
        asked = desk("anna").question("s00", IF)
        with monkeypatch.context() as patch:

            def full(*_: object, **__: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr("editloupe.files.append", full)
            status, told = desk("anna").answer(asked, "Wrong Action")
        assert status == 500 and "people.jsonl cannot be written: No space left on device" in told
        assert desk("anna").queue()[0]["status"] == "open"
        assert desk("anna").answer(asked, "Wrong Action")[0] == 200

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0


def test_a_half_written_line_is_cut_off_and_the_answers_before_it_stay(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        desk("anna").answer(desk("anna").question("s00", IF), "Wrong Action")
        with (tmp_path / "run" / "people.jsonl").open("ab") as file:
            file.write(b'{"task_id": "half')
        assert desk("anna").answer(desk("anna").question("s00", VC), "Single Anomaly")[0] == 200

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    assert len(given(tmp_path / "run")) == 2


@pytest.mark.parametrize("longer", [None, False, True])
def test_a_people_file_that_is_removed_or_replaced_meanwhile_is_read_anew(
    annotate: Session, tmp_path: Path, longer: bool | None
) -> None:
    run = tmp_path / "run"
    file = run / "people.jsonl"

    def do(desk: Open) -> None:
        anna = desk("anna")
        first, second = anna.question("s00", IF), anna.question("s00", VC)
        assert anna.answer(first, "Wrong Action")[0] == 200
        one = file.read_bytes()
        assert anna.answer(anna.question("s00", IF), "Over Modification")[0] == 200
        if longer is None:
            file.unlink()
        else:
            (run / "other").write_bytes(one * 3 if longer else one)
            (run / "other").rename(file)
        assert anna.answer(second, "Single Anomaly")[0] == 200
        now = anna.question("s00", IF)["given"]
        assert now is None if longer is None else now["answer"]["text"] == "Wrong Action"

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    own = {("anna", "s00", "visual_consistency"): "Single Anomaly"}
    assert given(run) == own | ({} if longer is None else {("anna", "s00", "instruction_following"): "Wrong Action"})


def test_only_the_servers_own_pages_may_answer(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        asked = desk("anna").question("s00", IF)
        data = {"rater": "anna", "id": asked["id"], "task_id": asked["task_id"], "answer": "Wrong Action", "seen": ""}
        for wrong in ({"X_Editloupe_Token": "guess"}, {"Origin": "http://evil.example"}, {"Content_Type": "text/plain"}):
            assert desk("anna").ask("POST", "/answer", data, **wrong)[0] == 403
        assert desk("anna").ask("POST", "/answer", [1])[0] == 422
        assert desk("anna").ask("POST", "/answer", {**data, "answer": 3})[0] == 422
        assert desk("anna").ask("POST", "/elsewhere", data)[0] == 404
        assert desk("anna").ask("POST", "/answer", {**data, "note": "x" * 4001})[0] == 422

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    assert not (tmp_path / "run" / "people.jsonl").exists()


# ---- Questions that change -------------------------------------------------------------------------------------------

RUBRIC = """\
id = "mine"
title = "Mine"
[criteria.neat]
name = "Neat"
short = "N"
question = "Is it neat?"
[[criteria.neat.levels]]
name = "Messy"
value = 0
description = "It is not."
[[criteria.neat.levels]]
name = "Tidy"
value = 1
description = "It is."
"""


def test_an_edited_rubric_is_refused_with_what_changed_and_labels_stay(annotate: Session, tmp_path: Path) -> None:
    edits, rubric = draw_edits(tmp_path / "edits", 1), tmp_path / "mine.toml"
    rubric.write_text(RUBRIC)
    words = (edits, "--rubric", rubric, "--out", "run")

    def do(desk: Open) -> None:
        assert desk("anna").answer(desk("anna").question("s00", "Neat"), "Tidy")[0] == 200

    assert annotate(*words, do=do)[0] == 0
    rubric.write_text(RUBRIC.replace('description = "It is."', 'description = "It shines."'))
    code, _, err = annotate(*words)
    assert code == 2
    assert 'criteria.neat.levels.Tidy.description of --rubric mine: was "It is.", is "It shines."' in err
    code, _, err = annotate(edits, "--protocol", "pairwise", "--out", "run")
    assert code == 2 and "--protocol: was dlebench, is pairwise" in err
    assert given(tmp_path / "run") == {("anna", "s00", "neat"): "Tidy"}


def test_a_run_that_asks_something_else_since_the_server_began_takes_no_answer(annotate: Session, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def do(desk: Open) -> None:
        first, asked = desk("anna").question("s00", IF), desk("anna").question("s00", VC)
        assert desk("anna").answer(first, "Wrong Action")[0] == 200
        status, told = desk("anna").answer({**asked, "task_id": "another"}, "Single Anomaly")
        assert status == 422 and "the question was changed since this page was made" in told["error"]
        info = json.loads((run / "run.json").read_text())
        info["identity"]["options"]["mode"] = "plain"
        (run / "run.json").write_text(json.dumps(info))
        status, told = desk("anna").answer(asked, "Single Anomaly")
        assert status == 422 and 'options.mode was "tool", and is "plain"' in told["error"]
        assert "those given before stay" in told["error"]

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    assert len(lines(run)) == 1


# ---- Adjudication ----------------------------------------------------------------------------------------------------


def test_disagreements_are_settled_by_a_label_of_its_own_rater(annotate: Session, tmp_path: Path) -> None:
    edits, run = draw_edits(tmp_path / "edits", 3), tmp_path / "run"
    said = {
        "anna": {"s00": "Wrong Action", "s01": "Flawless Execution", "s02": "Wrong Action"},
        "ben": {"s00": "Flawless Execution", "s01": "Flawless Execution"},
    }

    def vote(desk: Open) -> None:
        for rater, labels in said.items():
            for sample, label in labels.items():
                desk(rater).answer(desk(rater).question(sample, IF), label, "Blue." if rater == "ben" else "")
        # Who cannot tell disagrees with nobody.
        desk("ben").answer(desk("ben").question("s02", IF), None, "I cannot tell.")

    def settle(desk: Open) -> None:
        chair = desk("adjudicated")
        assert chair.ask("GET", "/queue.json?rater=anna")[0] == 404
        assert [(q["sample"], q["name"]) for q in chair.queue()] == [("s00", IF)]
        asked = chair.question("s00", IF)
        votes = [(v["who"], v["given"]["answer"]["name"], v["given"]["note"]) for v in asked["votes"]]
        assert votes == [("Rater 1", "Wrong Action", ""), ("Rater 2", "Flawless Execution", "Blue.")]
        assert chair.answer(asked, "Wrong Action", "Both colours are off.")[0] == 200

    assert annotate(edits, "--criteria", "if", "--raters", "anna,ben", "--out", "run", do=vote)[0] == 0
    code, out, _ = annotate("run", "--adjudicate", do=settle)
    assert code == 0
    assert "Raters disagree on 1 of the 2 questions that two of them or more have answered; 0 of these are settled" in out
    assert "1 of these is settled" in out
    assert given(run)["adjudicated", "s00", "instruction_following"] == "Wrong Action"

    def named(desk: Open) -> None:
        assert [v["who"] for v in desk("adjudicated").question("s00", IF)["votes"]] == ["anna", "ben"]

    assert annotate("run", "--adjudicate", "--names", do=named)[0] == 0


# ---- Agreement -------------------------------------------------------------------------------------------------------

WORDS = {str(n): f"Place {word}" for n, word in enumerate(("one", "two", "three", "four", "five"), start=1)}
FIVE = 'id = "five"\ntitle = "Five"\n[criteria.place]\nname = "Place"\nshort = "P"\nquestion = "Which place?"\n' + "".join(
    f'[[criteria.place.levels]]\nname = "{word}"\nvalue = {n}\ndescription = "The place {n}."\n'
    for n, word in WORDS.items()
)


def test_simulated_raters_reach_the_alpha_that_is_published(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    """Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, example C: four observers, twelve units."""
    said = {
        "a": "1 2 3 3 2 1 4 1 2 . . .",
        "b": "1 2 3 3 2 2 4 1 2 5 . 3",
        "c": ". 3 3 3 2 3 4 2 2 5 1 .",
        "d": "1 2 3 3 2 4 4 1 2 5 1 .",
    }
    edits = draw_edits(tmp_path / "edits", 12, types=("One", "Other"))
    (tmp_path / "five.toml").write_text(FIVE)

    def do(desk: Open) -> None:
        for rater, row in said.items():
            for number, value in enumerate(row.split()):
                if value != ".":
                    asked = desk(rater).question(f"s{number:02}", "Place")
                    assert desk(rater).answer(asked, WORDS[value])[0] == 200

    words = (edits, "--rubric", tmp_path / "five.toml", "--raters", "a,b,c,d", "--out", "run")
    code, _, err = annotate(*words, do=do)
    assert code == 0, err
    code, out, err = editloupe("compare", "run", "--json", "--resamples", "100")
    assert code == 0, err
    (place,) = json.loads(out)["raters"]
    assert sorted(place["raters"]) == ["a", "b", "c", "d"]
    figures = place["all"]["ceiling"]
    alphas = {name: round(figures[f"alpha_{name}"]["value"], 3) for name in ("nominal", "ordinal", "interval")}
    assert alphas == {"nominal": 0.743, "ordinal": 0.815, "interval": 0.849}
    # By edit type, as DLEBench's Table 2 has it. The unit that one observer rated makes no pair.
    by_type = {group["name"]: group["ceiling"]["alpha_ordinal"]["judged"] for group in place["by"]["edit_type"]}
    assert by_type == {"One": 6, "Other": 5}
    # The table of a run without judges says the same.
    assert editloupe("export", "run", "--human", "people.csv")[0] == 0
    code, out, err = editloupe("compare", "--human", "people.csv", "--rubric", tmp_path / "five.toml", "--json")
    assert code == 0, err
    figures = json.loads(out)["raters"][0]["all"]["ceiling"]
    assert round(figures["alpha_ordinal"]["value"], 3) == 0.815


def test_an_adjudicated_label_stands_for_peoples_and_is_no_vote(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 3)
    votes = {"s00": ("Wrong Action", "Flawless Execution"), "s01": ("Wrong Action",) * 2, "s02": ("Over Modification",) * 2}

    def vote(desk: Open) -> None:
        for sample, labels in votes.items():
            for rater, label in zip(("anna", "ben"), labels, strict=True):
                desk(rater).answer(desk(rater).question(sample, IF), label)

    def settle(desk: Open) -> None:
        desk("adjudicated").answer(desk("adjudicated").question("s00", IF), "Flawless Execution")

    def figures() -> tuple[dict[str, Any], list[str]]:
        code, out, err = editloupe("compare", "run", "--json", "--resamples", "100", "--criteria", "if")
        assert code == 0, err
        (one,) = json.loads(out)["human_agreement"]
        return one["all"], one["notes"]

    assert annotate(edits, "--criteria", "if", "--raters", "anna,ben", "--out", "run", do=vote)[0] == 0
    assert editloupe("judge", edits, "--criteria", "if", "--out", "run")[0] == 0
    before, notes = figures()
    # One item is a draw, and so without people's label.
    assert before["figures"]["exact"]["asked"] == 2 and not any("adjudicated" in note for note in notes)
    assert annotate("run", "--adjudicate", do=settle)[0] == 0
    after, notes = figures()
    assert after["figures"]["exact"]["asked"] == 3
    assert after["ceiling"] == before["ceiling"]
    assert any("1 adjudicated rating: each stands for people's, and is no rater's vote" in note for note in notes)
    code, _, err = editloupe("export", "run", "--human", "people.csv")
    assert code == 0, err
    assert "s00,,0,,adjudicated,instruction_following,Flawless Execution" in (tmp_path / "people.csv").read_text()


def test_a_folder_that_cannot_be_written_is_refused(
    annotate: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, count=2)
    monkeypatch.setattr("editloupe.cli.annotate.writable", lambda folder: False)
    code, _, err = annotate(folder)
    assert code == 2 and "cannot be written, so that no label can be kept in it" in err
    code, out, _ = annotate(folder, "--status")
    assert code == 0 and "2 questions on 1 sample" in out
