"""A run to spoil, and what no command may do: reach the network, hang, fill the memory."""

from __future__ import annotations

import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from editloupe.config import RunConfig
from editloupe.runs.execute import execute
from editloupe.runs.setup import open_setup
from tests.conftest import draw_edits

SECONDS = 5
MEMORY = 8 << 30


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
