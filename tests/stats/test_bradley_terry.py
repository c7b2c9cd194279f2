"""Bradley–Terry strengths by hand, and when there are none."""

from __future__ import annotations

import math

import pytest

from editloupe.stats.bradley_terry import Match, rank


def test_three_wins_to_one_are_a_log_odds_of_three() -> None:
    matches: list[Match] = [("m", "n", share, f"s{i}") for i, share in enumerate((1, 1, 1, 0))]
    found = rank(matches)
    # exp(d) = 3, and the mean is 0: ± ln 3 / 2.
    assert {one.editor: one.strength for one in found.strengths} == pytest.approx(
        {"m": math.log(3) / 2, "n": -math.log(3) / 2}
    )
    assert found.strengths[0].editor == "m" and found.votes == 4
    # A tie is half a win for each.
    assert [one.strength for one in rank([("m", "n", 0.5, "s")]).strengths] == pytest.approx([0.0, 0.0])


def test_an_interval_is_resampled_by_source_image_in_any_order() -> None:
    matches: list[Match] = [("m", "n", float(i % 3 > 0), f"s{i // 2}") for i in range(40)]
    first, again = rank(matches).strengths, rank(matches[::-1]).strengths
    assert first == again and first[0].low is not None and first[0].high is not None
    assert first[0].low < first[0].strength < first[0].high


def test_editors_that_wins_do_not_link_both_ways_have_no_strength() -> None:
    apart: list[Match] = [("a", "b", 0.5, "s"), ("c", "d", 0.5, "s")]
    for matches in (apart, [("m", "n", 1.0, "s")]):
        found = rank(matches)
        assert not found.strengths and found.why.startswith("no finite strength fits")
