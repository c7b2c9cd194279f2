"""UnicVerify: did an edit change anything, what was done, and how well that matches what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Run
from editloupe.backends.scripted import ScriptedLMM
from editloupe.protocols.unicverify.protocol import UnicVerify
from editloupe.runs.execute import Outcome
from editloupe.testing import check_protocol
from tests.conftest import final
from tests.setups import open_with, run_over

Cli = Callable[..., tuple[int, str, str]]


def verified(changed: bool, instruction: str = "", **more: Any) -> str:
    """The reply of a verifier."""
    return final(json.dumps({"is_changed": changed, "instruction": instruction, **more}))


def run(folder: Path, out: Path, reply: Any, **options: Any) -> Outcome:
    """Judge a folder with one script in every role."""
    script = ScriptedLMM(reply if callable(reply) else [reply])
    return run_over(open_with(protocol="unicverify", backend=script, options=options), folder, out)


def test_the_verifier_sees_both_images_and_its_answer_is_a_score(tmp_path: Path, edits: Callable[..., Path]) -> None:
    lmm = ScriptedLMM([verified(True, "Paint square 1 blue.", reason="It is blue.")])
    outcome = run_over(open_with(protocol="unicverify", backend=lmm), edits(2), tmp_path / "run")
    assert [f.answer.data for f in outcome.findings if f.metric == "verification"] == [
        {"is_changed": True, "instruction": "Paint square 1 blue.", "reason": "It is blue."}
    ] * 2
    assert [s.value for s in outcome.scores if s.metric == "is_changed"] == [1, 1]
    asked = str(lmm.requests[0])
    assert "Editing Instruction: Make square 0 red." in asked and "Original Image" in asked and "Edited Image" in asked


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (final("maybe"), "unparsed"),
        (final('{"is_changed": "yes", "instruction": ""}'), "off_menu"),
        (final('{"is_changed": true}'), "off_menu"),
        (final('{"is_changed": true, "instruction": "x", "score": 7}'), "off_menu"),
        (final('{"is_changed": true, "instruction": "x"} {"is_changed": false, "instruction": ""}'), "unparsed"),
        ("I see nothing.", "unparsed"),
    ],
)
def test_a_broken_reply_is_a_status_and_no_number(
    tmp_path: Path, edits: Callable[..., Path], reply: str, status: str
) -> None:
    outcome = run(edits(1), tmp_path / "run", lambda request: reply)
    assert {f.status for f in outcome.findings if f.metric == "verification"} == {status}
    assert {(s.value, s.missing) for s in outcome.scores if s.metric == "is_changed"} == {(None, status)}


def test_a_missing_output_is_not_asked_about(tmp_path: Path, edits: Callable[..., Path]) -> None:
    folder = edits(2)
    lines = (folder / "metadata.jsonl").read_text().replace('"edited/s01.png"', "null")
    (folder / "metadata.jsonl").write_text(lines)
    outcome = run(folder, tmp_path / "run", verified(False))
    assert [(s.value, s.missing) for s in outcome.scores if s.metric == "is_changed"] == [
        (0, None),
        (None, "missing_output"),
    ]


def test_backend_answers_in_every_role_that_has_none_of_its_own(editloupe: Cli, edits: Callable[..., Path]) -> None:
    edits(2)
    Path("verify.jsonl").write_text(json.dumps(verified(False)) + "\n")
    code, _, told = editloupe("judge", "edits", "--protocol", "unicverify")
    assert code == 2 and "--role verify=provider/model" in told
    code, _, told = editloupe(
        "judge", "edits", "--protocol", "unicverify", "--backend", "scripted/verify.jsonl", "--out", "a"
    )
    assert code == 0, told
    assert "Judging" in told and "scripted/verify.jsonl" in told
    words = ("--protocol", "unicverify", "--role", "verify=scripted/verify.jsonl", "--out", "b")
    assert editloupe("judge", "edits", *words)[0] == 0
    both = [Run(name).frame().filter(metric="is_changed")["value"].to_list() for name in ("a", "b")]
    assert both == [[0, 0], [0, 0]]
    assert json.loads(Path("b/run.json").read_text())["identity"]["roles"].keys() == {"verify"}
    for command in (("report", "b"), ("show", "b", "s00"), ("replay", "b"), ("verify", "b")):
        assert editloupe(*command)[0] == 0, command


def test_the_baseline_has_no_answer_of_this_kind(editloupe: Cli, edits: Callable[..., Path]) -> None:
    edits(1)
    code, out, _ = editloupe("judge", "edits", "--protocol", "unicverify", "--backend", "baseline", "--out", "run")
    assert code == 1
    scores = Run("run").frame().filter(metric="is_changed")
    assert scores["value"].to_list() == [None] and scores["missing"].to_list() == ["unparsed"], out


def test_the_protocol_keeps_the_contract() -> None:
    check_protocol(UnicVerify)
