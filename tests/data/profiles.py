"""ICC profiles for tests, made of the one that Pillow makes for sRGB."""

from __future__ import annotations

import struct
from typing import Final

from PIL import ImageCms

_DISPLAY_P3 = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}


def _wide_gamut(name: str, primaries: dict[bytes, tuple[float, float, float]]) -> bytes:
    """Return sRGB's profile under another name of at most 13 letters, with other primaries (XYZ under D50)."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    made = bytearray(profile.replace("sRGB built-in".encode("utf-16-be"), name.ljust(13).encode("utf-16-be")))
    (count,) = struct.unpack_from(">I", made, 128)
    for tag in range(count):
        kind, offset, _ = struct.unpack_from(">4sII", made, 132 + 12 * tag)
        if kind in primaries:
            struct.pack_into(">3i", made, offset + 8, *(round(v * 65536) for v in primaries[kind]))
    return bytes(made)


DISPLAY_P3: Final = _wide_gamut("Display P3", _DISPLAY_P3)
"""The primaries of Display P3 with sRGB's curve, as phones and browsers write it."""
