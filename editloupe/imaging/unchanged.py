"""Says whether two images show the same, but for what saving a picture again leaves: a rule without a model.

It is stricter than `differences.localize`, which undoes a turn, a motion and a tone of the whole picture before comparing:
here they are changes. What is faint or tiny passes: places under 36 px², and what recompression leaves too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import cv2
import numpy as np

from editloupe.data.images import RGB
from editloupe.imaging.differences import CLEAR, LEAST_COMPARED_PX, Differences, localize
from editloupe.values import Json

CELL: Final = 8
"""px of the source: the side of a cell of the first, coarse look. JPEG's blocks have it too."""
ASPECT: Final = 0.02
"""Logarithm of the ratio of two aspect ratios above which one image was stretched or cropped."""
TONE: Final = 2.0
"""Levels of 255 by which a tone of the whole picture may move a pixel on average. Recompression leaves at most 1.3."""
MOTION_PX: Final = 1.0
"""px by which a corner may move."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """How much of an image differs."""

    share: float
    """0 to 1: the share of the image that differs; 0 where both show the same, 1 for a change of the whole."""
    how: str
    """What was found, in words."""
    data: dict[str, Json] = field(default_factory=dict)
    """The same for programs."""


def change(source: RGB, edited: RGB) -> Change | None:
    """Return how much of two H×W×3 uint8 RGB images of any sizes differs; None if too little of them can be compared.

    A coarse look settles what differs clearly: cells of 8×8 px whose means differ by more than 25 levels. Only what it
    leaves open is compared at full size.
    """
    if source.shape == edited.shape and np.array_equal(source, edited):
        return Change(share=0.0, how="the images are pixel-identical", data={"step": "identical"})
    (h1, w1), (h2, w2) = source.shape[:2], edited.shape[:2]
    if abs(np.log((w1 / h1) / (w2 / h2))) > ASPECT:
        return Change(share=1.0, how="the aspect ratios differ", data={"step": "size"})
    size = (max(1, w1 // CELL), max(1, h1 // CELL))
    cells = [cv2.resize(rgb, size, interpolation=cv2.INTER_AREA) for rgb in (source, edited)]
    if clear := float((cv2.absdiff(*cells).max(axis=2) > CLEAR).mean()):
        how = f"{100 * clear:.2g} % of the image differs clearly at a coarse look"
        return Change(share=clear, how=how, data={"step": "coarse"})
    found = localize(source, edited, turns=False)
    if found.compared_px < LEAST_COMPARED_PX:
        return None
    return _compared(found)


def _compared(found: Differences) -> Change:
    """Return what a comparison at full size says."""
    alignment = found.alignment
    tone = float(cv2.absdiff(alignment.first, alignment.toned).mean())
    moved = alignment.motion.most
    whole = [
        words
        for says, words in (
            (found.regenerated, "the image seems regenerated or changed as a whole"),
            (alignment.placed, "the two images show different frames of a scene"),
            (moved >= MOTION_PX, f"the whole picture moved by {moved:.1f} px"),
            (tone >= TONE, f"the tone of the whole picture changed by {tone:.1f} of 255"),
        )
        if says
    ]
    share = min(1.0, sum(region.changed_px for region in found.regions) / (alignment.size_1[0] * alignment.size_1[1]))
    share = 1.0 if whole else max(share, found.changed_share)
    regions = len(found.regions)
    placed = f"{regions} {'region differs' if regions == 1 else 'regions differ'}" if regions else ""
    data: dict[str, Json] = {
        "step": "full",
        "regions": regions,
        "regenerated": found.regenerated,
        "moved_px": round(moved, 3),
        "tone": round(tone, 3),
        "largest": round(found.largest, 2),
        "noise": round(found.noise, 3),
    }
    how = "; ".join(filter(None, [*whole, placed])) or (
        "some pixels differ clearly" if share else "nothing differs beyond what saving a picture again leaves"
    )
    return Change(share=share, how=how, data=data)
