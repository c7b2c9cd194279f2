"""Statistics of one image: values worked out by hand, and images that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import open_measure, run_measure
from editloupe.testing import check_measure
from editloupe.values import Json
from tests.imaging.drawn import textured


def gray(level: int, width: int = 16, height: int = 16) -> RGB:
    return np.full((height, width, 3), level, np.uint8)


def statistics(rgb: RGB, light: str = "linear", **args: Json) -> dict[str, Any]:
    found: Any = run_measure("image_statistics", {"light": light, **args}, {"image": rgb})
    return dict(found.data)


def test_white_and_mid_gray_in_linear_light_and_in_levels() -> None:
    for light in ("linear", "gamma"):
        assert list(statistics(gray(255), light).values()) == [1.0, 1.0, 0.0, 0.0, 0.0]
    # ((128 / 255 + 0.055) / 1.055)^2.4 = 0.2159, and 128 / 255 = 0.5020.
    assert statistics(gray(128))["luminance_p999"] == pytest.approx(0.21586, abs=1e-5)
    assert statistics(gray(128), "gamma")["luminance_p999"] == pytest.approx(128 / 255, abs=1e-6)


def test_colors_are_weighed_by_rec_709() -> None:
    for channel, weight in enumerate((0.2126, 0.7152, 0.0722)):
        image = gray(0)
        image[..., channel] = 255
        assert statistics(image)["luminance_p99"] == pytest.approx(weight, abs=1e-6)


def test_sharpness_of_an_edge() -> None:
    # An edge from 0 to 1, smoothed by (¼, ½, ¼): 0, ¼, ¾, 1. 4 · (left - 2 · middle + right) is 1, 1, -1, -1 around it
    # and 0 in the other 12 of 16 columns: the variance is 4 / 16.
    image = gray(0)
    image[:, 8:] = 255
    assert statistics(image)["sharpness"] == pytest.approx(0.25, abs=1e-6)
    # Twice as wide, brought to the same size, it has the same sharpness.
    wide = image.repeat(2, axis=0).repeat(2, axis=1)
    assert statistics(wide)["sharpness"] == pytest.approx(0.125, abs=1e-6)
    assert statistics(wide, size=[16, 16])["sharpness"] == pytest.approx(0.25, abs=1e-6)


def test_contrast_is_the_spread_of_lightness_by_its_mean() -> None:
    # L* of half black and half white: 0 and 255 of 255, mean 127.5, deviation 127.5.
    image = gray(0)
    image[8:] = 255
    assert statistics(image)["contrast"] == pytest.approx(1.0)
    assert statistics(gray(0))["contrast"] is None


def test_it_keeps_the_contract_and_takes_one_image() -> None:
    check_measure(open_measure("image_statistics"), args={"light": "linear"}, images={"image": textured(90, 60)})
    with pytest.raises(MeasureError, match="expected one image, found 2") as raised:
        run_measure("image_statistics", {"light": "linear"}, {"a": gray(1), "b": gray(2)})
    assert raised.value.status == "input_error"
    with pytest.raises(MeasureError, match="argument size"):
        statistics(gray(1), size=[0, 5])
