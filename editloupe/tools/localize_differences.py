"""`localize_differences`: where do two images differ? Crops side by side, boxes in the text.

The Difference tool of DLEBench (section 4.2), under the name that its dialogues have (Tables 8, 11 and 12). How differences
are found is ours, since the paper says no more than that it compares pixels.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import ClassVar, Self

from pydantic import Field

from editloupe import models
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.imaging.alignment import Alignment
from editloupe.imaging.differences import Differences, localize
from editloupe.models.upscale.base import Lanczos, Upscaler
from editloupe.tools.arguments import ToolArgs
from editloupe.tools.base import ToolContext
from editloupe.tools.crops import CropTool, describe_enlargement, enlarge, open_crop_upscaler
from editloupe.tools.difference_words import DifferenceWords
from editloupe.tools.layout import MOST_CROPS_BESIDE_IT, MOST_PX, Canvas, Look, lay_out, with_overview
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tolerance import LEARNED, MEASURED, Tolerance
from editloupe.values import Box, Json, View

SHOWN = 3
"""Crops that are shown where the budget pays for them. A fourth and a fifth follow if they have a quarter of the strongest
one's strength."""
SHOWN_AT_MOST = 5
LEAST_OF_STRONGEST = 0.0005
"""Least share of the strongest region's strength that a region with a picture has. A weaker one is listed by its box."""


class LocalizeDifferences(CropTool):
    """Compares two images pixel by pixel; see docs/tools.md for how."""

    name: ClassVar[str] = "localize_differences"
    revision: ClassVar[str] = "6"
    description: ClassVar[str] = (
        "Compares the pixels of two images and shows the places that differ most, each as a picture of two panes: left of "
        "a red line the first image, right of it the second, same place and scale. The text gives the boxes."
    )

    class Args(ToolArgs):
        comparison_image_1: str = Field(
            min_length=1, description='Name of the image to compare from, shown left: for example "Original Image".'
        )
        comparison_image_2: str = Field(
            min_length=1, description='Name of the image to compare with, shown right: for example "Edited Image".'
        )

    def __init__(
        self,
        upscaler: Upscaler | None = None,
        *,
        picture_budget: float = ToolSettings.picture_budget,
    ) -> None:
        super().__init__(upscaler)
        self.picture_budget = picture_budget

    @classmethod
    def open(cls, settings: ToolSettings) -> Self:
        """Return the tool as the settings have it. Raises ConfigError."""
        return cls(open_crop_upscaler(settings), picture_budget=settings.picture_budget)

    @property
    def version(self) -> str:
        own = "" if self.picture_budget == ToolSettings.picture_budget else f"; picture budget {self.picture_budget:g}"
        return f"{super().version}{own}"

    @property
    def tolerance(self) -> Tolerance:
        return LEARNED if self.upscaler.learned else MEASURED

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        names = (context.named(args.comparison_image_1), context.named(args.comparison_image_2))
        if names[0] == names[1]:
            raise ToolError(
                f"both arguments name {names[0]!r}; name two images to compare: {', '.join(map(repr, context.views))}"
            )
        images = [context.image(name) for name in names]
        masks_1, masks_2 = (context.masks(name) for name in names)
        found = localize(*map(context.images.array, images), masks_1=masks_1, masks_2=masks_2)
        if found.identical:
            return _identical(found, names, context)
        budget = self.picture_budget * sum(context.tokens(image.width, image.height) for image in images)
        canvas = _canvas(found.alignment, context)
        whole, looks = _looks(found, canvas, budget)
        # The whole pair comes last, so that the strongest region has the first crop.
        pairs = [_panes(look, found, names, context, self.upscaler) for look in (*looks, *whole)]
        crops = [context.crop_name(number) for number in range(1, len(pairs) + 1)]
        shown_in: dict[int, str] = {}
        for crop, look in zip(crops, (*looks, *whole), strict=True):
            shown_in = {**dict.fromkeys(look.regions, crop), **shown_in}
        shown = [shown_in[index] for index in range(len(shown_in))]
        views, kept = ([view for pair in pairs for view in pair[which]] for which in (0, 1))
        enlarged: dict[str, list[str]] = {}
        for crop, look, (_, plain) in zip(crops, looks, pairs, strict=False):
            if look.scale > canvas.finer:
                how = describe_enlargement(self.upscaler if plain else Lanczos())
                enlarged.setdefault(how, []).append(f"{crop} ×{look.scale:.2g}")
        words = DifferenceWords(found, repr(names[0]), repr(names[1]))
        numbered = ", with the regions numbered" * bool(found.regions)
        lines = [
            *words.regions(shown),
            *(words.widespread() if found.widespread else ()),
            *(f"{crop}: both images as a whole{numbered}." for crop in crops[len(looks) :]),
            *words.notes(),
            *(f"Enlarged {how}: {', '.join(dict.fromkeys(which))}." for how, which in enlarged.items()),
        ]
        if found.regions:
            lines.append(
                "Boxes are [x0, y0, x1, y1] in thousandths of width and height. These differences are measured on pixels "
                f"(threshold about {found.threshold:.0f} of 255, more at strong edges, less over larger places) and may "
                "include changes that no person would see; judge by what the pictures show."
            )
        pictures: list[Json] = [
            {
                "name": context.crop_name(number),
                "size": [image.width, image.height],
                "tokens": context.tokens(image.width, image.height),
            }
            for number, image in enumerate(dict.fromkeys(view.image for view in views), start=1)
        ]
        data: dict[str, Json] = {
            **_data(found, crops=shown),
            "pictures": pictures,
            "budget": {"tokens": math.floor(budget), "rule": context.image_tokens.rule},
            **(models.computed(self.upscaler) if kept else {}),
        }
        return Observation(text="\n".join(lines), views=tuple(views), kept=tuple(kept), data=data)


def _canvas(alignment: Alignment, context: ToolContext) -> Canvas:
    """Return what a picture of the two images may show, and what it costs at the backend."""
    (w1, h1), (w2, h2) = alignment.size_1, alignment.laid_2
    finer = max(1.0, w2 / w1, h2 / h1)
    return Canvas(
        image=Box.whole(width=w1, height=h1),
        common=alignment.common(),
        # The finer of the two sets the scale, so that neither loses detail. Within 5 % the sizes count as one.
        finer=1.0 if finer < 1.05 else finer,
        tokens=context.tokens,
        most_px=min(MOST_PX, context.max_image_side or MOST_PX),
        turned=alignment.orientation.quarters % 2 == 1,
        second_aspect=alignment.size_2[0] / alignment.size_2[1] if alignment.reframed else None,
    )


def _looks(found: Differences, canvas: Canvas, budget: float) -> tuple[list[Look], list[Look]]:
    """Return the picture of the whole pair, where there is to be one, and those of the strongest regions."""
    strengths = [region.strength for region in found.regions]
    strong = sum(strength >= 0.25 * strengths[0] for strength in strengths)
    worth = sum(strength >= LEAST_OF_STRONGEST * strengths[0] for strength in strengths)
    boxes = [region.box for region in found.regions[: min(worth, max(SHOWN, min(strong, SHOWN_AT_MOST)))]]
    if found.widespread:
        whole, looks = with_overview(boxes[:MOST_CROPS_BESIDE_IT], canvas, budget, strong=strong)
        return [whole], looks
    return [], lay_out(boxes, canvas, budget, strong=strong) if boxes else []


def _panes(
    look: Look, found: Differences, names: tuple[str, str], context: ToolContext, upscaler: Upscaler
) -> tuple[list[View], list[View]]:
    """Return the views of a picture of two panes, and of the same without a learned upscaler's work; [] if it did none."""
    images, sizes = [context.image(name) for name in names], (look.pane, look.second_pane)
    whole_2 = Box.whole(width=images[1].width, height=images[1].height)
    box_2 = whole_2 if look.second_aspect is not None else found.alignment.to_image_2(look.frame) or whole_2
    frames, titles = (look.frame, box_2), _titles(look, names)
    cuts = [render.crop(context.images.array(image), frame) for image, frame in zip(images, frames, strict=True)]
    regions = {index + 1: found.regions[index].box for index in look.regions}
    moved = {number: found.alignment.to_image_2(box) for number, box in regions.items()}
    # As far as they lie in both images.
    places = (regions, {number: box for number, box in moved.items() if box is not None})

    def picture(by: Upscaler) -> list[View]:
        panes = []
        for cut, frame, (width, height), boxes in zip(cuts, frames, sizes, places, strict=True):
            x, y = width / frame.width, height / frame.height
            drawn = {number: box.shifted(-frame.x0, -frame.y0).scaled(x, y) for number, box in boxes.items()}
            pane = enlarge(by, cut, width=width, height=height)
            panes.append(render.outlined(pane, drawn, numbered=len(regions) > 1))
        made, *windows = render.side_by_side(*panes, titles=titles)
        image = context.images.add_array(made)
        params: dict[str, Json] = {"boxes": [list(box) for box in regions.values()], "scale": round(look.scale, 4)}
        params |= {"upscaler": by.name} if by.learned else {}
        return [
            View(image=image, origin=origin, region=box, window=window, op="side_by_side", params={**params, "pane": pane})
            for origin, box, window, pane in zip(images, frames, windows, ("left", "right"), strict=True)
        ]

    # A learned upscaler is for small crops; bringing two sizes together is no reason to invent detail in one.
    by = upscaler if all(max(cut.shape[:2]) < max(look.pane) for cut in cuts) else Lanczos()
    return picture(by), picture(Lanczos()) if by.learned else []


def _titles(look: Look, names: tuple[str, str]) -> tuple[str, str]:
    """Return what is written above the panes: the numbers of the regions, and which image it is."""
    numbers = ", ".join(str(index + 1) for index in look.regions)
    left, right = (name if name.isascii() else f"Image {i}" for i, name in enumerate(names, start=1))
    return (f"{numbers}: {left}", f"{numbers}: {right}") if numbers else (left, right)


def _identical(found: Differences, names: tuple[str, str], context: ToolContext) -> Observation:
    """Return the observation of two images whose decoded pixels are the same. Those of their files may differ."""
    first, second = (context.image(name) for name in names)
    data, both, size = _data(found, crops=[]), f"{names[0]!r} and {names[1]!r}", f"{first.width}×{first.height} px"
    if context.images.differ_where_transparent(first, second):
        text = (
            f"No difference: {both} look the same ({size}). They differ only where they are transparent, which shows white."
        )
        return Observation(text=text, data={**data, "identical": False, "differ_where_transparent": True})
    return Observation(text=f"No difference: {both} are pixel-identical ({size}).", data=data)


def _data(found: Differences, *, crops: list[str]) -> dict[str, Json]:
    """Return the same facts for programs. crops: names of the pictures of the strongest regions."""
    alignment, motion = found.alignment, found.alignment.motion
    return {
        "regions": [
            {
                "crop": crop,
                "box_1": list(region.box.ints()),
                "box_2": None if (box_2 := alignment.to_image_2(region.box)) is None else list(box_2.ints()),
                "area_share": round(region.box.area / math.prod(alignment.size_1), 8),
                "changed_px": round(region.changed_px, 1),
                "mean_difference": round(region.mean, 2),
            }
            for crop, region in zip_longest(crops, found.regions)
        ],
        "total": len(found.regions),
        "shown": len(crops),
        "threshold": round(found.threshold, 2),
        "changed_share": round(found.changed_share, 6),
        **({"masked_share": round(found.masked_share, 6)} if found.masked_share else {}),
        "regenerated": found.regenerated,
        "identical": found.identical,
        "largest": round(found.largest, 2),
        "noise": round(found.noise, 3),
        "aligned": {
            "placed": alignment.placed,
            "resized": alignment.resized,
            "stretched": alignment.stretched,
            "mirrored": alignment.orientation.mirrored,
            "turned": 90 * alignment.orientation.quarters,
            "shift": [round(v, 3) for v in alignment.motion.shift],
            "zoom": [round(v, 5) for v in motion.zoom],
            "degrees": round(motion.degrees, 3),
            "farthest_corner": round(motion.most, 3),
            "unseen": [round(v, 5) for v in alignment.unseen],
            "drift": round(alignment.wander, 3),
            "tone": [round(v, 2) for v in found.tone.at_mid_gray],
            "tone_most": round(found.tone_most, 2),
        },
    }
