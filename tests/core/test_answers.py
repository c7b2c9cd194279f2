"""Answers are read as they are said, or not at all; every case worked by hand."""

from __future__ import annotations

import pytest

from editloupe.answers import (
    YES_NO,
    AnswerSpec,
    BoxList,
    FreeText,
    LabelledBoxes,
    OneOf,
    RecordOf,
    Scale,
    read_answer,
    reason_in,
)
from editloupe.errors import ReplyError

TEN, HUNDRED, SIGNED = Scale(low=0, high=10), Scale(low=0, high=100), Scale(low=-5, high=5)
REASONED = Scale(low=0, high=10, reason=True)
LABELLED = LabelledBoxes(labels=("A", "B"), list_key="l", label_key="k", name_key="n", image="Edited Image")


@pytest.mark.parametrize(
    ("scale", "text", "value"),
    [
        (TEN, ".5", 0.5),
        (TEN, "**.5**", 0.5),
        (TEN, "...5", 5),
        (TEN, "Score. 5", 5),
        (TEN, "Score - 8", 8),
        (TEN, "7/10", 7),
        (SIGNED, "-3", -3),
        (SIGNED, "–3", -3),
        (SIGNED, "−3", -3),
        (SIGNED, "‑3", -3),
        (SIGNED, "- 3", -3),
        (SIGNED, "Score: − 3", -3),
        (SIGNED, "**– 3**", -3),
        (SIGNED, "(−.5)", -0.5),
        (SIGNED, "3", 3),
        (HUNDRED, "85%", 85),
        (HUNDRED, "85 %", 85),
        (TEN, "\\boxed{7}", 7),
        (TEN, "7</s>", 7),
        (TEN, "7 points", 7),
        (TEN, "I give 7", 7),
        (TEN, "7/10 because the colour is right", 7),
        (TEN, "7: the boat is green, not orange", 7),
        (TEN, "Score: 7\nThe colour is right.", 7),
        (TEN, '{"score": 7, "reason": "The boat is not orange."}', 7),
        (TEN, '```json\n{"score": 7}\n```', 7),
    ],
)
def test_a_number_is_read_as_it_is_said(scale: Scale, text: str, value: float) -> None:
    assert scale.parse(text).value == value


@pytest.mark.parametrize(
    ("scale", "text", "status"),
    [
        (TEN, "5%", "unparsed"),
        (TEN, "5 %", "unparsed"),
        (Scale(low=0, high=1), ".5%", "unparsed"),
        (HUNDRED, "5‰", "unparsed"),
        (HUNDRED, "8²", "unparsed"),
        (HUNDRED, "8₂", "unparsed"),
        (HUNDRED, "8½", "unparsed"),
        (SIGNED, "Score – 3", "unparsed"),
        (SIGNED, "—3", "unparsed"),
        (SIGNED, "--3", "unparsed"),
        (TEN, "–8", "off_menu"),
        (TEN, "- 8", "off_menu"),
        (TEN, "7?", "unparsed"),
        (TEN, "7-", "unparsed"),
        (TEN, "7!", "unparsed"),
        (SIGNED, "score -1?", "unparsed"),
        (TEN, "10.0000000000000000001", "off_menu"),
        (Scale(low=1, high=5, whole=True), "4.9999999999999999999", "off_menu"),
        (TEN, "7, I guess, after a short look", "off_menu"),
        (TEN, "7 but the handle is bent", "off_menu"),
        (TEN, '{"score": 7, "rejected": true}', "off_menu"),
    ],
)
def test_a_number_that_is_not_plain_is_none(scale: Scale, text: str, status: str) -> None:
    with pytest.raises(ReplyError) as raised:
        scale.parse(text)
    assert raised.value.status == status


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ('{"score": 7, "reason": "The cow (left) became { a sheep }."}', 7, "The cow (left) became { a sheep }."),
        ('{"score": 7,\n "reason": "Kept."}', 7, "Kept."),
        ('{"Score": "7/10", "explanation": "Kept."}', 7, "Kept."),
        ('{"score": 7.25, "reason": "x"}', 7.25, "x"),
        ('{"score": 7}', 7, ""),
        ('{"score": 0, "reason": ""}', 0, ""),
        ('```json\n{"score": 8, "reason": "x"}\n```', 8, "x"),
        ('Here is the evaluation:\n{"score": 8, "reason": "x"}', 8, "x"),
        ('{"score": 8, "reason": "x"}\nThe colour of the boat is right.', 8, "x"),
        ('IF: {"score": 8, "reason": "The sign \'IF\': kept"}', 8, "The sign 'IF': kept"),
        ('{"score": 8, "reason": "x"}\n{"score": 8.0, "reason": "y"}', 8, "x"),
        ('{"score": 8, "reason": ["a", "b"]}', 8, '["a", "b"]'),
        ('{"score": 8, "reason": {"The Cup": 2}}', 8, '{"The Cup": 2}'),
        ('{"score": 8, "reason": null}', 8, ""),
        ('{"score": 8, "reason": "The cup.\n\tIt is soft."}', 8, "The cup. It is soft."),
        ("7", 7, ""),
        ("7/10", 7, ""),
        ("\\boxed{7}", 7, ""),
    ],
)
def test_a_number_stands_in_json_with_its_reason_or_alone(text: str, value: float, reason: str) -> None:
    assert read_answer(REASONED, text, "instruction_following").value == value
    assert reason_in(REASONED, text, "instruction_following") == reason


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"score": "eight", "reason": "x"}', "off_menu"),
        ('{"score": 11, "reason": "x"}', "off_menu"),
        ('{"score": -1, "reason": "x"}', "off_menu"),
        ('{"score": "8/5", "reason": "x"}', "contradictory"),
        ("8/5", "contradictory"),
        ('{"score": NaN, "reason": "x"}', "unparsed"),
        ('{"score": Infinity, "reason": "x"}', "unparsed"),
        ('{"score": 1e999, "reason": "x"}', "unparsed"),
        ('{"score": 7, "reason": "x"} {"score": 5, "reason": "y"}', "contradictory"),
        ('[{"score": 7}, {"score": 11}]', "contradictory"),
        ('{"score": 7, "score": 8}', "unparsed"),
        ('{"Score": 7, "score": 5}', "unparsed"),
        ('{"reason": "no score"}', "off_menu"),
        ('{"score": null, "reason": "x"}', "off_menu"),
        ('{"score": true, "reason": "x"}', "off_menu"),
        ('{"score": [7], "reason": "x"}', "off_menu"),
        ('{"score": 7, "rejected": true}', "off_menu"),
        ('{"score": 7, "reason": "cut', "unparsed"),
        ("{}", "off_menu"),
        ('{"score": 7} maybe', "off_menu"),
        ('{"score": 7}?', "off_menu"),
        ('It is not {"score": 7}', "off_menu"),
        ("Cannot Judge", "abstained"),
        ('{"score": "Cannot Judge", "reason": "x"}', "abstained"),
        ("", "unparsed"),
    ],
)
def test_json_that_gives_no_number_has_a_status_and_is_never_clamped(text: str, status: str) -> None:
    with pytest.raises(ReplyError) as raised:
        REASONED.parse(text)
    assert raised.value.status == status
    assert ("expected one JSON object" in str(raised.value)) == (status != "abstained")


def test_no_number_is_a_negative_zero() -> None:
    assert str(REASONED.parse('{"score": -0.0}')) == str(TEN.parse("-0")) == "0"


def test_a_scale_without_a_reason_is_asked_for_as_before() -> None:
    assert "reason" not in TEN.to_json() and Scale.from_json(REASONED.to_json()) == REASONED
    assert TEN.json_schema() == {"type": "number", "minimum": 0, "maximum": 10}
    whole = Scale(low=0, high=10, whole=True, reason=True)
    assert whole.choices() is None and Scale(low=0, high=1, whole=True).choices() == ("0", "1")
    assert whole.json_schema() == {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}, "reason": {"type": "string"}},
        "required": ["score", "reason"],
        "additionalProperties": False,
    }
    with pytest.raises(ReplyError, match=r"expected one JSON object whose score is one whole number"):
        whole.parse('{"score": 7.25, "reason": "x"}')


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes, the boat is orange.", "yes"),
        ("No - the boat stayed red", "no"),
        ("No: it is not orange", "no"),
        ("yes\nThe boat is orange.", "yes"),
        ("No answer.", None),
        ("no idea", None),
        ("There is no answer", None),
        ("This is no edit", None),
        ("No, I cannot tell from this crop", None),
        ("yes, but no", None),
    ],
)
def test_no_is_an_answer_and_no_determiner(text: str, answer: str | None) -> None:
    assert _said(YES_NO, text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *((text, "A") for text in ("A", "a", "A.", "(A)")),
        ("Option A", "A"),
        ("The answer is A.", "A"),
        ("A: the colour is right", "A"),
        ("I choose A.", "A"),
        ("A\nIt is a red boat.", "A"),
        ("A: it is a red boat", "A"),
        ("a level", None),
        ("as a result", None),
        ("A label", None),
        ("A or B", None),
    ],
)
def test_one_letter_is_an_answer_and_no_article(text: str, answer: str | None) -> None:
    assert _said(OneOf(options=("A", "B")), text) == answer


@pytest.mark.parametrize("text", ["\u200b", "\x00", "<|im_end|>", '""', "**", "-", "```\n```"])
def test_a_text_without_any_word_is_no_text(text: str) -> None:
    assert _said(FreeText(), text) is None
    assert _said(FreeText(), "```\nred boat\n```") == _said(FreeText(), "red boat</s>") == "red boat"


def _said(spec: AnswerSpec, text: str) -> str | None:
    try:
        return str(spec.parse(text))
    except ReplyError:
        return None


@pytest.mark.parametrize(
    "spec", [BoxList(), RecordOf(schema={"type": "object"}), LABELLED, TEN, REASONED, FreeText(), YES_NO]
)
@pytest.mark.parametrize("text", ["Cannot Judge", "**cannot judge.**", "```\nCannot Judge\n```", '"Cannot Judge"'])
def test_every_kind_of_question_may_be_abstained_from(spec: AnswerSpec, text: str) -> None:
    with pytest.raises(ReplyError) as raised:
        read_answer(spec, text, "x")
    assert raised.value.status == "abstained"
