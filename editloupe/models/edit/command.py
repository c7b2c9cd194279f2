"""Any program as an image editor: it reads an image file and writes another. No shell, and a time-out.

    cmd:python edit.py {input} {output} {instruction}
    cmd:edit --in {input} --out {output} --seed {seed} --prompt={instruction}

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
from pathlib import Path
from typing import BinaryIO, Final

from editloupe.data.images import MAX_BYTES, RGB, decode, encode_png
from editloupe.errors import ConfigError, EditError, ImageError
from editloupe.files import read_bytes
from editloupe.models.edit.base import Editor
from editloupe.values import digest

TIMEOUT_S: Final = 600.0
"""Of one edit."""
_SLOTS: Final = ("{input}", "{output}", "{instruction}")
_SLOT: Final = re.compile(r"\{(input|output|instruction|seed)\}")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "fish", "ksh", "zsh"})
_EXPECTED: Final = (
    "expected cmd:PROGRAM WORDS with {input}, {output} and {instruction} in the words, such as cmd:python edit.py {input} "
    "{output} {instruction}"
)


class CommandEditor:
    """A program that is started once for each edit; after TIMEOUT_S it and what it started are killed.

    words: of its command line, with slots.
    """

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self.name = f"the command {words[0]!r}"
        # The words may hold what is nobody else's business.
        self.version = f"command {Path(words[0]).name} sha256:{digest(list(words))[:12]}"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        with tempfile.TemporaryDirectory(prefix="editloupe-edit-") as folder, tempfile.TemporaryFile() as said:
            source, made = Path(folder) / "input.png", Path(folder) / "output.png"
            source.write_bytes(encode_png(rgb))
            text = f" {instruction}" if instruction.startswith("-") else instruction
            filled = {"input": str(source), "output": str(made), "instruction": text, "seed": str(seed)}
            self._run([_SLOT.sub(lambda slot: filled[slot[1]], word) for word in self._words], said)
            try:
                if made.stat().st_size > MAX_BYTES:
                    raise EditError("no_image", f"{self.name} wrote {made.stat().st_size:,} bytes; expected an image")
                return decode(read_bytes(made), name="its output")[0]
            except (OSError, ImageError) as error:
                raise EditError("no_image", f"{self.name} ended well and wrote no image: {error}{_tail(said)}") from error

    def _run(self, words: list[str], said: BinaryIO) -> None:
        try:
            program = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise EditError("failed", f"{self.name} cannot be started: {error}") from error
        try:
            code = program.wait(TIMEOUT_S)
        except BaseException as error:
            # It leads a session of its own: what it started ends with it.
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise EditError("timed_out", f"{self.name} took longer than {TIMEOUT_S:g} s{_tail(said)}") from error
        if code:
            raise EditError("failed", f"{self.name} ended with code {code}{_tail(said)}")


@cache
def open_command(name: str, device: str) -> Editor:
    """Return the editor of a command line.   device: does not count. Raises ConfigError."""
    line = name.removeprefix("cmd:")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise ConfigError(f"editor {name!r}: {error}; {_EXPECTED}") from error
    if line == name or not words or not all(slot in line for slot in _SLOTS):
        raise ConfigError(f"editor {name!r}: {_EXPECTED}")
    if shutil.which(words[0]) is None:
        raise ConfigError(f"editor {name!r}: there is no program {words[0]!r}; give its path")
    if Path(words[0]).name in _SHELLS and any("{instruction}" in word and word != "{instruction}" for word in words):
        # A shell, as in sh -c 'edit {instruction}', would run what a model writes.
        raise ConfigError(
            f"editor {name!r}: the shell would run what a model writes; give {{instruction}} as a word of its "
            'own, as in sh -c \'edit "$1" "$2" "$3"\' sh {input} {output} {instruction}'
        )
    return CommandEditor(words)


def _tail(said: BinaryIO) -> str:
    """Return the end of what a program said, for a message; "" for nothing."""
    end = said.seek(0, os.SEEK_END)
    said.seek(max(0, end - 2000))
    words = " ".join(said.read().decode(errors="replace").split())
    return f"; it said: {words[-300:]}" if words else ""
