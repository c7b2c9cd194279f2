"""The google backend, against a strict server of our own on loopback."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from editloupe.chat import ImagePart, MalformedCall, Message, Reply, Request, Sampling, TextPart, ToolCall, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, MissingExtra, Rejected
from editloupe.values import canonical_json
from tests.backends.conftest import CANARY, HELLO, STORE, Bench, image
from tests.backends.gemini_server import call, decoded, fails, pictures, says

pytest.importorskip("google.genai", reason="the extra 'google' is not installed")

ZOOM = ToolSpec(
    name="zoom_in", description="Zoom.", parameters={"type": "object", "properties": {"a_b": {"type": "string"}}}
)


def test_a_conversation_has_the_shape_of_the_protocol_with_pictures_beside_the_tools_answers(bench: Bench) -> None:
    store = ImageStore()
    png, jpeg = image(store), image(store, value=90, format="JPEG")
    calls = tuple(ToolCall(id=f"c{i}", name="zoom_in", arguments={"a_b": str(i)}) for i in (1, 2))
    crop = (TextPart(text="seen"), TextPart(text="Crop 1:"), ImagePart(image=jpeg, alias="Crop 1"))
    talk = (
        Message.of_text("system", "Look."),
        Message(role="user", parts=(TextPart(text="A:"), ImagePart(image=png, alias="A"), TextPart(text="Is it red?"))),
        Message(role="assistant", parts=(), tool_calls=calls),
        Message(role="tool", parts=crop, tool_call_id="c1"),
        Message(role="tool", parts=(TextPart(text="nothing"),), tool_call_id="c2"),
        Message.of_text("user", "Go on."),
    )
    backend = bench.backend("google", says("ok"))
    reply = backend.complete(Request(messages=talk, tools=(ZOOM,)), store)
    body = bench.server.seen[0]
    assert [p["text"] for p in body["systemInstruction"]["parts"]] == ["Look."]
    user, asked, answered = body["contents"]
    assert [p.get("text") for p in user["parts"]] == ["A:", None, "Is it red?"]
    assert [p["functionCall"] for p in asked["parts"]] == [{"id": c.id, "name": c.name, "args": c.arguments} for c in calls]
    one, two, label, picture, closing = answered["parts"]
    told = "seen\nPictures behind the tools' results: Crop 1."
    assert one["functionResponse"] == {"id": "c1", "name": "zoom_in", "response": {"output": told}}
    assert two["functionResponse"] == {"id": "c2", "name": "zoom_in", "response": {"output": "nothing"}}
    assert (label["text"], closing["text"], picture["inlineData"]["mimeType"]) == ("Crop 1:", "Go on.", "image/jpeg")
    assert pictures(body) == [store.data(png), store.data(jpeg)]
    assert reply.sent["tool_images"] == "beside the function responses, in the same content"
    # Tools can be withdrawn without being unnamed.
    reply = backend.complete(Request(messages=talk, tools=(ZOOM,), calls_allowed=False), store)
    declared = {"name": "zoom_in", "description": "Zoom.", "parametersJsonSchema": ZOOM.parameters}
    assert [sent["tools"] for sent in bench.server.seen] == [[{"functionDeclarations": [declared]}]] * 2
    modes = [sent["toolConfig"]["functionCallingConfig"]["mode"] for sent in bench.server.seen]
    assert (modes, reply.sent["function_calling_mode"], reply.sent["tools"]) == (["AUTO", "NONE"], "NONE", [ZOOM.to_json()])


def test_refused_parameters_are_dropped_once_remembered_and_said(bench: Bench) -> None:
    refusals = [fails(400, f"{name} is not supported by this model.") for name in ("temperature", "seed")]
    backend = bench.backend("google", *refusals, says("fine without"))
    request = replace(HELLO, sampling=Sampling(seed=7, max_tokens=None))
    first, second = backend.complete(request, STORE), backend.complete(request, STORE)
    assert first.sent == second.sent == {"model": "tiny-gemini", "dropped": ["temperature", "seed"], "attempts": 1}
    sent = [set(body.get("generationConfig", ())) & {"temperature", "seed"} for body in bench.server.seen]
    assert sent == [{"temperature", "seed"}, {"seed"}, set(), set()]
    full = Sampling(temperature=None, top_p=0.5, seed=None, max_tokens=99)
    reply = backend.complete(replace(HELLO, sampling=full), STORE)
    assert bench.server.seen[-1]["generationConfig"] == {"topP": 0.5, "maxOutputTokens": 99}
    assert reply.sent == {"model": "tiny-gemini", "top_p": 0.5, "max_output_tokens": 99, "attempts": 1}


def test_thought_signatures_come_back_byte_for_byte_in_the_parts_that_they_came_in(bench: Bench) -> None:
    signatures = [base64.b64encode(bytes(range(i, i + 200))).decode() for i in (0, 40, 56)]
    said = (
        {"text": "hm", "thought": True},
        {"text": "I look ", "thoughtSignature": signatures[0]},
        {"text": "twice."},
        call("zoom_in", signature=signatures[1], a_b="left"),
        call("zoom_in", a_b="right"),
        {"text": "", "thoughtSignature": signatures[2]},
    )
    backend = bench.backend("google", says(*said), says("ok"))
    reply = backend.complete(Request(messages=HELLO.messages, tools=(ZOOM,)), STORE)
    assert (reply.text, reply.reasoning, len(reply.tool_calls)) == ("I look twice.", "hm", 2)
    # As a trace keeps it.
    reply = Reply.from_json(json.loads(canonical_json(reply.to_json())))
    turn = Message(role="assistant", parts=(TextPart(text=reply.text),), tool_calls=reply.tool_calls, carry=reply.carry)
    answers = [Message(role="tool", parts=(TextPart(text="."),), tool_call_id=c.id) for c in reply.tool_calls]
    backend.complete(Request(messages=(*HELLO.messages, turn, *answers), tools=(ZOOM,)), STORE)
    sent = bench.server.seen[1]["contents"][1]["parts"]
    assert [p.get("text") for p in sent] == ["I look ", "twice.", None, None, ""]
    assert [p["functionCall"]["args"] for p in sent[2:4]] == [{"a_b": "left"}, {"a_b": "right"}]
    back = [decoded(p["thoughtSignature"]) if "thoughtSignature" in p else None for p in sent]
    assert back == [decoded(signatures[0]), None, decoded(signatures[1]), None, decoded(signatures[2])]


def test_calls_usage_and_the_model_are_read_and_broken_calls_are_kept_apart(bench: Bench) -> None:
    counts = {"promptTokenCount": 600, "candidatesTokenCount": 40, "thoughtsTokenCount": 25, "cachedContentTokenCount": 512}
    details = [{"modality": "TEXT", "tokenCount": 84}, {"modality": "IMAGE", "tokenCount": 516}]
    parts = (
        call("zoom_in", id="x7", a_b="left"),
        {"functionCall": {"name": "zoom_in"}},
        {"functionCall": {"args": {}}},
        {"functionCall": {"name": "zoom_in", "args": [1]}},
    )
    reply = bench.ask("google", says(*parts, usage={**counts, "promptTokensDetails": details}))
    assert reply.usage == Usage(
        input_tokens=600, output_tokens=65, image_tokens=516, cached_tokens=512, reasoning_tokens=25
    )
    assert (reply.finish, reply.model) == ("tools", "tiny-gemini-002")
    assert reply.tool_calls == (
        ToolCall(id="x7", name="zoom_in", arguments={"a_b": "left"}),
        ToolCall(id="call_2", name="zoom_in", arguments={}),
    )
    assert reply.malformed_calls == (
        MalformedCall(raw='{"args": {}}', error="a tool call needs a name"),
        MalformedCall(raw="[1]", error="the arguments are not a JSON object"),
    )
    assert Reply.from_json(json.loads(canonical_json(reply.to_json()))) == reply


def test_the_key_comes_from_the_environment_and_nothing_else_there_turns_the_sdk_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What would turn the SDK to another service, or send the key to a proxy.
    another = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p", "HTTP_PROXY": "http://127.0.0.1:1"}
    for name, value in {"GEMINI_API_KEY": CANARY + "\n", **another}.items():
        monkeypatch.setenv(name, value)
    reply = bench.ask("google", says(f"your key is {CANARY}", usage={"promptTokenCount": 1, "note": [CANARY]}), key=CANARY)
    assert (reply.text, CANARY in repr(reply)) == ("your key is ***", False)
    bench.ask("google", says("ok"), query="&env=none")
    assert bench.server.headers[0]["x-goog-api-key"] == "none"
    monkeypatch.setenv("MY_VARIABLE", CANARY)
    with pytest.raises(Rejected, match=r"not valid: \*\*\*.*check the key in environment variable MY_VARIABLE"):
        bench.ask("google", says("ok"), key="another", query="&env=MY_VARIABLE")


def test_the_uri_says_where_the_model_answers_and_what_cannot_work_is_refused_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri, told in (
        ("google/gemini-2.5-pro", "set environment variable GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("google/m?base_url=https://example.org", "needs a key for https://example.org"),
        ("google/a/../b?base_url=http://127.0.0.1:1", "cannot be a model's name"),
        ("google/m?temprature=1", "unknown parameter 'temprature'; known: base_url, boxes, env"),
        ("google/m?base_url=127.0.0.1:8000", "expected http://HOST:PORT or https://HOST"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            bench.open(uri)
        assert told in str(caught.value)
    monkeypatch.setenv("GOOGLE_API_KEY", CANARY)
    backend = bench.open("google/gemini-2.5-pro?boxes=thousandths_yx&timeout_s=9&env=GOOGLE_API_KEY")
    assert backend.uri == "google/gemini-2.5-pro?boxes=thousandths_yx" == bench.open(backend.uri).uri
    assert (backend.endpoint, backend.version) == ("https://generativelanguage.googleapis.com", "")
    assert (backend.traits.boxes, backend.traits.native_tools) == ("thousandths_yx", True)
    # What is the default changes no identity.
    assert bench.open("google/gemini-2.5-pro?boxes=thousandths").uri == "google/gemini-2.5-pro"
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/")
    assert bench.open("google:m").uri == "google/m?base_url=http://127.0.0.1:9"
    code = "import sys, editloupe.backends.google; sys.exit('google.genai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'editloupe\[google\]'"):
        bench.open("google/m?base_url=http://127.0.0.1:1")
