"""Images by the SHA-256 of their bytes: read, checked, decoded to RGB, encoded for a model.

A decoded image is H×W×3 uint8, RGB, sRGB, EXIF rotation applied, alpha composited on white. What was done to get there
is in `notes`.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import struct
import threading
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError

from editloupe import files
from editloupe.errors import ImageError
from editloupe.values import ImageRef

RGB: TypeAlias = NDArray[np.uint8]
"""H×W×3 uint8, RGB, 0..255."""
MAX_PIXELS: Final = 150_000_000
"""Larger images are refused before decoding: a guard against decompression bombs (450 MB as RGB)."""
CACHE_BYTES: Final = 2**28
"""Of decoded images that a store keeps at hand."""
MIN_SIDE: Final = 8
"""Smaller images hold nothing that could be compared."""
MAX_BYTES: Final = 2**30
"""Larger files are refused unread."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/mpo": "jpg", "image/webp": "webp", "image/gif": "gif",
               "image/bmp": "bmp", "image/tiff": "tiff", "image/heif": "heic", "image/avif": "avif"}  # fmt: skip

# Pillow knows many more, some of which start other programs (EPS) or open further files. Its JPEG opens MPO as well.
_PLUGINS = {"PNG": "Png", "JPEG": "Jpeg", "WEBP": "WebP", "GIF": "Gif", "BMP": "Bmp", "TIFF": "Tiff", "AVIF": "Avif",
            "PPM": "Ppm"}  # fmt: skip
_READABLE = "PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or PPM"

_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_AVIF_BRANDS = {b"avif", b"avis"}

# EXIF orientation (1 is upright) → what makes the image upright.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_CONVERTED = "ICC profile converted to sRGB"
_COMPOSITED = "alpha composited on white"
_PNG_ORIENTATION = (b"eXIf", b"Raw profile type exif", b"tiff:Orientation")
_SIDEWAYS = {5, 6, 7, 8}

# What Pillow's plug-ins raise on bytes that are cut off or changed.
_DAMAGE = (
    OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, IndexError, KeyError, TypeError,
    OverflowError, AttributeError, RuntimeError, ZeroDivisionError,
)  # fmt: skip

_warnings_lock = threading.Lock()


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
        self._memory: dict[str, bytes] = {}
        self._held: dict[str, ImageRef] = {}
        self._readers: dict[str, Callable[[], bytes]] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self._hashed: dict[Path, tuple[files.Stamp, str]] = {}
        """File → its stamp when its bytes were hashed, and their SHA-256."""
        self._arrays: OrderedDict[str, RGB] = OrderedDict()
        self._decoding: dict[str, threading.Lock] = {}
        self._encoded: OrderedDict[tuple[str, ImagePolicy], EncodedImage] = OrderedDict()
        self._array_bytes = self._encoded_bytes = 0

    def add_file(self, path: Path) -> ImageRef:
        """Identify a file, for which it is read; pixels are decoded when they are first needed.

        Raises ImageError: missing, empty, not an image, HEIC without the extra, too large, too small.
        """
        try:
            seen = path.stat()
            # A pipe or a device would block.
            if not stat.S_ISREG(seen.st_mode):
                what = "a folder" if path.is_dir() else "not a regular file"
                raise ImageError(f"{path}: is {what}; expected an image file")
            if seen.st_size > MAX_BYTES:
                raise ImageError(
                    f"{path}: {seen.st_size:,} bytes is more than the limit of {MAX_BYTES:,}; compress or scale it down"
                )
            data, stamp = files.read_stamped(path)
        except FileNotFoundError:
            raise ImageError(f"{path}: no such file; expected an image") from None
        except OSError as error:
            raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from error
        ref = self._identify(data, str(path))
        with self._lock:
            self._paths.setdefault(ref.sha256, path)
            self._hashed[path] = stamp, ref.sha256
        return replace(ref, path=path)

    def add_bytes(self, data: bytes, *, name: str = "image", again: Callable[[], bytes] | None = None) -> ImageRef:
        """Add the bytes of an image file, kept in the folder or in memory. Raises ImageError as `add_file`.

        again: reads the same bytes once more, from any thread, so that memory need not keep them. It raises ImageError.
        """
        ref = self._identify(data, name)
        if again is not None:
            with self._lock:
                self._readers.setdefault(ref.sha256, again)
        self._keep(ref, data)
        return ref

    def add_array(self, rgb: RGB) -> ImageRef:
        """Add an H×W×3 uint8 RGB array, kept as PNG. The same pixels give the same bytes."""
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
            raise ValueError(f"expected an H×W×3 uint8 array, found shape {rgb.shape}, {rgb.dtype}")
        data = encode_png(rgb)
        sha256, (height, width) = hashlib.sha256(data).hexdigest(), rgb.shape[:2]
        ref = ImageRef(sha256=sha256, width=width, height=height, media_type="image/png")
        with self._lock:
            # Known without decoding what was just encoded.
            self._notes[sha256] = ()
        self._keep(ref, data)
        return ref

    def data(self, ref: ImageRef) -> bytes:
        """Return the image's own bytes. Raises ImageError where they are gone or no longer the same."""
        with self._lock:
            data = self._memory.get(ref.sha256)
            again = self._readers.get(ref.sha256)
            candidates = [self._paths.get(ref.sha256), ref.path, self._blob(ref)]
        if data is not None:
            return data
        if ref.data is not None:
            own = ref.data() if callable(ref.data) else ref.data
            if hashlib.sha256(own).hexdigest() == ref.sha256:
                with self._lock:
                    # A ref that went through JSON has lost its bytes; the store keeps them.
                    self._memory.setdefault(ref.sha256, own)
                return own
        for path in candidates:
            if path is not None and path.is_file():
                try:
                    found, stamp = files.read_stamped(path)
                except OSError:
                    continue  # another candidate may hold them; the error below lists all
                if self._hashed.get(path) != (stamp, ref.sha256) and hashlib.sha256(found).hexdigest() != ref.sha256:
                    continue
                with self._lock:
                    # A ref that went through JSON has lost its path; the store keeps it.
                    self._paths.setdefault(ref.sha256, path)
                    self._hashed[path] = stamp, ref.sha256
                return found
        if again is not None and hashlib.sha256(found := again()).hexdigest() == ref.sha256:
            return found
        places = ", ".join(str(p) for p in candidates if p is not None) or "memory"
        # Of an image that lies in no file, another store has the bytes.
        hint = "" if places != "memory" else "; make the sample with Sample.from_images, which keeps them"
        raise ImageError(f"image {ref.sha256[:12]} is not to be found with its own bytes (looked in {places}){hint}")

    def array(self, ref: ImageRef) -> RGB:
        """Return decoded pixels, H×W×3 uint8 RGB, read-only. Raises ImageError where the file is damaged."""
        with self._lock:
            # One thread decodes, and others that ask for the same image wait for it.
            decoding = self._decoding.setdefault(ref.sha256, threading.Lock())
        with decoding:
            with self._lock:
                if ref.sha256 in self._arrays:
                    self._arrays.move_to_end(ref.sha256)
                    return self._arrays[ref.sha256]
            rgb, notes = decode(self.data(ref), name=str(ref.path or ref.sha256[:12]), max_pixels=self.max_pixels)
            rgb.setflags(write=False)
            with self._lock:
                self._notes[ref.sha256] = notes
                self._arrays[ref.sha256] = rgb
                self._array_bytes += rgb.nbytes
                while len(self._arrays) > 1 and self._array_bytes > self.cache_bytes:
                    self._array_bytes -= self._arrays.popitem(last=False)[1].nbytes
        return rgb

    def notes(self, ref: ImageRef) -> tuple[str, ...]:
        """Return what decoding does beyond reading ("alpha composited on white", "first of 12 frames").

        Nothing is decoded where the header tells that there is nothing to do. Raises ImageError for a file that is cut off,
        and for other damage that decoding meets.
        """
        if ref.sha256 not in self._notes:
            with _opened(data := self.data(ref), str(ref.path or ref.sha256[:12]), self.max_pixels) as image:
                plain = _is_plain(image, data) and _orientation(image, data) in (None, 1)
            if plain:
                self._notes[ref.sha256] = ()
            else:
                self.array(ref)
        return self._notes[ref.sha256]

    def profile(self, ref: ImageRef) -> bytes | None:
        """Return the embedded ICC profile by which decoding brought the colours to sRGB; None where it did not."""
        if _CONVERTED not in self.notes(ref):
            return None
        with _opened(self.data(ref), ref.sha256[:12], self.max_pixels) as image:
            return cast("bytes | None", image.info.get("icc_profile"))

    def differ_where_transparent(self, one: ImageRef, other: ImageRef) -> bool:
        """Return True if two images whose decoded pixels are the same differ in colour or alpha that white ground hides."""
        if one.sha256 == other.sha256 or not any(_COMPOSITED in self.notes(ref) for ref in (one, other)):
            return False
        here, there = (_layers(self.data(ref), ref.sha256[:12], self.max_pixels) for ref in (one, other))
        return not np.array_equal(here, there)

    def in_memory(self) -> dict[str, bytes]:
        """Return SHA-256 → bytes of the images that are held in memory."""
        with self._lock:
            return dict(self._memory)

    def keep(self, ref: ImageRef) -> Path | None:
        """Make sure that the bytes lie in the folder; returns the path there, None where there is no folder."""
        if self.path(ref) is None and self.folder is not None and self.writes:
            self._keep(ref, self.data(ref))
        return self.path(ref)

    def write(self) -> None:
        """Write what was held in memory into the folder, and from now on every further image."""
        with self._lock:
            self.writes, held = True, dict(self._held)
        for ref in held.values():
            self.keep(ref)

    def path(self, ref: ImageRef) -> Path | None:
        """Return where the bytes lie in the folder; None where they do not."""
        blob = self._blob(ref)
        return blob if blob is not None and blob.exists() else None

    def encoded(self, ref: ImageRef, policy: ImagePolicy) -> EncodedImage:
        """Return the bytes for a model: the image's own where the policy takes them, else normalised PNG; always the same.

        Own bytes are sent only where nothing stands between them and the pixels that tools see: no EXIF rotation, alpha,
        odd colour space or further frames.
        """
        key = (ref.sha256, policy)
        with self._lock:
            if key in self._encoded:
                self._encoded.move_to_end(key)
                return self._encoded[key]
        width, height = policy.size(ref.width, ref.height)
        same_size = (width, height) == (ref.width, ref.height)
        if same_size and ref.media_type in policy.formats and not self.notes(ref):
            data, media_type = self.data(ref), ref.media_type
        else:
            rgb = self.array(ref)
            if not same_size:
                rgb = np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.LANCZOS))
            data, media_type = encode_png(rgb), "image/png"
        made = EncodedImage(data=data, media_type=media_type, width=width, height=height)
        with self._lock:
            if key in self._encoded:
                return self._encoded[key]
            self._encoded[key] = made
            self._encoded_bytes += len(made.data)
            # A run's crops are asked for in their own conversation only: an eighth is enough for those under way.
            while len(self._encoded) > 1 and self._encoded_bytes > self.cache_bytes // 8:
                self._encoded_bytes -= len(self._encoded.popitem(last=False)[1].data)
        return made

    def _identify(self, data: bytes, name: str) -> ImageRef:
        with _opened(data, name, self.max_pixels) as image:
            width, height = image.size
            _check_size(width, height, name, self.max_pixels)
            turned = _orientation(image, data)
            if turned in _SIDEWAYS:
                width, height = height, width
            media_type, plain = _media_type(image), turned in (None, 1) and _is_plain(image, data)
        ref = ImageRef(sha256=hashlib.sha256(data).hexdigest(), width=width, height=height, media_type=media_type)
        if plain:
            self._notes.setdefault(ref.sha256, ())
        return ref

    def _keep(self, ref: ImageRef, data: bytes) -> None:
        blob = self._blob(ref)
        if blob is not None and blob.exists():
            return
        if blob is None or not self.writes:
            with self._lock:
                if ref.sha256 not in self._readers:
                    self._memory.setdefault(ref.sha256, data)
                self._held.setdefault(ref.sha256, ref)
        else:
            assert self.folder is not None
            files.write_whole(blob, data, below=self.folder.parent)

    def _blob(self, ref: ImageRef) -> Path | None:
        # A name from a file of somebody else may be a path.
        if self.folder is None or not _SHA256.fullmatch(ref.sha256):
            return None
        return self.folder / f"{ref.sha256[:2]}/{ref.sha256}.{_EXTENSIONS.get(ref.media_type, 'bin')}"


def decode(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> tuple[RGB, tuple[str, ...]]:
    """Decode an image file's bytes to H×W×3 uint8 RGB, read-only, with notes on what stood in the way.

    Raises ImageError.
    """
    with _opened(data, name, max_pixels) as image:
        _check_size(*image.size, name, max_pixels)
        if _is_plain(image, data) and _orientation(image, data) in (None, 1):
            rgb = _decode_plain(data)
            if rgb is not None:
                return rgb, ()
        notes: list[str] = []
        try:
            frames = getattr(image, "n_frames", 1)
            image.seek(0)
            image.load()
            if frames > 1:
                notes.append(f"first of {frames} frames")
            turn = _turn(image)
            if turn is not None:
                notes.append("EXIF rotation applied")
            flat = _flattened(image, notes, deep=_has_16_bits(image, data))
        except _DAMAGE as error:
            raise ImageError(f"{name}: the image data is damaged or cut off ({error}); expected a whole file") from error
        return np.asarray(flat if turn is None else flat.transpose(turn), dtype=np.uint8), tuple(notes)


def _is_plain(image: Image.Image, data: bytes) -> bool:
    """Return True if an opened file is a whole JPEG or PNG of 8-bit RGB with nothing to convert or to composite.

    No pixel is decoded: a JPEG is whole if it has its end, a PNG if each part fits its checksum. Whether it is upright
    stands elsewhere.
    """
    whole = {"JPEG": _is_whole_jpeg, "PNG": _is_whole_png}.get(image.format or "")
    return (
        whole is not None
        and image.mode == "RGB"
        and not image.info.get("icc_profile")
        and image.info.get("transparency") is None
        and getattr(image, "n_frames", 1) == 1
        and not _has_16_bits(image, data)
        and whole(data)
    )


def _is_whole_jpeg(data: bytes) -> bool:
    return data.endswith(b"\xff\xd9")


def _is_whole_png(data: bytes) -> bool:
    at, kind = 8, b""
    while at + 12 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 8 + length
        if zlib.crc32(memoryview(data)[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            return False
        at = end + 4
    return kind == b"IEND" and at == len(data)


def _beside_pixels(png: bytes) -> bytes:
    """Return a PNG without its chunks of pixels, which are nearly all of it, and without what follows its end.

    Damage stays in.
    """
    parts, at, kind = [], 8, b""
    while at + 8 <= len(png) and kind != b"IEND":
        end, kind = at + 12 + int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        if kind != b"IDAT":
            parts.append(png[at:end])
        at = end
    return b"".join(parts)


def _decode_plain(data: bytes) -> RGB | None:
    """Decode a plain file: to the pixels of Pillow, in less time. Return None where OpenCV cannot."""
    rgb = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
    return None if rgb is None else np.asarray(rgb, dtype=np.uint8)


def _layers(data: bytes, name: str, max_pixels: int) -> NDArray[np.uint8]:
    """Return an image file's bytes, which `decode` takes, as H×W×4 uint8 RGBA: not composited, else as there."""
    with _opened(data, name, max_pixels) as image:
        image.seek(0)
        image.load()
        rgb, alpha = _coloured(image, [], deep=_has_16_bits(image, data))
        if alpha is not None:
            rgb.putalpha(alpha)
        turn = _turn(image)
        rgba = rgb.convert("RGBA")
        return np.array(rgba if turn is None else rgba.transpose(turn), dtype=np.uint8)


def read_with_profile(rgb: RGB, profile: bytes) -> RGB | None:
    """Return H×W×3 uint8 RGB in sRGB, its levels read by an ICC profile; None where the profile is not for RGB."""
    notes: list[str] = []
    read = _to_srgb(Image.fromarray(rgb), profile, notes)
    return np.array(read, dtype=np.uint8) if _CONVERTED in notes else None


def profile_name(profile: bytes) -> str:
    """Return what a readable ICC profile calls itself, such as "Display P3", at most 40 characters."""
    return " ".join((ImageCms.getProfileDescription(io.BytesIO(profile)) or "").split())[:40].strip()


def extension(data: bytes, *, name: str) -> str:
    """Return the ending under which the store keeps these bytes, such as "png", by their header. Raises ImageError."""
    with _opened(data, name, MAX_PIXELS) as image:
        return _EXTENSIONS.get(_media_type(image), "bin")


def encode_png(rgb: RGB) -> bytes:
    """Encode H×W×3 uint8 RGB as PNG; the same pixels give the same bytes."""
    # One filter for all lines and runs alone, no search for the best of either: half the time of OpenCV's own choice, for
    # a photograph's file that is a tenth to a fifth longer.
    how = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    how += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP]
    written, data = cv2.imencode(".png", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), how)
    if not written:
        raise ImageError(f"an image of {rgb.shape[1]}×{rgb.shape[0]} px cannot be written as PNG")
    return data.tobytes()


def _media_type(image: Image.Image) -> str:
    return Image.MIME.get(image.format or "", "application/octet-stream")


def _opened(data: bytes, name: str, max_pixels: int) -> Image.Image:
    if not data:
        raise ImageError(f"{name}: the file is empty; expected an image")
    _register_heif(data, name)
    try:
        with _no_warnings():
            return Image.open(io.BytesIO(data), formats=_formats() + ("HEIF",) * ("HEIF" in Image.OPEN))
    except Image.DecompressionBombError as error:
        found = str(error).partition(" exceeds")[0]  # "Image size (900000000 pixels)"; Pillow goes on with its own limit
        raise ImageError(
            f"{name}: {found} is more than the limit of {max_pixels:,} px, a guard against decompression bombs; "
            "scale the image down first"
        ) from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image that can be read; expected {_READABLE}") from error
    except _DAMAGE as error:
        raise ImageError(f"{name}: the image header is damaged ({error}); expected {_READABLE}") from error


@cache
def _formats() -> tuple[str, ...]:
    """Load Pillow's plug-ins for what is read here, a fifth of them, and return their formats."""
    for name in _PLUGINS.values():
        import_module(f"PIL.{name}ImagePlugin")
    return tuple(_PLUGINS)


def _register_heif(data: bytes, name: str) -> None:
    """Let Pillow read HEIC if these are the bytes of such an image. AVIF, which Pillow reads, begins with a like box."""
    end = min(int.from_bytes(data[:4], "big"), 256, len(data))
    brands = {data[i : i + 4] for i in (8, *range(16, end, 4))}
    if data[4:8] != b"ftyp" or not brands & _HEIC_BRANDS or brands & _AVIF_BRANDS:
        return
    try:
        import pillow_heif
    except ImportError as error:
        raise ImageError(f"{name}: a HEIC image needs an optional package: pip install 'editloupe[heif]'") from error
    if "HEIF" not in Image.OPEN:
        pillow_heif.register_heif_opener()


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Silence Pillow on large images and odd metadata: the size is checked here, the metadata is not used."""
    # The lock is there because `warnings` keeps its filters for all threads together.
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check_size(width: int, height: int, name: str, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise ImageError(
            f"{name}: {width:,}×{height:,} px is more than the limit of {max_pixels:,} px, a guard against "
            "decompression bombs; scale the image down first"
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: {width}×{height} px is too small to compare; expected at least {MIN_SIDE} px a side")


def _orientation(image: Image.Image, unread: bytes | None = None) -> int | None:
    """Return the EXIF orientation, 1 to 8; None for none. unread: the file's bytes if its pixels are not decoded yet."""
    # Pillow decodes a PNG to look for EXIF behind the pixels; most have none, and only headers are to be read.
    if unread is not None and image.format == "PNG":
        beside = _beside_pixels(unread)
        if not any(mark in beside for mark in _PNG_ORIENTATION):
            return None
    try:
        with _no_warnings():
            value = image.getexif().get(ExifTags.Base.Orientation)
    except _DAMAGE:
        return None
    return value if isinstance(value, int) and 1 <= value <= 8 else None


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what makes a decoded image upright; None where it is."""
    return _UPRIGHT.get(_orientation(image) or 1)


def _has_16_bits(image: Image.Image, data: bytes) -> bool:
    """Return True if the file holds more than 8 bits a channel, also where Pillow's mode no longer shows it."""
    if image.mode.startswith("I") or image.mode == "F":
        return True
    if image.format == "PNG":
        return data[24:25] == b"\x10"  # the bit depth in IHDR
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(258, (8,))
        return any(b > 8 for b in (bits if isinstance(bits, tuple) else (bits,)))
    return False


def _flattened(image: Image.Image, notes: list[str], *, deep: bool) -> Image.Image:
    """Return any mode as RGB, as `_coloured` does, with alpha composited on white."""
    rgb, alpha = _coloured(image, notes, deep=deep)
    if alpha is None or alpha.getextrema() == (255, 255):
        return rgb
    notes.append(_COMPOSITED)
    return Image.composite(rgb, Image.new("RGB", rgb.size, (255, 255, 255)), alpha)


def _coloured(image: Image.Image, notes: list[str], *, deep: bool) -> tuple[Image.Image, Image.Image | None]:
    """Return any mode as RGB and alpha, if any: 16 bits to 8, ICC colours to sRGB, palettes, grey and CMYK expanded."""
    profile = image.info.get("icc_profile")
    colour, alpha = _split(image, deep=deep)
    if deep:
        notes.append("reduced to 8 bits")
    if profile:
        colour = _to_srgb(colour, profile, notes)
    if image.mode == "CMYK":
        notes.append("CMYK converted to RGB")
    # Pillow copies on conversion, also where there is nothing to convert.
    return (colour if colour.mode == "RGB" else colour.convert("RGB")), alpha


def _split(image: Image.Image, *, deep: bool) -> tuple[Image.Image, Image.Image | None]:
    """Return 8-bit colour without alpha, and the alpha channel where there is one."""
    clear = image.info.get("transparency")
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image)
        grey = Image.fromarray(_to_8_bits(values))
        # A grey PNG may name one value that is transparent.
        return grey, Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)) if isinstance(clear, int) else None
    if image.mode not in ("RGBA", "LA", "PA", "La", "RGBa") and clear is None:
        return (image.convert("RGB") if image.mode == "P" else image), None
    if image.mode == "RGB" and deep and isinstance(clear, tuple):
        image = image.copy()
        image.info["transparency"] = tuple(v >> 8 for v in clear)
    rgba = image.convert("RGBA")
    rgb = rgba.convert("RGB")
    return (rgb.getchannel("R") if image.mode in ("LA", "La") else rgb), rgba.getchannel("A")


def _to_8_bits(values: NDArray[np.number]) -> RGB:
    """Return 16-bit or float grey as 8 bits: the high byte, as Pillow does; floats from 0..1 or 0..255."""
    if values.dtype.kind != "f":
        return np.asarray(np.clip(values, 0, 65535).astype(np.uint16) >> 8, dtype=np.uint8)
    grey = values.astype(np.float32)
    if not np.isfinite(grey).all():
        raise ValueError("pixels that are not finite numbers")
    top = float(grey.max(initial=0.0))
    scale = 255.0 if top <= 1 else 1.0 if top <= 255 else 255.0 / 65535.0
    return np.asarray(np.clip(np.rint(grey * scale), 0, 255), dtype=np.uint8)


def _to_srgb(colour: Image.Image, profile: bytes, notes: list[str]) -> Image.Image:
    """Return the colours of an embedded ICC profile brought to sRGB."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "srgb" in (ImageCms.getProfileDescription(source) or "").lower():
            return colour
        converted = ImageCms.profileToProfile(colour, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        notes.append("unreadable ICC profile ignored")
        return colour
    if converted is None:
        return colour
    notes.append(_CONVERTED)
    return converted
