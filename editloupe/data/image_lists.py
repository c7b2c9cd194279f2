"""Which images a path holds, for builders of data sets: a folder of images, or an ImageFolder whose metadata names them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe.data.folders import Folder, open_folder, plain_stem
from editloupe.data.images import ImageStore
from editloupe.data.tables import ENDINGS, MetadataTable, read_table
from editloupe.errors import DataError

NAMED: Final = ("source_file_name", "file_name", "image")
"""Columns of an ImageFolder that may name an image: the first of these that there is."""


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
