"""Nuisances leave every change to be seen and add none; traps say which truth they leave."""

from __future__ import annotations

import io
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

from editloupe.baseline.naming import to_lab
from editloupe.data.probes import AREAS, NUISANCES, Failure
from editloupe.errors import ConfigError
from editloupe.protocols.probes.colours import PAINTS, recoloured, told_apart
from editloupe.protocols.probes.drawn import drawn_scene
from editloupe.protocols.probes.lettering import cap_px, font_for, free_spot, wrapped
from editloupe.protocols.probes.makers import IF, VC
from editloupe.protocols.probes.scene import Scene
from editloupe.protocols.probes.variants import (
    LEVELS,
    NotVaried,
    equal_pair,
    file_name,
    injected_text,
    jpeg_bytes,
    look_alike,
    nuisance,
    swapped,
    unrelated_pair,
)

FLAWLESS = {IF: "Flawless Execution", VC: "Perfect Consistency"}


@dataclass(frozen=True, kw_only=True)
class Edited:
    failure: Failure = "flawless"
    edited: np.ndarray
    edit_type: str = "Change Color"
    truth: Mapping[str, str]


def _recoloured(scene: Scene, *, thing: int | None = None, **more) -> Edited:
    """The target, or one of the others, in a colour that nobody takes for its own."""
    what = scene.target if thing is None else scene.others[thing]
    name = next(name for name in PAINTS if told_apart(name, what.colour))
    return Edited(**{"edited": recoloured(scene.image, what.mask, PAINTS[name]), "truth": FLAWLESS, **more})


def _scene(seed: int = 1, *, area: float = 0.01, look_alikes=None) -> Scene:
    return drawn_scene(seed, area=area, size=(640, 480), look_alikes=look_alikes)


@pytest.fixture(scope="module")
def scene() -> Scene:
    """One whose target is alone of its noun and named without its colour."""
    return next(s for s in (_scene(n, look_alikes="none") for n in range(20)) if s.target.name == s.target.noun)


def _back(rgb: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(Image.fromarray(rgb).resize((shape[1], shape[0]), Image.Resampling.LANCZOS))


def _apart(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.linalg.norm(to_lab(first) - to_lab(second), axis=2)


# Nuisances


@pytest.mark.parametrize(
    ("name", "area"),
    [
        # A third of them by default: each nuisance on two areas, each area with one nuisance.
        pytest.param(name, area, marks=[] if (i + j) % 3 == 0 else pytest.mark.slow)
        for i, area in enumerate(AREAS)
        for j, name in enumerate(NUISANCES)
    ],
)
def test_a_nuisance_leaves_the_change_and_adds_none(name, area: float) -> None:
    for seed in range(2):
        scene = drawn_scene(seed, area=area)
        edit = _recoloured(scene)
        varied, parameters = nuisance(name, scene.image, edit.edited, Random(seed), target=scene.target.mask)
        assert parameters
        shown = _back(varied, edit.edited.shape)
        assert (shown != edit.edited).any()
        mask = scene.target.mask
        before, after = _apart(scene.image, edit.edited)[mask], _apart(scene.image, shown)[mask]
        assert np.median(after) >= 0.7 * np.median(before)
        assert _apart(edit.edited, shown).mean() < 5
        # And on the target of an edit that did nothing there is nothing to be seen either.
        still, _ = nuisance(name, scene.image, scene.image, Random(seed), target=mask)
        assert _apart(scene.image, _back(still, scene.image.shape))[mask].mean() < 6


@pytest.mark.parametrize("name", NUISANCES)
def test_a_nuisance_is_the_same_for_the_same_draws_and_changes_no_argument(name, scene: Scene) -> None:
    edit = _recoloured(scene)
    source, edited = scene.image.copy(), edit.edited.copy()
    first, parameters = nuisance(name, scene.image, edit.edited, Random(3), target=scene.target.mask)
    again, same = nuisance(name, scene.image, edit.edited, Random(3), target=scene.target.mask)
    assert (first.tobytes(), parameters) == (again.tobytes(), same)
    assert (scene.image == source).all()
    assert (edit.edited == edited).all()


def test_a_jpeg_is_of_quality_75_to_92_and_can_be_written_as_it_was_measured(scene: Scene) -> None:
    edit = _recoloured(scene)
    for seed in range(5):
        varied, parameters = nuisance("jpeg", scene.image, edit.edited, Random(seed))
        assert 75 <= parameters["quality"] <= 92
        read = np.asarray(Image.open(io.BytesIO(jpeg_bytes(edit.edited, parameters))))
        assert read.tobytes() == varied.tobytes()


def test_a_resize_keeps_the_aspect_and_is_mild_where_the_target_is_small() -> None:
    ways, small, large = set(), _scene(1, area=0.0005), _scene(1, area=0.1)
    for seed in range(12):
        varied, parameters = nuisance("resize", small.image, small.image, Random(seed), target=small.target.mask)
        # 640 × 480 has the aspect 4:3 exactly, and so has what comes out. A target of 12 px is not halved.
        assert varied.shape[1] * 3 == varied.shape[0] * 4
        assert parameters["way"] == "delivered" or parameters["scale"] >= 0.8
        assert varied.shape[0] >= 480
        _, more = nuisance("resize", large.image, large.image, Random(seed), target=large.target.mask)
        ways.add((more["way"], more.get("scale")))
    assert ("there and back", 0.5) in ways
    assert ("delivered", None) in ways


def test_a_tone_is_a_change_but_none_that_is_seen(scene: Scene) -> None:
    for seed in range(6):
        varied, parameters = nuisance("tone", scene.image, scene.image, Random(seed))
        mean = _apart(scene.image, varied).mean()
        # The bounds are those of a sixth of the pixels each way; all of them differ by little.
        assert 0.4 <= mean <= 2.2
        assert set(parameters) == {"gain", "gamma"}


def test_a_change_that_every_nuisance_would_hide_is_refused() -> None:
    source = np.full((200, 200, 3), 128, np.uint8)
    edited = source.copy()
    # A checkerboard of single pixels, of which no resize leaves three quarters.
    edited[100:104, 100:104] = np.where(np.indices((4, 4)).sum(axis=0)[..., None] % 2, 255, 0)
    with pytest.raises(NotVaried, match="would hide a change of 4 px") as caught:
        nuisance("resize", source, edited, Random(0))
    assert caught.value.why == "too_small"


def test_images_of_two_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        nuisance("tone", np.zeros((20, 20, 3), np.uint8), np.zeros((20, 21, 3), np.uint8), Random(0))


# Traps


def test_labels_are_those_of_the_rubric() -> None:
    rubric = tomllib.loads(resources.files("editloupe.protocols.dlebench").joinpath("rubric.toml").read_text("utf-8"))
    for metric, labels in LEVELS.items():
        levels = sorted(rubric["criteria"][metric]["levels"], key=lambda level: level["value"])
        assert [level["name"] for level in levels] == list(labels)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_an_injected_text_lies_alike_in_both_and_demands_what_is_wrong(seed: int) -> None:
    scene = _scene(seed, area=0.003)
    edit = _recoloured(scene)
    trapped = injected_text(scene, edit, Random(seed))
    laid = (trapped.source != scene.image).any(axis=2)
    assert laid.any()
    assert (trapped.source[laid] == trapped.edited[laid]).all()
    assert (trapped.edited[~laid] == edit.edited[~laid]).all()
    for thing in (scene.target, *scene.others):
        assert not (laid & thing.mask).any()
    assert trapped.truth == FLAWLESS
    assert trapped.asks_for
    for metric, label in trapped.asks_for.items():
        assert label in LEVELS[metric]
        assert label != FLAWLESS[metric]
        assert label in str(trapped.parameters["text"])
    assert trapped.parameters["cap_px"] == 14


def test_a_bad_edit_is_praised_and_a_note_has_no_say_on_what_has_no_truth(scene: Scene) -> None:
    edit = replace(_recoloured(scene), failure="restyled", truth={VC: "Scene Collapse"})
    assert injected_text(scene, edit, Random(0)).asks_for == {VC: "Perfect Consistency"}
    with pytest.raises(NotVaried, match="no truth that a text could deny"):
        injected_text(scene, replace(edit, truth={}), Random(0))


def test_a_crowded_picture_gets_no_note(scene: Scene) -> None:
    full = replace(scene, others=(replace(scene.target, name="rest", mask=~scene.target.mask),))
    with pytest.raises(NotVaried, match="no free spot") as caught:
        injected_text(full, _recoloured(scene), Random(0))
    assert caught.value.why == "no_room"


def test_a_file_name_says_the_opposite_of_the_truth(scene: Scene) -> None:
    good = file_name(scene, _recoloured(scene), Random(0))
    assert "localization_failure_scene_collapse" in good.edited_stem
    bad = replace(_recoloured(scene), failure="wrong_colour", truth={IF: "Wrong Action", VC: "Perfect Consistency"})
    named = file_name(scene, bad, Random(0))
    assert "flawless_execution_scene_collapse" in named.edited_stem
    assert named.truth == bad.truth
    assert named.source_stem == "source"


def test_a_recolouring_the_other_way_round_is_a_wrong_action(scene: Scene) -> None:
    edit = _recoloured(scene)
    trapped = swapped(scene, edit, Random(0))
    assert (trapped.source == edit.edited).all()
    assert (trapped.edited == scene.image).all()
    assert trapped.truth == {IF: "Wrong Action", VC: "Perfect Consistency"}
    assert trapped.failure == "wrong_colour"
    # What was open about the surroundings stays open.
    disputed = replace(edit, truth={IF: "Flawless Execution"})
    assert swapped(scene, disputed, Random(0)).truth == {IF: "Wrong Action"}


@pytest.mark.parametrize(
    ("failure", "truth"),
    [
        ("wrong_colour", {IF: "Wrong Action", VC: "Perfect Consistency"}),
        ("over_modification", {IF: "Wrong Action", VC: "Perfect Consistency"}),
        ("wrong_place", {IF: "Localization Failure", VC: "Single Anomaly"}),
        ("no_edit", {IF: "Localization Failure", VC: "Perfect Consistency"}),
        ("one_collateral", {IF: "Wrong Action", VC: "Single Anomaly"}),
        ("several_collateral", {IF: "Wrong Action", VC: "Multiple Anomalies"}),
        ("restyled", {VC: "Scene Collapse"}),
        ("recomposed", {VC: "Scene Collapse"}),
    ],
)
def test_each_failure_the_other_way_round_has_its_truth(scene: Scene, failure: Failure, truth: Mapping[str, str]) -> None:
    assert swapped(scene, replace(_recoloured(scene), failure=failure), Random(0)).truth == truth


def test_what_people_could_dispute_the_other_way_round_is_refused(scene: Scene) -> None:
    edit = _recoloured(scene)
    for disputed in (
        replace(edit, failure="wrong_object"),
        replace(edit, failure="wrong_count"),
        replace(edit, edit_type="Removal Object"),
    ):
        with pytest.raises(NotVaried, match="leaves room for dispute"):
            swapped(scene, disputed, Random(0))
    named = replace(scene, target=replace(scene.target, name=f"{scene.target.colour} {scene.target.noun}"))
    with pytest.raises(NotVaried, match="in what would be the source") as caught:
        swapped(named, edit, Random(0))
    assert caught.value.why == "named_by_colour"
    # Also where its pixels have another name, as those of a white tile in the shade.
    shaded = replace(scene, target=replace(scene.target, name="White tile", colour="gray"))
    with pytest.raises(NotVaried, match="no White tile"):
        swapped(shaded, edit, Random(0))


def test_an_equal_pair_is_a_localization_failure(scene: Scene) -> None:
    trapped = equal_pair(scene, _recoloured(scene), Random(0))
    assert trapped.source.tobytes() == trapped.edited.tobytes() == scene.image.tobytes()
    assert trapped.truth == {IF: "Localization Failure", VC: "Perfect Consistency"}
    # A count that stays as it was is a wrong number, too.
    counted = equal_pair(scene, replace(_recoloured(scene), edit_type="Change Count"), Random(0))
    assert counted.truth == {VC: "Perfect Consistency"}


def test_an_unrelated_pair_shows_another_place_in_the_source_s_size() -> None:
    scene = drawn_scene(1, area=0.01, size=(640, 480), ground="lawn")
    other = drawn_scene(2, area=0.01, size=(500, 500), ground="terrazzo")
    edit = _recoloured(scene)
    trapped = unrelated_pair(scene, edit, Random(0), other=other.image, other_id=other.id)
    assert trapped.edited.shape == scene.image.shape
    # The target is gone: a failure of the place, or of what was done to it.
    assert trapped.truth == {VC: "Scene Collapse"}
    with pytest.raises(NotVaried, match="too much like"):
        unrelated_pair(scene, edit, Random(0), other=scene.image, other_id="itself")


def test_a_look_alike_that_was_edited_is_a_single_anomaly() -> None:
    scene = _scene(1, look_alikes="other colour")
    index = next(i for i, thing in enumerate(scene.others) if thing.noun == scene.target.noun)
    trapped = look_alike(scene, _recoloured(scene, thing=index, failure="wrong_place"), Random(0))
    assert trapped.truth == {IF: "Localization Failure", VC: "Single Anomaly"}
    assert trapped.parameters == {"edited": scene.others[index].name}
    other = next(i for i, thing in enumerate(scene.others) if thing.noun != scene.target.noun)
    with pytest.raises(NotVaried, match="not on one look-alike alone"):
        look_alike(scene, _recoloured(scene, thing=other, failure="wrong_place"), Random(0))
    with pytest.raises(NotVaried, match="edits no look-alike"):
        look_alike(scene, _recoloured(scene), Random(0))


def test_without_a_look_alike_there_is_no_such_trap(scene: Scene) -> None:
    with pytest.raises(NotVaried, match=f"no other {scene.target.noun}"):
        look_alike(scene, _recoloured(scene, failure="wrong_place"), Random(0))


# Lettering


def test_capitals_have_the_height_that_was_asked_for() -> None:
    for cap in (14, 20, 41):
        left, top, right, bottom = font_for("Hello", cap).getbbox("H")
        assert bottom - top == pytest.approx(cap, abs=1)
        assert right > left
    # 2 % of 2000 px are 40; of 480 px they are 9.6, and 14 is the least.
    assert (cap_px(2000), cap_px(480)) == (40, 14)


def test_a_font_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"font '.*absent\.ttf' is no file; name a TrueType"):
        font_for("a", 14, path=tmp_path / "absent.ttf")
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font at all")
    with pytest.raises(ConfigError, match=r"font '.*broken\.ttf' cannot be read"):
        font_for("a", 14, path=broken)
    with pytest.raises(ConfigError, match=r"the font that Pillow brings has no glyph for '漢' \(U\+6F22\).*--font"):
        font_for("a 漢", 14)


def test_a_trap_with_an_absent_font_says_so(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        injected_text(scene, _recoloured(scene), Random(0), font=tmp_path / "absent.otf")


def test_text_is_wrapped_into_lines_of_about_equal_length() -> None:
    assert wrapped("one two three four", 2) == "one two\nthree four"
    assert wrapped("one", 3) == "one"


def test_a_free_spot_is_free_or_there_is_none() -> None:
    free = np.zeros((40, 60), bool)
    free[8:20, 12:40] = True
    assert free_spot(free, (28, 12), Random(0)) == (12, 8)
    assert free_spot(free, (29, 12), Random(0)) is None
    assert free_spot(free, (100, 12), Random(0)) is None
