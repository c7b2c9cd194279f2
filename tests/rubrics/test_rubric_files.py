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
from editloupe.rubrics import Rubric, builtin_rubrics, load_rubric, rubric_path, schema_text
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
    rubric = load(b"\xef\xbb\xbf" + (GOOD + SECOND).encode())
    assert [c.id for c in rubric.criteria] == ["consistency", "sharpness"]
    sharpness = rubric.criterion("sh")
    assert (sharpness.lowest.name, sharpness.highest.name) == ("No", "Yes")
    # (0.5 - -1) / (0.5 - -1) * 100 and half of the way
    assert [sharpness.normalize(v) for v in (-1, -0.25, 0.5)] == [0, 50, 100]
    # From best to worst.
    assert rubric.criterion("CONSISTENCY").answer().labels == (
        LabelRule(name="Good", value=3.0),
        LabelRule(name="Bad", value=1.0, aliases=("Poor",)),
    )
    with pytest.raises(ConfigError, match=r"no criterion 'if'; it has: consistency \(CO\), sharpness \(SH\)"):
        rubric.criterion("if")
    with pytest.raises(ValueError, match="frozen"):
        rubric.criteria[0].levels[0].value = 7


def test_a_criterion_with_a_scale_takes_numbers_with_a_reason(load) -> None:
    rubric = load(GOOD + SCALE)
    quality = rubric.criterion("q")
    assert quality.answer() == Scale(low=0, high=10, reason=True) and quality.labels == ()
    assert [(one.name, one.low, one.high) for one in quality.penalties] == [("Blur", 2, 2), ("A wrong limb", 3, 5)]
    # A quarter of the way from 0 to 10.
    assert quality.normalize(2.5) == 25
    whole = load((GOOD + SCALE).replace("high = 10}", "high = 10, whole = true}"))
    assert whole.criterion("q").answer() == Scale(low=0, high=10, whole=True, reason=True)
    for name in ("dlebench", "pairwise"):
        with pytest.raises(ConfigError, match=r"asks for labels \(levels\), and criterion 'quality' of rubric 'mine' has"):
            make_protocol(name, {"rubric": "my.toml"})
        assert make_protocol(name, {"rubric": "my.toml", "criteria": "consistency"}).metrics


def test_the_digests_of_the_built_in_rubrics_are_those_that_runs_have_recorded() -> None:
    assert {name: load_rubric(name).digest for name in builtin_rubrics()} == {
        "dlebench": "1f5219490939d85580987a64a2b609e58b5e5c97c885fb4caa95903bd21bf071",
        "unicbench": "3dc8e40bb5fdf78e51dbd6f799d139b7814311ba1020e0e07c3d7ab885bdc393",
        "unicbench_cn": "a68f4608fedebd34aa95ddee32fad57eba1faa0ffbe0d9bd4ea10a18515c1735",
    }


LEVEL = "criteria.consistency.levels[1]"
SLIPS = (
    ("scale = {low = 0, high = 10}\n", "", "criteria.quality: expected levels (labels) or a scale (numbers), found neithe"),
    ("scale = {low = 0, high = 10}", f"levels = {TWO}", "criteria.quality: penalties are subtracted on a scale, and this"),
    ("penalties = [", f"levels = {TWO}\npenalties = [", "criteria.quality: expected levels (labels) or a scale (numbers),"),
    ("high = 10}", "high = inf}", "criteria.quality.scale: expected finite numbers, low below high; found 0 and inf"),
    ("low = 0, high = 10", "low = 0", "criteria.quality.scale.high: is missing"),
    ("high = 10}", "high = 10, hole = true}", "criteria.quality.scale.hole: unknown key; did you mean 'whole'? known here"),
    ("high = 10}", "high = 10, whole = 1}", "criteria.quality.scale.whole: expected true or false, found the number 1"),
    ("low = 3, high = 5", "low = 5, high = 3", "criteria.quality.penalties[1]: expected 0 < low ≤ high ≤ 10, the width"),
    ("low = 3, high = 5", "low = -5, high = -3", "criteria.quality.penalties[1]: expected 0 < low ≤ high ≤ 10, the width"),
    ('"A wrong limb"', '"blur"', "criteria.quality.penalties[1].name: the penalty 'blur' is already used by criteria.qual"),
    ("value = 1", "value = 3", "criteria.consistency.levels: two levels have the value 3; values must differ"),
    ("value = 1", "value = 5", "criteria.consistency.levels: levels must stand from worst to best, values ascending; foun"),
    ("value = 3", "value = nan", f"{LEVEL}.value: nan is not a finite number"),
    ("value = 3", 'value = "3"', f"{LEVEL}.value: expected a number, found the text '3'"),
    ("value = 3", "value = true", f"{LEVEL}.value: expected a number, found the truth value True"),
    ("value = 3", "value = 1" + "0" * 400, f"{LEVEL}.value: "),
    ("value = 3\n", "", f"{LEVEL}.value: is missing"),
    ('name = "Good"', 'name = "  "', f"{LEVEL}.name: is empty; expected text"),
    ('name = "Good"', "name = 3", f"{LEVEL}.name: expected text in quotes, found the number 3"),
    ('["Poor"]', '"Poor"', "criteria.consistency.levels[0].aliases: expected a list, found the text 'Poor'"),
    ('["Poor"]', "[1]", "criteria.consistency.levels[0].aliases[0]: expected text in quotes, found the number 1"),
    ('["Poor"]', '["**good**"]', f"{LEVEL}.name: the label or alias 'Good' is already used by criteria.consistency.levels"),
    ('name = "Good"', 'name = "Bad"', f"{LEVEL}.name: the label or alias 'Bad' is already used"),
    ('name = "Good"', 'name = "cannot-judge"', f"{LEVEL}.name: 'cannot-judge' is kept for judges that cannot decide"),
    ('name = "Good"', 'name = ".."', f"{LEVEL}.name: '..' holds no letter, digit or symbol"),
    ('name = "Good"', 'name = "</ think >ing"', f"{LEVEL}.name: '</ think >ing' holds '</ think >', a tag that parts a ju"),
    ('["Poor"]', '["Poor", "<tool_call>"]', "criteria.consistency.levels[0].aliases[1]: '<tool_call>' holds '<tool_call>'"),
    ('id = "mine"', "", "id: is missing"),
    ('id = "mine"', 'id = "my rubric"', "id: 'my rubric' may hold letters, digits, _ and - only, and starts with a letter"),
    ('title = "My rubric"', 'title = ["a"]', "title: expected text in quotes, found the list ['a']"),
    ('title = "My rubric"', 'title = "T"\nsource = "a book"', "source: expected a table, found the text 'a book'"),
    ('title = "My rubric"', 'title = "T"\nsource = {pape = "x"}', "source.pape: unknown key; did you mean 'paper'? known"),
    ('description = "It is."', 'text = "a"\ndescription = "It is."', f"{LEVEL}.text: unknown key"),
    ('short = "CO"', 'short = "CO"\nid = "other"', "criteria.consistency.id: unknown key; the id of a criterion is the na"),
    ('"SH"', '"co"', "criteria.sharpness.short: the short name 'co' is already used by criteria.consistency.short (as 'CO"),
    ('"Sharpness"', '"consistency"', "criteria.sharpness.name: the name 'consistency' is already used by"),
    ("[criteria.sharpness]", "[criteria.Consistency]", "criteria.Consistency: the id 'Consistency' is already used by"),
    ('"SH"', '"Consistency"', "criteria.sharpness.short: 'Consistency' is also the id of another criterion"),
)  # fmt: skip
"""What is written, what in its place, and how the one line of the complaint begins."""


def test_one_slip_gives_one_line_with_file_and_key(load) -> None:
    whole = GOOD + SECOND + SCALE
    wrong = []
    for old, new, start in SLIPS:
        assert old in whole, old
        lines = _complaints(load, whole.replace(old, new, 1))
        if len(lines) != 1 or not lines[0].startswith(f"rubric 'my.toml': {start}"):
            wrong.append((new, lines))
    assert not wrong


def test_a_rubric_is_found_by_path_by_name_and_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my.toml"
    file.write_text(GOOD, encoding="utf-8")
    assert load_rubric(file) == load_rubric(str(file))
    for path, told in (
        (tmp_path / "gone.toml", r"gone.toml': cannot be read: No such file or directory; built in: .*dlebench"),
        (tmp_path, r"it is a folder; expected a file"),
        (file / "my.toml", "cannot be read"),
        ("dlebnch", r"unknown rubric 'dlebnch'; did you mean 'dlebench'\? built in: .*dlebench.*path of its .toml file"),
    ):
        with pytest.raises(ConfigError, match=told):
            load_rubric(path)
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
