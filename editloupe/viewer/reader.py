"""Read a run for its pages, and follow it while it grows. Pages get no path that leads out of the run folder.

A sample's page reads that sample's lines by the run's index; the run's own page reads the whole run.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from editloupe import files
from editloupe.data.human import of_turn
from editloupe.errors import ConfigError, TraceError
from editloupe.figures.columns import Item, join
from editloupe.figures.human_labels import read_human
from editloupe.findings import TRACE_NAME, Finding
from editloupe.runs.index import RunIndex
from editloupe.runs.judges import names_of, titled
from editloupe.runs.lineage import FORKS, family
from editloupe.runs.lock import is_written
from editloupe.runs.people import FILE as PEOPLE
from editloupe.runs.people import Given
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.traces.events import Header
from editloupe.traces.read import parse_lines, read_trace
from editloupe.values import Json, Sample, sample_key
from editloupe.viewer.pictures import Pictures

_STEM = re.compile(r"[0-9a-f]{64}\.[0-9]+")
_LOOK_S = 1.0
"""A run's files are looked at no more often than this."""


@dataclass(frozen=True, kw_only=True)
class RunSample:
    """One sample of a run, with what was found about it."""

    key: str
    """Unique in the run."""
    slug: str
    """Its name in addresses."""
    id: str
    editor: str
    sample: Sample | None
    """None if its row could not be read."""
    rejected: Mapping[str, Json] | None
    """The row that could not be read, with the reason."""
    findings: tuple[Finding, ...]
    """The latest of each judge, question and repeat."""
    beside: tuple[Finding, ...] = ()
    """The findings of questions about a pair in which this sample is the second."""
    partners: tuple[Sample, ...] = ()
    """The samples that questions about pairs showed with it."""
    people: tuple[Given, ...] = ()
    """What people said while they looked at it, parts of it included; the latest of each person and question."""


class RunReader:
    """One run folder, thread-safe. Raises ConfigError if `folder` is no run, and for a table that cannot be read."""

    def __init__(
        self, folder: Path, *, live: bool = False, human: Path | None = None, columns: Mapping[str, str] | None = None
    ) -> None:
        """human: a table of people's labels, shown beside those of the run's own samples.   columns: role → its column."""
        self.folder, self.live = folder.resolve(), live
        self.human, self.columns = human, dict(columns or {})
        self.stranger = ""
        """Why no label of the table is of this run's samples; "" where some are."""
        self.version = 0
        """Grows with every change that pages would show."""

        self._lock = threading.RLock()
        self._looked = 0.0
        self.info = RunStore.read_info(self.folder)
        """The run with run.json alone: judges, options, metrics."""

        self._index = RunIndex(self.folder)
        self._whole: RunStore | None = None
        self._all: dict[str, RunSample] | None = None
        self._stamp: object = None
        self._rated: dict[str, dict[str, dict[str, float | str]]] = {}
        self._look()
        if human is not None:
            self._rated = self._read_people(human)
            self._whole = self._all = None

    @property
    def name(self) -> str:
        return self.folder.name or str(self.folder)

    @property
    def store(self) -> RunStore:
        """The whole run as it stands; read again after a change."""
        with self._lock:
            self.refresh()
            if self._whole is None:
                self._whole = RunStore.read(self.folder)
            return self._whole

    def judge_names(self) -> dict[str, str]:
        """Return everybody who answers, measures too: judge id → name."""
        return names_of(self.info.info.get("judges"))

    def titles(self) -> dict[str, str]:
        """Return the name and the full URI of everybody who answers: judge id → text."""
        names = self.judge_names()
        return {id_: titled(names[id_], str(self.info.listed_judge(id_).get("backend") or "")) for id_ in names}

    def data_name(self) -> str:
        """Return what was judged: the data set that the first sample names, else ""."""
        return next(((one.sample.dataset or "") for one in self.first(1) if one.sample is not None), "")

    def same_data(self, other: RunReader) -> bool:
        """Return whether two runs begin with the same sample, so that their judges can be compared."""
        own, theirs = ([(s.key, s.sample and s.sample.content) for s in reader.first(1)] for reader in (self, other))
        return own == theirs

    def wall_s(self) -> float:
        """Return how long judging took, in seconds: from the first trace to the last.

        Never more than all verdicts took one after another, since a run may have been continued days later.
        """
        findings = list(self.store.findings.values())
        one_by_one = sum(f.seconds for f in findings)
        paths = [path for f in findings if f.trace and (path := self.inside(f.trace))]
        try:
            first, last = (read_trace(path).events for path in (paths[0], paths[-1]))
            apart = datetime.fromisoformat(last[-1].time) - datetime.fromisoformat(first[0].time)
        except (IndexError, TraceError, ValueError):
            return one_by_one
        return min(one_by_one, max(0.0, apart.total_seconds()))

    @property
    def written(self) -> float:
        """When the run was written to last, in seconds since 1970."""
        names = (self.folder / name for name in ("findings.jsonl", "run.json"))
        return next((path.stat().st_mtime for path in names if path.exists()), 0.0)

    def counts(self) -> tuple[int, int, int]:
        """Return how many samples, findings, and findings with an answer there are."""
        self.refresh()
        statuses = self._index.statuses()
        return len(self._keys), sum(statuses.values()), statuses.get("ok", 0)

    def samples(self) -> tuple[RunSample, ...]:
        """Return every sample in the order of the data. Reads the whole run."""
        with self._lock:
            store = self.store
            if self._all is None:
                self._all = {sample.slug: sample for sample in self._samples(store, self._keys.values())}
            return tuple(self._all.values())

    def first(self, most: int) -> tuple[RunSample, ...]:
        """Return the first samples in the order of the data, without reading the others."""
        self.refresh()
        places = list(self._keys.values())[:most]
        store = RunStore.read_samples(self.folder, [key for key, _ in places], self._index)
        return tuple(self._samples(store, places))

    def sample(self, slug: str) -> RunSample | None:
        """Return one sample by its name in addresses; None if there is none."""
        self.refresh()
        known, place = self._all, self._keys.get(slug)
        if known is not None or place is None:
            return known.get(slug) if known else None
        key, id_ = place
        store = RunStore.read_samples(self.folder, [key, *self._index.beside(key)], self._index)
        return next(self._samples(store, [(key, id_)]))

    def around(self, slug: str) -> tuple[int, int, str | None, str | None]:
        """Return (position from 1, number of samples, the sample before, the one behind) of a known sample."""
        slugs = list(self._keys)
        at = slugs.index(slug)
        return at + 1, len(slugs), slugs[at - 1] if at else None, slugs[at + 1] if at + 1 < len(slugs) else None

    def running(self) -> bool:
        """Return whether the process that took the run's lock is alive here. One on another machine is not seen."""
        return is_written(self.folder)

    def forks(self, trace: str) -> list[str]:
        """Return the traces that continue a task's trace, or one of its forks, in the order in which they were made."""
        stem = family(trace)
        found = (self.folder / FORKS / stem[:2]).glob(f"{stem}.*.jsonl") if _STEM.fullmatch(stem) else ()
        names = [path.name for path in found if path.name.split(".")[2].isdigit()]
        return [f"{FORKS}/{stem[:2]}/{name}" for name in sorted(names, key=lambda name: int(name.split(".")[2]))]

    def has_trace(self, path: str) -> bool:
        """Return whether pages may show this file: a trace of a finding, or a fork of one."""
        return self._index.names_trace(path) or path in self.forks(path)

    def trace(self, name: str) -> bytes | None:
        """Return a trace file of the run; None if it is not there, and for a file that is no trace by name or content."""
        path = self.inside(name) if TRACE_NAME.fullmatch(name) else None
        try:
            data = b"" if path is None else files.read_bytes(path)
            first, _, _ = parse_lines(data.splitlines()[:1], name=name)
        except (OSError, TraceError):
            return None
        return data if first and isinstance(first[0], Header) else None

    def inside(self, relative: str) -> Path | None:
        """Return a file of the run folder; None if it is not there, and for a name or a link that leads out of it."""
        try:
            path = (self.folder / relative).resolve()
            return path if path.is_relative_to(self.folder) and path.is_file() else None
        except (OSError, ValueError):
            return None

    def _samples(self, store: RunStore, places: Iterable[tuple[str, str]]) -> Iterator[RunSample]:
        found, beside, people = dict[str, list[Finding]](), dict[str, list[Finding]](), dict[str, list[Given]]()
        for finding in store.current():
            found.setdefault(finding.sample_key, []).append(finding)
            if other := finding.about.beside:
                beside.setdefault(other, []).append(finding)
        for given in store.people.values():
            people.setdefault(given.finding.sample_key, []).append(given)
        for key, id_ in places:
            sample, row, own = store.samples.get(key), store.rejected.get(key), tuple(found.get(key, ()))
            named = sample.editor if sample else str(row["editor"]) if row else own[0].editor if own else ""
            if sample is not None and (rated := self._rated.get(key)):
                names = {**sample.human, **rated}
                sample = replace(sample, human={n: {**sample.human.get(n, {}), **rated.get(n, {})} for n in names})
            partners = tuple(store.samples[other] for other in self._index.beside(key) if other in store.samples)
            yield RunSample(
                key=key, slug=slug(key), id=id_, editor=named, sample=sample, rejected=row, findings=own,
                beside=tuple(beside.get(key, ())), partners=partners, people=tuple(people.get(key, ())),
            )  # fmt: skip

    def _read_people(self, human: Path) -> dict[str, dict[str, dict[str, float | str]]]:
        """The labels of a table by sample: metric of a turn → rater → label. Raises ConfigError, SampleError."""
        people = read_human(human, list(self.info.metrics().values()), self.columns)
        turns = {turn for *_, turn, _ in people.items}
        # An editor's name stands in a key as `sample_key` writes it.
        named = [(key[: -len(id_) - 1].replace("%2F", "/").replace("%25", "%"), id_) for key, id_ in self._keys.values()]
        ours = {(editor, id_, turn, ""): Item(id_) for editor, id_ in named for turn in turns}
        try:
            joined = join(ours, people, where=f"the run {self.name}", closed=True)
        except ConfigError as error:
            self.stranger = str(error)
            return {}
        found: dict[str, dict[str, dict[str, float | str]]] = {}
        for metric, rated in joined.ratings.items():
            for (editor, id_, turn, _), by_rater in rated.items():
                found.setdefault(sample_key(editor, id_), {}).setdefault(of_turn(turn, metric), {}).update(by_rater)
        return found

    def refresh(self) -> None:
        """Take in what was written since, if the run is followed; at most once in _LOOK_S.

        A page does not wait for a large run that is being read for another one.
        """
        if self.live and self._lock.acquire(blocking=False):
            try:
                if time.monotonic() - self._looked >= _LOOK_S:
                    self._index.refresh()
                    self._look()
            finally:
                self._lock.release()

    def _look(self) -> None:
        """Take in what has changed: run.json, what people said, the index."""
        self._looked = time.monotonic()
        paths = self.folder / "run.json", self.folder / PEOPLE
        sizes = ((s := path.stat()).st_mtime_ns + s.st_size if path.exists() else 0 for path in paths)
        stamp = (*sizes, self._index.version)
        if stamp == self._stamp:
            return
        self.info = RunStore.read_info(self.folder)
        self._stamp = stamp
        self._whole = self._all = None
        self.version += 1
        self._keys = {slug(key): (key, id_) for key, id_ in dict(self._index.keys()).items()}
        """Name in addresses → (key, id)."""


@dataclass(frozen=True, kw_only=True)
class SiteRun:
    """One run on a site."""

    reader: RunReader
    folder: str = ""
    """Its part of every address: "" or "NAME/"."""

    @cached_property
    def pictures(self) -> Pictures:
        return Pictures(self.reader.folder, self.reader.inside)

    @property
    def metrics(self) -> dict[str, Metric]:
        """As the run wrote them down; empty if they cannot be read, which its tables then say."""
        try:
            return self.reader.info.metrics()
        except ConfigError:
            return {}

    @property
    def judges(self) -> dict[str, str]:
        """Short names by id of those who have the role "judge", else of everybody."""
        names, mains = self.reader.judge_names(), self.reader.info.judges()
        return {id_: name for id_, name in names.items() if id_ in mains} or names

    @property
    def asked(self) -> str:
        """The protocol, its rubric if that has another name, and its mode."""
        info = self.reader.info
        try:
            rubric = info.metric_set().id
        except ConfigError:
            rubric = ""
        named = "" if rubric in ("", info.protocol) else f"rubric {rubric}"
        return ", ".join(filter(None, (info.protocol, named, f"mode {info.mode}" if info.mode else "")))


def slug(key: str) -> str:
    """Return a sample's name in addresses and file names: readable, safe on every file system, and unique."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-")[:48]
    mark = hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:10]
    return f"{readable}-{mark}" if readable else mark
