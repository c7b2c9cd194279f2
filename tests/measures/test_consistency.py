"""Consistency of objects and background: values worked out by hand with a drawn encoder, and what has no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import Measured, measured
from editloupe.models.features.base import Tokens
from editloupe.values import Json
from tests.imaging.drawn import textured

ALL = ("object_consistency", "object_l1", "background_consistency", "background_l1")
GRID, SIDE = 4, 64


class Drawn:
    """An encoder whose tokens are colors: a patch is the mean (R, G, B) of its cell, the class token that of all.

    Two register tokens are (0, 0, 255) in any image.
    """

    name, version, side_px, grid = "drawn", "1", SIDE, GRID

    def __init__(self) -> None:
        self.encoded = 0

    def tokens(self, images: Sequence[RGB]) -> list[Tokens]:
        self.encoded += len(images)
        size = (SIDE, SIDE)
        return [self._one(cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.float32)) for image in images]

    def _one(self, image: Any) -> Tokens:
        cells = [[c.mean((0, 1)) for c in np.array_split(r, GRID, 1)] for r in np.array_split(image, GRID, 0)]
        registers = np.array([[0, 0, 255]] * 2, np.float32)
        return Tokens(cls=image.mean((0, 1)), registers=registers, patches=np.array(cells, np.float32))

    def get(self, kind: str) -> Drawn:
        assert kind == "dino"
        return self


def flat(*color: int, width: int = 64, height: int = 64) -> RGB:
    return np.full((height, width, 3), color, np.uint8)


def said(name: str, source: RGB, edited: RGB, door: Any = None, **args: Json) -> Measured:
    images: Mapping[str, RGB] = {"source": source, "edited": edited}
    return measured(name, args, images, door or Drawn())


def undefined(name: str, source: RGB, edited: RGB, **args: Json) -> str:
    with pytest.raises(MeasureError) as raised:
        said(name, source, edited, **args)
    assert raised.value.status == "not_defined"
    return str(raised.value)


ONE_BOX: list[Json] = [[250, 250, 750, 750]]


@pytest.mark.parametrize("tokens", ["paper", "official"])
def test_equal_images_are_exactly_1(tokens: str) -> None:
    image = textured(120, 90)
    for name in ALL:
        given: dict[str, Json] = {"boxes": ONE_BOX} if name.startswith("object") else {"source_boxes": ONE_BOX}
        if "l1" not in name:
            given["tokens"] = tokens
        assert said(name, image, image.copy(), **given).answer.value == 1.0


def test_an_object_is_half_its_class_token_and_half_its_patches() -> None:
    # (3, 4, 0) · (4, 3, 0) = 24 of lengths 5 and 5 for the class token, and for the mean of the patches.
    source, edited = flat(30, 40, 0), flat(40, 30, 0)
    found = said("object_consistency", source, edited, boxes=ONE_BOX)
    assert found.answer.value == pytest.approx(0.96, abs=1e-6)
    (place,) = found.data["places"]  # type: ignore[misc]
    assert place["box"] == [250, 250, 750, 750]  # type: ignore[index,call-overload]
    # Official: the mean of 16 patches and 2 registers. (480, 640, 510) · (640, 480, 510) = 874500, of length² 900100.
    found = said("object_consistency", source, edited, boxes=ONE_BOX, tokens="official")
    assert found.answer.value == pytest.approx(0.5 * 0.96 + 0.5 * 874_500 / 900_100, abs=1e-6)


def test_official_tokens_lay_the_mask_over_another_grid() -> None:
    # 16 patches and 2 registers are 18: a grid of 3×6. The registers, equal in both images, are its first two cells.
    source, edited = flat(30, 40, 0), flat(30, 40, 0)
    edited[:16] = (255, 0, 0)
    # The box covers the row that changed. In the wrong grid two of its four tokens lie in the first row (of 21 ⅓ px, 16 of
    # which are covered: share 0.27 … which does not count), with the registers; nothing of the change is left.
    args: dict[str, Json] = {"source_boxes": [[0, 0, 1000, 250]]}
    assert said("background_consistency", source, edited, **args).answer.value == 1.0
    found = said("background_consistency", source, edited, **args, tokens="official")
    assert found.data["grid"] == [3, 6] and found.answer.value == 1.0
    # A box of the lower three quarters: only the changed row is background. Officially so is the change's first row of
    # six: two registers and four changed tokens, 0.75 of the row each.
    args = {"source_boxes": [[0, 250, 1000, 1000]]}
    assert said("background_consistency", source, edited, **args).answer.value == pytest.approx(0.6, abs=1e-6)
    found = said("background_consistency", source, edited, **args, tokens="official")
    # (4 · 0.6, 4 · 0.8, 2) · (4, 0, 2) = 13.6, of lengths √(16 + 4) both.
    assert found.answer.value == pytest.approx(13.6 / 20, abs=1e-6)


def test_what_has_no_value() -> None:
    image, other = flat(30, 40, 0), flat(40, 30, 0)
    everything: list[Json] = [[0, 0, 1000, 600], [0, 500, 1000, 1000]]
    for name in ("background_consistency", "background_l1"):
        assert undefined(name, image, other, source_boxes=everything) == (
            "boxes cover all of the image (2), so no background is left"
        )
    # A rim of 1 px is left: pixels can be compared, patches cannot.
    rim: list[Json] = [[1000 / 64, 1000 / 64, 63_000 / 64, 63_000 / 64]]
    assert said("background_l1", image, other, source_boxes=rim).answer.value is not None
    assert "cover at least half of every patch" in undefined("background_consistency", image, other, source_boxes=rim)
    for name in ("object_consistency", "object_l1"):
        assert "there is no box" in undefined(name, image, other, boxes=[])
        beside: list[Json] = [[1100, 0, 1200, 500]]
        assert "none of the 1 boxes shows a part" in undefined(name, image, other, boxes=beside)
        found = said(name, image, other, boxes=[*beside, *ONE_BOX])
        assert found.reason == "1 of 2 places compared" and found.data["left_out"] == 1
        with pytest.raises(MeasureError, match=r"argument boxes\.0") as raised:
            said(name, image, other, boxes=[[500, 0, 500, 100]])
        assert raised.value.status == "input_error"
    black = flat(0, 0, 0)
    assert "a vector without a direction" in undefined("object_consistency", black, other, boxes=ONE_BOX)
