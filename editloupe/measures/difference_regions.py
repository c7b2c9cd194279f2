"""What differs between two images, without words: places with an operation by rule and a confidence; how much in all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from pydantic import Field

from editloupe.answers import Number, Record
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.differences import CLEAR, LARGE_SHARE, LEAST_COMPARED_PX, Differences, Region, localize
from editloupe.imaging.orientation import UPRIGHT
from editloupe.imaging.standing import ChangedPlace, place
from editloupe.imaging.unchanged import change
from editloupe.measures.base import BaseMeasure, Measured
from editloupe.measures.pair import WholeArgs, whole_pair
from editloupe.scores import Interval, Metric
from editloupe.values import Box, Json

Op: TypeAlias = Literal["ADD", "EDIT", "REMOVE"]

EVEN_CHANCE: Final = 15.0
"""Squared levels; a region of this strength for each px of the image has confidence 0.5.

Of regions in real edits and drawn renderings, about half of those around it lie on a place that was really edited
(docs/measures.md#where-something-differs-without-words).
"""
MOVED: Final = 0.02
"""Share of the diagonal. A whole picture that moved by more has another frame."""


class DifferenceRegionsArgs(WholeArgs):
    """The arguments."""

    least_confidence: float = Field(default=0.1, ge=0, le=1)
    """A region below it is left out: faint light, what saving again leaves. Pictures that changed throughout keep all."""


class DifferenceRegions(BaseMeasure):
    """Where two images differ, as a Record of differences, strongest first.

    {"differences": [{"op": "ADD" | "EDIT" | "REMOVE", "object": "", "box": [x0, y0, x1, y1] in thousandths of the source,
    "confidence": 0 to 1}], "confidence_source": "detector"}. An empty list: nothing differs visibly.

    op: ADD where something stands out from its surroundings in the edited image and nearly nothing does in the source,
    REMOVE the other way round, EDIT elsewhere.   confidence: grows with the region's strength, `confidence`.
    If the picture changed as a whole and no place stands out, one EDIT covers it.
    """

    name = "difference_regions"
    Args = DifferenceRegionsArgs

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the differences. Raises MeasureError if a picture is missing, or too little can be compared."""
        source, edited = whole_pair(images)
        found = localize(source, edited)
        if not found.identical and found.compared_px < LEAST_COMPARED_PX:
            raise MeasureError("too few pixels can be compared to tell a difference from noise")
        whole, image = _whole(found), Box.whole(width=source.shape[1], height=source.shape[0])
        # The places of a picture that was turned are not the same in both images.
        regions = found.regions if found.alignment.orientation == UPRIGHT else ()
        kept = [r for r in regions if confidence(r, found) >= args.least_confidence]
        differences = [_difference(operation(place(found, r.box)), r.box, confidence(r, found), image) for r in kept]
        if whole and not differences:
            differences = [_difference("EDIT", image, 1.0, image)]
        faint = len(regions) - len(kept)
        data: dict[str, Json] = {
            "left_out": faint,
            "changed_share": round(found.changed_share, 6),
            "regenerated": found.regenerated,
            "whole": list(whole),
            "moved_px": round(found.alignment.motion.most, 3),
            "noise": round(found.noise, 3),
        }
        counts = (len(kept), "differs", "differ"), (faint, "is too faint to count", "are too faint to count")
        said = [f"{n} region {one}" if n == 1 else f"{n} regions {more}" for n, one, more in counts if n]
        beyond = "nothing differs beyond what saving a picture again leaves"
        nothing = "the images are pixel-identical" if found.identical else beyond
        record = Record(data={"differences": list[Json](differences), "confidence_source": "detector"})
        return Measured(answer=record, reason="; ".join((*said, *whole)) or nothing, data=data)


def operation(region: ChangedPlace) -> Op:
    """Return what happened to a region, by what stands out from its surroundings in each image.

    Swapping the two images swaps ADD and REMOVE.
    """
    return "ADD" if region.appeared else "REMOVE" if region.vanished else "EDIT"


def confidence(region: Region, found: Differences) -> float:
    """Return 0 to 1, higher is surer: s / (s + 15), s the region's strength for each px of the image in squared levels."""
    width, height = found.alignment.size_1
    strength = region.strength / (width * height)
    return strength / (strength + EVEN_CHANCE)


def _difference(op: Op, box: Box, sure: float, image: Box) -> dict[str, Json]:
    thousandths: list[Json] = [round(1000 * v, 3) for v in box.to_unit(width=image.width, height=image.height)]
    return {"op": op, "object": "", "box": thousandths, "confidence": round(sure, 4)}


def _whole(found: Differences) -> tuple[str, ...]:
    """Return what happened to the whole picture, in words; () where nothing did that anybody would see."""
    alignment = found.alignment
    turned, diagonal = alignment.orientation, float(np.hypot(*alignment.size_1))
    facts = (
        (turned.mirrored, "the edited image is mirrored"),
        (bool(turned.quarters), f"the edited image is turned by {90 * turned.quarters}°"),
        (found.regenerated, "the picture differs beyond single places"),
        (found.changed_share > LARGE_SHARE, f"{100 * found.changed_share:.0f} % of the picture differ clearly"),
        (found.tone_most >= CLEAR, f"the tone of the whole picture changed by up to {found.tone_most:.0f} of 255"),
        (alignment.placed, "the edited image shows another frame of the scene"),
        (alignment.motion.most > MOVED * diagonal, f"the whole picture moved by up to {alignment.motion.most:.0f} px"),
    )
    return tuple(words for says, words in facts if says)


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
