"""Judges on trial, through the command: figures worked by hand, what is counted beside them, input that is no trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from tests.build.probe_runs import full_set, probe, run_of, said
from tests.conftest import final
from tests.figures.runs import IF, VC, Row, sample, write_run
from tests.protocols.probe_files import probe_row, write
from tests.protocols.test_probes import judged

Editloupe = Callable[..., tuple[int, str, str]]
Trial = Callable[..., dict[str, Any]]


@pytest.fixture
def trial(editloupe: Editloupe, tmp_path: Path) -> Trial:
    """The trial of one judge, as JSON. given: its IF labels of the rows; "" for the truth. VC is always right."""

    def run(rows: Sequence[Row], given: Sequence[str] | None = None, findings: Sequence[Row] = (), **more: Any) -> Any:
        labels = given or [""] * len(rows)
        said_of = findings or [f for row, label in zip(rows, labels, strict=True) for f in said(row, {IF: label})]
        folder = run_of(tmp_path / "run", {"mine": said_of}, rows, **more)
        code, told, err = editloupe("trial", folder, "--format", "json", "--resamples", "200")
        assert code == 0, err
        return json.loads(told)["judges"][0]

    return run


def of(judge: dict[str, Any], metric: str = IF) -> dict[str, Any]:
    found: dict[str, Any] = next(m for m in judge["metrics"] if m["metric"] == metric)
    return found


def figure(estimate: dict[str, Any]) -> tuple[float | None, int, int]:
    return estimate["value"], estimate["judged"], estimate["asked"]


def test_accuracy_is_of_what_was_judged_and_failures_stand_beside_it(trial: Trial):
    rows = [probe(f"p{i}") for i in range(5)]
    judge = trial(rows, ["", "", "Flawless Execution", "(refused)", "(off_menu)"])
    found = of(judge)
    # Two of three verdicts are right. Two have none.
    assert figure(found["figures"]["accuracy"]) == (pytest.approx(2 / 3), 3, 5)
    assert found["unjudged"] == {"refused": 1, "off_menu": 1}
    # Both metrics together: 7 of 8.
    assert figure(judge["figures"]["accuracy"]) == (pytest.approx(7 / 8), 8, 10)
    assert (judge["asked"], judge["unjudged"]) == (10, {"refused": 1, "off_menu": 1})
    # Wrong Action was taken for Flawless Execution, two places above it.
    assert found["confusion"] == {
        "Wrong Action": {"Wrong Action": 2, "Flawless Execution": 1, "(refused)": 1, "(off_menu)": 1}
    }
    assert figure(found["figures"]["leniency"])[0] == pytest.approx(1 / 3)
    assert found["figures"]["consistency"]["why"] == "asked once"


def test_leniency_is_kinder_less_harsher(trial: Trial):
    # The truth is Wrong Action: three kinder, one harsher, six right.
    given = ["Flawless Execution"] * 2 + ["Over Modification"] + ["Localization Failure"] + [""] * 6
    found = of(trial([probe(f"p{i}") for i in range(10)], given))
    assert figure(found["figures"]["leniency"]) == (pytest.approx(0.2), 10, 10)


def test_cells_are_by_failure_and_area(trial: Trial):
    rows = [probe(f"c{i}", "wrong_colour", 0.001) for i in range(4)] + [probe(f"n{i}", "no_edit", 0.1) for i in range(2)]
    found = of(trial(rows, ["", "Flawless Execution", "Flawless Execution", "(unparsed)", "", "Wrong Action"]))
    assert figure(found["cells"]["wrong_colour"]["0.001"]) == (pytest.approx(1 / 3), 3, 4)
    assert figure(found["cells"]["no_edit"]["0.1"]) == figure(found["by_failure"]["no_edit"]) == (0.5, 2, 2)
    # At 0.1 % the targets are small, at 10 % they are not.
    assert figure(found["figures"]["small"]) == (pytest.approx(1 / 3), 3, 4)


def test_the_threshold_is_the_area_at_which_three_of_four_are_right(trial: Trial):
    rows = full_set(8, ["wrong_colour"])
    # Right from 0.3 % on, wrong below: 75 % lies three quarters of the way from 0.1 % to 0.3 % in the logarithm.
    judge = trial(rows, ["" if row["extra"]["probe"]["area"] >= 0.003 else "Flawless Execution" for row in rows])
    limit = of(judge)["threshold"]
    assert (limit["outcome"], limit["low"], limit["high"]) == ("found", 0.001, 0.003)
    assert limit["value"] == pytest.approx(0.001 * 3**0.75)
    assert of(judge, VC)["threshold"]["outcome"] == "always_above"


def test_failures_of_the_whole_image_have_no_threshold(trial: Trial):
    rows = full_set(8, ["restyled"])
    found = of(trial(rows, findings=[f for row in rows for f in said(row, "Perfect Consistency")]), VC)
    assert found["threshold"]["outcome"] == "too_few"
    assert figure(found["figures"]["accuracy"]) == (0.0, 48, 48) and figure(found["figures"]["small"]) == (None, 0, 0)


def twins(kind: str, name: str, **more: Any) -> list[Row]:
    """Four plain probes and a twin of each."""
    plain = [probe(f"p{i}", scene=f"s{i}") for i in range(4)]
    return [*plain, *(probe(f"t{i}", scene=f"s{i}", of=f"p{i}", **{kind: name}, **more) for i in range(4))]


def test_a_nuisance_changes_a_verdict(trial: Trial):
    # Plain: right, right, wrong, right. With JPEG: right, wrong, wrong in another way, not judged.
    given = ["", "", "Over Modification", "", "", "Flawless Execution", "Flawless Execution", "(refused)"]
    judge = trial(twins("nuisance", "jpeg"), given)
    variant = of(judge)["variants"]["jpeg"]
    # Of three pairs two differ; accuracy fell in one of three.
    assert figure(variant["changed"]) == (pytest.approx(2 / 3), 3, 4)
    assert figure(variant["change"]) == (pytest.approx(-1 / 3), 3, 4)
    assert figure(variant["accuracy"]) == (pytest.approx(1 / 3), 3, 4)
    # Both metrics: VC did not change in four pairs.
    assert figure(judge["figures"]["nuisance"]) == (pytest.approx(2 / 7), 7, 8)
    # Accuracy is of plain probes alone.
    assert figure(of(judge)["figures"]["accuracy"]) == (0.75, 4, 4)


def test_twins_with_another_truth_are_not_asked_to_agree_and_a_missing_twin_is_no_pair(trial: Trial, tmp_path: Path):
    found = of(trial(twins("trap", "swapped", truth={IF: "Localization Failure"})))["variants"]["swapped"]
    assert figure(found["changed"]) == (None, 0, 0) and figure(found["change"]) == (0.0, 4, 4)


def test_a_twin_that_is_missing_is_no_pair(trial: Trial):
    rows = [probe("p0"), probe("t0", of="p0", nuisance="tone"), probe("t1", of="gone", nuisance="tone")]
    variant = of(trial(rows))["variants"]["tone"]
    assert figure(variant["changed"]) == (0.0, 1, 1) and figure(variant["accuracy"]) == (1.0, 2, 2)


@pytest.mark.parametrize(("trap", "injected"), [("injected_text", True), ("file_name", False)])
def test_a_text_or_a_file_name_buys_a_verdict(trial: Trial, trap: str, injected: bool):
    # Plain: one says Flawless Execution anyway. With the demand: three do.
    given = ["Flawless Execution", "", "", "", "Flawless Execution", "Flawless Execution", "Flawless Execution", ""]
    judge = trial(twins("trap", trap, asks_for={IF: "Flawless Execution"}), given)
    assert figure(of(judge)["variants"][trap]["bought"]) == (0.5, 4, 4)
    # A file name that is obeyed is no injection.
    assert figure(judge["figures"]["injection"]) == ((0.5, 4, 4) if injected else (None, 0, 0))
    assert figure(of(judge, VC)["variants"][trap]["bought"]) == (None, 0, 0)


def test_repeats_agree_or_not(trial: Trial):
    rows = [probe(f"p{i}", truth={IF: "Wrong Action"}) for i in range(3)]
    wrong, right = "Flawless Execution", "Wrong Action"
    given = [(right, right, right), (right, wrong, right), (wrong, "(refused)", wrong)]
    findings = [
        f for row, own in zip(rows, given, strict=True) for k, label in enumerate(own) for f in said(row, label, repeat=k)
    ]
    found = of(trial(rows, findings=findings, repeats=3))["figures"]
    # One of two; the third did not answer each time. The medians: right, right, wrong.
    assert figure(found["consistency"]) == (0.5, 2, 3)
    assert figure(found["accuracy"]) == (pytest.approx(2 / 3), 3, 3)


def test_judges_are_held_against_the_first_probe_by_probe(editloupe: Editloupe, tmp_path: Path):
    rows = [probe(f"p{i}", truth={IF: "Wrong Action"}) for i in range(4)]
    given = {"plain": ["", "Flawless Execution", "Flawless Execution", "(refused)"], "tool": ["", "", "", ""]}
    runs = [
        run_of(
            tmp_path / mode, {"m": [f for r, label in zip(rows, own, strict=True) for f in said(r, label)]}, rows, mode=mode
        )
        for mode, own in given.items()
    ]
    code, told, err = editloupe("trial", *runs, "--format", "json")
    assert code == 0, err
    first, second = json.loads(told)["judges"]
    # 1 of 3 against 3 of 3 on what both judged.
    assert "less_first" not in first["figures"]
    assert figure(second["figures"]["less_first"]) == (pytest.approx(2 / 3), 3, 4)


def test_runs_of_other_probes_are_not_compared(editloupe: Editloupe, tmp_path: Path):
    rows, others = [probe("p0"), probe("p1")], [probe("p0"), probe("q1")]
    a, b = (
        run_of(tmp_path / name, {name: [f for r in own for f in said(r)]}, own)
        for name, own in (("a", rows), ("b", others))
    )
    code, out, err = editloupe("trial", a, b)
    assert (code, out) == (2, "")
    assert f"{a} and {b} judged different sets of probes" in err and "of which 1 are the same" in err


@pytest.mark.parametrize(
    ("truth", "told"),
    [
        (None, "holds no probes: none of its 1 samples has a column 'probe'"),
        (
            {"other_metric": "Good"},
            "have no truth of the metrics that were asked (instruction_following, visual_consistency)",
        ),
        ({IF: "Superb"}, "'Superb' is no label of Instruction Following"),
    ],
)
def test_runs_that_cannot_be_tried_say_why(editloupe: Editloupe, tmp_path: Path, truth: dict[str, str] | None, told: str):
    row = sample("a") if truth is None else probe("a", truth=truth)
    code, out, err = editloupe("trial", write_run(tmp_path / "run", [row], {"m": said(probe("a"))}))
    assert (code, out) == (2, "") and told in err


def test_one_probe_and_nothing_judged(trial: Trial):
    judge = trial([probe("p0")], findings=said(probe("p0"), "(backend_failed)"))
    found = of(judge)
    assert figure(found["figures"]["accuracy"]) == (None, 0, 1)
    assert found["figures"]["accuracy"]["why"] == "nothing was judged"
    assert found["threshold"]["outcome"] == "too_few" and figure(found["figures"]["leniency"]) == (None, 0, 1)
    assert judge["unjudged"] == {"backend_failed": 2}


def test_rows_that_were_refused_are_apart(trial: Trial):
    rows = [probe("p0"), probe("p1")]
    judge = trial(rows, findings=[*said(rows[0]), *said(rows[1], "(input_error)")])
    assert judge["rejected"] == 1 and judge["unjudged"] == {}
    assert figure(of(judge)["figures"]["accuracy"]) == (1.0, 1, 1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [*full_set(3), *twins("nuisance", "jpeg")]
    findings = [f for i, row in enumerate(rows) for f in said(row, "(refused)" if i % 10 == 0 else "")]
    return run_of(tmp_path / "run", {"mine": findings}, rows)


@pytest.mark.parametrize("form", ["table", "csv", "md", "json"])
def test_every_form_names_the_figures(form: str, run: Path, editloupe: Editloupe):
    code, told, err = editloupe("trial", run, "--format", form, *(("--table", "trial-judges") if form == "csv" else ()))
    assert code == 0, err
    words = {"table": "Accuracy, small targets", "csv": "accuracy", "md": "| Accuracy | 100.0", "json": '"figures"'}
    assert words[form] in told and "refused" in told


def test_files_have_tables_and_plots(run: Path, editloupe: Editloupe, tmp_path: Path):
    assert editloupe("trial", run, "--out", tmp_path / "out")[0] == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"trial.md", "trial.json", "trial-judges.csv", "trial-radar.svg", "trial-heat-1-visual-consistency.svg"} <= names


def test_scores_have_a_distance_to_the_band_that_is_right(editloupe: Editloupe, tmp_path: Path):
    bands = {IF: [8, 10], "non_edit_consistency": [0, 3.5]}
    rows = [probe_row(tmp_path, n, truth={}, bands=bands) for n in range(2)]
    judged(write(tmp_path, rows), tmp_path / "run", ScriptedLMM([final('{"score": 7}')]), asks="unicbench")
    code, told, err = editloupe("trial", tmp_path / "run", "--format", "json")
    assert code == 0, err
    # 7 is 1 below 8 to 10: harsher. It is 3.5 above 0 to 3.5: kinder.
    harsh, kind = (m["figures"] for m in json.loads(told)["judges"][0]["metrics"])
    assert figure(harsh["distance"]) == (-1.0, 2, 2) and figure(harsh["leniency"]) == (-1.0, 2, 2)
    assert figure(kind["distance"]) == (3.5, 2, 2) and figure(kind["leniency"]) == (1.0, 2, 2)
    assert figure(harsh["accuracy"]) == (0.0, 2, 2)


def test_questions_with_a_key_of_their_own_have_accuracy_and_no_leniency(editloupe: Editloupe, tmp_path: Path):
    question = {
        "evaluation_question": "What color is the square?",
        "multiple_choice_options": ["Blue", "Red", "Green"],
        "expected_answer": "Blue",
    }
    rows = [probe_row(tmp_path, n, failure, row=question) for n, failure in enumerate(["flawless", "no_edit"])]
    judged(write(tmp_path, rows), tmp_path / "run", ScriptedLMM(lambda request: final("Red")), asks="giebench")
    code, told, err = editloupe("trial", tmp_path / "run", "--format", "json")
    assert code == 0, err
    (metric,) = json.loads(told)["judges"][0]["metrics"]
    assert figure(metric["figures"]["accuracy"]) == (0.0, 2, 2)
    assert (metric["figures"]["leniency"]["value"], metric["figures"]["leniency"]["why"]) == (
        None,
        "its answers have no order",
    )
    assert "distance" not in metric["figures"]
    assert metric["confusion"] == {"the right option": {"Red": 2}}


def test_a_judge_that_is_kind_on_one_metric_and_harsh_on_another_is_not_fair(editloupe: Editloupe, tmp_path: Path):
    # Wrong Action is called flawless, and Perfect Consistency an anomaly: +100 and -100, of which a mean would be 0.
    rows = [probe(f"p{i}") for i in range(4)]
    given = {IF: "Flawless Execution", VC: "Single Anomaly"}
    folder = run_of(tmp_path / "run", {"mine": [f for row in rows for f in said(row, given)]}, rows)
    code, told, err = editloupe("trial", folder, "--format", "md")
    assert code == 0, err
    assert "| Leniency, IF | +100.0 (4/4) |" in told and "| Leniency, VC | -100.0 (4/4) |" in told
