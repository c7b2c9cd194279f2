"""CLIP-I and CLIP-T with patched areas: what is planned when, which pixels are measured, and why a score is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import MeasureError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.measures.base import Models, measured
from editloupe.protocols.base import Known
from editloupe.protocols.dice.differences import Difference
from editloupe.protocols.dice.patching import (
    PATCHES,
    Areas,
    PatchOptions,
    boxes_of,
    patch_metrics,
    plan_patches,
    score_patches,
)
from editloupe.scores import Score
from editloupe.tasks import Measure
from editloupe.values import Box, Json, Sample, Turn
from tests.imaging.drawn import textured, with_square

STORE = ImageStore()
BASE = textured(160, 120)
ASKED, UNASKED = (16, 24, 48, 60), (80, 60, 144, 96)
"""px of a picture of 160×120: what was asked for, and what was not."""
EDITED = with_square(with_square(BASE, ASKED), UNASKED, (20, 20, 250))
ALL = PatchOptions.model_validate({"patch": ",".join(PATCHES)})
CAPTION = "a red cup"


def unit(box: tuple[int, int, int, int]) -> Box:
    return Box(*Box(*box).to_unit(width=160, height=120))


FOUND = (Difference(op="ADD", box=unit(ASKED)), Difference(op="EDIT", box=unit(UNASKED)))
AREAS = Areas(differences=FOUND, coherent=(True, False), detection=("d",), coherence=("c1", "c2"))


def sample_of(edited: RGB | None = EDITED, **extra: Json) -> Sample:
    turn = Turn(instruction="add a cup", edited=None if edited is None else STORE.add_array(edited))
    return Sample(id="0", source=STORE.add_array(BASE), turns=(turn,), extra=extra)


SAMPLE = sample_of(target_caption=f" {CAPTION}\n")


def tasks(areas: Areas = AREAS, sample: Sample = SAMPLE, options: PatchOptions = ALL) -> dict[str, Measure]:
    return {task.metric: task for task in plan_patches("dice", sample, areas, options)}


def pictures(task: Measure) -> dict[str, RGB]:
    return {view.alias: STORE.array(make_view(view, STORE).image) for view in task.views}


def answer(task: Measure, door: Any) -> Finding:
    def of(status: Any, **more: Any) -> Finding:
        return Finding.of(task, judge_id="j", repeat=0, status=status, ending="measure", **more)

    if task.blocked is not None:
        return of(task.blocked[0], reason=task.blocked[1])
    try:
        found = measured(task.measure, task.args, pictures(task), door)
    except MeasureError as error:
        return of(error.status, reason=str(error))
    return of("ok", answer=found.answer)


class Means:
    """CLIP whose vectors are mean colours, and of a text always the same red."""

    name = "drawn"

    def get(self, kind: str) -> Any:
        return {"clip": self, "clip_text": lambda texts: [np.array([1, 0, 0], np.float32)] * len(texts)}[kind]

    def __call__(self, images: Sequence[RGB], patches: Sequence[Any]) -> list[Any]:
        return [image.mean((0, 1)).astype(np.float32) for image in images]


def scores(found: dict[str, Measure], areas: Areas = AREAS, sample: Sample = SAMPLE, door: Any = None) -> dict[str, Score]:
    known = Known(answer(task, door or Means()) for task in found.values())
    return {score.metric: score for score in score_patches(sample, known, areas, ALL)}


def test_what_is_planned_follows_from_what_is_known() -> None:
    assert list(tasks(Areas())) == ["clip_i_none", "clip_t_none"]
    found = tasks(Areas(differences=FOUND, detection=("d",)))
    assert [name for name in found if name.startswith("clip_i")] == ["clip_i_none", "clip_i_all", "clip_i_random"]
    assert found["clip_i_all"].rests_on == ("d",) and found["clip_i_none"].rests_on == ()
    assert list(tasks()) == [f"{kind}_{patch}" for patch in PATCHES for kind in ("clip_i", "clip_t")]
    assert tasks()["clip_t_incoherent"].rests_on == ("d", "c1", "c2")
    # What was planned earlier is the same task later.
    assert all(tasks()[name].id == task.id for name, task in found.items())
    assert {metric.id for metric in patch_metrics(ALL)} == set(tasks())
    assert list(tasks(options=PatchOptions())) == [] == patch_metrics(PatchOptions())


@pytest.mark.parametrize(("patch", "boxes"), [("none", []), ("coherent", [ASKED]), ("incoherent", [UNASKED]),
                                              ("all", [ASKED, UNASKED])])  # fmt: skip
def test_boxes_have_the_mean_colour_of_the_source_in_both_images(
    patch: str, boxes: list[tuple[int, int, int, int]]
) -> None:
    mean = [round(float(v)) for v in BASE.reshape(-1, 3).mean(0)]
    shown = pictures(tasks()[f"clip_i_{patch}"])
    for alias, own in (("source", BASE), ("edited", EDITED)):
        expected = own.copy()
        for x0, y0, x1, y1 in boxes:
            expected[y0:y1, x0:x1] = mean
        assert np.array_equal(shown[alias], expected), alias
    text = tasks()[f"clip_t_{patch}"]
    assert text.args == {"text": CAPTION} and text.measure == "clip_text_similarity"
    (edited,) = pictures(text).values()
    assert np.array_equal(edited, shown["edited"])


def test_random_areas_have_the_sizes_of_the_differences_and_the_same_places_each_time() -> None:
    found = boxes_of("random", SAMPLE, AREAS)
    assert found is not None and found == boxes_of("random", SAMPLE, AREAS)
    for moved, one in zip(found, FOUND, strict=True):
        assert (moved.width, moved.height) == pytest.approx((one.box.width, one.box.height))
        assert min(moved) >= 0 and max(moved) <= 1 and moved != one.box
    assert found != boxes_of("random", sample_of(BASE), AREAS)
    whole = Areas(differences=[Difference(op="EDIT", box=Box(0, 0, 1, 1))])
    assert boxes_of("random", SAMPLE, whole) == [Box(0, 0, 1, 1)]


def test_in_an_edited_image_of_another_size_a_place_has_the_same_share_of_the_sides() -> None:
    large = np.repeat(np.repeat(EDITED, 2, 0), 3, 1)
    found = pictures(tasks(sample=sample_of(large))["clip_i_all"])
    mean = np.array([round(float(v)) for v in BASE.reshape(-1, 3).mean(0)])
    x0, y0, x1, y1 = UNASKED
    assert (found["edited"][2 * y0 : 2 * y1, 3 * x0 : 3 * x1] == mean).all()
    assert np.array_equal(found["edited"][: 2 * ASKED[1]], large[: 2 * ASKED[1]])


def test_scores_and_the_reasons_for_missing_ones() -> None:
    found = scores(tasks())
    # Nothing but the two areas differs.
    assert found["clip_i_all"].value == pytest.approx(1.0)
    none = found["clip_i_none"].value
    assert none is not None and none < 0.999
    # (r, g, b) · (1, 0, 0) / |(r, g, b)| of the mean colour of the patched image.
    r, g, b = pictures(tasks()["clip_t_all"])["edited"].mean((0, 1))
    assert found["clip_t_all"].value == pytest.approx(r / (r * r + g * g + b * b) ** 0.5, abs=1e-6)
    assert found["clip_t_all"].findings == (tasks()["clip_t_all"].id, "d")

    failed = Areas(missing=("refused", "the detector would not"), detection=("d",))
    found = scores(tasks(failed), failed)
    assert found["clip_i_none"].value == none
    assert {(found[f"clip_i_{p}"].missing, found[f"clip_i_{p}"].reason) for p in PATCHES[1:]} == {
        ("refused", "the detector would not")
    }
    half = replace(AREAS, coherent=None, missing=("unparsed", "difference 2"))
    found = scores(tasks(half), half)
    assert found["clip_i_all"].value == pytest.approx(1.0)
    assert found["clip_i_coherent"].missing == found["clip_t_incoherent"].missing == "unparsed"
    assert scores({}, Areas())["clip_i_all"].missing == "not judged yet"


def test_without_a_caption_there_is_no_clip_t_and_without_an_output_no_value() -> None:
    for sample in (sample_of(), sample_of(target_caption=" "), sample_of(target_caption=3)):
        assert {name[:6] for name in tasks(sample=sample)} == {"clip_i"} == {name[:6] for name in scores({}, sample=sample)}
    gone = sample_of(None, target_caption=CAPTION)
    failed = Areas(missing=("missing_output", "there is no edited image for this sample"))
    found = scores(tasks(failed, gone), failed, gone)
    assert len(found) == 10 and {score.missing for score in found.values()} == {"missing_output"}


def test_without_weights_there_is_no_value() -> None:
    found = scores(tasks(), door=Models(device="cpu"))
    assert {score.missing for score in found.values()} == {"not_defined"}


def test_an_unknown_patch_is_named() -> None:
    with pytest.raises(ValidationError, match="found 'everything'"):
        PatchOptions.model_validate({"patch": "none,everything"})
    with pytest.raises(ValueError):
        boxes_of("coherent", SAMPLE, replace(AREAS, coherent=(True,)))
