"""Images that lie in a column of a Parquet file, as Hugging Face writes them."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from editloupe.data.folders import Folder
from editloupe.data.images import ImageStore
from editloupe.data.tables import shown
from editloupe.errors import ImageError
from editloupe.values import ImageRef

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
