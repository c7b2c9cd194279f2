"""From a free-text answer to an option: what is accepted, and that nothing is ever guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from editloupe.answers import CANNOT_JUDGE, LabelRule, Labels, OneOf, RecordOf, fold, parse_choice, without_name
from editloupe.errors import ConfigError, ReplyError
from editloupe.rubrics import load_rubric

DLEBENCH = load_rubric("dlebench")
IF = DLEBENCH.criterion("IF").answer()
VC = DLEBENCH.criterion("VC").answer()


def _grammar(*labels: tuple[str, float] | tuple[str, float, tuple[str, ...]]) -> Labels:
    return Labels(labels=tuple(LabelRule(name=x[0], value=x[1], aliases=x[2] if len(x) == 3 else ()) for x in labels))


def _status(answer: str, grammar: Labels = IF) -> str:
    with pytest.raises(ReplyError) as caught:
        grammar.parse(answer)
    return caught.value.status


@pytest.mark.parametrize("rule", [*IF.labels, *VC.labels], ids=lambda rule: rule.name)
@pytest.mark.parametrize(
    "shape",
    [
        "{}",
        " {} \n",
        "{}.",
        "**{}**",
        "*{}*",
        "`{}`",
        "_{}_",
        "***{}***!",
        '"{}"',
        "“{}”",
        "« {} »",
        "<{}>",
        "[{}]",
        "({})",
        "Label: {}",
        "**Label:** {}",
        "**Label: {}**",
        "Final Answer: {}",
        "Final Answer:\n{}",
        "# Final Answer\n\n**{}**",
        "The label is {}.",
        "My final verdict is: {}",
        "Label = {}",
        "→ {}",
        "> {}",
        "- {}",
        "| {} |",
        "Score {value} ({})",
        "{} (Score {value})",
        "{} ({value}/4)",
        "{} - {value} out of 4",
        "{value}: {}",
        "{value} - {}",
        '{{"label": "{}"}}',
        '```json\n{{\n  "label": "{}",\n  "score": {value}\n}}\n```',
        "{}\n{}",
        "Label: {}\nScore: {value}",
        "{}\n\nThe handle was changed as well.",
        "**{}**\nReason: two of 3 windows differ.",
        "Answer: {}\nHence {} it is.",
    ],
)
def test_a_label_with_nothing_but_decoration_is_that_label(rule: LabelRule, shape: str) -> None:
    grammar = IF if rule in IF.labels else VC
    answer = shape.format(rule.name, rule.name, value=f"{rule.value:g}")
    for spelling in (answer, answer.lower(), answer.upper(), answer.replace(" ", "\u00a0")):
        label = grammar.parse(spelling)
        assert (label.name, label.value) == (rule.name, rule.value)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("over-modification", "Over Modification"),
        ("over_modification", "Over Modification"),
        ("OVERMODIFICATION", "Over Modification"),
        ("Over\u2011Modification", "Over Modification"),
        ("Over\nModification", "Over Modification"),
        ("Over\u200b Modification", "Over Modification"),
        ("Ｗｒｏｎｇ　Ａｃｔｉｏｎ", "Wrong Action"),
        ("Localisation failure", "Localization Failure"),
        ("Label: localisation failure.", "Localization Failure"),
    ],
)
def test_spellings_and_aliases_mean_their_label(answer: str, name: str) -> None:
    assert IF.parse(answer).name == name


@pytest.mark.parametrize("answer", ["", " \n\t", "...", "**", "`", "\u200b", "—"])
def test_an_answer_without_words_is_unparsed(answer: str) -> None:
    assert _status(answer) == "unparsed"


@pytest.mark.parametrize(
    "answer",
    [
        "3",
        "Score 3",
        "Score: 3",
        "3/4",
        "Good",
        "Failure",
        "Modification",
        "Single Anomaly",
        "Flawless",
        "Flawless Executions",
        "not Flawless Execution",
        "Not **Flawless Execution**.",
        "no Flawless Execution",
        "non-Flawless Execution",
        "isn't Flawless Execution",
        "The label is not Flawless Execution.",
        "never Flawless Execution",
        "Flawless Execution: no",
        "Flawless Execution: false",
        "≠ Flawless Execution",
        "!= Flawless Execution",
        "~~Flawless Execution~~",
        "❌ Flawless Execution",
        "Anything but Flawless Execution",
        "I lean towards Over Modification",
        "It is close to Over Modification.",
        "hardly Over Modification",
        "Over Modification, maybe",
        "The handle turned red.\nOver Modification",
        "I cannot say.\n\nLabel: Over Modification",
        "Over Modification\nOn reflection it is not Over Modification.",
        "Over Modification\nThis isn't Over Modification",
        "Over Modification 7",
        "Over Modification (75)",
        "Over Modification (3.5)",
        "Over Modification (-3)",
        "Over Modification (3/5)",
        "Over Modification 3 3 4",
        "Over Modification of 4",
        "Cannot Judge this one",
        "sCannot Judge",
        "Overmodifications",
    ],
)
def test_what_is_not_clearly_one_label_is_off_menu(answer: str) -> None:
    assert _status(answer) == "off_menu"


@pytest.mark.parametrize(
    "answer",
    [
        "Over Modification or Wrong Action",
        "Over Modification / Wrong Action",
        "Not Flawless Execution but Over Modification",
        "Over Modification\nWrong Action",
        "Label: Over Modification\nIt could be Wrong Action too.",
        "~~Flawless Execution~~ Over Modification",
        "Over Modification, Cannot Judge",
        "Cannot Judge\nbut perhaps Wrong Action",
        "Localisation Failure (Wrong Action)",
        "Score 2 (Over Modification)",
        "Over Modification\nScore: 4",
        '{"label": "Over Modification", "score": 1}',
        "Cannot Judge (3)",
        "<Over Modification|Wrong Action>",
    ],
)
def test_two_different_labels_are_contradictory(answer: str) -> None:
    assert _status(answer) == "contradictory"


@pytest.mark.parametrize(
    "answer",
    [CANNOT_JUDGE, "cannot judge.", "I cannot judge", "**Cannot Judge**", "Label: Cannot Judge", "Cannot Judge\nToo dark."],
)
def test_a_judge_may_abstain(answer: str) -> None:
    assert _status(answer) == "abstained"


def test_a_message_says_what_was_expected_and_what_was_found() -> None:
    with pytest.raises(ReplyError) as caught:
        IF.parse("so so " * 60)
    message = str(caught.value)
    assert "expected one of Flawless Execution, Over Modification, Wrong Action, Localization Failure" in message
    assert "found 'so so" in message and len(message) < 350


def test_a_number_is_an_answer_only_if_an_alias_says_so() -> None:
    assert _status("2", _grammar(("Bad", 1), ("Good", 2))) == "off_menu"
    scale = _grammar(("Bad", 1, ("1",)), ("Good", 2, ("2",)))
    assert scale.parse("Score: 2").name == "Good"
    assert _status("1 or 2", scale) == "contradictory"


@pytest.mark.parametrize(("answer", "name"), [("B", "B"), ("Answer: (b).", "B"), ("none of these", "None"), ("2", "B")])
def test_options_need_no_values(answer: str, name: str) -> None:
    assert parse_choice(answer, [("A", ("1",)), ("B", ("2",)), ("None", ("none of these",))]) == name


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("$5", ("$5", "$10")),
        ("Answer: $10", ("$5", "$10")),
        ("Which cup?", ("Which cup?", "Which bowl?")),
        ("<b>", ("<b>", "<i>")),
        ("Answer: Confidence: high", ("Confidence: high", "Confidence: low")),
    ],
)
def test_an_option_may_hold_what_else_is_decoration(answer: str, options: tuple[str, ...]) -> None:
    assert OneOf(options=options).parse(answer).name in answer


@pytest.mark.parametrize(
    ("answer", "status"), [("B (7)", "off_menu"), ("A or B", "contradictory"), ("Cannot Judge", "abstained")]
)
def test_options_without_values_take_no_number_beside_them(answer: str, status: str) -> None:
    with pytest.raises(ReplyError) as caught:
        parse_choice(answer, [("A", ()), ("B", ())])
    assert caught.value.status == status


def test_signed_and_decimal_labels_are_not_mixed_up() -> None:
    scale = _grammar(("-1", -1), ("0", 0), ("1", 1), ("1.5", 1.5))
    assert [scale.parse(a).value for a in ("-1", "−1", "+1", "1", "1.5", "Score: -1", "**-1**", "_-1_")] == [
        -1,
        -1,
        1,
        1,
        1.5,
        -1,
        -1,
        -1,
    ]
    assert _status("15", scale) == "off_menu"
    assert _status("-1.5", scale) == "off_menu"


def test_grades_with_plus_and_minus_are_not_mixed_up() -> None:
    assert _status("A-", _grammar(("A", 2), ("B", 1))) == "off_menu"
    grades = _grammar(("A+", 3), ("A", 2), ("A-", 1))
    assert [grades.parse(a).value for a in ("A+", "**A**", "Grade: A-", '"A-".', "_A+_")] == [3, 2, 1, 1, 3]


def test_a_label_inside_a_longer_label_does_not_count_as_named() -> None:
    nested = _grammar(("Edited", 2), ("Not Edited", 1), ("Edited Too Much", 0))
    assert nested.parse("Label: Not Edited").value == 1
    assert nested.parse("**Edited Too Much**").value == 0
    assert nested.parse("edited").value == 2
    assert _status("Edited, Not Edited", nested) == "contradictory"


def test_labels_that_overlap_without_one_holding_the_other_are_both_named() -> None:
    assert _status("label: good fit well", _grammar(("good fit", 1), ("fit well", 2))) == "contradictory"


def test_yes_and_no_are_labels_like_any_other() -> None:
    answers = _grammar(("Yes", 1), ("No", 0))
    assert answers.parse("No.").value == 0
    assert answers.parse("Answer: yes").value == 1
    assert _status("No, yes", answers) == "contradictory"
    assert _status("not yes", answers) == "off_menu"


def test_labels_of_any_script_are_matched() -> None:
    grammar = _grammar(("完美一致", 2), ("Größere Änderung", 1), ("★★", 4), ("★", 3))
    assert grammar.parse("「完美一致」。").value == 2
    assert grammar.parse("GRÖSSERE ÄNDERUNG").value == 1
    assert grammar.parse("★★").value == 4
    assert grammar.parse("Rating: ★").value == 3


def test_an_alias_of_two_labels_decides_nothing_and_labels_that_fold_alike_are_refused() -> None:
    assert _status("fine", _grammar(("Good", 2, ("fine",)), ("Bad", 1, ("Fine!",)))) == "off_menu"
    with pytest.raises(ConfigError, match="a label 'good!' of 'good!' reads the same as 'Good'"):
        _grammar(("Good", 2), ("good!", 1))
    assert _grammar(("Good", 2, ("bad",)), ("Bad", 1)).parse("bad").name == "Bad"


def test_the_table_of_the_documentation_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text(encoding="utf-8")
    section = page.split("## How an answer becomes a label")[1]
    table = section.split("| answer | outcome |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:3]] for row in table.splitlines()[2:]]
    checked = 0
    for answers, outcome in rows:
        for answer in re.findall(r"`([^`]+)`", answers):
            if outcome.startswith("the label"):
                assert IF.parse(without_name(answer, "instruction_following")).name == "Over Modification", answer
            else:
                assert _status(answer) == outcome.strip("`")
            checked += 1
    assert checked >= 14


PHRASES = [fold(phrase) for rule in IF.labels for phrase in (rule.name, *rule.aliases)]
WORDS = sorted(
    {word for phrase in PHRASES for word in phrase.split()}
    | {"not", "score", "label", "3", "4", "\n", "the", "-", "**", "or"}
)


@given(st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_text_without_a_label_never_gives_one(text: str) -> None:
    assume(not any(f" {phrase} " in f" {fold(text)} " for phrase in PHRASES))
    assert _status(text) in {"unparsed", "off_menu", "contradictory", "abstained"}


@given(st.lists(st.sampled_from([*WORDS, *(rule.name for rule in IF.labels)])).map(" ".join))
def test_a_label_that_is_given_was_named_alone_and_without_a_negation(text: str) -> None:
    try:
        label = IF.parse(text)
    except ReplyError:
        return
    folded = f" {fold(text)} "
    named = {rule.name for rule in IF.labels if any(f" {fold(p)} " in folded for p in (rule.name, *rule.aliases))}
    assert named == {label.name}
    assert not {"not", "or"} & set(fold(text.split("\n")[0]).split()) or fold(text.split("\n")[0]) == ""


@given(st.text() | st.text(alphabet="aA1.-+_*<>=! \u0301\u200b≠~\ue000"))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.sampled_from(IF.labels), st.text(max_size=30))
def test_any_text_before_or_after_a_label_gives_that_label_or_none(rule: LabelRule, text: str) -> None:
    for answer in (f"{rule.name} {text}", f"{text} {rule.name}"):
        try:
            found = IF.parse(answer).name
        except ReplyError as error:
            found = error.status
        assert found in {rule.name, "off_menu", "contradictory"}


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_a_schema_that_names_another_one_fetches_nothing(tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch):
    def opened(*args: object, **kwargs: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("urllib.request.urlopen", opened)
    where = (tmp_path / "schema.json").as_uri() if scheme == "file" else "http://example.invalid/schema.json"
    (tmp_path / "schema.json").write_text("{}")
    with pytest.raises(ConfigError, match="nothing is fetched"):
        RecordOf(schema={"$ref": where}).parse("{}")
    within = RecordOf(schema={"$defs": {"a": {"type": "object"}}, "$ref": "#/$defs/a"})
    assert within.parse('{"n": 1.5}').data == {"n": 1.5}
    with pytest.raises(ConfigError, match="cannot be used"):
        RecordOf(schema={"$ref": "#"}).parse("{}")


def test_a_schema_is_a_schema_and_a_number_is_finite():
    with pytest.raises(ConfigError, match="is no JSON Schema"):
        RecordOf(schema={"type": "nothing"})
    for text in ('{"n": 1e999}', '{"n": NaN}', '{"n": -Infinity}'):
        with pytest.raises(ReplyError) as caught:
            RecordOf(schema={"type": "object"}).parse(text)
        assert caught.value.status == "unparsed"
