"""UnicBench: what is asked of whom, what replies become, and whole runs with tools, constraints and broken replies."""

from __future__ import annotations

from typing import Any

from editloupe.answers import Number
from editloupe.protocols.base import Known, make_protocol, planned, scored
from editloupe.rubrics import load_rubric
from editloupe.scores import Score
from editloupe.tasks import Ask
from editloupe.values import Sample
from tests.protocols import said
from tests.protocols.unicbench_published import METRICS

POINTS = ["The trees are gone.", "There is bamboo\nin their place."]


def edit(*, task: str = "Object Editing", **extra: Any) -> Sample:
    columns = {"key": "k", "task": task, "subtask": "Subject Removal", "language": "en", **extra}
    given = {name: value for name, value in columns.items() if value is not None}
    words = "Replace the trees\nwith bamboo."
    return said.edit("k.en", instruction=words, editor="bagel", edit_type="Subject Removal", extra=given)


REASONING = edit(task="Reasoning Editing", reasoning_points=POINTS)


def asked(one: Sample, **options: str) -> dict[str, Ask]:
    protocol = make_protocol("unicbench", options)
    return {task.metric: task for task in planned(protocol, [one], Known()) if isinstance(task, Ask)}


def scores_of(one: Sample, given: dict[str, float | str], **options: str) -> dict[str, Score]:
    """Scores of a sample from numbers, or statuses, by short name."""
    findings = [
        said.finding(one, METRICS[short], Number(value=it), task_id=short)
        if isinstance(it, float)
        else said.finding(one, METRICS[short], it, task_id=short, reason=f"{short} was {it}")
        for short, it in given.items()
    ]
    return {score.metric: score for score in scored(make_protocol("unicbench", options), [one], findings)}


# ---- Questions ---------------------------------------------------------------------------------------------------------


def test_the_penalties_are_those_of_the_paper() -> None:
    # Prompts 1 to 4, in their order: what each fault costs, from … to.
    assert {c.short: [(p.low, p.high) for p in c.penalties] for c in load_rubric("unicbench").criteria} == {
        "IF": [(3, 3), (3, 3), (2, 2), (2, 4), (3, 5), (3, 5), (3, 5), (3, 3)],
        "NC": [(3, 3), (3, 3), (2, 2), (4, 5)],
        "VQ": [(4, 4), (3, 3), (2, 2), (2, 4), (2, 3), (4, 4), (2, 2)],
        "RA": [(3, 3), (3, 3), (3, 3), (2, 2), (2, 2), (2, 2), (2, 2)],
    }


def test_a_reasoning_row_without_points_is_an_input_error_and_no_mean_of_three() -> None:
    for points in (None, [], [""], "The trees are gone.", [1]):
        one = edit(task="Reasoning Editing", reasoning_points=points)
        status, why = asked(one)["reasoning_accuracy"].blocked or ("", "")
        assert status == "input_error" and "needs reasoning_points" in why
        assert asked(one)["visual_quality"].blocked is None
    found = scores_of(one, {"IF": 9.0, "NC": 8.0, "VQ": 7.0, "RA": "input_error"})
    assert (found["overall"].value, found["overall"].missing) == (None, "input_error")


# ---- Scores ------------------------------------------------------------------------------------------------------------


def test_overall_is_the_geometric_mean_of_what_applies() -> None:
    for one, given, overall in (
        # (9 · 8 · 7)^(1/3), (9 · 8 · 7 · 6)^(1/4), and a genuine 0.
        (edit(), {"IF": 9.0, "NC": 8.0, "VQ": 7.0}, "7.9581"),
        (REASONING, {"IF": 9.0, "NC": 8.0, "VQ": 7.0, "RA": 6.0}, "7.4156"),
        (edit(), {"IF": 10.0, "NC": 0.0, "VQ": 9.0}, "0.0000"),
        (edit(), {"IF": 7.25, "NC": 7.25, "VQ": 7.25}, "7.2500"),
    ):
        found = scores_of(one, given)  # type: ignore[arg-type]
        assert f"{found['overall'].value:.4f}" == overall and found["overall"].missing is None
        assert set(found) == {METRICS[short] for short in given} | {"overall"}, "no score of a metric that does not apply"
        columns = {"task": one.extra["task"], "subtask": "Subject Removal", "language": "en"}
        assert found["overall"].dims == {**columns, "edit_type": "Subject Removal"}
        assert set(found["overall"].findings) == set(given)
