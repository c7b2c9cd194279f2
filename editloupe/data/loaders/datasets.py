"""What Hugging Face's `datasets` writes: Parquet files with images in their rows, and the folders of `save_to_disk`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.data.embedded import Shards
from editloupe.data.folders import Folder, plain_stem
from editloupe.data.loaders.base import DataSet
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import DataRow, Loaded, Row, assemble, named, rating_notes, read_row
from editloupe.data.samples import ROW_COLUMNS
from editloupe.data.tables import MetadataTable, TableLine, parquet_columns, read_arrow, table_of
from editloupe.errors import DataError, SampleError
from editloupe.files import read_bytes
from editloupe.values import Json, parse_json

if TYPE_CHECKING:
    import polars

ENDINGS: Final = (".parquet", ".arrow")
COLUMN_ROLES: Final = tuple(ROW_COLUMNS)
LAYOUT: Final = "Parquet files whose rows hold images, or a folder that datasets' save_to_disk wrote"

_ROLES: Final = ("source", "edited", "reference", "mask")
_METADATA: Final = tuple(f"metadata{ending}" for ending in (".jsonl", ".csv", ".parquet"))
"""Files of an ImageFolder, beside which Parquet files are no data of their own."""
_PATTERNS: Final = ("{id}", "{edited}", "{source}")


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """One file, and which of its columns hold what."""

    file: Path
    columns: tuple[str, ...]
    images: Mapping[str, str]
    """Role → column with images."""
    texts: Mapping[str, str]
    """instruction, id, editor, edit_type → column."""
    others: tuple[str, ...]
    """Further columns with images, which are not read."""


def matches(data: DataSet) -> bool:
    """Return whether the file that was named, or the first one of the folder, has rows with a source image in them."""
    if data.metadata is None and (data.root / "dataset_dict.json").is_file():
        return True
    try:
        files = _files(data)
        return bool(files) and "source" in _shard(files[0], data.columns).images
    except (SampleError, DataError):
        return False


def load(data: DataSet) -> Loaded:
    """Load one sample a row. With `data.edited`, each row once for each editor, whose files replace those of the row.

    Raises SampleError where a file lacks a column or cannot be read, DataError where several splits lie together.
    """
    found = read_lines(data, columns=data.columns, with_edited=data.outputs and not data.edited)
    rows: list[Row] = []
    for line, stem in found.lines:
        row = read_row(line, folder=found.images, text_only=False)
        rows.append(replace(row, hints=(stem, str(line.number))) if isinstance(row, DataRow) else row)
    notes = list(rating_notes(found.columns))
    if data.edited:
        bare = [replace(row, editor="") for row in rows]
        matched = with_outputs(named(bare), data.edited, store=data.store, patterns=_PATTERNS)
        rows = list(matched.rows)
        notes.extend(matched.notes)
    else:
        rows = list(named(rows))
    return assemble(rows, format="datasets", dataset=data.root.resolve().name, metadata=found.place, notes=notes)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Rows with images in them, read but for the images."""

    images: Shards
    lines: tuple[tuple[TableLine, str], ...]
    """Each with the columns of docs/data.md, and the stem of its edited image, or of its source where it has none."""
    columns: tuple[str, ...]
    place: Path
    """The file, or the folder of several."""


def read_lines(data: DataSet, *, columns: Mapping[str, str] | None = None, with_edited: bool) -> Lines:
    """Read the rows of all files. columns: source, edited, instruction, … → the column that holds it.

    Where `columns` leaves one out, it is looked for under usual names. Raises SampleError and DataError as `load`.
    """
    files = _files(data)
    if not files:
        raise DataError(f"{data.root}: no file with rows; expected {LAYOUT}")
    images = Shards(data.root, data.store)
    lines: list[tuple[TableLine, str]] = []
    seen: dict[str, None] = {}
    for file in files:
        shard = _shard(file, columns or {})
        _check_columns(shard, with_edited=with_edited)
        images.add(file, list(shard.images.values()), before=len(lines))
        table, stems = _table(shard, images, before=len(lines))
        lines += [(line, stem) for line, stem in zip(table.lines, stems, strict=True)]
        seen |= dict.fromkeys(table.columns)
    place = files[0] if len(files) == 1 else data.root
    return Lines(images=images, lines=tuple(lines), columns=tuple(seen), place=place)


def columns_of(data: DataSet) -> tuple[str, ...]:
    """Return the columns of the file that was named, or of the first one of the folder; () where there is none."""
    try:
        files = _files(data)
        return _shard(files[0], {}).columns if files else ()
    except (SampleError, DataError):
        return ()


def _files(data: DataSet) -> list[Path]:
    """Return the files with rows, in their order. Raises DataError for a folder without or of several splits."""
    folder = Folder(data.root, data.store)
    if data.metadata is not None:
        return [folder.own(data.metadata.name)] if data.metadata.suffix.lower() in ENDINGS else []
    if (data.root / "dataset_dict.json").is_file():
        places = sorted(path.parent for path in data.root.glob("*/state.json"))
        if len(places) != 1:
            names = ", ".join(place.name for place in places) or "none"
            raise DataError(f"{data.root}: expected one split, found {names}; give the folder of one")
        return _saved(places[0], folder)
    if (data.root / "state.json").is_file():
        return _saved(data.root, folder)
    if any((data.root / name).is_file() for name in _METADATA):
        return []
    found = next(filter(None, (sorted((data.root / below).glob("*.parquet")) for below in ("", "data"))), [])
    # The hub's names, such as train-00000-of-00004.parquet.
    splits = sorted({file.name.partition("-")[0] for file in found if "-of-" in file.name})
    if len(splits) > 1:
        raise DataError(f"{found[0].parent}: holds several splits ({', '.join(splits)}); give one file of them")
    return [folder.own(file.relative_to(data.root).as_posix()) for file in found]


def _saved(place: Path, folder: Folder) -> list[Path]:
    """Return the files of `save_to_disk` as its state.json lists them."""
    state: Any
    try:
        state = parse_json(read_bytes(place / "state.json"))
        names = [str(one["filename"]) for one in state["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{place / 'state.json'}: expected the list _data_files of datasets' save_to_disk: {error}"
        ) from error
    return [folder.file(name if place == folder.root else f"{place.name}/{name}") for name in names]


def _shard(file: Path, named: Mapping[str, str]) -> _Shard:
    """Read which columns a file has. named: role → its column, where it is known. Raises SampleError."""
    import polars

    if file.suffix.lower() == ".arrow":
        types = dict(read_arrow(file, rows=0).schema)
    else:
        # Refuses what would crash the reader.
        parquet_columns(file)
        types = dict(polars.read_parquet_schema(file))
    inside = [name for name, type_ in types.items() if _holds_images(type_)]
    rest = [name for name in types if name not in inside]
    if lacking := [name for role, name in named.items() if name not in (inside if role in _ROLES else rest)]:
        what = "with images" if lacking[0] in rest else "named"
        raise SampleError(f"no column {what} {lacking[0]!r}; found {', '.join(types)}", file=file)
    found = {role: _first([named[role]] if role in named else usual, inside if role in _ROLES else rest)
             for role, usual in ROW_COLUMNS.items()}  # fmt: skip
    images = {role: name for role, name in found.items() if name is not None and role in _ROLES}
    texts = {role: name for role, name in found.items() if name is not None and role not in _ROLES}
    others = tuple(name for name in inside if name not in images.values())
    return _Shard(file=file, columns=tuple(types), images=images, texts=texts, others=others)


def _first(wanted: Sequence[str], found: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in found), None)


def _holds_images(type_: Any) -> bool:
    """Return whether a column holds the bytes of files, alone or beside their path."""
    import polars

    fields = {field.name: field.dtype for field in type_.fields} if isinstance(type_, polars.Struct) else {}
    return bool(type_ == polars.Binary or fields.get("bytes") == polars.Binary)


def _check_columns(shard: _Shard, *, with_edited: bool) -> None:
    needed = {"source": shard.images, **({"edited": shard.images} if with_edited else {}), "instruction": shard.texts}
    missing = [role for role, found in needed.items() if role not in found]
    if missing:
        role = missing[0]
        what = "with images" if role in _ROLES else "with what was asked for"
        raise SampleError(
            f"no column {what} is called {' or '.join(map(repr, ROW_COLUMNS[role]))}; found {', '.join(shard.columns)}; "
            f"rename one: dataset.rename_column(NAME, {role!r})",
            file=shard.file,
        )


def _table(shard: _Shard, folder: Folder, *, before: int) -> tuple[MetadataTable, list[str]]:
    """Return the rows with the columns of docs/data.md, and for each the name of its edited image; "" where it has none."""
    frame, found = _frame(shard)
    table = table_of(frame, shard.file)
    names = {column: role for role, column in shard.texts.items()}
    lines, stems = [], []
    for line, images in zip(table.lines, found, strict=True):
        number = before + line.number
        values: dict[str, Json] = {names.get(column, column): value for column, value in line.values.items()}
        for role, column in shard.images.items():
            values[f"{role}_file_name"] = _name(images[role], f"{column}/{number}", folder)
        # A list of boxes that is empty says nothing.
        values = {name: None if value == [] else value for name, value in values.items()}
        lines.append(TableLine(number=number, values={} if line.fault else values, fault=line.fault))
        stems.append(plain_stem(str(images.get("edited", images["source"]).get("path") or "")))
    return replace(table, lines=tuple(lines), columns=tuple(names.get(name, name) for name in table.columns)), stems


def _name(cell: Mapping[str, Any], inside: str, folder: Folder) -> str:
    """Return the name under which the folder knows an image; "" for none. A cell may hold a path alone."""
    if not cell["empty"]:
        return inside
    path = Path(cell["path"]) if cell["path"] else None
    if path is not None and path.is_absolute() and path.is_relative_to(folder.root.resolve()):
        path = path.relative_to(folder.root.resolve())
    return "" if path is None else str(path)


def _frame(shard: _Shard) -> tuple[polars.DataFrame, Iterator[dict[str, dict[str, Any]]]]:
    """Return the columns without images; and of each image whether it is missing, and its path. Raises SampleError."""
    import polars

    def described(role: str, column: str, types: Mapping[str, Any]) -> polars.Expr:
        one = polars.col(column)
        if types[column] == polars.Binary:
            return polars.struct(one.is_null().alias("empty"), polars.lit(None, polars.String).alias("path")).alias(role)
        fields = {field.name for field in types[column].fields}
        path = one.struct.field("path") if "path" in fields else polars.lit(None, polars.String)
        return polars.struct(one.struct.field("bytes").is_null().alias("empty"), path.alias("path")).alias(role)

    arrow = shard.file.suffix.lower() == ".arrow"
    lazy = read_arrow(shard.file).lazy() if arrow else polars.scan_parquet(shard.file, glob=False, hive_partitioning=False)
    try:
        types = dict(lazy.collect_schema())
        # By blocks, so that memory holds no column of images.
        images = lazy.select([described(r, c, types) for r, c in shard.images.items()]).collect(engine="streaming")
        rest = lazy.select([name for name in types if name not in (*shard.images.values(), *shard.others)]).collect()
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise SampleError(f"cannot be read: {error}", file=shard.file) from error
    return rest, images.iter_rows(named=True)
