"""Upscalers: what enlarges a crop. Lanczos is one of its own name, not a stand-in for a learned one."""

from __future__ import annotations

import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

from editloupe.data.images import RGB
from editloupe.errors import MissingExtra
from editloupe.imaging.align import resize
from editloupe.tools.devices import check_device, open_device
from editloupe.tools.readers import NoReader, TextReader
from editloupe.tools.reading import TextReading
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tolerance import LEARNED, RESAMPLED, Tolerance
from editloupe.tools.weights import digest_of, find_file


class Upscaler(Protocol):
    """Enlarges H×W×3 uint8 RGB by a whole number to exactly (scale·H)×(scale·W)×3; the same input, the same output.

    name: what the model, the trace and the report call it.   learned: whether it may invent detail.
    version: what a judge's identity has of it: changes with the weights.
    Called from several threads.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def learned(self) -> bool: ...

    def __call__(self, rgb: RGB, scale: int) -> RGB: ...


class Lanczos:
    """Lanczos interpolation over 8×8 px: no weights, no invented detail, slight ringing at hard edges."""

    name = "Lanczos"
    version = "Lanczos"
    learned = False

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        return resize(rgb, width=rgb.shape[1] * scale, height=rgb.shape[0] * scale)


def open_upscaler(settings: ToolSettings) -> Upscaler:
    """The upscaler that the settings name, found and not yet loaded; Lanczos where they name none. One copy a process.

    Raises ConfigError: no such file, no such device; MissingExtra without torch.
    """
    if settings.upscaler is None or settings.upscaler.casefold() == Lanczos.name.casefold():
        return Lanczos()
    weights = find_file(settings.upscaler, "upscaler")
    if find_spec("torch") is None:
        raise MissingExtra(f"Upscaler {settings.upscaler!r}", "vision")
    check_device(settings.device)
    with _opening:
        return _shared(weights.resolve(), digest_of([weights]), settings.device)


def open_automatic_upscaler(settings: ToolSettings) -> Upscaler:
    """For crops that a tool enlarges unasked: the named upscaler on a GPU, Lanczos on a CPU.

    There a learned one takes many seconds a crop; `enhancer` uses it all the same, since the model asks. Raises as
    `open_upscaler`.
    """
    upscaler = open_upscaler(settings)
    return Lanczos() if upscaler.learned and open_device(settings.device).name == "cpu" else upscaler


def prepare(upscaler: Upscaler) -> None:
    """Load a learned upscaler's weights now, where it loads any. Raises ConfigError: damaged, unsafe, unknown."""
    load = getattr(upscaler, "prepare", None)
    if load is not None:
        load()


def held(upscaler: Upscaler) -> str:
    """What enlarges and where, as `Holds.holds` gives it."""
    if not upscaler.learned:
        return f"{upscaler.name} (nothing to load)"
    where = getattr(upscaler, "loaded_on", None)
    return f"{upscaler.name} on {where}" if where else f"{upscaler.name} (not loaded)"


def enlarge(upscaler: Upscaler, rgb: RGB, *, width: int, height: int) -> RGB:
    """H×W×3 uint8 RGB at another size. Where it grows, a learned upscaler makes the first ×4; the rest is resampled."""
    if upscaler.learned and (width > rgb.shape[1] or height > rgb.shape[0]):
        rgb = upscaler(rgb, 4)
    return resize(rgb, width=width, height=height)


def enlarged_by(upscaler: Upscaler) -> str:
    """How an enlargement is put to the model: who did it, and what that means for a verdict."""
    if upscaler.learned:
        return f"by {upscaler.name}, a learned upscaler that may invent detail"
    return f"by {upscaler.name}, which adds no detail"


@cache
def _shared(weights: Path, digest: str, device: str) -> Upscaler:
    from editloupe.tools.networks import NetworkUpscaler

    return NetworkUpscaler(weights, digest=digest, device=device)


_opening = threading.Lock()


class Enlarges:
    """What tools that enlarge crops share: upscaler and text reader, their part in the version, when they are loaded.

    revision: of the tool itself; changed with anything that changes its observations.
    """

    revision: ClassVar[str] = "1"

    def __init__(self, upscaler: Upscaler | None = None, reader: TextReader | NoReader | None = None) -> None:
        self.upscaler: Upscaler = Lanczos() if upscaler is None else upscaler
        self.reading = TextReading(reader)

    @property
    def version(self) -> str:
        return self.reading.version(f"{self.revision}; {self.upscaler.version}")

    @property
    def tolerance(self) -> Tolerance:
        """How far an observation may be from a recorded one."""
        return LEARNED if self.upscaler.learned else RESAMPLED

    def prepare(self) -> None:
        """Load a learned upscaler and a reader now. Raises ConfigError."""
        prepare(self.upscaler)
        self.reading.prepare()

    def holds(self) -> tuple[str, ...]:
        """The upscaler and the reader of text."""
        return (held(self.upscaler), *self.reading.holds())
