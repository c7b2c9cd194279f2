"""No cell of a CSV file that editloupe writes is a formula to a spreadsheet: names and texts come from strangers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.conftest import Cli, Edits, final, scripted
from tests.figures.test_formulas import FORMULA, is_formula


@pytest.fixture
def judged(editloupe: Cli, edits: Edits, tmp_path: Path) -> Path:
    """A run whose names, texts and answers are formulas."""
    folder = edits(2, types=(FORMULA, "@type"))
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"id": f"=id{number}", "editor": "+editor", "instruction": FORMULA, "bbox": [20, 20, 44, 44]}
        row |= {"human_instruction_following": "Wrong Action", "human_visual_consistency": "Excellent"}
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    backends = (scripted(tmp_path / name, final("Wrong Action", FORMULA)) for name in ("=script.jsonl", "+2.jsonl"))
    backends = tuple(word for uri in backends for word in ("--backend", uri))
    code, _, err = editloupe("judge", folder, *backends, "--criteria", "if", "--out", tmp_path / "run")
    assert code == 0, err
    return tmp_path / "run"


@pytest.mark.usefixtures("bare_plots")
def test_no_command_writes_a_formula(editloupe: Cli, judged: Path, tmp_path: Path):
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
