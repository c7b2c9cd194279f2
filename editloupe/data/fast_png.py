"""PNG by Intel's ISA-L, which the extra `fast` brings: in a quarter of the time of zlib, and in smaller files."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_UP: Final = 2
"""The filter by which a line holds its difference from the line above."""


def encode(rgb: NDArray[np.uint8]) -> bytes | None:
    """Encode H×W×3 uint8 RGB as PNG; the same pixels give the same bytes. Return None without the extra."""
    if (isal := _isal()) is None:
        return None
    height, width = rgb.shape[:2]
    pixels = rgb.reshape(height, 3 * width)
    lines = np.empty((height, 1 + 3 * width), dtype=np.uint8)
    lines[:, 0] = _UP
    lines[0, 1:] = pixels[0]
    np.subtract(pixels[1:], pixels[:-1], out=lines[1:, 1:])
    # 8 bits a channel, RGB, and the one compression, set of filters and order of lines that most files have.
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = bytes(isal.compress(lines, 1))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


@cache
def _isal() -> Any:
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    return isal_zlib
