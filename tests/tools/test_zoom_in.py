"""A closer look at one place."""

from __future__ import annotations

import pytest

from editloupe.errors import ToolError
from editloupe.testing import check_tool
from editloupe.tools.zoom_in import ZoomIn
from editloupe.values import Box
from tests.tools.conftest import call, texture


def test_it_keeps_the_contract_of_a_tool() -> None:
    check_tool(ZoomIn())


def test_the_crop_has_a_margin_and_maps_back() -> None:
    found = call(ZoomIn(), texture(1000, 800), bbox=[400, 500, 600, 750])
    # Box: x 400..600, y 400..600 px. Margin: 10 % of 200 = 20 px.
    (view,) = found.views
    assert found.data["box"] == [400, 400, 600, 600]
    assert view.region == Box(380, 380, 620, 620)
    # 240 px < 256: ×2.
    assert view.window == Box(0, 0, 480, 480)
    assert view.to_origin(Box(0, 0, 2, 2)) == Box(380, 380, 381, 381)
    assert "enlarged ×2 to 480×480 px by Lanczos, which adds no detail" in found.text


def test_boxes_are_told_in_thousandths_so_that_the_next_call_can_take_them() -> None:
    context = texture(1000, 800)
    found = call(ZoomIn(), context, bbox=[400, 500, 600, 750])
    # px 380..620 are thousandths 380..620 of 1000 px, and 475..775 of 800 px.
    assert found.text.startswith(
        "Crop 1: 'Edited Image', bbox [380, 475, 620, 775] (px [380, 380, 620, 620] of 1000×800), enlarged "
    )
    assert "It is your bbox [400, 500, 600, 750] (px [400, 400, 600, 600]) with 20 px of margin" in found.text
    assert found.data["bbox"] == [400, 500, 600, 750] and found.data["box"] == [400, 400, 600, 600]
    assert found.data["region_bbox"] == [380, 475, 620, 775] and found.data["region"] == [380, 380, 620, 620]
    again = call(ZoomIn(), context, bbox=found.data["region_bbox"])
    assert again.data["box"] == found.data["region"]


@pytest.mark.parametrize(
    ("bbox", "message"),
    [
        ([600, 100, 400, 200], "inverted"),
        ([400, 200, 600, 100], "inverted"),
        ([400, 100, 400, 200], "empty"),
        ([0, 0, 1200, 500], "maximum of 1000"),
        ([-1, 0, 200, 500], "minimum of 0"),
        ([0, 0, 500], "too short"),
        # 3 of 1000 px; 4 px are 4 thousandths of 1000 px and 5 of 800 px.
        ([500, 500, 503, 600], r"only 3.0×80.0 px.*at least 4 px a side: ask for x1 - x0 ≥ 4 and y1 - y0 ≥ 5"),
    ],
)
def test_a_bad_box_is_an_error_that_says_how_to_mend_it(bbox: list[int], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        call(ZoomIn(), texture(1000, 800), bbox=list(bbox))


def test_a_look_into_a_crop_is_cut_from_the_image_that_it_shows() -> None:
    context = texture(2000, 1600)
    first = call(ZoomIn(), context, bbox=[100, 100, 900, 900])
    # Reduced or not, the crop shows px 40..1960 of 2000 and 0..1600 of 1600.
    seen = context.after("zoom_in", {}, first, context.names(first))
    found = call(ZoomIn(), seen, target_image="Crop 1", bbox=[400, 400, 500, 500])
    (view,) = found.views
    assert view.origin == context.image("Edited Image")
    (x0, y0, x1, y1), scale = first.views[0].region, first.views[0].region.width
    assert x0 + 0.4 * scale - 40 < view.region.x0 < x0 + 0.4 * scale
    assert "cut anew from the image that it shows" in found.text
    assert Box(x0, y0, x1, y1).intersection(view.region) == view.region
