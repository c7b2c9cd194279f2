"""`editloupe judge` as a user types it: what it prints and writes, exit codes, the same command again, and --retry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import LOOK, Cli, Edits, draw_edits, final, scripted


def script(*replies: object, name: str = "replies.jsonl") -> str:
    return scripted(name, *replies)


def test_a_folder_is_judged_and_the_end_says_how_to_look(editloupe: Cli, edits: Edits) -> None:
    code, said, _ = editloupe("judge", edits(3), "--backend", script(LOOK, final("Wrong Action")), "--criteria", "if")
    assert code == 0
    assert "3 of 3 findings judged" in said and "a script, not an LMM" in said and "Tools absent: grounding" in said
    # Value 2 on 1..4 is (2−1)/3·100. One editor without a name has no column.
    assert "33.33 (3/3)" in said and "not named" not in said
    assert "Tools: 3 calls, " not in said or "from cache" in said
    out = Path("runs/edits-scripted-replies.jsonl-tool")
    assert said.splitlines()[-2:] == [
        f"All tables: editloupe report {out}",
        f"Look at the verdicts: editloupe view {out}",
    ]
    summary = json.loads((out / "report" / "summary.json").read_text())
    (followed,) = summary["means"]
    assert (followed["mean"], followed["judged"], followed["asked"]) == (pytest.approx(100 / 3), 3, 3)
    assert "| 33.33 (3/3) |" in (out / "report" / "summary.md").read_text()
    shown = editloupe("show", out, "s01")[1]
    for word in ("Make square 1 red.", "Call localize_differences", "Verdict: Wrong Action (2)"):
        assert word in shown


def test_json_gives_events_for_programs(editloupe: Cli, edits: Edits) -> None:
    words = ("--backend", script(final("Superb")), "--criteria", "if", "--format", "json")
    code, said, _ = editloupe("judge", edits(2), *words)
    assert code == 1
    events = [json.loads(line) for line in said.splitlines()]
    assert {event["event"] for event in events} == {"finding", "done"}
    assert [e["status"] for e in events if e["event"] == "finding"] == ["backend_failed", "backend_failed"]
    done = events[-1]
    assert (done["event"], done["asked"], done["judged"], done["failed"]) == ("done", 2, 0, 2)
    assert done["summary"]["means"][0]["mean"] is None


def test_markup_and_escape_codes_in_the_data_are_shown_as_they_stand(editloupe: Cli, edits: Edits) -> None:
    folder = edits(1)
    row = json.loads((folder / "metadata.jsonl").read_text())
    row |= {"id": "a[/b]", "edit_type": "[/x]\x1b]0;pwned\n| y\u202e", "editor": "[/ed]"}
    (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n")
    words = ("--backend", script(final("Wrong Action", "I saw \u202eit.")), "--criteria", "if", "--out", "run")
    code, said, _ = editloupe("judge", folder, *words)
    assert code == 0
    said += "".join(editloupe(*line)[1] for line in (("report", "run"), ("show", "run"), ("show", "run", "a[/b]")))
    assert "[/x]␛]0;pwned" in said and "[/ed]" in said and "a[/b]" in said
    assert "\x1b" not in said and "\u202e" not in said
    assert "| [/x]␛]0;pwned \\| y" in editloupe("report", "run", "--format", "md")[1]


def test_folders_of_the_same_name_do_not_share_a_run(editloupe: Cli, edits: Edits) -> None:
    words = ("--backend", script(final("Wrong Action")), "--criteria", "if")
    for name in ("p/編集", "q/編集"):
        Path(name).parent.mkdir(exist_ok=True)
        assert "1 of 1 findings judged" in editloupe("judge", edits(1, name=name), *words)[1]
    assert "1 of them from before" in editloupe("judge", "q/編集", *words)[1]


@pytest.mark.parametrize(("tolerated", "code"), [("0", 3), ("0.4", 3), ("0.5", 0)])
def test_the_tolerated_share_of_failures_decides_the_exit_code(
    tolerated: str, code: int, editloupe: Cli, edits: Edits
) -> None:
    folder = edits(2)
    (folder / "edited" / "s01.png").write_bytes(b"")
    words = ("--backend", script(final("Wrong Action")), "--criteria", "if", "--fail-on-error", tolerated)
    got, said, _ = editloupe("judge", folder, *words)
    assert got == code and "input_error" in said and "1 of 2 findings judged" in said
    assert ("Exit code 3: 1 of 2 findings are not judged, and --fail-on-error allows" in said) == (code == 3)


def test_retry_judges_again_what_failed_and_nothing_else(editloupe: Cli, edits: Edits) -> None:
    folder = edits(2)
    uri = script(final("Superb"), final("Grand"), final("Fine"))
    code, said, _ = editloupe("judge", folder, "--backend", uri, "--criteria", "if", "--out", "run")
    assert code == 1 and "Judge these again: editloupe judge run --retry off_menu" in said
    assert len([line for line in said.splitlines() if line.strip()]) <= 10, said
    # In either order; the word behind it is a status, or the run.
    for line in (("run", "--retry"), ("--retry", "run")):
        code, said, _ = editloupe("judge", *line)
        assert code == 1 and "2 of them from before" in said
    for line in (("run", "--retry", "off_menu"), ("--retry", "off_menu,unparsed", "run"), ("run", "--retry=off_menu")):
        code, said, _ = editloupe("judge", *line)
        assert code == 1 and "from before" not in said
    assert editloupe("judge", "run", "--retry=bad")[0] == 2


def test_a_run_of_unreadable_files_says_to_correct_them(editloupe: Cli, tmp_path: Path) -> None:
    folder = draw_edits(tmp_path / "edits", 2)
    (folder / "edited" / "s01.png").write_bytes(b"no image")
    said = editloupe("judge", folder, "--mode", "plain", "--out", "run")[1]
    assert "Correct these in the data, then judge them again: editloupe judge run --retry" in said
    code, said, _ = editloupe("check", folder)
    assert code == 1 and "s01" in said and "1 of 2 samples can be judged" in said
    assert json.loads(editloupe("check", folder, "--format", "json")[1])["errors"] == 1


RUBRIC = """
id = "sharp"
title = "Is it sharp?"
[criteria.sharpness]
name = "Sharpness"
short = "SH"
question = "Is the edited object as sharp as before?"
[[criteria.sharpness.levels]]
name = "Blurred"
value = 0
description = "It is less sharp."
[[criteria.sharpness.levels]]
name = "Sharp"
value = 1
description = "It is as sharp as before."
"""


def test_a_users_own_rubric_judges_by_its_own_labels(editloupe: Cli, edits: Edits) -> None:
    Path("sharp.toml").write_text(RUBRIC)
    folder = edits(2, types=("Recolor", "Removal"))
    code, said, _ = editloupe("judge", folder, "--backend", script(final("Sharp")), "--rubric", "sharp.toml")
    assert code == 0 and "SH" in said and "100.00 (2/2)" in said
    report = editloupe("report", "runs/edits-scripted-replies.jsonl-tool-sharp")[1]
    # The edit type is as the data have it, under no name and no table of a benchmark.
    assert "Blurred" in report and "Recolor" in report
    assert not any(word in said + report for word in ("Change Color", "benchmark", "Table 4", "dlebench"))
    # The pixel baseline knows DLEBench's labels only, and says so instead of guessing.
    code, said, _ = editloupe("judge", folder, "--rubric", "sharp.toml")
    assert code == 1 and "abstained" in said


def test_tables_come_in_every_form_and_without_frames_in_a_file(editloupe: Cli, edits: Edits) -> None:
    words = ("judge", edits(2), "--criteria", "if", "--out", "judged", "--backend")
    assert editloupe(*words, f"mild={script(final('Flawless Execution'), name='a.jsonl')}")[0] == 0
    code, said, _ = editloupe("show", "judged", "--format", "csv")
    assert (code, said.splitlines()[:2]) == (0, ["Judge,Sample,Instruction Following", "mild,s00,Flawless Execution"])
    assert editloupe("show", "judged", "--format", "md")[1].startswith("|")
    # A second judge stands in the same table.
    assert editloupe(*words, f"stern={script(final('Wrong Action'), name='b.jsonl')}")[0] == 0
    rows = json.loads(editloupe("show", "judged", "--format", "json")[1])["records"]
    assert [(row["Judge"], row["Sample"]) for row in rows] == [(j, s) for j in ("mild", "stern") for s in ("s00", "s01")]
    assert rows[2]["Instruction Following"] == "Wrong Action"
    # The next command has the usual form again.
    for command in ("show", "report"):
        said = editloupe(command, "judged")[1]
        assert not re.findall("[│┃━─|]", said)
        assert not [line for line in said.splitlines() if line != line.rstrip()]
