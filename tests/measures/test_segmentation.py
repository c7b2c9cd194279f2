"""The measure `segmentation`: the mask of what boxes enclose, with what makes it no mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB, decode
from editloupe.errors import MeasureError, ToolError
from editloupe.measures.base import Measured, Models, measured
from editloupe.models.segment.base import Mask, Segmentation
from editloupe.values import Box

IMAGE: RGB = np.zeros((100, 200, 3), np.uint8)
BOX = (20.0, 10.0, 60.0, 50.0)


class Segmenter:
    """Makes the mask that a function makes of a box."""

    name = version = "toy 1"

    def __init__(self, make: Callable[[Box], Mask]) -> None:
        self.make = make

    def __call__(self, rgb: RGB, boxes: Sequence[Box]) -> list[Segmentation]:
        return [Segmentation(mask=self.make(box), score=0.5) for box in boxes]


def filled(box: Box) -> Mask:
    mask = np.zeros((100, 200), dtype=bool)
    x0, y0, x1, y1 = box.ints()
    mask[y0:y1, x0:x1] = True
    return mask


def segment(make: Callable[[Box], Mask], *boxes: tuple[float, ...]) -> Measured:
    models = Models(_opened={"segment": Segmenter(make)})
    return measured("segmentation", {"boxes": [list(box) for box in boxes]}, {"image": IMAGE}, models)


def facts(found: Measured) -> dict[str, Any]:
    return dict(found.answer.data)  # type: ignore[union-attr, call-overload]


def test_the_mask_of_all_boxes_is_a_picture_of_the_images_size() -> None:
    found = segment(filled, BOX, (40.0, 10.0, 80.0, 50.0))
    # 60 × 40 px of 200 × 100.
    assert facts(found)["outcome"] == "mask" and facts(found)["share"] == 0.12 and facts(found)["scores"] == [0.5, 0.5]
    rgb, _ = decode(*found.pictures, name="mask")
    assert rgb.shape == (100, 200, 3) and (rgb[10:50, 20:80] == 255).all() and (rgb == 255).sum() == 3 * 2400
    assert facts(found)["picture"]["width"] == 200


def test_what_is_no_mask_says_so() -> None:
    makes: list[tuple[Callable[[Box], Mask], str]] = [
        (lambda box: np.zeros((100, 200), bool), "empty"),
        # Nothing in one of two boxes.
        (lambda box: filled(box) & (box.x0 > 30), "empty"),
        (lambda box: np.ones((100, 200), bool), "full"),
    ]
    for make, outcome in makes:
        found = segment(make, BOX, (40.0, 10.0, 80.0, 50.0))
        assert facts(found)["outcome"] == outcome and "picture" not in facts(found)
        assert found.reason and not found.pictures


def test_a_mask_that_cannot_be_made_has_a_status() -> None:
    def full(box: Box) -> Mask:
        raise ToolError("no memory is left")

    with pytest.raises(MeasureError, match="no memory") as error:
        segment(full, BOX)
    assert error.value.status == "tool_failed"
    with pytest.raises(MeasureError, match="outside the image") as error:
        segment(filled, (300.0, 10.0, 320.0, 50.0))
    assert error.value.status == "input_error"
    with pytest.raises(MeasureError, match="boxes"):
        segment(filled)
