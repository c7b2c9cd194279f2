"""Tests of no difference between two judges: by hand, held to SciPy, and how often they reject where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from editloupe.stats.significance import pearson, sign_flips, signed_ranks


def alone(nets: Sequence[int], *, both: int = 0) -> tuple[list[int], list[str]]:
    """Outcomes and source images: of image i, |nets[i]| samples on which one judge alone is right, and `both` others."""
    outcomes = [n for net in nets for n in [*([1 if net > 0 else -1] * abs(net)), *([0] * both)]]
    return outcomes, [f"source {i}" for i, net in enumerate(nets) for _ in range(abs(net) + both)]


@pytest.mark.parametrize(
    ("nets", "p"),
    [
        # 2² flips of (3, 1): sums 4, 2, −2, −4; two of four are as far from 0 as 4.
        ([3, 1], 2 / 4),
        # 2² flips of (3, −1): all four sums are as far from 0 as 2.
        ([3, -1], 1.0),
        # 2³ flips of (4, 2, −1): ±7, ±5, ±3, ±1; |5| or more: ±7 and ±5.
        ([4, 2, -1], 4 / 8),
        # Twelve of twelve samples, but six source images only: 2 of 2⁶, where McNemar's test has 2 of 2¹².
        ([2] * 6, 2 / 64),
    ],
)
def test_a_few_source_images_by_hand(nets: list[int], p: float):
    found = sign_flips(*alone(nets, both=3))
    assert found.p == pytest.approx(p, rel=1e-12)
    assert (found.n, found.why) == (len(nets), "")


@pytest.mark.parametrize(("first", "second"), [(5, 1), (1, 1), (8, 0), (3, 3), (30, 12), (0, 2), (700, 640)])
def test_with_one_edit_a_source_image_it_is_mcnemars_exact_test(first: int, second: int):
    found = sign_flips(*alone([1] * first + [-1] * second))
    assert found.p == pytest.approx(stats.binomtest(first, first + second).pvalue, rel=1e-9)


def test_without_two_source_images_that_differ_there_is_no_p():
    none = sign_flips([0, 0, 0], ["a", "a", "b"])
    assert (none.p, none.n, none.why) == (None, 0, "they are right on the same samples")
    # Nine of nine, but of one image: nobody knows what another image would say.
    one = sign_flips([1] * 9 + [0], ["a"] * 9 + ["b"])
    assert (one.p, one.n, one.why) == (None, 1, "one alone is right on samples of 1 source image only; 2 are needed")
    assert sign_flips([], []).p is None


def test_signed_ranks_are_of_source_images():
    # Eight differences on four sources: their means differ, but four are too few.
    few = signed_ranks([1.0, 1.0] * 4, [str(i // 2) for i in range(8)])
    assert (few.p, few.why) == (None, "4 of 4 source images differ; 6 are needed")
    differences = [1.0, 3.0, 2.0, 2.0, -1.0, 0.0, 4.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0]
    found = signed_ranks(differences, [str(i // 2) for i in range(14)])
    # Means 2, 2, −0.5, 4, 5.5, 7.5 and 0, which says nothing.
    assert found.n == 6
    assert found.p == pytest.approx(stats.wilcoxon([2, 2, -0.5, 4, 5.5, 7.5]).pvalue)


def test_of_few_tied_ranks_all_flips_count():
    # Ranks 2, 2, 2, 4.5, 4.5, 6; against the rest stands 2. No more than 2 have the empty set and three of one: 4 of 64
    # flips, and as many on the other side.
    assert signed_ranks([1, 1, -1, 2, 2, 3], range(6)).p == 8 / 64
    # Ranks 2.5 four times, 5, 7 three times; against the rest stand 5 + 7. No more than 12 have 16 sets without 5 and 7,
    # 3 · 11 with one 7 alone, 11 with 5 alone, 3 with both.
    assert signed_ranks([-2, 1, 1, 1, 1, 3, 3, -3], range(8)).p == 2 * 63 / 256


@pytest.mark.parametrize("moved", [[1, 2, 3, 4, 5, 6, -7], [1, -1] * 7])
def test_of_others_the_p_is_scipys(moved: list[int]):
    assert signed_ranks(moved, range(len(moved))).p == stats.wilcoxon(moved).pvalue


@pytest.mark.parametrize("count", [3, 5, 40, 1889])
def test_pearsons_r_and_p_are_those_of_scipy(count: int):
    rng = np.random.default_rng(count)
    x, y = rng.normal(size=count), rng.normal(size=count)
    expected = stats.pearsonr(x, y)
    assert pearson(x.tolist(), y.tolist()) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
