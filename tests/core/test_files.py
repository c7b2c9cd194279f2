"""Files in a stranger's folder: nothing is written through a link, and nothing waits for a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from editloupe import files

WRITES: dict[str, Callable[[Path, Path], object]] = {
    "append": lambda path, below: files.append(path, below=below).close(),
    "append anew": lambda path, below: files.append(path, below=below, new=True).close(),
    "write": lambda path, below: files.write_whole(path, b"ours", below=below),
    "link": lambda path, below: files.link_or_copy(Path(__file__), path, below=below),
    "rename": lambda path, below: files.rename(path, "other", below=below),
    "unlink": lambda path, below: files.unlink(path, below=below),
}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A folder, and beside it one with a file that must stay."""
    (tmp_path / "run").mkdir()
    victim = tmp_path / "outside" / "deep" / "victim"
    victim.parent.mkdir(parents=True)
    victim.write_text("precious")
    yield tmp_path / "run"
    assert {path: path.read_text() for path in (tmp_path / "outside").rglob("*") if path.is_file()} == {victim: "precious"}


@pytest.mark.parametrize("write", WRITES)
def test_no_write_leads_out_of_its_folder(write: str, run: Path) -> None:
    (run / "blobs").symlink_to(run.parent / "outside" / "deep")
    for name in ("blobs/victim", "blobs/new", "blobs/inner/new", "../outside/deep/victim"):
        with pytest.raises(OSError, match="leads out of its folder" if ".." in name else "blobs is a link or no folder"):
            WRITES[write](run / name, run)
    for to in ("victim", "nothing"):
        link = run / to
        link.symlink_to(run.parent / "outside" / "deep" / to)
        if "append" in write:
            with pytest.raises(OSError):
                WRITES[write](link, run)
        else:
            WRITES[write](link, run)
            assert not link.is_symlink()


def test_new_content_has_a_random_name_until_it_is_whole(run: Path) -> None:
    names = set()
    for number in range(3):
        with files.whole(run / "report" / "report.md", below=run) as file:
            (part,) = {path.name for path in (run / "report").iterdir()} - {"report.md"}
            assert part.startswith(".part-") and len(part) == 38
            names.add(part)
            file.write(b"%d" % number)
    assert len(names) == 3
    with pytest.raises(ZeroDivisionError), files.whole(run / "report" / "report.md", below=run) as file:
        file.write(b"%d" % (1 // 0))
    assert [(path.name, path.read_bytes()) for path in (run / "report").iterdir()] == [("report.md", b"2")]


def test_what_is_no_plain_file_is_neither_read_nor_written(run: Path) -> None:
    os.mkfifo(run / "pipe")
    (run / "device").symlink_to("/dev/zero")
    (run / "folder").mkdir()
    (run / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(run / "socket"))
    for kind in ("pipe", "device", "socket", "folder"):
        for use in (files.read_bytes, lambda path: files.append(path, below=run)):
            with pytest.raises(OSError):
                use(run / kind)
    # Whoever names a pipe as the place of a file gets no file in its place.
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="it is a pipe or a device; name a file"):
            files.write_whole(run / name, b"x")
    assert (run / "pipe").is_fifo() and (run / "link").is_symlink()
