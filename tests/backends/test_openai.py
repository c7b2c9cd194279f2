"""The openai and vllm backends against a strict server of our own on loopback."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from editloupe.chat import ImagePart, MalformedCall, Message, Reply, Request, Sampling, TextPart, ToolCall, ToolSpec
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, Rejected, Unavailable
from editloupe.values import canonical_json
from tests.backends.conftest import CANARY, HELLO, STORE, Bench, asks, everything, image
from tests.backends.loopback import sends
from tests.backends.openai_server import completion, fails, image_of, says

ZOOM = ToolSpec(name="zoom_in", description="Zoom.", parameters={"type": "object", "properties": {}})

# What is sent


def test_a_conversation_has_the_shape_of_the_protocol_and_the_images_their_own_bytes(bench: Bench) -> None:
    store = ImageStore()
    png, jpeg = image(store), image(store, value=90, format="JPEG")
    parts = (
        TextPart(text="Original Image:"), ImagePart(image=png, alias="Original Image"),
        TextPart(text="Edited Image:"), ImagePart(image=jpeg, alias="Edited Image"), TextPart(text="Which is redder?"),
    )  # fmt: skip
    call = ToolCall(id="c1", name="zoom_in", arguments={"box": [1, 2, 3, 4]})
    talk = (
        Message.of_text("system", "Look."),
        Message(role="user", parts=parts),
        Message(role="assistant", parts=(), tool_calls=(call,)),
        Message(role="tool", parts=(TextPart(text="done"),), tool_call_id="c1"),
    )
    reply = bench.ask("openai", says("ok"), request=Request(messages=talk, tools=(ZOOM,)), images=store)
    system, user, asked, answered = bench.server.seen[0]["messages"]
    assert system == {"role": "system", "content": "Look."}
    blocks = [block.get("text") or image_of(block["image_url"]["url"]) for block in user["content"]]
    assert blocks == ["Original Image:", store.data(png), "Edited Image:", store.data(jpeg), "Which is redder?"]
    assert asked["content"] is None
    assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"box": [1, 2, 3, 4]}
    assert answered == {"role": "tool", "content": "done", "tool_call_id": "c1"}
    assert reply.sent["tools"] == [{"type": "function", "function": ZOOM.to_json()}]
    # What is none is left out, and what was on the wire is recorded.
    asked = {"top_p": 0.5, "seed": 7, "max_tokens": 99}
    for sampling, sent in (
        (Sampling(), {"temperature": 0.0, "seed": 0}),
        (Sampling(temperature=None, **asked), asked),  # type: ignore[arg-type]
    ):
        reply = bench.ask("openai", says("ok"), request=replace(HELLO, sampling=sampling))
        on_wire = {name: value for name, value in bench.server.seen[0].items() if name != "messages"}
        assert {**on_wire, "attempts": 1} == reply.sent == {"model": "tiny-vl", **sent, "attempts": 1}


def test_pictures_are_sent_in_formats_and_sizes_that_the_uri_allows_and_that_is_part_of_who_judges(bench: Bench) -> None:
    store = ImageStore()
    webp = image(store, format="WEBP", size=(600, 300))
    for query, format, size in (
        ("", "PNG", (600, 300)),
        ("&image_formats=png,jpeg,webp", "WEBP", (600, 300)),
        ("&max_image_side=200", "PNG", (200, 100)),
    ):
        backend = bench.backend("openai", says("ok"), query=query)
        backend.complete(asks(webp), store)
        [block] = bench.server.seen[0]["messages"][0]["content"]
        with Image.open(io.BytesIO(image_of(block["image_url"]["url"]))) as sent:
            assert (sent.format, sent.size) == (format, size)
        assert backend.uri.endswith(query.replace(",", "%2C"))


def test_pictures_that_an_endpoint_is_known_not_to_take_are_refused_before_anything_is_sent(bench: Bench) -> None:
    store = ImageStore()
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    question = asks(image(store), store.add_array(noise))
    llama = {"id": "tiny-vl", "meta": {"n_ctx": 4096}, "architecture": {"input_modalities": ["text"]}}
    sees = {**llama, "architecture": {"input_modalities": ["text", "image"]}}
    for query, models, told in (
        ("&max_images=1", None, "at most 1 images.*found 2; lower --max-turns"),
        ("&max_image_bytes=1000", None, "at most 1,000 bytes.*max_image_side"),
        ("", [llama], "it reads text; if the model takes no images, name one that does"),
    ):
        with pytest.raises(Rejected, match=told) as caught:
            bench.ask("openai", says("ok"), query=query, models=models, request=question, images=store)
        assert (bench.server.seen, caught.value.for_all) == ([], models is not None)
    # Whether a model sees is looked up once, also where the endpoint fails or does not tell.
    for models in (None, [{"id": "a"}, sees]):
        backend = bench.backend("openai", fails(503), says("ok"), models=models)
        with pytest.raises(Unavailable):
            backend.complete(question, store)
        assert (backend.complete(question, store).text, bench.server.listed) == ("ok", 1)
    assert backend.context_limit() == 4096
    for host, most, side in (("api.openai.com", 500, None), ("api.anthropic.com", 100, 8000), ("127.0.0.1", None, None)):
        traits = bench.open(f"openai/m?base_url=https://{host}/v1&env=none").traits
        assert (traits.max_images, traits.max_image_side) == (most, side)


# What is answered


def test_a_reply_carries_text_reasoning_usage_and_the_model_as_answered(bench: Bench) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0}}
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 40,
        **details,
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    reply = bench.ask("openai", says("Good.", reasoning_content="Let me see.", usage=usage))
    assert (reply.text, reply.reasoning, reply.finish, reply.model) == ("Good.", "Let me see.", "stop", "tiny-vl-0613")
    counted = {"input_tokens": 100, "output_tokens": 40, "cached_tokens": 64, "reasoning_tokens": 30}
    assert reply.usage.to_json() == counted
    assert isinstance(reply.raw, dict) and reply.raw["id"] == "chatcmpl-1"
    assert Reply.from_json(json.loads(canonical_json(reply.to_json()))) == reply


def test_native_calls_are_read_and_broken_ones_are_kept_apart(bench: Bench) -> None:
    broken = (("detect", '{"what": "mug'), ("listed", "[1]"), (None, "{}"))
    named = (("zoom_in", '{"box": [1, 2, 3, 4]}'), ("enhancer", ""), *broken)
    calls = [{"id": f"id-{n}", "type": "function", "function": {"name": n, "arguments": told}} for n, told in named]
    reply = bench.ask("openai", says(None, finish="stop", tool_calls=calls))
    assert reply.finish == "tools"
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("id-zoom_in", "zoom_in", {"box": [1, 2, 3, 4]}), ("id-enhancer", "enhancer", {}),
    ]  # fmt: skip
    cut, listed, nameless = reply.malformed_calls
    assert cut.raw == '{"what": "mug' and cut.error.startswith("the arguments are not JSON: Unterminated string")
    assert listed == MalformedCall(raw='"[1]"', error="the arguments are not a JSON object")
    assert nameless.error == "a tool call needs a name"


def test_why_an_answer_ended_and_what_it_says_are_read_in_every_form(bench: Bench) -> None:
    blocks = completion(None)
    blocks["choices"][0]["message"]["content"] = [{"type": "text", "text": "Good"}, {"type": "text", "text": "."}]
    for act, finish, text in (
        (says("half a", finish="length"), "length", "half a"),
        (says("half a", finish="content_filter"), "filter", "half a"),
        (says("all", finish=None), "stop", "all"),
        (says(None), "stop", ""),
        (says(None, refusal="I cannot judge this."), "refusal", "I cannot judge this."),
        (sends(json.dumps(blocks).encode()), "stop", "Good."),
        (sends(json.dumps({**completion("ok"), "system_fingerprint": "fp_1"}).encode()), "stop", "ok"),
    ):
        reply = bench.ask("openai", act)
        assert (reply.finish, reply.text) == (finish, text)
    assert (reply.fingerprint, Reply.from_json(reply.to_json())) == ("fp_1", reply)


# Keys and addresses


def test_the_key_comes_from_the_environment_and_shows_nowhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        # Not used for this machine.
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with pytest.raises(Rejected, match="no key was sent; set environment variable OPENAI_API_KEY"):
        bench.ask("openai", fails(403, "not yours"))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY + "\n")
    backend = bench.backend("openai", says(f"your key is {CANARY}", usage={"note": CANARY}), key=CANARY)
    reply = backend.complete(HELLO, STORE)
    assert reply.text == "your key is ***"
    shown = [repr(backend), str(vars(backend)), backend.uri, backend.endpoint, str(backend.traits), repr(reply)]
    with pytest.raises(Rejected, match=r"HTTP 401.*check the key in environment variable OPENAI_API_KEY") as caught:
        bench.ask("openai", says("ok"), key="another")
    monkeypatch.setenv("OPENAI_API_KEY", "clé-" + CANARY)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds blanks or characters that are not ASCII") as told:
        bench.open("openai/gpt-5")
    assert CANARY not in "\n".join([*shown, everything(caught.value), everything(told.value)])


def test_what_cannot_work_is_refused_before_anything_is_sent(bench: Bench) -> None:
    here = "openai/m?base_url=http://127.0.0.1"
    for uri, told in (
        ("openai/gpt-5", "needs a key for https://api.openai.com/v1: set environment variable OPENAI_API_KEY"),
        ("openai/m?base_url=https://example.org/v1", "needs a key for https://example.org/v1"),
        (f"{here}:1/v1&env=NOT_SET", "set environment variable NOT_SET"),
        ("openai", "names no model"),
        ("openai/m?temprature=1", "unknown parameter 'temprature'; known: base_url, boxes, env, image_formats, max_"),
        ("openai/m?base_url=http://u:hunter2hunter2@127.0.0.1/v1", "holds credentials"),
        ("openai/m?base_url=u:hunter2hunter2@127.0.0.1/v1", "holds credentials"),
        ("openai/m?base_url=127.0.0.1:8000", "expected http://HOST"),
        (f"{here}:99999/v1", "cannot be read as a URL"),
        (f"{here}/v1?x=1", "has a query"),
        (f"{here}/v1&timeout_s=0", "timeout_s='0'"),
        (f"{here}/v1&timeout_s=inf", "timeout_s='inf'"),
        (f"{here}/v1&timeout_s=soon", "timeout_s='soon'"),
        (f"{here}/v1&max_image_side=0", "max_image_side='0': expected px of the longest side"),
        (f"{here}/v1&max_image_side=1e3", "max_image_side='1e3'"),
    ):
        with pytest.raises(ConfigError) as caught:
            bench.open(uri)
        assert told in str(caught.value), uri
        assert "hunter2" not in str(caught.value)


def test_uri_and_endpoint_say_where_the_model_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = bench.open("openai/Qwen/Qwen3-VL?base_url=http://localhost:8000/v1/")
    assert backend.uri == "openai/Qwen/Qwen3-VL?base_url=http://localhost:8000/v1" == bench.open(backend.uri).uri
    assert (backend.endpoint, backend.version, backend.traits.is_lmm) == ("http://localhost:8000/v1", "", True)
    # A longer time-out or another key is the same judge.
    monkeypatch.setenv("MY_VARIABLE", CANARY)
    plain, other = (bench.open(f"openai/m?base_url=http://[::1]/v1{q}") for q in ("", "&timeout_s=999&env=MY_VARIABLE"))
    assert plain.uri == other.uri == "openai/m?base_url=http://%5B::1%5D/v1"
    assert bench.open(plain.uri).endpoint == "http://[::1]/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-vllm")
    assert bench.open("openai:m").uri == "openai/m?base_url=http://127.0.0.1:9/v1"
    # vLLM has an address and a key of its own.
    backend = bench.open("vllm/Qwen/Qwen3-VL-8B-Instruct")
    assert (backend.uri, backend.endpoint) == ("vllm/Qwen/Qwen3-VL-8B-Instruct", "http://127.0.0.1:8000/v1")
    bench.ask("vllm", says("ok"))
    assert bench.server.headers[0]["authorization"] == "Bearer none"
    monkeypatch.setenv("VLLM_API_KEY", CANARY)
    assert bench.ask("vllm", says(f"key {CANARY}"), key=CANARY).text == "key ***"


# vLLM


def test_images_for_vllm_carry_their_digest_and_stay_in_the_tools_message_unless_it_refuses_them(bench: Bench) -> None:
    store = ImageStore()
    whole, crop = image(store), image(store, value=90)
    messages = (
        Message(role="user", parts=(TextPart(text="A:"), ImagePart(image=whole, alias="A"))),
        Message(role="assistant", parts=(), tool_calls=(ToolCall(id="c1", name="zoom_in", arguments={}),)),
        Message(role="tool", parts=(TextPart(text="Crop 1:"), ImagePart(image=crop, alias="Crop 1")), tool_call_id="c1"),
    )
    question = Request(messages=messages)
    details = {"cached_tokens": 48, "multimodal_tokens": {"image": 128}}
    usage = {"prompt_tokens": 200, "completion_tokens": 3, "prompt_tokens_details": details}
    reply = bench.ask("vllm", says("ok", usage=usage, reasoning="The lamp."), request=question, images=store)
    user, _, tool = bench.server.seen[0]["messages"]
    assert [b.get("uuid") for b in user["content"]] == [None, whole.sha256]
    assert (tool["role"], [b.get("uuid") for b in tool["content"]]) == ("tool", [None, crop.sha256])
    assert reply.sent["tool_images"] == "in the tool's message"
    assert (reply.usage.input_tokens, reply.usage.image_tokens, reply.usage.cached_tokens) == (200, 128, 48)
    assert (reply.reasoning, reply.model) == ("The lamp.", "tiny-vl-0613")
    backend = bench.backend("vllm", fails(400, "can only concatenate str (not list) to str"), says("ok"))
    places = [backend.complete(question, store).sent["tool_images"] for _ in range(2)]
    assert places == ["in a user's message behind it"] * 2
    assert [body["messages"][-1]["role"] for body in bench.server.seen] == ["tool", "user", "user"]
