"""A tone of the whole picture against a change of one place."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.imaging.color import estimate_tone
from tests.imaging.drawn import textured


def test_a_shift_of_every_channel_is_found() -> None:
    first = textured(160, 120)
    second = np.clip(first + np.array([10, -5, 20]), 0, 255).astype(np.uint8)
    assert estimate_tone(first, second).at_mid_gray == pytest.approx((10, -5, 20), abs=0.5)


def test_a_large_changed_object_is_no_tone() -> None:
    first = textured(160, 120)
    second = first.copy()
    # 60 % of the picture becomes brighter by 40: the median pixel changes, the other cells do not.
    second[:72] = np.clip(first[:72].astype(int) + 40, 0, 255)
    assert estimate_tone(first, second).neutral


def test_a_flat_image_has_an_offset_and_no_gain() -> None:
    first = np.full((64, 64, 3), 100, dtype=np.uint8)
    tone = estimate_tone(first, first + 12)
    # 100 + 12 = 112, and nothing is known of other levels but the offset.
    assert tone.applied(first[:1, :1]).ravel() == pytest.approx((112, 112, 112), abs=0.1)
    assert tone.applied(first[:1, :1] + 100).ravel() == pytest.approx((212, 212, 212), abs=1)


@pytest.mark.parametrize("gamma", [0.6, 0.8, 1.1, 1.7])
def test_a_gamma_of_the_whole_picture_is_followed(gamma: float) -> None:
    first = textured(320, 240)
    curve = np.rint(255 * (np.arange(256) / 255) ** gamma).astype(np.uint8)
    tone = estimate_tone(first, curve[first])
    for level, close in ((20, 2), (60, 1), (128, 1), (200, 1), (240, 2)):
        expected = 255 * (level / 255) ** gamma
        gray = np.full((1, 1, 3), level, dtype=np.uint8)
        assert tone.applied(gray).ravel() == pytest.approx((expected,) * 3, abs=close)


@pytest.mark.parametrize("factor", [0.6, 1.4])
def test_a_saturation_of_the_whole_picture_is_followed(factor: float) -> None:
    first = np.clip(textured(320, 240) // 2 + np.array([90, 60, 30]), 0, 255).astype(np.uint8)
    gray = first @ np.array([0.299, 0.587, 0.114])
    second = np.clip(np.rint(gray[..., None] + factor * (first - gray[..., None])), 0, 255).astype(np.uint8)
    tone = estimate_tone(first, second)
    assert np.abs(tone.applied(first) - second).mean() < 1.5
