"""Ctrl-C in a terminal: waits and retries end at once, calls under way have a grace, and the same command goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs.store import RunStore
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.conftest import Cli, draw_edits, final, until
from tests.terminal import Terminal

CTRL_C, RIGHT = "\x03", says(final("Wrong Action"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with four edits."""
    draw_edits(tmp_path / "edits", 4)
    return tmp_path


def words(server: OpenAIServer) -> tuple[str, ...]:
    backend = f"openai/tiny-vl?base_url={server.url}&env=none"
    return ("judge", "edits", "--backend", backend, "--mode", "plain", "--criteria", "if", "--out", "run")


@contextmanager
def judging(folder: Path, server: OpenAIServer, *more: str, grace_s: float = 5.0) -> Iterator[Terminal]:
    """A terminal in which the edits are judged, two at a time.   more: words of the command line."""
    before = f"from editloupe.cli import output; output.GRACE_S = {grace_s}"
    with Terminal(*words(server), "--concurrency", "2", *more, folder=folder, before=before) as terminal:
        yield terminal


def test_a_wait_for_a_retry_ends_at_once_and_nothing_is_asked_again(folder: Path, editloupe: Cli) -> None:
    # Two calls are answered; the next one is told to wait for a minute, and all wait with it.
    busy = fails(429, headers={"Retry-After": "60"})
    with OpenAIServer(RIGHT, RIGHT, busy) as server:
        with judging(folder, server, grace_s=60) as terminal:
            terminal.wait_for("2 of 4 questions")
            until(lambda: len(server.seen) >= 3)
            # Those that were sent have their answer, and wait.
            time.sleep(0.3)
            asked, pressed = len(server.seen), time.monotonic()
            terminal.press(CTRL_C)
            code, _ = terminal.end()
            seconds = time.monotonic() - pressed
        assert (code, len(server.seen)) == (130, asked)
        assert seconds < 30, "less than the grace of calls under way"
        screen = terminal.screen()
        texts = ("Stopping: nothing more is asked", "2 of 4 findings judged", "The same command continues")
        assert sorted(texts, key=screen.index) == list(texts)
        assert "elapsed" not in screen, "the panel is gone"
        with closing(RunStore.read(folder / "run")) as store:
            assert [finding.status for finding in store.findings.values()] == ["ok", "ok"]
        server.script[:] = [RIGHT]
        assert editloupe(*words(server))[0] == 0
        assert len(server.seen) == asked + 2, "what was judged is not asked again"


def test_a_call_under_way_that_ends_soon_is_recorded(folder: Path) -> None:
    answered = threading.Event()

    def soon(handler: Any, body: dict[str, Any]) -> None:
        answered.wait(30)
        RIGHT(handler, body)

    # The first call of an endpoint goes alone. The second judge is not begun, although the first has no question left.
    more = ("--limit", "3", "--backend", "baseline")
    with OpenAIServer(RIGHT, soon) as server, judging(folder, server, *more) as terminal:
        until(lambda: len(server.seen) == 3)
        terminal.press(CTRL_C)
        terminal.wait_for("Stopping: nothing more is asked")
        answered.set()
        code, drawn = terminal.end(5)
        assert (code, len(server.seen)) == (130, 3)
    assert "3 of 3 findings judged" in drawn
    assert "Judge 2 of 2" not in drawn


@pytest.mark.parametrize(("grace_s", "presses"), [(0.5, 1), (60.0, 2)])
def test_calls_that_do_not_end_are_left_and_a_second_press_ends_all_at_once(
    folder: Path, grace_s: float, presses: int
) -> None:
    late = threading.Event()

    def never(handler: Any, body: dict[str, Any]) -> None:
        late.wait(60)
        handler.close_connection = True

    with OpenAIServer(RIGHT, never) as server:
        with judging(folder, server, grace_s=grace_s) as terminal:
            until(lambda: len(server.seen) == 3)
            pressed = time.monotonic()
            # A plain kill is the same as Ctrl-C.
            os.kill(terminal.process.pid, signal.SIGTERM)
            terminal.wait_for("Stopping: nothing more is asked")
            if presses == 2:
                terminal.press(CTRL_C)
            code, drawn = terminal.end()
            seconds = time.monotonic() - pressed
        late.set()
    assert (code, len(server.seen)) == (130, 3)
    assert seconds < 3
    for text in ("2 calls were still under way", "The same command continues."):
        assert (text in drawn) == (presses == 1)
