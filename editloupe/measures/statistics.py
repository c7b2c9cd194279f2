"""Statistics of one image: luminance of its brightest pixels, saturation, sharpness, contrast (EdiVal, appendix G)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from editloupe.answers import Record
from editloupe.data.images import RGB
from editloupe.imaging.align import luma, resize
from editloupe.measures import base
from editloupe.values import Json

Side: TypeAlias = Annotated[int, Field(ge=1, le=65_536)]
Light: TypeAlias = Literal["linear", "gamma"]

_REC_709: Final = np.array([0.2126, 0.7152, 0.0722])
"""Weights of R, G and B."""
_DARK: Final = 0.1
"""A pixel whose largest channel is at most this share of 255 has no color to speak of."""


class ImageStatistics(base.BaseMeasure):
    """A Record of statistics of one image. A statistic that is not defined is null.

    luminance_p99, luminance_p999: the luminance that 99 and 99.9 % of the pixels do not exceed, 0 to 1.
    saturation: mean saturation (HSV) of the pixels that are not dark, 0 to 1; null if all are.
    sharpness: variance of the Laplacian of the smoothed luma, from 0.   contrast: standard deviation ÷ mean of L*, from 0;
    null for a black image.
    """

    name = "image_statistics"

    class Args(base.Args):
        """How the image is taken."""

        light: Light
        """Of luminance. linear: sRGB's curve is undone first, as in EdiVal's code.   gamma: not, as its text says."""
        size: tuple[Side, Side] | None = None
        """(width, height) in px to which the image is brought first; None for its own."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Record:
        """Return the statistics. Raises MeasureError unless there is one image."""
        rgb = base.only(images)
        if args.size is not None:
            rgb = resize(rgb, width=args.size[0], height=args.size[1])
        p99, p999 = np.percentile(luminance(rgb, args.light), (99, 99.9))
        data: dict[str, Json] = {
            "luminance_p99": float(p99),
            "luminance_p999": float(p999),
            "saturation": _saturation(rgb),
            "sharpness": _sharpness(rgb),
            "contrast": _contrast(rgb),
        }
        return Record(data=data)


def luminance(rgb: RGB, light: Light) -> NDArray[np.float32]:
    """Return H×W: luminance of H×W×3 uint8 sRGB by the weights of Rec. 709, 0 to 1."""
    levels = np.arange(256) / 255
    if light == "linear":
        levels = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    red, green, blue = (weight * levels for weight in _REC_709)
    # A rounding error would put white above 1.
    return np.asarray(np.minimum(red[rgb[..., 0]] + green[rgb[..., 1]] + blue[rgb[..., 2]], 1), np.float32)


def _saturation(rgb: RGB) -> float | None:
    hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
    seen = hsv[..., 2] > _DARK * 255
    return float(hsv[..., 1][seen].mean(dtype=np.float64)) / 255 if seen.any() else None


def _sharpness(rgb: RGB) -> float:
    smooth = cv2.GaussianBlur(luma(rgb).astype(np.float32) / 255, (3, 3), 0)
    return float(cv2.Laplacian(smooth, cv2.CV_32F, ksize=3).var(dtype=np.float64))


def _contrast(rgb: RGB) -> float | None:
    lightness = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)[..., 0]
    mean = float(lightness.mean(dtype=np.float64))
    return float(lightness.std(dtype=np.float64)) / mean if mean > 0 else None
