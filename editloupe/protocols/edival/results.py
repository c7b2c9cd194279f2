"""The official code's result files as findings: `EDITOR/multipass/INDEX_input_raw.json`, `EDITOR/singlepass/…_turn_N.json`.

The code writes 0 for much that is no verdict: an instruction that it cannot read, an exception, an object that it does not
find before the edit, unchanged objects of which it finds no box. Where the reason or the lists beside the number tell it,
that is a status here. What cannot be told is counted in a note: a model that fails says "no", a detector that fails sees
nothing. `image_rate.json` of multipass repeats the same numbers without reasons; it is compared and not used. Neither are
`task_rate.json`, and the rates of singlepass, which count the last edit of a prompt alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain as joined
from pathlib import Path
from statistics import fmean
from typing import Any, Final, cast, get_args
from urllib.parse import quote

from editloupe.answers import Answer, Number, Record
from editloupe.chat import Sampling
from editloupe.data.images import ImageStore
from editloupe.data.rows import NO_OUTPUT
from editloupe.data.samples import Loaded, RejectedRow, load
from editloupe.data.tables import shown
from editloupe.errors import DataError
from editloupe.files import read_bytes
from editloupe.findings import Finding, JudgeSpec
from editloupe.protocols.base import make_protocol
from editloupe.protocols.edival import instructions
from editloupe.protocols.edival.chain import MODE, SENTENCES, Chain, Mode, read_chain
from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.instructions import parse_edit
from editloupe.protocols.edival.tables import FOLLOWING, SUCCESS
from editloupe.protocols.imported import Imported, Published
from editloupe.scores import Metric
from editloupe.tasks import About, Status
from editloupe.values import Json, Sample, Turn, digest, distinct_keys, finite, in_one, parse_json

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
OPTIONS: Final[Mapping[str, Json]] = {
    "if": "official",
    "miss": "status",
    "cc_rules": "official",
    "cc_tokens": "official",
    "quality": "all",
    "preference_prompt": "instruction",
}
"""Of the protocol: as the official code, but that an object which is not seen before the edit gives no verdict."""

_FILES: Final[Mapping[Mode, re.Pattern[str]]] = {
    "multipass": re.compile(r"([0-9]{1,9})_input_raw\.json"),
    "singlepass": re.compile(r"([0-9]{1,9})_input_raw_turn_([0-9]{1,3})\.json"),
}
_WHERE: Final = (
    "EDITOR/multipass/INDEX_input_raw.json or EDITOR/singlepass/INDEX_input_raw_turn_N.json, as the official eval.py writes"
)
_FAILED: Final[tuple[tuple[re.Pattern[str], Status, str], ...]] = tuple(
    (re.compile(pattern), cast(Status, status), what)
    for pattern, status, what in (
        (r"Invalid instruction format|Unknown task type|Invalid position", "input_error",
         "the official grammar cannot read the instruction"),
        (r"Error during evaluation", "tool_failed", "the official code raised"),
        (r"VLM error", "backend_failed", "the official model failed"),
        (r"Failed to detect \[.*\] in source image|Source (?:object \[.*\] )?detected: False", "not_defined",
         "the detector did not find the object before the edit"),
    )
)  # fmt: skip
"""Beginning or part of the reason of a 0 → what it is in truth."""
_NO_REFERENCE: Final = re.compile(r"Reference object \[.*\] detected: False")
"""In the image before the edit for an added object, in the one after it for a moved one."""
_SAID_NO: Final = re.compile(r"VLM response: 'no'")
_GONE: Final = "Successfully removed"
_CONSISTENCY: Final[Mapping[str, tuple[str, str]]] = {
    "object_consistency": ("object_dinov3_consistency_mean", "object_dinov3_consistency"),
    "object_l1": ("object_l1_consistency_mean", "object_l1_consistency"),
    "background_consistency": ("background_dinov3_consistency", ""),
    "background_l1": ("background_l1_consistency", ""),
}
"""Metric → its key, and the list beside it that holds a number for each box."""
_STATISTICS: Final[Mapping[str, str]] = {
    "luminance_p99": "p99", "luminance_p999": "p999", "saturation": "mean_s", "sharpness": "sharpness",
    "contrast": "contrast",
}  # fmt: skip
_QUALITY: Final[Mapping[str, Mapping[str, str]]] = {
    "image_statistics": _STATISTICS, "preference": {"preference": "human_preference_score"},
}  # fmt: skip
"""Question → the metrics that it answers, and their keys."""
_BASE: Final = "base_image_"
_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a result says of one metric."""

    status: Status
    value: float | None = None
    """None unless the status is ok."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ResultEntry:
    """What was written about one image after a number of edits."""

    path: Path
    values: Mapping[str, Any]
    edits: int
    """How many edits the image has had."""
    base: Mapping[str, Any]
    """Quality of the base image."""

    def followed(self) -> list[Verdict]:
        """Return whether each edit that the entry tells of was followed: the last one, or all of a prompt."""
        types, kinds, reasons = (self._each(name) for name in ("task_type", "instruction_following", _REASON))
        return [
            read_verdict(kind, text(reason), text(type_)) for type_, kind, reason in zip(types, kinds, reasons, strict=True)
        ]

    def numbers(self) -> list[float | None]:
        """Return the zeros and ones as they are written; None for what is no number."""
        listed = self.values.get(_LISTS["instruction_following"])
        return list(map(_number, listed if isinstance(listed, list) else [self.values.get("instruction_following")]))

    def sentences(self) -> list[tuple[str, str, str]]:
        """Return type, sentence with brackets and plain sentence of each of these edits."""
        types = self._each("task_type")
        both = [self._each("format_instructions", len(types)), self._each("instruction", len(types))]
        return [(text(a), text(b), text(c)) for a, b, c in zip(types, *both, strict=True)]

    def _each(self, name: str, count: int | None = None) -> list[Any]:
        """Return a value as a list with an item for each edit. Raises ValueError for another number of them."""
        listed = self.values.get(_LISTS[name])
        found = list(listed) if isinstance(listed, list) else [self.values.get(name)]
        due = self.edits if _LISTS["instruction_following"] in self.values else 1
        if len(found) != (count or due):
            raise ValueError(f"expected {count or due} of {_LISTS[name]!r}, found {len(found)}")
        return found


_REASON: Final = "instruction_following_reason"
_LISTS: Final[Mapping[str, str]] = {
    "task_type": "task_types",
    "instruction_following": "instruction_following_list",
    _REASON: "instruction_following_reason_list",
    "instruction": "instructions",
    "format_instructions": "format_instructions",
}
"""Key of one edit → key of all edits of a prompt."""


def text(value: object) -> str:
    """Return a text; "" for anything else."""
    return value if isinstance(value, str) else ""


def read_verdict(value: object, reason: str, edit_type: str) -> Verdict:
    """Return what 0 or 1 with its reason says of an edit."""
    number = _number(value)
    if number is None:
        return Verdict(status="unparsed", reason=f"instruction_following is no number: {shown(value)}")
    if number not in (0, 1):
        return Verdict(status="off_menu", reason=f"instruction_following is neither 0 nor 1: {number:g}")
    if number == 0:
        for pattern, status, what in _FAILED:
            if pattern.search(reason):
                return Verdict(status=status, reason=f"{what}: {reason}")
        if edit_type == instructions.SUBJECT_ADD and _NO_REFERENCE.search(reason):
            return Verdict(
                status="not_defined", reason=f"the detector did not find the reference before the edit: {reason}"
            )
    return Verdict(status="ok", value=number, reason=reason)


def read_consistency(values: Mapping[str, Any], metric: str) -> Verdict:
    """Return what an entry says of one kind of consistency, -1 to 1. A mean of no boxes is not defined."""
    key, listed = _CONSISTENCY[metric]
    value, details = values.get(key), values.get("object_details")
    if value is None:
        unchanged = isinstance(values.get("bg_details"), Mapping)
        why = (
            "there is nothing to compare"
            if unchanged
            else "the official code compares nothing after a change of background"
        )
        return Verdict(status="not_defined", reason=why)
    number = finite(value)
    if number is None or not -1 <= number <= 1:
        return Verdict(status="unparsed", reason=f"{key} is no number from -1 to 1: {shown(value)}")
    boxes = details.get(listed) if isinstance(details, Mapping) else None
    if listed and number == 0 and not boxes:
        found = "no box of an unchanged object" if boxes == [] else "0 without details, which is what it writes for no box"
        return Verdict(status="not_defined", reason=f"the official code found {found}")
    return Verdict(status="ok", value=number)


@dataclass(kw_only=True)
class _Group:
    """The results of one editor in one mode."""

    editor: str
    mode: Mode
    folder: Path
    entries: dict[tuple[str, int], ResultEntry] = field(default_factory=dict)
    """(index, number of edits) → what is written."""
    refused: list[str] = field(default_factory=list)
    """Files, and entries of files, that do not count, and why."""
    used: dict[str, Sample] = field(default_factory=dict)
    """Sample id → the samples that have a result."""
    counted: Counter[str] = field(default_factory=Counter)
    """What a note says how often."""

    @property
    def title(self) -> str:
        return f"editor {self.editor!r}, {self.mode}"

    def read(self) -> None:
        """Read the files. What cannot be read is refused, one by one."""
        for path in sorted(self.folder.iterdir()):
            match = _FILES[self.mode].fullmatch(path.name)
            if match is None or not path.is_file():
                continue
            try:
                values = _read_object(path)
                found = [(int(match[2]), values)] if self.mode == "singlepass" else list(_turns(values))
            except ValueError as error:
                self.refused.append(f"{path}: {error}")
                continue
            base = values.get("base_image_quality")
            for edits, entry in found:
                if isinstance(entry, Mapping):
                    known = base if isinstance(base, Mapping) else {}
                    self.entries[match[1], edits] = ResultEntry(path=path, values=entry, edits=edits, base=known)
                else:
                    self.refused.append(f"{path}: turn {edits} is {shown(entry)}; expected an object")

    def findings(self, samples: Mapping[str, Sample], judge_id: str, metrics: Mapping[str, Metric]) -> Iterator[Finding]:
        """Yield the findings of all entries that are about a sample. metrics: those that the protocol declares, by id."""
        for (index, edits), entry in self.entries.items():
            id_ = index if self.mode == "multipass" else f"{index}.c{edits}"
            sample = samples.get(id_)
            try:
                if sample is None:
                    raise ValueError(f"the data has no sample {id_!r}")
                said = list(self._said(entry, read_chain(sample)))
            except (ValueError, DataError) as error:
                self.refused.append(f"{entry.path}, turn {edits}: {error}")
                continue
            for turn, part, metric, verdict in said:
                if metric in metrics:
                    self._count(metric, verdict)
                    answer = None if verdict.value is None else Number(value=verdict.value)
                    about = About.of(sample, turn=turn, part=part)
                    yield _finding(about, metric, judge_id, verdict.status, answer, verdict.reason)
            images = {edits if self.mode == "multipass" else 1: (entry.values, "")}
            if id_ not in self.used:
                images[0] = (entry.base, _BASE)
            self.used[id_] = sample
            for turn, (values, prefix) in images.items():
                for question, keys in _QUALITY.items():
                    given = {metric: values.get(prefix + key) for metric, key in keys.items() if metric in metrics}
                    found = {metric: _on_scale(value, metrics[metric]) for metric, value in given.items()}
                    for metric in (name for name, value in given.items() if value is not None and found[name] is None):
                        self.counted[f"{metric} that is no number on its scale"] += 1
                    if given:
                        yield _of_quality(About.of(sample, turn=turn), question, judge_id, given, found)

    def _said(self, entry: ResultEntry, chain: Chain) -> Iterator[tuple[int, str, str, Verdict]]:
        """Yield turn, part, metric and verdict. Raises ValueError and DataError: the entry is about other edits."""
        multi = self.mode == "multipass"
        edits = chain.edits[entry.edits - 1 : entry.edits] if multi else chain.edits
        if len(edits) != (1 if multi else entry.edits):
            raise ValueError(f"it is about {entry.edits} edits, and the data has {len(chain.edits)}")
        for sentence, edit in zip(entry.sentences(), edits, strict=True):
            if parse_edit(*sentence) != edit:
                raise ValueError(f"its instruction is {sentence[2] or sentence[1]!r}, and the data's {edit.sentence()!r}")
        turn = entry.edits if multi else 1
        for place, verdict in enumerate(entry.followed(), start=1):
            yield turn, "" if multi else f"instruction {place}", FOLLOWING, verdict
        for metric in _CONSISTENCY:
            yield turn, "", metric, read_consistency(entry.values, metric)

    def _count(self, metric: str, verdict: Verdict) -> None:
        """Count what a note tells."""
        if metric == FOLLOWING:
            if verdict.status != "ok":
                self.counted[f"verdicts that are {verdict.status} ({verdict.reason.partition(':')[0]})"] += 1
            elif verdict.value == 0 and _SAID_NO.search(verdict.reason):
                self.counted["0 after a model's no, which the code also writes for a model that failed"] += 1
            elif verdict.value == 1 and verdict.reason.startswith(_GONE):
                self.counted["1 for an object that is not seen, which the code also writes for a detector that failed"] += 1
        elif metric in _CONSISTENCY and verdict.reason.startswith("the official code found"):
            self.counted[f"{metric} of 0 that is not_defined ({verdict.reason})"] += 1

    def published(self, judge_id: str) -> Iterator[Published]:
        """Yield the means as the official notebook computes them, with the zeros."""
        for edits in sorted({edits for _, edits in self.entries}):
            whole = [index for index, turns in self.entries if turns == edits]
            at = [self.entries[index, edits] for index in whole]
            means = {SUCCESS: [value for index in whole if (value := self._success(index, edits)) is not None]}
            means[FOLLOWING] = [value for one in at for value in one.numbers() if value is not None]
            for metric, (key, _) in _CONSISTENCY.items():
                means[metric] = [value for one in at if (value := finite(one.values.get(key))) is not None]
            last = {SUCCESS: f"instruction {edits}"} if self.mode == "singlepass" else {}
            for metric, values in means.items():
                if values:
                    yield Published(
                        judge_id=judge_id,
                        editor=self.editor,
                        dims={"mode": self.mode, "turns": edits},
                        part=last.get(metric),
                        metric=metric,
                        mean=fmean(values),
                        count=len(values),
                    )

    def _success(self, index: str, edits: int) -> float | None:
        """Return 1 if all edits so far have a 1, else 0; None where one of them has no number."""
        turns = range(1, edits + 1) if self.mode == "multipass" else (edits,)
        entries = [self.entries.get((index, turn)) for turn in turns]
        numbers = [number for entry in entries for number in (entry.numbers() if entry is not None else [None])]
        return None if None in numbers else float(all(numbers))

    def notes(self, asked: int) -> Iterator[str]:
        """Yield what a reader should know of the group. asked: samples of the data."""
        yield f"{self.title}: {len(self.used)} of {asked} samples have a result"
        if self.refused:
            more = "; and so on" if len(self.refused) > _SHOWN else ""
            yield f"{self.title}: not counted: {len(self.refused)}: {'; '.join(self.refused[:_SHOWN])}{more}"
        yield from (f"{self.title}: {what}: {count}" for what, count in self.counted.items())
        if self.mode == "multipass":
            yield from self._compared()

    def _compared(self) -> Iterator[str]:
        """Yield how image_rate.json differs from the files of the images."""
        path = self.folder / "image_rate.json"
        if not path.is_file():
            return
        try:
            rates = _read_object(path)
        except ValueError as error:
            yield f"{self.title}: not compared: {path}: {error}"
            return
        own: dict[str, list[float | None]] = {}
        for (index, _), entry in sorted(self.entries.items()):
            own.setdefault(index, []).extend(entry.numbers())
        if differing := [index for index in {**own, **rates} if own.get(index) != rates.get(index)]:
            listed = ", ".join(sorted(differing)[:_SHOWN])
            yield f"{self.title}: {path.name} differs from the images' own files: {len(differing)} images ({listed})"


def read(folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore) -> Imported:
    """Read the result files below a folder as findings on the samples of `data`.

    edited: folder of outputs by the editor's name. Raises DataError: no result file, none about `data`, no sample that can
    be used. SampleError, ConfigError: as the loader does.
    """
    groups = list(_groups(folder))
    editors = list(dict.fromkeys(group.editor for group in groups))
    if unknown := sorted(set(edited) - {*editors}):
        raise DataError(f"--edited {unknown[0]}: no result of this editor below {folder}; there are {', '.join(editors)}")
    bare = load(data, store=store, outputs=False)
    shown_too = load(data, store=store, edited=edited) if edited else None
    if not bare.samples:
        first = bare.rejected[0].message if bare.rejected else "it holds no row"
        raise DataError(f"{data}: no sample can be used, and a finding needs one with its source image: {first}")
    notes = list((shown_too or bare).notes)
    protocol = make_protocol("edival", OPTIONS)
    metrics = {metric.id: metric for metric in protocol.metrics if metric.id not in (SUCCESS, CONTENT)}
    judge = _judge()
    findings: list[Finding] = []
    samples: list[Sample] = []
    rejected: list[RejectedRow] = []
    for group in groups:
        group.read()
        given = shown_too if shown_too is not None and group.editor in edited else None
        its = {s.id: s for s in _samples(bare if given is None else given, group, of=group.editor if given else None)}
        findings += group.findings(its, judge.id, metrics)
        # Without outputs nobody knows which other samples were to be judged: the code leaves out those without one.
        samples += its.values() if given is not None else group.used.values()
        notes += group.notes(len(its))
    for editor in editors:
        kept = shown_too.rejected if shown_too is not None and editor in edited else bare.rejected
        rejected += [replace(row, editor=editor) for row in kept if row.editor in ("", editor)]
    if not findings:
        why = next(joined.from_iterable(group.refused for group in groups), "the files are empty")
        raise DataError(f"{folder}: no result is about a sample of {data}; name the data that was judged: {why}")
    if without := [editor for editor in editors if editor not in edited]:
        notes.append(
            f"no outputs of {', '.join(without)}: pages show the sources alone; name them with --edited NAME=FOLDER"
        )
    return Imported(
        protocol="edival",
        options=OPTIONS,
        judges={"official": judge},
        loaded=Loaded(format=bare.format, samples=tuple(samples), rejected=tuple(rejected)),
        findings=tuple(findings),
        published=tuple(one for group in groups for one in group.published(judge.id)),
        notes=tuple(notes),
    )


def _judge() -> JudgeSpec:
    """Return the identity of the official code, which does not say by which models it judged."""
    unknown = Sampling(temperature=None, seed=None, max_tokens=None)
    return JudgeSpec(
        backend=f"imported/edival/{quote('official')}",
        endpoint="recorded elsewhere",
        sampling=unknown,
        tool_protocol="none",
    )


def _groups(folder: Path) -> Iterator[_Group]:
    """Yield the folders of results, sorted: of all editors, of one, or of one mode. Raises DataError: none."""
    root = folder.resolve()
    if not root.is_dir():
        raise DataError(f"{folder}: {'is a file' if root.exists() else 'no such folder'}; expected a folder with {_WHERE}")
    below = [path for path in (root, *sorted(root.rglob("*"))) if path.name in MODES and path.is_dir()]
    found = [
        _Group(editor=path.parent.name, mode=cast(Mode, path.name), folder=path)
        for path in below
        if any(_FILES[cast(Mode, path.name)].fullmatch(file.name) for file in path.iterdir())
    ]
    if not found:
        raise DataError(f"{folder}: no result file; expected {_WHERE}")
    at: dict[tuple[str, Mode], Path] = {}
    for group in found:
        if (other := at.setdefault((group.editor, group.mode), group.folder)) != group.folder:
            raise DataError(
                f"{folder}: two folders hold results of {group.title}: {other} and {group.folder}; name one of them, or "
                "give the editors different names"
            )
    yield from found


def _samples(loaded: Loaded, group: _Group, *, of: str | None) -> Iterable[Sample]:
    """Return the samples that a group may be about. of: the editor; None for data without outputs."""
    for sample in loaded.samples:
        mode = sample.extra.get(MODE, "multipass")
        if of is not None:
            if (sample.editor, mode) == (of, group.mode):
                yield sample
            continue
        warnings = tuple(dict.fromkeys((*sample.warnings, NO_OUTPUT)))
        sample = replace(sample, editor=group.editor, warnings=warnings)
        if mode == group.mode:
            yield sample
        elif mode == "multipass":
            yield from _prompts(sample)


def _prompts(sample: Sample) -> Iterator[Sample]:
    """Yield a chain as complex prompts of its first edits, without outputs."""
    sentences = [turn.instruction for turn in sample.turns]
    lists = {name: value for name, value in sample.extra.items() if isinstance(value, list | tuple)}
    for edits in range(1, len(sentences) + 1):
        cut = {name: list(value[:edits]) for name, value in lists.items() if len(value) == len(sentences)}
        yield replace(
            sample,
            id=f"{sample.id}.c{edits}",
            turns=(Turn(instruction=in_one(sentences[:edits]), edited=None),),
            extra={**sample.extra, **cut, SENTENCES: sentences[:edits], MODE: "singlepass"},
        )


def _read_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file. Raises ValueError."""
    try:
        values = parse_json(read_bytes(path), object_pairs_hook=distinct_keys)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"expected an object, found {shown(values)}")
    return values


def _turns(values: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a multipass file by turn. Raises ValueError where there is none."""
    turns = sorted(int(key) for key in values if re.fullmatch("[1-9][0-9]{0,2}", key))
    if not turns:
        raise ValueError(f"holds no turn; expected the keys 1, 2 …, found {', '.join(map(repr, values)) or 'none'}")
    for turn in turns:
        yield turn, values[str(turn)]


def _number(value: object) -> float | None:
    """Return a finite number; true and false are 1 and 0."""
    return float(value) if isinstance(value, bool) else finite(value)


def _on_scale(value: object, metric: Metric) -> float | None:
    """Return a number that a metric can have; None for anything else."""
    number, bounds = finite(value), metric.domain.bounds
    return number if number is None or bounds is None or bounds[0] <= number <= bounds[1] else None


def _of_quality(
    about: About, question: str, judge_id: str, given: Mapping[str, object], found: Mapping[str, float | None]
) -> Finding:
    """Return the finding of one number, or a record of several. given: as it is written.   found: what can be used."""
    numbers = [number for number in found.values() if number is not None]
    if not numbers:
        wrong = [
            f"{metric} is no number on its scale: {shown(value)}" for metric, value in given.items() if value is not None
        ]
        why = "; ".join(wrong) or f"the file has no {', '.join(found)}"
        return _finding(about, question, judge_id, "unparsed" if wrong else "not_defined", None, why)
    answer = Number(value=numbers[0]) if len(found) == 1 else Record(data=dict(found))
    return _finding(about, question, judge_id, "ok", answer)


def _finding(about: About, metric: str, judge_id: str, status: Status, answer: Answer | None, reason: str = "") -> Finding:
    return Finding(
        task_id=digest({"imported": "edival", "about": about.to_json(), "metric": metric}),
        judge_id=judge_id,
        repeat=0,
        **vars(about),
        metric=metric,
        status=status,
        answer=answer,
        ending="answer",
        reason=reason,
    )
