"""How much of a place lies inside the mask of the edit: what was allowed to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.align import resize
from editloupe.imaging.differences import FAINT
from editloupe.imaging.masked import inside, outside
from editloupe.measures.base import Args, BaseMeasure
from editloupe.measures.pair import PairArgs, pictures
from editloupe.scores import Interval, Metric
from editloupe.values import Box


class MaskShareArgs(Args):
    """The arguments."""

    box: Box
    """[x0, y0, x1, y1] in thousandths of the source."""
    of: Literal["box", "changed"] = "box"
    """box: of the box's area.   changed: of what changed in it, so that the empty corners of a box do not count."""


class MaskShare(BaseMeasure):
    """The share of a box that lies inside the mask of the edit, 0 to 1.

    of="box": of its area, exact to fractions of a pixel of the mask; the mask alone is needed.
    of="changed": of its change: each pixel of the source counts by the levels of 255 by which it differs from the edited
    image, beyond 6, in the channel that differs most.
    """

    name = "mask_share"
    Args = MaskShareArgs
    metric = Metric(
        id="mask_share",
        name="Share of a place inside the mask",
        short="In mask",
        domain=Interval(low=0, high=1),
        better=None,
        unit="of the place",
    )

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Number:
        """Return the share.

        Raises MeasureError if there is no mask, the box shows nothing of the image, nothing differs in it (of="changed"),
        or a picture is missing.
        """
        if "mask" not in images:
            raise MeasureError("there is no mask of the edit, so nothing can be inside it")
        try:
            box = args.box.clipped(width=1000, height=1000)
        except ValueError as error:
            raise MeasureError(f"the box {list(args.box)} shows nothing of the image", status="input_error") from error
        return Number(value=_of_change(box, images) if args.of == "changed" else _of_area(box, inside(images["mask"])))


def _of_area(box: Box, allowed: NDArray[np.bool_]) -> float:
    height, width = allowed.shape
    x0, y0, x1, y1 = Box.from_thousandths(list(box), width=width, height=height)
    across, down = _covered(x0, x1, width), _covered(y0, y1, height)
    return float(down @ allowed @ across / (down.sum() * across.sum()))


def _covered(low: float, high: float, count: int) -> NDArray[np.float64]:
    """Return which share, 0 to 1, of each of `count` pixels in a row lies between `low` and `high`."""
    edges = np.clip(np.arange(count + 1, dtype=np.float64), low, high)
    return np.diff(edges)


def _of_change(box: Box, images: Mapping[str, RGB]) -> float:
    source, edited, mask = pictures(PairArgs(), images)
    assert mask is not None, "`pictures` raises where there is none"
    height, width = source.shape[:2]
    if edited.shape != source.shape:
        edited = resize(edited, width=width, height=height)
    x0, y0, x1, y1 = Box.from_thousandths(list(box), width=width, height=height).ints()
    here = np.s_[y0:y1, x0:x1]
    change = np.maximum(cv2.absdiff(source[here], edited[here]).max(axis=2).astype(np.float64) - FAINT, 0)
    total = float(change.sum())
    if total == 0:
        raise MeasureError(f"nothing in the box differs by more than {FAINT:g} of 255 levels")
    allowed = ~outside(mask, (height, width), dilate=False)[here]
    return float(change[allowed].sum() / total)
