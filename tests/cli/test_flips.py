"""`editloupe replay --model live`: which share of a run's answers are others now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import final

Program = Callable[..., tuple[int, str, str]]


def script(folder: Path, name: str, *lines: object) -> str:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"scripted/{path}"


@pytest.fixture
def run(edits: Callable[..., Path], tmp_path: Path, editloupe: Program) -> Path:
    """Six edits, all flawless by a script."""
    told = script(tmp_path, "then.jsonl", final("Flawless Execution"))
    out = tmp_path / "run"
    code, _, said = editloupe("judge", edits(6), "--backend", told, "--criteria", "if", "--out", out)
    assert code == 0, said
    return out


def flips(told: str) -> dict[str, Any]:
    """The last object of JSON."""
    return dict(json.loads(told[told.rindex('{"event": "flips"') :]))


def test_the_same_judge_has_not_changed(run: Path, tmp_path: Path, editloupe: Program):
    same = script(tmp_path, "again.jsonl", final("Flawless Execution"))
    words = ("replay", run, "--model", "live", "--backend", same, "--samples", "4", "--fail-above", "0")
    code, told, said = editloupe(*words)
    assert code == 0, said
    assert "Share of answers that are others now" in told and "0.000 (4/4)" in told
    assert (run / "findings.jsonl").read_text().count("\n") == 6, "the run itself is left as it is"


def test_answers_that_are_others_are_counted_and_fail(run: Path, tmp_path: Path, editloupe: Program):
    other = script(tmp_path, "now.jsonl", final("Wrong Action"))
    words = ("replay", run, "--model", "live", "--backend", other)
    code, told, _ = editloupe(*words, "--fail-above", "0.5", "--json")
    found = flips(told)
    share = found["shares"]["instruction_following"]
    assert (code, share["value"], share["judged"], share["asked"]) == (4, 1.0, 6, 6)
    assert found["model_changed"] is True and found["highest"] == 1.0
    code, told, _ = editloupe(*words)
    assert code == 0
    assert "ANOTHER model" in told and "recorded 'Flawless Execution', now 'Wrong Action'" in " ".join(told.split())


def test_what_has_no_answer_now_is_no_flip(run: Path, tmp_path: Path, editloupe: Program):
    silent = script(tmp_path, "silent.jsonl", {"error": "unavailable"})
    words = ("replay", run, "--model", "live", "--backend", silent, "--samples", "2", "--fail-above", "0.5", "--json")
    code, told, _ = editloupe(*words)
    share = flips(told)["shares"]["instruction_following"]
    assert (share["value"], share["judged"], share["asked"], share["why"]) == (None, 0, 2, "nothing was judged")
    assert code == 4, "a judge that does not answer has not passed"
    assert "Nothing was judged, so that --fail-above cannot be held." in editloupe(*words[:-1])[1]


def test_old_names_say_what_does_their_work_now(run: Path, editloupe: Program):
    for words, told in (
        (("align", run), "there is no command 'align' any more; use: editloupe compare --human FILE"),
        (("canary", run), "there is no command 'canary' any more; use: editloupe replay --model live"),
    ):
        code, out, err = editloupe(*words)
        assert (code, out) == (2, "") and told in " ".join(err.split())
    code, _, err = editloupe("replay", run, "--samples", "2")
    assert code == 2 and "--samples and --fail-above go with --model live" in err
