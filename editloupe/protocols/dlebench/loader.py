"""DLEBench as it is downloaded, with the outputs of the editors to be judged in folders of their own.

The keys of its `data.jsonl` are only partly documented in public, so a mapping file (loader.toml, or one's own) says
which key means what. Where the data allow several readings, nothing is guessed: the error says what was seen and what to
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from editloupe.data.boxes import FORMATS, Quad, sniff
from editloupe.data.folders import Folder, RowError
from editloupe.data.loaders.base import BoxFile, DataSet
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import OWN_COLUMNS, DataRow, Loaded, RejectedRow, Row, assemble, named, rating_notes, read_row
from editloupe.data.tables import MetadataTable, TableLine, read_table, shown
from editloupe.errors import ConfigError, DataError, SampleError
from editloupe.files import read_toml
from editloupe.values import Json

LAYOUT: Final = "data.jsonl with Source_Images/ and Reference_Images/ (outputs given with --edited)"

_COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "source": "source_file_name",
    "reference": "reference_file_name",
    "instruction": "instruction",
    "edit_type": "edit_type",
    "target": "target_name",
    "boxes": "bboxes",
    "reference_boxes": "reference_bboxes",
}
"""What the mapping file calls a field → the column that a row is read by."""

_FOREIGN = (OWN_COLUMNS | {"model"}) - {"bbox_format"}

_WORDS_OF_AN_OPERATION: Final = 3


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """A mapping file, checked: its sections."""

    where: str
    fields: Mapping[str, Sequence[str]]
    """The keys that may hold a field, in order."""
    boxes: Mapping[str, str]
    folders: Mapping[str, str]
    edited: Mapping[str, Sequence[str]]


def matches(data: DataSet) -> bool:
    """Return whether the rows and the folder of source images are there."""
    folders = read_mapping(data.fields).folders
    named = data.metadata is None or data.metadata.name == folders["data"]
    return named and (data.root / folders["data"]).is_file() and (data.root / folders["source"]).is_dir()


def load(data: DataSet) -> Loaded:
    """Load each row once for each editor. An editor's missing output leaves `Turn.edited` None.

    Raises ConfigError: no editor given, mapping file malformed, box convention or instruction key ambiguous.
    DataError, SampleError: files or keys missing.
    """
    if data.outputs and not data.edited:
        raise ConfigError(
            f"{data.root}: DLEBench holds no edited images; give each editor's outputs with --edited NAME=FOLDER"
        )
    mapping = read_mapping(data.fields)
    folder = Folder(data.root, data.store)
    for name in (mapping.folders["data"], mapping.folders["source"]):
        if not (data.root / name).exists():
            raise DataError(f"{data.root}: no {name}; expected {LAYOUT}")
    table = read_table(folder.own(mapping.folders["data"]))
    keys, notes = _keys(table, mapping)
    # Named first: the ids of rows that state none are those by which the sidecar may know them.
    rows: Sequence[Row] = named([_row(line, keys, mapping, folder, text_only=table.text_only) for line in table.lines])
    sidecar = mapping.boxes["sidecar"]
    if (data.root / sidecar).is_file():
        rows = _with_sidecar(rows, read_table(folder.own(sidecar)), mapping, folder, notes)
    rows = _with_format(rows, mapping, notes)
    matched = with_outputs(rows, data.edited, store=data.store, patterns=mapping.edited["names"])
    return assemble(
        matched.rows if data.edited else rows,
        format="dlebench",
        dataset="DLEBench",
        metadata=table.file,
        notes=(*notes, *rating_notes(table.columns), *matched.notes),
    )


def box_file(fields: Path | None) -> BoxFile:
    """Return the sidecar, with the first of the keys that it may have. Raises ConfigError as `read_mapping`."""
    mapping = read_mapping(fields)
    return BoxFile(name=mapping.boxes["sidecar"], id_key=mapping.fields["id"][0], boxes_key=mapping.fields["boxes"][0])


def read_mapping(path: Path | None) -> Mapped:
    """Read the default mapping, overlaid with the file at `path`. Raises ConfigError."""
    merged: dict[str, dict[str, Any]] = read_toml(Path(__file__).with_suffix(".toml"), "the built-in mapping file")
    where = "a mapping file (--fields)" if path is None else str(path)
    given: Mapping[str, object] = {} if path is None else read_toml(path, f"mapping file {path}")
    for section, values in given.items():
        if section not in merged or not isinstance(values, Mapping):
            raise ConfigError(f"{where}: unknown section [{section}]; expected {', '.join(f'[{s}]' for s in merged)}")
        for key, value in values.items():
            if key not in merged[section]:
                known = ", ".join(merged[section])
                raise ConfigError(f"{where}: unknown key {key!r} in [{section}]; expected {known}")
            several = isinstance(merged[section][key], list)
            words = value if several and isinstance(value, list) else [value]
            if not words or not all(isinstance(word, str) and word for word in words):
                expected = "a name or a list of names" if several else "text"
                raise ConfigError(f"{where}: [{section}] {key}: expected {expected}, found {shown(value)}")
            merged[section][key] = words if several else value
    way = merged["boxes"]["bbox_format"]
    if way != "sniff" and way not in FORMATS:
        raise ConfigError(f"{where}: bbox_format {way!r}; expected sniff or one of {', '.join(FORMATS)}")
    return Mapped(where=f"the section [boxes] of {where}", **merged)


def _keys(table: MetadataTable, mapping: Mapped) -> tuple[dict[str, str], list[str]]:
    """Return the key of each field that the rows have, and notes on the choice."""
    keys: dict[str, str] = {}
    notes = []
    for name, candidates in mapping.fields.items():
        present = [key for key in candidates if key in table.columns and key not in keys.values()]
        if present:
            keys[name] = present[0]
        if len(present) > 1 and name != "edit_type":
            notes.append(f"{name} is read from {present[0]!r}; {', '.join(map(repr, present[1:]))} kept in extra")
    if not table.columns:
        return keys, notes  # every line is broken, and each will say how
    for name in ("source", "instruction"):
        if name not in keys:
            raise SampleError(
                f"no key for the {name}; looked for {', '.join(mapping.fields[name])}; saw {', '.join(table.columns)}. "
                f'Say which it is in a mapping file: [fields] {name} = "KEY"',
                file=table.file,
            )
    if keys["instruction"] == "edit_operation" and len(mapping.fields["instruction"]) > 1:
        # The card says that it holds instructions, and shows "Add, Remove".
        texts = list(dict.fromkeys(str(line.values.get("edit_operation") or "") for line in table.lines))
        if all(len(text.split()) <= _WORDS_OF_AN_OPERATION for text in texts):
            raise ConfigError(
                f"{table.file}: 'edit_operation' holds names of operations ({', '.join(map(repr, texts[:5]))}), not "
                f"instructions; saw the keys {', '.join(table.columns)}. Say in a mapping file which one is the "
                'instruction: [fields] instruction = "KEY"'
            )
    notes.insert(0, "keys: " + ", ".join(f"{name} = {key}" for name, key in keys.items()))
    for name in ("edit_type", "boxes"):
        if name not in keys:
            notes.append(f"no key for {name}; looked for {', '.join(mapping.fields[name])}")
    return keys, notes


def _row(line: TableLine, keys: Mapping[str, str], mapping: Mapped, folder: Folder, *, text_only: bool) -> Row:
    ours = {key: name for name, key in keys.items()}
    values: dict[str, Json] = {}
    for key, value in line.values.items():
        name = ours.get(key)
        if name is None or (name == "target" and not isinstance(value, str)):
            # A key that cannot be taken for one of our columns.
            values[f"data.{key}" if key in _FOREIGN else key] = value
        elif name in ("source", "reference") and isinstance(value, str) and value.strip():
            values[_COLUMNS[name]] = _below(mapping.folders[name], value)
        else:
            values[_COLUMNS[name]] = value
    way = mapping.boxes["bbox_format"]
    row = read_row(
        replace(line, values=values), folder=folder, text_only=text_only, bbox_format=None if way == "sniff" else way
    )
    if isinstance(row, RejectedRow):
        message = row.message
        for name, key in keys.items():  # in the data's own words
            message = message.replace(f"column {_COLUMNS[name]!r}", f"column {key!r}")
        return replace(row, message=message)
    stems = (None if row.reference is None else row.reference.stem, row.source.stem)
    return replace(row, editor="", hints=tuple(stem for stem in stems if stem))


def _below(folder: str, name: str) -> str:
    return name if name.replace("\\", "/").startswith(f"{folder}/") else f"{folder}/{name}"


def _with_sidecar(
    rows: Sequence[Row], table: MetadataTable, mapping: Mapped, folder: Folder, notes: list[str]
) -> list[Row]:
    """Add boxes from the sidecar to rows without: by id, else by image if only one row has that image."""
    boxes: dict[tuple[str, str], tuple[Quad, ...]] = {}
    stated: dict[tuple[str, str], set[str | None]] = {}
    for line in table.lines:
        place, beside = _sidecar_line(line, table.file, mapping, folder)
        boxes[place] = boxes.get(place, ()) + beside.quads
        stated.setdefault(place, set()).add(beside.bbox_format)
    images = Counter(_image(row) for row in rows if isinstance(row, DataRow))
    out: list[Row] = []
    shared = 0
    for row in rows:
        if isinstance(row, DataRow) and not row.quads:
            place = ("id", row.id)
            if not boxes.get(place) and boxes.get(("image", _image(row))):
                place = ("image", _image(row))
                shared += images[place[1]] > 1
            if boxes.get(place) and (place[0] == "id" or images[place[1]] == 1):
                ways = stated[place]
                if len(ways) > 1:
                    raise SampleError(f"several bbox_format for the boxes of row {row.id!r}; expected one", file=table.file)
                # Boxes of the reference are written as the row says, or as is found out of all.
                way = row.bbox_format if row.role_quads else next(iter(ways)) or row.bbox_format
                row = replace(row, quads=boxes[place], bbox_format=way)
        out.append(row)
    filled = sum(row is not before for row, before in zip(out, rows, strict=True))
    notes.append(f"{table.file.name}: boxes for {filled} rows")
    if shared:
        notes.append(
            f"{table.file.name}: {shared} rows share their image with another row, so its boxes could belong to either and "
            "are not used; add the rows' ids to the file"
        )
    return out


def _sidecar_line(line: TableLine, file: Path, mapping: Mapped, folder: Folder) -> tuple[tuple[str, str], DataRow]:
    """Return (("id" or "image", name), the line as a row with boxes).

    Raises SampleError for a broken one: whose boxes it held cannot be known.
    """
    given = {
        _COLUMNS[name]: next((line.values[key] for key in mapping.fields[name] if line.values.get(key) is not None), None)
        for name in ("id", "source", "boxes")
    }
    image = given["source_file_name"]
    if line.fault is None and image is None and given["id"] is None:
        keys = ", ".join((*mapping.fields["id"], *mapping.fields["source"]))
        raise SampleError(f"names no row; expected one of {keys}", file=file, line=line.number)
    source = _below(mapping.folders["source"], image) if isinstance(image, str) else image or "none"
    values = {**given, "source_file_name": source, "instruction": "none", "bbox_format": line.values.get("bbox_format")}
    row = read_row(replace(line, values=values), folder=folder, text_only=False, bbox_format=None)
    if isinstance(row, RejectedRow):
        raise SampleError(row.message, file=file, line=line.number)
    return ("id", row.id) if row.id else ("image", _image(row)), row


def _image(row: DataRow) -> str:
    return row.source.name.replace("\\", "/")


def _with_format(rows: Sequence[Row], mapping: Mapped, notes: list[str]) -> list[Row]:
    """Return the rows with the box convention found out where it was not stated."""
    with_boxes = [row for row in rows if isinstance(row, DataRow) and (row.quads or row.role_quads)]
    seen: list[tuple[Quad, int, int]] = []
    for row in with_boxes:
        for file, quads in ((row.source, row.quads), (row.reference, row.role_quads.get("reference", ()))):
            if row.bbox_format is None and file is not None:
                try:
                    image = file.image()
                except RowError:
                    continue  # the row is rejected for it later, with this very error
                seen.extend((quad, image.width, image.height) for quad in quads)
    if not with_boxes:
        notes.append("no row has a box; the oracle-guided mode needs them")
    if not seen:
        return list(rows)
    found = sniff(seen, where=mapping.where)
    notes.append(f"{len(seen)} boxes read as {found}, the only convention that fits")
    return [replace(row, bbox_format=row.bbox_format or found) if isinstance(row, DataRow) else row for row in rows]
