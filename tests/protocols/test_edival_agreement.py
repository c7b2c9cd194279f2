"""Judges of EdiVal beside people: the paper's Table 5 from confusion tables, and judges of runs and tables side by side.

The paper prints Pearson's r, κ and F1 of each edit type. Of whole numbers of edits, as many as four editors have at turn 1
(Table 2 times 4; of count_change one fewer), a single confusion table a row gives all three to four decimals, and people's
yeses are the same for all judges. `edival_agreement.csv` has these tables beside the printed figures.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.edival_published import COUNTS

Program = Callable[..., tuple[int, str, str]]
JUDGES = ("EdiVal-IF", "Qwen2.5-VL", "CLIP_dir")
CELLS = {"yes_yes": (1, 1), "yes_no": (1, 0), "no_yes": (0, 1), "no_no": (0, 0)}
"""Column → (what the judge says, what people say)."""


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
