"""EdiVal-VQ: what is measured of which image, and what an image without a value counts."""

from __future__ import annotations

from typing import Any

import pytest

from editloupe.data.images import RGB
from editloupe.errors import Unavailable
from editloupe.models.preference.base import Preferred
from editloupe.protocols.edival.quality import QualityOptions, plan_quality, quality_metrics, score_quality
from editloupe.scores import Score
from editloupe.tasks import Measure
from editloupe.values import Sample
from tests.measures.test_consistency import flat
from tests.protocols.edival_answers import answered, chain_sample
from tests.protocols.test_edival_consistency import NEW_BACKGROUND, Door, pools, remove_cup

CHAIN = remove_cup((NEW_BACKGROUND, pools(["cup", "jar"], ["jar"], kept=False)))


class Likes:
    """Likes red: the mean is the red of the first pixel by 10, and a tenth a letter of the prompt."""

    name, version = "likes", "1"

    def __call__(self, rgb: RGB, prompt: str) -> Preferred:
        if rgb[0, 0, 2] == 77:
            raise Unavailable("out of order")
        return Preferred(mean=float(rgb[0, 0, 0]) / 10 + 0.1 * len(prompt), sigma=1.0)

    def get(self, kind: str) -> Likes:
        assert kind == "preference"
        return self


def measured(sample: Sample, door: Any = None, **options: Any) -> tuple[dict[Any, Score], list[Measure]]:
    chosen = QualityOptions(**{"quality": "all", **options})
    known, tasks = answered(lambda known: plan_quality("edival", sample, CHAIN, known, chosen), door or Likes())
    found = list(score_quality(sample, CHAIN, known, chosen))
    assert {score.metric for score in found} == {metric.id for metric in quality_metrics(chosen)}
    return {(score.metric, score.turn): score for score in found}, tasks


def of_levels(*levels: int) -> Sample:
    """A chain of grey images."""
    return chain_sample(CHAIN, *(flat(level, level, level) for level in levels))


def test_each_image_has_its_values_and_its_change_from_the_base_image() -> None:
    sample = chain_sample(CHAIN, flat(128, 128, 128), flat(255, 255, 255), flat(255, 0, 0))
    found, tasks = measured(sample)
    assert len(tasks) == 6
    # White after grey: 1 and 1 - 0.21586; red is 0.2126.
    assert found["luminance_p999", 1].value == 1.0
    assert found["luminance_p999_change", 1].value == pytest.approx(0.78414, abs=1e-5)
    assert found["luminance_p99", 2].value == pytest.approx(0.2126, abs=1e-6)
    assert found["luminance_p99_change", 2].value == pytest.approx(0.00326, abs=1e-5)
    assert (found["saturation", 1].value, found["saturation_change", 2].value) == (0.0, 1.0)
    assert (found["preference", 1].value, found["preference_change", 1].value) == (25.5, pytest.approx(12.7))
    assert found["contrast", 2].value == found["sharpness", 2].value == 0.0
    assert found["preference", 2].dims == {"edit_type": "background_change", "mode": "multipass", "turns": 2}
    assert len(found["preference", 2].findings) == 1 and len(found["preference_change", 2].findings) == 2


def test_luminance_of_levels_is_an_option() -> None:
    found, _ = measured(of_levels(128, 128, 0), quality="statistics", luminance="gamma")
    assert found["luminance_p99", 1].value == pytest.approx(128 / 255) and found["luminance_p99_change", 1].value == 0.0


def test_the_prompt_is_empty_for_all_unless_the_instruction_is_asked_for() -> None:
    found, _ = measured(of_levels(10, 10, 10), quality="preference")
    assert found["preference_change", 1].value == 0.0
    # "edit 1" has 6 letters; the base image's prompt stays empty, as in the published code.
    found, tasks = measured(of_levels(10, 10, 10), quality="preference", preference_prompt="instruction")
    assert found["preference_change", 1].value == pytest.approx(0.6)
    assert [task.args["prompt"] for task in tasks] == ["", "edit 1", "edit 2"]


def test_an_image_of_another_size_is_brought_to_the_base_images() -> None:
    sample = chain_sample(CHAIN, flat(9, 9, 9), flat(9, 9, 9, width=1024, height=1536), flat(9, 9, 9))
    _, tasks = measured(sample, quality="statistics")
    assert [task.args.get("size") for task in tasks] == [None, [64, 64], None]


def test_what_is_missing_says_why() -> None:
    sample = chain_sample(CHAIN, flat(0, 0, 0), flat(255, 0, 77), None)
    found, tasks = measured(sample)
    # A black image has neither saturation nor contrast.
    for metric in ("saturation", "contrast"):
        score = found[f"{metric}_change", 1]
        assert (score.missing, score.reason) == (
            "not_defined", f"the base image: no {metric} is known: an image that is dark all over has none",
        )  # fmt: skip
        assert found[metric, 1].value is not None
    assert (found["preference", 1].missing, found["preference", 1].reason) == ("backend_failed", "out of order")
    assert found["preference_change", 1].missing == "backend_failed"
    for metric in ("preference", "luminance_p99", "luminance_p99_change"):
        assert (found[metric, 2].missing, found[metric, 2].reason) == ("missing_output", "the output of turn 2 is missing")
    assert [task.blocked is not None for task in tasks] == [False] * 4 + [True] * 2


def test_without_a_model_preference_is_absent_and_statistics_are_not() -> None:
    found, _ = measured(of_levels(9, 9, 9), door=Door("none"))
    told = "it needs a model of the kind preference"
    assert (found["preference", 1].missing, found["preference", 1].reason) == ("not_defined", told)
    assert found["luminance_p99", 1].value is not None
    assert measured(of_levels(9, 9, 9), quality="none") == ({}, [])
