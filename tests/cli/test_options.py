"""RunConfig is the one value behind the command line and config.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from editloupe import plugins
from editloupe.cli.options import ONLY_HERE, PANELS, read_config
from editloupe.config import SHORTHANDS, JudgeConfig, RunConfig
from editloupe.errors import ConfigError
from editloupe.runs.store import RunStore
from tests.toys.install import install

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy package, installed for one test."""
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    plugins.forget()
    yield
    plugins.forget()


def test_the_options_are_the_fields_of_a_run_and_of_its_judge():
    listed = [name for names in PANELS.values() for name in names]
    assert len(listed) == len(set(listed))
    fields = {*RunConfig.model_fields, *JudgeConfig.model_fields} - {"path", "judge", "name"}
    assert set(listed) - set(ONLY_HERE) == fields
    assert set(SHORTHANDS) <= set(ONLY_HERE)
    described = {**RunConfig.model_fields, **JudgeConfig.model_fields}
    assert [name for name, field in described.items() if not field.description] == []


@pytest.mark.parametrize("command", ["judge", "rank", "serve"])
def test_help_groups_the_options_and_says_their_docstrings(editloupe: Run, command: str):
    code, said, _ = editloupe(command, "--help")
    assert code == 0
    panels = re.findall(r"─ (\w+) ─", said)
    shared = ["Protocol", "Judge", "Tools", "Sampling", "Budget", "Output"]
    assert [panel for panel in panels if panel in shared] == shared
    assert str(RunConfig.model_fields["max_tokens"].description) in said


def test_what_a_judge_does_not_set_is_taken_from_the_run():
    hot, cold = RunConfig.each_judge(
        {"temperature": 1.0, "seed": 3, "judges": {"hot": "openai/m", "cold": {"backend": "openai/m", "temperature": 0}}}
    )
    assert (hot.judge.temperature, hot.judge.seed) == (1.0, 3)
    assert (cold.judge.temperature, cold.judge.seed) == (0.0, 3)
    # A value of its own that is the default stays out of the file, where nothing else is set for all.
    assert cold.judge.own() == {"backend": "openai/m", "seed": 3}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bakend": "x"}, "unknown option 'bakend'"),
        ({"limit": 0}, "limit: Input should be greater than or equal to 1"),
        ({"limit": "2"}, "limit: Input should be a valid integer"),
        ({"option": "mask_pad"}, "option: expected names with values"),
        (
            {"option": ["mask_pad=0.1", "mask_pad=0.2"]},
            "mask_pad=0.2: 'mask_pad' is given twice, first as '0.1'; give it once",
        ),
        ({"role": ["parser=baseline", "parser=openai/m"]}, "parser=openai/m: 'parser' is given twice"),
        ({"judges": ["a"]}, "judges: expected names, each with its backend, such as 'small: openai/MODEL'; found ['a']"),
        ({"role": {"decompose": {"backend": "a/b", "heat": 1}}}, "unknown option 'role.decompose.heat'"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, object], told: str):
    with pytest.raises(ConfigError, match=re.escape(told)):
        RunConfig.each_judge(given)


def test_the_command_line_has_precedence_over_the_file_option_by_option(editloupe: Run, edits: Edits, tmp_path: Path):
    folder, out = edits(1), tmp_path / "run"
    words = ("--mode", "plain", "--option", "mask_pad=0.2", "--criteria", "if", "--out", out)
    assert editloupe("judge", folder, *words)[0] == 0
    written = yaml.safe_load((out / "config.yaml").read_text())
    assert written == {
        "path": str(folder),
        "option": {"mask_pad": "0.2", "mode": "plain", "criteria": "if"},
    }
    again = ("judge", "--config", out / "config.yaml", "--option", "mask_pad=0.3", "--mode", "tool", "--out", "other")
    assert editloupe(*again)[0] == 0
    options = RunStore.read(Path("other")).options()
    assert (options["mask_pad"], options["mode"]) == (0.3, "tool")
    assert yaml.safe_load(Path("other/config.yaml").read_text())["option"]["criteria"] == "if"


def test_an_option_that_the_protocol_does_not_have_is_refused_with_those_that_it_has(editloupe: Run, edits: Edits):
    code, _, told = editloupe("judge", edits(1), "--protocol", "pairwise", "--prompt", "mine.md")
    assert code == 2
    assert "unknown option 'prompt'; it has: mode, rubric, criteria" in " ".join(told.split())
    assert not Path("runs").exists()


def test_an_unknown_protocol_and_role_are_refused_with_the_known(editloupe: Run, edits: Edits):
    code, _, told = editloupe("judge", edits(1), "--protocol", "nope")
    assert code == 2 and "dlebench" in told and "pairwise" in told
    code, _, told = editloupe("judge", "edits", "--role", "decompose=baseline")
    assert code == 2 and "protocol 'dlebench' has the roles judge" in told


def test_protocols_are_listed_and_shown(editloupe: Run):
    code, said, _ = editloupe("protocols")
    assert code == 0
    assert re.search(r" dlebench +editloupe [\w.]+ +DLEBench.+ IF, VC", said)
    code, said, _ = editloupe("protocols", "show", "dlebench")
    assert code == 0
    for told in (
        "answers the questions",
        "Flawless Execution",
        "Overall, by edit type",
        "Scores of each editor",
        "tool|oracle|plain",
        "mask_pad",
    ):
        assert told in said
    code, said, _ = editloupe("protocols", "show", "dlebench", "--json")
    found = json.loads(said)
    assert (code, found["name"], list(found["roles"])) == (0, "dlebench", ["judge"])
    assert [metric["short"] for metric in found["metrics"]] == ["IF", "VC"]
    pad = next(option for option in found["options"] if option["name"] == "mask_pad")
    assert (pad["type"], pad["default"], pad["required"]) == ("number", 0.05, False)
    assert pad["help"].startswith("How far a mask is grown")
    code, _, told = editloupe("protocols", "show", "nope")
    assert code == 2 and "dlebench" in told


def test_a_protocol_of_another_package_is_chosen_judged_and_printed_without_labels(
    editloupe: Run, edits: Edits, toys: None, tmp_path: Path
):
    folder = edits(3)
    code, said, _ = editloupe("judge", folder, "--protocol", "pixels")
    assert code == 0
    assert "protocol pixels" in said and "Lower is better: share." in said and "6 of 6 findings judged" in said
    # No model is asked, so no judge names the folder.
    assert [path.name for path in Path("runs").iterdir()] == ["edits-pixels"]
    (editor,) = json.loads(Path("runs/edits-pixels/report/summary.json").read_text())["editors"]
    share, red = (editor["micro"][metric] for metric in ("share", "red"))
    assert (red["judged"], red["asked"]) == (3, 3)
    # Squares of 24 px: 0, 1 and 2 of them on 240×320 px.
    assert share["value"] == pytest.approx((0 + 1 + 2) / 3 * 24 * 24 / (240 * 320), rel=0.05)
    code, _, told = editloupe("judge", folder, "--protocol", "objects")
    assert code == 2 and "--role parser=provider/model" in told


def test_a_dry_run_says_that_further_questions_follow_from_the_answers(
    editloupe: Run, edits: Edits, toys: None, tmp_path: Path
):
    words = ("judge", edits(1), "--backend", "openai/m?env=none", "--dry-run")
    assert "Further questions" not in editloupe(*words)[1]
    code, said, _ = editloupe(*words, "--protocol", "turns", "--json")
    assert (code, json.loads(said)["grows"]) == (0, True)
    assert "Further questions follow from the answers and are not counted." in editloupe(*words, "--protocol", "turns")[1]


@pytest.mark.parametrize(("written", "meant"), [("off", "off"), ("'off'", "off"), ("on", "on")])
def test_on_and_off_in_yaml_are_words(written: str, meant: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"path: edits\nmarks: {written}\n")
    (config,) = RunConfig.each_judge(read_config(path))
    assert config.marks == meant


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--limit", "abc"), "'abc'"),
        (("--limit", "integer"), "'integer'"),
        (("--limit", ""), "''"),
        (("--limit", "-3"), "'-3'"),
        (("--max-cost", "5$"), "'5$'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_quoted(words: tuple[str, str], found: str, editloupe: Run, edits: Edits):
    code, _, err = editloupe("judge", edits(1), *words)
    said = " ".join(err.replace("│", " ").split())
    assert code == 2 and f"Invalid value for '{words[0]}'" in said and f"found {found}" in said


def test_a_value_is_quoted_once(editloupe: Run):
    code, _, err = editloupe("tools", "call", "localize_differences", "a.png", "b.png", "--picture-budget", "nan")
    said = " ".join(err.replace("│", " ").split())
    assert code == 2 and "expected a finite number, found nan" in said and "'nan'" not in said


def test_a_value_of_a_variable_is_quoted(editloupe: Run, edits: Edits, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EDITLOUPE_LIMIT", "many")
    code, _, err = editloupe("judge", edits(1))
    assert code == 2 and "found 'many'" in " ".join(err.replace("│", " ").split())
