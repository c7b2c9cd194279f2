"""`editloupe compare` with people: how columns are found, what does not fit, and people among themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ANSWERED, Cli, Edits, refused

QUICK = ("--resamples", "100")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def agreement(text: str, criterion: int = 0) -> dict[str, Any]:
    """What is said of one judge and people on one criterion."""
    return dict(json.loads(text)["human_agreement"][criterion])


def figures(text: str, criterion: int = 0) -> dict[str, Any]:
    return dict(agreement(text, criterion)["all"]["figures"])


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    return write(tmp_path / "judge.csv", "item,score\np,1\nq,2\nr,3\ns,4\n")


def test_ratings_are_found_in_the_usual_shapes(editloupe: Cli, tmp_path: Path, scores: Path):
    """1 2 3 4 against 1 3 2 4: Spearman 1 − 6 · 2 / (4 · 15) = 0.8; exact in 2 of 4."""
    objects = "".join(
        f'{{"item": "{name}", "label": {value}}}\n' for name, value in zip("pqrs", (1, 3, 2.0, 4), strict=True)
    )
    for name, text, more in (
        ("long.csv", "item,rater,label\np,anna,1\nq,anna,3\nr,anna,2\ns,anna,4\n", ()),
        ("semicolons.csv", "Sample ID;Value\np;1\nq;3\nr;2\ns;4\n", ()),
        ("wide.csv", "image_id,human_score_anna\np,1\nq,3\nr,2\ns,4\n", ()),
        ("own.csv", "picture,mark\np,1\nq,3\nr,2\ns,4\n", ("--columns", "item=picture,score@anna=mark")),
        ("tabs.tsv", "item\tlabel\np\t1\nq\t3\nr\t2\ns\t4\n", ()),
        ("criteria.csv", "item,metric,score\np,Score,1\nq,score,3\nr,score,2\ns,score,4\n", ()),
        ("lines.jsonl", objects, ()),
    ):
        human = write(tmp_path / name, text)
        code, out, err = editloupe("compare", "--scores", scores, "--human", human, "--format", "json", *QUICK, *more)
        assert code == 0, err
        found = figures(out)
        assert found["spearman"]["value"] == pytest.approx(0.8) and found["exact"]["value"] == 0.5, name
        assert found["spearman"]["judged"] == found["spearman"]["asked"] == 4


def test_rows_that_cannot_be_used_are_counted(editloupe: Cli, tmp_path: Path, scores: Path):
    rows = "p,a,1\np,a,1\nq,a,2\nq,a,3\n,a,4\nr,a\nr,a,inf\ns,a,4\nx,a,1\n"
    human = write(tmp_path / "h.csv", f"item,rater,label\n{rows}")
    code, out, _ = editloupe("compare", "--scores", scores, "--human", human, "--format", "json", *QUICK)
    assert code == 0
    assert json.loads(out)["notes"] == [
        "h.csv: line 5 left out: rates again, in another way, what a line above rates (a column rater names several)",
        "h.csv: line 6 left out: names no item",
        "h.csv: line 7 left out: has 2 fields where the header has 3; put text with commas in quotes",
        "h.csv: line 8 left out: holds no rating: expected a label or a finite number, found text 'inf'",
        f"rated, but without a row in {scores}, and counted as not judged: 1 (x)",
    ]
    assert (figures(out)["exact"]["judged"], figures(out)["exact"]["asked"]) == (3, 4)


def test_numbers_too_large_to_compute_with_are_told(editloupe: Cli, tmp_path: Path):
    judge = write(tmp_path / "judge.csv", "item,score\np,1e308\nq,-1e308\nr,1\n")
    human = write(tmp_path / "h.csv", "item,label\np,1\nq,2\nr,3\n")
    code, out, _ = editloupe("compare", "--scores", judge, "--human", human, "--format", "json", *QUICK)
    assert code == 0
    for name, figure in figures(out).items():
        assert figure["value"] is None and "are too large to compute with" in figure["why"], name


def test_labels_of_a_rubric_bind_both_tables(editloupe: Cli, tmp_path: Path):
    judge = write(tmp_path / "judge.jsonl", '{"id": "p", "if": "Wrong Action"}\n{"id": "q", "if": 4}\n')
    human = write(tmp_path / "h.csv", "id,human_if_anna,human_beauty\np,wrong action,1\nq,Perfect,1\nz,5,2\n")
    words = ("--scores", judge, "--human", human, "--rubric", "dlebench")
    code, out, _ = editloupe("compare", *words, "--format", "json", *QUICK)
    assert code == 0
    (found,) = json.loads(out)["human_agreement"]
    assert found["criterion"] == "instruction_following"
    exact = found["all"]["figures"]["exact"]
    assert (exact["value"], exact["asked"]) == (1.0, 1)
    assert found["all"]["figures"]["spearman"]["why"] == "fewer than 2 pairs"
    assert "no label of the metric and left out: people's 'Perfect' (1), people's 5 (1)" in found["notes"][0]


def test_tables_that_do_not_fit_say_why(editloupe: Cli, tmp_path: Path, scores: Path, gallery: Path):
    judge, fine = ("--scores", scores), "item,rater,label\np,a,1\np,b,2\n"
    for human, more, message in (
        ("item,label\nx,1\ny,2\n", judge, "none of the 2 items of"),
        ("item,label\np,inf\nq,nan\n", judge, "h.csv: no rating can be used: h.csv: line 2 left out: holds no rating"),
        (fine, (*judge, "--criteria", "beauty"), "no criterion beauty; found score"),
        (fine, ("--pair", "score=label", "--equal-cost"), "--pair, --equal-cost: only with RUN"),
        ("item,label\np,1\nq,2\n", (), "1 rater (human), and no item that two of them rated"),
        ("item,rater,label\np,a,1\nq,b,2\n", (), "2 raters (a, b), and no item that two of them rated"),
        ("item,rater,label\np,a,1\np,b,good\n", (), "holds numbers and words ('good')"),
        (fine, ("--rubric", "dlebench"), "no criterion in common; found none"),
    ):
        file = write(tmp_path / "h.csv", human)
        assert message in refused(editloupe, "compare", "--human", file, *more, *QUICK)
    # A judge's scores from elsewhere are held against people, who rated none of these edits.
    err = refused(editloupe, "compare", gallery, *judge, *QUICK)
    assert "--scores: only with people's ratings: --human FILE" in err


@pytest.fixture
def judged(editloupe: Cli, edits: Edits) -> Path:
    """A run of four samples whose metadata carry people's labels, some of which cannot be used."""
    folder = edits(4, instruction=ANSWERED)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows):
        row |= {"human_IF__anna": "Flawless Execution", "human_charm": number}
    rows[0]["human_IF__ben"] = "inf"
    write(folder / "metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = editloupe("judge", folder, "--criteria", "if", "--mode", "plain", "--out", "run", "--fail-on-error", "1")
    assert code == 0, err
    return Path("run")


def test_a_run_is_compared_with_its_own_samples_labels(editloupe: Cli, judged: Path):
    code, out, err = editloupe("compare", judged, "--format", "json", *QUICK)
    assert code == 0, err
    found = json.loads(out)
    assert "human_charm: no metric of the run; 4 ratings left out" in found["notes"]
    assert "IF of s00 by ben: expected a label or a finite number, found text 'inf'; left out" in found["notes"]
    (one,) = found["human_agreement"]
    assert one["criterion"] == "instruction_following" and one["judge"].startswith("baseline")
    assert one["all"]["figures"]["spearman"]["why"].endswith("people gave one value only")
    assert [g["name"] for g in one["by"]["edit_type"]] == ["Change Color", "Removal Object"]


def test_a_csv_holds_one_table(editloupe: Cli, judged: Path):
    code, out, err = editloupe("compare", judged, "--format", "csv", *QUICK)
    named = " ".join(err.split()).partition("a CSV holds one table, and there are ")[2]
    assert (code, out) == (2, "") and named.endswith("; name one with --table NAME")
    name = named.partition(": ")[2].partition(",")[0]
    code, out, _ = editloupe("compare", judged, "--format", "csv", "--table", name, *QUICK)
    assert code == 0 and "," in out.splitlines()[0]
    err = refused(editloupe, "compare", judged, "--table", "nothing", *QUICK)
    assert f"--table nothing: there is no table of this name; there are {name}" in err


@pytest.fixture
def measured(editloupe: Cli, edits: Edits) -> Path:
    """A run of two measures of four samples, which people rated for what was kept, in the metadata."""
    folder = edits(4)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    for row, (anna, ben) in zip(rows, ((1, 2), (2, 2), (5, 4), (3, 3)), strict=True):
        row |= {"human_kept__anna": anna, "human_kept__ben": ben}
    write(folder / "metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = editloupe("measure", folder, "--measures", "mse,l1", "--mask", "none", "--out", "run")
    assert code == 0, err
    return Path("run")


def test_a_metric_is_paired_with_ratings_of_another_name_and_scale(editloupe: Cli, measured: Path, tmp_path: Path):
    from scipy import stats

    code, out, err = editloupe("compare", measured, "--pair", "l1=kept,mse=kept", "--format", "json", *QUICK)
    assert code == 0, err
    both = json.loads(out)["human_agreement"]
    assert sorted((a["criterion"], a["rating"], len(a["raters"])) for a in both) == [("l1", "kept", 2), ("mse", "kept", 2)]
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
    more = ("--human", human, "--columns", "kept=stars", "--format", "json", *QUICK)
    code, out, err = editloupe("compare", measured, "--pair", "l1=kept,mse=kept", *more)
    assert code == 0, err
    for a, other in zip(json.loads(out)["human_agreement"], both, strict=True):
        assert a["all"]["figures"]["kendall"]["value"] == other["all"]["figures"]["kendall"]["value"]


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


def test_people_are_compared_among_themselves_without_a_judge(editloupe: Cli, tmp_path: Path):
    human = write(tmp_path / "people.csv", RATERS)
    code, out, err = editloupe("compare", "--human", human, "--rubric", "dlebench", "--format", "json", *QUICK)
    assert code == 0, err
    (apart,) = [d for d in json.loads(out)["disagreements"] if d["sample"] == "q"]
    # 2 and 1 of 1 to 4: a third of 100.
    labels = {"anna": "Wrong Action", "ben": "Localization Failure"}
    assert (apart["criterion"], apart["labels"]) == ("instruction_following", labels)
    assert apart["spread"] == pytest.approx(100 / 3, abs=1e-6)
    assert {d["sample"] for d in json.loads(out)["disagreements"]} == {"q", "r"}, "the others agree, or one alone rated"
    first, second = json.loads(out)["raters"]
    assert (first["judge"], first["criterion"], first["raters"]) == (None, "instruction_following", ["anna", "ben"])
    alpha = first["all"]["ceiling"]
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
    by = {g["name"]: g["ceiling"]["alpha_nominal"] for g in first["by"]["edit_type"]}
    # 44 and 21: 1 of 2 differs, and 10 of 4·3 draws: 1 − (1/2) / (10/12).
    assert by["color"]["value"] == pytest.approx(0.4)
    assert (by["count"]["value"], by["count"]["why"]) == (None, "fewer than 2 raters share an item")
    assert second["all"]["ceiling"]["alpha_ordinal"]["value"] == 1.0


def test_table_2_has_an_alpha_for_each_edit_type_and_criterion(editloupe: Cli, tmp_path: Path):
    human = write(tmp_path / "people.csv", RATERS)
    code, out, _ = editloupe("compare", "--human", human, "--rubric", "dlebench", "--format", "md", *QUICK)
    assert code == 0
    lines = out.splitlines()
    assert "| Edit type | IF, α ordinal | VC, α ordinal |" in lines
    assert "| color | 0.83 (2/2) | – (1/1; fewer than 2 items are shared by raters) |" in lines
    # Nobody rated the VC of "count".
    assert "| count | – (0/1; fewer than 2 raters share an item) | – |" in lines
    assert any(line.startswith("| **Overall** | 0.73 [") and line.endswith("(4/5) | 1.00 (2/2) |") for line in lines)
