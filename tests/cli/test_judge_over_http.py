"""`editloupe judge --backend openai/…` as a user types it, against a strict server of our own on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from editloupe.backends import openai as adapter
from editloupe.backends.retry import RetryPolicy
from editloupe.findings import Finding
from editloupe.runs.store import RunStore
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says, serving
from tests.conftest import LOOK, final

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]
Serve = Callable[..., OpenAIServer]

CANARY = "sk-canary-5ea5e11e5-7f3d"
ATTEMPTS = 3


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed call is tried again at once: the plug-in's factory is opened with a policy of our own."""
    opened = partial(adapter.open_backend, policy=RetryPolicy(attempts=ATTEMPTS, sleep=lambda seconds: None))
    monkeypatch.setattr(adapter, "open_backend", opened)


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as start:
        yield start


def looks_then_answers(handler: Handler, body: Body) -> None:
    """Calls a tool, reads the observation, answers. By the conversation, not by turns: tasks run side by side."""
    asked_before = any(message["role"] == "assistant" for message in body["messages"])
    says(final("Wrong Action") if asked_before else LOOK)(handler, body)


def answers_either_criterion(handler: Handler, body: Body) -> None:
    """Answers at once with a label that the question offers."""
    question = body["messages"][0]["content"][-1]["text"]
    says(final("Wrong Action" if "Wrong Action" in question else "Single Anomaly"))(handler, body)


def uri(server: OpenAIServer, query: str = "&env=none") -> str:
    return f"openai/m?base_url={server.url}{query}"


def findings(run: Path) -> list[Finding]:
    return RunStore.read(run).current()


def test_a_server_that_fails_amid_a_dialogue_costs_no_call_twice(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    server, run = serve(says(LOOK), fails(500, "restarting")), tmp_path / "run"
    code, _, _ = editloupe("judge", edits(1), "--backend", uri(server), "--criteria", "if", "--out", run)
    assert (code, len(server.seen)) == (1, 1 + ATTEMPTS)
    server.script[:] = [looks_then_answers]
    code, said, _ = editloupe("judge", run, "--retry", "--trust")
    assert code == 0
    assert "1 of 1 findings judged" in said
    assert [(f.status, f.label) for f in findings(run)] == [("ok", "Wrong Action")]
    assert len(server.seen) == 1 + ATTEMPTS + 1, "the first answer was recorded and is not asked for again"


@pytest.mark.parametrize("query", [f"&api_key={CANARY}", f"&env=none&token={CANARY}"])
def test_a_key_in_the_uri_is_refused_before_anything_is_sent_or_written(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path, query: str
):
    server, run = serve(looks_then_answers), tmp_path / "run"
    code, said, complained = editloupe("judge", edits(1), "--backend", uri(server, query), "--out", run)
    assert code == 2
    assert "keys come from the environment, never from a URI" in complained
    assert CANARY not in said + complained
    assert (server.seen, run.exists()) == ([], False)


def test_a_run_that_has_used_its_budget_stops_with_5_and_goes_on(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    server, folder, out = serve(answers_either_criterion), edits(4), tmp_path / "run"
    words = ("judge", folder, "--backend", uri(server), "--criteria", "if", "--out", out, "--concurrency", "1")
    # The server counts 11 tokens in and 3 out an answer: 28 are used up by two.
    code, said, _ = editloupe(*words, "--set", "run_tokens=28")
    assert code == 5
    assert "Stopped by the budget (tokens: 28 of 28 used). The same command continues." in said
    assert "Spent: 2 calls, 22 input and 6 output tokens (no price is known)." in said
    prices = tmp_path / "prices.toml"
    prices.write_text("[models.m]\ninput = 1000\noutput = 1000\n")
    code, said, _ = editloupe(*words, "--set", f"prices={prices}")
    assert code == 0
    # 28 tokens at 0.001 $ each.
    assert "about 0.028 USD" in said
    code, _, told = editloupe(*words, "--max-cost", "1")
    assert code == 2
    assert "no price is known for openai/m" in told
    assert "--set prices=FILE" in told
