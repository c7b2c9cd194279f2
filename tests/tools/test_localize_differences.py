"""What the model reads and sees when it asks where two images differ."""

from __future__ import annotations

import re

import cv2
import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.imaging import render
from editloupe.testing import check_tool
from editloupe.tools.base import ToolContext
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.values import Box
from tests.imaging.drawn import textured, with_square
from tests.tools import conftest

CROP = re.compile(
    r"^(Crop \d+): region \d+, bbox \[(\d+), (\d+), (\d+), (\d+)\] in '(.+)', "
    r"bbox \[(\d+), (\d+), (\d+), (\d+)\] in '(.+)'; "
    r"(\d+)×(\d+) px; ([\d.]+) % of the image; mean difference (\d+) of 255\.$",
    re.MULTILINE,
)


def context_of(original: RGB, edited: RGB) -> ToolContext:
    return conftest.context_of({"Original Image": original, "Edited Image": edited})


def compare(context: ToolContext, one: str = "Original Image", two: str = "Edited Image") -> Observation:
    tool = LocalizeDifferences()
    return tool(tool.Args(comparison_image_1=one, comparison_image_2=two), context)


def squares(count: int) -> tuple[RGB, RGB]:
    """1000×1000 px gray, and the same with `count` squares in a row, each smaller than the one before."""
    gray = np.full((1000, 1000, 3), 120, dtype=np.uint8)
    edited = gray
    for i in range(count):
        side = 40 - 3 * i
        edited = with_square(edited, (50 + 150 * i, 400, 50 + 150 * i + side, 400 + side))
    return gray, edited


def test_it_keeps_the_contract_of_a_tool() -> None:
    check_tool(LocalizeDifferences())


def test_the_text_gives_each_crop_its_boxes_size_share_and_strength() -> None:
    found = compare(context_of(*squares(1)))
    assert found.text.startswith("1 region differs. Each picture is side by side: left of the red")
    match = CROP.search(found.text)
    assert match is not None
    assert match[1] == "Crop 1"
    # px and thousandths are the same here; ±1 by the smoothing.
    assert [int(match[i]) for i in range(2, 6)] == pytest.approx([50, 400, 90, 440], abs=1)
    assert [int(match[i]) for i in range(7, 11)] == pytest.approx([50, 400, 90, 440], abs=1)
    assert [int(match[12]), int(match[13])] == pytest.approx([40, 40], abs=2)
    assert float(match[14]) == pytest.approx(0.16, abs=0.02)  # 1600 px² of 1 MP
    assert found.text.endswith("judge by what the pictures show.")
    assert "thousandths" in found.text
    assert "(threshold about 5 of 255, more at strong edges" in found.text


def test_a_small_region_is_enlarged_and_both_panes_map_back_to_their_image() -> None:
    context = context_of(*squares(1))
    found = compare(context)
    left, right = found.views
    assert left.image == right.image
    assert (left.origin, right.origin) == (context.image("Original Image"), context.image("Edited Image"))
    box = Box(*left.params["boxes"][0])  # type: ignore[misc, index, call-overload]
    # 40 px are wanted at 256 px, more than six times: ×6. They fill a quarter of the pane or more, and two thirds at most.
    assert left.params["scale"] == pytest.approx(6, abs=0.1)
    assert left.region == right.region and 1 / 4 <= box.width / left.region.width <= 2 / 3
    # Of the squares' red only the right pane has any.
    picture = context.images.array(left.image)
    shown = right.from_origin(Box(60, 410, 80, 430)).ints()
    assert np.all(picture[shown[1] : shown[3], shown[0] : shown[2]] == (250, 20, 20))
    shown = left.from_origin(Box(60, 410, 80, 430)).ints()
    assert np.all(picture[shown[1] : shown[3], shown[0] : shown[2]] == 120)
    line = picture[int(left.window.y0) :, int(left.window.x1) : int(right.window.x0)]
    assert line.shape[1] >= 8
    assert np.all(line == (255, 0, 0))
    assert re.search(r"Enlarged by Lanczos, which adds no detail: Crop 1 ×6\.", found.text)


def test_a_region_is_outlined_and_its_panes_are_labeled() -> None:
    context = context_of(*squares(1))
    left, right = compare(context).views
    picture = context.images.array(left.image)
    # White words on black, above the panes and outside of them.
    assert left.window.y0 == right.window.y0 == 20
    for window in (left.window, right.window):
        strip = picture[:20, int(window.x0) : int(window.x1)]
        assert (strip > 200).any() and (strip == 0).all(axis=2).mean() > 0.5
    # The pane of one gray shows the outline alone, around the region and not on it.
    pane = render.crop(picture, left.window)
    drawn = (pane != 120).any(axis=2)
    inside = left.from_origin(Box(50, 400, 90, 440)).shifted(0, -20).ints()
    assert drawn.any() and not drawn[inside[1] : inside[3], inside[0] : inside[2]].any()


def test_identical_images_are_said_to_be_pixel_identical() -> None:
    picture = textured(320, 240)
    found = compare(context_of(picture, picture.copy()))
    assert "pixel-identical (320×240 px)" in found.text
    assert found.views == ()
    assert (found.data["total"], found.data["identical"]) == (0, True)


def test_nothing_above_the_threshold_gives_no_crop_and_names_the_threshold() -> None:
    picture = textured(320, 240)
    found = compare(context_of(picture, with_square(picture, (100, 60, 101, 61))))
    assert found.text.startswith("No region differs")
    assert "36 px²" in found.text
    assert re.search(r"threshold about \d+ of 255", found.text)
    assert "not identical" in found.text
    assert found.views == ()


def test_a_regenerated_image_is_said_to_be_so_and_shown_as_a_whole_behind_the_crops() -> None:
    context = context_of(textured(640, 480, seed=1), textured(640, 480, seed=2))
    found = compare(context)
    assert "the picture changed as a whole" in found.text
    assert found.data["regenerated"] is True
    left, right = found.views[-2:]
    assert left.image == right.image and left.region == right.region == Box(0, 0, 640, 480)
    assert max(left.window.width, left.window.height) <= 448
    assert f"Crop {len(found.images)}: both images as a whole" in found.text
    pictures = found.data["pictures"]
    assert sum(p["tokens"] for p in pictures) <= found.data["budget"]["tokens"]  # type: ignore[index, union-attr, call-overload, operator, misc]


def test_other_sizes_and_aspect_ratios_are_noted_and_boxes_given_in_each_image() -> None:
    gray = np.full((400, 400, 3), 120, dtype=np.uint8)
    wide = np.full((400, 800, 3), 120, dtype=np.uint8)
    found = compare(context_of(with_square(gray, (100, 100, 140, 140)), wide))
    assert "'Original Image' is 400×400 px, 'Edited Image' is 800×400 px" in found.text
    assert "One shows things wider than the other." in found.text
    (region,) = found.data["regions"]  # type: ignore[misc]
    assert region["box_1"] == pytest.approx([100, 100, 140, 140], abs=2)
    assert region["box_2"] == pytest.approx([200, 100, 280, 140], abs=4)  # x doubles
    left, right = found.views
    assert left.window.width == right.window.width
    assert right.region.width == pytest.approx(2 * left.region.width)


def test_an_image_compared_with_itself_is_an_error_that_names_the_images() -> None:
    with pytest.raises(ToolError, match=r"both arguments name 'Edited Image'.*'Original Image'"):
        compare(context_of(*squares(1)), "Edited Image", "edited image ")


def test_what_was_allowed_for_is_told_with_what_was_not_compared() -> None:
    picture = textured(640, 480)
    turn = cv2.getRotationMatrix2D((319.5, 239.5), 3, 1)
    turned = cv2.warpAffine(picture, turn, (640, 480), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    found = compare(context_of(picture, turned))
    assert found.text.startswith("No region differs, once what is named below has been allowed for")
    assert "a turn by -3.0°" in found.text
    # The corner lies 400 px from the middle and moves by 400 · 2 sin(1.5°) = 20.9 px.
    assert found.data["aligned"]["farthest_corner"] == pytest.approx(20.9, abs=0.3)
    assert re.search(r"\d+ % of 'Original Image', at its border, is not in the other", found.text)

    wider = cv2.resize(picture, (660, 480), interpolation=cv2.INTER_CUBIC)[:, 10:650]
    # 660 of 640 px across, and as high as before.
    assert compare(context_of(picture, wider)).data["aligned"]["zoom"] == pytest.approx([660 / 640, 1], abs=5e-4)
    assert "a zoom by 1.031 across and 1.000 down" in compare(context_of(picture, wider)).text


def test_what_was_added_around_a_picture_is_shown_and_said() -> None:
    picture = textured(480, 360)
    framed = cv2.copyMakeBorder(picture, 60, 60, 80, 80, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    found = compare(context_of(picture, framed))
    assert found.text.startswith("No region differs") and len(found.images) == 1
    # (640 · 480 − 480 · 360) / (640 · 480) = 44 %.
    assert "44 % of 'Edited Image', at its border, is not in the other and was not compared." in found.text
    assert "[125, 125, 875, 875] in 'Edited Image'" in found.text
    # Each pane shows its image as a whole: the border is in the picture.
    assert [view.region for view in found.views] == [Box(0, 0, 480, 360), Box(0, 0, 640, 480)]
