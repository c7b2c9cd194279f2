"""Remember up to where the files of a large run were found to be sound, so that they are read fast from then on.

`index.json` in the run folder is derived and may be deleted. It says nothing but: the first bytes of a file, with this
digest, are lines without a problem. A file that has other bytes there, or that was copied, is checked line by line, as if
nothing were known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.errors import EditLoupeError
from editloupe.values import parse_json

FILE: Final = "index.json"


@dataclass
class Sound:
    """The beginning of a file that holds nothing but lines without a problem."""

    size: int = 0
    """In bytes."""
    digest: Any = field(default_factory=hashlib.sha256)
    """Of these bytes, to which more may be added."""

    def add(self, lines: bytes) -> None:
        """Take in further lines that are sound."""
        self.digest.update(lines)
        self.size += len(lines)

    def holds(self, content: bytes) -> bool:
        """Return whether these are the bytes that were found to be sound."""
        return bool(hashlib.sha256(content).digest() == self.digest.digest())

    @classmethod
    def of(cls, folder: Path, name: str, content: bytes) -> Sound:
        """Return how much of a file's content is known to be sound: nothing, if its bytes are not the remembered ones."""
        size, digest = _remembered(folder, name)
        found = cls()
        if 0 < size <= len(content):
            found.add(content[:size])
        return found if found.digest.hexdigest() == digest else cls()


def remember(folder: Path, found: Mapping[str, Sound]) -> None:
    """Write down what is sound, if it is new. A folder that cannot be written stays as it is."""
    with suppress(OSError, EditLoupeError):
        known = {
            name: {"file": _place(folder / name), "bytes": one.size, "sha256": one.digest.hexdigest()}
            for name, one in found.items()
            if one.size
        }
        if known != _read(folder):
            files.write_whole(folder / FILE, (json.dumps(known, indent=2) + "\n").encode(), below=folder)


def _remembered(folder: Path, name: str) -> tuple[int, str]:
    """Return how many bytes of a file are sound, and their digest; (0, "") where nothing is known of this very file."""
    with suppress(OSError, TypeError, KeyError, AttributeError):
        known: Any = _read(folder)[name]
        if known["file"] == _place(folder / name) and isinstance(known["bytes"], int):
            return known["bytes"], str(known["sha256"])
    return 0, ""


def _read(folder: Path) -> Mapping[str, object]:
    with suppress(OSError, ValueError):
        data = parse_json(files.read_bytes(folder / FILE))
        return data if isinstance(data, dict) else {}
    return {}


def _place(path: Path) -> list[int]:
    """Return where a file lies on the disk. A copy lies elsewhere."""
    at = path.lstat()
    return [at.st_dev, at.st_ino]
