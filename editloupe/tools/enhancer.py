"""`enhancer`: one place of an image, enlarged two or four times or more. The Enhancer tool of DLEBench (section 4.2).

The paper enhances every crop of its other tools, with Real-ESRGAN. That the model may call it by itself is ours; how crops
of the other tools are enlarged here is in `crops.py`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from editloupe import models
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.imaging.align import resize
from editloupe.tools.arguments import BBox, ImageArgs
from editloupe.tools.base import ToolContext
from editloupe.tools.crops import CropTool, add_view
from editloupe.tools.settings import ToolSettings
from editloupe.values import Json

MAX_SIDE: Final = 2048
"""Longest side of an enhanced picture in px."""


class Enhancer(CropTool):
    """Enlarges a box of an image with an upscaler; the plain crop is kept beside it in the trace."""

    name: ClassVar[str] = "enhancer"
    revision: ClassVar[str] = "2"
    description: ClassVar[str] = (
        "Enlarges a part of one image two or four times, or more where it would be smaller than zoom_in shows it. The "
        f"result is at most {MAX_SIDE} px a side."
    )

    class Args(ImageArgs):
        bbox: BBox
        scale: Literal[2, 4] = Field(default=4, description="How many times to enlarge at least: 2 or 4.")

    @classmethod
    def open(cls, settings: ToolSettings) -> Enhancer:
        """Return the tool with the upscaler that the settings name, whatever the device. Raises ConfigError."""
        return cls(models.get("upscale", settings.upscaler, device=settings.device))

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        name = context.named(args.target_image)
        box = context.box_in_px(args.bbox, name)
        image = context.image(name)
        longest = max(box.width, box.height)
        if longest * args.scale > MAX_SIDE:
            small = f"a bbox of at most {MAX_SIDE // args.scale} px a side"
            fits_twice = args.scale == 4 and longest * 2 <= MAX_SIDE
            advice = f"use scale 2, or {small}" if fits_twice else f"use {small}, or zoom_in, which reduces large parts"
            raise ToolError(
                f"bbox {args.bbox} is {box.width:.0f}×{box.height:.0f} px of {name!r}; ×{args.scale} would exceed "
                f"{MAX_SIDE} px a side: {advice}"
            )
        plain = render.crop(context.images.array(image), box)
        # Never smaller than zoom_in shows it: its crop has a margin, hence no larger a factor.
        scale = max(args.scale, int(render.display_scale(box.width, box.height, long_side=MAX_SIDE)))
        width, height = scale * plain.shape[1], scale * plain.shape[0]
        made = self.upscaler(plain, args.scale if self.upscaler.learned else scale)
        made = resize(made, width=width, height=height)
        by = self.upscaler.name
        caution = "It adds no detail to what zoom_in shows"
        if self.upscaler.learned:
            by += f" ×{args.scale}, then Lanczos" if scale > args.scale else ""
            caution = (
                "It is a learned upscaler and may invent detail: do not rest a verdict on detail that the plain image lacks"
            )
        more = f" (more than ×{args.scale}, since it is small)" if scale > args.scale else ""
        params: dict[str, Json] = {"upscaler": self.upscaler.name, "scale": scale}
        view = add_view(context, made, image, box, "enhance", params)
        text = (
            f"{context.crop_name(1)}: {name!r}, bbox {args.bbox} (px {list(box.ints())} of "
            f"{image.width}×{image.height}), enlarged ×{scale}{more} to {width}×{height} px by {by}. {caution}."
        )
        return Observation(
            text=text,
            views=(view,),
            kept=(add_view(context, plain, image, box, "crop"),),
            data={
                "crop": context.crop_name(1),
                "bbox": list(args.bbox),
                "box": list(box.ints()),
                "scale": scale,
                "asked_scale": args.scale,
                "size": [view.image.width, view.image.height],
                "upscaler": self.upscaler.name,
                "learned": self.upscaler.learned,
                "weights": self.upscaler.version,
                **models.computed(self.upscaler),
            },
        )
