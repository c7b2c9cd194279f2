"""`editloupe import unicbench` as a user types it: official result files become a run that the other commands read."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, refused, words_of
from tests.protocols.unicbench_files import edit, result, rows, write, write_results

OUTPUTS = ("--edited", "bagel=results/bagel")


def results(given: list[dict[str, Any]], language: str = "en") -> list[dict[str, Any]]:
    """One reply to IF that nobody could read, one real 0, one score off the scale; all else 9, 8, 7 and 6."""
    found = [result(one, language) for one in given]
    found[0] = result(given[0], language, scores={"if": "Parse error"})
    found[1] = result(given[1], language, scores={"if": 0.0})
    found[2] = result(given[2], language, scores={"vq": 11.0})
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight rows of data, and one editor's results in two languages with its outputs."""
    monkeypatch.chdir(tmp_path)
    given = rows()
    write(tmp_path / "unic", given)
    for language in ("en", "cn"):
        write_results(tmp_path / "results", results(given, language), language=language)
    edit(tmp_path / "results" / "bagel", given)
    return tmp_path


def test_the_table_says_how_each_mean_moves(folder: Path, editloupe: Cli) -> None:
    code, out, err = editloupe("import", "unicbench", "results", "--data", "unic", *OUTPUTS, "--out", "run")
    assert code == 0, err
    assert "52 findings in run." in out and "All tables: editloupe report run" in out
    assert "editor 'bagel', judge 'gpt-4.1', en: scores that are unparsed (Parse error): 1" in err
    # IF: six times 9, a 0 and what could not be read. Published over 8, judged over 7.
    assert "bagel en IF 6.7500 8 7.7143 (7/8) +0.9643" in words_of(out)
    assert "bagel en NC 8.0000 8 8.0000 (8/8) +0.0000" in words_of(out)
    assert "bagel en VQ 7.5000 8 7.0000 (7/8) -0.5000" in words_of(out)
    assert "bagel en RA 6.0000 2 6.0000 (2/2) +0.0000" in words_of(out)
    # Overall, judged: 0, three times the cube root of 504, twice the fourth root of 3024.
    overall = (3 * 504 ** (1 / 3) + 2 * 3024 ** (1 / 4)) / 6
    assert f"{overall:.4f} (6/8)" in words_of(out)


def test_the_run_is_read_by_the_other_commands(folder: Path, editloupe: Cli) -> None:
    editloupe("import", "unicbench", "results", "--data", "unic", *OUTPUTS, "--out", "run")
    code, out, _ = editloupe("report", "run")
    assert code == 0 and "Means as published, and of what was judged" in out
    assert "6.7500 8 7.7143 (7/8) +0.9643" in words_of(out)
    with (folder / "run" / "report" / "published.csv").open(encoding="utf-8") as file:
        (first,) = [r for r in csv.DictReader(file) if (r["language"], r["metric"]) == ("en", "instruction_following")]
    assert (first["published"], first["published_count"], first["judged"], first["asked"]) == ("6.75", "8", "7", "8")
    code, out, _ = editloupe("verify", "run")
    assert code == 0 and "there is no trace of it" in out
    key = rows()[0]["key"]
    code, out, _ = editloupe("show", "run", f"bagel/{key}.en")
    assert code == 0 and "Parse error" in out and "Because of nc." in out
    assert editloupe("export", "run", "--findings", "findings.jsonl", "--html", "pages")[0] == 0
    assert editloupe("show", ".")[0] == 0


def test_nobody_is_asked_again(folder: Path, editloupe: Cli) -> None:
    editloupe("import", "unicbench", "results", "--data", "unic", *OUTPUTS, "--out", "run")
    before = sorted(path.read_bytes() for path in (folder / "run").rglob("*.json*"))
    err = refused(editloupe, "judge", "run", "--retry")
    assert "run has no config.yaml, so that its judges cannot be asked again: it was imported" in err
    err = refused(editloupe, "judge", "unic", "--edited", "bagel=results/bagel", "--protocol", "unicbench", "--out", "run")
    assert "run belongs to another run" in err and "importer: was unicbench, is not set" in err
    assert editloupe("replay", "run")[0] == 2
    assert sorted(path.read_bytes() for path in (folder / "run").rglob("*.json*")) == before


def test_what_does_not_fit_is_said_and_nothing_is_written(folder: Path, editloupe: Cli) -> None:
    known = "expected one of edival, gedit, imgedit, kris, unicbench"
    for given, said in (
        (("unicbench", "results", "--out", "run"), "Missing option '--data'"),
        (("unicbench", "results", "--data", "unic"), "Missing option '--out'"),
        (("rise", "results", "--data", "unic", "--out", "run"), f"no result files 'rise' are known; {known}"),
        (
            ("unicbench", "unic", "--data", "unic", "--out", "run"),
            "unic: no result file; expected MODEL/eval_output/JUDGE/",
        ),
        (("unicbench", "results", "--data", "gone", "--out", "run"), "gone"),
        (("unicbench", "results", "--data", "unic", "--out", "unic"), "unic holds other files and is no run"),
    ):
        code, out, err = editloupe("import", *given)
        assert code == 2 and said in words_of(err) and out == ""
        assert not (folder / "run").exists() and not (folder / "unic" / "run.json").exists()
    editloupe("import", "unicbench", "results", "--data", "unic", *OUTPUTS, "--out", "run")
    info = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    info["record"]["imported"]["published"][0] |= {"mean": "a"}
    (folder / "run" / "run.json").write_text(json.dumps(info), encoding="utf-8")
    err = refused(editloupe, "report", "run")
    assert "run.json: a published mean is not of the expected shape" in err
