"""Files in a stranger's folder: nothing is written through a link, and nothing waits for a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import files

Write = Callable[[Path, Path], object]

WRITES: dict[str, Write] = {
    "append": lambda path, below: files.append(path, below=below).close(),
    "append anew": lambda path, below: files.append(path, below=below, new=True).close(),
    "write": lambda path, below: files.write_whole(path, b"ours", below=below),
    "link": lambda path, below: files.link_or_copy(Path(__file__), path, below=below),
    "rename": lambda path, below: files.rename(path, "other", below=below),
    "unlink": lambda path, below: files.unlink(path, below=below),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder, and beside it one with a file that must stay."""
    (tmp_path / "run").mkdir()
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    (tmp_path / "outside" / "victim").write_text("precious")
    return tmp_path / "run"


def outside(run: Path) -> list[tuple[str, str]]:
    found = sorted((run.parent / "outside").rglob("*"))
    return [(path.name, path.read_text() if path.is_file() else "") for path in found]


@pytest.mark.parametrize("write", WRITES)
def test_a_folder_that_is_a_link_is_never_written_through(write: str, run: Path) -> None:
    (run / "blobs").symlink_to(run.parent / "outside")
    for name in ("blobs/victim", "blobs/new", "blobs/deep/new"):
        with pytest.raises(OSError, match="blobs is a link or no folder, and is not followed"):
            WRITES[write](run / name, run)
    assert outside(run) == [("deep", ""), ("victim", "precious")]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("to", ["victim", "nothing"])
def test_a_file_that_is_a_link_is_never_written_through(write: str, to: str, run: Path) -> None:
    (run / "file").symlink_to(run.parent / "outside" / to)
    if "append" in write:
        with pytest.raises(OSError):
            WRITES[write](run / "file", run)
    else:
        WRITES[write](run / "file", run)
        assert not (run / "file").is_symlink()
    assert outside(run) == [("deep", ""), ("victim", "precious")]


@pytest.mark.parametrize("write", WRITES)
def test_a_name_that_climbs_is_refused(write: str, run: Path) -> None:
    with pytest.raises(OSError, match="leads out of its folder"):
        WRITES[write](run / ".." / "outside" / "victim", run)
    assert outside(run) == [("deep", ""), ("victim", "precious")]


def test_new_content_has_a_random_name_until_it_is_whole(run: Path) -> None:
    names = set()
    for number in range(3):
        with files.whole(run / "report" / "report.md", below=run) as file:
            (part,) = {path.name for path in (run / "report").iterdir()} - {"report.md"}
            assert part.startswith(".part-") and len(part) == 38
            names.add(part)
            file.write(b"%d" % number)
    assert len(names) == 3
    assert [path.name for path in (run / "report").iterdir()] == ["report.md"]
    with pytest.raises(ZeroDivisionError), files.whole(run / "report" / "report.md", below=run) as file:
        file.write(b"%d" % (1 // 0))
    assert [(path.name, path.read_bytes()) for path in (run / "report").iterdir()] == [("report.md", b"2")]


def special(run: Path, kind: str) -> Path:
    """What looks like a file by its name and is none."""
    path = run / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_what_is_no_plain_file_is_neither_read_nor_written(kind: str, run: Path) -> None:
    path = special(run, kind)
    with pytest.raises(OSError):
        files.read_bytes(path)
    with pytest.raises(OSError):
        files.append(path, below=run)


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path, linked: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / ("link" if linked else "pipe")
    if linked:
        path.symlink_to("pipe")
    with pytest.raises(OSError, match="it is a pipe or a device; name a file"):
        files.write_whole(path, b"x")
    assert (tmp_path / "pipe").is_fifo() and path.is_symlink() == linked
