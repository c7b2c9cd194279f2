"""`editloupe backends probe`, against a strict server of our own with scripted answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.backends.loopback import Act
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.conftest import Cli

READY, SEES, APART = says("ready"), says("A red disc."), says("Blue, red, green")
MODELS = [{"id": "other", "max_model_len": 1}, {"id": "tiny-vl", "max_model_len": 32768}]


def asked(editloupe: Cli, *script: Act, models: list[dict[str, Any]] | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and report; the server has seen nothing that breaks the protocol."""
    with OpenAIServer(*script, models=models) as server:
        code, said, _ = editloupe("check", "--backend", f"openai/tiny-vl?base_url={server.url}", "--format", "json")
    assert server.complaints == []
    return code, json.loads(said)


def test_what_a_model_can_do_is_a_table_and_exit_code_0(editloupe: Cli) -> None:
    with OpenAIServer(READY, SEES, APART, models=MODELS) as server:
        code, said, noted = editloupe("check", "--backend", f"openai/tiny-vl?base_url={server.url}")
    assert (code, server.complaints) == (0, [])
    assert "A red disc" in said and "32,768 tokens" in said and "It can judge edits." in said
    assert "(3 questions answered, 42 tokens)" in said
    assert "asking: see a picture" in noted


def test_the_first_that_shows_that_it_cannot_judge_is_the_last(editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    cut_off = says("", reasoning_content="hm", finish="length")
    for script, probe, result, told in (
        ([cut_off], "answer", "no", "finish reason length; only reasoning came"),
        ([READY, fails(400, "this model takes no images")], "see a picture", "failed", "this model takes no images"),
        ([READY, SEES, says("red, green")], "tell pictures apart", "no", "red, green"),
    ):
        code, report = asked(editloupe, *script)
        row = report["probes"][-1]
        assert (code, report["can_judge"], row["name"], row["result"]) == (1, False, probe, result)
        assert told in row["answered"] and report["verdict"] == f"It cannot judge edits: {probe}: {result}."


def test_the_baseline_judges_and_there_is_nothing_to_probe(editloupe: Cli) -> None:
    code, said, _ = editloupe("check", "--backend", "baseline")
    assert (code, "there is nothing to probe" in said) == (0, True)
    assert editloupe("check", "--backend", "openai/m?base_url=nowhere")[0] == 2
