"""The langchain backend: a scripted chat model of LangChain's own making, a real ChatOpenAI against our server."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from PIL import Image
from pydantic import PrivateAttr, SecretStr

from editloupe import Judge, load_sample
from editloupe.backends.base import open_backend, parse_uri
from editloupe.backends.langchain import LangChainLMM, traits_of
from editloupe.backends.langchain import open_backend as open_langchain
from editloupe.backends.openai import open_backend as open_openai
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import ImagePart, MalformedCall, Message, Request, Sampling, TextPart, ToolCall, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import Sample
from tests.agent.test_loop import judged
from tests.backends.loopback import Act, resets_mid_body, sends, trickles
from tests.backends.openai_server import OpenAIServer, completion, declines, fails, image_of, says
from tests.conftest import LOOK, final

CANARY = "sk-canary-5ea5e11e5-7f3d"
HELLO = Request(messages=(Message.of_text("user", "hello"),))
STORE = ImageStore()
ONCE = RetryPolicy(attempts=1)
ZOOM = {"target_image": "Edited Image", "bbox": [100, 100, 400, 400]}
TOOL = ToolSpec(name="zoom_in", description="Look closer.", parameters={"type": "object", "properties": {}})

needs_langchain = pytest.mark.skipif(
    importlib.util.find_spec("langchain") is None or importlib.util.find_spec("langchain_openai") is None,
    reason="langchain and langchain-openai are not installed (pip install langchain langchain-openai)",
)


class ScriptedChat(BaseChatModel):
    """Plays answers by the number of assistant messages so far; an exception is raised. It takes a temperature, no seed."""

    script: list[Any]
    model_name: str = "scripted-vl"
    temperature: float | None = None
    api_key: SecretStr = SecretStr("")
    _seen: list[tuple[list[BaseMessage], dict[str, Any]]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        kwargs.pop("run_manager", None)
        self._seen.append((messages, {"temperature": self.temperature, **kwargs}))
        act = self.script[min(sum(isinstance(m, AIMessage) for m in messages), len(self.script) - 1)]
        if isinstance(act, Exception):
            raise act
        message = act if isinstance(act, AIMessage) else AIMessage(content=act)
        return ChatResult(generations=[ChatGeneration(message=message.model_copy())])


def lmm(*script: Any, policy: RetryPolicy = ONCE, **fields: Any) -> LangChainLMM:
    return LangChainLMM(ScriptedChat(script=list(script), **fields), policy=replace(policy, sleep=lambda s: None))


def seen(backend: LangChainLMM) -> list[tuple[list[BaseMessage], dict[str, Any]]]:
    return backend._model._seen  # type: ignore[attr-defined, no-any-return]


def calling(*calls: tuple[str, dict[str, Any]], content: Any = "", **fields: Any) -> AIMessage:
    made = [{"name": n, "args": a, "id": f"c{i}", "type": "tool_call"} for i, (n, a) in enumerate(calls)]
    return AIMessage(content=content, tool_calls=made, **fields)


# What is sent


def test_text_and_images_are_standard_blocks_in_the_order_of_the_parts(sample: Sample, store: ImageStore) -> None:
    edited = sample.turns[0].edited
    assert edited is not None
    backend = lmm("ok")
    parts = (TextPart(text="A:"), ImagePart(image=edited, alias="A"), TextPart(text="What?"))
    backend.complete(Request(messages=(Message.of_text("system", "Look."), Message(role="user", parts=parts))), store)
    [system, user] = seen(backend)[0][0]
    assert (system.type, system.content) == ("system", "Look.")
    assert [b["type"] for b in user.content] == ["text", "image", "text"]  # type: ignore[index]
    block = user.content[1]
    assert block["mime_type"] == "image/png"  # type: ignore[index]
    assert image_of(f"data:image/png;base64,{block['base64']}") == store.data(edited)  # type: ignore[index]


def test_sampling_is_set_where_the_class_has_a_field_and_named_where_it_has_none() -> None:
    backend = lmm("ok")
    reply = backend.complete(Request(messages=HELLO.messages, sampling=Sampling(seed=7)), STORE)
    dropped = ["seed", "max_tokens"]
    assert reply.sent == {"model": "scripted-vl", "temperature": 0.0, "dropped": dropped, "attempts": 1}
    assert seen(backend)[0][1]["temperature"] == 0.0
    assert backend.traits.sampling == ("temperature",)


def test_what_the_model_was_made_with_is_recorded_and_part_of_who_it_is() -> None:
    class Nucleus(ScriptedChat):
        top_p: float | None = None

    plain, narrow = LangChainLMM(Nucleus(script=["ok"])), LangChainLMM(Nucleus(script=["ok"], top_p=0.5))
    assert plain.uri != narrow.uri
    assert narrow.complete(HELLO, STORE).sent == {
        "model": "scripted-vl", "temperature": 0.0, "top_p": 0.5, "dropped": ["seed", "max_tokens"], "attempts": 1,
    }  # fmt: skip
    asked = Request(messages=HELLO.messages, sampling=Sampling(top_p=0.9))
    assert narrow.complete(asked, STORE).sent["top_p"] == 0.9


def test_the_users_own_model_is_not_changed() -> None:
    model = ScriptedChat(script=["ok"], temperature=0.7)
    LangChainLMM(model).complete(HELLO, STORE)
    assert model.temperature == 0.7


def test_a_refused_temperature_is_dropped_and_said() -> None:
    class Declines(ScriptedChat):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            if self.temperature is not None:
                raise HTTPishError(400, "Unsupported value: 'temperature' does not support 0.0 with this model.")
            return super()._generate(messages, *args, **kwargs)

    reply = LangChainLMM(Declines(script=["ok"])).complete(HELLO, STORE)
    assert reply.sent == {"model": "scripted-vl", "dropped": ["temperature", "seed", "max_tokens"], "attempts": 1}


class Bounded(ScriptedChat):
    """Takes a seed and a bound, the bound up to 8192."""

    seed: int | None = None
    max_tokens: int | None = None

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if (self.max_tokens or 0) > 8192:
            raise HTTPishError(400, "max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens")
        return super()._generate(messages, *args, **kwargs)


def test_a_seed_and_a_bound_are_asked_for_and_a_bound_too_high_is_left_to_the_model() -> None:
    reply = LangChainLMM(Bounded(script=["ok"])).complete(HELLO, STORE)
    assert reply.sent == {"model": "scripted-vl", "temperature": 0.0, "seed": 0, "dropped": ["max_tokens"], "attempts": 1}


def test_a_seed_and_a_bound_that_a_model_was_made_with_stand_above_the_defaults() -> None:
    mine = Bounded(script=["ok"], seed=7, max_tokens=500)
    wire = {"model": "scripted-vl", "temperature": 0.0, "attempts": 1}
    assert LangChainLMM(mine).complete(HELLO, STORE).sent == wire | {"seed": 7, "max_tokens": 500}
    asked = Request(messages=HELLO.messages, sampling=Sampling(seed=3, max_tokens=9))
    assert LangChainLMM(mine).complete(asked, STORE).sent == wire | {"seed": 3, "max_tokens": 9}


def test_tools_are_bound_and_their_pictures_follow_in_a_users_message(sample: Sample, store: ImageStore) -> None:
    crop = sample.source
    backend = lmm("ok")
    call = ToolCall(id="c0", name="zoom_in", arguments=ZOOM)
    told = (TextPart(text="Observation"), TextPart(text="Crop 1:"), ImagePart(image=crop, alias="Crop 1"))
    messages = (
        Message.of_text("user", "Look."),
        Message(role="assistant", parts=(), tool_calls=(call,)),
        Message(role="tool", parts=told, tool_call_id="c0"),
        Message.of_text("user", "Go on."),
    )
    reply = backend.complete(Request(messages=messages, tools=(TOOL,)), store)
    wire, options = seen(backend)[0]
    assert [m.type for m in wire] == ["human", "ai", "tool", "human", "human"]
    assert isinstance(wire[2], ToolMessage) and wire[2].tool_call_id == "c0"
    assert wire[2].content == "Observation\nPictures in the next message: Crop 1."
    assert isinstance(wire[3], HumanMessage) and [b["type"] for b in wire[3].content] == ["text", "image"]  # type: ignore[index]
    assert options["tools"][0]["function"]["name"] == "zoom_in"
    assert reply.sent["tool_images"] == "in a user's message behind it"
    assert reply.sent["tool_choice"] == "auto"


# What is read


def test_an_answer_is_read_with_thought_usage_and_names() -> None:
    message = AIMessage(
        content=[{"type": "reasoning", "reasoning": "I look."}, {"type": "text", "text": "It is red."}],
        usage_metadata={
            "input_tokens": 30, "output_tokens": 5, "total_tokens": 35,
            "input_token_details": {"cache_read": 20}, "output_token_details": {"reasoning": 3},
        },
        response_metadata={"model_name": "vl-2", "finish_reason": "MAX_TOKENS"},
    )  # fmt: skip
    reply = lmm(message).complete(HELLO, STORE)
    assert (reply.text, reply.reasoning, reply.model, reply.finish) == ("It is red.", "I look.", "vl-2", "length")
    assert reply.usage == Usage(input_tokens=30, output_tokens=5, cached_tokens=20, reasoning_tokens=3)
    json.dumps(reply.raw)


@pytest.mark.parametrize(
    ("metadata", "finish"),
    [
        ({"finish_reason": "stop"}, "stop"),
        ({"stop_reason": "end_turn"}, "stop"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"stopReason": "guardrail_intervened"}, "filter"),
        ({"finish_reason": "SAFETY"}, "filter"),
        ({"finish_reason": "FinishReason.MAX_TOKENS"}, "length"),
        ({"done_reason": "length"}, "length"),
        ({"stop_reason": "refusal"}, "refusal"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({}, "stop"),
    ],
)
def test_the_usual_providers_words_for_the_end(metadata: dict[str, Any], finish: str) -> None:
    assert lmm(AIMessage(content="x", response_metadata=metadata)).complete(HELLO, STORE).finish == finish


def test_a_refusal_is_one_whatever_the_finish_says() -> None:
    message = AIMessage(
        content="", additional_kwargs={"refusal": "I can not."}, response_metadata={"finish_reason": "stop"}
    )
    reply = lmm(message).complete(HELLO, STORE)
    assert (reply.finish, reply.text) == ("refusal", "I can not.")


def test_a_prompt_that_a_provider_refuses_for_its_content_is_filtered() -> None:
    error = HTTPishError(400, "no")
    error.body = {"message": "The response was filtered", "code": "content_filter"}  # type: ignore[attr-defined]
    reply = lmm(error).complete(HELLO, STORE)
    assert (reply.finish, reply.text) == ("filter", "The response was filtered")
    # Gemini's class gives an empty message, and the reason beside it.
    message = AIMessage(content="", response_metadata={"prompt_feedback": {"block_reason": "PROHIBITED_CONTENT"}})
    reply = lmm(message).complete(HELLO, STORE)
    assert (reply.finish, reply.text) == ("filter", "the provider blocked the prompt (PROHIBITED_CONTENT)")
    message = AIMessage(content="fine", response_metadata={"prompt_feedback": {"block_reason": 0}})
    assert lmm(message).complete(HELLO, STORE).finish == "stop"


def test_broken_calls_are_kept_apart_from_good_ones() -> None:
    message = AIMessage(
        content="",
        tool_calls=[{"name": "zoom_in", "args": {"x": float("nan")}, "id": "c0", "type": "tool_call"}],
        invalid_tool_calls=[
            {"name": "zoom_in", "args": '{"target', "id": "c1", "error": None, "type": "invalid_tool_call"}
        ],
        response_metadata={"finish_reason": "stop"},
    )
    reply = lmm(message).complete(HELLO, STORE)
    assert reply.tool_calls == (ToolCall(id="c0", name="zoom_in", arguments={"x": "nan"}),)
    assert reply.malformed_calls == (MalformedCall(raw='{"target', error="the arguments of zoom_in are not a JSON object"),)
    assert reply.finish == "tools"


def test_what_a_provider_wants_back_goes_back_under_the_calls_later_ids() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2lnbmF0dXJl"},
        {"type": "tool_use", "id": "c0", "name": "zoom_in", "input": ZOOM},
    ]
    backend = lmm(calling(("zoom_in", ZOOM), content=content), "done")
    reply = backend.complete(HELLO, STORE)
    renamed = ToolCall(id="c0_2", name="zoom_in", arguments=ZOOM)
    said = Message(role="assistant", parts=(), tool_calls=(renamed,), carry=reply.carry)
    # It survives the trace.
    said = Message.from_json(json.loads(json.dumps(said.to_json())))
    answered = Message(role="tool", parts=(TextPart(text="seen"),), tool_call_id="c0_2")
    request = Request(messages=(*HELLO.messages, said, answered))
    backend.complete(request, STORE)
    assert seen(backend)[1][0][1].content == [content[0], {**content[1], "id": "c0_2"}]
    # Another model's signatures are not sent to this one.
    other = LangChainLMM(ScriptedChat(script=["a", "b"]), name="other")
    other.complete(request, STORE)
    assert seen(other)[0][0][1].content == ""


def test_a_plain_answer_carries_nothing() -> None:
    assert lmm("fine").complete(HELLO, STORE).carry is None
    assert lmm(calling(("zoom_in", ZOOM))).complete(HELLO, STORE).carry is None


# Failures


class HTTPishError(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()
        super().__init__(message)


class ResourceExhausted(Exception):
    pass


class ThrottlingException(Exception):
    response: ClassVar[Any] = {"ResponseMetadata": {"HTTPStatusCode": 429}}


class AuthenticationError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HTTPishError(429, "slow down"), RateLimited),
        (HTTPishError(503, "busy"), Unavailable),
        (HTTPishError(401, "no"), Rejected),
        (HTTPishError(400, "maximum context length is 8192 tokens"), ContextTooLong),
        (HTTPishError(400, "input token count exceeds the maximum"), ContextTooLong),
        (HTTPishError(429, "insufficient_quota"), Rejected),
        (ResourceExhausted("quota per minute"), RateLimited),
        (ThrottlingException("too fast"), RateLimited),
        (AuthenticationError("key?"), Rejected),
        (TimeoutError("too late"), Unavailable),
        (ConnectionResetError("gone"), Unavailable),
        (KeyError("choices"), Unavailable),
        (ValueError("choices"), Rejected),
    ],
)
def test_any_providers_error_is_one_of_ours(error: Exception, kind: type[BackendError]) -> None:
    with pytest.raises(BackendError) as caught:
        lmm(error).complete(HELLO, STORE)
    assert type(caught.value) is kind
    assert "langchain/ScriptedChat:scripted-vl" in str(caught.value)


def test_a_wrapped_error_is_known_by_what_it_comes_from() -> None:
    wrapped = RuntimeError("the chat model failed")
    wrapped.__cause__ = HTTPishError(429, "slow down", {"retry-after": "7"})
    with pytest.raises(RateLimited) as caught:
        lmm(wrapped).complete(HELLO, STORE)
    assert caught.value.retry_after_s == 7


def test_what_may_pass_is_asked_again_by_our_policy() -> None:
    class Flaky(ScriptedChat):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            if len(self._seen) < 2:
                self._seen.append((messages, {}))
                raise HTTPishError(503, "busy")
            return super()._generate(messages, *args, **kwargs)

    backend = LangChainLMM(Flaky(script=["ok"]), policy=RetryPolicy(attempts=3, sleep=lambda s: None))
    assert backend.complete(HELLO, STORE).sent["attempts"] == 3


@pytest.mark.parametrize("field", [True, False], ids=["the model's own field", "the environment"])
def test_a_key_shows_nowhere(monkeypatch: pytest.MonkeyPatch, field: bool) -> None:
    if not field:
        monkeypatch.setenv("SOME_PROVIDER_API_KEY", CANARY)
    own = {"api_key": SecretStr(CANARY)} if field else {}
    echo = AIMessage(
        content=[
            {"type": "thinking", "thinking": CANARY, "signature": CANARY},
            {"type": "text", "text": f"it is {CANARY}"},
        ],
        additional_kwargs={"echo": CANARY, CANARY: 1},
        response_metadata={"model_name": CANARY},
    )
    backend = lmm(echo, **own)
    reply = backend.complete(HELLO, STORE)
    assert CANARY not in json.dumps(reply.to_json())
    assert "***" in reply.text
    for error in (HTTPishError(401, f"bad key {CANARY}"), RuntimeError(CANARY), KeyError(CANARY), _Stubborn()):
        error.__cause__ = ValueError(f"Bearer {CANARY}")
        with pytest.raises(BackendError) as caught:
            lmm(error, **own).complete(HELLO, STORE)
        assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert CANARY not in repr(backend) + backend.uri + backend.endpoint


class _Stubborn(Exception):
    """One whose text cannot be cleaned."""

    def __str__(self) -> str:
        return f"key {CANARY}"


# Boxes and sizes


def test_a_model_with_its_own_boxes_is_spoken_to_in_them_and_is_another_judge(sample: Sample, store: ImageStore) -> None:
    parts = (TextPart(text="A:"), ImagePart(image=sample.source, alias="A"))
    call = ToolCall(id="c0", name="zoom_in", arguments={"target_image": "A", "bbox": [100, 200, 300, 400]})
    talk = (
        Message(role="user", parts=parts),
        Message(role="assistant", parts=(), tool_calls=(call,)),
        Message(role="tool", parts=(TextPart(text="seen"),), tool_call_id="c0"),
    )
    # 320×240 px: a model that writes pixels answers with half the picture.
    answers = {"thousandths_yx": [400, 200, 1000, 700], "pixels": [64, 96, 224, 240]}
    sent = {"thousandths_yx": [200, 100, 400, 300], "pixels": [32, 48, 96, 96]}
    for dialect in answers:
        model = ScriptedChat(script=["ok", calling(("zoom_in", {"target_image": "A", "bbox": answers[dialect]}))])
        backend = LangChainLMM(model, traits=replace(traits_of(model), boxes=dialect), policy=ONCE)
        reply = backend.complete(Request(messages=talk, tools=(TOOL,)), store)
        assert reply.tool_calls[0].arguments["bbox"] == [200, 400, 700, 1000]
        assert seen(backend)[0][0][1].tool_calls[0]["args"]["bbox"] == sent[dialect]  # type: ignore[attr-defined]
        assert backend.uri == f"langchain/ScriptedChat:scripted-vl?boxes={dialect}"
        assert str(parse_uri(backend.uri)) == backend.uri


def test_images_are_reduced_to_the_limit_that_the_traits_name(sample: Sample, store: ImageStore) -> None:
    model = ScriptedChat(script=["ok"])
    backend = LangChainLMM(model, traits=replace(traits_of(model), max_image_side=160), policy=ONCE)
    backend.complete(Request(messages=(Message(role="user", parts=(ImagePart(image=sample.source, alias="A"),)),)), store)
    block = seen(backend)[0][0][0].content[0]
    size = Image.open(io.BytesIO(image_of(f"data:{block['mime_type']};base64,{block['base64']}"))).size  # type: ignore[index]
    assert size == (160, 120)
    assert backend.uri == "langchain/ScriptedChat:scripted-vl?max_image_side=160"


# Who it is


def test_an_instance_is_known_by_class_model_and_what_identifies_it() -> None:
    class Thinks(ScriptedChat):
        effort: str = "high"

        @property
        def _identifying_params(self) -> dict[str, Any]:
            return {
                "model_name": self.model_name,
                "temperature": self.temperature,
                "effort": self.effort,
                "api_key": CANARY,
            }

    plain, thinks = lmm("ok"), LangChainLMM(Thinks(script=["ok"]))
    assert plain.uri == "langchain/ScriptedChat:scripted-vl"
    assert thinks.uri.startswith("langchain/Thinks:scripted-vl?params=")
    assert thinks.uri != LangChainLMM(Thinks(script=["ok"], effort="low")).uri
    assert thinks.uri == LangChainLMM(Thinks(script=["ok"], temperature=0.9)).uri
    assert str(parse_uri(thinks.uri)) == thinks.uri
    assert thinks.complete(HELLO, STORE).sent["model_parameters"] == {"effort": "high", "api_key": "***"}
    assert LangChainLMM(Thinks(script=["ok"]), name="mine").uri == "langchain/mine"


def test_a_model_without_tool_calling_says_so_and_what_is_no_model_is_refused() -> None:
    assert not LangChainLMM(FakeMessagesListChatModel(responses=[AIMessage("x")])).traits.native_tools
    assert lmm("x").traits.native_tools
    with pytest.raises(TypeError, match="expected a LangChain chat model"):
        LangChainLMM("openai:gpt-4.1")  # type: ignore[arg-type]


def test_many_threads_share_one_model() -> None:
    backend = lmm("ok")
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: backend.complete(HELLO, STORE).text, range(40)))
    assert texts == ["ok"] * 40


# Whole judgements


def test_a_sample_is_judged_in_text_and_natively(sample: Sample, store: ImageStore) -> None:
    text = judged(lmm(LOOK, final("Wrong Action")), sample, store)
    assert (text.status, text.label, text.turns) == ("ok", "Wrong Action", 1)
    backend = lmm(calling(("zoom_in", ZOOM)), final("Wrong Action"))
    native = judged(backend, sample, store, tool_protocol="native")
    assert (native.status, native.label, native.turns) == ("ok", "Wrong Action", 1)
    assert [m.type for m in seen(backend)[1][0]] == ["human", "ai", "tool", "human", "human"]


def test_the_public_door_takes_an_instance(edits: Callable[..., Any]) -> None:
    folder = edits(1)
    one = load_sample(folder / "source/s00.png", folder / "edited/s00.png", "Make square 0 red.")
    [finding] = Judge(lmm(final("Wrong Action")), criteria="if").judge(one)
    assert finding.label == "Wrong Action"


# By name


def test_a_uri_without_its_parts_says_what_is_expected() -> None:
    for uri in ("langchain/", "langchain/gpt-4.1", "langchain/openai:"):
        with pytest.raises(ConfigError, match="expected langchain/PROVIDER:MODEL"):
            open_langchain(parse_uri(uri))
    with pytest.raises(ConfigError, match="unknown parameter 'speed'"):
        open_langchain(parse_uri("langchain/openai:m?speed=9"))
    with pytest.raises(ConfigError, match="boxes='yx': expected how"):
        open_langchain(parse_uri("langchain/openai:m?boxes=yx"))


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    with pytest.raises(ConfigError, match="pip install langchain langchain-openai"):
        open_langchain(parse_uri("langchain/openai:gpt-4.1"))


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., OpenAIServer]]:
    """Servers of the model tiny-vl that ask for the canary key; none may have seen a request that breaks the protocol."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    servers: list[OpenAIServer] = []

    def start(*script: Act) -> OpenAIServer:
        servers.append(OpenAIServer(*script, key=CANARY).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)
    assert [c for s in servers for c in s.complaints] == []


def real(server: OpenAIServer, policy: RetryPolicy = ONCE) -> LangChainLMM:
    uri = parse_uri(f"langchain/openai:tiny-vl?base_url={server.url}")
    return open_langchain(uri, policy=replace(policy, sleep=lambda s: None))


@needs_langchain
def test_a_real_chat_model_judges_in_text_and_natively(
    serve: Callable[..., OpenAIServer], sample: Sample, store: ImageStore
) -> None:
    server = serve(says(LOOK), says(final("Wrong Action")))
    backend = real(server)
    assert backend.uri == f"langchain/openai:tiny-vl?base_url={server.url}"
    assert backend.endpoint == server.url
    finding = judged(backend, sample, store)
    assert (finding.status, finding.label, finding.turns) == ("ok", "Wrong Action", 1)
    first, second = (b["messages"] for b in server.seen)
    assert second[: len(first)] == first
    assert {k: v for k, v in server.seen[0].items() if k not in ("messages", "model")} == {
        "temperature": 0.0,
        "seed": 0,
        "max_completion_tokens": 16384,
        "stream": False,
    }

    asked = {"id": "c0", "type": "function", "function": {"name": "zoom_in", "arguments": json.dumps(ZOOM)}}
    server = serve(says(None, tool_calls=[asked], finish="tool_calls"), says(final("Wrong Action")))
    finding = judged(real(server), sample, store, tool_protocol="native")
    assert (finding.status, finding.label, finding.turns) == ("ok", "Wrong Action", 1)
    assert [m["role"] for m in server.seen[1]["messages"]] == ["user", "assistant", "tool", "user", "user"]


@needs_langchain
def test_a_real_chat_model_fails_by_our_errors_and_shows_no_key(serve: Callable[..., OpenAIServer]) -> None:
    cases: list[tuple[Act, type[BackendError]]] = [
        (fails(429, f"slow down {CANARY}", headers={"Retry-After": "3"}), RateLimited),
        (fails(500, CANARY), Unavailable),
        (fails(401, f"Incorrect API key provided: {CANARY}"), Rejected),
        (fails(400, f"maximum context length {CANARY}", code="context_length_exceeded"), ContextTooLong),
        (fails(429, "no money", code="insufficient_quota"), Rejected),
    ]
    for act, kind in cases:
        server = serve(act)
        with pytest.raises(BackendError) as caught:
            real(server).complete(HELLO, STORE)
        assert type(caught.value) is kind
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        # The SDK's own retries are off.
        assert len(server.seen) == 1
    gone = serve(says("x"))
    url = gone.url
    gone.__exit__(None, None, None)
    backend = open_langchain(parse_uri(f"langchain/openai:tiny-vl?base_url={url}"), policy=ONCE)
    with pytest.raises(Unavailable, match="refused"):
        backend.complete(HELLO, STORE)


WHOLE = json.dumps(completion("whole")).encode()


def ends_mid_body(handler: Any, request: Any) -> None:
    """Promises more than it sends, then closes the connection."""
    handler.start(200, {"Content-Type": "application/json", "Content-Length": "100000"})
    handler.wfile.write(WHOLE[:40])
    handler.close_connection = True


NO_ANSWERS: dict[str, Act] = {
    "cut": sends(WHOLE[:-20]),
    "cut, as text": sends(WHOLE[:-20], content_type="text/plain"),
    "empty": sends(b""),
    "nested": sends(b"[" * 100_000),
    "closed": ends_mid_body,
    "reset": resets_mid_body,
    "no object": sends(b'"hello"'),
    "choices missing": sends(b'{"id": "x"}'),
    "choices empty": sends(b'{"choices": []}'),
    "choices null": sends(b'{"choices": null}'),
    "an error with 200": sends(b'{"error": {"message": "overloaded", "code": 503}}'),
}
BROKEN: dict[str, Act] = {
    "no message": sends(b'{"choices": [{"index": 0, "message": null}]}'),
    "choices of another kind": sends(b'{"choices": {"a": 1}}'),
    "broken off": says("half of", finish="error"),
}


@needs_langchain
@pytest.mark.parametrize("act", [*NO_ANSWERS.values(), *BROKEN.values()], ids=[*NO_ANSWERS, *BROKEN])
def test_no_whole_answer_is_asked_again_with_the_status_that_openai_has(
    serve: Callable[..., OpenAIServer], act: Act
) -> None:
    server = serve(act, act, says("at last"))
    backend = real(server, RetryPolicy(attempts=3))
    assert (backend.complete(HELLO, STORE).text, len(server.seen)) == ("at last", 3)
    server = serve(act)
    plain = open_openai(parse_uri(f"openai/tiny-vl?base_url={server.url}"), policy=ONCE)
    errors = []
    for one in (plain, real(server)):
        with pytest.raises(BackendError) as caught:
            one.complete(HELLO, STORE)
        errors.append((type(caught.value), caught.value.status, caught.value.for_all))
        one.close()
    assert errors[0] == errors[1]
    backend.close()


@needs_langchain
@pytest.mark.parametrize("act", [act for name, act in NO_ANSWERS.items() if name != "an error with 200"])
def test_no_whole_answer_of_a_model_of_ones_own_is_asked_again(serve: Callable[..., OpenAIServer], act: Act) -> None:
    from langchain_openai import ChatOpenAI

    server = serve(act, says("at last"))
    model = ChatOpenAI(model="tiny-vl", base_url=server.url, max_retries=0)
    backend = LangChainLMM(model, policy=RetryPolicy(attempts=2, sleep=lambda s: None))
    assert (backend.complete(HELLO, STORE).text, len(server.seen)) == ("at last", 2)


@needs_langchain
def test_a_real_chat_model_follows_no_redirect(serve: Callable[..., OpenAIServer]) -> None:
    elsewhere = serve(says("from elsewhere"))
    for status in (301, 302, 307, 308):
        away = {"Location": f"{elsewhere.url}/chat/completions?key={CANARY}"}
        server = serve(lambda handler, _, status=status, away=away: handler.answer(status, b"", away))
        backend = real(server, RetryPolicy(attempts=3))
        with pytest.raises(
            Rejected, match=rf"HTTP {status} sends to another address, {elsewhere.url}.* not followed"
        ) as caught:
            backend.complete(HELLO, STORE)
        backend.close()
        assert (caught.value.status, caught.value.for_all, len(server.seen)) == (status, True, 1)
        assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert elsewhere.seen == []


@needs_langchain
def test_a_real_chat_model_is_not_waited_for_beyond_its_time(serve: Callable[..., OpenAIServer]) -> None:
    backend = open_langchain(
        parse_uri(f"langchain/openai:tiny-vl?base_url={serve(trickles).url}&timeout_s=0.3"), policy=ONCE
    )
    with pytest.raises(Unavailable, match=r"no whole answer within 0\.3 s"):
        backend.complete(HELLO, STORE)
    backend.close()


@needs_langchain
def test_a_real_chat_model_drops_what_is_refused(serve: Callable[..., OpenAIServer]) -> None:
    backend = real(serve(declines("temperature")))
    reply = backend.complete(Request(messages=HELLO.messages, sampling=Sampling(seed=3, max_tokens=9)), STORE)
    assert reply.sent == {
        "model": "tiny-vl", "seed": 3, "max_tokens": 9, "dropped": ["temperature"], "attempts": 1,
    }  # fmt: skip
    assert (reply.text, reply.model, reply.usage.input_tokens) == ("fine without", "tiny-vl-0613", 11)


@needs_langchain
def test_what_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        open_langchain(parse_uri("langchain/openai:gpt-4.1"))
    with pytest.raises(ConfigError, match="cannot be made"):
        open_langchain(parse_uri("langchain/nosuch:gpt-4.1"))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    assert open_backend("langchain:openai:gpt-4.1").uri == "langchain/openai:gpt-4.1"
    spelled = "langchain/openai:gpt-4.1?boxes=thousandths_yx&max_image_side=1024&timeout_s=9"
    opened = open_backend(spelled)
    assert opened.uri == "langchain/openai:gpt-4.1?boxes=thousandths_yx&max_image_side=1024"
    assert (opened.traits.boxes, opened.traits.max_image_side) == ("thousandths_yx", 1024)
