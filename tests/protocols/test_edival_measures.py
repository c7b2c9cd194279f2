"""What EdiVal measures beside its verdicts: what should have stayed (CC), quality (VQ), the direction of an edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import ModelAbsent, Unavailable
from editloupe.models.detect.base import Detection, DetectionResult
from editloupe.models.features.base import Tokens
from editloupe.models.preference.base import Preferred
from editloupe.protocols.edival.chain import Chain, Pools
from editloupe.protocols.edival.direction import captions
from editloupe.protocols.edival.instructions import EDIT_TYPES, Edit
from editloupe.scores import Score
from editloupe.values import Box, Json, Sample
from tests.measures.test_consistency import Drawn, flat
from tests.protocols.edival_play import STORE, Play, drawn


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


def test_where_every_object_was_edited_the_background_counts_alone() -> None:
    chain = remove_cup((Edit(edit_type="color_alter", target="jar", new="blue"), pools(["cup", "jar", "blue jar"], [])))
    found = compared(scene(), scene(), boxes=[{**BASE, "blue jar": []}, BASE, {**BASE, "blue jar": []}], chain=chain)
    assert {found[name, 1].value for name in ALL_FIVE} == {1.0}
    assert told(found, "object_consistency", 2) == (None, "not_defined", "every object was edited")
    assert told(found, "content_consistency", 2) == (1.0, None, "no objects: every object was edited")
    dims = found["content_consistency", 2].dims
    assert (dims["compared"], dims["turns"]) == ("background", 2)


@pytest.mark.parametrize("mode", ["multipass", "singlepass"])
def test_the_background_counts_until_an_edit_changes_it(mode: str) -> None:
    chain, why = remove_cup(NEW_BACKGROUND, mode=mode), "the background was changed"
    multi = mode == "multipass"
    turn, pictures = (2, [scene(), scene(ground=(0, 255, 0))]) if multi else (1, [scene(ground=(0, 255, 0))])
    found = compared(*pictures, boxes=[BASE] * (turn + 1), chain=chain)
    assert not multi or told(found, "content_consistency") == (1.0, None, "")
    assert told(found, "background_consistency", turn) == (None, "not_defined", why)
    assert told(found, "content_consistency", turn) == (1.0, None, f"no background: {why}")
    assert found["content_consistency", turn].dims["compared"] == "objects"
    # The published code then compares no object either.
    found = compared(*pictures, boxes=[BASE] * (turn + 1), chain=chain, rules={"cc_rules": "official"})
    no_object = f"{why}, and the published code then compares no object"
    assert told(found, "object_consistency", turn) == (None, "not_defined", no_object)
    assert found["content_consistency", turn].missing == "not_defined"


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


def test_an_output_of_another_size_is_compared_at_the_same_places() -> None:
    large = scene().repeat(24, axis=0).repeat(16, axis=1)
    found = compared(large, boxes=[BASE, {"cup": [[0, 0, 512, 768]], "jar": []}])
    assert [found[name, 1].value for name in ALL_FIVE] == pytest.approx([1.0] * 5, abs=1e-6)


def test_a_chain_is_measured_to_its_first_missing_output() -> None:
    more = (Edit(edit_type="subject_add", new="pan"), pools(["cup", "jar", "pan"], ["jar"]))
    found = compared(scene(), None, scene(), boxes=[BASE, BASE, None, None], chain=remove_cup(more, more))
    assert found["content_consistency", 1].value == 1.0
    why = "the output of turn 2 is missing"
    behind = f"{why}, and a chain is judged up to its first missing output"
    for name in ("object_consistency", "background_l1", "content_consistency", "alignment"):
        assert [told(found, name, n) for n in (2, 3)] == [(None, "missing_output", one) for one in (why, behind)]


def test_without_a_model_nothing_is_made_up() -> None:
    found = compared(scene())
    for name in ("object_consistency", "object_l1"):
        status, reason = found[name, 1].missing, found[name, 1].reason
        assert status == "not_defined" and reason.startswith("'jar' could not be looked for in the base image: it needs")
    # Nor is the content the objects alone where the background could not be looked for.
    edited = scene().copy()
    edited[0, 0] = 255 - edited[0, 0]
    found = compared(edited, boxes=[BASE, None])
    assert found["object_consistency", 1].value == 1.0
    why = "'cup' could not be looked for in the image after turn 1: it needs a model of the kind detect"
    for name in ("background_consistency", "content_consistency"):
        assert told(found, name) == (None, "not_defined", why)
    # Without an encoder pixels are still compared; asked for alone, they have no content consistency.
    found = compared(scene(), boxes=[BASE] * 2, door=Door(none=None))
    assert found["object_l1", 1].value == found["background_l1", 1].value == 1.0
    assert "it needs a model of the kind dino" in found["content_consistency", 1].reason
    for cc, names in (("l1", {"object_l1", "background_l1", "alignment"}), ("none", set())):
        verdicts = {"instruction_following", "image_success"}
        assert {name for name, _ in compared(scene(), boxes=[BASE] * 2, cc=cc)} - verdicts == names


class Detector:
    """Sees two jars of a score that counts, one of a score that does not, and nothing else."""

    name, version = "scripted", "1"

    def __call__(self, images: Sequence[RGB], phrase: str, **thresholds: float) -> list[DetectionResult]:
        jars = [(0.9, (32, 32, 64, 64)), (0.35, (0, 32, 32, 64)), (0.349, (0, 0, 9, 9))] if phrase == "jar" else []
        seen = tuple(Detection(box=Box(*box), score=score, label=phrase) for score, box in jars)
        return [DetectionResult(detections=seen, width=64, height=64)]


def test_boxes_and_rules_are_in_the_measures_that_they_change_and_in_no_other() -> None:
    door = Door(dino=Drawn(), detect=Detector())
    jar: Json = [[500, 500, 1000, 1000], [0, 500, 500, 1000]]
    place, both = {"boxes": jar}, {"source_boxes": jar, "edited_boxes": jar}
    for rules, every, tokens in (
        ("paper", {}, {}),
        ({"cc_tokens": "official", "cc_bars": "leave_out"}, {"bars": "leave_out"}, {"tokens": "official"}),
    ):
        play = Play(options={"cc": "all", "rules": rules}, door=door)
        play.scores(drawn(remove_cup(), scene(), scene()))
        found = {name: play.measures(name)[0] for name in ALL_FIVE if play.measures(name)}
        assert found["object_consistency"].args == {**place, **every, **tokens}
        assert found["object_l1"].args == {**place, **every} and len(found["object_l1"].rests_on) == 1
        assert found["background_consistency"].args == {**both, **every, **tokens}
        assert found["background_l1"].args == {**both, **every} and len(found["background_l1"].rests_on) == 4


def test_an_added_text_is_looked_for_as_text() -> None:
    edit = Edit(edit_type="text_change", new="LAMB")
    chain = Chain(mode="singlepass", edits=(edit,), pools=(pools(["jar", "LAMB"], ["jar"]),))
    for rules, name in (("paper", "text"), ({"cc_rules": "official"}, "lamb")):
        play = Play(options={"cc": "l1", "rules": rules}, door=Door(detect=Detector()))
        play.scores(drawn(chain, scene(), scene()))
        assert set(play.looked) == {(turn, one) for turn in (0, 1) for one in ("jar", name)}


class Turned(Drawn):
    """Only red, around 150: 200 is +50, 100 is -50."""

    def tokens(self, images: Sequence[RGB]) -> list[Tokens]:
        keep = np.array([1, 0, 0], np.float32)
        return [
            Tokens(cls=(t.cls - 150) * keep, registers=t.registers, patches=(t.patches - 150) * keep)
            for t in super().tokens(images)
        ]


def test_a_cosine_below_0_counts_0_and_the_finding_keeps_it() -> None:
    play = Play(options={"cc": "dino"}, door=Door(dino=Turned()))
    found = of(play, drawn(remove_cup(), scene(), scene(jar=(100, 0, 0)), boxes=[BASE, BASE]))
    (cosine,) = (one.value for one in play.findings if one.metric == "object_consistency")
    assert cosine == pytest.approx(-1)
    assert told(found, "object_consistency") == (0.0, None, "the cosine is -1.000 and counts 0")


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


def grey(level: int) -> RGB:
    return flat(level, level, level)


def test_each_image_has_its_values_and_its_change_from_the_base_image() -> None:
    found, play = looks(grey(128), grey(255), flat(255, 0, 0))
    assert len(play.measures("image_statistics")) == len(play.measures("preference")) == 3
    # White after grey: 1 and 1 - 0.21586; red is 0.2126.
    for metric, turn, value in (
        ("luminance_p999", 1, 1.0), ("luminance_p999_change", 1, 0.78414), ("luminance_p99", 2, 0.2126),
        ("luminance_p99_change", 2, 0.00326), ("saturation", 1, 0.0), ("saturation_change", 2, 1.0),
        ("preference", 1, 25.5), ("preference_change", 1, 12.7), ("contrast", 2, 0.0), ("sharpness", 2, 0.0),
    ):  # fmt: skip
        assert found[metric, turn].value == pytest.approx(value, abs=1e-5), metric
    assert found["preference", 2].dims == {"edit_type": "background_change", "mode": "multipass", "turns": 2}
    assert len(found["preference", 2].findings) == 1 and len(found["preference_change", 2].findings) == 2
    found, _ = looks(grey(128), grey(128), grey(0), quality="statistics", rules={"luminance": "gamma"})
    assert found["luminance_p99", 1].value == pytest.approx(128 / 255) and found["luminance_p99_change", 1].value == 0.0


def test_the_prompt_is_empty_for_all_unless_the_instruction_is_asked_for() -> None:
    # "edit 1" has 6 letters; the base image's prompt stays empty, as in the published code.
    for rules, change, prompts in (("paper", 0, ["", "", ""]), ("official", 0.6, ["", "edit 1", "edit 2"])):
        found, play = looks(grey(10), grey(10), grey(10), quality="preference", rules=rules)
        assert found["preference_change", 1].value == pytest.approx(change)
        assert [task.args["prompt"] for task in play.measures("preference")] == prompts


def test_quality_that_is_missing_says_why() -> None:
    found, play = looks(grey(0), flat(255, 0, 77, width=32, height=48), None)
    # A black image has neither saturation nor contrast.
    for metric in ("saturation", "contrast"):
        why = f"the base image: no {metric} is known: an image that is dark all over has none"
        assert told(found, f"{metric}_change") == (None, "not_defined", why)
        assert found[metric, 1].value is not None
    assert told(found, "preference") == (None, "backend_failed", "out of order")
    assert found["preference_change", 1].missing == "backend_failed"
    for metric in ("preference", "luminance_p99", "luminance_p99_change"):
        assert told(found, metric, 2) == (None, "missing_output", "the output of turn 2 is missing")
    # An image of another size is brought to that of the base image.
    assert [task.args.get("size") for task in play.measures("image_statistics")] == [None, [64, 64], None]
    found, _ = looks(grey(9), grey(9), grey(9), door=Door())
    assert told(found, "preference") == (None, "not_defined", "it needs a model of the kind preference")
    assert found["luminance_p99", 1].value is not None


CAPTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"edit_type": "subject_add", "new": "bench"}, "", " of bench"),
    (
        {"edit_type": "subject_add", "new": "bench", "position": "left", "reference": "tree"},
        " of tree",
        " of bench to the left of tree",
    ),
    ({"edit_type": "subject_remove", "target": "cup"}, " of cup", ""),
    ({"edit_type": "subject_replace", "target": "cup", "new": "jar"}, " of cup", " of jar"),
    ({"edit_type": "color_alter", "target": "cup", "new": "red"}, " of cup", " of red cup"),
    ({"edit_type": "material_alter", "target": "cup", "new": "wood"}, " of cup", " of cup made of wood"),
    ({"edit_type": "text_change", "new": "LAMB"}, "", " with the text 'LAMB'"),
    (
        {"edit_type": "text_change", "target": "shirt", "old_text": "A", "new": "B"},
        " of shirt with the text 'A'",
        " of shirt with the text 'B'",
    ),
    (
        {"edit_type": "position_change", "target": "cup", "position": "above", "reference": "jar"},
        " of cup and jar",
        " of cup above jar",
    ),
    ({"edit_type": "count_change", "target": "cup", "count": 4}, " of cup", " of 4 cup"),
    ({"edit_type": "background_change", "new": "park"}, "", " with park in the background"),
]


def test_the_direction_of_an_edit_is_measured_from_the_image_before_it_to_the_one_after() -> None:
    for edit, before, after in CAPTIONS:
        assert captions(Edit(**edit)) == (f"a photo{before}", f"a photo{after}")
    assert {edit["edit_type"] for edit, _, _ in CAPTIONS} == set(EDIT_TYPES)
    door = Door(
        clip=lambda pictures, _: [picture.mean((0, 1)).astype(np.float32) for picture in pictures],
        clip_text=lambda said: [np.array([1, len(s), 0], np.float32) for s in said],
    )
    recolor = (Edit(edit_type="color_alter", target="jar", new="red"), pools(["cup"], []))
    images = [flat(1, 0, 0), flat(0, 1, 0), flat(0, 1, 0)]
    play = Play(options={"direction": True}, door=door)
    found = of(play, drawn(remove_cup(recolor), *images))
    shown = [[int(STORE.array(v.origin)[0, 0, 0]) for v in task.views] for task in play.measures("clip_direction")]
    assert shown == [[1, 0], [0, 0]]
    first, second = (found["clip_direction", turn] for turn in (1, 2))
    assert first.dims == {"edit_type": "subject_remove", "mode": "multipass", "turns": 1}
    assert first.value is not None and -1 <= first.value <= 1
    assert second.missing == "not_defined" and "the two images have one vector" in second.reason
    # Of one prompt, each edit is compared from the base image to the output.
    scores = play.scores(drawn(remove_cup(recolor, mode="singlepass"), *images[:2]))
    assert [part for metric, _, part in scores if metric == "clip_direction"] == ["instruction 1", "instruction 2"]
