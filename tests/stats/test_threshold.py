"""The detection threshold: hand-worked crossings, what is said where there is none, and how often intervals hold it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from editloupe.stats.threshold import Threshold, detection_threshold

AREAS = (0.001, 0.01, 0.1)


def of(counts: Sequence[tuple[int, int]], areas: Sequence[float] = AREAS) -> Threshold:
    """The threshold of (right, asked) at each area."""
    hits = [i < right for right, asked in counts for i in range(asked)]
    places = [area for area, (_, asked) in zip(areas, counts, strict=True) for _ in range(asked)]
    return detection_threshold(hits, places, range(len(hits)))


def test_the_threshold_lies_between_two_areas_where_the_line_crosses() -> None:
    found = of([(0, 40), (20, 40), (40, 40)])
    # 50 % at 1 %, 100 % at 10 %: 75 % half way in the logarithm, at 10^-1.5 = 3.162 %.
    assert found.outcome == "found" and found.value == pytest.approx(10**-1.5)
    # 20 of 40 against 75 %: 2 · (20 ln(.5/.75) + 20 ln(.5/.25)) = 11.5 > 3.84; 40 of 40: 2 · 40 · ln(4/3) = 23 > 3.84.
    assert (found.low, found.high) == (0.01, 0.1)


def test_where_accuracy_falls_with_the_area_there_is_no_threshold() -> None:
    # Pooled 40 of 60: 40 ln(2/3) + 20 ln(1/3) = -38.2. As it falls: 2 · (15 ln(3/4) + 5 ln(1/4)) = -22.5, and
    # 2 · 15.7 > 3.84.
    found = of([(20, 20), (15, 20), (5, 20)])
    assert (found.outcome, found.value, found.why) == ("falls", None, "accuracy falls with the area")
    # 16, 15 and 14 of 20 could as well be of a curve that rises: pooled they are 75 %.
    assert of([(16, 20), (15, 20), (14, 20)]).outcome == "always_above"
    # Where all are above the level, a fall changes nothing.
    assert of([(40, 40), (40, 40), (32, 40)]).outcome == "always_above"


def test_a_judge_that_is_always_right_has_a_bound() -> None:
    found = of([(20, 20), (20, 20), (20, 20)])
    # 20 of 20 against 75 %: 2 · 20 · ln(4/3) = 11.5 > 3.84.
    assert (found.outcome, found.value, found.low, found.high, found.smallest) == ("always_above", None, None, 0.001, 0.001)


@pytest.mark.parametrize(
    ("hits", "areas", "why"),
    [
        ([], [], "0 judged; a threshold needs 20"),
        ([None] * 30, [0.1] * 30, "0 judged; a threshold needs 20"),
        ([True] * 19, [0.1] * 19, "19 judged; a threshold needs 20"),
        ([True] * 30, [0.1] * 30, "all have one area"),
    ],
)
def test_too_few_probes_have_no_threshold(hits: list[bool | None], areas: list[float], why: str) -> None:
    found = detection_threshold(hits, areas, range(len(hits)))
    assert (found.outcome, found.value, found.low, found.high, found.why) == ("too_few", None, None, None, why)


def test_items_of_one_scene_widen_the_interval() -> None:
    hits = [i < 30 for _ in AREAS for i in range(40)]
    areas = [area for area in AREAS for _ in range(40)]
    alone = detection_threshold(hits, areas, range(120))
    # All right or all wrong in a scene of ten: four scenes an area.
    scenes = detection_threshold(hits, areas, [i // 10 for i in range(120)])
    one = detection_threshold(hits, areas, ["scene"] * 120)
    assert alone.outcome == scenes.outcome == one.outcome == "always_above"
    assert (one.low, one.high) == (None, None)
    assert scenes.high is None or (alone.high is not None and scenes.high >= alone.high)


def test_the_interval_is_widened_by_the_design_effect_of_scenes() -> None:
    hits = [i < right for right in (0, 20, 40) for i in range(40)]
    found = detection_threshold(hits, [area for area in AREAS for _ in range(40)], [i // 5 for i in range(120)])
    # Five equal answers a scene. Those at 1 % are ±.5 off the curve: eight sums of ±2.5 make 8 · 2.5² / (40 · .5²) = 5.
    # The limit is 5 · t(23)² = 5 · 2.069² = 21.4: over 11.5, which held 1 %, under 2 · 40 · ln 4 = 111 and 23.0.
    assert (found.value, found.low, found.high) == (pytest.approx(10**-1.5), 0.001, 0.1)


CURVES = {
    "step": (0.2, 0.2, 0.2, 0.9, 0.9, 0.9),
    "rising": (0.05, 0.1, 0.6, 0.8, 0.95, 0.97),
    "plateau at the level": (0.5, 0.6, 0.7, 0.74, 0.8, 0.9),
    "always": (0.8, 0.85, 0.9, 0.95, 1.0, 1.0),
    "never": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("n", [6, 30])
def test_intervals_hold_the_planted_threshold(name: str, n: int) -> None:
    areas = np.array([0.0005, 0.001, 0.003, 0.01, 0.03, 0.1])
    p, rng, held = np.array(CURVES[name]), np.random.default_rng(n), 0
    gap = int((p < 0.75).sum())
    low, high = (None if gap == 0 else areas[gap - 1]), (None if gap == len(p) else areas[gap])
    for _ in range(200):
        hits = (rng.random((len(p), n)) < p[:, None]).ravel()
        found = detection_threshold(list(hits), list(np.repeat(areas, n)), range(len(hits)))
        held += (found.low is None or (low is not None and found.low <= low)) and (
            found.high is None or (high is not None and found.high >= high)
        )
    # Binomial(200, 0.95) lies below 181 with a probability of 0.3 %.
    assert held >= 181
