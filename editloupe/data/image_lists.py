"""The images of a path, for builders of data sets: a folder of images, or an ImageFolder whose metadata names them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, kw_only=True)
class ImageList:
    """The images of a path."""

    folder: Folder
    names: tuple[str, ...]
    """Of the image files, each once: in the order of the metadata, else by name with 2 before 10."""
    table: MetadataTable | None = None
    """The metadata; None for a folder without."""
    column: str = ""
    """The column that names the images."""

    def identified(self) -> list[tuple[str, str]]:
        """Return (id, file name) of each image: the id is its stem, or the whole name where several share the stem."""
        stems = Counter(map(plain_stem, self.names))
        return [(plain_stem(name) if stems[plain_stem(name)] == 1 else name, name) for name in self.names]


def list_images(path: Path, store: ImageStore) -> ImageList:
    """Return the images of a folder, of an ImageFolder, or of a metadata file. None is opened.

    Raises DataError where there is none, and SampleError for metadata that cannot be read.
    """
    root = open_folder(path.parent if path.is_file() else path, store, what="a folder of images")
    tables = [path] if path.is_file() else [file for ending in ENDINGS if (file := path / f"metadata{ending}").is_file()]
    if len(tables) > 1:
        raise DataError(
            f"{path}: several metadata files: {', '.join(file.name for file in tables)}; name the one that is meant"
        )
    if tables:
        return _from_table(tables[0], root)
    names = sorted(root.images(), key=_natural)
    if not names:
        deep = root.images(deep=True)
        hint = f"; {len(deep):,} lie in folders below, such as {Path(deep[0]).parent}: name that folder" if deep else ""
        raise DataError(f"{path}: holds no image; expected image files, or an ImageFolder with metadata.jsonl{hint}")
    return ImageList(folder=root, names=tuple(names))


def load_images(
    path: Path, store: ImageStore, *, checked: Callable[[DataRow], DataRow], aside: Collection[str] = ()
) -> Loaded:
    """Return a sample without an edit for each image of a folder, or for each row of the metadata; each is decoded once.

    Of a folder without metadata, an image that occurs again, byte for byte, is taken once.
    checked: returns a row as it counts, also the bare one of an image without metadata; raises RowError for one that cannot
    be used.
    aside: columns of the metadata that are not read.   Raises as `list_images`.
    """
    listed = list_images(path, store)
    rows = named(list(_rows(listed, checked, {*_OF_EDITS, *aside})))
    file = None if listed.table is None else listed.table.file
    found = assemble(rows, format="images", dataset=listed.folder.root.resolve().name, metadata=file)
    samples: dict[str, Sample] = {}
    refused = list(found.rejected)
    again = 0
    for sample in found.samples:
        try:
            store.array(sample.source)
        except ImageError as error:
            refused.append(RejectedRow(id=sample.id, kind="unreadable_image", message=str(error), file=sample.source.path))
            continue
        key = sample.source.sha256 if listed.table is None else sample.id
        again += key in samples
        noted = tuple(text for text in sample.warnings if text != NO_OUTPUT)
        samples.setdefault(key, replace(sample, turns=(Turn(instruction="", edited=None),), warnings=noted))
    notes = (f"{again:,} of {len(listed.names):,} images occur a second time and are taken once",) if again else ()
    return Loaded(format="images", samples=tuple(samples.values()), rejected=tuple(refused), notes=notes)


def _rows(listed: ImageList, checked: Callable[[DataRow], DataRow], aside: Collection[str]) -> Iterator[Row]:
    """Yield a row for each image of a folder, or for each line of the metadata."""
    for row in _read(listed, aside):
        try:
            yield checked(row) if isinstance(row, DataRow) else row
        except RowError as error:
            yield rejected(row, error)


def _read(listed: ImageList, aside: Collection[str]) -> Iterator[Row]:
    """Yield the same as they are read."""
    if listed.table is None:
        for id_, name in listed.identified():
            source = ImageFile(folder=listed.folder, name=name)
            yield DataRow(line=None, source=source, instructions=(_NO_INSTRUCTION,), hints=(id_, name))
        return
    for line in listed.table.lines:
        values = {name: value for name, value in line.values.items() if name not in aside and name != listed.column}
        values |= {"source_file_name": line.values.get(listed.column), "instruction": _NO_INSTRUCTION}
        yield read_row(replace(line, values=values), folder=listed.folder, text_only=listed.table.text_only)


def _from_table(file: Path, root: Folder) -> ImageList:
    if file.suffix.lower() not in ENDINGS:
        raise DataError(f"{file}: is a file; expected a folder of images, or a metadata file ({', '.join(ENDINGS)})")
    table = read_table(file)
    which = next((name for name in NAMED if name in table.columns), None)
    if which is None:
        raise DataError(f"{file}: expected a column {' or '.join(NAMED)}; found {', '.join(table.columns)}")
    names: Sequence[str] = [str(line.values[which]) for line in table.lines if line.values.get(which)]
    if not names:
        raise DataError(f"{file}: the column {which} names no image")
    return ImageList(folder=root, names=tuple(dict.fromkeys(names)), table=table, column=which)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what a name is sorted by: its numbers by value."""
    return [(int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in re.split(r"([0-9]+)", name)]
