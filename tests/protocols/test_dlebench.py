"""DLEBench's arithmetic, without a model."""

from __future__ import annotations

import pytest

from editloupe.answers import Label
from editloupe.protocols.base import Known, make_protocol, scored
from editloupe.rubrics import load_rubric
from editloupe.scores import Score
from tests.guards.doors import tables
from tests.protocols.said import edit, found

IF, VC = "instruction_following", "visual_consistency"


def scores_of(labels: dict[str, tuple[str | None, str | None, str | None]]) -> list[Score]:
    """id → (edit type, IF label, VC label); a label of None is a refusal."""
    protocol = make_protocol("dlebench")
    samples = [edit(id, edit_type=edit_type) for id, (edit_type, _, _) in labels.items()]
    done = []
    for task in protocol.plan(samples, Known()):
        name = labels[task.about.sample_id][1 if task.metric == IF else 2]
        (metric,) = (m for m in protocol.metrics if m.id == task.metric)
        label = next((Label(name=level.name, value=level.value) for level in metric.levels if level.name == name), None)
        status = "refused" if label is None else "ok"
        done.append(found(task, status, answer=label))
    return scored(protocol, samples, done)


def means_of(scores: list[Score]) -> dict[tuple[str, str], tuple[float | None, int, int]]:
    """What a report shows: (metric, edit type or what the row sums up) → (mean, judged, asked)."""
    records = [row for table in tables("dlebench", scores=scores).values() for row in table.records() if "mean" in row]
    return {(row["metric"], row["edit_type"]): (row["mean"], row["judged"], row["asked"]) for row in records}  # type: ignore[misc]


# Tables 3 and 5, from worst to best.
LEVELS = {
    IF: ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution"),
    VC: ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"),
}


def test_the_rubric_has_the_paper_s_labels_on_its_scale_and_leads_to_each():
    rubric = load_rubric("dlebench")
    assert [(criterion.id, criterion.short) for criterion in rubric.criteria] == [(IF, "IF"), (VC, "VC")]
    for criterion in rubric.criteria:
        assert [(level.name, level.value) for level in criterion.levels] == list(
            zip(LEVELS[criterion.id], (1, 2, 3, 4), strict=True)
        )
        # (value - 1) / 3 * 100
        assert [criterion.normalize(value) for value in (1, 2, 3, 4)] == pytest.approx([0, 100 / 3, 200 / 3, 100])
        # The inspection ends with a label for every outcome.
        assert all(name in " ".join(criterion.inspection) for name in LEVELS[criterion.id])
    assert {"Table 3", "Table 5", "Appendix 7.3"} <= set(rubric.source.parts)
    subjects = [note.partition(":")[0] for note in rubric.criterion(IF).notes]
    assert {"Blur", "Multiple targets", "Removal", "Replacement", "Count"} <= set(subjects)


def test_the_mean_over_types_counts_every_type_the_same_and_the_overall_is_the_mean_of_both_criteria():
    scores = scores_of(
        {
            # IF values 4, 4, 1 → (4−1)/3·100 = 100, 100, 0.
            "a": ("change_color", "Flawless Execution", "Perfect Consistency"),
            "b": ("Change Color", "Flawless Execution", "Single Anomaly"),
            "c": ("remove", "Localization Failure", "Scene Collapse"),
        }
    )
    assert [s.normalized for s in scores if s.metric == IF] == [100, 100, 0]
    means = {about: mean for about, (mean, *_) in means_of(scores).items()}
    assert (means[IF, "Change Color"], means[IF, "Removal Object"]) == (100, 0)
    assert (means[IF, "mean over types"], means[IF, "mean of all samples"]) == (50, pytest.approx(200 / 3))
    # VC values 4, 3, 1 → 100, 66.67, 0: color 83.33, removal 0, macro 41.67.
    assert means[VC, "Change Color"] == pytest.approx(250 / 3)
    assert means[VC, "mean over types"] == pytest.approx(250 / 6)
    assert means["overall", "mean over types"] == pytest.approx((50 + 250 / 6) / 2)


def test_a_failure_has_a_status_and_no_number():
    scores = scores_of(
        {
            "a": ("count", "Flawless Execution", "Perfect Consistency"),
            "b": ("count", None, "Perfect Consistency"),
            "c": ("shape", None, None),
        }
    )
    assert [(s.value, s.normalized, s.missing) for s in scores if s.metric == IF] == [
        (4.0, 100.0, None),
        (None, None, "refused"),
        (None, None, "refused"),
    ]
    means = means_of(scores)
    # The type without any verdict is missing from the macro mean; it does not pull it to zero.
    assert means[IF, "mean over types"][0] == 100.0
    assert means[IF, "Change Count"][1:] == (1, 2)
    assert means["overall", "Change Shape"][0] is None
