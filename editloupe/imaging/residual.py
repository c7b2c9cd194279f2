"""Measures what differs between two aligned pictures: in light, and in color."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.rank import median
from editloupe.values import Box

Map: TypeAlias = NDArray[np.float32]
_Plane: TypeAlias = NDArray[np.uint8]

COLOUR_IN_LEVELS: Final = 1.5
"""A step of 1 in Cb or Cr is a step of about 1.4 to 1.8 in blue or red."""
_MOST_SHIFT = 0.25
_MOST_BLUR = 0.12
"""px of shift, and px² of blur (half its variance), by which a place may have slipped."""
_EXPLAINABLE_AREA = 20_000
"""px² of half size; a larger place is too large to have slipped."""
_AROUND = 3
"""px about a place that tell a slip, too."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Two pictures at half their size, and how they differ."""

    planes: tuple[tuple[_Plane, _Plane], ...]
    """Y, Cr, Cb of both, h×w uint8 each."""
    light: Map
    """h×w float32: first − second of Y, in levels (±255)."""
    red: Map
    """The same of Cr."""
    blue: Map
    """The same of Cb."""
    activity: Map
    """h×w float32, levels per px: the gradient of Y that both pictures show around a place.

    Where it is high, noise, compression and the smallest misplacement leave more.
    """
    colour_activity: Map
    """The same of Cr and Cb."""
    grain: float
    """Noise in levels of Y that the two pictures show each for itself, added as independent noise."""
    colour_grain: float
    """The same of Cr and Cb."""
    shown: NDArray[np.bool_]
    """h×w: the places that were compared."""

    @property
    def levels(self) -> Map:
        """h×w float32, 0..255: the largest difference of a place in any channel, a little smoothed."""
        light, red, blue = (cv2.GaussianBlur(v, (3, 3), 0) for v in (self.light, self.red, self.blue))
        for smooth in (light, red, blue):
            np.abs(smooth, out=smooth)
        colour = np.multiply(np.maximum(red, blue, out=red), np.float32(COLOUR_IN_LEVELS), out=red)
        return np.asarray(np.minimum(np.maximum(light, colour, out=light), 255, out=light), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class Planes:
    """A picture as it is compared: (H+1)//2×(W+1)//2 uint8 each, half its size, at which noise has faded."""

    light: _Plane
    """Y."""
    red: _Plane
    """Cr."""
    blue: _Plane
    """Cb."""


def planes(rgb: RGB) -> Planes:
    """Return the planes of H×W×3 uint8 RGB."""
    ycc = np.asarray(cv2.cvtColor(halved(rgb), cv2.COLOR_RGB2YCrCb), dtype=np.uint8)
    light, red, blue = (np.asarray(plane, dtype=np.uint8) for plane in cv2.split(ycc))
    return Planes(light=light, red=red, blue=blue)


def halved(values: _Plane) -> _Plane:
    """Return the means of blocks of 2×2 px, (H+1)//2×(W+1)//2, uint8. An odd last row or column is repeated."""
    height, width = values.shape[:2]
    if height % 2 or width % 2:
        values = np.asarray(cv2.copyMakeBorder(values, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE), np.uint8)
    size = ((width + 1) // 2, (height + 1) // 2)
    return np.asarray(cv2.resize(values, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def residual(first: Planes, second: Planes, shown: NDArray[np.bool_]) -> Residual:
    """Return what differs between two pictures of one size and one tone, aligned.

    shown: h×w of the half size, False where they are not compared: nothing differs there, and no grain is measured.
    """
    matched = tuple(zip((first.light, first.red, first.blue), (second.light, second.red, second.blue), strict=True))
    pairs = matched if shown.all() else tuple((one, np.where(shown, other, one)) for one, other in matched)
    light, red, blue = (_minus(*pair) for pair in pairs)
    activity = np.minimum(_activity(first.light), _activity(second.light))
    colours = [_activity(p.red) for p in (first, second)]
    for colour, p in zip(colours, (first, second), strict=True):
        colour += _activity(p.blue)
    # Colour is derived from the same pixels, so light's edges disturb it too, if less.
    colour_activity = np.minimum(colours[0], colours[1], out=colours[0])
    colour_activity += activity / 8
    colours_of = ((first.red, second.red), (first.blue, second.blue))
    return Residual(
        planes=pairs,
        light=light,
        red=red,
        blue=blue,
        activity=activity,
        colour_activity=colour_activity,
        grain=math.hypot(*(_grain(p.light, shown) for p in (first, second))),
        colour_grain=max(math.hypot(*(_grain(plane, shown) for plane in both)) for both in colours_of),
        shown=shown,
    )


def unexplained(residual: Residual, box: Box) -> float:
    """Return the share 0..1 of the residual's energy around a place that no small shift and no small blur of it explains.

    box: px of the residual. At most 0.25 px of shift and 0.12 px² of blur (half its variance) a direction count, on planes
    of half size: what the affine motion and one sharpness for all leave. A place too large to have slipped counts as 1.
    """
    height, width = residual.light.shape
    x0, y0, x1, y1 = box.ints()
    x0, y0, x1, y1 = max(0, x0 - _AROUND), max(0, y0 - _AROUND), min(width, x1 + _AROUND), min(height, y1 + _AROUND)
    if (x1 - x0) * (y1 - y0) > _EXPLAINABLE_AREA or min(x1 - x0, y1 - y0) < 5:
        return 1.0
    most = np.array([_MOST_SHIFT, _MOST_SHIFT, _MOST_BLUR, _MOST_BLUR])
    energy = left = 0.0
    for first, second in residual.planes:
        a, b = (plane[y0:y1, x0:x1].astype(np.float32) for plane in (first, second))
        # Sobel's kernels sum to 8 and 4 times the derivative per px.
        kinds = ((1, 0, 1 / 8), (0, 1, 1 / 8), (2, 0, 1 / 4), (0, 2, 1 / 4))
        mean = (a + b) / 2
        slips = np.array([cv2.Sobel(mean, cv2.CV_32F, dx, dy, scale=scale).ravel() for dx, dy, scale in kinds], np.float64)
        difference = (a - b).ravel().astype(np.float64)
        solved = np.linalg.solve(slips @ slips.T + np.eye(4), slips @ difference)
        rest = difference - np.clip(solved, -most, most) @ slips
        energy += float(difference @ difference)
        left += float(rest @ rest)
    return left / energy if energy > 0 else 1.0


def _minus(a: _Plane, b: _Plane) -> Map:
    return np.asarray(cv2.subtract(a, b, dtype=cv2.CV_32F), dtype=np.float32)


def _grain(plane: _Plane, shown: NDArray[np.bool_]) -> float:
    """Return the standard deviation of a picture's noise in levels (Immerkær 1996, with a median in place of the mean)."""
    if min(plane.shape) < 3 or not shown[::2, ::2].any():
        return 0.0
    # Once across and once down: a difference of two Laplacians, which neither slopes nor edges pass.
    kernel = np.array([1, -2, 1], dtype=np.float32)
    noise = cv2.sepFilter2D(plane, cv2.CV_16S, kernel, kernel)[::2, ::2]
    # The weights' squares sum to 36; half of a normal distribution lies within 0.6745 standard deviations.
    return median(np.abs(noise if shown.all() else noise[shown[::2, ::2]])) / (6 * 0.6745)


def _activity(plane: _Plane) -> Map:
    smooth = cv2.GaussianBlur(plane, (3, 3), 0)
    dx, dy = cv2.Sobel(smooth, cv2.CV_32F, 1, 0, scale=1 / 8), cv2.Sobel(smooth, cv2.CV_32F, 0, 1, scale=1 / 8)
    # Grown by a px: next to an edge, too, ringing and misplacement leave what the edge leaves.
    edges = cv2.dilate(cv2.magnitude(dx, dy, dx), np.ones((3, 3), dtype=np.uint8), dst=dy)
    return np.asarray(cv2.GaussianBlur(edges, (0, 0), 1.0, dst=dx), dtype=np.float32)
