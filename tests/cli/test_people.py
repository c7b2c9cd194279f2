"""The command line for people: named backends, near misses, forms of a table, and answers in few lines."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import final

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def replies(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, label: str) -> str:
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(final(label)) + "\n", encoding="utf-8")
        return f"scripted/{tmp_path / name}.jsonl"

    return write


@pytest.fixture
def judged(editloupe: Cli, edits: Callable[..., Path], replies: Callable[[str, str], str]) -> str:
    given = ("--backend", f"mild={replies('a', 'Flawless Execution')}", "--criteria", "if", "--out", "judged")
    assert editloupe("judge", edits(2), *given)[0] == 0
    return "judged"


def test_tables_come_in_four_forms(editloupe: Cli, judged: str, replies: Callable[[str, str], str]) -> None:
    code, said, _ = editloupe("show", judged, "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(said)))
    assert len(rows) == 2 and "s00" in rows[0].values()
    assert rows[0] == {"Judge": "mild", "Sample": "s00", "Instruction Following": "Flawless Execution"}
    assert editloupe("show", judged, "--format", "md")[1].startswith("|")
    # A second judge stands in the same table.
    words = ("--backend", f"stern={replies('b', 'Wrong Action')}", "--criteria", "if", "--out", judged)
    assert editloupe("judge", "edits", *words)[0] == 0
    data = json.loads(editloupe("show", judged, "--format", "json")[1])
    assert [(row["Judge"], row["Sample"]) for row in data["records"]] == [
        (j, s) for j in ("mild", "stern") for s in ("s00", "s01")
    ]
    assert data["records"][2]["Instruction Following"] == "Wrong Action"
    data = json.loads(editloupe("list", "protocols", "--format", "json")[1])
    assert "dlebench" in [row["Protocol"] for row in data["records"]]
    assert "dlebench" in editloupe("list", "protocols", "--format", "table")[1]
    # The next command has the usual form again.
    assert not editloupe("show", judged)[1].startswith("|")


def test_output_that_is_no_terminal_has_no_frames_and_no_spaces_at_line_ends(editloupe: Cli, judged: str) -> None:
    said = editloupe("report", judged)[1]
    assert not re.findall("[│┃━─]", said)
    assert not [line for line in said.splitlines() if line != line.rstrip()]


def test_a_run_ends_in_few_lines(editloupe: Cli, edits: Callable[..., Path], replies: Callable[[str, str], str]) -> None:
    code, said, _ = editloupe("judge", edits(4), "--backend", replies("a", "Superb"), "--criteria", "if", "--out", "r")
    assert code == 1
    lines = [line for line in said.splitlines() if line.strip()]
    assert len(lines) <= 10, said
    assert any("backend_failed" in line or "off_menu" in line for line in lines)
    assert any(line.startswith("Judge these again: editloupe judge r") for line in lines)
