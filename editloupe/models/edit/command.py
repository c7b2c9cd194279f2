"""Any program as an image editor: it reads an image file and writes another. No shell, and a time-out.

    cmd:python edit.py {input} {output} {instruction}
    cmd?timeout_s=60:edit --in {input} --out {output} --seed {seed} --prompt={instruction}

The words behind the colon are split as a shell splits them and are never given to one. In each word {input}, {output},
{instruction} and {seed} are replaced: the path of a PNG to read, the path of a PNG to write, the instruction, and a whole
number that differs from try to try. {input}, {output} and {instruction} must occur. A model wrote the instruction: one that
begins with a hyphen gets a space before it, so that no program takes it for an option.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import parse_qs

from editloupe.data.images import MAX_BYTES, RGB, decode, encode_png
from editloupe.errors import ConfigError, EditError, ImageError
from editloupe.files import read_bytes
from editloupe.models.edit.base import Editor
from editloupe.values import digest

TIMEOUT_S: Final = 600.0
"""Of one edit, unless the name has ?timeout_s=SECONDS."""
_SLOTS: Final = ("{input}", "{output}", "{instruction}")
_SLOT: Final = re.compile(r"\{(input|output|instruction|seed)\}")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "fish", "ksh", "zsh"})
_EXPECTED: Final = (
    "expected cmd:PROGRAM WORDS with {input}, {output} and {instruction} in the words, such as cmd:python edit.py {input} "
    "{output} {instruction}; cmd?timeout_s=60:… waits 60 s"
)


class CommandEditor:
    """A program that is started once for each edit.

    words: of its command line, with slots.   timeout_s: after which it and what it started are killed.
    """

    def __init__(self, words: tuple[str, ...], *, timeout_s: float) -> None:
        self._words, self._timeout_s = words, timeout_s
        self.name = f"the command {words[0]!r}"
        # The words may hold what is nobody else's business.
        self.version = f"command {Path(words[0]).name} sha256:{digest(list(words))[:12]}"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        with tempfile.TemporaryDirectory(prefix="editloupe-edit-") as folder, tempfile.TemporaryFile() as said:
            source, made = Path(folder) / "input.png", Path(folder) / "output.png"
            source.write_bytes(encode_png(rgb))
            text = f" {instruction}" if instruction.startswith("-") else instruction
            filled = {"input": str(source), "output": str(made), "instruction": text, "seed": str(seed)}
            words = [_SLOT.sub(lambda slot: filled[slot[1]], word) for word in self._words]
            self._run(words, said)
            try:
                size = made.stat().st_size
                if size > MAX_BYTES:
                    raise EditError("no_image", f"{self.name} wrote {size:,} bytes; expected an image")
                return decode(read_bytes(made), name="its output")[0]
            except OSError as error:
                raise EditError("no_image", f"{self.name} ended well and wrote no image{_tail(said)}") from error
            except ImageError as error:
                raise EditError("no_image", f"{self.name} wrote no image: {error}{_tail(said)}") from error

    def _run(self, words: list[str], said: BinaryIO) -> None:
        try:
            program = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise EditError("failed", f"{self.name} cannot be started: {error}") from error
        try:
            code = program.wait(self._timeout_s)
        except BaseException as error:
            # It leads a session of its own: what it started ends with it.
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise EditError("timed_out", f"{self.name} took longer than {self._timeout_s:g} s{_tail(said)}") from error
        if code:
            raise EditError("failed", f"{self.name} ended with code {code}{_tail(said)}")


def open_command(name: str, device: str) -> Editor:
    """Return the editor of a command line.   device: does not count. Raises ConfigError."""
    head, colon, line = name.partition(":")
    _, _, query = head.partition("?")
    try:
        given = parse_qs(query, strict_parsing=True) if query else {}
        timeout_s = float(given.pop("timeout_s", [str(TIMEOUT_S)])[-1])
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise ConfigError(f"editor {name!r}: {error}; {_EXPECTED}") from error
    if not colon or not words or given or not 0 < timeout_s <= 86_400 or not all(slot in line for slot in _SLOTS):
        raise ConfigError(f"editor {name!r}: {_EXPECTED}")
    if shutil.which(words[0]) is None:
        raise ConfigError(f"editor {name!r}: there is no program {words[0]!r}; give its path")
    if _runs_the_instruction(words):
        raise ConfigError(
            f"editor {name!r}: the shell would run what a model writes into {{instruction}}; give it as a word behind the "
            f'script, as in {words[0]} -c \'edit "$1" "$2" "$3"\' {words[0]} {{input}} {{output}} {{instruction}}'
        )
    return _shared(words, timeout_s)


def _runs_the_instruction(words: tuple[str, ...]) -> bool:
    """Return whether the program is a shell, and the instruction a part of the script that it is given."""
    scripts = [word for option, word in pairwise(words) if re.fullmatch(r"-\w*c", option)]
    return Path(words[0]).name in _SHELLS and any("{instruction}" in script for script in scripts)


@cache
def _shared(words: tuple[str, ...], timeout_s: float) -> Editor:
    return CommandEditor(words, timeout_s=timeout_s)


def _tail(said: BinaryIO) -> str:
    """Return the end of what a program said, for a message; "" for nothing."""
    end = said.seek(0, os.SEEK_END)
    said.seek(max(0, end - 2000))
    words = " ".join(said.read().decode(errors="replace").split())
    return f"; it said: {words[-300:]}" if words else ""
