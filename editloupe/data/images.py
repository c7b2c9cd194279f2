"""Images by the SHA-256 of their bytes: read, checked, decoded to RGB, encoded for a model.

A decoded image is H×W×3 uint8, RGB, sRGB, EXIF rotation applied, alpha composited on white. What was done to get there
is in `notes`.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import tempfile
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, ImageOps, UnidentifiedImageError

from editloupe.errors import ImageError
from editloupe.values import ImageRef

RGB: TypeAlias = NDArray[np.uint8]
"""H×W×3 uint8, RGB, 0..255."""

MAX_PIXELS: Final = 150_000_000
"""Larger images are refused before decoding: a guard against decompression bombs (450 MB as RGB)."""

MIN_SIDE: Final = 8
"""Smaller images hold nothing that could be compared."""

_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif", "image/bmp": "bmp",
               "image/tiff": "tiff", "image/heif": "heic", "image/avif": "avif"}  # fmt: skip
_ROTATED = {5, 6, 7, 8}


@dataclass(frozen=True, kw_only=True)
class ImagePolicy:
    """How images are put on the wire.

    formats: media types that the backend takes as they are.   max_side: longest side in px; None for no limit.
    """

    formats: tuple[str, ...] = ("image/png", "image/jpeg", "image/webp")
    max_side: int | None = None

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

    folder: where bytes are kept as `<ab>/<sha256>.<ext>`; None keeps derived images in memory.
    Thread-safe. Decoded images are cached up to `cache_bytes` and are read-only arrays.
    """

    def __init__(self, folder: Path | None = None, *, max_pixels: int = MAX_PIXELS, cache_bytes: int = 256 * 2**20) -> None:
        self.folder, self.max_pixels, self.cache_bytes = folder, max_pixels, cache_bytes
        self._lock = threading.RLock()
        self._paths: dict[str, Path] = {}
        self._memory: dict[str, bytes] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self._arrays: OrderedDict[str, RGB] = OrderedDict()
        self._encoded: dict[tuple[str, ImagePolicy], EncodedImage] = {}

    def add_file(self, path: Path) -> ImageRef:
        """Read and identify a file; pixels are decoded when they are first needed.

        Raises ImageError: missing, empty, not an image, HEIC without the extra, too large, too small.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ImageError(f"{path}: no such file; expected an image") from None
        except IsADirectoryError:
            raise ImageError(f"{path}: is a folder; expected an image file") from None
        except OSError as error:
            raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from error
        ref = self._identify(data, str(path))
        with self._lock:
            self._paths.setdefault(ref.sha256, path)
        return ImageRef(sha256=ref.sha256, width=ref.width, height=ref.height, media_type=ref.media_type, path=path)

    def add_bytes(self, data: bytes, *, name: str = "image") -> ImageRef:
        """Bytes of an image file, kept in the folder or in memory. Raises ImageError as `add_file`."""
        ref = self._identify(data, name)
        self._keep(ref, data)
        return ref

    def add_array(self, rgb: RGB) -> ImageRef:
        """An H×W×3 uint8 RGB array, kept as PNG. The same pixels give the same bytes."""
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
            raise ValueError(f"expected an H×W×3 uint8 array, found shape {rgb.shape}, {rgb.dtype}")
        data = encode_png(rgb)
        ref = ImageRef(
            sha256=hashlib.sha256(data).hexdigest(), width=rgb.shape[1], height=rgb.shape[0], media_type="image/png"
        )
        self._keep(ref, data)
        return ref

    def data(self, ref: ImageRef) -> bytes:
        """The image's own bytes. Raises ImageError where they are gone or no longer the same."""
        with self._lock:
            data = self._memory.get(ref.sha256)
            candidates = [self._paths.get(ref.sha256), ref.path, self._blob(ref)]
        if data is not None:
            return data
        for path in candidates:
            if path is not None and path.is_file():
                found = path.read_bytes()
                if hashlib.sha256(found).hexdigest() == ref.sha256:
                    return found
        places = ", ".join(str(p) for p in candidates if p is not None) or "memory"
        raise ImageError(f"image {ref.sha256[:12]} is not to be found with its own bytes (looked in {places})")

    def array(self, ref: ImageRef) -> RGB:
        """Decoded pixels, H×W×3 uint8 RGB, read-only. Raises ImageError where the file is damaged."""
        with self._lock:
            cached = self._arrays.get(ref.sha256)
            if cached is not None:
                self._arrays.move_to_end(ref.sha256)
                return cached
        rgb, notes = decode(self.data(ref), name=str(ref.path or ref.sha256[:12]), max_pixels=self.max_pixels)
        rgb.setflags(write=False)
        with self._lock:
            self._notes[ref.sha256] = notes
            self._arrays[ref.sha256] = rgb
            while len(self._arrays) > 1 and sum(a.nbytes for a in self._arrays.values()) > self.cache_bytes:
                self._arrays.popitem(last=False)
        return rgb

    def notes(self, ref: ImageRef) -> tuple[str, ...]:
        """What decoding did beyond reading ("alpha composited on white", "first of 12 frames")."""
        if ref.sha256 not in self._notes:
            self.array(ref)
        return self._notes[ref.sha256]

    def keep(self, ref: ImageRef) -> Path | None:
        """Make sure that the bytes lie in the folder; returns the path there, None where there is no folder."""
        blob = self._blob(ref)
        if blob is not None and not blob.exists():
            _write_once(blob, self.data(ref))
        return blob

    def encoded(self, ref: ImageRef, policy: ImagePolicy) -> EncodedImage:
        """The bytes for a model: the image's own where the policy takes them, else normalised PNG. Made once, then kept.

        Own bytes are sent only where nothing stands between them and the pixels that tools see: no EXIF rotation, alpha,
        odd colour space or further frames.
        """
        key = (ref.sha256, policy)
        with self._lock:
            if key in self._encoded:
                return self._encoded[key]
        side = max(ref.width, ref.height)
        if policy.max_side is not None and side > policy.max_side:
            scale = policy.max_side / side
            size = (max(1, round(ref.width * scale)), max(1, round(ref.height * scale)))
            small = Image.fromarray(self.array(ref)).resize(size, Image.Resampling.LANCZOS)
            made = EncodedImage(data=encode_png(np.asarray(small)), media_type="image/png", width=size[0], height=size[1])
        elif ref.media_type in policy.formats and not self.notes(ref):
            made = EncodedImage(data=self.data(ref), media_type=ref.media_type, width=ref.width, height=ref.height)
        else:
            made = EncodedImage(
                data=encode_png(self.array(ref)), media_type="image/png", width=ref.width, height=ref.height
            )
        with self._lock:
            return self._encoded.setdefault(key, made)

    def _identify(self, data: bytes, name: str) -> ImageRef:
        with _opened(data, name) as image:
            width, height = image.size
            _check_size(width, height, name, self.max_pixels)
            if _orientation(image) in _ROTATED:
                width, height = height, width
            media_type = Image.MIME.get(image.format or "", "application/octet-stream")
        return ImageRef(sha256=hashlib.sha256(data).hexdigest(), width=width, height=height, media_type=media_type)

    def _keep(self, ref: ImageRef, data: bytes) -> None:
        blob = self._blob(ref)
        if blob is None:
            with self._lock:
                self._memory.setdefault(ref.sha256, data)
        elif not blob.exists():
            _write_once(blob, data)

    def _blob(self, ref: ImageRef) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / ref.sha256[:2] / f"{ref.sha256}.{_EXTENSIONS.get(ref.media_type, 'bin')}"


def decode(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> tuple[RGB, tuple[str, ...]]:
    """An image file's bytes as H×W×3 uint8 RGB, and notes on what stood in the way. Raises ImageError."""
    with _opened(data, name) as opened:
        _check_size(*opened.size, name, max_pixels)
        notes: list[str] = []
        frames = getattr(opened, "n_frames", 1)
        try:
            opened.seek(0)
            opened.load()
        except (OSError, ValueError, SyntaxError, EOFError, struct.error) as error:
            raise ImageError(f"{name}: the image data is damaged or cut off ({error}); expected a whole file") from error
        if frames > 1:
            notes.append(f"first of {frames} frames")
        image: Image.Image = opened
        if _orientation(image) not in (None, 1):
            image = ImageOps.exif_transpose(image)
            notes.append("EXIF rotation applied")
        image = _to_srgb(image, notes)
        return np.array(_flattened(image, notes), dtype=np.uint8), tuple(notes)


def encode_png(rgb: RGB) -> bytes:
    """PNG bytes, the same for the same pixels."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, format="PNG", compress_level=4)
    return buffer.getvalue()


def _opened(data: bytes, name: str) -> Image.Image:
    if not data:
        raise ImageError(f"{name}: the file is empty; expected an image")
    if data[4:12] in (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftyphevc", b"ftypmsf1"):
        _register_heif(name)
    try:
        with warnings.catch_warnings():
            # The size is checked by us, with a message that says what to do.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(data))
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: {error}; expected at most {MAX_PIXELS:,} px") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image that can be read; expected PNG, JPEG, WebP, GIF, BMP or TIFF") from error
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise ImageError(f"{name}: the image header is damaged ({error})") from error


def _register_heif(name: str) -> None:
    try:
        import pillow_heif
    except ImportError as error:
        raise ImageError(f"{name}: a HEIC image needs an optional package: pip install 'editloupe[heif]'") from error
    pillow_heif.register_heif_opener()


def _check_size(width: int, height: int, name: str, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise ImageError(
            f"{name}: {width:,}×{height:,} px is more than the limit of {max_pixels:,} px; scale the image down first"
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: {width}×{height} px is too small to compare; expected at least {MIN_SIDE} px a side")


def _orientation(image: Image.Image) -> int | None:
    try:
        value = image.getexif().get(ExifTags.Base.Orientation)
    except (OSError, ValueError, SyntaxError, struct.error):
        return None
    return value if isinstance(value, int) and 1 <= value <= 8 else None


def _to_srgb(image: Image.Image, notes: list[str]) -> Image.Image:
    """Colours of an embedded ICC profile brought to sRGB; alpha is kept."""
    profile = image.info.get("icc_profile")
    if not profile or image.mode not in ("RGB", "RGBA", "CMYK", "L", "LA"):
        return image
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "srgb" in (ImageCms.getProfileDescription(source) or "").lower():
            return image
        alpha = image.getchannel("A") if image.mode in ("RGBA", "LA") else None
        colour = image.convert(image.mode.removesuffix("A")) if alpha is not None else image
        converted = ImageCms.profileToProfile(colour, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        notes.append("unreadable ICC profile ignored")
        return image
    notes.append("ICC profile converted to sRGB")
    if converted is None:
        return image
    if alpha is not None:
        converted.putalpha(alpha)
    return converted


def _flattened(image: Image.Image, notes: list[str]) -> Image.Image:
    """Any mode as RGB: alpha on white, 16 bits to 8, palettes, grey and CMYK expanded."""
    if image.mode in ("RGB",) and "transparency" not in image.info:
        return image
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N", "F"):
        values = np.asarray(image, dtype=np.float64)
        top = float(values.max(initial=0.0))
        scale = 255.0 / (65535.0 if top > 255 else 255.0 if top > 1 or image.mode != "F" else 1.0)
        if image.mode != "F":
            scale = 255.0 / 65535.0
        notes.append("reduced to 8 bits")
        return Image.fromarray(np.clip(np.rint(values * scale), 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        if rgba.getchannel("A").getextrema() != (255, 255):
            notes.append("alpha composited on white")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    if image.mode == "CMYK":
        notes.append("CMYK converted to RGB")
    return image.convert("RGB")


def _write_once(path: Path, data: bytes) -> None:
    """Whole or not at all: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(temporary).replace(path)
