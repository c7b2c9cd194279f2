"""Tokens and their probabilities: asked for in each protocol's own way, kept once, left off where the model has none."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import Any

import pytest

from editloupe.answers import LabelledBoxes, confidences_in
from editloupe.backends import google, openai, vllm
from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Message, Reply, Request, Token
from editloupe.data.images import ImageStore
from tests.backends import gemini_server
from tests.backends.gemini_server import GeminiServer
from tests.backends.loopback import Act, sends
from tests.backends.openai_server import OpenAIServer, completion, says

needs_google = pytest.mark.skipif(importlib.util.find_spec("google.genai") is None, reason="the extra google")

ONCE = RetryPolicy(attempts=1)
ASKED = Request(messages=(Message.of_text("user", "What differs?"),), top_logprobs=5)
NORM = math.log(math.e**2 + math.e + 1)
THREE = {"ADD": 2 - NORM, "EDIT": 1 - NORM, "REMOVE": -NORM}
"""The logarithms of the probabilities of logits 2, 1 and 0."""
PIECES = ("ADD", ": cup, ", "[0, 0, 1, 1]")
SPEC = LabelledBoxes(
    labels=tuple(THREE),
    list_key="differences",
    label_key="op",
    name_key="object",
    image="Edited Image",
    form="lines",
    wants_logprobs=True,
)


def opened(module: Any, uri: str) -> LMM:
    backend: LMM = module.open_backend(parse_uri(uri), policy=ONCE)
    return backend


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


def asked_of(module: Any, name: str, *script: Act) -> tuple[Reply, OpenAIServer]:
    with OpenAIServer(*script, vllm=name == "vllm") as server:
        reply = opened(module, f"{name}/tiny-vl?base_url={server.url}").complete(ASKED, ImageStore())
    assert server.complaints == []
    return reply, server


@pytest.mark.parametrize(("module", "name"), [(openai, "openai"), (vllm, "vllm")])
def test_chat_completions_give_them_and_the_payload_does_not_repeat_them(module: Any, name: str) -> None:
    reply, server = asked_of(module, name, with_tokens("".join(PIECES), tokens_of(PIECES)))
    assert (server.seen[0]["logprobs"], server.seen[0]["top_logprobs"]) == (True, 5)
    assert (reply.sent["logprobs"], reply.sent["top_logprobs"], "dropped" in reply.sent) == (True, 5, False)
    assert [token.text for token in reply.tokens] == list(PIECES)
    assert reply.tokens[0] == Token(text="ADD", logprob=THREE["ADD"], top=tuple(THREE.items()))
    assert "logprobs" not in json.dumps(reply.raw)
    assert Reply.from_json(json.loads(json.dumps(reply.to_json()))) == reply
    # Logits 2, 1 and 0 of ADD, EDIT and REMOVE.
    assert confidences_in(SPEC, reply.text, reply.tokens) == [pytest.approx(0.6652, abs=5e-5)]


def test_a_server_that_takes_them_and_does_nothing_is_said_to() -> None:
    reply, server = asked_of(openai, "openai", says("ok"))
    assert server.seen[0]["logprobs"] is True
    assert (reply.tokens, reply.sent["dropped"]) == ((), ["top_logprobs"])


def test_a_sign_that_is_parted_among_tokens_is_whole_again() -> None:
    parts = [
        {"token": "\\xe2", "logprob": -1, "bytes": [0xE2]},
        {"token": "\\x82\\xac", "logprob": -1, "bytes": [0x82, 0xAC]},
    ]
    reply, _ = asked_of(openai, "openai", with_tokens("€ADD", [*parts, told("ADD", -1), {"token": "!", "logprob": -2}]))
    assert [token.text for token in reply.tokens] == ["", "€", "ADD", "!"]


def test_tokens_that_are_not_wholly_told_are_none() -> None:
    for broken in ({"token": "a"}, {"logprob": -1}, {"token": "a", "logprob": "-inf"}, None, 3):
        reply, _ = asked_of(openai, "openai", with_tokens("ab", [told("b", -1), broken]))
        assert (reply.text, reply.tokens) == ("ab", ())


def test_a_key_that_tokens_spell_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-canary-1234")
    tokens = [told("sk-cana", -1), told("ry-1234", -1)]
    with OpenAIServer(with_tokens("sk-canary-1234", tokens), key="sk-canary-1234") as server:
        reply = opened(openai, f"openai/tiny-vl?base_url={server.url}&env=MY_KEY").complete(ASKED, ImageStore())
    assert (reply.text, reply.tokens) == ("***", ())
    assert "ry-1234" not in json.dumps(reply.to_json())


@needs_google
def test_gemini_gives_them_in_its_own_way() -> None:
    top = [{"candidates": [{"token": word, "logProbability": value} for word, value in THREE.items()]}, {}, {}]
    # A probability of 1 has the logarithm 0, which JSON of this API leaves out.
    chosen = [
        {"token": "ADD", "logProbability": THREE["ADD"]},
        {"token": PIECES[1]},
        {"token": PIECES[2], "logProbability": -1},
    ]
    act = gemini_server.says("".join(PIECES), logprobsResult={"topCandidates": top, "chosenCandidates": chosen})
    with GeminiServer(act) as server:
        reply = opened(google, f"google/tiny-gemini?base_url={server.url}").complete(ASKED, ImageStore())
    assert server.complaints == []
    config = server.seen[0]["generationConfig"]
    assert (
        (config["responseLogprobs"], config["logprobs"])
        == (True, 5)
        == (reply.sent["response_logprobs"], reply.sent["logprobs"])
    )
    assert [(token.text, token.logprob) for token in reply.tokens][1:] == [(PIECES[1], 0.0), (PIECES[2], -1)]
    assert "logprobsResult" not in json.dumps(reply.raw)
    assert confidences_in(SPEC, reply.text, reply.tokens) == [pytest.approx(0.6652, abs=5e-5)]


@needs_google
def test_a_gemini_without_them_is_asked_without() -> None:
    refusal = gemini_server.fails(400, "Logprobs is not enabled for models/tiny-gemini", status="INVALID_ARGUMENT")
    with GeminiServer(refusal, gemini_server.says("ok")) as server:
        reply = opened(google, f"google/tiny-gemini?base_url={server.url}").complete(ASKED, ImageStore())
    assert ["responseLogprobs" in body["generationConfig"] for body in server.seen] == [True, False]
    assert (reply.text, reply.sent["dropped"]) == ("ok", ["top_logprobs"])
