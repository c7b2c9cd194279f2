"""`editloupe export` in the formats of others, as a user gives them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.exports.runs import INSTRUCTION, native_run

Run = Callable[..., tuple[int, str, str]]


def test_several_formats_at_once(editloupe: Run, native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_network(*args: object, **kwargs: object) -> None:
        raise AssertionError("an export opens no connection")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    words = ("--otel", "o/spans.jsonl", "--inspect", "o/log.json", "--findings", "o/f.csv")
    code, out, err = editloupe("export", native, *words)
    assert (code, err) == (0, "")
    assert "8 traces as OpenTelemetry spans in o/spans.jsonl; without texts and images, " in out
    assert "2 findings have no trace" in out
    assert "10 findings as samples of an Inspect log in o/log.json" in out
    assert "10 findings in o/f.csv" in out
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == ["f.csv", "log.json", "spans.jsonl"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "nothing to write; name one of --html, --findings"),
        (("--judge", "zz", "--findings", "f.csv"), "--judge 'zz' names 0 of this run's judges; there are: "),
        (("--findings", "f.txt"), ".jsonl, .csv or .parquet"),
        (("--otel", "."), "is a folder; name a file"),
        (("--findings", "f.csv", "--dpo", "--turns", "all"), "--dpo, --turns: only with --sft"),
        (("--html", "pages", "--judge", "zz"), "--judge: only with one of --findings"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_does_not_fit_is_said(editloupe: Run, native: Path, words: tuple[str, ...], told: str):
    code, _, err = editloupe("export", native, *words)
    assert code == 2
    assert told in err


def test_one_run_at_a_time(editloupe: Run, native: Path):
    for words in (("--findings", "f.csv"), ("--sft", "o")):
        code, _, err = editloupe("export", native, native, *words)
        assert code == 2 and "one run at a time, found 2" in err


def test_a_trace_that_cannot_be_read_is_named_and_the_exit_code_says_so(editloupe: Run, tmp_path: Path):
    run = native_run(tmp_path / "own")
    next(run.glob("traces/*/*/*.jsonl")).write_text("{}\n", encoding="utf-8")
    code, out, err = editloupe("export", run, "--otel", "s.jsonl")
    assert code == 1
    assert "7 traces" in out and "warning: " in err and "no header in the first line" in err


def test_one_sample_is_shown_as_json_with_its_steps(editloupe: Run, native: Path):
    code, out, _ = editloupe("show", native, "s00", "--criterion", "if", "--format", "json")
    assert code == 0
    told = json.loads(out)
    (finding,) = told["findings"]
    assert (told["sample"], finding["label"], finding["value"]) == ("s00", "Flawless Execution", 4.0)
    assert finding["instruction"] == INSTRUCTION.format(0) and INSTRUCTION.format(0) in finding["prompt"]
    first, last = finding["steps"]
    assert [call["name"] for call in first["calls"]] == ["zoom_in"] and first["thought"] == "I should look.\nCloser."
    assert first["usage"]["input_tokens"] == 1200
    (observed,) = first["observations"]
    assert observed["aliases"] == ["Crop 1"] and len(observed["views"][0]["image"]["sha256"]) == 64
    assert "Crop 1 shows it." in last["reply"] and last["calls"] == []
    # A sample that failed has its reason, and one that was never asked has no steps.
    failed, missing = (
        json.loads(editloupe("show", native, name, "--format", "json")[1])["findings"][0] for name in ("s01", "s04")
    )
    assert (failed["status"], failed["answer"]) == ("unparsed", None) and failed["steps"]
    assert (missing["status"], missing["steps"]) == ("input_error", [])
    code, out, err = editloupe("show", native, "s00", "--format", "csv")
    assert (code, out) == (2, "") and "one sample is printed for people, or as json" in err
