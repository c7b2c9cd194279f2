"""Measures on pixels alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import Args


class MSE:
    """Mean squared error of two images, over all pixels and channels, values 0 to 1 (lower is better)."""

    name = "mse"
    version = "1"
    Args = Args
    needs: tuple[str, ...] = ()

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Number:
        """Return the error. Raises MeasureError for images of different sizes."""
        return Number(value=_mse(images))


class PSNR:
    """Peak signal-to-noise ratio of two images, in dB (higher is better)."""

    name = "psnr"
    version = "1"
    Args = Args
    needs: tuple[str, ...] = ()

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Number:
        """Return the ratio. Raises MeasureError for images of different sizes and for equal images: it is infinite."""
        error = _mse(images)
        if error == 0:
            raise MeasureError("the images are equal: PSNR is infinite")
        return Number(value=float(-10 * np.log10(error)))


def _mse(images: Mapping[str, RGB]) -> float:
    if len(images) != 2:
        raise MeasureError(f"expected two images, found {len(images)}", status="input_error")
    first, second = images.values()
    if first.shape != second.shape:
        sizes = " and ".join(f"{rgb.shape[1]}×{rgb.shape[0]}" for rgb in (first, second))
        raise MeasureError(f"the images differ in size: {sizes} px")
    return float(np.mean((first.astype(np.float64) / 255 - second.astype(np.float64) / 255) ** 2))
