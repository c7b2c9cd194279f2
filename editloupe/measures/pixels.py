"""Measures that compare pixels: MSE, PSNR, L1, and the alignment itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from editloupe.answers import Answer, Number, Record
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.warp import How, squared_difference
from editloupe.measures.base import BaseMeasure, Measured
from editloupe.measures.pair import Pair, PairArgs, compared, summed
from editloupe.scores import Interval, Metric, Real


class _OfPair(BaseMeasure):
    """A number that two images in one frame give."""

    Args = PairArgs

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the number. Raises MeasureError if it is not defined, or a picture is missing."""
        pair = compared(args, images)
        return pair.answered(Number(value=self.value(pair)))

    def value(self, pair: Pair) -> float:
        """Return the number. Raises MeasureError if it is not defined."""
        raise NotImplementedError


class MSE(_OfPair):
    """Mean squared error over pixels and channels, in squared levels of 0 to 255 (lower is better)."""

    name = "mse"
    version = "2"
    metric = Metric(id="mse", name="MSE", domain=Interval(low=0, high=255**2), better="lower", unit="squared levels")

    def value(self, pair: Pair) -> float:
        """Return the error."""
        return squared_difference(pair.source, pair.edited, pair.kept)


class PSNR(_OfPair):
    """Peak signal-to-noise ratio, 10 · log10(255² / MSE), in dB (higher is better)."""

    name = "psnr"
    version = "2"
    metric = Metric(id="psnr", name="PSNR", domain=Real(), unit="dB")

    def value(self, pair: Pair) -> float:
        """Return the ratio. Raises MeasureError for equal pixels: it is infinite."""
        error = squared_difference(pair.source, pair.edited, pair.kept)
        if error == 0:
            raise MeasureError("infinite: what is compared is equal")
        return 10 * math.log10(255**2 / error)


class L1(_OfPair):
    """Mean absolute difference over pixels and channels, in levels of 0 to 255 (lower is better)."""

    name = "l1"
    metric = Metric(id="l1", name="L1", domain=Interval(low=0, high=255), better="lower", unit="levels")

    def value(self, pair: Pair) -> float:
        """Return the difference."""
        total, count = summed(pair.source, pair.edited, pair.kept)
        return total / count


class AlignmentArgs(PairArgs):
    """The arguments, by default with SIFT."""

    align: How = "sift"


class AlignmentMeasure(BaseMeasure):
    """The motion of the whole picture between source and edited image, with what it explains.

    A Record of matrix, matches, inliers, residuals before and after, whether it was accepted, and why not.
    """

    name = "alignment"
    Args = AlignmentArgs
    metric = Metric(
        id="alignment",
        name="Residual after alignment",
        short="Alignment",
        domain=Interval(low=0, high=1),
        better=None,
        unit="of the one before",
    )

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the motion. Raises MeasureError if a picture is missing, or nothing lies outside the mask."""
        pair = compared(args, images)
        return pair.answered(Record(data=pair.aligned.to_json()))


def residual_left(answer: Answer) -> tuple[float | None, str]:
    """Return which share of the difference an alignment leaves, 0 to 1; None, with the reason, if nothing was aligned."""
    data = answer.data if isinstance(answer, Record) else None
    if not isinstance(data, Mapping) or "accepted" not in data:
        return None, f"its answer is no number: {answer}"[:300]
    before, after = data["residual_before"], data["residual_after"]
    if data["accepted"] is True and isinstance(before, float) and isinstance(after, float):
        # As published, an alignment is also kept where it makes things worse.
        return (min(after / before, 1.0) if before else 1.0), ""
    return None, str(data["why"])
