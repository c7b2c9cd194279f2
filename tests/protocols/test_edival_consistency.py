"""EdiVal-CC: which boxes are compared, what counts where nothing can be compared, and what the published code does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import ModelAbsent
from editloupe.models.detect.base import Detection, DetectionResult
from editloupe.models.features.base import Tokens
from editloupe.protocols.base import Known
from editloupe.protocols.edival.chain import Chain, Pools
from editloupe.protocols.edival.consistency import (
    ConsistencyOptions,
    consistency_metrics,
    plan_consistency,
    score_consistency,
)
from editloupe.protocols.edival.instructions import Edit
from editloupe.scores import Score
from editloupe.tasks import Measure
from editloupe.values import Box, Json, Sample
from tests.measures.test_consistency import Drawn, flat
from tests.protocols.edival_answers import answered, chain_sample

RED, SIDE = (200, 0, 0), 64


class Door:
    """Opens the drawn encoder, and no detector."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds or ("dino",)

    def get(self, kind: str) -> Drawn:
        if kind not in self.kinds:
            raise ModelAbsent(f"it needs a model of the kind {kind}")
        return Drawn()


def pools(ever: Sequence[str], unchanged: Sequence[str], *, kept: bool = True) -> Pools:
    return Pools(ever=tuple(ever), unchanged=tuple(unchanged), available=tuple(ever), background_kept=kept)


def remove_cup(*more: tuple[Edit, Pools], **first: Any) -> Chain:
    edits = (Edit(edit_type="subject_remove", target="cup"), *(edit for edit, _ in more))
    after = (pools(["cup", "jar"], ["jar"], **first), *(pool for _, pool in more))
    return Chain(mode="multipass", edits=edits, pools=after)


NEW_BACKGROUND = Edit(edit_type="background_change", new="park")
CUP: list[Json] = [[0, 0, 32, 32]]
JAR: list[Json] = [[32, 32, 64, 64]]
BASE_BOXES: dict[str, Json] = {"cup": CUP, "jar": JAR}


def scene(*, cup: bool = True, jar: tuple[int, int, int] = RED, ground: tuple[int, int, int] = (30, 40, 0)) -> RGB:
    image = flat(*ground)
    if cup:
        image[:32, :32] = (0, 0, 200)
    image[32:, 32:] = jar
    return image


def scores(
    *edited: RGB | None, boxes: list[Json] | None = None, chain: Chain | None = None, door: Any = None, **options: Any
) -> dict[tuple[str, int], Score]:
    """Scores of a chain by metric and turn. boxes: given with the data, of each picture."""
    told = chain or remove_cup()
    extra = {} if boxes is None else {"boxes": boxes}
    return of_sample(chain_sample(told, scene(), *edited, **extra), told, door, **options)[0]


def of_sample(
    sample: Sample, chain: Chain, door: Any = None, **options: Any
) -> tuple[dict[tuple[str, int], Score], Known, list[Measure]]:
    chosen = ConsistencyOptions(**options)
    known, tasks = answered(lambda known: plan_consistency("edival", sample, chain, known, chosen), door or Door())
    found = list(score_consistency(sample, chain, known, chosen))
    assert {score.metric for score in found} <= {metric.id for metric in consistency_metrics(chosen)}
    assert len({(score.metric, score.turn) for score in found}) == len(found)
    return {(score.metric, score.turn): score for score in found}, known, tasks


def told(found: dict[tuple[str, int], Score], name: str, turn: int = 1) -> tuple[Any, str | None, str]:
    score = found[name, turn]
    value = None if score.value is None else round(score.value, 6)
    return value, score.missing, score.reason


ALL_FIVE = ("object_consistency", "background_consistency", "content_consistency", "object_l1", "background_l1")


def test_content_is_the_mean_of_the_unchanged_objects_and_the_background() -> None:
    # The cup is gone, which does not count; the jar changes from (5, 0, 0) to (3, 4, 0): cosine 0.6.
    found = scores(scene(cup=False, jar=(120, 160, 0)), boxes=[BASE_BOXES, {"cup": [], "jar": JAR}])
    assert told(found, "object_consistency") == (0.6, None, "")
    assert told(found, "background_consistency") == (1.0, None, "")
    assert told(found, "content_consistency") == (0.8, None, "")
    # |200 - 120| + |0 - 160| = 240 levels of 765.
    assert told(found, "object_l1")[0] == round(1 - 240 / 765, 6) and told(found, "background_l1")[0] == 1.0
    dims = {"edit_type": "subject_remove", "mode": "multipass", "turns": 1}
    assert found["content_consistency", 1].dims == {**dims, "compared": "objects and background"}
    assert found["object_consistency", 1].dims == dims
    assert found["alignment", 1].missing == "not_defined"
    # What a score rests on: its measure and the detections of its boxes.
    assert len(found["object_consistency", 1].findings) == 2 and len(found["background_l1", 1].findings) == 5


def test_identical_images_are_1_in_every_turn() -> None:
    chain = remove_cup((Edit(edit_type="color_alter", target="jar", new="blue"), pools(["cup", "jar", "blue jar"], [])))
    given: list[Json] = [{**BASE_BOXES, "blue jar": []}, BASE_BOXES, {**BASE_BOXES, "blue jar": []}]
    found = scores(scene(), scene(), boxes=given, chain=chain)
    assert {found[name, 1].value for name in ALL_FIVE} == {1.0}
    # After turn 2 no object is unchanged: the background alone, and the score says so.
    assert told(found, "object_consistency", 2) == (None, "not_defined", "every object was edited")
    assert told(found, "content_consistency", 2) == (1.0, None, "no objects: every object was edited")
    assert found["content_consistency", 2].dims["compared"] == "background"
    assert found["content_consistency", 2].dims["turns"] == 2


def test_the_background_counts_until_an_edit_changes_it() -> None:
    chain = remove_cup((NEW_BACKGROUND, pools(["cup", "jar"], ["jar"], kept=False)))
    green, why = scene(ground=(0, 255, 0)), "the background was changed"
    found = scores(scene(), green, boxes=[BASE_BOXES] * 3, chain=chain)
    assert told(found, "content_consistency") == (1.0, None, "")
    assert told(found, "background_consistency", 2) == (None, "not_defined", why)
    assert told(found, "object_consistency", 2) == (1.0, None, "")
    assert told(found, "content_consistency", 2) == (1.0, None, f"no background: {why}")
    assert found["content_consistency", 2].dims["compared"] == "objects"
    # The published code then compares no object either.
    found = scores(scene(), green, boxes=[BASE_BOXES] * 3, chain=chain, cc_rules="official")
    assert told(found, "content_consistency")[0] == 1.0
    no_object = f"{why}, and the published code then compares no object"
    assert told(found, "object_consistency", 2) == (None, "not_defined", no_object)
    assert found["content_consistency", 2].missing == "not_defined"


def test_no_box_is_no_value_unless_an_option_says_so() -> None:
    boxes: list[Json] = [{"cup": CUP, "jar": []}, {"cup": [], "jar": []}]
    found = scores(scene(), boxes=boxes)
    why = "the one unchanged object was not found in the base image with a score of 0.35 or more: jar"
    assert told(found, "object_consistency") == told(found, "object_l1") == (None, "not_defined", why)
    assert told(found, "content_consistency") == (1.0, None, f"no objects: {why}")
    found = scores(scene(), boxes=boxes, cc_no_box="zero")
    assert told(found, "object_consistency") == (0.0, None, f"{why}; it counts 0 by cc_no_box=zero")
    assert (found["object_l1", 1].value, told(found, "content_consistency")[0]) == (0.0, 0.5)


def test_boxes_that_cover_the_image_leave_no_background() -> None:
    boxes: list[Json] = [{"cup": [[0, 0, 64, 40]], "jar": [[0, 30, 64, 64]]}, {"cup": [], "jar": []}]
    found = scores(scene(jar=(30, 40, 0)), boxes=boxes)
    why = "boxes cover all of the image (2), so no background is left"
    assert told(found, "background_consistency") == told(found, "background_l1") == (None, "not_defined", why)
    assert found["content_consistency", 1].value == found["object_consistency", 1].value
    assert told(found, "content_consistency")[2] == f"no background: {why}"


def test_an_output_of_another_size_is_compared_at_the_same_places() -> None:
    large = scene().repeat(24, axis=0).repeat(16, axis=1)
    found = scores(large, boxes=[BASE_BOXES, {"cup": [[0, 0, 512, 768]], "jar": []}])
    assert [found[name, 1].value for name in ALL_FIVE] == pytest.approx([1.0] * 5, abs=1e-6)


def test_a_chain_is_judged_to_its_first_missing_output() -> None:
    more = (Edit(edit_type="subject_add", new="pan"), pools(["cup", "jar", "pan"], ["jar"]))
    boxes: list[Json] = [BASE_BOXES, BASE_BOXES, None, None]
    found = scores(scene(), None, scene(), boxes=boxes, chain=remove_cup(more, more))
    assert found["content_consistency", 1].value == 1.0
    why = "the output of turn 2 is missing"
    for name in ("object_consistency", "background_l1", "content_consistency", "alignment"):
        assert told(found, name, 2) == (None, "missing_output", why)
        behind = f"{why}, and a chain is judged up to its first missing output"
        assert told(found, name, 3) == (None, "missing_output", behind)


def test_without_a_detector_nothing_is_made_up() -> None:
    found = scores(scene())
    for name in ("object_consistency", "object_l1"):
        status, reason = found[name, 1].missing, found[name, 1].reason
        assert status == "not_defined" and reason.startswith("'jar' could not be looked for in the base image: it needs")
    assert found["content_consistency", 1].value is None
    # Nor is the content the objects alone where the background could not be looked for.
    edited = scene().copy()
    edited[0, 0] = 255 - edited[0, 0]
    found = scores(edited, boxes=[BASE_BOXES, None])
    assert found["object_consistency", 1].value == 1.0
    why = "'cup' could not be looked for in the image after turn 1: it needs a model of the kind detect"
    for name in ("background_consistency", "content_consistency"):
        assert told(found, name) == (None, "not_defined", why)


def test_without_an_encoder_pixels_are_still_compared() -> None:
    found = scores(scene(), boxes=[BASE_BOXES] * 2, door=Door("none"))
    assert found["object_l1", 1].value == found["background_l1", 1].value == 1.0
    assert found["content_consistency", 1].missing == "not_defined"
    assert "it needs a model of the kind dino" in found["content_consistency", 1].reason
    # Asked for alone, pixels need no encoder and have no content consistency.
    found = scores(scene(), boxes=[BASE_BOXES] * 2, door=Door("none"), cc="l1")
    assert {name for name, _ in found} == {"object_l1", "background_l1", "alignment"}
    assert not scores(scene(), boxes=[BASE_BOXES] * 2, cc="none") and not consistency_metrics(ConsistencyOptions(cc="none"))


class Detector:
    """Sees two jars of a score that counts, one of a score that does not, and no cup."""

    name, version = "scripted", "1"

    def __call__(self, images: Sequence[RGB], phrase: str, **thresholds: float) -> list[DetectionResult]:
        rows = {"jar": [(0.9, (32, 32, 64, 64)), (0.35, (0, 32, 32, 64)), (0.349, (0, 0, 9, 9))], "cup": []}[phrase]
        seen = tuple(Detection(box=Box(*box), score=score, label=phrase) for score, box in rows)
        return [DetectionResult(detections=seen, width=64, height=64)]

    def get(self, kind: str) -> Any:
        return self if kind == "detect" else Drawn()


def test_only_boxes_of_the_score_count_and_every_one_of_them() -> None:
    chain = remove_cup()
    _, _, tasks = of_sample(chain_sample(chain, scene(), scene()), chain, Detector())
    measures = {task.metric: task for task in tasks if task.about.turn == 1}
    jar: list[Json] = [[500, 500, 1000, 1000], [0, 500, 500, 1000]]
    assert measures["object_consistency"].args == {"boxes": jar}
    assert measures["background_l1"].args == {"source_boxes": jar, "edited_boxes": jar}
    assert len(measures["object_l1"].rests_on) == 1 and len(measures["background_l1"].rests_on) == 4


def test_an_added_text_is_looked_for_as_text() -> None:
    edit = Edit(edit_type="text_change", new="LAMB")
    chain = Chain(mode="singlepass", edits=(edit,), pools=(pools(["jar", "LAMB"], ["jar"]),))

    def looked_for(**options: Any) -> set[tuple[int, str]]:
        _, _, tasks = of_sample(chain_sample(chain, scene(), scene()), chain, **options)
        return {(task.about.turn, task.about.part) for task in tasks if task.metric == "detections"}

    assert looked_for() == {(0, "base: jar"), (0, "base: text"), (1, "after: jar"), (1, "after: text")}
    assert (1, "after: lamb") in looked_for(cc_rules="official")


def test_one_prompt_of_several_edits_is_one_turn() -> None:
    edits = (Edit(edit_type="subject_remove", target="cup"), NEW_BACKGROUND)
    after = (pools(["cup", "jar"], ["jar"]), pools(["cup", "jar"], ["jar"], kept=False))
    found = scores(scene(), boxes=[BASE_BOXES] * 2, chain=Chain(mode="singlepass", edits=edits, pools=after))
    assert {turn for _, turn in found} == {1}
    # The pools are those after the last edit.
    assert told(found, "background_consistency") == (None, "not_defined", "the background was changed")
    dims = {"edit_type": "background_change", "mode": "singlepass", "turns": 2, "compared": "objects"}
    assert found["content_consistency", 1].dims == dims


def test_options_are_in_the_measures_they_change_and_in_no_other() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene(), boxes=[BASE_BOXES, BASE_BOXES])

    def args(**options: Any) -> dict[str, set[str]]:
        return {task.metric: set(task.args) for task in of_sample(sample, chain, **options)[2]}

    plain, official = args(), args(cc_tokens="official", cc_bars="leave_out")
    assert plain["object_consistency"] == plain["object_l1"] == {"boxes"}
    assert official["object_consistency"] == {"boxes", "tokens", "bars"} and official["object_l1"] == {"boxes", "bars"}
    assert official["background_consistency"] == {"source_boxes", "edited_boxes", "tokens", "bars"}


class Turned(Drawn):
    """Only red, around 150: 200 is +50, 100 is -50."""

    def tokens(self, images: Sequence[RGB]) -> list[Tokens]:
        keep = np.array([1, 0, 0], np.float32)
        return [
            Tokens(cls=(t.cls - 150) * keep, registers=t.registers, patches=(t.patches - 150) * keep)
            for t in super().tokens(images)
        ]

    def get(self, kind: str) -> Drawn:
        return self


def test_a_cosine_below_0_counts_0_and_the_finding_keeps_it() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene(jar=(100, 0, 0)), boxes=[BASE_BOXES, BASE_BOXES])
    found, known, _ = of_sample(sample, chain, Turned(), cc="dino")
    cosine = known.of("object_consistency", sample)[0].answer
    assert cosine is not None and cosine.value == pytest.approx(-1)
    assert told(found, "object_consistency") == (0.0, None, "the cosine is -1.000 and counts 0")
