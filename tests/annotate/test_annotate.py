"""`editloupe annotate`: what is asked, of whom, what is taken, and what stands in the run afterward. No browser."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.errors import ConfigError
from editloupe.figures.human_labels import read_people
from editloupe.runs import people
from editloupe.runs.store import RunStore
from tests.annotate.annotating import Desk, Session, annotate
from tests.conftest import ANSWERED, draw_edits
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


def rated(folder: Path) -> dict[tuple[Any, ...], dict[str, float]]:
    """(editor, sample, turn, part, metric) → rater → the rating."""
    said = read_people(RunStore.read(folder)).ratings
    return {(*key, metric): dict(by_rater) for metric, rated in said.items() for key, by_rater in rated.items()}


def test_data_become_a_run_without_judges_whose_questions_are_a_judges(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)

    def do(desk: Open) -> None:
        anna = desk("anna")
        assert [(q["sample"], q["name"], q["state"]) for q in anna.queue()] == [
            ("s00", IF, "open"), ("s00", VC, "open"), ("s01", IF, "open"), ("s01", VC, "open"),
        ]  # fmt: skip
        asked = anna.question("s00", IF)
        assert asked["instructions"] == ["Make square 0 red."]
        assert [view["alias"] for view in asked["views"]] == ["Original Image", "Edited Image"]
        best, *_ = asked["options"]
        assert best["name"] == "Flawless Execution" and best["about"].startswith("Nothing to fault")
        for view in asked["views"]:
            assert anna.get(f"/picture/{view['sha256']}")[0] == 200
        assert anna.get(f"/picture/{'0' * 64}")[0] == 404
        assert anna.answer(asked, "Wrong Action", "Too blue.")[0] == 200

    code, out, _ = annotate(edits, "--raters", "anna", "--out", "run", do=do)
    assert code == 0 and "anna: 1 of 4 questions answered, 0 skipped, 3 open" in out
    (line,) = lines(tmp_path / "run")
    assert line["label"] == "Wrong Action" and line["reason"] == "Too blue." and line["seconds"] == 1.5
    assert json.loads((tmp_path / "run" / "run.json").read_text())["judges"] == {}
    code, out, _ = annotate("run", "--status", do=lambda desk: pytest.fail("nothing is served"))
    assert code == 0 and "anna: 1 of 4 questions answered, 0 skipped, 3 open" in out and "http" not in out
    # The same command goes on; so does the run by itself.
    for words in ((edits, "--raters", "anna", "--out", "run"), ("run",)):
        code, out, _ = annotate(*words)
        assert code == 0 and "anna: 1 of 4 questions answered" in out


def test_a_judge_may_join_and_is_compared_with_people(annotate: Session, editloupe: Run, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2, instruction=ANSWERED)

    def do(desk: Open) -> None:
        for sample in ("s00", "s01"):
            assert desk("anna").answer(desk("anna").question(sample, IF), "Flawless Execution")[0] == 200

    annotate(edits, "--raters", "anna", "--out", "run", do=do)
    code, _, err = editloupe("compare", "run")
    assert code == 2 and "1 rater (anna), and" in err and "editloupe annotate run --raters A,B" in err
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
        (first, *_) = desk("anna").queue()
        asked = desk("anna").get("/question", id=first["id"])[1]
        assert desk("anna").answer(asked, "Wrong Action", "by anna")[0] == 200
        told = json.dumps([desk("ben").queue(), desk("ben").get("/question", id=first["id"])[1]])
        assert "Wrong Action" in told  # an option
        assert '"given": null' in told and "anna" not in told

    code, out, _ = annotate(folder, "--criteria", "if", do=do)
    assert code == 0 and "anna: 1 of" in out
    assert {key[2] for key in given(folder)} == {"instruction_following"}


@pytest.mark.usefixtures("toys")
def test_every_kind_of_answer_is_taken_by_the_rules_of_its_spec(annotate: Session, tmp_path: Path) -> None:
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
        assert {q["state"] for q in anna.queue()} == {"answered"}

    code, _, err = annotate(edits, "--protocol", "review", "--raters", "anna", "--out", "run", do=do)
    assert code == 0, err
    said = {key[2]: answer for key, answer in given(tmp_path / "run").items()}
    assert said == {("keep" if name == "Keep it" else name): answer for name, (_, answer) in good.items()}


def test_the_reference_and_the_crops_that_a_judge_gets_are_shown(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 2)
    first, second = (json.loads(line) for line in (edits / "metadata.jsonl").read_text().splitlines())
    first |= {"reference_file_name": second["edited_file_name"], "bbox": [20, 20, 44, 44]}
    (edits / "metadata.jsonl").write_text(json.dumps(first))

    def whole(desk: Open) -> None:
        asked = desk("anna").question("s00", IF)
        assert [view["alias"] for view in asked["views"]] == ["Original Image", "Edited Image", "Reference Image"]
        # The target's place in px, for the key z.
        assert [view["boxes"] for view in asked["views"]] == [[[20, 20, 44, 44]], [[20, 20, 44, 44]], []]

    def oracle(desk: Open) -> None:
        crop, mask = desk("anna").question("s00", IF, "target 1"), desk("anna").question("s00", VC)
        assert all((view["width"], view["height"]) != (320, 240) and not view["boxes"] for view in crop["views"])
        assert any(view["boxes"] for view in mask["views"])
        for view in (*crop["views"], *mask["views"]):
            assert desk("anna").get(f"/picture/{view['sha256']}")[0] == 200

    assert annotate(edits, "--set", "reference=always", "--out", "one", do=whole)[0] == 0
    code, _, err = annotate(edits, "--set", "mode=oracle", do=oracle)
    assert code == 0, err
    assert (tmp_path / "runs" / "edits-people-oracle" / "run.json").exists()


@pytest.mark.usefixtures("toys")
def test_what_another_role_found_is_not_asked_and_what_rests_on_it_is(
    annotate: Session, editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_CALLS", str(tmp_path / "calls"))
    edits = draw_edits(tmp_path / "edits", 1)
    rows = (edits / "metadata.jsonl").read_text().replace("Make square 0 red.", "Keep all. [objects=cup,cat]")
    (edits / "metadata.jsonl").write_text(rows)
    words = ("--protocol", "objects", "--backend", "toy/x", "--set", "role.parser=toy/y")
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
    assert rated(tmp_path / "run") == {("", "s00", 0, "", "kept"): {"anna": 0.5}}


@pytest.mark.usefixtures("toys")
def test_the_option_that_abstains_is_a_skipped_question(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)
    row = {**json.loads((edits / "metadata.jsonl").read_text()), "question": "Which?", "options": ["red", "cannot tell"]}
    (edits / "metadata.jsonl").write_text(json.dumps({**row, "answer": "red"}))

    def do(desk: Open) -> None:
        asked = desk("anna").question("s00", "accuracy")
        assert desk("anna").answer(asked, "cannot tell")[0] == 200
        assert [q["state"] for q in desk("anna").queue()] == ["skipped"]

    code, _, err = annotate(edits, "--protocol", "choice", "--out", "run", do=do)
    assert code == 0, err
    assert given(tmp_path / "run") == {("anna", "s00", "accuracy"): "(abstained)"}


def two_editors(folder: Path) -> Path:
    edits = draw_edits(folder, 2)
    rows = [json.loads(line) for line in (edits / "metadata.jsonl").read_text().splitlines()]
    for row, editor in zip(rows, ("left", "right"), strict=True):
        row |= {"id": "s", "editor": editor, "instruction": "Make it red.", "source_file_name": "source/s00.png"}
    (edits / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return edits


def test_pairs_are_shown_in_both_orders_and_stored_as_if_they_were_not_exchanged(annotate: Session, tmp_path: Path) -> None:
    """Anna prefers the edit by "right", wherever it stands; Ben prefers what is shown first, which is no preference."""
    edits = two_editors(tmp_path / "edits")
    firsts: dict[str, list[str]] = {}

    def do(desk: Open) -> None:
        shas = {s.edited.sha256: key for key, s in RunStore.read(tmp_path / "run").samples.items() if s.edited}
        for rater in ("anna", "ben", *"abcdefgh"):
            for one in desk(rater).queue():
                asked = desk(rater).get("/question", id=one["id"])[1]
                # Neither editor is named.
                assert (one["sample"], one["scope"]) == ("s", "two edits") and "left" not in json.dumps(asked)
                assert [view["alias"] for view in asked["views"]] == ["Original Image", "Edit A", "Edit B"]
                shown = [shas[view["sha256"]] for view in asked["views"][1:]]
                firsts.setdefault(rater, []).append(shown[0])
                if rater in ("anna", "ben"):
                    said = ("Edit A", "Edit B")[shown.index("right/s")] if rater == "anna" else "Edit A"
                    assert desk(rater).answer(asked, said)[0] == 200
                    assert desk(rater).get("/question", id=one["id"])[1]["given"]["answer"] == said

    code, _, err = annotate(edits, "--protocol", "pairwise", "--criteria", "if", "--out", "run", do=do)
    assert code == 0, err
    # Both orders are asked, and the two are shown in opposite orders; chance decides which one first.
    assert all(sorted(shown) == ["left/s", "right/s"] for shown in firsts.values())
    assert len({shown[0] for shown in firsts.values()}) == 2
    anna = [one.finding for one in RunStore.read(tmp_path / "run").people.values() if one.rater == "anna"]
    assert {finding.about.key: finding.value for finding in anna} == {"left/s": -1.0, "right/s": 1.0}
    assert {(line["rater"], line.get("swapped", False)) for line in lines(tmp_path / "run")} == {
        ("anna", firsts["anna"][0] != "left/s"), ("ben", firsts["ben"][0] != "left/s"),
    }  # fmt: skip
    ratings = {key[0]: by_rater for key, by_rater in rated(tmp_path / "run").items()}
    # The share of pairs that are won; one that is won in one order only is a tie.
    assert ratings == {"left": {"anna": 0.0, "ben": 0.5}, "right": {"anna": 1.0, "ben": 0.5}}


def test_only_named_raters_may_answer_and_any_name_where_none_is_given(annotate: Session, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)

    def named(desk: Open) -> None:
        for address in ("/queue", "/rate"):
            status, told = desk("zoe").get(address)
            assert status == 404 and told["error"] == "'zoe' is none of the raters: anna"
        page = desk("anna").get("/")[1].decode()
        assert "anna" in page and "0 of 2 answered" in page and "Your name" not in page

    def anybody(desk: Open) -> None:
        assert b"Your name" in desk("zoe").get("/")[1]
        assert desk("<b>zoe</b>").get("/rate")[0] == 200 and b"<b>zoe" not in desk("<b>zoe</b>").get("/rate")[1]
        assert {desk(name).get("/rate")[0] for name in ("adjudicated", " ", "a\nb", "")} == {404}

    assert annotate(edits, "--raters", "anna", "--out", "run", do=named)[0] == 0
    assert annotate("run", do=anybody)[0] == 0


def test_skip_and_change_append_and_the_last_word_counts(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        anna = desk("anna")
        asked = anna.question("s00", IF)
        assert anna.answer(asked, "Wrong Action", "Too blue.")[0] == 200
        assert anna.get("/queue")[1]["latest"] == asked["id"]
        assert anna.question("s00", IF)["given"] == {"answer": "Wrong Action", "note": "Too blue."}
        status, told = anna.answer(asked, None)
        assert status == 422 and told["error"] == "a question that is skipped needs a reason"
        assert anna.answer(asked, None, "I cannot tell")[1]["stored"] == {"answer": None, "note": "I cannot tell"}
        # Half a character, as a field that cuts an emoji leaves it.
        cut = {"rater": "anna", "id": asked["id"], "task_id": asked["task_id"], "answer": None, "note": "cut \ud83d"}
        told = anna.client.post("/answer", content=json.dumps(cut), headers={"Content-Type": "application/json"}).json()
        assert told["stored"] == anna.question("s00", IF)["given"] == {"answer": None, "note": "cut ?"}
        assert anna.queue()[0]["state"] == "skipped"
        assert anna.answer(asked, "Over Modification")[0] == 200
        assert anna.answer(anna.question("s00", VC), None, "A picture is broken")[0] == 200

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    assert len(lines(tmp_path / "run")) == 5
    assert given(tmp_path / "run") == {
        ("anna", "s00", "instruction_following"): "Over Modification", ("anna", "s00", "visual_consistency"): "(abstained)",
    }  # fmt: skip
    # The table has no row for what was skipped.
    assert annotate("run", "--labels", "people.csv")[1] == "1 label in people.csv\n"
    with (tmp_path / "people.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    said = [row[name] for name in ("item", "rater", "criterion", "label")]
    assert said == ["s00", "anna", "instruction_following", "Over Modification"]


def test_two_raters_and_another_process_lose_nothing(annotate: Session, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def do(desk: Open) -> None:
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
        assert [q["state"] for q in desk("dora").queue()].count("answered") == 1

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
        assert status == 500 and "people.jsonl cannot be written: No space left on device" in told["error"]
        assert desk("anna").queue()[0]["state"] == "open"
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


def test_only_the_servers_own_pages_may_answer(annotate: Session, tmp_path: Path) -> None:
    def do(desk: Open) -> None:
        asked, client = desk("anna").question("s00", IF), desk("anna").client
        data = {"rater": "anna", "id": asked["id"], "task_id": asked["task_id"], "answer": "Wrong Action", "note": ""}
        # A page of another site can send a text, and this name is none of the server's.
        assert client.post("/answer", content=json.dumps(data), headers={"Content-Type": "text/plain"}).status_code == 415
        assert client.post("/answer", json=data, headers={"Host": "evil.example"}).status_code == 400
        for wrong in ({**data, "answer": 3}, {**data, "note": "x" * 4001}, {**data, "note": None}, [1]):
            assert client.post("/answer", json=wrong).status_code == 422, wrong
        assert client.post("/answer", content=b"{", headers={"Content-Type": "application/json"}).status_code == 422
        told = client.post("/answer", json={**data, "task_id": "another"})
        assert told.status_code == 422 and "the question was changed; load the page again" in told.json()["error"]
        assert client.post("/answer", json={**data, "id": "0"}).status_code == client.post("/elsewhere").status_code == 404
        assert client.get("/static/%2e%2e/page.py").status_code == 404
        policy = client.get("/rate", params={"rater": "anna"}).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")

    assert annotate(draw_edits(tmp_path / "edits", 1), "--out", "run", do=do)[0] == 0
    assert not (tmp_path / "run" / "people.jsonl").exists()


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
    code, out, err = editloupe("compare", "run", "--format", "json", "--resamples", "100")
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
    assert annotate("run", "--labels", "people.csv")[0] == 0
    code, out, err = editloupe("compare", "--human", "people.csv", "--rubric", tmp_path / "five.toml", "--format", "json")
    assert code == 0, err
    figures = json.loads(out)["raters"][0]["all"]["ceiling"]
    assert round(figures["alpha_ordinal"]["value"], 3) == 0.815
