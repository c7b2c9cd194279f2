"""Two common ways of finding where two images differ, each with a threshold and connected components."""

from __future__ import annotations

from typing import TypeAlias

import cv2
import numpy as np
from skimage.metrics import structural_similarity

from editloupe.data.images import RGB
from editloupe.values import Box

Found: TypeAlias = list[tuple[Box, float]]
"""Boxes in px of the first image, and how strong each is."""


def absolute_difference(first: RGB, second: RGB) -> Found:
    difference = cv2.cvtColor(cv2.absdiff(first, _sized(first, second)), cv2.COLOR_RGB2GRAY)
    return _components(cv2.dilate((difference > 45).astype(np.uint8), np.ones((9, 9), np.uint8)), difference)


def ssim_map(first: RGB, second: RGB) -> Found:
    grays = [cv2.cvtColor(v, cv2.COLOR_RGB2GRAY) for v in (first, _sized(first, second))]
    _, similarity = structural_similarity(*grays, full=True, data_range=255)
    low = cv2.morphologyEx((similarity < 0.5).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    return _components(cv2.dilate(low, np.ones((5, 5), np.uint8)), 1 - similarity)


def _sized(first: RGB, second: RGB) -> RGB:
    return second if first.shape == second.shape else cv2.resize(second, first.shape[1::-1])


def _components(mask: np.ndarray, weight: np.ndarray) -> Found:
    """Components of at least 0.02 % of the image."""
    _, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    large = [s[:4] for s in stats[1:] if s[4] >= 2e-4 * mask.size]
    return [(Box(x, y, x + w, y + h), float(weight[y : y + h, x : x + w].sum())) for x, y, w, h in large]
