"""Finds where two images differ: aligned, toned, weighed against their own noise, grouped into objects, ranked.

Constants here and in the modules that this one calls, where no comment derives them, were chosen on photographs with known
edits under known nuisances (benchmarks/localize makes such pairs); they are no property of any editor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import MIN_SIDE, RGB
from editloupe.imaging.align import Alignment, align
from editloupe.imaging.colour import Tone
from editloupe.imaging.regions import STRONG, Object, find_objects, joined
from editloupe.imaging.residual import Map, Planes, Residual, halved, planes, residual, unexplained
from editloupe.imaging.significance import SCALES, EvidenceMap, significance
from editloupe.values import Box

CLEAR: Final = 25.0
"""Levels of 255; from here on a pixel is clearly different, however clean or noisy the images are."""
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
LEAST_BLUR: Final = 0.7
"""Least blur that counts, a standard deviation in px of the compared copies; resampling alone leaves about half a px."""
LEAST_COMPARED_PX: Final = float(MIN_SIDE**2)
"""px²; from less no noise can be told. The smallest image has as many."""
LEAST_MEAN: Final = 3.0
"""Least mean difference of a region in levels. A block that JPEG coded otherwise stands out from noise, not to an eye."""
_UNEXPLAINED = 0.6
_JOINED_GAP = 0.035
"""Share of the shorter side; two edits that are farther apart are two."""
_STRONGEST_DECILE = 90.0
_ROWS_APART = 64
_RIM = 9
"""px of the half-size maps: what lies nearer to a region's pixels is neither it nor the rest."""


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
    """Evidence in units of noise, summed over the changed pixels. Regions are ranked by it."""


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What `localize` found."""

    regions: tuple[Region, ...] = ()
    """The places that differ, strongest first."""
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
    """Levels by which places of ordinary texture differ, averaged over about 3 px, in light or in colour."""
    rest: float | None = None
    """Median difference in levels outside the regions; None where less than 15 % of what was compared lies there."""
    restyled: bool = False
    """True where `noise` exceeds what any delivery of a picture was seen to leave, and the noisier picture's own grain."""
    blurs: tuple[float, float] = (0.0, 0.0)
    """Standard deviations, in px of the copies, by which each was blurred to be equally sharp. At least one is 0."""

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
        """True if the rest differs too: what lies outside the regions by over 3 levels, or hardly anything lies there."""
        if self.rest is None:
            return self.changed_share > LARGE_SHARE or self.restyled
        return self.restyled and self.rest >= RESTYLED_NOISE

    @property
    def widespread(self) -> bool:
        """True if single regions do not tell it all: the rest differs too, its places drifted, or over 40 % differ clearly."""
        return self.regenerated or self.drifted or self.changed_share > LARGE_SHARE

    @property
    def masked_share(self) -> float:
        """The share 0..1 of image 1 that lies under a mask of either image, or at its rim, and was not compared."""
        return float(self.alignment.masked.mean())

    @property
    def largest(self) -> float:
        """The largest difference on the map, 0..255."""
        return float(self.levels.max(initial=0.0))


def localize(image_1: RGB, image_2: RGB, *, masks_1: Sequence[Box] = (), masks_2: Sequence[Box] = ()) -> Differences:
    """Return where two H×W×3 uint8 RGB images of any sizes differ. The same images give the same result.

    masks_1, masks_2: boxes that are painted over, in px of image 1 and of image 2. Places under a mask of either image, and
    the rim of a mask, are no differences, wherever the masks end.
    """
    alignment = align(image_1, image_2, masks_1=masks_1, masks_2=masks_2)
    height, width = alignment.first.shape[:2]
    shown = _shown(alignment)
    compared_px = float(shown.mean()) * width * height
    identical = _equal(image_1, image_2)
    if identical or compared_px < LEAST_COMPARED_PX:
        nothing = np.zeros((height, width), dtype=np.float32)
        return Differences(
            levels=nothing, changed=nothing > 0, compared_px=compared_px, identical=identical, alignment=alignment
        )
    left = residual(*_compared(alignment), shown)
    levels = left.levels
    changed_share = float(np.mean(levels > CLEAR))
    weighed = significance(left)
    restyled = weighed.noise > RESTYLED_NOISE + _OF_GRAIN * left.grain
    restyled |= weighed.colour_noise > RESTYLED_NOISE + _OF_GRAIN * left.colour_grain
    threshold = STRONG * weighed.noise
    objects = [o for o in find_objects(weighed.evidence) if unexplained(left, o.box) > _UNEXPLAINED]
    if restyled and (changed_share > LARGE_SHARE or not objects):
        # No unchanged majority is left to measure noise on: show the strongest tenth.
        smooth = np.asarray(cv2.GaussianBlur(levels, (0, 0), SCALES[1]), dtype=np.float32)
        threshold = float(np.percentile(smooth[left.shown], _STRONGEST_DECILE))
        strongest = np.where(smooth >= threshold, smooth * np.float32(STRONG / threshold), 0).astype(np.float32)
        objects = find_objects([EvidenceMap(values=strongest, reach=SCALES[1])])
    else:
        objects = joined(objects, most_gap=_JOINED_GAP * min(levels.shape))
    found = [(o, _region(o, left, levels, alignment)) for o in objects]
    found = [(o, r) for o, r in found if r.changed_px >= LEAST_AREA_PX and r.mean >= LEAST_MEAN]
    changed = np.zeros(levels.shape, dtype=np.uint8)
    for o, _ in found:
        x0, y0, x1, y1 = o.box.ints()
        changed[y0:y1, x0:x1] |= o.changed
    outside = left.shown & (cv2.dilate(changed, np.ones((_RIM, _RIM), dtype=np.uint8)) == 0)
    enough = outside.sum() >= LEAST_REST * left.shown.sum()
    return Differences(
        regions=tuple(r for _, r in found),
        levels=_doubled(levels, cv2.INTER_LINEAR)[:height, :width],
        changed=_doubled(changed, cv2.INTER_NEAREST)[:height, :width].astype(bool),
        threshold=threshold,
        changed_share=changed_share,
        compared_px=compared_px,
        identical=False,
        alignment=alignment,
        noise=max(weighed.noise, weighed.colour_noise),
        rest=float(np.median(levels[outside])) if enough else None,
        restyled=restyled,
        blurs=left.blurs,
    )


def _shown(alignment: Alignment) -> NDArray[np.bool_]:
    """Return h×w of the half size: where no pixel lies under a mask or at its rim."""
    return np.asarray(halved(alignment.masked.astype(np.uint8) * 255) == 0)


def _doubled(half: NDArray[Any], how: int) -> NDArray[Any]:
    height, width = half.shape
    return np.asarray(cv2.resize(half, (2 * width, 2 * height), interpolation=how), dtype=half.dtype)


def _equal(first: RGB, second: RGB) -> bool:
    """Return True if every pixel is the same. Most pairs differ in a few rows already."""
    return first.shape == second.shape and all(np.array_equal(first[::n], second[::n]) for n in (_ROWS_APART, 1))


def _compared(alignment: Alignment) -> tuple[Planes, Planes]:
    """Return the aligned copies in one tone; where image 2 shows nothing, image 1 stands for it."""
    toned = alignment.toned
    first = planes(toned)
    height, width = toned.shape[:2]
    x0, y0, x1, y1 = alignment.valid.ints()
    if (x0, y0, x1, y1) == (0, 0, width, height):
        return first, planes(alignment.second)
    both = toned.copy()
    both[y0:y1, x0:x1] = alignment.second[y0:y1, x0:x1]
    return first, planes(both)


def _region(found: Object, left: Residual, levels: Map, alignment: Alignment) -> Region:
    """Return an object of the half-size maps as a region of image 1."""
    sx, sy = alignment.scale
    x0, y0, x1, y1 = found.box.ints()
    area = float(found.changed.sum())
    return Region(
        box=alignment.to_image_1(found.box.scaled(2, 2)),
        changed_px=area * 4 / (sx * sy),
        mean=float(levels[y0:y1, x0:x1][found.changed].mean()),
        strength=found.significance,
    )
