"""What a search tries, and what it may say: with detectors written for the test, no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.models.detect.base import Detection, DetectionResult, Detector, suppress
from editloupe.models.detect.search import MAX_TILES, tiles_of
from editloupe.testing import check_tool
from editloupe.tools.base import Tool, ToolContext
from editloupe.tools.grounding import DetectObject, Grounding
from editloupe.values import Box
from tests.tools import conftest


class Reds:
    """Finds the box around pure red pixels, where an image is no larger than `limit` px a side; sees 800 px a side."""

    name, version, threshold, side_px = "Reds", "reds 1", 0.30, 800

    def __init__(self, *, limit: int = 10_000, more: int = 0) -> None:
        self.limit, self.more = limit, more
        self.asked: list[tuple[str, list[tuple[int, ...]]]] = []

    def __call__(self, images: Sequence[RGB], phrase: str, **thresholds: float | None) -> list[DetectionResult]:
        self.asked.append((phrase, [image.shape[:2] for image in images]))
        return [self._look(image) for image in images]

    def _look(self, image: RGB) -> DetectionResult:
        height, width = image.shape[:2]
        ys, xs = np.nonzero((image == (255, 0, 0)).all(axis=2))
        found = []
        if len(xs) and max(width, height) <= self.limit:
            found.append(Detection(box=Box(xs.min(), ys.min(), xs.max() + 1, ys.max() + 1), score=0.62, label="red"))
        found += [Detection(box=Box(20 * n, 0, 20 * n + 10, 10), score=0.31) for n in range(self.more)]
        return DetectionResult(detections=tuple(found), width=width, height=height)


def context_of(width: int, height: int, red: tuple[int, int, int, int] | None = None) -> ToolContext:
    picture = np.full((height, width, 3), 120, dtype=np.uint8)
    if red is not None:
        picture[red[1] : red[3], red[0] : red[2]] = (255, 0, 0)
    return conftest.context_of({"Edited Image": picture})


def ask(detector: Detector, context: ToolContext, phrase: str = "red mug") -> Observation:
    return conftest.call(Grounding(detector), context, phrase=phrase)


def test_both_tools_keep_the_contract_with_a_hit_and_with_a_miss() -> None:
    for make in (Grounding, DetectObject):
        tool: Tool = make(Reds(more=3))
        check_tool(tool)
        check_tool(make(Reds()))  # nothing is pure red in the drawn pair
        assert "reds 1" in tool.version


def test_a_hit_gives_count_box_size_and_score_and_shows_the_boxes_and_the_best() -> None:
    context = context_of(400, 200, (100, 50, 140, 90))
    found = ask(Reds(), context)
    # x 100..140 of 400 = 250..350, y 50..90 of 200 = 250..450 thousandths.
    assert "'red mug' in 'Edited Image' (400×200 px): 1 found with a score of 0.30 or more by Reds." in found.text
    assert "1: bbox [250, 250, 350, 450], 40×40 px, score 0.62, matched 'red'." in found.text
    drawn, crop = found.views
    assert drawn.op == "draw_boxes" and drawn.region == Box(0, 0, 400, 200)
    # Half as much again about the center (120, 70): 60×60 px.
    assert crop.region == Box(90, 40, 150, 100)
    assert "Crop 2: box 1 with its surroundings: bbox [225, 200, 375, 500] (px [90, 40, 150, 100]), enlarged" in found.text
    assert "enlarged ×5 to 300×300 px by Lanczos, which adds no detail" in found.text
    # The crop shows the place without the lines drawn over it.
    assert not (context.images.array(crop.image)[150, 150] != (255, 0, 0)).any()
    assert found.data["found"] == 1 and found.data["tiles"] == []


def test_a_miss_names_threshold_sizes_and_tiles_and_does_not_claim_absence() -> None:
    detector = Reds()
    found = ask(detector, context_of(1000, 500))
    assert "No 'red mug' found in 'Edited Image' (1000×500 px): no box reached the score 0.30." in found.text
    assert "the whole image at 1000×500 px, then 4 overlapping tiles of 600×300 px, each at its own size" in found.text
    assert "That does not show that it is absent" in found.text and "zoom_in" in found.text
    assert found.views == () and not found.error
    assert [len(sizes) for _, sizes in detector.asked] == [1, 4]


@pytest.mark.parametrize("empty", [" ", "...", "?!", "\n\t"])
def test_a_phrase_without_a_letter_is_an_error_that_can_be_mended(empty: str) -> None:
    with pytest.raises(ToolError, match=r"nothing to look for.*for example 'red mug'"):
        ask(Reds(), context_of(80, 60), empty)


@pytest.mark.parametrize(("width", "height"), [(97, 20), (512, 512), (810, 810), (500, 3000), (4240, 2700), (20000, 9000)])
def test_tiles_cover_the_image_overlap_and_stay_few(width: int, height: int) -> None:
    tiles = tiles_of(width, height, side=800)
    assert 2 <= len(tiles) <= MAX_TILES
    seen = np.zeros((height, width), dtype=np.uint8)
    for tile in tiles:
        x0, y0, x1, y1 = tile.ints()
        assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        assert (x1 - x0) * (y1 - y0) < width * height
        seen[y0:y1, x0:x1] += 1
    assert seen.min() >= 1
    assert seen.max() >= 2
    if width * height < 5_000_000:
        assert max(tiles[0].width, tiles[0].height) <= 800


def _scored(*boxes: tuple[float, float, float, float, float]) -> list[Detection]:
    return [Detection(box=Box(*b[:4]), score=b[4]) for b in boxes]


@pytest.mark.parametrize(
    ("given", "scores"),
    [
        # Twice the same thing: IoU 0.82.
        ([(0, 0, 10, 10, 0.5), (1, 0, 11, 10, 0.9)], [0.9]),
        # Beside each other.
        ([(0, 0, 10, 10, 0.5), (10, 0, 20, 10, 0.9)], [0.9, 0.5]),
        # Half an object, cut by a tile's border, inside the whole one: IoU 0.4, but all of it inside, 2.5 times the area.
        ([(0, 0, 10, 10, 0.9), (0, 0, 10, 4, 0.8)], [0.9]),
        # A hat on a person: inside too, but twenty times smaller, so another thing.
        ([(0, 0, 10, 20, 0.9), (4, 0, 6, 5, 0.8)], [0.9, 0.8]),
        ([], []),
    ],
)
def test_boxes_of_one_thing_become_one(given: list[tuple[float, float, float, float, float]], scores: list[float]) -> None:
    assert [d.score for d in suppress(_scored(*given))] == scores
