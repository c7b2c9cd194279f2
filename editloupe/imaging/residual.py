"""Measures what differs between two aligned pictures, without a difference in sharpness: in light, and in color."""

from __future__ import annotations

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

_BLURS: Final = (0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5)
"""Standard deviations in px to try: from what a resampling leaves to what an autoencoder does."""
_TILE = 32
_TILE_RIM = 4
"""px by which a tile is mirrored, nearly three standard deviations of the widest blur."""
_TILES = 8
_MUST_FALL_TO = 0.98
"""A blur leaves at most this share of what differs without it."""
COLOR_IN_LEVELS: Final = 1.5
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
    """Two pictures at half their size, brought to one sharpness, and how they differ."""

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
    color_activity: Map
    """The same of Cr and Cb."""
    grain: float
    """Noise in levels of Y that the noisier picture shows for itself, whatever the other one is."""
    color_grain: float
    """The same of Cr and Cb."""
    shown: NDArray[np.bool_]
    """h×w: the places that were compared."""

    @property
    def levels(self) -> Map:
        """h×w float32, 0..255: the largest difference of a place in any channel, a little smoothed."""
        light, red, blue = (cv2.GaussianBlur(v, (3, 3), 0) for v in (self.light, self.red, self.blue))
        for smooth in (light, red, blue):
            np.abs(smooth, out=smooth)
        color = np.multiply(np.maximum(red, blue, out=red), np.float32(COLOR_IN_LEVELS), out=red)
        return np.asarray(np.minimum(np.maximum(light, color, out=light), 255, out=light), dtype=np.float32)


def _planes(rgb: RGB) -> tuple[_Plane, tuple[_Plane, ...]]:
    """Return luma of H×W×3 uint8 RGB, and Y, Cr and Cb at half size.

    Luma is kept at full size, where a blur shows. Color is coarse in every compressed picture.
    """
    ycc = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2YCrCb), dtype=np.uint8)
    halves = tuple(np.asarray(plane, dtype=np.uint8) for plane in cv2.split(halved(ycc)))
    return np.asarray(cv2.extractChannel(ycc, 0), dtype=np.uint8), halves


def halved(values: _Plane) -> _Plane:
    """Return the means of blocks of 2×2 px, (H+1)//2×(W+1)//2, uint8. An odd last row or column is repeated."""
    height, width = values.shape[:2]
    if height % 2 or width % 2:
        values = np.asarray(cv2.copyMakeBorder(values, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE), np.uint8)
    size = ((width + 1) // 2, (height + 1) // 2)
    return np.asarray(cv2.resize(values, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def residual(first: RGB, second: RGB, shown: NDArray[np.bool_]) -> Residual:
    """Return what differs between two pictures of one size and one tone, aligned.

    shown: h×w of the half size, False where they are not compared: nothing differs there, and no grain is measured.
    """
    (full_1, halves_1), (full_2, halves_2) = _planes(first), _planes(second)
    both = (halves_1, halves_2)
    blurs = sharpness_match(full_1, full_2)
    one, other = (
        halved(_blurred(full, sigma)) if sigma else halves[0]
        for full, halves, sigma in zip((full_1, full_2), both, blurs, strict=True)
    )
    matched = ((one, other), *(_matched(*colors) for colors in zip(halves_1[1:], halves_2[1:], strict=True)))
    pairs = matched if shown.all() else tuple((one, np.where(shown, other, one)) for one, other in matched)
    light, red, blue = (_minus(*pair) for pair in pairs)
    activity = np.minimum(_activity(halves_1[0]), _activity(halves_2[0]))
    color_activity = np.minimum(*(_activity(halves[1]) + _activity(halves[2]) for halves in both))
    return Residual(
        planes=pairs,
        light=light,
        red=red,
        blue=blue,
        activity=activity,
        # Color is derived from the same pixels, so light's edges disturb it too, if less.
        color_activity=color_activity + activity / 8,
        grain=max(_grain(halves[0], shown) for halves in both),
        color_grain=max(_grain(plane, shown) for halves in both for plane in halves[1:]),
        shown=shown,
    )


def sharpness_match(first: _Plane, second: _Plane) -> tuple[float, float]:
    """Return the standard deviations in px of the Gaussians that bring two h×w pictures to one sharpness.

    At least one of them is 0. They leave the least difference on 64 tiles. The quarter of the tiles that differs most does
    not count: an edit may be there.
    """
    if min(first.shape) < 2 * _TILE:
        return 0.0, 0.0
    a, b = _tiles(first, second)
    best, least = (0.0, 0.0), _MUST_FALL_TO * _typical(a, b)
    for sharper in (0, 1):
        previous = np.inf
        for sigma in _BLURS:
            blurs = (sigma, 0.0) if sharper == 0 else (0.0, sigma)
            left = _typical(_blurred(a, blurs[0]), _blurred(b, blurs[1]))
            if left < least:
                best, least = blurs, left
            if left > previous:
                break
            previous = left
    return best


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


def _matched(a: _Plane, b: _Plane) -> tuple[_Plane, _Plane]:
    blurs = sharpness_match(a, b)
    return _blurred(a, blurs[0]), _blurred(b, blurs[1])


def _tiles(first: _Plane, second: _Plane) -> tuple[_Plane, _Plane]:
    """Return 8×8 tiles of 32×32 px from all over each picture, as a picture of 256×320 px.

    A tile is mirrored to its left and right. Above and below it meets others: a blur of one picture alone has to pay there.
    """
    y0, x0 = (np.linspace(0, side - _TILE, _TILES).astype(int) for side in first.shape)
    rows = (y0[:, None] + np.arange(_TILE)).ravel()
    columns = (x0[:, None] + np.pad(np.arange(_TILE), _TILE_RIM, mode="reflect")).ravel()
    cut = (p[rows].take(columns, axis=1).reshape(_TILES, _TILE, _TILES, -1) for p in (first, second))
    a, b = (tiles.transpose(2, 1, 0, 3).reshape(len(rows), len(columns)) for tiles in cut)
    return a, b


def _typical(a: _Plane, b: _Plane) -> float:
    """Return the mean over the tiles of their root mean square difference, the largest quarter left out."""
    squares = _minus(a, b)
    np.square(squares, out=squares)
    columns = squares.reshape(_TILES, _TILE, -1).mean(axis=1).reshape(_TILES * _TILES, -1)
    of_tiles = np.sort(np.sqrt(columns[:, _TILE_RIM:-_TILE_RIM].mean(axis=1)))
    return float(of_tiles[: max(1, len(of_tiles) * 3 // 4)].mean())


def _blurred(values: _Plane, sigma: float) -> _Plane:
    return values if sigma == 0 else np.asarray(cv2.GaussianBlur(values, (0, 0), sigma), dtype=np.uint8)


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
