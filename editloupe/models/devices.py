"""Where a network runs, and in which precision. torch is imported when called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from editloupe.errors import ConfigError, MissingExtra
from editloupe.values import Json


@dataclass(frozen=True)
class Device:
    """A device and the precision that networks use on it."""

    name: str
    """ "cpu", "cuda:0" or "mps"."""
    half: bool
    """True where networks compute in fp16."""

    def __str__(self) -> str:
        return f"{self.name} {'fp16' if self.half else 'fp32'}"

    def autocast(self) -> Any:
        """Return a context in which networks compute in the device's precision."""
        return import_torch().autocast(self.name.partition(":")[0], import_torch().float16, enabled=self.half)

    def facts(self) -> dict[str, Json]:
        """Return "device" (with a GPU's model), "precision" and torch's version, for the trace. Imports torch."""
        torch, (name, precision) = import_torch(), str(self).split()
        model = f" {torch.cuda.get_device_name(name)}" if name.startswith("cuda") else ""
        return {"device": f"{name}{model}", "precision": precision, "torch": str(torch.__version__)}


def check_device(name: str) -> None:
    """Raise ConfigError for a name that is no device's, and for a GPU that is asked for by name and not there.

    torch is imported only for a GPU; MissingExtra where it is not installed.
    """
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name) is None:
        raise ConfigError(f"unknown device {name!r}; expected auto, cpu, cuda, cuda:N or mps")
    if name not in ("auto", "cpu"):
        open_device(name)


def open_device(name: str) -> Device:
    """Return the device of a name that `check_device` takes. "auto" is the first GPU, else the CPU; fp16 is CUDA's.

    Raises ConfigError where it is not there, MissingExtra without torch.
    """
    torch = import_torch()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda:0" if count else "cpu"
    if name.startswith("cuda"):
        number = int(name.partition(":")[2] or 0)
        if number >= count:
            have = f"this machine has {count}" if count else f"torch {torch.__version__} sees none here"
            raise ConfigError(f"device {name!r}: there is no such GPU ({have}); use --device auto or cpu")
        return Device(f"cuda:{number}", half=True)
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device 'mps': torch finds no Apple GPU here; use --device auto or cpu")
    return Device(name, half=False)


def import_torch() -> Any:
    """Return the module `torch`, imported now (1 to 2 s the first time). Raises MissingExtra."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtra("A learned model", "vision") from error
    return torch
