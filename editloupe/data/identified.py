"""Remember which image each file of a large data set is, so that a run that goes on need not read all of them again.

What is remembered is derived and may be deleted. It holds of a file with the same place on the disk, size and times as when
it was read, and is not kept of one that was written just before. What a judge is shown is read and hashed all the same.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.errors import EditLoupeError
from editloupe.values import ImageRef

FILE: Final = "images.txt"
"""Its name in a run folder."""

MANY: Final = 1000
"""Files from which it is worth remembering what they are."""
_SETTLED: Final = 3 * 10**9
"""Ns since a file was last written, below which a later change might leave its times as they are."""
_HEAD: Final = "editloupe images 1: device, number, bytes, ns of two times, SHA-256, width, height, type"
_LINE: Final = re.compile(
    r"(\d+ \d+ \d+ -?\d+ -?\d+) ([0-9a-f]{64}) ([1-9]\d{0,8}) ([1-9]\d{0,8}) (image/[a-z0-9.+-]+)", re.ASCII
)


class Identified:
    """What is known of image files: by their stamps, which image they hold."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._before = time.time_ns() - _SETTLED
        self._lines: dict[str, str] = {}
        """Stamp → the rest of its line."""
        self._new = False
        with suppress(OSError, ValueError):
            if not self._path.is_symlink():
                head, *lines = files.read_bytes(self._path).decode("ascii").splitlines()
                if head == _HEAD:
                    self._lines = {found[1]: line[found.end(1) + 1 :] for line in lines if (found := _LINE.fullmatch(line))}

    def find(self, path: Path, stamp: files.Stamp) -> ImageRef | None:
        """Return the image that a file with this stamp holds; None where it is not known."""
        known = self._lines.get(" ".join(map(str, stamp)))
        if known is None:
            return None
        sha256, width, height, media_type = known.split(" ")
        return ImageRef(sha256=sha256, width=int(width), height=int(height), media_type=media_type, path=path)

    def add(self, stamp: files.Stamp, ref: ImageRef) -> None:
        """Take in a file that was read."""
        *_, written, changed = stamp
        if max(written, changed) < self._before:
            self._lines[" ".join(map(str, stamp))] = f"{ref.sha256} {ref.width} {ref.height} {ref.media_type}"
            self._new = True

    def write(self) -> None:
        """Write down what is known, if it is much and new. A folder that cannot be written stays as it is."""
        if self._new and len(self._lines) >= MANY:
            lines = [_HEAD, *(f"{stamp} {known}" for stamp, known in self._lines.items())]
            with suppress(OSError, EditLoupeError):
                files.write_whole(self._path, "".join(f"{line}\n" for line in lines).encode(), below=self._path.parent)
            self._new = False
