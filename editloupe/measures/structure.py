"""Structural similarity (SSIM), whole, outside a mask, and as GIE-Bench's published script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import cv2
import numpy as np
from pydantic import Field

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.masked import outside, share
from editloupe.imaging.structure import WINDOW, counted, gray, ssim_map
from editloupe.imaging.warp import aligned
from editloupe.measures.base import BaseMeasure, Measured
from editloupe.measures.pair import PairArgs, check_kept, pictures, told
from editloupe.scores import Interval, Metric

SIDE: Final = 224
"""px; the published script squashes both images to a square of this side."""


class SSIMArgs(PairArgs):
    """The arguments."""

    ssim: Literal["outside", "official"] = "outside"
    """outside: the mean over pixels outside the mask.   official: the mask is black in both, and all pixels count."""
    side: int = Field(default=SIDE, ge=0, le=8192)
    """px to which both images are squashed before; 0 compares at the source's own size. official is always 224."""


class SSIM(BaseMeasure):
    """Mean structural similarity of luma, -1 to 1 (higher is better)."""

    name = "ssim"
    Args = SSIMArgs
    metric = Metric(id="ssim", name="SSIM", domain=Interval(low=-1, high=1))

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the mean. Raises MeasureError if nothing is left to compare, or a picture is missing.

        With official, or mask=official, nothing is aligned, as in the script.
        """
        source, edited, mask = pictures(args, images)
        official = "official" in (args.mask, args.ssim)
        side = SIDE if official else args.side
        found = aligned(source, edited, mask, "none" if official else args.align, dilate=args.dilate)
        # Squashed from its own size, unless it had to be laid onto the source.
        second = edited if side and not found.accepted else found.image
        first_gray, second_gray = gray(source, side), gray(second, side)
        shape = first_gray.shape
        if min(shape) < WINDOW:
            raise MeasureError(f"{shape[1]}×{shape[0]} px is smaller than SSIM's window of {WINDOW}×{WINDOW} px")
        valid = np.ones(shape, np.bool_)
        kept = valid if mask is None else outside(mask, (shape[0], shape[1]), args.dilate and not official)
        if official:
            first_gray, second_gray, kept = first_gray * kept, second_gray * kept, valid
        elif not found.valid.all():
            seen = cv2.resize(found.valid.astype(np.float32), shape[::-1], interpolation=cv2.INTER_AREA)
            valid = np.asarray(seen > 1 - 1e-4)
        check_kept(kept)
        windows = counted(kept, valid)
        check_kept(windows)
        value = float(ssim_map(first_gray, second_gray, 255)[windows].mean())
        # Of equal images it may come out as 1.0000000000000002.
        return told(Number(value=min(value, 1.0)), share(kept & valid), found)
