"""`editloupe align` on tables and runs of a user's own: how columns are found, and what happens to what does not fit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]

QUICK = ("--resamples", "100")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def report(text: str) -> dict[str, Any]:
    """The one judge's report."""
    (found,) = json.loads(text)["judges"]
    return dict(found)


def figures(text: str, criterion: int = 0) -> dict[str, Any]:
    return dict(report(text)["criteria"][criterion]["all"]["figures"])


SCORES = "item,score\np,1\nq,2\nr,3\ns,4\n"


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    return write(tmp_path / "judge.csv", SCORES)


@pytest.mark.parametrize(
    ("name", "text", "more"),
    [
        ("long.csv", "item,rater,label\np,anna,1\nq,anna,3\nr,anna,2\ns,anna,4\n", ()),
        ("semicolons.csv", "Sample ID;Value\np;1\nq;3\nr;2\ns;4\n", ()),
        ("wide.csv", "image_id,human_score_anna\np,1\nq,3\nr,2\ns,4\n", ()),
        ("rater_first.csv", "image_id,rater1_score\np,1\nq,3\nr,2\ns,4\n", ()),
        ("own.csv", "picture,mark\np,1\nq,3\nr,2\ns,4\n", ("--columns", "item=picture,label=mark")),
        ("named.csv", "picture,mark\np,1\nq,3\nr,2\ns,4\n", ("--columns", "item=picture,score@anna=mark")),
        ("tabs.tsv", "item\tlabel\np\t1\nq\t3\nr\t2\ns\t4\n", ()),
        ("criteria.csv", "item,metric,score\np,Score,1\nq,score,3\nr,score,2\ns,score,4\n", ()),
        (
            "lines.jsonl",
            '{"item": "p", "label": 1}\n{"item": "q", "label": 3}\n'
            '{"item": "r", "label": 2.0}\n{"item": "s", "label": 4}\n',
            (),
        ),
    ],
)
def test_ratings_are_found_in_the_usual_shapes(
    editloupe: Run, tmp_path: Path, scores: Path, name: str, text: str, more: tuple[str, ...]
):
    """1 2 3 4 against 1 3 2 4: Spearman 1 − 6 · 2 / (4 · 15) = 0.8; exact in 2 of 4."""
    human = write(tmp_path / name, text)
    code, out, err = editloupe("align", "--scores", scores, "--human", human, "--json", *QUICK, *more)
    assert code == 0, err
    found = figures(out)
    assert found["spearman"]["value"] == pytest.approx(0.8)
    assert found["exact"]["value"] == 0.5
    assert found["spearman"]["judged"] == found["spearman"]["asked"] == 4


def test_several_raters_are_averaged_and_counted(editloupe: Run, tmp_path: Path, scores: Path):
    """p: 1 1 2 → label 1; q: 2 3 → a draw, mean 2.5; r and s: one rater. Mean errors 1/3, 1/2, 0, 0."""
    human = write(tmp_path / "h.csv", "item,rater,label\np,a,1\np,b,1\np,c,2\nq,a,2\nq,b,3\nr,a,3\ns,b,4\n")
    code, out, _ = editloupe("align", "--scores", scores, "--human", human, "--json", *QUICK)
    assert code == 0
    found = figures(out)
    assert found["mae"]["value"] == pytest.approx((1 / 3 + 1 / 2) / 4)
    assert (found["exact"]["value"], found["exact"]["asked"]) == (1.0, 3)
    notes = report(out)["criteria"][0]["notes"]
    assert notes == ["score: 1 item without a most frequent human label, left out of figures on labels"]


def test_raters_without_a_common_item_have_no_ceiling(editloupe: Run, tmp_path: Path, scores: Path):
    human = write(tmp_path / "h.csv", "item,rater,label\np,a,1\nq,a,2\nr,b,3\ns,b,4\n")
    code, out, _ = editloupe("align", "--scores", scores, "--human", human, "--json", *QUICK)
    assert code == 0
    assert report(out)["criteria"][0]["raters"] == 2
    assert report(out)["criteria"][0]["all"]["ceiling"] == {}
    assert report(out)["criteria"][0]["notes"] == ["score: 2 raters share no item, so that there is no ceiling"]
    assert figures(out)["exact"]["value"] == 1.0


def test_rows_that_cannot_be_used_are_counted(editloupe: Run, tmp_path: Path, scores: Path):
    human = write(
        tmp_path / "h.csv",
        "item,rater,label\np,a,1\np,a,1\nq,a,2\nq,a,3\n,a,4\nr,a\nr,a,inf\ns,a,4\nx,a,1\n",
    )
    code, out, _ = editloupe("align", "--scores", scores, "--human", human, "--json", *QUICK)
    assert code == 0
    assert report(out)["notes"] == [
        "h.csv: line 6 left out: names no item",
        "h.csv: line 7 left out: has 2 fields where the header has 3; put text with commas in quotes",
        "h.csv: line 8 left out: holds no rating: expected a label or a finite number, found text 'inf'",
        "h.csv: repeated, and counted once: line 3",
        "h.csv: given again with another value, and left out both times: 1 (line 5)",
        f"rated, but without a row in {scores}, and counted as not judged: 1 (x)",
    ]
    assert (figures(out)["exact"]["judged"], figures(out)["exact"]["asked"]) == (2, 3)


def test_labels_of_a_rubric_bind_both_tables(editloupe: Run, tmp_path: Path):
    judge = write(tmp_path / "judge.jsonl", '{"id": "p", "if": "Wrong Action"}\n{"id": "q", "if": 4}\n')
    human = write(tmp_path / "h.csv", "id,human_if_anna,human_beauty\np,wrong action,1\nq,Perfect,1\nz,5,2\n")
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--rubric", "dlebench", "--json", *QUICK)
    assert code == 0
    (found,) = report(out)["criteria"]
    assert found["criterion"] == "instruction_following"
    assert (found["all"]["figures"]["exact"]["value"], found["all"]["figures"]["exact"]["asked"]) == (1.0, 1)
    assert found["all"]["figures"]["spearman"]["why"] == "fewer than 2 pairs"
    assert found["notes"][0].startswith(
        "instruction_following: no label of the metric and left out: people's 'Perfect' (1)"
    )
    assert "people's 5 (1)" in found["notes"][0]
    assert found["notes"][1] == "instruction_following: 1 judged item without a human rating"


def test_a_score_between_two_labels_is_no_label(editloupe: Run, tmp_path: Path):
    """1 and 2.5 against 1 and 2: errors 0 and 0.5; one label of two can be compared."""
    judge = write(tmp_path / "judge.csv", "item,if\np,1\nq,2.5\n")
    human = write(tmp_path / "h.csv", "item,if\np,1\nq,2\n")
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--rubric", "dlebench", "--json", *QUICK)
    assert code == 0
    assert figures(out)["mae"]["value"] == 0.25
    exact = figures(out)["exact"]
    assert (exact["value"], exact["judged"], exact["asked"], exact["adjusted"]) == (1.0, 1, 2, 0.5)
    told = "instruction_following: 1 score of the judge between two labels, left out of figures on labels"
    assert report(out)["criteria"][0]["notes"] == [told]


def test_words_without_a_rubric_have_no_order(editloupe: Run, tmp_path: Path):
    """yes/no: exact 3/4; good is yes: TP 2, FP 1, FN 0: F1 4/5."""
    judge = write(tmp_path / "judge.csv", "item,answer\np,yes\nq,yes\nr,yes\ns,no\n")
    human = write(tmp_path / "h.csv", "item,label\np,Yes\nq,yes\nr,no\ns,no\n")
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--good-from", "yes", "--json", *QUICK)
    assert code == 0
    found = figures(out)
    assert "spearman" not in found
    assert found["exact"]["value"] == found["accuracy"]["value"] == 0.75
    assert found["f1"]["value"] == pytest.approx(0.8)


def test_numbers_that_people_do_not_use_are_no_labels(editloupe: Run, tmp_path: Path):
    judge = write(tmp_path / "judge.csv", "item,score\np,0.1\nq,0.5\nr,0.9\n")
    human = write(tmp_path / "h.csv", "item,label\np,0\nq,0.5\nr,1\n")
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--json", *QUICK)
    assert code == 0
    assert set(figures(out)) == {"spearman", "kendall", "pearson", "mae", "bias"}
    assert report(out)["criteria"][0]["confusion"] is None
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--good-from", "0.5", "--json", *QUICK)
    assert code == 0
    assert figures(out)["accuracy"]["value"] == 1.0


def test_editors_average_and_small_groups_say_why(editloupe: Run, tmp_path: Path):
    """Editor m: 1 2 3 with 1 2 3 and editor n with one item: one of two groups has a correlation, and it is 1."""
    judge = write(tmp_path / "judge.csv", "item,model,score\np,m,1\nq,m,2\nr,m,3\np,n,1\n")
    human = write(tmp_path / "h.csv", "item,model,label\np,m,1\nq,m,2\nr,m,3\np,n,2\n")
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--json", "--aggregate", "mean", *QUICK)
    assert code == 0
    averages = report(out)["criteria"][0]["averages"]
    assert averages["figures"]["spearman"]["value"] == 1.0
    assert averages["left_out"]["spearman"] == {"n": "fewer than 2 pairs"}
    code, out, _ = editloupe("align", "--scores", judge, "--human", human, "--json", *QUICK)
    fisher = report(out)["criteria"][0]["averages"]["figures"]["spearman"]
    assert fisher["value"] is None and "Fisher's z is infinite" in fisher["why"]


@pytest.mark.parametrize("value", ["unsure", "inf"])
def test_a_stray_value_among_a_judges_numbers_is_named(editloupe: Run, tmp_path: Path, value: str):
    human = write(tmp_path / "h.csv", "item,quality\np,1\nq,2\nr,3\n")
    judge = write(tmp_path / "judge.csv", f"item,quality\np,1\nq,{value}\nr,3\n")
    code, _, err = editloupe("align", "--scores", judge, "--human", human, *QUICK)
    assert code == 2
    said = " ".join(err.split())
    assert f"judge.csv: column 'quality' holds no finite number on line 3: text '{value}'" in said
    assert "no column holds ratings" not in said
    # Beside a column that can be used, it is left out, and that is said.
    judge.write_text(f"item,style,quality,why\np,1,1,a\nq,2,{value},b\nr,3,3,c\n")
    human.write_text("item,style\np,1\nq,2\nr,3\n")
    code, out, err = editloupe("align", "--scores", judge, "--human", human, "--json", *QUICK)
    assert code == 0, err
    told = " ".join((out + err).split())
    assert "column 'quality' holds no finite number on line 3: " in told and "it is not taken for ratings" in told
    assert "'why'" not in told


def test_items_may_carry_their_editor(editloupe: Run, tmp_path: Path):
    judge = write(tmp_path / "judge.csv", "item,model,score\np,m,1\nq,m,2\np,n,3\n")
    human = write(tmp_path / "h.csv", "item,label\nm/p,1\nm/q,2\nn/p,2\n")
    code, out, err = editloupe("align", "--scores", judge, "--human", human, "--json", *QUICK)
    assert code == 0, err
    assert figures(out)["exact"]["value"] == pytest.approx(2 / 3)
    bare = write(tmp_path / "bare.csv", "item,label\np,1\nq,2\n")
    code, _, err = editloupe("align", "--scores", judge, "--human", bare)
    assert code == 2
    assert "names no editor" in err and "write items as EDITOR/ITEM" in " ".join(err.split())


@pytest.mark.parametrize(
    ("human", "more", "message"),
    [
        ("name,label\np,1\n", (), "no column names the item"),
        ("item,colour\np,red\n", (), "no column holds ratings"),
        ("item,label\nx,1\ny,2\n", (), "none of the 2 items of"),
        ("item,label\np,1\n", ("--columns", "item=nowhere"), "has no column 'nowhere'"),
        ("item,label\np,1\n", ("--columns", "item"), "expected ROLE=COLUMN"),
        ("item,label\np,1\n", ("--columns", "beauty=label"), "'beauty' is no role"),
        ("item,metric,label\np,beauty,1\n", (), "no criterion that the judge has scores for"),
        ("item,label\np,1\n", ("--aggregate", "median"), "'median' is not one of"),
        ("item,label\np,1\n", ("--group", "colour"), "'colour' is not one of"),
        ("item,label\np,1\n", ("--good-from", "fine"), "score has numbers"),
        ("item,label\np,1\nq,unsure\n", (), "holds numbers and words ('unsure')"),
        ("item,label\np,1\n", ("--json", "--csv"), "exclude each other"),
        ("item,editor,label\np,m,1\np,n,2\n", (), "names no editor"),
        ("item,label\n", (), "holds no rows"),
        ("item,label\np,1\n", ("--tie", "1"), "--tie goes with --votes"),
        ("item,label\np,1\n", ("--criteria", "beauty"), "--criteria beauty: not in both tables"),
    ],
)
def test_what_cannot_be_compared_says_why(
    editloupe: Run, tmp_path: Path, scores: Path, human: str, more: tuple[str, ...], message: str
):
    people = write(tmp_path / "h.csv", human)
    code, out, err = editloupe("align", "--scores", scores, "--human", people, *QUICK, *more)
    assert code == 2
    assert message in " ".join(err.split())
    assert out == ""


def test_a_file_of_another_kind_is_named(editloupe: Run, tmp_path: Path, scores: Path):
    human = write(tmp_path / "labels.xlsx", "PK")
    code, _, err = editloupe("align", "--scores", scores, "--human", human)
    assert code == 2 and "labels.xlsx" in err, err


def test_scores_by_two_judges_in_one_table_are_refused(editloupe: Run, tmp_path: Path):
    judge = write(tmp_path / "judge.csv", "item,rater,score\np,a,1\np,b,2\n")
    human = write(tmp_path / "h.csv", "item,label\np,1\n")
    code, _, err = editloupe("align", "--scores", judge, "--human", human)
    assert code == 2 and "give each judge a file of its own" in " ".join(err.split())


def test_nothing_to_compare_is_a_usage_error(editloupe: Run, tmp_path: Path, scores: Path):
    code, _, err = editloupe("align")
    assert code == 2 and "name a run folder, or a table of scores with --scores FILE" in " ".join(err.split())
    code, _, err = editloupe("align", "runs/x", "--scores", scores, "--votes", tmp_path / "votes.csv")
    assert code == 2 and "--votes goes with one judge" in " ".join(err.split())


@pytest.fixture
def judged(editloupe: Run, edits: Callable[..., Path]) -> Path:
    """A run of four samples that carry human labels in their metadata: all "Flawless Execution", under the name `if`."""
    folder = edits(4)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row |= {"human_if": "Flawless Execution", "human_charm": 3}
    rows[0]["human_if_ben"] = "inf"
    write(folder / "metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = editloupe("judge", folder, "--out", "run", "--criteria", "if", "--mode", "plain")
    assert code == 0, err
    return Path("run")


def test_a_run_is_compared_with_its_own_samples_labels(editloupe: Run, judged: Path):
    code, out, _ = editloupe("align", judged, "--json", *QUICK)
    assert code == 0
    found = report(out)
    assert found["judge"].startswith("baseline (")
    assert found["notes"] == [
        "human_charm: no metric of the run; 4 ratings left out",
        "IF of s00 by ben: expected a label or a finite number, found text 'inf'; left out",
    ]
    (criterion,) = found["criteria"]
    assert criterion["criterion"] == "instruction_following"
    assert criterion["all"]["figures"]["spearman"]["why"].endswith("people gave one value only")
    assert [g["name"] for g in criterion["by"]["edit_type"]] == ["Change Color", "Removal Object"]


def test_a_run_is_compared_with_a_table(editloupe: Run, judged: Path, tmp_path: Path):
    human = write(
        tmp_path / "labels.csv",
        "sample,rater,criterion,label\ns00,anna,IF,Flawless Execution\ns00,ben,instruction following,wrong action\n"
        "s01,anna,if,1\ns09,anna,IF,2\n",
    )
    code, out, _ = editloupe("align", judged, "--human", human, "--json", *QUICK)
    assert code == 0
    assert report(out)["notes"] == ["rated, but not in the run run, and left out: 1 (s09)"]
    assert figures(out)["mae"]["asked"] == 2
    code, out, _ = editloupe("align", judged, "--human", human, "--csv", *QUICK)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {"judge and people", "people"} == {row["between"] for row in rows}
    (row,) = [r for r in rows if r["figure"] == "mae" and not r["dimension"]]
    assert (row["judged"], row["asked"]) == ("2", "2")


def test_the_tables_fit_a_narrow_terminal(editloupe: Run, judged: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = editloupe("align", judged, *QUICK)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "Spearman ρ" in out and "undefined" in out and "…" not in out
    code, out, _ = editloupe("align", judged, "--markdown", *QUICK)
    assert code == 0 and "| Figure | Value | 95 % interval | Judged | Adjusted |" in out


@pytest.fixture
def measured(editloupe: Run, edits: Callable[..., Path]) -> Path:
    """A run of two measures of four samples, which people rated for what was kept, in the metadata."""
    folder = edits(4)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    for row, (anna, ben) in zip(rows, ((1, 2), (2, 2), (5, 4), (3, 3)), strict=True):
        row |= {"human_kept__anna": anna, "human_kept__ben": ben}
    write(folder / "metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = editloupe("measure", folder, "--measures", "mse,l1", "--mask", "none", "--out", "run")
    assert code == 0, err
    return Path("run")


def test_a_metric_is_paired_with_ratings_of_another_name_and_scale(editloupe: Run, measured: Path, tmp_path: Path):
    from scipy import stats

    code, out, err = editloupe("align", measured, "--pair", "l1=kept,mse=kept", "--json", *QUICK)
    assert code == 0, err
    both = report(out)["criteria"]
    assert [(a["criterion"], a["rating"], a["raters"]) for a in both] == [("l1", "kept", 2), ("mse", "kept", 2)]
    findings = [json.loads(line) for line in (measured / "findings.jsonl").read_text(encoding="utf-8").splitlines()]
    people = {"s00": 1.5, "s01": 2, "s02": 4.5, "s03": 3}
    for a in both:
        values = {f["sample_id"]: f["value"] for f in findings if f["metric"] == a["criterion"]}
        x, y = ([side[key] for key in people] for side in (values, people))
        expected = {"pearson": stats.pearsonr(x, y), "spearman": stats.spearmanr(x, y), "kendall": stats.kendalltau(x, y)}
        # Squared levels and stars have no common scale: no errors, no exact match.
        assert set(a["all"]["figures"]) == set(expected)
        for name, test in expected.items():
            assert a["all"]["figures"][name]["value"] == pytest.approx(test.statistic, abs=1e-6)
        assert "rater_vs_others" in a["all"]["ceiling"]

    # A table does the same, one column for both, under another name too.
    human = write(tmp_path / "kept.csv", "item,stars\n" + "".join(f"{key},{value}\n" for key, value in people.items()))
    more = ("--human", human, "--columns", "kept=stars", "--json", *QUICK)
    code, out, err = editloupe("align", measured, "--pair", "l1=kept,mse=kept", *more)
    assert code == 0, err
    for a, other in zip(report(out)["criteria"], both, strict=True):
        assert a["all"]["figures"]["kendall"]["value"] == other["all"]["figures"]["kendall"]["value"]

    code, out, _ = editloupe("align", measured, "--pair", "l1=kept,mse=kept", *QUICK)
    assert code == 0 and "Correlations of metrics and ratings" in out
    code, out, _ = editloupe("align", measured, "--pair", "mse=kept", "--csv", *QUICK)
    (row,) = [r for r in csv.DictReader(io.StringIO(out)) if r["figure"] == "kendall" and not r["dimension"]]
    assert (row["criterion"], row["rating"], row["judged"], row["asked"]) == ("mse", "kept", "4", "4")


def test_editors_are_paired_by_their_means(editloupe: Run, edits: Callable[..., Path], tmp_path: Path):
    folder = edits(3)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    for row, editor in zip(rows, "mno", strict=True):
        row |= {"editor": editor}
    write(folder / "metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert editloupe("measure", folder, "--measures", "mse", "--mask", "none", "--out", "run")[0] == 0
    findings = [json.loads(line) for line in Path("run/findings.jsonl").read_text(encoding="utf-8").splitlines()]
    order = [f["editor"] for f in sorted(findings, key=lambda f: f["value"])]
    # The editor that changed least is liked best.
    human = write(tmp_path / "kept.csv", "item,kept\n" + "".join(f"{e},{5 - i}\n" for i, e in enumerate(order)))
    code, out, err = editloupe("align", "run", "--human", human, "--pair", "mse=kept", "--unit", "editor", "--json", *QUICK)
    assert code == 0, err
    assert figures(out)["spearman"]["value"] == pytest.approx(-1) and figures(out)["spearman"]["judged"] == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--pair", "mse"), "--pair mse: expected METRIC=RATING, such as psnr=preservation"),
        (("--pair", "mse=kept,l1=charm"), "--pair charm: run/samples.jsonl has no rating of this name; it rates kept"),
        (("--pair", "mse=charm"), "carry no human labels (human_kept: no metric of the run; 8 ratings left out)"),
        (("--pair", "psnr=kept"), "no metric 'psnr'; there are: mse"),
        (("--pair", "mse=kept", "--criteria", "mse"), "--pair and --criteria exclude each other"),
        (("--pair", "mse=kept", "--good-from", "3"), "--pair and --good-from exclude each other"),
        (("--pair", "mse=kept", "--scores", "judge.csv"), "--pair goes with RUN, and not with --scores"),
    ],
)
def test_pairs_that_cannot_be_made_say_why(editloupe: Run, measured: Path, more: tuple[str, ...], message: str):
    code, _, err = editloupe("align", measured, *more)
    assert code == 2 and message in " ".join(err.split())


RATERS = """item,rater,criterion,label,edit_type,source
p,anna,IF,Flawless Execution,color,one
p,ben,IF,4,color,one
q,anna,IF,Wrong Action,color,one
q,ben,IF,Localization Failure,color,one
r,anna,IF,Flawless Execution,removal,two
r,ben,IF,over modification,removal,two
s,anna,IF,Flawless Execution,removal,three
s,ben,IF,Flawless Execution,removal,three
t,anna,IF,Wrong Action,count,three
p,anna,VC,Single Anomaly,color,one
p,ben,VC,Single Anomaly,color,one
r,anna,VC,Perfect Consistency,removal,two
r,ben,VC,Perfect Consistency,removal,two
"""


def test_people_are_compared_among_themselves_without_a_judge(editloupe: Run, tmp_path: Path):
    human = write(tmp_path / "people.csv", RATERS)
    code, out, err = editloupe("align", "--human", human, "--rubric", "dlebench", "--json", *QUICK)
    assert code == 0, err
    found = json.loads(out)["raters"]
    assert "judge" not in found and found["people"] == str(human)
    first, second = found["criteria"]
    assert (first["criterion"], first["raters"]) == ("instruction_following", ["anna", "ben"])
    alpha = first["all"]["figures"]
    # Pairs 44 21 43 44; values 1 2 3 4 occur 1 1 1 5 times. Nominal: 2 of 4 pairs differ; of 8·7 ordered draws
    # 64 − (1 + 1 + 1 + 25) = 36 differ. 1 − (2/4) / (36/56) = 2/9.
    assert alpha["alpha_nominal"]["value"] == pytest.approx(2 / 9)
    # Interval: squared distances 0 1 1 0, mean 1/2; of all 28 pairs of values 12 13 23 and five of 14, 24, 34 each:
    # 1 + 4 + 1 + 5·(9 + 4 + 1) = 76; 1 − (1/2) / (76/28) = 31/38.
    assert alpha["alpha_interval"]["value"] == pytest.approx(31 / 38)
    # Fleiss: P̄ = 2/4, P̄e = (1 + 1 + 1 + 25) / 64.
    assert alpha["fleiss_kappa"]["value"] == pytest.approx(1 - (1 / 2) / (1 - 28 / 64))
    assert (alpha["alpha_nominal"]["judged"], alpha["alpha_nominal"]["asked"]) == (4, 5)
    # The source images one, two and three.
    assert alpha["alpha_nominal"]["clusters"] == 3
    by = {g["name"]: g["figures"]["alpha_nominal"] for g in first["by"]["edit_type"]}
    # 44 and 21: 1 of 2 differs, and 10 of 4·3 draws: 1 − (1/2) / (10/12).
    assert by["color"]["value"] == pytest.approx(0.4)
    assert (by["count"]["value"], by["count"]["why"]) == (None, "fewer than 2 raters share an item")
    assert second["all"]["figures"]["alpha_ordinal"]["value"] == 1.0


def test_table_2_has_an_alpha_for_each_edit_type_and_criterion(editloupe: Run, tmp_path: Path):
    human = write(tmp_path / "people.csv", RATERS)
    words = ("align", "--human", human, "--rubric", "dlebench", *QUICK)
    code, out, _ = editloupe(*words, "--markdown")
    assert code == 0
    lines = out.splitlines()
    assert "| Edit type | IF, α ordinal | VC, α ordinal |" in lines
    assert "| color | 0.83 (2/2) | – (1/1) |" in lines
    # Nobody rated the VC of "count".
    assert "| count | – (0/1) | – |" in lines
    assert any(line.startswith("| **Overall** | 0.73 [") and line.endswith("(4/5) | 1.00 (2/2) |") for line in lines)
    assert "IF, α ordinal: fewer than 2 raters share an item (count)" in lines
    code, out, _ = editloupe(*words, "--csv", "--criteria", "if")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {(r["judge"], r["criterion"], r["between"]) for r in rows} == {("", "instruction_following", "people")}
    # The columns are those that a judge's figures have.
    assert list(rows[0])[:6] == ["judge", "criterion", "between", "dimension", "group", "figure"]
    assert {(r["dimension"], r["group"]) for r in rows} == {
        ("", "all"), ("edit_type", "color"), ("edit_type", "removal"), ("edit_type", "count"),
    }  # fmt: skip
    code, out, _ = editloupe(*words)
    assert code == 0 and "Instruction Following: 2 raters (anna, ben)" in out


def test_words_of_raters_without_a_rubric_are_compared_by_equality(editloupe: Run, tmp_path: Path):
    human = write(tmp_path / "h.csv", "item,rater,label\np,a,good\np,b,good\nq,a,bad\nq,b,good\nr,a,bad\nr,b,bad\n")
    code, out, _ = editloupe("align", "--human", human, "--json", *QUICK)
    assert code == 0
    (found,) = json.loads(out)["raters"]["criteria"]
    # 1 of 3 pairs differs; good and bad 3 times each: 18 of 6·5 draws differ. 1 − (1/3) / (18/30).
    assert found["all"]["figures"]["alpha_nominal"]["value"] == pytest.approx(4 / 9)
    assert set(found["all"]["figures"]) == {"fleiss_kappa", "alpha_nominal"}


def test_a_draw_between_raters_is_no_remark_of_their_own_agreement(editloupe: Run, tmp_path: Path):
    text = "item,rater,criterion,label\np,a,IF,1\np,b,IF,2\nq,a,IF,1\nq,b,IF,1\nr,a,IF,awful\ns,a,VC,1\n"
    code, out, _ = editloupe("align", "--human", write(tmp_path / "h.csv", text), "--rubric", "dlebench", "--json", *QUICK)
    assert code == 0
    first, second = json.loads(out)["raters"]["criteria"]
    (note,) = first["notes"]
    assert note.startswith("instruction_following: no label of the metric and left out: people's 'awful' (1)")
    assert second["notes"] == ["visual_consistency: 1 rater (a), and no item that two people rated"]
    assert second["all"]["figures"]["alpha_nominal"]["value"] is None


@pytest.mark.parametrize(
    ("human", "more", "message"),
    [
        ("item,label\np,1\nq,2\n", (), "no rater is named, and agreement between people needs two"),
        ("item,rater,label\np,anna,1\nq,anna,2\n", (), "1 rater (anna) only, and agreement between people needs two"),
        ("item,rater,label\np,a,1\nq,b,2\n", (), "2 raters (a, b) rated no item in common"),
        ("item,rater,criterion,label\np,a,IF,1\np,b,VC,2\n", (), "2 raters (a, b) rated no item in common"),
        ("item,rater,label\np,a,1\np,b,2\n", ("--rubric", "dlebench"), "no criterion of --rubric dlebench (IF, VC)"),
        ("item,rater,label\np,a,1\np,b,2\n", ("--criteria", "beauty"), "--criteria beauty: "),
        ("item,rater,label\np,a,1\np,b,good\n", (), "holds numbers and words ('good')"),
        ("item,rater,label\np,a,1\np,b,2\n", ("--judge", "x"), "--judge is about a judge; --human alone compares people"),
        ("item,rater,label\np,a,1\np,b,2\n", ("--group", "none"), "--group is about a judge"),
        ("item,rater,label\np,a,1\np,b,2\n", ("--good-from", "2"), "--good-from is about a judge"),
        ("item,rater,label\np,a,1\np,b,2\n", ("--tie", "1"), "--tie goes with --votes"),
    ],
)
def test_raters_that_cannot_be_compared_say_why(
    editloupe: Run, tmp_path: Path, human: str, more: tuple[str, ...], message: str
):
    code, out, err = editloupe("align", "--human", write(tmp_path / "people.csv", human), *more, *QUICK)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_votes_against_scores_rank_the_editors(editloupe: Run, tmp_path: Path):
    """m beats n on three items of four, by people; by the judge on all: it has no ranking, and that is said."""
    votes = write(
        tmp_path / "votes.csv",
        "item,editor_a,editor_b,vote\np,m,n,A>B\nq,n,m,B\nr,m,n,m\ns,m,n,n\ns,m,m,A\nt,m,n,perhaps\n",
    )
    rows = "".join(f"{item},m,2\n{item},n,1\n" for item in "pqrs")
    judge = write(tmp_path / "judge.csv", "item,model,quality\n" + rows)
    code, out, err = editloupe("align", "--votes", votes, "--scores", judge, "--json", *QUICK)
    assert code == 0, err
    found = report(out)
    (pair,) = found["pairs"]
    assert pair["figures"]["decided_exact"]["value"] == 0.75
    strengths = {s["editor"]: s["strength"] for s in pair["ranking"]["people"]["strengths"]}
    assert strengths["m"] == pytest.approx(0.5493, abs=1e-4)  # ln 3 / 2
    assert pair["ranking"]["judge"]["why"] == "n never won and m never lost, so that no finite strength fits"
    assert found["notes"] == [
        "votes.csv: line 6 left out: sets an editor against itself",
        "votes.csv: line 7 left out: 'perhaps' is no vote (A>B, B>A, A=B=Good, A=B=Bad, tie)",
    ]
    code, out, _ = editloupe("align", "--votes", votes, "--scores", judge, *QUICK)
    assert code == 0 and "quality: scores up to 0 apart tie" in out


@pytest.mark.parametrize(
    ("votes", "more", "message"),
    [
        ("item,vote\np,A\n", (), "has no column with a judge's own votes"),
        ("item,opinion\np,A\n", (), "no column names the vote"),
        ("item,editor_a,vote\np,m,A\n", (), "names one editor of each pair only"),
        ("item,vote\np,perhaps\n", (), "no vote can be used"),
        ("item,vote,verdict\np,A,B\n", ("--tie", "1"), "--tie is about scores"),
        ("item,vote,verdict\np,A,B\n", ("--human", "h.csv"), "--human does not go with --votes"),
    ],
)
def test_votes_that_cannot_be_used_say_why(editloupe: Run, tmp_path: Path, votes: str, more: tuple[str, ...], message: str):
    code, _, err = editloupe("align", "--votes", write(tmp_path / "v.csv", votes), *more)
    assert code == 2
    assert message in " ".join(err.split())
