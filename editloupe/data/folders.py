"""A folder that images are read from, and nothing outside it."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final, Literal, TypeAlias

from editloupe.data.images import ImageStore
from editloupe.errors import DataError, ImageError, SampleError
from editloupe.values import ImageRef

Kind: TypeAlias = Literal[
    "row", "missing_file", "unreadable_image", "outside_folder", "duplicate_id", "no_instruction", "box", "no_match"
]
"""What is wrong with a row: the line or a value of it, a file, the id, the instruction, a box, nothing to pair it with."""
IMAGE_ENDINGS: Final = frozenset(
    (".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic",
     ".heif", ".ppm", ".pgm", ".pnm")
)  # fmt: skip


class RowError(SampleError):
    """One row cannot be judged; the others go on."""

    def __init__(self, kind: Kind, message: str, *, path: Path | None = None) -> None:
        self.kind, self.path = kind, path
        super().__init__(message)


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
        found = self._read.get(name)
        if found is None:
            try:
                found = self._store.add_file(self.file(name))
            except RowError as error:
                found = error
            except ImageError as error:
                found = RowError("unreadable_image", str(error), path=self.root / name)
            self._read[name] = found
        if isinstance(found, RowError):
            raise RowError(found.kind, str(found), path=found.path)
        return found

    def file(self, name: str) -> Path:
        """Return the path of an existing file. Raises RowError: refused name, or no such file."""
        if "\0" in name:
            raise RowError("outside_folder", f"file name {name!r} holds a zero byte; expected a path inside {self.root}")
        if PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive or name.startswith("\\"):
            raise RowError(
                "outside_folder",
                f"file name {name!r} is absolute; expected a path inside {self.root}: write it relative to that folder",
            )
        if ".." in PureWindowsPath(name).parts:
            raise RowError(
                "outside_folder",
                f"file name {name!r} holds '..'; expected a path inside {self.root}, since nothing outside it is read",
            )
        # Metadata made on another system: names composed otherwise (macOS), backslashes (Windows).
        spellings = dict.fromkeys(
            (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")), name.replace("\\", "/"))
        )
        for spelling in spellings:
            path = self.root / spelling
            try:
                real = path.resolve()
                there = path.exists()
            except (OSError, RuntimeError) as error:  # a name too long, a ring of links
                raise RowError("missing_file", f"{path}: cannot be opened: {error}", path=path) from error
            if not real.is_relative_to(self._real):
                raise RowError(
                    "outside_folder",
                    f"{path} is a link that leads outside {self.root}, and nothing outside it is read; put the file itself "
                    "there (from the Hugging Face cache: download with local_dir instead)",
                    path=path,
                )
            if there:
                return path
        raise RowError("missing_file", f"{self.root / name}: no such file; expected an image", path=self.root / name)

    def images(self, below: str = "", *, deep: bool = False) -> tuple[str, ...]:
        """Return the names of image files (by their ending) in the sub-folder `below`, sorted, without hidden files."""
        start = self.root / below
        walk: Iterator[Path] = start.rglob("*") if deep else start.iterdir()
        return tuple(
            sorted(
                path.relative_to(self.root).as_posix()
                for path in walk
                if path.suffix.lower() in IMAGE_ENDINGS
                and not any(part.startswith(".") for part in path.relative_to(self.root).parts)
                and not path.is_dir()
            )
        )

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

    @property
    def path(self) -> Path:
        return self.folder.root / self.name

    def image(self) -> ImageRef:
        """Open the image. Raises RowError."""
        return self.folder.image(self.name)


def plain_stem(name: str) -> str:
    """Return the last part of a path without its ending, composed (NFC), so that equal names compare equal."""
    return unicodedata.normalize("NFC", PurePosixPath(name.replace("\\", "/")).stem)


def open_folder(path: Path, store: ImageStore, *, what: str) -> Folder:
    """Open `path` as a Folder. Raises DataError where it is no folder."""
    if not path.exists():
        raise DataError(f"{path}: no such folder; expected {what}")
    if not path.is_dir():
        raise DataError(f"{path}: is a file; expected a folder: {what}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise DataError(f"{path}: the folder cannot be read (no permission); expected {what}")
    return Folder(path, store)
