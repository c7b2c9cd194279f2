"""How the arguments of a call are checked."""

from __future__ import annotations

import pytest

from editloupe.errors import ToolError
from editloupe.tools.arguments import undressed, validated
from editloupe.tools.zoom_in import ZoomIn
from editloupe.values import Json
from tests.tools.conftest import call, texture


def test_jsonschema_checks_the_arguments_of_every_call() -> None:
    fine = {"target_image": "Edited Image", "bbox": [100, 100, 400, 400]}
    assert validated("zoom_in", ZoomIn.Args, fine).model_dump() == ZoomIn.Args.model_validate(fine).model_dump()
    for wrong in (
        {"bbox": [100, 100, 400, 400]},
        {**fine, "bbox": [100, 100, 400]},
        {**fine, "bbox": [100, 100, 400, True]},
        {**fine, "bbox": "100, 100, 400, 400"},
        {**fine, "other": 1},
        {**fine, "target_image": 7},
    ):
        with pytest.raises(ToolError, match="zoom_in: wrong arguments"):
            validated("zoom_in", ZoomIn.Args, wrong)  # type: ignore[arg-type]


def test_a_wrong_argument_is_named_with_what_is_expected() -> None:
    with pytest.raises(ToolError, match=r"zoom_in: wrong arguments: bbox\.2: 1200 is greater than the maximum of 1000"):
        validated("zoom_in", ZoomIn.Args, {"target_image": "Edited Image", "bbox": [0, 0, 1200, 500]})


def zoomed(bbox: Json) -> str:
    """The text of zooming into an image of 2000×1600 px."""
    return call(ZoomIn(), texture(2000, 1600), bbox=bbox).text


def test_a_box_in_another_dress_is_taken_and_noted() -> None:
    plain = zoomed([100, 100, 400, 400])
    dresses: tuple[Json, ...] = (["100", "100", "400", "400"], [[100, 100, 400, 400]], [100.2, 99.8, 400.0, 400.4])
    for given in (*dresses, "[100, 100, 400, 400]"):
        assert zoomed(given) == f"{plain}\nTaken as: bbox [100, 100, 400, 400]."
    for other in ([100, 100, 400, True], "100, 100, 400, 400", [[100, 100], [400, 400]], [0.1, 0.1, 0.4, 0.4]):
        assert undressed({"bbox": other}) == {"bbox": other}  # type: ignore[dict-item]


def test_a_box_in_px_is_refused_with_what_to_write() -> None:
    # 200 and 1200 of 2000 px, 160 and 800 of 1600 px.
    with pytest.raises(ToolError, match=r"px of the image, 2000×1600 px, write \[100, 100, 600, 500\]"):
        zoomed([200, 160, 1200, 800])
