"""Two images brought to one size and place."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.imaging.align import align, resize
from editloupe.values import Box
from tests.imaging.drawn import textured


def test_a_shift_of_the_whole_picture_is_found_and_mapped() -> None:
    large = textured(400, 300)
    first, second = large[20:260, 20:340], large[17:257, 25:345]
    # second(x, y) = large(x + 25, y + 17) = first(x + 5, y − 3), so first(x, y) lies at second(x − 5, y + 3).
    found = align(first, second)
    assert found.shift == pytest.approx((-5, 3), abs=0.2)
    inner = (slice(10, 230), slice(10, 310))
    assert np.abs(found.first[inner].astype(int) - found.second[inner]).mean() < 2
    mapped = found.to_image_2(Box(100, 100, 120, 140))
    assert mapped is not None
    assert list(mapped) == pytest.approx([95, 103, 115, 143], abs=1)


def test_a_shift_that_explains_nothing_is_not_applied() -> None:
    assert align(textured(320, 240, seed=1), textured(320, 240, seed=2)).shift == (0.0, 0.0)


def test_boxes_map_between_images_of_different_sizes() -> None:
    picture = textured(320, 240)
    found = align(picture, resize(picture, width=640, height=480))
    assert found.resized
    assert not found.stretched
    # Twice the size: every corner doubles.
    assert found.to_image_2(Box(10, 20, 30, 50)) == Box(20, 40, 60, 100)


def test_neither_image_is_enlarged_for_comparing() -> None:
    found = align(textured(640, 480), textured(320, 240))
    assert found.first.shape == (240, 320, 3)
    # A box of the copies at half scale: twice the corners in image 1.
    assert found.to_image_1(Box(10, 10, 20, 20)) == Box(20, 20, 40, 40)


def test_the_working_copy_is_bounded() -> None:
    found = align(textured(640, 480), textured(640, 480), max_pixels=19200)  # 307200 / 19200 = 16 = 4²
    assert found.first.shape == (120, 160, 3)


def test_a_box_outside_the_shifted_image_maps_to_nothing() -> None:
    large = textured(400, 300)
    found = align(large[20:260, 20:340], large[17:257, 27:347])  # shift (−7, +3)
    assert found.to_image_2(Box(0, 100, 5, 110)) is None


@pytest.mark.parametrize(
    ("size", "copy"),
    [
        ((800, 600), (400, 300)),  # 1.95 times too long a side: halves leave 95 % of what is allowed
        ((1200, 900), (400, 300)),  # 2.92 times: thirds leave 95 %
        ((500, 400), (398, 318)),  # 1.26 times; halves would leave 39 %
    ],
)
def test_a_large_picture_is_reduced_by_a_whole_factor_where_that_leaves_enough(
    size: tuple[int, int], copy: tuple[int, int]
) -> None:
    picture = textured(*size)
    assert align(picture, picture, max_pixels=126_500).first.shape[1::-1] == copy
