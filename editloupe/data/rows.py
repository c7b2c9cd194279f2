"""Rows of a data set: read by column, named, and made into samples. A row that cannot be judged is kept with its reason."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from editloupe.data.boxes import FORMATS, Quad, inside, read_quads, to_px
from editloupe.data.folders import Folder, ImageFile, Kind, RowError, plain_stem
from editloupe.data.human import Ratings, human_column
from editloupe.data.probes import changed_since, is_probe
from editloupe.data.tables import TableLine, shown
from editloupe.values import (
    Box,
    ImageRef,
    Json,
    Role,
    Sample,
    Serialisable,
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
NO_OUTPUT: Final = "no edited image"
"""What is noted on a sample without an output."""
_OTHER_ROLES: Final[tuple[Role, ...]] = ("reference", "edited")


@dataclass(frozen=True, kw_only=True)
class RejectedRow(Serialisable):
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
    """By which its output in an editor's folder is known (as `DataRow.names`), and stems of its files by role."""

    @property
    def key(self) -> str:
        """As `Sample.key`."""
        return sample_key(self.editor, self.id)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A data set, opened: what can be judged, which iteration yields, and what cannot."""

    format: str
    """The layout that was recognised."""
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
    """The line itself, whose digest has to be that of the row and its files; None for a row that is no probe."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Texts of the row by the name under which a pattern of file names may ask for them (`data.outputs`)."""


Row: TypeAlias = DataRow | RejectedRow


def read_row(line: TableLine, *, folder: Folder, text_only: bool, bbox_format: str | None = "xyxy") -> Row:
    """Read a line with the columns of docs/data.md as a DataRow; other columns go to `extra`.

    text_only: numbers are read from text.   bbox_format: where the row does not state it.
    """
    if line.fault is not None:
        return RejectedRow(line=line.number, message=line.fault)
    values = dict(line.values)
    if "editor" not in values and "model" in values:
        values["editor"] = values.pop("model")
    said: dict[str, Any] = {}
    try:
        said["id"] = _identifier(values.get("id"))
        said["editor"] = _text(values, "editor") or ""
        said["edit_type"] = _text(values, "edit_type")
        row = _read(values, said, line=line.number, folder=folder, text_only=text_only, bbox_format=bbox_format)
        return replace(row, built=line.values) if is_probe(line.values) else row
    except RowError as error:
        files = {role: values.get(f"{role}_file_name") for role in ("source", "edited", "reference")}
        names = {role: plain_stem(f) for role, f in files.items() if isinstance(f, str) and f}
        return RejectedRow(**said, line=line.number, names=names, kind=error.kind, message=str(error), file=error.path)


def rejected(row: Row, error: RowError) -> RejectedRow:
    """Return what remains of a row after `error`."""
    known = RejectedRow(line=row.line, id=row.id, editor=row.editor, edit_type=row.edit_type, message=str(error))
    return replace(known, kind=error.kind, file=error.path)


def named(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Give every row an id that is unique for its editor. The second of two equal ids is broken, and says so.

    A row without an id gets the first of its hints that no other row has, else a digest of source and instruction,
    else one of source, instruction and edited image.
    """
    out = list(rows)
    first: dict[str, int | None] = {}
    for i, row in enumerate(rows):
        if not row.id:
            continue
        key = sample_key(row.editor, row.id)
        if key in first:
            out[i] = _duplicate(row, f"id {row.id!r} was used before on line {first[key]}", taken=first)
        else:
            first[key] = row.line
    offers = {i: _offers(row) for i, row in enumerate(rows) if not row.id and isinstance(row, DataRow)}
    wanted = Counter(sample_key(rows[i].editor, offer) for i, names in offers.items() for offer in dict.fromkeys(names))
    for i, names in offers.items():
        row = rows[i]
        free = [n for n in names if wanted[sample_key(row.editor, n)] == 1 and sample_key(row.editor, n) not in first]
        last = sample_key(row.editor, names[-1])
        if not free and last in first:
            repeats = f"repeats line {first[last]}: the same source, instruction and edited image"
            out[i] = _duplicate(replace(row, id=names[-1]), repeats, taken=first)
            continue
        out[i] = replace(row, id=free[0] if free else names[-1])
        first[sample_key(row.editor, out[i].id)] = row.line
    for i, row in enumerate(out):
        if not row.id:
            name = _free(row.editor, f"line-{row.line}", first)
            first[sample_key(row.editor, name)] = row.line
            out[i] = replace(row, id=name)
    return tuple(out)


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
    samples: list[Sample] = []
    refused: list[RejectedRow] = []
    order: list[bool] = []
    for row in rows:
        try:
            found = _sample(row, dataset) if isinstance(row, DataRow) else row
        except RowError as error:
            found = rejected(row, error)
        order.append(isinstance(found, Sample))
        if isinstance(found, Sample):
            samples.append(found)
            continue
        if metadata is not None:
            what = "row" if metadata.suffix == ".json" else "line"
            where = "" if found.line is None else f"{metadata.name}, {what} {found.line}: "
            found = replace(found, message=where + found.message, file=found.file or metadata)
        refused.append(found)
    return Loaded(format=format, samples=tuple(samples), rejected=tuple(refused), notes=tuple(notes), order=tuple(order))


def rating_notes(columns: Sequence[str]) -> tuple[str, ...]:
    """Return how the `human_` columns were understood, one note for all."""
    raters: dict[str, list[str]] = {}
    for criterion, rater in filter(None, map(human_column, columns)):
        raters.setdefault(criterion, []).append(rater)
    parts = [c if found == ["human"] else f"{c} (raters {', '.join(found)})" for c, found in raters.items()]
    return (f"Human labels come along: {', '.join(parts)}.",) if parts else ()


def _read(
    values: Mapping[str, Json],
    said: Mapping[str, Any],
    *,
    line: int | None,
    folder: Folder,
    text_only: bool,
    bbox_format: str | None,
) -> DataRow:
    source, *further = _sources(values, folder)
    reference, mask = (_place(values, f"{role}_file_name", folder) for role in ("reference", "mask"))
    instructions, edited = _turns(values, folder)
    own = OWN_COLUMNS.difference(_OF_TURNS) if _text(values, "instruction") else OWN_COLUMNS
    stated = _text(values, "bbox_format")
    if stated and stated not in FORMATS:
        raise RowError("row", f"column 'bbox_format': expected one of {', '.join(FORMATS)}, found {stated!r}")
    human: dict[str, dict[str, str | float]] = {}
    extra: dict[str, Json] = {}
    for column, value in values.items():
        if (label := human_column(column)) is None:
            extra |= {} if column in own else {column: _storable(value)}
        elif (rating := _rating(column, value, text_only)) is not None:
            human.setdefault(label[0], {})[label[1]] = rating
    quads = _quads(values)
    role_quads = {role: found for role in _OTHER_ROLES if (found := _quads(values, f"{role}_"))}
    counts = {"bbox": len(quads), **{f"{role}_bbox": len(found) for role, found in role_quads.items()}}
    if len(set(filter(None, counts.values()))) > 1:
        seen = ", ".join(f"{number} of {column!r}" for column, number in counts.items())
        raise RowError("box", f"{seen}; expected one a target, in the same order")
    target_name = _text(values, "target_name")
    if target_name and not any(counts.values()):
        # Without a box there is no target to bear it.
        extra["target_name"] = target_name
    return DataRow(
        **said,
        line=line,
        source=source,
        further=tuple(further),
        edited=edited,
        reference=reference,
        masks={} if mask is None else {"edit": mask},
        instructions=instructions,
        quads=quads,
        role_quads=role_quads,
        bbox_format=stated or bbox_format,
        target_name=target_name,
        human=human,
        extra=extra,
        hints=(edited[0].stem,) if not said["id"] and len(edited) == 1 and edited[0] is not None else (),
    )


def _sources(values: Mapping[str, Json], folder: Folder) -> list[ImageFile]:
    """Return the input images of the edit: one, or several where a row has them as a list."""
    source = _place(values, "source_file_name", folder)
    names = _listed(values, "source_file_names", of="input image")
    if source is not None and names:
        raise RowError("row", "both 'source_file_name' and 'source_file_names' are given; expected one of them")
    if source is None and not all(names or [None]):
        raise RowError("row", "column 'source_file_name' is empty; expected the image before the edit")
    return [source] if source is not None else [ImageFile(folder=folder, name=str(name)) for name in names]


def _turns(values: Mapping[str, Json], folder: Folder) -> tuple[tuple[str, ...], tuple[ImageFile | None, ...]]:
    """Return the instruction and the output of each turn: of one, or of several where a row has them as lists."""
    instruction, output = _text(values, "instruction"), _place(values, "edited_file_name", folder)
    texts = () if instruction else _listed(values, "instructions")
    if not instruction and not texts:
        raise RowError("no_instruction", "the instruction is empty; expected what the editor was asked to do")
    one, several = "'instruction' and 'edited_file_name'", "'instructions' and 'edited_file_names'"
    if instruction and (output is not None or not values.get("edited_file_names")):
        return (instruction,), (output,)
    names = _listed(values, "edited_file_names")
    if instruction or output is not None:
        raise RowError("row", f"a row of one turn has {one}, a row of several turns {several}; found some of both")
    instructions = tuple("" if text is None else text.strip() for text in texts)
    if "" in instructions:
        number = instructions.index("") + 1
        raise RowError("no_instruction", f"the instruction of turn {number} is empty; expected what was asked for in it")
    if names and len(names) != len(texts):
        counts = f"{len(texts)} instructions and {len(names)} edited images"
        raise RowError("row", f"columns {several}: found {counts}; expected one of each for a turn, null for no image")
    named = names or [None] * len(texts)
    return instructions, tuple(ImageFile(folder=folder, name=name) if name and name.strip() else None for name in named)


def _listed(values: Mapping[str, Json], column: str, *, of: str = "turn") -> list[str | None]:
    """Return the column's list of texts and nulls, which may be written as JSON text; [] where it is null or blank."""
    value = values.get(column)
    if isinstance(value, str):
        with suppress(ValueError):
            parsed = parse_json(value) if value.strip() else None
            json.dumps(parsed, ensure_ascii=False).encode("utf-8")  # half a surrogate pair could not be written again
            value = parsed
    found = [] if value is None else value
    if isinstance(found, list | tuple) and all(item is None or isinstance(item, str) for item in found):
        return [None if item is None else str(item) for item in found]
    raise RowError("row", f"column {column!r}: expected a list with a text for each {of}, found {shown(value)}")


def _identifier(value: Json) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RowError("row", f"column 'id': expected text or a whole number, found {shown(value)}")
    text = str(value).strip()
    if not text.isprintable():
        raise RowError("row", f"column 'id': expected printable text, found {text!r}")
    return text


def _text(values: Mapping[str, Json], column: str) -> str | None:
    """Return the column's text; None where it is null or blank."""
    value = values.get(column)
    if value is None:
        return None
    if not isinstance(value, str):
        raise RowError("row", f"column {column!r}: expected text, found {shown(value)}")
    return value.strip() or None


def _place(values: Mapping[str, Json], column: str, folder: Folder) -> ImageFile | None:
    # Not stripped: a file's name may begin or end with a space.
    return ImageFile(folder=folder, name=str(values[column])) if _text(values, column) else None


def _quads(values: Mapping[str, Json], prefix: str = "") -> tuple[Quad, ...]:
    found = []
    for column in (f"{prefix}bbox", f"{prefix}bboxes"):
        try:
            found.append(read_quads(values.get(column)))
        except ValueError as error:
            raise RowError("box", f"column {column!r}: {error}") from error
    if all(found):
        raise RowError("box", f"both '{prefix}bbox' and '{prefix}bboxes' are given; expected one of them")
    return found[0] or found[1]


def _rating(column: str, value: Json, text_only: bool) -> str | float | None:
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        if not text_only:
            return value
        try:
            value = float(value)
        except ValueError:
            return value
    if value is None:
        return None
    number = finite(value)
    if number is None:
        raise RowError("row", f"column {column!r}: expected a label or a finite number, found {shown(value)}")
    return number


def _storable(value: Json) -> Json:
    """Return a column that only travels along as JSON: a number that is not finite is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {k: _storable(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_storable(v) for v in value]
    return value


def _offers(row: DataRow) -> tuple[str, ...]:
    asked: Json = row.instructions[0] if len(row.instructions) == 1 else list(row.instructions)
    names = [None if file is None else file.name for file in row.edited]
    short = digest([row.source.name, asked])[:12]
    long = digest([row.source.name, asked, names[0] if len(names) == 1 else names])[:12]
    return (*(hint for hint in row.hints if hint), short, long)


def _duplicate(row: Row, what: str, *, taken: dict[str, int | None]) -> RejectedRow:
    name = _free(row.editor, f"{row.id}#line-{row.line}", taken)
    taken[sample_key(row.editor, name)] = row.line
    editor = f" for editor {row.editor!r}" if row.editor else ""
    message = f"{what}{editor}; the first is kept, give this one an id of its own"
    return replace(rejected(row, RowError("duplicate_id", message)), id=name)


def _free(editor: str, name: str, taken: Mapping[str, int | None]) -> str:
    """Return `name`, or `name-2`, `name-3`, … where it is taken."""
    names = chain([name], (f"{name}-{n}" for n in count(2)))
    return next(tried for tried in names if sample_key(editor, tried) not in taken)


def _sample(row: DataRow, dataset: str) -> Sample:
    source, *further = (file.image() for file in (row.source, *row.further))
    edits = [None if file is None else file.image() for file in row.edited]
    turns = tuple(Turn(instruction=i, edited=edited) for i, edited in zip(row.instructions, edits, strict=True))
    warnings = list(turn_notes(source, turns))
    reference = None if row.reference is None else row.reference.image()
    images: dict[Role, ImageRef | None] = {"source": source, "edited": edits[-1], "reference": reference}
    quads: dict[Role, tuple[Quad, ...]] = {"source": row.quads, **row.role_quads}
    targets: list[dict[Role, Box]] = [{} for _ in range(max(map(len, quads.values())))]
    for role, written in quads.items():
        image = images[role]
        if image is None:
            if written:
                warnings.append(f"boxes in the {role} image are not used: there is no such image")
            continue
        for number, quad in enumerate(written):
            written_as = row.bbox_format or "xyxy"
            try:
                box = to_px(quad, written_as, width=image.width, height=image.height)
                kept = inside(box, width=image.width, height=image.height)
            except ValueError as error:
                how = f"written as {[round(v, 4) for v in quad.values]} and read as {written_as}"
                meant = f"is another bbox_format meant? known: {', '.join(FORMATS)}"
                raise RowError("box", f"{error}; {how} ({meant})") from error
            if kept != box:
                warnings.append("a box that reached just beyond the image was cut at the border")
            targets[number][role] = kept
    masks = {role: place.image() for role, place in row.masks.items()}
    if row.built is not None:
        named = {"source": source, "edited": edits[-1], "reference": reference, "mask": masks.get("edit")}
        files = {f"{role}_file_name": ref.sha256 for role, ref in named.items() if ref is not None}
        if problem := changed_since(row.built, files):
            raise RowError("changed_probe", f"{row.id}: {problem}")
    return Sample(
        id=row.id,
        dataset=dataset,
        editor=row.editor,
        source=source,
        further=tuple(further),
        turns=turns,
        reference=reference,
        targets=tuple(Target(name=row.target_name, boxes=boxes) for boxes in targets if boxes),
        masks=masks,
        edit_type=row.edit_type,
        human=row.human,
        extra=row.extra,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def turn_notes(source: ImageRef, turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return what is noted on the outputs of turns, which it names where there are several: missing, of another size."""
    found = []
    for number, turn in enumerate(turns, start=1):
        edited = turn.edited
        if edited is None:
            note = NO_OUTPUT
        elif (edited.width, edited.height) != (source.width, source.height):
            note = size_note(source, edited)
        else:
            continue
        found.append(f"turn {number}: {note}" if len(turns) > 1 else note)
    return tuple(found)


def size_note(source: ImageRef, edited: ImageRef) -> str:
    """Return how two images differ in size, in words."""
    return f"the edited image is {edited.width}×{edited.height} px, the source {source.width}×{source.height} px"
