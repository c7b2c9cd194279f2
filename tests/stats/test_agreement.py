"""Figures of agreement between two readings, against numbers worked by hand and against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from editloupe.stats.agreement import (
    Cells,
    LabelScale,
    Paired,
    confusion,
    figures,
)
from editloupe.stats.bootstrap import Drawing, draws
from editloupe.stats.weighted import CORRELATIONS

FOUR = LabelScale(values=(1, 2, 3, 4), names=("a", "b", "c", "d"))


def paired(x: list[float | None], y: list[float | None]) -> Paired:
    return Paired.of(x, y, list(range(len(x))))


def test_correlations_with_ties_by_hand():
    """x = 1 2 2 3, y = 1 3 2 3.

    Pearson: dx = −1 0 0 1, dy = −1.25 0.75 −0.25 0.75: 2 / sqrt(2 · 2.75) = 0.85280.
    Spearman: ranks 1 2.5 2.5 4 and 1 3.5 2 3.5; d = −1.5 0 0 1.5 and −1.5 1 −0.5 1: 3.75 / sqrt(4.5 · 4.5) = 0.83333.
    Kendall: pairs 12+ 13+ 14+ 23 (tied in x) 24 (tied in y) 34+: 4 / sqrt(5 · 5) = 0.8.
    """
    found = figures(paired([1, 2, 2, 3], [1, 3, 2, 3]))
    assert found["pearson"].value == pytest.approx(0.85280, abs=1e-5)
    assert found["spearman"].value == pytest.approx(0.83333, abs=1e-5)
    assert found["kendall"].value == pytest.approx(0.8)


def test_errors_by_hand():
    """Differences 1, 0, −2: mean size 1, mean −1/3: the judge is the stricter one."""
    found = figures(paired([2, 2, 1], [1, 2, 3]))
    assert found["mae"].value == pytest.approx(1)
    assert found["bias"].value == pytest.approx(-1 / 3)
    assert found["mae"].adjusted is None


def test_kappa_exact_match_and_alpha_by_hand():
    """Ten items, 1 or 2: both 1 on 4, both 2 on 3, judge 1 and people 2 on 1, judge 2 and people 1 on 2.

    Exact 0.7. Judge says 1 on 5, people on 6: expected 0.5·0.6 + 0.5·0.4 = 0.5; kappa (0.7 − 0.5) / 0.5 = 0.4; with two
    values the quadratic weights change nothing. Alpha: 20 ratings, 11 ones and 9 twos, 6 of 20 in unequal pairs:
    1 − 19 · 6 / (2 · 11 · 9) = 0.42424, on every level, as there is one distance only.
    """
    x = [1.0] * 4 + [2.0] * 3 + [1.0] + [2.0] * 2
    y = [1.0] * 4 + [2.0] * 3 + [2.0] + [1.0] * 2
    found = figures(paired(x, y), scale=LabelScale(values=(1, 2), names=("no", "yes")))
    assert found["exact"].value == pytest.approx(0.7)
    assert found["kappa"].value == pytest.approx(0.4)
    assert found["weighted_kappa"].value == pytest.approx(0.4)
    for level in ("nominal", "ordinal", "interval"):
        assert found[f"alpha_{level}"].value == pytest.approx(0.424242, abs=1e-6)
    # TP 3, FP 2 (judge 2, people 1), FN 1: 6 / (6 + 3).
    good = figures(paired(x, y), good=2)
    assert good["f1"].value == pytest.approx(6 / 9)
    assert good["accuracy"].value == pytest.approx(0.7)


def test_what_does_not_exist_is_said_to_be_undefined():
    assert figures(paired([2, 2, 2], [1, 2, 3]))["spearman"].why == "the judge gave one value only"
    assert figures(paired([1, 2], [3, 3]))["pearson"].why == "people gave one value only"
    assert figures(paired([1], [2]))["kendall"].why == "fewer than 2 pairs"
    assert figures(paired([None, None], [1, 2]))["kendall"].why == "nothing was judged"
    assert figures(paired([1, 2], [None, None]))["kendall"].why == "nothing was labeled by people"
    same = figures(paired([3, 3, 3], [3, 3, 3]), scale=FOUR)
    assert same["exact"].value == 1
    for name in ("kappa", "weighted_kappa", "alpha_nominal", "alpha_ordinal", "alpha_interval"):
        assert same[name].value is None
        assert same[name].why == "the judge and people gave one value only, and the same"
    bad = figures(paired([1, 2], [1, 2]), good=3)
    assert bad["f1"].why == "neither calls any item good"


def test_values_that_are_equal_on_paper_are_ties():
    """0.1 + 0.2 is not 0.3 in floating point: ranked apart they would make tau-b 1 and not 2 / sqrt(2 · 3)."""
    found = figures(paired([0.1 + 0.2, 0.3, 0.5], [1, 2, 3]))
    assert found["kendall"].value == pytest.approx(2 / math.sqrt(6))


def test_the_unjudged_are_counted_and_adjusted_for():
    """4 of 5 judged. Exact 3/4, with the fifth as wrong 3/5."""
    found = figures(paired([1, 2, 3, 3, None], [1, 2, 3, 4, 4]), scale=FOUR)
    assert (found["exact"].judged, found["exact"].asked, found["exact"].adjusted) == (4, 5, pytest.approx(0.6))
    assert found["kappa"].adjusted is None


def test_the_confusion_matrix_keeps_the_unjudged():
    """Rows are people's labels, columns the judge's, the last column those that were not judged."""
    table = confusion(paired([1, 2, 3, None, 1], [1, 2, 4, 4, None]), FOUR)
    assert table == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 1]]


def test_the_resampled_correlations_are_scipys():
    """Each resample, written out as a list of items, has SciPy's value of that list."""
    rng = np.random.default_rng(5)
    x, y = (rng.integers(4, size=60).astype(float) for _ in range(2))
    y += x
    clusters = [i // 4 for i in range(60)]
    cells = Cells(Paired.of(list(x), list(y), clusters))
    tests = {"spearman": stats.spearmanr, "kendall": stats.kendalltau, "pearson": stats.pearsonr}
    drawn = draws(15, Drawing(resamples=20, seed=3))
    for name, figure in CORRELATIONS.items():
        found = cells.resampled(figure, Drawing(resamples=20, seed=3))
        for row, value in zip(drawn, found, strict=True):
            items = np.repeat(np.arange(60), row[np.array(clusters)].astype(int))
            assert value == pytest.approx(tests[name](x[items], y[items]).statistic, abs=1e-9)


def test_two_labels_without_an_order_have_pearsons_r_and_three_have_none():
    """Both yes on 4, no on 3, yes and no on 1, no and yes on 2: φ = (4 · 3 − 1 · 2) / sqrt(5 · 5 · 6 · 4) = 0.40825."""
    x = [1.0] * 4 + [0.0] * 3 + [1.0] + [0.0] * 2
    y = [1.0] * 4 + [0.0] * 3 + [0.0] + [1.0] * 2
    two = LabelScale(values=(0, 1), names=("no", "yes"), ordered=False)
    found = figures(paired(x, y), scale=two, good=1.0)
    assert found["pearson"].value == pytest.approx(0.40825, abs=1e-5)
    assert "spearman" not in found
    other = figures(paired([1 - v for v in x], [1 - v for v in y]), scale=two)
    assert other["pearson"].value == pytest.approx(found["pearson"].value)
    three = LabelScale(values=(0, 1, 2), names=("a", "b", "c"), ordered=False)
    assert "pearson" not in figures(paired(x, y), scale=three)
