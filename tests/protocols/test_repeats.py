"""Questions that were asked several times: the label that counts, doubt in bits, abstention."""

from __future__ import annotations

from typing import Any

import pytest

from editloupe.answers import Label
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.protocols.repeats import Repeats, counted, entropy_of, join
from editloupe.rubrics import load_rubric

IF = load_rubric("dlebench").criterion("instruction_following")
VALUES = {level.name: level.value for level in IF.levels}
BEST, OVER, WRONG, LOST = (level.name for level in reversed(IF.levels))


def finding(given: str, repeat: int, **more: Any) -> Finding:
    """given: a label, or a status in brackets."""
    failed = given.startswith("(")
    answered = (
        {"status": given.strip("()")} if failed else {"answer": Label(name=given, value=VALUES[given]), "status": "ok"}
    )
    about = {"task_id": "t", "judge_id": "j", "sample_id": "dustpan", "editor": "", "metric": IF.id, "repeat": repeat}
    return Finding(**{**about, **answered, **more})


def joined(*answers: str, **rule: Any) -> tuple[str | None, float | None]:
    """The label or status that counts, and the entropy."""
    one = join([finding(a, i) for i, a in enumerate(answers)], Repeats(**{"count": len(answers), **rule}))
    return one.finding and (one.finding.label or one.finding.status), one.entropy


def test_the_label_that_counts():
    # Values 4, 3, 2, 1 for BEST, OVER, WRONG, LOST; entropies by hand: −Σ p log2 p.
    for answers, median, majority, bits in (
        ((WRONG, WRONG, WRONG), WRONG, WRONG, 0.0),
        ((WRONG, BEST, WRONG), WRONG, WRONG, 0.9183),
        ((BEST, OVER, LOST), OVER, "contradictory", 1.5850),
        # Of the two in the middle the worse.
        ((BEST, WRONG), WRONG, "contradictory", 1.0),
        ((BEST, BEST, LOST, LOST), LOST, "contradictory", 1.0),
        # Two of five are the most, and no majority.
        ((BEST, BEST, OVER, WRONG, LOST), OVER, "contradictory", 1.9219),
        ((BEST, BEST, BEST, LOST, LOST), BEST, BEST, 0.9710),
    ):
        assert joined(*answers) == (median, pytest.approx(bits, abs=5e-5))
        assert joined(*answers, by="majority") == (majority, pytest.approx(bits, abs=5e-5))
    # Once is as it always was.
    assert joined(WRONG) == (WRONG, None) and joined("(refused)") == ("refused", None)


def test_entropy_counts_and_rules():
    assert (entropy_of([]), entropy_of([1, 1, 1, 1]), counted(["a", "b", "a"])) == (0, 2, "a ×2, b")
    for wrong in ({"count": 0}, {"by": "mean"}, {"abstain_above": -1}, {"abstain_above": float("nan")}):
        with pytest.raises(ConfigError, match=r"expected|median or majority"):
            Repeats(**wrong)
