"""Give pages their pictures: an image's address, its bytes in a form that browsers show, and thumbnails."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from editloupe import files
from editloupe.data.images import ImageStore, encode_png, extension
from editloupe.errors import ImageError
from editloupe.values import Box, ImageRef

TYPES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "bmp": "image/bmp",
    "avif": "image/avif",
}
"""What browsers show as it is, by the extension in the blob folder; anything else becomes PNG."""

THUMB_PX: Final = 360
_CONTEXT: Final = 3.0
"""A thumbnail shows the target with so many times its own side; a small target is lost in the whole picture."""
_KEPT: Final = 4096
_BLOB = re.compile(r"([0-9a-f]{2})/(?P<sha>\1[0-9a-f]{62})\.(?P<ext>[a-z]{3,4})")
_THUMB = re.compile(r"[0-9a-f]{2}/(?P<sha>[0-9a-f]{64})(?P<box>(?:-\d{1,6}){4})?\.jpg")


class Pictures:
    """The images of one run; thread-safe. Methods return None for what is not there."""

    def __init__(self, folder: Path, inside: Callable[[str], Path | None]) -> None:
        """inside: returns a file of the run folder by its path there, and None for what leads out of it."""
        self._folder, self._inside = folder, inside
        self._store = ImageStore(folder / "blobs", cache_bytes=64 * 2**20)
        self._thumbs = lru_cache(maxsize=_KEPT)(self._thumb)

    def address(self, ref: ImageRef) -> str | None:
        """Return where a page finds the image, from the run's own address; None if its bytes were not kept."""
        path = self._store.path(ref)
        if path is None:
            return None
        kind = path.suffix[1:]
        return f"blobs/{ref.sha256[:2]}/{ref.sha256}.{kind if kind in TYPES else 'png'}"

    def thumb_name(self, ref: ImageRef, region: Box | None) -> str | None:
        """Return the name of a thumbnail. region: px of the image, None for all of it."""
        if self._store.path(ref) is None:
            return None
        cut = "" if region is None else "".join(f"-{v}" for v in region.ints())
        return f"{ref.sha256}{cut}.jpg"

    def at(self, kind: str, name: str) -> tuple[bytes, str] | None:
        """Return (bytes, media type) of what has an address.

        blobs/AB/SHA256.EXT: an image; one that browsers cannot show comes as PNG.   thumbs/AB/NAME: a JPEG of at most
        THUMB_PX a side, made when it is asked for.
        """
        found = (_BLOB if kind == "blobs" else _THUMB).fullmatch(name)
        try:
            if found is not None:
                return self._blob(name, **found.groupdict()) if kind == "blobs" else self._thumbs(**found.groupdict())
        except (ImageError, OSError, ValueError):
            pass
        return None

    def _blob(self, name: str, *, sha: str, ext: str) -> tuple[bytes, str] | None:
        """None also for a file whose bytes are no image of that type."""
        path = self._inside(f"blobs/{name}")
        if path is not None:
            data = files.read_bytes(path)
            return (data, TYPES[ext]) if ext in TYPES and extension(data, name=name) == ext else None
        return (encode_png(self._pixels(sha)), TYPES["png"]) if ext == "png" else None

    def _thumb(self, *, sha: str, box: str | None) -> tuple[bytes, str]:
        image = Image.fromarray(self._pixels(sha))
        if box:
            x0, y0, x1, y1 = (int(v) for v in box[1:].split("-"))
            image = image.crop(Box(x0, y0, x1, y1).clipped(width=image.width, height=image.height).ints())
        image.thumbnail((THUMB_PX, THUMB_PX), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        image.save(out, "JPEG", quality=82)
        return out.getvalue(), TYPES["jpg"]

    def _pixels(self, sha: str) -> NDArray[np.uint8]:
        """The image with this hash, whatever its file's extension. Raises ImageError, OSError, ValueError."""
        names = sorted(path.name for path in (self._folder / "blobs" / sha[:2]).glob(f"{sha}.*"))
        path = self._inside(f"blobs/{sha[:2]}/{names[0]}") if names else None
        if path is None:
            raise ValueError(f"no image {sha}")
        # Finding and decoding these bytes needs neither width, height nor type.
        return self._store.array(ImageRef(sha256=sha, width=0, height=0, media_type="", path=path))


def around(boxes: Sequence[Box], image: ImageRef) -> Box | None:
    """Return a square of an image around boxes in its px, with context; None without boxes or if it is nearly all."""
    if not boxes:
        return None
    found = reduce(Box.union, boxes)
    x, y = found.center
    half = max(_CONTEXT * max(found.width, found.height), 64) / 2
    if 2 * half >= max(image.width, image.height):
        return None
    try:
        return Box(x - half, y - half, x + half, y + half).clipped(width=image.width, height=image.height).rounded_out()
    except ValueError:
        return None


def same_region(region: Box | None, source: ImageRef, edited: ImageRef) -> Box | None:
    """Return the place of the edited image that shows what `region` is of the source."""
    if region is None:
        return None
    scaled = region.scaled(edited.width / source.width, edited.height / source.height).rounded_out()
    return scaled.clipped(width=edited.width, height=edited.height)
