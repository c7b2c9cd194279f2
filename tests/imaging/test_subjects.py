"""Where much of a picture changed, its subject comes first, in few regions."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.imaging.differences import Differences, localize
from editloupe.values import Box
from tests.imaging.drawn import textured, with_square

HEAD, PERSON = Box(250, 80, 350, 200), Box(200, 80, 400, 480)


def scene(
    sky: tuple[int, int, int], ground: tuple[int, int, int], skin: tuple[int, int, int], coat: tuple[int, int, int]
) -> RGB:
    """Return 640×480: a person before sky and ground, with corners darker than the middle."""
    picture = np.empty((480, 640, 3), dtype=np.float64)
    picture[:300], picture[300:] = sky, ground
    y, x = np.mgrid[:480, :640]
    picture *= (1 - 0.5 * (((x - 320) / 320) ** 2 + ((y - 240) / 240) ** 2) / 2)[..., None]
    drawn = np.clip(picture, 0, 255).astype(np.uint8)
    cv2.ellipse(drawn, (300, 420), (100, 200), 0, 0, 360, coat, -1)
    cv2.ellipse(drawn, (300, 140), (50, 60), 0, 0, 360, skin, -1)
    noise = np.random.default_rng(4).normal(0, 3, drawn.shape)
    return np.clip(drawn + noise, 0, 255).astype(np.uint8)


BY_DAY = scene((150, 190, 235), (120, 140, 90), (225, 180, 150), (40, 50, 90))
AT_NIGHT = scene((20, 25, 60), (40, 20, 30), (120, 160, 210), (180, 60, 40))


def negative(rgb: RGB) -> RGB:
    return np.asarray(255 - rgb, dtype=np.uint8)


def other_hues(rgb: RGB) -> RGB:
    hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(int) + 60) % 180
    hsv[..., 1] = np.clip(hsv[..., 1] * 1.5 + 60, 0, 255)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), dtype=np.uint8)


def pencil(rgb: RGB) -> RGB:
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    around = 255.0 - cv2.GaussianBlur(255 - grey, (0, 0), 9)
    return cv2.cvtColor(np.clip(grey * 255.0 / np.maximum(1, around), 0, 255).astype(np.uint8), cv2.COLOR_GRAY2RGB)


def covered(box: Box, by: Box) -> float:
    common = box.intersection(by)
    return 0.0 if common is None else common.area / box.area


def check_few_and_large(found: Differences) -> None:
    width, height = found.alignment.size_1
    assert 1 <= len(found.regions) <= 5
    assert min(min(r.box.width, r.box.height) for r in found.regions) >= 0.08 * min(width, height)
    strengths = [r.strength for r in found.regions]
    assert strengths == sorted(strengths, reverse=True)


@pytest.mark.parametrize("pair", [(BY_DAY, AT_NIGHT), (AT_NIGHT, BY_DAY), (BY_DAY, negative(BY_DAY))])
def test_the_subject_comes_before_sky_ground_and_corners(pair: tuple[RGB, RGB]) -> None:
    found = localize(*pair)
    assert found.changed_share > 0.4 and found.widespread
    check_few_and_large(found)
    first = found.regions[0].box
    assert covered(PERSON, first) > 0.8 or covered(HEAD, first) > 0.8
    assert covered(first, PERSON) > 0.6


@pytest.mark.parametrize("style", [negative, other_hues, pencil])
@pytest.mark.parametrize("edit", [(40, 60, 120, 150), (480, 330, 590, 430), (270, 300, 330, 380)])
def test_a_strong_local_edit_of_a_restyled_picture_is_among_the_first_two(
    style: Callable[[RGB], RGB], edit: tuple[int, int, int, int]
) -> None:
    # A colour that no style gives to what stood there.
    found = localize(BY_DAY, with_square(style(BY_DAY), edit, (20, 230, 60)))
    check_few_and_large(found)
    assert max(r.box.iou(Box(*edit)) for r in found.regions[:2]) > 0.5


def test_a_picture_that_changed_throughout_without_a_subject_has_few_large_regions() -> None:
    check_few_and_large(localize(textured(640, 480, seed=1), textured(640, 480, seed=2)))


def test_an_edit_over_most_of_the_picture_is_shown_by_its_subject() -> None:
    # The ground stays as it is, so the edit is no style: one object as wide as the picture.
    second = BY_DAY.copy()
    second[:400] = AT_NIGHT[:400]
    found = localize(BY_DAY, second)
    assert found.changed_share > 0.4
    check_few_and_large(found)
    assert max(r.box.iou(HEAD) for r in found.regions[:2]) > 0.5
    assert max(r.box.area for r in found.regions) < 0.7 * 640 * 480


def test_the_same_pictures_give_the_same_regions() -> None:
    assert localize(BY_DAY, AT_NIGHT).regions == localize(BY_DAY, AT_NIGHT).regions
