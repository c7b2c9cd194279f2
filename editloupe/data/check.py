"""A data set looked through without a model: every file decoded, every problem named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from editloupe.cores import usable_cores
from editloupe.data.folders import Kind
from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded, size_note, turn_notes
from editloupe.errors import ImageError
from editloupe.values import ImageRef, Json, Sample, Serializable

Severity: TypeAlias = Literal["error", "warning"]

ProblemKind: TypeAlias = (
    Kind | Literal["damaged_image", "missing_output", "size", "aspect", "mask_size", "unchanged", "image", "sample"]
)
"""Beside the kinds of rejected rows: an image whose pixels cannot be decoded, an output that is missing or of another
size or aspect, a mask of another size, an output that is its source byte for byte, what decoding an image took, and
notes of the loader on a sample."""
ASPECT_TOLERANCE: Final = 0.01
"""Relative difference of width/height from which on the aspect counts as another one."""
_Decoded: TypeAlias = Mapping[str, "tuple[str, ...] | ImageError"]
"""Notes on an image by its SHA-256, or what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class DataProblem(Serializable):
    """One thing that is wrong or worth knowing."""

    kind: ProblemKind
    severity: Severity = "warning"
    """"error" where the sample cannot be judged."""
    sample: str
    """Its key; the first sample's for a note on an image."""
    file: Path | None = None
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
        return len(self.problems) - self.errors

    @property
    def counts(self) -> Mapping[str, int]:
        """Problems by kind, in the order of `problems`."""
        return Counter(p.kind for p in self.problems)

    def to_json(self) -> dict[str, Json]:
        names = ("format", "rows", "usable", "partly", "blocked", "images", "errors", "warnings")
        found: dict[str, Json] = {name: getattr(self, name) for name in names}
        lists: dict[str, Json] = {"notes": list(self.notes), "problems": [p.to_json() for p in self.problems]}
        return {**found, "counts": dict(self.counts), **lists}


def check(loaded: Loaded, store: ImageStore, *, mute: Collection[str] = ()) -> DataReport:
    """Decode everything that was loaded with this store.

    mute: keys of samples about which nothing can be asked.
    """
    problems = [
        DataProblem(kind=r.kind, severity="error", sample=r.key, file=r.file, message=r.message) for r in loaded.rejected
    ]
    decoded, noted = _decoded(loaded.samples, store), set[str]()
    for sample in loaded.samples:
        problems += [*_of_images(sample, decoded, noted), *_of_sample(sample)]
    notes, grids = loaded.notes, [(m.width, m.height) for sample in loaded.samples for m in sample.masks.values()]
    if len(grids) > 1 and len(set(grids)) == 1 and any(p.kind == "mask_size" for p in problems):
        # A data set that stores masks on one grid, as GIE-Bench does.
        problems = [p for p in problems if p.kind != "mask_size"]
        size = "×".join(map(str, grids[0]))
        notes = (*notes, f"all {len(grids):,} masks are {size} px; measures stretch them over their sources")
    wrong = {p.sample for p in problems if p.severity == "error"}
    mute = {*mute} - wrong
    asked = [sample for sample in loaded.samples if sample.key not in wrong | mute]
    there = [[turn.edited is not None for turn in sample.turns] for sample in asked]
    return DataReport(
        format=loaded.format,
        rows=len(loaded.samples) + len(loaded.rejected),
        usable=sum(map(any, there)),
        partly=sum(any(turns) and not all(turns) for turns in there),
        blocked=len(mute),
        images=len(decoded),
        problems=tuple(sorted(problems, key=lambda p: (p.severity, p.kind, p.sample, str(p.file or ""), p.message))),
        notes=notes,
    )


def _images(sample: Sample) -> list[ImageRef]:
    """Return the images of a sample, each once."""
    images = [*sample.sources, *(turn.edited for turn in sample.turns), sample.reference, *sample.masks.values()]
    return list(dict.fromkeys(ref for ref in images if ref is not None))


def _decoded(samples: Sequence[Sample], store: ImageStore) -> _Decoded:
    """Decode each image once, as many at a time as there are cores."""

    def notes(ref: ImageRef) -> tuple[str, ...] | ImageError:
        try:
            return store.notes(ref)
        except ImageError as error:
            return error

    every = {ref.sha256: ref for sample in samples for ref in _images(sample)}
    with ThreadPoolExecutor(usable_cores()) as threads:
        return dict(zip(every, threads.map(notes, every.values()), strict=True))


def _of_images(sample: Sample, decoded: _Decoded, noted: set[str]) -> Iterator[DataProblem]:
    """Yield what is wrong with images, for each sample that uses them, and notes for the first one.   noted: added to."""
    for ref in _images(sample):
        found = decoded[ref.sha256]
        if isinstance(found, ImageError):
            kind: ProblemKind = "damaged_image"
            yield DataProblem(kind=kind, severity="error", sample=sample.key, file=ref.path, message=str(found))
        elif ref.sha256 not in noted:
            yield from (DataProblem(kind="image", sample=sample.key, file=ref.path, message=note) for note in found)
        noted.add(ref.sha256)


def _of_sample(sample: Sample) -> Iterator[DataProblem]:
    def problem(kind: ProblemKind, message: str, ref: ImageRef | None = None) -> DataProblem:
        return DataProblem(kind=kind, sample=sample.key, file=None if ref is None else ref.path, message=message)

    source = sample.source
    size = (source.width, source.height)
    for mask in sample.masks.values():
        if (mask.width, mask.height) != size:
            message = f"the mask is {mask.width}×{mask.height} px, the source {source.width}×{source.height} px"
            yield problem("mask_size", message, mask)
    before: ImageRef | None = source
    for number, turn in enumerate(sample.turns, start=1):
        edited, where = turn.edited, f"turn {number}: " if len(sample.turns) > 1 else ""
        if edited is None:
            yield problem("missing_output", f"{where}no edited image; a run counts it as missing_output")
        elif (edited.width, edited.height) != size:
            ratio = (edited.width / edited.height) / (source.width / source.height)
            other = max(ratio, 1 / ratio) - 1 > ASPECT_TOLERANCE
            message = where + size_note(source, edited) + ("; the aspect is another one" if other else "")
            yield problem("aspect" if other else "size", message, edited)
        if edited is not None and before is not None and edited.sha256 == before.sha256:
            what = "its source" if number == 1 else "that of the turn before"
            yield problem("unchanged", f"{where}the edited image is {what}, byte for byte", edited)
        before = edited
    if any(turn.edited is not None for turn in sample.turns):
        known = turn_notes(source, sample.turns)
        yield from (problem("sample", note) for note in sample.warnings if note not in known)
