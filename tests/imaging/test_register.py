"""A motion of the whole picture, found on what did not change."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from editloupe.imaging.differences import localize
from editloupe.imaging.drift import estimate_drift
from editloupe.imaging.register import STILL, register
from tests.imaging.drawn import textured, with_square


def grey(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def test_a_crop_that_was_blown_up_again_is_found_to_a_tenth_of_a_pixel() -> None:
    first = textured(640, 480)
    # 624×468 px from (10, 6), enlarged to 640×480: x becomes (x + 0.5 - 10) · 640 / 624 - 0.5.
    second = cv2.resize(first[6:474, 10:634], (640, 480), interpolation=cv2.INTER_CUBIC)
    matrix = register(grey(first), grey(second))
    for x, y in ((0.0, 0.0), (600.0, 400.0)):
        expected = ((x - 9.5) * 640 / 624 - 0.5, (y - 5.5) * 480 / 468 - 0.5)
        assert matrix @ (x, y, 1) == pytest.approx(expected, abs=0.1)


def test_an_edited_object_has_no_say() -> None:
    first = textured(640, 480)
    assert np.array_equal(register(grey(first), grey(with_square(first, (100, 100, 260, 260)))), STILL)


def test_pictures_of_other_things_are_not_moved() -> None:
    assert np.array_equal(register(grey(textured(320, 240, seed=1)), grey(textured(320, 240, seed=2))), STILL)


def test_places_that_wander_are_led_back() -> None:
    first = textured(640, 480)
    y, x = np.mgrid[0:480, 0:640].astype(np.float32)
    # second(x + d) = first(x): what lay at x is drawn from x - d.
    d = 1.5 * np.sin(x / 100)
    second = cv2.remap(first, x - d, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    field = estimate_drift(grey(first), grey(second))
    assert field is not None
    error = np.abs(field[50:-50, 50:-50, 0] - d[50:-50, 50:-50])
    assert np.median(error) < 0.3
    assert estimate_drift(grey(first), grey(first)) is None


def test_a_small_object_is_found_in_a_picture_that_was_cropped_and_toned() -> None:
    first = textured(640, 480)
    edited = with_square(first, (300, 200, 330, 226))
    curve = np.clip(np.rint(255 * (np.arange(256) / 255) ** 1.05 * 0.97), 0, 255).astype(np.uint8)
    second = curve[cv2.resize(edited[6:474, 10:634], (640, 480), interpolation=cv2.INTER_CUBIC)]
    (region,) = localize(first, second).regions
    assert list(region.box) == pytest.approx([300, 200, 330, 226], abs=4)
