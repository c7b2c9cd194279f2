"""Finds where two images differ: aligned, toned, weighed against their own noise, grouped into objects, ranked.

Constants here and in the modules that this one calls, where no comment derives them, were chosen on photographs with known
edits under known nuisances (benchmarks/localize makes such pairs); they are no property of any editor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import MIN_SIDE, RGB
from editloupe.imaging.align import align, equal
from editloupe.imaging.alignment import Alignment
from editloupe.imaging.color import Tone
from editloupe.imaging.orientation import UPRIGHT
from editloupe.imaging.rank import median
from editloupe.imaging.regions import STRONG, Object, apart, find_objects, joined
from editloupe.imaging.residual import Map, Residual, halved, residual, unexplained
from editloupe.imaging.significance import significance
from editloupe.values import Box, cached_property

CLEAR: Final = 25.0
"""Levels of 255; from here on a pixel is clearly different, however clean or noisy the images are."""
FAINT: Final = 6.0
"""Levels of mean difference below which a region is faint: encoding a picture again may leave so much."""
LARGE_SHARE: Final = 0.4
"""Share of the image; where more is clearly different, little of it may be left to measure noise on."""
LEAST_REST: Final = 0.15
"""Share of the image; where less lies outside the regions, nothing of it counts as left."""
DRIFT: Final = 0.0002
"""Share of the diagonal (0.3 px at 1 MP); where places moved against each other by more, they drifted."""
RESTYLED_NOISE: Final = 3.0
_OF_GRAIN = 0.5
"""A picture is restyled where even its ordinary places differ by more than 3 levels, averaged over about 3 px, plus half
the grain that one of the two shows for itself. Compression down to quality 50, autoencoders and drift leave at most 1.7.
Without this test, a picture that changed throughout would be reported by its strongest places alone."""
LEAST_AREA_PX: Final = 36.0
"""Least area of a region's changed pixels, in px² of image 1."""
LEAST_COMPARED_PX: Final = float(MIN_SIDE**2)
"""px²; from less no noise can be told. The smallest image has as many."""
LEAST_MEAN: Final = 3.0
"""Least mean difference of a region in levels. A block that JPEG coded otherwise stands out from noise, not to an eye."""
_UNEXPLAINED = 0.6
"""Least share of a place's difference that neither a slip nor a blur of it explains."""
_JOINED_GAP = 0.035
"""Share of the shorter side; two edits that are farther apart are two."""
_MORE_AROUND = 0.02
"""Share of image 2 from which what it shows beside image 1 counts: registration leaves a rim of a px or two."""
_MOST = 5
"""Places at most in a picture that changed throughout."""
_RIM = 9
"""px of the half-size maps: what lies nearer to a region's pixels is neither it nor the rest."""


_Found: TypeAlias = "tuple[Object, Region]"


@dataclass(frozen=True, kw_only=True)
class Region:
    """One place that differs."""

    box: Box
    """Box of the changed pixels, in whole px of image 1."""
    changed_px: float
    """Area of the changed pixels, in px² of image 1."""
    mean: float
    """Mean difference of those pixels, in levels 0..255."""
    strength: float
    """Regions are ordered by it: what the changed pixels' levels exceed FAINT by, squared and summed, in px² of image 1.

    So a weak shadow over much of a picture counts for less than a small object that is gone. A region with a mean under
    FAINT has at most the strength of the weakest other one.
    """


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What `localize` found."""

    regions: tuple[Region, ...] = ()
    """The places that differ, strongest first; where much changed, at most five."""
    levels: Map
    """h×w float32, 0..255: how much each place differs, in the frame of `alignment.first`."""
    changed: NDArray[np.bool_]
    """h×w: the regions' pixels."""
    threshold: float = 0.0
    """Levels that a place of ordinary texture must reach."""
    changed_share: float = 0.0
    """Share 0..1 of the image that differs by more than CLEAR."""
    compared_px: float
    """Area of the copies that no mask hides, in px². Below LEAST_COMPARED_PX nothing was sought."""
    identical: bool
    """True where every pixel of both images is the same."""
    alignment: Alignment
    noise: float = 0.0
    """Levels by which places of ordinary texture differ, averaged over about 3 px, in light or in color."""
    rest: float | None = None
    """Median difference in levels outside the regions; None where less than 15 % of what was compared lies there."""
    restyled: bool = False
    """True where `noise` exceeds what any delivery of a picture was seen to leave, and the noisier picture's own grain."""

    @property
    def tone(self) -> Tone:
        """What the whole picture's levels became."""
        return self.alignment.tone

    @cached_property
    def tone_most(self) -> float:
        """The largest change that the tone makes, in levels, among those that occur in the first image."""
        return 0.0 if self.tone.neutral else self.tone.most(self.alignment.first)

    @property
    def drifted(self) -> bool:
        """True if places moved against each other, as when a model draws a picture again."""
        diagonal = float(np.hypot(*self.alignment.size_1))
        return self.alignment.wander > DRIFT * diagonal

    @property
    def regenerated(self) -> bool:
        """True if the rest differs too: what lies outside the regions by over 3 levels, or hardly anything lies there.

        Where the rest differs clearly, however evenly, noise has no say.
        """
        if self.rest is None:
            return self.changed_share > LARGE_SHARE or self.restyled
        return self.rest > (RESTYLED_NOISE if self.restyled else CLEAR)

    @property
    def widespread(self) -> bool:
        """True if single regions do not tell it all.

        The rest differs too, its places drifted, over 40 % differ clearly, it was turned, or image 2 shows more around it.
        """
        turned, more_around = self.alignment.orientation != UPRIGHT, self.alignment.unseen[1] >= _MORE_AROUND
        return turned or more_around or self.regenerated or self.drifted or self.changed_share > LARGE_SHARE

    @property
    def masked_share(self) -> float:
        """The share 0..1 of image 1 that lies under a mask of either image, or at its rim, and was not compared."""
        return float(self.alignment.masked.mean())

    @property
    def largest(self) -> float:
        """The largest difference on the map, 0..255."""
        return float(self.levels.max(initial=0.0))


def localize(
    image_1: RGB,
    image_2: RGB,
    *,
    masks_1: Sequence[Box] = (),
    masks_2: Sequence[Box] = (),
    turns: bool = True,
) -> Differences:
    """Return where two H×W×3 uint8 RGB images of any sizes differ. The same images give the same result.

    masks_1, masks_2: boxes that are painted over, in px of image 1 and of image 2. Places under a mask of either image, and
    the rim of a mask, are no differences, wherever the masks end.
    turns: True undoes that image 2 was mirrored or turned by quarter turns before comparing.
    """
    alignment = align(image_1, image_2, masks_1=masks_1, masks_2=masks_2, turns=turns)
    height, width = alignment.first.shape[:2]
    shown = _shown(alignment)
    compared_px = float(shown.mean()) * width * height
    identical = equal(image_1, image_2)
    if identical or compared_px < LEAST_COMPARED_PX:
        return Differences(
            levels=np.zeros((height, width), dtype=np.float32),
            changed=np.zeros((height, width), dtype=np.bool_),
            compared_px=compared_px,
            identical=identical,
            alignment=alignment,
        )
    left = residual(*_compared(alignment), shown)
    levels = left.levels
    changed_share = float(np.count_nonzero(levels > CLEAR) / levels.size)
    weighed = significance(left)
    restyled = weighed.noise > RESTYLED_NOISE + _OF_GRAIN * left.grain
    restyled |= weighed.color_noise > RESTYLED_NOISE + _OF_GRAIN * left.color_grain
    whole = restyled or changed_share > LARGE_SHARE
    objects = find_objects(weighed.evidence, None if whole else weighed.together)
    objects = [o for o in objects if unexplained(left, o.box) > _UNEXPLAINED]
    most_gap = _JOINED_GAP * min(levels.shape)
    objects = joined(objects, most_gap=most_gap)
    if not whole:
        objects = [part for o in objects for part in apart(o, levels, most_gap=most_gap)]
    found = _ordered(_regions(objects, left, levels, alignment))
    if whole:
        found = found[:_MOST]
    return Differences(
        regions=tuple(r for _, r in found),
        levels=_doubled(levels, cv2.INTER_LINEAR)[:height, :width],
        changed=_doubled(_drawn(found, levels), cv2.INTER_NEAREST)[:height, :width] > 0,
        threshold=STRONG * weighed.noise,
        changed_share=changed_share,
        compared_px=compared_px,
        identical=False,
        alignment=alignment,
        noise=max(weighed.noise, weighed.color_noise),
        rest=_rest(found, left, levels),
        restyled=restyled,
    )


def _regions(objects: Sequence[Object], left: Residual, levels: Map, alignment: Alignment) -> list[_Found]:
    """Return each object with its region of image 1, without those that are too small or too faint."""
    found = [(o, _region(o, left, levels, alignment)) for o in objects]
    return [(o, r) for o, r in found if r.changed_px >= LEAST_AREA_PX and r.mean >= LEAST_MEAN]


def _ordered(found: Sequence[_Found]) -> list[_Found]:
    """Return the regions in order of their strength. No faint one is stronger than another."""
    weakest = min((r.strength for _, r in found if r.mean >= FAINT), default=np.inf)
    weighed = [(o, r if r.mean >= FAINT else replace(r, strength=min(r.strength, weakest))) for o, r in found]
    return sorted(weighed, key=lambda f: (f[1].mean < FAINT, -f[1].strength))


def _drawn(found: Sequence[_Found], levels: Map) -> NDArray[np.uint8]:
    """Return h×w of the levels: 1 at the regions' pixels."""
    changed = np.zeros(levels.shape, dtype=np.uint8)
    for o, _ in found:
        x0, y0, x1, y1 = o.box.ints()
        changed[y0:y1, x0:x1] |= o.changed
    return changed


def _doubled(half: NDArray[Any], how: int) -> NDArray[Any]:
    return np.asarray(cv2.resize(half, (2 * half.shape[1], 2 * half.shape[0]), interpolation=how), dtype=half.dtype)


def _rest(found: Sequence[_Found], left: Residual, levels: Map) -> float | None:
    """Return the median difference outside the regions in levels; None where hardly anything lies there."""
    outside = left.shown & (cv2.dilate(_drawn(found, levels), np.ones((_RIM, _RIM), dtype=np.uint8)) == 0)
    enough = np.count_nonzero(outside) >= LEAST_REST * np.count_nonzero(left.shown)
    return median(levels[outside]) if enough else None


def _shown(alignment: Alignment) -> NDArray[np.bool_]:
    """Return h×w of the half size: where no pixel lies under a mask or at its rim."""
    if not alignment.masked.any():
        height, width = alignment.masked.shape
        return np.ones(((height + 1) // 2, (width + 1) // 2), dtype=np.bool_)
    return np.asarray(halved(alignment.masked.astype(np.uint8) * 255) == 0)


def _compared(alignment: Alignment) -> tuple[RGB, RGB]:
    """Return the aligned copies in one tone; where image 2 shows nothing, image 1 stands for it."""
    second = alignment.toned.copy()
    x0, y0, x1, y1 = alignment.valid.ints()
    second[y0:y1, x0:x1] = alignment.second[y0:y1, x0:x1]
    return alignment.toned, second


def _region(found: Object, left: Residual, levels: Map, alignment: Alignment) -> Region:
    """Return an object of the half-size maps as a region of image 1."""
    sx, sy = alignment.scale
    x0, y0, x1, y1 = found.box.ints()
    own = levels[y0:y1, x0:x1][found.changed]
    px = 4 / (sx * sy)
    return Region(
        box=alignment.to_image_1(found.box.scaled(2, 2)),
        changed_px=len(own) * px,
        mean=float(own.mean()),
        strength=float((np.maximum(own - FAINT, 0) ** 2).sum(dtype=np.float64)) * px,
    )
