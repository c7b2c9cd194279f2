"""A data set looked through without a model: every file decoded, every problem named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from editloupe.cores import usable_cores
from editloupe.data.folders import Kind
from editloupe.data.images import ImageStore
from editloupe.data.rows import size_note, turn_notes
from editloupe.data.samples import load
from editloupe.errors import ImageError
from editloupe.values import ImageRef, Json, Sample, Serialisable

Severity: TypeAlias = Literal["error", "warning"]

ProblemKind: TypeAlias = (
    Kind | Literal["damaged_image", "missing_output", "size", "aspect", "mask_size", "unchanged", "image", "sample"]
)
"""Beside the kinds of rejected rows: an image whose pixels cannot be decoded, an output that is missing or of another
size or aspect, a mask of another size, an output that is its source byte for byte, what decoding an image took, and
notes of the loader on a sample."""
ASPECT_TOLERANCE: Final = 0.01
"""Relative difference of width/height from which on the aspect counts as another one."""


@dataclass(frozen=True, kw_only=True)
class DataProblem(Serialisable):
    """One thing that is wrong or worth knowing."""

    kind: ProblemKind
    severity: Severity
    """"error" where the sample cannot be judged."""
    sample: str
    """Its key; the first sample's for a note on an image."""
    file: Path | None
    message: str


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What `check` found."""

    format: str
    rows: int
    """Everything that the data set asks to be judged."""
    usable: int
    """Rows of which at least one turn can be judged: it has an output, the row no error, and its question can be asked."""
    partly: int
    """Those among them of which other turns have no output."""
    blocked: int
    """Rows without an error about which nothing can be asked."""
    images: int
    """Different files decoded."""
    problems: tuple[DataProblem, ...]
    """Errors first, then by kind, sample, file and message."""
    notes: tuple[str, ...]

    @property
    def errors(self) -> int:
        return sum(p.severity == "error" for p in self.problems)

    @property
    def warnings(self) -> int:
        return sum(p.severity == "warning" for p in self.problems)

    @property
    def counts(self) -> Mapping[str, int]:
        """Problems by kind, in the order of `problems`."""
        return Counter(p.kind for p in self.problems)

    def to_json(self) -> dict[str, Json]:
        return {
            "format": self.format,
            "rows": self.rows,
            "usable": self.usable,
            "partly": self.partly,
            "blocked": self.blocked,
            "images": self.images,
            "errors": self.errors,
            "warnings": self.warnings,
            "counts": dict(self.counts),
            "notes": list(self.notes),
            "problems": [p.to_json() for p in self.problems],
        }


def check(
    path: Path,
    *,
    store: ImageStore,
    format: str = "auto",
    edited: Mapping[str, Path] | None = None,
    fields: Path | None = None,
    columns: Mapping[str, str] | None = None,
    blocked: Callable[[str, Sequence[Sample]], Collection[str]] | None = None,
) -> DataReport:
    """Load and decode everything. The arguments are those of `load`, and so are the errors.

    blocked: tells by the layout's name the keys of samples about which nothing can be asked, where somebody knows that.
    """
    loaded = load(path, store=store, format=format, edited=edited, fields=fields, columns=columns)
    problems = [
        DataProblem(kind=r.kind, severity="error", sample=r.key, file=r.file, message=r.message) for r in loaded.rejected
    ]
    decoded = _decoded(loaded.samples, store)
    noted: set[str] = set()
    for sample in loaded.samples:
        problems.extend(_of_images(sample, decoded, noted))
        problems.extend(_of_sample(sample))
    masks = [mask for sample in loaded.samples for mask in sample.masks.values()]
    grids, notes = {(mask.width, mask.height) for mask in masks}, loaded.notes
    if len(masks) > 1 and len(grids) == 1 and any(p.kind == "mask_size" for p in problems):
        # A data set that stores masks on one grid, as GIE-Bench does.
        problems = [p for p in problems if p.kind != "mask_size"]
        ((width, height),) = grids
        notes = (*notes, f"all {len(masks):,} masks are {width}×{height} px; measures stretch them over their sources")
    wrong = {p.sample for p in problems if p.severity == "error"}
    mute = {*(blocked(loaded.format, loaded.samples) if blocked else ())} - wrong
    asked = [sample for sample in loaded.samples if sample.key not in wrong | mute]
    there = [[turn.edited is not None for turn in sample.turns] for sample in asked]
    problems.sort(key=lambda p: (p.severity, p.kind, p.sample, str(p.file or ""), p.message))
    return DataReport(
        format=loaded.format,
        rows=len(loaded.samples) + len(loaded.rejected),
        usable=sum(map(any, there)),
        partly=sum(any(turns) and not all(turns) for turns in there),
        blocked=len(mute),
        images=len(decoded),
        problems=tuple(problems),
        notes=notes,
    )


def _images(sample: Sample) -> list[ImageRef]:
    """Return the images of a sample, each once."""
    images = [*sample.sources, *(turn.edited for turn in sample.turns), sample.reference, *sample.masks.values()]
    return list(dict.fromkeys(ref for ref in images if ref is not None))


def _decoded(samples: Sequence[Sample], store: ImageStore) -> Mapping[str, tuple[str, ...] | ImageError]:
    """Decode each image once, as many at a time as there are cores. Return by SHA-256 its notes, or what is wrong."""

    def notes(ref: ImageRef) -> tuple[str, ...] | ImageError:
        try:
            return store.notes(ref)
        except ImageError as error:
            return error

    every = {ref.sha256: ref for sample in samples for ref in _images(sample)}
    with ThreadPoolExecutor(usable_cores()) as threads:
        return dict(zip(every, threads.map(notes, every.values()), strict=True))


def _of_images(
    sample: Sample, decoded: Mapping[str, tuple[str, ...] | ImageError], noted: set[str]
) -> Iterator[DataProblem]:
    """Yield what is wrong with images, for each sample that uses them, and notes for the first one.   noted: added to."""
    for ref in _images(sample):
        found = decoded[ref.sha256]
        if isinstance(found, ImageError):
            yield _problem("damaged_image", sample, str(found), ref, severity="error")
        elif ref.sha256 not in noted:
            yield from (_problem("image", sample, note, ref) for note in found)
        noted.add(ref.sha256)


def _of_sample(sample: Sample) -> Iterator[DataProblem]:
    source = sample.source
    for mask in sample.masks.values():
        if (mask.width, mask.height) != (source.width, source.height):
            message = f"the mask is {mask.width}×{mask.height} px, the source {source.width}×{source.height} px"
            yield _problem("mask_size", sample, message, mask)
    before: ImageRef | None = source
    for number, turn in enumerate(sample.turns, start=1):
        edited, where = turn.edited, f"turn {number}: " if len(sample.turns) > 1 else ""
        if edited is None:
            yield _problem("missing_output", sample, f"{where}no edited image; a run counts it as missing_output")
        elif (edited.width, edited.height) != (source.width, source.height):
            ratio = (edited.width / edited.height) / (source.width / source.height)
            other = max(ratio, 1 / ratio) - 1 > ASPECT_TOLERANCE
            message = where + size_note(source, edited) + ("; the aspect is another one" if other else "")
            yield _problem("aspect" if other else "size", sample, message, edited)
        if edited is not None and before is not None and edited.sha256 == before.sha256:
            what = "its source" if number == 1 else "that of the turn before"
            yield _problem("unchanged", sample, f"{where}the edited image is {what}, byte for byte", edited)
        before = edited
    if any(turn.edited is not None for turn in sample.turns):
        known = turn_notes(source, sample.turns)
        yield from (_problem("sample", sample, note) for note in sample.warnings if note not in known)


def _problem(
    kind: ProblemKind, sample: Sample, message: str, ref: ImageRef | None = None, *, severity: Severity = "warning"
) -> DataProblem:
    file = None if ref is None else ref.path
    return DataProblem(kind=kind, severity=severity, sample=sample.key, file=file, message=message)
