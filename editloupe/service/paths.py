"""Files that a client may name: below one folder, and nowhere else."""

from __future__ import annotations

import binascii
from base64 import b64decode
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from editloupe.errors import ImageError

_LONGEST: Final = 200
"""Characters of a path in a message."""

MOST_SENT: Final = 32 * 2**20
"""Bytes of an image that a client may send in a message."""


def given(root: Path, image: object, *, name: str) -> Path | bytes:
    """Return what an image is given as: a path below a folder, a file:// address of one, or a data: address.

    name: what the image is called in messages, which never repeat an address.
    Raises ImageError for other addresses, for data that is too long or no base64, and for a file that is not below `root`.
    """
    scheme, _, rest = image.partition(":") if isinstance(image, str) else ("", "", "")
    match scheme.strip().lower():
        case "data":
            return _data(rest, name)
        case "file":
            return below(root, _path(rest), shown=f"{name}: the file:// address")
        case "http" | "https" | "ftp" | "s3" | "gs":
            raise ImageError(
                f"{name}: nothing is fetched from {scheme.lower()} addresses; give a path below {root}, or data:"
            )
    return below(root, image)


def _path(rest: str) -> str:
    """Return the path of a file: address without its scheme. One of another machine is a path to nowhere: "\0"."""
    try:
        parts = urlsplit(f"file:{rest}")
        return url2pathname(parts.path) if parts.netloc in ("", "localhost") else "\0"
    except ValueError:
        return "\0"


def _data(rest: str, name: str) -> bytes:
    head, comma, body = rest.partition(",")
    if not comma:
        raise ImageError(f"{name}: the data: address has no comma; expected one before the data")
    # Base64 is longer by a third, and a percent sign takes three for one.
    if len(body) > 3 * MOST_SENT:
        raise ImageError(_too_large(name))
    if not head.strip().lower().endswith(";base64"):
        found = unquote_to_bytes(body)
    else:
        try:
            # Line breaks and blanks come with some encoders.
            found = b64decode("".join(unquote(body).split()), validate=True)
        except (binascii.Error, ValueError):
            raise ImageError(f"{name}: the data: address holds no base64 behind its comma") from None
    if len(found) > MOST_SENT:
        raise ImageError(_too_large(name))
    return found


def _too_large(name: str) -> str:
    return f"{name}: more than {MOST_SENT // 2**20} MiB in a data: address; put a file below the root folder, give its path"


def below(root: Path, path: object, *, shown: str = "") -> Path:
    """Return the file that a path means, links followed.

    shown: what stands for the path in messages; "" for the path itself, shortened.
    Raises ImageError for a file that is not below `root`, whether it exists or not.
    """
    quoted = repr(path)
    shown = shown or f"path {quoted if len(quoted) <= _LONGEST else f'{quoted[:_LONGEST]}…'}"
    if not isinstance(path, str) or "\0" in path:
        raise ImageError(f"{shown}: expected the path of an image file")
    try:
        found = (root / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ImageError(
            f"{shown}: cannot be followed ({getattr(error, 'strerror', None) or type(error).__name__})"
        ) from error
    if not found.is_relative_to(root):
        raise ImageError(f"{shown}: is outside {root}, below which alone images can be opened here")
    return found
