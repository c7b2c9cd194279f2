"""Puts an edited crop back into its image, and measures whether its border shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.values import Box

RING: Final = 1 / 32
"""Width of the ring along the crop's border in which the seam is measured, of the crop's shorter side; at least 2 px."""

Side: TypeAlias = Literal["left", "top", "right", "bottom"]


@dataclass(frozen=True, kw_only=True)
class Seam:
    """How far an edited crop differs from its image along the border."""

    levels: float
    """The largest mean absolute difference of a side's ring, in levels of 255; 0 where no side lies inside the image."""
    sides: tuple[Side, ...]
    """The sides that lie inside the image. At the image's own border there is no seam."""


def seam(source: RGB, edited: RGB, crop: Box) -> Seam:
    """Measure the seam that an edited crop would have.

    source: H×W×3 uint8, the whole image.   crop: in whole px of it.   edited: h×w×3 uint8, of the crop's size.
    """
    height, width = source.shape[:2]
    x0, y0, x1, y1 = crop.ints()
    inner = {"left": x0 > 0, "top": y0 > 0, "right": x1 < width, "bottom": y1 < height}
    sides = tuple(side for side in _SIDES if inner[side])
    apart = np.abs(source[y0:y1, x0:x1].astype(np.int16) - edited.astype(np.int16))
    ring = max(2, round(RING * min(apart.shape[:2])))
    strips = {"left": apart[:, :ring], "top": apart[:ring], "right": apart[:, -ring:], "bottom": apart[-ring:]}
    return Seam(levels=max((float(strips[side].mean()) for side in sides), default=0.0), sides=sides)


def feather_px(crop: Box, targets: Sequence[Box], sides: Sequence[Side]) -> int:
    """Return how wide a ramp along these sides is: half of what lies between them and the targets, at least 1 px."""
    hull = reduce(Box.union, targets)
    gaps = {
        "left": hull.x0 - crop.x0,
        "top": hull.y0 - crop.y0,
        "right": crop.x1 - hull.x1,
        "bottom": crop.y1 - hull.y1,
    }
    return max(1, int(min((gaps[side] for side in sides), default=0.0) // 2))


def pasted(source: RGB, edited: RGB, crop: Box, *, feather: int = 0, sides: Sequence[Side] = ()) -> RGB:
    """Return the image with the edited crop in its place. Every pixel outside the crop is the image's own.

    feather: px over which, from each of the sides inward, the image's own pixels turn into the crop's; 0 for none.
    """
    x0, y0, x1, y1 = crop.ints()
    made = source.copy()
    if feather < 1 or not sides:
        made[y0:y1, x0:x1] = edited
        return made
    weight = _ramp(edited.shape[0], edited.shape[1], feather, sides)[..., None]
    own = source[y0:y1, x0:x1].astype(np.float64)
    made[y0:y1, x0:x1] = np.rint(own + weight * (edited.astype(np.float64) - own)).astype(np.uint8)
    return made


_SIDES: Final[tuple[Side, ...]] = ("left", "top", "right", "bottom")


def _ramp(height: int, width: int, feather: int, sides: Sequence[Side]) -> NDArray[np.float64]:
    """Return an H×W weight, which rises from the sides inward to 1."""
    across, down = np.full(width, np.inf), np.full(height, np.inf)
    for side in sides:
        steps, toward = (across, np.arange(width)) if side in ("left", "right") else (down, np.arange(height))
        np.minimum(steps, toward if side in ("left", "top") else toward[::-1], out=steps)
    distance = np.minimum(across[None, :], down[:, None])
    return np.asarray(np.clip((distance + 1) / (feather + 1), 0, 1))
