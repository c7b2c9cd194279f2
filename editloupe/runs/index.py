"""Index a run in memory: which samples it has, and where each one's lines stand in samples.jsonl and findings.jsonl.

One pass over both files, a second for 100,000 findings, so that a sample's page need not make objects of all of them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from sys import intern
from typing import Any, Final, TypeAlias

from editloupe import files
from editloupe.errors import ConfigError
from editloupe.tasks import About
from editloupe.values import parse_json, sample_key

LARGE: Final = 2**20
"""Bytes of samples and findings from which reading a run whole takes long."""

SAMPLES: Final = "samples.jsonl"
FINDINGS: Final = "findings.jsonl"

_HEAD: Final = 4096
"""Bytes by which a file is known again: it may have been written anew."""

_Question: TypeAlias = tuple[str, str, str, int, str, int]
"""Judge, sample's key, metric, turn, part and repeat: the latest finding of one counts."""


def is_large(folder: Path) -> bool:
    """Return whether a run is so large that reading it whole takes long."""
    return sum(path.stat().st_size for name in (SAMPLES, FINDINGS) if (path := folder / name).exists()) >= LARGE


class RunIndex:
    """The index of one run folder, thread-safe. Raises ConfigError if the run's files cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        """Grows with every change of the run's files that `refresh` sees."""

        self._lock = threading.RLock()
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._ends: dict[str, int] = {SAMPLES: 0, FINDINGS: 0}
        """File → where the last line ends that was taken in."""
        self._heads: dict[str, bytes] = {SAMPLES: b"", FINDINGS: b""}
        self._places: dict[str, dict[str, list[int]]] = {SAMPLES: {}, FINDINGS: {}}
        """File → sample's key → where its lines begin."""
        self._ids: dict[str, str] = {}
        self._statuses: dict[_Question, str] = {}
        self._traces: set[str] = set()
        self._beside: dict[str, dict[str, None]] = {}
        """Sample's key → keys of the samples that a question showed with it."""

    def keys(self) -> list[tuple[str, str]]:
        """Return (key, id) of every sample in the order of the data, then of findings whose sample is not listed."""
        with self._lock:
            return [(key, self._ids[key]) for key in {**self._places[SAMPLES], **self._places[FINDINGS]}]

    def lines(self, samples: Collection[str]) -> dict[str, bytes]:
        """Return each file's lines about samples (an id, or EDITOR/ID, each), one after another as they stand there."""
        found: dict[str, bytes] = {}
        with self._lock:
            keys = [key for key, id_ in self._ids.items() if key in samples or id_ in samples]
            for name, places in self._places.items():
                if starts := sorted(at for key in keys for at in places.get(key, ())):
                    with files.open_plain(self.folder / name) as file:
                        found[name] = b"".join(file.readline() for at in starts if file.seek(at) == at)
        return found

    def samples(self) -> int:
        """Return how many samples the run has, those that could not be loaded included."""
        return len(self._places[SAMPLES])

    def asked(self, judges: Collection[str]) -> int:
        """Return how many samples each of these judges was asked about. What others found counts for every judge."""
        by_key: dict[str, set[str]] = {}
        with self._lock:
            for judge, key, *_ in self._statuses:
                by_key.setdefault(key, set()).add(judge)
        return sum(bool(found - set(judges)) or found >= set(judges) for found in by_key.values())

    def statuses(self) -> dict[str, int]:
        """Return status → current findings: the latest of each judge, question and repeat."""
        with self._lock:
            return dict(Counter(self._statuses.values()))

    def beside(self, key: str) -> list[str]:
        """Return the keys of the samples that questions about pairs showed with a sample."""
        with self._lock:
            return list(self._beside.get(key, ()))

    def names_trace(self, path: str) -> bool:
        """Return whether a finding names this trace."""
        return path in self._traces

    def refresh(self) -> None:
        """Take in what was appended. Where a file is no longer what it was, all is read anew."""
        with self._lock:
            try:
                if any(self._is_other(name) for name in self._ends):
                    self._forget()
                    self.version += 1
                for name in self._ends:
                    self._take(name)
            except OSError as error:
                raise ConfigError(f"{self.folder} cannot be read: {error.strerror or error}") from error

    def _is_other(self, name: str) -> bool:
        """Return whether a file no longer begins with what was taken in of it."""
        head, path = self._heads[name], self.folder / name
        if not head:
            return False
        if not path.exists():
            return True
        with files.open_plain(path) as file:
            return file.read(len(head)) != head or os.fstat(file.fileno()).st_size < self._ends[name]

    def _take(self, name: str) -> None:
        """Take in the complete lines of a file that are new."""
        begin = end = self._ends[name]
        path = self.folder / name
        if not path.exists() or path.stat().st_size == begin:
            return
        with files.open_plain(path) as file:
            file.seek(begin)
            for line in file:
                if line.endswith(b"\n"):
                    self._add(name, end, line)
                    end += len(line)
            file.seek(0)
            self._heads[name] = file.read(min(end, _HEAD))
        self._ends[name] = end
        self.version += end > begin

    def _add(self, name: str, at: int, line: bytes) -> None:
        """Take in a line, unless it is neither a sample nor a finding."""
        try:
            data: Any = parse_json(line)
            finding = data if "task_id" in data else None
            row = data.get("rejected", data) if finding is None else data
            id_ = str(row["id" if finding is None else "sample_id"])
            key = intern(sample_key(str(row["editor"]), id_))
            if finding is not None:
                judge, metric = intern(str(finding["judge_id"])), intern(str(finding["metric"]))
                turn, part = int(finding.get("turn", 0)), str(finding.get("part", ""))
                question = judge, key, metric, turn, part, int(finding["repeat"])
                self._statuses[question] = intern(str(finding["status"]))
                if part and (other := About(sample_id=id_, part=part).beside):
                    self._beside.setdefault(key, {})[other] = None
                    self._beside.setdefault(other, {})[key] = None
                if finding.get("trace"):
                    self._traces.add(str(finding["trace"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return
        self._ids.setdefault(key, id_)
        self._places[name].setdefault(key, []).append(at)
