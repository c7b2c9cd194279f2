"""Images that lie in a column of a Parquet or Arrow file, as Hugging Face's `datasets` writes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from editloupe.data.folders import Folder, RowError
from editloupe.data.images import ImageStore
from editloupe.data.tables import read_arrow, shown
from editloupe.errors import ImageError, SampleError
from editloupe.values import ImageRef

if TYPE_CHECKING:
    import polars

_ROWS: Final = 32
"""Rows that are read at once: an image is some MB."""


class EmbeddedImages(Folder):
    """The images in one column of a Parquet file. An image's name is the number of its row, from 1.

    A cell is bytes, or a struct with the field `bytes`. Memory holds those of a few rows at a time.
    """

    def __init__(self, file: Path, column: str, store: ImageStore) -> None:
        super().__init__(file.parent, store)
        self._file, self._column = file, column
        self._block = lru_cache(maxsize=2)(self._cells)

    def _added(self, name: str) -> ImageRef:
        again = partial(self._bytes, name)
        return self._store.add_bytes(again(), name=self._named(name), again=again)

    def _path(self, name: str) -> Path:
        return self._file

    def _named(self, name: str) -> str:
        return f"{self._file}, row {name}, column {self._column!r}"

    def _bytes(self, name: str) -> bytes:
        block, place = divmod(int(name) - 1, _ROWS)
        cells = self._block(block)
        value = cells[place] if place < len(cells) else None
        found = value.get("bytes") if isinstance(value, dict) else value
        if found is None:
            raise ImageError(f"{self._named(name)}: holds no image; expected the bytes of a file")
        if not isinstance(found, bytes):
            raise ImageError(f"{self._named(name)}: expected the bytes of a file, found {shown(found)}")
        return found

    def _cells(self, block: int) -> list[object]:
        import polars

        try:
            rows = polars.scan_parquet(self._file, glob=False, hive_partitioning=False).select(self._column)
            return rows.slice(block * _ROWS, _ROWS).collect().to_series().to_list()
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
            raise ImageError(f"{self._file}: column {self._column!r} cannot be read: {error}") from error


class ArrowImages(EmbeddedImages):
    """The same of an Arrow file, which is read as a whole: `frame` returns it, and may keep it for the next block."""

    def __init__(self, file: Path, column: str, store: ImageStore, *, frame: Callable[[Path], polars.DataFrame]) -> None:
        super().__init__(file, column, store)
        self._frame = frame

    def _cells(self, block: int) -> list[object]:
        try:
            return self._frame(self._file)[self._column].slice(block * _ROWS, _ROWS).to_list()
        except SampleError as error:
            raise ImageError(str(error)) from error


class Shards(Folder):
    """Images in several columns of one or more files, whose rows are counted on. An image is named COLUMN/ROW, from 1."""

    def __init__(self, root: Path, store: ImageStore) -> None:
        super().__init__(root, store)
        self._files: list[tuple[int, dict[str, Folder]]] = []
        # One at a time: it may be half a GB.
        self._frame = lru_cache(maxsize=1)(read_arrow)

    def add(self, file: Path, columns: list[str], *, before: int) -> None:
        """Add a file, in which these columns hold images. before: rows in the files before it."""
        arrow = file.suffix.lower() == ".arrow"
        images: dict[str, Folder] = {
            column: ArrowImages(file, column, self._store, frame=self._frame)
            if arrow
            else EmbeddedImages(file, column, self._store)
            for column in columns
        }
        self._files.append((before, images))

    def image(self, name: str) -> ImageRef:
        """Return the image COLUMN/ROW, or one of a file below the folder where the name is no such one. Raises RowError."""
        column, _, row = name.rpartition("/")
        for before, images in reversed(self._files):
            if column in images and row.isdecimal() and int(row) > before:
                return images[column].image(str(int(row) - before))
        try:
            return super().image(name)
        except RowError as error:
            advice = "save_to_disk puts the images into the rows, while to_parquet keeps the paths of files"
            raise RowError(error.kind, f"the row holds a path and no image: {error}; {advice}", path=error.path) from error
