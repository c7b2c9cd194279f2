"""What a first user met: limits and gates that hid a failure, headings wider than a page, a tie that was most and least."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.backends.prices import Prices
from editloupe.reports.compare import compare as compare_judges
from editloupe.reports.compare_tables import answers
from editloupe.reports.judged import read_judged
from tests.conftest import draw_edits, final

Editloupe = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(editloupe: Editloupe, tmp_path: Path) -> Path:
    """Three judges: two that always say the same, and the pixel baseline."""
    edits = draw_edits(tmp_path / "edits", 4)
    named = []
    for name, label in (("kind", "Flawless Execution"), ("stern", "Wrong Action")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(final(label)) + "\n", encoding="utf-8")
        named += ["--backend", f"{name}=scripted/{name}.jsonl"]
    words = (edits, "--criteria", "if", "--backend", "baseline", *named, "--out", "run")
    assert editloupe("judge", *words)[0] == 0
    return tmp_path / "run"


def test_a_tie_is_said_to_be_one(editloupe: Editloupe, run: Path) -> None:
    (said, *_) = answers(compare_judges(read_judged([run]), prices=Prices()))
    assert "all pairs of judges agree to 0.00" in said


def test_a_samples_heading_is_no_wider_than_a_page_in_a_pipe(
    editloupe: Editloupe, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    sample = json.loads((run / "samples.jsonl").read_text().splitlines()[0])["id"]
    _, out, _ = editloupe("show", run, sample)
    rules = [line for line in out.splitlines() if "───" in line or "---" in line]
    assert rules and max(map(len, rules)) <= 120


def test_a_script_that_ends_too_early_says_that_its_last_reply_was_no_answer(editloupe: Editloupe, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 1)
    (tmp_path / "one.jsonl").write_text(json.dumps(final("Splendid")) + "\n", encoding="utf-8")
    code, out, err = editloupe("judge", edits, "--criteria", "if", "--backend", "scripted/one.jsonl", "--out", "run")
    assert code == 1, "nothing was judged"
    assert "ends with line 1, and this question needs line 2: what was said before is no answer" in " ".join(
        (out + err).split()
    )


def test_a_limit_counts_rows_that_cannot_be_judged(editloupe: Editloupe, tmp_path: Path) -> None:
    edits = draw_edits(tmp_path / "edits", 6)
    rows = [json.loads(line) for line in (edits / "metadata.jsonl").read_text().splitlines()]
    for row in rows[1:3]:
        (edits / row["edited_file_name"]).unlink()
    code, out, err = editloupe("judge", edits, "--criteria", "if", "--limit", "4", "--out", "run")
    assert code == 3 and "2 of 4 findings judged" in out
    assert "Exit code 3: 2 of 4 findings are not judged, and --fail-on-error allows 0%." in out + err
    assert editloupe("gate", "run", "--require", "unjudged<=0.02")[0] == 100
    code, out, err = editloupe("judge", edits, "--criteria", "if", "--limit", "1", "--out", "one")
    assert code == 0 and "1 of 1 findings judged" in out


def test_a_gate_refuses_a_bound_that_nothing_can_break(editloupe: Editloupe, run: Path) -> None:
    code, _, err = editloupe("gate", run, "--require", "unjudged<=2")
    assert code == 2 and "unjudged is a share, 0 to 1, so that nothing can break it; 2 % is 0.02" in " ".join(err.split())
