"""Upscalers: what enlarges a crop for `enhancer`. Lanczos is one of its own name, not a stand-in for a learned one."""

from __future__ import annotations

from typing import Protocol

from editloupe.data.images import RGB
from editloupe.imaging.align import resize


class Upscaler(Protocol):
    """Enlarges H×W×3 uint8 RGB by a whole number to exactly (scale·H)×(scale·W)×3; the same input, the same output.

    name: what the model, the trace and the report call it.   learned: whether it may invent detail.
    Called from several threads.
    """

    @property
    def name(self) -> str: ...

    @property
    def learned(self) -> bool: ...

    def __call__(self, rgb: RGB, scale: int) -> RGB: ...


class Lanczos:
    """Lanczos interpolation over 8×8 px: no weights, no invented detail, slight ringing at hard edges."""

    name = "Lanczos"
    learned = False

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        return resize(rgb, width=rgb.shape[1] * scale, height=rgb.shape[0] * scale)
