"""A run as the viewer knows it: read once, kept in memory, read on where the run grows. Nothing here writes.

The one door to the run folder's files: pages ask for rows, findings, traces and neighbours, and get no path that leads out
of the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from editloupe.errors import TraceError
from editloupe.findings import Finding
from editloupe.runs.folders import is_written
from editloupe.runs.store import RunStore
from editloupe.traces.read import complete_lines, read_trace
from editloupe.values import Json, Sample, sample_key

_WATCHED = ("run.json", "samples.jsonl", "findings.jsonl")
_STEM = re.compile(r"[0-9a-f]{64}\.[0-9]+")

_LOOK_S = 1.0
"""A run's files are looked at no more often than this."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One sample of a run. slug: its name in addresses.   sample: None where its row could not be read.

    findings: the latest of each judge, criterion and repeat.   open: traces without a finding, still being written.
    """

    key: str
    slug: str
    id: str
    editor: str
    sample: Sample | None
    rejected: Mapping[str, Json] | None
    findings: tuple[Finding, ...]
    open: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What is known at one moment; replaced as a whole, so that no reader sees half of it."""

    entries: tuple[Entry, ...]
    places: Mapping[str, int]
    by_id: Mapping[str, list[Entry]]


class RunIndex:
    """One run folder, thread-safe. Raises ConfigError where `folder` is no run."""

    def __init__(self, folder: Path, *, live: bool = False) -> None:
        self.folder = folder.resolve()
        self.live = live
        self.version = 0
        self._lock = threading.RLock()
        self._looked = 0.0
        self._stamps: tuple[object, ...] = ()
        self._offset = 0
        self._opened: dict[str, str | None] = {}
        self._read()

    @property
    def store(self) -> RunStore:
        return self._store

    @property
    def name(self) -> str:
        return self.folder.name or str(self.folder)

    def entries(self) -> tuple[Entry, ...]:
        """Every sample, in the order of the data."""
        self._refresh()
        return self._known.entries

    def entry(self, slug: str) -> Entry | None:
        self._refresh()
        known = self._known
        at = known.places.get(slug)
        return None if at is None else known.entries[at]

    def named(self, id_: str) -> list[Entry]:
        """The samples with this id, one an editor."""
        return self._known.by_id.get(id_, [])

    def around(self, slug: str) -> tuple[int, int, Entry | None, Entry | None]:
        """(position from 1, of how many, the sample before, the one behind) of a known sample."""
        known = self._known
        at, count = known.places[slug], len(known.entries)
        before = known.entries[at - 1] if at else None
        return at + 1, count, before, known.entries[at + 1] if at + 1 < count else None

    def running(self) -> bool:
        """Whether the process that took the run's lock is alive here. A run on another machine cannot be told."""
        return is_written(self.folder)

    def forks(self, trace: str) -> list[str]:
        """The traces of the run that continue a task's trace, or one of its forks, in the order in which they were made."""
        stem = ".".join(Path(trace).name.split(".")[:2])
        found = (self.folder / "forks" / stem[:2]).glob(f"{stem}.*.jsonl") if _STEM.fullmatch(stem) else ()
        names = [path.name for path in found if path.name.split(".")[2].isdigit()]
        return [f"forks/{stem[:2]}/{name}" for name in sorted(names, key=lambda name: int(name.split(".")[2]))]

    def traces(self) -> frozenset[str]:
        """Every trace that pages link to, but for forks."""
        named = {f.trace for f in self._store.findings.values() if f.trace}
        return frozenset(named | set(self._opened))

    def inside(self, relative: str) -> Path | None:
        """A file of the run folder; None for one that is not there, and for a name or a link that leads out of it."""
        try:
            path = (self.folder / relative).resolve()
            return path if path.is_relative_to(self.folder) and path.is_file() else None
        except (OSError, ValueError):
            return None

    def _read(self) -> None:
        self._stamps = self._stamp()
        self._store = RunStore.read(self.folder)
        path = self.folder / "findings.jsonl"
        self._offset = complete_lines(path.read_bytes())[1] if path.exists() else 0
        self._build()

    def _stamp(self) -> tuple[object, ...]:
        found: list[object] = []
        for name in _WATCHED:
            try:
                stat = (self.folder / name).stat()
                found.append((stat.st_size, stat.st_mtime_ns))
            except OSError:
                found.append(None)
        return tuple(found)

    def _refresh(self) -> None:
        """Read on where files have changed: new findings alone are appended, anything else is read anew."""
        if not self.live:
            return
        with self._lock:
            if time.monotonic() - self._looked < _LOOK_S:
                return
            self._looked = time.monotonic()
            stamps = self._stamp()
            changed = stamps != self._stamps
            if changed and stamps[:2] == self._stamps[:2] and self._read_on():
                self._stamps = stamps
            elif changed:
                self._read()
                return
            opened = self._find_open()
            if changed or opened != self._opened:
                self._build(opened)

    def _read_on(self) -> bool:
        """New lines of findings.jsonl; False where the file is not what was read before with something behind it."""
        try:
            with (self.folder / "findings.jsonl").open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    return False
                file.seek(self._offset)
                lines, end = complete_lines(file.read())
        except OSError:
            return False
        for line in lines:
            try:
                finding = Finding.from_json(json.loads(line))
            except (KeyError, TypeError, ValueError, AssertionError):
                return False
            self._store.findings.pop(finding.key, None)
            self._store.findings[finding.key] = finding
        self._offset += end
        return True

    def _build(self, opened: dict[str, str | None] | None = None) -> None:
        store = self._store
        self._opened = self._find_open() if opened is None else opened
        by_key: dict[str, list[Finding]] = {}
        for finding in store.current():
            by_key.setdefault(sample_key(finding.editor, finding.sample_id), []).append(finding)
        open_by_key: dict[str, list[str]] = {}
        for path, key in self._opened.items():
            if key is not None:
                open_by_key.setdefault(key, []).append(path)
        entries = []
        for key in dict.fromkeys((*store.samples, *store.rejected, *by_key, *open_by_key)):
            findings, sample, row = by_key.get(key, []), store.samples.get(key), store.rejected.get(key)
            one = findings[0] if findings else None
            entries.append(
                Entry(
                    key=key,
                    slug=slug(key),
                    id=sample.id if sample else str(row["id"]) if row else one.sample_id if one else key,
                    editor=sample.editor if sample else str(row["editor"]) if row else one.editor if one else "",
                    sample=sample,
                    rejected=row,
                    findings=tuple(findings),
                    open=tuple(open_by_key.get(key, ())),
                )
            )
        by_id: dict[str, list[Entry]] = {}
        for entry in entries:
            by_id.setdefault(entry.id, []).append(entry)
        places = {entry.slug: at for at, entry in enumerate(entries)}
        self._known = _Known(entries=tuple(entries), places=places, by_id=by_id)
        self.version += 1

    def _find_open(self) -> dict[str, str | None]:
        """Traces that no finding names → the key of their sample (None: not to be told yet). Only of a run under way."""
        if not self.live or not self.running():
            return {}
        known = {f.trace for f in self._store.findings.values()}
        found: dict[str, str | None] = {}
        for path in (self.folder / "traces").glob("*/*/*.jsonl"):
            name = path.relative_to(self.folder).as_posix()
            if name not in known and ".aside-" not in name:
                found[name] = self._opened.get(name) or _sample_of(path)
        return found


def slug(key: str) -> str:
    """A sample's name in addresses and file names: readable, safe on every file system, and its own (16 digits of hash)."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-")[:48]
    mark = hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:10]
    return f"{readable}-{mark}" if readable else mark


def _sample_of(path: Path) -> str | None:
    try:
        task = read_trace(path).header.task
        return sample_key(str(task["editor"]), str(task["sample_id"]))
    except (TraceError, KeyError):
        return None
