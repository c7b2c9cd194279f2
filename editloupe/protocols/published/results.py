"""What the importers of result files share: which sample an entry is about, findings, notes on what does not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from editloupe.answers import Number
from editloupe.chat import Sampling
from editloupe.data.folders import IMAGE_ENDINGS
from editloupe.data.images import ImageStore
from editloupe.data.rows import NO_OUTPUT
from editloupe.data.samples import Loaded, load
from editloupe.errors import DataError
from editloupe.files import read_bytes
from editloupe.findings import Finding, JudgeSpec
from editloupe.protocols.imported import Imported, Published
from editloupe.protocols.published.protocol import METRICS, Benchmark
from editloupe.tasks import Status
from editloupe.values import Sample, digest, distinct_keys, finite, parse_json

_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Said:
    """What an entry says of one metric."""

    status: Status
    value: float | None = None
    """None unless the status is ok."""
    reason: str = ""
    kind: str = ""
    """What is wrong with it, in words that many entries share; "" for nothing."""


@dataclass(frozen=True, kw_only=True)
class ResultEntry:
    """What result files say of one edit."""

    editor: str
    sample_id: str
    place: str
    """Where it stands, for messages."""
    said: Mapping[str, Said]
    """By metric."""
    instruction: str | None = None
    """As the files have it; None where they have none."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Result files, read entry by entry."""

    entries: Sequence[ResultEntry]
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Editor → the folder in which its outputs may lie beside its results."""
    published: Sequence[Published] = ()
    """Without a judge: `imported` fills it in."""
    notes: Sequence[str] = ()


def score(value: Any, metric: str, benchmark: Benchmark, reason: str = "") -> Said:
    """Return what a value says: a finite number on the metric's scale, or a status that says why it is none."""
    domain = next(one.domain for one in METRICS[benchmark] if one.id == metric)
    low, high = domain.bounds or (0.0, 0.0)
    number = None if isinstance(value, bool) or value is None else finite(value)
    if number is None:
        return Said(status="unparsed", reason=f"no number: {value!r}; {reason}".rstrip("; "), kind="no number")
    if not low <= number <= high:
        what = f"off the scale of {low:g} to {high:g}"
        return Said(status="off_menu", reason=f"{number:g} is {what}; {reason}".rstrip("; "), kind=what)
    return Said(status="ok", value=number, reason=reason)


def read_json(file: Path) -> Mapping[str, Any]:
    """Return the object that a file holds. Raises DataError."""
    try:
        found = parse_json(read_bytes(file), object_pairs_hook=distinct_keys)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{file}: expected an object with an entry for each edit, found {type(found).__name__}")
    return found


def files_below(folder: Path, pattern: str, expected: str) -> list[Path]:
    """Return the files below a folder that match, sorted. Raises DataError: no such folder, no such file."""
    root = folder.resolve()
    if not root.is_dir():
        raise DataError(
            f"{folder}: {'is a file' if root.exists() else 'no such folder'}; expected a folder with {expected}"
        )
    found = sorted(path for path in root.rglob(pattern) if path.is_file())
    if not found:
        raise DataError(f"{folder}: no result file; expected {expected}")
    return found


def imported(
    benchmark: Benchmark, files: Files, folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore
) -> Imported:
    """Return entries as findings on the samples of `data`.

    Raises DataError: `edited` names an editor without results, or no entry is about the data.
    """
    editors = sorted({entry.editor for entry in files.entries})
    if unknown := sorted(set(edited) - set(editors)):
        raise DataError(f"--edited {unknown[0]}: no result of this editor below {folder}; there are {', '.join(editors)}")
    places = {editor: path for editor, path in files.folders.items() if _has_images(path)} | dict(edited)
    base = load(data, store=store, format=benchmark, outputs=False)
    notes, samples, rejected = list(base.notes), list[Sample](), list(base.rejected)
    for editor in editors:
        its = _of_editor(base, editor, places.get(editor), data=data, benchmark=benchmark, store=store)
        samples += its.samples
        notes += [note for note in its.notes if note not in notes]
    judge = JudgeSpec(
        backend=f"imported/{benchmark}", endpoint="recorded elsewhere", tool_protocol="none",
        sampling=Sampling(temperature=None, seed=None, max_tokens=None),
    )  # fmt: skip
    by_key = {(sample.editor, sample.id): sample for sample in samples}
    found, refused = dict[tuple[str, str], ResultEntry](), list[str]()
    for entry in files.entries:
        key = (entry.editor, entry.sample_id)
        if why := _problem(entry, by_key.get(key), found.get(key)):
            refused.append(f"{entry.place}: {why}")
        else:
            found[key] = entry
    if not found:
        why = refused[0] if refused else "the files hold no entry"
        raise DataError(f"{folder}: no entry is about a sample of {data}; name the data that was judged: {why}")
    if refused:
        more = "; and so on" if len(refused) > _SHOWN else ""
        notes.append(f"entries not counted: {len(refused)}: {'; '.join(refused[:_SHOWN])}{more}")
    findings = [one for sample in samples for one in _findings(sample, found, benchmark, judge.id, places)]
    for editor in editors:
        counted = [entry for key, entry in found.items() if key[0] == editor]
        kinds = Counter(
            (said.status, said.kind) for entry in counted for said in entry.said.values() if said.status != "ok"
        )
        notes.append(
            f"editor {editor!r}: {len(counted)} of {sum(s.editor == editor for s in samples)} samples have an entry"
        )
        notes += [f"editor {editor!r}: scores that are {status} ({kind}): {n}" for (status, kind), n in kinds.items()]
    return Imported(
        protocol="published",
        options={"benchmark": benchmark},
        judges={f"{benchmark}'s judge": judge},
        loaded=Loaded(format=benchmark, samples=tuple(samples), rejected=tuple(rejected)),
        findings=tuple(findings),
        published=tuple(replace(one, judge_id=judge.id) for one in files.published),
        notes=(*notes, *files.notes),
    )


def means(
    numbers: Iterable[tuple[str, Mapping[str, str | int], str, float]], *, digits: int | None = None
) -> Iterator[Published]:
    """Yield the mean of each (editor, dimensions, metric). digits: to which the script rounds it."""
    by: dict[tuple[str, tuple[tuple[str, str | int], ...], str], list[float]] = {}
    for editor, dims, metric, number in numbers:
        by.setdefault((editor, tuple(dims.items()), metric), []).append(number)
    for (editor, of, metric), values in by.items():
        mean = sum(values) / len(values)
        mean = mean if digits is None else round(mean, digits)
        yield Published(judge_id="", editor=editor, dims=dict(of), metric=metric, mean=mean, count=len(values))


def _has_images(folder: Path) -> bool:
    return any(path.suffix.lower() in IMAGE_ENDINGS for path in folder.rglob("*"))


def _of_editor(
    base: Loaded, editor: str, outputs: Path | None, *, data: Path, benchmark: Benchmark, store: ImageStore
) -> Loaded:
    """Return the samples of an editor, with its outputs where they are known."""
    if outputs is not None:
        return load(data, store=store, format=benchmark, edited={editor: outputs})
    bare = [replace(s, editor=editor, warnings=tuple(w for w in s.warnings if w != NO_OUTPUT)) for s in base.samples]
    note = f"no outputs beside the results of {editor!r}: pages show the sources alone; name them with --edited NAME=FOLDER"
    return replace(base, samples=tuple(bare), notes=(note,))


def _problem(entry: ResultEntry, sample: Sample | None, before: ResultEntry | None) -> str:
    """Return why an entry does not count; "" if it does."""
    if sample is None:
        return f"the data has no sample {entry.sample_id!r} that can be used"
    if entry.instruction and entry.instruction.split() != sample.instruction.split():
        return f"its instruction is {entry.instruction!r}, and the data's {sample.instruction!r}"
    return "" if before is None else f"the edit stands in {before.place} already"


def _findings(
    sample: Sample,
    found: Mapping[tuple[str, str], ResultEntry],
    benchmark: Benchmark,
    judge_id: str,
    places: Mapping[str, Path],
) -> Iterator[Finding]:
    """Yield a finding a metric for an edit with an entry, and for one whose output is known to be missing."""
    entry = found.get((sample.editor, sample.id))
    if entry is not None:
        said = entry.said
    elif sample.editor in places and sample.edited is None:
        gone = Said(status="missing_output", reason="there is no output of it, and the files have no entry")
        said = {
            one.id: gone
            for one in METRICS[benchmark]
            if (benchmark, one.id) not in (("gedit", "overall"), ("kris", "knowledge"))
        }
    else:
        return
    for metric, one in said.items():
        yield Finding(
            task_id=digest({"imported": benchmark, "sample": sample.key, "metric": metric}),
            judge_id=judge_id,
            repeat=0,
            sample_id=sample.id,
            editor=sample.editor,
            metric=metric,
            status=one.status,
            answer=None if one.value is None else Number(value=one.value),
            ending="answer" if entry is not None else "blocked",
            reason=one.reason,
        )
