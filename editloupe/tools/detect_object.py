"""`detect_object`: is it there, how often, where? Text only.

The name and the arguments are from DLEBench's dialogues (Tables 11 and 12). Section 4.2 has no such tool beside Grounding.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from editloupe import models
from editloupe.findings import Observation
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import MAX_PHRASE, cleaned, search
from editloupe.tools.base import ToolContext
from editloupe.tools.bbox import ImageArgs
from editloupe.tools.search import facts, observation_lines
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tolerance import LEARNED, Tolerance


class DetectObject:
    """Asks an object detector for a name; see docs/tools.md for what a miss means."""

    name: ClassVar[str] = "detect_object"
    repeatable: ClassVar[bool] = True
    computes: ClassVar[bool] = True
    description: ClassVar[str] = (
        "Asks an object detector whether an image shows an object: how many, boxes and scores as text, without pictures. "
        "It can miss small or unusual things; that it finds nothing does not show that nothing is there."
    )
    tolerance: ClassVar[Tolerance] = LEARNED

    class Args(ImageArgs):
        detect_object_name: str = Field(
            min_length=1, max_length=MAX_PHRASE, description='The object in a few words: for example "red mug".'
        )

    def __init__(self, detector: Detector) -> None:
        self.detector = detector

    @classmethod
    def open(cls, settings: ToolSettings) -> DetectObject:
        """Return the tool with the detector that the settings name. Raises ModelAbsent and ConfigError."""
        return cls(models.get("detect", settings.detector, device=settings.device))

    @property
    def version(self) -> str:
        return f"3; {self.detector.version}"

    def prepare(self) -> None:
        """Load the detector now. Raises ConfigError."""
        models.prepare(self.detector)

    def describe(self) -> tuple[str, ...]:
        """Return the detector with what it was loaded for."""
        return (models.describe(self.detector),)

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        name = context.named(args.target_image)
        image = context.image(name)
        result = search(self.detector, context.images.array(image), cleaned(args.detect_object_name))
        return Observation(
            text="\n".join(observation_lines(result, self.detector, name=name, image=image)),
            data=facts(result, self.detector),
        )
