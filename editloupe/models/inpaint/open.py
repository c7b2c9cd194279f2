"""Opens an inpainter by its name: "opencv", or "diffusers:MODEL". No torch here."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl

from editloupe.errors import ConfigError, MissingExtra
from editloupe.models.devices import check_device
from editloupe.models.inpaint.base import Inpainter, OpenCVInpainter

STEPS: Final = 100
GUIDANCE: Final = 4.0
"""DICE's, with Kandinsky 2.2."""
_EXPECTED: Final = (
    "expected opencv, opencv:ns or diffusers:MODEL, such as diffusers:kandinsky-community/kandinsky-2-2-decoder-inpaint"
)


def open_inpainter(name: str | None, device: str) -> Inpainter:
    """Return the inpainter of that name, found and not yet loaded. None is "opencv".

    name: "opencv" (Telea), "opencv:ns" (Navier-Stokes), or "diffusers:MODEL", where MODEL is a folder that diffusers saved
    or a hub id (owner/name or owner/name@revision). "?steps=50&guidance=7.5" behind it sets how it is sampled.
    Raises ConfigError for another name, and where the weights or the device cannot be had; MissingExtra without diffusers.
    """
    kind, _, model = (name or "opencv").partition(":")
    if kind == "opencv" and model in ("", "telea"):
        return _opencv("telea")
    if kind == "opencv" and model == "ns":
        return _opencv("ns")
    if kind != "diffusers" or not model:
        raise ConfigError(f"inpainter {name!r}: {_EXPECTED}")
    if any(find_spec(package) is None for package in ("torch", "diffusers")):
        raise MissingExtra(f"Inpainter {name!r}", "inpaint")
    check_device(device)
    where, _, query = model.partition("?")
    steps, guidance = _sampling(query, str(name))
    return _shared(where, steps, guidance, device)


_opencv = cache(OpenCVInpainter)


@cache
def _shared(where: str, steps: int, guidance: float, device: str) -> Inpainter:
    from editloupe.models.inpaint.diffusers import DiffusersInpainter

    return DiffusersInpainter(where, steps=steps, guidance=guidance, device=device)


def _sampling(query: str, name: str) -> tuple[int, float]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    try:
        if unknown := set(given) - {"steps", "guidance"}:
            raise ValueError(f"unknown option {sorted(unknown)[0]!r}")
        steps, guidance = int(given.get("steps", STEPS)), float(given.get("guidance", GUIDANCE))
        if not (1 <= steps <= 1000 and 0 <= guidance <= 100):
            raise ValueError(f"steps={steps}, guidance={guidance:g}")
    except ValueError as error:
        raise ConfigError(
            f"inpainter {name!r}: expected ?steps=1 to 1000 and guidance=0 to 100 behind the model; found {error}"
        ) from error
    return steps, guidance
