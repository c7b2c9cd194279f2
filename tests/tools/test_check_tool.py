"""The conformance check refuses tools that break the contract."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field

from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.testing import check_tool
from editloupe.tools.arguments import BBox
from editloupe.tools.base import ToolContext
from editloupe.values import Box, View


class Cut:
    """A small tool that keeps the contract."""

    name: ClassVar[str] = "cut"
    version: ClassVar[str] = "1"
    description: ClassVar[str] = "Cuts a box out."

    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid")

        target_image: str = Field(description="Name of the image.")
        bbox: BBox

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        box = context.box_in_px(args.bbox, args.target_image)
        origin = context.image(args.target_image)
        image = context.images.add_array(render.crop(context.images.array(origin), box))
        window = Box.whole(width=image.width, height=image.height)
        view = View(image=image, origin=origin, region=box, window=window, op="crop")
        return Observation(text=f"px {list(box.ints())}", views=(view,))


class Undescribed(Cut):
    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid")

        target_image: str
        bbox: BBox


class Open(Cut):
    class Args(BaseModel):
        target_image: str = Field(description="Name of the image.")
        bbox: BBox


class Clamping(Cut):
    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid")

        target_image: str = Field(description="Name of the image.")
        bbox: list[int] = Field(min_length=4, max_length=4, description="Box.")

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        clamped = [min(max(v, 0), 1000) for v in args.bbox]
        return super().__call__(Cut.Args(target_image=args.target_image, bbox=clamped), context)


class Counting(Cut):
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        self.calls += 1
        return Observation(text=f"{super().__call__(args, context).text}, call {self.calls}")


class Straying(Cut):
    def __call__(self, args: Any, context: ToolContext) -> Observation:
        found = super().__call__(args, context)
        view = found.views[0]
        astray = View(
            image=view.image, origin=view.origin, region=view.region.shifted(500, 0), window=view.window, op="crop"
        )
        return Observation(text=found.text, views=(astray,))


class Guessing(Cut):
    def __call__(self, args: Any, context: ToolContext) -> Observation:
        known = args.target_image if args.target_image in context.views else next(iter(context.views))
        return super().__call__(Cut.Args(target_image=known, bbox=args.bbox), context)


class Silent(Cut):
    def __call__(self, args: Any, context: ToolContext) -> Observation:
        return Observation(text="Here it is.", views=super().__call__(args, context).views)


def test_a_tool_that_keeps_the_contract_passes_and_gives_its_observation() -> None:
    assert check_tool(Cut()).text == "px [80, 60, 240, 180]"  # the middle half of 320×240 px


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (Undescribed(), "'target_image' has no description"),
        (Open(), "must refuse unknown arguments"),
        (Clamping(), r"bbox \[100, 100, 1200, 900\] must raise ToolError"),
        (Counting(), "called twice, it differs: "),
        (Straying(), "outside its origin"),
        (Guessing(), "an unknown image as 'target_image' must raise ToolError"),
        (Silent(), "must state a box"),
    ],
)
def test_a_broken_promise_is_named(tool: Cut, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_tool(tool)
