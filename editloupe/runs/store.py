"""The run folder: run.json, config.yaml, samples.jsonl, findings.jsonl, people.jsonl, traces/, blobs/, report/, probes/.

Everything that grows is appended; a torn last line is cut off, and the last valid line of a key wins. One process writes
at a time; any number may read.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import ValidationError

from editloupe import files
from editloupe.data import human
from editloupe.data.run_file import RUN_SCHEMA, read_run_file
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, RunMismatch, StorageError, TraceError
from editloupe.findings import Finding
from editloupe.runs import people
from editloupe.runs.all_visits import of_all
from editloupe.runs.differences import RunSpec, differences
from editloupe.runs.folders import check_contents, is_written
from editloupe.runs.index import FILES, RunIndex
from editloupe.runs.judges import Entry, joined, names_of, with_judges
from editloupe.runs.trust import names_file
from editloupe.scores import Metric, MetricSet
from editloupe.traces.events import End
from editloupe.traces.read import complete_lines, last_finding, read_trace
from editloupe.values import Json, Sample, digest, finite_json, parse_json, sample_key

Parsed = TypeVar("Parsed")

_CUT_OFF = "the last line is cut off"
_TOLD = 5
"""How many damaged lines of a file are named one by one."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

_CONFIG_HEAD = "# editloupe judge --config THIS_FILE runs this again.\n"


class RunStore:
    """One run folder. Open with `RunStore.read` to look, with `RunStore.begin` to work (which takes the lock)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.samples: dict[str, Sample] = {}
        self.rejected: dict[str, Mapping[str, Json]] = {}
        self.findings: dict[tuple[str, str, int], Finding] = {}
        """The last of each key. Whether they are what was recorded is the question of `runs.verify`."""
        self.people: dict[people.Place, people.Given] = {}
        """What people said while they looked at the run; no part of `findings`. Labels are ratings of `samples` as well."""
        self.invalid: list[str] = []
        """Those of the problems that name findings which are left out."""
        self.info: dict[str, Json] = {}
        self._lock: BinaryIO | None = None
        self._findings_file: BinaryIO | None = None
        self._torn: dict[str, int] = {}
        """File → where its last complete line ends, if something follows."""

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    @classmethod
    def read(cls, folder: Path) -> RunStore:
        """Return a run as it stands. Raises ConfigError if `folder` is no run."""
        store = cls(folder)
        store._load()
        return store

    @classmethod
    def begin(
        cls,
        folder: Path,
        spec: RunSpec,
        judges: Iterable[Entry],
        loaded: Loaded,
        *,
        config: Mapping[str, Json] | None = None,
    ) -> RunStore:
        """Return a new run, or an existing one with the same identity, locked for this process, with what is to be judged.

        judges: who answers, a role each, and others that are to come; they join those of before.
        config: the options of this visit; config.yaml then says what all visits asked. Without any, none is written.
        Raises RunMismatch if another identity was judged here (naming the fields that differ), if a sample's content is no
        longer what was judged, or if a name is another judge's already; then the run stays as it is. Raises ConfigError
        (not writable, in use, not a run folder) and StorageError.
        """
        store = cls(folder)
        store._refuse_strangers()
        with ExitStack() as on_error:
            on_error.callback(store.close)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                store._take_lock()
                # Another process may have begun a run in between.
                listed = store.look(spec, judges, loaded)
            except OSError as error:
                raise ConfigError(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from error
            rebuilt = [] if (folder / "findings.jsonl").exists() else list(store.findings.values())
            with _storage(folder):
                store._write_info(store._visited(spec, listed))
                store._write_config(config, loaded)
                for name, end in store._torn.items():
                    with store._appended(name) as file:
                        file.truncate(end)
            store._append_samples(loaded)
            with _storage(folder):
                store._findings_file = store._appended("findings.jsonl")
            for finding in rebuilt:
                store.add_finding(finding)
            on_error.pop_all()
        return store

    @classmethod
    def read_info(cls, folder: Path) -> RunStore:
        """Return a run with run.json alone: its judges, options and metrics. Raises as `read`."""
        store = cls(folder)
        store._load_info()
        return store

    @classmethod
    def read_sample(cls, folder: Path, sample: str, index: RunIndex | None = None) -> RunStore:
        """Return a run with what it holds of one sample (an id, or EDITOR/ID) and no other: fast, however large the run.

        If nothing is known of the sample, or no index is given and the run is small, it is the whole run. Raises as `read`.
        """
        store, lines = cls(folder), None
        indexed = all((folder / name).exists() for name in ("run.json", "findings.jsonl"))
        if indexed and (index is not None or RunIndex.worth(folder)):
            with RunIndex(folder) if index is None else nullcontext(index) as opened:
                lines = opened.lines(sample)
        store._load(lines or None)
        return store

    @classmethod
    def read_samples(cls, folder: Path, samples: Iterable[str], index: RunIndex) -> RunStore:
        """Return a run with what it holds of these samples (EDITOR/ID each) and no other. Raises as `read`."""
        store, found = cls(folder), dict.fromkeys(FILES, b"")
        for sample in samples:
            for name, lines in index.lines(sample).items():
                found[name] += lines
        store._load(found)
        return store

    @classmethod
    def edit(cls, folder: Path, *, info_only: bool = False) -> RunStore:
        """Return an existing run as it stands, locked for this process, to put something beside what is there.

        info_only: with run.json alone, as `read_info`.   Raises ConfigError: no run, not writable, in use.
        """
        store = cls.read_info(folder) if info_only else cls.read(folder)
        try:
            store._take_lock()
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from error
        return store

    def add_judge(self, entry: Entry) -> None:
        """List one more judge of a run that has begun, if it is not listed yet. Raises StorageError."""
        judges = self.info.get("judges")
        if isinstance(judges, Mapping) and entry.judge.id in judges:
            return
        with _storage(self.folder):
            self._write_info({**self.info, "judges": joined(judges, [entry], self.folder)})

    def add_samples(self, loaded: Loaded) -> None:
        """Add samples to a run that has begun. Raises as `begin`."""
        self._refuse_changed(loaded.samples)
        self._append_samples(loaded)

    def _refuse_changed(self, samples: Iterable[Sample]) -> None:
        """Raise RunMismatch if a sample is no longer what this run judged."""
        for sample in samples:
            known = self.samples.get(sample.key)
            if known is None or known == sample or not any(turn.edited for turn in known.turns):
                continue  # without an output nothing was judged
            # An output that was missing and is there now was never judged: it may join.
            if known.content != _without_new(known, sample).content:
                raise RunMismatch(
                    f"sample {sample.key!r} is not what this run judged: {_changed(known, sample)}; "
                    "choose another --out, or put the old file back"
                )

    def _append_samples(self, loaded: Loaded) -> None:
        """Append the samples and rejected rows that are new. Raises StorageError."""
        samples = []
        for sample in loaded.samples:
            known = self.samples.get(sample.key)
            if known is not None and known == sample:
                self.samples[sample.key] = sample  # one that is held anyway
                same = True
            else:
                same = known is not None and known.content == sample.content
            if not same or sample.key in self.rejected:
                samples.append(sample)
        rows = [row for row in loaded.rejected if self.rejected.get(row.key) != row.to_json()]
        for sample in samples:
            self.samples[sample.key] = sample
            self.rejected.pop(sample.key, None)
        for row in rows:
            self.rejected[row.key] = row.to_json()
        with _storage(self.folder), self._appended("samples.jsonl") as file:
            file.writelines(_line(sample.to_json()) for sample in samples)
            file.writelines(_line({"rejected": row.to_json()}) for row in rows)

    def add_finding(self, finding: Finding, by: Entry | None = None) -> None:
        """Append one finding and make sure that it is on disk. by: who answered, to be listed. Raises StorageError."""
        if by is not None:
            self.add_judge(by)
        self.add_findings([finding])

    def add_findings(self, findings: Sequence[Finding]) -> None:
        """Append findings of listed judges and make sure that they are on disk. Raises StorageError."""
        assert self._findings_file is not None, "the run is open for reading only"
        with _storage(self.folder):
            self._findings_file.writelines(_line(finding.to_json()) for finding in findings)
            self._findings_file.flush()
            os.fsync(self._findings_file.fileno())
        for finding in findings:
            self._keep(finding)

    def latest(self, finding: Finding) -> Finding | None:
        """Return the latest finding of the same judge, question and repeat."""
        return next((f for f in reversed(self.findings.values()) if _place(f) == _place(finding)), None)

    def _keep(self, finding: Finding) -> None:
        """Keep a finding in the order of writing, so that the latest of a question is the last."""
        self.findings.pop(finding.key, None)
        self.findings[finding.key] = finding

    @property
    def spec(self) -> RunSpec:
        """The run as a value."""
        return RunSpec(identity=_object(self.info.get("identity")), record=_object(self.info.get("record")))

    @property
    def identity(self) -> str:
        """The run's name in its traces."""
        return digest(dict(self.spec.identity))[:16]

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

    @property
    def protocol(self) -> str:
        """The name of the protocol that the run was asked by."""
        return str(self.spec.identity.get("protocol"))

    def options(self) -> dict[str, Json]:
        """Return the options by which the run's protocol can be made again. Raises ConfigError for a file."""
        options = dict(_object(self.spec.record.get("options")))
        for name in ("rubric", "prompt"):
            if names_file(options.get(name)):
                raise ConfigError(
                    f"{self.folder / 'run.json'} names the file {options[name]!r} as its {name}; expected the text itself, "
                    "as editloupe writes it. Files that a run names are not opened"
                )
        return options

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the run's protocol by id, in its order. Raises ConfigError where run.json has none."""
        try:
            metrics = [Metric.from_json(m) for m in _list(self.spec.record.get("metrics"))]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.folder / 'run.json'}: its metrics are not of the expected shape: {error}") from error
        return {metric.id: metric for metric in metrics}

    def metric_set(self) -> MetricSet:
        """Return the run's metrics with a name for all of them. Raises ConfigError where run.json has none."""
        metrics = tuple(self.metrics().values())
        if not metrics:
            raise ConfigError(
                f"{self.folder / 'run.json'} records no metric; expected some, as editloupe judge writes them"
            )
        return MetricSet(id=str(_object(self.options().get("rubric")).get("id") or self.protocol), metrics=metrics)

    def entries(self) -> dict[str, Entry]:
        """Return the listed judges: id → entry. Raises ConfigError for an entry of another shape."""
        try:
            return {id_: Entry.from_json(data) for id_, data in self._listed().items()}
        except ValueError as error:
            problem = str(error).partition("\n")[0][:300]
            raise ConfigError(f"{self.folder / 'run.json'}: a judge is not of the expected shape: {problem}") from error

    def roles(self) -> dict[str, str]:
        """Return what each judge of the run answers: id → role."""
        return {id_: str(data.get("role") or "judge") for id_, data in self._listed().items()}

    def judges(self) -> dict[str, str]:
        """Return those who have the role "judge": id → backend URI."""
        listed = self._listed()
        return {id_: str(listed[id_].get("backend")) for id_, role in self.roles().items() if role == "judge"}

    def judge_names(self) -> dict[str, str]:
        """Return those who have the role "judge": id → the given name, else the model's; no two alike (`names_of`)."""
        names = names_of(self.info.get("judges"))
        return {id_: names[id_] for id_ in self.judges()}

    def listed_judge(self, id_: str) -> Mapping[str, Json]:
        """Return a judge as run.json lists it; empty if it does not."""
        return self._listed().get(id_, {})

    def _listed(self) -> dict[str, Mapping[str, Json]]:
        return {id_: data for id_, data in _object(self.info.get("judges")).items() if isinstance(data, Mapping)}

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

    def write_probe(self, probed: Mapping[str, Json]) -> Path:
        """Write what a backend was found to be able to do into `probes/`, one file a backend; the latest one stays.

        A run that is being judged goes on undisturbed. Raises StorageError.
        """
        name = str(probed["backend"])
        plain = "".join(c if c.isalnum() or c in "._" else "-" for c in name).strip("-")[:80]
        with _storage(self.folder):
            text = json.dumps(dict(probed), indent=2, ensure_ascii=False) + "\n"
            return self._write(f"probes/{plain}-{digest(name)[:6]}.json", text)

    def probes(self) -> list[Mapping[str, Json]]:
        """Return what `write_probe` has written. Files of another shape are named in `problems`."""
        found: list[Mapping[str, Json]] = []
        for path in sorted((self.folder / "probes").glob("*.json")):
            try:
                data = parse_json(files.read_bytes(path))
            except (OSError, ValueError) as error:
                self.problems.append(f"probes/{path.name}: cannot be read as JSON ({error}), left out")
                continue
            if isinstance(data, dict) and isinstance(data.get("probes"), list):
                found.append(data)
            else:
                self.problems.append(f"probes/{path.name}: not of the expected shape, left out")
        return found

    def write_report(self, name: str, text: str) -> Path:
        """Write a file into `report/`, whole or not at all. Raises StorageError."""
        with _storage(self.folder):
            return self._write(f"report/{name}", text)

    def forget(self) -> None:
        """Drop what is on disk from memory, for a writer that runs for long and looks nothing up here."""
        self.samples.clear()
        self.rejected.clear()
        self.findings.clear()
        self.people.clear()

    def close(self) -> None:
        """Close the files and give the lock back."""
        if self._findings_file is not None:
            self._findings_file.close()
            self._findings_file = None
        if self._lock is not None:
            # A child process may hold the file open too.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        lock = files.append(self.folder / "run.lock", below=self.folder, lock=True)
        try:
            # flock goes with the process, so a killed run leaves no lock behind.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            owner = _named(self.folder / "run.owner")
            raise ConfigError(f"{self.folder} is being written by {owner}; wait for it or choose another --out") from error
        except BaseException:
            lock.close()
            raise
        self._lock = lock
        self._write("run.owner", json.dumps({"process": os.getpid(), "host": socket.gethostname()}) + "\n")

    def _appended(self, name: str) -> BinaryIO:
        return files.append(self.folder / name, below=self.folder)

    def _write(self, name: str, text: str) -> Path:
        return files.write_whole(self.folder / name, text.encode("utf-8", "backslashreplace"), below=self.folder)

    def look(self, spec: RunSpec, judges: Iterable[Entry], loaded: Loaded) -> dict[str, Json]:
        """Load the run that the folder holds, if any, and return its judges with these. Nothing is written or locked.

        Raises RunMismatch and ConfigError as `begin` does, but for what only writing shows.
        """
        begun = (self.folder / "run.json").exists()
        self._refuse_strangers(look_inside=not begun)
        if begun:
            self._load()
            if found := differences(self.spec, spec):
                listed = "; ".join(f"{setting}: was {before}, is {now}" for setting, before, now in found)
                raise RunMismatch(
                    f"{self.folder} belongs to another run, with other settings. {listed}. Give that run's settings to "
                    "continue it, or choose another --out"
                )
        self._refuse_changed(loaded.samples)
        return joined(self.info.get("judges"), judges, self.folder)

    def _refuse_strangers(self, *, look_inside: bool = True) -> None:
        """Raise ConfigError for a file, and for a folder with files of anything but a run, even one killed at its start.

        look_inside: False where what lies in the folder is looked at right after, as `_load` does.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"{self.folder} is a file; --out needs a folder")
        if self.folder.is_dir() and not (self.folder / "run.json").exists():
            # The last two are of version 0.2.0 and older.
            own = {"run.lock", "run.owner", ".run.json.part", ".run.owner.part"}
            if any(path.name not in own and not path.name.startswith(files.PART) for path in self.folder.iterdir()):
                raise ConfigError(
                    f"{self.folder} holds other files and is no run; name an empty or a new folder with --out"
                )
        if look_inside and self.folder.is_dir():
            check_contents(self.folder)

    def _visited(self, spec: RunSpec, judges: Mapping[str, Json]) -> dict[str, Json]:
        before = self.spec.record
        # The rule for repeats stays if the new judge is asked once, and tags if none are given.
        kept = {name: before[name] for name in ("repeats", "tags") if name in before}
        # A visit may ask for some of the metrics only.
        listed = [*_list(before.get("metrics")), *_list(spec.record.get("metrics"))]
        metrics = list({str(_object(m).get("id")): m for m in listed}.values())
        return {
            "schema": RUN_SCHEMA,
            "identity": dict(spec.identity),
            "record": {**kept, **spec.record, "metrics": metrics},
            "judges": dict(judges),
        }

    def _write_info(self, info: dict[str, Json]) -> None:
        self.info = {**info, "digest": info_digest(info)}
        self._write("run.json", json.dumps(self.info, indent=2, ensure_ascii=False) + "\n")

    def config(self) -> dict[str, Json]:
        """Return the options of config.yaml; empty without one, or where it cannot be read."""
        path = self.folder / "config.yaml"
        with suppress(ConfigError):
            found = files.read_yaml(path) if path.exists() else None
            return dict(found) if isinstance(found, Mapping) else {}
        return {}

    def _write_config(self, config: Mapping[str, Json] | None, loaded: Loaded) -> None:
        """Write config.yaml with the run's judges and what all visits asked. Without `config`, its options stay.

        loaded: what is asked about now, which `samples` need not have yet.
        """
        # Only those who write need it.
        import yaml

        path = self.folder / "config.yaml"
        text = files.read_text(path, str(path)) if path.exists() else ""
        before, options = self.config(), config
        if config and before:
            with suppress(ConfigError):  # of options that nobody can read nothing stays
                options = of_all(
                    before,
                    config,
                    known={**self.samples, **self.rejected},
                    asked=[row.key for row in loaded.in_order()],
                    free=[name for name, value in _object(self.spec.record.get("options")).items() if value is None],
                    metrics=self.metrics().values(),
                )
        options = options or before
        if options:
            options = with_judges(options, self.info["judges"])
            new = _CONFIG_HEAD + yaml.safe_dump(options, sort_keys=False, allow_unicode=True)
            if new != text:
                self._write(path.name, new)

    def _load_info(self) -> None:
        if os.path.lexists(self.folder / "run.json"):
            check_contents(self.folder)
        self.info = read_run_file(self.folder)

    def _load(self, part: Mapping[str, bytes] | None = None) -> None:
        """Read the run. part: file → those of its lines that are wanted; None reads the files."""
        self._load_info()
        try:
            metrics = self.metrics()
        except ConfigError:
            metrics = {}  # those who need the metrics say what is wrong with them
        self._load_samples(part, metrics)
        self._load_findings(part, metrics)
        said = people.read(self.folder, metrics, self.problems)
        self.people = {place: given for place, given in said.items() if given.finding.sample_key in self.samples}
        ratings: dict[str, list[people.Given]] = {}
        for given in self.people.values():
            if given.finding.metric in metrics:
                ratings.setdefault(given.finding.sample_key, []).append(given)
        for key, own in ratings.items():
            self.samples[key] = people.rated(self.samples[key], own)

    def _load_samples(self, part: Mapping[str, bytes] | None, metrics: Mapping[str, Metric]) -> None:
        """Read samples.jsonl. People's ratings stand under the ids of the metrics then."""
        known = human.names_of(metrics.values())
        for sample in self._parsed("samples.jsonl", _sample_or_row, part):
            if isinstance(sample, Sample):
                own = human.named(sample.human, known) if sample.human else sample.human
                self.samples[sample.key] = sample if own == sample.human else replace(sample, human=own)
                self.rejected.pop(sample.key, None)
            else:
                self.rejected[sample_key(str(sample["editor"]), str(sample["id"]))] = sample

    def _load_findings(self, part: Mapping[str, bytes] | None, metrics: Mapping[str, Metric]) -> None:
        """Read findings.jsonl, or the traces where there is none."""
        if not (self.folder / "findings.jsonl").exists():
            self.findings = {f.key: f for f in self.findings_from_traces()}
        before = len(self.problems)
        for finding in self._parsed("findings.jsonl", partial(_finding, self.folder, metrics), part):
            self._keep(finding)
        self.invalid = [problem for problem in self.problems[before:] if _CUT_OFF not in problem]

    def _parsed(
        self, name: str, parse: Callable[[Mapping[str, Json]], Parsed], part: Mapping[str, bytes] | None
    ) -> Iterator[Parsed]:
        """Yield the lines of a JSONL file as values. Those that are none are named in `problems`."""
        path = self.folder / name
        if not path.exists():
            return
        content = files.read_bytes(path) if part is None else part.get(name, b"")
        lines, end = complete_lines(content)
        torn = len(content) - end
        del content  # it may be large, and the lines hold it again
        if torn:
            self._torn[name] = end
            # One that writes just now may be in the middle of a line.
            if not is_written(self.folder):
                self.problems.append(f"{name}, line {len(lines) + 1}: {_CUT_OFF} ({torn} bytes), left out")
        bad = 0
        for number, line in enumerate(lines, start=1):
            try:
                data = finite_json(line)
                if not isinstance(data, dict):
                    raise _NotObject
                yield parse(data)
            except (KeyError, TypeError, ValueError, AssertionError) as error:
                bad += 1
                if bad <= _TOLD:
                    self.problems.append(f"{name}, line {number}: {_problem(error)}, left out")
        if bad > _TOLD:
            self.problems.append(f"{name}: {bad - _TOLD} more lines are not of the expected shape, left out")

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


def info_digest(info: Mapping[str, Json]) -> str:
    """Return the digest that run.json is written with: of all that it holds."""
    return digest({name: value for name, value in info.items() if name != "digest"})


def _line(data: Mapping[str, Json]) -> bytes:
    # Half a surrogate pair (a file name that is no UTF-8) becomes its JSON escape.
    return _ENCODER.encode(data).encode("utf-8", "backslashreplace") + b"\n"


def _place(f: Finding) -> tuple[str, int, str, str, str, int, str]:
    """Return what a finding is about: the latest one of a place counts."""
    return f.judge_id, f.repeat, f.metric, f.editor, f.sample_id, f.turn, f.part


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which "target 2" stands before "target 10"."""
    return tuple((int(word), "") if word.isdigit() else (-1, word) for word in text.split())


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


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


def _problem(error: Exception) -> str:
    """Say why a line of a run's file is no value."""
    match error:
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "not JSON"
        case _NotObject():
            return "not an object"
        case ValidationError():
            wrong = error.errors()[0]
            return f"not of the expected shape ({'.'.join(map(str, wrong['loc']))}: {wrong['msg']})"
        case KeyError() | TypeError():
            return f"not of the expected shape ({error!r})"
        case _:
            return f"not of the expected shape ({error})"


class _NotObject(ValueError):
    """A line of JSON that is no object."""


@contextmanager
def _storage(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written: {error.strerror or error}; make room, then give the same command"
        ) from error


def _named(owner: Path) -> str:
    try:
        data = parse_json(files.read_bytes(owner))
        return f"process {data['process']} on {data['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _without_new(old: Sample, new: Sample) -> Sample:
    """Return a sample without the outputs that it did not have before."""
    if len(old.turns) != len(new.turns):
        return new
    turns = zip(old.turns, new.turns, strict=True)
    return replace(new, turns=tuple(now if before.edited else replace(now, edited=None) for before, now in turns))


def _changed(old: Sample, new: Sample) -> str:
    if old.source != new.source:
        return "the source image has changed"
    for number, (before, now) in enumerate(zip(old.turns, new.turns, strict=False), start=1):
        if before.edited is not None and before.edited != now.edited:
            which = f" of turn {number}" if len(old.turns) > 1 else ""
            return f"the edited image{which} has changed" if now.edited else f"the edited image{which} is gone"
    if old.instruction != new.instruction:
        return f"the instruction was {old.instruction!r} and is {new.instruction!r}"
    return "its targets, masks, reference or edit type have changed"
