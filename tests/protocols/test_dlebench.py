"""DLEBench's arithmetic, without a model."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from editloupe.answers import Label
from editloupe.findings import Finding
from editloupe.protocols.base import groups
from editloupe.protocols.dlebench import EDIT_TYPES, DLEBench, edit_type_name, macro_mean, overall
from editloupe.rubrics.model import load_rubric
from editloupe.values import ImageRef, Sample, Turn

TABLES = Path(__file__).parents[3] / "shared" / "data" / "paper-tables"


def image(name: str) -> ImageRef:
    return ImageRef(sha256=name, width=100, height=100, media_type="image/png")


def sample(id: str, edit_type: str | None, *, edited: bool = True) -> Sample:
    turn = Turn(instruction="Do it.", edited=image("e" + id) if edited else None)
    return Sample(id=id, source=image("s" + id), turns=(turn,), edit_type=edit_type)


def summary_of(labels: dict[str, tuple[str | None, str | None, str | None]]):
    """id → (edit type, IF label, VC label); a label of None is a refusal."""
    protocol = DLEBench(load_rubric("dlebench"))
    samples = [sample(id, edit_type) for id, (edit_type, _, _) in labels.items()]
    done: dict[str, Finding] = {}
    for task in protocol.plan(samples, {}):
        name = labels[task.sample_id][1 if task.criterion == "instruction_following" else 2]
        criterion = protocol.rubric.criterion(task.criterion)
        value = next((level.value for level in criterion.levels if level.name == name), None)
        done[task.id] = Finding(
            task_id=task.id,
            judge_id="j",
            repeat=0,
            sample_id=task.sample_id,
            editor="",
            criterion=task.criterion,
            status="refused" if value is None else "ok",
            answer=None if value is None else Label(name=str(name), value=value),
        )
    assert protocol.plan(samples, done) == []
    scores = [s for group in groups(samples) for s in protocol.score(group, done)]
    (summary,) = protocol.summarise(scores)
    return summary


def test_the_mean_over_types_counts_every_type_the_same_and_the_overall_is_the_mean_of_both_criteria():
    summary = summary_of(
        {
            # IF values 4, 4, 1 → (4−1)/3·100 = 100, 100, 0.
            "a": ("change_color", "Flawless Execution", "Perfect Consistency"),
            "b": ("Change Color", "Flawless Execution", "Single Anomaly"),
            "c": ("remove", "Localization Failure", "Scene Collapse"),
        }
    )
    assert list(summary.rows) == ["Change Color", "Removal Object"]
    assert summary.macro["instruction_following"].mean == pytest.approx((100 + 0) / 2)
    assert summary.micro["instruction_following"].mean == pytest.approx(200 / 3)
    # VC values 4, 3, 1 → 100, 66.67, 0: colour 83.33, removal 0, macro 41.67.
    assert summary.macro["visual_consistency"].mean == pytest.approx((250 / 3) / 2)
    assert summary.macro["overall"].mean == pytest.approx((50 + 250 / 6) / 2)
    assert (summary.types_present["overall"], summary.types_known) == (2, 7)
    assert summary.histogram["instruction_following"] == {
        "Localization Failure": 1, "Wrong Action": 0, "Over Modification": 0, "Flawless Execution": 2,
    }  # fmt: skip


def test_a_failure_is_counted_beside_the_mean_and_never_in_it():
    summary = summary_of(
        {
            "a": ("count", "Flawless Execution", "Perfect Consistency"),
            "b": ("count", None, "Perfect Consistency"),
            "c": ("shape", None, None),
        }
    )
    cell = summary.rows["Change Count"]["instruction_following"]
    assert (cell.mean, cell.judged, cell.asked) == (100.0, 1, 2)
    empty = summary.rows["Change Shape"]["instruction_following"]
    assert (empty.mean, empty.judged, empty.asked) == (None, 0, 1)
    # The type without any verdict is missing from the macro mean; it does not pull it to zero.
    assert summary.macro["instruction_following"].mean == 100.0
    # IF rests on one type, VC on the same one, since the shape sample was refused by both.
    assert summary.types_present == {"instruction_following": 1, "visual_consistency": 1, "overall": 1}
    assert summary.rows["Change Shape"]["overall"].mean is None
    assert summary.statuses["instruction_following"] == {"refused": 2}


def test_types_that_the_paper_does_not_know_stand_in_rows_of_their_own():
    summary = summary_of({"a": ("style", "Wrong Action", "Scene Collapse"), "b": (None, "Wrong Action", "Scene Collapse")})
    assert list(summary.rows) == ["(none)", "style"]
    assert set(summary.types_present.values()) == {0}
    assert summary.macro["overall"].mean is None
    # Value 2 → (2−1)/3·100.
    assert summary.micro["instruction_following"].mean == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("change_color", "Change Color"),
        ("Change Colour", "Change Color"),
        ("color_alter", "Change Color"),
        ("OCR", "Change OCR"),
        ("change_text", "Change OCR"),
        ("subject-remove", "Removal Object"),
        ("Removal Object", "Removal Object"),
        ("replace", "Replace Object"),
        ("count_change", "Change Count"),
        ("background", "background"),
        ("  ", "(none)"),
        (None, "(none)"),
    ],
)
def test_edit_types_are_known_by_their_usual_spellings(spelling: str | None, name: str):
    assert edit_type_name(spelling) == name


def test_a_missing_output_is_planned_as_a_task_that_cannot_be_asked():
    protocol = DLEBench(load_rubric("dlebench"), criteria=["vc"])
    (task,) = protocol.plan([sample("a", None, edited=False)], {})
    assert task.blocked is not None
    assert task.blocked[0] == "missing_output"
    assert [v.alias for v in task.views] == ["Original Image"]


def test_a_task_is_known_by_its_content_and_not_by_its_judge():
    def protocol(**options: object) -> str:
        made = DLEBench(load_rubric("dlebench"), criteria=["if"], **options)  # type: ignore[arg-type]
        return made.plan([sample("a", "color")], {})[0].id

    assert protocol() == protocol()
    assert protocol() != protocol(mode="plain", tools=("zoom_in",)) != protocol(tools=("zoom_in",))


def test_samples_of_one_source_and_instruction_are_one_group():
    a, b = sample("a", None), sample("b", None)
    assert [len(g) for g in groups([a, b, a])] == [2, 1]


@pytest.mark.skipif(not TABLES.is_dir(), reason="the paper's tables are not here (shared/data/paper-tables)")
def test_table_4_gives_table_1_in_every_cell():
    with (TABLES / "dlebench_table4_by_criterion.csv").open() as file:
        by_criterion = list(csv.DictReader(file))
    with (TABLES / "dlebench_table1_overall.csv").open() as file:
        published = {row.pop("edit_type"): {e: float(v) for e, v in row.items()} for row in csv.DictReader(file)}
    editors = list(published["Average"])
    cells = 0
    for editor in editors:
        columns: dict[str, dict[str, float]] = {}
        for row in by_criterion:
            columns.setdefault(row["criterion"], {})[row["edit_type"]] = float(row[editor])
        for edit_type in EDIT_TYPES:
            ours = overall({c: values[edit_type] for c, values in columns.items()})
            # The inputs are rounded to 0.01, so the mean of two may be off by as much.
            assert ours == pytest.approx(published[edit_type][editor], abs=0.0101), (edit_type, editor)
            cells += 1
        averages = {c: macro_mean({t: values[t] for t in EDIT_TYPES}) for c, values in columns.items()}
        for criterion, average in averages.items():
            assert average == pytest.approx(columns[criterion]["Average"], abs=0.0101), (criterion, editor)
        assert overall(averages) == pytest.approx(published["Average"][editor], abs=0.0101), editor
        cells += 1
    assert cells == 80
