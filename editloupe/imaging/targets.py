"""Computes where a sample's targets are in each of its images: boxes carried from image to image, areas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from editloupe.values import Box, ImageRef, Role, Sample, Target

_BY_TRUST: tuple[Role, ...] = ("source", "reference", "edited")
"""Roles whose box is taken for a role that has none, in this order."""
_PAD_PX = 2.0

AREAS: Final = ((0.0007, "under 0.07 %"), (0.008, "0.07 to 0.8 %"), (0.1, "0.8 to 10 %"), (math.inf, "10 % and more"))
"""Shares of the image: (upper bound, name), smallest first; the bulk of DLEBench lies in the second (its Figure 4)."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A target's box in one image."""

    box: Box
    """In px of the image."""
    scaled_from: Role | None = None
    """The image whose box was scaled to this one; None for a box of its own."""


def images_of(sample: Sample) -> dict[Role, ImageRef]:
    """Return the images that a sample has, by role."""
    found: dict[Role, ImageRef | None] = {"source": sample.source, "edited": sample.edited, "reference": sample.reference}
    return {role: image for role, image in found.items() if image is not None}


def placed(target: Target, role: Role, images: Mapping[Role, ImageRef]) -> Placed | None:
    """Return a target's box in the image of `role`: its own there, else another's, scaled by the images' sizes; or None."""
    if role in target.boxes:
        return Placed(box=target.boxes[role])
    base = next((r for r in _BY_TRUST if r in target.boxes and r in images), None)
    if base is None:
        return None
    return Placed(box=_carried(target.boxes[base], images[base], images[role]), scaled_from=base)


def extent(target: Target, role: Role, images: Mapping[Role, ImageRef]) -> Placed | None:
    """Return the box of `placed`, grown to the source's and the reference's box: what the target takes up before and after.

    It is for edits after which something is elsewhere, of another size, or gone.
    """
    own = placed(target, role, images)
    if own is None:
        return None
    box, scaled_from = own.box, own.scaled_from
    for other in ("source", "reference"):
        if other != role and other in target.boxes and other in images:
            grown = box.union(_carried(target.boxes[other], images[other], images[role]))
            if grown != box:
                box, scaled_from = grown, other
    return Placed(box=box, scaled_from=scaled_from)


def _carried(box: Box, of: ImageRef, to: ImageRef) -> Box:
    return box.scaled(to.width / of.width, to.height / of.height)


def padded(box: Box, *, pad: float, width: int, height: int) -> Box:
    """Return a box grown on every side by `pad` of its shorter side, at least 2 px.

    It is rounded outward and clipped to the image.
    """
    grow = max(_PAD_PX, pad * min(box.width, box.height))
    grown = Box(box.x0 - grow, box.y0 - grow, box.x1 + grow, box.y1 + grow)
    return grown.rounded_out().clipped(width=width, height=height)


def covered_area(boxes: Sequence[Box]) -> float:
    """Return the area of the union of boxes in px²: what overlaps counts once."""
    xs = sorted({x for box in boxes for x in (box.x0, box.x1)})
    area = 0.0
    for x0, x1 in pairwise(xs):
        end = float("-inf")
        for box in sorted((b for b in boxes if b.x0 <= x0 and b.x1 >= x1), key=lambda b: b.y0):
            area += (x1 - x0) * max(0.0, box.y1 - max(box.y0, end))
            end = max(end, box.y1)
    return area


def relative_area(sample: Sample) -> float | None:
    """Return the share 0..1 of the source image that the targets take up; None where no box is known.

    What overlaps counts once.
    """
    images = images_of(sample)
    boxes = [found.box for target in sample.targets if (found := placed(target, "source", images)) is not None]
    return covered_area(boxes) / (sample.source.width * sample.source.height) if boxes else None


def relative_size(sample: Sample) -> tuple[float, float] | None:
    """Return (width, height) of the target's box as shares 0..1 of the source image's; None where no box is known.

    Of several targets it is the one whose box has the largest area.
    """
    images = images_of(sample)
    boxes = [found.box for target in sample.targets if (found := placed(target, "source", images)) is not None]
    if not boxes:
        return None
    box = max(boxes, key=lambda box: box.width * box.height)
    return box.width / sample.source.width, box.height / sample.source.height


def area_name(area: float) -> str:
    """Return the interval of a target area (share of the image, 0 to 1)."""
    return next(name for bound, name in AREAS if area < bound)


def without_boxes(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples in which no target, or not every target, has a box that can be used."""
    return [s for s in samples if not s.targets or any(placed(t, "source", images_of(s)) is None for t in s.targets)]
