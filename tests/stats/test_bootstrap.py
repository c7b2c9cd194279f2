"""Intervals, means with their coverage, and averages of correlations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from editloupe.stats.bootstrap import Drawing, Undefined, average, draws, mean


def test_a_mean_says_how_much_was_judged_of_what_was_asked():
    found = mean([0.0, 100.0, None, 50.0], ["a", "a", "b", "c"])
    assert found.value == 50.0
    assert (found.judged, found.asked, found.clusters) == (3, 4, 2)


def test_nothing_judged_has_no_mean_and_says_so():
    found = mean([None, None], ["a", "b"])
    assert found.value is None and found.low is None
    assert found.why == "nothing was judged"
    assert mean([], []).why == "nothing was asked"


def test_two_clusters_are_drawn_as_pairs():
    """Clusters a (0, 0) and b (6): resamples aa, ab, ba, bb have the means 0, 2, 2, 6: the middle 95 % is 0 to 6."""
    found = mean([0.0, 0.0, 6.0], ["a", "a", "b"])
    assert found.value == 2.0
    assert found.low is not None and found.high is not None
    assert (found.low, found.high) == (0.0, 6.0)


def test_the_interval_of_a_mean_is_that_of_theory():
    """1,000 clusters of one value each: mean ± 1.96 · sd / sqrt(1000)."""
    x = np.random.default_rng(1).normal(50, 10, 1000)
    found = mean(list(x), range(1000))
    half = 1.96 * x.std() / math.sqrt(1000)
    assert found.low is not None and found.high is not None
    assert found.low == pytest.approx(x.mean() - half, abs=0.1)
    assert found.high == pytest.approx(x.mean() + half, abs=0.1)


def test_a_macro_mean_weighs_groups_equally():
    """Group p has mean (0 + 0 + 3) / 3 = 1, group q 5: (1 + 5) / 2 = 3, where the mean of all is 8 / 4 = 2."""
    values = [0.0, 0.0, 3.0, 5.0]
    assert mean(values, "abcd", groups="pppq").value == 3.0
    assert mean(values, "abcd").value == 2.0


def test_a_group_that_most_resamples_lose_leaves_no_interval():
    """q lies in one of 4 clusters, which a resample misses with (3/4)^4 = 0.32."""
    assert mean([0.0, 0.0, 3.0, 5.0], "abcd", groups="pppq").low is None


@pytest.mark.parametrize("count", [1, 3, 333, 70_001])
def test_draws_are_those_of_one_call_of_the_generator(count: int):
    picked = np.random.default_rng(5).integers(count, size=(20, count))
    assert all(
        np.array_equal(np.bincount(p, minlength=count), d)
        for p, d in zip(picked, draws(count, Drawing(resamples=20, seed=5)), strict=True)
    )


def test_three_averages_of_correlations():
    """r = 0 and 0.8: mean 0.4; tanh 0.4 = 0.37995; arctanh 0.8 = ln 3, half of it tanh(0.54931) = (√9−1)/(√9+1) = 0.5."""
    assert average([0.0, 0.8], "mean") == pytest.approx(0.4)
    assert average([0.0, 0.8], "tanh-mean") == pytest.approx(0.37995, abs=1e-5)
    assert average([0.0, 0.8]) == pytest.approx(0.5)


@pytest.mark.parametrize("values", [[], [1.0, 0.2], [-1.0]])
def test_an_average_that_does_not_exist_says_why(values: list[float]):
    with pytest.raises(Undefined):
        average(values)
