"""Give pages their pictures: an image's address, its bytes in a form that browsers show, and thumbnails."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from PIL import Image

from editloupe import files
from editloupe.data.images import ImageStore, decode, encode_png, extension
from editloupe.errors import ImageError
from editloupe.imaging.masked import inside
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
_BLOB = re.compile(r"(?P<ab>[0-9a-f]{2})/(?P<sha>(?P=ab)[0-9a-f]{62})\.(?P<ext>[a-z]{3,4})")
_OVERLAY = re.compile(r"(?P<sha>[0-9a-f]{64})\.png")
_MASK_RGBA: Final = (214, 51, 108, 96)
"""--mask in viewer.css, seen through."""
_THUMB = re.compile(r"(?P<sha>[0-9a-f]{64})(?P<box>(?:-\d{1,6}){4})?\.jpg")


class Pictures:
    """The images of one run; thread-safe. Methods return None for what is not there."""

    def __init__(self, folder: Path, inside: Callable[[str], Path | None]) -> None:
        """inside: returns a file of the run folder by its path there, and None for what leads out of it."""
        self._folder = folder
        self._inside = inside
        self._store = ImageStore(folder / "blobs", cache_bytes=64 * 2**20)
        self._made = lru_cache(maxsize=_KEPT)(self._thumb)

    def address(self, ref: ImageRef) -> str | None:
        """Return where a page finds the image, from the run's own address; None if its bytes were not kept."""
        path = self._store.path(ref)
        if path is None:
            return None
        extension = path.suffix[1:]
        return f"blobs/{ref.sha256[:2]}/{ref.sha256}.{extension if extension in TYPES else 'png'}"

    def shown(self, name: str) -> tuple[bytes, str] | None:
        """Return (bytes, media type) of "ab/SHA256.ext". An image that browsers cannot show comes as PNG.

        None also for a file whose bytes are no image of that type.
        """
        found = _BLOB.fullmatch(name)
        if found is None or found["ext"] not in TYPES:
            return None
        path = self._inside(f"blobs/{name}")
        other = self._other(found["sha"])
        try:
            if path is not None:
                data = files.read_bytes(path)
                return (data, TYPES[found["ext"]]) if extension(data, name=name) == found["ext"] else None
            if found["ext"] != "png" or other is None:
                return None
            pixels, _ = decode(files.read_bytes(other), name=other.name)
        except (ImageError, OSError):
            return None
        return encode_png(pixels), TYPES["png"]

    def thumb_name(self, ref: ImageRef, region: Box | None) -> str | None:
        """Return the name of a thumbnail. region: px of the image, None for all of it."""
        if self._store.path(ref) is None:
            return None
        cut = "" if region is None else "".join(f"-{v}" for v in region.ints())
        return f"{ref.sha256}{cut}.jpg"

    def thumb(self, name: str) -> bytes | None:
        """Return a JPEG of at most THUMB_PX a side, made when it is asked for."""
        try:
            return self._made(name)
        except (ImageError, ValueError):
            return None

    def overlay_name(self, mask: ImageRef) -> str | None:
        """Return the name of a mask's overlay; None if the run did not keep the mask."""
        return None if self._store.path(mask) is None else f"{mask.sha256}.png"

    def overlay(self, name: str) -> bytes | None:
        """Return a mask as a PNG to be laid over an image: coloured where change was allowed, opaque at the edge."""
        found = _OVERLAY.fullmatch(name)
        path = self._other(found["sha"]) if found else None
        if found is None or path is None:
            return None
        try:
            mask = inside(self._store.array(ImageRef(sha256=found["sha"], width=0, height=0, media_type="", path=path)))
        except ImageError:
            return None
        made = np.zeros((*mask.shape, 4), dtype=np.uint8)
        made[mask] = _MASK_RGBA
        # About a pixel in a hundred: the picture is shown smaller or larger than it is.
        side = max(3, round(max(mask.shape) / 150) | 1)
        core = cv2.erode(mask.astype(np.uint8), np.ones((side, side), np.uint8), borderValue=0).astype(bool)
        made[mask & ~core, 3] = 255
        out = io.BytesIO()
        Image.fromarray(made).save(out, "PNG")
        return out.getvalue()

    def _thumb(self, name: str) -> bytes:
        """Raises ImageError, ValueError."""
        found = _THUMB.fullmatch(name)
        path = self._other(found["sha"]) if found else None
        if found is None or path is None:
            raise ValueError(f"no image for the thumbnail {name!r}")
        # Finding and decoding these bytes needs neither width, height nor type.
        ref = ImageRef(sha256=found["sha"], width=0, height=0, media_type="", path=path)
        image = Image.fromarray(self._store.array(ref))
        if found["box"]:
            x0, y0, x1, y1 = (int(v) for v in found["box"][1:].split("-"))
            image = image.crop(Box(x0, y0, x1, y1).clipped(width=image.width, height=image.height).ints())
        image.thumbnail((THUMB_PX, THUMB_PX), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        image.save(out, "JPEG", quality=82)
        return out.getvalue()

    def _other(self, sha: str) -> Path | None:
        """The blob with this hash, whatever its extension."""
        folder = self._folder / "blobs" / sha[:2]
        names = sorted(p.name for p in folder.glob(f"{sha}.*"))
        return self._inside(f"blobs/{sha[:2]}/{names[0]}") if names else None


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
