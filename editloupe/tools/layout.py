"""Lays out the pictures of one observation: what each shows, and how large, within a budget of image tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from editloupe.imaging.render import DIVIDER_PX, LABEL_PX
from editloupe.values import Box

LEAST_SHOWN_PX: Final = 256
"""px that a region's shorter side is to have in a picture."""
LEAST_MAGNIFICATION: Final = 2.0
MOST_MAGNIFICATION: Final = 6.0
"""Shown px for each px of the finer image. Enlarging further shows no more."""
LEAST_SHARE: Final = 1 / 4
MOST_SHARE: Final = 2 / 3
"""Of a pane's side, which the region fills: the rest is what is around it."""
MOST_ASPECT: Final = 2.0
"""A pane's longer side over its shorter."""
LARGE: Final = 0.5
OVERVIEW_PX: Final = 448
"""A pane that shows this share of the image or more is at most so many px long: the model has seen the image itself."""
MOST_PX: Final = 1568
"""px; hosted models shrink a picture that is longer, and do not say so."""
OVERVIEW_SHARE: Final = 1 / 3
"""Of the budget, for the picture of the whole pair."""
MOST_CROPS_BESIDE_IT: Final = 3
_PANES: Final = tuple(range(768, 127, -32))
"""px; sides of a square pane that are tried, the largest first."""
_WEAK_PANE: Final = 192
"""px; side of a square pane that shows a weak region."""
_SHARED_SCALE: Final = 0.6
"""A region that another picture shows needs none of its own if it is enlarged there at least so much as by itself."""
_SHOWN_ALREADY: Final = 0.8
"""Share of the image; a crop of more shows what the picture of the whole pair shows."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One picture: two panes that show the same place of both images."""

    frame: Box
    """What it shows, in whole px of the first image."""
    scale: float
    """Shown px for each px of the first image."""
    regions: tuple[int, ...]
    """Which of the regions it is about, from 0."""
    turned: bool = False
    """True where the second image lies on its side: its pane is as wide as the first's is high."""
    second_aspect: float | None = None
    """Width over height of the second image where its pane shows all of it; None where both show one place."""

    @property
    def pane(self) -> tuple[int, int]:
        """Width and height of the first pane in px."""
        return max(1, round(self.scale * self.frame.width)), max(1, round(self.scale * self.frame.height))

    @property
    def second_pane(self) -> tuple[int, int]:
        """Width and height of the second pane in px."""
        width, height = self.pane
        if self.second_aspect is not None:
            return max(1, round(height * self.second_aspect)), height
        return (height, width) if self.turned else (width, height)

    @property
    def picture(self) -> tuple[int, int]:
        """Width and height in px of both panes with their labels and the line between them."""
        (width, height), (width_2, height_2) = self.pane, self.second_pane
        return width + DIVIDER_PX + width_2, max(height, height_2) + LABEL_PX


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """What a picture may show, and what it costs."""

    image: Box
    """The first image, in px."""
    common: Box
    """The part of it that the second image shows too."""
    finer: float
    """Px of the finer of the two images for each px of the first; at least 1."""
    tokens: Callable[[int, int], int]
    """(width, height) of a picture in px → tokens."""
    most_px: int = MOST_PX
    """Longest side of a picture in px."""
    turned: bool = False
    """True where the second image lies on its side."""
    second_aspect: float | None = None
    """Width over height of the second image where it shows another frame of the scene; else None."""

    def cost(self, look: Look) -> int:
        """Return the tokens of a picture."""
        return self.tokens(*look.picture)

    def look_at(self, region: Box, side: int, index: int) -> Look:
        """Return the picture of a region whose pane has at most the area of a square of `side` px.

        The region fills as little of the pane as lets it be enlarged as wanted, from a quarter to two thirds.
        """
        long, short = max(region.width, region.height), min(region.width, region.height)
        wanted = self.finer * min(max(LEAST_SHOWN_PX / (self.finer * short), LEAST_MAGNIFICATION), MOST_MAGNIFICATION)
        around = math.sqrt(long * max(short, long / MOST_ASPECT))
        share = min(max(wanted * around / side, LEAST_SHARE), MOST_SHARE)
        return self.fit(_within(_framed(region, share), self.image), side, wanted, (index,))

    def fit(self, frame: Box, side: int, wanted: float, regions: tuple[int, ...]) -> Look:
        """Return the picture of a frame, enlarged as wanted, as far as pane and picture may be large."""
        frame = (frame.intersection(self.common) or frame).rounded_out().intersection(self.image) or self.image
        longest = max(frame.width, frame.height)
        across, down = (frame.width + frame.height, longest) if self.turned else (2 * frame.width, frame.height)
        # Two panes are rounded to whole px, each by half a px at most.
        most = min((self.most_px - DIVIDER_PX - 1) / across, (self.most_px - LABEL_PX) / down)
        scale = min(wanted, side / math.sqrt(frame.area), most)
        if frame.area >= LARGE * self.image.area:
            scale = min(scale, OVERVIEW_PX / longest)
        return Look(frame=frame, scale=scale, regions=regions, turned=self.turned)


def lay_out(regions: Sequence[Box], canvas: Canvas, budget: float, *, strong: int) -> list[Look]:
    """Return pictures of as many of the regions as the budget pays for, the first regions first; at least of one.

    regions: in px of the first image, the most important first.   budget: tokens.
    strong: how many of them share what the small pictures of the others leave.
    """
    for count in range(len(regions), 0, -1):
        for side in _PANES:
            made = _looks(regions[:count], canvas, side, strong)
            if sum(map(canvas.cost, made)) <= budget:
                return made
    return _looks(regions[:1], canvas, _PANES[-1], strong)


def overview(regions: int, canvas: Canvas, budget: float) -> Look:
    """Return the picture of both whole images, within the budget; the smallest one where that is too little."""
    every = tuple(range(regions))
    # Of another frame all is shown, and not only what the two have in common.
    all_of_it = canvas if canvas.second_aspect is None else replace(canvas, common=canvas.image)
    for side in range(OVERVIEW_PX, _PANES[-1] - 1, -32):
        made = replace(all_of_it.fit(canvas.image, side, 1.0, every), second_aspect=canvas.second_aspect)
        if canvas.cost(made) <= budget:
            break
    return made


def with_overview(regions: Sequence[Box], canvas: Canvas, budget: float, *, strong: int) -> tuple[Look, list[Look]]:
    """Return the picture of both whole images and those of the regions, as far as the budget pays for them.

    regions, strong: as `lay_out` takes them. The picture of the whole has what the others leave, and shows all regions.
    """
    whole = overview(len(regions), canvas, OVERVIEW_SHARE * budget)
    left = budget - canvas.cost(whole)
    made = lay_out(regions, canvas, left, strong=strong) if regions else []
    # What shows nearly all of the whole pair shows nothing new.
    looks = [look for look in made if look.frame.area < _SHOWN_ALREADY * whole.frame.area]
    looks = looks if sum(map(canvas.cost, made)) <= left else []
    if looks != made or not made:
        whole = overview(len(regions), canvas, budget - sum(map(canvas.cost, looks)))
    return whole, looks


def _looks(regions: Sequence[Box], canvas: Canvas, side: int, strong: int) -> list[Look]:
    made: list[Look] = []
    for index, region in enumerate(regions):
        own = canvas.look_at(region, side if index < strong else min(side, _WEAK_PANE), index)
        at = next((i for i, other in enumerate(made) if _shows(other, own, regions)), None)
        if at is not None:
            made[at] = replace(made[at], regions=(*made[at].regions, index))
            continue
        within = [other for other in made if _shows(own, other, regions)]
        if within:
            place = made.index(within[0])
            made = [other for other in made if other not in within]
            made.insert(place, replace(own, regions=(*(i for other in within for i in other.regions), index)))
        else:
            made.append(own)
    return made


def _shows(look: Look, other: Look, regions: Sequence[Box]) -> bool:
    """Return whether a picture shows all regions of another, enlarged about as much as there."""
    inside = all(look.frame.intersection(regions[i]) == regions[i] for i in other.regions)
    return inside and look.scale >= _SHARED_SCALE * other.scale


def _framed(region: Box, share: float) -> Box:
    """Return a box about the region, whose longer side fills the share of it. Its aspect is at most MOST_ASPECT."""
    long = max(region.width, region.height) / share
    width, height = (max(side / share, long / MOST_ASPECT) for side in (region.width, region.height))
    cx, cy = region.center
    return Box(cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2)


def _within(frame: Box, image: Box) -> Box:
    """Return the frame moved into the image, and cut where it is larger."""
    dx, dy = (
        max(0.0, low - start) - max(0.0, end - high)
        for start, end, low, high in ((frame.x0, frame.x1, image.x0, image.x1), (frame.y0, frame.y1, image.y0, image.y1))
    )
    return frame.shifted(dx, dy).intersection(image) or image
