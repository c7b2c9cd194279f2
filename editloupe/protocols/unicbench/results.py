"""The official script's result files as findings: `MODEL/eval_output/JUDGE/SUBTASK_LANGUAGE_results.jsonl`.

The script writes a score of 0 and the reason "Parse error" for a reply that it cannot read, and leaves out a sample whose
output is missing. Here the first is `unparsed` and the second `missing_output`. A score off the scale, or none at all, is a
status too. `overall_score` is compared with the geometric mean of its row and not used.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from editloupe.answers import Number
from editloupe.chat import Sampling
from editloupe.data.folders import RowError
from editloupe.data.images import ImageStore
from editloupe.data.rows import NO_OUTPUT, size_note
from editloupe.data.samples import Loaded, RejectedRow, load
from editloupe.data.tables import shown
from editloupe.errors import DataError
from editloupe.files import read_bytes
from editloupe.findings import Finding, JudgeSpec
from editloupe.protocols.imported import Imported, Published
from editloupe.protocols.unicbench.loader import Outputs
from editloupe.protocols.unicbench.terms import LANGUAGES, METRICS, OVERALL, REASONING
from editloupe.tasks import Status
from editloupe.values import Json, Sample, Turn, digest, distinct_keys, parse_json

FAILED: Final = "Parse error"
"""The reason that the script writes for a reply that it cannot read, beside a score of 0."""

_LOW, _HIGH = 0.0, 10.0
_NAME: Final = re.compile(rf"(.+)_({'|'.join(LANGUAGES)})_results\.jsonl")
_FOLDER: Final = "eval_output"
_WHERE: Final = f"MODEL/{_FOLDER}/JUDGE/SUBTASK_en|cn_results.jsonl, as the official script writes them"
_SHOWN: Final = 3
_SAME: Final = 0.005
"""Difference up to which two overall scores are one."""


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """One result file."""

    path: Path
    editor: str
    judge: str
    """As its folder is called."""
    language: str

    @property
    def outputs(self) -> Path:
        """The editor's folder, in which its outputs lie too."""
        return self.path.parents[2]


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One line of a result file that is an object."""

    file: ResultFile
    line: int
    """From 1."""
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """How messages call it."""
        return f"{self.file.path}, line {self.line}"


@dataclass(frozen=True, kw_only=True)
class ResultScore:
    """What a row says of one metric."""

    status: Status
    value: float | None = None
    """0 to 10; None unless the status is ok."""
    reason: str = ""


def result_files(folder: Path) -> list[ResultFile]:
    """Return the result files below a folder, sorted: of all models, of one, or of one judge. Raises DataError: none."""
    root = folder.resolve()
    if not root.is_dir():
        raise DataError(f"{folder}: {'is a file' if root.exists() else 'no such folder'}; expected a folder with {_WHERE}")
    found, elsewhere = [], []
    for path in sorted(root.rglob("*_results.jsonl")):
        match = _NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        judge, above = path.parent, path.parent.parent
        if above.name != _FOLDER or not above.parent.name:
            elsewhere.append(path)
            continue
        found.append(ResultFile(path=path, editor=above.parent.name, judge=judge.name, language=match[2]))
    if not found:
        seen = f"; {elsewhere[0]} lies in no folder {_FOLDER}/JUDGE, so that nobody knows whose it is" if elsewhere else ""
        raise DataError(f"{folder}: no result file; expected {_WHERE}{seen}")
    return found


def read_rows(file: ResultFile) -> tuple[list[ResultRow], list[str]]:
    """Return the rows of a file, and a note on each line that cannot be read. Raises DataError: the file cannot be."""
    rows, notes = [], []
    try:
        lines = read_bytes(file.path).splitlines()
    except OSError as error:
        raise DataError(f"{file.path}: cannot be read: {error.strerror or error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = parse_json(line, object_pairs_hook=distinct_keys)
            if not isinstance(values, dict) or not isinstance(values.get("key"), str):
                raise ValueError(f"expected an object with a 'key', found {shown(values)}")
        except ValueError as error:
            notes.append(f"{file.path}, line {number}: not read: {error}")
        else:
            rows.append(ResultRow(file=file, line=number, values=values))
    return rows, notes


def read_score(values: Mapping[str, Any], name: str) -> ResultScore:
    """Return what a row says of a metric, by its name there ("if"). A score is a finite number of 0 to 10, or no score."""
    score, said = values.get(f"{name}_score"), values.get(f"{name}_reason")
    reason = said if isinstance(said, str) else ""
    if score is None:
        return ResultScore(status="unparsed", reason=f"the row has no {name}_score")
    number = _number(score)
    if number is None:
        return ResultScore(status="unparsed", reason=_joined(f"{name}_score is no number: {shown(score)}", reason))
    if not _LOW <= number <= _HIGH:
        return ResultScore(status="off_menu", reason=_joined(f"{name}_score is off the scale of 0 to 10: {score}", reason))
    if number == 0 and reason.strip() == FAILED:
        return ResultScore(status="unparsed", reason=f"{FAILED}; the official script counts it as 0")
    return ResultScore(status="ok", value=number, reason=reason)


def published_overall(values: Mapping[str, Any], names: Iterable[str]) -> float | None:
    """Return the geometric mean of a row's scores as the script computes it, zeros included; None where it is no number."""
    scores = [_number(values.get(f"{name}_score")) for name in names]
    given = [score for score in scores if score is not None]
    product = math.prod(given)
    if len(given) < len(scores) or not given or not math.isfinite(product) or product < 0:
        return None
    return float(product ** (1 / len(given)))


def read(folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore) -> Imported:
    """Read the result files below a folder as findings on the samples of `data`.

    edited: folder of outputs by the editor's name; for others it is the folder in which their results lie.
    Raises DataError: no result file, no row about `data`, no sample that can be used. SampleError, ConfigError: as the
    loader does.
    """
    files = result_files(folder)
    if unknown := sorted(set(edited) - {file.editor for file in files}):
        known = ", ".join(sorted({file.editor for file in files}))
        raise DataError(f"--edited {unknown[0]}: no result of this editor below {folder}; there are {known}")
    base = load(data, store=store, format="unicbench", outputs=False)
    if not base.samples:
        first = base.rejected[0].message if base.rejected else "it holds no row"
        raise DataError(f"{data}: no sample can be used, and a finding needs one with its source image: {first}")
    notes = list(base.notes)
    places = _Samples.of(base, files, edited, store, notes)
    found: dict[tuple[str, str, str], _Group] = {}
    for file in files:
        who = (file.editor, file.judge, file.language)
        group = found.setdefault(who, _Group(editor=who[0], judge=who[1], language=who[2]))
        rows, faults = read_rows(file)
        group.refused += faults
        for row in rows:
            group.add(row, places)
    groups = list(found.values())
    if not any(group.rows for group in groups):
        why = next((problem for group in groups for problem in group.refused), "the files are empty")
        raise DataError(f"{folder}: no row is about a sample of {data}; name the data that was judged: {why}")
    for group in groups:
        notes += group.notes(places)
    specs = {judge: judge_spec(judge) for judge in dict.fromkeys(file.judge for file in files)}
    return Imported(
        protocol="unicbench",
        options={"mode": "plain"},
        judges=specs,
        loaded=places.loaded,
        findings=tuple(finding for group in groups for finding in group.findings(places, specs[group.judge].id)),
        published=tuple(one for group in groups for one in group.published(specs[group.judge].id)),
        notes=tuple(notes),
    )


def judge_spec(name: str) -> JudgeSpec:
    """Return the identity of a judge of which the files tell the name alone."""
    unknown = Sampling(temperature=None, seed=None, max_tokens=None)
    return JudgeSpec(
        backend=f"imported/unicbench/{quote(name)}", endpoint="recorded elsewhere", sampling=unknown, tool_protocol="none"
    )


def metrics_of(task: Json) -> dict[str, str]:
    """Return the metrics of a task, by their names in a row."""
    return {name: metric for name, metric in METRICS.items() if name != "ra" or task == REASONING}


@dataclass(frozen=True, kw_only=True)
class _Samples:
    """The samples that the results may be about: those of the editors and languages that have a result file."""

    samples: Mapping[tuple[str, str], Mapping[str, Sample]]
    """(editor, language) → id → sample."""
    rejected: Mapping[tuple[str, str], RejectedRow]
    """By (editor, id): rows of the data that cannot be used."""
    outputs: Mapping[str, Outputs]
    """By editor."""
    unusable: Mapping[tuple[str, str], str]
    """By (editor, id): why an output that is there cannot be used."""

    @classmethod
    def of(
        cls,
        base: Loaded,
        files: Sequence[ResultFile],
        edited: Mapping[str, Path],
        store: ImageStore,
        notes: list[str],
    ) -> _Samples:
        folders = {file.editor: edited.get(file.editor, file.outputs) for file in files}
        outputs = {editor: Outputs.of(editor, path, store) for editor, path in folders.items()}
        for editor in edited:
            if not outputs[editor].files:
                outputs[editor].refuse("no output is there")
        asked = dict.fromkeys((file.editor, file.language) for file in files)
        samples: dict[tuple[str, str], dict[str, Sample]] = {}
        rejected: dict[tuple[str, str], RejectedRow] = {}
        unusable: dict[tuple[str, str], str] = {}
        for editor, language in asked:
            its = [sample for sample in base.samples if sample.extra["language"] == language]
            samples[editor, language] = {s.id: _with_output(s, outputs[editor], unusable) for s in its}
            for row in base.rejected:
                if row.id.partition("#")[0].endswith(f".{language}"):
                    rejected[editor, row.id] = replace(row, editor=editor)
        bare = [editor for editor, its in outputs.items() if not its.files]
        if bare:
            notes.append(
                f"no outputs beside the results of {', '.join(bare)}: pages show the sources alone; name them with "
                "--edited NAME=FOLDER"
            )
        return cls(samples=samples, rejected=rejected, outputs=outputs, unusable=unusable)

    @property
    def loaded(self) -> Loaded:
        samples = tuple(sample for its in self.samples.values() for sample in its.values())
        return Loaded(format="unicbench", samples=samples, rejected=tuple(self.rejected.values()))


def _with_output(sample: Sample, outputs: Outputs, unusable: dict[tuple[str, str], str]) -> Sample:
    """Return a sample of an editor with its output. unusable: gets why an output that is there cannot be used."""
    image, warnings = None, [note for note in sample.warnings if note != NO_OUTPUT]
    try:
        file = outputs.output(str(sample.edit_type), sample.id)
        image = None if file is None else file.image()
        if file is None:
            warnings.append(NO_OUTPUT)
    except RowError as error:
        unusable[outputs.editor, sample.id] = str(error)
        warnings.append(str(error))
    if image is not None and (image.width, image.height) != (sample.source.width, sample.source.height):
        warnings.append(size_note(sample.source, image))
    turns = (Turn(instruction=sample.instruction, edited=image),)
    return replace(sample, editor=outputs.editor, turns=turns, warnings=tuple(warnings))


@dataclass(kw_only=True)
class _Group:
    """The results of one judge on one editor in one language."""

    editor: str
    judge: str
    language: str
    rows: dict[str, ResultRow] = field(default_factory=dict)
    """By the sample's id: those that count."""
    every: list[ResultRow] = field(default_factory=list)
    """Also those that do not count here: the script counts them."""
    refused: list[str] = field(default_factory=list)
    """Why lines and rows do not count."""

    @property
    def title(self) -> str:
        return f"editor {self.editor!r}, judge {self.judge!r}, {self.language}"

    def _its(self, places: _Samples) -> Mapping[str, Sample]:
        return places.samples[self.editor, self.language]

    def add(self, row: ResultRow, places: _Samples) -> None:
        """Keep a row, or say why it does not count."""
        self.every.append(row)
        id_ = f"{row.values['key']}.{self.language}"
        if why := self._problem(row, id_, places):
            self.refused.append(f"{row.place}: {why}")
        else:
            self.rows[id_] = row

    def _problem(self, row: ResultRow, id_: str, places: _Samples) -> str:
        """Return why a row does not count; "" if it does."""
        values, sample = row.values, self._its(places).get(id_)
        if sample is None:
            rejected = places.rejected.get((self.editor, id_))
            if rejected is None:
                return f"the data has no key {values['key']!r}"
            return f"its sample cannot be used: {rejected.message}"
        if values.get("instruction_language") not in (None, self.language):
            return f"its language is {values['instruction_language']!r}, and the file's is {self.language!r}"
        asked = values.get("instruction")
        if asked is not None and (not isinstance(asked, str) or asked.split() != sample.instruction.split()):
            return f"its instruction is {shown(asked)}, and the data's {sample.instruction!r}"
        if id_ in self.rows:
            return f"the key stands in {self.rows[id_].place} already"
        return ""

    def findings(self, places: _Samples, judge_id: str) -> Iterator[Finding]:
        """Yield a finding a metric for each row, and for each output that is missing."""
        has_outputs = self.language in places.outputs[self.editor].languages
        for id_, sample in self._its(places).items():
            row = self.rows.get(id_)
            if row is None and not (has_outputs and sample.edited is None):
                continue  # not judged yet
            problem = places.unusable.get((self.editor, id_))
            for name, metric in metrics_of(sample.extra["task"]).items():
                if row is not None:
                    said = read_score(row.values, name)
                elif problem is not None:
                    said = ResultScore(status="input_error", reason=problem)
                else:
                    said = ResultScore(status="missing_output", reason="there is no output of it beside the results")
                yield Finding(
                    task_id=digest({"imported": "unicbench", "sample": sample.key, "metric": metric}),
                    judge_id=judge_id,
                    repeat=0,
                    sample_id=id_,
                    editor=self.editor,
                    metric=metric,
                    status=said.status,
                    answer=None if said.value is None else Number(value=said.value),
                    ending="answer" if row is not None else "blocked" if problem is None else "input",
                    reason=said.reason,
                )

    def published(self, judge_id: str) -> Iterator[Published]:
        """Yield the means as the script computes them: of all rows, with the zeros."""
        for name, metric in (*METRICS.items(), (OVERALL, OVERALL)):
            scores = [row.values.get(f"{name}_score") for row in self.every]
            numbers = [_float(score) for score in scores if isinstance(score, int | float) and not isinstance(score, bool)]
            if numbers:
                mean = math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else None
                yield Published(
                    judge_id=judge_id,
                    editor=self.editor,
                    dims={"language": self.language},
                    metric=metric,
                    mean=mean,
                    count=len(numbers),
                )

    def notes(self, places: _Samples) -> Iterator[str]:
        """Yield what a reader should know of the group as a whole."""
        its = list(self._its(places).values())
        left = [sample for sample in its if sample.id not in self.rows]
        has_outputs = self.language in places.outputs[self.editor].languages
        bad = sum((self.editor, sample.id) in places.unusable for sample in left)
        gone = sum(sample.edited is None for sample in left) - bad if has_outputs else 0
        counts = {"missing outputs": gone, "outputs that cannot be read": bad, "not judged yet": len(left) - gone - bad}
        rest = "".join(f"; {what}: {count}" for what, count in counts.items() if count)
        yield f"{self.title}: {len(self.rows)} of {len(its)} samples have a row{rest}"
        yield from _first(self.refused, f"{self.title}: lines not counted")
        counted: Counter[str] = Counter()
        bare = 0
        differing: list[str] = []
        for sample in its:
            if (row := self.rows.get(sample.id)) is None:
                continue
            names = metrics_of(sample.extra["task"])
            said = [read_score(row.values, name) for name in names]
            counted.update(f"that are {one.status} ({_kind(one)})" for one in said if one.status != "ok")
            bare += sum(one.value == 0 and not one.reason.strip() for one in said)
            differing += filter(None, [_compared(row, names)])
        yield from (f"{self.title}: scores {what}: {count}" for what, count in counted.items())
        if bare:
            yield f"{self.title}: scores of 0 without a reason: {bare}; the script writes 0 for a reply without a score too"
        yield from _first(differing, f"{self.title}: overall scores that are not the geometric mean of their rows")


def _first(problems: Sequence[str], what: str) -> Iterator[str]:
    """Yield one note on several problems: how many there are, and the first of them."""
    if problems:
        more = "; and so on" if len(problems) > _SHOWN else ""
        yield f"{what}: {len(problems)}: {'; '.join(problems[:_SHOWN])}{more}"


def _kind(score: ResultScore) -> str:
    """Return what is wrong with a score, in the words that many rows share."""
    return re.split("[;:]", score.reason)[0]


def _compared(row: ResultRow, names: Mapping[str, str]) -> str:
    """Return how a row's overall score differs from the geometric mean of its scores; "" if it does not."""
    given = _number(row.values.get("overall_score"))
    # The script asks RA only where there are reasoning points, and takes the mean of three without it.
    of_row = [name for name in names if name != "ra" or row.values.get("ra_score") is not None]
    expected = published_overall(row.values, of_row)
    if given is None and expected is None:
        return ""
    if given is not None and expected is not None and abs(given - expected) <= _SAME:
        return ""
    said = "none" if expected is None else f"{expected:.4f}"
    return f"{row.place} has {shown(row.values.get('overall_score'))}, the mean is {said}"


def _float(score: float) -> float:
    try:
        return float(score)
    except OverflowError:
        return math.inf


def _number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = _float(value)
    return number if math.isfinite(number) else None


def _joined(problem: str, reason: str) -> str:
    return "; ".join(filter(None, (problem, reason)))
