"""SSIM, place by place."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from editloupe.data.images import RGB
from editloupe.imaging.masked import Kept

WINDOW: Final = 7
"""Side in px of the window, which is uniform."""
_REACH: Final = WINDOW // 2
_K1, _K2 = 0.01, 0.03


def ssim_map(first: NDArray[np.float64], second: NDArray[np.float64], data_range: float) -> NDArray[np.float64]:
    """Return H×W: the structural similarity of the windows around each pixel, -1 to 1.

    first, second: H×W, the same size, at least 7 px a side.   data_range: the largest value less the least.
    As scikit-image's `structural_similarity` with its defaults: uniform 7×7 windows, sample covariance, K1 0.01, K2 0.03.
    Within 3 px of the border the windows hold reflected pixels.
    """
    mean_1, mean_2, square_1, square_2, product = map(
        _windowed, (first, second, first * first, second * second, first * second)
    )
    sample = WINDOW**2 / (WINDOW**2 - 1)
    variance_1, variance_2 = sample * (square_1 - mean_1 * mean_1), sample * (square_2 - mean_2 * mean_2)
    covariance = sample * (product - mean_1 * mean_2)
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    over = (2 * mean_1 * mean_2 + c1) * (2 * covariance + c2)
    return np.asarray(over / ((mean_1**2 + mean_2**2 + c1) * (variance_1 + variance_2 + c2)))


def counted(kept: Kept, valid: Kept) -> Kept:
    """Return H×W: where an SSIM map counts.

    Kept pixels, at least 3 px from the border, whose window lies wholly in what is valid.
    """
    whole = cv2.erode(valid.astype(np.uint8), np.ones((WINDOW, WINDOW), np.uint8)) > 0
    whole[:_REACH], whole[-_REACH:], whole[:, :_REACH], whole[:, -_REACH:] = False, False, False, False
    return np.asarray(whole & kept)


def gray(rgb: RGB, side: int = 0) -> NDArray[np.float64]:
    """Return luma (ITU-R 601) in whole levels 0 to 255, H×W.

    side: px to which both sides are squashed before (Lanczos); 0 keeps the size.
    """
    image = Image.fromarray(rgb)
    if side:
        image = image.resize((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image.convert("L"), dtype=np.float64)


def _windowed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    window = (WINDOW, WINDOW)
    return np.asarray(cv2.boxFilter(values, cv2.CV_64F, window, normalize=True, borderType=cv2.BORDER_REFLECT))
