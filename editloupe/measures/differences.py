"""The share of an image that an edit changed: 0 for an edit that did nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.unchanged import change
from editloupe.measures.base import BaseMeasure, Measured
from editloupe.measures.pair import WholeArgs, whole_pair
from editloupe.scores import Interval, Metric


class DifferenceShare(BaseMeasure):
    """The share of the image that differs, 0 to 1. 0: both show the same, but for what saving a picture again leaves."""

    name = "differences"
    Args = WholeArgs
    metric = Metric(
        id="differences",
        name="Share of the image that differs",
        short="Differs",
        domain=Interval(low=0, high=1),
        better=None,
        unit="of the image",
    )

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the share. Raises MeasureError if a picture is missing, or too little can be compared."""
        source, edited = whole_pair(images)
        found = change(source, edited)
        if found is None:
            raise MeasureError("too few pixels can be compared to tell a difference from noise")
        return Measured(answer=Number(value=found.share), reason=found.how, data=found.data)
