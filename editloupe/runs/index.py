"""Index a run: which samples it has, and where each one's lines stand in samples.jsonl and findings.jsonl.

`index.sqlite` in the run folder is derived. It is brought up to date when it is opened and by `refresh`, may be deleted at
any time, and is kept in memory if the run is small or the folder cannot be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError
from editloupe.values import parse_json, sample_key

LARGE: Final = 2**20
"""Bytes of samples and findings from which an index is worth its file; smaller runs are read whole."""

FILES: Final = ("samples.jsonl", "findings.jsonl")
_NAME: Final = "index.sqlite"
_SCHEMA: Final = 2
_HEAD: Final = 4096

_TABLES: Final = """
CREATE TABLE files (name TEXT PRIMARY KEY, size INTEGER NOT NULL, head TEXT NOT NULL);
CREATE TABLE lines (
    file TEXT NOT NULL, at INTEGER NOT NULL, length INTEGER NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL,
    task_id TEXT, judge_id TEXT, repeat INTEGER, metric TEXT, turn INTEGER, part TEXT, status TEXT, trace TEXT
);
CREATE INDEX by_id ON lines (id);
CREATE INDEX by_key ON lines (key);
CREATE INDEX by_task ON lines (task_id);
"""


class RunIndex:
    """The index of one run folder, thread-safe. Close it, or use it in a `with` block.

    Raises ConfigError if the run's files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        """Grows with every change of the run's files that `refresh` sees."""

        self._lock = threading.RLock()
        self._base = _opened(folder)
        try:
            self.refresh()
        except sqlite3.Error:
            # Damaged, or not ours. The run's own files hold everything.
            self._base.close()
            self._base = _made(":memory:")
            self.refresh()
        except BaseException:
            self._base.close()
            raise

    @staticmethod
    def worth(folder: Path) -> bool:
        """Return whether a run is so large that reading it whole takes long."""
        return sum(path.stat().st_size for name in FILES if (path := folder / name).exists()) >= LARGE

    def keys(self) -> list[tuple[str, str]]:
        """Return (key, id) of every sample in the order of the data, then of findings whose sample is not listed."""
        return self._rows("SELECT key, id FROM lines GROUP BY key ORDER BY MIN(file = 'findings.jsonl'), MIN(rowid)")

    def lines(self, sample: str) -> dict[str, bytes]:
        """Return each file's lines about a sample (an id, or EDITOR/ID), one after another as they stand there."""
        found: dict[str, bytes] = {}
        query = "SELECT at, length FROM lines WHERE file = ? AND (id = ? OR key = ?) ORDER BY at"
        for name in FILES:
            places = self._rows(query, name, sample, sample)
            if places:
                with (self.folder / name).open("rb") as file:
                    found[name] = b"".join(file.read(length) for at, length in places if file.seek(at) == at)
        return found

    def samples(self) -> int:
        """Return how many samples the run has, those that could not be loaded included."""
        return int(self._rows("SELECT COUNT(DISTINCT key) FROM lines WHERE file = 'samples.jsonl'")[0][0])

    def statuses(self) -> dict[str, int]:
        """Return status → current findings: the latest of each judge, question and repeat."""
        query = (
            "SELECT status, COUNT(*) FROM lines WHERE rowid IN (SELECT MAX(rowid) FROM lines WHERE file = 'findings.jsonl' "
            "GROUP BY judge_id, key, metric, turn, part, repeat) GROUP BY status"
        )
        return {str(status): int(count) for status, count in self._rows(query)}

    def keys_of(self, task_id: str) -> list[str]:
        """Return the keys of the samples that a task's findings are about."""
        return [key for (key,) in self._rows("SELECT DISTINCT key FROM lines WHERE task_id = ?", task_id)]

    def traces(self) -> frozenset[str]:
        """Return every trace that a finding names."""
        return frozenset(str(row[0]) for row in self._rows("SELECT trace FROM lines WHERE trace IS NOT NULL"))

    def close(self) -> None:
        self._base.close()

    def __del__(self) -> None:
        # For callers that forgot.
        if hasattr(self, "_base"):
            self._base.close()

    def __enter__(self) -> RunIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refresh(self) -> None:
        """Take in what was appended. A file that is no longer what it was is indexed anew."""
        with self._lock:
            for name in FILES:
                path = self.folder / name
                try:
                    size = path.stat().st_size if path.exists() else 0
                except OSError as error:
                    raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
                row = next(iter(self._rows("SELECT size, head FROM files WHERE name = ?", name)), (0, ""))
                done = int(row[0])
                same = done <= size and _head(path, done) == row[1]
                if same and done == size:
                    continue
                with self._base:
                    if not same:
                        self._base.execute("DELETE FROM lines WHERE file = ?", (name,))
                    end = self._take(path, done if same else 0)
                    self._base.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (name, end, _head(path, end)))
                self.version += not same or end > done

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._base.execute(query, values).fetchall()

    def _take(self, path: Path, start: int) -> int:
        """Index the complete lines from `start` on, and return where they end."""
        end = start

        def rows() -> Iterator[tuple[object, ...]]:
            nonlocal end
            with path.open("rb") as file:
                file.seek(start)
                for line in file:
                    if line.endswith(b"\n"):
                        if (columns := _columns(line)) is not None:
                            yield path.name, end, len(line), *columns
                        end += len(line)

        if path.exists():
            self._base.executemany(f"INSERT INTO lines VALUES ({', '.join('?' * 13)})", rows())
        return end


def _opened(folder: Path) -> sqlite3.Connection:
    path = folder / _NAME
    if RunIndex.worth(folder):
        with contextlib.suppress(sqlite3.Error, OSError):
            base = _made(str(path))
            if base.execute("PRAGMA user_version").fetchone() == (_SCHEMA,):
                return base
            # Of another schema: made anew.
            base.close()
            path.unlink()
            return _made(str(path))
    return _made(":memory:")


def _made(where: str) -> sqlite3.Connection:
    # `RunIndex` takes a lock around every use.
    base = sqlite3.connect(where, timeout=10, check_same_thread=False)
    try:
        if base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,):
            base.executescript(f"{_TABLES} PRAGMA user_version = {_SCHEMA};")
    except sqlite3.Error:
        base.close()
        raise
    return base


def _columns(line: bytes) -> tuple[object, ...] | None:
    """Return a line's values from `id` on; None if it is neither a sample nor a finding."""
    try:
        data = parse_json(line)
        if "task_id" not in data:
            row = data.get("rejected", data)
            id_, editor = str(row["id"]), str(row["editor"])
            return id_, sample_key(editor, id_), *[None] * 8
        id_, editor = str(data["sample_id"]), str(data["editor"])
        # Version 1 wrote a criterion, and the number of the target.
        target = data.get("target")
        metric = data["metric"] if "metric" in data else data["criterion"]
        part = data.get("part", "" if target is None else f"target {target}")
        question = (data["judge_id"], data["repeat"], metric, data.get("turn", 0), part)
        return id_, sample_key(editor, id_), data["task_id"], *question, data["status"], data.get("trace")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _head(path: Path, size: int) -> str:
    """Return the digest of the beginning of what was indexed, by which a file is known again."""
    if size == 0:
        return ""
    with path.open("rb") as file:
        return hashlib.sha256(file.read(min(size, _HEAD))).hexdigest()
