"""Loading rubric files: what is accepted, and what each refusal says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from editloupe.answers import LabelRule, Scale
from editloupe.errors import ConfigError
from editloupe.protocols.base import make_protocol
from editloupe.rubrics import Criterion, Level, Rubric, builtin_rubrics, load_rubric, rubric_path, schema_text
from tests.packages import install

ROOT = Path(__file__).parents[2]
RUBRICS = ROOT / "editloupe" / "rubrics"

GOOD = """
id = "mine"
title = "My rubric"

[criteria.consistency]
name = "Consistency"
short = "CO"
question = "Is the rest the same?"

[[criteria.consistency.levels]]
name = "Bad"
value = 1
description = "It is not."
aliases = ["Poor"]

[[criteria.consistency.levels]]
name = "Good"
value = 3
description = "It is."
"""

SECOND = """
[criteria.sharpness]
name = "Sharpness"
short = "SH"
question = "Is it sharp?"
levels = [{name = "No", value = -1, description = "Blurred."}, {name = "Yes", value = 0.5, description = "Sharp."}]
"""

TWO = '[{name = "A", value = 1, description = "a"}, {name = "B", value = 2, description = "b"}]'

SCALE = """
[criteria.quality]
name = "Quality"
short = "Q"
question = "How good is it?"
scale = {low = 0, high = 10}
penalties = [
  {name = "Blur", low = 2, high = 2, text = "Something is blurred."},
  {name = "A wrong limb", low = 3, high = 5, text = "A limb is missing or added."},
]
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def _load(text: str | bytes) -> Rubric:
        Path("my.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_rubric("my.toml")

    return _load


def _complaints(load, text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value).split("\n")


def test_a_users_own_rubric_has_its_own_labels_and_scale(load) -> None:
    rubric = load(GOOD + SECOND)
    assert [c.id for c in rubric.criteria] == ["consistency", "sharpness"]
    sharpness = rubric.criterion("sh")
    assert (sharpness.lowest.name, sharpness.highest.name) == ("No", "Yes")
    # (0.5 - -1) / (0.5 - -1) * 100 and half of the way
    assert [sharpness.normalise(v) for v in (-1, -0.25, 0.5)] == [0, 50, 100]


def test_a_criterion_with_a_scale_takes_numbers_with_a_reason(load) -> None:
    rubric = load(GOOD + SCALE)
    quality = rubric.criterion("q")
    assert quality.answer() == Scale(low=0, high=10, reason=True) and quality.labels == ()
    assert [(one.name, one.low, one.high) for one in quality.penalties] == [("Blur", 2, 2), ("A wrong limb", 3, 5)]
    # A quarter of the way from 0 to 10.
    assert quality.normalise(2.5) == 25
    assert Rubric.from_json(json.loads(json.dumps(rubric.to_json()))) == rubric
    assert load((GOOD + SCALE).replace("high = 10", "high = 10.0")).digest == rubric.digest
    assert load((GOOD + SCALE).replace("high = 5", "high = 4")).digest != rubric.digest
    whole = load((GOOD + SCALE).replace("high = 10}", "high = 10, whole = true}"))
    assert whole.criterion("q").answer() == Scale(low=0, high=10, whole=True, reason=True)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "scale = {low = 0, high = 10}\n",
            "",
            "criteria.quality: expected levels (labels) or a scale (numbers), found neither",
        ),
        (
            "scale = {low = 0, high = 10}",
            f"levels = {TWO}",
            "criteria.quality: penalties are subtracted on a scale, and this criterion has levels",
        ),
        (
            "penalties = [",
            f"levels = {TWO}\npenalties = [",
            "criteria.quality: expected levels (labels) or a scale (numbers), found both",
        ),
        (
            "{low = 0, high = 10}",
            "{low = 10, high = 0}",
            "criteria.quality.scale: expected finite numbers, low below high; found 10 and 0",
        ),
        (
            "{low = 0, high = 10}",
            "{low = 0, high = inf}",
            "criteria.quality.scale: expected finite numbers, low below high; found 0 and inf",
        ),
        ("{low = 0, high = 10}", "{low = 0}", "criteria.quality.scale.high: is missing"),
        (
            "{low = 0, high = 10}",
            "{low = 0, high = 10, hole = true}",
            "criteria.quality.scale.hole: unknown key; did you mean 'whole'? known here: low, high, whole",
        ),
        (
            "{low = 0, high = 10}",
            "{low = 0, high = 10, whole = 1}",
            "criteria.quality.scale.whole: expected true or false, found the number 1",
        ),
        ("{low = 0, high = 10}", "10", "criteria.quality.scale: expected a table, found the number 10"),
        (
            "low = 3, high = 5",
            "low = 5, high = 3",
            "criteria.quality.penalties[1]: expected 0 < low ≤ high ≤ 10, the width of the scale; found 5 and 3",
        ),
        (
            "low = 3, high = 5",
            "low = -5, high = -3",
            "criteria.quality.penalties[1]: expected 0 < low ≤ high ≤ 10, the width of the scale; found -5 and -3",
        ),
        ("low = 2, high = 2", "low = 2", "criteria.quality.penalties[0].high: is missing"),
        (
            "low = 2, high = 2",
            "low = 2, hihg = 2, high = 2",
            "criteria.quality.penalties[0].hihg: unknown key; did you mean 'high'? known here: name, low, high, text",
        ),
        (
            '"A wrong limb"',
            '"blur"',
            "criteria.quality.penalties[1].name: the penalty 'blur' is already used by criteria.quality.penalties[0].name "
            "(as 'Blur'); each must be unique",
        ),
    ],
)
def test_a_slip_of_a_scale_gives_one_line_with_file_and_key(load, old: str, new: str, complaint: str) -> None:
    assert old in SCALE
    assert _complaints(load, GOOD + SCALE.replace(old, new)) == [f"rubric 'my.toml': {complaint}"]


def test_a_protocol_that_asks_for_labels_refuses_a_scale(load) -> None:
    load(GOOD + SCALE)
    for name in ("dlebench", "pairwise"):
        with pytest.raises(
            ConfigError, match=r"asks for labels \(levels\), and criterion 'quality' of rubric 'mine' has numbers"
        ):
            make_protocol(name, {"rubric": "my.toml"})
        assert make_protocol(name, {"rubric": "my.toml", "criteria": "consistency"}).metrics


def test_the_listing_shows_scales_with_their_penalties(load, editloupe) -> None:
    load(GOOD + SCALE)
    code, said, _ = editloupe("list", "rubrics", "my.toml")
    assert code == 0 and "Quality (Q): 0 to 10" in said and "Consistency (CO)" in said
    rows = [" ".join(line.split()) for line in said.splitlines()]
    assert any("2" in row and "Blur" in row and "Something is blurred." in row for row in rows)
    assert any("3 to 5" in row and "A wrong limb" in row for row in rows)
    bare = (
        'id="bare"\ntitle="Bare"\n[criteria.a]\nname="Light"\nshort="L"\nquestion="?"\nscale={low=0, high=5, whole=true}\n'
    )
    Path("bare.toml").write_text(bare, encoding="utf-8")
    code, said, _ = editloupe("list", "rubrics", "bare.toml")
    assert code == 0 and "Light (L): 0 to 5, whole, no penalties" in said and "Subtract" not in said


def test_the_answer_lists_labels_from_best_to_worst(load) -> None:
    assert load(GOOD).criterion("co").answer().labels == (
        LabelRule(name="Good", value=3.0),
        LabelRule(name="Bad", value=1.0, aliases=("Poor",)),
    )


def test_a_rubric_is_found_by_path_object_as_well(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(GOOD, encoding="utf-8")
    assert load_rubric(file) == load_rubric(str(file))


@pytest.mark.parametrize("key", ["consistency", "CONSISTENCY", "CO", "co"])
def test_a_criterion_is_found_by_id_or_short_name_in_any_case(load, key: str) -> None:
    assert load(GOOD).criterion(key).id == "consistency"


def test_an_unknown_criterion_lists_the_known(load) -> None:
    with pytest.raises(ConfigError, match=r"no criterion 'if'; it has: consistency \(CO\), sharpness \(SH\)"):
        load(GOOD + SECOND).criterion("if")


def test_comments_wrapping_and_number_style_do_not_change_the_digest(load) -> None:
    plain = load(GOOD).digest
    other = GOOD.replace("value = 3", "value = 3.0  # top").replace(
        '"Is the rest the same?"', '"""\n  Is the rest\n  the same?"""'
    )
    assert load("# a comment\r\n" + other.replace("\n", "\r\n")).digest == plain


@pytest.mark.parametrize(
    ("old", "new"),
    [("value = 3", "value = 4"), ("It is not.", "It is not!"), ('"Poor"', '"Weak"'), ("Is the rest", "Was the rest")],
)
def test_every_other_word_changes_the_digest(load, old: str, new: str) -> None:
    assert load(GOOD).digest != load(GOOD.replace(old, new)).digest


def test_the_digests_of_the_built_in_rubrics_are_those_that_runs_have_recorded() -> None:
    assert {name: load_rubric(name).digest for name in builtin_rubrics()} == {
        "dlebench": "1f5219490939d85580987a64a2b609e58b5e5c97c885fb4caa95903bd21bf071",
        "unicbench": "3dc8e40bb5fdf78e51dbd6f799d139b7814311ba1020e0e07c3d7ab885bdc393",
        "unicbench_cn": "a68f4608fedebd34aa95ddee32fad57eba1faa0ffbe0d9bd4ea10a18515c1735",
    }


def test_a_rubric_is_read_back_from_its_json(load) -> None:
    for rubric in (load(GOOD + SECOND), load_rubric("dlebench")):
        assert Rubric.from_json(json.loads(json.dumps(rubric.to_json()))) == rubric


@pytest.mark.parametrize("criteria", [None, {}, [], [{"id": "c"}], [1]])
def test_a_recorded_rubric_of_another_shape_is_refused(criteria: object) -> None:
    with pytest.raises(ConfigError, match="rubric 'r': "):
        Rubric.from_json({"id": "r", "title": "R", "criteria": criteria})  # type: ignore[dict-item]


def test_a_rubric_cannot_be_changed(load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(GOOD).criteria[0].levels[0].value = 7


def test_a_criterion_has_its_id_from_its_table_alone(load) -> None:
    assert _complaints(load, GOOD.replace('short = "CO"', 'short = "CO"\nid = "other"')) == [
        "rubric 'my.toml': criteria.consistency.id: unknown key; the id of a criterion is the name of its table"
    ]


def test_a_byte_order_mark_does_no_harm(load) -> None:
    assert load(b"\xef\xbb\xbf" + GOOD.encode()).id == "mine"


def test_a_rubric_can_be_built_in_code() -> None:
    level = Level(name="Good", value=1, description="It is.")
    criterion = Criterion(
        id="c", name="C", short="C", question="?", levels=(Level(name="Bad", value=0, description="x"), level)
    )
    rubric = Rubric(id="r", title="R", criteria=(criterion,))
    assert rubric.criterion("c").highest is level
    assert len(rubric.digest) == 64


def test_two_levels_with_one_value_are_named_with_file_and_key(load) -> None:
    assert _complaints(load, GOOD.replace("value = 1", "value = 3")) == [
        "rubric 'my.toml': criteria.consistency.levels: two levels have the value 3; values must differ"
    ]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "value = 1",
            "value = 5",
            "criteria.consistency.levels: levels must stand from worst to best, values ascending; found 5, 3",
        ),
        ("value = 3", "value = inf", "criteria.consistency.levels[1].value: inf is not a finite number"),
        ("value = 3", "value = nan", "criteria.consistency.levels[1].value: nan is not a finite number"),
        ("value = 3", 'value = "3"', "criteria.consistency.levels[1].value: expected a number, found the text '3'"),
        (
            "value = 3",
            "value = true",
            "criteria.consistency.levels[1].value: expected a number, found the truth value True",
        ),
        ("value = 3\n", "", "criteria.consistency.levels[1].value: is missing"),
        ('name = "Good"', 'name = ""', "criteria.consistency.levels[1].name: is empty; expected text"),
        ('name = "Good"', 'name = "  "', "criteria.consistency.levels[1].name: is empty; expected text"),
        ('name = "Good"', "name = 3", "criteria.consistency.levels[1].name: expected text in quotes, found the number 3"),
        ('"It is."', '"\\n"', "criteria.consistency.levels[1].description: is empty; expected text"),
        ('["Poor"]', '"Poor"', "criteria.consistency.levels[0].aliases: expected a list, found the text 'Poor'"),
        ('["Poor"]', '[""]', "criteria.consistency.levels[0].aliases[0]: is empty; expected text"),
        ('["Poor"]', "[1]", "criteria.consistency.levels[0].aliases[0]: expected text in quotes, found the number 1"),
        ('id = "mine"', "", "id: is missing"),
        (
            'id = "mine"',
            'id = "my rubric"',
            "id: 'my rubric' may hold letters, digits, _ and - only, and starts with a letter",
        ),
        ('question = "Is the rest the same?"', "", "criteria.consistency.question: is missing"),
        ('title = "My rubric"', 'title = ["a"]', "title: expected text in quotes, found the list ['a']"),
        ('title = "My rubric"', 'title = "T"\nsource = "a book"', "source: expected a table, found the text 'a book'"),
    ],
)
def test_one_slip_gives_one_line_with_file_and_key(load, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    assert _complaints(load, GOOD.replace(old, new)) == [f"rubric 'my.toml': {complaint}"]


@pytest.mark.parametrize(
    ("old", "new", "start"),
    [
        (
            'description = "It is."',
            'descripton = "It is."',
            "criteria.consistency.levels[1].descripton: unknown key; did you mean 'description'? known here: name, value",
        ),
        (
            "question",
            "qestion",
            "criteria.consistency.qestion: unknown key; did you mean 'question'? known here: name, short, question",
        ),
        (
            'title = "My rubric"',
            'title = "T"\ntitel = "T"',
            "titel: unknown key; did you mean 'title'? known here: id, title, source, criteria",
        ),
        (
            'title = "My rubric"',
            'title = "T"\nsource = {pape = "x"}',
            "source.pape: unknown key; did you mean 'paper'? known here: paper, url",
        ),
        ('title = "My rubric"', 'title = "T"\nxyzzy = 1', "xyzzy: unknown key; known here: id, title, source, criteria"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(load, old: str, new: str, start: str) -> None:
    assert any(line.startswith(f"rubric 'my.toml': {start}") for line in _complaints(load, GOOD.replace(old, new)))


def test_all_slips_are_told_at_once(load) -> None:
    lines = _complaints(load, GOOD.replace("value = 3", 'value = "3"').replace('short = "CO"', "short = 1"))
    assert [line.split(": ")[1] for line in lines] == ["criteria.consistency.short", "criteria.consistency.levels[1].value"]


def test_an_id_that_is_no_word_is_refused(load) -> None:
    assert _complaints(load, GOOD.replace("criteria.consistency", 'criteria."my criterion"'))[0] == (
        "rubric 'my.toml': criteria.my criterion: 'my criterion' may hold letters, digits, _ and - only, "
        "and starts with a letter"
    )


@pytest.mark.parametrize("tail", ["[criteria]", "criteria = {}"])
def test_a_rubric_without_criteria_is_refused(load, tail: str) -> None:
    assert _complaints(load, f'id = "a"\ntitle = "A"\n{tail}') == [
        "rubric 'my.toml': criteria: found 0; expected at least 1 criterion"
    ]


def test_criteria_in_a_list_are_refused_without_printing_them_all(load) -> None:
    (line,) = _complaints(load, 'id = "a"\ntitle = "A"\n' + '[[criteria]]\nname = "long name"\n' * 20)
    assert line.startswith("rubric 'my.toml': criteria: expected a table, found the list [")
    assert len(line) < 140


@pytest.mark.parametrize("levels", ["[]", '[{name = "A", value = 1, description = "x"}]'])
def test_fewer_than_two_levels_are_refused(load, levels: str) -> None:
    text = f'id = "a"\ntitle = "A"\n[criteria.c]\nname = "C"\nshort = "C"\nquestion = "?"\nlevels = {levels}'
    (line,) = _complaints(load, text)
    assert re.fullmatch(r"rubric 'my.toml': criteria.c.levels: found [01]; expected at least 2 levels", line)


@pytest.mark.parametrize("alias", ["GOOD", "**good**", "good."])
def test_an_alias_that_folds_to_another_label_is_refused(load, alias: str) -> None:
    (line,) = _complaints(load, GOOD.replace('"Poor"', f'"{alias}"'))
    assert line == (
        "rubric 'my.toml': criteria.consistency.levels[1].name: the label or alias 'Good' is already used by "
        f"criteria.consistency.levels[0].aliases[0] (as {alias!r}); each must be unique"
    )


def test_a_label_given_twice_is_refused(load) -> None:
    (line,) = _complaints(load, GOOD.replace('"Good"', '"Bad"'))
    assert "criteria.consistency.levels[1].name: the label or alias 'Bad' is already used" in line


def test_the_same_label_may_stand_in_two_criteria(load) -> None:
    assert len(load(GOOD + SECOND.replace('"Yes"', '"Good"')).criteria) == 2


@pytest.mark.parametrize("label", ["Cannot Judge", "cannot-judge"])
def test_the_words_of_abstaining_are_no_label(load, label: str) -> None:
    (line,) = _complaints(load, GOOD.replace('"Good"', f'"{label}"'))
    assert "is kept for judges that cannot decide" in line


@pytest.mark.parametrize(
    ("label", "tag"),
    [
        ("<Start Final Answer>", "<Start Final Answer>"),
        ("Good </Start Final Answer>", "</Start Final Answer>"),
        ("Good <final answer> Bad", "<final answer>"),
        ("<tool_call>", "<tool_call>"),
        ("</ think >ing", "</ think >"),
        ("<End  Thinking>", "<End Thinking>"),
        ("<thinking>", "<thinking>"),
    ],
)
def test_a_label_or_alias_with_a_tag_of_replies_is_refused(load, label: str, tag: str) -> None:
    told = f"holds {tag!r}, a tag that parts a judge's reply; choose other words"
    (line,) = _complaints(load, GOOD.replace('"Good"', f'"{label}"'))
    assert "criteria.consistency.levels[1].name: " in line and line.endswith(told)
    (line,) = _complaints(load, GOOD.replace('"Good"', f'"Good"\naliases = ["ok", "{label}"]'))
    assert "criteria.consistency.levels[1].aliases[1]: " in line and line.endswith(told)


def test_angle_brackets_that_are_no_tag_of_replies_may_stand_in_a_label(load) -> None:
    rubric = load(GOOD.replace('"Good"', '"<b> think of it"'))
    assert rubric.criteria[0].highest.name == "<b> think of it"


def test_a_label_of_punctuation_only_is_refused(load) -> None:
    (line,) = _complaints(load, GOOD.replace('"Good"', '".."'))
    assert "criteria.consistency.levels[1].name: '..' holds no letter, digit or symbol" in line


@pytest.mark.parametrize("pair", [("1", "-1"), ("A", "A-"), ("A", "A+"), ("★", "★★")])
def test_signs_that_carry_meaning_keep_labels_apart(load, pair: tuple[str, str]) -> None:
    rubric = load(GOOD.replace('"Bad"', f'"{pair[0]}"').replace('"Good"', f'"{pair[1]}"'))
    assert [level.name for level in rubric.criteria[0].levels] == list(pair)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            '"SH"',
            '"co"',
            "criteria.sharpness.short: the short name 'co' is already used by criteria.consistency.short (as 'CO')",
        ),
        ('"Sharpness"', '"consistency"', "criteria.sharpness.name: the name 'consistency' is already used by"),
        ("[criteria.sharpness]", "[criteria.Consistency]", "criteria.Consistency: the id 'Consistency' is already used by"),
        ('"SH"', '"Consistency"', "criteria.sharpness.short: 'Consistency' is also the id of another criterion"),
    ],
)
def test_criteria_are_told_apart_by_id_name_and_short_name(load, old: str, new: str, complaint: str) -> None:
    (line,) = _complaints(load, GOOD + SECOND.replace(old, new))
    assert line.startswith(f"rubric 'my.toml': {complaint}")


def test_broken_toml_is_told_with_its_line(load) -> None:
    (line,) = _complaints(load, 'id = "a"\ntitle = \n')
    assert line.startswith("rubric 'my.toml': is not valid TOML: ")
    assert "line 2" in line


def test_the_same_table_twice_is_told_with_its_line(load) -> None:
    (line,) = _complaints(load, GOOD + '[criteria.consistency]\nname = "x"\n')
    assert "is not valid TOML" in line and "line" in line


def test_a_file_that_is_not_utf_8_is_refused(load) -> None:
    assert _complaints(load, GOOD.replace("Bad", "Fä").encode("latin-1"))[0].startswith(
        "rubric 'my.toml': is not UTF-8 (byte "
    )


def test_a_value_too_large_for_a_float_is_refused(load) -> None:
    (line,) = _complaints(load, GOOD.replace("value = 3", "value = 1" + "0" * 400))
    assert line.startswith("rubric 'my.toml': criteria.consistency.levels[1].value: ")


def test_an_empty_file_is_refused(load) -> None:
    assert "rubric 'my.toml': id: is missing" in _complaints(load, "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.toml': cannot be read: No such file or directory; built in: .*dlebench"):
        load_rubric(tmp_path / "gone.toml")


def test_a_folder_is_no_rubric(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it is a folder; expected a file"):
        load_rubric(tmp_path)


def test_a_path_through_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_rubric(tmp_path / "file" / "my.toml")


def test_an_unknown_name_lists_the_built_in_rubrics() -> None:
    with pytest.raises(
        ConfigError,
        match=r"unknown rubric 'dlebnch'; did you mean 'dlebench'\? built in: .*dlebench.*path of its .toml file",
    ):
        load_rubric("dlebnch")


def test_a_package_that_brings_a_protocol_may_bring_a_rubric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The module is not imported for it.
    files = {"toyset/__init__.py": "raise ImportError", "toyset/rubric.toml": GOOD}
    install(tmp_path, monkeypatch, files=files, entry_points={"protocols": {"toy": "toyset.protocol:Toy"}})
    assert builtin_rubrics() == ("dlebench", "toy", "unicbench", "unicbench_cn")
    assert load_rubric("toy").id == "mine"


def test_the_committed_schema_is_the_generated_one() -> None:
    assert (RUBRICS / "schema.json").read_text(encoding="utf-8") == schema_text(), (
        "refresh: python -c 'from editloupe.rubrics import schema_text as s; print(s(), end=\"\")' "
        "> editloupe/rubrics/schema.json"
    )


def test_the_schema_accepts_every_built_in_rubric_and_refuses_slips() -> None:
    schema = json.loads(schema_text())
    jsonschema.Draft7Validator.check_schema(schema)
    check = jsonschema.Draft7Validator(schema)
    for name in builtin_rubrics():
        file = rubric_path(name)
        text = file.read_text(encoding="utf-8")
        schema_path = re.match(r"#:schema (\S+)\n", text)
        assert schema_path is not None and (file.parent / schema_path[1]).resolve() == RUBRICS / "schema.json"
        check.validate(tomllib.loads(text))
    good = tomllib.loads(GOOD)
    assert check.is_valid(good)
    scaled = tomllib.loads(GOOD + SCALE)
    assert check.is_valid(scaled)
    both = {**scaled["criteria"]["quality"], "levels": good["criteria"]["consistency"]["levels"]}
    assert not check.is_valid({**good, "criteria": {"quality": both}})
    assert not check.is_valid({**good, "criteria": {"quality": {"name": "Q", "short": "Q", "question": "?"}}})
    assert not check.is_valid({**good, "titel": "x"})
    assert not check.is_valid({**good, "criteria": {}})
    assert not check.is_valid({**good, "criteria": {"my criterion": good["criteria"]["consistency"]}})


def test_the_example_of_the_documentation_loads_and_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "rubrics.md").read_text(encoding="utf-8")
    rubric, *_ = re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("poster.toml").write_text(rubric, encoding="utf-8")
    checked = 0
    names: dict[str, object] = {}
    for line in code.splitlines():
        statement, _, comment = line.partition("  #")
        promised = re.match(r' *("[^"]*"|[\d.]+)', comment)
        if "=" in statement or "import" in statement:
            exec(statement, names)
        elif promised:
            assert eval(statement, names) == eval(promised.group(1))
            checked += 1
    assert checked == 2


def test_the_messages_of_the_documentation_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "rubrics.md").read_text(encoding="utf-8")
    rubric, *_ = re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
    (messages,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    head, middle, tail = rubric.partition('name = "Off Style"')
    slips = [head + middle + tail.replace("description", "descripton", 1), rubric.replace("value = 2", "value = 1")]
    for slip, message in zip(slips, messages.strip().split("\n"), strict=True):
        Path("poster.toml").write_text(slip, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_rubric("poster.toml")
        assert message in str(caught.value).split("\n")
