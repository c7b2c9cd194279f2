"""View ops: boxes filled and outlined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ProtocolError
from editloupe.imaging.views import make_view
from editloupe.tasks import Recipe
from editloupe.values import Json


def shown(rgb: RGB, op: str, images: ImageStore | None = None, **params: Json) -> Any:
    images = images or ImageStore()
    view = make_view(Recipe(alias="edited", origin=images.add_array(rgb), op=op, params=params), images)
    assert (view.image.width, view.image.height) == (rgb.shape[1], rgb.shape[0])
    return images.array(view.image)


def gray(width: int, height: int, level: int = 100) -> RGB:
    return np.full((height, width, 3), level, np.uint8)


def test_boxes_are_filled_with_a_color_and_clipped() -> None:
    picture = shown(gray(20, 10), "fill", boxes=[[1.2, 2, 3.5, 4], [18, 8, 99, 99], [30, 30, 40, 40]], color=[1, 2, 3])
    painted = (picture == (1, 2, 3)).all(axis=2)
    # Rounded outward: columns 1 to 3, rows 2 and 3. The second box ends with the image, the third lies outside.
    expected = np.zeros((10, 20), bool)
    expected[2:4, 1:4] = expected[8:10, 18:20] = True
    assert np.array_equal(painted, expected) and (picture[~painted] == 100).all()
    assert (shown(gray(20, 10), "fill", boxes=[], color=[1, 2, 3]) == 100).all()


def test_boxes_are_filled_with_the_mean_color_of_another_image() -> None:
    images = ImageStore()
    other = np.zeros((8, 16, 3), np.uint8)
    other[0] = (80, 160, 252)
    # One of 8 rows: 10, 20 and 31.5, which rounds to the even 32.
    like = images.add_array(other).to_json()
    picture = shown(gray(20, 10), "fill", images, boxes=[[0, 0, 20, 5]], like=like)
    assert (picture[:5] == (10, 20, 32)).all() and (picture[5:] == 100).all()


@pytest.mark.parametrize(("width", "height", "line"), [(3400, 400, 2), (850, 1700, 5), (40, 40, 2)])
def test_an_outline_is_as_wide_as_the_image_asks_for(width: int, height: int, line: int) -> None:
    left, top, right, bottom = width // 4, height // 4, width // 2, height // 2
    box = [left, top, right, bottom]
    drawn = (shown(gray(width, height), "outline", boxes=[box], color=[0, 0, 255], width="auto") != 100).any(axis=2)
    # A row through the middle of the box meets two lines.
    row = drawn[(top + bottom) // 2]
    starts = np.flatnonzero(np.diff(row.astype(int)) == 1) + 1
    ends = np.flatnonzero(np.diff(row.astype(int)) == -1) + 1
    assert len(starts) == 2
    # OpenCV draws a line up to 2 px wider than asked.
    assert all(0 <= end - start - line <= 2 for start, end in zip(starts, ends, strict=True))
    assert starts[0] <= left < ends[0] and starts[1] <= right - 1 < ends[1]


@pytest.mark.parametrize(
    ("op", "params", "message"),
    [
        ("fill", {"boxes": [[0, 0, 1, 1]]}, "expected either color or like"),
        ("fill", {"boxes": [[0, 0, 1, 1]], "color": [1, 2]}, r"expected a color \[r, g, b\], found \[1, 2\]"),
        ("fill", {"boxes": [[0, 0, 1, 1]], "color": [1, 2, 300]}, "three numbers from 0 to 255"),
        ("fill", {"boxes": "all", "color": [1, 2, 3]}, "expected a list of boxes"),
        ("fill", {"color": [1, 2, 3]}, "boxes"),
        ("outline", {"boxes": [[0, 0, 1, 1]], "width": "thin"}, "thin"),
    ],
)
def test_what_an_op_cannot_use_is_named(op: str, params: dict[str, Json], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        shown(gray(20, 10), op, **params)
