"""What a run folder holds: run.json, samples, findings, what people said. The last valid line of a key counts."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from editloupe import files
from editloupe.data import human
from editloupe.data.run_file import NAME, check_contents, read_run_file
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding
from editloupe.runs import jsonl, lock, people
from editloupe.runs.index import FINDINGS, SAMPLES, RunIndex, is_large
from editloupe.runs.jsonl import list_of, object_of
from editloupe.runs.judges import JudgeEntry, RunSpec, names_of
from editloupe.runs.trust import names_file
from editloupe.scores import Metric, MetricSet
from editloupe.traces.events import End
from editloupe.traces.read import last_finding, read_trace
from editloupe.values import Json, Sample, digest, sample_key

Parsed = TypeVar("Parsed")


class RunContents:
    """One run as it stood when it was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info: dict[str, Json] = {}
        """What run.json says: the run's identity, how it was asked, its metrics, its judges."""
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
    def read_info(cls, folder: Path) -> Self:
        """Return a run with run.json alone. Raises ConfigError if `folder` is no run."""
        found = cls(folder)
        found._load_info()
        return found

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

    # run.json

    @property
    def spec(self) -> RunSpec:
        """The run as a value."""
        return RunSpec(identity=object_of(self.info.get("identity")), record=object_of(self.info.get("record")))

    @property
    def identity(self) -> str:
        """The run's name in its traces."""
        return digest(dict(self.spec.identity))[:16]

    @property
    def protocol(self) -> str:
        """The name of the protocol that the run was asked by."""
        return str(self.spec.identity.get("protocol"))

    @property
    def mode(self) -> str:
        """The protocol's option of this name; "" if it has none."""
        return str(object_of(self.spec.record.get("options")).get("mode") or "")

    @property
    def rescored(self) -> bool:
        """Whether the findings are another run's, read by another rubric, and the traces are that run's."""
        return "rescored_from" in self.spec.record

    def refuse_rescored(self) -> None:
        """Raise ConfigError if the traces do not end in these findings."""
        if self.rescored:
            raise ConfigError(
                f"{self.folder} holds re-scored findings of another run; give that run, whose traces they are"
            )

    def options(self) -> dict[str, Json]:
        """Return the options by which the run's protocol can be made again. Raises ConfigError for a file."""
        options = dict(object_of(self.spec.record.get("options")))
        for name in ("rubric", "prompt"):
            if names_file(options.get(name)):
                raise ConfigError(
                    f"{self.folder / NAME} names the file {options[name]!r} as its {name}; expected the text itself, as "
                    "editloupe writes it. Files that a run names are not opened"
                )
        return options

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the run's protocol by id, in its order. Raises ConfigError for what is no metric."""
        try:
            metrics = [Metric.from_json(m) for m in list_of(self.spec.record.get("metrics"))]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.folder / NAME}: its metrics are not of the expected shape: {error}") from error
        return {metric.id: metric for metric in metrics}

    def metric_set(self) -> MetricSet:
        """Return the run's metrics with a name for all of them. Raises ConfigError where run.json has none."""
        metrics = tuple(self.metrics().values())
        if not metrics:
            raise ConfigError(f"{self.folder / NAME} records no metric; expected some, as editloupe judge writes them")
        return MetricSet(id=str(object_of(self.options().get("rubric")).get("id") or self.protocol), metrics=metrics)

    def listed_judge(self, id_: str) -> Mapping[str, Json]:
        """Return somebody who answers as run.json lists it; empty if it does not."""
        return self._listed().get(id_, {})

    def _listed(self) -> dict[str, Mapping[str, Json]]:
        return {id_: data for id_, data in object_of(self.info.get("judges")).items() if isinstance(data, Mapping)}

    def entries(self) -> dict[str, JudgeEntry]:
        """Return everybody who answers by id. Raises ConfigError for an entry of another shape."""
        try:
            return {id_: JudgeEntry.from_json(data) for id_, data in self._listed().items()}
        except ValueError as error:
            problem = str(error).partition("\n")[0][:300]
            raise ConfigError(f"{self.folder / NAME}: a judge is not of the expected shape: {problem}") from error

    def roles(self) -> dict[str, str]:
        """Return what everybody answers: id → role."""
        return {id_: str(data.get("role") or "judge") for id_, data in self._listed().items()}

    def judges(self) -> dict[str, str]:
        """Return those who have the role "judge": id → backend URI."""
        listed = self._listed()
        return {id_: str(listed[id_].get("backend")) for id_, role in self.roles().items() if role == "judge"}

    def judge_names(self) -> dict[str, str]:
        """Return those who have the role "judge": id → the given name, else the model's; no two alike (`names_of`)."""
        names = names_of(self.info.get("judges"))
        return {id_: names[id_] for id_ in self.judges()}

    def judges_called(self, wanted: str | None) -> list[str]:
        """Return the ids of the judges that a word means: a name, a URI, an id or its beginning. None means all.

        A URI without its options means the judges of that model.
        """
        names, uris = self.judge_names(), self.judges()
        if wanted is None:
            return list(uris)
        exactly = [id_ for id_ in uris if wanted in (id_, names[id_], uris[id_])]
        exactly = exactly or [id_ for id_ in uris if wanted == uris[id_].partition("?")[0]]
        return exactly or [id_ for id_ in uris if wanted and id_.startswith(wanted)]

    # The other files

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
        """Read the run, the traces where there is no findings.jsonl.

        part: file → those of its lines that are wanted; None reads the files.
        """
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
        if not (self.folder / FINDINGS).exists():
            self.findings = {f.key: f for f in self.findings_from_traces()}
        before = len(self.problems)
        for finding in self._parsed(FINDINGS, partial(_finding, self.folder, metrics), part):
            self._keep(finding)
        self.invalid = [problem for problem in self.problems[before:] if jsonl.CUT_OFF not in problem]
        said = people.read(self.folder, metrics, self.problems)
        self.people = {place: given for place, given in said.items() if given.finding.sample_key in self.samples}
        for given in self.people.values():
            if given.finding.metric in metrics:
                key = given.finding.sample_key
                self.samples[key] = people.rated(self.samples[key], [given])

    def _parsed(
        self, name: str, parse: Callable[[Mapping[str, Json]], Parsed], part: Mapping[str, bytes] | None
    ) -> Iterator[Parsed]:
        """Yield the lines of a file, or of a part of it, as values."""
        path = self.folder / name
        if part is not None:
            return jsonl.values(name, io.BytesIO(part.get(name, b"")), parse, self.problems, growing=True)
        file = files.open_plain(path) if path.exists() else io.BytesIO()
        return jsonl.values(name, file, parse, self.problems, growing=lock.is_written(self.folder))

    def _load_info(self) -> None:
        if os.path.lexists(self.folder / NAME):
            check_contents(self.folder)
        self.info = read_run_file(self.folder)


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
