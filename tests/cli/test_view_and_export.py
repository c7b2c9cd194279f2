"""`editloupe export` and `editloupe view` as a user gives them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.viewer.runs import make_run


def test_a_run_is_exported(editloupe: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    run = make_run(tmp_path, count=2)
    code, out, _ = editloupe("export", run, "--html", tmp_path / "pages")
    assert code == 0
    assert re.match(r"4 pages and \d+ pictures, \d\.\d MB; open .*pages/index\.html", out)
    assert (tmp_path / "pages" / "index.html").is_file()
    # Again into the same folder: our own pages may be written over.
    assert editloupe("export", run, "--html", tmp_path / "pages")[0] == 0


@pytest.mark.parametrize("command", [("view",), ("export", "--html", "pages")])
def test_a_folder_that_is_no_run_is_an_input_error(
    editloupe: Callable[..., tuple[int, str, str]], tmp_path: Path, command: tuple[str, ...]
) -> None:
    code, _, err = editloupe(*command, tmp_path)
    assert code == 2
    assert "is no run folder" in err


def test_pages_do_not_land_among_other_files(editloupe: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    run = make_run(tmp_path, count=2)
    code, _, err = editloupe("export", run, "--html", run)
    assert code == 2
    assert "holds other files" in err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_is_served_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    run = make_run(tmp_path, count=2)
    command = [sys.executable, "-m", "editloupe", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as served:
        try:
            assert served.stdout is not None
            told = served.stdout.readline().decode()
            found = re.search(r"http://127\.0\.0\.1:\d+/", told)
            assert found, told
            with urllib.request.urlopen(found[0], timeout=20) as answer:
                assert answer.url.endswith("/index.html") and b"<title>run" in answer.read()
            served.send_signal(number)
            assert served.wait(20) == 0
        finally:
            served.kill()
