"""Rows of a data set: read by column, named, and made into samples. A row that cannot be judged is kept with its reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from editloupe.data.boxes import FORMATS, Quad, inside, read_quads, to_px
from editloupe.data.folders import Folder, ImageFile, Kind, RowError
from editloupe.data.human import NO_RATER, Ratings, human_column
from editloupe.data.sealed import changed_since, seal_of, stated_seal
from editloupe.data.tables import TableLine, shown
from editloupe.values import (
    Box,
    ImageRef,
    Json,
    Role,
    Sample,
    Serializable,
    Target,
    Turn,
    digest,
    finite,
    parse_json,
    sample_key,
)

OWN_COLUMNS: Final = frozenset(
    ("id", "source_file_name", "source_file_names", "edited_file_name", "edited_file_names", "reference_file_name",
     "mask_file_name", "instruction", "instructions", "edit_type", "bbox", "bboxes", "reference_bbox", "reference_bboxes",
     "edited_bbox", "edited_bboxes", "bbox_format", "target_name", "editor")
)  # fmt: skip
"""What a row is read by; `model` stands for `editor` where that is absent."""
_OF_TURNS: Final = ("instructions", "edited_file_names")
"""Columns of a row with a list for several turns; to a row with one instruction they are columns like any other."""
_BOXES: Final[Mapping[Role, str]] = {"source": "", "reference": "reference_", "edited": "edited_"}
"""Image → what the columns with its boxes begin with."""
NO_OUTPUT: Final = "no edited image"
"""What is noted on a sample without an output."""


@dataclass(frozen=True, kw_only=True)
class RejectedRow(Serializable):
    """A row that cannot be judged, with as much of its identity as could be read. It becomes an `input_error` finding."""

    id: str = ""
    """Unique among samples and rejected rows of its editor; "line-7" where the row has none. "" until rows are `named`."""
    editor: str = ""
    edit_type: str | None = None
    message: str
    """Complete in itself."""
    file: Path | None = None
    """The file that it is about."""
    line: int | None = None
    """In the metadata, from 1."""
    kind: Kind = "row"
    names: Annotated[Mapping[str, str], Field(exclude=True)] = field(default_factory=dict, compare=False, repr=False)
    """As `DataRow.names`."""

    @property
    def key(self) -> str:
        """As `Sample.key`."""
        return sample_key(self.editor, self.id)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A data set, opened: what can be judged, which iteration yields, and what cannot."""

    format: str
    """The layout that was recognized."""
    samples: tuple[Sample, ...]
    rejected: tuple[RejectedRow, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know about how it was read."""
    order: tuple[bool, ...] = ()
    """For each row of the data in turn whether it became a sample; () where the samples stand before what was rejected."""

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def in_order(self) -> list[Sample | RejectedRow]:
        """Return samples and rejected rows in the order of the data."""
        if (len(self.samples), len(self.rejected)) != (self.order.count(True), self.order.count(False)):
            return [*self.samples, *self.rejected]
        samples, rejected = iter(self.samples), iter(self.rejected)
        return [next(samples) if usable else next(rejected) for usable in self.order]


@dataclass(frozen=True, kw_only=True)
class DataRow:
    """One row with values of the right type. Its files are not yet opened."""

    line: int | None
    id: str = ""
    """ "" until rows are `named`, where the row states none."""
    editor: str = ""
    source: ImageFile
    further: tuple[ImageFile, ...] = ()
    """Input images after the source, in their order."""
    edited: tuple[ImageFile | None, ...] = (None,)
    """The output of each turn."""
    reference: ImageFile | None = None
    masks: Mapping[str, ImageFile] = field(default_factory=dict)
    instructions: tuple[str, ...]
    """What was asked for in each turn."""
    edit_type: str | None = None
    quads: tuple[Quad, ...] = ()
    """The targets in the source image."""
    role_quads: Mapping[Role, tuple[Quad, ...]] = field(default_factory=dict)
    """The same targets, in the same order, in other images."""
    bbox_format: str | None = "xyxy"
    """None where nothing says it yet."""
    target_name: str | None = None
    human: Ratings = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    """Names to make an id from where the row has none, the best first."""
    built: Mapping[str, Json] | None = None
    """The line itself, whose seal has to be that of the row and its files; None for a row without one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Texts of the row by the name under which a pattern of file names may ask for them (`data.outputs`)."""

    @property
    def key(self) -> str:
        """As `Sample.key`."""
        return sample_key(self.editor, self.id)


Row: TypeAlias = DataRow | RejectedRow


def rejected(row: Row, error: RowError) -> RejectedRow:
    """Return what remains of a row after `error`."""
    known = RejectedRow(line=row.line, id=row.id, editor=row.editor, edit_type=row.edit_type, message=str(error))
    return replace(known, kind=error.kind, file=error.path)


def read_row(
    line: TableLine,
    *,
    folder: Folder,
    text_only: bool,
    bbox_format: str | None = "xyxy",
    called: Mapping[str, str] | None = None,
) -> Row:
    """Read a line with the columns of docs/data.md as a DataRow; other columns go to `extra`.

    text_only: numbers are read from text.   bbox_format: where the row does not state it.
    called: column → the name that it has in the data, for messages.
    """
    if line.fault is not None:
        return RejectedRow(line=line.number, message=line.fault)
    values = dict(line.values)
    if "editor" not in values and "model" in values:
        values["editor"] = values.pop("model")
    cells = _Cells(values, called or {}, folder, text_only)
    said: dict[str, Any] = {}
    try:
        said["id"] = cells.identifier()
        said["editor"] = cells.text("editor") or ""
        said["edit_type"] = cells.text("edit_type")
        built = None if stated_seal(line.values) is None else line.values
        return cells.row(bbox_format, line=line.number, built=built, **said)
    except RowError as error:
        return RejectedRow(**said, line=line.number, kind=error.kind, message=str(error), file=error.path)


@dataclass(frozen=True)
class _Cells:
    """The values of a row, each read as what its column holds. Methods raise RowError, which names the column."""

    values: Mapping[str, Json]
    called: Mapping[str, str]
    folder: Folder
    text_only: bool

    def wrong(self, column: str, expected: str, value: Json) -> RowError:
        return RowError("row", f"column {self.called.get(column, column)!r}: expected {expected}, found {shown(value)}")

    def row(self, bbox_format: str | None, **said: Any) -> DataRow:
        source, *further = self.sources()
        instructions, edited = self.turns()
        stated = self.text("bbox_format")
        if stated and stated not in FORMATS:
            raise self.wrong("bbox_format", f"one of {', '.join(FORMATS)}", stated)
        extra, human = self.others()
        quads = {role: self.quads(prefix) for role, prefix in _BOXES.items()}
        counts = {f"{prefix}bbox": len(quads[role]) for role, prefix in _BOXES.items() if quads[role]}
        if len(set(counts.values())) > 1:
            seen = ", ".join(f"{number} of {column!r}" for column, number in counts.items())
            raise RowError("box", f"{seen}; expected one a target, in the same order")
        target = self.text("target_name")
        if target and not counts:
            # Without a box there is no target to bear it.
            extra["target_name"] = target
        mask = self.file("mask_file_name")
        return DataRow(
            **said,
            source=source,
            further=tuple(further),
            edited=edited,
            reference=self.file("reference_file_name"),
            masks={} if mask is None else {"edit": mask},
            instructions=instructions,
            quads=quads.pop("source"),
            role_quads={role: found for role, found in quads.items() if found},
            bbox_format=stated or bbox_format,
            target_name=target,
            human=human,
            extra=extra,
            hints=(edited[0].stem,) if not said["id"] and len(edited) == 1 and edited[0] is not None else (),
        )

    def sources(self) -> list[ImageFile]:
        """Return the input images of the edit: one, or several where a row has them as a list."""
        source, names = self.file("source_file_name"), self.listed("source_file_names", of="input image")
        if source is not None and names:
            raise RowError("row", "both 'source_file_name' and 'source_file_names' are given; expected one of them")
        if source is None and not all(names or [None]):
            name = self.called.get("source_file_name", "source_file_name")
            raise RowError("row", f"column {name!r} is empty; expected the image before the edit")
        return [source] if source is not None else [ImageFile(folder=self.folder, name=str(name)) for name in names]

    def turns(self) -> tuple[tuple[str, ...], tuple[ImageFile | None, ...]]:
        """Return the instruction and the output of each turn: of one, or of several where a row has them as lists."""
        instruction, output = self.text("instruction"), self.file("edited_file_name")
        if instruction and (output is not None or not self.values.get("edited_file_names")):
            return (instruction,), (output,)
        texts = [] if instruction else [(text or "").strip() for text in self.listed("instructions")]
        names = self.listed("edited_file_names")
        if not instruction and not all(texts or [""]):
            name = self.called.get("instruction", "instruction")
            which = f" of turn {texts.index('') + 1}" if texts else f" under {name!r}" if name != "instruction" else ""
            raise RowError("no_instruction", f"the instruction{which} is empty; expected what the editor was asked to do")
        one, several = "'instruction' and 'edited_file_name'", "'instructions' and 'edited_file_names'"
        if instruction or output is not None:
            raise RowError("row", f"a row of one turn has {one}, a row of several turns {several}; found some of both")
        if names and len(names) != len(texts):
            counts = f"{len(texts)} instructions and {len(names)} edited images"
            raise RowError("row", f"columns {several}: found {counts}; expected one of each for a turn, null for no image")
        files = [ImageFile(folder=self.folder, name=name) if name and name.strip() else None for name in names]
        return tuple(texts), tuple(files or [None] * len(texts))

    def others(self) -> tuple[dict[str, Json], dict[str, dict[str, str | float]]]:
        """Return the columns without a meaning, and people's ratings by metric and rater."""
        own = OWN_COLUMNS.difference(_OF_TURNS) if self.text("instruction") else OWN_COLUMNS
        extra: dict[str, Json] = {}
        human: dict[str, dict[str, str | float]] = {}
        for column, value in self.values.items():
            if (label := human_column(column)) is None:
                extra |= {} if column in own else {column: value}
            elif (rating := self.rating(column, value)) is not None:
                human.setdefault(label[0], {})[label[1]] = rating
        return extra, human

    def identifier(self) -> str:
        value = self.values.get("id")
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(value, bool) or not isinstance(value, str | int | None):
            raise self.wrong("id", "text or a whole number", value)
        if not (text := "" if value is None else str(value).strip()).isprintable():
            raise self.wrong("id", "printable text", text)
        return text

    def text(self, column: str) -> str | None:
        """Return the column's text; None where it is null or blank."""
        value = self.values.get(column)
        if value is not None and not isinstance(value, str):
            raise self.wrong(column, "text", value)
        return (value or "").strip() or None

    def file(self, column: str) -> ImageFile | None:
        # Not stripped: a file's name may begin or end with a space.
        return ImageFile(folder=self.folder, name=str(self.values[column])) if self.text(column) else None

    def listed(self, column: str, of: str = "turn") -> list[str | None]:
        """Return the column's list of texts and nulls, which may be written as JSON text; [] where it is null or blank."""
        value = self.values.get(column)
        found = value
        if isinstance(found, str):
            with suppress(ValueError):
                found = parse_json(found) if found.strip() else None
                json.dumps(found, ensure_ascii=False).encode("utf-8")  # half a surrogate pair could not be written again
        found = [] if found is None else found
        if not isinstance(found, list | tuple) or not all(item is None or isinstance(item, str) for item in found):
            raise self.wrong(column, f"a list with a text for each {of}", value)
        return [None if item is None else str(item) for item in found]

    def quads(self, prefix: str) -> tuple[Quad, ...]:
        found = []
        for column in (f"{prefix}bbox", f"{prefix}bboxes"):
            try:
                found.append(read_quads(self.values.get(column)))
            except ValueError as error:
                raise RowError("box", f"column {self.called.get(column, column)!r}: {error}") from error
        if all(found):
            raise RowError("box", f"both '{prefix}bbox' and '{prefix}bboxes' are given; expected one of them")
        return found[0] or found[1]

    def rating(self, column: str, value: Json) -> str | float | None:
        if isinstance(value, str):
            value = value.strip() or None
            with suppress(TypeError, ValueError):
                value = float(value) if self.text_only else value  # type: ignore[arg-type]
        if value is None or isinstance(value, str):
            return value
        if (number := finite(value)) is None:
            raise self.wrong(column, "a label or a finite number", value)
        return number


def named(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Give every row an id that is unique for its editor. The second of two equal ids is rejected, and says so.

    A row without an id gets the first of its hints that no other row has, else a digest of source and instruction,
    else one of source, instruction and edited image.
    """
    stated = {row.key: row.line for row in reversed(rows) if row.id}
    offers = [() if row.id or isinstance(row, RejectedRow) else _offers(row) for row in rows]
    wanted = Counter(
        sample_key(row.editor, n) for row, names in zip(rows, offers, strict=True) for n in dict.fromkeys(names)
    )
    taken: dict[str, int | None] = {}
    out: list[Row] = []
    for row, names in zip(rows, offers, strict=True):
        key = partial(sample_key, row.editor)
        free = (name for name in names if wanted[key(name)] == 1 and key(name) not in stated)
        id_ = row.id or next(free, names[-1] if names else f"line-{row.line}")
        if (row.id and key(id_) in taken) or (names and key(id_) in {*taken, *stated}):
            first = taken.get(key(id_), stated.get(key(id_)))
            what = f"id {id_!r} was used before on" if row.id else "has the source, instruction and edited image of"
            message = f"{what} line {first}; the first is kept, give this one an id of its own"
            row, id_ = rejected(row, RowError("duplicate_id", message)), f"{id_}#line-{row.line}"
        if id_ != row.id or key(id_) in taken:
            tried = chain([id_], (f"{id_}-{n}" for n in count(2)))
            id_ = next(n for n in tried if key(n) not in taken and key(n) not in stated)
        taken[key(id_)] = row.line
        out.append(replace(row, id=id_))
    return tuple(out)


def _offers(row: DataRow) -> tuple[str, ...]:
    asked: Json = row.instructions[0] if len(row.instructions) == 1 else list(row.instructions)
    names = [None if file is None else file.name for file in row.edited]
    short = digest([row.source.name, asked])[:12]
    long = digest([row.source.name, asked, names[0] if len(names) == 1 else names])[:12]
    return (*filter(None, row.hints), short, long)


def assemble(
    rows: Sequence[Row],
    *,
    format: str,
    dataset: str,
    metadata: Path | None = None,
    notes: Sequence[str] = (),
) -> Loaded:
    """Make samples of rows that are `named`: every file identified, every box in px.

    metadata: the file in which the rows' lines count.
    """
    found = [_opened(row, dataset, metadata) for row in rows]
    samples = tuple(row for row in found if isinstance(row, Sample))
    refused = tuple(row for row in found if isinstance(row, RejectedRow))
    order = tuple(isinstance(row, Sample) for row in found)
    return Loaded(format=format, samples=samples, rejected=refused, notes=tuple(notes), order=order)


def _opened(row: Row, dataset: str, metadata: Path | None) -> Sample | RejectedRow:
    """Return a row as a sample, or as what remains of it with its place in the metadata."""
    try:
        if isinstance(row, DataRow):
            return _sample(row, dataset)
    except RowError as error:
        row = rejected(row, error)
    if metadata is None:
        return row
    what = "row" if metadata.suffix == ".json" else "line"
    where = "" if row.line is None else f"{metadata.name}, {what} {row.line}: "
    return replace(row, message=where + row.message, file=row.file or metadata)


def _sample(row: DataRow, dataset: str) -> Sample:
    """Return a row as a sample. Raises RowError."""
    source, *further = (file.image() for file in (row.source, *row.further))
    edits = [None if file is None else file.image() for file in row.edited]
    turns = tuple(Turn(instruction=i, edited=edited) for i, edited in zip(row.instructions, edits, strict=True))
    reference = None if row.reference is None else row.reference.image()
    warnings = list(turn_notes(source, turns))
    targets = _targets(row, {"source": source, "edited": edits[-1], "reference": reference}, warnings)
    masks = {role: place.image() for role, place in row.masks.items()}
    if row.built is not None:
        images = {"source": source, "edited": edits[-1], "reference": reference, "mask": masks.get("edit")}
        files = {f"{role}_file_name": ref.sha256 for role, ref in images.items() if ref is not None}
        if problem := changed_since(stated_seal(row.built) or "", seal_of(row.built, files)):
            raise RowError("changed_probe", f"{row.id}: {problem}")
    return Sample(
        id=row.id,
        dataset=dataset,
        editor=row.editor,
        source=source,
        further=tuple(further),
        turns=turns,
        reference=reference,
        targets=targets,
        masks=masks,
        edit_type=row.edit_type,
        human=row.human,
        extra=row.extra,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _targets(row: DataRow, images: Mapping[Role, ImageRef | None], warnings: list[str]) -> tuple[Target, ...]:
    """Return the targets with their boxes in px of each image. warnings: added to. Raises RowError."""
    quads: dict[Role, tuple[Quad, ...]] = {"source": row.quads, **row.role_quads}
    targets: list[dict[Role, Box]] = [{} for _ in range(max(map(len, quads.values())))]
    written_as = row.bbox_format or "xyxy"
    for role, written in quads.items():
        image = images[role]
        if image is None:
            warnings += [f"boxes in the {role} image are not used: there is no such image"] if written else []
            continue
        for quad, target in zip(written, targets, strict=False):
            try:
                box = to_px(quad, written_as, width=image.width, height=image.height)
                target[role] = inside(box, width=image.width, height=image.height)
            except ValueError as error:
                how = f"written as {[round(v, 4) for v in quad]} and read as {written_as}"
                raise RowError("box", f"{error}; {how} (another bbox_format: {', '.join(FORMATS)})") from error
            if target[role] != box:
                warnings.append("a box that reached just beyond the image was cut at the border")
    return tuple(Target(name=row.target_name, boxes=boxes) for boxes in targets if boxes)


def rating_notes(columns: Sequence[str]) -> tuple[str, ...]:
    """Return which `human_` columns there are, one note for all."""
    found = [
        f"{metric} by {rater}" if rater != NO_RATER else metric
        for metric, rater in filter(None, map(human_column, columns))
    ]
    return (f"Human labels: {', '.join(found)}.",) if found else ()


def turn_notes(source: ImageRef, turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return what is noted on the outputs of turns, which it names where there are several: missing, of another size."""
    found = []
    for number, turn in enumerate(turns, start=1):
        edited = turn.edited
        if edited is None or (edited.width, edited.height) != (source.width, source.height):
            note = NO_OUTPUT if edited is None else size_note(source, edited)
            found.append(f"turn {number}: {note}" if len(turns) > 1 else note)
    return tuple(found)


def size_note(source: ImageRef, edited: ImageRef) -> str:
    """Return how two images differ in size, in words."""
    return f"the edited image is {edited.width}×{edited.height} px, the source {source.width}×{source.height} px"
