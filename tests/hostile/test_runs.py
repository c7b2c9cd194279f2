"""A spoiled run ends every command in a message: no traceback, no hang, nothing outside changed, no address asked."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import polars  # noqa: F401 - read before the clock runs: an import that is cut short spoils every later test
import pytest

from tests.conftest import Cli
from tests.hostile.kinds import KINDS

COMMANDS = {
    "show": "show RUN",
    "show a sample": "show RUN s01",
    "report": "report RUN",
    "compare": "compare RUN OTHER",
    "gate": "gate RUN --require mean(if)>=0",
    "verify": "verify RUN --prune",
    "replay": "replay RUN",
    "rescore": "replay RUN --rubric dlebench --out NEW",
    "fork": "replay RUN s01 --at 0 --criterion if --backend baseline",
    "merge": "merge NEW RUN",
    "merge into it": "merge RUN OTHER",
    "retry": "judge RUN --retry",
    "judge": "judge DATA --out RUN",
    "judge again": "judge --config RUN/config.yaml --out NEW",
    "measure": "measure RUN --measures mse --mask none --out NEW",
    "judge its samples": "judge RUN --out NEW",
    "pages": "export RUN --html NEW",
    "exports": "export RUN --otel NEW/a --inspect NEW/c --findings NEW/d.csv --sft NEW/e --content",
    "runs": "show ALL",
    # What writes into a run that was there before.
    "rescore into it": "replay OTHER --rubric dlebench --out RUN",
    "compare into it": "compare RUN OTHER --out RUN",
}
"""Every command that opens a run."""
WITH_ANOTHER = ("compare", "merge into it", "runs", "rescore into it", "compare into it")


def words(command: str, run: Path) -> list[str]:
    """The words of a command on a run, with others in the folders beside it."""
    places = {"RUN": run, "OTHER": run.parent / "other", "NEW": run.parent / "new", "DATA": run.parent / "data"}
    places |= {"ALL": run.parent}
    return [re.sub("|".join(places), lambda found: str(places[found[0]]), word) for word in COMMANDS[command].split()]


def surroundings(folder: Path) -> dict[str, str]:
    """Every file below a folder and its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


@pytest.fixture
def run(command: str, good: Path, tmp_path: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
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
def test_a_command_works_on_a_run_that_is_not_spoiled(command: str, run: Path, program: Cli, asked: list[object]) -> None:
    code, out, err = program(*words(command, run))
    assert (code, asked) == (0, []), out + err


def when(number: int, command: str) -> tuple[pytest.MarkDecorator, ...]:
    """Return when a kind meets a command.

    By default each kind meets `show`, and every third `report`; `slow` tests give each kind two commands more; the campaign
    (`python -m tests.hostile`) has them all.
    """
    if command == "show" or (command == "report" and number % 3 == 0):
        return ()
    return (pytest.mark.slow if (list(COMMANDS).index(command) - 2 * number) % len(COMMANDS) < 2 else pytest.mark.campaign,)


@pytest.mark.parametrize(
    ("kind", "command"),
    [pytest.param(kind, command, marks=when(number, command)) for number, kind in enumerate(KINDS) for command in COMMANDS],
)
def test_a_spoiled_run_ends_in_a_message(kind: str, command: str, run: Path, program: Cli, asked: list[object]) -> None:
    outside = run.parent / "outside"
    KINDS[kind](run, outside)
    before = [surroundings(run.parent / name) for name in ("outside", "data")]
    code, out, err = program(*words(command, run))
    assert "Traceback" not in out + err
    assert "\x1b]0;" not in out + err
    assert code in (0, 1, 2, 3, 4, 5, 100)
    assert [surroundings(run.parent / name) for name in ("outside", "data")] == before
    # A model that the run names is asked at its provider's own address, which is this machine for vLLM.
    assert set(asked) <= {("127.0.0.1", 8000)}
