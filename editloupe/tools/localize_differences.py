"""`localize_differences`: where do two images differ? Crops side by side, boxes in the text.

The Difference tool of DLEBench (section 4.2), under the name that its dialogues have (Tables 8, 11 and 12). How differences
are found is ours, since the paper says no more than that it compares pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

import numpy as np
from pydantic import Field

from editloupe import models
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.imaging.align import Alignment
from editloupe.imaging.differences import CLEAR, LEAST_AREA_PX, LEAST_BLUR, Differences, Region, localize
from editloupe.imaging.geometry import expand
from editloupe.models.upscale.base import Lanczos, Upscaler
from editloupe.tools.base import ToolContext
from editloupe.tools.bbox import ToolArgs
from editloupe.tools.crops import CropTool, add_view, describe_enlargement, enlarge
from editloupe.tools.tolerance import LEARNED, MEASURED, Tolerance
from editloupe.values import Box, ImageRef, Json, View

SHOWN = 3
"""Crops that are always shown. A fourth and a fifth follow if they have a quarter of the strongest one's strength."""
SHOWN_AT_MOST = 5
FAINT = 6.0
"""Levels of mean difference below which a place is called faint: encoding a picture again may leave so much."""
LEAST_UNSEEN = 0.005
"""Least share of an image that the text says was not compared; registration always leaves a rim of a px or two."""
_LISTED = 10


class LocalizeDifferences(CropTool):
    """Compares two images pixel by pixel; see docs/tools.md for how."""

    name: ClassVar[str] = "localize_differences"
    repeatable: ClassVar[bool] = True
    revision: ClassVar[str] = "5"
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

    @property
    def tolerance(self) -> Tolerance:
        return LEARNED if self.upscaler.learned else MEASURED

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        names = (context.named(args.comparison_image_1), context.named(args.comparison_image_2))
        if names[0] == names[1]:
            raise ToolError(
                f"both arguments name {names[0]!r}; name two images to compare: {', '.join(map(repr, context.views))}"
            )
        first, second = (context.images.array(context.image(name)) for name in names)
        masks_1, masks_2 = (context.masks(name) for name in names)
        return self.observed(localize(first, second, masks_1=masks_1, masks_2=masks_2), names, context)

    def observed(self, found: Differences, names: tuple[str, str], context: ToolContext) -> Observation:
        """Return the observation of the differences between the two named images."""
        first, second = (context.image(name) for name in names)
        if found.identical:
            same = f"No difference: {names[0]!r} and {names[1]!r} are pixel-identical ({first.width}×{first.height} px)."
            return Observation(text=same, data=_data(found, crops=[]))
        views: list[View] = []
        crops: list[str] = []
        kept: list[View] = []
        enlarged: dict[str, list[str]] = {}
        strong = sum(r.strength >= 0.25 * found.regions[0].strength for r in found.regions)
        for region in found.regions[: max(SHOWN, min(strong, SHOWN_AT_MOST))]:
            pair = _panes(region, found.alignment, (first, second), context, self.upscaler)
            # Two regions whose context is the whole image share one picture, hence one name.
            if pair.shown[0].image not in [view.image for view in views]:
                views.extend(pair.shown)
                kept.extend(pair.kept)
            crops.append(context.crop_name([view.image for view in views[::2]].index(pair.shown[0].image) + 1))
            if pair.scale > 1:
                enlarged.setdefault(describe_enlargement(pair.upscaler), []).append(f"{crops[-1]} ×{pair.scale:.3g}")
        notes = _notes(found, names)
        lines = [_header(found, len(crops), names) if found.regions else _nothing_found(found, names, allowed=bool(notes))]
        lines += [_crop_line(crop, region, found, names) for crop, region in zip(crops, found.regions, strict=False)]
        if len(found.regions) > len(crops):
            lines.append(_not_shown(found, len(crops), names))
        pictures = [context.crop_name(i + 1) for i in range(len(views) // 2)]
        text = self.reading.in_pairs(context.images, views, names=names, crops=pictures)
        if found.widespread:
            lines += _regenerated(found, context.crop_name(len(views) // 2 + 1), names)
            # White where the pictures have masks; the aligned copies are filled there.
            shown = np.where(found.alignment.masked[..., None], np.uint8(255), found.alignment.first)
            heat_map = render.heat_map(shown, found.levels)
            views.append(add_view(context, heat_map, first, View.whole(first).region, "difference_map"))
        lines += notes
        for how, which in enlarged.items():
            lines.append(f"Enlarged {how}: {', '.join(dict.fromkeys(which))}.")
        lines += text.lines
        if found.regions:
            lines.append(
                "Boxes are [x0, y0, x1, y1] in thousandths of width and height. These differences are measured on pixels "
                f"(threshold about {found.threshold:.0f} of 255, more at strong edges, less over larger places) and may "
                "include changes that no person would see; judge by what the pictures show."
            )
        data = {**_data(found, crops=crops), **text.data, **(models.computed(self.upscaler) if kept else {})}
        return Observation(text="\n".join(lines), views=tuple(views), kept=tuple(kept), data=data)


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """The picture of one region in two panes."""

    shown: tuple[View, ...]
    kept: tuple[View, ...]
    """The same without a learned upscaler's work; () where none was used."""
    scale: float
    """Shown px for each px of image 1."""
    upscaler: Upscaler


def _panes(
    region: Region, alignment: Alignment, pair: tuple[ImageRef, ImageRef], context: ToolContext, upscaler: Upscaler
) -> _Pair:
    first, second = pair
    box_1 = expand(region.box, width=first.width, height=first.height)
    shared = box_1.intersection(alignment.common())
    box_1 = (shared or box_1).rounded_out()
    box_2 = alignment.to_image_2(box_1) or Box.whole(width=second.width, height=second.height)
    # The finer of the two sets the scale, so that neither loses detail; image 1 keeps its aspect ratio. Within 5 % the
    # sizes count as one, since resampling for so little would only blur.
    finer = max(1.0, box_2.width / box_1.width, box_2.height / box_1.height)
    finer = 1.0 if finer < 1.05 else finer
    enlargement = render.display_scale(finer * box_1.width, finer * box_1.height)
    scale = finer * enlargement
    width, height = max(1, round(scale * box_1.width)), max(1, round(scale * box_1.height))
    cuts = (render.crop(context.images.array(first), box_1), render.crop(context.images.array(second), box_2))
    # A learned upscaler is for small crops; bringing two sizes together is no reason to invent detail in one.
    by = upscaler if enlargement > 1 else Lanczos()

    def picture(by: Upscaler) -> tuple[View, ...]:
        made, *windows = render.side_by_side(*(enlarge(by, cut, width=width, height=height) for cut in cuts))
        image = context.images.add_array(made)
        params: dict[str, Json] = {"box": list(region.box), "scale": round(scale, 4)}
        params |= {"upscaler": by.name} if by.learned else {}
        return tuple(
            View(image=image, origin=origin, region=box, window=window, op="side_by_side", params={**params, "pane": pane})
            for origin, box, window, pane in zip(pair, (box_1, box_2), windows, ("left", "right"), strict=True)
        )

    return _Pair(shown=picture(by), kept=picture(Lanczos()) if by.learned else (), scale=scale, upscaler=by)


def _header(found: Differences, shown: int, names: tuple[str, str]) -> str:
    total = len(found.regions)
    what = f"{total} {'region differs' if total == 1 else 'regions differ'}"
    which = f"; the {shown} strongest are shown" if shown < total else ""
    return (
        f"{what}{which}. Each picture is side by side: left of the red line {names[0]!r}, "
        f"right of it {names[1]!r}, same place, same scale."
    )


def _crop_line(crop: str, region: Region, found: Differences, names: tuple[str, str]) -> str:
    (w1, h1), (w2, h2) = found.alignment.size_1, found.alignment.size_2
    box_1, box_2 = region.box, found.alignment.to_image_2(region.box)
    there = "outside" if box_2 is None else f"bbox {_thousandths(box_2, w2, h2)} in"
    return (
        f"{crop}: bbox {_thousandths(box_1, w1, h1)} in {names[0]!r}, {there} {names[1]!r}; "
        f"{box_1.width:.0f}×{box_1.height:.0f} px; {_percent(box_1.area / (w1 * h1))} of the image; "
        f"mean difference {region.mean:.0f} of 255{', so faint that a person may not see it' * (region.mean < FAINT)}."
    )


def _not_shown(found: Differences, shown: int, names: tuple[str, str]) -> str:
    rest = found.regions[shown:]
    boxes = ", ".join(_thousandths(r.box, *found.alignment.size_1) for r in rest[:_LISTED])
    more = f" and {len(rest) - _LISTED} more" if len(rest) > _LISTED else ""
    return f"Not shown: {len(rest)} weaker {'region' if len(rest) == 1 else 'regions'} at {boxes}{more} in {names[0]!r}."


def _regenerated(found: Differences, map_name: str, names: tuple[str, str]) -> list[str]:
    lines = []
    if found.drifted:
        lines.append(
            f"The image seems drawn again as a whole: its places drifted against each other by about "
            f"{found.alignment.wander:.1f} px, which was undone before comparing."
        )
    if found.regenerated:
        how = f"{_percent(found.changed_share)} of the image differs by more than {CLEAR:.0f} of 255"
        if found.rest is not None:
            how += f", and even the rest by about {found.rest:.0f}, more than saving a picture again leaves"
        lines.append(f"{how}: the image seems regenerated or globally changed.")
        if not found.regions or found.regions[0].box.area <= 0.5 * math.prod(found.alignment.size_1):
            lines[-1] += " The crops are only the strongest places, not all that changed."
    lines.append(
        f"{map_name}: coarse map of the differences over the whole of {names[0]!r}, red where most "
        "differs, dark blue where least."
    )
    return lines


def _nothing_found(found: Differences, names: tuple[str, str], *, allowed: bool) -> str:
    """Return the text for no region. allowed: True where notes on what was allowed for follow."""
    but = ", once what is named below has been allowed for" if allowed else ""
    return (
        f"No region differs{but}: between {names[0]!r} and {names[1]!r}, no place of at least {LEAST_AREA_PX:.0f} px² "
        f"stands out from their noise (threshold about {found.threshold:.0f} of 255, more at strong edges, less over "
        f"larger places). The largest difference of any pixel, after a little smoothing, is {found.largest:.0f} of 255. "
        "The pictures are not identical: fainter or smaller changes are possible; zoom in where you expect one."
    )


def _notes(found: Differences, names: tuple[str, str]) -> list[str]:
    """Return what happened to the whole picture, and what was done to compare the images at all: sizes, shift, tone."""
    alignment, lines = found.alignment, _whole(found, names)
    (w1, h1), (w2, h2) = alignment.size_1, alignment.size_2
    if alignment.resized:
        lines.append(
            f"Sizes differ: {names[0]!r} is {w1}×{h1} px, {names[1]!r} is {w2}×{h2} px; they were brought to one size to "
            "compare."
        )
        if alignment.stretched:
            lines[-1] += " The aspect ratios differ, so the second was stretched to fit and places may not correspond."
    if alignment.moved:
        lines.append(f"A motion of the whole picture was undone before comparing: {_moved(alignment)}.")
    for name, share in zip(names, alignment.unseen, strict=True):
        if share >= LEAST_UNSEEN:
            lines.append(
                f"{_percent(share)} of {name!r}, at its border, has no counterpart in the other and was not compared."
            )
    if found.masked_share:
        lines.append(
            f"{_percent(found.masked_share)} of {names[0]!r} lies under white rectangles that cover targets, or at their "
            "rims, and was not compared."
        )
    if found.tone_most >= 2:
        r, g, b = found.tone.at_mid_grey
        lines.append(
            f"A change of colour or exposure of the whole picture (at mid grey {r:+.0f} red, {g:+.0f} green, {b:+.0f} blue "
            f"of 255, at most {found.tone_most:.0f} at other levels) was allowed for before comparing."
        )
    blur = max(found.blurs)
    if blur >= LEAST_BLUR and not found.regenerated:
        softer, sharper = names if found.blurs[1] else names[::-1]
        lines.append(
            f"{softer!r} is less sharp than {sharper!r} as a whole (by a blur of about {blur:.1f} px of the compared "
            "copies), which was allowed for before comparing."
        )
    return lines


def _whole(found: Differences, names: tuple[str, str]) -> list[str]:
    """Return what happened to the whole picture, as far as it has a name."""
    first, second = names
    lines = []
    if turn := found.alignment.orientation.in_words:
        lines.append(
            f"{second!r} shows {first!r} {turn}, which was undone before comparing. Boxes are places of each image as it is."
        )
    said = {
        "unrelated": f"{first!r} and {second!r} have hardly any structure in common: they are unrelated pictures, or "
        "everything was drawn anew elsewhere. Places do not correspond.",
        "grey": f"{second!r} is grey now: the colours of {first!r} are gone.",
        "coloured": f"{second!r} is coloured now: {first!r} is grey.",
        "tinted": f"{second!r} is tinted as a whole: all colours moved towards one, or lie in one hue.",
    }
    return lines + [said[change] for change in found.whole_changes if change in said]


def _moved(alignment: Alignment) -> str:
    """Return the motion in words. Parts that it does not have are left out."""
    motion = alignment.motion
    dx, dy = motion.shift
    across, down = (100 * (zoom - 1) for zoom in motion.zoom)
    parts = [f"a shift by ({dx:+.1f}, {dy:+.1f}) px"]
    if max(abs(across), abs(down)) >= 0.05:
        same = abs(across - down) < 0.1
        parts.append(f"a change of scale by {across:+.1f} %" + ("" if same else f" across and {down:+.1f} % down"))
    if abs(motion.degrees) >= 0.05:
        way = "clockwise" if motion.degrees > 0 else "anticlockwise"
        parts.append(f"a turn of {abs(motion.degrees):.1f}° {way}")
    return f"{', '.join(parts)}; the farthest corner moved by {motion.most:.1f} px"


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
        "whole_changes": list(found.whole_changes),
        "identical": found.identical,
        "largest": round(found.largest, 2),
        "noise": round(found.noise, 3),
        "aligned": {
            "resized": alignment.resized,
            "stretched": alignment.stretched,
            "mirrored": alignment.orientation.mirrored,
            "turned": 90 * alignment.orientation.quarters,
            "shift": [round(v, 3) for v in alignment.shift],
            "zoom": [round(v, 5) for v in motion.zoom],
            "degrees": round(motion.degrees, 3),
            "farthest_corner": round(motion.most, 3),
            "unseen": [round(v, 5) for v in alignment.unseen],
            "drift": round(alignment.wander, 3),
            "tone": [round(v, 2) for v in found.tone.at_mid_grey],
            "tone_most": round(found.tone_most, 2),
            "blurs": list(found.blurs),
        },
    }


def _thousandths(box: Box, width: int, height: int) -> str:
    return str(list(box.to_thousandths(width=width, height=height)))


def _percent(share: float) -> str:
    """Return a share 0..1 with two significant digits below 1 %: "0.18 %", "12 %"."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"
