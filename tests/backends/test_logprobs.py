"""Tokens with their probabilities, and answers by a schema: in each protocol's own way, left off where there are none."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.answers import OneOf
from editloupe.chat import Message, Reply, Request, Token, ToolSpec
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.runs.store import RunStore
from tests.backends import gemini_server
from tests.backends.conftest import CANARY, Bench
from tests.backends.loopback import Act, sends
from tests.backends.openai_server import OpenAIServer, completion, fails, says

needs_google = pytest.mark.skipif(importlib.util.find_spec("google.genai") is None, reason="the extra google")

ASKED = Request(messages=(Message.of_text("user", "What differs?"),), top_logprobs=5)
SCHEMA = OneOf(options=("A", "B")).json_schema()
HELD = Request(messages=ASKED.messages, answer_schema=SCHEMA)
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object"})
NORM = math.log(math.e**2 + math.e + 1)
THREE = {"ADD": 2 - NORM, "EDIT": 1 - NORM, "REMOVE": -NORM}
"""The logarithms of the probabilities of logits 2, 1 and 0."""
PIECES = ("ADD", ": cup, ", "[0, 0, 1, 1]")
SPEC = LabeledBoxes(
    labels=tuple(THREE), list_key="differences", label_key="op", name_key="object", image="Edited Image", form="lines",
    wants_logprobs=True,
)  # fmt: skip


def told(token: str, logprob: float, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode()), **more}


def tokens_of(pieces: tuple[str, ...]) -> list[dict[str, Any]]:
    top = [told(word, logprob) for word, logprob in THREE.items()]
    rest = [told(piece, -0.5, top_logprobs=[told(piece, -0.5)]) for piece in pieces[1:]]
    return [told(pieces[0], THREE.get(pieces[0], -1.0), top_logprobs=top), *rest]


def with_tokens(text: str, tokens: Any) -> Act:
    body = completion(text)
    body["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
    return sends(json.dumps(body).encode())


@pytest.mark.parametrize("provider", ["openai", "vllm"])
def test_chat_completions_give_them_and_the_payload_does_not_repeat_them(provider: str, bench: Bench) -> None:
    reply = bench.ask(provider, with_tokens("".join(PIECES), tokens_of(PIECES)), request=ASKED)
    assert (bench.server.seen[0]["logprobs"], bench.server.seen[0]["top_logprobs"]) == (True, 5)
    assert (reply.sent["logprobs"], reply.sent["top_logprobs"], "dropped" in reply.sent) == (True, 5, False)
    assert [token.text for token in reply.tokens] == list(PIECES)
    assert reply.tokens[0] == Token(text="ADD", logprob=THREE["ADD"], top=tuple(THREE.items()))
    assert "logprobs" not in json.dumps(reply.raw)
    assert Reply.from_json(json.loads(json.dumps(reply.to_json()))) == reply
    held = bench.ask(provider, says('{"answer": "A"}'), request=HELD)
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    assert bench.server.seen[0]["response_format"] == form == held.sent["response_format"]
    # Logits 2, 1 and 0 of ADD, EDIT and REMOVE.
    assert SPEC.shares(reply.text, reply.tokens) == [pytest.approx(0.6652, abs=5e-5)]


def test_tokens_are_whole_or_none_and_spell_no_key(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # A sign that is parted among tokens is whole again.
    parts = ((r"\xe2", [0xE2]), (r"\x82\xac", [0x82, 0xAC]))
    told_in_parts = [{"token": token, "logprob": -1, "bytes": held} for token, held in parts]
    act = with_tokens("€ADD", [*told_in_parts, told("ADD", -1), {"token": "!", "logprob": -2}])
    assert [token.text for token in bench.ask("openai", act, request=ASKED).tokens] == ["", "€", "ADD", "!"]
    for broken in ({"token": "a"}, {"logprob": -1}, {"token": "a", "logprob": "-inf"}, None, 3):
        reply = bench.ask("openai", with_tokens("ab", [told("b", -1), broken]), request=ASKED)
        assert (reply.text, reply.tokens) == ("ab", ()), broken
    # A server that takes the parameter and does nothing.
    reply = bench.ask("openai", says("ok"), request=ASKED)
    assert (bench.server.seen[0]["logprobs"], reply.tokens, reply.sent["dropped"]) == (True, (), ["top_logprobs"])
    monkeypatch.setenv("MY_KEY", CANARY)
    tokens = [told(CANARY[:7], -1), told(CANARY[7:], -1)]
    reply = bench.ask("openai", with_tokens(CANARY, tokens), request=ASKED, key=CANARY, query="&env=MY_KEY")
    assert (reply.text, reply.tokens) == ("***", ())
    assert CANARY[7:] not in json.dumps(reply.to_json())


@needs_google
def test_gemini_gives_them_in_its_own_way_and_is_asked_without_where_it_has_none(bench: Bench) -> None:
    top = [{"candidates": [{"token": word, "logProbability": value} for word, value in THREE.items()]}, {}, {}]
    # A probability of 1 has the logarithm 0, which JSON of this API leaves out.
    chosen = [{"token": "ADD", "logProbability": THREE["ADD"]}, {"token": PIECES[1]}]
    chosen += [{"token": PIECES[2], "logProbability": -1}]
    act = gemini_server.says("".join(PIECES), logprobsResult={"topCandidates": top, "chosenCandidates": chosen})
    reply = bench.ask("google", act, request=ASKED)
    config = bench.server.seen[0]["generationConfig"]
    assert (config["responseLogprobs"], config["logprobs"]) == (True, 5)
    assert (reply.sent["response_logprobs"], reply.sent["logprobs"]) == (True, 5)
    assert [(token.text, token.logprob) for token in reply.tokens][1:] == [(PIECES[1], 0.0), (PIECES[2], -1)]
    assert "logprobsResult" not in json.dumps(reply.raw)
    assert SPEC.shares(reply.text, reply.tokens) == [pytest.approx(0.6652, abs=5e-5)]


def test_a_schema_that_the_endpoint_refuses_is_left_off_for_good_and_the_run_says_so(
    editloupe: Callable[..., tuple[int, str, str]], edits: Callable[..., Path]
) -> None:
    def act(handler: Any, body: Any) -> None:
        if "response_format" in body:
            fails(400, "le champ response_format n'est pas pris en charge ici")(handler, body)
        else:
            says('{"reason": "I see it.", "answer": "Wrong Action"}')(handler, body)

    with OpenAIServer(act) as server:
        words = ("--backend", f"openai/tiny-vl?base_url={server.url}", "--mode", "plain", "--criteria", "if")
        code, said, told = editloupe("judge", edits(3), *words, "--out", "run")
    assert (code, len(server.seen)) == (0, 4), told
    assert "The endpoint refused answer_schema, which it was then asked without" in " ".join((said + told).split())
    assert all(finding.counts == {} for finding in RunStore.read(Path("run")).current())
