"""Three common ways of finding where two images differ, each with a threshold and connected components."""

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


def sift_and_difference(first: RGB, second: RGB) -> Found:
    sift, second = cv2.SIFT.create(2000), _sized(first, second)
    (keys_1, marks_1), (keys_2, marks_2) = (sift.detectAndCompute(v, None) for v in (first, second))
    pairs = cv2.BFMatcher().knnMatch(marks_2, marks_1, k=2) if marks_1 is not None and marks_2 is not None else []
    near = [p[0] for p in pairs if len(p) == 2 and p[0].distance < 0.75 * p[1].distance]
    if len(near) >= 8:
        there = np.array([keys_2[m.queryIdx].pt for m in near])
        here = np.array([keys_1[m.trainIdx].pt for m in near])
        matrix, _ = cv2.findHomography(there, here, cv2.RANSAC, 3.0)
        if matrix is not None:
            moved = cv2.warpPerspective(second, matrix, first.shape[1::-1])
            shown = cv2.warpPerspective(np.ones(first.shape[:2], np.uint8), matrix, first.shape[1::-1])
            second = np.where(cv2.erode(shown, np.ones((5, 5), np.uint8))[..., None] > 0, moved, first)
    return absolute_difference(first, second)


def _sized(first: RGB, second: RGB) -> RGB:
    return second if first.shape == second.shape else cv2.resize(second, first.shape[1::-1])


def _components(mask: np.ndarray, weight: np.ndarray) -> Found:
    """Components of at least 0.02 % of the image."""
    _, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    large = [s[:4] for s in stats[1:] if s[4] >= 2e-4 * mask.size]
    return [(Box(x, y, x + w, y + h), float(weight[y : y + h, x : x + w].sum())) for x, y, w, h in large]
