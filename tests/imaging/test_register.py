"""A motion of the whole picture, found on what did not change."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from editloupe.imaging.drift import estimate_drift
from editloupe.imaging.register import STILL, register
from tests.imaging.drawn import textured, with_square


def gray(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def test_a_crop_that_was_blown_up_again_is_found_to_a_tenth_of_a_pixel() -> None:
    first = textured(640, 480)
    # 624×468 px from (10, 6), enlarged to 640×480: x becomes (x + 0.5 - 10) · 640 / 624 - 0.5.
    second = cv2.resize(first[6:474, 10:634], (640, 480), interpolation=cv2.INTER_CUBIC)
    matrix = register(gray(first), gray(second))
    for x, y in ((0.0, 0.0), (600.0, 400.0)):
        expected = ((x - 9.5) * 640 / 624 - 0.5, (y - 5.5) * 480 / 468 - 0.5)
        assert matrix @ (x, y, 1) == pytest.approx(expected, abs=0.1)


def test_an_edited_object_has_no_say() -> None:
    first = textured(640, 480)
    assert np.array_equal(register(gray(first), gray(with_square(first, (100, 100, 260, 260)))), STILL)


def test_a_lone_thing_that_is_taken_away_is_no_motion_but_one_that_is_shifted_is() -> None:
    ground = np.full((480, 640, 3), 128, np.uint8)
    first = cv2.circle(ground.copy(), (300, 200), 30, (220, 30, 30), -1, cv2.LINE_AA)
    grainy = np.clip(ground + np.random.default_rng(3).normal(0, 3, ground.shape), 0, 255).astype(np.uint8)
    assert np.array_equal(register(gray(first), gray(grainy)), STILL)
    shifted = np.roll(first, (2, 3), axis=(0, 1))
    assert register(gray(first), gray(shifted)) @ (300, 200, 1) == pytest.approx((303, 202), abs=0.1)


def test_places_that_wander_are_led_back() -> None:
    first = textured(640, 480)
    y, x = np.mgrid[0:480, 0:640].astype(np.float32)
    # second(x + d) = first(x): what lay at x is drawn from x - d.
    d = 1.5 * np.sin(x / 100)
    second = cv2.remap(first, x - d, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    drift = estimate_drift(gray(first), gray(second))
    assert drift is not None
    error = np.abs(drift.field[50:430, 50:-50, 0] - d[50:-50, 50:-50])
    assert np.median(error) < 0.3
    # The displacement is 1.5 · sin(x / 100), whose root mean square over [0, 640] is 1.5 · √(1/2 − sin(12.8) / 25.6).
    assert drift.size == pytest.approx(1.5 * np.sqrt(0.5 - np.sin(12.8) / 25.6), rel=0.2)
    # Around x = 157, the sine's top, what moved by 1.5 px.
    assert drift.over(x0=147, y0=200, x1=167, y1=220) == pytest.approx([1.5, 0], abs=0.3)
    before, after = (np.abs(p.astype(int) - first).mean() for p in (second, drift.undone(second)))
    assert after < before / 2
    assert estimate_drift(gray(first), gray(first)) is None
