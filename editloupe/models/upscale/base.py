"""What enlarges a crop, and opening it. Lanczos is an upscaler of its own name, not a stand-in for a learned one."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from editloupe.data.images import RGB
from editloupe.errors import MissingExtra
from editloupe.imaging.align import resize
from editloupe.models.devices import check_device
from editloupe.models.weights import digest_of, find_file


class Upscaler(Protocol):
    """Enlarges a picture by a whole number. The same input gives the same output. It is called from several threads."""

    name: str
    """What the LMM, the trace and the report call it."""
    version: str
    """Its part of a judge's identity; it changes with the weights."""
    learned: bool
    """Whether it may invent detail."""

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        """Return H×W×3 uint8 RGB as exactly (scale·H)×(scale·W)×3."""


class Lanczos:
    """Lanczos interpolation over 8×8 px: no weights, no invented detail, slight ringing at hard edges."""

    name = "Lanczos"
    version = "Lanczos"
    learned = False

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        return resize(rgb, width=rgb.shape[1] * scale, height=rgb.shape[0] * scale)


def open_upscaler(name: str | None, device: str) -> Upscaler:
    """Return the upscaler from a file of weights, found and not yet loaded. None and "lanczos" are Lanczos.

    Raises ConfigError where the file or the device cannot be had, and MissingExtra without torch.
    """
    if name is None or name.casefold() == Lanczos.name.casefold():
        return Lanczos()
    weights = find_file(name, "upscaler")
    if find_spec("torch") is None:
        raise MissingExtra(f"Upscaler {name!r}", "vision")
    check_device(device)
    return _shared(weights.resolve(), digest_of([weights]), device)


@cache
def _shared(weights: Path, digest: str, device: str) -> Upscaler:
    from editloupe.models.upscale.network import NetworkUpscaler

    return NetworkUpscaler(weights, digest=digest, device=device)
