"""Index a run: which samples it has, and where each one's lines stand in samples.jsonl and findings.jsonl.

`index.sqlite` in the run folder is derived. It is brought up to date when it is opened and by `refresh`, may be deleted at
any time, and is kept in memory if the run is small or the folder cannot be written. One that came with a run, or with other
tables than ours, is made anew, and what it says of places in the files is checked.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.errors import ConfigError
from editloupe.values import parse_json, sample_key

LARGE: Final = 2**20
"""Bytes of samples and findings from which an index is worth its file; smaller runs are read whole."""

FILES: Final = ("samples.jsonl", "findings.jsonl")
_NAME: Final = "index.sqlite"
_SCHEMA: Final = 2
_HEAD: Final = 4096
_LONGEST: Final = 2**24
"""Bytes of one value in an index file."""
_STEPS: Final = 100_000
"""Steps of SQLite's machine after which it asks whether to go on. It waits for the interpreter each time."""

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


class _Database(sqlite3.Connection):
    """Closes itself with its last reference, for callers that forgot: Python 3.13 warns of an open one."""

    def __del__(self) -> None:
        self.close()


class RunIndex:
    """The index of one run folder, thread-safe. Close it, or use it in a `with` block.

    Raises ConfigError if the run's files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        """Grows with every change of the run's files that `refresh` sees."""

        self._lock = threading.RLock()
        self._left = 0
        self._base = self._opened()
        try:
            self.refresh()
        except (sqlite3.Error, ValueError, TypeError):
            self._rebuild()
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
        with self._lock:
            try:
                return self._lines(sample)
            except (OSError, ValueError, TypeError, OverflowError):
                self._rebuild()
                return self._lines(sample)

    def _lines(self, sample: str) -> dict[str, bytes]:
        """Return what `lines` does. Raises ValueError and the like if the index is not that of the files."""
        found: dict[str, bytes] = {}
        for name in FILES:
            places = self._rows(
                "SELECT at FROM lines WHERE file = ? AND (id = ? OR key = ?) ORDER BY at", name, sample, sample
            )
            if not places:
                continue
            lines, last = [], -1
            with files.open_plain(self.folder / name) as file:
                for (at,) in places:
                    file.seek(at)
                    lines.append(file.readline())
                    columns = _columns(lines[-1])
                    if at <= last or columns is None or sample not in columns[:2]:
                        raise ValueError(f"no line about {sample!r} at byte {at} of {name}")
                    last = at
            found[name] = b"".join(lines)
        return found

    def samples(self) -> int:
        """Return how many samples the run has, those that could not be loaded included."""
        return int(self._rows("SELECT COUNT(DISTINCT key) FROM lines WHERE file = 'samples.jsonl'")[0][0])

    def asked(self, judges: Collection[str]) -> int:
        """Return how many samples each of these judges was asked about. What others found counts for every judge."""
        listed = ", ".join("?" * len(judges))
        query = (
            "SELECT COUNT(*) FROM (SELECT key FROM lines WHERE file = 'findings.jsonl' GROUP BY key "
            f"HAVING SUM(judge_id NOT IN ({listed})) OR COUNT(DISTINCT judge_id) = {len(judges)})"
        )
        return int(self._rows(query, *judges)[0][0])

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

    def __enter__(self) -> RunIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refresh(self) -> None:
        """Take in what was appended. A file that is no longer what it was is indexed anew."""
        with self._lock:
            self._limit()
            for name in FILES:
                path = self.folder / name
                try:
                    size = path.stat().st_size if path.exists() else 0
                except OSError as error:
                    raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
                query = "SELECT size, head FROM files WHERE name = ?"
                done, head = self._base.execute(query, (name,)).fetchone() or (0, "")
                same = done <= size and _head(path, done) == head
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
            self._limit()
            bound = [_bound(value) for value in values]
            try:
                rows = self._base.execute(query, bound).fetchall()
            except sqlite3.ProgrammingError:
                raise  # it was closed
            except sqlite3.Error:
                self._rebuild()
                rows = self._base.execute(query, bound).fetchall()
        return [tuple(v.decode("utf-8", "surrogatepass") if isinstance(v, bytes) else v for v in row) for row in rows]

    def _opened(self) -> sqlite3.Connection:
        """Return the index of the run folder, empty if there is none that can be used."""
        path = self.folder / _NAME
        if not self.worth(self.folder):
            return _in_memory()
        # It may be in use, or not ours to write.
        with suppress(sqlite3.OperationalError, OSError):
            if os.path.lexists(path):
                base = self._of_file(path)
                if base is not None:
                    return base
                files.unlink(path, below=self.folder)
            files.append(path, below=self.folder, new=True).close()
            return self._of_file(path) or _in_memory()
        return _in_memory()

    def _of_file(self, path: Path) -> sqlite3.Connection | None:
        """Open an index file; None for one that is not ours, or damaged.

        Raises OSError for a link, which SQLite would follow or write through, and sqlite3.OperationalError.
        """
        before = path.lstat()
        if not stat.S_ISREG(before.st_mode) or before.st_nlink > 1:
            raise OSError(f"{path} is no plain file, or has a second name elsewhere")
        base = sqlite3.connect(path, timeout=10, check_same_thread=False, factory=_Database)
        try:
            if not os.path.samestat(before, path.lstat()):
                raise OSError(f"{path} was exchanged")
            self._limit()
            base.set_progress_handler(self._is_too_long, _STEPS)
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            if before.st_size == 0:
                return _filled(base)
            if _is_ours(base, self.folder):
                return base
        except (sqlite3.OperationalError, OSError):
            base.close()
            raise
        except (sqlite3.Error, ValueError, TypeError):
            pass
        base.close()
        return None

    def _limit(self) -> None:
        """Let the next queries of an index file take about as long as its run's files are large: it may be damaged."""
        bytes_ = sum(path.stat().st_size for name in FILES if (path := self.folder / name).exists())
        self._left = 10 * (LARGE + bytes_) // _STEPS

    def _is_too_long(self) -> bool:
        self._left -= 1
        return self._left < 0

    def _rebuild(self) -> None:
        """Make the index anew in memory. The run's own files hold everything."""
        self._base.close()
        self._base = _in_memory()
        self.refresh()

    def _take(self, path: Path, start: int) -> int:
        """Index the complete lines from `start` on, and return where they end."""
        end = start

        def rows() -> Iterator[tuple[object, ...]]:
            nonlocal end
            with files.open_plain(path) as file:
                file.seek(start)
                for line in file:
                    if line.endswith(b"\n"):
                        if (columns := _columns(line)) is not None:
                            yield path.name, end, len(line), *map(_bound, columns)
                        end += len(line)

        if path.exists():
            self._base.executemany(f"INSERT INTO lines VALUES ({', '.join('?' * 13)})", rows())
        return end


def _is_ours(base: sqlite3.Connection, folder: Path) -> bool:
    """Return whether an index has our tables and is of these very files: those of a run that was copied are others."""
    tables = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name LIMIT 10"
    with closing(_in_memory()) as fresh:
        same = base.execute(tables).fetchall() == fresh.execute(tables).fetchall()
    if not same or base.execute("PRAGMA user_version").fetchone() != (_SCHEMA,):
        return False
    known = base.execute("SELECT name, size, head FROM files LIMIT 3").fetchall()
    heads = [name in FILES and _head(folder / name, size) == head for name, size, head in known]
    return all(heads) and any(size for _, size, _ in known)


def _in_memory() -> sqlite3.Connection:
    # `RunIndex` takes a lock around every use.
    return _filled(sqlite3.connect(":memory:", check_same_thread=False, factory=_Database))


def _filled(base: sqlite3.Connection) -> sqlite3.Connection:
    base.executescript(f"{_TABLES} PRAGMA user_version = {_SCHEMA};")
    return base


def _bound(value: object) -> object:
    """Return a value as SQLite takes it. A text with half a surrogate pair, such as a file's name, becomes bytes."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _columns(line: bytes) -> tuple[object, ...] | None:
    """Return a line's values from `id` on; None if it is neither a sample nor a finding."""
    found: tuple[object, ...]
    try:
        data = parse_json(line)
        if "task_id" not in data:
            row = data.get("rejected", data)
            id_, editor = str(row["id"]), str(row["editor"])
            found = (id_, sample_key(editor, id_), *[None] * 8)
        else:
            id_, editor = str(data["sample_id"]), str(data["editor"])
            question = (data["judge_id"], data["repeat"], data["metric"], data.get("turn", 0), data.get("part", ""))
            found = (id_, sample_key(editor, id_), data["task_id"], *question, data["status"], data.get("trace"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found if all(v is None or isinstance(v, str) or (isinstance(v, int) and abs(v) < 2**63) for v in found) else None


def _head(path: Path, size: int) -> str:
    """Return the digest of a file's place on the disk and of the beginning of what was indexed: it is known again by it."""
    if size == 0:
        return ""
    with files.open_plain(path) as file:
        seen = os.fstat(file.fileno())
        return hashlib.sha256(f"{seen.st_dev} {seen.st_ino} ".encode() + file.read(min(size, _HEAD))).hexdigest()
