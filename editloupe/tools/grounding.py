"""`grounding`: where is what a phrase names? Boxes in the text, the boxes drawn, and a close look at the best.

The Grounding tool of DLEBench (section 4.2), which is GroundingDINO. The tiles and the pictures are ours.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from editloupe import models
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.imaging.geometry import expand
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import MAX_PHRASE, cleaned, search
from editloupe.models.upscale.base import Upscaler
from editloupe.tools.base import ToolContext
from editloupe.tools.bbox import ImageArgs
from editloupe.tools.crops import CropTool, add_view, open_crop_upscaler, show_crop
from editloupe.tools.search import LISTED, facts, observation_lines
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tolerance import LEARNED, Tolerance
from editloupe.values import Json, View

_CONTEXT: Final = 0.5
"""The crop's sides are 1.5 times the box's: a close look, since the picture with the boxes shows the surroundings."""


class Grounding(CropTool):
    """Finds a phrase with an object detector and shows what it found; see docs/tools.md."""

    name: ClassVar[str] = "grounding"
    repeatable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "Finds what a phrase names in one image with an object detector. Shows the image with the boxes drawn and a crop "
        "of the best one; the text gives boxes and scores. It can miss small or unusual things; that it finds nothing does "
        "not show that nothing is there."
    )
    revision: ClassVar[str] = "3"

    class Args(ImageArgs):
        phrase: str = Field(
            min_length=1, max_length=MAX_PHRASE, description='What to find, in a few words: for example "red mug".'
        )

    def __init__(self, detector: Detector, upscaler: Upscaler | None = None) -> None:
        super().__init__(upscaler, detector)
        self.detector = detector

    @classmethod
    def open(cls, settings: ToolSettings) -> Grounding:
        """Return the tool with the models that the settings name. Raises ModelAbsent and ConfigError."""
        detector = models.get("detect", settings.detector, device=settings.device)
        return cls(detector, open_crop_upscaler(settings))

    @property
    def tolerance(self) -> Tolerance:
        return LEARNED

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        name = context.named(args.target_image)
        image = context.image(name)
        result = search(self.detector, context.images.array(image), cleaned(args.phrase))
        lines = observation_lines(result, self.detector, name=name, image=image)
        if not result.detections:
            return Observation(text="\n".join(lines), data=facts(result, self.detector))
        best = result.detections[0]
        region = expand(best.box, width=image.width, height=image.height, ratio=_CONTEXT)
        # Without the boxes drawn, so that no line hides what is to be judged.
        crop = show_crop(context, image, region, self.upscaler, params={"box": [round(v, 2) for v in best.box]})
        boxes = [found.box for found in result.detections[:LISTED]]
        picture = render.with_boxes(context.images.array(image), boxes)
        params: dict[str, Json] = {"boxes": [[round(v, 2) for v in box] for box in boxes]}
        drawn = add_view(context, picture, image, View.whole(image).region, "draw_boxes", params)
        around = list(region.to_thousandths(width=image.width, height=image.height))
        lines[-1:] = [
            f"{context.crop_name(1)}: {name!r} with numbered boxes, {drawn.image.width}×{drawn.image.height} px.",
            f"{context.crop_name(2)}: box 1 with its surroundings: bbox {around} (px {list(region.ints())}), {crop.how}.",
            lines[-1],
        ]
        data = {**facts(result, self.detector), "crops": [context.crop_name(1), context.crop_name(2)]}
        if crop.by:
            data["enlarged"] = dict(crop.by)
        return Observation(text="\n".join(lines), views=(drawn, crop.view), kept=crop.kept, data=data)
