"""Settings: by option, by `--set`, by variable and by file; and the lists of what there is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from editloupe.cli.options import SETTINGS
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.store import RunStore
from tests.conftest import ANSWERED, Cli, Edits, refused, words_of

HELP = """
import contextlib, sys, editloupe.cli
sys.argv = ["editloupe", "--help"]
with contextlib.suppress(SystemExit):
    editloupe.cli.main()
"""


def test_every_field_of_a_run_is_a_setting_with_its_help(editloupe: Cli) -> None:
    said = editloupe("list", "settings")[1]
    fields = {*RunConfig.model_fields, *JudgeConfig.model_fields} - {"judge", "name", "option", "role"}
    # Fields whose users' name is another: layout, task_tokens, and so on.
    assert len(SETTINGS) >= len(fields)
    for name, field in SETTINGS.items():
        assert name in said and field.description and words_of(field.description)[:40] in words_of(said), name


def test_the_help_is_short_and_soon_there(editloupe: Cli) -> None:
    # What takes long to import is not imported for a help text.
    code = f"{HELP}\nprint({{'numpy', 'polars', 'PIL', 'pydantic'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, imported = done.stdout.splitlines()
    assert 20 < len(text) <= 60 and imported == "set()"
    said = editloupe("judge", "--help")[1]
    assert len(said.splitlines()) <= 100 and said.count("--") <= 60


def test_an_option_goes_before_the_file(editloupe: Cli, edits: Edits) -> None:
    Path("editloupe.yaml").write_text(
        f"path: {edits(4, instruction=ANSWERED)}\nlimit: 1\ncriteria: if\noption: {{mask_pad: 0.2}}\n"
    )

    def judged(*more: str) -> tuple[int, dict]:
        code, said, told = editloupe("judge", "--format", "json", "--out", f"run{len(list(Path().glob('run*')))}", *more)
        assert code == 0, told
        done = json.loads(said.splitlines()[-1])
        return done["asked"], RunStore.read(Path(done["run"])).options()

    asked, options = judged()
    assert (asked, options["mask_pad"], options["mode"]) == (1, 0.2, "tool")
    asked, options = judged("--set", "mask_pad=0.3", "--mode", "plain")
    assert (asked, options["mask_pad"], options["mode"]) == (1, 0.3, "plain")
    assert judged("--limit", "3")[0] == judged("--set", "limit=3")[0] == 3


def test_what_was_set_is_recorded_and_runs_again(editloupe: Cli, edits: Edits) -> None:
    folder = edits(3, instruction=ANSWERED)
    line = ("--set", "task_tokens=90000", "--set", "mask_pad=0.2", "--set", "remind_answers=false")
    assert editloupe("judge", folder, "--criteria", "if", "--limit", "1", *line, "--out", "one")[0] == 0
    assert yaml.safe_load(Path("one/config.yaml").read_text()) == {
        "path": str(folder),
        "limit": 1,
        "option": {"mask_pad": "0.2", "criteria": "if"},
        "max_tokens": 90000,
        "remind_answers": False,
    }
    code, said, _ = editloupe("judge", "--config", "one/config.yaml", "--out", "two")
    assert code == 0 and "1 of 1 findings judged" in said
    # Another setting is another run, and the message names what differs.
    code, _, told = editloupe("judge", folder, "--criteria", "if", "--out", "one", "--max-turns", "3")
    assert code == 2 and "one belongs to another run, with other settings." in words_of(told)
    assert "--set task_tokens: was 90000, is not set; --max-turns: was 6, is 3" in words_of(told)


def test_every_list_shows_one_by_name(editloupe: Cli) -> None:
    for kind, name, told in (
        ("rubrics", "dlebench", "Scene Collapse"),
        ("protocols", "dlebench", "mask_pad"),
        ("recipes", "edival", "Instructions of a chain"),
        ("backends", "vllm", "vllm/MODEL"),
        ("models", "inpaint", "opencv telea"),
        ("settings", "max_cost", "number"),
    ):
        code, said, _ = editloupe("list", kind, name)
        assert code == 0 and told in words_of(said), kind
        assert name in editloupe("list", kind)[1]
        assert f"did you mean '{name}'" in refused(editloupe, "list", kind, f"{name}x"), kind
    lines = editloupe("list", "protocols", "dlebench", "--format", "json")[1].splitlines()
    (_, metrics, options) = (json.loads(line)["records"] for line in lines)
    assert [metric["Short"] for metric in metrics] == ["IF", "VC"]
    pad = next(option for option in options if option["Name"] == "mask_pad")
    assert (pad["Type"], pad["Default"]) == ("number", "0.05")
