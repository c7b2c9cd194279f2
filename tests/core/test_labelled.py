"""Lists of labelled boxes: both forms, one bad entry beside good ones, and probabilities of the labels by hand."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from editloupe.answers import LabelledBoxes, answer_from_json, confidences_in, read_answer
from editloupe.chat import Token
from editloupe.errors import ConfigError, ReplyError
from editloupe.tasks import About, Ask, task_from_json

CASES = json.loads(Path(__file__).with_name("labelled_cases.json").read_text(encoding="utf-8"))


def asked(**fields: Any) -> LabelledBoxes:
    named: dict[str, Any] = {
        "labels": ("ADD", "EDIT", "REMOVE"),
        "list_key": "differences",
        "label_key": "op",
        "name_key": "object",
        "image": "Edited Image",
        "none": "no change",
    }
    return LabelledBoxes(**{**named, **fields})


LINES, JSON, SURE = asked(form="lines"), asked(), asked(asks_confidence=True)


def listed(spec: LabelledBoxes, text: str) -> list[list[Any]]:
    data: Any = spec.parse(text).data
    return [[item["op"], item["object"], item["box"]] for item in data["differences"]]


def dropped(spec: LabelledBoxes, text: str) -> list[str]:
    data: Any = spec.parse(text).data
    return [item["why"] for item in data.get("dropped", ())]


def status(spec: LabelledBoxes, text: str) -> str:
    with pytest.raises(ReplyError) as raised:
        spec.parse(text)
    return raised.value.status


def entry(op: str = "EDIT", name: str = "cup", box: str = "[100, 200, 300, 400]", more: str = "") -> str:
    return f'{{"op": "{op}", "object": "{name}", "box": {box}{more}}}'


def differences(*entries: str) -> str:
    return f'{{"differences": [{", ".join(entries)}]}}'


# Lines


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_what_a_detector_writes_is_read_as_it_is_meant(case: dict[str, Any]) -> None:
    if isinstance(case["wanted"], str):
        assert status(LINES, case["text"]) == case["wanted"]
    else:
        assert listed(LINES, case["text"]) == case["wanted"]
        assert dropped(LINES, case["text"]) == case.get("dropped", [])


@pytest.mark.parametrize(
    "text",
    [
        "EDIT: cup, [0.1, 0.2, 0.3, 0.4]\nADD: dog, [0, 0, 1, 1]",
        "Here are the differences:\n1. EDIT: cup, [0.1, 0.2, 0.3, 0.4]\n2. **Add**: dog, [0, 0, 1, 1]",
        "- edit: cup [0.1,0.2,0.3,0.4]\n- add: dog [0,0,1,1]\nThe dog is new, and the cup is red.",
        "```\nEDIT: cup, [0.1, 0.2, 0.3, 0.4]\nADD: dog, [0, 0, 1, 1]\n```",
        '["EDIT: cup, [0.1, 0.2, 0.3, 0.4]", "ADD: dog, [0, 0, 1, 1]"]',
        "[EDIT: cup, [0.1, 0.2, 0.3, 0.4], ADD: dog, [0, 0, 1, 1]]",
        "Differences: ['EDIT: cup, [0.1, 0.2, 0.3, 0.4]',\n 'ADD: dog, [0, 0, 1, 1]']</s>",
        "EDIT: cup, [1e-1, .2, 0.3, 4e-1] because the colour changed\nADD: dog, [0, 0, 1, 1]",
        '{"differences": [{"op": "EDIT", "object": "cup", "box": [0.1, 0.2, 0.3, 0.4]}, '
        '{"op": "ADD", "object": "dog", "box": [0, 0, 1, 1]}]}',
    ],
)
def test_marks_fences_and_explanations_stand_around_entries(text: str) -> None:
    assert listed(LINES, text) == [["EDIT", "cup", [100, 200, 300, 400]], ["ADD", "dog", [0, 0, 1000, 1000]]]
    assert dropped(LINES, text) == []


@pytest.mark.parametrize(
    "text", ["no change", "No changes.", "NoChange", "There are no differences", "[]", "**no change**"]
)
@pytest.mark.parametrize("spec", [LINES, JSON])
def test_that_nothing_changed_must_be_said(spec: LabelledBoxes, text: str) -> None:
    assert spec.parse(text).data == {"differences": [], "confidence_source": None}


def test_the_questions_own_words_for_none_count_too() -> None:
    assert listed(asked(form="lines", none="all alike"), "All alike.") == []
    assert status(LINES, "All alike.") == "unparsed"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "unparsed"),
        ("…", "unparsed"),
        ("The two images look the same to me.", "unparsed"),
        ("One could write EDIT: cup, [0.1, 0.2, 0.3, 0.4] here.", "unparsed"),
        ("For example:\nEDIT: cup, [0.1, 0.2, 0.3, 0.4]", "off_menu"),
        ("EDIT: cup, [0.1, 0.2, 0.3, 0.4]\nI am not sure of this.", "off_menu"),
        ("no change\nEDIT: cup, [0.1, 0.2, 0.3, 0.4]", "contradictory"),
        ("EDIT: cup, [0.9, 0.2, 0.3, 0.4]\nno change", "contradictory"),
        ("EDIT: cup\nADD: dog, [0.1, 0.1, 0.1, 0.2]", "unparsed"),
        ("Cannot Judge", "abstained"),
    ],
)
def test_what_is_no_answer_has_a_status(text: str, wanted: str) -> None:
    assert status(LINES, text) == wanted


@pytest.mark.parametrize("spec", [LINES, JSON])
@pytest.mark.parametrize(
    "text",
    [
        "no change\n" + 40_000 * " " + "\n",
        "no change\n" + 40_000 * " \t",
        "Assistant: " * 5_000 + "no change",
        "no change" + 40_000 * "\n",
    ],
    ids=["blanks", "tabs", "echoes", "newlines"],
)
def test_a_reply_that_goes_on_without_words_is_read_at_once(spec: LabelledBoxes, text: str) -> None:
    begun = time.process_time()
    answer: Any = read_answer(spec, text, "differences")
    assert answer.data["differences"] == []
    assert time.process_time() - begun < 3


def test_thousands_of_entries_are_read_at_once() -> None:
    text = "\n".join(f"ADD: cup {number}, [0.1, 0.2, 0.3, 0.4]" for number in range(6_000))
    begun = time.process_time()
    assert len(listed(LINES, text)) == 6_000
    assert time.process_time() - begun < 5


def test_all_entries_bad_names_the_first_reason() -> None:
    with pytest.raises(
        ReplyError, match="none of the 2 entries can be read; of the first: its box holds what is no finite"
    ):
        LINES.parse("EDIT: cup, [nan, 0.2, 0.3, 0.4]\nADD: dog, [0.3, 0.1, 0.1, 0.2]")


def test_a_bad_line_loses_no_other() -> None:
    text = """BEARBEITEN: cup, [0.1, 0.2, 0.3, 0.4]
EDIT: cup, [0.1, 0.2, 0.3, 0.4, 0.5]
EDIT: cup, [-0.1, 0.2, 0.3, 0.4]
EDIT: cup, [0.1, 0.2, 0.3, 0.4] would be one
EDIT: cup, [0.1, 0.2, 0.3, 0.4]
EDIT: cup
EDIT: cup, [0.1, 0.2, 0.3, 0.4]
ADD: cup, [100, 200, 300, 400]"""
    assert listed(LINES, text) == [["EDIT", "cup", [100, 200, 300, 400]]]
    assert dropped(LINES, text) == [
        "its label is none of ADD, EDIT, REMOVE",
        "its box has 5 numbers, not four",
        "its box reaches out of the image",
        "words stand behind its box",
        "it has no box",
        "it stands there twice",
        "its box has a number above 1, and is no fraction",
    ]


def test_a_box_that_rounding_makes_empty_is_none() -> None:
    assert dropped(LINES, "ADD: a, [0.1, 0.1, 0.1000001, 0.2]\nADD: b, [0.1, 0.1, 0.2, 0.2]") == [
        "its box is empty, or its corners are swapped"
    ]


# JSON


@pytest.mark.parametrize(
    "text",
    [
        differences(entry(), entry("REMOVE", "dog")),
        "```json\n" + differences(entry("edit"), entry("Remove", "dog")) + "\n```\nThe dog is missing in the edited image.",
        f"[{entry()}, {entry('REMOVE', 'dog')}]",
        f"{entry()}\n{entry('REMOVE', 'dog')}",
        f'{{"reason": "seen", "differences": [{entry()}, {entry("REMOVE", "dog")},]}}',
        "EDIT: cup, [100, 200, 300, 400]\nREMOVE: dog, [100, 200, 300, 400]",
        "The differences:\n" + differences(entry(), entry("REMOVE", "dog")),
    ],
)
def test_a_json_list_is_read_with_what_may_stand_around_it(text: str) -> None:
    assert listed(JSON, text) == [["EDIT", "cup", [100, 200, 300, 400]], ["REMOVE", "dog", [100, 200, 300, 400]]]
    assert dropped(JSON, text) == []


def test_a_bad_json_entry_loses_no_other() -> None:
    text = differences(
        entry("MOVE"),
        entry(box="[0.1, 0.2, 0.3, 1]"),
        entry(box="[0, 0, 1, 1]"),
        entry(box="[1, 2, 3, 1001]"),
        entry(box="[3, 2, 1, 4]"),
        entry(box="[NaN, 2, 3, 4]"),
        entry(box="[1, 2, true, 4]"),
        entry(box='[1, 2, "3", 4]'),
        entry(box="[1, 2, oops]"),
        entry(box="null"),
        '{"op": "ADD", "object": ["a"], "box": [1, 2, 3, 4]}',
        '{"op": "ADD", "op": "EDIT", "object": "a", "box": [1, 2, 3, 4]}',
        entry(box="[1.5, 2, 3, 4]"),
        '{"op": "ADD", "object": "do',
    ).removesuffix("]}")
    assert listed(JSON, text) == [["EDIT", "cup", [1.5, 2, 3, 4]]]
    assert dropped(JSON, text) == [
        "its label is none of ADD, EDIT, REMOVE",
        "its box is written in fractions",
        "its box is written in fractions",
        "its box reaches out of the image",
        "its box is empty, or its corners are swapped",
        "its box holds what is no finite number",
        "its box holds what is no finite number",
        "its box holds what is no finite number",
        "it is not JSON",
        "it has no box",
        "its name is no text",
        "it is not JSON",
        "it is cut off",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"other": 1}', "unparsed"),
        ("{}", "unparsed"),
        ('{"differences": null}', "unparsed"),
        ('{"differences": [', "unparsed"),
        ('{"differences": [{"op": "ADD"', "unparsed"),
        ("For example: " + differences(entry()), "off_menu"),
        (differences(entry()) + "\nno change", "contradictory"),
        (differences(entry()) + differences(), "contradictory"),
        ("[" * 200, "unparsed"),
    ],
)
def test_json_that_is_no_answer_has_a_status(text: str, wanted: str) -> None:
    assert status(JSON, text) == wanted


def test_an_empty_list_is_an_answer_and_two_hundred_entries_are() -> None:
    assert listed(JSON, differences()) == listed(JSON, '{"differences": "no change"}') == []
    assert len(listed(JSON, differences(*(entry(name=f"cup {n}") for n in range(200))))) == 200


def test_an_asked_confidence_stands_where_it_is_a_number_from_0_to_1() -> None:
    text = differences(
        *(entry(name=str(n), more=f', "confidence": {c}') for n, c in enumerate(("0.7", "1.5", '"high"', 1)))
    )
    data: Any = SURE.parse(text).data
    assert [item.get("confidence") for item in data["differences"]] == [0.7, None, None, 1]
    assert data["confidence_source"] == "asked"
    assert JSON.parse(text).data["confidence_source"] is None  # type: ignore[index,call-overload]
    assert SURE.parse(differences(entry())).data["confidence_source"] is None  # type: ignore[index,call-overload]


# The spec


@pytest.mark.parametrize("spec", [LINES, JSON, SURE, asked(wants_logprobs=True)])
def test_a_question_comes_back_from_its_json_and_says_what_it_wants(spec: LabelledBoxes) -> None:
    task = Ask(protocol="p", metric="differences", about=About(sample_id="s", editor="e"), prompt="What?", answer=spec)
    assert task_from_json(json.loads(json.dumps(task.to_json()))) == task
    assert "'Edited Image'" in spec.instructions()
    assert "ADD, EDIT or REMOVE" in spec.instructions()
    assert status(spec, spec.instructions()) in ("unparsed", "off_menu")
    assert ("confidence" in spec.instructions()) == ("confidence" in json.dumps(spec.json_schema())) == spec.asks_confidence
    answer = spec.parse("no change")
    assert answer_from_json(answer.to_json()) == answer


def test_what_holds_to_the_schema_is_read() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for spec, text in (
        (JSON, differences(entry())),
        (SURE, differences(entry(more=', "confidence": 0.5'))),
        (LINES, '["EDIT: cup, [0.1, 0.2, 0.3, 0.4]"]'),
    ):
        jsonschema.validate(json.loads(text), spec.json_schema())
        assert listed(spec, text) == [["EDIT", "cup", [100, 200, 300, 400]]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": ()}, "at least 1"),
        ({"labels": ("ADD", "add")}, "reads the same"),
        ({"name_key": "op"}, "keys that differ"),
        ({"name_key": "box"}, "keys that differ"),
        ({"list_key": "dropped"}, "keys that differ"),
        ({"form": "lines", "asks_confidence": True}, "no place for a confidence"),
        ({"asks_confidence": True, "wants_logprobs": True}, "one source"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asked(**fields)


# Probabilities


WANTS = asked(form="lines", wants_logprobs=True)
NORM = math.log(math.e**2 + math.e + 1)
THREE = (("ADD", 2 - NORM), ("EDIT", 1 - NORM), ("REMOVE", -NORM))
"""The logarithms of the probabilities of logits 2, 1 and 0."""


def spelled(*pieces: str | Token) -> list[Token]:
    return [piece if isinstance(piece, Token) else Token(text=piece, logprob=-0.1) for piece in pieces]


def at(text: str, *top: tuple[str, float]) -> Token:
    return Token(text=text, logprob=dict(top).get(text, -3.0), top=top)


def shares(text: str, *pieces: str | Token, spec: LabelledBoxes = WANTS) -> list[float | None]:
    return confidences_in(spec, text, "differences", spelled(*pieces))


@pytest.mark.parametrize(("op", "share"), [("ADD", 0.6652), ("EDIT", 0.2447), ("REMOVE", 0.0900)])
def test_a_confidence_is_the_labels_share_at_its_token(op: str, share: float) -> None:
    text = f"{op}: cup, [0.1, 0.2, 0.3, 0.4]"
    found = shares(text, "<Start Final Answer>", at(op, *THREE), text.removeprefix(op), "</Start Final Answer>")
    assert found == [pytest.approx(share, abs=5e-5)]
    data: Any = read_answer(WANTS, text, "differences", confidences=found).data
    assert (data["differences"][0]["confidence"], data["confidence_source"]) == (found[0], "logprob")


def test_spellings_of_a_label_add_up_and_other_words_do_not_count() -> None:
    # ADD .3 + .1 + .1 = .5 of .5 + .2 + .1 = .8; "E" begins EDIT alone, "" and "the" nothing, "R" begins REMOVE.
    top = [(" ADD", 0.3), ('"Add', 0.1), ("A", 0.1), ("E", 0.2), ("R", 0.1), (" ", 0.1), ("the", 0.1)]
    text = "ADD: cup, [0.1, 0.2, 0.3, 0.4]"
    assert shares(text, at(" ADD", *((w, math.log(p)) for w, p in top)), text[3:]) == [pytest.approx(0.625)]


def test_a_beginning_that_two_labels_share_tells_nothing() -> None:
    spec = asked(form="lines", labels=("REMOVE", "REPLACE"), wants_logprobs=True)
    text = "REMOVE: cup, [0.1, 0.2, 0.3, 0.4]"
    assert shares(text, at("RE", ("RE", -0.1)), text[2:], spec=spec) == [None]


def test_the_chosen_token_counts_where_it_is_not_among_the_most_probable() -> None:
    text = "ADD: cup, [0.1, 0.2, 0.3, 0.4]"
    token = Token(text="ADD", logprob=math.log(0.1), top=(("EDIT", math.log(0.4)),))
    assert shares(text, token, text[3:]) == [pytest.approx(0.2)]
    assert shares(text, Token(text="ADD", logprob=-0.1), text[3:]) == [None]


def test_each_entry_has_that_of_its_own_label_and_dropped_ones_count() -> None:
    text = "ADD: a, [0, 0, 1, 1]\nMOVE: b, [0, 0, 1, 1]\nEDIT: c, [0, 0, 1, 1]"
    first, second = at("ADD", ("ADD", -0.1)), at("EDIT", *THREE)
    pieces = (first, ": a, [0, 0, 1, 1]\nMOVE: b, [0, 0, 1, 1]\n", second, ": c, [0, 0, 1, 1]")
    found = shares(text, *pieces)
    assert found == [1.0, None, pytest.approx(0.2447, abs=5e-5)]
    data: Any = WANTS.parse(text, confidences=found).data
    assert [(item["object"], item["confidence"]) for item in data["differences"]] == [("a", 1.0), ("c", found[2])]
    # A draft in the thought before is not the answer.
    assert shares(text, "<Start Thinking>EDIT: c, [0, 0, 1, 1]? ", text, "</Start Thinking>", *pieces) == found


def test_json_labels_are_matched_one_to_one_or_not_at_all() -> None:
    spec = asked(wants_logprobs=True)
    text = differences(entry("ADD"), entry("EDIT", "dog"))
    before, between, after = text.split("ADD")[0], text.split("ADD")[1].split("EDIT")[0], text.split("EDIT")[1]
    pieces = (before, at("ADD", *THREE), between, at("EDIT", *THREE), after)
    assert shares(text, *pieces, spec=spec) == [pytest.approx(0.6652, abs=5e-5), pytest.approx(0.2447, abs=5e-5)]
    # The model wrote its boxes in its own convention.
    spoken = [
        Token(text=p.text.replace("[100, 200, 300, 400]", "[1, 2, 3,4]"), logprob=-1, top=p.top) for p in spelled(*pieces)
    ]
    assert confidences_in(spec, text, "differences", spoken)[1] == pytest.approx(0.2447, abs=5e-5)
    unlabelled = differences(entry("ADD"), '{"object": "dog", "box": [1, 2, 3, 4]}')
    assert shares(unlabelled, *spelled(unlabelled), spec=spec) == [None, None]


@pytest.mark.parametrize("pieces", [(), ("another text",), ("ADD: cup, [0.1, 0.2, 0.3",)])
def test_without_the_answers_tokens_there_is_no_confidence(pieces: tuple[str, ...]) -> None:
    text = "ADD: cup, [0.1, 0.2, 0.3, 0.4]"
    assert shares(text, *pieces) == []
    assert shares(text, at("ADD", *THREE), text[3:], spec=LINES) == []
    assert WANTS.parse(text).data["confidence_source"] is None  # type: ignore[index,call-overload]
