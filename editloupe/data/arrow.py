"""How deep the columns of an Arrow stream are nested, read off its first message.

The reader itself does not end on some thousand levels. The schema is a FlatBuffer:
https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

_SCHEMA: Final = 1
"""The kind of the first message."""
_KIND, _HEADER = 1, 2
"""Fields of a message."""
_FIELDS: Final = 1
"""Field of a schema with its columns."""
_CHILDREN: Final = 5
"""Field of a column with those below it."""
_MOST_COLUMNS: Final = 100_000


def depth(data: bytes | mmap.mmap) -> int:
    """Return the levels of the deepest column of an Arrow stream, 1 for plain ones. Raises ValueError: no such stream."""
    try:
        start = 8 if data[:4] == b"\xff\xff\xff\xff" else 4
        size = _number("<i", data, start - 4)
        if not 0 < size <= len(data) - start:
            raise ValueError("it does not begin as an Arrow stream")
        message = _Buffer(data[start : start + size])
        root = message.follow(0)
        kind, header = message.field(root, _KIND), message.field(root, _HEADER)
        if kind is None or header is None or message.data[kind] != _SCHEMA:
            raise ValueError("its first message is no schema")
        level, deepest, seen = message.tables(message.follow(header), _FIELDS), 0, 0
        while level:
            # Level by level: offsets lead forwards only, so that this ends, but several may lead to one place.
            deepest, seen = deepest + 1, seen + len(level)
            if seen > _MOST_COLUMNS:
                raise ValueError(f"it has more than {_MOST_COLUMNS:,} columns")
            level = [child for column in level for child in message.tables(column, _CHILDREN)]
        return deepest
    except (struct.error, IndexError) as error:
        raise ValueError("its schema is damaged") from error


class _Buffer:
    """A FlatBuffer. Places are bytes from its beginning."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def follow(self, at: int) -> int:
        """Return the place to which the offset at a place leads."""
        return at + _number("<I", self.data, at)

    def field(self, table: int, number: int) -> int | None:
        """Return the place of a table's field; None for one that it does not have."""
        shape = table - _number("<i", self.data, table)
        place = 4 + 2 * number
        if shape < 0 or place + 2 > _number("<H", self.data, shape):
            return None
        offset = _number("<H", self.data, shape + place)
        return table + offset if offset else None

    def tables(self, table: int, number: int) -> list[int]:
        """Return the places of the tables in a field that holds several; [] for a table without."""
        at = self.field(table, number)
        if at is None:
            return []
        vector = self.follow(at)
        count = _number("<I", self.data, vector)
        if count > min(_MOST_COLUMNS, len(self.data) // 4):
            raise ValueError("its schema is damaged")
        return [self.follow(vector + 4 + 4 * index) for index in range(count)]


def _number(kind: str, data: bytes | mmap.mmap, at: int) -> int:
    if at < 0:
        raise IndexError(at)
    found: int = struct.unpack_from(kind, data, at)[0]
    return found
