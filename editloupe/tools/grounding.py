"""`grounding`: where is what a phrase names? Boxes in the text, the boxes drawn, and a close look at the best."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.imaging.geometry import expand
from editloupe.tools import detectors, upscalers
from editloupe.tools.base import Desk, Prepares
from editloupe.tools.crops import show_crop
from editloupe.tools.detectors import Detection, Detector, open_detector
from editloupe.tools.readers import NoReader, TextReader, open_reader
from editloupe.tools.reading import TextReading
from editloupe.tools.search import LISTED, MAX_PHRASE, cleaned, facts, search, told
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tolerance import LEARNED, Tolerance
from editloupe.tools.upscalers import Lanczos, Upscaler, open_automatic_upscaler, prepare
from editloupe.values import Box, ImageRef, View

_CONTEXT: Final = 0.5
"""The crop's sides are 1.5 times the box's: a close look, since the picture with the boxes shows the surroundings."""


class Grounding:
    """Finds a phrase with an object detector and shows what it found; see docs/tools.md."""

    name: ClassVar[str] = "grounding"
    repeatable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "Finds what a phrase names in one image with an object detector. Shows the image with the boxes drawn and a crop "
        "of the best one; the text gives boxes and scores. It can miss small or unusual things; that it finds nothing does "
        "not show that nothing is there."
    )

    tolerance: ClassVar[Tolerance] = LEARNED

    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        target_image: str = Field(min_length=1, description='Name of the image: for example "Edited Image" or "Crop 1".')
        phrase: str = Field(
            min_length=1, max_length=MAX_PHRASE, description='What to find, in a few words: for example "red mug".'
        )

    def __init__(
        self, detector: Detector, upscaler: Upscaler | None = None, reader: TextReader | NoReader | None = None
    ) -> None:
        self.detector = detector
        self.upscaler: Upscaler = Lanczos() if upscaler is None else upscaler
        self.reading = TextReading(reader)

    @classmethod
    def open(cls, settings: ToolSettings) -> Grounding:
        """With the detector that the settings name, the upscaler for small crops, and the text reader.

        Raises ToolAbsent and ConfigError.
        """
        return cls(open_detector(settings), open_automatic_upscaler(settings), open_reader(settings))

    @property
    def version(self) -> str:
        return self.reading.version(f"2; {self.detector.version}; {self.upscaler.version}")

    def prepare(self) -> None:
        """Load detector, upscaler and reader now. Raises ConfigError."""
        if isinstance(self.detector, Prepares):
            self.detector.prepare()
        prepare(self.upscaler)
        self.reading.prepare()

    def holds(self) -> tuple[str, ...]:
        """The detector, the upscaler and the reader of text."""
        return detectors.held(self.detector), upscalers.held(self.upscaler), *self.reading.holds()

    def __call__(self, args: Args, desk: Desk) -> Observation:
        name = desk.named(args.target_image)
        image = desk.image(name)
        result = search(self.detector, desk.images.array(image), cleaned(args.phrase))
        lines = told(result, self.detector, name=name, image=image)
        if not result.detections:
            return Observation(text="\n".join(lines), data=facts(result, self.detector))
        best = result.detections[0]
        region = expand(best.box, width=image.width, height=image.height, ratio=_CONTEXT)
        # Without the boxes drawn, so that no line hides what is to be judged.
        crop = show_crop(desk, image, region, self.upscaler, params={"box": [round(v, 2) for v in best.box]})
        drawn = self._drawn(desk, image, result.detections[:LISTED])
        text = self.reading.in_crop(desk.images, crop.view, name=name, crop=desk.crop_name(2))
        lines[-1:] = [
            f"{desk.crop_name(1)}: {name!r} with numbered boxes, {drawn.image.width}×{drawn.image.height} px.",
            f"{desk.crop_name(2)}: box 1 with its surroundings: px {list(region.ints())} of {name!r}, "
            f"{region.width:.0f}×{region.height:.0f} px, {crop.how}.",
            *text.lines,
            lines[-1],
        ]
        data = {**facts(result, self.detector), "crops": [desk.crop_name(1), desk.crop_name(2)], **text.data}
        if crop.by:
            data["enlarged"] = dict(crop.by)
        return Observation(text="\n".join(lines), views=(drawn, crop.view), kept=crop.kept, data=data)

    def _drawn(self, desk: Desk, image: ImageRef, detections: tuple[Detection, ...]) -> View:
        picture = render.with_boxes(desk.images.array(image), [d.box for d in detections])
        made = desk.images.add_array(picture)
        return View(
            image=made,
            origin=image,
            region=Box.whole(width=image.width, height=image.height),
            window=Box.whole(width=made.width, height=made.height),
            op="draw_boxes",
            params={"boxes": [[round(v, 2) for v in d.box] for d in detections]},
        )
