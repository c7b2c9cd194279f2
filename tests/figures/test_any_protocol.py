"""Reports, gates and frames of a protocol that no code here knows: numbers, yes/no, turns and parts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from editloupe import Run
from editloupe.figures.frame import score_frame
from editloupe.figures.tables import spec_table
from editloupe.scores import Interval, Metric, Score
from editloupe.stats.spec import TableSpec
from tests.figures.checks import Checks
from tests.figures.runs import Row, answered, sample, write_protocol_run
from tests.toys.install import installed

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path) -> Iterator[None]:
    """The protocol as an installed package."""
    entry = "[editloupe.protocols]\nchecks = tests.figures.checks:Checks\n"
    with installed(tmp_path / "site", name="editloupe-checks", entry_points=entry):
        yield


A = sample("a", edit_type="add", editor="e")
B = sample("b", edit_type="swap", editor="e")
C = sample("c", edit_type="other", editor="e")
FINDINGS = [
    answered(A, "kept", "yes", turn=1),
    answered(A, "kept", "no", turn=2),
    answered(B, "kept", "yes", part="left"),
    answered(B, "kept", "no", part="right"),
    answered(A, "grade", 8),
    answered(B, "grade", 5),
    answered(C, "grade", None, status="refused"),
    answered(A, "error", 2.0),
    answered(B, "error", 8.0),
]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    def write(tables: str = "none", findings: list[Row] = FINDINGS, name: str = "run") -> Path:
        judges = {"toy/judge": findings}
        options = {"tables": tables}
        return write_protocol_run(tmp_path / name, "checks", Checks.metrics, [A, B, C], judges, options=options)

    return write


@pytest.fixture
def reported(editloupe: Program) -> Callable[[Path], dict[str, list[Row]]]:
    """The records of each table."""

    def report(folder: Path) -> dict[str, list[Row]]:
        code, out, err = editloupe("report", folder, "--format", "json")
        assert code == 0, err
        (judge,) = json.loads(out)["judges"]
        return {name: table["records"] for name, table in judge["tables"].items()}

    return report


def test_two_turns_and_two_parts_of_a_sample_are_rows_of_their_own(run: Callable[..., Path]):
    frame = Run(run()).frame()
    kept = frame.filter(frame["metric"] == "kept").select("sample", "turn", "part", "value", "label")
    assert kept.rows() == [
        ("a", 1, "", 1.0, "yes"), ("a", 2, "", 0.0, "no"), ("b", 0, "left", 1.0, "yes"), ("b", 0, "right", 0.0, "no"),
    ]  # fmt: skip


def test_a_frame_says_why_a_score_is_missing_and_what_it_cost(run: Callable[..., Path]):
    frame = Run(run()).frame()
    (row,) = frame.filter(frame["sample"] == "c").to_dicts()
    assert (row["value"], row["normalized"], row["missing"], row["task"]) == (None, None, "refused", "other")
    assert (row["protocol"], row["editor"], row["source"]) == ("checks", "e", C["source"]["sha256"])
    assert (row["findings"], row["input_tokens"], row["seconds"], row["cost_usd"]) == (1, 100, 2.0, None)
    # 8 of 0 to 10; a metric without bounds has no place on 0 to 100.
    by_metric = {r["metric"]: r["normalized"] for r in frame.filter(frame["sample"] == "a").to_dicts()}
    assert (by_metric["grade"], by_metric["error"]) == (80.0, None)


def test_without_tables_of_its_own_every_metric_has_its_mean_by_editor(
    run: Callable[..., Path], reported: Callable[[Path], dict[str, list[Row]]]
):
    scores = {r["metric"]: (r["mean"], r["judged"], r["asked"]) for r in reported(run())["scores"]}
    # (1 + 0 + 1 + 0) / 4; (8 + 5) / 2 with a refusal beside it; (2 + 8) / 2 px.
    assert scores == {"kept": (0.5, 4, 4), "grade": (6.5, 2, 3), "error": (5.0, 2, 2)}


def test_turns_have_a_table_and_what_is_missing_is_counted(
    run: Callable[..., Path], reported: Callable[[Path], dict[str, list[Row]]]
):
    found = reported(run())
    assert [(r["turn"], r["mean"]) for r in found["scores-by-turn"]] == [("1", 1.0), ("2", 0.0)]
    assert {r["metric"]: r["count"] for r in found["missing"]} == {"grade": 1, "error": 0}
    assert {(r["label"], r["count"], r["share"]) for r in found["labels-kept"]} == {("yes", 2, 0.5), ("no", 2, 0.5)}


def test_a_score_of_the_whole_sample_stands_for_those_of_its_turns(
    run: Callable[..., Path], reported: Callable[[Path], dict[str, list[Row]]]
):
    turns = [answered(A, "kept", "yes", turn=n) for n in (1, 2)]
    rows = reported(run(findings=[*turns, answered(A, "kept", "no")]))["scores"]
    assert [(r["mean"], r["asked"]) for r in rows if r["metric"] == "kept"] == [(0.0, 1)]


def test_a_table_is_what_its_spec_says(run: Callable[..., Path], reported: Callable[[Path], dict[str, list[Row]]]):
    found = reported(run("declared"))
    rates = {r["task"]: (r["rate"], r["judged"]) for r in found["kept"]}
    assert rates == {"add": (50.0, 2), "swap": (50.0, 2), "rate of all samples": (50.0, 4)}
    # 8 and 5 of 10; "other" was refused, and is not listed: the mean over tasks rests on two of two.
    grades = {r["task"]: (r["mean"], r["judged"], r["asked"]) for r in found["grades"]}
    assert grades["other"] == (None, 0, 1)
    assert grades["mean over tasks"] == (65.0, 2, 2)
    assert grades["mean of all samples"] == (65.0, 2, 3)
    assert [r["mean"] for r in found["errors"]] == [5.0]


def test_a_protocol_computes_a_table_from_the_frame(run: Callable[..., Path], editloupe: Program, tmp_path: Path):
    code, out, err = editloupe("report", run("computed"), "--out", tmp_path / "out")
    assert code == 0, err
    assert "Largest error" in out
    with (tmp_path / "out" / "largest.csv").open(encoding="utf-8") as file:
        assert [(r["judge"], r["sample"], r["value"]) for r in csv.DictReader(file)] == [
            ("judge", "a", "2.0"), ("judge", "b", "8.0"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("broken", "protocol 'checks' (editloupe-checks 0.1) raised in a table: ZeroDivisionError: no error at all"),
        ("no table", "protocol 'checks' (editloupe-checks 0.1) made str for a table; expected a Table or None"),
        ("mixed", "table 'Mixed': kept, grade, error would share a cell and have no common scale"),
        ("no column", "table 'Colors': no score has the column 'color'; there are editor, label, metric"),
    ],
)
def test_a_table_that_cannot_be_made_says_why(tables: str, message: str, run: Callable[..., Path], editloupe: Program):
    code, _, err = editloupe("report", run(tables))
    assert (code, message in err) == (2, True), err


def test_a_run_without_any_score_is_no_empty_report(run: Callable[..., Path], editloupe: Program):
    code, out, err = editloupe("report", run(findings=[answered(A, "first", "yes")]))
    assert (code, out) == (2, "")
    assert "there is nothing to show of judge" in err


def test_a_metric_that_is_called_overall_keeps_its_own_column():
    """Beside the mean of the two metrics, 10 and 0 of 10."""
    metrics = [Metric(id=name, domain=Interval(low=0, high=10)) for name in ("overall", "other")]
    scores = [
        Score(sample_id="a", metric=metric.id, value=value, normalized=metric.normalize(value))
        for metric, value in zip(metrics, (10.0, 0.0), strict=True)
    ]
    table = spec_table(TableSpec(title="Scores", overall=False, normalize=True), score_frame(scores), metrics)
    assert table is not None
    assert [
        (column.title, cell.value) for column, cell in zip(table.columns[1:], table.rows[0].cells[1:], strict=True)
    ] == [
        ("overall", 100.0),
        ("other", 0.0),
        ("Overall", 50.0),
    ]
