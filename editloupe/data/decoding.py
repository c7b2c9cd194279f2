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
_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS: Final = {5, 6, 7, 8}
_PNG_METADATA: Final = {"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"}
"""From these Pillow reads a PNG's orientation. If none stands before the pixels, it decodes them to look behind."""

_ADAM7: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""The passes of an interlaced PNG: first column and row, and the steps between columns and rows."""

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
        width, height = image.size
        # Pillow turns the size of a TIFF itself.
        if image.format != "TIFF" and _orientation(image) in _SIDEWAYS:
            width, height = height, width
        return width, height, _media_type(image)


def decode(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> tuple[RGB, tuple[str, ...]]:
    """Decode an image file's bytes to H×W×3 uint8 RGB, with notes on what stood in the way.

    Raises ImageError as `header`, and for a file that is damaged or cut off.
    """
    notes: list[str] = []
    colour, alpha = _coloured(data, name, max_pixels, notes)
    if alpha is not None and alpha.getextrema() != (255, 255):
        notes.append(COMPOSITED)
        colour = Image.composite(colour, Image.new("RGB", colour.size, (255, 255, 255)), alpha)
    return np.asarray(colour, dtype=np.uint8), tuple(notes)


def layers(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Return an image file's bytes as H×W×4 uint8 RGBA: as `decode`, and not composited. Raises ImageError."""
    colour, alpha = _coloured(data, name, max_pixels, [])
    colour.putalpha(255 if alpha is None else alpha)
    return np.asarray(colour, dtype=np.uint8)


def extension(data: bytes, *, name: str) -> str:
    """Return the ending under which the store keeps these bytes, such as "png", by their header. Raises ImageError."""
    with _opened(data, name, MAX_PIXELS) as image:
        return EXTENSIONS.get(_media_type(image), "bin")


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
    except Image.DecompressionBombError as error:
        found = str(error).partition(" exceeds")[0]  # "Image size (900000000 pixels)"; Pillow goes on with its own limit
        raise ImageError(_too_large(name, found, max_pixels)) from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image that can be read; expected {_READABLE}") from error
    except _DAMAGE as error:
        raise ImageError(f"{name}: the image header is damaged ({error}); expected {_READABLE}") from error
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(_too_large(name, f"{width:,}×{height:,} px", max_pixels))
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: {width}×{height} px is too small to compare; expected at least {MIN_SIDE} px a side")
    return image


def _too_large(name: str, found: str, most: int) -> str:
    limit = f"the limit of {most:,} px, a guard against decompression bombs"
    return f"{name}: {found} is more than {limit}; scale the image down first"


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


def _media_type(image: Image.Image) -> str:
    return Image.MIME.get(image.format or "", "application/octet-stream")


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 is upright."""
    if image.format == "PNG" and not _PNG_METADATA & {key for key in image.info if isinstance(key, str)}:
        return 1
    try:
        with _no_warnings():
            value = image.getexif().get(ExifTags.Base.Orientation)
    except _DAMAGE:
        return 1
    return value if isinstance(value, int) and value in _UPRIGHT else 1


def _coloured(data: bytes, name: str, max_pixels: int, notes: list[str]) -> tuple[Image.Image, Image.Image | None]:
    """Return an image file as upright RGB in sRGB, and its alpha channel if it has one. Raises ImageError."""
    with _opened(data, name, max_pixels) as image:
        try:
            turned, deep = _orientation(image), _has_16_bits(image)
            frames = getattr(image, "n_frames", 1)
            image.seek(0)
            image.load()
            if image.format == "PNG" and _lacks_lines(image, data):
                raise ValueError("its lines of pixels are too few")
            if image.format != "TIFF" and _orientation(image) != turned:
                raise ImageError(f"{name}: is turned by EXIF that stands behind its pixels; save it upright")
            if odd := _unreadable(image):
                raise ImageError(f"{name}: its pixels are {odd}; save it with 8 or 16 bits a channel")
            notes += [f"first of {frames} frames"] if frames > 1 else []
            notes += ["EXIF rotation applied"] if turned != 1 else []
            if image.format == "PNG":
                _scale_clear(image, bits=data[24])
            colour, alpha = _split(image)
            notes += ["reduced to 8 bits"] if deep else []
            if profile := image.info.get("icc_profile"):
                colour = _to_srgb(colour, profile, notes)
            notes += ["CMYK converted to RGB"] if image.mode == "CMYK" else []
            # Pillow copies on conversion, also where there is nothing to convert.
            colour = colour if colour.mode == "RGB" else colour.convert("RGB")
            # Pillow turns the pixels of a TIFF itself.
            turn = None if image.format == "TIFF" else _UPRIGHT.get(turned)
            if turn is not None:
                colour, alpha = colour.transpose(turn), None if alpha is None else alpha.transpose(turn)
        except _DAMAGE as error:
            raise ImageError(f"{name}: the image data is damaged or cut off ({error}); expected a whole file") from error
        return colour, alpha


def _lacks_lines(image: Image.Image, png: bytes) -> bool:
    """Return True if a decoded PNG has fewer lines of pixels than its header says. Pillow leaves missing lines black."""
    width, height = image.size
    # Lines are written from above, those of odd number last where they are interlaced.
    if all(image.crop((0, row, width, row + 1)).getbbox(alpha_only=False) for row in (height - 2, height - 1)):
        return False
    bits, kind, interlaced = png[24], png[25], png[28]
    bits *= {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sides = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    wanted = sum((1 + (columns * bits + 7) // 8) * rows for columns, rows in sides if columns > 0)
    at, packed = 8, []
    # A file may end without its IEND.
    while at + 12 <= len(png) and (part := png[at + 4 : at + 8]) != b"IEND":
        end = at + 12 + int.from_bytes(png[at : at + 4], "big")
        packed += [png[at + 8 : end - 4]] if part == b"IDAT" else []
        at = end
    return len(zlib.decompressobj().decompress(b"".join(packed), wanted)) < wanted


def _has_16_bits(image: Image.Image) -> bool:
    """Return True if a file that is not decoded yet holds 16 bits a channel, also where Pillow's mode does not show it."""
    return image.mode.startswith("I") or any(";16" in str(tile.args) for tile in getattr(image, "tile", ()))


def _unreadable(image: Image.Image) -> str:
    """Return what pixels are of which nobody knows the white, in words; "" for those that can be read."""
    # 258 is the number of bits a channel.
    deepest = max(image.tag_v2.get(258, (8,))) if isinstance(image, TiffImageFile) else 8
    return "fractions" if image.mode == "F" else "numbers of 32 bits" if deepest > 16 else ""


def _scale_clear(png: Image.Image, *, bits: int) -> None:
    """Bring the one transparent colour that a PNG may name to the levels of its pixels; Pillow leaves it as it is.

    bits: a channel, in the file.
    """
    clear = png.info.get("transparency")
    if png.mode == "RGB" and bits == 16 and isinstance(clear, tuple):
        png.info["transparency"] = tuple(level >> 8 for level in clear)
    elif png.mode == "L" and bits < 8 and isinstance(clear, int):
        png.info["transparency"] = clear * 255 // (2**bits - 1)


def _split(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Return 8-bit colour without alpha, and the alpha channel where there is one."""
    if image.mode.startswith("I"):
        clear, levels = image.info.get("transparency"), np.asarray(image)
        alpha = Image.fromarray(np.where(levels == clear, 0, 255).astype(np.uint8)) if isinstance(clear, int) else None
        # Pillow's own conversion cuts off at 255.
        return Image.fromarray((np.clip(levels, 0, 65535).astype(np.uint16) >> 8).astype(np.uint8)), alpha
    if not image.has_transparency_data:
        return (image.convert("RGB") if image.mode == "P" else image), None
    rgba = image.convert("RGBA")
    # A profile of a grey image is one for grey.
    colour = rgba.getchannel("R") if image.mode in ("LA", "La") else rgba.convert("RGB")
    return colour, rgba.getchannel("A")


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
    notes.append("ICC profile converted to sRGB")
    return converted
