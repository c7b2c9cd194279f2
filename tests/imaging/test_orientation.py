"""A picture that was mirrored or turned: told, undone, and places mapped to where they really are."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.imaging.align import align
from editloupe.imaging.differences import localize
from editloupe.imaging.orientation import UPRIGHT, Orientation
from editloupe.values import Box
from tests.imaging.drawn import jpeg, textured, with_square

ALL = [Orientation(mirrored=m, quarters=q) for m in (False, True) for q in range(4)]


def laid(rgb: RGB, orientation: Orientation) -> RGB:
    mirrored = rgb[:, ::-1] if orientation.mirrored else rgb
    return np.ascontiguousarray(np.rot90(mirrored, -orientation.quarters))


def symmetric() -> RGB:
    """Return 300×400 px, left as right."""
    half = textured(200, 300)
    return np.asarray(np.concatenate([half, half[:, ::-1]], axis=1), dtype=np.uint8)


@pytest.mark.parametrize("orientation", ALL, ids=str)
def test_every_orientation_is_undone_and_told(orientation: Orientation) -> None:
    picture = textured(320, 240)
    second = jpeg(laid(picture, orientation), 85)
    found = localize(picture, second)
    assert found.alignment.orientation == orientation
    assert found.regions == ()
    assert (orientation != UPRIGHT) == found.widespread
    assert not found.alignment.resized


@pytest.mark.parametrize("orientation", ALL, ids=str)
def test_boxes_of_a_turned_picture_lie_where_the_change_is_in_each_image(orientation: Orientation) -> None:
    picture = textured(320, 240)
    second = laid(with_square(picture, (40, 50, 90, 80)), orientation)
    found = localize(picture, second)
    (region,) = found.regions
    assert region.box.iou(Box(40, 50, 90, 80)) > 0.85
    there = found.alignment.to_image_2(region.box)
    rows, columns = np.nonzero((second == (250, 20, 20)).all(axis=2))
    assert there is not None
    assert there.iou(Box(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)) > 0.85


def test_masks_of_a_turned_picture_hide_what_lies_under_them() -> None:
    picture, orientation = textured(320, 240), Orientation(mirrored=True, quarters=1)
    mask = (40, 50, 90, 80)
    second = laid(with_square(picture, mask, (255, 255, 255)), orientation)
    rows, columns = np.nonzero((second == 255).all(axis=2))
    there = Box(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    found = localize(picture, second, masks_2=[there])
    assert found.alignment.orientation == orientation
    assert found.regions == () and found.masked_share > 0


def test_a_thing_that_moved_across_a_symmetric_picture_is_no_mirrored_picture() -> None:
    ground = symmetric()
    found = localize(with_square(ground, (20, 50, 90, 120)), with_square(ground, (310, 50, 380, 120)))
    assert found.alignment.orientation == UPRIGHT
    assert len(found.regions) == 2


def test_unrelated_pictures_local_edits_and_a_symmetric_picture_are_not_turned() -> None:
    picture = textured(320, 240)
    symmetric = np.concatenate([picture, picture[:, ::-1]], axis=1)
    for first, second in (
        (picture, textured(320, 240, seed=2)),
        (picture, with_square(picture, (60, 20, 260, 220))),
        (symmetric, with_square(symmetric, (20, 20, 300, 200))),
        (picture, 255 - picture),
    ):
        assert align(first, second).orientation == UPRIGHT


def test_images_are_taken_as_they_lie_where_turns_are_not_to_be_undone() -> None:
    picture = textured(320, 240)
    found = localize(picture, np.ascontiguousarray(picture[:, ::-1]), turns=False)
    assert found.alignment.orientation == UPRIGHT
    assert found.regenerated


def test_orientations_are_told_in_words() -> None:
    assert [o.in_words for o in ALL] == [
        "",
        "turned by 90° clockwise",
        "turned by 180°",
        "turned by 90° anticlockwise",
        "mirrored left to right",
        "mirrored left to right, then turned by 90° clockwise",
        "mirrored top to bottom",
        "mirrored left to right, then turned by 90° anticlockwise",
    ]
