"""Computes where a sample's targets are, in fractions of its images: what one image knows holds for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import pairwise

from editloupe.values import Box, ImageRef, Role, Sample, Target

_BY_TRUST: tuple[Role, ...] = ("source", "reference", "edited")
"""Roles by how far their box is a person's word on where the target is, the most trusted first."""
_PAD_PX = 2.0


def images_of(sample: Sample) -> dict[Role, ImageRef]:
    """Return the images that a sample has, by role."""
    found: dict[Role, ImageRef | None] = {"source": sample.source, "edited": sample.edited, "reference": sample.reference}
    return {role: image for role, image in found.items() if image is not None}


def unit_boxes(target: Target, images: Mapping[Role, ImageRef]) -> dict[Role, Box]:
    """Return a target's boxes by role, in fractions 0..1 of the width and height of the role's image.

    The source's comes first. A box in an image that the sample does not have is left out. One that is thinner than a px is
    grown to whole px: no crop shows less.
    """
    return {
        role: _a_px_wide(target.boxes[role], images[role]).scaled(1 / images[role].width, 1 / images[role].height)
        for role in _BY_TRUST
        if role in target.boxes and role in images
    }


def _a_px_wide(box: Box, image: ImageRef) -> Box:
    if min(box.width, box.height) >= 1:
        return box
    x0, y0 = min(math.floor(box.x0), image.width - 1), min(math.floor(box.y0), image.height - 1)
    return Box(x0, y0, max(math.ceil(box.x1), x0 + 1), max(math.ceil(box.y1), y0 + 1))


def unit_hull(target: Target, images: Mapping[Role, ImageRef]) -> Box:
    """Return the box around all `unit_boxes` of a target: what it takes up before and after, in fractions 0..1.

    Raises ValueError for a target without a box.
    """
    boxes = list(unit_boxes(target, images).values())
    if not boxes:
        raise ValueError("a target without a box is nowhere")
    return reduce(Box.union, boxes)


def unit_masks(targets: Iterable[Target], images: Mapping[Role, ImageRef], *, pad: float) -> list[Box]:
    """Return the boxes that cover all targets, in fractions 0..1: one list, which holds for each of the images.

    Each box of each image is grown on every side by `pad` of its shorter side and by at least 2 px of the coarsest image,
    then cut outward (`cut_outward`). A box that lies inside another is left out.
    """
    source = images["source"]
    columns, rows = _coarsest(images)
    found: list[Box] = []
    for box in (box for target in targets for box in unit_boxes(target, images).values()):
        grow = pad * min(box.width * source.width, box.height * source.height)
        across, down = max(grow / source.width, _PAD_PX / columns), max(grow / source.height, _PAD_PX / rows)
        grown = cut_outward(Box(box.x0 - across, box.y0 - down, box.x1 + across, box.y1 + down), images)
        if not any(grown.union(other) == other for other in found):
            found = [*(other for other in found if grown.union(other) != grown), grown]
    return found


def cut_outward(box: Box, images: Mapping[Role, ImageRef]) -> Box:
    """Return a box in fractions, grown to whole px of the coarsest image and clipped to 0..1.

    So it ends at the same place in all images as nearly as their px allow.
    """
    width, height = _coarsest(images)
    whole = box.scaled(width, height).rounded_out().clipped(width=width, height=height)
    return whole.scaled(1 / width, 1 / height)


def in_px(box: Box, image: ImageRef) -> Box:
    """Return a box in fractions as a box in whole px of an image, rounded outward and clipped."""
    return box.scaled(image.width, image.height).rounded_out().clipped(width=image.width, height=image.height)


def _coarsest(images: Mapping[Role, ImageRef]) -> tuple[int, int]:
    """Return (width, height): the fewest columns and rows that any of the images has."""
    return min(image.width for image in images.values()), min(image.height for image in images.values())


def covered_area(boxes: Sequence[Box]) -> float:
    """Return the area of the union of boxes in px²: what overlaps counts once."""
    if len(boxes) == 1:
        return (boxes[0].x1 - boxes[0].x0) * (boxes[0].y1 - boxes[0].y0)
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
    boxes = _in_source(sample)
    return covered_area(boxes) / (sample.source.width * sample.source.height) if boxes else None


def relative_size(sample: Sample) -> tuple[float, float] | None:
    """Return (width, height) of the target's box as shares 0..1 of the source image's; None where no box is known.

    Of several targets it is the one whose box has the largest area.
    """
    box = max(_in_source(sample), key=lambda box: box.width * box.height, default=None)
    return None if box is None else (box.width / sample.source.width, box.height / sample.source.height)


def _in_source(sample: Sample) -> list[Box]:
    """Return one box a target in px of the source image; targets without a box are left out."""
    # A box in the source's own px stays as it is written: equal areas stay equal.
    found = [target.boxes.get("source") or _scaled_to_source(target, sample) for target in sample.targets]
    return [box for box in found if box is not None]


def _scaled_to_source(target: Target, sample: Sample) -> Box | None:
    """Return the most trusted box of a target in px of the source image; None where it has none."""
    box = next(iter(unit_boxes(target, images_of(sample)).values()), None)
    return None if box is None else box.scaled(sample.source.width, sample.source.height)


def without_boxes(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples in which no target, or not every target, has a box that can be used."""
    return [s for s in samples if not s.targets or not all(unit_boxes(t, images_of(s)) for t in s.targets)]
