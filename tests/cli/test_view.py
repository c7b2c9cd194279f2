"""`editloupe view` as a user gives it: runs are served until the command is stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Cli, refused
from tests.viewer.runs import make_run


@contextmanager
def served(*words: str | Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """The program while it serves: its process, the line that it printed, and the address in it."""
    command = [sys.executable, "-m", "editloupe", "view", *map(str, words)]
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, env=env) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline().decode()
            found = re.search(r"http://127\.0\.0\.1:\d+/", told)
            assert found, told
            yield process, told, found[0]
        finally:
            process.kill()


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_folder_of_runs_is_a_list_that_follows_the_folder_until_it_is_stopped(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "deep", count=2, name="one")
    (tmp_path / "runs" / "torn").mkdir()
    (tmp_path / "runs" / "torn" / "run.json").write_text("{", encoding="utf-8")
    # Without an argument, what lies in runs/.
    with served("--port", "0", folder=tmp_path) as (process, told, address):
        assert told.startswith("Serving runs at ")
        before = page(address)
        assert "one" in before and "cannot be read" in before and "runs/torn" in before
        make_run(tmp_path / "runs", count=2, name="two")
        assert "two" in page(address).replace("two edits", "")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_what_cannot_be_served_is_said(editloupe: Cli, tmp_path: Path) -> None:
    run = make_run(tmp_path / "there", count=2)
    (tmp_path / "empty").mkdir()
    err = refused(editloupe, "view", tmp_path / "empty")
    assert "no run is below it; judge something first" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # A port that was named is not exchanged for another one.
        err = refused(editloupe, "view", run, "--port", str(port))
        assert f"127.0.0.1:{port} cannot be served" in err
    assert "holds other files" in refused(editloupe, "export", run, "--html", run)
