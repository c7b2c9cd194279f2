"""From a phrase or boxes to a mask: the detector finds the box, the segmenter what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import ToolError
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import MAX_PHRASE, cleaned, means_whole_image, search
from editloupe.models.segment.base import Mask, Segmenter
from editloupe.values import Box, ImageRef, Json, digest


@dataclass(frozen=True, kw_only=True)
class MaskRequest:
    """What a mask is to be made of. Samples of one source and one phrase, as those of several editors, share it."""

    source: ImageRef
    phrase: str | None = None
    """What is looked for; None where boxes are given."""
    boxes: tuple[Box, ...] = ()
    """In px of the source: the mask is of what they hold together."""

    @property
    def how(self) -> Literal["boxes", "detector", "whole image"]:
        """Where the mask comes from. A phrase that means the whole image asks no model."""
        if self.phrase is None:
            return "boxes"
        return "whole image" if means_whole_image(self.phrase) else "detector"


@dataclass(frozen=True, kw_only=True, eq=False)
class MadeMask:
    """The mask of a target, or why there is none."""

    mask: Mask | None
    """Not empty."""
    reason: str = ""
    """Why there is no mask; "" with one."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """ "boxes" in px of the source, "box_score" of the detector, "mask_scores" of the segmenter, one a box."""


@dataclass(frozen=True, kw_only=True)
class MaskMaker:
    """Makes masks. None stands for a model that no request needs."""

    detector: Detector | None
    segmenter: Segmenter | None

    def versions(self, request: MaskRequest) -> dict[str, str]:
        """Return the versions of the models that take part."""
        used = {
            "detector": self.detector if request.how == "detector" else None,
            "segmenter": self.segmenter if request.how != "whole image" else None,
        }
        return {name: model.version for name, model in used.items() if model is not None}

    def key(self, request: MaskRequest) -> str:
        """Return 24 hex digits: a digest of what the mask is made of, and by which weights."""
        boxes = [list(box) for box in request.boxes]
        return digest([request.source.sha256, request.phrase, boxes, self.versions(request)])[:24]

    def __call__(self, request: MaskRequest, rgb: RGB) -> MadeMask:
        """Return the mask of what the boxes hold together, or of the best box that the detector finds for the phrase.

        rgb: the source, H×W×3 uint8.
        Raises ToolError for a phrase that cannot be looked for, and as the models do.
        """
        if request.how == "whole image":
            return MadeMask(mask=np.ones(rgb.shape[:2], dtype=bool))
        assert self.segmenter is not None
        facts: dict[str, Json] = {}
        boxes = request.boxes
        if request.phrase is not None:
            assert self.detector is not None
            if len(request.phrase) > MAX_PHRASE:
                raise ToolError(f"the phrase has {len(request.phrase)} characters; expected a name of at most {MAX_PHRASE}")
            found = search(self.detector, rgb, cleaned(request.phrase)).detections
            if not found:
                least = f"no box reached the detector's least score, {self.detector.threshold:.2f}"
                return MadeMask(mask=None, reason=f"{request.phrase!r} was not found: {least}")
            boxes, facts["box_score"] = (found[0].box,), round(found[0].score, 4)
        parts = self.segmenter(rgb, boxes)
        facts["boxes"] = [[round(v, 2) for v in box] for box in boxes]
        facts["mask_scores"] = [round(part.score, 4) for part in parts]
        for box, part in zip(boxes, parts, strict=True):
            # Part of a target is no mask of it either.
            if not part.mask.any():
                corners = ", ".join(f"{v:.0f}" for v in box)
                return MadeMask(mask=None, reason=f"the segmenter found nothing in the box [{corners}]", facts=facts)
        return MadeMask(mask=np.logical_or.reduce([part.mask for part in parts]), facts=facts)
