"""A tone of the whole picture against a change of one place."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.imaging.colour import Tone, estimate_tone
from tests.imaging.drawn import textured


def test_a_shift_of_every_channel_is_found() -> None:
    first = textured(160, 120)
    second = np.clip(first + np.array([10, -5, 20]), 0, 255).astype(np.uint8)
    assert estimate_tone(first, second).at_mid_grey == pytest.approx((10, -5, 20), abs=0.5)


def test_an_exposure_gain_is_found() -> None:
    first = textured(160, 120)
    second = np.clip(np.rint(first * 1.2), 0, 255).astype(np.uint8)
    # 1.2 · 128 − 128 = 25.6
    assert estimate_tone(first, second).at_mid_grey == pytest.approx((25.6, 25.6, 25.6), abs=1)


def test_a_large_changed_object_is_no_tone() -> None:
    first = textured(160, 120)
    second = first.copy()
    # 60 % of the picture becomes brighter by 40: the median pixel changes, the other cells do not.
    second[:72] = np.clip(first[:72].astype(int) + 40, 0, 255)
    assert estimate_tone(first, second).neutral


def test_identical_images_have_no_tone() -> None:
    picture = textured(160, 120)
    assert estimate_tone(picture, picture) == Tone()


def test_a_flat_image_has_an_offset_and_no_gain() -> None:
    first = np.full((64, 64, 3), 100, dtype=np.uint8)
    tone = estimate_tone(first, first + 12)
    assert tone.gain == (1.0, 1.0, 1.0)
    assert tone.offset == pytest.approx((12, 12, 12))
