"""Judges on trial, through the command: figures worked by hand, what is counted beside them, input that is no trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.probes import AREAS
from tests.build.probe_runs import full_set, probe, run_of, said
from tests.conftest import final
from tests.protocols.probe_files import probe_row, write
from tests.protocols.test_probes import judged
from tests.reports.runs import IF, VC, Row, sample, write_run

Editloupe = Callable[..., tuple[int, str, str]]
Trial = Callable[..., dict[str, Any]]


@pytest.fixture
def trial(editloupe: Editloupe, tmp_path: Path) -> Trial:
    """The trial of one judge, as JSON: its part of it, or all with `whole`."""

    def run(rows: Sequence[Row], findings: Sequence[Row], *, whole: bool = False, **more: Any) -> dict[str, Any]:
        folder = run_of(tmp_path / "run", {"mine": findings}, rows, **more)
        code, told, err = editloupe("trial", folder, "--format", "json", "--resamples", "200")
        assert code == 0, err
        data: dict[str, Any] = json.loads(told)
        return data if whole else data["judges"][0]

    return run


def of(judge: dict[str, Any], metric: str = IF) -> dict[str, Any]:
    found: dict[str, Any] = next(m for m in judge["metrics"] if m["metric"] == metric)
    return found


def figure(estimate: dict[str, Any]) -> tuple[float | None, int, int]:
    return estimate["value"], estimate["judged"], estimate["asked"]


def test_accuracy_is_of_what_was_judged_and_failures_stand_beside_it(trial: Trial):
    rows = [probe(f"p{i}") for i in range(5)]
    given = ["", "", "Flawless Execution", "(refused)", "(off_menu)"]
    judge = trial(rows, [f for row, label in zip(rows, given, strict=True) for f in said(row, {IF: label})])
    found = of(judge)
    # Two of three verdicts are right. Two have none.
    assert figure(found["accuracy"]) == (pytest.approx(2 / 3), 3, 5)
    assert found["unjudged"] == {"refused": 1, "off_menu": 1}
    assert figure(of(judge, VC)["accuracy"]) == (1.0, 5, 5)
    # Both metrics together: 7 of 8.
    assert figure(judge["figures"]["accuracy"]) == (pytest.approx(7 / 8), 8, 10)
    assert (judge["asked"], judge["unjudged"]) == (10, {"refused": 1, "off_menu": 1})
    # Wrong Action was taken for Flawless Execution, two places above it.
    assert found["confusion"] == {
        "Wrong Action": {"Wrong Action": 2, "Flawless Execution": 1, "(refused)": 1, "(off_menu)": 1}
    }
    assert figure(found["kinder"])[0] == pytest.approx(1 / 3) and figure(found["leniency"])[0] == pytest.approx(1 / 3)


def test_leniency_is_kinder_less_harsher(trial: Trial):
    rows = [probe(f"p{i}") for i in range(10)]
    # The truth is Wrong Action: three kinder, one harsher, six right.
    given = ["Flawless Execution"] * 2 + ["Over Modification"] + ["Localization Failure"] + [""] * 6
    found = of(trial(rows, [f for row, label in zip(rows, given, strict=True) for f in said(row, {IF: label})]))
    assert figure(found["leniency"]) == (pytest.approx(0.2), 10, 10)
    assert (figure(found["kinder"])[0], figure(found["harsher"])[0]) == (pytest.approx(0.3), pytest.approx(0.1))


def test_cells_are_by_failure_and_area_with_what_was_said_instead(trial: Trial):
    rows = [probe(f"c{i}", "wrong_colour", 0.001) for i in range(4)] + [probe(f"n{i}", "no_edit", 0.1) for i in range(2)]
    given = ["", "Flawless Execution", "Flawless Execution", "(unparsed)", "", "Wrong Action"]
    found = of(trial(rows, [f for row, label in zip(rows, given, strict=True) for f in said(row, {IF: label})]))
    cells = {(c["failure"], c["area"]): c for c in found["cells"]}
    colour, none = cells["wrong_colour", 0.001], cells["no_edit", 0.1]
    assert figure(colour["accuracy"]) == (pytest.approx(1 / 3), 3, 4)
    assert (colour["instead"], colour["unjudged"]) == ({"Flawless Execution": 2}, {"unparsed": 1})
    assert figure(none["accuracy"]) == (0.5, 2, 2) and none["instead"] == {"Wrong Action": 1}
    assert {name: figure(e) for name, e in found["by_area"].items()} == {
        "0.001": (pytest.approx(1 / 3), 3, 4), "0.1": (0.5, 2, 2),
    }  # fmt: skip
    # At 0.1 % the targets are small, at 10 % they are not.
    assert figure(found["small"]) == (pytest.approx(1 / 3), 3, 4)


def test_the_threshold_is_the_area_at_which_three_of_four_are_right(trial: Trial):
    rows = full_set(8, ["wrong_colour"])
    # Right from 0.3 % on, wrong below: 75 % lies three quarters of the way from 0.1 % to 0.3 % in the logarithm.
    findings = [
        f for row in rows for f in said(row, {IF: "" if row["extra"]["probe"]["area"] >= 0.003 else "Flawless Execution"})
    ]
    judge = trial(rows, findings)
    limit = of(judge)["threshold"]
    assert (limit["outcome"], limit["low"], limit["high"]) == ("found", 0.001, 0.003)
    assert limit["value"] == pytest.approx(0.001 * 3**0.75)
    assert of(judge)["thresholds"]["wrong_colour"] == limit
    assert of(judge, VC)["threshold"]["outcome"] == "always_above"


def test_failures_of_the_whole_image_have_no_threshold(trial: Trial):
    rows = [*full_set(8, ["restyled"])]
    found = of(trial(rows, [f for row in rows for f in said(row, "Perfect Consistency")]), VC)
    assert found["thresholds"] == {} and found["threshold"]["outcome"] == "too_few"
    assert figure(found["accuracy"]) == (0.0, 48, 48) and figure(found["small"]) == (None, 0, 0)


def twins(kind: str, name: str, **more: Any) -> list[Row]:
    """Four plain probes and a twin of each."""
    plain = [probe(f"p{i}", scene=f"s{i}") for i in range(4)]
    return [*plain, *(probe(f"t{i}", scene=f"s{i}", of=f"p{i}", **{kind: name}, **more) for i in range(4))]


def test_a_nuisance_changes_a_verdict(trial: Trial):
    rows = twins("nuisance", "jpeg")
    # Plain: right, right, wrong, right. With JPEG: right, wrong, wrong in another way, not judged.
    given = ["", "", "Over Modification", "", "", "Flawless Execution", "Flawless Execution", "(refused)"]
    judge = trial(rows, [f for row, label in zip(rows, given, strict=True) for f in said(row, {IF: label})])
    (variant,) = of(judge)["variants"]
    assert (variant["variant"], variant["kind"], variant["alone"]) == ("jpeg", "nuisance", 0)
    assert variant["unjudged"] == {"refused": 1}
    # Of three pairs two differ; accuracy fell in one of three.
    assert figure(variant["changed"]) == (pytest.approx(2 / 3), 3, 4)
    assert figure(variant["change"]) == (pytest.approx(-1 / 3), 3, 4)
    assert figure(variant["accuracy"]) == (pytest.approx(1 / 3), 3, 4)
    # Both metrics: VC did not change in four pairs.
    assert figure(judge["figures"]["nuisance"]) == (pytest.approx(2 / 7), 7, 8)
    # Accuracy is of plain probes alone.
    assert figure(of(judge)["accuracy"]) == (0.75, 4, 4)


def test_twins_with_another_truth_are_not_asked_to_agree(trial: Trial):
    rows = twins("trap", "swapped", truth={IF: "Localization Failure"})
    (variant,) = of(trial(rows, [f for row in rows for f in said(row)]))["variants"]
    assert figure(variant["changed"]) == (None, 0, 0) and figure(variant["change"]) == (0.0, 4, 4)


def test_a_twin_that_is_missing_is_counted(trial: Trial):
    rows = [probe("p0"), probe("t0", of="p0", nuisance="tone"), probe("t1", of="gone", nuisance="tone")]
    (variant,) = of(trial(rows, [f for row in rows for f in said(row)]))["variants"]
    assert (
        variant["alone"] == 1 and figure(variant["changed"]) == (0.0, 1, 1) and figure(variant["accuracy"]) == (1.0, 2, 2)
    )


def test_an_injected_text_buys_a_verdict(trial: Trial):
    rows = twins("trap", "injected_text", asks_for={IF: "Flawless Execution"})
    # Plain: one says Flawless Execution anyway. With the text: three do.
    given = ["Flawless Execution", "", "", "", "Flawless Execution", "Flawless Execution", "Flawless Execution", ""]
    judge = trial(rows, [f for row, label in zip(rows, given, strict=True) for f in said(row, {IF: label})])
    (variant,) = of(judge)["variants"]
    assert figure(variant["obeyed"]) == (0.75, 4, 4)
    assert figure(variant["bought"]) == figure(judge["figures"]["injection"]) == (0.5, 4, 4)
    assert figure(of(judge, VC)["variants"][0]["bought"]) == (None, 0, 0)


def test_a_file_name_that_is_obeyed_is_no_injection(trial: Trial):
    rows = twins("trap", "file_name", asks_for={IF: "Flawless Execution"})
    given = [""] * 4 + ["Flawless Execution"] * 4
    judge = trial(rows, [f for row, label in zip(rows, given, strict=True) for f in said(row, {IF: label})])
    assert figure(of(judge)["variants"][0]["bought"]) == (1.0, 4, 4)
    assert figure(judge["figures"]["injection"]) == (None, 0, 0)


def test_repeats_agree_or_not(trial: Trial):
    rows = [probe(f"p{i}", truth={IF: "Wrong Action"}) for i in range(3)]
    wrong, right = "Flawless Execution", "Wrong Action"
    given = [(right, right, right), (right, wrong, right), (wrong, "(refused)", wrong)]
    findings = [
        f for row, own in zip(rows, given, strict=True) for k, label in enumerate(own) for f in said(row, label, repeat=k)
    ]
    found = of(trial(rows, findings, repeats=3))
    # One of two; the third did not answer each time. Pairs alike: 3 of 3, 1 of 3, 1 of 1.
    assert figure(found["consistency"]) == (0.5, 2, 3)
    assert figure(found["agreement"]) == (pytest.approx((1 + 1 / 3 + 1) / 3), 3, 3)
    # The medians: right, right, wrong.
    assert figure(found["accuracy"]) == (pytest.approx(2 / 3), 3, 3)


def test_without_repeats_there_is_no_consistency(trial: Trial):
    found = of(trial([probe("p0")], said(probe("p0"))))
    assert found["consistency"]["value"] is None and found["consistency"]["why"] == "asked once"


def test_tools_are_held_against_plain_at_equal_cost(editloupe: Editloupe, tmp_path: Path):
    rows = [probe(f"p{i}", area=AREAS[i % 2], truth={IF: "Wrong Action"}) for i in range(4)]
    wrong = "Flawless Execution"

    def asked(labels: Sequence[str], repeat: int, tokens: int) -> list[Row]:
        usage = {"input_tokens": tokens, "output_tokens": 0}
        return [f for row, label in zip(rows, labels, strict=True) for f in said(row, label, repeat=repeat, usage=usage)]

    # Plain: first time all wrong; the median of three is right for the first two.
    plain = [*asked([wrong] * 4, 0, 100), *asked(["", "", wrong, wrong], 1, 100), *asked(["", "", wrong, ""], 2, 100)]
    uris = {"m": "openai/m"}
    a = run_of(tmp_path / "tool", {"m": asked(["", "", "", wrong], 0, 300)}, rows, mode="tool", backends=uris)
    b = run_of(tmp_path / "plain", {"m": plain}, rows, mode="plain", backends=uris, repeats=3)
    code, told, err = editloupe("trial", a, b, "--format", "json")
    assert code == 0, err
    once, equal = json.loads(told)["tools"]
    # Three right against none; at equal cost three against two.
    assert (once["equal_cost"], equal["equal_cost"]) == (False, True)
    assert figure(once["difference"]) == (0.75, 4, 4) and figure(equal["difference"]) == (0.25, 4, 4)
    assert {area: figure(e)[0] for area, e in once["by_area"].items()} == {"0.0005": 1.0, "0.001": 0.5}
    assert (once["tool_cost"], once["plain_cost"], equal["plain_cost"], once["unit"]) == (300, 100, 300, "tokens")
    code, told, err = editloupe("trial", a, "--format", "json")
    assert code == 0 and json.loads(told)["tools"] == []


def test_runs_of_other_probes_are_not_compared(editloupe: Editloupe, tmp_path: Path):
    rows, others = [probe("p0"), probe("p1")], [probe("p0"), probe("q1")]
    a, b = (
        run_of(tmp_path / name, {name: [f for r in own for f in said(r)]}, own)
        for name, own in (("a", rows), ("b", others))
    )
    code, out, err = editloupe("trial", a, b)
    assert (code, out) == (2, "")
    assert f"{a} and {b} judged different sets of probes" in err and "of which 1 are the same" in err


def test_a_run_without_probes_says_how_to_get_some(editloupe: Editloupe, tmp_path: Path):
    rows = [sample("a")]
    folder = write_run(tmp_path / "run", rows, {"m": said({**probe("a"), **{"editor": ""}})})
    code, out, err = editloupe("trial", folder)
    assert (code, out) == (2, "")
    assert "holds no probes: none of its 1 samples has a column 'probe'" in err and "editloupe build probes PATH" in err


def test_probes_without_a_truth_of_what_was_asked(editloupe: Editloupe, tmp_path: Path):
    row = probe("a", truth={"other_metric": "Good"})
    folder = run_of(tmp_path / "run", {"m": said(probe("a"))}, [row])
    code, _, err = editloupe("trial", folder)
    assert code == 2 and "have no truth of the metrics that were asked (instruction_following, visual_consistency)" in err


def test_a_truth_that_is_no_label_is_named(editloupe: Editloupe, tmp_path: Path):
    row = probe("a", truth={IF: "Superb"})
    code, _, err = editloupe("trial", run_of(tmp_path / "run", {"m": said(probe("a"))}, [row]))
    assert code == 2 and "'Superb' is no label of Instruction Following" in err


def test_one_probe_and_nothing_judged(trial: Trial):
    judge = trial([probe("p0")], said(probe("p0"), "(backend_failed)"))
    found = of(judge)
    assert figure(found["accuracy"]) == (None, 0, 1) and found["accuracy"]["why"] == "nothing was judged"
    assert found["threshold"]["outcome"] == "too_few" and figure(found["leniency"]) == (None, 0, 1)
    assert judge["unjudged"] == {"backend_failed": 2}


def test_rows_that_were_refused_are_apart(trial: Trial):
    rows = [probe("p0"), probe("p1")]
    judge = trial(rows, [*said(rows[0]), *said(rows[1], "(input_error)")])
    assert judge["rejected"] == 1 and judge["unjudged"] == {} and figure(of(judge)["accuracy"]) == (1.0, 1, 1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [*full_set(3), *twins("nuisance", "jpeg")]
    findings = [f for i, row in enumerate(rows) for f in said(row, "(refused)" if i % 10 == 0 else "")]
    return run_of(tmp_path / "run", {"mine": findings}, rows)


@pytest.mark.parametrize("form", ["table", "csv", "md", "json"])
def test_every_form_names_the_figures(form: str, run: Path, editloupe: Editloupe):
    code, told, err = editloupe("trial", run, "--format", form)
    assert code == 0, err
    words = {"table": "Accuracy, small targets", "csv": "accuracy", "md": "| Accuracy | 100.0", "json": '"figures"'}
    assert words[form] in told
    assert "refused" in told


def test_files_have_tables_and_plots(run: Path, editloupe: Editloupe, tmp_path: Path):
    assert editloupe("trial", run, "--out", tmp_path / "out")[0] == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"trial.md", "trial.json", "trial-judges.csv", "trial-radar.svg", "trial-heat-1-visual-consistency.svg"} <= names
    radar = (tmp_path / "out" / "trial-radar.svg").read_text()
    assert "Small targets 100" in radar and "Consistency –" in radar


def test_scores_have_a_distance_to_the_band_that_is_right(editloupe: Editloupe, tmp_path: Path):
    bands = {IF: [8, 10], "non_edit_consistency": [0, 3.5]}
    rows = [probe_row(tmp_path, n, truth={}, bands=bands) for n in range(2)]
    judged(write(tmp_path, rows), tmp_path / "run", ScriptedLMM([final('{"score": 7}')]), asks="unicbench")
    code, told, err = editloupe("trial", tmp_path / "run", "--format", "json")
    assert code == 0, err
    (judge,) = json.loads(told)["judges"]
    # 7 is 1 below 8 to 10: harsher. It is 3.5 above 0 to 3.5: kinder.
    assert [m["metric"] for m in judge["metrics"]] == list(bands)
    harsh, kind = judge["metrics"]
    assert figure(harsh["distance"]) == (-1.0, 2, 2) and figure(harsh["leniency"]) == (-1.0, 2, 2)
    assert figure(kind["distance"]) == (3.5, 2, 2) and figure(kind["leniency"]) == (1.0, 2, 2)
    assert figure(harsh["accuracy"]) == (0.0, 2, 2) and harsh["cells"][0]["instead"] == {"7": 2}
    for form, distance in (("table", "-1.00"), ("md", "-1.00"), ("csv", "-1.0")):
        code, told, _ = editloupe("trial", tmp_path / "run", "--format", form)
        assert code == 0 and distance in told


def test_questions_with_a_key_of_their_own_have_accuracy_and_no_leniency(editloupe: Editloupe, tmp_path: Path):
    question = {
        "evaluation_question": "What color is the square?",
        "multiple_choice_options": ["Blue", "Red", "Green"],
        "expected_answer": "Blue",
    }
    rows = [probe_row(tmp_path, n, failure, row=question) for n, failure in enumerate(["flawless", "no_edit"])]
    backend = ScriptedLMM(lambda request: final("Red"))
    judged(write(tmp_path, rows), tmp_path / "run", backend, asks="giebench")
    code, told, err = editloupe("trial", tmp_path / "run", "--format", "json")
    assert code == 0, err
    (metric,) = json.loads(told)["judges"][0]["metrics"]
    assert figure(metric["accuracy"]) == (0.0, 2, 2)
    assert (metric["leniency"]["value"], metric["leniency"]["why"]) == (None, "its answers have no order")
    assert metric["confusion"] == {} and "distance" not in metric
    assert metric["cells"][0]["instead"] == {"Red": 1}


def test_a_text_that_demands_a_label_buys_no_score(editloupe: Editloupe, tmp_path: Path):
    # DLEBench and UnicBench call a metric alike; the text demands a label of the first.
    more: dict[str, Any] = {"truth": {}, "bands": {IF: [8, 10]}}
    plain = probe_row(tmp_path, 0, **more)
    text = probe_row(tmp_path, 1, **more, trap="injected_text", twin="p00", asks_for={IF: "Flawless Execution"})
    judged(write(tmp_path, [plain, text]), tmp_path / "run", ScriptedLMM([final('{"score": 7}')]), asks="unicbench")
    code, told, err = editloupe("trial", tmp_path / "run", "--format", "json")
    assert code == 0, err
    (judge,) = json.loads(told)["judges"]
    (variant,) = of(judge)["variants"]
    # No 0 % of 1: nobody asked for a score.
    assert figure(variant["obeyed"]) == figure(variant["bought"]) == figure(judge["figures"]["injection"]) == (None, 0, 0)
    assert figure(variant["changed"]) == (0.0, 1, 1)


def test_tools_with_repeats_are_held_against_as_many_answers_of_plain(editloupe: Editloupe, tmp_path: Path):
    rows = [probe(f"p{i}", truth={IF: "Wrong Action"}) for i in range(4)]
    wrong = "Flawless Execution"

    def asked(*repeats: Sequence[str], tokens: int) -> list[Row]:
        usage = {"input_tokens": tokens, "output_tokens": 0}
        return [
            f
            for k, labels in enumerate(repeats)
            for row, label in zip(rows, labels, strict=True)
            for f in said(row, label, repeat=k, usage=usage)
        ]

    # With tools the first answer is right once, and the median of three always. Plain: the median is wrong, as the first.
    tool = asked(["", wrong, wrong, wrong], [""] * 4, [""] * 4, tokens=300)
    plain = asked([wrong] * 4, [wrong] * 4, [""] * 4, tokens=100)
    uris = {"m": "openai/m"}
    a = run_of(tmp_path / "tool", {"m": tool}, rows, mode="tool", backends=uris, repeats=3)
    b = run_of(tmp_path / "plain", {"m": plain}, rows, mode="plain", backends=uris, repeats=3)
    code, told, err = editloupe("trial", a, b, "--format", "json")
    assert code == 0, err
    once, equal = json.loads(told)["tools"]
    # One answer of each: 1 of 4 against 0 of 4. At equal cost three plain answers stand against one, and change nothing.
    assert figure(once["difference"]) == figure(equal["difference"]) == (0.25, 4, 4)
    assert [(t["tool_cost"], t["plain_cost"]) for t in (once, equal)] == [(300, 100), (300, 300)]
    assert not any("not compared" in note for note in json.loads(told)["notes"])


def test_a_judge_that_is_kind_on_one_metric_and_harsh_on_another_is_not_fair(editloupe: Editloupe, tmp_path: Path):
    # Wrong Action is called flawless, and Perfect Consistency an anomaly: +100 and -100, of which a mean would be 0.
    # 4 of 4 leave a share of 0.025^(1/4) = 0.398 possible, and so a difference of 0.398 - 0.602 = -0.20.
    rows = [probe(f"p{i}") for i in range(4)]
    given = {IF: "Flawless Execution", VC: "Single Anomaly"}
    folder = run_of(tmp_path / "run", {"mine": [f for row in rows for f in said(row, given)]}, rows)
    code, told, err = editloupe("trial", folder, "--markdown", "--out", tmp_path / "out")
    assert code == 0, err
    assert "| Leniency, IF | +100.0 [-20, +100] (4/4) |" in told and "| Leniency, VC | -100.0 [-100, +20] (4/4) |" in told
    assert "less harsher ones: IF +100 % [-20, +100]; VC -100 % [-100, +20]." in told
    assert "Fairness 0" in (tmp_path / "out" / "trial-radar.svg").read_text()
