"""A spoiled run ends every command in a message: no traceback, no hang, nothing outside changed, no address asked."""

from __future__ import annotations

import hashlib
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars  # noqa: F401 - read before the clock runs: an import that is cut short spoils every later test
import pytest

from editloupe.config import RunConfig
from editloupe.runs.execute import execute
from editloupe.runs.setup import open_setup
from tests.conftest import draw_edits
from tests.hostile.kinds import KINDS

Program = Callable[..., tuple[int, str, str]]
SECONDS = 5
MEMORY = 8 << 30

COMMANDS: dict[str, Callable[[Path, Path], list[str | Path]]] = {
    "show": lambda run, new: ["show", run],
    "show a sample": lambda run, new: ["show", run, "s01"],
    "report": lambda run, new: ["report", run],
    "compare": lambda run, new: ["compare", run, run],
    "gate": lambda run, new: ["gate", run, "--require", "mean(if) >= 0"],
    "verify": lambda run, new: ["verify", run],
    "replay": lambda run, new: ["replay", run],
    "rescore": lambda run, new: ["rescore", run, "--rubric", "dlebench"],
    "fork": lambda run, new: ["fork", run, "s01", "--backend", "baseline", "--out", new],
    "merge": lambda run, new: ["merge", new, run],
    "gc": lambda run, new: ["gc", run, "--delete"],
    "retry": lambda run, new: ["retry", run],
    "canary": lambda run, new: ["canary", run],
    "pages": lambda run, new: ["export", run, "--html", new],
    "runs": lambda run, new: ["runs", run.parent],
}
"""Every command that opens a run."""

QUICK = ("show", "report")


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and the run of the pixel baseline over it."""
    home = tmp_path_factory.mktemp("good")
    data = draw_edits(home / "data", 2)
    config = RunConfig.make(path=data, concurrency=1)
    execute(open_setup(config), home / "run", config={"path": "../data", "backend": "baseline"})
    return home


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The addresses that somebody tried to reach."""
    addresses: list[object] = []

    def refuse(self: socket.socket, address: object) -> None:
        addresses.append(address)
        raise ConnectionRefusedError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return addresses


@pytest.fixture
def in_time() -> Iterator[None]:
    """Ends a command that hangs, or that fills the memory."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def surroundings(folder: Path) -> dict[str, str]:
    """Every file below a folder and its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("command", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.slow) for c in COMMANDS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_spoiled_run_ends_in_a_message(
    kind: str,
    command: str,
    good: Path,
    tmp_path: Path,
    editloupe: Program,
    asked: list[object],
    in_time: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(good / "run", run)
    shutil.copytree(good / "data", tmp_path / "data")
    (outside / "pictures").mkdir(parents=True)
    for name in ("victim.jsonl", "victim.json", "victim.sqlite", "pictures/39.png"):
        (outside / name).write_text("precious\n")
    KINDS[kind](run, outside)
    before = surroundings(outside), surroundings(tmp_path / "data")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    began = time.monotonic()
    code, out, err = editloupe(*COMMANDS[command](run, tmp_path / "new"))
    assert time.monotonic() - began < SECONDS
    assert "Traceback" not in out + err
    assert "\x1b]0;" not in out + err
    assert code in (0, 1, 2, 3, 4, 5, 100)
    assert (surroundings(outside), surroundings(tmp_path / "data")) == before
    assert asked == []
