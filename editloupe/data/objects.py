"""Images as Python has them: a path, the bytes of a file, a PIL image, an array, a cell of a `datasets` row."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from editloupe.data.images import ImageStore, encode_png
from editloupe.errors import ImageError
from editloupe.values import ImageRef

AnyImage: TypeAlias = Any
"""A path, the bytes of an image file, a PIL image, an H×W×3 (or H×W, H×W×4) uint8 array, or {"bytes": …, "path": …}."""

_EXPECTED = "a path, the bytes of an image file, a PIL image or an H×W×3 uint8 array"


def image_of(value: AnyImage, store: ImageStore, *, name: str = "image") -> ImageRef:
    """Return an image of any of these forms. One that lies in no file carries its bytes.

    name: how messages call it.
    Raises ImageError for what is no image, cannot be read, or holds other numbers than 0 to 255 as uint8.
    """
    if isinstance(value, ImageRef):
        return value
    if isinstance(value, str | PathLike):
        text = str(value)
        if "://" in text or text.startswith("data:"):
            raise ImageError(f"{name}: addresses are not opened, found {text[:60]!r}; expected {_EXPECTED}")
        return store.add_file(Path(text))
    if isinstance(value, Mapping):
        data, path = value.get("bytes"), value.get("path")
        if data is None and not path:
            raise ImageError(f"{name}: the cell holds no image; expected bytes or a path in it")
        return image_of(path if data is None else data, store, name=name)
    if isinstance(value, bytes | bytearray | memoryview):
        return _held(bytes(value), store, name)
    if isinstance(value, Image.Image):
        return _held(_png(value, name), store, name)
    if type(value).__module__.partition(".")[0] == "torch":
        raise ImageError(f"{name}: found a tensor; expected {_EXPECTED}, such as torchvision's to_pil_image(tensor)")
    if hasattr(value, "__array__"):
        return _held(_from_array(np.asarray(value), name), store, name)
    raise ImageError(f"{name}: expected {_EXPECTED}; found {type(value).__name__}")


def _held(data: bytes, store: ImageStore, name: str) -> ImageRef:
    return replace(store.add_bytes(data, name=name), data=data)


def _png(image: Image.Image, name: str) -> bytes:
    """Return a PIL image as PNG. Rotation, alpha and profile stay, so that it reads as its file would."""
    written, file = image, io.BytesIO()
    if written.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        written = image.convert("RGBA" if "A" in image.getbands() or "a" in image.getbands() else "RGB")
    kept = {"icc_profile": profile} if (profile := image.info.get("icc_profile")) and written is image else {}
    try:
        written.save(file, format="PNG", compress_level=1, exif=image.getexif(), **kept)
    except (OSError, ValueError) as error:
        raise ImageError(f"{name}: the PIL image cannot be read: {error}") from error
    return file.getvalue()


def _from_array(array: np.ndarray[Any, Any], name: str) -> bytes:
    hint = ""
    if array.dtype.kind == "f" and array.size and np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1:
        hint = "; for values from 0 to 1 give (array * 255).round().astype('uint8')"
    elif array.ndim == 3 and array.shape[0] in (1, 3, 4):
        hint = "; for C×H×W give array.transpose(1, 2, 0)"
    if array.dtype == np.uint8 and array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (3, 4) or 0 in array.shape:
        found = f"found shape {array.shape}, {array.dtype}"
        raise ImageError(f"{name}: expected an H×W×3 uint8 array, 0 to 255, RGB; {found}{hint}")
    array = np.ascontiguousarray(array)
    return _png(Image.fromarray(array), name) if array.shape[2] == 4 else encode_png(array)
