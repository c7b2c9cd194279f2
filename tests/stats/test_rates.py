"""Shares and differences of shares: hand-worked intervals, clusters, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.stats.rates import balance, exact, share


def test_the_interval_of_no_hit_is_exact() -> None:
    found = share([False] * 10, range(10))
    # (1 − p)^10 = 0.025 at p = 1 − 0.025^(1/10) = 0.30850.
    assert (found.value, found.judged, found.asked, found.clusters) == (0.0, 10, 10, 10)
    assert found.interval is not None and found.interval.low == 0.0
    assert found.interval.high == pytest.approx(1 - 0.025**0.1)
    mirrored = share([True] * 10, range(10)).interval
    assert mirrored is not None and mirrored.low == pytest.approx(0.025**0.1) and mirrored.high == 1.0


def test_one_probe_has_an_interval_that_says_little() -> None:
    # P(hit) = p: low with p = 0.025.
    assert exact(1, 1) == (pytest.approx(0.025), 1.0)


def test_what_was_not_judged_is_counted_and_is_no_miss() -> None:
    found = share([True, None, False, None], range(4))
    assert (found.value, found.judged, found.asked) == (0.5, 2, 4)
    for hits, why in (([None, None], "nothing was judged"), ([], "nothing was asked")):
        nothing = share(hits, range(len(hits)))
        assert (nothing.value, nothing.interval, nothing.judged, nothing.why) == (None, None, 0, why)
        assert balance(hits, range(len(hits))).why == why


def test_copies_of_an_item_add_nothing_to_what_is_known() -> None:
    once = share([True] * 8 + [False] * 2, range(10)).interval
    twice = share([True] * 16 + [False] * 4, [i // 2 for i in range(20)]).interval
    assert once is not None and twice is not None
    # Ten clusters of two equal items: no narrower than ten items.
    assert twice.low <= once.low and twice.high >= once.high
    alike = share([True] * 20, [i // 2 for i in range(20)]).interval
    assert alike is not None and alike.low == pytest.approx(0.025**0.1)


def test_several_items_of_one_cluster_have_no_interval() -> None:
    assert share([True, False, True], ["scene"] * 3).interval is None
    assert balance([1, 0, -1], ["scene"] * 3).interval is None


def test_a_balance_is_the_difference_of_two_shares() -> None:
    found = balance([1, 1, 1, -1, 0, 0, 0, 0, 0, 0, None], range(11))
    assert (found.value, found.judged, found.asked) == (pytest.approx(0.2), 10, 11)
    assert found.interval is not None and found.interval.low < 0 < 0.2 < found.interval.high
    # Nothing changed in ten pairs: at most 0.3085 of all pairs may do so to either side.
    still = balance([0] * 10, range(10)).interval
    assert still is not None and (still.low, still.high) == (pytest.approx(0.025**0.1 - 1), pytest.approx(1 - 0.025**0.1))


@pytest.mark.parametrize(("up", "down"), [(0.1, 0.1), (0.4, 0.05), (0.03, 0.0), (0.0, 0.6)])
@pytest.mark.parametrize("n", [12, 60])
def test_intervals_of_independent_items_hold_the_truth(up: float, down: float, n: int) -> None:
    rng, held, shares = np.random.default_rng(n), 0, 0
    for _ in range(300):
        drawn = rng.random(n)
        signs = [1 if u < up else -1 if u >= 1 - down else 0 for u in drawn]
        inside, one = balance(signs, range(n)).interval, share([s > 0 for s in signs], range(n)).interval
        assert inside is not None and one is not None
        held += inside.low <= up - down <= inside.high
        shares += one.low <= up <= one.high
    # Binomial(300, 0.95) lies below 274 with a probability of 0.3 %.
    assert held >= 274 and shares >= 274
