"""What is often typed wrong, and the cure with which it is answered: exit code 2, one message, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

from editloupe.cli import _OLD
from editloupe.errors import nearest
from tests.conftest import Cli, Edits, draw_edits, refused

MISTAKES = {
    "judge nowhere": "no such folder",
    "judge exampels/edits": "no such folder; expected a folder of edits",
    "judge": "PATH is missing",
    "judge edits --backend opanai/gpt-4.1": "did you mean 'openai'? known here: baseline",
    "judge edits --backend gpt9000": "unknown backend 'gpt9000'; expected PROVIDER/MODEL",
    "judge edits --backend openai/m?api_key=abc": "keys come from the environment",
    "judge edits --backend openai/m?base-url=http://127.0.0.1:1/v1": "'base-url'; did you mean 'base_url'?",
    "judge edits --backend=": "--backend is empty",
    "judge edits --criteria beauty": "has no criterion 'beauty'",
    "judge edits --rubric dlebnch": "unknown rubric 'dlebnch'; did you mean 'dlebench'?",
    "judge edits --mode plann": "found 'plann'; did you mean 'plain'?",
    "judge edits --protocol nope": "pairwise",
    "judge edits --tools magic": "unknown tool 'magic'",
    "backends probe openai/gpt-4.1": "editloupe backends probe is now: editloupe check PATH --backend URI",
    "tools serve-mcp": "editloupe tools serve-mcp is now: editloupe tools serve",
    "models": "editloupe models is now: editloupe list models",
    "judge edits --retry offmenu": "--retry offmenu: expected some of",
    "judge edits --layout imagfolder": "unknown layout 'imagfolder'; did you mean 'imagefolder'?",
    "judge edits --edited =x": "expected NAME=DIR",
    "judge edits --sample nope": "no sample nope",
    "judge edits --limit abc": "--limit: expected a whole number, found 'abc'",
    "judge edits --limit 0": "limit: Input should be greater than or equal to 1; found 0",
    "judge edits --max-cost nan": "max_cost: Input should be a finite number",
    "judge edits --columns photo=source": "the role comes first: source=photo",
    "judge edits --out edits": "holds other files and is no run",
    "judge edits --detector no/such/folder/of/weights": "weights",
    "judge edits --format jsn": "'jsn'",
    "judge edits --limt 3": "(Possible options: --limit)",
    "judge edits --set max_run_cost=3": "there is no setting 'max_run_cost'; did you mean 'max_cost'?",
    "judge edits --set mask_padding=1": "there is no setting 'mask_padding'; did you mean 'mask_pad'?",
    "judge edits --set max_reminders=few": "--set max_reminders=few: expected a whole number, found 'few'",
    "judge edits --set reminders": "--set reminders: expected NAME=VALUE",
    "judge edits --limit 3 --set limit=4": "--set limit=4: limit is given by its option too",
    "judge edits --set ablate=black_crops": "no ablation 'black_crops'; did you mean 'black-crops'?",
    "judge edits --set role.decompose=baseline": "protocol 'dlebench' has the roles judge",
    "judge edits --json": "--json is now --format json",
    "judge edits --reply-tokens 200": "--reply-tokens is now --set max_reply_tokens=VALUE",
    "judge edits --no-remind-answers": "--no-remind-answers is now --set remind_answers=false",
    "judge edits --option mask_pad=0.1": "--option is now --set NAME=VALUE",
    "measure edits --sample s0": "--sample is now --set sample=VALUE",
    "build edvial edits --out set": "unknown builder 'edvial'; did you mean 'edival'?",
    "judge edits --retry": "edits is no run folder",
    "judge edits --retry --limit 2": "--retry asks a run's own questions again; leave --limit out",
    "judgee edits": "there is no command 'judgee'; did you mean 'judge'?",
    "judge edits --retry --dry-run": "leave --dry-run out",
    "judge edits --retry --out other": "leave --out out",
    "check --backend baseline --layout pairs": "--layout: only with a folder of edits",
    "tools zoom_in --arg x=1 --out y": "--arg, --out: only with editloupe tools call",
    "tools call zoom_in a.png --root x --tools y": "--root, --tools: only with editloupe tools serve",
    "compare a b --score-columns if=x": "--score-columns: only with --scores FILE",
    "serve --out x --canary 3 --no-score group-mean": "--canary, --no-score: only with --door NAME",
    "serve --out x --door flow-grp": "unknown door 'flow-grp'; did you mean 'flow-grpo'?",
    "check": "name a folder of edits, or a model with --backend",
    "list": "KIND is missing; expected one of protocols, rubrics, recipes, backends, models, settings",
    "tools list": "there is no tool 'list'; expected one of grounding, zoom_in,",
    "tools zoomin": "there is no tool 'zoomin'; did you mean 'zoom_in'?",
    "build nope --help": "unknown builder 'nope'",
    "list protocol": "there is no list of 'protocol'; did you mean 'protocols'?",
    "list protocols dlebnch": "did you mean 'dlebench'?",
    "list settings limt": "there is no setting 'limt'; did you mean 'limit'?",
}


def test_a_usual_mistake_is_answered_with_its_cure(editloupe: Cli, edits: Edits) -> None:
    edits(1)
    draw_edits(Path("examples/edits"), 1)
    wrong = {}
    for words, cure in MISTAKES.items():
        code, said, told = editloupe(*words.split())
        if (code, said) != (2, "") or cure not in " ".join(told.replace("│", " ").split()) or "Traceback" in told:
            wrong[words] = code, said, told
        assert not Path("runs").exists(), words
    assert wrong == {}


def test_an_old_command_is_answered_with_the_new_one(editloupe: Cli) -> None:
    assert {"retry", "runs", "targets", "masks", "fork", "rescore", "protocols", "rubrics", "backends"} <= set(_OLD)
    for old, new in _OLD.items():
        assert f"is now: editloupe {new}" in refused(editloupe, *old.split(), "x"), old


def test_a_line_of_editloupe_yaml_that_does_not_fit_is_named(editloupe: Cli, edits: Edits) -> None:
    folder = edits(1)
    for line, told in (
        ("limits: 3", "there is no setting 'limits'; did you mean 'limit'? `editloupe list settings` prints all of them"),
        ("mask_pad: 0.2", "options of the protocol stand below 'option:'"),
        ("executor: rey", "found 'rey'; did you mean 'ray'?"),
        ("limit: '2'", "limit: Input should be a valid integer"),
        ("judges: {a: {backend: baseline, temprature: 1}}", "no option of a judge; did you mean 'temperature'?"),
    ):
        Path("editloupe.yaml").write_text(f"path: {folder}\n{line}\n")
        assert told in refused(editloupe, "judge"), line


def test_columns_of_other_names_are_asked_for(editloupe: Cli, edits: Edits) -> None:
    # A rating has a word in common with the instruction, and is none.
    for role, name in (("source", "file_name"), ("instruction", "wish"), ("instruction", "human_instruction_following")):
        file = edits(1, name=name) / "metadata.jsonl"
        column = {"source": "source_file_name"}.get(role, role)
        row = json.loads(file.read_text())
        file.write_text(json.dumps({name if key == column else key: value for key, value in row.items()}) + "\n")
        code, _, err = editloupe("check", file.parent)
        assert code == 2 and " ".join(err.split()).endswith(f"Say which it is: --columns {role}=COLUMN"), err


def test_the_nearest_name_is_meant_and_nothing_near_is_nothing() -> None:
    assert nearest("plann", ["tool", "oracle", "plain"]) == "plain"
    assert nearest("foo", ["limit", "lpips"]) == nearest("", ["limit"]) == nearest("limit", []) == ""
