"""Index a run in memory: which samples it has, and where each one's lines stand in samples.jsonl and findings.jsonl.

One pass over both files, a second for 100,000 findings, so that a sample's page need not make objects of all of them.
`refresh` takes in what was appended since.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from sys import intern
from typing import Final, NamedTuple, TypeAlias

from editloupe import files
from editloupe.errors import ConfigError
from editloupe.values import parse_json, sample_key

LARGE: Final = 2**20
"""Bytes of samples and findings from which reading a run whole takes long."""

SAMPLES: Final = "samples.jsonl"
FINDINGS: Final = "findings.jsonl"
FILES: Final = (SAMPLES, FINDINGS)

_HEAD: Final = 4096
"""Bytes by whose equality a file is known again that may have been written anew."""

_Question: TypeAlias = tuple[str, str, str, int, str, int]
"""Judge, sample's key, metric, turn, part and repeat: the latest finding of one counts."""


class _Line(NamedTuple):
    """What the index takes from a line."""

    key: str
    id: str
    question: _Question | None = None
    """None for a line of samples.jsonl."""
    task: str = ""
    status: str = ""
    trace: str = ""


def is_large(folder: Path) -> bool:
    """Return whether a run is so large that reading it whole takes long."""
    return sum(path.stat().st_size for name in FILES if (path := folder / name).exists()) >= LARGE


class RunIndex:
    """The index of one run folder, thread-safe. Raises ConfigError if the run's files cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        """Grows with every change of the run's files that `refresh` sees."""

        self._lock = threading.RLock()
        self._heads: dict[str, bytes] = {}
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._ends = dict.fromkeys(FILES, 0)
        """File → where the last line ends that was taken in."""
        self._places: dict[str, dict[str, list[int]]] = {name: {} for name in FILES}
        """File → sample's key → where its lines begin."""
        self._ids: dict[str, str] = {}
        self._statuses: dict[_Question, str] = {}
        self._tasks: dict[str, dict[str, None]] = {}
        """Task → keys of the samples that its findings are about."""
        self._traces: set[str] = set()

    def keys(self) -> list[tuple[str, str]]:
        """Return (key, id) of every sample in the order of the data, then of findings whose sample is not listed."""
        with self._lock:
            return [(key, self._ids[key]) for key in dict.fromkeys(key for name in FILES for key in self._places[name])]

    def lines(self, samples: Collection[str]) -> dict[str, bytes]:
        """Return each file's lines about samples (an id, or EDITOR/ID, each), one after another as they stand there."""
        with self._lock:
            keys = {key for key, id_ in self._ids.items() if key in samples or id_ in samples}
            found: dict[str, bytes] = {}
            for name, places in self._places.items():
                starts = sorted(at for key in keys for at in places.get(key, ()))
                if starts:
                    with files.open_plain(self.folder / name) as file:
                        found[name] = b"".join(file.readline() for at in starts if file.seek(at) == at)
            return found

    def samples(self) -> int:
        """Return how many samples the run has, those that could not be loaded included."""
        return len(self._places[SAMPLES])

    def asked(self, judges: Collection[str]) -> int:
        """Return how many samples each of these judges was asked about. What others found counts for every judge."""
        with self._lock:
            by_key: dict[str, set[str]] = {}
            for judge, key, *_ in self._statuses:
                by_key.setdefault(key, set()).add(judge)
        return sum(bool(found - set(judges)) or found >= set(judges) for found in by_key.values())

    def statuses(self) -> dict[str, int]:
        """Return status → current findings: the latest of each judge, question and repeat."""
        with self._lock:
            return dict(Counter(self._statuses.values()))

    def keys_of(self, task_id: str) -> list[str]:
        """Return the keys of the samples that a task's findings are about."""
        return list(self._tasks.get(task_id, ()))

    def names_trace(self, path: str) -> bool:
        """Return whether a finding names this trace."""
        return path in self._traces

    def refresh(self) -> None:
        """Take in what was appended. Where a file is no longer what it was, all is read anew."""
        with self._lock:
            try:
                if any(self._head(name, len(head)) != head for name, head in self._heads.items()):
                    self._forget()
                    self.version += 1
                for name in FILES:
                    self.version += self._take(name)
                    self._heads[name] = self._head(name, min(self._ends[name], _HEAD))
            except OSError as error:
                raise ConfigError(f"{self.folder} cannot be read: {error.strerror or error}") from error

    def _head(self, name: str, size: int) -> bytes:
        """Return the beginning of what was taken in of a file; a shorter one where the file is shorter now."""
        path = self.folder / name
        if not path.exists() or path.stat().st_size < self._ends[name]:
            return b""
        with files.open_plain(path) as file:
            return file.read(size)

    def _take(self, name: str) -> bool:
        """Take in a file's complete lines that are new, and return whether there are any."""
        begin = end = self._ends[name]
        path = self.folder / name
        if not path.exists() or path.stat().st_size == begin:
            return False
        with files.open_plain(path) as file:
            file.seek(begin)
            for line in file:
                if line.endswith(b"\n"):
                    self._add(name, end, line)
                    end += len(line)
        self._ends[name] = end
        return end > begin

    def _add(self, name: str, at: int, text: bytes) -> None:
        if (line := _parsed(text)) is None:
            return
        key = intern(line.key)
        self._ids.setdefault(key, line.id)
        self._places[name].setdefault(key, []).append(at)
        if line.question is not None:
            self._statuses[line.question] = intern(line.status)
            self._tasks.setdefault(line.task, {})[key] = None
            if line.trace:
                self._traces.add(line.trace)


def _parsed(line: bytes) -> _Line | None:
    """Return what a line says; None if it is neither a sample nor a finding."""
    try:
        data = parse_json(line)
        if "task_id" not in data:
            row = data.get("rejected", data)
            id_, editor = str(row["id"]), str(row["editor"])
            return _Line(key=sample_key(editor, id_), id=id_)
        id_, editor = str(data["sample_id"]), str(data["editor"])
        key, judge, metric = intern(sample_key(editor, id_)), intern(str(data["judge_id"])), intern(str(data["metric"]))
        turn, part, repeat = int(data.get("turn", 0)), str(data.get("part", "")), int(data["repeat"])
        names = str(data["task_id"]), str(data["status"]), str(data.get("trace") or "")
        return _Line(key, id_, (judge, key, metric, turn, part, repeat), *names)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
