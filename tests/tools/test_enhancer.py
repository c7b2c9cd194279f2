"""One place enlarged, and the plain crop kept."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import ToolError
from editloupe.tools.enhancer import MAX_SIDE, Enhancer
from editloupe.tools.zoom_in import ZoomIn
from editloupe.values import Box
from tests.tools.conftest import call, texture


class Blocks:
    """A pretended learned upscaler: repeats each pixel."""

    name = version = "Blocks"
    learned = True

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        return rgb.repeat(scale, axis=0).repeat(scale, axis=1)


def test_the_box_is_enlarged_four_times_and_the_plain_crop_is_kept_unseen() -> None:
    context = texture(400, 200)
    found = call(Enhancer(), context, bbox=[250, 500, 500, 1000])
    # x 100..200, y 100..200 px.
    (view,), (kept,) = found.views, found.kept
    assert view.region == kept.region == Box(100, 100, 200, 200)
    assert (view.image.width, view.image.height) == (400, 400)
    plain = context.images.array(context.image("Edited Image"))[100:200, 100:200]
    assert np.array_equal(context.images.array(kept.image), plain)
    assert view.params == {"upscaler": "Lanczos", "scale": 4}
    assert found.text.startswith(
        "Crop 1: 'Edited Image', bbox [250, 500, 500, 1000] (px [100, 100, 200, 200] of 400×200), enlarged ×4 to 400×400 "
        "px by Lanczos. It adds no detail to what zoom_in shows."
    )
    assert found.data["bbox"] == [250, 500, 500, 1000] and found.data["box"] == [100, 100, 200, 200]


@pytest.mark.parametrize("bbox", [[100, 100, 175, 250], [100, 100, 110, 900], [100, 100, 900, 120], [100, 100, 110, 120]])
@pytest.mark.parametrize("scale", [2, 4])
@pytest.mark.parametrize("tool", [Enhancer(), Enhancer(Blocks())], ids=["Lanczos", "learned"])
def test_a_small_box_is_never_shown_smaller_than_zoom_in_shows_it(bbox: list[int], scale: int, tool: Enhancer) -> None:
    context = texture(400, 200)
    zoomed = call(ZoomIn(), context, bbox=list(bbox))
    found = call(tool, context, bbox=list(bbox), scale=scale)
    (view,) = found.views
    shown = view.image.width / view.region.width
    assert shown >= max(scale, zoomed.views[0].image.width / zoomed.views[0].region.width)
    assert max(view.image.width, view.image.height) <= MAX_SIDE
    assert found.data["scale"] == view.params["scale"] == shown and found.data["asked_scale"] == scale
    assert f"enlarged ×{shown:.0f}" in found.text
    if shown > scale:
        assert f"(more than ×{scale}, since it is small)" in found.text
        assert f"by Blocks ×{scale}, then Lanczos" in found.text or not tool.upscaler.learned


def test_a_result_that_would_be_too_large_is_an_error_with_a_way_out() -> None:
    # 800 px × 4 = 3200 > 2048, but × 2 = 1600 fits.
    with pytest.raises(ToolError, match="use scale 2, or a bbox of at most 512 px"):
        call(Enhancer(), texture(800, 80), bbox=[0, 0, 1000, 1000])
    # 1600 px × 2 = 3200 > 2048.
    with pytest.raises(ToolError, match="at most 1024 px a side, or zoom_in"):
        call(Enhancer(), texture(1600, 80), bbox=[0, 0, 1000, 1000], scale=2)
