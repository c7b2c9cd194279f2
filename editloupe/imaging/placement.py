"""Finds which part of one picture another one shows: for crops, zooms, borders, and pictures that grew at their sides."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.imaging.geometry import cells_covered
from editloupe.imaging.register import SMALLEST_SIDE, Floats, Gray
from editloupe.imaging.residual import halved

_MOST_SIDE = 420
"""px; longest side of the copies on which key points are sought."""
_MOST_POINTS = 1200
_RATIO = 0.8
"""Distance to the best match, of that to the next best: a match that is not clear says nothing."""
_REACH_PX = 2.0
_LEAST_MATCHES = 10
_LEAST_CELLS = 4.0
"""Matches in few cells of an 8×8 grid are one thing that moved, and not the picture."""
_MOST_ZOOM = 2.6
_MOST_DEGREES = 12.0
_SIDE = 64
_WINDOW = 6
_CORRELATED = 0.6
"""px of the squares on which two pictures are compared, of the window of a place, and the correlation of two alike ones."""
_PLAIN = 2.0
"""Standard deviation in levels under which a place shows nothing."""


def find_placement(first: Gray, second: Gray) -> Floats | None:
    """Return the 2×3 similarity that takes px of the first picture to px of the second; None where there is none.

    first, second: luma of two pictures, of any sizes. Things may be from 1/2.6 to 2.6 times as large, relative to their
    picture, and turned by up to 12°.
    """
    if min(*first.shape, *second.shape) < SMALLEST_SIDE:
        return None
    (points_1, told_1), (points_2, told_2) = _keypoints(first), _keypoints(second)
    if min(len(points_1), len(points_2)) < _LEAST_MATCHES:
        return None
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(told_1, told_2, k=2)
    good = [pair[0] for pair in pairs if len(pair) == 2 and pair[0].distance < _RATIO * pair[1].distance]
    if len(good) < _LEAST_MATCHES:
        return None
    here, there = points_1[[m.queryIdx for m in good]], points_2[[m.trainIdx for m in good]]
    # None where the matches fit no motion, which the type of OpenCV does not say.
    found: Any
    reach = _REACH_PX * _step(second)
    found, fits = cv2.estimateAffinePartial2D(here, there, method=cv2.RANSAC, ransacReprojThreshold=reach)
    if found is None:
        return None
    fit = fits.ravel() > 0
    # Chance matches often lead to the same few key points.
    distinct = len(np.unique(np.array([m.trainIdx for m in good])[fit]))
    x, y = here[fit].T.astype(np.float64)
    covered = cells_covered(x, y, width=first.shape[1], height=first.shape[0])
    zoom = math.hypot(found[0, 0], found[1, 0]) / math.sqrt(second.size / first.size)
    degrees = abs(math.degrees(math.atan2(found[1, 0], found[0, 0])))
    if distinct < _LEAST_MATCHES or covered < _LEAST_CELLS:
        return None
    if not 1 / _MOST_ZOOM < zoom < _MOST_ZOOM or degrees > _MOST_DEGREES:
        return None
    return np.asarray(found, dtype=np.float64)


def places_alike(first: Gray, second: Gray) -> float:
    """Return the share 0..1 of the places that show something around which two pictures of one frame correlate.

    1 where neither picture shows anything.
    """
    # Halves first: OpenCV has a fast way for means of 2×2 px, and none for other areas.
    first, second = (halved(gray) if min(gray.shape) >= 4 * _SIDE else gray for gray in (first, second))
    a, b = (cv2.resize(gray, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32) for gray in (first, second))

    def mean(values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(cv2.boxFilter(values, cv2.CV_32F, (_WINDOW, _WINDOW)))

    mean_a, mean_b = mean(a), mean(b)
    spread_a, spread_b = (np.maximum(mean(v * v) - m * m, 0.0) for v, m in ((a, mean_a), (b, mean_b)))
    shows = np.maximum(spread_a, spread_b) > _PLAIN**2
    if not shows.any():
        return 1.0
    product = mean(a * b) - mean_a * mean_b
    least: NDArray[np.float64] = _CORRELATED * np.sqrt(spread_a * spread_b)
    alike: list[bool] = (product > least)[shows].tolist()
    return sum(alike) / len(alike)


def _step(gray: Gray) -> float:
    """Return how many px of a picture one px of its copy is."""
    return max(1.0, float(max(gray.shape)) / _MOST_SIDE)


def _keypoints(gray: Gray) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return N×2 key points in px of the picture, and their N×128 descriptors."""
    step = _step(gray)
    height, width = gray.shape
    size = (max(1, round(width / step)), max(1, round(height / step)))
    small = gray if step == 1 else cv2.resize(gray, size, interpolation=cv2.INTER_AREA)
    sift: Any = cv2.SIFT.create(_MOST_POINTS)
    points, told = sift.detectAndCompute(small, None)
    if told is None:
        return np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32)
    scale = np.array([width / size[0], height / size[1]], np.float32)
    at = (np.array([point.pt for point in points], np.float32) + 0.5) * scale - 0.5
    return at, told
