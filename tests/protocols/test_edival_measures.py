"""What EdiVal measures beside its verdicts: what should have stayed (CC), quality (VQ), the direction of an edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from editloupe.data.images import RGB
from editloupe.errors import ModelAbsent, Unavailable
from editloupe.models.preference import Preferred
from editloupe.protocols.edival.chain import Chain, Pools
from editloupe.protocols.edival.instructions import Edit
from editloupe.scores import Score
from editloupe.values import Json, Sample
from tests.measures.test_consistency import Drawn, flat
from tests.protocols.edival_play import Play, drawn


class Door:
    """Opens models by their kinds, such as the drawn encoder, and no other."""

    def __init__(self, **models: Any) -> None:
        self.models = models

    def get(self, kind: str) -> Any:
        if kind not in self.models:
            raise ModelAbsent(f"it needs a model of the kind {kind}")
        return self.models[kind]


def pools(ever: Sequence[str], unchanged: Sequence[str], *, kept: bool = True) -> Pools:
    return Pools(ever=tuple(ever), unchanged=tuple(unchanged), available=tuple(ever), background_kept=kept)


def remove_cup(*more: tuple[Edit, Pools], mode: Any = "multipass") -> Chain:
    edits = (Edit(edit_type="subject_remove", target="cup"), *(edit for edit, _ in more))
    return Chain(mode=mode, edits=edits, pools=(pools(["cup", "jar"], ["jar"]), *(pool for _, pool in more)))


NEW_BACKGROUND = (Edit(edit_type="background_change", new="park"), pools(["cup", "jar"], ["jar"], kept=False))
CUP: list[Json] = [[0, 0, 32, 32]]
JAR: list[Json] = [[32, 32, 64, 64]]
BASE: dict[str, Json] = {"cup": CUP, "jar": JAR}
ALL_FIVE = ("object_consistency", "background_consistency", "content_consistency", "object_l1", "background_l1")


def scene(*, cup: bool = True, jar: tuple[int, ...] = (200, 0, 0), ground: tuple[int, ...] = (30, 40, 0)) -> RGB:
    image = flat(*ground)
    if cup:
        image[:32, :32] = (0, 0, 200)
    image[32:, 32:] = jar
    return image


Found = dict[tuple[str, int], Score]


def of(play: Play, sample: Sample) -> Found:
    """What was measured, by metric and turn."""
    return {(metric, turn): score for (metric, turn, part), score in play.scores(sample).items() if not part}


def compared(*edited: RGB | None, boxes: Any = None, chain: Chain | None = None, door: Any = None, **options: Any) -> Found:
    """Scores of a chain by metric and turn. boxes: given with the data, of each picture."""
    sample = drawn(chain or remove_cup(), scene(), *edited, **({} if boxes is None else {"boxes": boxes}))
    return of(Play(options={"cc": "all", **options}, door=door or Door(dino=Drawn())), sample)


def told(found: Found, name: str, turn: int = 1) -> tuple[Any, str | None, str]:
    score = found[name, turn]
    value = None if score.value is None else round(score.value, 6)
    return value, score.missing, score.reason


def test_content_is_the_mean_of_the_unchanged_objects_and_the_background() -> None:
    # The cup is gone, which does not count; the jar changes from (5, 0, 0) to (3, 4, 0): cosine 0.6.
    found = compared(scene(cup=False, jar=(120, 160, 0)), boxes=[BASE, {"cup": [], "jar": JAR}])
    values = [told(found, name) for name in ALL_FIVE]
    # |200 - 120| + |0 - 160| = 240 levels of 765.
    assert values == [(value, None, "") for value in (0.6, 1.0, 0.8, round(1 - 240 / 765, 6), 1.0)]
    dims = {"edit_type": "subject_remove", "mode": "multipass", "turns": 1}
    assert found["content_consistency", 1].dims == {**dims, "compared": "objects and background"}
    assert found["object_consistency", 1].dims == dims and found["alignment", 1].missing == "not_defined"
    # What a score rests on: its measure and the detections of its boxes.
    assert len(found["object_consistency", 1].findings) == 2 and len(found["background_l1", 1].findings) == 5


def test_no_box_is_no_value_unless_a_rule_says_so() -> None:
    boxes = [{"cup": CUP, "jar": []}, {"cup": [], "jar": []}]
    found = compared(scene(), boxes=boxes)
    why = "the one unchanged object was not found in the base image with a score of 0.35 or more: jar"
    assert told(found, "object_consistency") == told(found, "object_l1") == (None, "not_defined", why)
    assert told(found, "content_consistency") == (1.0, None, f"no objects: {why}")
    found = compared(scene(), boxes=boxes, rules={"cc_no_box": "zero"})
    assert told(found, "object_consistency") == (0.0, None, f"{why}; it counts 0 by cc_no_box=zero")
    assert (found["object_l1", 1].value, told(found, "content_consistency")[0]) == (0.0, 0.5)
    # Boxes that cover all of the image leave no background.
    boxes = [{"cup": [[0, 0, 64, 40]], "jar": [[0, 30, 64, 64]]}, {"cup": [], "jar": []}]
    found = compared(scene(jar=(30, 40, 0)), boxes=boxes)
    why = "boxes cover all of the image (2), so no background is left"
    assert told(found, "background_consistency") == told(found, "background_l1") == (None, "not_defined", why)
    assert found["content_consistency", 1].value == found["object_consistency", 1].value


class Likes:
    """Likes red: the mean is the red of the first pixel by 10, and a tenth a letter of the prompt."""

    name, version = "likes", "1"

    def __call__(self, rgb: RGB, prompt: str) -> Preferred:
        if rgb[0, 0, 2] == 77:
            raise Unavailable("out of order")
        return Preferred(mean=float(rgb[0, 0, 0]) / 10 + 0.1 * len(prompt), sigma=1.0)


def looks(*pictures: RGB | None, quality: str = "all", rules: Any = "paper", door: Any = None) -> tuple[Found, Play]:
    play = Play(options={"quality": quality, "rules": rules}, door=door or Door(preference=Likes()))
    base, *edited = pictures
    assert base is not None
    return of(play, drawn(remove_cup(NEW_BACKGROUND), base, *edited)), play


def gray(level: int) -> RGB:
    return flat(level, level, level)


def test_each_image_has_its_values_and_its_change_from_the_base_image() -> None:
    found, play = looks(gray(128), gray(255), flat(255, 0, 0))
    assert len(play.measures("image_statistics")) == len(play.measures("preference")) == 3
    # White after gray: 1 and 1 - 0.21586; red is 0.2126.
    for metric, turn, value in (
        ("luminance_p999", 1, 1.0), ("luminance_p999_change", 1, 0.78414), ("luminance_p99", 2, 0.2126),
        ("luminance_p99_change", 2, 0.00326), ("saturation", 1, 0.0), ("saturation_change", 2, 1.0),
        ("preference", 1, 25.5), ("preference_change", 1, 12.7), ("contrast", 2, 0.0), ("sharpness", 2, 0.0),
    ):  # fmt: skip
        assert found[metric, turn].value == pytest.approx(value, abs=1e-5), metric
    assert found["preference", 2].dims == {"edit_type": "background_change", "mode": "multipass", "turns": 2}
    assert len(found["preference", 2].findings) == 1 and len(found["preference_change", 2].findings) == 2
    found, _ = looks(gray(128), gray(128), gray(0), quality="statistics", rules={"luminance": "gamma"})
    assert found["luminance_p99", 1].value == pytest.approx(128 / 255) and found["luminance_p99_change", 1].value == 0.0
