"""Agreement among raters, against published worked examples and numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from editloupe.stats.raters import Panel, ceiling

NAN = math.nan


def panel(*rows: list[float]) -> Panel:
    ratings = np.array(rows, dtype=float)
    return Panel(ratings=ratings, raters=tuple(f"r{i}" for i in range(len(rows))), clusters=tuple(range(ratings.shape[1])))


def test_alpha_of_krippendorffs_example():
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section E: four observers, 12 units, data missing.

    Nominal 0.743, ordinal 0.815, interval 0.849 in the paper.
    """
    found = ceiling(
        panel(
            [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
            [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
        )
    )
    for level, value in (("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)):
        assert found[f"alpha_{level}"].value == pytest.approx(value, abs=5e-4)
    # The twelfth unit has one rating: nothing to compare it with.
    assert (found["alpha_nominal"].judged, found["alpha_nominal"].asked) == (11, 12)


def test_fleiss_kappa_by_hand():
    """Items aaa, aab, abb, bbb: agreement 1, 1/3, 1/3, 1, mean 2/3; shares 1/2 each: (2/3 − 1/2) / (1/2)."""
    found = ceiling(panel([0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]))["fleiss_kappa"]
    assert found.value == pytest.approx(1 / 3)
    assert found.judged == found.asked == 4


def test_one_value_only_is_undefined():
    """Imagic's SC in the ratings of ImagenHub: everybody always gave 0."""
    found = ceiling(panel([0, 0, 0], [0, 0, 0], [0, 0, 0]))
    for name in ("fleiss_kappa", "alpha_nominal", "alpha_ordinal", "alpha_interval"):
        assert found[name].value is None and found[name].why == "all raters gave one value only"
    assert found["rater_vs_others"].why == "rater r2 gave one value only and the others gave one value only"


def test_one_shared_item_is_no_agreement():
    """As one pair is none: alpha would be 0 and kappa −1 where the two differ."""
    found = ceiling(panel([1, NAN, 3], [2, 2, NAN]))
    for name in ("fleiss_kappa", "alpha_nominal", "alpha_ordinal", "alpha_interval"):
        assert found[name].value is None, name
    assert found["alpha_nominal"].why == "fewer than 2 items are shared by raters"
    assert (found["alpha_nominal"].judged, found["alpha_nominal"].asked) == (1, 3)
    assert found["fleiss_kappa"].why == "most items have one rater only"
    alone = ceiling(panel([1], [2]))["fleiss_kappa"]
    assert (alone.value, alone.why) == (None, "fewer than 2 items are shared by raters")


def test_raters_without_a_common_item_have_no_agreement():
    found = ceiling(panel([1, 2, NAN, NAN], [NAN, NAN, 1, 2]))
    for estimate in found.values():
        assert estimate.value is None and estimate.why == "fewer than 2 raters share an item"
        assert (estimate.judged, estimate.asked) == (0, 4)


def test_each_rater_is_held_against_the_mean_of_the_others():
    """Two raters 1 2 3 and 1 3 2: each against the other, Spearman 0.5; Fisher's mean of twice 0.5 is 0.5."""
    assert ceiling(panel([1, 2, 3], [1, 3, 2]))["rater_vs_others"].value == pytest.approx(0.5)
