"""The one reader of result files: what a benchmark's own judge wrote becomes findings, as a mapping file says.

A number that was no verdict becomes a status where the file tells it. An importer is a `ResultFiles` behind the entry point
group `editloupe.importers`; a subclass reads entries that a mapping alone cannot say. docs/published.md is the user's page.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import quote

from editloupe.chat import Sampling
from editloupe.data.images import ImageStore
from editloupe.data.loaders.layout import value_of
from editloupe.data.rows import NO_OUTPUT, Loaded, RejectedRow
from editloupe.data.samples import load
from editloupe.data.tables import read_table, shown
from editloupe.errors import DataError
from editloupe.files import read_bytes, read_toml
from editloupe.findings import Finding, JudgeSpec
from editloupe.protocols.imported import Imported, Published
from editloupe.protocols.result_mapping import ResultMapping, ResultSaid, geometric, read_said, written
from editloupe.tasks import About
from editloupe.values import Json, Sample, digest, distinct_keys, parse_json

GroupKey: TypeAlias = tuple[str, ...]
"""Editor, judge or "", and the groups of the path that the mapping names."""
_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class ResultEntry:
    """What result files say of one edit."""

    sample_id: str
    place: str
    """Where it stands, for messages."""
    row: Mapping[str, Json]
    item: str = ""
    """Which of several entries on the same sample."""


@dataclass(kw_only=True)
class ResultGroup:
    """The results of one judge on one editor."""

    key: GroupKey
    samples: Mapping[str, Sample]
    """Those that its results may be about."""
    rejected: Mapping[str, RejectedRow]
    """Rows of the data, and outputs, that cannot be used."""
    known: bool
    """Whether its outputs are known, so that one that is not there is missing."""
    found: dict[tuple[str, str], tuple[ResultEntry, list[ResultSaid]]] = field(default_factory=dict)
    """By the sample's id and the item: those that count, with what they say."""
    every: list[ResultEntry] = field(default_factory=list)
    """Also those that do not count here: the script counts them."""
    refused: list[str] = field(default_factory=list)

    @property
    def judged(self) -> set[str]:
        """The samples that have an entry."""
        return {id_ for id_, _ in self.found}

    @property
    def kept(self) -> list[Sample]:
        """The samples that the run gets. Without outputs nobody knows which others were to be judged."""
        return [sample for id_, sample in self.samples.items() if self.known or id_ in self.judged]

    @property
    def title(self) -> str:
        judge = f", judge {self.key[1]!r}" if self.key[1] else ""
        return ", ".join((f"editor {self.key[0]!r}{judge}", *self.key[2:]))


class ResultFiles:
    """The importer that a mapping file makes."""

    tells_missing: ClassVar[bool] = True
    """Whether it has findings on missing outputs. False where the protocol itself tells which are missing."""

    def __init__(self, file: Path, name: str = "") -> None:
        self.file, self.name = file, name or file.stem

    @cached_property
    def mapping(self) -> ResultMapping:
        return ResultMapping.model_validate(read_toml(self.file, "the built-in mapping file"))

    def read(self, folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore) -> Imported:
        """Read the result files below a folder as findings on the samples of `data`.

        edited: folder of outputs by the editor's name; of others nobody knows which outputs are missing.
        Raises DataError: no result file, none about `data`, an editor without results. SampleError, ConfigError: as `load`.
        """
        files = self.files(folder)
        editors = {its["editor"] for _, its in files}
        if unknown := sorted({*edited} - editors):
            there = ", ".join(sorted(editors))
            raise DataError(f"--edited {unknown[0]}: no result of this editor below {folder}; there are {there}")
        base = load(data, store=store, format=self.mapping.layout, outputs=False)
        outputs = {
            editor: load(data, store=store, format=self.mapping.layout, edited={editor: path})
            for editor, path in edited.items()
        }
        notes = [*base.notes, *(note for loaded in outputs.values() for note in loaded.notes)]
        groups: dict[GroupKey, ResultGroup] = {}
        for path, its in files:
            key = (its["editor"], its.get("judge", ""), *(its[name] for name in self.mapping.group))
            if key not in groups:
                groups[key] = self._group(key, base, outputs.get(key[0]))
            for entry in self.entries(path, its, groups[key].refused):
                self._add(entry, groups[key])
        if not any(group.found for group in groups.values()):
            why = next((one for group in groups.values() for one in group.refused), "the files are empty")
            raise DataError(f"{folder}: no entry is about a sample of {data}; name the data that was judged: {why}")
        return self._imported(groups, base.format, notes)

    def _imported(self, groups: Mapping[GroupKey, ResultGroup], format: str, notes: list[str]) -> Imported:
        judges = {key[1]: _judge(self.name, key[1]) for key in groups}
        each = [(group, judges[key[1]].id) for key, group in groups.items()]
        samples = {sample.key: sample for group, _ in each for sample in group.kept}
        rejected = {row.key: row for group, _ in each for row in group.rejected.values()}
        return Imported(
            protocol=self.mapping.protocol,
            options=self.mapping.options or {"benchmark": self.name},
            rules=self.mapping.rules,
            judges={name or f"{self.name}'s judge": judge for name, judge in judges.items()},
            loaded=Loaded(format=format, samples=tuple(samples.values()), rejected=tuple(rejected.values())),
            findings=tuple(one for group, judge in each for one in self.findings(group, judge)),
            published=tuple(one for group, judge in each for one in self.published(group, judge)),
            notes=tuple(dict.fromkeys((*notes, *(note for group, _ in each for note in self.notes(group))))),
        )

    def files(self, folder: Path) -> list[tuple[Path, dict[str, str]]]:
        """Return the files below a folder with the groups of their paths. Raises DataError: none."""
        root, where = folder.resolve(), self.mapping.where
        if not root.is_dir():
            raise DataError(f"{folder}: no such folder; expected a folder with {where}")
        every = [path for path in sorted(root.rglob(self.mapping.files)) if path.is_file()]
        tried = [(path, re.fullmatch(self.mapping.path, path.as_posix())) for path in every]
        found = [(path, {k: v for k, v in match.groupdict().items() if v}) for path, match in tried if match]
        if not found:
            raise DataError(f"{folder}: no result file; expected {where}")
        return found

    def entries(self, path: Path, its: Mapping[str, str], refused: list[str]) -> Iterator[ResultEntry]:
        """Yield the entries of a file. refused: gets what cannot be read. Raises DataError for a file of another shape."""
        for where, row in _rows(self.mapping, path):
            place = f"{path}, {where}"
            if isinstance(row, str):
                refused.append(f"{place}: not read: {row}")
                continue
            row = {**its, **row, "edited_image:stem": PurePosixPath(str(row.get("edited_image"))).stem}
            if (id_ := value_of(row, self.mapping.sample)) is None:
                refused.append(f"{place}: not read: expected an object with {self.mapping.sample}")
            else:
                yield ResultEntry(sample_id=str(id_), place=place, row=row)

    def _group(self, key: GroupKey, base: Loaded, outputs: Loaded | None) -> ResultGroup:
        """Return a group without entries.   outputs: the data with its outputs, None where they are not known."""
        editor, of = key[0], dict(zip(self.mapping.group, key[2:], strict=True))
        its = {s.id: s for s in self.samples(outputs or base)}
        if outputs is None:
            # Nobody knows whether there is an output.
            its = {
                id_: replace(s, editor=editor, warnings=tuple(w for w in s.warnings if w != NO_OUTPUT))
                for id_, s in its.items()
            }
        mine = {id_: s for id_, s in its.items() if all(s.extra.get(name) == value for name, value in of.items())}
        rejected = {row.id: replace(row, editor=editor) for row in (outputs or base).rejected}
        known = outputs is not None and any(turn.edited for sample in mine.values() for turn in sample.turns)
        return ResultGroup(key=key, samples=mine, rejected=rejected, known=known)

    def samples(self, loaded: Loaded) -> Iterable[Sample]:
        """Return the samples that results may be about."""
        return loaded.samples

    def _add(self, entry: ResultEntry, group: ResultGroup) -> None:
        """Keep an entry, or say why it does not count."""
        group.every.append(entry)
        sample, before = group.samples.get(entry.sample_id), group.found.get((entry.sample_id, entry.item))
        try:
            if sample is None:
                raise ValueError(f"the data has no sample {entry.sample_id!r} that can be used")
            if group.known and self.lacks_output(entry, sample):
                raise ValueError("its output is missing, and a score of nothing is no score")
            said = [
                replace(read_said(metric, rule, row), turn=turn, part=part)
                for turn, part, row in self.parts(entry, sample)
                for metric, rule in self.mapping.metrics.items()
                if rule.applies(sample) and rule.stands_in(row)
            ]
            if before is not None:
                raise ValueError(f"the edit stands in {before[0].place} already")
            group.found[entry.sample_id, entry.item] = entry, said
        except (ValueError, DataError) as error:
            group.refused.append(f"{entry.place}: {error}")

    def lacks_output(self, entry: ResultEntry, sample: Sample) -> bool:
        """Return whether the output that an entry is about is missing, where outputs are known."""
        return sample.edited is None

    def parts(self, entry: ResultEntry, sample: Sample) -> Iterable[tuple[int, str, Mapping[str, Json]]]:
        """Return turn, part and what is said of it. Raises ValueError and DataError for another edit than the sample's."""
        asked = entry.row.get(self.mapping.instruction)
        if asked and (not isinstance(asked, str) or asked.split() != sample.instruction.split()):
            raise ValueError(f"its instruction is {shown(asked)}, and the data's {sample.instruction!r}")
        return [(0, "", entry.row)]

    def findings(self, group: ResultGroup, judge_id: str) -> Iterator[Finding]:
        """Yield a finding a metric for each edit with an entry, and for each whose output is missing."""
        for (id_, _), (_, said) in group.found.items():
            yield from (self._finding(group.samples[id_], one, judge_id) for one in said)
        for id_, sample in group.samples.items() if group.known and self.tells_missing else ():
            if id_ not in group.judged and sample.edited is None:
                for metric, rule in self.mapping.metrics.items():
                    if rule.applies(sample) and not rule.of_some:
                        one = ResultSaid(metric=metric, status="missing_output", reason="there is no output of it")
                        yield replace(self._finding(sample, one, judge_id), ending="blocked")

    def _finding(self, sample: Sample, said: ResultSaid, judge_id: str) -> Finding:
        about = About.of(sample, turn=said.turn, part=said.part)
        return Finding(
            task_id=digest({"imported": self.name, "about": about.to_json(), "metric": said.metric}),
            judge_id=judge_id,
            repeat=0,
            **vars(about),
            metric=said.metric,
            status=said.status,
            answer=said.answer,
            ending="answer",
            reason=said.reason,
        )

    def published(self, group: ResultGroup, judge_id: str) -> Iterator[Published]:
        """Yield the means as the script computes them: of all entries, with what is no verdict."""
        by: dict[tuple[tuple[tuple[str, str | int], ...], str | None, str], list[float]] = {}
        for of, part, metric, number in self.counted(group):
            by.setdefault((tuple(of.items()), part, metric), []).append(number)
        digits = self.mapping.published.digits if self.mapping.published else None
        for (dims, part, metric), numbers in by.items():
            mean = math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else None
            mean = mean if mean is None or digits is None else round(mean, digits)
            yield Published(
                judge_id=judge_id, editor=group.key[0], dims=dict(dims), part=part, metric=metric, mean=mean,
                count=len(numbers),
            )  # fmt: skip

    def counted(self, group: ResultGroup) -> Iterator[tuple[Mapping[str, str | int], str | None, str, float]]:
        """Yield each number that the script counts: dimensions of its mean, part, metric, number."""
        means = self.mapping.published
        for entry in group.every if means else ():
            sample = group.samples.get(entry.sample_id)
            row = {**entry.row, "sample.edit_type": sample.edit_type if sample else None}
            if means is None or (sample is None and any(name.startswith("sample.") for name in means.dims.values())):
                continue
            dims = {dim: str(row[name]) for dim, name in means.dims.items() if row.get(name) is not None}
            values = {metric: rule.as_written(entry.row) for metric, rule in self.mapping.metrics.items()}
            if means.overall:
                own = written(entry.row.get(means.overall))
                values["overall"] = geometric(list(values.values())) if means.overall == "geometric" else own
            yield from ((dims, None, metric, value) for metric, value in values.items() if value is not None)

    def notes(self, group: ResultGroup) -> Iterator[str]:
        """Yield what a reader should know of a group as a whole."""
        if not group.known:
            yield f"no outputs of {group.key[0]} are known: name their folder with --edited {group.key[0]}=FOLDER"
        left = [sample for id_, sample in group.samples.items() if id_ not in group.judged]
        gone = sum(sample.edited is None for sample in left) if group.known else 0
        counts = {"missing outputs": gone, "not judged yet": len(left) - gone}
        rest = "".join(f"; {what}: {count}" for what, count in counts.items() if count)
        yield f"{group.title}: {len(group.judged)} of {len(group.samples)} samples have an entry{rest}"
        if group.refused:
            listed = "; ".join(group.refused[:_SHOWN])
            yield f"{group.title}: entries not counted: {len(group.refused)}: {listed}"
        said = [one for _, its in group.found.values() for one in its]
        kinds = Counter(f"scores that are {one.status} ({one.kind})" for one in said if one.kind)
        yield from (f"{group.title}: {what}: {count}" for what, count in kinds.items())
        read = [f"{one.answer.value:g} {one.reason.strip()}" for one in said if one.answer and one.answer.value is not None]
        for pattern, text in self.mapping.doubts:
            if count := sum(re.search(pattern, one) is not None for one in read):
                yield f"{group.title}: {text.format(count=count)}"


def read_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file. Raises DataError."""
    try:
        values = parse_json(read_bytes(path), object_pairs_hook=distinct_keys)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: expected an object, found {shown(values)}")
    return values


def _rows(mapping: ResultMapping, path: Path) -> Iterator[tuple[str, dict[str, Json] | str]]:
    """Yield where each row stands, and the row or what is wrong with it. Raises DataError for a file of another shape."""
    if path.suffix == ".json":
        replies = any(rule.lines for rule in mapping.metrics.values())
        for key, value in read_object(path).items():
            if not isinstance(value, dict) and not replies:
                raise DataError(f"{path}, key {key!r}: expected an object with scores, found {shown(value)}")
            row = value if isinstance(value, dict) and "error" not in value else {"reply": value}
            yield f"key {key!r}", {"key": key, **row}
    elif path.suffix == ".jsonl":
        lines = enumerate(read_bytes(path).splitlines(), start=1)
        yield from ((f"line {number}", _of_line(text)) for number, text in lines if text.strip())
    else:
        table = read_table(path)
        if lacking := [name for name in mapping.needs if name not in table.columns]:
            columns = ", ".join(table.columns)
            raise DataError(f"{path}: no column {lacking[0]!r}; expected {mapping.where}; found {columns}")
        for line in table.lines:
            yield f"line {line.number}", line.fault or {name: _from_csv(value) for name, value in line.values.items()}


def _of_line(text: bytes) -> dict[str, Json] | str:
    try:
        # NaN is what a script writes for a mean of none.
        row = parse_json(text, object_pairs_hook=distinct_keys)
    except ValueError as error:
        return str(error)
    return row if isinstance(row, dict) else f"expected an object, found {shown(row)}"


def _from_csv(text: Json) -> Json:
    try:
        return float(str(text))
    except ValueError:
        return text


def _judge(benchmark: str, name: str) -> JudgeSpec:
    """Return the identity of a judge of which the files tell the name at most."""
    unknown = Sampling(temperature=None, seed=None, max_tokens=None)
    backend = f"imported/{benchmark}" + (f"/{quote(name)}" if name else "")
    return JudgeSpec(backend=backend, endpoint="recorded elsewhere", sampling=unknown, tool_protocol="none")
