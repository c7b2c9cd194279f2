"""Two images brought to one size and place."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.imaging.align import align
from editloupe.values import Box
from tests.imaging.drawn import textured


def test_a_shift_of_the_whole_picture_is_found_and_mapped() -> None:
    large = textured(400, 300)
    first, second = large[20:260, 20:340], large[17:257, 25:345]
    # second(x, y) = large(x + 25, y + 17) = first(x + 5, y − 3), so first(x, y) lies at second(x − 5, y + 3).
    found = align(first, second)
    assert found.motion.shift == pytest.approx((-5, 3), abs=0.2)
    inner = (slice(10, 230), slice(10, 310))
    assert np.abs(found.first[inner].astype(int) - found.second[inner]).mean() < 2
    mapped = found.to_image_2(Box(100, 100, 120, 140))
    assert mapped is not None
    assert list(mapped) == pytest.approx([95, 103, 115, 143], abs=1)


def test_neither_image_is_enlarged_for_comparing() -> None:
    found = align(textured(640, 480), textured(320, 240))
    assert found.first.shape == (240, 320, 3)
    # A box of the copies at half scale: twice the corners in image 1.
    assert found.to_image_1(Box(10, 10, 20, 20)) == Box(20, 20, 40, 40)
