"""Measures that an object detector computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from editloupe.answers import Boxes, Confidence
from editloupe.data.images import RGB
from editloupe.errors import MeasureError, ToolError
from editloupe.measures import base
from editloupe.models.detect.search import MAX_PHRASE, cleaned, search
from editloupe.values import Box


class DetectTarget:
    """The places of a named object in one image, searched for in the whole image, then in tiles. Best first.

    The confidence is the score of the best box. No box is an answer: the detector found none.
    """

    name = "detect_target"
    version = "1"
    needs: tuple[str, ...] = ("detect",)

    class Args(base.Args):
        """What is looked for."""

        phrase: str = Field(min_length=1, max_length=MAX_PHRASE)
        """The object's name."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Boxes:
        """Return the boxes in thousandths.

        Raises MeasureError unless there is one image, and for a phrase that cannot be looked for.
        Raises ModelAbsent without a detector.
        """
        if len(images) != 1:
            raise MeasureError(f"expected one image, found {len(images)}", status="input_error")
        (rgb,) = images.values()
        height, width = rgb.shape[:2]
        try:
            found = search(models.get("detect"), rgb, cleaned(args.phrase)).detections
        except ToolError as error:
            raise MeasureError(str(error), status="tool_failed") from error
        boxes = tuple(Box(*(v * 1000 for v in d.box.to_unit(width=width, height=height))) for d in found)
        confidence = Confidence(value=found[0].score, source="detector") if found else None
        return Boxes(boxes=boxes, confidence=confidence)
