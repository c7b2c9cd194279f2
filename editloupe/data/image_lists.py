"""The images of a path, for builders of data sets: a folder of images, or an ImageFolder whose metadata names them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.folders import Folder, ImageFile, RowError, open_folder, plain_stem
from editloupe.data.images import ImageStore
from editloupe.data.rows import NO_OUTPUT, DataRow, Loaded, RejectedRow, Row, assemble, named, read_row, rejected
from editloupe.data.tables import ENDINGS, MetadataTable, read_table
from editloupe.errors import DataError, ImageError
from editloupe.values import Sample, Turn

NAMED: Final = ("source_file_name", "file_name", "image")
"""Columns of an ImageFolder that may name an image: the first of these that there is."""

_OF_EDITS: Final = (
    "instruction", "instructions", "edited_file_name", "edited_file_names", "edited_bbox", "edited_bboxes",
    "reference_file_name", "reference_bbox", "reference_bboxes", "edit_type", "editor", "model",
)  # fmt: skip
"""Columns of rows that have been edited already; they are left aside."""
_NO_INSTRUCTION: Final = "-"
"""Stands for the instruction of a row until it has one."""


def load_images(
    path: Path, store: ImageStore, *, checked: Callable[[DataRow], DataRow], aside: Collection[str] = ()
) -> Loaded:
    """Return a sample without an edit for each image of a folder, or for each row of the metadata; each is decoded once.

    Of a folder without metadata, an image that occurs again, byte for byte, is taken once.
    checked: returns a row as it counts, also the bare one of an image without metadata; raises RowError for one that cannot
    be used.
    aside: columns of the metadata that are not read.
    Raises DataError where there is no image, and SampleError for metadata that cannot be read.
    """
    root = open_folder(path.parent if path.is_file() else path, store, what="a folder of images")
    table = _table(path)
    read = _of_folder(root) if table is None else _of_table(table, root, {*_OF_EDITS, *aside})
    rows = named([_checked(row, checked) for row in read])
    file = None if table is None else table.file
    found = assemble(rows, format="images", dataset=root.root.resolve().name, metadata=file)
    samples: dict[str, Sample] = {}
    refused = list(found.rejected)
    for sample in found.samples:
        try:
            store.notes(sample.source)
        except ImageError as error:
            refused.append(RejectedRow(id=sample.id, kind="unreadable_image", message=str(error), file=sample.source.path))
            continue
        noted = tuple(text for text in sample.warnings if text != NO_OUTPUT)
        bare = replace(sample, turns=(Turn(instruction="", edited=None),), warnings=noted)
        samples.setdefault(sample.source.sha256 if table is None else sample.id, bare)
    again = len(rows) - len(refused) - len(samples)
    notes = (f"{again:,} of {len(rows):,} images occur a second time and are taken once",) if again else ()
    return Loaded(format="images", samples=tuple(samples.values()), rejected=tuple(refused), notes=notes)


def _checked(row: Row, checked: Callable[[DataRow], DataRow]) -> Row:
    try:
        return checked(row) if isinstance(row, DataRow) else row
    except RowError as error:
        return rejected(row, error)


def _table(path: Path) -> MetadataTable | None:
    """Return the metadata that is named or lies in a folder; None for a folder without. Raises DataError."""
    files = [path] if path.is_file() else [file for ending in ENDINGS if (file := path / f"metadata{ending}").is_file()]
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise DataError(f"{path}: several metadata files: {names}; name the one that is meant")
    if files and files[0].suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: is a file; expected a folder of images, or a metadata file ({', '.join(ENDINGS)})")
    return read_table(files[0]) if files else None


def _of_folder(root: Folder) -> Iterator[Row]:
    """Yield a bare row for each image, 2 before 10. The id is the stem, or the whole name where several share the stem."""
    names = sorted(root.images(), key=_natural)
    if not names:
        deep = root.images(deep=True)
        hint = f"; {len(deep):,} lie in folders below, such as {Path(deep[0]).parent}: name that folder" if deep else ""
        raise DataError(f"{root.root}: holds no image; expected image files, or an ImageFolder with metadata.jsonl{hint}")
    stems = Counter(map(plain_stem, names))
    for name in names:
        id_ = plain_stem(name) if stems[plain_stem(name)] == 1 else name
        source = ImageFile(folder=root, name=name)
        yield DataRow(line=None, source=source, instructions=(_NO_INSTRUCTION,), hints=(id_, name))


def _of_table(table: MetadataTable, root: Folder, aside: Collection[str]) -> Iterator[Row]:
    """Yield the lines of the metadata as rows without an edit."""
    column = next((name for name in NAMED if name in table.columns), None)
    if column is None:
        raise DataError(f"{table.file}: expected a column {' or '.join(NAMED)}; found {', '.join(table.columns)}")
    if not any(line.values.get(column) for line in table.lines):
        raise DataError(f"{table.file}: the column {column} names no image")
    for line in table.lines:
        values = {name: value for name, value in line.values.items() if name not in aside and name != column}
        values |= {"source_file_name": line.values.get(column), "instruction": _NO_INSTRUCTION}
        yield read_row(replace(line, values=values), folder=root, text_only=table.text_only)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what a name is sorted by: its numbers by value."""
    return [(int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in re.split(r"([0-9]+)", name)]
