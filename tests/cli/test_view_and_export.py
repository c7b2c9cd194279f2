"""`editloupe export` and `editloupe view` as a user gives them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.viewer.serve import Viewer
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


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, int]]:
    """Of each server that `view` made: its port, its first page, and the status of a run's page in a folder of its own.

    It is stopped as soon as it would serve, as by Ctrl-C.
    """
    made: list[tuple[int, str, int]] = []

    def stop(viewer: Viewer, *_: object) -> None:
        page, one = viewer.answer("/index.html"), viewer.answer("/one/index.html")
        made.append((int(viewer.server_address[1]), page.body.decode(), int(one.status)))
        raise KeyboardInterrupt

    monkeypatch.setattr(Viewer, "serve_forever", stop)
    # The command sets them for the process that it is.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return made


def test_a_folder_of_runs_is_a_list_with_those_that_cannot_be_read(
    editloupe: Callable[..., tuple[int, str, str]], tmp_path: Path, stopped: list[tuple[int, str, int]]
) -> None:
    make_run(tmp_path / "runs" / "deep", count=2, name="one")
    make_run(tmp_path / "runs", count=2, name="two")
    (tmp_path / "runs" / "torn").mkdir()
    (tmp_path / "runs" / "torn" / "run.json").write_text("{", encoding="utf-8")
    # Without an argument, what lies in runs/.
    code, out, err = editloupe("view")
    assert code == 0, err
    assert re.match(r"Serving 2 runs of runs at http://127\.0\.0\.1:\d+/", out)
    _, page, status = stopped[0]
    assert re.findall(r'<a href="(\w+)/index\.html">', page) == ["two", "one"], "the newest first"
    assert "runs/torn" in page and "cannot be read" in page
    assert status == 200
    # A single run below a folder is listed too.
    assert editloupe("view", tmp_path / "runs" / "deep")[0] == 0
    assert stopped[1][2] == 200


def test_the_list_follows_the_folder(
    editloupe: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    make_run(runs, count=2, name="two")
    listed: list[list[str]] = []

    def stop(self: Viewer) -> None:
        def look() -> None:
            listed.append(re.findall(r'<a href="([\w-]+)/index\.html">', self.answer("/index.html").body.decode()))

        look()
        # In the alphabet it stands first; the addresses of the others stay.
        make_run(runs / "deep", count=2, name="two")
        make_run(runs, count=2, name="one")
        look()
        assert self.answer("/one/index.html").status == self.answer("/two-2/index.html").status == 200
        shutil.rmtree(runs / "one")
        look()
        assert self.answer("/one/index.html").status == 404
        raise KeyboardInterrupt

    monkeypatch.setattr(Viewer, "serve_forever", stop)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert editloupe("view", runs)[0] == 0
    assert [sorted(names) for names in listed] == [["two"], ["one", "two", "two-2"], ["two", "two-2"]]


def test_view_has_a_port_of_its_own_and_takes_the_next_one_if_it_is_taken(
    editloupe: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    stopped: list[tuple[int, str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_run(tmp_path, count=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        monkeypatch.setattr("editloupe.viewer.serve.PORT", first)
        assert editloupe("view", run)[0] == 0
        assert first < stopped[0][0] < first + 20
        # A port that was named is not exchanged for another one.
        code, _, err = editloupe("view", run, "--port", str(first))
        assert code == 2 and f"127.0.0.1:{first} cannot be served" in err
