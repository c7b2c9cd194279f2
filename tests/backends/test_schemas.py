"""Answers that are held to a JSON Schema: sent in each protocol's own way, or left off and said to be."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends import google, openai, vllm
from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Message, Request, ToolSpec
from editloupe.data.images import ImageStore
from editloupe.runs.store import RunStore
from tests.backends import gemini_server, openai_server
from tests.backends.gemini_server import GeminiServer
from tests.backends.openai_server import OpenAIServer

needs_google = pytest.mark.skipif(importlib.util.find_spec("google.genai") is None, reason="the extra google")

ONCE = RetryPolicy(attempts=1)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"objects": {"type": "array", "items": {"type": "string"}}, "max_count": {"type": "integer"}},
    "required": ["objects", "max_count"],
    "additionalProperties": False,
}
ANSWER = '{"objects": ["mug"], "max_count": 2}'
ASKED = Request(messages=(Message.of_text("user", "Which objects?"),), answer_schema=SCHEMA)
TOOL = ToolSpec(name="look", description="Look.", parameters={"type": "object"})


def opened(module: Any, uri: str) -> LMM:
    backend: LMM = module.open_backend(parse_uri(uri), policy=ONCE)
    return backend


@pytest.mark.parametrize(("module", "name"), [(openai, "openai"), (vllm, "vllm")])
def test_chat_completions_send_it_as_a_strict_response_format(module: Any, name: str) -> None:
    with OpenAIServer(openai_server.says(ANSWER), vllm=name == "vllm") as server:
        reply = opened(module, f"{name}/tiny-vl?base_url={server.url}").complete(ASKED, ImageStore())
    assert server.complaints == []
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    assert server.seen[0]["response_format"] == form == reply.sent["response_format"]
    assert reply.text == ANSWER


@needs_google
def test_gemini_sends_it_as_a_json_schema_and_drops_it_where_the_model_refuses_it() -> None:
    def act(handler: Any, body: Any) -> None:
        if body.get("tools") and "responseJsonSchema" in body["generationConfig"]:
            told = "Function calling with a response mime type: 'application/json' is unsupported"
            gemini_server.fails(400, told, status="INVALID_ARGUMENT")(handler, body)
        else:
            gemini_server.says(ANSWER)(handler, body)

    with GeminiServer(act) as server:
        backend = opened(google, f"google/tiny-gemini?base_url={server.url}")
        reply = backend.complete(ASKED, ImageStore())
        assert server.seen[0]["generationConfig"]["responseJsonSchema"] == SCHEMA == reply.sent["response_json_schema"]
        beside = Request(messages=ASKED.messages, tools=(TOOL,), answer_schema=SCHEMA)
        reply = backend.complete(beside, ImageStore())
    assert server.complaints == []
    assert "responseJsonSchema" not in server.seen[2]["generationConfig"]
    assert reply.sent["dropped"] == ["answer_schema"]


def test_a_schema_that_the_endpoint_refuses_is_left_off_for_good_and_the_run_says_so(
    editloupe: Callable[..., tuple[int, str, str]], edits: Callable[..., Path]
) -> None:
    def act(handler: Any, body: Any) -> None:
        if "response_format" in body:
            openai_server.fails(400, "le champ response_format n'est pas pris en charge ici")(handler, body)
        else:
            openai_server.says('{"reason": "I see it.", "answer": "Wrong Action"}')(handler, body)

    with OpenAIServer(act) as server:
        words = ("--backend", f"openai/tiny-vl?base_url={server.url}", "--mode", "plain", "--criteria", "if")
        code, said, told = editloupe("judge", edits(3), *words, "--out", "run")
    assert (code, len(server.seen)) == (0, 4), told
    assert "The endpoint refused answer_schema, which it was then asked without" in " ".join((said + told).split())
    assert all(finding.counts == {} for finding in RunStore.read(Path("run")).current())
