"""Images by the SHA-256 of their bytes: read from files, decoded when pixels are first needed, encoded for a model."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from PIL import Image

from editloupe import files
from editloupe.data.decoding import (
    COMPOSITED,
    EXTENSIONS,
    MAX_PIXELS,
    MIN_SIDE,
    RGB,
    decode,
    encode_png,
    examine,
    extension,
    header,
    layers,
)
from editloupe.data.memory import Memory
from editloupe.errors import ImageError
from editloupe.values import ImageRef

__all__ = [
    "CACHE_BYTES", "MAX_BYTES", "MAX_PIXELS", "MIN_SIDE", "RGB", "EncodedImage", "ImagePolicy", "ImageStore", "decode",
    "encode_png", "extension",
]  # fmt: skip

CACHE_BYTES: Final = 2**28
"""Of decoded images that a store keeps at hand."""
MAX_BYTES: Final = 2**30
"""Larger files are refused unread."""
_NOTED: Final = 2**20
"""Images of which a store remembers what decoding them does."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_Reader: TypeAlias = Callable[[], bytes]


@dataclass(frozen=True, kw_only=True)
class ImagePolicy:
    """How images are put on the wire."""

    formats: tuple[str, ...] = ("image/png", "image/jpeg", "image/webp")
    """Media types that the backend takes as they are."""
    max_side: int | None = None
    """Longest side in px; None for no limit."""

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) in px at which an image of that size is sent."""
        side = max(width, height)
        if self.max_side is None or side <= self.max_side:
            return width, height
        scale = self.max_side / side
        return max(1, round(width * scale)), max(1, round(height * scale))

    def __str__(self) -> str:
        side = "native size" if self.max_side is None else f"at most {self.max_side} px"
        return f"own bytes where {', '.join(f.removeprefix('image/') for f in self.formats)}, else PNG; {side}"


@dataclass(frozen=True, kw_only=True)
class EncodedImage:
    """What goes to a model: bytes, media type, and the size in px that the model gets."""

    data: bytes
    media_type: str
    width: int
    height: int


class ImageStore:
    """All images of a run, each held once.

    folder: where bytes are kept as `<ab>/<sha256>.<ext>`; None keeps derived images in memory, and so does `writes=False`,
    which only reads what lies in the folder.
    Thread-safe. Decoded images (read-only arrays) are cached up to `cache_bytes`, encoded ones up to an eighth of it.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_pixels: int = MAX_PIXELS,
        cache_bytes: int = CACHE_BYTES,
        writes: bool = True,
    ) -> None:
        self.folder, self.max_pixels, self.cache_bytes, self.writes = folder, max_pixels, cache_bytes, writes
        self._lock = threading.RLock()
        self._paths: dict[str, Path] = {}
        self._held: dict[str, tuple[ImageRef, bytes | _Reader]] = {}
        """Images that lie in no file: their bytes, or what reads them once more."""
        self._notes = Memory[tuple[str, ...]](_NOTED, lambda notes: 1)
        self._arrays = Memory[RGB](cache_bytes, lambda rgb: rgb.nbytes)
        # A run's crops are asked for in their own conversation only: an eighth is enough for those under way.
        self._encoded = Memory[EncodedImage](cache_bytes // 8, lambda made: len(made.data))

    def add_file(self, path: Path) -> ImageRef:
        """Identify a file by its bytes and its header; pixels are decoded when they are first needed.

        Raises ImageError: missing, empty, not an image, HEIC without the extra, too large, too small.
        """
        try:
            if (size := path.stat().st_size) > MAX_BYTES:
                raise ImageError(
                    f"{path}: {size:,} bytes is more than the limit of {MAX_BYTES:,}; compress or scale it down"
                )
            ref = self._identify(files.read_bytes(path), str(path))
        except FileNotFoundError:
            raise ImageError(f"{path}: no such file; expected an image") from None
        except OSError as error:
            raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._paths.setdefault(ref.sha256, path)
        return replace(ref, path=path)

    def add_bytes(self, data: bytes, *, name: str = "image", again: _Reader | None = None) -> ImageRef:
        """Add the bytes of an image file, kept in the folder or in memory. Raises ImageError as `add_file`.

        again: reads the same bytes once more, from any thread, so that memory need not keep them. It raises ImageError.
        """
        ref = self._identify(data, name)
        self._keep(ref, data, again)
        return ref

    def add_array(self, rgb: RGB) -> ImageRef:
        """Add an H×W×3 uint8 RGB array, kept as PNG. The same pixels give the same bytes."""
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
            raise ValueError(f"expected an H×W×3 uint8 array, found shape {rgb.shape}, {rgb.dtype}")
        data = encode_png(rgb)
        sha256, (height, width) = hashlib.sha256(data).hexdigest(), rgb.shape[:2]
        ref = ImageRef(sha256=sha256, width=width, height=height, media_type="image/png")
        # Known without decoding what was just encoded.
        self._notes(sha256, lambda: ())
        self._keep(ref, data)
        return ref

    def data(self, ref: ImageRef) -> bytes:
        """Return the image's own bytes. Raises ImageError where they are gone or no longer the same."""
        held = self._held.get(ref.sha256, (ref, None))[1]
        if isinstance(held, bytes):
            return held
        paths = [path for path in (self._paths.get(ref.sha256), ref.path, self._blob(ref)) if path is not None]
        for source in (*paths, ref.data, held):
            try:
                found = files.read_bytes(source) if isinstance(source, Path) else source() if callable(source) else source
            except OSError:
                continue  # another place may hold them; the error below lists all
            if found is not None and hashlib.sha256(found).hexdigest() == ref.sha256:
                # A ref that went through JSON has lost its path and its bytes; the store keeps them.
                if isinstance(source, Path):
                    self._paths.setdefault(ref.sha256, source)
                elif source is ref.data:
                    self._held[ref.sha256] = (ref, found)
                return found
        places = ", ".join(map(str, paths)) or "memory"
        hint = "" if paths else "; make the sample with Sample.from_images, which keeps them"
        raise ImageError(f"image {ref.sha256[:12]} is not to be found with its own bytes (looked in {places}){hint}")

    def array(self, ref: ImageRef) -> RGB:
        """Return decoded pixels, H×W×3 uint8 RGB, read-only. Raises ImageError where the file is damaged."""
        return self._arrays(ref.sha256, lambda: self._decoded(ref))

    def notes(self, ref: ImageRef) -> tuple[str, ...]:
        """Return what decoding does beyond reading ("alpha composited on white", "first of 12 frames").

        A file that was not decoded is examined, once for a store, and its pixels are not kept: most pictures of a run are
        sent as they are. Who needs pixels too asks for `array` first. Raises ImageError for a damaged or short file.
        """
        return self._notes(ref.sha256, lambda: examine(self.data(ref), name=_name(ref), max_pixels=self.max_pixels))

    def differ_where_transparent(self, one: ImageRef, other: ImageRef) -> bool:
        """Return True if two images whose decoded pixels are the same differ in color or alpha that white ground hides."""
        if one.sha256 == other.sha256 or not any(COMPOSITED in self.notes(ref) for ref in (one, other)):
            return False
        here, there = (layers(self.data(ref), name=_name(ref), max_pixels=self.max_pixels) for ref in (one, other))
        return not np.array_equal(here, there)

    def keep(self, ref: ImageRef) -> Path | None:
        """Make sure that the bytes lie in the folder; returns the path there, None where there is no folder."""
        if self.path(ref) is None and self.folder is not None and self.writes:
            self._keep(ref, self.data(ref))
        return self.path(ref)

    def write(self) -> None:
        """Write what was held in memory into the folder, and from now on every further image."""
        with self._lock:
            self.writes, held = True, [ref for ref, _ in self._held.values()]
        for ref in held:
            self.keep(ref)

    def path(self, ref: ImageRef) -> Path | None:
        """Return where the bytes lie in the folder; None where they do not."""
        return blob if (blob := self._blob(ref)) is not None and blob.exists() else None

    def encoded(self, ref: ImageRef, policy: ImagePolicy) -> EncodedImage:
        """Return the bytes for a model: the image's own where the policy takes them, else normalized PNG; always the same.

        Own bytes are sent only where nothing stands between them and the pixels that tools see: no EXIF rotation, alpha,
        odd color space or further frames.
        """
        return self._encoded((ref.sha256, policy), lambda: self._made(ref, policy))

    def _made(self, ref: ImageRef, policy: ImagePolicy) -> EncodedImage:
        width, height = policy.size(ref.width, ref.height)
        same_size = (width, height) == (ref.width, ref.height)
        if same_size and ref.media_type in policy.formats and not self.notes(ref):
            return EncodedImage(data=self.data(ref), media_type=ref.media_type, width=width, height=height)
        rgb = self.array(ref)
        if not same_size:
            rgb = np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.LANCZOS))
        return EncodedImage(data=encode_png(rgb), media_type="image/png", width=width, height=height)

    def _decoded(self, ref: ImageRef) -> RGB:
        rgb, notes = decode(self.data(ref), name=_name(ref), max_pixels=self.max_pixels)
        self._notes(ref.sha256, lambda: notes)
        rgb.setflags(write=False)
        return rgb

    def _identify(self, data: bytes, name: str) -> ImageRef:
        width, height, media_type = header(data, name=name, max_pixels=self.max_pixels)
        return ImageRef(sha256=hashlib.sha256(data).hexdigest(), width=width, height=height, media_type=media_type)

    def _keep(self, ref: ImageRef, data: bytes, again: _Reader | None = None) -> None:
        blob = self._blob(ref)
        if blob is not None and blob.exists():
            return
        if blob is None or not self.writes:
            with self._lock:
                self._held.setdefault(ref.sha256, (ref, again or data))
        else:
            files.write_whole(blob, data, below=blob.parents[2])

    def _blob(self, ref: ImageRef) -> Path | None:
        # A name from a file of somebody else may be a path.
        if self.folder is None or not _SHA256.fullmatch(ref.sha256):
            return None
        return self.folder / f"{ref.sha256[:2]}/{ref.sha256}.{EXTENSIONS.get(ref.media_type, 'bin')}"


def _name(ref: ImageRef) -> str:
    """Return how messages call an image."""
    return str(ref.path or ref.sha256[:12])
