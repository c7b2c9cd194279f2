"""How deep the columns of a Parquet file are nested, read off its footer.

The reader itself crashes the process on some hundred levels, or does not end. A footer is a struct of Thrift's compact
protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import mmap
from typing import Any, Final

_MARK: Final = b"PAR1"
_SCHEMA: Final = 2
"""Field of the footer with the columns: a tree, each node before its children, from the root on."""
_CHILDREN: Final = 5
"""Field of a column with the number of its children."""


def depth(data: bytes | mmap.mmap) -> int:
    """Return the levels of the deepest column of a Parquet file, 1 for plain columns. Raises ValueError: no such file."""
    size = int.from_bytes(data[-8:-4], "little")
    if data[:4] != _MARK or data[-4:] != _MARK or size > len(data) - 12:
        raise ValueError("it does not begin and end as a Parquet file")
    try:
        columns = _Reader(data[-8 - size : -8]).struct(until=_SCHEMA)[_SCHEMA]
        left, deepest = [1], 0
        for column in columns:
            while not left[-1]:
                left.pop()
            left[-1] -= 1
            left.append(column.get(_CHILDREN, 0))
            deepest = max(deepest, len(left))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("its footer is damaged") from error
    # Without the beginning and the root.
    return deepest - 2


class _Reader:
    """Reads values one after another. Raises LookupError at the end of the bytes, and for an unknown type."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, *, until: int | None = None) -> dict[int, Any]:
        """Return field → number, list or struct; None for what is of no use here. until: the last field that is wanted."""
        found: dict[int, Any] = {}
        field = 0
        while until not in found and (head := self._byte()):
            step, kind = divmod(head, 16)
            field = field + step if step else self._number()
            # A truth value of a struct lies in its type.
            found[field] = None if kind in (1, 2) else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                self._skip(1)
            case 4 | 5 | 6:
                return self._number()
            case 7:
                self._skip(8)
            case 8:
                self._skip(self._varint())
            case 9 | 10:
                size, of = divmod(self._byte(), 16)
                return [self._value(of) for _ in range(self._varint() if size == 15 else size)]
            case 11:
                if size := self._varint():
                    key, value = divmod(self._byte(), 16)
                    for _ in range(size):
                        self._value(key)
                        self._value(value)
            case 12:
                return self.struct()
            case _:
                raise LookupError(f"no type {kind}")
        return None

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127 and shift < 70:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _byte(self) -> int:
        self._skip(1)
        return self._data[self._at - 1]

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise LookupError("the footer ends too early")
