"""Drawn scenes: the target's share, equal pixels for equal numbers, what a scene without a thing shows, and names."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from editloupe.data.probes import AREAS
from editloupe.errors import DataError
from editloupe.protocols.probes.colours import colour_of
from editloupe.protocols.probes.drawn import LEAST_OTHERS, drawn_scene
from editloupe.protocols.probes.grounds import FLAT, GROUNDS
from editloupe.protocols.probes.scene import Scene
from editloupe.protocols.probes.sprites import COLOURS, KINDS, VIVID

SMALL = (640, 480)


# By default the smallest, the largest and one between.
each_area = pytest.mark.parametrize(
    "area", [pytest.param(a, marks=[] if a in (AREAS[0], 0.01, AREAS[-1]) else pytest.mark.slow) for a in AREAS]
)


def _things(scene: Scene):
    return (scene.target, *scene.others)


@each_area
def test_the_target_covers_the_share_that_was_asked_for(area: float) -> None:
    for seed in range(4):
        scene = drawn_scene(seed, area=area)
        assert scene.image.shape == (768, 1024, 3)
        assert scene.image.dtype == np.uint8
        assert scene.target.mask.mean() == pytest.approx(area, rel=0.1)
        assert scene.area == area
        assert len(scene.others) >= LEAST_OTHERS


@each_area
def test_things_do_not_overlap_and_their_names_are_unique(area: float) -> None:
    for seed in range(3):
        scene = drawn_scene(seed, area=area, size=SMALL)
        things = _things(scene)
        assert sum(thing.mask.astype(int) for thing in things).max() == 1
        assert len({thing.name for thing in things}) == len(things)
        assert all(thing.noun in thing.name for thing in things)


def test_equal_arguments_give_equal_pixels_and_others_do_not() -> None:
    first, again = drawn_scene(5, area=0.01, size=SMALL), drawn_scene(5, area=0.01, size=SMALL)
    assert first.image.tobytes() == again.image.tobytes()
    assert first.id == again.id
    assert [t.name for t in _things(first)] == [t.name for t in _things(again)]
    other = drawn_scene(6, area=0.01, size=SMALL)
    assert other.id != first.id
    assert (other.image != first.image).mean() > 0.5


@pytest.mark.parametrize("ground", GROUNDS)
def test_a_scene_without_a_thing_differs_only_on_the_thing_and_its_shadow(ground: str) -> None:
    scene = drawn_scene(2, area=0.01, size=SMALL, ground=ground)
    assert scene.clean is not None
    for thing in (scene.target, scene.others[0]):
        without = scene.clean(thing)
        differs = (without != scene.image).any(axis=2)
        assert differs[thing.mask].mean() > 0.98
        # A shadow falls at most 7 % of the side downwards and is blurred over some 12 %: within 0.3 of the side.
        rows, columns = np.nonzero(thing.mask)
        side = max(np.ptp(rows), np.ptp(columns))
        reach = 2 * int(0.3 * side + 6) + 1
        near = cv2.dilate(thing.mask.astype(np.uint8), np.ones((reach, reach), np.uint8)).astype(bool)
        assert not differs[~near].any()


def test_what_lies_below_a_thing_is_the_ground_that_all_scenes_without_it_show() -> None:
    scene = drawn_scene(3, area=0.03, size=SMALL, ground="sand")
    assert scene.clean is not None
    without = scene.clean(scene.target)
    # Sand under the target is as light as the sand around it, give or take its ripples.
    ring = cv2.dilate(scene.target.mask.astype(np.uint8), np.ones((61, 61), np.uint8)).astype(bool)
    for thing in _things(scene):
        ring &= ~cv2.dilate(thing.mask.astype(np.uint8), np.ones((41, 41), np.uint8)).astype(bool)
    assert abs(without[scene.target.mask].mean() - without[ring].mean()) < 12
    assert scene.clean(scene.target).tobytes() == without.tobytes()
    with pytest.raises(ValueError, match="has no"):
        scene.clean(drawn_scene(4, area=0.001, size=(1024, 768), ground="lawn", look_alikes="same colour").target)


def test_a_look_alike_of_another_colour_is_told_by_its_colour() -> None:
    scene = drawn_scene(1, area=0.01, size=SMALL, look_alikes="other colour")
    (twin,) = [thing for thing in scene.others if thing.noun == scene.target.noun]
    assert twin.colour != scene.target.colour
    assert scene.target.name == f"{scene.target.colour} {scene.target.noun}"


@pytest.mark.parametrize("seed", range(4))
def test_a_look_alike_of_the_same_colour_is_told_by_its_place(seed: int) -> None:
    scene = drawn_scene(seed, area=0.01, size=SMALL, look_alikes="same colour")
    (twin,) = [thing for thing in scene.others if thing.noun == scene.target.noun]
    assert twin.colour == scene.target.colour
    (y, x), (other_y, other_x) = (np.argwhere(thing.mask).mean(axis=0) for thing in (scene.target, twin))
    said = {"left": x < other_x, "right": x > other_x, "top": y < other_y, "bottom": y > other_y}
    assert said[scene.target.name.split()[-1]]
    assert not said[twin.name.split()[-1]]


def test_a_target_without_look_alikes_is_alone_of_its_noun() -> None:
    names = set()
    for seed in range(6):
        scene = drawn_scene(seed, area=0.01, size=SMALL, look_alikes="none")
        assert scene.target.noun not in {thing.noun for thing in scene.others}
        names.add(scene.target.name == scene.target.noun)
    assert names == {True, False}


def test_things_have_the_colour_that_their_name_says() -> None:
    said = right = 0
    for seed in range(12):
        scene = drawn_scene(seed, area=0.003)
        assert scene.target.colour in VIVID
        said += 1
        right += colour_of(scene.image, scene.target.mask) == scene.target.colour
    assert right >= said - 1


def test_kinds_grounds_and_sizes_are_other_ones_than_those_of_the_baseline() -> None:
    from benchmarks.drawing import BACKGROUNDS, FORMED, LETTERED
    from benchmarks.drawing import KINDS as MEASURED

    assert not set(KINDS) & {*MEASURED, *FORMED, *LETTERED}
    assert not set(GROUNDS) & set(BACKGROUNDS)
    assert set(VIVID) <= set(COLOURS)
    assert len(FLAT) >= 5


def test_a_share_for_which_the_image_is_too_small_is_refused_with_the_size_that_would_do() -> None:
    # 0.05 % of 320×240 px are 38 px of 64; 64 / 0.0005 is 0.128 megapixels.
    with pytest.raises(
        DataError, match=r"0\.05% of 320×240 px has 38 px; it needs 64; use images of at least 0\.13 megapixels"
    ):
        drawn_scene(0, area=0.0005, size=(320, 240))


@pytest.mark.parametrize(
    ("area", "ground", "message"),
    [(0.5, None, "0.0004 to 0.12"), (0.0, None, "0.0004 to 0.12"), (0.01, "moon", "unknown ground 'moon'.*known: lawn")],
)
def test_what_cannot_be_drawn_is_refused(area: float, ground: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        drawn_scene(0, area=area, ground=ground)


def test_an_aspect_without_room_is_refused() -> None:
    with pytest.raises(DataError, match=r"no room for a target of 10\.00% .* in 2000×90 px"):
        drawn_scene(0, area=0.1, size=(2000, 90))
