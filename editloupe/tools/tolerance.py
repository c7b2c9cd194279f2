"""How far an observation may be from a recorded one and still count as the same: a typed value on the tool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What may differ where a tool runs again on the same pictures, on another machine or with other versions.

    max_abs: of a pixel's channel, in levels of 255.   psnr_db: of a picture, at least (higher is better); both must hold.
    iou: of each box with the recorded one, at least, 0..1. Where a box has moved within it, its picture shows another
    place, and only the box is compared.   text: share of characters that may differ, 0..1.
    The default is exact.
    """

    max_abs: int = 0
    psnr_db: float = math.inf
    iou: float = 1.0
    text: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.max_abs <= 255 and self.psnr_db > 0 and 0 <= self.iou <= 1 and 0 <= self.text <= 1):
            raise ValueError(f"max_abs is 0..255, psnr_db positive, iou and text 0..1; found {self}")

    def to_json(self) -> dict[str, Json]:
        """An infinite PSNR is null."""
        psnr = None if math.isinf(self.psnr_db) else self.psnr_db
        return {"max_abs": self.max_abs, "psnr_db": psnr, "iou": self.iou, "text": self.text}


EXACT: Final = Tolerance()

RESAMPLED: Final = Tolerance(max_abs=8, psnr_db=45.0, iou=0.99, text=0.0)
"""Cut out and scaled: another build of the image libraries may round otherwise."""

MEASURED: Final = Tolerance(max_abs=8, psnr_db=45.0, iou=0.9, text=0.05)
"""Places found by thresholds on pixels: a border may fall a px further, and with it the numbers in the text."""

LEARNED: Final = Tolerance(max_abs=48, psnr_db=32.0, iou=0.9, text=0.1)
"""By a network: another device, precision or kernel gives other last digits."""


@runtime_checkable
class Tolerates(Protocol):
    """A tool that says how far its observations may differ; one that does not is compared exactly."""

    @property
    def tolerance(self) -> Tolerance: ...


def tolerance_of(tool: object) -> Tolerance:
    """The tool's own tolerance, or EXACT."""
    return tool.tolerance if isinstance(tool, Tolerates) else EXACT
