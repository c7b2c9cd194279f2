"""A folder that images are read from, and nothing outside it."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final, Literal, TypeAlias

from editloupe.data.images import ImageStore
from editloupe.errors import DataError, ImageError, SampleError
from editloupe.values import ImageRef

Kind: TypeAlias = Literal[
    "row", "missing_file", "unreadable_image", "outside_folder", "duplicate_id", "no_instruction", "box", "no_match",
    "changed_probe",
]  # fmt: skip
"""What is wrong with a row: the line or a value of it, a file, the id, the instruction, a box, nothing to pair it with, a
probe that is not as it was built."""
_LONGEST: Final = 1000
"""Characters of a message."""
IMAGE_ENDINGS: Final = frozenset(
    (".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic",
     ".heif", ".ppm", ".pgm", ".pnm")
)  # fmt: skip


class RowError(SampleError):
    """One row cannot be judged; the others go on."""

    def __init__(self, kind: Kind, message: str, *, path: Path | None = None) -> None:
        self.kind, self.path = kind, path
        # A name or a value that is quoted may be of any length.
        super().__init__(
            message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
        )


class Folder:
    """Image files below `root`, each read once however many rows name it.

    A name is refused that is absolute, holds `..`, or leads outside through a link.
    """

    def __init__(self, root: Path, store: ImageStore) -> None:
        self.root = root
        self._store = store
        self._real = root.resolve()
        self._read: dict[str, ImageRef | RowError] = {}

    def image(self, name: str) -> ImageRef:
        """Return the image that `name` (relative to the folder) leads to. Raises RowError."""
        if name not in self._read:
            try:
                self._read[name] = self._added(name)
            except RowError as error:
                self._read[name] = error
            except ImageError as error:
                self._read[name] = RowError("unreadable_image", str(error), path=self.root / name)
        found = self._read[name]
        if isinstance(found, RowError):
            raise RowError(found.kind, str(found), path=found.path)
        return found

    def _added(self, name: str) -> ImageRef:
        """Add an image to the store. Raises RowError and ImageError."""
        return self._store.add_file(self.file(name))

    def file(self, name: str) -> Path:
        """Return the path of an existing file. Raises RowError: refused name, or no such file."""
        path = self.root / name
        absolute = bool(PureWindowsPath(name).drive) or name.startswith(("/", "\\"))
        fault = "holds a zero byte" if "\0" in name else "is absolute" if absolute else ""
        if fault := fault or ("holds '..'" if ".." in PureWindowsPath(name).parts else ""):
            expected = f"a path inside {self.root}, relative to it, since nothing outside is read"
            raise RowError("outside_folder", f"file name {name!r} {fault}; expected {expected}")
        try:
            real, there = path.resolve(), path.exists()
        except (OSError, RuntimeError, ValueError) as error:  # a name too long, a ring of links
            problem = getattr(error, "strerror", None) or error
            raise RowError("missing_file", f"{path}: cannot be opened: {problem}", path=path) from error
        if not real.is_relative_to(self._real):
            cure = "put the file itself there (from the Hugging Face cache: download with local_dir instead)"
            raise RowError("outside_folder", f"{path} is a link that leads outside {self.root}; {cure}", path=path)
        if not there:
            raise RowError("missing_file", f"{path}: no such file; expected an image", path=path)
        return path

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        try:
            return self.file(name).is_file()
        except RowError:
            return False

    def images(self, below: str = "", *, deep: bool = False) -> tuple[str, ...]:
        """Return the names of image files (by their ending) in the sub-folder `below`, sorted, without hidden files."""
        start = self.root / below
        files = [p for p in start.glob("**/*" if deep else "*") if p.suffix.lower() in IMAGE_ENDINGS and not p.is_dir()]
        names = [file.relative_to(self.root) for file in files]
        return tuple(sorted(n.as_posix() for n in names if not any(part.startswith(".") for part in n.parts)))

    def own(self, name: str) -> Path:
        """Return the path of a file or sub-folder that the layout needs. Raises DataError where it is a link outside."""
        path = self.root / name
        if not path.resolve().is_relative_to(self._real):
            raise DataError(f"{path} is a link that leads outside {self.root}; put the files themselves there")
        return path


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """One file that a row names: where it stands, not yet opened."""

    folder: Folder
    name: str

    @property
    def stem(self) -> str:
        return plain_stem(self.name)

    def image(self) -> ImageRef:
        """Open the image. Raises RowError."""
        return self.folder.image(self.name)


def plain_stem(name: str) -> str:
    """Return the last part of a path without its ending, composed (NFC), so that equal names compare equal."""
    return unicodedata.normalize("NFC", PurePosixPath(name.replace("\\", "/")).stem)


def check_exists(path: Path, *, what: str) -> None:
    """Raise DataError where nothing lies at `path`."""
    if not path.exists():
        raise DataError(
            f"{path}: no such folder; expected {what}, or hf://OWNER/NAME:SPLIT for data of the Hugging Face hub"
        )


def open_folder(path: Path, store: ImageStore, *, what: str) -> Folder:
    """Open `path` as a Folder. Raises DataError where it is no folder."""
    check_exists(path, what=what)
    if not path.is_dir():
        raise DataError(f"{path}: is a file; expected a folder: {what}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise DataError(f"{path}: the folder cannot be read (no permission); expected {what}")
    return Folder(path, store)
