"""DLEBench as it is downloaded, with the outputs of the editors to be judged in folders of their own.

The keys of its `data.jsonl` are only partly documented in public, so a mapping file (loader.toml, or one's own) says
which key means what. Where the data allow several readings, nothing is guessed: the error says what was seen and what to
state.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from editloupe.data.boxes import FORMATS, Quad, read_quads, sniff
from editloupe.data.folders import Folder, ImageFile, RowError
from editloupe.data.loaders.base import BoxFile, DataSet
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import OWN_COLUMNS, DataRow, Loaded, RejectedRow, Row, assemble, named, rating_notes, read_row
from editloupe.data.tables import Table, TableLine, read_table
from editloupe.errors import ConfigError, DataError, SampleError
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
    """A mapping file, checked."""

    where: str
    fields: Mapping[str, tuple[str, ...]]
    """The keys that may hold a field, in order."""
    bbox_format: str | None
    sidecar: str
    folders: Mapping[str, str]
    names: tuple[str, ...]


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
    rows: list[Row] = [_row(line, keys, mapping, folder, text_only=table.text_only) for line in table.lines]
    # Named first: the ids of rows that state none are those by which the sidecar may know them.
    rows = list(named(rows))
    if (data.root / mapping.sidecar).is_file():
        rows = _with_sidecar(rows, read_table(folder.own(mapping.sidecar)), mapping, notes)
    rows = _with_format(rows, mapping, notes)
    matched = with_outputs(rows, data.edited, store=data.store, patterns=mapping.names)
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
    return BoxFile(name=mapping.sidecar, id_key=mapping.fields["id"][0], boxes_key=mapping.fields["boxes"][0])


def read_mapping(path: Path | None) -> Mapped:
    """Read the default mapping, overlaid with the file at `path`. Raises ConfigError."""
    default = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    given: Mapping[str, object] = {}
    where = "a mapping file (--fields)"
    if path is not None:
        where = str(path)
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"mapping file {path} cannot be read: {error.strerror or error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"mapping file {path} is not TOML: {error}") from error
    merged: dict[str, dict[str, object]] = {section: dict(values) for section, values in default.items()}
    for section, values in given.items():
        if section not in merged or not isinstance(values, Mapping):
            raise ConfigError(f"{where}: unknown section [{section}]; expected {', '.join(f'[{s}]' for s in merged)}")
        for key, value in values.items():
            if key not in merged[section]:
                known = ", ".join(merged[section])
                raise ConfigError(f"{where}: unknown key {key!r} in [{section}]; expected {known}")
            merged[section][key] = value
    bbox_format = _one(merged["boxes"]["bbox_format"], f"{where}: [boxes] bbox_format")
    if bbox_format != "sniff" and bbox_format not in FORMATS:
        raise ConfigError(f"{where}: bbox_format {bbox_format!r}; expected sniff or one of {', '.join(FORMATS)}")
    return Mapped(
        where=f"the section [boxes] of {where}",
        fields={name: _many(value, f"{where}: [fields] {name}") for name, value in merged["fields"].items()},
        bbox_format=None if bbox_format == "sniff" else bbox_format,
        sidecar=_one(merged["boxes"]["sidecar"], f"{where}: [boxes] sidecar"),
        folders={name: _one(value, f"{where}: [folders] {name}") for name, value in merged["folders"].items()},
        names=_many(merged["edited"]["names"], f"{where}: [edited] names"),
    )


def _one(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{what}: expected text, found {value!r}")
    return value


def _many(value: object, what: str) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
        raise ConfigError(f"{what}: expected a name or a list of names, found {value!r}")
    return tuple(cast(list[str], values))


def _keys(table: Table, mapping: Mapped) -> tuple[dict[str, str], list[str]]:
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
        _check_operation(table)
    notes.insert(0, "keys: " + ", ".join(f"{name} = {key}" for name, key in keys.items()))
    for name in ("edit_type", "boxes"):
        if name not in keys:
            notes.append(f"no key for {name}; looked for {', '.join(mapping.fields[name])}")
    return keys, notes


def _check_operation(table: Table) -> None:
    """Raise ConfigError if `edit_operation` holds no instructions. The card says it does and shows "Add, Remove"."""
    texts = list(dict.fromkeys(str(line.values.get("edit_operation") or "") for line in table.lines))
    if all(len(text.split()) <= _WORDS_OF_AN_OPERATION for text in texts):
        raise ConfigError(
            f"{table.file}: 'edit_operation' holds names of operations ({', '.join(map(repr, texts[:5]))}), not "
            f"instructions; saw the keys {', '.join(table.columns)}. Say in a mapping file which one is the instruction: "
            '[fields] instruction = "KEY"'
        )


def _row(line: TableLine, keys: Mapping[str, str], mapping: Mapped, folder: Folder, *, text_only: bool) -> Row:
    ours = {key: name for name, key in keys.items()}
    values: dict[str, Json] = {}
    for key, value in line.values.items():
        name = ours.get(key)
        if name is None:
            values[_apart(key)] = value
        elif name in ("source", "reference") and isinstance(value, str) and value.strip():
            values[_COLUMNS[name]] = _below(mapping.folders[name], value)
        elif name == "target" and not isinstance(value, str):
            values[_apart(key)] = value
        else:
            values[_COLUMNS[name]] = value
    row = read_row(replace(line, values=values), folder=folder, text_only=text_only, bbox_format=mapping.bbox_format)
    if isinstance(row, RejectedRow):
        return replace(row, message=_in_their_words(row.message, keys))
    stems = (None if row.reference is None else row.reference.stem, row.source.stem)
    return replace(row, editor="", hints=tuple(stem for stem in stems if stem))


def _in_their_words(message: str, keys: Mapping[str, str]) -> str:
    """Return a message about our columns with the names that the data give them."""
    for name, key in keys.items():
        message = message.replace(f"column {_COLUMNS[name]!r}", f"column {key!r}")
    return message


def _apart(key: str) -> str:
    """Return a key that cannot be taken for one of our columns."""
    return f"data.{key}" if key in _FOREIGN else key


def _below(folder: str, name: str) -> str:
    return name if name.replace("\\", "/").startswith(f"{folder}/") else f"{folder}/{name}"


def _with_sidecar(rows: Sequence[Row], table: Table, mapping: Mapped, notes: list[str]) -> list[Row]:
    """Add boxes from the sidecar to rows without: by id, else by image if only one row has that image."""
    by_id: dict[str, tuple[Quad, ...]] = {}
    by_image: dict[str, tuple[Quad, ...]] = {}
    stated: dict[str | None, set[str | None]] = {}
    for line in table.lines:
        quads, id, image = _sidecar_line(line, table, mapping)
        stated.setdefault(image if id is None else id, set()).add(_stated(line, table))
        if id is not None:
            by_id[id] = by_id.get(id, ()) + quads
        elif image is not None:
            by_image[image] = by_image.get(image, ()) + quads
    images = Counter(_image(row) for row in rows if isinstance(row, DataRow))
    out: list[Row] = []
    filled = shared = 0
    for row in rows:
        if isinstance(row, DataRow) and not row.quads:
            quads = by_id.get(row.id, ())
            if not quads and _image(row) in by_image:
                if images[_image(row)] > 1:
                    shared += 1
                else:
                    quads = by_image[_image(row)]
            filled += bool(quads)
            ways = stated.get(row.id if row.id in by_id else _image(row), set()) if quads else set()
            if len(ways) > 1:
                raise SampleError(f"several bbox_format for the boxes of row {row.id!r}; expected one", file=table.file)
            # Boxes of the reference are written as the row says, or as is found out of all.
            way = row.bbox_format if row.role_quads else next(iter(ways), None) or row.bbox_format
            out.append(replace(row, quads=quads, bbox_format=way))
        else:
            out.append(row)
    notes.append(f"{table.file.name}: boxes for {filled} rows")
    if shared:
        notes.append(
            f"{table.file.name}: {shared} rows share their image with another row, so its boxes could belong to either and "
            "are not used; add the rows' ids to the file"
        )
    return out


def _sidecar_line(line: TableLine, table: Table, mapping: Mapped) -> tuple[tuple[Quad, ...], str | None, str | None]:
    """Return (boxes, id, image) of a line. Raises SampleError for a broken one: whose boxes it held cannot be known."""
    if line.fault is not None:
        raise SampleError(line.fault, file=table.file, line=line.number)

    def first(name: str) -> Json:
        return next((line.values[key] for key in mapping.fields[name] if line.values.get(key) is not None), None)

    id, image = first("id"), first("source")
    if isinstance(id, bool) or not isinstance(id, str | int | None) or not isinstance(image, str | None):
        raise SampleError("expected an id or an image's name as text", file=table.file, line=line.number)
    if id is None and image is None:
        keys = ", ".join((*mapping.fields["id"], *mapping.fields["source"]))
        raise SampleError(f"names no row; expected one of {keys}", file=table.file, line=line.number)
    try:
        quads = read_quads(first("boxes"))
    except ValueError as error:
        raise SampleError(str(error), file=table.file, line=line.number) from error
    name = None if image is None else _below(mapping.folders["source"], image)
    return quads, None if id is None else str(id), name


def _stated(line: TableLine, table: Table) -> str | None:
    way = line.values.get("bbox_format")
    if way is not None and way not in FORMATS:
        expected = ", ".join(FORMATS)
        raise SampleError(f"bbox_format: expected one of {expected}, found {way!r}", file=table.file, line=line.number)
    return way if isinstance(way, str) else None


def _image(row: DataRow) -> str:
    return row.source.name.replace("\\", "/")


def _size(place: ImageFile) -> tuple[int, int] | None:
    """Return width and height in px; None if the file cannot be read, for which the row is rejected later."""
    try:
        image = place.image()
    except RowError:
        return None
    return image.width, image.height


def _with_format(rows: Sequence[Row], mapping: Mapped, notes: list[str]) -> list[Row]:
    """Return the rows with the box convention found out where it was not stated."""
    seen: list[tuple[Quad, int, int]] = []
    for row in rows:
        if isinstance(row, DataRow) and (row.quads or row.role_quads) and row.bbox_format is None:
            try:
                image = row.source.image()
            except RowError:
                continue  # the row is rejected for it later, with this very error
            seen.extend((quad, image.width, image.height) for quad in row.quads)
            reference = None if row.reference is None else _size(row.reference)
            if reference is not None:
                seen.extend((quad, *reference) for quad in row.role_quads.get("reference", ()))
    if not any(isinstance(row, DataRow) and (row.quads or row.role_quads) for row in rows):
        notes.append("no row has a box; the oracle-guided mode needs them")
    if not seen:
        return list(rows)
    found = sniff(seen, where=mapping.where)
    notes.append(f"{len(seen)} boxes read as {found}, the only convention that fits")
    return [replace(row, bbox_format=row.bbox_format or found) if isinstance(row, DataRow) else row for row in rows]
