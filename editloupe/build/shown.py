"""What models and people are shown and told of an image's row: a target's name, close-ups of boxes, a mask, a reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Final

from editloupe.imaging.geometry import expand
from editloupe.imaging.render import display_scale
from editloupe.imaging.views import LONG_SIDE
from editloupe.replies import one_line
from editloupe.tasks import Recipe
from editloupe.values import Box, ImageRef, Json, Sample

IMAGE: Final = "Image"
"""What questions about an image call it."""
PAIR: Final = ("Original Image", "Edited Image")
"""What questions about a pair call its images."""
SIGNS: Final = "\"'`“”‘’«»<>[]*_ \t.,;:"
"""Signs around a name that are no part of it."""
_ARTICLE: Final = re.compile(r"^(an?|the|some) ")


def plain_name(text: str) -> str:
    """Return a name in lower case on one line, without an article and without signs around it."""
    return _ARTICLE.sub("", one_line(text).casefold().strip(SIGNS))


def target_name(sample: Sample) -> str:
    """Return what the data calls the target; "" where it says nothing."""
    named = next((target.name for target in sample.targets if target.name), None)
    return str(named or sample.extra.get("target_name") or "").strip()


def boxes_of(sample: Sample) -> tuple[Box, ...]:
    """Return the boxes that the data has of the target, in px of the image."""
    return tuple(target.boxes["source"] for target in sample.targets if "source" in target.boxes)


def image(sample: Sample) -> Recipe:
    """Return the image as a whole."""
    return Recipe(alias=IMAGE, origin=sample.source)


def close_up(image: ImageRef, boxes: Sequence[Box]) -> Recipe:
    """Return the place about boxes, as large as Eq. 1 of DLEBench makes it, with the boxes outlined."""
    region = expand(reduce(Box.union, boxes), width=image.width, height=image.height)
    scale = display_scale(region.width, region.height, long_side=LONG_SIDE)
    width, height = max(1, round(scale * region.width)), max(1, round(scale * region.height))
    inside = [box.shifted(-region.x0, -region.y0).scaled(width / region.width, height / region.height) for box in boxes]
    params: dict[str, Json] = {"size": [width, height], "marks": [[round(v, 1) for v in box] for box in inside]}
    return Recipe(alias="Close-up", origin=image, op="crop", region=region, params=params)


def close_up_of(sample: Sample) -> Recipe:
    """Return the close-up of the data's boxes."""
    return close_up(sample.source, boxes_of(sample))


def marked(sample: Sample) -> Recipe:
    """Return the image, dark but where its mask is white."""
    return Recipe(alias="Marked", origin=sample.source, op="spotlight", params={"mask": sample.masks["edit"].to_json()})


def pair(sample: Sample, *, of_target: bool) -> Sequence[Recipe]:
    """Return the image and its reference.   of_target: the close-up of both, without marks, in place of the whole."""
    assert sample.reference is not None
    both = zip(PAIR, (sample.source, sample.reference), strict=True)
    if not of_target:
        return [Recipe(alias=alias, origin=origin) for alias, origin in both]
    close = close_up_of(sample)
    # A reference has the size of its image: the place is the same.
    params = {"size": close.params["size"]}
    return [Recipe(alias=alias, origin=origin, op="crop", region=close.region, params=params) for alias, origin in both]
