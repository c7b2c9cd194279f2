"""A conversation with the tools from Python: names, crops of crops, threads, and images of every kind."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel

from editloupe.errors import ConfigError, ImageError, ToolError, ToolFailed
from editloupe.findings import Observation
from editloupe.tools import Session, ToolSettings, open_session
from editloupe.tools.base import Toolbox
from tests.conftest import pixels

BOX = [0, 0, 500, 500]


def pair() -> dict[str, Any]:
    before, after = pixels(0, spots=2)
    return {"Original Image": before, "Edited Image": after}


def test_pictures_are_named_in_order_and_can_be_looked_into():
    session = open_session(pair())
    one = session.call("zoom_in", {"target_image": "Edited Image", "bbox": BOX})
    assert [p.name for p in one.pictures] == ["Crop 1"]
    # 500 thousandths of 320×240 px are 160×120; the margin is 10 % of 160 px, cut off at the top left.
    assert one.pictures[0].panes[0].region.ints() == (0, 0, 176, 136)
    assert one.pictures[0].origins == ("Edited Image",)
    two = session.call("zoom_in", {"target_image": "crop 1 ", "bbox": BOX})
    assert [p.name for p in two.pictures] == ["Crop 2"]
    # Of 352×272 px that show 176×136 px, half and its margin are cut from the image that the crop shows.
    assert two.pictures[0].origins == ("Edited Image",)
    both = session.call(
        "localize_differences", {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}
    )
    assert [p.name for p in both.pictures] == ["Crop 3", "Crop 4"]
    assert both.pictures[0].origins == ("Original Image", "Edited Image")
    assert list(session.images) == ["Original Image", "Edited Image", "Crop 1", "Crop 2", "Crop 3", "Crop 4"]
    again = session.call("zoom_in", {"target_image": "Edited Image", "bbox": BOX})
    assert "You made exactly this call before" in again.observation.text


@pytest.mark.parametrize(
    ("images", "error", "told"),
    [
        ({"a": np.zeros((1, 1, 3), np.uint8)}, ImageError, "1×1"),
        ({"a": np.zeros((32, 32, 3))}, ImageError, "float64"),
        ({"a": "nowhere.png"}, ImageError, "no such file"),
        ({" ": np.zeros((32, 32, 3), np.uint8)}, ConfigError, "image name"),
        ({"crop 3": np.zeros((32, 32, 3), np.uint8)}, ConfigError, "not 'Crop N'"),
        ({"A": np.zeros((32, 32, 3), np.uint8), "a ": np.zeros((32, 32, 3), np.uint8)}, ConfigError, "given twice"),
    ],
)
def test_images_that_cannot_be_used_are_named(images: dict[str, Any], error: type[Exception], told: str):
    with pytest.raises(error, match=told):
        open_session(images)


def test_tools_that_are_named_and_absent_or_unknown_are_an_error_and_others_are_listed():
    with pytest.raises(ConfigError, match="the tool 'grounding' is absent here"):
        open_session(pair(), tools=["grounding"])
    with pytest.raises(ConfigError, match="unknown tool 'magic'"):
        open_session(pair(), tools=["magic"])
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        open_session(pair(), settings=ToolSettings(device="gpu"))
    assert set(open_session(pair()).toolbox.absent) == {"grounding", "detect_object"}
    with pytest.raises(ToolError, match="no image is open"):
        open_session().call("zoom_in", {"target_image": "Edited Image", "bbox": BOX})


class Broken:
    """A tool of somebody else's that falls over."""

    name: ClassVar[str] = "broken"
    version = "1"
    description: ClassVar[str] = "Falls over."

    class Args(BaseModel):
        target_image: str

    def __call__(self, args: Args, context: object) -> Observation:
        raise ZeroDivisionError("division by zero")


def test_a_tool_that_falls_over_is_told_apart_from_a_wrong_call():
    session = Session(Toolbox(tools={"broken": Broken()}), pair())
    with pytest.raises(ToolFailed, match=r"broken failed \(ZeroDivisionError: division by zero\)") as caught:
        session.call("broken", {"target_image": "x"})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
