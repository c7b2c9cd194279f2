"""The pixels outside a mask, and an edited image in the frame of its source."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.imaging.masked import outside
from editloupe.imaging.warp import aligned, squared_difference
from tests.imaging.drawn import textured


def moved(rgb: RGB, matrix: list[list[float]]) -> RGB:
    """Return the picture moved by a matrix of its own pixels, as an editor might give it back."""
    size = (rgb.shape[1], rgb.shape[0])
    return np.asarray(cv2.warpAffine(rgb, np.array(matrix, float), size, borderMode=cv2.BORDER_REFLECT), np.uint8)


def blank(*shape: int) -> RGB:
    return np.zeros((*shape, 3), np.uint8)


@pytest.mark.parametrize("white", [1, 2, 255])
def test_masks_of_any_white_mean_the_same(white: int) -> None:
    mask = blank(8, 8)
    mask[2:4, 2:5] = white
    assert outside(mask, (8, 8)).sum() == 64 - 6
    assert np.array_equal(outside(mask[..., 0], (8, 8)), outside(mask, (8, 8)))


def test_a_stretched_mask_grows_by_one_of_its_own_cells() -> None:
    mask = np.zeros((4, 4), np.uint8)
    mask[1, 1] = 1
    assert (~outside(mask, (8, 8), dilate=False)).sum() == 4
    grown = ~outside(mask, (8, 8))
    assert grown[:6, :6].all() and grown.sum() == 36
    # Of the image's own size, or larger: nothing is uncertain.
    assert (~outside(mask, (4, 4))).sum() == 1
    assert outside(mask, (2, 2)).sum() in (3, 4)


@pytest.mark.parametrize("matrix", [[[1, 0, 7], [0, 1, -4]], [[1.02, 0.015, -5], [-0.015, 1.02, -3]]])
def test_a_motion_is_undone_where_both_images_show_something(matrix: list[list[float]]) -> None:
    source = textured(256, 192)
    found = aligned(source, moved(source, matrix), None, "sift")
    assert found.accepted and found.matrix is not None and found.before is not None and found.after is not None
    # From the source's pixels to the edited image's.
    assert np.allclose(found.matrix, matrix, atol=0.3)
    assert found.after < 0.1 * found.before
    assert found.after == pytest.approx(squared_difference(source, found.image, found.valid))
    assert 0.8 < found.valid.mean() < 1
    assert found.to_json()["matrix"] == found.matrix.tolist()
    assert found.text.startswith("aligned by sift, mean squared difference ")


def test_the_valid_area_of_a_shift_is_what_the_edited_image_still_shows() -> None:
    source = textured(256, 192)
    found = aligned(source, moved(source, [[1, 0, 7], [0, 1, -4]]), None, "sift")
    expected = np.zeros((192, 256), np.bool_)
    expected[4:, :-7] = True
    assert (found.valid != expected).mean() < 0.01
    # The published scripts compare the reflected border, too.
    official = aligned(source, moved(source, [[1, 0, 7], [0, 1, -4]]), None, "sift", official=True)
    assert official.accepted and official.valid.all() and official.after is not None
    assert found.after is not None and official.after > 2 * found.after


def test_an_edit_is_not_what_is_aligned() -> None:
    """A large object moves inside the mask and the rest stands still."""
    source = textured(256, 192)
    edited = source.copy()
    edited[20:170, 20:200] = source[20:170, 30:210]
    mask = blank(192, 256)
    mask[16:174, 16:214] = 255
    locked = aligned(source, edited, None, "sift", official=True)
    assert locked.matrix is not None and abs(locked.matrix[0, 2]) > 5
    found = aligned(source, edited, mask, "sift")
    assert not found.accepted and np.array_equal(found.image, edited) and found.valid.all()


def test_other_sizes_are_brought_to_the_source() -> None:
    source = textured(256, 192)
    larger = np.asarray(cv2.resize(source, (512, 384), interpolation=cv2.INTER_CUBIC), np.uint8)
    plain = aligned(source, larger, None, "none")
    assert plain.image.shape == source.shape and plain.resized == (512, 384) and plain.valid.all()
    assert plain.text == "the edited image has 512×384 px"
    # A part of the picture, twice as large: no resizing could bring it in place.
    part = np.ascontiguousarray(larger[40:340, 60:460])
    found = aligned(source, part, None, "sift")
    assert found.accepted and found.matrix is not None
    assert np.allclose(found.matrix, [[2, 0, 0.5 - 60], [0, 2, 0.5 - 40]], atol=0.5)
    assert found.valid.mean() == pytest.approx(300 * 400 / (384 * 512), rel=0.03)


def test_what_has_no_motion_is_left_as_it_is() -> None:
    source = textured(256, 192)
    for edited, why in (
        (source, "motion found"),
        (np.full_like(source, 120), "no motion found"),
        (textured(256, 192, seed=7), "motion"),
    ):
        found = aligned(source, edited, None, "sift")
        assert not found.accepted and why in found.why
        assert np.array_equal(found.image, edited)
        assert found.text == f"not aligned by sift: {found.why}"


def test_a_picture_that_is_changed_later_changes_no_answer() -> None:
    source, edited = textured(200, 160), textured(200, 160, seed=3).copy()
    before = edited.copy()
    assert not aligned(source, edited, None, "sift").accepted
    edited[:] = 0
    assert np.array_equal(aligned(source, before, None, "sift").image, before)
