"""The mask of what boxes enclose, as a segmenter sees it: GIE-Bench's masks (A1) begin so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from editloupe import models as installed
from editloupe.answers import Record
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import MeasureError
from editloupe.measures import base
from editloupe.values import Box, Json


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
        height, width = rgb.shape[:2]
        try:
            boxes = [Box(*box).clipped(width=width, height=height) for box in args.boxes]
        except ValueError as error:
            raise MeasureError(f"a box lies outside the image: {error}", status="input_error") from error
        segmenter = models.get("segment")
        parts = segmenter(rgb, boxes)
        mask = np.logical_or.reduce([part.mask for part in parts])
        share = float(mask.mean())
        facts: dict[str, Json] = {
            "outcome": "mask",
            "share": round(share, 6),
            "scores": [round(float(part.score), 6) for part in parts],
        }
        where = {"segmenter": segmenter.version, **installed.computed(segmenter)}
        if not all(part.mask.any() for part in parts):
            # Part of a target is no mask of it either.
            why = "the segmenter found nothing in a box"
            return base.Measured(answer=Record(data={**facts, "outcome": "empty"}), reason=why, data=where)
        if mask.all():
            why = "the mask covers the whole image"
            return base.Measured(answer=Record(data={**facts, "outcome": "full"}), reason=why, data=where)
        store = ImageStore()
        picture = store.add_array(np.repeat(np.where(mask, np.uint8(255), np.uint8(0))[:, :, None], 3, axis=2))
        return base.Measured(
            answer=Record(data={**facts, "picture": picture.to_json()}),
            reason=f"the mask covers {100 * share:.3g} % of the image",
            data=where,
            pictures=(store.data(picture),),
        )
