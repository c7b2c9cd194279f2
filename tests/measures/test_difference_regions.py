"""The detector without words: places, what happened there, how sure it is, and pictures in which there is no place."""

from __future__ import annotations

from typing import Any, cast

import cv2
import numpy as np
import pytest

from editloupe.answers import Record
from editloupe.data.images import RGB
from editloupe.findings import Finding
from editloupe.measures.base import Measured, measured
from editloupe.protocols.dice.differences import detected
from tests.imaging.drawn import jpeg, textured, with_square

SQUARE = (100, 80, 140, 120)


def found(source: RGB, edited: RGB, **args: Any) -> Measured:
    return measured("difference_regions", args, {"source": source, "edited": edited})


def differences(source: RGB, edited: RGB, **args: Any) -> list[dict[str, Any]]:
    data = cast(Any, found(source, edited, **args).answer).data
    assert set(data) == {"differences", "confidence_source"} and data["confidence_source"] == "detector"
    return list(data["differences"])


def ground(level: int = 180) -> RGB:
    return np.full((240, 320, 3), level, dtype=np.uint8)


def test_an_added_square_is_one_difference_at_its_place() -> None:
    (one,) = differences(ground(), with_square(ground(), SQUARE))
    # x 100 to 140 of 320, y 80 to 120 of 240.
    assert one["box"] == pytest.approx([312.5, 333.333, 437.5, 500], abs=0.001)
    assert (one["op"], one["object"]) == ("ADD", "")
    # 1600 px differ by |180 - 20| = 160 levels at most; over all three channels at least by 70. With d levels,
    # s = 1600 · (d - 6)² / (320 · 240) lies in 85 … 494, and s / (s + 15) in 0.85 … 0.97.
    assert 0.85 < one["confidence"] < 0.975
    # Swapped it is removed, and a thing of another color is an edit.
    assert [one["op"] for one in differences(with_square(ground(), SQUARE), ground())] == ["REMOVE"]
    red, blue = with_square(ground(), SQUARE), with_square(ground(), SQUARE, (20, 20, 250))
    assert [one["op"] for one in differences(red, blue)] == ["EDIT"]


def test_the_strongest_comes_first_and_the_faint_are_left_out() -> None:
    edited = with_square(with_square(ground(), SQUARE, (0, 0, 0)), (200, 160, 240, 200), (170, 170, 170))
    assert len(differences(ground(), edited)) == 1
    both = found(ground(), edited)
    assert both.reason == "1 region differs; 1 region is too faint to count" and both.data["left_out"] == 1
    sure = [one["confidence"] for one in differences(ground(), edited, least_confidence=0)]
    # 10 levels over 1600 of 76,800 px: s = (10 - 6)² / 48 = 0.33, confidence 0.022, and a little less for the softer rim.
    assert len(sure) == 2 and sure[0] > 0.9 and sure[1] == pytest.approx(0.0217, abs=0.005)


def test_nothing_visible_is_an_empty_list() -> None:
    source = textured(320, 240)
    saved: list[tuple[Any, str]] = [
        (lambda rgb: rgb, "the images are pixel-identical"),
        (lambda rgb: jpeg(rgb, 60), "nothing differs beyond what saving a picture again leaves"),
        (lambda rgb: cv2.resize(rgb, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC), "nothing differs beyond"),
    ]
    for what, reason in saved:
        assert differences(source, what(source)) == []
        assert found(source, what(source)).reason.startswith(reason)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (lambda rgb: np.ascontiguousarray(rgb[:, ::-1]), "the edited image is mirrored"),
        (lambda rgb: np.ascontiguousarray(np.rot90(rgb)), "the edited image is turned by 270°"),
        (lambda rgb: (rgb * 0.6).astype(np.uint8), "the tone of the whole picture changed by up to"),
        (
            lambda rgb: np.full_like(rgb, 30),
            "the picture differs beyond single places; 100 % of the picture differ clearly",
        ),
    ],
)
def test_a_change_of_the_whole_is_one_edit_of_the_whole(what: Any, reason: str) -> None:
    source = ground() if "100 %" in reason else textured(320, 240)
    (one,) = differences(source, what(source))
    assert one == {"op": "EDIT", "object": "", "box": [0, 0, 1000, 1000], "confidence": 1.0}
    assert found(source, what(source)).reason.startswith(reason)


def test_the_protocol_of_differences_reads_the_record() -> None:
    answer = found(ground(), with_square(ground(), SQUARE)).answer
    assert isinstance(answer, Record)
    asked = {"task_id": "t", "judge_id": "j", "repeat": 0, "sample_id": "s", "editor": "", "metric": "differences"}
    read = detected(Finding(**asked, status="ok", answer=answer))
    assert read is not None and read.source == "detector"
    (one,) = read.differences
    assert (one.op, one.object) == ("ADD", "") and tuple(one.box) == pytest.approx((0.3125, 1 / 3, 0.4375, 0.5), abs=1e-6)
