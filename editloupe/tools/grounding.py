"""The two tools that ask an object detector: `grounding` shows what a phrase names, `detect_object` answers in words alone.

Grounding is DLEBench's tool (section 4.2), which is GroundingDINO; the tiles and the pictures are ours. The name and the
arguments of `detect_object` are from DLEBench's dialogues (Tables 11 and 12); section 4.2 has no such tool.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from editloupe import models
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.imaging.geometry import expand
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import MAX_PHRASE, Search, cleaned, search
from editloupe.models.upscale.base import Upscaler
from editloupe.tools.arguments import ImageArgs
from editloupe.tools.base import ToolContext
from editloupe.tools.crops import CropTool, ModelTool, add_view, open_crop_upscaler, show_crop
from editloupe.tools.settings import ToolSettings
from editloupe.values import ImageRef, Json, View

LISTED: Final = 10
"""Boxes that are written out and drawn; the rest are counted."""
_CONTEXT: Final = 0.5
"""The crop's sides are 1.5 times the box's: a close look, since the picture with the boxes shows the surroundings."""


class Grounding(CropTool):
    """Finds a phrase with an object detector and shows what it found; see docs/tools.md."""

    name: ClassVar[str] = "grounding"
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

    tolerance = ModelTool.tolerance
    """A detector's, whatever enlarges."""

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        result, said = _found(self.detector, args.phrase, args.target_image, context)
        if not result.detections:
            return said
        name, image, best = context.named(args.target_image), context.image(args.target_image), result.detections[0]
        region = expand(best.box, width=image.width, height=image.height, ratio=_CONTEXT)
        # Without the boxes drawn, so that no line hides what is to be judged.
        crop = show_crop(context, image, region, self.upscaler, params={"box": [round(v, 2) for v in best.box]})
        boxes = [found.box for found in result.detections[:LISTED]]
        picture = render.with_boxes(context.images.array(image), boxes)
        params: dict[str, Json] = {"boxes": [[round(v, 2) for v in box] for box in boxes]}
        drawn = add_view(context, picture, image, View.whole(image).region, "draw_boxes", params)
        around = list(region.to_thousandths(width=image.width, height=image.height))
        crops = [*map(context.crop_name, (1, 2))]
        *lines, last = said.text.split("\n")
        lines += [
            f"{crops[0]}: {name!r} with numbered boxes, {drawn.image.width}×{drawn.image.height} px.",
            f"{crops[1]}: box 1 with its surroundings: bbox {around} (px {list(region.ints())}), {crop.how}.",
            last,
        ]
        data = {**said.data, "crops": list[Json](crops), **({"enlarged": dict(crop.by)} if crop.by else {})}
        return Observation(text="\n".join(lines), views=(drawn, crop.view), kept=crop.kept, data=data)


class DetectObject(ModelTool):
    """Asks an object detector for a name; see docs/tools.md for what a miss means."""

    name: ClassVar[str] = "detect_object"
    description: ClassVar[str] = (
        "Asks an object detector whether an image shows an object: how many, boxes and scores as text, without pictures. "
        "It can miss small or unusual things; that it finds nothing does not show that nothing is there."
    )
    revision: ClassVar[str] = "3"

    class Args(ImageArgs):
        detect_object_name: str = Field(
            min_length=1, max_length=MAX_PHRASE, description='The object in a few words: for example "red mug".'
        )

    def __init__(self, detector: Detector) -> None:
        super().__init__(detector)
        self.detector = detector

    @classmethod
    def open(cls, settings: ToolSettings) -> DetectObject:
        """Return the tool with the detector that the settings name. Raises ModelAbsent and ConfigError."""
        return cls(models.get("detect", settings.detector, device=settings.device))

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        return _found(self.detector, args.detect_object_name, args.target_image, context)[1]


def _found(detector: Detector, phrase: str, target: str, context: ToolContext) -> tuple[Search, Observation]:
    """Return what a search of the named image found, and the same in words for the LMM and as data for programs.

    Data: boxes in px, and which detector ("detector", versions) computed where ("device"). Raises ToolError.
    """
    name, image = context.named(target), context.image(target)
    result = search(detector, context.images.array(image), cleaned(phrase))
    data: dict[str, Json] = {
        "phrase": result.phrase,
        "found": len(result.detections),
        "detections": [
            {"box": [round(v, 2) for v in d.box], "score": round(d.score, 4), "label": d.label} for d in result.detections
        ],
        "threshold": detector.threshold,
        "detector": detector.version,
        **models.computed(detector),
        "whole": list(result.whole),
        "tiles": [list(tile.ints()) for tile in result.tiles],
        "tile_seen": None if result.tile_seen is None else list(result.tile_seen),
    }
    where = f"{name!r} ({image.width}×{image.height} px)"
    lines = _listed(result, detector, where, image) if result.detections else _missed(result, detector, where)
    return result, Observation(text="\n".join(lines), data=data)


def _missed(result: Search, detector: Detector, where: str) -> list[str]:
    return [
        f"No {result.phrase!r} found in {where}: no box reached the score {detector.threshold:.2f}. "
        f"Searched by {detector.name}: {_searched(result)}.",
        "That does not show that it is absent: small, partly hidden or unusual things are missed. Look with zoom_in at "
        "the place where it should be.",
    ]


def _listed(result: Search, detector: Detector, where: str, image: ImageRef) -> list[str]:
    total = len(result.detections)
    lines = [
        f"{result.phrase!r} in {where}: {total} found with a score of {detector.threshold:.2f} or more by {detector.name}."
    ]
    if result.tiles:
        lines.append(
            f"Only on a second look: nothing in the whole image, these in tiles ({_searched(result)}). An object that a "
            "tile's border cuts may be listed in parts."
        )
    for number, found in enumerate(result.detections[:LISTED], start=1):
        box = list(found.box.to_thousandths(width=image.width, height=image.height))
        matched = f", matched {found.label!r}" if found.label and found.label != result.phrase else ""
        size = f"{found.box.width:.0f}×{found.box.height:.0f} px"
        lines.append(f"{number}: bbox {box}, {size}, score {found.score:.2f}{matched}.")
    if total > LISTED:
        lines.append(f"{total - LISTED} more with lower scores are not listed.")
    return [
        *lines,
        "Boxes are [x0, y0, x1, y1] in thousandths of width and height. A score is the detector's opinion: a box may hold "
        "something else, one object may have two boxes, and a detector can miss some.",
    ]


def _searched(result: Search) -> str:
    text = f"the whole image at {result.whole[0]}×{result.whole[1]} px"
    if result.tiles and result.tile_seen is not None:
        tile, seen = result.tiles[0], result.tile_seen
        size = f"{tile.width:.0f}×{tile.height:.0f} px"
        shown = f"each at {seen[0]}×{seen[1]} px" if seen != (tile.width, tile.height) else "each at its own size"
        return f"{text}, then {len(result.tiles)} overlapping tiles of {size}, {shown}"
    return f"{text}; no tiles, since the image is too small to divide" if not result.detections else text
