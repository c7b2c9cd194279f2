"""`editloupe report`: tables, areas and plots from findings alone."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.figures import plots
from editloupe.figures.frame import score_frame
from editloupe.figures.judged import read_judged
from editloupe.figures.summary import specs
from editloupe.figures.tables import spec_table
from editloupe.protocols.base import make_protocol
from editloupe.protocols.dlebench.tables import EDIT_TYPES
from editloupe.scores import Score
from tests.conftest import final
from tests.figures.runs import IF, VC, Row, finding, sample, write_run
from tests.protocols.dlebench_folder import EDITORS, draw_folder, edited_options
from tests.setups import open_with, run_over

TABLES = Path(__file__).parents[3] / "shared" / "data" / "paper-tables"
BEST, OVER, LOST = "Flawless Execution", "Over Modification", "Localization Failure"
PERFECT, COLLAPSE = "Perfect Consistency", "Scene Collapse"

Program = Callable[..., tuple[int, str, str]]
Labels = Mapping[tuple[str, str], str]
"""Sample id and criterion → label, or a status in brackets."""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write one judge's labels of edits by editor "e", all recolorings, as a run named for the judge."""

    def run(labels: Labels, *, name: str = "judge", samples: Sequence[Row] = ()) -> Path:
        known = {row["id"]: row for row in samples}
        for id, _ in labels:
            known.setdefault(id, edit(id))
        rows = [finding(known[id], given, criterion=criterion) for (id, criterion), given in labels.items()]
        return write_run(tmp_path / name, list(known.values()), {name: rows})

    return run


@pytest.fixture
def reported(editloupe: Program) -> Callable[..., dict[str, Any]]:
    """What `report --json` tells of runs."""

    def report(*runs: Path) -> dict[str, Any]:
        code, told, said = editloupe("report", *runs, "--format", "json")
        assert code == 0, said
        return dict(json.loads(told))

    return report


def edit(id: str, *boxes: tuple[int, int, int, int], **more: Any) -> Row:
    return sample(id, **{"editor": "e", "edit_type": "color", "boxes": boxes, **more})


def records(found: dict[str, Any], table: str) -> list[Row]:
    """The figures of a table of the only judge."""
    (judge,) = found["judges"]
    return list(judge["tables"][table]["records"])


def figures(rows: Sequence[Row], edit_type: str) -> Row:
    (found,) = (r for r in rows if r["edit_type"] == edit_type)
    return found


@pytest.mark.skipif(not TABLES.is_dir(), reason="the paper's tables are not here (shared/data/paper-tables)")
def test_table_4_gives_table_1_in_every_cell_through_the_report():
    with (TABLES / "dlebench_table4_by_criterion.csv").open() as file:
        listed = list(csv.DictReader(file))
    with (TABLES / "dlebench_table1_overall.csv").open() as file:
        published = {row.pop("edit_type"): row for row in csv.DictReader(file)}
    rows = [row for row in listed if row["edit_type"] != "Average"]
    # Means of many samples are no labels of one, so that no run folder can hold them: the scores are made here.
    protocol = make_protocol("dlebench")
    scores = [
        Score(
            sample_id=row["edit_type"],
            editor=editor,
            dims={"edit_type": row["edit_type"]},
            metric=row["criterion"],
            value=1 + float(row[editor]) * 3 / 100,
            normalized=float(row[editor]),
        )
        for editor in published["Average"]
        for row in rows
    ]
    tables = [spec_table(spec, score_frame(scores), protocol.metrics) for spec in specs(protocol)]
    overall, *by_criterion = ([] if table is None else table.records() for table in tables)
    cells = 0
    for edit_type, row in published.items():
        name = "mean over types" if edit_type == "Average" else edit_type
        for editor, value in row.items():
            # Both tables are rounded to 0.01.
            (mean,) = (r["mean"] for r in overall if (r["edit_type"], r["editor"]) == (name, editor))
            assert mean == pytest.approx(float(value), abs=0.0101), (edit_type, editor)
            cells += 1
    assert cells == 8 * 10
    averages = {
        (r["metric"], r["editor"]): r["mean"] for t in by_criterion for r in t if r["edit_type"] == "mean over types"
    }
    for row in listed:
        if row["edit_type"] == "Average":
            for editor in published["Average"]:
                assert averages[row["criterion"], editor] == pytest.approx(float(row[editor]), abs=0.0101)


def test_a_missing_output_is_left_out_and_counted_as_the_worst(
    write: Callable[..., Path], reported: Callable[..., dict[str, Any]], editloupe: Program
):
    run = write({("a", IF): BEST, ("b", IF): "Wrong Action", ("c", IF): "(missing_output)", ("d", IF): "(refused)"})
    rows = records(reported(run), "scores-instruction-following")
    left_out = figures(rows, "mean of all samples")
    # Wrong Action is 2 of 1 to 4: 33.3.
    assert (left_out["mean"], left_out["judged"], left_out["asked"]) == (pytest.approx(200 / 3), 2, 4)
    # (100 + 33.3 + 0) / 3; the refusal is the judge's and stays out.
    worst = figures(rows, "mean of all samples, missing outputs as the worst")
    assert (worst["mean"], worst["judged"], worst["asked"]) == (pytest.approx(400 / 9), 3, 4)
    _, markdown, _ = editloupe("report", run, "--format", "md")
    assert re.findall(r"^\| (?:\*\*)?(Mean of [^|*]*?)(?:\*\*)? \|", markdown, flags=re.MULTILINE)[:4] == [
        "Mean of all samples", "Mean of 1 of 7 benchmark types",
        "Mean of all samples, missing outputs as the worst", "Mean of 1 of 7 benchmark types, missing outputs as the worst",
    ]  # fmt: skip


def test_a_type_that_one_criterion_could_not_judge_is_left_out_of_the_overall_mean(
    write: Callable[..., Path], reported: Callable[..., dict[str, Any]]
):
    samples = [edit(f"{t}{i}", edit_type=t) for t in ("color", "count") for i in range(4)]
    labels = {
        (row["id"], criterion): "(refused)" if (row["edit_type"], criterion) == ("count", VC) else label
        for row in samples
        for criterion, label in ((IF, LOST if row["edit_type"] == "count" else BEST), (VC, PERFECT))
    }
    report = reported(write(labels, samples=samples))
    found = figures(records(report, "scores-overall"), "mean over types")
    # Color alone has both: 100. IF over two types and VC over one would be 50 and 100: 75.
    assert (found["mean"], found["judged"], found["asked"]) == (100.0, 8, 16)


def test_labels_by_editor_tell_what_fails(write: Callable[..., Path], editloupe: Program):
    run = write({("a", IF): LOST, ("b", IF): LOST, ("c", IF): BEST, ("d", IF): "(refused)"})
    code, markdown, _ = editloupe("report", run, "--format", "md")
    assert code == 0
    table = markdown.split("Instruction Following: labels")[1].split("| Label |")[1]
    cells = [[c.strip(" *") for c in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")]
    assert cells[1:7] == [
        [BEST, "1 (33 %)"], [OVER, "0 (0 %)"], ["Wrong Action", "0 (0 %)"], [LOST, "2 (67 %)"], ["Judged", "3/4"],
        ["(refused)", "1"],
    ]  # fmt: skip


def test_scores_against_areas(write: Callable[..., Path], reported: Callable[..., dict[str, Any]]):
    # Twelve squares of 10, 20, … 120 px: the larger six flawless, the smaller failures.
    samples = [edit(str(n), (0, 0, 10 * n, 10 * n)) for n in range(1, 13)]
    labels = {(str(n), IF): BEST if n > 6 else LOST for n in range(1, 13)}
    # Two overlapping boxes count once: 100×100 and the same again, 1 %.
    samples += [edit("twice", (0, 0, 100, 100), (0, 0, 100, 100)), edit("none")]
    labels |= {("twice", IF): "(refused)", ("none", IF): BEST}
    found = {r["figure"]: r for r in records(reported(write(labels, samples=samples)), "scale")}
    assert found["without a box"]["value"] == 1
    # Windows of ten: samples 1..10 hold four flawless ones, 2..11 five, 3..12 six; areas Σ n² / 10 · 100 px²: 385, 505
    # and 645 (·1e-5). x deviations −1.2667, −0.0667, 1.3333 (·1e-3), y −10, 0, 10: r = 26 / (sqrt(3.3867) · sqrt(200)).
    windows = found["r, windows of 10"]
    assert windows["value"] == pytest.approx(26 / (3.38666666**0.5 * 200**0.5), abs=1e-6)
    assert windows["judged"] == 3
    assert found["r, samples, log area"]["judged"] == 12
    # 10 and 20 px lie under 0.07 %, 30 to 80 px under 0.8 %, 90 px is 0.81 %; "twice" was asked and not judged.
    means = {name: (r["value"], r["judged"], r["asked"]) for name, r in found.items() if name.startswith("mean, ")}
    assert means == {
        "mean, under 0.07 %": (0.0, 2, 2), "mean, 0.07 to 0.8 %": (pytest.approx(100 / 3), 6, 6),
        "mean, 0.8 to 10 %": (100.0, 4, 5),
    }  # fmt: skip


def test_targets_are_drawn_by_area_and_by_width_and_height(write: Callable[..., Path], editloupe: Program, tmp_path: Path):
    samples = [
        edit(name, *boxes, editor=editor)
        for editor in ("alpha", "beta")
        # 0.02 % and 2 % of the image; of two targets (1 % and 0.01 %) the larger is drawn: 200×50 px.
        for name, boxes in (
            ("a", [(0, 0, 10, 20)]),
            ("b", [(0, 0, 200, 100)]),
            ("c", [(0, 0, 200, 50), (300, 0, 310, 10)]),
            ("d", []),
        )
    ]
    rows = [finding(row, LOST if row["id"] == "a" else BEST) for row in samples]
    # Not judged: no dot, and yet a sample of the histogram.
    rows[1] = finding(samples[1], "(refused)")
    run = write_run(tmp_path / "drawn", samples, {"judge": rows})
    code, _, said = editloupe("report", run, "--out", tmp_path / "out")
    assert code == 0, said
    plots = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("*.svg")}
    assert {"area-1-instruction-following", "size-1-instruction-following", "size-2-instruction-following", "areas"} <= set(
        plots
    )
    first, second, areas = (
        ElementTree.fromstring(plots[name]).findtext("{http://www.w3.org/2000/svg}desc") or ""
        for name in ("size-1-instruction-following", "size-2-instruction-following", "areas")
    )
    assert "Flawless Execution 1, Over Modification 0, Wrong Action 0, Localization Failure 1." in first
    assert "Flawless Execution 2, Over Modification 0, Wrong Action 0, Localization Failure 1." in second
    # Both editors' edits of a sample are one sample.
    assert areas == "Samples by target area: 3 samples, 1 more of unknown area; 0.01 to 0.022 %: 1, 1 to 2.2 %: 2."


def test_equal_areas_tilt_no_window(write: Callable[..., Path], reported: Callable[..., dict[str, Any]]):
    # Six targets of one size, three of them flawless, then six of another, three flawless: area tells nothing of the score.
    sides = [10] * 6 + [20] * 6
    samples = [edit(str(n), (0, 0, side, side)) for n, side in enumerate(sides)]
    labels = {(str(n), IF): (BEST, LOST)[n % 2] for n in range(12)}
    windows = next(
        r for r in records(reported(write(labels, samples=samples)), "scale") if r["figure"] == "r, windows of 10"
    )
    # Sorted by score within an area, the windows would hold 4, 5 and 6 flawless ones and r would be 1.
    assert (windows["value"], windows["judged"], windows["why"]) == (None, 3, "one score")


def test_the_mean_of_the_benchmark_s_types_leads_for_data_of_exactly_these_types(
    write: Callable[..., Path], editloupe: Program
):
    # Seven of eight types: the mean over the benchmark's leaves one out.
    for more, leads in (((), "Mean of all 7 types"), (("style",), "Mean of all samples")):
        types = (*EDIT_TYPES, *more)
        samples = [edit(kind, edit_type=kind) for kind in types]
        _, told, _ = editloupe("report", write({(kind, IF): BEST for kind in types}, samples=samples, name=str(len(types))))
        found = re.findall(r"Mean of all (?:7 types|samples)", told)
        assert (found[0], set(found)) == (leads, {"Mean of all 7 types", "Mean of all samples"})


def test_judges_stand_side_by_side_on_the_samples_that_all_could_judge(
    write: Callable[..., Path], reported: Callable[..., dict[str, Any]]
):
    first = write({("a", IF): LOST, ("b", IF): BEST, ("c", IF): "(refused)"}, name="first")
    second = write({("a", IF): BEST, ("b", IF): "(refused)", ("c", IF): BEST}, name="second")
    none = write({("a", IF): "(refused)", ("b", IF): "(refused)"}, name="none")
    together = reported(none, first, second)["together"]
    told = {r["judge"].removesuffix(", tool"): (r["mean"], r["common"]) for r in together["records"]}
    # A judge without a verdict would leave nothing that all judged.
    assert told == {"none": (None, None), "first": (50.0, 0.0), "second": (100.0, 100.0)}
    assert reported(first)["together"] is None
    # Other data.
    third = write({("z", IF): LOST}, name="third", samples=[edit("z")])
    (note,) = reported(first, third)["notes"]
    assert "side by side: the judges have no sample in common" in note


def test_report_writes_its_files_and_says_where(tmp_path: Path, editloupe: Program):
    data, run = draw_folder(tmp_path / "data"), tmp_path / "run"
    # A script that finds everything good.
    lmm = ScriptedLMM(lambda r: final(BEST if "Instruction Following" in r.messages[0].text else "Single Anomaly"))
    edited = {editor: data / "outputs" / editor for editor in EDITORS}
    run_over(open_with(backend=lmm, mode="oracle"), data, run, edited=edited)
    code, told, _ = editloupe("report", run)
    assert code == 0
    assert "Mean of up to 4 of 7 benchmark types" in told and "4 types)" in told and "3 types)" in told
    assert "r (p)" in told
    folder = run / "report"
    names = {path.name for path in folder.iterdir()}
    assert {"report.md", "report.json", "scores-overall.csv", "labels-visual-consistency.csv", "scale.csv"} <= names
    # Plots are drawn where they are asked for.
    assert not [name for name in names if name.endswith(".svg")]
    with (folder / "scores-instruction-following.csv").open() as file:
        rows = {(r["editor"], r["edit_type"]): r for r in csv.DictReader(file)}
    assert rows["steady", "Change Color"]["mean"] == "100.0"
    assert rows["careless", "Change Material"] | {"judge": ""} == {
        "judge": "", "editor": "careless", "metric": IF, "edit_type": "Change Material", "mean": "", "low": "",
        "high": "", "judged": "0", "asked": "1",
    }  # fmt: skip
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert "| Flawless Execution | 6 (100 %) | 5 (100 %) |" in markdown


def test_plots_for_a_paper_are_written_whatever_is_printed(
    write: Callable[..., Path], tmp_path: Path, editloupe: Program, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("matplotlib", reason="it is in the extra `plots`")
    run = write({("a", IF): BEST, ("b", IF): LOST}, samples=[edit("b", edit_type="count")])
    code, out, said = editloupe("report", run, "--format", "json", "--figures", tmp_path / "paper")
    assert code == 0 and json.loads(out)["judges"] and f"plots in {tmp_path / 'paper'}, as PDF and PNG" in said
    written = {path.name for path in (tmp_path / "paper").iterdir()}
    assert {f"types-instruction-following.{form}" for form in ("pdf", "png")} <= written
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    code, _, said = editloupe("report", run, "--figures", tmp_path / "none")
    assert code == 2 and "--figures: No plots: they need" in said


def test_what_cannot_be_reported_is_said(write: Callable[..., Path], tmp_path: Path, editloupe: Program):
    labels = {("a", IF): BEST}
    first, second = write(labels, name="first"), write(labels, name="second")
    findings = (second / "findings.jsonl").read_text()
    (second / "findings.jsonl").write_text("")
    for runs, why in (
        ((first, first.parent / "." / "first" / ".." / "first"), "are the same run; name each run once"),
        ((tmp_path / "nowhere",), "is no run folder"),
        ((second,), "holds no finding yet"),
    ):
        code, _, said = editloupe("report", *runs)
        assert (code, why in said) == (2, True), said
    info = json.loads((second / "run.json").read_text())
    info["record"]["metrics"][0]["name"] = "Another"
    (second / "run.json").write_text(json.dumps(info))
    (second / "findings.jsonl").write_text(findings)
    # Runs of other metrics are told each by itself.
    code, told, said = editloupe("report", first, second)
    assert code == 0 and "Another: labels" in told and "The judges do not stand side by side: " in said, said


def test_rows_that_could_not_be_read_are_counted(tmp_path: Path, editloupe: Program):
    folder = draw_folder(tmp_path / "data")
    rows = (folder / "data.jsonl").read_text().splitlines()
    broken = json.loads(rows[0]) | {"bbox": [[50, 50, 50, 90]]}
    outside = json.loads(rows[1]) | {"bbox": [[0, 0, 900, 20]]}
    (folder / "data.jsonl").write_text("\n".join([json.dumps(broken), json.dumps(outside), rows[2]]) + "\n")
    out = tmp_path / "run"
    code, _, _ = editloupe("judge", folder, *edited_options(folder), "--mode", "oracle", "--out", out)
    assert code == 3
    (found,) = read_judged([out])
    bad = [s for s in found.scores if s.missing == "input_error"]
    assert {s.sample_id for s in bad} == {"color", "border"}
    code, told, _ = editloupe("report", out, "--format", "md")
    assert code == 0
    assert "| (input_error) | 2 | 2 |" in told
