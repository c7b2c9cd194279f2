"""Where the lines of one sample stand in a run's samples.jsonl and findings.jsonl, so that a large run opens at once.

`index.sqlite` in the run folder is derived: it is brought up to date whenever it is opened, may be deleted at any time, and
is made in memory where the folder cannot be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from editloupe.errors import ConfigError
from editloupe.values import sample_key

LARGE: Final = 2**20
"""Bytes of samples and findings from which an index is worth its file; smaller runs are read whole."""

FILES: Final = ("samples.jsonl", "findings.jsonl")
_NAME: Final = "index.sqlite"
_SCHEMA: Final = 1
_HEAD: Final = 4096
_BATCH: Final = 5000

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, size INTEGER NOT NULL, head TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS lines (
    file TEXT NOT NULL, at INTEGER NOT NULL, length INTEGER NOT NULL,
    id TEXT NOT NULL, key TEXT NOT NULL, place TEXT NOT NULL, status TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_id ON lines (id);
CREATE INDEX IF NOT EXISTS by_key ON lines (key);
"""


class RunIndex:
    """The index of one run folder, up to date when it is opened. Close it, or use it in a `with` block.

    Raises ConfigError where the run's files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._base = _opened(folder)
        try:
            self._refresh()
        except sqlite3.Error:
            # Damaged, or of somebody else's making: it holds nothing that is not in the run's own files.
            self._base.close()
            self._base = _made(":memory:")
            self._refresh()

    @staticmethod
    def worth(folder: Path) -> bool:
        """Whether a run is so large that reading it whole takes long."""
        return sum(path.stat().st_size for name in FILES if (path := folder / name).exists()) >= LARGE

    def lines(self, sample: str) -> dict[str, bytes]:
        """The lines of each file that are about a sample (an id, or EDITOR/ID), one after another as they stand there."""
        found: dict[str, bytes] = {}
        query = "SELECT at, length FROM lines WHERE file = ? AND (id = ? OR key = ?) ORDER BY at"
        for name in FILES:
            places = self._base.execute(query, (name, sample, sample)).fetchall()
            if places:
                with (self.folder / name).open("rb") as file:
                    found[name] = b"".join(_read(file, at, length) for at, length in places)
        return found

    def samples(self) -> int:
        """How many samples the run has, those that could not be loaded included."""
        query = "SELECT COUNT(DISTINCT key) FROM lines WHERE file = 'samples.jsonl'"
        return int(self._base.execute(query).fetchone()[0])

    def statuses(self) -> dict[str, int]:
        """Status → current findings: of several for one judge, sample, criterion and repeat the last counts."""
        query = (
            "SELECT status, COUNT(*) FROM lines WHERE rowid IN "
            "(SELECT MAX(rowid) FROM lines WHERE file = 'findings.jsonl' GROUP BY place) GROUP BY status"
        )
        return {str(status): int(count) for status, count in self._base.execute(query)}

    def close(self) -> None:
        self._base.close()

    def __enter__(self) -> RunIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _refresh(self) -> None:
        """Take in what was appended since; a file that is no longer what it was is indexed anew."""
        for name in FILES:
            path = self.folder / name
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                size = 0
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
            row = self._base.execute("SELECT size, head FROM files WHERE name = ?", (name,)).fetchone()
            if row is not None and row[0] == size and size == 0:
                continue
            with self._base:
                done = 0
                if row is not None and row[0] <= size and _head(path, row[0]) == row[1]:
                    done = int(row[0])
                else:
                    self._base.execute("DELETE FROM lines WHERE file = ?", (name,))
                if done < size:
                    done = self._take(path, done)
                head = _head(path, done)
                self._base.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (name, done, head))

    def _take(self, path: Path, start: int) -> int:
        """Index the complete lines from `start` on; returns where they end."""
        at = start
        batch: list[tuple[str, int, int, str, str, str, str]] = []
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                about = _about(line)
                if about is not None:
                    batch.append((path.name, at, len(line), *about))
                at += len(line)
                if len(batch) >= _BATCH:
                    self._base.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)", batch)
                    batch.clear()
        self._base.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)", batch)
        return at


def _opened(folder: Path) -> sqlite3.Connection:
    if not RunIndex.worth(folder):
        return _made(":memory:")
    path = folder / _NAME
    with contextlib.suppress(sqlite3.Error):
        base = _made(str(path))
        (schema,) = base.execute("PRAGMA user_version").fetchone()
        if schema == _SCHEMA:
            return base
        base.close()
        # Of another version: made anew.
        with contextlib.suppress(OSError):
            path.unlink()
        return _made(str(path))
    return _made(":memory:")


def _made(where: str) -> sqlite3.Connection:
    base = sqlite3.connect(where, timeout=10)
    try:
        fresh = base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
        if fresh:
            base.executescript(f"{_TABLES} PRAGMA user_version = {_SCHEMA};")
    except sqlite3.Error:
        base.close()
        raise
    return base


def _about(line: bytes) -> tuple[str, str, str, str] | None:
    """(id, key, place, status) of a line; None for one that is nothing of ours."""
    try:
        data = json.loads(line)
        row = data.get("rejected", data)
        if "task_id" in data:
            id_, editor = str(data["sample_id"]), str(data["editor"])
            place = json.dumps([data["judge_id"], editor, id_, data["criterion"], data.get("target"), data["repeat"]])
            return id_, sample_key(editor, id_), place, str(data["status"])
        id_, editor = str(row["id"]), str(row["editor"])
        return id_, sample_key(editor, id_), "", ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _head(path: Path, size: int) -> str:
    """Digest of the beginning of what was indexed, by which a file is known again."""
    if size == 0:
        return ""
    with path.open("rb") as file:
        return hashlib.sha256(file.read(min(size, _HEAD))).hexdigest()


def _read(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)
