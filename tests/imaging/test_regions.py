"""Evidence becomes objects."""

from __future__ import annotations

import numpy as np

from editloupe.imaging.regions import find_objects, joined
from editloupe.imaging.residual import Map
from editloupe.values import Box


def evidence(*places: tuple[int, int, int, int, float]) -> tuple[list[Map], Map]:
    """Return maps of both scales, and what one channel alone says together."""
    values = np.zeros((200, 200), dtype=np.float32)
    for x0, y0, x1, y1, value in places:
        values[y0:y1, x0:x1] = value
    return [values, np.zeros_like(values)], values


def test_weaker_pixels_belong_to_the_strong_ones_that_they_touch() -> None:
    (found,) = find_objects(*evidence((20, 20, 40, 40, 7.0), (28, 28, 32, 32, 13.0)))
    assert found.box == Box(20, 20, 40, 40)
    # 20² − 4² = 384 pixels of 7 and 16 of 13.
    assert found.significance == 384 * 7 + 16 * 13


def test_what_is_faint_in_each_channel_is_found_by_all_of_them_and_whole() -> None:
    maps, one_channel = evidence((20, 20, 40, 40, 5.0), (28, 28, 32, 32, 8.0))
    assert find_objects(maps, one_channel) == []
    # 8 in each of three channels: √3 · 8 = 13.9, over 12.
    (found,) = find_objects(maps, one_channel * np.float32(3**0.5))
    assert found.box == Box(20, 20, 40, 40)
    # Where one place is sure, at 18, a faint one is none, and what is at 5 is no part of it.
    maps, one_channel = evidence((20, 20, 40, 40, 5.0), (28, 28, 32, 32, 18.0), (120, 120, 140, 140, 8.0))
    assert [o.box for o in find_objects(maps, one_channel * np.float32(3**0.5))] == [Box(28, 28, 32, 32)]


def test_fragments_closer_than_half_their_size_are_one_object() -> None:
    apart = find_objects(*evidence((10, 10, 30, 30, 20.0), (38, 10, 58, 30, 20.0)))
    assert len(apart) == 2
    # 8 px apart, sides of 20: 8 ≤ 0.5 · 20.
    assert [o.box for o in joined(apart, most_gap=10)] == [Box(10, 10, 58, 30)]
    assert len(joined(apart, most_gap=7)) == 2
