"""`editloupe canary`: has a judge changed since a run?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from editloupe.figures.canary import Canary, rate

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


def test_the_same_judge_has_not_changed(run: Path, editloupe: Program):
    code, told, said = editloupe("canary", run, "--samples", "4", "--fail-above", "0")
    assert code == 0, said
    # Of four, none: by Clopper and Pearson up to 1 − 0.025^(1/4) = 60.2 %.
    assert "0.0 %" in told and "0.0 to 60.2 %" in told
    assert (run / "findings.jsonl").read_text().count("\n") == 6, "the run itself is left as it is"
    assert len(list((run / "canary").iterdir())) == 1


def test_flips_are_counted_named_and_fail(run: Path, tmp_path: Path, editloupe: Program):
    other = script(tmp_path, "now.jsonl", final("Wrong Action"))
    code, told, _ = editloupe("canary", run, "--backend", other, "--fail-above", "0.5", "--json")
    found = json.loads(told)
    assert code == found["exit"] == 4
    figure = found["flip_rates"]["instruction_following"]
    assert (figure["value"], figure["judged"], figure["asked"]) == (1.0, 6, 6)
    assert {f["now"] for f in found["flips"]} == {"Wrong Action"}
    assert found["model_changed"] is True
    code, told, _ = editloupe("canary", run, "--backend", other)
    assert code == 0
    assert "Flawless Execution → Wrong Action" in told and "ANOTHER model" in told


def test_what_has_no_label_now_is_no_flip(run: Path, tmp_path: Path, editloupe: Program):
    silent = script(tmp_path, "silent.jsonl", {"error": "unavailable"})
    code, told, _ = editloupe("canary", run, "--backend", silent, "--samples", "2", "--fail-above", "0.5", "--json")
    found = json.loads(told)
    figure = found["flip_rates"]["instruction_following"]
    assert (figure["value"], figure["judged"], figure["asked"], figure["why"]) == (None, 0, 2, "nothing was judged now")
    assert found["not_judged_now"] == {"backend_failed": 2}
    assert code == 4, "a judge that does not answer has not passed"
    assert (found["model_changed"], found["nobody_answered"], found["models_now"]) == (False, True, [])
    _, told, _ = editloupe("canary", run, "--backend", silent, "--samples", "2")
    assert "Nobody answered now." in told and "ANOTHER" not in told


def test_another_model_is_one_that_had_not_answered():
    def found(before: tuple[str, ...], now: tuple[str, ...]) -> bool:
        return Canary(
            judge="j", flip_rates={}, flips=(), not_judged_now={}, models_before=before, models_now=now
        ).model_changed  # fmt: skip

    assert found(("m (a)",), ("m (b)",))
    assert not found(("m (a)", "m (b)"), ("m (b)",)), "fewer samples are asked now"
    assert not found(("m (a)",), ())


def test_repeats_are_not_asked_again(edits: Callable[..., Path], tmp_path: Path, editloupe: Program):
    told = script(tmp_path, "then.jsonl", final("Flawless Execution"))
    out = tmp_path / "run"
    assert editloupe("judge", edits(2), "--backend", told, "--criteria", "if", "--repeats", "3", "--out", out)[0] == 0
    assert (out / "findings.jsonl").read_text().count("\n") == 6
    code, told, said = editloupe("canary", out, "--json")
    assert code == 0, said
    found = json.loads(told)
    assert found["flip_rates"]["instruction_following"]["judged"] == 2
    assert (Path(found["asked_in"]) / "findings.jsonl").read_text().count("\n") == 2


def test_the_set_is_fixed(run: Path, editloupe: Program):
    for _ in range(2):
        assert editloupe("canary", run, "--samples", "2")[0] == 0
    asked = [
        {json.loads(line)["id"] for line in (folder / "samples.jsonl").read_text().splitlines()}
        for folder in (run / "canary").iterdir()
    ]
    assert len(asked) == 2 and asked[0] == asked[1] and len(asked[0]) == 2


def test_a_rate_by_hand():
    # 1 of 10: Clopper and Pearson, 0.0025 to 0.4450.
    found = rate(1, 10, asked=12)
    assert found.interval is not None
    assert (found.value, round(found.interval.low, 4), round(found.interval.high, 4)) == (0.1, 0.0025, 0.445)


def test_what_cannot_be_asked_is_said(run: Path, tmp_path: Path, editloupe: Program):
    assert editloupe("canary", tmp_path / "nowhere")[0] == 2
    findings = [json.loads(line) for line in (run / "findings.jsonl").read_text().splitlines()]
    gone = [f | {"status": "refused", "answer": None, "label": None, "value": None} for f in findings]
    (run / "findings.jsonl").write_text("".join(json.dumps(f) + "\n" for f in gone))
    code, _, said = editloupe("canary", run)
    assert (code, "gave no answer" in said) == (2, True)
