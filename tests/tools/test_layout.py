"""What a picture shows of a region, how large, and for how many tokens."""

from __future__ import annotations

import random

import pytest

from editloupe.imaging.render import DIVIDER_PX, LABEL_PX
from editloupe.tools.layout import Canvas, lay_out
from editloupe.values import Box

IMAGE = Box(0, 0, 1024, 1024)


def area(width: int, height: int) -> int:
    return width * height


def canvas(image: Box = IMAGE, *, finer: float = 1.0, tokens=area, most_px: int = 10_000) -> Canvas:
    return Canvas(image=image, common=image, finer=finer, tokens=tokens, most_px=most_px)


@pytest.mark.parametrize(
    ("side", "frame", "scale"),
    [
        # 256 px of 10 would be ×25.6; ×6 is the most, and 60 of 768 px are less than a quarter: 10 / (1/4).
        (10, 40, 6.0),
        # ×2.56 shows 256 px, a third of 768.
        (100, 300, 2.56),
        # 200 px are shown ×2 rather than ×1.28; 400 of 768 px.
        (200, 384, 2.0),
        # 800 of 768 px are more than two thirds: 400 / (2/3), shown at 768 px.
        (400, 600, 1.28),
        # 600 / (2/3) is over half of the image, which is shown at 448 px.
        (600, 900, 448 / 900),
    ],
)
def test_a_region_fills_as_little_of_the_pane_as_lets_it_be_enlarged(side: int, frame: int, scale: float):
    low = 512 - side / 2
    look = canvas().look_at(Box(low, low, low + side, low + side), 768, 0)
    assert (look.frame.width, look.frame.height) == (pytest.approx(frame, abs=2), pytest.approx(frame, abs=2))
    assert look.scale == pytest.approx(scale, rel=0.01)


def test_the_budget_makes_pictures_smaller_and_then_fewer_and_one_is_always_there():
    regions = [Box(x, 400, x + 60, 460) for x in (100, 500, 900)]
    rich, tight = (lay_out(regions, canvas(), budget, strong=3) for budget in (2e6, 3e5))
    assert [look.regions for look in rich] == [look.regions for look in tight] == [(0,), (1,), (2,)]
    assert all(a.scale > b.scale for a, b in zip(rich, tight, strict=True))
    assert sum(area(*look.picture) for look in tight) <= 3e5
    # The smallest picture of a square pane has 264 × 148 px: two cost 78,144.
    assert [look.regions for look in lay_out(regions, canvas(), 80_000, strong=3)] == [(0,), (1,)]
    assert [look.regions for look in lay_out(regions, canvas(), 10, strong=3)] == [(0,)]


def test_pictures_lie_in_the_image_and_within_what_is_sent():
    chance = random.Random(5)
    for _ in range(300):
        image = Box.whole(width=chance.randint(8, 3000), height=chance.randint(8, 3000))
        regions = []
        for _ in range(chance.randint(1, 5)):
            x0, y0 = chance.uniform(0, image.width - 2), chance.uniform(0, image.height - 2)
            regions.append(Box(x0, y0, chance.uniform(x0 + 1, image.width), chance.uniform(y0 + 1, image.height)))
        most = chance.choice((400, 401, 1568))
        budget = chance.uniform(1e4, 3e6)
        looks = lay_out(regions, canvas(image, most_px=most), budget, strong=chance.randint(1, 5))
        assert [i for look in looks for i in look.regions if i == look.regions[0]] == sorted(
            i for look in looks for i in look.regions if i == look.regions[0]
        )
        assert sum(area(*look.picture) for look in looks) <= budget or len(looks) == 1
        for look in looks:
            assert look.frame.intersection(image) == look.frame
            assert max(look.picture) <= most
            assert look.picture == (2 * look.pane[0] + DIVIDER_PX, look.pane[1] + LABEL_PX)
            for index in look.regions:
                assert look.frame.intersection(regions[index]) == regions[index]
