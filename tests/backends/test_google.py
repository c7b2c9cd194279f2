"""The google backend, against a strict server of our own on loopback."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from editloupe.backends.base import parse_uri
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import ImagePart, MalformedCall, Message, Reply, Request, Sampling, TextPart, ToolCall, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ContextTooLong, MissingExtra, RateLimited, Rejected, Unavailable
from editloupe.values import ImageRef, canonical_json

pytest.importorskip("google.genai", reason="the extra 'google' is not installed")

from editloupe.backends import transport
from editloupe.backends.google import GoogleBackend, open_backend
from tests.backends.gemini_server import (
    GeminiServer,
    answer,
    blocks,
    call,
    declines,
    decoded,
    fails,
    pictures,
    quota,
    retry_info,
    says,
)
from tests.backends.loopback import Act, hangs, resets_mid_body, sends, trickles

CANARY = "AIza-canary-5ea5e11e5-7f3d"
ONCE = RetryPolicy(attempts=1)
HELLO = Request(messages=(Message.of_text("user", "hello"),))
STORE = ImageStore()
ZOOM = ToolSpec(
    name="zoom_in", description="Zoom.", parameters={"type": "object", "properties": {"a_b": {"type": "string"}}}
)


class Bench:
    """Servers and backends of one test, closed in the right order; the waits between attempts are noted, not slept."""

    def __init__(self) -> None:
        self.servers: list[GeminiServer] = []
        self.backends: list[GoogleBackend] = []
        self.slept: list[float] = []

    def serve(self, *script: Act, **options: Any) -> GeminiServer:
        server = GeminiServer(*script, **options).__enter__()
        self.servers.append(server)
        return server

    def open(self, uri: str, *, policy: RetryPolicy = ONCE) -> GoogleBackend:
        backend = open_backend(parse_uri(uri), policy=replace(policy, sleep=self.slept.append))
        self.backends.append(backend)
        return backend

    def backend(self, *script: Act, policy: RetryPolicy = ONCE, query: str = "") -> GoogleBackend:
        """A backend on a new server with this script."""
        return self.open(f"google/tiny-gemini?base_url={self.serve(*script).url}{query}", policy=policy)

    @property
    def server(self) -> GeminiServer:
        return self.servers[-1]

    def close(self) -> None:
        for backend in self.backends:
            backend.close()
        for server in self.servers:
            server.__exit__(None, None, None)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    bench = Bench()
    yield bench
    bench.close()
    assert [c for s in bench.servers for c in s.complaints] == []


def image(store: ImageStore, *, value: int = 200, format: str = "PNG") -> ImageRef:
    file = io.BytesIO()
    Image.new("RGB", (24, 16), (value, 40, 40)).save(file, format=format)
    return store.add_bytes(file.getvalue())


# What is sent


def test_text_and_images_arrive_in_the_order_of_the_parts_with_the_images_own_bytes(bench: Bench) -> None:
    store = ImageStore()
    png, jpeg = image(store), image(store, value=90, format="JPEG")
    parts = (
        TextPart(text="Original Image:"), ImagePart(image=png, alias="Original Image"),
        TextPart(text="Edited Image:"), ImagePart(image=jpeg, alias="Edited Image"), TextPart(text="Which is redder?"),
    )  # fmt: skip
    backend = bench.backend(says("the first"))
    backend.complete(Request(messages=(Message.of_text("system", "Look."), Message(role="user", parts=parts))), store)
    body = bench.server.seen[0]
    assert [p["text"] for p in body["systemInstruction"]["parts"]] == ["Look."]
    [user] = body["contents"]
    assert user["role"] == "user"
    assert [p.get("text") for p in user["parts"]] == ["Original Image:", None, "Edited Image:", None, "Which is redder?"]
    assert pictures(body) == [store.data(png), store.data(jpeg)]
    assert user["parts"][3]["inlineData"]["mimeType"] == "image/jpeg"


def test_refused_parameters_are_dropped_once_remembered_and_said(bench: Bench) -> None:
    backend = bench.backend(declines("temperature", "seed"))
    request = Request(messages=HELLO.messages, sampling=Sampling(seed=7, max_tokens=None))
    first, second = backend.complete(request, STORE), backend.complete(request, STORE)
    assert first.sent == second.sent == {"model": "tiny-gemini", "dropped": ["temperature", "seed"], "attempts": 1}
    assert len(bench.server.seen) == 4
    full = Sampling(temperature=None, top_p=0.5, seed=None, max_tokens=99)
    reply = backend.complete(Request(messages=HELLO.messages, sampling=full), STORE)
    assert bench.server.seen[-1]["generationConfig"] == {"topP": 0.5, "maxOutputTokens": 99}
    assert reply.sent == {"model": "tiny-gemini", "top_p": 0.5, "max_output_tokens": 99, "attempts": 1}


def test_tools_are_declared_with_their_schema_and_can_be_withdrawn_without_being_unnamed(bench: Bench) -> None:
    backend = bench.backend(says("ok"))
    backend.complete(Request(messages=HELLO.messages, tools=(ZOOM,)), STORE)
    reply = backend.complete(Request(messages=HELLO.messages, tools=(ZOOM,), calls_allowed=False), STORE)
    first, second = bench.server.seen
    [declared] = first["tools"][0]["functionDeclarations"]
    assert declared == {"name": "zoom_in", "description": "Zoom.", "parametersJsonSchema": ZOOM.parameters}
    assert first["tools"] == second["tools"]
    assert [s["toolConfig"]["functionCallingConfig"]["mode"] for s in (first, second)] == ["AUTO", "NONE"]
    assert (reply.sent["function_calling_mode"], reply.sent["tools"]) == ("NONE", [ZOOM.to_json()])


def test_calls_and_their_answers_have_the_shape_of_the_protocol_with_pictures_beside_the_answers(bench: Bench) -> None:
    store = ImageStore()
    ref = image(store)
    calls = tuple(ToolCall(id=f"c{i}", name="zoom_in", arguments={"a_b": str(i)}) for i in (1, 2))
    crop = (TextPart(text="seen"), TextPart(text="Crop 1:"), ImagePart(image=ref, alias="Crop 1"))
    history = (
        *HELLO.messages,
        Message(role="assistant", parts=(), tool_calls=calls),
        Message(role="tool", parts=crop, tool_call_id="c1"),
        Message(role="tool", parts=(TextPart(text="nothing"),), tool_call_id="c2"),
        Message.of_text("user", "Go on."),
    )
    reply = bench.backend(says("ok")).complete(Request(messages=history, tools=(ZOOM,)), store)
    [_, asked, answered] = bench.server.seen[0]["contents"]
    assert [p["functionCall"] for p in asked["parts"]] == [{"id": c.id, "name": c.name, "args": c.arguments} for c in calls]
    one, two, label, picture, closing = answered["parts"]
    told = "seen\nPictures behind the tools' results: Crop 1."
    assert one["functionResponse"] == {"id": "c1", "name": "zoom_in", "response": {"output": told}}
    assert two["functionResponse"] == {"id": "c2", "name": "zoom_in", "response": {"output": "nothing"}}
    assert (label["text"], closing["text"]) == ("Crop 1:", "Go on.")
    assert decoded(picture["inlineData"]["data"]) == store.data(ref)
    assert reply.sent["tool_images"] == "beside the function responses, in the same content"


# What is answered


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
    backend = bench.backend(says(*said), says("ok"))
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


def test_usage_counts_thoughts_as_output_and_names_images_and_cache(bench: Bench) -> None:
    details = [{"modality": "TEXT", "tokenCount": 84}, {"modality": "IMAGE", "tokenCount": 516}]
    counts = {"promptTokenCount": 600, "candidatesTokenCount": 40, "thoughtsTokenCount": 25, "cachedContentTokenCount": 512}
    usage = {**counts, "promptTokensDetails": details}
    reply = bench.backend(says("ok", usage=usage)).complete(HELLO, STORE)
    assert reply.usage == Usage(
        input_tokens=600, output_tokens=65, image_tokens=516, cached_tokens=512, reasoning_tokens=25
    )
    assert reply.model == "tiny-gemini-002"
    assert Reply.from_json(json.loads(canonical_json(reply.to_json()))) == reply


def test_native_calls_are_read_and_broken_ones_are_kept_apart(bench: Bench) -> None:
    parts = (
        call("zoom_in", id="x7", a_b="left"),
        {"functionCall": {"name": "zoom_in"}},
        {"functionCall": {"args": {}}},
        {"functionCall": {"name": "zoom_in", "args": [1]}},
    )
    reply = bench.backend(says(*parts)).complete(HELLO, STORE)
    assert reply.finish == "tools"
    assert reply.tool_calls == (
        ToolCall(id="x7", name="zoom_in", arguments={"a_b": "left"}),
        ToolCall(id="call_2", name="zoom_in", arguments={}),
    )
    assert reply.malformed_calls == (
        MalformedCall(raw='{"args": {}}', error="a tool call needs a name"),
        MalformedCall(raw="[1]", error="the arguments are not a JSON object"),
    )


def test_uri_and_endpoint_say_where_the_model_answers_and_how_it_writes_boxes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", CANARY)
    backend = bench.open("google/gemini-2.5-pro?boxes=thousandths_yx&timeout_s=9&env=GOOGLE_API_KEY")
    assert backend.uri == "google/gemini-2.5-pro?boxes=thousandths_yx"
    assert bench.open(backend.uri).uri == backend.uri
    assert (backend.endpoint, backend.version) == ("https://generativelanguage.googleapis.com", "")
    assert (backend.traits.boxes, backend.traits.native_tools) == ("thousandths_yx", True)
    # What is the default changes no identity.
    assert bench.open("google/gemini-2.5-pro?boxes=thousandths").uri == "google/gemini-2.5-pro"
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/")
    assert bench.open("google:m").uri == "google/m?base_url=http://127.0.0.1:9"


def test_how_a_reply_ended_is_told(bench: Bench) -> None:
    for said, finish in (
        ("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "filter"), ("PROHIBITED_CONTENT", "filter"), (None, "stop"),
    ):  # fmt: skip
        reply = bench.backend(says("half a", finish=said)).complete(HELLO, STORE)
        assert (reply.finish, reply.text, reply.carry) == (finish, "half a", None)
    for act, text in (
        (says(finish="SAFETY", finishMessage="dangerous"), "the provider cut the reply off (SAFETY): dangerous"),
        (blocks("PROHIBITED_CONTENT"), "the provider blocked the prompt (PROHIBITED_CONTENT)"),
    ):
        reply = bench.backend(act).complete(HELLO, STORE)
        assert (reply.finish, reply.text) == ("filter", text)
    for reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"):
        act = says(finish=reason, finishMessage="print(zoom_in(bbox=[1,")
        reply = bench.backend(act).complete(Request(messages=HELLO.messages, tools=(ZOOM,)), STORE)
        assert (reply.finish, reply.malformed_calls[0].raw) == ("tools", "print(zoom_in(bbox=[1,")


# What fails


def everything(error: BaseException | None) -> str:
    """What could be shown of an error and of all that it was made from."""
    shown = []
    while error is not None:
        shown += [*traceback.format_exception(error), repr(error), str(vars(error)), str(error.args)]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


LIMITS = "The input token count (1054016) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("act", "kind", "says_what"),
    [
        (fails(503, f"overloaded {CANARY}"), Unavailable, r"HTTP 503, overloaded \*\*\*"),
        (fails(429, f"slow {CANARY}", retry_info("17.5s")), RateLimited, "HTTP 429, slow"),
        (fails(429, "used up", quota("GenerateRequestsPerDayPerProject"), retry_info("9s")), Rejected, "check the account"),
        (fails(400, f"bad field {CANARY}", {"reason": CANARY}), Rejected, "HTTP 400, bad field"),
        (fails(403, "not yours"), Rejected, "check the key in environment variable GEMINI_API_KEY"),
        (fails(404, "no such model"), Rejected, "check the model's name"),
        (fails(400, LIMITS), ContextTooLong, "1048576"),
        (fails(302, "elsewhere", headers={"Location": "http://example.org"}), Rejected, "HTTP 302"),
        (sends(b'[{"error": {"message": "listed", "code": 500}}]', status=500), Unavailable, "HTTP 500, listed"),
        (sends(f"<html>{CANARY}</html>".encode(), status=404, content_type="text/html"), Rejected, "without that path"),
        (sends(json.dumps(answer({"text": CANARY})).encode()[:-20]), Unavailable, "is not whole JSON"),
        (sends(b"[" * 100_000), Unavailable, "is not whole JSON"),
        (sends(b"[]"), Unavailable, "expected a JSON object"),
        (sends(f"<html>{CANARY}</html>".encode(), content_type="text/html"), Rejected, "a web page.*without that path"),
        (sends(b'{"candidates": []}'), Unavailable, "without a candidate"),
        (sends(b'{"error": {"message": "upstream", "code": 429}}'), RateLimited, "upstream"),
        (resets_mid_body, Unavailable, "the connection failed"),
        (hangs, Unavailable, r"within 0\.3 s"),
        (trickles, Unavailable, r"within 0\.3 s"),
        (says("x" * 200_000), Rejected, "longer than 150,000 bytes"),
    ],
)
def test_each_failure_becomes_one_of_our_errors_and_shows_no_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, act: Act, kind: type[BackendError], says_what: str
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", CANARY)
    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", 150_000)
    backend = bench.backend(act, query="&timeout_s=0.3")
    start = time.monotonic()
    with pytest.raises(BackendError, match=says_what) as caught:
        backend.complete(HELLO, STORE)
    assert type(caught.value) is kind and time.monotonic() - start < 2
    assert f"{bench.server.url}, model 'tiny-gemini'" in str(caught.value)
    assert (caught.value.retry_after_s == 17.5) == ("slow" in says_what)
    assert CANARY not in everything(caught.value) + str(vars(backend)) + repr(backend)


# Who it is


def test_the_key_comes_from_the_environment_and_shows_nowhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", CANARY + "\n")
    # What would turn the SDK to another service, or send the key to a proxy.
    for name, value in (
        ("GOOGLE_GENAI_USE_VERTEXAI", "true"),
        ("GOOGLE_CLOUD_PROJECT", "p"),
        ("HTTP_PROXY", "http://127.0.0.1:1"),
    ):
        monkeypatch.setenv(name, value)
    basic = base64.b64encode(f"user:{CANARY}".encode()).decode()
    server = bench.serve(says(f"your key is {CANARY}", usage={"promptTokenCount": 1, "note": [CANARY, basic]}), key=CANARY)
    reply = bench.open(f"google/tiny-gemini?base_url={server.url}").complete(HELLO, STORE)
    assert server.headers[0]["x-goog-api-key"] == CANARY and reply.text == "your key is ***"
    assert CANARY not in repr(reply) and basic[8:-4] not in repr(reply)
    bench.backend(says("ok"), query="&env=none").complete(HELLO, STORE)
    assert bench.server.headers[0]["x-goog-api-key"] == "none"
    monkeypatch.setenv("MY_VARIABLE", CANARY)
    server = bench.serve(says("ok"), key="another")
    with pytest.raises(Rejected, match=r"not valid: \*\*\*.*check the key in environment variable MY_VARIABLE"):
        bench.open(f"google/tiny-gemini?base_url={server.url}&env=MY_VARIABLE").complete(HELLO, STORE)


def test_what_cannot_work_is_refused_before_anything_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri, told in (
        ("google/gemini-2.5-pro", "set environment variable GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("google/m?base_url=https://example.org", "needs a key for https://example.org"),
        ("google", "names no model"), ("google/a/../b?base_url=http://127.0.0.1:1", "cannot be a model's name"),
        ("google/m?temprature=1", "unknown parameter 'temprature'; known: base_url, boxes, env"),
        ("google/m?base_url=127.0.0.1:8000", "expected http://HOST:PORT or https://HOST"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            bench.open(uri)
        assert told in str(caught.value)
    code = "import sys, editloupe.backends.google; sys.exit('google.genai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'editloupe\[google\]'"):
        bench.open("google/m?base_url=http://127.0.0.1:1")
