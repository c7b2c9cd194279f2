"""The vllm backend against a strict server of our own on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from editloupe.backends.base import parse_uri
from editloupe.backends.openai import OpenAIBackend
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.vllm import open_backend
from editloupe.chat import ImagePart, Message, Request, TextPart, ToolCall, ToolSpec
from editloupe.data.images import ImageStore
from editloupe.errors import Rejected
from tests.backends.loopback import Act
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.backends.test_openai import image

CANARY = "sk-canary-5ea5e11e5-7f3d"
ASKED = Request(messages=(Message.of_text("user", "Which?"),))


class Bench:
    """Servers and backends of one test, closed in the right order."""

    def __init__(self) -> None:
        self.servers: list[OpenAIServer] = []
        self.backends: list[OpenAIBackend] = []

    def backend(self, *script: Act, key: str | None = None, query: str = "") -> OpenAIBackend:
        server = OpenAIServer(*script, vllm=True, key=key).__enter__()
        self.servers.append(server)
        uri = parse_uri(f"vllm/tiny-vl?base_url={server.url}{query}")
        self.backends.append(open_backend(uri, policy=RetryPolicy(attempts=1)))
        return self.backends[-1]

    @property
    def seen(self) -> list[dict[str, Any]]:
        return self.servers[-1].seen


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in ("VLLM_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    bench = Bench()
    yield bench
    for backend in bench.backends:
        backend.close()
    for server in bench.servers:
        server.__exit__(None, None, None)
    assert [c for s in bench.servers for c in s.complaints] == []


# What is sent and read


def test_images_carry_their_digest_and_stay_in_the_tools_message(bench: Bench) -> None:
    store = ImageStore()
    whole, crop = image(store), image(store, value=90)
    spec = ToolSpec(name="zoom_in", description="Zoom.", parameters={"type": "object"})
    messages = (
        Message(role="user", parts=(TextPart(text="A:"), ImagePart(image=whole, alias="A"))),
        Message(role="assistant", parts=(), tool_calls=(ToolCall(id="c1", name="zoom_in", arguments={}),)),
        Message(role="tool", parts=(TextPart(text="Crop 1:"), ImagePart(image=crop, alias="Crop 1")), tool_call_id="c1"),
    )
    reply = bench.backend(says("ok")).complete(Request(messages=messages, tools=(spec,)), store)
    user, _, tool = bench.seen[0]["messages"]
    assert [b.get("uuid") for b in user["content"]] == [None, whole.sha256]
    assert (tool["role"], [b.get("uuid") for b in tool["content"]]) == ("tool", [None, crop.sha256])
    assert reply.sent["tool_images"] == "in the tool's message"


def test_reasoning_and_image_tokens_and_the_models_own_name_are_read(bench: Bench) -> None:
    details = {"cached_tokens": 48, "multimodal_tokens": {"image": 128}}
    usage = {"prompt_tokens": 200, "completion_tokens": 3, "prompt_tokens_details": details}
    reply = bench.backend(says("ok", usage=usage, reasoning="The lamp.")).complete(ASKED, ImageStore())
    assert (reply.usage.input_tokens, reply.usage.image_tokens, reply.usage.cached_tokens) == (200, 128, 48)
    assert (reply.reasoning, reply.model) == ("The lamp.", "tiny-vl-0613")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("At most 2 image(s) may be provided in one prompt.", "--limit-mm-per-prompt"),
        ("The prompt (length 9000) is longer than the maximum model length of 2048.", "lower --max-turns"),
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser',
            "use --tool-protocol text, or auto",
        ),
        ("Qwen3-8B is not a multimodal model", "if the model takes no images, name one that does"),
    ],
)
def test_what_vllm_refuses_says_what_to_do(bench: Bench, said: str, advice: str) -> None:
    store = ImageStore()
    spec = ToolSpec(name="zoom_in", description="Zoom.", parameters={"type": "object"})
    question = Message(role="user", parts=(ImagePart(image=image(store), alias="A"),))
    with pytest.raises(Rejected, match=advice):
        bench.backend(fails(400, said)).complete(Request(messages=(question,), tools=(spec,)), store)


# Address and key


def test_the_address_is_this_machines_port_8000_whatever_openais_variable_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://example.org/v1")
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    backend = open_backend(parse_uri("vllm/Qwen/Qwen3-VL-8B-Instruct"))
    assert (backend.uri, backend.endpoint) == ("vllm/Qwen/Qwen3-VL-8B-Instruct", "http://127.0.0.1:8000/v1")
    assert backend.traits.describes == "Qwen/Qwen3-VL-8B-Instruct served by vLLM at http://127.0.0.1:8000/v1"
    backend.close()


def test_no_key_is_needed_anywhere_and_vllms_own_variable_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    open_backend(parse_uri("vllm/m?base_url=http://gpu-box:8000/v1")).close()
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-this-server")
    bench.backend(says("ok")).complete(ASKED, ImageStore())
    assert bench.servers[-1].headers[0]["authorization"] == "Bearer none"
    monkeypatch.setenv("VLLM_API_KEY", CANARY)
    assert bench.backend(says(f"key {CANARY}"), key=CANARY).complete(ASKED, ImageStore()).text == "key ***"
