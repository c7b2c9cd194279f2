"""A run to spoil, and what no command may do: reach the network, hang, fill the memory."""

from __future__ import annotations

import resource
import signal
import socket
import time
from pathlib import Path

import pytest

from editloupe.config import RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.conftest import ANSWERED, Cli, draw_edits

SECONDS = 5
"""Of one core: other processes may keep this one waiting."""
HANGS = 60
"""In s: what takes so long waits for something that never comes."""
MEMORY = 8 << 30


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and the run of the pixel baseline over it."""
    home = tmp_path_factory.mktemp("good")
    data = draw_edits(home / "data", 2, instruction=ANSWERED)
    config = RunConfig.make(path=data, concurrency=1)
    drive(open_setup(config), home / "run", config={"path": "../data", "backend": "baseline"})
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
def program(editloupe: Cli) -> Cli:
    """The program, which may take SECONDS of a core and MEMORY, and may not hang."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {HANGS} s")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        before, (soft, hard) = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
        signal.alarm(HANGS)
        began = time.process_time()
        try:
            return editloupe(*arguments)
        finally:
            took = time.process_time() - began
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            assert took < SECONDS

    return run
