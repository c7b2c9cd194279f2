"""Images that lie in the rows of Parquet and Arrow files, as Hugging Face's `datasets` writes them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from editloupe.data.folders import Folder, RowError
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.tables import MetadataTable, lazily, read_table, schema_of, shown
from editloupe.errors import DataError, ImageError
from editloupe.files import read_bytes
from editloupe.values import ImageRef, parse_json

ENDINGS: Final = (".parquet", ".arrow")
_METADATA: Final = tuple(f"metadata{ending}" for ending in (".jsonl", ".csv", ".parquet"))
"""Files of an ImageFolder, beside which Parquet files are no data of their own."""
_ROWS: Final = 32
"""Rows that are read at once: an image is some MB."""


def row_files(data: DataSet) -> list[Path]:
    """Return the files whose rows may hold images, in their order: the one that was named, or those of the folder.

    Raises DataError for a folder of several splits.
    """
    root, folder = data.root, Folder(data.root, data.store)
    if data.metadata is not None:
        return [folder.own(data.metadata.name)] if data.metadata.suffix.lower() in ENDINGS else []
    if saved := [path for path in (root / "state.json", *sorted(root.glob("*/state.json"))) if path.is_file()]:
        if len(saved) > 1:
            names = ", ".join(path.parent.name for path in saved)
            raise DataError(f"{root}: expected one split, found {names}; give the folder of one")
        return _saved(saved[0], folder)
    if any((root / name).is_file() for name in _METADATA):
        return []
    found = next(filter(None, (sorted((root / below).glob("*.parquet")) for below in ("", "data"))), [])
    # The hub's names, such as train-00000-of-00004.parquet.
    splits = sorted({file.name.partition("-")[0] for file in found if "-of-" in file.name})
    if len(splits) > 1:
        raise DataError(f"{found[0].parent}: holds several splits ({', '.join(splits)}); give one file of them")
    return [folder.own(file.relative_to(root).as_posix()) for file in found]


def _saved(state: Path, folder: Folder) -> list[Path]:
    """Return the files of `save_to_disk` as its state.json lists them."""
    found: Any
    try:
        found = parse_json(read_bytes(state))
        names = [str(one["filename"]) for one in found["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{state}: expected the list _data_files of datasets' save_to_disk: {error}") from error
    return [folder.file((state.parent.relative_to(folder.root) / name).as_posix()) for name in names]


def image_columns(file: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that hold the bytes of files, alone or beside their path, and the others. Raises SampleError."""
    import polars

    def holds(type_: Any) -> bool:
        fields = {field.name: field.dtype for field in type_.fields} if isinstance(type_, polars.Struct) else {}
        return bool(type_ == polars.Binary or fields.get("bytes") == polars.Binary)

    types = schema_of(file)
    inside = tuple(name for name, type_ in types.items() if holds(type_))
    return inside, tuple(name for name in types if name not in inside)


class RowImages(Folder):
    """Images in columns of one or more files, whose rows are counted on. An image is named COLUMN/ROW, from 1.

    A cell is bytes, or a struct with `bytes` and `path`. Memory holds the cells of a few rows at a time.
    """

    def __init__(self, root: Path, store: ImageStore) -> None:
        super().__init__(root, store)
        self._files: list[tuple[int, Path, frozenset[str]]] = []
        self._block = lru_cache(maxsize=2)(self._cells)
        # One at a time: it may be half a GB.
        self._whole = lru_cache(maxsize=1)(lazily)

    def read(self, file: Path, columns: Collection[str], *, but: Collection[str], before: int) -> MetadataTable:
        """Read a file, in which these columns hold images: their cells become names, and "" where there is none.

        Where a row holds a path alone, that is the name. The bytes are not read into memory.
        but: columns that are not read otherwise.   before: rows in the files before it.
        """
        self._files.append((before, file, frozenset(columns)))
        table, lines = read_table(file, but=but), []
        cells = {column: self._names(file, column, before) for column in columns}
        for place, line in enumerate(table.lines):
            names = {column: its[place][0] for column, its in cells.items()}
            paths = {column: its[place][1] for column, its in cells.items()}
            lines.append(replace(line, values={**line.values, **names}, paths=paths))
        return replace(table, lines=tuple(lines))

    def _names(self, file: Path, column: str, before: int) -> list[tuple[str, str]]:
        """Return for each row of a file the name of its image, and the path that is written beside its bytes."""
        import polars

        lazy = lazily(file)
        type_ = lazy.collect_schema()[column]
        cell, fields = polars.col(column), {f.name for f in type_.fields} if isinstance(type_, polars.Struct) else set()
        data = cell.struct.field("bytes") if fields else cell
        path = cell.struct.field("path") if "path" in fields else polars.lit(None, polars.String)
        described = [data.is_null().alias("empty"), path.cast(polars.String).fill_null("").alias("path")]
        rows = lazy.select(described).collect(engine="streaming").iter_rows()
        return [(path if empty else f"{column}/{n}", path) for n, (empty, path) in enumerate(rows, start=before + 1)]

    def _added(self, name: str) -> ImageRef:
        column, _, row = name.rpartition("/")
        for before, file, columns in reversed(self._files):
            if column in columns and row.isdecimal() and int(row) > before:
                again = partial(self._bytes, file, column, int(row) - before)
                where = f"{file}, row {int(row) - before}, column {column!r}"
                return self._store.add_bytes(again(), name=where, again=again)
        try:
            return super()._added(name)
        except RowError as error:
            advice = "save_to_disk puts the images into the rows, while to_parquet keeps the paths of files"
            raise RowError(error.kind, f"the row holds a path and no image: {error}; {advice}", path=error.path) from error

    def _bytes(self, file: Path, column: str, number: int) -> bytes:
        block, place = divmod(number - 1, _ROWS)
        value = self._block(file, column, block)[place]
        found = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(found, bytes):
            raise ImageError(f"{file}, row {number}, column {column!r}: expected the bytes of a file, found {shown(found)}")
        return found

    def _cells(self, file: Path, column: str, block: int) -> list[object]:
        import polars

        try:
            lazy = (self._whole if file.suffix.lower() == ".arrow" else lazily)(file)
            return lazy.select(column).slice(block * _ROWS, _ROWS).collect().to_series().to_list()
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
            raise ImageError(f"{file}: column {column!r} cannot be read: {error}") from error
