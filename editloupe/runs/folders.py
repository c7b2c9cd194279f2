"""Runs as folders: which there are, several joined into one, and the pictures that nobody needs any more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from editloupe.errors import StorageError


def bring(source: Path, target: Path, *, link: bool) -> int:
    """Every file below `source` below `target` too; what is there already stays. Returns how many files are new.

    link: as hard links where the disk allows it, for files that nobody ever writes to again, such as pictures.
    Raises StorageError.
    """
    new = 0
    try:
        for path in sorted(source.rglob("*")):
            there = target / path.relative_to(source)
            if not path.is_file() or there.exists():
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            _place(path, there, link=link)
            new += 1
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror or error}") from error
    return new


def _place(source: Path, target: Path, *, link: bool) -> None:
    if link:
        try:
            os.link(source, target)
            return
        except OSError:
            pass  # another disk, or one without links
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    part.replace(target)
