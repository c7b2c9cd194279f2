"""Standard output that cannot take what is printed, and names that no file can have: one line, and no work is lost."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from editloupe import cli
from editloupe.runs.store import RunStore
from tests.conftest import Cli, draw_edits, final, scripted
from tests.forks import ended

LONG = "n" * 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Edits whose names, texts and reasons have characters of many scripts, two judges, and a run of both."""
    folder = tmp_path_factory.mktemp("streams")
    edits = draw_edits(folder / "edits", 2)
    rows = [json.loads(line) for line in (edits / "metadata.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"id": f"赤{number}", "editor": "ed×", "instruction": "Mache “赤” ⟶ rot", "bbox": [20, 20, 44, 44]}
        row |= {"human_if": ["Wrong Action", "Flawless Execution"][number]}
    (edits / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name in ("a", "b"):
        scripted(folder / f"{name}.jsonl", final("Wrong Action", f"I saw “赤”, {name}"))
    return folder


JUDGE = ("judge", "edits", "--backend", "scripted/a.jsonl", "--criteria", "if", "--out")


def printed(words: tuple[str, ...], encoding: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """(exit code, standard output) of a command of this process whose standard output has this encoding."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", shown)
        patch.setattr(sys, "argv", ["editloupe", *words])
        cli.output.out.cache_clear()
        cli.output.err.cache_clear()
        with pytest.raises(SystemExit) as caught:
            cli.main()
    cli.output.out.cache_clear()
    return int(caught.value.code or 0), shown.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def texts(value: Any) -> set[str]:
    """All texts of a JSON value."""
    if isinstance(value, dict | list):
        return {word for item in (value.values() if isinstance(value, dict) else value) for word in texts(item)}
    return {value} if isinstance(value, str) else set()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_characters_that_the_output_lacks_are_escaped(folder: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    out = f"runs/{encoding}"
    code, said = printed((*JUDGE, out), encoding, monkeypatch)
    assert (code, len(RunStore.read(folder / out).current())) == (0, 2)
    # The name of a sample can still be told from another.
    code, said = printed(("show", out), encoding, monkeypatch)
    assert code == 0 and "\\u8d640" in said and "\\u8d641" in said
    code, said = printed(("replay", out, "--rubric", "dlebench", "--format", "json"), encoding, monkeypatch)
    assert code == 0 and {"赤0", "赤1"} <= {word for line in said.splitlines() for word in texts(json.loads(line))}


def test_a_report_for_programs_is_kept_in_files_too(editloupe: Cli, gallery: Path) -> None:
    code, said, err = editloupe("report", gallery, "--format", "json", "--out", "kept")
    assert code == 0 and "files in kept: report.md" in err
    assert json.loads(said) == json.loads(Path("kept/report.json").read_text())
    # Nothing is written unasked where programs read.
    assert editloupe("report", gallery, "--format", "json")[0] == 0 and not (gallery / "report").exists()


def test_a_name_that_no_file_can_have_is_one_line(editloupe: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for words in (
        ("judge", LONG), ("judge", "edits", "--out", LONG), ("judge", "edits", "--backend", f"scripted/{LONG}"),
        ("judge", "edits", "--prompt", LONG), ("judge", "edits", "--config", LONG), ("judge", "edits", "--edited", LONG),
        ("check", LONG), ("show", LONG), ("report", LONG), ("rank", LONG), ("replay", LONG), ("verify", LONG),
        ("view", LONG), ("export", LONG, "--html", "h"), ("compare", LONG, LONG), ("judge", LONG, "--retry"),
        ("merge", "m", LONG),
    ):  # fmt: skip
        code, _, err = editloupe(*words)
        assert code == 2 and LONG in err.splitlines()[-1], (words, err)


def test_a_run_is_complete_though_its_report_cannot_be_printed(folder: Path) -> None:
    code, told = ended(*JUDGE, "runs/full", folder=folder, stdout=Path("/dev/full"))
    assert (code, "Traceback" in told) == (1, False) and "standard output cannot be written" in told, told
    assert len(RunStore.read(folder / "runs/full").current()) == 2
    # Where nothing is buffered, what is printed fails at once.
    at_once = "import sys; sys.stdout.reconfigure(write_through=True)"
    for words in (("show", "runs/full"), ("show", "runs/full", "--format", "json")):
        code, told = ended(*words, folder=folder, stdout=Path("/dev/full"), before=at_once)
        assert (code, "Traceback" in told) == (1, False) and "standard output cannot be written" in told, (words, told)
    code, told = ended("--help", folder=folder, stdout=Path("/dev/full"), before=at_once)
    assert code == 1 and told.splitlines() == ["error: No space left on device"]
