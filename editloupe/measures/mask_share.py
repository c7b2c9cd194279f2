"""How much of what changed in a place lies inside the mask of the edit: where change was allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import cv2
import numpy as np

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.align import resize
from editloupe.imaging.differences import FAINT
from editloupe.imaging.masked import outside
from editloupe.measures.base import Args, BaseMeasure, clipped
from editloupe.measures.pair import PairArgs, pictures
from editloupe.scores import Interval, Metric
from editloupe.values import Box


class MaskShareArgs(Args):
    """The arguments."""

    box: Box
    """[x0, y0, x1, y1] in thousandths of the source."""
    of: Literal["changed"] = "changed"
    """Of what changed in it, so that the empty corners of a box do not count."""


class MaskShare(BaseMeasure):
    """The share of the change in a box that lies inside the mask of the edit, 0 to 1.

    Each pixel of the source counts by the levels of 255 by which it differs from the edited image, beyond 6, in the channel
    that differs most.
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

        Raises MeasureError if a picture is missing, the box shows nothing of the image, or nothing differs in it.
        """
        source, edited, mask = pictures(PairArgs(), images)
        assert mask is not None, "`pictures` raises where there is none"
        height, width = source.shape[:2]
        place = Box.from_thousandths(list(args.box), width=width, height=height)
        (box,) = clipped([list(place)], source, f"the box {list(args.box)}")
        edited = resize(edited, width=width, height=height)
        x0, y0, x1, y1 = box.ints()
        here = np.s_[y0:y1, x0:x1]
        change = np.maximum(cv2.absdiff(source[here], edited[here]).max(axis=2).astype(np.float64) - FAINT, 0)
        total = float(change.sum())
        if total == 0:
            raise MeasureError(f"nothing in the box differs by more than {FAINT:g} of 255 levels")
        allowed = ~outside(mask, (height, width), dilate=False)[here]
        return Number(value=float(change[allowed].sum() / total))
