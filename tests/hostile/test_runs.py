"""A spoiled run ends every command in a message: no traceback, no hang, nothing outside changed, no address asked."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import polars  # noqa: F401 - read before the clock runs: an import that is cut short spoils every later test
import pytest

from tests.hostile.conftest import Program
from tests.hostile.kinds import KINDS

COMMANDS: dict[str, Callable[[Path, Path], list[str | Path]]] = {
    "show": lambda run, new: ["show", run],
    "show a sample": lambda run, new: ["show", run, "s01"],
    "show a difference": lambda run, new: ["show", run, "s01", "--diff", run.parent / "other"],
    "report": lambda run, new: ["report", run],
    "compare": lambda run, new: ["compare", run, run.parent / "other"],
    "gate": lambda run, new: ["gate", run, "--require", "mean(if) >= 0"],
    "verify": lambda run, new: ["verify", run],
    "replay": lambda run, new: ["replay", run],
    "rescore": lambda run, new: ["rescore", run, "--rubric", "dlebench", "--out", new],
    "fork": lambda run, new: ["fork", run, "s01", "--at", "0", "--criterion", "if", "--backend", "baseline"],
    "merge": lambda run, new: ["merge", new, run],
    "merge into it": lambda run, new: ["merge", run, run.parent / "other"],
    "gc": lambda run, new: ["gc", run, "--delete"],
    "retry": lambda run, new: ["retry", run],
    "judge": lambda run, new: ["judge", run.parent / "data", "--out", run],
    "judge again": lambda run, new: ["judge", "--config", run / "config.yaml", "--out", new],
    "measure": lambda run, new: ["measure", run, "--measures", "mse", "--mask", "none", "--out", new],
    "judge its samples": lambda run, new: ["judge", run, "--out", new],
    "canary": lambda run, new: ["canary", run],
    "pages": lambda run, new: ["export", run, "--html", new],
    "exports": lambda run, new: [
        "export", run, "--otel", new / "a", "--atif", new / "b", "--inspect", new / "c", "--findings", new / "d.csv",
        "--junit", new / "e", "--content",
    ],
    "runs": lambda run, new: ["runs", run.parent],
}  # fmt: skip
"""Every command that opens a run."""
WITH_ANOTHER = ("show a difference", "compare", "merge into it", "runs")


def surroundings(folder: Path) -> dict[str, str]:
    """Every file below a folder and its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


@pytest.fixture
def run(command: str, good: Path, tmp_path: Path, editloupe: Program, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run to spoil, its data, a sound copy for a command that takes one, and a folder outside that must stay."""
    shutil.copytree(good / "run", tmp_path / "run")
    if command in WITH_ANOTHER:
        shutil.copytree(good / "run", tmp_path / "other")
    shutil.copytree(good / "data", tmp_path / "data")
    (tmp_path / "outside" / "pictures").mkdir(parents=True)
    for name in ("victim.jsonl", "victim.json", "victim.sqlite", "pictures/39.png"):
        (tmp_path / "outside" / name).write_text("precious\n")
    # config.yaml names the data from here.
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    return tmp_path / "run"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_on_a_run_that_is_not_spoiled(
    command: str, run: Path, program: Program, asked: list[object]
) -> None:
    code, out, err = program(*COMMANDS[command](run, run.parent / "new"))
    assert (code, asked) == (0, []), out + err


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        # By default `show` meets each kind, and `report` a third of them.
        pytest.param(kind, command, marks=[] if daily else pytest.mark.slow)
        for number, kind in enumerate(KINDS)
        for command in COMMANDS
        for daily in [command == "show" or (command == "report" and number % 3 == 0)]
    ],
)
def test_a_spoiled_run_ends_in_a_message(kind: str, command: str, run: Path, program: Program, asked: list[object]) -> None:
    outside = run.parent / "outside"
    KINDS[kind](run, outside)
    before = [surroundings(run.parent / name) for name in ("outside", "data")]
    code, out, err = program(*COMMANDS[command](run, run.parent / "new"))
    assert "Traceback" not in out + err
    assert "\x1b]0;" not in out + err
    assert code in (0, 1, 2, 3, 4, 5, 100)
    assert [surroundings(run.parent / name) for name in ("outside", "data")] == before
    # A model that the run names is asked at its provider's own address, which is this machine for vLLM.
    assert set(asked) <= {("127.0.0.1", 8000)}
