"""`editloupe report`: tables, areas and plots from findings alone."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import ImagePart, Request
from editloupe.protocols.dlebench import EDIT_TYPES, DLEBench
from editloupe.reports.areas import area_name, by_area, correlation
from editloupe.reports.grid import Grid, terminal
from editloupe.reports.judged import Judged, read_judged
from editloupe.reports.paper import label_grids, score_grids, side_by_side
from editloupe.reports.report import make_report
from editloupe.rubrics.model import load_rubric
from editloupe.runs.execute import execute
from editloupe.runs.spec import Settings, Source, open_bench
from editloupe.values import Box, ImageRef, Sample, Score, Target, Turn
from tests.conftest import final
from tests.runs.dlebench_folder import EDITORS, draw_folder, edited_options

TABLES = Path(__file__).parents[3] / "shared" / "data" / "paper-tables"
IF, VC = "instruction_following", "visual_consistency"


def judged(scores: list[Score], samples: list[Sample] | None = None, name: str = "judge") -> Judged:
    rubric = load_rubric("dlebench")
    return Judged(
        name=name,
        folder=Path("run"),
        judge_id="j",
        backend="test",
        mode="tool",
        ablations=(),
        rubric=rubric,
        protocol=DLEBench(rubric),
        criteria=tuple(c.id for c in rubric.criteria),
        samples={s.key: s for s in samples or []},
        findings=(),
        scores=tuple(scores),
    )


def score(id: str, metric: str, normalised: float | None, **more: str) -> Score:
    return Score(
        sample_id=id,
        editor=more.get("editor", "e"),
        edit_type=more.get("edit_type", "color"),
        metric=metric,
        value=None if normalised is None else 1 + normalised * 3 / 100,
        normalised=normalised,
        label=more.get("label"),
        missing=None if normalised is not None else more.get("missing", "refused"),
    )


def figures(grid: Grid, row: str, editor: str = "e") -> dict[str, object]:
    (found,) = (r for r in grid.records if r["edit_type"] == row and r["editor"] == editor)
    return dict(found)


@pytest.mark.skipif(not TABLES.is_dir(), reason="the paper's tables are not here (shared/data/paper-tables)")
def test_table_4_gives_table_1_in_every_cell_through_the_report():
    with (TABLES / "dlebench_table4_by_criterion.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["edit_type"] != "Average"]
    with (TABLES / "dlebench_table1_overall.csv").open() as file:
        published = {row.pop("edit_type"): row for row in csv.DictReader(file)}
    scores = [
        score(row["edit_type"], row["criterion"], float(row[editor]), editor=editor, edit_type=row["edit_type"])
        for editor in published["Average"]
        for row in rows
    ]
    overall = score_grids(judged(scores))[0]
    cells = 0
    for edit_type, row in published.items():
        name = "mean over types" if edit_type == "Average" else edit_type
        for editor, value in row.items():
            # Both tables are rounded to 0.01.
            assert figures(overall, name, editor)["mean"] == pytest.approx(float(value), abs=0.0101), (edit_type, editor)
            cells += 1
    assert cells == 8 * 10


def test_a_missing_output_is_left_out_and_counted_as_the_worst():
    scores = [
        score("a", IF, 100.0), score("b", IF, 100 / 3), score("c", IF, None, missing="missing_output"),
        score("d", IF, None),
    ]  # fmt: skip
    grid = next(g for g in score_grids(judged(scores)) if g.name == "scores-instruction-following")
    left_out = figures(grid, "mean of all samples")
    assert (left_out["mean"], left_out["judged"], left_out["asked"]) == (pytest.approx(200 / 3), 2, 4)
    # (100 + 33.3 + 0) / 3; the refusal is the judge's and stays out.
    worst = figures(grid, "mean of all samples, missing outputs as the worst")
    assert (worst["mean"], worst["judged"], worst["asked"]) == (pytest.approx(400 / 9), 3, 4)
    assert [row.cells[0] for row in grid.rows if row.strong] == [
        "Mean of 1 of 7 types", "Mean of all samples", "Mean of 1 of 7 types, missing outputs as the worst",
        "Mean of all samples, missing outputs as the worst",
    ]  # fmt: skip


def test_where_nothing_is_missing_there_is_one_reading():
    grid = score_grids(judged([score("a", IF, 100.0), score("a", VC, 0.0)]))[0]
    assert [row.cells[0] for row in grid.rows] == ["Change Color", "Mean of 1 of 7 types", "Mean of all samples"]
    assert figures(grid, "mean over types")["mean"] == 50.0


def test_a_type_that_one_criterion_could_not_judge_gives_no_interval_but_the_mean():
    scores = [
        score(f"{t}{i}", m, None if (t, m) == ("count", VC) else 100.0 * (i % 2), edit_type=t)
        for t in ("color", "count") for i in range(4) for m in (IF, VC)
    ]  # fmt: skip
    found = figures(score_grids(judged(scores))[0], "mean over types")
    # IF over two types 50, VC over one 50.
    assert (found["mean"], found["low"]) == (50.0, None)


def test_labels_by_editor_tell_what_fails():
    scores = [
        score("a", IF, 0.0, label="Localization Failure"), score("b", IF, 0.0, label="Localization Failure"),
        score("c", IF, 100.0, label="Flawless Execution"), score("d", IF, None),
    ]  # fmt: skip
    grid = label_grids(judged(scores))[0]
    assert grid.head == ("Label", "e")
    assert [row.cells for row in grid.rows] == [
        ("Flawless Execution", "1 (33 %)"), ("Over Modification", "0 (0 %)"), ("Wrong Action", "0 (0 %)"),
        ("Localization Failure", "2 (67 %)"), ("Judged", "3/4"), ("(refused)", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_no_word_or_number_of_a_table_is_broken_at_the_width_of_a_terminal(width: int):
    scores = [
        score(f"{t}{i}", m, None if i == 5 else 100.0 * (i % 2), editor=f"editor-{e}", edit_type=t,
              label="Flawless Execution", missing="missing_output")
        for e in range(7) for t in ("color", "count") for i in range(6) for m in (IF, VC)
    ]  # fmt: skip
    (section,) = make_report([judged(scores)]).sections
    both = side_by_side([judged(scores, name="openai/some-long-model, tool"), judged(scores, name="other")])
    assert both is not None
    for one in (*section.grids, both):
        console = Console(width=width, file=io.StringIO(), legacy_windows=False)
        console.print(terminal(one))
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        assert max(map(len, shown.splitlines())) <= width
        lines = [line for line in shown.splitlines() if "│" in line or "┃" in line]
        words = {word for line in lines for word in re.split(r"[│┃\s]+", line)}
        known = {word for text in (*one.head, *(c for row in one.rows for c in row.cells)) for word in text.split()}
        assert words - {""} == known


def with_area(id: str, *boxes: Box) -> Sample:
    """In an image of 1000×1000 px."""

    def image(name: str) -> ImageRef:
        return ImageRef(sha256=name, width=1000, height=1000, media_type="image/png")

    targets = tuple(Target(boxes={"source": box}) for box in boxes)
    turn = Turn(instruction="Do it.", edited=image("e" + id))
    return Sample(id=id, editor="e", source=image("s" + id), turns=(turn,), targets=targets)


def test_scores_against_areas():
    # Twelve squares of 10, 20, … 120 px: the larger six flawless, the smaller failures.
    samples = [with_area(str(n), Box(0, 0, 10 * n, 10 * n)) for n in range(1, 13)]
    scores = [score(str(n), IF, 100.0 if n > 6 else 0.0) for n in range(1, 13)]
    # Two overlapping boxes count once: 100×100 and the same again, 1 %.
    samples.append(with_area("twice", Box(0, 0, 100, 100), Box(0, 0, 100, 100)))
    samples.append(with_area("none"))
    scores += [score("twice", IF, None), score("none", IF, 100.0)]
    (found,) = by_area(judged(scores, samples))
    assert found.criterion == IF
    assert found.without == 1
    assert [area for area, _ in found.points] == pytest.approx([(10 * n) ** 2 / 1e6 for n in range(1, 13)])
    # Windows of ten: samples 1..10 hold four flawless ones, 2..11 five, 3..12 six; areas Σ n² / 10 · 100 px².
    assert [score for _, score in found.trend] == pytest.approx([40, 50, 60])
    assert [area for area, _ in found.trend] == pytest.approx([385e-5, 505e-5, 645e-5])
    # x deviations −1.2667, −0.0667, 1.3333 (·1e-3), y −10, 0, 10: r = 26 / (sqrt(3.3867) · sqrt(200)).
    assert found.windowed.r == pytest.approx(26 / (3.38666666**0.5 * 200**0.5), abs=1e-6)
    assert found.windowed.n == 3
    # 10 and 20 px lie under 0.07 %, 30 to 80 px under 0.8 %, 90 px is 0.81 %; "twice" was asked and not judged.
    assert {name: (e.value, e.judged, e.asked) for name, e in found.buckets.items()} == {
        "under 0.07 %": (0.0, 2, 2), "0.07 to 0.8 %": (pytest.approx(100 / 3), 6, 6), "0.8 to 10 %": (100.0, 4, 5),
    }  # fmt: skip


def test_equal_areas_tilt_no_window():
    # Six targets of one size, three of them flawless, then six of another, three flawless: area tells nothing of the score.
    sides = [10] * 6 + [20] * 6
    given = [100.0, 0.0] * 6
    samples = [with_area(str(n), Box(0, 0, side, side)) for n, side in enumerate(sides)]
    scores = [score(str(n), IF, value) for n, value in enumerate(given)]
    (found,) = by_area(judged(scores, samples))
    # Sorted by score within an area, the windows would hold 4, 5 and 6 flawless ones and r would be 1.
    assert [score for _, score in found.trend] == pytest.approx([50, 50, 50])
    assert found.windowed.r is None
    (turned,) = by_area(judged(scores[::-1], samples[::-1]))
    assert turned.trend == found.trend


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [([], [], "no points"), ([1.0], [0.0], "1 point"),
     ([1.0, 2.0], [0.0, 1.0], "2 points"), ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], "one score"),
     ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], "one area")],
)  # fmt: skip
def test_a_correlation_that_does_not_exist_says_why(x: list[float], y: list[float], why: str):
    assert (correlation(x, y).r, correlation(x, y).p, correlation(x, y).why) == (None, None, why)


@pytest.mark.parametrize(
    ("area", "name"),
    [(0.0001, "under 0.07 %"), (0.0007, "0.07 to 0.8 %"), (0.008, "0.8 to 10 %"), (0.1, "10 % and more"),
     (1.0, "10 % and more")],
)  # fmt: skip
def test_areas_lie_in_the_intervals_of_figure_4(area: float, name: str):
    assert area_name(area) == name


def test_judges_are_compared_on_the_samples_that_all_could_judge():
    first = judged([score("a", IF, 0.0), score("b", IF, 100.0), score("c", IF, None)], name="first")
    second = judged([score("a", IF, 100.0), score("b", IF, None), score("c", IF, 100.0)], name="second")
    grid = side_by_side([first, second])
    assert grid is not None
    one, two = (r for r in grid.records if r["criterion"] == IF)
    assert (one["mean"], one["common"], one["judged"], one["asked"]) == (0.0, 1, 2, 3)
    assert (two["mean"], two["difference"]) == (100.0, 100.0)
    none = next(r for r in grid.records if r["criterion"] == VC)
    assert (none["mean"], none["common"], none["asked"]) == (None, 0, 0)
    assert side_by_side([first]) is None


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_judge_without_any_verdict_is_not_among_all(place: int):
    judges = [
        judged([score("a", IF, 0.0), score("b", IF, 100.0)], name="first"),
        judged([score("a", IF, 100.0), score("b", IF, 100.0)], name="second"),
    ]
    judges.insert(place, judged([score("a", IF, None), score("b", IF, None)], name="none"))
    grid = side_by_side(judges)
    assert grid is not None
    found = {r["judge"]: r for r in grid.records if r["criterion"] == IF}
    assert [(found[n]["mean"], found[n]["common"]) for n in ("first", "second", "none")] == [
        (50.0, 2),
        (100.0, 2),
        (None, 0),
    ]
    # There is no difference from a first one that has nothing.
    assert found["second"]["difference"] == (None if place == 0 else 50.0)
    assert found["none"]["difference"] is None
    assert "Without any verdict and not among all: none (IF)." in grid.caption


def test_samples_of_one_name_and_other_content_are_not_compared():
    here = [with_area("a", Box(0, 0, 9, 9)), with_area("b", Box(0, 0, 9, 9)), with_area("c", Box(0, 0, 9, 9))]
    there = [
        here[0],
        with_area("b", Box(0, 0, 10, 9)),
        replace(here[2], turns=(Turn(instruction="Undo it.", edited=here[2].edited),)),
    ]
    first = judged([score("a", IF, 0.0), score("b", IF, 0.0), score("c", IF, 0.0)], here, name="first")
    second = judged([score("a", IF, 100.0), score("b", IF, 0.0), score("c", IF, 0.0)], there, name="second")
    grid = side_by_side([first, second])
    assert grid is not None
    one, two = (r for r in grid.records if r["criterion"] == IF)
    assert (one["common"], two["common"], two["difference"], two["judged"]) == (1, 1, 100.0, 3)
    assert "2 samples have the same name and other content: left out." in grid.caption


def test_judges_of_other_data_do_not_stand_side_by_side():
    first = judged([score("a", IF, 0.0)], [with_area("a", Box(0, 0, 9, 9))], name="first")
    second = judged([score("a", IF, 0.0)], [with_area("a", Box(0, 0, 10, 9))], name="second")
    report = make_report([first, second])
    assert report.together is None
    (note,) = report.notes
    assert "1 sample has the same name and other content: left out; compare runs over the same data" in note
    assert f"> {note}" in report.markdown()
    (note,) = make_report([first, judged([score("z", IF, 0.0)], name="third")]).notes
    assert "no sample was given to all of them" in note


def test_ten_editors_share_one_radar_and_every_plot_is_well_formed():
    scores = [
        score(t, m, 10.0 * i, editor=f"editor <{i}> & co", edit_type=t, label="Flawless Execution")
        for i in range(10) for t in EDIT_TYPES for m in (IF, VC)
    ]  # fmt: skip
    (section,) = make_report([judged(scores)]).sections
    assert set(section.plots) == {
        "types-overall", "types-instruction-following", "types-visual-consistency", "labels-instruction-following",
        "labels-visual-consistency",
    }  # fmt: skip
    for text in section.plots.values():
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert "editor <0> & co" in "".join(root.itertext())


@pytest.fixture(scope="module")
def judged_once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run a mode over the drawn folder, by a script that finds everything good."""
    place = tmp_path_factory.mktemp("judged")
    folder = draw_folder(place / "data")
    made = {}
    for mode in ("plain", "oracle"):
        lmm = ScriptedLMM(
            lambda r: final("Flawless Execution" if "Instruction Following" in r.messages[0].text else "Single Anomaly")
        )
        bench = open_bench(Settings(backend=lmm, mode=mode))  # type: ignore[arg-type]
        edited = {editor: folder / "outputs" / editor for editor in EDITORS}
        made[mode] = place / mode
        execute(bench, Source(path=folder, edited=edited), made[mode], config={})
    return made


@pytest.fixture
def runs(judged_once: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies of the runs that may be written to."""
    return {mode: Path(shutil.copytree(run, tmp_path / mode)) for mode, run in judged_once.items()}


def test_report_writes_its_files_and_says_where(runs: dict[str, Path], editloupe: Callable[..., tuple[int, str, str]]):
    code, told, _ = editloupe("report", runs["oracle"])
    assert code == 0
    assert "Mean of 3 to 4 of 7 types" in told and "4 types)" in told and "3 types)" in told
    assert "r (p)" in told
    folder = runs["oracle"] / "report"
    names = {path.name for path in folder.iterdir()}
    assert {"report.md", "report.json", "scores-overall.csv", "labels-visual-consistency.csv", "scale.csv"} <= names
    assert {"area-1-instruction-following.svg", "types-overall.svg"} <= names
    with (folder / "scores-instruction-following.csv").open() as file:
        rows = {(r["editor"], r["edit_type"]): r for r in csv.DictReader(file)}
    assert rows["steady", "Change Color"]["mean"] == "100.0"
    assert rows["careless", "Change Material"] | {"judge": ""} == {
        "judge": "", "editor": "careless", "criterion": IF, "edit_type": "Change Material", "mean": "", "low": "",
        "high": "", "judged": "0", "asked": "1",
    }  # fmt: skip
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert "| Flawless Execution | 6 (100 %) | 5 (100 %) |" in markdown


def test_a_new_report_removes_what_only_the_old_one_had(
    runs: dict[str, Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    out = tmp_path / "reports"
    assert editloupe("report", runs["plain"], runs["oracle"], "--out", out)[0] == 0
    assert editloupe("compare", runs["plain"], runs["oracle"], "--out", out)[0] == 0
    (out / "judge-1" / "mine.txt").write_text("kept")
    (out / "summary.json").write_text("{}")
    assert (out / "judge-2" / "scores-overall.csv").is_file() and (out / "side-by-side.csv").is_file()
    code, _, _ = editloupe("report", runs["plain"], "--out", out)
    assert code == 0
    assert not (out / "judge-2").exists() and not (out / "side-by-side.csv").exists()
    assert [p.name for p in (out / "judge-1").iterdir()] == ["mine.txt"]
    assert all((out / name).is_file() for name in ("summary.json", "compare.json", "report.json", "scores-overall.csv"))
    assert editloupe("compare", runs["plain"], runs["oracle"], "--out", out)[0] == 0
    assert (out / "scores-overall.csv").is_file()


def test_a_list_of_files_from_elsewhere_removes_nothing_outside(
    runs: dict[str, Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "mine.txt").write_text("kept")
    (out / ".files.json").write_text(json.dumps({"report": ["../mine.txt", "nowhere.csv", 3], "x": 1}))
    assert editloupe("report", runs["plain"], "--out", out)[0] == 0
    assert (tmp_path / "mine.txt").is_file()
    (out / ".files.json").write_text("cut off {")
    assert editloupe("report", runs["plain"], "--out", out)[0] == 0
    assert "report.md" in json.loads((out / ".files.json").read_text())["report"]


def test_modes_stand_side_by_side(runs: dict[str, Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]):
    code, told, said = editloupe("report", runs["plain"], runs["oracle"], "--json")
    assert (code, said) == (0, "")
    data = json.loads(told)
    assert [j["mode"] for j in data["judges"]] == ["plain", "oracle"]
    both = data["together"]["records"]
    assert {r["judge"] for r in both} == {"scripted/test, plain", "scripted/test, oracle"}
    assert {r["common"] for r in both} == {11}
    code, told, said = editloupe("report", runs["plain"], runs["oracle"])
    assert (code, "Give --out DIR" in said) == (0, True)
    code, told, _ = editloupe("report", runs["plain"], runs["oracle"], "--out", tmp_path / "both")
    assert (tmp_path / "both" / "judge-2" / "scores-overall.csv").is_file()


def test_what_cannot_be_reported_is_said(
    runs: dict[str, Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    code, _, said = editloupe("report", runs["plain"], runs["plain"].parent / "." / "plain" / ".." / "plain")
    assert (code, "are the same run; name each run once" in said) == (2, True)
    code, _, said = editloupe("report", tmp_path / "nowhere")
    assert (code, "is no run folder" in said) == (2, True)
    (runs["plain"] / "findings.jsonl").write_text("")
    code, _, said = editloupe("report", runs["plain"])
    assert (code, "holds no finding yet" in said) == (2, True)
    info = json.loads((runs["plain"] / "run.json").read_text())
    info["record"]["rubric"]["title"] = "Another"
    (runs["plain"] / "run.json").write_text(json.dumps(info))
    row = json.loads((runs["oracle"] / "findings.jsonl").read_text().splitlines()[0])
    row["judge_id"] = next(iter(info["judges"]))
    (runs["plain"] / "findings.jsonl").write_text(json.dumps(row) + "\n")
    code, _, said = editloupe("report", runs["oracle"], runs["plain"])
    assert (code, "was judged by rubric dlebench (" in said) == (2, True)


def test_rows_that_could_not_be_read_are_counted(tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]):
    folder = draw_folder(tmp_path / "data")
    rows = (folder / "data.jsonl").read_text().splitlines()
    broken = json.loads(rows[0]) | {"bbox": [[50, 50, 50, 90]]}
    outside = json.loads(rows[1]) | {"bbox": [[0, 0, 900, 20]]}
    (folder / "data.jsonl").write_text("\n".join([json.dumps(broken), json.dumps(outside), *rows[2:]]) + "\n")
    out = tmp_path / "run"
    code, _, _ = editloupe("judge", folder, *edited_options(folder), "--mode", "oracle", "--out", out)
    assert code == 3
    (found,) = read_judged([out])
    bad = [s for s in found.scores if s.missing == "input_error"]
    assert {s.sample_id for s in bad} == {"colour", "border"}
    code, told, _ = editloupe("report", out, "--markdown")
    assert code == 0
    assert "| (input_error) | 2 | 2 |" in told


def test_people_are_compared_with_the_worst_of_the_targets(tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]):
    folder = draw_folder(tmp_path / "data")

    def script(request: Request) -> str:
        image = next(part.image for part in request.messages[0].parts if isinstance(part, ImagePart))
        # The crop of the second target of "several" alone has this size.
        return final("Wrong Action" if (image.width, image.height) == (346, 326) else "Flawless Execution")

    bench = open_bench(Settings(backend=ScriptedLMM(script), mode="oracle", criteria=("if",)))
    edited = {editor: folder / "outputs" / editor for editor in EDITORS}
    execute(bench, Source(path=folder, edited=edited), tmp_path / "run", config={})
    rows = [("several", "Wrong Action"), ("colour", "Flawless Execution"), ("gone", "Over Modification")]
    human = tmp_path / "human.csv"
    human.write_text("item,editor,if\n" + "".join(f"{item},steady,{label}\n" for item, label in rows))
    code, told, said = editloupe("align", tmp_path / "run", "--human", human, "--json")
    assert code == 0, said
    # |2 − 2|, |4 − 4|, |4 − 3|: the first target of "several" alone would make it 1.
    mae = find(json.loads(told), "mae")
    assert mae["value"] == pytest.approx(1 / 3)


def find(data: object, name: str) -> dict[str, object]:
    """The first figure of a name, anywhere in JSON."""
    if isinstance(data, dict):
        if isinstance(data.get(name), dict):
            return data[name]
        for value in data.values():
            if found := find(value, name):
                return found
    if isinstance(data, list):
        for value in data:
            if found := find(value, name):
                return found
    return {}
