"""`zoom_in`: a closer look at one place, at native resolution. The Zoom-In tool of DLEBench (section 4.2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from editloupe.findings import Observation
from editloupe.tools.arguments import BBox, ImageArgs
from editloupe.tools.base import ToolContext
from editloupe.tools.crops import CropTool, show_crop
from editloupe.values import Box, ImageRef, canonical_json

_MARGIN = 0.1
_MIN_MARGIN_PX = 8
_CUT = ("crop", "side_by_side")
"""What shows a part of an image as it is."""


class ZoomIn(CropTool):
    """Cuts a box out of an image, with a margin, and enlarges it where it is small."""

    name: ClassVar[str] = "zoom_in"
    revision: ClassVar[str] = "3"
    description: ClassVar[str] = (
        "Shows a part of one image at full resolution, with a small margin; small parts are enlarged. Move or shrink the "
        "bbox and call again until you see what you look for."
    )

    class Args(ImageArgs):
        bbox: BBox
        label: str = Field(default="", max_length=200, description="What you expect to see there, in a few words.")

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        name = context.named(args.target_image)
        box = context.box_in_px(args.bbox, name)
        image, box, limits = _parent(context, name, box)
        margin = max(_MIN_MARGIN_PX, round(_MARGIN * max(box.width, box.height)))
        region = Box(box.x0 - margin, box.y0 - margin, box.x1 + margin, box.y1 + margin)
        region = region.intersection(limits) or limits
        shown = show_crop(context, image, region, self.upscaler, params={"box": list(box), "margin_px": margin})
        looked_for = f" Looking for: {args.label.strip()}." if args.label.strip() else ""
        region_bbox = list(region.to_thousandths(width=image.width, height=image.height))
        where = repr(name) if image == context.image(name) else f"{name!r}, cut anew from the image that it shows"
        lines = [
            f"{context.crop_name(1)}: {where}, bbox {region_bbox} (px {list(region.ints())} of "
            f"{image.width}×{image.height}), {shown.how}. It is your bbox {args.bbox} (px {list(box.ints())}) with "
            f"{margin} px of margin, less where the image ends.{looked_for}"
        ]
        call = canonical_json(
            {"name": self.name, "arguments": args.model_dump(exclude_unset=True) | {"target_image": name}}
        )
        if call in context.past_calls:
            lines.append("You made exactly this call before: the picture is the same. Choose another bbox to see more.")
        return Observation(
            text="\n".join(lines),
            views=(shown.view,),
            kept=shown.kept,
            data={
                "crop": context.crop_name(1),
                "bbox": list(args.bbox),
                "box": list(box.ints()),
                "region_bbox": region_bbox,
                "region": list(region.ints()),
                "scale": round(shown.scale, 4),
                "size": [shown.view.image.width, shown.view.image.height],
                "repeated": call in context.past_calls,
                **shown.by,
            },
        )


def _parent(context: ToolContext, name: str, box: Box) -> tuple[ImageRef, Box, Box]:
    """Return the image that a crop was cut from, a box of the crop in px of it, and the part of it that the crop shows.

    A crop that was enlarged has no more detail than its parent, and one that was reduced has less. Of a picture of two
    panes, it is the image of the pane in which the box lies. What was not cut is its own parent.
    """
    image = context.image(name)
    for view in context.views_of(name):
        if view.op in _CUT and view.window.intersection(box) == box:
            return view.origin, view.to_origin(box).rounded_out().intersection(view.region) or view.region, view.region
    return image, box, Box.whole(width=image.width, height=image.height)
