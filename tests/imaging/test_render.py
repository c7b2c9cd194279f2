"""Crops, panes, enlargements."""

from __future__ import annotations

import numpy as np

from editloupe.imaging import render
from editloupe.values import Box


def test_panes_stand_left_and_right_of_a_red_line_of_8_px() -> None:
    left, right = np.full((20, 30, 3), 10, dtype=np.uint8), np.full((20, 30, 3), 200, dtype=np.uint8)
    picture, window_1, window_2 = render.side_by_side(left, right)
    assert picture.shape == (20, 68, 3)
    assert np.all(picture[:, 30:38] == (255, 0, 0))
    assert (window_1, window_2) == (Box(0, 0, 30, 20), Box(38, 0, 68, 20))
    assert np.array_equal(render.crop(picture, window_2), right)


def test_titles_stand_above_the_panes_and_are_cut_where_they_do_not_fit() -> None:
    left, right = np.full((20, 60, 3), 10, dtype=np.uint8), np.full((20, 60, 3), 200, dtype=np.uint8)
    picture, window_1, window_2 = render.side_by_side(left, right, titles=("1: A", "1: a name that is much too long"))
    assert picture.shape == (20 + render.LABEL_PX, 128, 3)
    assert np.array_equal(render.crop(picture, window_1), left) and np.array_equal(render.crop(picture, window_2), right)
    head = picture[: render.LABEL_PX]
    assert (head[:, :60] > 200).any() and (head[:, 68:] > 200).any()
    # Nothing is written over a pane's side.
    assert (head[:, 57:68] == 0).all() and (head[:, 125:] == 0).all()


def test_a_marked_picture_is_itself_again_without_its_marks() -> None:
    picture = np.full((200, 300, 3), 90, dtype=np.uint8)
    picture[80:120, 100:160] = (200, 40, 40)
    box = Box(100, 80, 160, 120)
    drawn = render.marked(picture, [box])
    assert (drawn != picture).any() and (drawn[80:120, 100:160] == picture[80:120, 100:160]).all()
    again = render.unmarked(drawn).astype(int)
    assert np.abs(again - picture).max() <= 12 and (again[drawn[..., 1] != 0] == picture[drawn[..., 1] != 0]).all()


def test_the_number_of_one_box_never_hides_that_of_another() -> None:
    picture = np.full((200, 240, 3), 40, dtype=np.uint8)
    boxes = {1: Box(30, 30, 150, 180), 2: Box(34, 32, 110, 100), 6: Box(28, 34, 60, 60)}

    def ink(shown: dict[int, Box]) -> int:
        return int((render.outlined(picture, shown) == 255).all(axis=2).sum())

    assert ink(boxes) == sum(ink({number: box}) for number, box in boxes.items()) > 0
    # Where there is no room, the number stands inside the picture all the same.
    full = render.outlined(picture, {1: Box(0, 0, 240, 200)})
    assert (full == 255).all(axis=2).any()
