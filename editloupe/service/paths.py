"""Images that a client names or sends: a file below one folder and nowhere else, or a data: address."""

from __future__ import annotations

import binascii
import errno
import os
from base64 import b64decode
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from editloupe.errors import ImageError

MOST_SENT: Final = 32 * 2**20
"""Bytes of an image that a client may send in a message."""


def given(root: Path, image: object, *, name: str) -> Path | bytes:
    """Return what an image is given as: a path below a folder, or a data: address with base64.

    name: what the image is called in messages, which never repeat an address.
    Raises ImageError for other addresses, for data that is too long or no base64, and for a file that is not below `root`.
    """
    scheme, colon, rest = image.partition(":") if isinstance(image, str) else ("", "", "")
    if scheme.strip().lower() == "data":
        return decoded(rest.partition(",")[2], name=name)
    if colon and rest.startswith("//"):
        raise ImageError(f"{name}: nothing is fetched from addresses; give a path below the root folder, or data:")
    return below(root, image, name=name)


def decoded(text: str, *, name: str) -> bytes:
    """Return the bytes of an image in base64. Raises ImageError."""
    too_long = f"{name}: more than {MOST_SENT // 2**20} MiB; put a file below the root folder, and give its path"
    # Base64 is longer by a third, and a percent sign takes three for one. What is far too long is not even decoded.
    if len(text) > 3 * MOST_SENT:
        raise ImageError(too_long)
    try:
        # Line breaks and blanks come with some encoders.
        data = b64decode("".join(unquote(text).split()), validate=True)
    except (binascii.Error, ValueError):
        raise ImageError(f"{name}: not base64; expected the bytes of an image file") from None
    if len(data) > MOST_SENT:
        raise ImageError(too_long)
    return data


def below(root: Path, path: object, *, name: str) -> Path:
    """Return the file that a path means, links followed.

    Raises ImageError for a file that is not below `root`, whether it exists or not. No message says where `root` is.
    """
    if not isinstance(path, str) or "\0" in path:
        raise ImageError(f"{name}: expected the path of an image file")
    try:
        found = (root / path).resolve()
        # From Python 3.13 on, a ring of links resolves to itself.
        if found.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except (OSError, RuntimeError, ValueError) as error:
        raise ImageError(f"{name}: the path cannot be followed ({getattr(error, 'strerror', None) or error})") from error
    if not found.is_relative_to(root):
        raise ImageError(f"{name}: the path is outside the folder below which images can be opened here")
    return found
