"""What makers of probes rest on: colours by name, crops by share, what is cut out of a box, and the plan."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from random import Random

import numpy as np
import pytest

from editloupe.baseline.naming import to_lab
from editloupe.build.base import Lost
from editloupe.data.images import RGB, ImageStore
from editloupe.data.probes import AREAS, FAILURES
from editloupe.protocols.probes.builder import ProbeSetOptions, planned
from editloupe.protocols.probes.colours import (
    FEATHER_PX,
    PAINTS,
    apart,
    colour_of,
    from_oklab,
    recoloured,
    soft,
    to_oklab,
    told_apart,
)
from editloupe.protocols.probes.drawn import drawn_scene
from editloupe.protocols.probes.makers import BANDS, TRUTHS, NotMade, make, on_look_alike
from editloupe.protocols.probes.photographs import Cut, _cut_out, _sure, crop_of, scene_of
from editloupe.protocols.probes.pictures import PLACES, STYLES
from editloupe.protocols.probes.placing import filled, grown
from editloupe.protocols.probes.scene import Scene, Thing
from editloupe.values import Box


def ground(width: int = 320, height: int = 240, *, rough: float = 2) -> RGB:
    noise = np.random.default_rng(3).normal(0, rough, (height, width, 1))
    return np.clip(np.full((height, width, 3), (170, 165, 150)) + noise, 0, 255).astype(np.uint8)


def square(x: int, y: int, side: int = 40, *, shape: tuple[int, int] = (240, 320)) -> np.ndarray:
    mask = np.zeros(shape, np.bool_)
    mask[y : y + side, x : x + side] = True
    return mask


def scene(*, others: bool = True, rough: float = 2) -> Scene:
    """A red cube, another one, and a blue book, each of 40×40 px."""
    rgb, masks = ground(rough=rough), [square(140, 100), square(30, 30), square(250, 170)]
    for mask, colour in zip(masks, ((200, 30, 30), (200, 30, 30), (30, 60, 190)), strict=True):
        if others or mask is masks[0]:
            rgb[mask] = colour
    things = (
        Thing(name="red cube on the left", noun="cube", mask=masks[1], colour="red"),
        Thing(name="blue book", noun="book", mask=masks[2], colour="blue"),
    )
    target = Thing(name="red cube in the middle", noun="cube", mask=masks[0], colour="red")
    return Scene(id="s", image=rgb, target=target, others=things if others else (), area=0.01)


def test_oklab_is_that_of_its_author() -> None:
    # sRGB's red, green, blue and white in OKLab, as Ottosson's page and CSS Color 4 give them.
    rgb = np.array([[(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)]], np.uint8)
    expected = [(0.628, 0.225, 0.126), (0.866, -0.234, 0.179), (0.452, -0.032, -0.312), (1, 0, 0)]
    assert np.allclose(to_oklab(rgb)[0], expected, atol=1e-3)
    assert (from_oklab(to_oklab(rgb)) == rgb).all()


@pytest.mark.parametrize("name", sorted(PAINTS))
@pytest.mark.parametrize("own", [(20, 20, 20), (128, 128, 128), (240, 240, 240), (90, 60, 30), (160, 120, 200)])
def test_a_thing_of_any_colour_has_the_name_of_its_new_one(name: str, own: tuple[int, int, int]) -> None:
    rgb, mask = ground(), square(140, 100)
    shade = np.linspace(-14, 14, 40)[:, None]
    rgb[mask] = np.clip(np.repeat(np.array(own)[None, None] + shade[..., None], 40, axis=1), 0, 255).reshape(-1, 3)
    made = recoloured(rgb, mask, PAINTS[name])
    assert colour_of(made, mask) == name
    # Light and shade stay: what was lighter is lighter.
    light = to_oklab(made)[100:140, 160, 0]
    assert light[30:].mean() > light[:10].mean()
    # The centre of a pixel lies half a px behind its edge.
    beyond = ~grown(mask, FEATHER_PX + 0.5)
    assert (made[beyond] == rgb[beyond]).all()


def test_an_edge_is_soft_for_as_many_pixels_as_it_says() -> None:
    weights = soft(square(10, 10, 10, shape=(30, 30)))[15]
    # The edge lies between px 9 and 10; 1 px beyond it all is the ground's, 1 px within the thing's.
    assert weights[:9].max() == 0 and weights[11:19].min() == 1
    assert weights[9] == pytest.approx(0.25) and weights[10] == pytest.approx(0.75)


def test_near_colours_are_not_told_apart() -> None:
    assert not told_apart("blue", "purple") and not told_apart("red", "red")
    assert told_apart("red", "blue") and told_apart("black", "yellow")


def test_truths_are_labels_of_the_rubric_and_bands_lie_on_its_scale() -> None:
    labels = tomllib.loads((files("editloupe.protocols.dlebench") / "rubric.toml").read_text())["criteria"]
    scales = tomllib.loads((files("editloupe.protocols.unicbench") / "rubric.toml").read_text())["criteria"]
    assert set(TRUTHS) == set(BANDS) == set(FAILURES)
    for truth in TRUTHS.values():
        for metric, label in truth.items():
            assert label in [level["name"] for level in labels[metric]["levels"]]
    for bands in BANDS.values():
        for metric, (low, high) in bands.items():
            assert scales[metric]["scale"]["low"] <= low < high <= scales[metric]["scale"]["high"]


def test_every_failure_meets_every_share_equally_often() -> None:
    slots = list(planned(ProbeSetOptions(count=660, twins=0.5), AREAS))
    assert len(slots) == 330
    assert set(Counter((slot.failure, slot.area) for slot in slots).values()) == {5}
    twins = Counter(slot.area for slot in slots if slot.twins)
    assert sum(twins.values()) == 165 and max(twins.values()) - min(twins.values()) <= 1
    failures = Counter(slot.failure for slot in slots if slot.twins)
    assert max(failures.values()) - min(failures.values()) <= 2
    assert ProbeSetOptions(areas=" 3, 0.05%").shares == (0.0005, 0.03) and ProbeSetOptions().shares == AREAS


def cut(store: ImageStore, name: str, mask: np.ndarray, rgb: RGB) -> Cut:
    return Cut.of(name, store.add_array(rgb), mask, name=name, noun=name)


def cropped(one: Cut, rgb: RGB, beside: Sequence[Cut], *, area: float, longest: int = 1536, least: int = 8) -> Scene | Lost:
    window = crop_of(one, beside, area=area, longest=longest, least=least)
    return window if isinstance(window, Lost) else scene_of(one, rgb, beside, window, area=area, longest=longest)


def test_a_crop_gives_the_share_and_cuts_through_nothing(store: ImageStore) -> None:
    rgb = ground(1200, 900)
    cube = cut(store, "cube", square(560, 420, 40, shape=(900, 1200)), rgb)
    around = [cut(store, f"other {x}", square(x, 300, 40, shape=(900, 1200)), rgb) for x in (300, 500, 700, 900)]
    for area in (0.003, 0.01, 0.03):
        found = cropped(cube, rgb, around, area=area)
        assert isinstance(found, Scene)
        # No pixel is made up: the target has its 40×40 px.
        assert found.target.mask.sum() == 1600 and found.area_found == pytest.approx(area, rel=0.15)
        assert all(thing.mask.sum() == 1600 for thing in found.others)
    # 1600 of 1200×900 px are 0.15 %.
    lost = cropped(cube, rgb, around, area=0.001)
    assert isinstance(lost, Lost) and lost.why == "too_large_for_an_area_share" and "0.148 %" in lost.detail
    # A crop of 16000 px: the sides of a picture would be under 128 px, or nearly so.
    lost = cropped(cube, rgb, around, area=0.1)
    assert isinstance(lost, Lost) and lost.why == "too_small_for_an_area_share" and "larger photograph" in lost.detail


def test_a_large_crop_is_made_smaller_and_its_target_with_it(store: ImageStore) -> None:
    rgb = ground(1200, 900)
    cube = cut(store, "cube", square(560, 420, 40, shape=(900, 1200)), rgb)
    found = cropped(cube, rgb, [], area=0.003, longest=400, least=8)
    assert isinstance(found, Scene) and max(found.image.shape) == 400
    assert found.area_found == pytest.approx(0.003, rel=0.2)
    lost = cropped(cube, rgb, [], area=0.003, longest=400, least=30)
    assert isinstance(lost, Lost) and "--least" in lost.detail


def test_a_thing_is_cut_out_of_its_box() -> None:
    rgb = scene(others=False).image
    yy, xx = np.mgrid[0:240, 0:320]
    disc = (xx - 160) ** 2 + (yy - 120) ** 2 <= 30**2
    rgb = ground()
    rgb[disc] = (30, 60, 190)
    found = _cut_out(rgb, Box(130, 90, 191, 151))
    assert isinstance(found, np.ndarray)
    assert (found & disc).sum() / (found | disc).sum() > 0.95
    nothing = _cut_out(ground(), Box(130, 90, 191, 151))
    assert isinstance(nothing, Lost) and nothing.why == "no_clear_object" and "give a mask instead" in nothing.detail


def test_a_hole_is_filled_where_the_ground_is_smooth() -> None:
    smooth = scene(others=False)
    made, found = filled(smooth.image, smooth.target.mask, np.random.default_rng(0))
    assert found.smooth and apart(made, ground(), smooth.target.mask) < 4
    beyond = ~grown(smooth.target.mask, 5)
    assert (made[beyond] == smooth.image[beyond]).all()
    assert not filled(ground(rough=40), smooth.target.mask, np.random.default_rng(0))[1].smooth


def test_nothing_is_removed_from_rough_ground() -> None:
    for seed in range(6):
        made = make("flawless", scene(others=False, rough=40), Random(seed))
        assert made.edit_type != "Removal Object"


def test_of_a_thing_of_several_colours_nobody_is_asked_if_its_colour_is_right() -> None:
    plain = scene()
    image = plain.image.copy()
    image[100:120, 140:180] = (240, 240, 240)
    image[120:130, 140:180] = (20, 20, 20)
    mixed = Scene(id="m", image=image, target=plain.target, others=plain.others, area=0.01)
    made = make("one_collateral", mixed, Random(1))
    assert dict(made.truth) == {"visual_consistency": "Single Anomaly"}
    assert "instruction_following" not in made.bands
    assert make("one_collateral", plain, Random(1)).truth["instruction_following"] == "Flawless Execution"


def test_a_wrong_place_is_a_look_alike_only_where_that_is_asked_for() -> None:
    given = scene()
    assert make("wrong_place", given, Random(0)).parameters["on"] == "blue book"
    assert on_look_alike(given, Random(0)).parameters["on"] == "red cube on the left"
    with pytest.raises(NotMade):
        on_look_alike(scene(others=False), Random(0))


def test_as_many_things_change_beside_the_target_as_are_said() -> None:
    for seed in range(4):
        for failure, least, most in (("one_collateral", 1, 1), ("several_collateral", 2, 3)):
            made = make(failure, scene(), Random(seed))  # type: ignore[arg-type]
            changes = made.parameters["changes"]
            assert isinstance(changes, list) and least <= len(changes) <= most
            # The look-alike stays: it could be taken for the target.
            assert (made.edited[square(30, 30)] == scene().image[square(30, 30)]).all()


def test_what_would_hardly_show_is_not_made() -> None:
    flat = scene(others=False)
    image = np.full_like(flat.image, 170)
    with pytest.raises(NotMade, match="hardly"):
        make("wrong_count", Scene(id="f", image=image, target=flat.target, area=0.01), Random(0))


def test_styles_and_places_have_the_size_of_the_picture() -> None:
    rgb = scene().image
    for style in STYLES.values():
        assert style(rgb, Random(0)).shape == rgb.shape
    for place in PLACES.values():
        made = place((240, 320), Random(0))
        assert made.shape == rgb.shape and made.min() >= 0 and made.max() <= 255


def test_what_has_a_hue_is_not_asked_to_become_of_that_hue() -> None:
    given = scene(others=False)
    image = given.image.copy()
    image[given.target.mask] = (96, 104, 122)
    greyish = Thing(name="shoe", noun="shoe", mask=given.target.mask, colour="gray")
    asked = {
        make("flawless", Scene(id="g", image=image, target=greyish, area=0.01), Random(seed)).parameters.get("asked")
        for seed in range(40)
    }
    assert "red" in asked and not asked & {"blue", "purple"}


def test_of_what_may_lack_a_part_nothing_is_flawless() -> None:
    given = replace(scene(), certain=False)
    with pytest.raises(NotMade, match="give a mask"):
        make("flawless", given, Random(0))
    with pytest.raises(NotMade, match="could be another change"):
        make("one_collateral", given, Random(1))
    # Ground that is taken for a part of it would change as well.
    assert dict(make("wrong_colour", given, Random(1)).truth) == {"instruction_following": "Wrong Action"}
    assert dict(make("several_collateral", given, Random(1)).truth) == {"visual_consistency": "Multiple Anomalies"}
    assert make("no_edit", given, Random(1)).truth["visual_consistency"] == "Perfect Consistency"


def test_what_is_cut_out_with_ground_shadow_or_parts_of_other_colours_is_not_certain() -> None:
    yy, xx = np.mgrid[0:240, 0:320]
    far = np.hypot(xx - 160, yy - 120)
    rgb = ground()
    rgb[far <= 40] = (235, 235, 230)
    assert _sure(rgb, far <= 40)
    # A ring whose hole shows the ground: 16 % of its area.
    ring = rgb.copy()
    ring[far <= 16] = (90, 60, 35)
    assert not _sure(ring, far <= 40)
    dark = rgb.copy()
    dark[far <= 40] = (30, 30, 30)
    assert not _sure(dark, far <= 40)
    # A notch.
    assert not _sure(rgb, (far <= 40) & ~((xx > 150) & (abs(yy - 120) < 10)))


def test_no_rim_of_the_old_colour_is_left() -> None:
    yy, xx = np.mgrid[0:120, 0:120]
    cover = np.clip(40.5 - np.hypot(xx - 60, yy - 60), 0, 1)[..., None]
    sand, disc = np.array((196.0, 180, 150)), cover[..., 0] >= 0.5

    def drawn(colour: tuple[int, ...]) -> RGB:
        return np.rint(sand + cover * (np.array(colour) - sand)).astype(np.uint8)

    made = recoloured(drawn((120, 50, 165)), disc, PAINTS["yellow"])
    # As if it had been drawn in its new colour: pixels of the rim are between that and the sand.
    again = drawn(tuple(int(v) for v in made[60, 60]))
    assert np.linalg.norm(to_lab(made) - to_lab(again), axis=2).max() < 10


def test_a_wrong_object_is_a_solid_in_place_of_a_colour_or_another_thing_in_place_of_a_thing() -> None:
    plain = scene(rough=40)
    made = make("wrong_object", plain, Random(0))
    # Nothing can be removed from this ground, and no drawn thing looks like one of a photograph.
    assert (made.maker, made.edit_type) == ("solid 2", "Change Color")
    assert told_apart(str(made.parameters["asked"]), str(made.parameters["colour"]))
    drawn = drawn_scene(3, area=0.01, size=(480, 360))
    kinds = {one.maker: one for one in (make("wrong_object", drawn, Random(seed)) for seed in range(12))}
    assert set(kinds) == {"solid 2", "thing 1", "remove exactly 1"}
    thing = kinds["thing 1"]
    assert thing.edit_type == "Replace Object" and str(thing.parameters["asked"]) in thing.instruction
    assert drawn.clean is not None
    # Nothing of the target is left beside it.
    assert ((thing.edited != drawn.image).any(axis=2) & ~thing.allowed).sum() == 0
    assert apart(thing.edited, drawn.image, drawn.target.mask) > 20


def test_where_something_was_removed_from_a_photograph_a_trace_may_be_left() -> None:
    removed = [made for n in range(12) if "remove" in (made := make("flawless", scene(), Random(n))).maker]
    assert removed and all(dict(made.truth) == {"instruction_following": "Flawless Execution"} for made in removed)
    drawn = drawn_scene(3, area=0.01, size=(480, 360))
    exact = [made for n in range(12) if "remove" in (made := make("flawless", drawn, Random(n))).maker]
    assert exact and all(made.truth["visual_consistency"] == "Perfect Consistency" for made in exact)


def test_what_people_could_dispute_has_no_truth() -> None:
    assert dict(make("wrong_count", scene(), Random(0)).truth) == {"instruction_following": "Wrong Action"}
    # "One more" that is not added is a wrong number, too; so it is never asked for where nothing is done.
    assert {make("no_edit", scene(), Random(seed)).edit_type for seed in range(30)} == {
        "Change Color", "Removal Object", "Replace Object",
    }  # fmt: skip
    for seed in range(12):
        made = make("over_modification", scene(), Random(seed))
        # A photograph's thing that is stretched can hide what has no mask.
        assert ("visual_consistency" in made.truth) == ("pattern" in made.maker)
    stretched = [make("over_modification", drawn_scene(3, area=0.01, size=(480, 360)), Random(n)) for n in range(12)]
    assert all(made.truth["visual_consistency"] == "Perfect Consistency" for made in stretched)
    assert {made.maker for made in stretched} >= {"recolour and stretch 2"}
