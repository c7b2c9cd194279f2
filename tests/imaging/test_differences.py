"""Where two images differ: objects are found, noise and tone are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from benchmarks.localize.renderings import KINDS, draw
from editloupe.data.images import RGB
from editloupe.imaging.differences import FAINT, localize
from editloupe.values import Box
from tests.imaging.drawn import jpeg, textured, with_square


def close_to(box: Box, expected: tuple[int, int, int, int], *, px: int) -> bool:
    return bool(np.all(np.abs(np.array(list(box)) - expected) <= px))


def test_one_changed_object_gives_one_tight_box() -> None:
    picture = textured(320, 240)
    found = localize(picture, with_square(picture, (100, 60, 140, 90)))
    assert len(found.regions) == 1
    assert close_to(found.regions[0].box, (100, 60, 140, 90), px=2)
    # 40 × 30 px, a little more by the smoothing.
    assert found.regions[0].changed_px == pytest.approx(1200, rel=0.15)


def test_regions_are_ranked_by_what_their_pixels_exceed_six_levels_by_squared() -> None:
    gray = np.full((240, 320, 3), 120, dtype=np.uint8)
    # Light weighs red 0.299 and green 0.587. 40×40 px: red by 40 levels, 12 of light, but (0.713 · 28) · 1.5 = 30 of Cr:
    # 1600 · 24² = 0.9 million. 20×20 px: green by 120, 70 of light and more of Cb and Cr: 400 · 64² = 1.6 million and more.
    both = with_square(with_square(gray, (20, 20, 60, 60), (160, 120, 120)), (200, 150, 220, 170), (120, 240, 120))
    first, second = localize(gray, both).regions
    assert close_to(first.box, (200, 150, 220, 170), px=2)
    assert close_to(second.box, (20, 20, 60, 60), px=2)
    assert second.strength == pytest.approx(900_000, rel=0.2)


@pytest.mark.parametrize("levels", [4, 8])
def test_a_weak_change_of_a_third_of_the_picture_comes_after_a_small_object(levels: int) -> None:
    picture = textured(640, 480)
    shaded = picture.copy()
    shaded[100:400, 20:340] -= np.uint8(levels)
    edited = with_square(shaded, (500, 200, 520, 220), (200, 90, 90))
    found = localize(picture, edited).regions
    assert close_to(found[0].box, (500, 200, 520, 220), px=2)
    # A weak rim is found by wide averages, hence only about so well.
    assert close_to(found[1].box, (20, 100, 340, 400), px=8)


def test_no_faint_region_is_stronger_than_a_clear_one() -> None:
    gray = np.full((480, 640, 3), 120, dtype=np.uint8)
    # 7 × 7 px by 12 levels, and a place whose pixels differ by 3 levels, but for a tenth of them by 25: 5.2 in the mean.
    uneven = np.full((200, 200), 3, dtype=np.uint8)
    uneven[:20] = 25
    edited = gray.copy()
    edited[100:300, 100:300] += uneven[..., None]
    edited[400:407, 500:507] += np.uint8(12)
    found = localize(gray, edited).regions
    assert [r.mean < FAINT for r in found] == [False, True]
    assert found[0].strength >= found[1].strength


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(
            kind, seed, marks=[] if seed == 0 and kind in ("added, shadow", "removed, bounce") else pytest.mark.slow
        )
        for kind in KINDS
        for seed in range(9)
    ],
)
def test_bounce_light_and_a_soft_shadow_are_told_apart_from_the_object(kind: str, seed: int) -> None:
    scene = draw(seed, kind)
    found = localize(scene.before, scene.after).regions
    # Some shadows are nearly as dark as the object, and sharp: they stay with it.
    if (kind, seed) != ("removed, shadow", 3):
        assert found[0].box.iou(scene.box) >= 0.5
    assert all(r.box.intersection(scene.lit) == r.box or r.box.iou(scene.lit) > 0.5 for r in found[1:])


def test_an_object_with_smooth_shading_inside_is_not_torn() -> None:
    gray = np.full((480, 640, 3), 120, dtype=np.uint8)
    y, x = np.mgrid[-1:1:200j, -1:1:300j]
    # A recolored body: 90 levels at its left end, 9 at its right one, and a highlight where nothing changed.
    shading = (50 - 41 * x) * (1 - np.exp(-((x + 0.3) ** 2 + (y + 0.3) ** 2) / 0.05)) * (x * x + y * y < 1)
    edited = gray.copy()
    edited[100:300, 200:500, 0] += shading.astype(np.uint8)
    (found,) = localize(gray, edited).regions
    assert close_to(found.box, (200, 100, 500, 300), px=3)


@pytest.mark.parametrize("quality", [90, 75, 50])
def test_jpeg_compression_alone_gives_no_region(quality: int) -> None:
    picture = with_square(textured(320, 240), (100, 60, 140, 90))
    assert localize(picture, jpeg(picture, quality)).regions == ()


@pytest.mark.parametrize("levels", [12, 30, -40])
def test_a_brightness_shift_alone_gives_no_region(levels: int) -> None:
    picture = textured(320, 240)
    found = localize(picture, np.clip(picture.astype(int) + levels, 0, 255).astype(np.uint8))
    assert found.regions == ()
    assert not found.regenerated


@pytest.mark.parametrize("flattened", [lambda p: 255 - p, lambda p: 120 + p // 16], ids=["negative", "flat"])
def test_a_negative_and_a_picture_made_flat_are_no_exposure(flattened: Callable[[RGB], RGB]) -> None:
    picture = textured(640, 480)
    found = localize(picture, flattened(picture).astype(np.uint8))
    assert found.tone.neutral
    assert found.regenerated


def test_a_thin_line_that_one_image_lacks_is_found_despite_the_tolerance() -> None:
    gray = np.full((240, 320, 3), 120, dtype=np.uint8)
    for pair in ((gray, with_square(gray, (100, 60, 102, 160))), (with_square(gray, (100, 60, 102, 160)), gray)):
        assert len(localize(*pair).regions) == 1


@pytest.mark.parametrize("grain", [4, 12, 20])
def test_grain_all_over_is_neither_a_region_nor_another_style(grain: int) -> None:
    picture = textured(640, 480)
    noise = np.random.default_rng(2).normal(0, grain, picture.shape)
    found = localize(picture, np.clip(picture + noise, 0, 255).astype(np.uint8))
    assert found.regions == ()
    assert not found.regenerated


def test_many_things_changed_on_a_plain_ground_are_not_taken_for_its_noise() -> None:
    ground = np.full((480, 640, 3), 235, dtype=np.uint8)
    places = [(x, y) for x in range(60, 600, 90) for y in range(60, 440, 90)]
    pictures = []
    for colors in ([(200, 40, 40), (40, 60, 200)], [(40, 160, 60), (220, 190, 40)]):
        picture = ground.copy()
        for index, (x, y) in enumerate(places):
            picture = with_square(picture, (x, y, x + 30, y + 30), colors[index % 2])
        pictures.append(picture)
    found = localize(*pictures)
    # Every square is a region of its own: 6 × 5 of them, 60 px apart, where fragments are joined up to 17 px.
    assert len(found.regions) == len(places) == 30


@pytest.mark.parametrize("factor", [0.4, 1.0, 1.3])
def test_what_lies_under_a_mask_of_either_picture_is_no_difference(factor: float) -> None:
    # The masks end at other places of the picture, and hide other things.
    picture = textured(480, 360)
    width, height = round(480 * factor), round(360 * factor)
    other = np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC))
    here, there = (100, 80, 150, 120), (round(170 * factor), round(90 * factor), round(220 * factor), round(140 * factor))
    white = (255, 255, 255)
    first, second = with_square(picture, here, white), with_square(other, there, white)
    found = localize(first, second, masks_1=[Box(*here)], masks_2=[Box(*there)])
    assert found.regions == () and not found.identical
    # 50 × 40 and 50 × 50 px of 480 × 360, each with a rim of 4 px of the smaller picture on every side.
    rims = 8 / min(factor, 1)
    expected = ((50 + rims) * (40 + rims) + (50 + rims) * (50 + rims)) / (480 * 360)
    assert found.masked_share == pytest.approx(expected, rel=0.06)
    assert localize(first, second).regions != ()


@pytest.mark.parametrize("share", [0.5, 0.7, 0.85])
@pytest.mark.parametrize("spoil", ["grain", "jpeg"])
def test_noise_beside_a_large_mask_gives_no_region(spoil: str, share: float) -> None:
    """What a mask hides does not differ at all. It must not make the rest's own noise look like differences."""
    noise = np.random.default_rng(1)
    picture = textured(320, 240) if spoil == "grain" else noise.integers(60, 200, (240, 320, 3), dtype=np.uint8)
    other = np.clip(picture + noise.normal(0, 20, picture.shape), 0, 255).astype(np.uint8)
    other = other if spoil == "grain" else jpeg(picture, 20)
    mask = Box(0, 0, 320 * share, 240)
    found = localize(picture, other, masks_1=[mask], masks_2=[mask])
    assert found.regions == ()
    assert not found.restyled


@pytest.mark.parametrize("covered", [1, 2])
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_a_large_mask_of_one_picture_alone_hides_no_tone_and_adds_no_region(covered: int, share: float) -> None:
    picture = textured(480, 360)
    edited = with_square(picture, (400, 100, 430, 130))
    toned = np.clip(edited * 0.9 + 5, 0, 255).astype(np.uint8)
    mask = (0, 0, round(480 * share), 360)
    pair = [picture, toned]
    pair[covered - 1] = with_square(pair[covered - 1], mask, (255, 255, 255))
    masks = {f"masks_{covered}": [Box(*mask)]}
    found = localize(*pair, **masks)
    (region,) = found.regions
    assert close_to(region.box, (400, 100, 430, 130), px=3)
    assert not found.tone.neutral and not found.regenerated


def test_where_masks_leave_less_than_the_smallest_image_nothing_is_sought() -> None:
    picture, mask = textured(64, 64), Box(0, 0, 64, 59)
    found = localize(picture, 255 - picture, masks_1=[mask], masks_2=[mask])
    # The rim takes 4 of the 5 rows that are left.
    assert found.regions == () and found.compared_px < 64 and not found.identical
    wider = localize(picture, 255 - picture, masks_1=[Box(0, 0, 64, 40)], masks_2=[Box(0, 0, 64, 40)])
    assert wider.compared_px == 64 * 20 and wider.regenerated


def test_a_mask_does_not_hold_a_picture_that_moved() -> None:
    picture, mask = textured(480, 360), (60, 60, 300, 260)
    moved = np.roll(picture, (2, 3), (0, 1))
    first, second = (with_square(p, mask, (255, 255, 255)) for p in (picture, moved))
    found = localize(first, second, masks_1=[Box(*mask)], masks_2=[Box(*mask)])
    assert found.alignment.motion.shift == pytest.approx((3, 2), abs=0.1)
    assert found.regions == ()


@pytest.mark.parametrize("corner", ["first", "last"])
def test_places_in_a_picture_of_odd_sides_stand_where_they_are(corner: str) -> None:
    picture = textured(321, 241)
    place = (1, 1, 31, 25) if corner == "first" else (290, 216, 320, 240)
    found = localize(picture, with_square(picture, place))
    assert found.levels.shape == found.changed.shape == (241, 321)
    assert len(found.regions) == 1 and close_to(found.regions[0].box, place, px=2)


@pytest.mark.parametrize("before", [np.full((240, 320, 3), 100, np.uint8), textured(320, 240) // 2], ids=["plain", "photo"])
def test_a_change_of_every_pixel_by_as_much_is_a_change_of_the_whole(before: RGB) -> None:
    # 90 levels of mid gray are more than a tone may undo, and leave no noise.
    found = localize(before, before + np.uint8(90))
    assert found.noise < 1
    assert found.rest is not None and found.rest > 80
    assert found.regenerated and found.widespread
