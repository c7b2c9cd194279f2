"""EdiVal-CC: which boxes are compared, what counts where nothing can be compared, and what the published code does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import ModelAbsent
from editloupe.models.features.base import Tokens
from editloupe.protocols.edival.chain import Chain, Pools
from editloupe.protocols.edival.consistency import (
    ConsistencyOptions,
    consistency_metrics,
    plan_consistency,
    score_consistency,
)
from editloupe.protocols.edival.instructions import Edit
from editloupe.scores import Score
from editloupe.values import Json, Sample
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


def scores(sample: Sample, chain: Chain, door: Any = None, **options: Any) -> dict[tuple[str, int], Score]:
    chosen = ConsistencyOptions(**options)
    known, _ = answered(lambda known: plan_consistency("edival", sample, chain, known, chosen), door or Door())
    found = list(score_consistency(sample, chain, known, chosen))
    assert {score.metric for score in found} <= {metric.id for metric in consistency_metrics(chosen)}
    assert len({(score.metric, score.turn) for score in found}) == len(found)
    return {(score.metric, score.turn): score for score in found}


def told(found: dict[tuple[str, int], Score], name: str, turn: int = 1) -> tuple[Any, str | None, str]:
    score = found[name, turn]
    value = None if score.value is None else round(score.value, 6)
    return value, score.missing, score.reason


def test_content_is_the_mean_of_the_unchanged_objects_and_the_background() -> None:
    chain = remove_cup()
    # The cup is gone, which does not count; the jar changes from (5, 0, 0) to (3, 4, 0): cosine 0.6.
    after: dict[str, Json] = {"cup": [], "jar": JAR}
    sample = chain_sample(chain, scene(), scene(cup=False, jar=(120, 160, 0)), boxes=[BASE_BOXES, after])
    found = scores(sample, chain)
    assert told(found, "object_consistency") == (0.6, None, "")
    assert told(found, "background_consistency") == (1.0, None, "")
    assert told(found, "content_consistency") == (0.8, None, "")
    # |200 - 120| + |0 - 160| = 240 levels of 765.
    assert told(found, "object_l1")[0] == round(1 - 240 / 765, 6) and told(found, "background_l1")[0] == 1.0
    assert found["content_consistency", 1].dims == {
        "edit_type": "subject_remove", "mode": "multipass", "turns": 1, "compared": "objects and background",
    }  # fmt: skip
    assert found["object_consistency", 1].dims == {"edit_type": "subject_remove", "mode": "multipass", "turns": 1}
    assert found["alignment", 1].missing == "not_defined"
    # What a score rests on: its measure and the detections of its boxes.
    assert len(found["object_consistency", 1].findings) == 2 and len(found["background_l1", 1].findings) == 5


def test_identical_images_are_1_in_every_turn() -> None:
    chain = remove_cup((Edit(edit_type="color_alter", target="jar", new="blue"), pools(["cup", "jar", "blue jar"], [])))
    given: list[Json] = [BASE_BOXES, BASE_BOXES, {**BASE_BOXES, "blue jar": []}]
    given[0] = {**BASE_BOXES, "blue jar": []}
    sample = chain_sample(chain, scene(), scene(), scene(), boxes=given)
    found = scores(sample, chain)
    for name in ("object_consistency", "background_consistency", "content_consistency", "object_l1", "background_l1"):
        assert found[name, 1].value == 1.0
    # After turn 2 no object is unchanged: the background alone, and the score says so.
    assert told(found, "object_consistency", 2) == (None, "not_defined", "every object was edited")
    assert told(found, "content_consistency", 2) == (1.0, None, "no objects: every object was edited")
    assert found["content_consistency", 2].dims["compared"] == "background"
    assert found["content_consistency", 2].dims["turns"] == 2


def test_the_background_counts_until_an_edit_changes_it() -> None:
    chain = remove_cup((NEW_BACKGROUND, pools(["cup", "jar"], ["jar"], kept=False)))
    sample = chain_sample(chain, scene(), scene(), scene(ground=(0, 255, 0)), boxes=[BASE_BOXES] * 3)
    found = scores(sample, chain)
    assert told(found, "content_consistency") == (1.0, None, "")
    assert told(found, "background_consistency", 2) == (None, "not_defined", "the background was changed")
    assert told(found, "object_consistency", 2) == (1.0, None, "")
    assert told(found, "content_consistency", 2) == (1.0, None, "no background: the background was changed")
    assert found["content_consistency", 2].dims["compared"] == "objects"
    # The published code then compares no object either.
    found = scores(sample, chain, cc_rules="official")
    assert told(found, "content_consistency")[0] == 1.0
    assert told(found, "object_consistency", 2)[1:] == (
        "not_defined",
        "the background was changed, and the published code then compares no object",
    )
    assert found["content_consistency", 2].missing == "not_defined"


def test_no_box_is_no_value_unless_an_option_says_so() -> None:
    chain = remove_cup()
    boxes: list[Json] = [{"cup": CUP, "jar": []}, {"cup": [], "jar": []}]
    sample = chain_sample(chain, scene(), scene(), boxes=boxes)
    found = scores(sample, chain)
    why = "the one unchanged object was not found in the base image with a score of 0.35 or more: jar"
    assert told(found, "object_consistency") == (None, "not_defined", why)
    assert told(found, "object_l1") == (None, "not_defined", why)
    assert told(found, "content_consistency") == (1.0, None, f"no objects: {why}")
    found = scores(sample, chain, cc_no_box="zero")
    assert told(found, "object_consistency") == (0.0, None, f"{why}; it counts 0 by cc_no_box=zero")
    assert found["object_l1", 1].value == 0.0
    assert told(found, "content_consistency")[0] == 0.5


def test_boxes_that_cover_the_image_leave_no_background() -> None:
    chain = remove_cup()
    boxes: list[Json] = [{"cup": [[0, 0, 64, 40]], "jar": [[0, 30, 64, 64]]}, {"cup": [], "jar": []}]
    sample = chain_sample(chain, scene(), scene(jar=(30, 40, 0)), boxes=boxes)
    found = scores(sample, chain)
    why = "boxes cover all of the image (2), so no background is left"
    assert told(found, "background_consistency") == (None, "not_defined", why)
    assert told(found, "background_l1") == (None, "not_defined", why)
    assert found["content_consistency", 1].value == found["object_consistency", 1].value
    assert told(found, "content_consistency")[2] == f"no background: {why}"


def test_an_output_of_another_size_is_compared_at_the_same_places() -> None:
    chain = remove_cup()
    large = scene().repeat(24, axis=0).repeat(16, axis=1)
    assert large.shape == (1536, 1024, 3)
    sample = chain_sample(chain, scene(), large, boxes=[BASE_BOXES, {"cup": [[0, 0, 512, 768]], "jar": []}])
    known, _ = answered(lambda known: plan_consistency("edival", sample, chain, known, ConsistencyOptions()), Door())
    found = {s.metric: s for s in score_consistency(sample, chain, known, ConsistencyOptions())}
    for name in ("object_consistency", "background_consistency", "content_consistency", "object_l1", "background_l1"):
        assert found[name].value == pytest.approx(1.0, abs=1e-6)
    told = "the edited image has 1024×1536 px, the source 64×64 px and another shape"
    assert told in next(f.reason for f in known.of("object_consistency", sample))


def test_a_chain_is_judged_to_its_first_missing_output() -> None:
    edit = Edit(edit_type="subject_add", new="pan")
    ever = pools(["cup", "jar", "pan"], ["jar"])
    chain = remove_cup((edit, ever), (edit, ever))
    sample = chain_sample(chain, scene(), scene(), None, scene(), boxes=[BASE_BOXES, BASE_BOXES, None, None])
    found = scores(sample, chain)
    assert found["content_consistency", 1].value == 1.0
    for name in ("object_consistency", "background_l1", "content_consistency", "alignment"):
        assert told(found, name, 2) == (None, "missing_output", "the output of turn 2 is missing")
        behind = "the output of turn 2 is missing, and a chain is judged up to its first missing output"
        assert told(found, name, 3) == (None, "missing_output", behind)


def test_without_a_detector_nothing_is_made_up() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene())
    found = scores(sample, chain)
    for name in ("object_consistency", "object_l1"):
        status, reason = found[name, 1].missing, found[name, 1].reason
        assert status == "not_defined" and reason.startswith("'jar' could not be looked for in the base image: it needs")
    assert found["content_consistency", 1].value is None
    # Nor is the content the objects alone where the background could not be looked for.
    edited = scene().copy()
    edited[0, 0] = 255 - edited[0, 0]
    sample = chain_sample(chain, scene(), edited, boxes=[BASE_BOXES, None])
    found = scores(sample, chain)
    assert found["object_consistency", 1].value == 1.0
    why = "'cup' could not be looked for in the image after turn 1: it needs a model of the kind detect"
    for name in ("background_consistency", "content_consistency"):
        assert told(found, name) == (None, "not_defined", why)


def test_without_an_encoder_pixels_are_still_compared() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene(), boxes=[BASE_BOXES, BASE_BOXES])
    found = scores(sample, chain, Door("none"))
    assert found["object_l1", 1].value == found["background_l1", 1].value == 1.0
    assert found["content_consistency", 1].missing == "not_defined"
    assert "it needs a model of the kind dino" in found["content_consistency", 1].reason
    # Asked for alone, pixels need no encoder and have no content consistency.
    found = scores(sample, chain, Door("none"), cc="l1")
    assert {name for name, _ in found} == {"object_l1", "background_l1", "alignment"}
    assert not scores(sample, chain, cc="none") and not consistency_metrics(ConsistencyOptions(cc="none"))


def test_only_boxes_of_the_score_count_and_every_one_of_them() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene())

    class Detector:
        name, version = "scripted", "1"

        def __call__(self, images: Sequence[RGB], phrase: str, **thresholds: float) -> list[Any]:
            from editloupe.models.detect.base import Detection, DetectionResult
            from editloupe.values import Box

            rows = {"jar": [(0.9, (32, 32, 64, 64)), (0.35, (0, 32, 32, 64)), (0.349, (0, 0, 9, 9))], "cup": []}[phrase]
            seen = tuple(Detection(box=Box(*box), score=score, label=phrase) for score, box in rows)
            return [DetectionResult(detections=seen, width=64, height=64)]

    class Both(Door):
        def get(self, kind: str) -> Any:
            return Detector() if kind == "detect" else Drawn()

    _, tasks = answered(lambda known: plan_consistency("edival", sample, chain, known, ConsistencyOptions()), Both())
    measures = {task.metric: task for task in tasks if task.about.turn == 1}
    jar: list[Json] = [[500, 500, 1000, 1000], [0, 500, 500, 1000]]
    assert measures["object_consistency"].args == {"boxes": jar}
    assert measures["background_l1"].args == {"source_boxes": jar, "edited_boxes": jar}
    assert len(measures["object_l1"].rests_on) == 1 and len(measures["background_l1"].rests_on) == 4


def looked_for(chain: Chain, sample: Sample, **options: Any) -> set[tuple[int, str]]:
    chosen = ConsistencyOptions(**options)
    _, tasks = answered(lambda known: plan_consistency("edival", sample, chain, known, chosen), Door())
    return {(task.about.turn, task.about.part) for task in tasks if task.metric == "detections"}


def test_an_added_text_is_looked_for_as_text() -> None:
    edit = Edit(edit_type="text_change", new="LAMB")
    chain = Chain(mode="singlepass", edits=(edit,), pools=(pools(["jar", "LAMB"], ["jar"]),))
    sample = chain_sample(chain, scene(), scene())
    assert looked_for(chain, sample) == {(0, "base: jar"), (0, "base: text"), (1, "after: jar"), (1, "after: text")}
    assert (1, "after: lamb") in looked_for(chain, sample, cc_rules="official")


def test_one_prompt_of_several_edits_is_one_turn() -> None:
    edits = (Edit(edit_type="subject_remove", target="cup"), NEW_BACKGROUND)
    after = (pools(["cup", "jar"], ["jar"]), pools(["cup", "jar"], ["jar"], kept=False))
    chain = Chain(mode="singlepass", edits=edits, pools=after)
    sample = chain_sample(chain, scene(), scene(), boxes=[BASE_BOXES, BASE_BOXES])
    found = scores(sample, chain)
    assert {turn for _, turn in found} == {1}
    # The pools are those after the last edit.
    assert told(found, "background_consistency") == (None, "not_defined", "the background was changed")
    dims = {"edit_type": "background_change", "mode": "singlepass", "turns": 2, "compared": "objects"}
    assert found["content_consistency", 1].dims == dims


def test_options_are_in_the_measures_they_change_and_in_no_other() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene(), boxes=[BASE_BOXES, BASE_BOXES])

    def args(**options: Any) -> dict[str, set[str]]:
        chosen = ConsistencyOptions(**options)
        _, tasks = answered(lambda known: plan_consistency("edival", sample, chain, known, chosen), Door())
        return {task.metric: set(task.args) for task in tasks if task.metric != "detections"}

    plain = args()
    assert plain["object_consistency"] == plain["object_l1"] == {"boxes"}
    official = args(cc_tokens="official", cc_bars="leave_out")
    assert official["object_consistency"] == {"boxes", "tokens", "bars"} and official["object_l1"] == {"boxes", "bars"}
    assert official["background_consistency"] == {"source_boxes", "edited_boxes", "tokens", "bars"}


def test_a_cosine_below_0_counts_0_and_the_finding_keeps_it() -> None:
    chain = remove_cup()
    sample = chain_sample(chain, scene(), scene(jar=(100, 0, 0)), boxes=[BASE_BOXES, BASE_BOXES])

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

    chosen = ConsistencyOptions(cc="dino")
    known, _ = answered(lambda known: plan_consistency("edival", sample, chain, known, chosen), Turned())
    found = {s.metric: s for s in score_consistency(sample, chain, known, chosen)}
    cosine = known.of("object_consistency", sample)[0].answer
    assert cosine is not None and cosine.value == pytest.approx(-1)
    assert (found["object_consistency"].value, found["object_consistency"].reason) == (
        0.0,
        "the cosine is -1.000 and counts 0",
    )
