"""A word that is nearly right is answered with the one that was meant; `show NAME` is the same in every listing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.errors import nearest

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


def words(text: str) -> str:
    return " ".join(text.split())


def renamed(folder: Path, **names: str) -> Path:
    """Give columns of metadata.jsonl other names."""
    file = folder / "metadata.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({names.get(k, k): v for k, v in row.items()}) + "\n" for row in rows))
    return folder


def test_usual_columns_are_taken_and_others_are_asked_for(editloupe: Run, edits: Edits) -> None:
    usual: tuple[dict[str, str], ...] = (
        {"edited_file_name": "edited"},
        {"source_file_name": "source", "edited_file_name": "edited", "instruction": "edit_instruction"},
        {"instruction": "prompt"},
    )
    for number, names in enumerate(usual):
        code, said, err = editloupe("check", renamed(edits(1, name=f"usual{number}"), **names))
        assert code == 0, (names, said, err)
    # A rating has a word in common with the instruction, and is none.
    others = (("source_file_name", "file_name"), ("instruction", "wish"), ("instruction", "human_instruction_following"))
    for name, other in others:
        code, _, err = editloupe("check", renamed(edits(1, name=other), **{name: other}))
        role = name.partition("_")[0]
        assert code == 2 and words(err).endswith(f"Say which it is: --columns {role}=COLUMN"), err


def test_words_beat_letters_and_nothing_near_is_nothing() -> None:
    # difflib has max_run_tokens for it.
    assert nearest("max_run_cost", ["max_run_tokens", "max_run_seconds", "max_cost"]) == "max_cost"
    assert nearest("plann", ["tool", "oracle", "plain"]) == "plain"
    assert nearest("LIMITS", ["limit", "lpips"]) == "limit"
    assert nearest("foo", ["limit", "lpips"]) == nearest("", ["limit"]) == nearest("limit", []) == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--mode", "plann"), "found 'plann'; did you mean 'plain'?"),
        (("--ablate", "black_crops"), "no ablation 'black_crops'; did you mean 'black-crops'? the ablations are"),
        (("--option", "mask_padding=1"), "unknown option 'mask_padding'; did you mean 'mask_pad'? it has"),
        (("--rubric", "dlebnch"), "unknown rubric 'dlebnch'; did you mean 'dlebench'? built in"),
        (("--layout", "imagfolder"), "unknown format 'imagfolder'; did you mean 'imagefolder'? expected"),
        (("--backend", "openai/m?base-url=http://127.0.0.1:1/v1"), "'base-url'; did you mean 'base_url'? known"),
        (("--mode", "xyz"), "found 'xyz'"),
    ],
)
def test_a_value_that_is_nearly_right_is_guessed(editloupe: Run, edits: Edits, given: tuple[str, ...], told: str) -> None:
    code, _, err = editloupe("judge", edits(1), *given)
    assert code == 2
    assert told in words(err) and ("did you mean" in told) == ("did you mean" in err)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("limits: 3", "unknown option 'limits'; did you mean 'limit'? editloupe judge --help lists the options"),
        ("max_run_cost: 3", "unknown option 'max_run_cost'; did you mean 'max_cost'?"),
        (
            "mask_pad: 0.2",
            "unknown option 'mask_pad'; editloupe judge --help lists the options; those of the protocol stand",
        ),
        ("executor: rey", "found 'rey'; did you mean 'ray'?"),
        ("judges: {a: {backend: baseline, temprature: 1}}", "no option of a judge; did you mean 'temperature'? expected"),
    ],
)
def test_a_key_of_editloupe_yaml_that_is_nearly_right_is_guessed(
    editloupe: Run, edits: Edits, line: str, told: str
) -> None:
    Path("editloupe.yaml").write_text(f"path: {edits(1)}\n{line}\n")
    code, _, err = editloupe("judge")
    assert code == 2
    assert told in words(err)


def test_a_variable_that_no_option_has_is_warned_of(editloupe: Run, edits: Edits, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        # Of this command, of others, of the tools, and of the service.
        "EDITLOUPE_FORMAT": "table",
        "EDITLOUPE_TASK_TOKENS": "1",
        "EDITLOUPE_SEGMENTER": "nothing",
        "EDITLOUPE_DEVICE": "cpu",
        "EDITLOUPE_SERVE_TOKEN": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    folder = edits(1)
    assert editloupe("check", folder)[2] == ""
    monkeypatch.setenv("EDITLOUPE_LIMITS", "3")
    monkeypatch.setenv("EDITLOUPE_QWX", "3")
    code, _, err = editloupe("check", folder)
    assert code == 0
    lines = err.splitlines()
    nothing = "is set and has no effect: no option of editloupe has this variable"
    assert lines == [
        f"warning: EDITLOUPE_LIMITS {nothing}; did you mean EDITLOUPE_LIMIT?",
        f"warning: EDITLOUPE_QWX {nothing}",
    ]


@pytest.mark.parametrize(
    ("group", "name", "told"),
    [
        ("rubrics", "dlebench", "Scene Collapse"),
        ("protocols", "dlebench", "mask_pad"),
        ("tools", "zoom_in", "target_image string required"),
        ("backends", "vllm", "--backend vllm/MODEL"),
    ],
)
def test_every_listing_shows_one_by_name(editloupe: Run, group: str, name: str, told: str) -> None:
    code, said, _ = editloupe(group, "show", name)
    assert code == 0
    assert told in words(said)
    # `show` may be left out.
    assert editloupe(group, name) == (0, said, "")
    assert name in editloupe(group)[1]
    code, _, err = editloupe(group, "show", f"{name}x")
    assert code == 2
    assert f"unknown {group.removesuffix('s')} '{name}x'; did you mean" in words(err) and name in err


def test_a_command_of_a_listing_that_is_nearly_right_is_no_name(editloupe: Run) -> None:
    code, _, err = editloupe("backends", "prob")
    assert code == 2 and "Did you mean 'probe'?" in err
    Path("show.toml").write_text("id = 3")
    code, _, err = editloupe("rubrics", "show.toml")
    assert code == 2 and "rubric 'show.toml'" in err


def test_a_tool_that_is_absent_is_said_to_be(editloupe: Run) -> None:
    code, _, err = editloupe("tools", "show", "grounding")
    assert code == 2 and "the tool grounding is absent here: " in err
