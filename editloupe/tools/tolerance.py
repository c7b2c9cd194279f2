"""The tolerance of a tool: how far an observation may be from a recorded one and still count as the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What may differ where a tool runs again on the same pictures, on another machine or with other versions.

    The default is exact.
    """

    max_abs: int = 0
    """Most that a pixel's channel may differ, in levels of 255. It must hold together with `psnr_db`."""
    psnr_db: float = math.inf
    """Least PSNR of a picture in dB; higher is nearer."""
    iou: float = 1.0
    """Least IoU of each box with the recorded one, 0..1. A box that moved within it is compared without its picture."""
    text: float = 0.0
    """Share of characters that may differ, 0..1."""

    def __post_init__(self) -> None:
        if not (0 <= self.max_abs <= 255 and self.psnr_db > 0 and 0 <= self.iou <= 1 and 0 <= self.text <= 1):
            raise ValueError(f"max_abs is 0..255, psnr_db positive, iou and text 0..1; found {self}")

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON. An infinite PSNR is null."""
        psnr = None if math.isinf(self.psnr_db) else self.psnr_db
        return {"max_abs": self.max_abs, "psnr_db": psnr, "iou": self.iou, "text": self.text}


EXACT: Final = Tolerance()

RESAMPLED: Final = Tolerance(max_abs=8, psnr_db=45.0, iou=0.99, text=0.0)
"""For what is cut out and scaled: another build of the image libraries may round otherwise."""
MEASURED: Final = Tolerance(max_abs=8, psnr_db=45.0, iou=0.9, text=0.05)
"""For places found by thresholds on pixels: a border may move by a px, and with it the numbers in the text."""
LEARNED: Final = Tolerance(max_abs=48, psnr_db=32.0, iou=0.9, text=0.1)
"""For networks: another device, precision or kernel gives other last digits."""


def tolerance_of(tool: object) -> Tolerance:
    """Return how far the tool says that its observations may differ, or EXACT."""
    tolerance: Tolerance = getattr(tool, "tolerance", EXACT)
    return tolerance
