"""Brings two images to one size and one place, so that pixels can be compared. Estimates are kept only where they help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.colour import LostProfile, Tone, estimate_tone, undo_lost_profile
from editloupe.imaging.drift import Drift, estimate_drift
from editloupe.imaging.orientation import UPRIGHT, Orientation, find_orientation
from editloupe.imaging.register import STILL, Floats, register
from editloupe.values import Box

WORKING_PIXELS: Final = 1_050_000
"""Most px of the copies on which differences are sought. Crops are cut from the images themselves."""
_ASPECT_TOLERANCE = 0.02
_MARGIN_PX = 3
"""Interpolation reaches so far over the border of what image 2 shows."""
_RIM_PX = 4
"""Resampling, and one sharpness for both, carry a mask's edge so far beyond it."""
_WHOLE_LEAVES = 0.7
_ROWS_APART = 64
"""Rows between those that are compared first: most pairs differ in them already."""
_FILL_SIDE = 256
"""px; longest side of the copies from which masks are filled."""


@dataclass(frozen=True, kw_only=True)
class Motion:
    """How a whole picture was moved."""

    shift: tuple[float, float]
    """(dx, dy) of its middle in px."""
    zoom: tuple[float, float]
    """(across, down): how many times larger things became."""
    degrees: float
    """Turn, clockwise with y down."""
    most: float
    """px by which its farthest corner moved."""


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Two images as copies of one size, the second laid onto the first."""

    first: RGB
    """h×w×3 uint8: image 1 times `scale`, which is at most 1 unless image 2 is smaller in all and longer one way."""
    second: RGB
    """h×w×3 uint8: image 2 in the frame of `first`."""
    size_1: tuple[int, int]
    """(width, height) of image 1 in px."""
    size_2: tuple[int, int]
    """(width, height) of image 2 in px, as it lies."""
    orientation: Orientation = UPRIGHT
    """How image 2 was mirrored or turned, which was undone before anything else."""
    tone: Tone
    """What the whole picture's levels became."""
    toned: RGB
    """h×w×3 uint8: `first` in the tone of `second`."""
    matrix: Floats
    """2×3: pixel (x, y) of `first` is at matrix · (x, y, 1) of image 2 scaled to the copies' size. Centres are integers."""
    drift: Drift | None
    """Displacement that is added to that place by place, in px of the copies; None where there is none."""
    valid: Box
    """The part of the copies that both images cover; integer corners."""
    lost_profile: LostProfile | None = None
    """The ICC profile that one image lost, and with which it was read; None where none was."""
    masked: NDArray[np.bool_]
    """h×w: what lies under a mask of either image, or within 4 px of one. The copies are filled there from around."""

    @property
    def scale(self) -> tuple[float, float]:
        """(x, y): px of the copies for one px of image 1."""
        height, width = self.first.shape[:2]
        return width / self.size_1[0], height / self.size_1[1]

    @property
    def resized(self) -> bool:
        """True if the two images differ in size, once a turn is undone."""
        return self.size_1 != self.laid_2

    @property
    def stretched(self) -> bool:
        """True if the aspect ratios differ by more than 2 %: places then correspond only if the editor stretched too."""
        (w1, h1), (w2, h2) = self.size_1, self.laid_2
        return abs(math.log((w1 / h1) / (w2 / h2))) > _ASPECT_TOLERANCE

    @property
    def moved(self) -> bool:
        """True if a motion of the whole picture was undone."""
        return not np.array_equal(self.matrix, STILL)

    @property
    def shift(self) -> tuple[float, float]:
        """(dx, dy) in px of image 1: how far the middle of the picture moved; (0, 0) where no motion was accepted."""
        height, width = self.first.shape[:2]
        middle = np.array([(width - 1) / 2, (height - 1) / 2, 1.0])
        dx, dy = self.matrix @ middle - middle[:2]
        sx, sy = self.scale
        return float(dx / sx), float(dy / sy)

    @property
    def motion(self) -> Motion:
        """The motion of the whole picture that was undone, in px of image 1."""
        sx, sy = self.scale
        linear = self.matrix[:, :2] * np.array([[1.0, sy / sx], [sx / sy, 1.0]])
        (w, h), middle = self.size_1, np.array(self.shift)
        corners = np.array([[x, y] for x in (-w / 2, w / 2) for y in (-h / 2, h / 2)])
        moved = corners @ (linear - np.eye(2)).T + middle
        return Motion(
            shift=self.shift,
            zoom=(float(np.hypot(*linear[:, 0])), float(np.hypot(*linear[:, 1]))),
            degrees=math.degrees(math.atan2(linear[1, 0] - linear[0, 1], linear[0, 0] + linear[1, 1])),
            most=float(np.hypot(*moved.T).max()),
        )

    @property
    def unseen(self) -> tuple[float, float]:
        """(of image 1, of image 2): the share 0..1 of each that the other does not show, and that was not compared."""
        (w1, h1), (w2, h2), common = self.size_1, self.size_2, self.common()
        there = self.to_image_2(common)
        return max(0.0, 1 - common.area / (w1 * h1)), max(0.0, 1 - there.area / (w2 * h2)) if there is not None else 1.0

    @property
    def wander(self) -> float:
        """Root mean square of the local drift in px of image 1; 0 where there is none."""
        return 0.0 if self.drift is None else self.drift.size / self.scale[0]

    def to_image_1(self, box: Box) -> Box:
        """Return a box in px of the copies as the box around it in whole px of image 1."""
        sx, sy = self.scale
        return box.scaled(1 / sx, 1 / sy).rounded_out().clipped(width=self.size_1[0], height=self.size_1[1])

    def to_image_2(self, box: Box) -> Box | None:
        """Return the box in whole px of image 2 around the place of a box in px of image 1; None where it lies outside."""
        (w2, h2), (sx, sy) = self.laid_2, self.scale
        height, width = self.first.shape[:2]
        here = box.scaled(sx, sy)
        corners = np.array([[x, y] for x in (here.x0, here.x1) for y in (here.y0, here.y1)]) - 0.5
        there = corners @ self.matrix[:, :2].T + self.matrix[:, 2] + 0.5
        if self.drift is not None:
            x0, y0, x1, y1 = here.ints()
            there += self.drift.over(x0=x0, y0=y0, x1=x1, y1=y1)
        # A motion is known to about a hundredth of a px; rounding outward on less would grow every box.
        (left, top), (right, bottom) = (
            (round(float(x * w2 / width), 1), round(float(y * h2 / height), 1)) for x, y in (there.min(0), there.max(0))
        )
        found = Box(left, top, max(right, left + 1), max(bottom, top + 1)).rounded_out()
        inside = found.intersection(Box.whole(width=w2, height=h2))
        return None if inside is None else self.orientation.box_applied(inside, (w2, h2))

    @property
    def laid_2(self) -> tuple[int, int]:
        """(width, height) of image 2 in px, once a turn is undone."""
        return self.orientation.laid(self.size_2)

    def common(self) -> Box:
        """Return the part of image 1, in its px, that image 2 shows as well."""
        height, width = self.first.shape[:2]
        sx, sy = self.scale
        return _shown(self.matrix, width=width, height=height).scaled(1 / sx, 1 / sy)


def align(
    image_1: RGB,
    image_2: RGB,
    *,
    masks_1: Sequence[Box] = (),
    masks_2: Sequence[Box] = (),
    profiles: tuple[bytes | None, bytes | None] = (None, None),
    max_pixels: int = WORKING_PIXELS,
    turns: bool = True,
) -> Alignment:
    """Return copies of both images in the frame of image 1, at most `max_pixels` and never larger than the smaller image.

    image_1, image_2: H×W×3 uint8 RGB, any sizes. A small affine motion of the whole picture, a tone, and what then is left
    as a smooth local drift are estimated in this order, each kept only where it lowers what differs.

    masks_1, masks_2: boxes that were painted over, in px of each image. Their edges do not move with a picture, so both
    images are filled there from around before anything is estimated.
    profiles: the ICC profiles by which the images were brought to sRGB (`ImageStore.profile`). Where the
    other image lost one, it is read with it.
    turns: False takes image 2 as it lies, mirrored or turned as it may be.
    """
    given_1, given_2 = image_1, image_2
    image_1, image_2, lost_profile = undo_lost_profile(image_1, image_2, profiles)
    (h1, w1), (h2, w2) = image_1.shape[:2], image_2.shape[:2]
    # The smaller image keeps its own grid where it can: not enlarging either one, since a blurred copy differs from a sharp
    # one at every edge, and resampling only one of them, since each resampling leaves a beat of sharper and softer edges.
    width, height = (w1, h1) if w1 * h1 <= w2 * h2 else (w2, h2)
    if width * height > max_pixels:
        factor = _reduction(w1 * h1, max_pixels)
        width, height = max(1, round(w1 / factor)), max(1, round(h1 / factor))
    first, second = resize(image_1, width=width, height=height), resize(image_2, width=width, height=height)
    masked_1, masked_2 = (
        _drawn(boxes, size, width=width, height=height) for boxes, size in ((masks_1, (w1, h1)), (masks_2, (w2, h2)))
    )
    light_1, light_2 = luma(_filled(first, masked_1)), luma(_filled(second, masked_2))
    if turns and not equal(first, second):
        orientation = find_orientation(light_1, light_2)
        if orientation != UPRIGHT:
            undone = [orientation.box_undone(box, (w2, h2)) for box in masks_2]
            # As given: a lost profile is sought place by place, so only now it can be found.
            upright = align(
                given_1,
                orientation.undone(given_2),
                masks_1=masks_1,
                masks_2=undone,
                profiles=profiles,
                max_pixels=max_pixels,
                turns=False,
            )
            return replace(upright, size_2=(w2, h2), orientation=orientation)
    if masked_1 is not None or masked_2 is not None:
        # Each is filled where either is masked: what is filled in one alone would pass for a tone, a blur, or noise.
        masked_1 = masked_2 = _either(masked_1, masked_2)
        first, second = _filled(first, masked_1), _filled(second, masked_2)
        light_1, light_2 = luma(first), luma(second)
    matrix, tone, drift, toned = STILL, Tone(), None, first
    if not equal(first, second):
        matrix = register(light_1, light_2)
        if matrix is not STILL:
            flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
            moved = cv2.warpAffine(second, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
            second = np.asarray(moved, dtype=np.uint8)
            light_2 = luma(second)
            if masked_2 is not None:
                masked_2 = np.asarray(cv2.warpAffine(masked_2, matrix, (width, height), flags=flags), dtype=np.uint8)
        tone = estimate_tone(first, second)
        toned = tone.rounded(first)
        drift = estimate_drift(light_1 if toned is first else luma(toned), light_2)
        if drift is not None:
            second = drift.undone(second)
            masked_2 = None if masked_2 is None else drift.undone(masked_2)
    masked = _either(masked_1, masked_2)
    return Alignment(
        first=first,
        second=second,
        size_1=(w1, h1),
        size_2=(w2, h2),
        tone=tone,
        toned=toned,
        matrix=matrix,
        drift=drift,
        valid=_valid(matrix, drifted=drift is not None, width=width, height=height),
        lost_profile=lost_profile,
        masked=np.zeros((height, width), dtype=np.bool_) if masked is None else _grown(masked) > 0,
    )


def _reduction(pixels: int, most: int) -> float:
    """Return how many times smaller each side becomes, so that at most so many px are left.

    A whole number where that leaves 70 % of `most`: means of whole blocks are many times as fast, and equally sharp.
    """
    factor = math.sqrt(pixels / most)
    whole = math.ceil(factor)
    return whole if (factor / whole) ** 2 >= _WHOLE_LEAVES else factor


def _drawn(boxes: Sequence[Box], size: tuple[int, int], *, width: int, height: int) -> NDArray[np.uint8] | None:
    """Return h×w uint8: 255 under the boxes, which are px of an image of `size` (width, height), and 0 elsewhere.

    None where no px lies under a box.
    """
    if not boxes:
        return None
    drawn = np.zeros((height, width), dtype=np.uint8)
    for box in boxes:
        x0, y0, x1, y1 = box.scaled(width / size[0], height / size[1]).ints()
        drawn[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)] = 255
    return drawn if drawn.any() else None


def _either(one: NDArray[np.uint8] | None, other: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
    """Return what lies under either of two masks of one size; None stands for an empty one."""
    if one is None or other is None or one is other:
        return other if one is None else one
    return np.maximum(one, other)


def _grown(masked: NDArray[np.uint8]) -> NDArray[np.uint8]:
    side = 2 * _RIM_PX + 1
    return np.asarray(cv2.dilate(masked, np.ones((side, side), dtype=np.uint8)), dtype=np.uint8)


def _filled(rgb: RGB, masked: NDArray[np.uint8] | None) -> RGB:
    """Return the picture with its masks and their rims filled smoothly from around; the picture itself for no mask."""
    if masked is None:
        return rgb
    height, width = masked.shape
    grown = _grown(masked)
    factor = min(1.0, _FILL_SIDE / max(width, height))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    small, hole = (cv2.resize(picture, size, interpolation=cv2.INTER_AREA) for picture in (rgb, grown))
    filled = cv2.inpaint(small, (hole > 0).astype(np.uint8), 3, cv2.INPAINT_TELEA)
    filled = cv2.resize(filled, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(grown[..., None] > 0, filled, rgb).astype(np.uint8)


def _valid(matrix: Floats, *, drifted: bool, width: int, height: int) -> Box:
    """Return what the copies share, without the rim that interpolation made of pixels from beyond the border."""
    shown = _shown(matrix, width=width, height=height)
    # On the other sides a motion brings near what only the second image shows.
    margin = _MARGIN_PX * (drifted or matrix is not STILL)
    x0, y0 = math.ceil(shown.x0) + margin, math.ceil(shown.y0) + margin
    x1, y1 = math.floor(shown.x1) - margin, math.floor(shown.y1) - margin
    return Box(x0, y0, max(x0 + 1, x1), max(y0 + 1, y1)).clipped(width=width, height=height)


def _shown(matrix: Floats, *, width: int, height: int) -> Box:
    """Return the upright box of the first copy all of whose places lie inside the second."""
    inverse = cv2.invertAffineTransform(matrix)
    corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], dtype=np.float64) - 0.5
    (lt, rt, lb, rb) = corners @ inverse[:, :2].T + inverse[:, 2] + 0.5
    x0, x1 = max(0.0, lt[0], lb[0]), min(float(width), rt[0], rb[0])
    y0, y1 = max(0.0, lt[1], rt[1]), min(float(height), lb[1], rb[1])
    return Box(x0, y0, max(x0 + 1, x1), max(y0 + 1, y1))


def equal(first: RGB, second: RGB) -> bool:
    """Return True if two pictures have one size and the same pixels."""
    return first.shape == second.shape and all(np.array_equal(first[::n], second[::n]) for n in (_ROWS_APART, 1))


def luma(rgb: RGB) -> NDArray[np.uint8]:
    """Return h×w of h×w×3 uint8 RGB: ITU-R 601, in whole levels."""
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def resize(rgb: RGB, *, width: int, height: int) -> RGB:
    """Return H×W×3 uint8 RGB at another size: area averaging where it shrinks, Lanczos (8×8) where it grows."""
    if rgb.shape[:2] == (height, width):
        return rgb
    shrinks = width * height < rgb.shape[0] * rgb.shape[1]
    # OpenCV has a fast way for means of 2×2 px. In steps, only a whole factor gives the means of areas.
    while rgb.shape[0] % (2 * height) == 0 and rgb.shape[1] % (2 * width) == 0:
        half = (rgb.shape[1] // 2, rgb.shape[0] // 2)
        rgb = np.asarray(cv2.resize(rgb, half, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    kind = cv2.INTER_AREA if shrinks else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(rgb, (width, height), interpolation=kind), dtype=np.uint8)
