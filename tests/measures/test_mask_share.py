"""The share of a place that lies inside the mask of the edit: areas by hand, change by hand, and what is not defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import open_measure, run_measure
from editloupe.testing import check_measure

WHOLE = [0, 0, 1000, 1000]


def left_half(width: int = 20, height: int = 10, level: int = 255) -> RGB:
    """A mask of which the left half is white."""
    mask = np.zeros((height, width, 3), dtype=np.uint8)
    mask[:, : width // 2] = level
    return mask


def share(box: list[float], images: dict[str, RGB], **args: Any) -> float:
    value = run_measure("mask_share", {"box": box, **args}, images).value
    assert value is not None
    return value


def test_the_measure_keeps_the_contract() -> None:
    gray = np.full((10, 20, 3), 100, dtype=np.uint8)
    images = {"source": gray, "edited": gray + 50, "mask": left_half()}
    check_measure(open_measure("mask_share"), args={"box": WHOLE}, images=images)


def changed(levels: dict[tuple[int, int], int]) -> dict[str, RGB]:
    """Pictures of 20×10 px that differ at (x, y) by so many levels in one channel, with the mask of the left half."""
    source = np.full((10, 20, 3), 100, dtype=np.uint8)
    edited = source.copy()
    for (x, y), by in levels.items():
        edited[y, x, 1] += by
    return {"source": source, "edited": edited, "mask": left_half()}


def test_of_what_changed_a_pixel_counts_by_its_levels_beyond_six() -> None:
    images = changed({(2, 2): 36, (15, 5): 16, (16, 6): 6})
    # 30 inside; 10 outside, and 6 levels count for nothing.
    assert share(WHOLE, images) == pytest.approx(0.75)
    # x 10 to 20: only what lies outside.
    assert share([500, 0, 1000, 1000], images) == 0.0


def test_what_has_no_share_says_why() -> None:
    cases: list[tuple[dict[str, RGB], dict[str, Any], str, str]] = [
        ({}, {"box": WHOLE}, "input_error", "source is missing"),
        (changed({}), {"box": [1000, 0, 1400, 1000]}, "input_error", "lies outside the image"),
        (changed({}), {"box": [500, 0, 400, 1000]}, "input_error", "box"),
        (changed({}), {"box": WHOLE}, "not_defined", "nothing in the box differs by more than 6"),
    ]
    for images, args, status, message in cases:
        with pytest.raises(MeasureError, match=message) as raised:
            run_measure("mask_share", args, images)
        assert raised.value.status == status
