"""`enhancer`: one place of an image, enlarged two or four times."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from editloupe import models
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.tools.base import ToolContext
from editloupe.tools.bbox import BBox, box_in_px
from editloupe.tools.crops import CropTool
from editloupe.tools.reading import open_reader
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, View

MAX_SIDE: Final = 2048
"""Longest side of an enhanced picture in px."""


class Enhancer(CropTool):
    """Enlarges a box of an image with an upscaler; the plain crop is kept beside it in the trace."""

    name: ClassVar[str] = "enhancer"
    repeatable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "Enlarges a part of one image two or four times, for a place that is too small to judge. The result is at most "
        f"{MAX_SIDE} px a side."
    )

    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        target_image: str = Field(min_length=1, description='Name of the image: for example "Edited Image" or "Crop 1".')
        bbox: BBox
        scale: Literal[2, 4] = Field(default=4, description="How many times to enlarge: 2 or 4.")

    @classmethod
    def open(cls, settings: ToolSettings) -> Enhancer:
        """Return the tool with the upscaler and the text reader that the settings name. Raises ConfigError."""
        return cls(models.get("upscale", settings.upscaler, device=settings.device), open_reader(settings))

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        name = context.named(args.target_image)
        box = box_in_px(args.bbox, name=name, context=context)
        image = context.image(name)
        longest = max(box.width, box.height)
        if longest * args.scale > MAX_SIDE:
            advice = f"use scale 2, or a bbox of at most {MAX_SIDE // args.scale} px a side"
            if args.scale == 2 or longest * 2 > MAX_SIDE:
                advice = f"use a bbox of at most {MAX_SIDE // args.scale} px a side, or zoom_in, which reduces large parts"
            raise ToolError(
                f"bbox {args.bbox} is {box.width:.0f}×{box.height:.0f} px of {name!r}; ×{args.scale} would exceed "
                f"{MAX_SIDE} px a side: {advice}"
            )
        plain = render.crop(context.images.array(image), box)
        made = self.upscaler(plain, args.scale)
        enhanced, kept = context.images.add_array(made), context.images.add_array(plain)
        caution = (
            "It is a learned upscaler and may invent detail: do not rest a verdict on detail that the plain image lacks"
            if self.upscaler.learned
            else "Enlarging adds no detail"
        )
        view = View(
            image=enhanced,
            origin=image,
            region=box,
            window=Box.whole(width=enhanced.width, height=enhanced.height),
            op="enhance",
            params={"upscaler": self.upscaler.name, "scale": args.scale},
        )
        read = self.reading.in_crop(context.images, view, name=name, crop=context.crop_name(1))
        lines = [
            f"{context.crop_name(1)}: bbox {args.bbox} = px {list(box.ints())} of {name!r} ({image.width}×{image.height} "
            f"px), {box.width:.0f}×{box.height:.0f} px, enlarged ×{args.scale} to "
            f"{enhanced.width}×{enhanced.height} px by {self.upscaler.name}. {caution}.",
            *read.lines,
        ]
        return Observation(
            text="\n".join(lines),
            views=(view,),
            kept=(
                View(
                    image=kept, origin=image, region=box, window=Box.whole(width=kept.width, height=kept.height), op="crop"
                ),
            ),
            data={
                "crop": context.crop_name(1),
                "box": list(box.ints()),
                "scale": args.scale,
                "size": [enhanced.width, enhanced.height],
                "upscaler": self.upscaler.name,
                "learned": self.upscaler.learned,
                "weights": self.upscaler.version,
                **models.computed(self.upscaler),
                **read.data,
            },
        )
