"""Write the files of an export: each whole or not at all, in UTF-8 that every reader takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from editloupe import files
from editloupe.errors import ConfigError, StorageError
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


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values by name, but for those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def json_bytes(value: Json) -> bytes:
    """Return JSON in UTF-8, without NaN. Half a surrogate pair, which other readers refuse, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
