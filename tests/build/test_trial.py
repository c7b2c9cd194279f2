"""Judges on trial, through the command: figures worked by hand, what is counted beside them, input that is no trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.runs.store import RunStore
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, says
from tests.build.probe_runs import full_set, probe, run_of, said
from tests.conftest import Cli, Edits, final, refused
from tests.figures.runs import IF, VC, Row, sample, write_run
from tests.protocols.probe_files import draw_probes, probe_row, write
from tests.protocols.test_probes import judged

Found = Callable[..., Any]


@pytest.fixture
def tried(editloupe: Cli) -> Callable[..., Found]:
    """A trial of runs. Returns a function: (table, keys) → the one record of it."""

    def run(*folders: Path) -> Found:
        code, told, err = editloupe("trial", *folders, "--format", "json", "--resamples", "200")
        assert code == 0, err
        tables = json.loads(told)["tables"]

        def record(table: str = "trial", **keys: Any) -> Any:
            (one,) = [row for row in tables[table]["records"] if all(row.get(k) == v for k, v in keys.items())]
            return one

        return record

    return run


@pytest.fixture
def trial(tried: Callable[..., Found], tmp_path: Path) -> Callable[..., Found]:
    """A trial of one judge. given: its IF labels of the rows; "" for the truth. VC is always right."""

    def run(rows: Sequence[Row], given: Sequence[str] | None = None, findings: Sequence[Row] = (), **more: Any) -> Found:
        labels = given or [""] * len(rows)
        said_of = findings or [f for row, label in zip(rows, labels, strict=True) for f in said(row, {IF: label})]
        return tried(run_of(tmp_path / "run", {"mine": said_of}, rows, **more))

    return run


def value(record: Mapping[str, Any], name: str = "value") -> tuple[float | None, int, int]:
    """(percent, judged, asked). Of records with several figures the counts are those of the last."""
    return record[name], record["judged"], record["asked"]


def about(percent: float) -> Any:
    return pytest.approx(percent)


def test_accuracy_is_of_what_was_judged_and_failures_stand_beside_it(trial: Callable[..., Found]) -> None:
    rows = [probe(f"p{i}") for i in range(5)]
    found = trial(rows, ["", "", "Flawless Execution", "(refused)", "(off_menu)"])
    # Two of three verdicts are right, two have none; both metrics together: 7 of 8.
    assert value(found(figure="accuracy", metric=IF)) == (about(200 / 3), 3, 5)
    assert value(found(figure="accuracy", metric="all metrics")) == (about(87.5), 8, 10)
    missing = found(figure="unjudged", metric=IF)
    assert (missing["value"], missing["refused"], missing["off_menu"]) == (2, 1, 1)
    # Wrong Action was taken for Flawless Execution, two places above it.
    assert value(found(figure="leniency", metric=IF)) == (about(100 / 3), 3, 5)


def test_leniency_is_kinder_less_harsher(trial: Callable[..., Found]) -> None:
    # The truth is Wrong Action: three kinder, one harsher, six right.
    given = ["Flawless Execution"] * 2 + ["Over Modification"] + ["Localization Failure"] + [""] * 6
    found = trial([probe(f"p{i}") for i in range(10)], given)
    assert value(found(figure="leniency", metric=IF)) == (about(20), 10, 10)


def test_cells_are_by_failure_and_area(trial: Callable[..., Found]) -> None:
    rows = [probe(f"c{i}", "wrong_colour", 0.001) for i in range(4)] + [probe(f"n{i}", "no_edit", 0.1) for i in range(2)]
    found = trial(rows, ["", "Flawless Execution", "Flawless Execution", "(unparsed)", "", "Wrong Action"])
    for failure, area, expected in (("wrong_colour", 0.001, (about(100 / 3), 3, 4)), ("no_edit", 0.1, (50, 2, 2))):
        for at in (area, None):
            cell = found("trial-failures", metric=IF, failure=failure, area=at)
            assert value(cell, "accuracy") == expected


def test_the_threshold_is_the_area_at_which_three_of_four_are_right(trial: Callable[..., Found]) -> None:
    rows = full_set(8, ["wrong_colour"])
    # Right from 0.3 % on, wrong below: 75 % lies three quarters of the way from 0.1 % to 0.3 % in the logarithm.
    found = trial(rows, ["" if row["extra"]["probe"]["area"] >= 0.003 else "Flawless Execution" for row in rows])
    limit = found(figure="threshold", metric=IF)
    assert (limit["outcome"], limit["low"], limit["high"]) == ("found", 0.001, 0.003)
    assert limit["threshold"] == about(0.001 * 3**0.75)
    assert found(figure="threshold", metric=VC)["outcome"] == "always_above"


def test_failures_of_the_whole_image_have_no_threshold(trial: Callable[..., Found]) -> None:
    rows = full_set(8, ["restyled"])
    found = trial(rows, findings=[f for row in rows for f in said(row, "Perfect Consistency")])
    assert found(figure="threshold", metric=VC)["outcome"] == "too_few"
    assert value(found(figure="accuracy", metric=VC)) == (0.0, 48, 48)


def twins(kind: str, name: str, **more: Any) -> list[Row]:
    """Four plain probes and a twin of each."""
    rows = [probe(f"p{i}", scene=f"s{i}") for i in range(4)]
    return [*rows, *(probe(f"t{i}", scene=f"s{i}", of=f"p{i}", **{kind: name, **more}) for i in range(4))]


def test_a_nuisance_changes_a_verdict(trial: Callable[..., Found]) -> None:
    # Plain: right, right, wrong, right. With JPEG: right, wrong, wrong in another way, not judged.
    given = ["", "", "Over Modification", "", "", "Flawless Execution", "Flawless Execution", "(refused)"]
    found = trial(twins("nuisance", "jpeg"), given)
    # Of three pairs two differ.
    assert value(found(figure="nuisance", metric=IF)) == (about(200 / 3), 3, 4)
    # Both metrics: VC did not change in four pairs. Accuracy is of plain probes alone.
    assert value(found(figure="nuisance", metric="all metrics")) == (about(200 / 7), 7, 8)
    assert value(found(figure="accuracy", metric=IF)) == (75.0, 4, 4)


def test_twins_of_another_truth_and_twins_that_are_missing_are_no_pairs(
    trial: Callable[..., Found], tried: Callable[..., Found], tmp_path: Path
) -> None:
    found = trial(twins("trap", "swapped", truth={IF: "Localization Failure"}))
    with pytest.raises(ValueError, match="not enough"):
        found(figure="order", metric=IF)
    rows = [probe("p0"), probe("t0", of="p0", nuisance="tone"), probe("t1", of="gone", nuisance="tone")]
    other = tried(run_of(tmp_path / "other", {"mine": [f for row in rows for f in said(row)]}, rows))
    assert value(other(figure="nuisance", metric=IF)) == (0.0, 1, 1)


def test_a_text_in_the_image_buys_a_verdict(trial: Callable[..., Found]) -> None:
    # Plain: one says Flawless Execution anyway. With the demand: three do.
    given = ["Flawless Execution", "", "", "", "Flawless Execution", "Flawless Execution", "Flawless Execution", ""]
    found = trial(twins("trap", "injected_text", asks_for={IF: "Flawless Execution"}), given)
    assert value(found(figure="injection", metric=IF)) == (50.0, 4, 4)


def test_scores_are_held_against_a_band(tried: Callable[..., Found], tmp_path: Path) -> None:
    bands = {IF: [8, 10], "non_edit_consistency": [0, 3.5]}
    rows = [probe_row(tmp_path, n, truth={}, bands=bands) for n in range(2)]
    judged(write(tmp_path, rows), tmp_path / "run", ScriptedLMM([final('{"score": 7}')]), asks="unicbench")
    found = tried(tmp_path / "run")
    # 7 is below 8 to 10: harsher. It is above 0 to 3.5: kinder.
    for metric, leniency in ((IF, -100.0), ("non_edit_consistency", 100.0)):
        assert value(found(figure="leniency", metric=metric)) == (leniency, 2, 2)
        assert value(found(figure="accuracy", metric=metric)) == (0.0, 2, 2)


def test_what_is_no_trial_says_why(editloupe: Cli, tmp_path: Path, edits: Edits) -> None:
    rows = [probe("p0"), probe("p1")], [probe("p0"), probe("q1")]
    runs = [run_of(tmp_path / f"r{i}", {"m": [f for r in own for f in said(r)]}, own) for i, own in enumerate(rows)]
    draw_probes(tmp_path / "probes", ["flawless"])
    bare = write_run(tmp_path / "bare", [sample("a")], {"m": said(probe("a"))})
    blank, superb = (
        write_run(tmp_path / name, [probe("a", truth={metric: label})], {"m": said(probe("a"))})
        for name, metric, label in (("blank", "other_metric", "Good"), ("superb", IF, "Superb"))
    )
    for words, told in (
        (runs, "judged different sets of probes, with 2 and 2, of which 1 are the same"),
        ([bare], "holds no probes: none of its 1 samples has a column 'probe', and 0 rows were refused"),
        ([blank], "have no truth of the metrics that were asked (instruction_following, visual_consistency)"),
        ([superb], "'Superb' is no label of Instruction Following"),
        (["probes"], "probes is no run folder"),
        (["gone"], "gone is no run folder"),
    ):
        assert told in refused(editloupe, "trial", *words), words


def test_nothing_judged_and_refused_rows_are_no_figures(trial: Callable[..., Found], tried: Any, tmp_path: Path) -> None:
    found = trial([probe("p0")], findings=said(probe("p0"), "(backend_failed)"))
    assert value(found(figure="accuracy", metric=IF)) == (None, 0, 1)
    assert found(figure="threshold", metric=IF)["outcome"] == "too_few"
    rows = [probe("p0"), probe("p1")]
    other = tried(run_of(tmp_path / "other", {"m": [*said(rows[0]), *said(rows[1], "(input_error)")]}, rows))
    assert other(figure="refused")["value"] == 1 and value(other(figure="accuracy", metric=IF)) == (100.0, 1, 1)


def test_a_trial_is_shown_in_every_form_and_written(editloupe: Cli, tmp_path: Path) -> None:
    rows = [*full_set(3), *twins("nuisance", "jpeg")]
    findings = [f for i, row in enumerate(rows) for f in said(row, "(refused)" if i % 10 == 0 else "")]
    run = run_of(tmp_path / "run", {"mine": findings}, rows)
    words = {"table": "Changed by nuisances", "csv": "accuracy", "md": "| Accuracy | IF | 100.0", "json": '"tables"'}
    for form, word in words.items():
        table = ("--table", "trial") if form == "csv" else ()
        code, told, err = editloupe("trial", run, "--format", form, *table)
        assert code == 0 and word in told and "refused" in told, err
    assert editloupe("trial", run, "--out", tmp_path / "out")[0] == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"trial.md", "trial.json", "trial.csv", "trial-failures.csv"} <= names


def flatters(handler: Handler, body: Body) -> None:
    """Calls every edit flawless."""
    question = body["messages"][0]["content"][-1]["text"]
    says(final("Perfect Consistency" if "Perfect Consistency" in question else "Flawless Execution"))(handler, body)


def test_a_changed_probe_is_refused_counted_and_part_of_no_figure(
    tmp_path: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    probes = draw_probes(tmp_path / "probes", ["flawless", "flawless", "flawless"])
    first, second, third = (probes / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    row = json.loads(second)
    # A digest that is taken out proves nothing; another instruction is another question.
    del row["probe"]["digest"]
    changed = [first.replace("blue", "green", 1), json.dumps(row), third]
    (probes / "metadata.jsonl").write_text("\n".join(changed) + "\n", encoding="utf-8")
    with OpenAIServer(flatters) as server:
        words = ("--protocol", "probes", "--mode", "plain", "--backend", f"tiny=openai/tiny-vl?base_url={server.url}")
        code, told, _ = editloupe("judge", "probes", *words, "--out", "runs/plain")
        assert len(server.seen) == 2  # about p02 alone
    told = " ".join(told.split()) + " ".join(editloupe("trial", "runs/plain")[1].split())
    assert code == 3 and "p00: the probe was changed after it was built: its row" in told
    store = RunStore.read(Path("runs/plain"))
    assert {f.status for f in store.findings.values() if f.sample_id != "p02"} == {"input_error"}
