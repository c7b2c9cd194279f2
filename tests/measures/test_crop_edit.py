"""An edit made in a crop and put back: the crop of Eq. 1, what an editor may return, and the seam."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import pytest

from editloupe.data.images import RGB, ImageStore, decode
from editloupe.errors import EditError, MeasureError
from editloupe.measures.base import Measured, Models, measured, open_measure
from editloupe.testing import check_measure
from editloupe.values import ImageRef
from tests.imaging.drawn import textured

BOX = (100.0, 100.0, 120.0, 140.0)
# s = 20 ≤ 32, so that λ = 6: sides 7 × 20 and 7 × 40 about (110, 120); 120 - 140 = -20 is cut off at 0.
CROP = [40.0, 0.0, 180.0, 260.0]


@dataclass
class Editor:
    """Returns what a function makes of the crop."""

    make: Any
    name: str = "toy"
    version: str = "toy 1"
    seen: list[tuple[tuple[int, ...], str, int]] = field(default_factory=list)

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        self.seen.append((rgb.shape, instruction, seed))
        return self.make(rgb.copy())  # type: ignore[no-any-return]


@pytest.fixture
def image() -> RGB:
    rgb = textured(400, 300).copy()
    rgb[100:140, 100:120] = (200, 30, 30)
    return rgb


def blue(rgb: RGB) -> RGB:
    """The target in blue. In the crop it fills 60…80 × 100…140."""
    rgb[100:140, 60:80] = (30, 30, 200)
    return rgb


def painted(rgb: RGB, place: tuple[int, int, int, int]) -> RGB:
    """A place in blue: y0, x0, y1, x1 in px of the crop."""
    y0, x0, y1, x1 = place
    rgb[y0:y1, x0:x1] = (30, 30, 200)
    return rgb


def edit(image: RGB, make: Any, **args: Any) -> Measured:
    editor = make if isinstance(make, Editor) else Editor(make)
    models = Models(_opened={"edit": editor})
    given = {"instruction": "Make it blue.", "boxes": [BOX], **args}
    return measured("crop_edit", given, {"image": image}, models)


def facts(found: Measured) -> dict[str, Any]:
    data = found.answer.data  # type: ignore[union-attr]
    assert isinstance(data, dict)
    return data


def picture(found: Measured) -> RGB:
    store = ImageStore()
    ref = store.add_bytes(*found.pictures)
    assert ref == ImageRef.from_json(facts(found)["picture"])
    return decode(store.data(ref), name="picture")[0]


def test_the_measure_keeps_the_contract(image: RGB) -> None:
    models = Models(_opened={"edit": Editor(blue)})
    check_measure(open_measure("crop_edit"), args={"boxes": [list(BOX)]}, images={"image": image}, models=models)


def test_an_edited_crop_is_put_back_and_every_other_pixel_stays(image: RGB) -> None:
    editor = Editor(blue)
    found = edit(image, editor, seed=2)
    assert editor.seen == [((260, 140, 3), "Make it blue.", 2)]
    data = facts(found)
    assert (data["outcome"], data["crop"], data["seam_levels"], data["feather_px"]) == ("edited", CROP, 0.0, 0)
    assert data["returned"] == [140, 260] and data["editor"] == "toy 1"
    made, expected = picture(found), image.copy()
    expected[100:140, 100:120] = (30, 30, 200)
    assert np.array_equal(made, expected)


@pytest.mark.parametrize(
    ("make", "outcome", "said"),
    [
        (lambda rgb: rgb, "unchanged", "returned what it was given"),
        (lambda rgb: np.clip(rgb.astype(int) + 1, 0, 255).astype(np.uint8), "unchanged", "what it was given"),
        # A patch that ends 21 px left of the target, of which half a width is 10 px.
        (lambda rgb: painted(rgb, (100, 9, 140, 39)), "off_target", "something else than the target"),
        (lambda rgb: blue(rgb)[:-3], "other_size", "returned 140×257 px for a crop of 140×260 px"),
        (lambda rgb: cv2.resize(rgb, (512, 512)), "other_size", "returned 512×512 px"),
        (lambda rgb: 255 - rgb, "seam", "at most 32 can be blended"),
        (lambda rgb: rgb[..., 0], "no_image", "uint8 of shape (260, 140)"),
        (lambda rgb: rgb / 255, "no_image", "float64 of shape"),
    ],
)
def test_what_gives_no_reference_is_an_outcome_with_its_reason(image: RGB, make: Any, outcome: str, said: str) -> None:
    found = edit(image, make)
    assert facts(found)["outcome"] == outcome and said in found.reason
    assert not found.pictures and "picture" not in facts(found)


@pytest.mark.parametrize(
    ("place", "boxes"),
    [
        # Beside the target, as a second thing of its kind is: from 2 px right of it on.
        ((100, 122, 140, 142), [BOX]),
        # One of two targets.
        ((112, 202, 128, 218), [BOX, (200, 110, 220, 130)]),
        # A target too small to be compared.
        ((120, 110, 121, 111), [(110, 120, 111, 121)]),
    ],
)
def test_an_edit_of_a_target_or_just_beside_it_counts(image: RGB, place: Any, boxes: Any) -> None:
    left, top = (int(v) for v in facts(edit(image, blue, boxes=boxes))["crop"][:2])
    y0, x0, y1, x1 = place
    found = edit(image, lambda rgb: painted(rgb, (y0 - top, x0 - left, y1 - top, x1 - left)), boxes=boxes)
    assert facts(found)["outcome"] == "edited"


def test_an_editor_that_fails_may_be_asked_again_and_one_that_declines_made_no_image(image: RGB) -> None:
    def fails(kind: Any) -> Any:
        def fail(rgb: RGB) -> RGB:
            raise EditError(kind, "out of order")

        return fail

    with pytest.raises(MeasureError, match="timed out: out of order") as raised:
        edit(image, fails("timed_out"))
    assert raised.value.status == "tool_failed"
    found = edit(image, fails("no_image"))
    assert (facts(found)["outcome"], found.reason) == ("no_image", "out of order")
