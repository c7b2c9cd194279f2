"""Evidence becomes objects."""

from __future__ import annotations

import numpy as np

from editloupe.imaging.regions import find_objects, joined
from editloupe.imaging.residual import Map
from editloupe.values import Box


def evidence(*places: tuple[int, int, int, int, float]) -> list[Map]:
    values = np.zeros((200, 200), dtype=np.float32)
    for x0, y0, x1, y1, value in places:
        values[y0:y1, x0:x1] = value
    return [values, np.zeros_like(values)]


def test_weaker_pixels_belong_to_the_strong_ones_that_they_touch() -> None:
    (found,) = find_objects(evidence((20, 20, 40, 40, 7.0), (28, 28, 32, 32, 13.0)))
    assert found.box == Box(20, 20, 40, 40)
    # 20² − 4² = 384 pixels of 7 and 16 of 13.
    assert found.significance == 384 * 7 + 16 * 13


def test_fragments_closer_than_half_their_size_are_one_object() -> None:
    apart = find_objects(evidence((10, 10, 30, 30, 20.0), (38, 10, 58, 30, 20.0)))
    assert len(apart) == 2
    # 8 px apart, sides of 20: 8 ≤ 0.5 · 20.
    assert [o.box for o in joined(apart, most_gap=10)] == [Box(10, 10, 58, 30)]
    assert len(joined(apart, most_gap=7)) == 2
