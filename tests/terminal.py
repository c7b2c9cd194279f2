"""The program in a terminal of its own: a pseudo-terminal of some size, what was drawn in it, and what stands there.

    with Terminal("judge", "edits", folder=tmp_path) as terminal:
        terminal.press("\\x03")
        code, drawn = terminal.end()

Of the control sequences, `screen` knows those that Rich writes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.forks import start

_COMMAND: Final = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Terminal:
    """A process that has a terminal; a context manager.

    words: of the command line, behind `editloupe`.   before: a statement that is carried out before the program begins.
    """

    def __init__(self, *words: str, folder: Path, width: int = 100, height: int = 30, before: str = "pass") -> None:
        self._drawn = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        dropped = ("COLUMNS", "LINES", "NO_COLOR")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        environment = {**kept, "TERM": "xterm-256color"}
        self.process = start(*words, folder=folder, streams=(theirs,) * 3, environment=environment, before=before)
        os.close(theirs)

    @property
    def drawn(self) -> str:
        """All that was written so far, without colors."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self._drawn.decode(errors="replace"))

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str, timeout_s: float = 30) -> str:
        """Return what was drawn once it holds a text. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while text not in self.drawn:
            if time.monotonic() > deadline or not self._read(0.1):
                raise TimeoutError(f"{text!r} was not drawn; found {self.drawn!r}")
        return self.drawn

    def end(self, timeout_s: float = 60) -> tuple[int, str]:
        """Wait for the end, and return (exit code, what was drawn)."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._read(0.1):
            pass
        self.process.join(max(1, deadline - time.monotonic()))
        assert self.process.exitcode is not None, "the process has closed its terminal and does not end"
        return self.process.exitcode, self.drawn

    def screen(self) -> str:
        """Return the text that a person would see at the end, lines that have scrolled away included."""
        lines, row, column = [""], 0, 0
        text, at = self.drawn, 0
        while at < len(text):
            if command := _COMMAND.match(text, at):
                number, kind = command.groups()
                row = max(0, row - int(number or 1)) if kind == "A" else row
                lines[row] = "" if kind == "K" else lines[row]
                at = command.end()
                continue
            if text[at] == "\n":
                row += 1
                lines += [""] * (row == len(lines))
            elif text[at] == "\r":
                column = 0
            else:
                lines[row] = lines[row].ljust(column)[:column] + text[at] + lines[row][column + 1 :]
                column += 1
            at += 1
        return "\n".join(lines)

    def _read(self, seconds: float) -> bool:
        """Take what is drawn within some seconds. Return False once the process has closed its terminal."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self._drawn += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.join()
        os.close(self._ours)
