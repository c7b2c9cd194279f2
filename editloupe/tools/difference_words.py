"""What the model reads of the differences between two images: places, and what happened to the whole picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.imaging.differences import CLEAR, FAINT, LEAST_AREA_PX, Differences, Region
from editloupe.values import Box

LEAST_UNSEEN: Final = 0.005
"""Least share of an image that the text says was not compared; registration always leaves a rim of a px or two."""
_LISTED: Final = 10


@dataclass(frozen=True)
class DifferenceWords:
    """The text of an observation, in parts."""

    found: Differences
    first: str
    """Name of the first image, with quotes."""
    second: str
    """Name of the second image, with quotes."""

    def regions(self, crops: Sequence[str]) -> Iterator[str]:
        """Yield what differs and where.   crops: names of the pictures of the strongest regions."""
        regions, shown = self.found.regions, len(crops)
        total, rest = len(regions), regions[shown:]
        if not regions:
            yield self._nothing()
            return
        which = f"; the {shown} strongest {'is' if shown == 1 else 'are'} shown" if shown < total else ""
        yield (
            f"{total} {'region differs' if total == 1 else 'regions differ'}{which}. Each picture is side by side: left of "
            f"the red line {self.first}, right of it {self.second}, same place, same scale. A thin outline, which is ours, "
            "marks a region."
        )
        for number, (crop, region) in enumerate(zip(crops, regions, strict=False), start=1):
            yield self._region(crop, number, region)
        if rest:
            boxes = ", ".join(_thousandths(r.box, self.found.alignment.size_1) for r in rest[:_LISTED])
            more = f" and {len(rest) - _LISTED} more" if len(rest) > _LISTED else ""
            weaker = f"{len(rest)} weaker {'region' if len(rest) == 1 else 'regions'}"
            yield f"Not shown: {weaker} at {boxes}{more} in {self.first}."

    def _region(self, crop: str, number: int, region: Region) -> str:
        alignment = self.found.alignment
        box_1, box_2, size = region.box, alignment.to_image_2(region.box), alignment.size_1
        there = "outside" if box_2 is None else f"bbox {_thousandths(box_2, alignment.size_2)} in"
        return (
            f"{crop}: region {number}, bbox {_thousandths(box_1, size)} in {self.first}, {there} {self.second}; "
            f"{box_1.width:.0f}×{box_1.height:.0f} px; {_percent(box_1.area / (size[0] * size[1]))} of the image; "
            f"mean difference {region.mean:.0f} of 255{', so faint that a person may not see it' * (region.mean < FAINT)}."
        )

    def _nothing(self) -> str:
        found, but = self.found, ", once what is named below has been allowed for" if any(self.notes()) else ""
        if found.regenerated:
            return f"No single region stands out{but}: {self.first} and {self.second} differ as wholes."
        return (
            f"No region differs{but}: between {self.first} and {self.second}, no place of at least {LEAST_AREA_PX:.0f} px² "
            f"stands out from their noise (threshold about {found.threshold:.0f} of 255, more at strong edges, less over "
            "larger places). The largest difference of any pixel, after a little smoothing, is "
            f"{found.largest:.0f} of 255. The pictures are not identical: fainter or smaller changes are possible; zoom in "
            "where you expect one."
        )

    def widespread(self) -> Iterator[str]:
        """Yield how the picture changed as a whole."""
        if self.found.drifted:
            yield (
                f"Places all over the picture moved against each other by about {self.found.alignment.wander:.1f} px, "
                "which was undone before comparing."
            )
        if self.found.regenerated:
            how = f"{_percent(self.found.changed_share)} of the image differs by more than {CLEAR:.0f} of 255"
            yield f"{how}: the picture changed as a whole. The crops are only the strongest places."

    def notes(self) -> Iterator[str]:
        """Yield what happened to the whole picture, and what was done to compare the images at all."""
        found, alignment = self.found, self.found.alignment
        if turn := alignment.orientation.in_words:
            yield (
                f"{self.second} shows {self.first} {turn}, which was undone before comparing. Boxes and pictures have "
                "each image as it lies."
            )
        if alignment.resized:
            (w1, h1), (w2, h2) = alignment.size_1, alignment.size_2
            yield (
                f"Sizes differ: {self.first} is {w1}×{h1} px, {self.second} is {w2}×{h2} px; they were brought to one size "
                f"to compare.{' One shows things wider than the other.' * alignment.stretched}"
            )
        yield from self._frame()
        if found.masked_share:
            yield (
                f"{_percent(found.masked_share)} of {self.first} lies under white rectangles that cover targets, or at "
                "their rims, and was not compared."
            )
        if found.tone_most >= 2:
            r, g, b = found.tone.at_mid_gray
            yield (
                f"A change of color or exposure of the whole picture (at mid gray {r:+.0f} red, {g:+.0f} green, {b:+.0f} "
                f"blue of 255, at most {found.tone_most:.0f} at other levels) was allowed for before comparing."
            )

    def _frame(self) -> Iterator[str]:
        """Yield which part of each image the other shows, and how it moved."""
        alignment = self.found.alignment
        both = (self.first, self.second)
        if alignment.reframed and max(alignment.unseen) >= LEAST_UNSEEN:
            common = alignment.common()
            places = zip(both, (common, alignment.to_image_2(common)), (alignment.size_1, alignment.size_2), strict=True)
            where = " and ".join(f"{_thousandths(box, size)} in {name}" for name, box, size in places if box is not None)
            yield f"The images show different frames of one scene. Both show what lies at {where}; only that was compared."
        elif alignment.moved:
            motion = alignment.motion
            (dx, dy), (across, down) = motion.shift, motion.zoom
            how = f"a shift by ({dx:+.1f}, {dy:+.1f}) px, a zoom by {across:.3f} across and {down:.3f} down, and a turn by "
            how += f"{motion.degrees:+.1f}° (clockwise: +); the farthest corner moved by {motion.most:.1f} px"
            yield f"A motion of the whole picture was undone before comparing: {how}."
        for name, share in zip(both, alignment.unseen, strict=True):
            if share >= LEAST_UNSEEN:
                yield f"{_percent(share)} of {name}, at its border, is not in the other and was not compared."


def _thousandths(box: Box, size: tuple[int, int]) -> str:
    return str(list(box.to_thousandths(width=size[0], height=size[1])))


def _percent(share: float) -> str:
    """Return a share 0..1 with two significant digits below 1 %: "0.18 %", "12 %"."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"
