"""The program in a process of its own, forked from a server that has imported it: a start of Python takes a second.

process = start("judge", "edits", folder=tmp_path, streams=(0, out.fileno(), out.fileno()))
process.join()
assert process.exitcode == 0
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sys
import tempfile
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from editloupe import cli

_FORKS = multiprocessing.get_context("forkserver")
# What takes long to import. The server starts with the first process.
_FORKS.set_forkserver_preload(["editloupe.cli.judge", "editloupe.cli.build", "editloupe.agent.graph", "openai"])


def start(
    *words: str | Path,
    folder: Path,
    streams: tuple[int, int, int],
    environment: Mapping[str, str] | None = None,
    before: str = "pass",
) -> BaseProcess:
    """Start a process that runs `editloupe WORDS` in a folder, in a session of its own and with the path of this process.

    streams: open files that become standard input, output and error; a terminal becomes that of the session.
    environment: that of this process, if None.   before: a statement that is carried out before the program begins.
    """
    given = dict(os.environ if environment is None else environment)
    process = _FORKS.Process(target=_run, args=(["editloupe", *map(str, words)], str(folder), given, before))
    # Attributes of the process are pickled while it starts, when open files can go along.
    process._streams = [_OpenFile(number) for number in streams]  # type: ignore[attr-defined]
    process.start()
    return process


def ended(*words: str | Path, folder: Path, stdout: Path, before: str = "pass") -> tuple[int | None, str]:
    """Run a command to its end: (exit code, or minus the signal that killed it; standard error)."""
    with tempfile.TemporaryFile() as told, stdout.open("wb") as said, Path(os.devnull).open() as nothing:
        streams = (nothing.fileno(), said.fileno(), told.fileno())
        process = start(*words, folder=folder, streams=streams, before=before)
        process.join(120)
        process.kill()
        told.seek(0)
        return process.exitcode, told.read().decode()


@dataclass(frozen=True)
class _OpenFile:
    """An open file that goes with a process that starts; there it is its number."""

    number: int

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.number),)


def _received(file: Any) -> int:
    return int(file.detach())


def _run(words: list[str], folder: str, environment: dict[str, str], before: str) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, opened in enumerate(multiprocessing.current_process()._streams):  # type: ignore[attr-defined]
        os.dup2(opened, number)
        os.close(opened)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, 1 if os.isatty(number) or number == 2 else -1, "utf-8", closefd=False)
        for number, mode in enumerate("rww")
    )
    sys.argv = words
    exec(before)
    cli.main()
