"""The arguments that several tools take: an image's name, and a box in it."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from editloupe.backends.boxes import BBOX_RULE
from editloupe.errors import ToolError
from editloupe.tools.arguments import looks_like_fractions
from editloupe.tools.base import ToolContext
from editloupe.values import Box

MIN_SIDE_PX: Final = 4

BBox: TypeAlias = Annotated[
    list[Annotated[int, Field(ge=0, le=1000)]],
    Field(
        min_length=4,
        max_length=4,
        description=f"Where to look: {BBOX_RULE}",
    ),
]


class ToolArgs(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImageArgs(ToolArgs):
    """The arguments of a tool that looks at one image."""

    target_image: str = Field(min_length=1, description='Name of the image: for example "Edited Image" or "Crop 1".')


def box_in_px(bbox: list[int], *, name: str, context: ToolContext) -> Box:
    """Return the box in whole px of the named image, rounded outward.

    Raises ToolError where the image is unknown, or the box is inverted, empty, or less than 4 px wide or high.
    """
    image = context.image(name)
    box = context.box(bbox, image)
    if min(box.width, box.height) < MIN_SIDE_PX:
        least = [-(-1000 * MIN_SIDE_PX // side) for side in (image.width, image.height)]
        advice = f"ask for x1 - x0 ≥ {least[0]} and y1 - y0 ≥ {least[1]}"
        if looks_like_fractions(bbox):
            advice += f"; if these are fractions of the image, multiply them by 1000: {[1000 * v for v in bbox]}"
        raise ToolError(
            f"bbox {bbox} is only {box.width:.1f}×{box.height:.1f} px of {name!r} ({image.width}×{image.height} px); "
            f"expected at least {MIN_SIDE_PX} px a side: {advice}"
        )
    return box.rounded_out()
