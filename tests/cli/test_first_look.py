"""What a first user met: limits and gates that hid a failure, headings wider than a page, a tie that was most and least."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.backends.prices import Prices
from editloupe.figures.compare import compare as compare_judges
from editloupe.figures.compare_tables import answers
from editloupe.figures.judged import read_judged
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


def test_data_of_the_hub_are_told_how_to_be_had(editloupe: Editloupe) -> None:
    for command in ("check", "judge"):
        code, said, err = editloupe(command, "owner/Name-1")
        # Nothing is said of what would have begun.
        assert (code, said, len(err.splitlines())) == (2, "", 1)
        assert "name hf://owner/Name-1:SPLIT, or download them" in err
        assert err.endswith("download them: hf download --repo-type dataset owner/Name-1 --local-dir FOLDER\n")


def test_a_folder_that_is_not_there_is_no_data_of_the_hub(editloupe: Editloupe, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for path in ("nowhere", "mine/nowhere", "a/b/c", tmp_path / "nowhere"):
        code, _, err = editloupe("check", path)
        assert code == 2 and err.endswith("nowhere: no such folder; expected a folder of edits\n".partition("nowhere")[2])


@pytest.mark.parametrize(
    ("path", "near"), [("exampels/edits", "examples/edits"), ("examples/edit", "examples/edits"), ("my/edits", "")]
)
def test_a_folder_beside_the_one_that_is_not_there_is_named_before_the_hub(
    editloupe: Editloupe, tmp_path: Path, path: str, near: str
) -> None:
    draw_edits(tmp_path / "examples" / "edits", 1)
    code, _, err = editloupe("check", path)
    assert (code, "hf://" in err) == (2, not near)
    assert (f"did you mean {near}? expected a folder of edits" in err) == bool(near)


def test_a_run_of_unreadable_files_says_to_mend_them(editloupe: Editloupe, tmp_path: Path) -> None:
    folder = draw_edits(tmp_path / "edits", 2)
    (folder / "edited" / "s01.png").write_bytes(b"no image")
    said = editloupe("judge", folder, "--mode", "plain", "--out", "run")[1]
    assert "Mend these in the data first, then judge them again: editloupe retry run" in said
    assert "1 of 2 samples can be judged" in editloupe("check", folder)[1]
    assert "1 of 1 sample can be judged" in editloupe("check", draw_edits(tmp_path / "one", 1))[1]


def test_check_lists_a_few_of_each_kind_in_a_terminal(
    editloupe: Editloupe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = draw_edits(tmp_path / "edits", 9)
    for number in range(7):
        # Those of a number without changed places are their source already.
        name = f"s{number:02}.png"
        (folder / "edited" / name).write_bytes((folder / "source" / name).read_bytes())
    (folder / "edited" / "s07.png").write_bytes(b"no image")
    rows = [f"s{number:02}" for number in range(9)]

    def listed(*more: str) -> list[str]:
        said = editloupe("check", folder, *more)[1]
        return [row for row in rows if f" {row} " in said]

    # s00 to s06 and s08 are unchanged: eight of a kind, and one that cannot be read.
    assert listed() == rows
    monkeypatch.setattr("editloupe.cli.check.in_brief", lambda full: not full)
    assert listed() == ["s00", "s01", "s02", "s03", "s04", "s07"]
    assert "… 3 more" in editloupe("check", folder)[1]
    assert listed("--full") == rows


@pytest.mark.parametrize("command", ["judge", "rubrics", "show", ""])
def test_the_help_of_a_flag_names_no_type(editloupe: Editloupe, command: str) -> None:
    said = editloupe(*filter(None, [command]), "--help")[1]
    assert "--help" in said and "<bool>" not in said


@pytest.mark.parametrize("command", [("judge",), ("merge",), ("build", "unicedit"), ("rank",)], ids=" ".join)
def test_the_help_of_an_argument_names_no_type(editloupe: Editloupe, command: tuple[str, ...]) -> None:
    arguments = editloupe(*command, "--help")[1].partition("Arguments")[2].partition("Options")[0]
    assert "PATH" in arguments or "SHARD" in arguments
    assert not re.search(r"<\w", arguments)


def test_several_judges_end_with_one_way_to_look_further(editloupe: Editloupe, run: Path, tmp_path: Path) -> None:
    named = [word for name in ("kind", "stern") for word in ("--backend", f"{name}=scripted/{name}.jsonl")]
    code, said, _ = editloupe("judge", tmp_path / "edits", "--criteria", "if", *named, "--out", "run")
    assert code == 0 and said.count("4 of 4 findings judged, 4 of them from before") == 2
    assert said.count("All tables: ") == said.count("Look at one: ") == 1
    assert said.splitlines()[-2:] == ["All tables: editloupe report run", "Look at one: editloupe show run s00"]
    # One table, of both; one of each before it only if asked for.
    assert (said.count("Means of all samples"), said.count("Judges side by side")) == (0, 1)
    assert len(said.partition("Judges side by side")[2].splitlines()) < 12
    _, said, _ = editloupe("judge", tmp_path / "edits", "--criteria", "if", *named, "--out", "run", "--full")
    assert (said.count("Means of all samples"), said.count("Judges side by side")) == (2, 1)


def test_several_judges_without_a_common_table_have_one_each(editloupe: Editloupe, run: Path, tmp_path: Path) -> None:
    # The second of two is told nothing, since the budget is used up by the first.
    named = [word for name in ("kind", "stern") for word in ("--backend", f"{name}=scripted/{name}.jsonl")]
    command = ("judge", tmp_path / "edits", "--criteria", "if", *named, "--out", "other", "--run-tokens", "1")
    _, said, _ = editloupe(*command)
    assert (said.count("Means of all samples"), said.count("Judges side by side")) == (1, 0)
