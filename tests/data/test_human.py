"""Human labels: one metric under whatever name a column gives it, once a run's metrics are known."""

from __future__ import annotations

import pytest

from editloupe.data.human import human_column, metric_and_rater, named, names_of, turn_and_metric, value_on
from editloupe.scores import Binary, Interval, Metric

TEN = Metric(id="follows_instruction", short="FI", domain=Interval(low=0, high=10))
KNOWN = names_of([TEN, Metric(id="coherent", domain=Binary())])


@pytest.mark.parametrize(
    ("column", "meaning"),
    [
        ("human_follows_instruction", (TEN.id, "human")),
        ("human_fi", (TEN.id, "human")),
        ("FI", (TEN.id, "human")),
        ("human_fi_anna", (TEN.id, "anna")),
        ("human_follows-instruction__r2", (TEN.id, "r2")),
        ("ben_coherent", ("coherent", "ben")),
        ("human_charm", None),
    ],
)
def test_a_columns_name_holds_a_metric_and_a_rater(column: str, meaning: tuple[str, str] | None):
    assert metric_and_rater(column, KNOWN) == meaning


def test_a_label_has_a_value_on_the_metrics_scale_only():
    assert (value_on(TEN, 7), value_on(TEN, 11), value_on(TEN, "seven")) == (7.0, None, None)
    yes = Metric(id="coherent", domain=Binary())
    assert [value_on(yes, said) for said in ("Yes", "no", "true", 1, "maybe")] == [1.0, 0.0, 1.0, 1.0, None]


def test_a_rating_of_a_turn_has_the_turn_in_front():
    assert human_column("human_turn2_if_anna") == ("turn2_if_anna", "human")
    assert human_column("human_turn12_charm__anna") == ("turn12_charm", "anna")
    known = names_of([Metric(id="instruction_following", short="IF", domain=Binary())])
    found = named({"turn2_if_anna": {"human": "yes"}, "if": {"anna": "no"}}, known)
    assert found == {"turn2_instruction_following": {"anna": "yes"}, "instruction_following": {"anna": "no"}}
    assert [turn_and_metric(name) for name in found] == [(2, "instruction_following"), (0, "instruction_following")]
    # No turn: nothing to rate, or none that counts from 1.
    assert turn_and_metric("turn2") == (0, "turn2") and turn_and_metric("turn0_if") == (0, "turn0_if")
