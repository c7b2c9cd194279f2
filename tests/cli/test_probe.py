"""`editloupe backends probe`, against a strict server of our own with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.backends.probe import draw, probe
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, ToolCall
from editloupe.errors import Unavailable
from tests.backends.loopback import Act
from tests.backends.openai_server import OpenAIServer, fails, says

Run = Callable[..., tuple[int, str, str]]

CALLS = {"id": "c", "type": "function", "function": {"name": "report_colour", "arguments": '{"colour": "green"}'}}
READY, SEES, APART = says("ready"), says("A red disc; the word is MAPLE."), says("Blue, red, green")
FETCHED, FORMED = says("Blue."), says('{"sky": "Heavy Rain"}')


def calling(**change: Any) -> Act:
    return says(None, tool_calls=[{**CALLS, **change}], finish="tool_calls")


def asked(editloupe: Run, *script: Act, models: list[dict[str, Any]] | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and report; the server has seen nothing that breaks the protocol."""
    with OpenAIServer(*script, models=models) as server:
        code, said, _ = editloupe("backends", "probe", f"openai/tiny-vl?base_url={server.url}", "--json")
    assert server.complaints == []
    return code, json.loads(said)


def results(report: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["result"] for row in report["probes"]}


def test_what_a_model_can_do_is_a_table_and_exit_code_0(editloupe: Run) -> None:
    models = [{"id": "other", "max_model_len": 1}, {"id": "tiny-vl", "max_model_len": 32768}]
    with OpenAIServer(READY, SEES, APART, calling(), FETCHED, FORMED, models=models) as server:
        code, said, noted = editloupe("backends", "probe", f"openai/tiny-vl?base_url={server.url}")
    assert (code, server.complaints) == (0, [])
    assert "A red disc" in said and "32,768 tokens" in said and "It can judge edits." in said
    assert "(6 questions answered, 84 tokens)" in said
    assert "asking: see a picture" in noted


def test_as_json_every_probe_has_its_question_answer_and_result(editloupe: Run) -> None:
    code, report = asked(editloupe, READY, SEES, APART, calling(), FETCHED, FORMED, models=[{"id": "tiny-vl"}])
    assert code == 0
    assert results(report) == {
        "answer": "yes",
        "see a picture": "yes",
        "tell pictures apart": "yes",
        "call a tool": "yes",
        "see a tool's picture": "yes",
        "keep to choices": "not offered",
        "keep to a JSON schema": "yes",
        "give logprobs": "not told",
        "say its context limit": "not told",
    }
    assert report["can_judge"] is True
    assert report["model"] == "tiny-vl-0613"
    shown = next(row for row in report["probes"] if row["name"] == "see a tool's picture")
    assert shown["answered"] == "Blue. (sent in a user's message behind it)"


def test_failed_and_wrong_probes_are_rows_with_their_reasons(editloupe: Run) -> None:
    broken = calling(function={"name": "report_colour", "arguments": '{"colour'})
    code, report = asked(editloupe, READY, fails(400, "this model takes no images"), says("red"), broken, says("Pink"))
    assert code == 1
    rows = {row["name"]: row for row in report["probes"]}
    assert rows["see a picture"]["result"] == "failed"
    assert "this model takes no images" in rows["see a picture"]["answered"]
    assert (rows["tell pictures apart"]["result"], rows["tell pictures apart"]["answered"]) == ("no", "red")
    assert rows["call a tool"]["answered"].startswith("a broken call: the arguments are not JSON")
    assert rows["see a tool's picture"]["result"] == "no"
    assert (rows["keep to a JSON schema"]["result"], rows["keep to a JSON schema"]["answered"]) == ("no", "Pink")
    assert rows["say its context limit"]["result"] == "failed"
    assert "HTTP 404" in rows["say its context limit"]["answered"]


def test_the_table_is_kept_in_a_run_and_shown_with_it(editloupe: Run, edits: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert editloupe("judge", edits(1), "--criteria", "if", "--out", run)[0] == 0
    with OpenAIServer(READY, SEES, APART, calling(), FETCHED, FORMED) as server:
        uri = f"openai/tiny-vl?base_url={server.url}"
        code, _, noted = editloupe("backends", "probe", uri, "--run", run)
        [kept] = (run / "probes").iterdir()
        assert (code, f"kept in {kept}" in "".join(noted.splitlines())) == (0, True)
        # The latest one stays.
        assert editloupe("backends", "probe", uri, "--run", run)[0] == 1
        asked = len(server.seen)
        code, _, told = editloupe("backends", "probe", uri, "--run", tmp_path)
        assert (code, len(server.seen)) == (2, asked)
        assert "is no run folder" in told
    assert list((run / "probes").iterdir()) == [kept]
    assert json.loads(kept.read_text())["can_judge"] is False
    (run / "probes" / "torn.json").write_text("{")
    code, said, warned = editloupe("show", run)
    assert code == 0
    assert f"Probed: openai/tiny-vl?base_url={server.url}" in said
    assert "see a tool's picture" in said and "It cannot judge edits: see a picture" in said
    assert "probes/torn.json" in warned
    # The run itself is what it was.
    assert editloupe("judge", tmp_path / "edits", "--criteria", "if", "--out", run)[0] == 0


def test_a_model_that_answers_in_words_where_a_call_was_asked_for(editloupe: Run) -> None:
    _, report = asked(editloupe, READY, SEES, APART, says("It is green."), FETCHED)
    row = next(row for row in report["probes"] if row["name"] == "call a tool")
    assert (row["result"], row["answered"]) == ("no", "no call, but: It is green.")


def test_an_endpoint_that_does_not_answer_is_asked_once(editloupe: Run) -> None:
    code, report = asked(editloupe, fails(404, "no such model"))
    assert code == 1
    assert set(results(report).values()) == {"failed", "not asked"}


def test_a_uri_that_cannot_be_opened_is_exit_code_2(editloupe: Run) -> None:
    assert editloupe("backends", "probe", "openai/gpt-4.1")[0] == 2
    assert editloupe("backends", "probe", "nosuch/x")[0] == 2


def test_the_baseline_judges_and_there_is_nothing_to_probe(editloupe: Run) -> None:
    code, said, _ = editloupe("backends", "probe", "baseline")
    assert (code, said) == (0, "baseline: It judges by rules on pixels and is no LMM: there is nothing to probe.\n")
    report = json.loads(editloupe("backends", "probe", "baseline", "--json")[1])
    assert (report["can_judge"], report["probes"]) == (True, [])


def test_choices_and_a_limit_by_the_python_door() -> None:
    def answers(request: Request) -> str | Reply | Exception:
        if request.choices:
            return "Heavy Rain"
        if request.tools and request.calls_allowed:
            return Reply(text="", tool_calls=(ToolCall(id="a", name="report_colour", arguments={"colour": "green"}),))
        if len(request.messages) > 1:
            return Unavailable("gone for a while")
        return {0: "ready", 1: "red MAPLE", 3: "blue, red and green"}[len(request.messages[0].images)]

    report = probe(ScriptedLMM(answers, constrains_choices=True, native_tools=True))
    found = {row.name: row.result for row in report.rows}
    assert found["keep to choices"] == "yes"
    assert found["see a tool's picture"] == "failed"
    assert found["say its context limit"] == "not offered"
    assert report.can_judge


@pytest.mark.parametrize("word", ["", "MAPLE"])
def test_the_drawn_picture_holds_its_colour_and_its_word(word: str) -> None:
    pixels = np.asarray(draw("red", word=word))
    assert pixels.shape == (240, 320, 3)
    assert tuple(pixels[80, 160]) == (214, 40, 40)
    black = (pixels == 0).all(axis=2)
    assert black.any() == bool(word)
    # All of the word lies inside the picture, below the disc.
    assert not black[:150].any() and not black[:, :10].any() and not black[:, -10:].any()
