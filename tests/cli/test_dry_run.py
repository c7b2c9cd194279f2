"""`editloupe judge --dry-run`: what a run would do and cost, with nobody asked and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.judge import first_message
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.conftest import Cli, Edits, final

GPT = "openai/gpt-4.1?env=none"
# 320×240 px is one tile: 85 + 170. A crop of 768×768 px is four.
IMAGE, CROP = 255, 765


def dry(editloupe: Cli, *words: str | Path) -> dict[str, Any]:
    code, said, told = editloupe("judge", *words, "--dry-run", "--format", "json")
    assert code == 0, told
    found: dict[str, Any] = json.loads(said)
    return found


def everything(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_calls_images_tokens_and_cost_have_two_ends_worked_by_hand(
    editloupe: Cli, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        message = first_message(*args, **kwargs)
        asked.append(len(message.text) // 4)
        return message

    monkeypatch.setattr("editloupe.runs.estimate.first_message", noted)
    prices = tmp_path / "prices.toml"
    prices.write_text('[models."gpt-4.1"]\ninput = 2\noutput = 8\n')
    before = everything(tmp_path)
    words = (edits(2), "--backend", GPT, "--criteria", "if", "--max-turns", "2", "--set", f"prices={prices}")
    before |= everything(tmp_path)
    found = dry(editloupe, *words)
    assert everything(tmp_path) == before, "nothing is written"
    text = sum(asked)
    assert (found["samples"], found["tasks"], found["to_ask"], found["reused"]) == (2, 2, 2, 0)
    # Two tasks, a call each, two pictures each.
    least = found["least"]
    assert (least["calls"], least["input_tokens"], least["output_tokens"]) == (2, text + 4 * IMAGE, 2 * 300)
    assert least["cost_usd"] == pytest.approx((2 * (text + 4 * IMAGE) + 8 * 600) / 1e6)
    # Two turns, two reminders, a last word: five calls a task, with 0, 1, 2, 2, 2 crops in view, and 0 to 4 replies.
    most = found["most"]
    assert (most["calls"], most["output_tokens"]) == (10, 10 * 300)
    assert most["input_tokens"] == 5 * text + 2 * (10 * 300 + 7 * 250) + 2 * (5 * 2 * IMAGE + 7 * CROP)
    assert most["cost_usd"] == pytest.approx((2 * most["input_tokens"] + 8 * 3000) / 1e6)


def test_the_most_calls_of_a_task(editloupe: Cli, edits: Edits):
    folder = edits(1)
    for words, calls in (
        # One look, and two reminders.
        (("--mode", "plain"), 3),
        (("--max-turns", "0", "--set", "remind_answers=false"), 1),
        # A backend that can be held to labels has a last word even there.
        (("--max-turns", "6"), 9),
    ):
        found = dry(editloupe, folder, "--criteria", "if", "--backend", GPT, *words)
        assert (found["least"]["calls"], found["most"]["calls"]) == (1, calls), words


def test_what_stands_is_reused_and_what_failed_is_asked_again(editloupe: Cli, edits: Edits, tmp_path: Path):
    folder, run = edits(3), tmp_path / "run"
    with OpenAIServer(says(final("Wrong Action")), fails(400, "no"), model="m") as server:
        words = (folder, "--backend", f"openai/m?base_url={server.url}", "--criteria", "if", "--out", run)
        assert editloupe("judge", *words, "--concurrency", "1")[0] == 3
        before = everything(run)
        found = dry(editloupe, *words)
        code, said, _ = editloupe("judge", *words, "--dry-run")
        assert len(server.seen) == 3
    assert (found["tasks"], found["reused"], found["to_ask"], found["least"]["calls"]) == (3, 1, 2, 2)
    assert (code, everything(run)) == (0, before)
    assert f"3 samples, 3 tasks: 1 are in {run}, 2 to ask, 2 of them continue." in said
