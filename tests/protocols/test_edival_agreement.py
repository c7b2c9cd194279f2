"""Judges of EdiVal beside people: the paper's Table 5 from confusion tables, and judges of runs and tables side by side.

The paper prints Pearson's r, κ and F1 of each edit type. Of whole numbers of edits, as many as four editors have at turn 1
(Table 2 times 4; of count_change one fewer), a single confusion table a row gives all three to four decimals, and people's
yeses are the same for all judges. `edival_agreement.csv` has these tables beside the printed figures.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe import plugins
from editloupe.protocols.base import Group, Known
from editloupe.scores import Score
from tests.figures.checks import Checks
from tests.figures.runs import answered, sample, write_protocol_run
from tests.protocols.edival_published import COUNTS
from tests.toys.install import install

Program = Callable[..., tuple[int, str, str]]
JUDGES = ("EdiVal-IF", "Qwen2.5-VL", "CLIP_dir")
CELLS = {"yes_yes": (1, 1), "yes_no": (1, 0), "no_yes": (0, 1), "no_no": (0, 0)}
"""Column → (what the judge says, what people say)."""


class Typed(Checks):
    """Each finding is a score, with the edit's type."""

    name = "typed"

    def score(self, group: Group, known: Known) -> Iterator[Score]:
        """Yield the scores with one dimension more."""
        types = {sample.key: sample.edit_type for sample in group}
        yield from (replace(score, dims={"edit_type": types[score.key]}) for score in super().score(group, known))


def judges_of(program: Program, *words: str) -> list[Any]:
    """What `editloupe compare` says of each judge, of its one criterion."""
    code, out, err = program("compare", *words, "--human", "people.csv", "--format", "json", "--resamples", "100")
    assert code == 0, err
    judges: list[Any] = json.loads(out)["human_agreement"]
    return judges


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The lines of Table 5; people.csv, and a table of answers a judge, are made of them."""
    monkeypatch.chdir(tmp_path)
    table = (Path(__file__).parent / "edival_agreement.csv").read_text(encoding="utf-8")
    listed = list(csv.DictReader(table.splitlines()))
    people = ["item,edit_type,label\n"]
    judges = {judge: ["item,score\n"] for judge in JUDGES}
    for row in (row for row in listed if row["edit_type"] != "all"):
        # People's yeses first: then every judge's table is one of the same items.
        given = sorted(((h, j) for name, (j, h) in CELLS.items() for _ in range(int(row[name]))), reverse=True)
        for number, (human, answer) in enumerate(given):
            item = f"{row['edit_type']}-{number}"
            judges[row["judge"]].append(f"{item},{answer}\n")
            if row["judge"] == JUDGES[0]:
                people.append(f"{item},{row['edit_type']},{human}\n")
    for name, lines in {"people": people, **judges}.items():
        Path(f"{name}.csv").write_text("".join(lines), encoding="utf-8")
    return listed


TABLES = [*(word for judge in JUDGES for word in ("--scores", f"{judge}.csv"))]


def test_the_papers_table_5_comes_out_to_three_decimals(printed: list[dict[str, str]], editloupe: Program) -> None:
    found: dict[tuple[str, str], Any] = {}
    for metric in judges_of(editloupe, *TABLES):
        for group in (metric["all"], *metric["by"]["edit_type"]):
            found[group["name"], metric["judge"].partition(".csv")[0]] = group["figures"]
    assert len(printed) == 30
    for row in printed:
        figures = found[row["edit_type"], row["judge"]]
        for ours, theirs in (("pearson", "plcc"), ("kappa", "kappa"), ("f1", "f1")):
            assert figures[ours]["value"] == pytest.approx(float(row[theirs]), abs=5.1e-5), (row, ours)
    # Four editors at turn 1: 4 · 572 edits but one.
    assert sum(4 * counts[0] for counts in COUNTS.values()) == 2288
    assert {found["all", judge]["accuracy"]["judged"] for judge in JUDGES} == {2287}
    # The text says 81.3, 75.2 and 65.4.
    accuracy = {judge: round(100 * found["all", judge]["accuracy"]["value"], 1) for judge in JUDGES}
    assert accuracy == {"EdiVal-IF": 81.4, "Qwen2.5-VL": 80.9, "CLIP_dir": 61.3}


def test_all_figures_side_by_side_rest_on_the_same_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editloupe: Program
) -> None:
    """On item d the raters draw. Both judges see a, b and c rightly, and one of them says nothing but no of e and f."""
    monkeypatch.chdir(tmp_path)
    labels = ("a,add,ann,1", "b,add,ann,0", "c,add,ann,0", "d,add,ann,1", "d,add,ben,0", "e,count,ann,0", "f,count,ann,0")
    Path("people.csv").write_text("\n".join(("item,edit_type,rater,label", *labels, "")), encoding="utf-8")
    for name, scores in (("rules", (1, 0, 0, 1, 0, 0)), ("lmm", (1, 0, 0, 0, 1, 0))):
        lines = [f"{item},{score}\n" for item, score in zip("abcdef", scores, strict=True)]
        Path(f"{name}.csv").write_text("item,score\n" + "".join(lines), encoding="utf-8")
    found = judges_of(editloupe, "--scores", "rules.csv", "--scores", "lmm.csv")
    rules, lmm = (judge["all"]["figures"] for judge in found)
    for figures in (rules, lmm):
        assert {figures[name]["judged"] for name in ("accuracy", "kappa", "f1", "pearson")} == {5}
    assert rules["pearson"]["value"] == pytest.approx(1)
    # φ of (1, 0, 0, 1, 0) and (1, 0, 0, 0, 0): (1 · 3 − 1 · 0) / sqrt(2 · 3 · 1 · 4).
    assert lmm["pearson"]["value"] == pytest.approx(3 / 24**0.5)
    # No and no is right, also where nobody says yes.
    Path("few.csv").write_text("item,score\ne,0\nf,0\n", encoding="utf-8")
    Path("people.csv").write_text("item,label\ne,0\nf,0\n", encoding="utf-8")
    (judge,) = judges_of(editloupe, "--scores", "few.csv")
    assert judge["all"]["figures"]["accuracy"]["value"] == 1


def test_runs_and_tables_are_compared_on_the_labels_of_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editloupe: Program
) -> None:
    """People: a1 yes, a2 a draw, b1 no, b2 no. Rules: yes, no, yes, no: 2 of 3 right. Table: nothing of b2."""
    entry = "[editloupe.protocols]\ntyped = tests.protocols.test_edival_agreement:Typed\n"
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", name="editloupe-typed", entry_points=entry)))
    plugins.forget()
    a, b = sample("a", edit_type="add", editor="e"), sample("b", edit_type="swap", editor="e")
    places = ((a, 1), (a, 2), (b, 1), (b, 2))
    for name, answers in {"rules": ("yes", "no", "yes", "no"), "lmm": ("yes", "yes", "yes", "no")}.items():
        findings = [answered(of, "kept", answer, turn=turn) for (of, turn), answer in zip(places, answers, strict=True)]
        write_protocol_run(tmp_path / name, "typed", Checks.metrics, [a, b], {f"toy/{name}": findings})
    people = "sample,editor,turn,kept_ann,kept_ben\na,e,1,yes,yes\na,e,2,no,yes\nb,e,1,no,no\nb,e,2,no,no\n"
    Path("people.csv").write_text(people, encoding="utf-8")
    Path("clip.csv").write_text("item,editor,turn,score\na,e,1,1\na,e,2,0\nb,e,1,0\n", encoding="utf-8")
    command = ("rules", "lmm", "--scores", "clip.csv")
    rules, lmm, clip = judges_of(editloupe, *command)
    assert clip["judge"] == "clip.csv"
    assert rules["all"]["figures"]["accuracy"]["value"] == pytest.approx(2 / 3)
    # φ of (yes, yes, no) and (yes, no, no): (1 · 1 − 1 · 0) / sqrt(2 · 1 · 1 · 2) = 0.5
    assert rules["all"]["figures"]["pearson"]["value"] == pytest.approx(0.5)
    accuracy = clip["all"]["figures"]["accuracy"]
    assert (accuracy["value"], accuracy["judged"], accuracy["asked"]) == (1.0, 2, 3)
    # The table names no edit type; the runs do.
    assert [group["name"] for group in clip["by"]["edit_type"]] == ["add", "swap"]
    assert lmm["raters"] == ["ann", "ben"] and lmm["all"]["ceiling"]["fleiss_kappa"]["judged"] == 4
    code, out, err = editloupe("compare", *command, "--human", "people.csv", "--resamples", "100")
    plugins.forget()
    assert code == 0 and "Judges and people (people.csv)" in out and "clip.csv" in out, err
