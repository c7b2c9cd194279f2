"""An edit that is made in a crop about its target and put back: how DLEBench's reference images come about (3.1, Eq. 1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
from pydantic import Field

from editloupe import models as installed
from editloupe.answers import Record
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import EditError, MeasureError
from editloupe.imaging import paste, render
from editloupe.imaging.align import resize
from editloupe.imaging.geometry import expand
from editloupe.imaging.unchanged import change
from editloupe.measures import base
from editloupe.values import Box, Json

SEAM: Final = 4.0
MOST_SEAM: Final = 32.0
_SAME: Final = 4.0
"""Levels by which a place moves at the most, on average, if nothing but noise was added."""
_ABOUT: Final = 0.5
"""Of a box's width and height: so far about it a change is still one of the target, such as a copy beside it."""


class CropEdit(base.BaseMeasure):
    """What an image editor makes of the place about a target, put back into the image.

    The crop is that of Eq. 1 about all the target's boxes. The answer is a Record: `outcome`, `crop` in px, `seam_levels`,
    `feather_px`, `returned` ([width, height] in px) and, for the outcome "edited", `picture`, an ImageRef. Outcomes:

    edited       the picture is there
    no_image     the editor ended well and gave no image
    other_size   the image has another aspect ratio than the crop, by more than a pixel
    unchanged    the image shows what the crop showed
    off_target   something changed, and nothing in the target's boxes and about them
    seam         the crop's border differs too much to be blended
    """

    name = "crop_edit"
    needs = ("edit",)

    class Args(base.Args):
        """What is edited, and how it is put back."""

        instruction: str = Field(default="Change its color to blue.", min_length=1, max_length=2000)
        """For the editor."""
        boxes: tuple[tuple[float, float, float, float], ...] = Field(default=((140.0, 100.0, 190.0, 140.0),), min_length=1)
        """Of the target, [x0, y0, x1, y1] in px of the image."""
        seed: int = Field(default=0, ge=0)
        """For the editor; differs from try to try."""
        seam: float = Field(default=SEAM, ge=0, le=255)
        """Up to this difference along its border, in levels of 255, the crop is put back as it is."""
        most_seam: float = Field(default=MOST_SEAM, ge=0, le=255)
        """Up to this one it is blended with its surroundings. Beyond it nothing is put back."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> base.Measured:
        """Return what came of one edit.

        Raises MeasureError unless there is one image that holds the boxes, and where the editor fails or takes too long.
        Raises ModelAbsent without an editor.
        """
        rgb = base.only(images)
        boxes = base.clipped(args.boxes, rgb, "the target")
        region = expand(reduce(Box.union, boxes), width=rgb.shape[1], height=rgb.shape[0])
        before = render.crop(rgb, region)
        editor = models.get("edit")
        facts: dict[str, Json] = {"crop": list(region), "editor": editor.version}
        try:
            returned = np.asarray(editor(before.copy(), args.instruction, seed=args.seed))
        except EditError as error:
            if error.kind != "no_image":
                raise MeasureError(f"{error.kind.replace('_', ' ')}: {error}", status="tool_failed") from error
            return _outcome("no_image", str(error), facts)
        if returned.ndim != 3 or returned.shape[2] != 3 or returned.dtype != np.uint8 or not returned.size:
            found = f"{returned.dtype} of shape {returned.shape}"
            return _outcome("no_image", f"{editor.name} returned {found}; expected h×w×3 uint8", facts)
        facts |= {"returned": [returned.shape[1], returned.shape[0]], **installed.computed(editor)}
        edited = _fitted(returned, before)
        if edited is None:
            sizes = f"{returned.shape[1]}×{returned.shape[0]} px for a crop of {before.shape[1]}×{before.shape[0]} px"
            return _outcome("other_size", f"{editor.name} returned {sizes}", facts)
        targets = [box.shifted(-region.x0, -region.y0) for box in boxes]
        if not _changed(before, edited, targets):
            return _outcome("unchanged", f"{editor.name} returned what it was given", facts)
        if not any(_changed_about(before, edited, box) for box in targets):
            return _outcome("off_target", f"{editor.name} changed something else than the target", facts)
        return _put_back(rgb, edited, region, boxes, args, facts)


def _put_back(rgb: RGB, edited: RGB, region: Box, boxes: list[Box], args: Any, facts: dict[str, Json]) -> base.Measured:
    seam = paste.seam(rgb, edited, region)
    feather = 0 if seam.levels <= args.seam else paste.feather_px(region, boxes, seam.sides)
    facts |= {"seam_levels": round(seam.levels, 3), "feather_px": feather}
    differs = f"the border of the crop differs by {seam.levels:.1f} levels"
    if seam.levels > args.most_seam:
        return _outcome("seam", f"{differs}; at most {args.most_seam:g} can be blended", facts)
    store = ImageStore()
    picture = store.add_array(paste.pasted(rgb, edited, region, feather=feather, sides=seam.sides))
    how = f"{differs}; " + (f"blended over {feather} px" if feather else "put back as it is")
    return base.Measured(
        answer=Record(data={"outcome": "edited", **facts, "picture": picture.to_json()}),
        reason=how,
        pictures=(store.data(picture),),
    )


def _outcome(outcome: str, why: str, facts: Mapping[str, Json]) -> base.Measured:
    return base.Measured(answer=Record(data={"outcome": outcome, **facts}), reason=why)


def _fitted(returned: RGB, before: RGB) -> RGB | None:
    """Return an edited crop at the crop's size; None where its aspect ratio is another by more than a pixel."""
    (h, w), (height, width) = returned.shape[:2], before.shape[:2]
    scale = max(w / width, h / height)
    # In px of the smaller of the two.
    apart = max(abs(w - scale * width), abs(h - scale * height)) / max(1.0, scale)
    return resize(returned, width=width, height=height) if apart <= 1 else None


def _changed(before: RGB, edited: RGB, places: list[Box]) -> bool:
    """Return whether an image shows something else, in these places or anywhere, beyond what saving it again leaves."""
    if np.array_equal(before, edited):
        return False
    apart = np.abs(before.astype(np.int16) - edited.astype(np.int16))
    if any(float(apart[y0:y1, x0:x1].mean()) > _SAME for x0, y0, x1, y1 in (box.ints() for box in places)):
        return True
    found = change(before, edited)
    # Too small to be compared: the doubt is for people.
    return found is None or found.share > 0


def _changed_about(before: RGB, edited: RGB, box: Box) -> bool:
    """Return whether the place of a box, and what lies about it, shows something else."""
    height, width = before.shape[:2]
    dx, dy = _ABOUT * box.width, _ABOUT * box.height
    place = Box(box.x0 - dx, box.y0 - dy, box.x1 + dx, box.y1 + dy).clipped(width=width, height=height)
    inner = box.shifted(-place.ints()[0], -place.ints()[1])
    return _changed(render.crop(before, place), render.crop(edited, place), [inner])
