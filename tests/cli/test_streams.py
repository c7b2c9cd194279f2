"""Standard output that cannot take what is printed, and names that no file can have: one line, and no work is lost."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from editloupe import cli
from editloupe.runs.store import RunStore
from tests.conftest import draw_edits, final

Run = Callable[..., tuple[int, str, str]]
PROGRAM = [sys.executable, "-c", "from editloupe.cli import main; main()"]
LONG = "n" * 300

ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


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
        (folder / f"{name}.jsonl").write_text(json.dumps(final("Wrong Action", f"I saw “赤”, {name}")) + "\n")
    return folder


JUDGE = ("judge", "edits", "--backend", "scripted/a.jsonl", "--criteria", "if", "--out")


def run(
    folder: Path, *words: str, stdout: Any = subprocess.PIPE, env: dict[str, str] | None = None
) -> tuple[int, bytes, str]:
    """(exit code, standard output, standard error) of the program itself."""
    kept = {name: value for name, value in os.environ.items() if name not in ("LANG", "LC_ALL", "PYTHONUTF8")}
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**kept, **(env or {})},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout or b"", done.stderr.decode(errors="replace")


@contextmanager
def stdout_of(kind: str) -> Iterator[int]:
    """A standard output that takes nothing."""
    if kind == "/dev/full":
        number = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, number = os.pipe()
        os.close(reader)
    yield number
    os.close(number)


def closed(folder: Path, *words: str) -> tuple[int, str]:
    """(exit code, standard error) of the program that was started with `>&-`."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" >&-', *PROGRAM, *words], cwd=folder, stderr=subprocess.PIPE, timeout=60, check=False
    )
    return done.returncode, done.stderr.decode(errors="replace")


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


@pytest.mark.parametrize("kind", ["/dev/full", pytest.param("a reader that has gone", marks=pytest.mark.slow)])
def test_a_run_is_complete_though_its_report_cannot_be_printed(folder: Path, kind: str) -> None:
    out = "runs/full" if kind == "/dev/full" else "runs/gone"
    with stdout_of(kind) as number:
        code, _, err = run(folder, *JUDGE, out, stdout=number)
    assert "Traceback" not in err
    assert len(RunStore.read(folder / out).current()) == 2
    if kind == "/dev/full":
        assert code == 1
        assert err.splitlines()[-1].startswith("error: standard output cannot be written (No space left on device)")
    else:
        assert (code, "error" in err) == (0, False)


def test_a_run_is_complete_though_its_output_was_closed_before_the_start(folder: Path) -> None:
    code, err = closed(folder, *JUDGE, "runs/closed")
    assert (code, "Traceback" in err, "error" in err) == (0, False, False), err
    assert len(RunStore.read(folder / "runs/closed").current()) == 2


COMMANDS = (
    "--version", "--help", "judge --help", "judge edits --dry-run",
    "judge edits --backend scripted/a.jsonl --criteria if --format json --out runs/x",
    "judge runs/ab --retry", "check edits", "show runs", "show runs/ab", "report runs/ab",
    "report runs/ab --format json", "report runs/ab --format md", "report runs/ab --format latex", "build targets edits",
    "replay runs/ab", "replay runs/ab --rubric dlebench", "verify runs/ab", "gate runs/ab --require unjudged<=0.5",
    "compare runs/ab", "compare runs/ab --format json", "export runs/ab --html pages", "list rubrics", "tools",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_fails_at_its_output(folder: Path, words: str) -> None:
    if not (folder / "runs/ab").exists():
        both = ("--backend", "scripted/b.jsonl")
        assert run(folder, *JUDGE[:4], *both, *JUDGE[4:], "runs/ab")[0] == 0
    for encoding, env in ENCODINGS.items():
        code, said, err = run(folder, *words.split(), env=env)
        assert (code, "Traceback" in err) == (0, False), (encoding, err)
        said.decode("cp1252" if encoding == "cp1252" else "ascii")
    for kind, expected in (("/dev/full", 1), ("gone", 0)):
        with stdout_of(kind) as number:
            code, _, err = run(folder, *words.split(), stdout=number)
        assert (code, "Traceback" in err) == (expected, False), (kind, err)
    code, err = closed(folder, *words.split())
    assert (code, "Traceback" in err) == (0, False), err


def test_a_name_that_no_file_can_have_is_one_line(editloupe: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_was_found_is_printed_though_its_file_cannot_be_written(
    editloupe: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert editloupe(*JUDGE, "runs/long")[0] == 0
    for words, told in (
        (("report", "runs/long", "--out", LONG), "rubric dlebench; run runs/long"),
        (("gate", "runs/long", "--require", "unjudged<=0.5", "--junit", f"{LONG}.xml"), "1 of 1 requirements hold"),
        (("build", "targets", "edits", "--out", f"{LONG}.csv"), "edits: 2 from the data's boxes"),
    ):
        code, said, err = editloupe(*words)
        assert code in (1, 2)
        assert told in said
        assert "File name too long" in err.splitlines()[-1]


def test_a_width_of_the_terminal_that_is_none_counts_as_not_set(
    folder: Path, editloupe: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(folder)
    wanted = editloupe("show", "--help")
    for size in ("0", "-5", "", "wide", "²", "9" * 30):
        monkeypatch.setenv("COLUMNS", size)
        assert editloupe("show", "--help") == wanted and wanted[1], size
    monkeypatch.setenv("COLUMNS", "44")
    assert max(map(len, editloupe("show", "--help")[1].splitlines())) == 44
