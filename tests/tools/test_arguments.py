"""How the arguments of a call are checked."""

from __future__ import annotations

import pytest

from editloupe.errors import ToolError
from editloupe.tools.base import validated
from editloupe.tools.zoom_in import ZoomIn


def test_jsonschema_checks_the_arguments_of_every_call() -> None:
    fine = {"target_image": "Edited Image", "bbox": [100, 100, 400, 400]}
    assert validated(ZoomIn(), fine).model_dump() == ZoomIn.Args.model_validate(fine).model_dump()
    for wrong in (
        {"bbox": [100, 100, 400, 400]},
        {**fine, "bbox": [100, 100, 400]},
        {**fine, "bbox": [100, 100, 400, True]},
        {**fine, "bbox": "100, 100, 400, 400"},
        {**fine, "other": 1},
        {**fine, "target_image": 7},
    ):
        with pytest.raises(ToolError, match="zoom_in: wrong arguments"):
            validated(ZoomIn(), wrong)  # type: ignore[arg-type]


def test_a_wrong_argument_is_named_with_what_is_expected() -> None:
    with pytest.raises(ToolError, match=r"zoom_in: wrong arguments: bbox\.2: 1200 is greater than the maximum of 1000"):
        validated(ZoomIn(), {"target_image": "Edited Image", "bbox": [0, 0, 1200, 500]})
