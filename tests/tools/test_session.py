"""A conversation with the tools from Python: names, crops of crops, threads, and images of every kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ImageError, ToolError, ToolFailed
from editloupe.findings import Observation
from editloupe.tools import Session, ToolSettings, open_session
from editloupe.tools.base import Toolbox
from editloupe.tools.zoom_in import ZoomIn
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


def test_no_two_parallel_calls_get_one_name():
    session = open_session(pair())

    def call(i: int) -> tuple[str, str]:
        shown = session.call("zoom_in", {"target_image": "Edited Image", "bbox": [i, i, 500 + i, 500 + i]})
        return shown.pictures[0].name, shown.observation.text.partition(":")[0]

    with ThreadPoolExecutor(8) as pool:
        named = list(pool.map(call, range(24)))
    assert sorted(name for name, _ in named) == sorted(f"Crop {i}" for i in range(1, 25))
    assert all(name == told for name, told in named)


def test_files_pil_images_arrays_and_refs_are_the_same_image(tmp_path: Path):
    before, _ = pixels(0, spots=0)
    Image.fromarray(before).save(tmp_path / "a.png")
    store = ImageStore()
    images: dict[str, Any] = {
        "file": tmp_path / "a.png",
        "text": str(tmp_path / "a.png"),
        "pil": Image.fromarray(before),
        "array": before,
        "ref": store.add_array(before),
    }
    session = Session(Toolbox(tools={"zoom_in": ZoomIn()}), images, store=store)
    texts = {session.call("zoom_in", {"target_image": n, "bbox": BOX}).pictures[0].image.sha256 for n in images}
    assert len(texts) == 1


def test_pil_images_of_every_mode_become_upright_rgb():
    turned = Image.fromarray(pixels(0, spots=0)[0])
    turned.getexif()[0x0112] = 6  # a quarter turn
    session = open_session({"turned": turned})
    assert (session.images["turned"].width, session.images["turned"].height) == (240, 320)
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "I;16", "F"):
        image = Image.new(mode, (32, 24))
        assert open_session({"x": image}).images["x"].width == 32


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
