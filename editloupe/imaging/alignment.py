"""Two images as they were brought together: copies of one size, and where a box of the one lies in the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.color import Tone
from editloupe.imaging.drift import Drift
from editloupe.imaging.orientation import UPRIGHT, Orientation
from editloupe.imaging.register import STILL, Floats
from editloupe.values import Box

_ASPECT_TOLERANCE = 0.02
_ANOTHER_ZOOM = 0.05


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
    """What two images have in common, as copies of one size, the second laid onto the first."""

    first: RGB
    """h×w×3 uint8: `part` of image 1 times `scale`, at most 1 unless image 2 is smaller in all and longer one way."""
    second: RGB
    """h×w×3 uint8: image 2 in the frame of `first`."""
    size_1: tuple[int, int]
    """(width, height) of image 1 in px."""
    size_2: tuple[int, int]
    """(width, height) of image 2 in px, as it lies."""
    part: Box
    """What the copies show of image 1, in its px; integer corners. All of it, unless image 2 shows another frame."""
    placed: bool = False
    """True if image 2 shows another frame of the scene: a part, at another size, or more around it."""
    base: Floats
    """2×3: pixel (x, y) of the copies lies at base · (x, y, 1) of image 2, before `matrix`. Centers are integers."""
    orientation: Orientation = UPRIGHT
    """How image 2 was mirrored or turned, which was undone before anything else."""
    tone: Tone
    """What the whole picture's levels became."""
    toned: RGB
    """h×w×3 uint8: `first` in the tone of `second`."""
    matrix: Floats
    """2×3: pixel (x, y) of `first` is at matrix · (x, y, 1) of the copies as `base` alone lays them."""
    drift: Drift | None
    """Displacement that is added to that place by place, in px of the copies; None where there is none."""
    valid: Box
    """The part of the copies that both images cover; integer corners."""
    masked: NDArray[np.bool_]
    """h×w: what lies under a mask of either image, or within 4 px of one. The copies are filled there from around."""

    @property
    def scale(self) -> tuple[float, float]:
        """(x, y): px of the copies for one px of image 1."""
        height, width = self.first.shape[:2]
        return width / self.part.width, height / self.part.height

    @property
    def resized(self) -> bool:
        """True if the two images differ in size, once a turn is undone."""
        return self.size_1 != self.laid_2

    @property
    def stretched(self) -> bool:
        """True if image 2 shows things wider or narrower than image 1 does, by more than 2 %."""
        across, down = np.hypot(*(self.base[:, :2] @ self.matrix[:, :2] * np.array(self.scale)))
        return abs(math.log(across / down)) > _ASPECT_TOLERANCE

    @property
    def moved(self) -> bool:
        """True if a motion of the whole picture was undone."""
        return not np.array_equal(self.matrix, STILL)

    @property
    def motion(self) -> Motion:
        """The motion of the whole picture that was undone, in px of image 1. Another frame is no motion: see `placed`."""
        sx, sy = self.scale
        linear = self.matrix[:, :2] * np.array([[1.0, sy / sx], [sx / sy, 1.0]])
        center = (np.array(self.first.shape[1::-1]) - 1) / 2
        (w, h), middle = (self.part.width, self.part.height), (self.matrix @ (*center, 1.0) - center) / (sx, sy)
        corners = np.array([[x, y] for x in (-w / 2, w / 2) for y in (-h / 2, h / 2)])
        moved = corners @ (linear - np.eye(2)).T + middle
        return Motion(
            shift=(float(middle[0]), float(middle[1])),
            zoom=(float(np.hypot(*linear[:, 0])), float(np.hypot(*linear[:, 1]))),
            degrees=math.degrees(math.atan2(linear[1, 0] - linear[0, 1], linear[0, 0] + linear[1, 1])),
            most=float(np.hypot(*moved.T).max()),
        )

    @property
    def reframed(self) -> bool:
        """True if image 2 shows another frame of the scene: another part of it, or at another size by more than 5 %."""
        return self.placed or max(abs(math.log(zoom)) for zoom in self.motion.zoom) > _ANOTHER_ZOOM

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
        there = box.scaled(1 / sx, 1 / sy).shifted(self.part.x0, self.part.y0)
        return there.rounded_out().clipped(width=self.size_1[0], height=self.size_1[1])

    def to_copies(self, box: Box) -> Box:
        """Return a box in px of image 1 as a box in px of the copies, over whose borders it may reach."""
        return box.shifted(-self.part.x0, -self.part.y0).scaled(*self.scale)

    def to_image_2(self, box: Box) -> Box | None:
        """Return the box in whole px of image 2 around the place of a box in px of image 1; None where it lies outside."""
        w2, h2 = self.laid_2
        here = self.to_copies(box)
        corners = np.array([[x, y] for x in (here.x0, here.x1) for y in (here.y0, here.y1)]) - 0.5
        there = corners @ self.matrix[:, :2].T + self.matrix[:, 2]
        if self.drift is not None:
            x0, y0, x1, y1 = here.ints()
            there += self.drift.over(x0=x0, y0=y0, x1=x1, y1=y1)
        there = there @ self.base[:, :2].T + self.base[:, 2] + 0.5
        # A motion is known to about a hundredth of a px; rounding outward on less would grow every box.
        (left, top), (right, bottom) = ((round(float(x), 1), round(float(y), 1)) for x, y in (there.min(0), there.max(0)))
        found = Box(left, top, max(right, left + 1), max(bottom, top + 1)).rounded_out()
        inside = found.intersection(Box.whole(width=w2, height=h2))
        return None if inside is None else self.orientation.box(inside, (w2, h2))

    @property
    def laid_2(self) -> tuple[int, int]:
        """(width, height) of image 2 in px, once a turn is undone."""
        return self.size_2 if self.orientation.quarters % 2 == 0 else self.size_2[::-1]

    def common(self) -> Box:
        """Return the part of image 1, in its px, that image 2 shows as well."""
        height, width = self.first.shape[:2]
        sx, sy = self.scale
        seen = shown(self.matrix, (width, height), (width, height))
        return seen.scaled(1 / sx, 1 / sy).shifted(self.part.x0, self.part.y0)


def shown(matrix: Floats, size_1: tuple[int, int], size_2: tuple[int, int]) -> Box:
    """Return the upright box of one picture all of whose places lie inside another, at least a px large.

    matrix: 2×3, px of the first picture to px of the second, with a small turn at most.   Sizes are (width, height).
    """
    (w1, h1), (w2, h2), inverse = size_1, size_2, cv2.invertAffineTransform(matrix)
    corners = np.array([[0, 0], [w2, 0], [0, h2], [w2, h2]], dtype=np.float64) - 0.5
    (lt, rt, lb, rb) = corners @ inverse[:, :2].T + inverse[:, 2] + 0.5
    x0, x1 = max(0.0, lt[0], lb[0]), min(float(w1), rt[0], rb[0])
    y0, y1 = max(0.0, lt[1], rt[1]), min(float(h1), lb[1], rb[1])
    return Box(x0, y0, max(x0 + 1, x1), max(y0 + 1, y1))
