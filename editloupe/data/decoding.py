"""Image files read by Pillow: H×W×3 uint8 RGB in sRGB, upright, alpha composited on white, the first frame of several.

What was done to get there is told in notes. A file is decoded as a whole or refused: no part of a picture is made up.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from editloupe.errors import ImageError

RGB: TypeAlias = NDArray[np.uint8]
"""H×W×3 uint8, RGB, 0..255."""
MAX_PIXELS: Final = 150_000_000
"""Larger images are refused before decoding: a guard against decompression bombs (450 MB as RGB)."""
MIN_SIDE: Final = 8
"""Smaller images hold nothing that could be compared."""
EXTENSIONS: Final = {"image/png": "png", "image/jpeg": "jpg", "image/mpo": "jpg", "image/webp": "webp", "image/gif": "gif",
                     "image/bmp": "bmp", "image/tiff": "tiff", "image/heif": "heic", "image/avif": "avif"}  # fmt: skip
"""Media type → the ending under which a store keeps such a file."""
COMPOSITED: Final = "alpha composited on white"
"""A note of `decode` that others ask for."""

# Pillow knows many more, some of which start other programs (EPS) or open further files.
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")
_READABLE: Final = "PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or PPM"
_HEIC_BRANDS: Final = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
# EXIF orientation (1 is upright) → what makes the image upright.
_TURN: Final = Image.Transpose
_UPRIGHT: Final = {2: _TURN.FLIP_LEFT_RIGHT, 3: _TURN.ROTATE_180, 4: _TURN.FLIP_TOP_BOTTOM, 5: _TURN.TRANSPOSE,
                   6: _TURN.ROTATE_270, 7: _TURN.TRANSVERSE, 8: _TURN.ROTATE_90}  # fmt: skip
# What Pillow's plug-ins raise on bytes that are cut off or changed.
_DAMAGE: Final = (
    OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, IndexError, KeyError, TypeError,
    OverflowError, AttributeError, RuntimeError, ZeroDivisionError,
)  # fmt: skip
_warnings_lock = threading.Lock()


def header(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> tuple[int, int, str]:
    """Return width and height in px of the upright image, and the media type, by the file's header.

    Raises ImageError for a file that is empty, no image, too large or too small. Pixels are not decoded.
    """
    with _opened(data, name, max_pixels) as image:
        width, height = image.size if _orientation(image) < 5 else image.size[::-1]
        return width, height, Image.MIME.get(image.format or "", "application/octet-stream")


def decode(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> tuple[RGB, tuple[str, ...]]:
    """Decode an image file's bytes to H×W×3 uint8 RGB, with notes on what stood in the way.

    Raises ImageError as `header`, and for a file that is damaged or cut off.
    """
    color, alpha, notes = _layers(data, name, max_pixels)
    if alpha is not None and COMPOSITED in notes:
        color = Image.composite(color, Image.new("RGB", color.size, (255, 255, 255)), alpha)
    return np.asarray(color, dtype=np.uint8), notes


def examine(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> tuple[str, ...]:
    """Return the notes of `decode`, and raise what it raises. No pixels are kept.

    A JPEG is decoded to an eighth of its size: its codes are read to the last, at a quarter of the time.
    """
    return _layers(data, name, max_pixels, small=True)[2]


def layers(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Return an image file's bytes as H×W×4 uint8 RGBA: as `decode`, and not composited. Raises ImageError."""
    color, alpha, _ = _layers(data, name, max_pixels)
    color.putalpha(255 if alpha is None else alpha)
    return np.asarray(color, dtype=np.uint8)


def extension(data: bytes, *, name: str) -> str:
    """Return the ending under which the store keeps these bytes, such as "png", by their header. Raises ImageError."""
    return EXTENSIONS.get(header(data, name=name)[2], "bin")


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


def _opened(data: bytes, name: str, max_pixels: int) -> Image.Image:
    """Return an image whose pixels are not decoded yet. Raises ImageError, also for a size out of bounds."""
    if not data:
        raise ImageError(f"{name}: the file is empty; expected an image")
    heic = data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS
    if heic:
        _register_heif(name)
    try:
        with _no_warnings():
            image = Image.open(io.BytesIO(data), formats=("HEIF",) if heic else _FORMATS)
        width, height = image.size
        found = f"{width:,}×{height:,} px" if width * height > max_pixels else ""
    except Image.DecompressionBombError as error:
        found = str(error).partition(" exceeds")[0]  # "Image size (900000000 pixels)"; Pillow goes on with its own limit
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image that can be read; expected {_READABLE}") from error
    except _DAMAGE as error:
        raise ImageError(f"{name}: the image header is damaged ({error}); expected {_READABLE}") from error
    if found:
        limit = f"the limit of {max_pixels:,} px, a guard against decompression bombs"
        raise ImageError(f"{name}: {found} is more than {limit}; scale the image down first")
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: {width}×{height} px is too small to compare; expected at least {MIN_SIDE} px a side")
    return image


def _register_heif(name: str) -> None:
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


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 is upright. Pillow turns the pixels of a TIFF, and its size, itself."""
    exif = Image.Exif()
    try:
        with _no_warnings():
            exif.load(image.info.get("exif", b""))
            value = exif.get(ExifTags.Base.Orientation)
    except _DAMAGE:
        return 1
    return value if isinstance(value, int) and value in _UPRIGHT else 1


def _layers(
    data: bytes, name: str, max_pixels: int, *, small: bool = False
) -> tuple[Image.Image, Image.Image | None, tuple[str, ...]]:
    """Return an image file as upright RGB in sRGB, its alpha channel if it has one, and notes. Raises ImageError.

    small: a JPEG may come at an eighth of its size.
    """
    with _opened(data, name, max_pixels) as image:
        try:
            turned, deep = _orientation(image), _has_16_bits(image)
            frames = getattr(image, "n_frames", 1)
            image.seek(0)
            if small and image.format == "JPEG":
                image.draft(None, (1, 1))
            image.load()
            if _lacks_lines(image, data):
                raise ValueError("its lines of pixels are too few")
            if _orientation(image) != turned:
                raise ImageError(f"{name}: is turned by EXIF that stands behind its pixels; save it upright")
            # 258 is the number of bits a channel.
            deepest = max(image.tag_v2.get(258, (8,))) if isinstance(image, TiffImageFile) else 8
            if odd := "fractions" if image.mode == "F" else "numbers of 32 bits" if deepest > 16 else "":
                raise ImageError(f"{name}: its pixels are {odd}; save it with 8 or 16 bits a channel")
            # The number of bits stands in byte 24. Pillow leaves such a color at the file's levels, and not at the pixels'.
            if image.format == "PNG" and image.mode in ("L", "RGB") and data[24] != 8 and "transparency" in image.info:
                raise ImageError(f"{name}: names a transparent color of {data[24]} bits; save it with an alpha channel")
            color, alpha = _split(image)
            color, converted = _to_srgb(color, image.info.get("icc_profile"))
            # Pillow copies on conversion, also where there is nothing to convert.
            color = color if color.mode == "RGB" else color.convert("RGB")
            if (turn := _UPRIGHT.get(turned)) is not None:
                color, alpha = color.transpose(turn), None if alpha is None else alpha.transpose(turn)
        except _DAMAGE as error:
            raise ImageError(f"{name}: the image data is damaged or cut off ({error}); expected a whole file") from error
        notes = (
            f"first of {frames} frames" * (frames > 1),
            "EXIF rotation applied" * (turned != 1),
            "reduced to 8 bits" * deep,
            converted,
            "CMYK converted to RGB" * (image.mode == "CMYK"),
            COMPOSITED * (alpha is not None and alpha.getextrema() != (255, 255)),
        )
        return color, alpha, tuple(note for note in notes if note)


def _lacks_lines(image: Image.Image, data: bytes) -> bool:
    """Return True if a decoded PNG has too few lines of pixels, which Pillow leaves as they were.

    Lines are written from above, those of odd number last where they are interlaced.
    """
    width, height = image.size
    last = (0, height - 2, width, height)
    rows = image.crop(last)
    if image.format != "PNG" or all(rows.crop((0, n, width, n + 1)).getbbox(alpha_only=False) for n in (0, 1)):
        return False
    with _opened(data, "", width * height) as again:
        bands = len(again.getbands())
        again.im = Image.new(again.mode, again.size, 1 if bands == 1 else (1,) * bands).im
        again.load()
        return again.crop(last).tobytes() != rows.tobytes()


def _has_16_bits(image: Image.Image) -> bool:
    """Return True if a file that is not decoded yet holds 16 bits a channel, also where Pillow's mode does not show it."""
    return image.mode.startswith("I") or any(";16" in str(tile.args) for tile in getattr(image, "tile", ()))


def _split(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Return 8-bit color without alpha, and the alpha channel where there is one."""
    if image.mode.startswith("I"):
        clear, levels = image.info.get("transparency"), np.asarray(image)
        alpha = Image.fromarray(np.where(levels == clear, 0, 255).astype(np.uint8)) if isinstance(clear, int) else None
        # Pillow's own conversion cuts off at 255.
        return Image.fromarray((np.clip(levels, 0, 65535).astype(np.uint16) >> 8).astype(np.uint8)), alpha
    if not image.has_transparency_data:
        return (image.convert("RGB") if image.mode == "P" else image), None
    rgba = image.convert("RGBA")
    # A profile of a gray image is one for gray.
    color = rgba.getchannel("R") if image.mode in ("LA", "La") else rgba.convert("RGB")
    return color, rgba.getchannel("A")


def _to_srgb(color: Image.Image, profile: bytes | None) -> tuple[Image.Image, str]:
    """Return the colors of an embedded ICC profile brought to sRGB, and a note; "" for none."""
    if not profile:
        return color, ""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "srgb" in (ImageCms.getProfileDescription(source) or "").lower():
            return color, ""
        converted = ImageCms.profileToProfile(color, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return color, "unreadable ICC profile ignored"
    return (color, "") if converted is None else (converted, "ICC profile converted to sRGB")
