"""What a run folder holds: samples, findings, what people said. The last valid line of a key counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from editloupe import files
from editloupe.data import human
from editloupe.data.run_file import NAME, check_contents
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding
from editloupe.runs import jsonl, lock, people
from editloupe.runs.index import FINDINGS, SAMPLES, RunIndex, is_large
from editloupe.runs.record import RunRecord
from editloupe.scores import Metric
from editloupe.traces.events import End
from editloupe.traces.read import last_finding, read_trace
from editloupe.values import Json, Sample, sample_key

Parsed = TypeVar("Parsed")


class RunContents(RunRecord):
    """One run as it stood when it was read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.problems: list[str] = []
        self.samples: dict[str, Sample] = {}
        self.rejected: dict[str, Mapping[str, Json]] = {}
        self.findings: dict[tuple[str, str, int], Finding] = {}
        """The last of each key. Whether they are what was recorded is the question of `runs.verify`."""
        self.people: dict[people.Place, people.Given] = {}
        """What people said while they looked at the run; no part of `findings`. Labels are ratings of `samples` as well."""
        self.invalid: list[str] = []
        """Those of the problems that name findings which are left out."""

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return a run as it stands. Raises ConfigError if `folder` is no run."""
        store = cls(folder)
        store._load()
        return store

    @classmethod
    def read_samples(cls, folder: Path, samples: Collection[str], index: RunIndex | None = None) -> Self:
        """Return a run with what it holds of these samples (an id, or EDITOR/ID, each) and no other.

        index: of the run, where there is one already. Without one, a small run is read whole; so is a run of which nothing
        is known of the samples. Raises as `read`.
        """
        store, lines = cls(folder), None
        if all((folder / name).exists() for name in (NAME, FINDINGS)):
            if index is None and is_large(folder):
                check_contents(folder)
                index = RunIndex(folder)
            lines = None if index is None else index.lines(samples)
        store._load(lines or None)
        return store

    def latest(self, finding: Finding) -> Finding | None:
        """Return the latest finding of the same judge, question and repeat."""
        return next((f for f in reversed(self.findings.values()) if _place(f) == _place(finding)), None)

    def current(self, judge_id: str | None = None) -> list[Finding]:
        """Return the latest finding of each judge, question and repeat, in the order of the samples.

        judge_id: one who has the role "judge"; what the other roles and the measures found counts for each of them.
        """
        wanted = {id_ for id_, role in self.roles().items() if role != "judge"} | {judge_id}
        latest = {_place(f): f for f in self.findings.values() if judge_id is None or f.judge_id in wanted}
        order = {key: i for i, key in enumerate(self.samples)}
        metrics = {id_: number for number, id_ in enumerate(self.metrics())}

        def place(f: Finding) -> tuple[int, str, int, int, tuple[tuple[int, str], ...], int]:
            key = f.sample_key
            # Questions that are no metric come first: later ones rest on them.
            part = _natural(f.part) if f.part else ()
            return order.get(key, len(order)), key, metrics.get(f.metric, -1), f.turn, part, f.repeat

        return sorted(latest.values(), key=place)

    def findings_from_traces(self, *, since: float = 0.0) -> Iterator[Finding]:
        """Yield the findings of the traces. findings.jsonl can be rebuilt from these; blocked tasks have no trace.

        since: traces that were last written before this time (of the file system, in s) are not read.
        """
        for path in sorted((self.folder / "traces").glob("*/*/*.jsonl")):
            if ".aside-" in path.name or path.stat().st_mtime < since:
                continue
            try:
                trace = read_trace(path)
            except TraceError as error:
                self.problems.append(str(error))
                continue
            if trace.tampering:
                self.problems.append(f"{trace.tampering[0]}; its finding is left out")
                continue
            finding = last_finding(trace.events)
            # A task that goes on has an answer when it has ended.
            if finding is not None and (finding.status != "ok" or isinstance(trace.events[-1], End)):
                yield finding

    def _keep(self, finding: Finding) -> None:
        """Keep a finding in the order of writing, so that the latest of a question is the last."""
        self.findings.pop(finding.key, None)
        self.findings[finding.key] = finding

    def _load(self, part: Mapping[str, bytes] | None = None) -> None:
        """Read the run. part: file → those of its lines that are wanted; None reads the files."""
        self._load_info()
        try:
            metrics = self.metrics()
        except ConfigError:
            metrics = {}  # those who need the metrics say what is wrong with them
        known = human.names_of(metrics.values())
        for sample in self._parsed(SAMPLES, _sample_or_row, part):
            if isinstance(sample, Sample):
                # People's ratings stand under the ids of the metrics.
                own = human.named(sample.human, known) if sample.human else sample.human
                self.samples[sample.key] = sample if own == sample.human else replace(sample, human=own)
                self.rejected.pop(sample.key, None)
            else:
                self.rejected[sample_key(str(sample["editor"]), str(sample["id"]))] = sample
        self._load_findings(part, metrics)
        said = people.read(self.folder, metrics, self.problems)
        self.people = {place: given for place, given in said.items() if given.finding.sample_key in self.samples}
        for given in self.people.values():
            if given.finding.metric in metrics:
                key = given.finding.sample_key
                self.samples[key] = people.rated(self.samples[key], [given])

    def _load_findings(self, part: Mapping[str, bytes] | None, metrics: Mapping[str, Metric]) -> None:
        """Read findings.jsonl, or the traces where there is none."""
        if not (self.folder / FINDINGS).exists():
            self.findings = {f.key: f for f in self.findings_from_traces()}
        before = len(self.problems)
        for finding in self._parsed(FINDINGS, partial(_finding, self.folder, metrics), part):
            self._keep(finding)
        self.invalid = [problem for problem in self.problems[before:] if jsonl.CUT_OFF not in problem]

    def _parsed(
        self, name: str, parse: Callable[[Mapping[str, Json]], Parsed], part: Mapping[str, bytes] | None
    ) -> Iterator[Parsed]:
        """Yield the lines of a file, or of a part of it, as values."""
        path = self.folder / name
        if part is not None:
            return jsonl.values(name, part.get(name, b""), parse, self.problems, growing=True)
        content = files.read_bytes(path) if path.exists() else b""
        return jsonl.values(name, content, parse, self.problems, growing=lock.is_written(self.folder))


def _place(f: Finding) -> tuple[str, int, str, str, str, int, str]:
    """Return what a finding is about: the latest one of a place counts."""
    return f.judge_id, f.repeat, f.metric, f.editor, f.sample_id, f.turn, f.part


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which "target 2" stands before "target 10"."""
    return tuple((int(word), "") if word.isdigit() else (-1, word) for word in text.split())


def _sample_or_row(data: Mapping[str, Json]) -> Sample | Mapping[str, Json]:
    row = data.get("rejected")
    if isinstance(row, Mapping):
        return {"id": row["id"], "editor": row["editor"], **row}
    return Sample.from_json(data)


def _finding(folder: Path, metrics: Mapping[str, Metric], line: Mapping[str, Json]) -> Finding:
    """Return the finding of a line. Raises ValueError where it is none, or where its answer is none of its metric.

    A question may have a scale of its own, of which the protocol makes the metric's value: what its trace ends in counts.
    """
    finding = Finding.from_json(line)
    metric = metrics.get(finding.metric)
    why = "" if metric is None or finding.answer is None else metric.refuses(finding.answer)
    if why and (finding.trace is None or not _ends_in(folder / finding.trace, finding)):
        raise ValueError(f"{finding.about} ({finding.metric}): {why}")
    return finding


def _ends_in(path: Path, finding: Finding) -> bool:
    try:
        return last_finding(read_trace(path).events) == finding
    except TraceError:
        return False
