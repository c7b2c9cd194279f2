"""What the measures of an edit share: their arguments, and which pixels of source and edited image they compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.answers import Answer
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.masked import Kept, outside, share
from editloupe.imaging.warp import Aligned, How, aligned
from editloupe.measures.base import Args, Measured
from editloupe.values import Json

MaskUse: TypeAlias = Literal["apply", "official", "none"]


class PairArgs(Args):
    """The arguments of every measure of an edit. Its pictures are "source", "edited" and, for a mask, "mask"."""

    mask: MaskUse = "apply"
    """apply: compare what lies outside the mask.   official: as GIE-Bench's published scripts.   none: the whole image."""
    dilate: bool = True
    """Grow a mask that is stretched to the image by one of its own cells."""
    align: How = "none"
    """How the edited image is laid onto the source first: none or sift."""


class WholeArgs(Args):
    """The arguments of a measure that compares whole images."""

    mask: Literal["none"] = "none"
    """The whole image is compared."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A source, its edited image in the same frame, and which pixels of them are compared."""

    source: RGB
    edited: RGB
    kept: Kept | None
    """H×W; None for all."""
    aligned: Aligned

    def answered(self, answer: Answer) -> Measured:
        """Return an answer with how the two images were compared."""
        return told(answer, 1.0 if self.kept is None else share(self.kept), self.aligned)


def told(answer: Answer, part: float, found: Aligned, *, what: str = "pixels") -> Measured:
    """Return an answer with what was compared.   part: of the pixels, or of `what` else is compared, 0 to 1."""
    said = [] if part == 1 else [f"{part * 100:.1f} % of the {what} are compared"]
    data: dict[str, Json] = {"compared": part, "alignment": found.to_json()}
    return Measured(answer=answer, reason="; ".join(filter(None, [*said, found.text])), data=data)


def pictures(args: PairArgs, images: Mapping[str, RGB]) -> tuple[RGB, RGB, RGB | None]:
    """Return source, edited image and the mask that is used; None for the whole image.

    Raises MeasureError if one of them is not there.
    """
    if missing := [alias for alias in ("source", "edited") if alias not in images]:
        found = ", ".join(images) or "none"
        raise MeasureError(
            f"expected pictures called source and edited; {missing[0]} is missing, found {found}", status="input_error"
        )
    if args.mask == "none":
        return images["source"], images["edited"], None
    if "mask" not in images:
        raise MeasureError("there is no mask of the edit, so nothing is outside it; mask=none compares the whole image")
    return images["source"], images["edited"], images["mask"]


def whole_pair(images: Mapping[str, RGB]) -> tuple[RGB, RGB]:
    """Return source and edited image. Raises MeasureError if one of them is not there."""
    source, edited, _ = pictures(PairArgs(mask="none"), images)
    return source, edited


def compared(args: PairArgs, images: Mapping[str, RGB]) -> Pair:
    """Return what the arguments say is compared.

    With mask=official the mask has no effect, as in the published scripts for MSE and PSNR, and all of the aligned image
    counts. Raises MeasureError if a picture is missing, nothing is left to compare, or the scripts leave the pair out.
    """
    source, edited, mask = pictures(args, images)
    if args.mask == "official":
        found = aligned(source, edited, None, args.align, official=args.align == "sift")
        if args.align == "sift" and not found.accepted:
            raise MeasureError(f"{found.why}; the published scripts leave such a pair out")
        return Pair(source=source, edited=found.image, kept=None, aligned=found)
    found = aligned(source, edited, mask, args.align, dilate=args.dilate)
    kept: Kept = found.valid if mask is None else found.valid & outside(mask, source.shape[:2], args.dilate)
    check_kept(kept)
    return Pair(source=source, edited=found.image, kept=None if kept.all() else kept, aligned=found)


def summed(one: RGB, other: RGB, kept: Kept | None) -> tuple[float, int]:
    """Return the sum of |difference| over pixels and channels, and how many these are.   kept: H×W; None for all."""
    count = one.shape[0] * one.shape[1] if kept is None else np.count_nonzero(kept)
    return float(cv2.norm(one, other, cv2.NORM_L1, None if kept is None else kept.view(np.uint8))), 3 * int(count)


def cosine(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the cosine of two vectors, -1 to 1. Raises MeasureError for a vector without a direction."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    # One root of the product: of equal vectors the quotient is 1 without rounding.
    size = math.sqrt(float(a @ a) * float(b @ b))
    if not (math.isfinite(size) and size > 0):
        raise MeasureError("the encoder gives a vector without a direction")
    return min(max(float(a @ b) / size, -1.0), 1.0)


def check_kept(kept: NDArray[np.bool_]) -> None:
    """Raise MeasureError unless something is left to compare."""
    if not kept.any():
        raise MeasureError("nothing lies outside the mask")
