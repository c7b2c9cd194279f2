"""Where the images of a set lie: in an ImageFolder by their content, in a benchmark's folders by names."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from editloupe import files
from editloupe.data.images import RGB, ImageStore, encode_png
from editloupe.data.write import IMAGES, place_image, remove_others, write_as_is
from editloupe.values import ImageRef

MASKS: Final = "masks"
"""Folder of an ImageFolder's masks."""


@dataclass(frozen=True, kw_only=True)
class ImagePlace:
    """A folder into which images are placed, and their names there."""

    folder: Path
    images: ImageStore
    """Of the run, which holds them."""
    names: set[Path] = field(default_factory=set)
    """What was placed."""

    def image(self, image: ImageRef) -> str:
        """Put an image into an ImageFolder and return its name there. Raises as `place_image`."""
        kept = replace(image, path=self.images.path(image) or image.path)
        return self._named(place_image(kept, self.folder, store=self.images))

    def pixels(self, rgb: RGB, *, quality: int | None = None) -> str:
        """Put pixels into an ImageFolder as PNG, or as JPEG of a quality from 1 to 100. Raises OSError."""
        data, ending = (encode_png(rgb), "png") if quality is None else (_jpeg(rgb, quality), "jpg")
        return self.file(data, ending)

    def mask(self, mask: NDArray[np.bool_]) -> str:
        """Put a mask, white where it is True, into an ImageFolder and return its name there. Raises OSError."""
        white = np.repeat(np.where(mask, np.uint8(255), np.uint8(0))[:, :, None], 3, axis=2)
        return self.file(encode_png(white), "png", folder=MASKS)

    def as_is(self, image: ImageRef, folder: str, stem: str) -> str:
        """Write an image as STEM.jpg or STEM.png into a folder, once, and return that name. Raises as `write_as_is`."""
        for name in (f"{stem}.jpg", f"{stem}.png"):
            if self.folder / folder / name in self.names:
                return name
        name = write_as_is(image, self.folder / folder, stem, store=self.images)
        self.names.add(self.folder / folder / name)
        return name

    def keep(self, names: Iterable[str], folders: Sequence[str] = (IMAGES, MASKS)) -> None:
        """Keep the images of these names, and remove others from these folders. Raises OSError."""
        self.names.clear()
        self.names.update(self.folder / name for name in names)
        self.clean(folders)

    def clean(self, folders: Sequence[str] = (IMAGES, MASKS)) -> None:
        """Remove the images of these folders that were not placed: of rows that are gone, or cut off. Raises OSError."""
        for folder in folders:
            at = self.folder / folder
            for part in at.glob(f"{files.PART}*"):
                part.unlink()  # of a process that was killed
            remove_others(at, {path.name for path in self.names if path.parent == at})

    def file(self, data: bytes, ending: str, *, folder: str = IMAGES) -> str:
        """Put an image file's bytes into an ImageFolder and return its name there. Raises OSError."""
        name = f"{folder}/{hashlib.sha256(data).hexdigest()[:24]}.{ending}"
        if not (self.folder / name).exists():
            files.write_whole(self.folder / name, data, below=self.folder.parent)
        return self._named(name)

    def _named(self, name: str) -> str:
        self.names.add(self.folder / name)
        return name


def _jpeg(rgb: RGB, quality: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "JPEG", quality=quality)
    return file.getvalue()
