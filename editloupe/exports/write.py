"""Write the files of an export: each whole or not at all, in UTF-8 that every reader takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from editloupe import files
from editloupe.errors import ConfigError, StorageError
from editloupe.findings import Finding
from editloupe.values import Json


@contextmanager
def whole(path: Path, *, below: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write to. It takes the name `path` when all is written.

    below: no link is followed from this folder on; None for the file's own folder.
    Raises ConfigError if `path` is a folder, StorageError if it cannot be written.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file")
    try:
        with files.whole(path, below=below) as file:
            yield file
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def claim(folder: Path, marker: str, *, option: str) -> None:
    """Put a marker into a new or empty folder, so that a later export may write there again.

    Raises ConfigError for a file, and for a folder with files but without the marker; StorageError.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / marker).exists())):
        raise ConfigError(f"{folder} holds other files; name an empty or a new folder with {option}")
    with whole(folder / marker, below=folder) as file:
        file.write(b"editloupe wrote these files; it may write them again.\n")


def lineage(finding: Finding | None, run: str, sample_id: str, editor: str) -> dict[str, Json]:
    """Return where a row of a training set comes from: the run's identity, and of its findings which one."""
    return {
        "run": run,
        "task_id": None if finding is None else finding.task_id,
        "judge_id": None if finding is None else finding.judge_id,
        "sample": sample_id,
        "editor": editor,
        "repeat": None if finding is None else finding.repeat,
    }


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values by name, but for those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def json_bytes(value: Json, *, indent: int | None = None) -> bytes:
    """Return JSON in UTF-8, without NaN. Half a surrogate pair, which other readers refuse, becomes a question mark."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return text.encode("utf-8", "replace")
