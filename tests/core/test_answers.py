"""What an answer spec reads, what it never guesses, and what it asks for; every case worked by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from editloupe.answers import (
    YES_NO,
    AnswerSpec,
    BoxList,
    FreeText,
    LabelRule,
    Labels,
    OneOf,
    RecordOf,
    Scale,
    answer_from_json,
    fold,
    reason_in,
)
from editloupe.errors import ConfigError, ReplyError
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.rubrics import load_rubric
from editloupe.tasks import About, Ask, task_from_json

read_answer = AnswerSpec.parse

METRIC = "instruction_following"
IF = load_rubric("dlebench").criterion("IF").answer()
TEN, HUNDRED, SIGNED = Scale(low=0, high=10), Scale(low=0, high=100), Scale(low=-5, high=5)
WHOLE, REASONED = Scale(low=1, high=5, whole=True), Scale(low=0, high=10, reason=True)


def asked(**fields: Any) -> LabeledBoxes:
    named = {"labels": ("ADD", "EDIT", "REMOVE"), "list_key": "differences", "label_key": "op", "name_key": "object"}
    return LabeledBoxes(**{**named, "image": "Edited Image", "none": "no change", **fields})


LINES, JSON, SURE = asked(form="lines"), asked(), asked(asks_confidence=True)


def entry(op: str = "EDIT", name: str = "cup", box: str = "[100, 200, 300, 400]", more: str = "") -> str:
    return f'{{"op": "{op}", "object": "{name}", "box": {box}{more}}}'


class Found(BaseModel):
    """A record of a user."""

    name: str
    parts: list[Found] = []


SPECS = (
    IF, TEN, WHOLE, REASONED, YES_NO, OneOf(options=("Red", "Blue", "none"), marks=("A", "B", "C"), abstain="none"),
    FreeText(max_words=9), BoxList(), LINES, JSON, SURE, asked(wants_logprobs=True), RecordOf.model(Found),
    RecordOf(schema={"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}),
)  # fmt: skip


def said(spec: AnswerSpec, text: str, metric: str = METRIC) -> str:
    """The answer as text, or the status."""
    try:
        return str(read_answer(spec, text, metric))
    except ReplyError as error:
        return error.status


def check(spec: AnswerSpec, wanted: str, *texts: str) -> None:
    """Each text reads as this answer or status."""
    assert {text: found for text in texts if (found := said(spec, text)) != wanted} == {}, (spec.kind, wanted)


def grammar(*labels: tuple[Any, ...]) -> Labels:
    return Labels(labels=tuple(LabelRule(name=x[0], value=x[1], aliases=x[2] if len(x) == 3 else ()) for x in labels))


# Labels and options


def test_one_option_alone_is_read_and_its_form_falls_away():
    check(
        IF, "Over Modification",
        "Over Modification", " over  modification \n", "**Over Modification**.", "# Over Modification",
        "`over_modification`", "“Over Modification”!", "[[Over Modification]]", "<Over Modification>",
        "「Over-Modification」", "OVER\nMODIFICATION", "Overmodification", "- Over Modification", "→ Over Modification",
        "Over Modification</s>", "<|im_start|>Over Modification<|im_end|>", "Over Modification…",
        "Label: Over Modification", "**Final Verdict**: [[Over Modification]]", "Decision：Over Modification",
        "Rating = Over Modification", "IF: Over Modification", "instruction_following: over modification",
        "Instruction Following (IF): Over Modification", "Over Modification (3)", "Over Modification: 3/4",
        "3 - Over Modification", "Score: 3 (Over Modification)", "Label: Over Modification\nScore: 3",
        "Over Modification\nOver Modification", "<answer>Over Modification</answer>",
        "\\boxed{\\text{Over Modification}}", "```\nOver Modification\n```", '{"answer": "Over Modification"}',
        '{"reason": "Not Wrong Action.", "answer": "over modification"}', '{"IF": "Over Modification"}',
        '```json\n{"label": "Over Modification", "score": 3}\n```',
    )  # fmt: skip


def test_what_stands_beside_an_option_is_never_ignored():
    check(
        IF, "off_menu",
        "Over Modification?", "Over Modification؟", "Over Modification\u037e", "not Over Modification",
        "≠ Over Modification", "!= Over Modification", "!Over Modification", "~~Over Modification~~",
        "❌ Over Modification", "✅ Over Modification", "[ ] Over Modification", "Over Modification, maybe",
        "Over Modification: the sail lost its stripes", "Over Modification -", "Label:", "Over Modification label",
        "Over Modification: score", "<s>Over Modification</s>", "I choose Over Modification",
        "The handle turned red.\nOver Modification", "Verdict: not Over Modification", "Flawless", "Overmodifications",
        "Modification", "3", "Score: 3", "Good", "Over Modification (7)", "Over Modification (3.5)",
        "Over Modification (-3)", "Over Modification (3/5)", "Over Modification²", "If: Over Modification",
        "VC: Over Modification", '{"answer": "Over Modification", "rejected": true}',
        '{"answer": null, "reason": "Over Modification"}', '{"answer": ["Over Modification"]}',
        '{"reason": "Over Modification"}', '{"label": "Over Modification", "result": "rejected"}',
    )  # fmt: skip
    check(
        IF, "contradictory",
        "Over Modification or Wrong Action", "Over Modification\nWrong Action", "Localization Failure (Wrong Action)",
        "Not Flawless Execution but Over Modification", "Over Modification (2)", "2 - Over Modification",
        '{"label": "Over Modification", "score": 1}', '{"answer": "Over Modification", "answer": "Over Modification"}',
        '{"label": "Over Modification", "verdict": "Wrong Action"}', "Cannot Judge, Over Modification",
        "Cannot Judge (3)",
    )  # fmt: skip
    check(IF, "unparsed", "", " \n", "...", "**", "\u200b", "[]", "{}", "Over Modification " * 2_000)
    abstained = '{"reason": "dark", "answer": "Cannot Judge"}'
    check(IF, "abstained", "Cannot Judge", "**cannot judge.**", "Label: Cannot Judge", abstained)


def test_a_message_says_what_was_expected_and_what_was_found():
    with pytest.raises(ReplyError) as caught:
        IF.parse("so so " * 60)
    message = str(caught.value)
    assert "expected one of Flawless Execution, Over Modification, Wrong Action, Localization Failure" in message
    assert "found 'so so" in message and len(message) < 350


def test_options_that_differ_in_one_sign_are_told_apart():
    for options in (
        ("$5", "$10"), ("A+", "A", "A-"), ("<b>", "<i>"), ("Which cup?", "Which bowl?", "Which cup"),
        ("-1", "1", "1.5", "15"), ("A>B", "B>A", "A=B=Good", "A=B=Bad"), ("x²", "x2"), ("完美一致", "★★", "★"),
        ("Confidence: high", "Confidence: low"), ("a", "b", "ab"), ("no", "yes"),
    ):  # fmt: skip
        spec = OneOf(options=options)
        assert {option: said(spec, option) for option in options} == {option: option for option in options}
        assert {said(spec, f"Answer: **{option}**") for option in options} == set(options)
    check(grammar(("A-", 1), ("B", -1)), "off_menu", "A", "-1", "- 1")
    check(grammar(("A-", 1), ("b", -1), ("a", 2)), "contradictory", "a b")


def test_a_label_inside_a_longer_one_is_not_named():
    nested = grammar(("Edited", 2), ("Not Edited", 1), ("Edited Too Much", 0))
    texts = ("edited", "Label: Not Edited", "**Edited Too Much**", "Edited, Not Edited")
    assert [said(nested, text) for text in texts] == ["Edited", "Not Edited", "Edited Too Much", "contradictory"]
    numbered = grammar(("Bad", 1, ("1",)), ("Good", 2, ("2",)))
    assert [said(numbered, text) for text in ("Score: 2", "1 or 2")] == ["Good", "contradictory"]


def test_marks_and_the_abstaining_option_are_options():
    spec = OneOf(options=("Red", "Blue", "none"), marks=("A", "B", "C"), abstain="none")
    check(spec, "Red", "A", "(a).", "Red", "A. Red", "A: red", "Answer: A", '{"reason": "x", "answer": "A"}')
    check(spec, "contradictory", "A. Blue", "A or B", "Red, Blue")
    check(spec, "abstained", "C", "none", "C) none", "Cannot Judge")
    check(spec, "off_menu", "a level", "A label", "A (7)", "The answer is Red")


def test_words_that_could_not_be_told_apart_are_refused():
    same = "reads the same as 'Good'"
    for make, message in (
        (lambda: grammar(("Good", 2), ("good!", 1)), f"a label 'good!' of 'good!' {same}"),
        (lambda: grammar(("Good", 2, ("fine",)), ("Bad", 1, ("Fine!",))), f"a label 'Fine!' of 'Bad' {same}"),
        (lambda: grammar(("Good", 2, ("bad",)), ("Bad", 1)), f"a label 'Bad' of 'Bad' {same}"),
        (lambda: OneOf(options=("yes",)), "at least 2"),
        (lambda: OneOf(options=("yes", ".")), "no letter"),
        (lambda: OneOf(options=("yes", "no"), marks=("A",)), "a mark for each"),
        (lambda: OneOf(options=("yes", "no"), abstain="maybe"), "none of the options"),
        (lambda: Scale(low=1, high=1), "low < high"),
        (lambda: asked(labels=("ADD", "add")), "reads the same"),
        (lambda: asked(name_key="box"), "keys that differ"),
        (lambda: asked(form="lines", asks_confidence=True), "asks_confidence is for form="),
        (lambda: asked(asks_confidence=True, wants_logprobs=True), "one source"),
        (lambda: RecordOf(schema={"type": "nothing"}), "is no JSON Schema"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            make()


# Numbers


def test_a_number_alone_is_read_and_never_clamped():
    for scale, cases in (
        (TEN, {"7": 7, "0.5": 0.5, "**7.**": 7, "7/10": 7, "7 / 10": 7, "+7.50": 7.5, "Score: 7": 7, "-0": 0, "7.": 7}),
        (TEN, {'{"reason": "x", "answer": 7}': 7, '{"score": "7/10"}': 7, '{"answer": 0.00005}': 5e-5}),
        (SIGNED, {"-3": -3, "–3": -3, "−3": -3, "(−0.5)": -0.5, "Score: -3": -3, "+3": 3}),
        (WHOLE, {"4": 4, "4.0": 4, "4/5": 4}),
    ):
        assert {text: scale.parse(text).value for text in cases} == cases
    off = ("11", "-1", "10.0000000000000000001", "7 points", "I give 7", "5%", "8²", "8½", "7, I guess")
    check(TEN, "off_menu", ".5", "...5", "7 score", "7?", "7-", *off)
    twice = ('{"answer": 7, "answer": 8}', '{"answer": 7, "score": 8}')
    check(TEN, "contradictory", "8/5", "7 8", "7, 8", "7:8", "1 000", *twice)
    check(TEN, "unparsed", "", "**", "7" * 30_000)
    check(TEN, "abstained", "Cannot Judge", '{"score": "Cannot Judge"}')
    check(SIGNED, "off_menu", "- 3", "--3", "—3", "Score – 3", "3-4", "score -1?")
    no_number = ('{"answer": true}', '{"answer": [4]}', '{"answer": "four"}')
    check(WHOLE, "off_menu", "4.5", "4.9999999999999999999", "0", *no_number)


def test_a_number_stands_in_json_with_its_reason():
    for text, value, reason in (
        ('{"score": 7, "reason": "The cow (left) became { a sheep }."}', 7, "The cow (left) became { a sheep }."),
        ('{"reason": "The cup.\n\tIt is soft.", "answer": 7.25}', 7.25, "The cup. It is soft."),
        ('```json\n{"score": 8, "reason": ["a", "b"]}\n```', 8, ""),
        ('{"score": 0, "reason": null}', 0, ""),
        ("7", 7, ""),
    ):
        assert read_answer(REASONED, text, METRIC).value == value and reason_in(REASONED, text) == reason
    beside = ('{"score": 7, "rejected": true}', '{"score": 7} maybe', 'It is not {"score": 7}')
    none = ('{"score": 11, "reason": "x"}', '{"reason": "none"}', '{"score": NaN}', '{"score": 1e999}', '{"score": 7, "re')
    check(REASONED, "off_menu", *beside, *none)
    check(REASONED, "contradictory", '{"score": 7, "score": 7}', '{"score": "8/5"}')
    with pytest.raises(ReplyError, match=r"expected one JSON object whose score is one number from 0 to 10; found"):
        REASONED.parse('{"score": 11}')


# Texts, boxes, records


def test_a_text_is_taken_as_it_is():
    check(FreeText(), "off_menu", '{"answer": null}', '{"answer": false}', '{"answer": 3}', '{"answer": ["a"]}')
    spec = FreeText(max_words=3)
    in_json = '{"reason": "x", "answer": "red boat"}'
    check(spec, "red boat", "red boat", " red \n boat", "```\nred boat\n```", in_json)
    check(spec, "unparsed", "\u200b", '""', "**", "```\n```", "...")
    check(spec, "off_menu", "one red boat here")
    assert said(spec, "{red} boat") == "{red} boat" and reason_in(spec, '{"reason": "x"}') == ""


def test_boxes_are_four_numbers_in_thousandths():
    spec = BoxList()
    check(spec, "10, 20, 30, 40", "[[10, 20, 30, 40]]", '{"reason": "x", "answer": [[10, 20, 30, 40.0]]}')
    check(spec, "no box", "[]")
    wrong = ("[[30, 20, 10, 40]]", "[[0, 0, 1, 1001]]", "[[1, 2, 3]]", '[["a"]]', "7", '{"boxes": []}')
    check(spec, "off_menu", *wrong)
    check(spec, "unparsed", "", "none", "[[10, 20", "[[NaN, 1, 2, 3]]", "[" * 200)
    check(spec, "contradictory", '{"answer": [], "answer": []}')


def test_a_record_fits_its_schema_or_is_none(tmp_path: Path):
    spec, whole = RecordOf.model(Found), '{"reason": "x", "answer": {"name": "cup"}}'
    for text in ('{"name": "cup"}', '```json\n{"name": "cup"}\n```', whole):
        assert read_answer(spec, text, METRIC).data == {"name": "cup"}
    assert (reason_in(spec, whole), reason_in(spec, '{"reason": "x"}')) == ("x", "")
    twice = '{"name": "a", "parts": [{"name": 1, "name": 2}]}'
    check(spec, "contradictory", '{"name": "cup", "name": "cup"}', twice)
    check(spec, "off_menu", '{"name": 1}', '{"reason": "x", "answer": {}}', "[]")
    check(spec, "unparsed", "", "cup", '{"name": NaN}', '{"name": 1e999}', '{"name"')
    own = RecordOf(schema={"type": "object", "properties": {"reason": {}, "answer": {"type": "number"}}})
    assert read_answer(own, '{"reason": "x", "answer": 1}', METRIC).data == {"reason": "x", "answer": 1}
    assert read_answer(own, '{"reason": "x", "answer": {"reason": "y", "answer": 1}}', METRIC).data["answer"] == 1
    for ref, message in (((tmp_path / "x.json").as_uri(), "nothing is fetched"), ("#", "cannot be used")):
        with pytest.raises(ConfigError, match=message):
            RecordOf(schema={"$ref": ref}).parse("{}")


# What holds of every spec


def test_every_spec_comes_back_from_its_tasks_json_and_asks_for_a_reason_and_an_answer():
    for spec in SPECS:
        task = Ask(protocol="p", metric="m", about=About(sample_id="s", editor="e"), prompt="What?", answer=spec)
        assert task_from_json(json.loads(json.dumps(task.to_json()))) == task
        schema: Any = spec.json_schema()
        jsonschema.Draft202012Validator.check_schema(schema)
        assert (schema["type"], list(schema["properties"]), schema["required"], schema["additionalProperties"]) == (
            "object", ["reason", spec.key], ["reason", spec.key], False
        )  # fmt: skip
        assert said(spec, "\u200b") == "unparsed" and said(spec, "**Cannot Judge**.") == "abstained"
        assert said(spec, spec.instructions()) in READ_AS_NONE or isinstance(spec, FreeText)
    assert "reason" not in TEN.to_json()
    assert WHOLE.choices() is REASONED.choices() is None


READ_AS_NONE = {"off_menu", "unparsed", "contradictory"}


def test_what_holds_to_the_schema_is_read_and_gives_its_reason():
    for spec, answer in (
        (IF, "Wrong Action"), (WHOLE, 3), (TEN, 2.5), (REASONED, 7), (YES_NO, "no"), (FreeText(), "a cup"),
        (OneOf(options=("Red", "Blue"), marks=("A", "B")), "B"), (BoxList(), [[1, 2, 30, 40]]),
        (LINES, ["EDIT: cup, [0.1, 0.2, 0.3, 0.4]"]), (JSON, [json.loads(entry())]),
        (SURE, [json.loads(entry(more=', "confidence": 0.5'))]),
        (RecordOf.model(Found), {"name": "a", "parts": [{"name": "b"}]}),
    ):  # fmt: skip
        data = {"reason": "I see.", spec.key: answer}
        jsonschema.validate(data, spec.json_schema())
        found = read_answer(spec, json.dumps(data), METRIC)
        assert answer_from_json(json.loads(json.dumps(found.to_json()))) == found
        assert reason_in(spec, json.dumps(data)) == "I see."
    wrong = {"reason": "", "answer": {"name": "a", "parts": [{"name": 1}]}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, RecordOf.model(Found).json_schema())


def test_the_table_of_the_documentation_is_true():
    page = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text(encoding="utf-8")
    table = page.split("## How an answer becomes a label")[1].split("| answer | outcome |")[1].split("\n\n")[0]
    checked = 0
    for answers, outcome in ([cell.strip(" |") for cell in row.split(" | ")] for row in table.splitlines()[2:]):
        for answer in re.findall("`([^`]+)`", answers):
            wanted = "Over Modification" if outcome.startswith("the label") else outcome.strip("`")
            assert said(IF, answer) == wanted, answer
            checked += 1
    assert checked >= 14


words = st.text(min_size=1, max_size=12) | st.text(alphabet="aAbB1.-+_*<>=! ?~²", min_size=1, max_size=6)


def check_own_names(options: list[str]) -> None:
    try:
        spec = OneOf(options=tuple(options))
    except ConfigError:
        return
    for option in options:
        if fold(option) != fold("Cannot Judge") and not option.strip().startswith(("{", "```", "~~~")):
            assert said(spec, option) == option
    assert said(spec, f"{options[0]}\n{options[1]}") not in {*options} - {
        o for o in options if fold(o) == fold("\n".join(options[:2]))
    }


def named(count: int) -> Callable[[], None]:
    """The check on so many lists of options."""
    lists = given(st.lists(words, min_size=2, max_size=5))
    return settings(derandomize=True, deadline=None, max_examples=count)(lists(check_own_names))


@pytest.mark.parametrize("count", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_an_options_own_name_is_that_option_and_two_are_none(count: int):
    named(count)()


@settings(deadline=None)
@given(st.text() | st.text(alphabet="aA1.-+_*<>=! \u0301\u200b≠~\ue000²[]"))
def test_folding_twice_is_folding_once(text: str):
    assert fold(fold(text)) == fold(text)
