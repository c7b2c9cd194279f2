"""What a detector or a segmenter sees in one image: places of a named object, and the mask of what boxes enclose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from editloupe import models as installed
from editloupe.answers import Boxes, Confidence, Record
from editloupe.data.images import RGB, ImageStore
from editloupe.measures import base
from editloupe.models.detect.search import MAX_PHRASE, cleaned, search
from editloupe.values import Box, Json


class DetectTarget(base.BaseMeasure):
    """The places of a named object in one image, searched for in the whole image, then in tiles. Best first.

    The confidence is the score of the best box. No box is an answer: the detector found none.
    """

    name = "detect_target"
    needs = ("detect",)

    class Args(base.Args):
        """What is looked for."""

        phrase: str = Field(min_length=1, max_length=MAX_PHRASE)
        """The object's name."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Boxes:
        """Return the boxes in thousandths.

        Raises MeasureError unless there is one image, and for a phrase that cannot be looked for.
        Raises ModelAbsent without a detector.
        """
        rgb = base.only(images)
        height, width = rgb.shape[:2]
        found = search(models.get("detect"), rgb, cleaned(args.phrase)).detections
        boxes = tuple(Box(*(v * 1000 for v in d.box.to_unit(width=width, height=height))) for d in found)
        confidence = Confidence(value=found[0].score, source="detector") if found else None
        return Boxes(boxes=boxes, confidence=confidence)


class Detections(base.BaseMeasure):
    """What a detector sees of a named object in one image: every box with its score, from a single pass, best first.

    The whole image is looked at once and no box is dropped as a duplicate of another, so that rules with thresholds of
    their own can be applied to what is recorded. No box is an answer: the detector saw none.
    """

    name = "detections"
    needs = ("detect",)

    class Args(base.Args):
        """What is looked for, and which boxes are recorded."""

        phrase: str = Field(min_length=1, max_length=MAX_PHRASE)
        """The object's name."""
        box_threshold: float = Field(default=0.25, ge=0, le=1)
        """A recorded box scores above it."""
        text_threshold: float = Field(default=0.25, ge=0, le=1)
        """A word of a box's label scores above it."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> base.Measured:
        """Return {"phrase", "detections": [{"box": [x0, y0, x1, y1] in thousandths, "score": 0 to 1, "label"}]}.

        Raises MeasureError unless there is one image, and for a phrase that cannot be looked for or is too long for the
        detector. Raises ModelAbsent without a detector.
        """
        rgb = base.only(images)
        height, width = rgb.shape[:2]
        detector = models.get("detect")
        thresholds = {"box_threshold": args.box_threshold, "text_threshold": args.text_threshold}
        (found,) = detector([rgb], cleaned(args.phrase), **thresholds)
        detections = [
            {
                "box": [round(v * 1000, 3) for v in d.box.to_unit(width=width, height=height)],
                "score": round(d.score, 6),
                "label": d.label,
            }
            for d in found.detections
        ]
        return base.Measured(
            answer=Record(data={"phrase": args.phrase, "detections": detections}),
            data={"detector": detector.version, "seen_px": [found.width, found.height], **installed.computed(detector)},
        )


class SegmentationMeasure(base.BaseMeasure):
    """What a segmenter sees in boxes of one image, all of them together.

    The answer is a Record: `outcome`, `share` of the image (0 to 1), `scores` (the expected IoU of each box) and, for the
    outcome "mask", `picture`, an ImageRef of the image's size, white inside. Outcomes:

    mask     the mask is there
    empty    in one of the boxes the segmenter found nothing
    full     the mask covers the whole image
    """

    name = "segmentation"
    needs = ("segment",)

    class Args(base.Args):
        """Where to look."""

        boxes: tuple[tuple[float, float, float, float], ...] = Field(min_length=1)
        """[x0, y0, x1, y1] in px of the image."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> base.Measured:
        """Return the mask.

        Raises MeasureError unless there is one image that holds the boxes, and where the segmenter fails.
        Raises ModelAbsent without a segmenter.
        """
        rgb = base.only(images)
        boxes = base.clipped(args.boxes, rgb, "a box")
        segmenter = models.get("segment")
        parts = segmenter(rgb, boxes)
        mask = np.logical_or.reduce([part.mask for part in parts])
        outcome, why = "mask", f"the mask covers {100 * float(mask.mean()):.3g} % of the image"
        if not all(part.mask.any() for part in parts):
            # Part of a target is no mask of it either.
            outcome, why = "empty", "the segmenter found nothing in a box"
        elif mask.all():
            outcome, why = "full", "the mask covers the whole image"
        facts: dict[str, Json] = {
            "outcome": outcome,
            "share": round(float(mask.mean()), 6),
            "scores": [round(float(part.score), 6) for part in parts],
        }
        pictures: tuple[bytes, ...] = ()
        if outcome == "mask":
            store = ImageStore()
            picture = store.add_array(np.repeat(np.where(mask, np.uint8(255), np.uint8(0))[:, :, None], 3, axis=2))
            pictures, facts["picture"] = (store.data(picture),), picture.to_json()
        where = {"segmenter": segmenter.version, **installed.computed(segmenter)}
        return base.Measured(answer=Record(data=facts), reason=why, data=where, pictures=pictures)
