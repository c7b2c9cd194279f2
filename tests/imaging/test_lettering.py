"""Rows that may be letters: found at every size, shade and small turn; few in what holds none."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from editloupe.data.images import RGB
from editloupe.imaging.lettering import LetterRow, lettering
from editloupe.values import Box


def written(word: str, *, height: int, ink: int = 20, ground: int = 225) -> tuple[RGB, Box]:
    """The word in the middle of a plain picture, capitals `height` px high, and its box."""
    font = ImageFont.load_default(round(height / 0.71))
    x0, y0, x1, y1 = (round(v) for v in font.getbbox(word))
    w, h = x1 - x0, y1 - y0
    image = Image.new("RGB", (w + 4 * height, h + 4 * height), (ground,) * 3)
    ImageDraw.Draw(image).text((2 * height - x0, 2 * height - y0), word, fill=(ink,) * 3, font=font)
    return np.array(image), Box(2 * height, 2 * height, 2 * height + w, 2 * height + h)


def best(rgb: RGB) -> LetterRow:
    rows = lettering(rgb)
    assert rows
    assert [row.score for row in rows] == sorted((row.score for row in rows), reverse=True)
    return rows[0]


@pytest.mark.parametrize("height", [8, 12, 20, 40, 90, 200])
@pytest.mark.parametrize(("ink", "ground"), [(20, 225), (235, 30), (150, 185)])
def test_a_word_is_found_in_its_place_at_every_size_and_shade(height: int, ink: int, ground: int):
    rgb, box = written("HARBOUR", height=height, ink=ink, ground=ground)
    row = best(rgb)
    common = row.box.intersection(box)
    assert common is not None
    assert common.area >= 0.9 * row.box.area
    assert row.box.width >= 0.5 * box.width
    assert row.height == pytest.approx(height, rel=0.4)


@pytest.mark.parametrize("degrees", [-8, 8, 90, 180, 270])
def test_a_turned_word_is_found(degrees: int):
    rgb, _ = written("Harbour 12", height=24)
    if degrees % 90 == 0:
        assert lettering(np.ascontiguousarray(np.rot90(rgb, degrees // 90)))
    else:
        h, w = rgb.shape[:2]
        turn = cv2.getRotationMatrix2D((w / 2, h / 2), degrees, 1)
        assert lettering(cv2.warpAffine(rgb, turn, (w, h), borderValue=(225,) * 3))


def test_signs_of_many_strokes_are_found():
    """Squares of strokes in a column, as Chinese characters have them."""
    rgb = np.full((260, 120, 3), 240, dtype=np.uint8)
    for i in range(5):
        y = 20 + 45 * i
        for k in range(3):
            cv2.line(rgb, (44, y + 4 + 12 * k), (76, y + 4 + 12 * k), (30, 20, 20), 4)
        cv2.line(rgb, (60, y), (60, y + 32), (30, 20, 20), 4)
    assert lettering(rgb)


def test_what_holds_no_letters_has_no_rows():
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (240, 320, 3), dtype=np.uint8)
    shape = np.full((240, 320, 3), 90, dtype=np.uint8)
    cv2.circle(shape, (160, 120), 60, (200, 60, 40), cv2.FILLED)
    ramp = np.repeat(np.linspace(0, 255, 320, dtype=np.uint8)[None, :, None], 240, axis=0).repeat(3, axis=2)
    for picture in (noise, cv2.GaussianBlur(noise, (0, 0), 2), shape, np.ascontiguousarray(ramp)):
        assert lettering(picture) == ()


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (3, 900), (9, 9), (64, 64), (1025, 1023)], ids=str)
def test_pictures_of_any_shape_are_taken(size: tuple[int, int]):
    for shade in (0, 127, 255):
        assert lettering(np.full((*size, 3), shade, dtype=np.uint8)) == ()
