"""Where nothing changed: places that may stand for differences."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.imaging.control_regions import find_control_regions, swap_regions
from editloupe.imaging.differences import localize
from editloupe.imaging.geometry import expand


def scene() -> RGB:
    """640×480 px of faint noise with a grid of dark squares, as things that a place can hold."""
    picture = np.random.default_rng(3).integers(150, 160, (480, 640, 3), dtype=np.uint8)
    for y in range(20, 460, 110):
        for x in range(20, 620, 150):
            picture[y : y + 40, x : x + 40] = 60
    return picture


def test_each_difference_has_a_place_of_its_size_that_is_quiet_with_its_context() -> None:
    before, after = scene(), scene()
    after[20:60, 20:60] = (200, 0, 0)
    after[350:390, 470:510] = (0, 200, 0)
    found = localize(before, after)
    assert len(found.regions) == 2
    places = find_control_regions(found)
    for region, place in zip(found.regions, places, strict=True):
        assert abs(place.box.width - region.box.width) <= 1 and abs(place.box.height - region.box.height) <= 1
        assert place.busy == 0 and place.mean < 1
        x0, y0, x1, y1 = expand(place.box, width=640, height=480).ints()
        assert not found.changed[y0:y1, x0:x1].any()
        # It holds something, as the region does: no bare wall.
        x0, y0, x1, y1 = place.box.ints()
        assert before[y0:y1, x0:x1].min() < 100
    assert places[0].box.intersection(places[1].box) is None
    assert find_control_regions(found) == places


def test_a_large_difference_gets_the_largest_quiet_place_there_is() -> None:
    before, after = scene(), scene()
    after[:, 300:420] = (200, 0, 0)
    found = localize(before, after)
    (region,), (place,) = found.regions, find_control_regions(found)
    # A place 120 px wide would be shown with λ(120) = 3.76, so with 226 px beside it: from the left border up to x 346,
    # into the difference. One of 0.7 · 120 = 84 px has λ(84) = 4.68 and 197 px: up to x 281.
    assert region.box.width == pytest.approx(120, abs=4)
    assert place.box.width == pytest.approx(84, abs=4)
    assert place.busy == 0


def test_regions_move_and_keep_what_was_measured() -> None:
    before, after = scene(), scene()
    after[20:60, 20:60] = (200, 0, 0)
    found = localize(before, after)
    places = find_control_regions(found)
    moved = swap_regions(found, places)
    (region,), (shown,) = found.regions, moved.regions
    assert shown.box == places[0].box and (shown.mean, shown.strength) == (region.mean, region.strength)
    assert moved.largest == found.largest


def test_without_differences_there_are_no_places() -> None:
    assert find_control_regions(localize(scene(), scene())) == ()
