"""Votes on pairs, against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from editloupe.reports.votes import Preference, Vote, VoteAgreement, agree_on_pairs, ranking, read_preference
from editloupe.stats.bootstrap import DRAWING
from editloupe.stats.bradley_terry import strengths


def cast(*rows: tuple[str, str, Preference]) -> list[Vote]:
    return [Vote(item=f"i{n}", source=f"i{n}", a=a, b=b, preference=vote) for n, (a, b, vote) in enumerate(rows)]


@pytest.mark.parametrize(
    ("written", "vote"),
    [
        ("A>B", "A"),
        ("B > A", "B"),
        ("A=B=Good", "good"),
        ("a = b = bad", "bad"),
        ("model_a", "A"),
        ("tie (bothbad)", "bad"),
        ("Tie", "tie"),
        ("qwen", "A"),
        ("bagel", "B"),
        ("1", None),
        ("A or B", None),
        ("", None),
        (None, None),
    ],
)
def test_votes_are_read_in_the_usual_spellings_and_never_guessed(written: str | None, vote: Preference | None):
    assert read_preference(written, "qwen", "bagel") == vote


def test_two_editors_by_hand():
    """3 wins to 1: odds 3, strengths ± ln 3 / 2. A tie is half a win each: 3.5 to 1.5."""
    found = ranking(cast(*[("x", "y", "A")] * 3, ("x", "y", "B")), ["A", "A", "A", "B"])
    assert [s.editor for s in found.strengths] == ["x", "y"]
    assert found.strengths[0].strength == pytest.approx(math.log(3) / 2)
    assert found.strengths[1].strength == pytest.approx(-math.log(3) / 2)
    tied = ranking(cast(*[("x", "y", "A")] * 3, ("y", "x", "A"), ("x", "y", "good")), ["A", "A", "A", "A", "good"])
    assert tied.strengths[0].strength == pytest.approx(math.log(3.5 / 1.5) / 2)


def test_strengths_are_the_maximum_of_the_likelihood():
    wins = np.array([[0, 5, 2, 7], [3, 0, 4, 1], [6, 2, 0, 3], [1, 4, 5, 0]], dtype=float)

    def loss(s: np.ndarray) -> float:
        return float(sum(wins[i, j] * np.logaddexp(0, s[j] - s[i]) for i in range(4) for j in range(4)) + s.sum() ** 2)

    best = optimize.minimize(loss, np.zeros(4), tol=1e-12).x
    assert strengths(wins[None])[0] == pytest.approx(best, abs=1e-5)


def test_an_editor_that_never_wins_has_no_finite_strength():
    found = ranking(cast(("x", "y", "A"), ("x", "z", "A"), ("y", "x", "A"), ("y", "z", "A")), ["A", "A", "A", "A"])
    assert found.strengths == ()
    assert found.why == "z never won, so that no finite strength fits"
    apart = ranking(cast(("x", "y", "tie"), ("p", "q", "tie")), ["tie", "tie"])
    assert apart.why == "the editors fall into groups that wins do not link both ways"


def test_a_ranking_comes_with_intervals_over_images():
    rng = np.random.default_rng(0)
    votes: list[Preference] = ["A" if rng.random() < 0.75 else "B" for _ in range(400)]
    found = ranking(cast(*[("x", "y", v) for v in votes]), votes)
    inside = found.strengths[0].interval
    # Half the log odds of 0.75 is 0.549; its standard error sqrt(1 / (400 · 0.75 · 0.25)) / 2 = 0.058.
    assert inside is not None
    assert inside.high - inside.low == pytest.approx(2 * 1.96 * 0.058, rel=0.15)


def test_scores_answer_with_a_tie_threshold():
    """Scores 4-1, 3-3, 2-3, 1-1 against votes A, good, A, bad.

    No threshold: A, tie, B, tie: of A, B, tie right in 3 of 4; where people chose A or B in 1 of 2. Ties with a mean of
    2 or more are both good: A, good, B, bad: 3 of 4 of the four answers. With a threshold of 1 the third is a tie.
    """
    rows = cast(("x", "y", "A"), ("x", "y", "good"), ("x", "y", "A"), ("x", "y", "bad"))
    values = {("x", f"i{n}"): float(v) for n, v in enumerate([4, 3, 2, 1])}
    values |= {("y", f"i{n}"): float(v) for n, v in enumerate([1, 3, 3, 1])}
    plain = agree_on_pairs(rows, "IF", score=lambda e, i: values.get((e, i)))
    assert plain.figures["three_exact"].value == 0.75
    assert plain.figures["decided_exact"].value == 0.5
    assert "four_exact" not in plain.figures
    divided = agree_on_pairs(rows, "IF", score=lambda e, i: values.get((e, i)), good=2.0)
    assert divided.figures["four_exact"].value == 0.75
    loose = agree_on_pairs(rows, "IF", score=lambda e, i: values.get((e, i)), tie=1.0)
    assert loose.confusion.rows == ((1, 0, 1, 0), (0, 0, 0, 0), (0, 0, 2, 0))


def test_the_best_threshold_is_said_to_be_chosen_on_these_votes():
    """Differences 1 (tie), 1 (tie) and 3 (A): up to 1 all three are right."""
    rows = cast(("x", "y", "tie"), ("x", "y", "tie"), ("x", "y", "A"))
    values = {"i0": 1.0, "i1": -1.0, "i2": 3.0}
    found = agree_on_pairs(rows, "IF", score=lambda e, i: values[i] if e == "x" else 0.0, tie=None)
    assert (found.tie, found.tie_fitted) == (1.0, True)
    assert found.figures["three_exact"].value == 1.0


def test_rankings_say_on_how_many_votes_they_rest_and_people_are_also_ranked_on_the_judges():
    """People: x wins 3 of 4, ln 3 apart. The judge has scores for one pair either way; on these people tie too."""
    rows = cast(*[("x", "y", "A")] * 3, ("x", "y", "B"))
    values = {"i0": 1.0, "i3": -1.0}
    found = agree_on_pairs(rows, "IF", score=lambda e, i: 0.0 if i in values and e == "y" else values.get(i))
    assert (found.ranking["people"].votes, found.ranking["judge"].votes) == (4, 2)
    assert found.ranking["people"].strengths[0].strength == pytest.approx(math.log(3) / 2)
    assert found.unjudged and found.ranking["people_judged"].votes == 2
    assert [s.strength for s in found.ranking["people_judged"].strengths] == pytest.approx([0, 0])
    report = VoteAgreement(judge="j", people="p", pairs=(found,), bootstrap=DRAWING, notes=())
    ranks = next(report.sections()).tables[-1]
    assert tuple(column.title for column in ranks.columns) == (
        "Editor", "People (n = 4)", "Rank", "People, judged pairs (n = 2)", "Rank", "Judge (n = 2)", "Rank",
    )  # fmt: skip
    assert "strength_people_judged" in {record["figure"] for record in report.records()}
    assert agree_on_pairs(rows, "IF", score=lambda e, i: float(e == "x")).unjudged is False


def test_a_pair_without_a_score_is_counted_and_not_guessed():
    rows = cast(("x", "y", "A"), ("x", "y", "B"))
    found = agree_on_pairs(rows, "IF", score=lambda e, i: {("x", "i0"): 2.0, ("y", "i0"): 1.0}.get((e, i)))
    figure = found.figures["three_exact"]
    assert (figure.value, figure.judged, figure.asked) == (1.0, 1, 2)
    assert figure.adjusted == 0.5
    assert found.notes == ("1 of 2 votes are on pairs without the judge's word",)
