"""Views of what an edit is about, and of all the rest: crops around targets, and images with the targets masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

from editloupe.imaging import geometry
from editloupe.imaging.render import display_scale
from editloupe.imaging.targets import covered_area, cut_outward, images_of, in_px, unit_hull, unit_masks
from editloupe.imaging.views import LONG_SIDE
from editloupe.tasks import Recipe
from editloupe.values import Box, ImageRef, Json, Role, Sample, Target

Shown: TypeAlias = Mapping[Role, tuple[str, ImageRef]]
"""Role → the name of its view, and the image."""


def target_crops(
    sample: Sample, shown: Shown, targets: Sequence[Target], enlarged: Callable[[float], float]
) -> tuple[Recipe, ...]:
    """Return the crops that hold these targets: the same place of each image, at one scale, the targets outlined.

    enlarged: shorter side of a box in px → how far its crop reaches beyond it, as a share of the box's sides.
    """
    # A reference that the judge does not see still says how far a target reaches.
    known, source, frames, notes = images_of(sample), sample.source, list[Box](), list[Json]()
    hulls = [unit_hull(target, known) for target in targets]
    for hull in hulls:
        box = hull.scaled(source.width, source.height)
        shorter = min(box.width, box.height)
        ratio = enlarged(shorter)
        frames.append(geometry.expand(box, width=source.width, height=source.height, ratio=ratio))
        notes.append({"box": [round(v, 2) for v in box], "lambda": round(ratio, 4), "s": round(shorter, 2)})
    frame = cut_outward(reduce(Box.union, frames).scaled(1 / source.width, 1 / source.height), known)
    regions = {role: in_px(frame, image) for role, (_, image) in shown.items()}
    width, height = _size(regions)
    params: dict[str, Json] = {
        "size": [width, height],
        "marks": [[round(v, 1) for v in _within(hull, frame).scaled(width, height)] for hull in hulls],
        "targets": notes,
        "boxes_of": [role for role in known if any(role in target.boxes for target in targets)],
    }
    return tuple(
        Recipe(alias=alias, origin=image, op="crop", region=regions[role], params=params)
        for role, (alias, image) in shown.items()
    )


def target_masks(sample: Sample, shown: Shown, *, pad: float) -> tuple[Recipe, ...]:
    """Return the images with all targets masked, at the same place in each.

    pad: how far a mask is grown on every side, as a share of the box's shorter side.
    """
    known = images_of(sample)
    masks = unit_masks(sample.targets, known, pad=pad)
    boxes_of = [role for role in known if any(role in target.boxes for target in sample.targets)]

    def masked(alias: str, image: ImageRef) -> Recipe:
        boxes = [in_px(mask, image) for mask in masks]
        share = round(covered_area(boxes) / (image.width * image.height), 6)
        params: dict[str, Json] = {"boxes": [list(box.ints()) for box in boxes], "share": share, "boxes_of": boxes_of}
        return Recipe(alias=alias, origin=image, op="mask", params=params)

    return tuple(masked(alias, image) for alias, image in shown.values())


def _size(regions: Mapping[Role, Box]) -> tuple[int, int]:
    """Return (width, height) in px at which crops of the same place are shown, so that the finest loses no detail."""
    first, *others = regions.values()
    finer = max(1.0, *(max(box.width / first.width, box.height / first.height) for box in (first, *others)))
    # Within 5 % the sizes count as one, since resampling for so little would only blur.
    finer = 1.0 if finer < 1.05 else finer
    scale = finer * display_scale(finer * first.width, finer * first.height, long_side=LONG_SIDE)
    return max(1, round(scale * first.width)), max(1, round(scale * first.height))


def _within(box: Box, frame: Box) -> Box:
    """Return a box as fractions 0..1 of a frame."""
    return box.shifted(-frame.x0, -frame.y0).scaled(1 / frame.width, 1 / frame.height)
