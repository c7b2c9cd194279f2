"""The langchain backend: a scripted chat model of LangChain's own making, a real ChatOpenAI against our server."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr, SecretStr

from editloupe import Judge
from editloupe.backends.base import parse_uri
from editloupe.backends.langchain import LangChainLMM, traits_of
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Sampling, ToolCall, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import Sample
from tests.agent.test_loop import judged
from tests.backends.conftest import CANARY, HELLO, STORE, Bench, asks
from tests.backends.openai_server import fails, says
from tests.conftest import LOOK, final, pixels

ONCE = RetryPolicy(attempts=1, patience_s=0, sleep=lambda s: None)
ZOOM = {"target_image": "Edited Image", "bbox": [100, 100, 400, 400]}
TOOL = ToolSpec(name="zoom_in", description="Look closer.", parameters={"type": "object", "properties": {}})
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["A", "B"]}}, "required": ["answer"]}
HELD = replace(HELLO, answer_schema=SCHEMA)


class ScriptedChat(BaseChatModel):
    """Plays answers by the number of assistant messages so far; an exception is raised. It takes a temperature, no seed."""

    script: list[Any]
    model_name: str = "scripted-vl"
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    api_key: SecretStr = SecretStr("")
    refuses: str = ""
    _seen: list[tuple[list[BaseMessage], dict[str, Any]]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "temperature": self.temperature, "effort": self.effort}

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens, **kwargs}
        self._seen.append((messages, options))
        if self.refuses and options.get(self.refuses) not in (None, "auto"):
            raise HTTPishError(400, f"nothing doing: {self.refuses}")
        act = self.script[min(sum(isinstance(m, AIMessage) for m in messages), len(self.script) - 1)]
        if isinstance(act, Exception):
            raise act
        message = act if isinstance(act, AIMessage) else AIMessage(content=act)
        return ChatResult(generations=[ChatGeneration(message=message.model_copy())])


class HTTPishError(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None, body: Any = None) -> None:
        self.status_code, self.body = status, body
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()
        super().__init__(message)


class ThrottlingException(Exception):
    response: ClassVar[Any] = {"ResponseMetadata": {"HTTPStatusCode": 429}}


def lmm(*script: Any, **fields: Any) -> LangChainLMM:
    return LangChainLMM(ScriptedChat(script=list(script), **fields), policy=ONCE)


def called(name: str, arguments: dict[str, Any], **fields: Any) -> AIMessage:
    return AIMessage(content="", tool_calls=[{"name": name, "args": arguments, "id": "c0", "type": "tool_call"}], **fields)


def seen(backend: LangChainLMM) -> list[tuple[list[BaseMessage], dict[str, Any]]]:
    return backend._model._seen  # type: ignore[attr-defined, no-any-return]


def test_what_a_class_has_no_field_for_or_refuses_is_left_off_and_remembered():
    model = ScriptedChat(script=["ok"], temperature=0.7)
    backend = LangChainLMM(model, policy=ONCE)
    asked = replace(HELLO, sampling=Sampling(seed=7, max_tokens=9))
    sent = {"model": "scripted-vl", "temperature": 0.0, "max_tokens": 9, "dropped": ["seed"], "attempts": 1}
    assert backend.complete(asked, STORE).sent == sent
    assert seen(backend)[0][1] == {"temperature": 0.0, "max_tokens": 9} and model.temperature == 0.7
    assert backend.traits.sampling == ("temperature", "max_tokens")
    # LangChain's own way to a schema, for a class that has none: a tool with the schema, that must be called.
    for refused, request, text, dropped in (
        ("temperature", asked, "ok", ["temperature", "seed"]),
        ("tool_choice", HELD, "ok", ["seed", "answer_schema"]),
    ):
        strict = lmm("ok", refuses=refused)
        for calls in (2, 3):
            reply = strict.complete(request, STORE)
            assert (reply.text, reply.sent["dropped"], len(seen(strict))) == (text, dropped, calls)
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    backend = lmm(called("answer", {"answer": "A"}, usage_metadata=usage))
    reply = backend.complete(HELD, STORE)
    assert (json.loads(reply.text), reply.tool_calls, reply.usage.input_tokens) == ({"answer": "A"}, (), 3)
    assert seen(backend)[0][1]["tools"][0]["title"] == "answer" and reply.sent["answer_schema"] == SCHEMA
    forbidden = replace(HELLO, tools=(TOOL,), calls_allowed=False)
    choices = [lmm("ok", refuses=refused).complete(forbidden, STORE).sent["tool_choice"] for refused in ("", "tool_choice")]
    assert choices == ["none", "auto"]


def test_an_answer_is_read_with_thought_usage_names_and_calls():
    message = AIMessage(
        content=[{"type": "reasoning", "reasoning": "I look."}, {"type": "text", "text": "It is red."}],
        usage_metadata={
            "input_tokens": 30, "output_tokens": 5, "total_tokens": 35,
            "input_token_details": {"cache_read": 20}, "output_token_details": {"reasoning": 3},
        },
        tool_calls=[{"name": "zoom_in", "args": {"x": float("nan")}, "id": "c0", "type": "tool_call"}],
        invalid_tool_calls=[{"name": "zoom_in", "args": '{"t', "id": "c1", "error": None, "type": "invalid_tool_call"}],
        response_metadata={"model_name": "vl-2", "finish_reason": "stop"},
    )  # fmt: skip
    reply = lmm(message).complete(HELLO, STORE)
    assert (reply.text, reply.reasoning, reply.model, reply.finish) == ("It is red.", "I look.", "vl-2", "tools")
    assert reply.usage == Usage(input_tokens=30, output_tokens=5, cached_tokens=20, reasoning_tokens=3)
    assert reply.tool_calls == (ToolCall(id="c0", name="zoom_in", arguments={"x": "nan"}),)
    [cut] = reply.malformed_calls
    assert (cut.raw, cut.error.startswith("the arguments are not JSON: Unterminated string")) == ('{"t', True)
    json.dumps(reply.raw)


def test_any_providers_error_is_one_of_ours_and_shows_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", CANARY)
    wrapped = RuntimeError("the chat model failed")
    wrapped.__cause__ = HTTPishError(429, "slow down", {"retry-after": "7"})
    kinds: list[tuple[Exception, type[BackendError], bool]] = [
        (HTTPishError(429, "slow down"), RateLimited, False), (ThrottlingException("too fast"), RateLimited, False),
        (wrapped, RateLimited, False), (HTTPishError(503, "busy"), Unavailable, False),
        (HTTPishError(401, f"bad key {CANARY}"), Rejected, True), (HTTPishError(404, "no such model"), Rejected, True),
        (HTTPishError(429, "no", body={"code": "insufficient_quota"}), Rejected, True),
        (ContextOverflowError("too much"), ContextTooLong, False),
        (HTTPishError(400, "the context is too long"), ContextTooLong, False),
        (TimeoutError("too late"), Unavailable, False), (ConnectionResetError(f"gone {CANARY}"), Unavailable, False),
        (KeyError(CANARY), Rejected, False),
    ]  # fmt: skip
    for error, kind, for_all in kinds:
        with pytest.raises(BackendError) as caught:
            lmm(error).complete(HELLO, STORE)
        assert (type(caught.value), caught.value.for_all) == (kind, for_all), error
        assert "langchain/ScriptedChat:scripted-vl" in str(caught.value)
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        assert caught.value.retry_after_s == (7 if error is wrapped else None)


def test_an_instance_is_known_by_class_model_and_what_identifies_it_and_judges(store: ImageStore):
    sample = Sample.from_images(*pixels(0, spots=1), "Make square 0 red.")
    plain, thinks = lmm("ok"), lmm("ok", effort="high")
    assert plain.uri == "langchain/ScriptedChat:scripted-vl" == lmm("ok", temperature=0.9).uri
    assert thinks.uri.startswith("langchain/ScriptedChat:scripted-vl?params=") and thinks.uri != lmm("ok", effort="low").uri
    assert str(parse_uri(thinks.uri)) == thinks.uri
    model = ScriptedChat(script=[called("zoom_in", {**ZOOM, "bbox": [400, 200, 1000, 700]})], effort="high")
    turned = LangChainLMM(model, name="mine", traits=replace(traits_of(model), boxes="thousandths_yx"), policy=ONCE)
    assert turned.uri == "langchain/mine?boxes=thousandths_yx"
    reply = turned.complete(asks(sample.source, tools=(TOOL,)), store)
    assert reply.tool_calls[0].arguments["bbox"] == [200, 400, 700, 1000]
    assert not LangChainLMM(FakeMessagesListChatModel(responses=[AIMessage("x")])).traits.native_tools
    with pytest.raises(TypeError, match="expected a LangChain chat model"):
        LangChainLMM("openai:gpt-4.1")  # type: ignore[arg-type]
    assert LangChainLMM(model, name="my model").uri == "langchain/my_model"
    assert Judge(lmm(final("Wrong Action")), criteria="if").judge(sample)[0].label == "Wrong Action"


def test_a_real_chat_model_judges_and_negotiates(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, sample: Sample, store: ImageStore
):
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    backend = bench.backend("langchain", says(LOOK), says(final("Wrong Action")), key=CANARY)
    server = bench.server
    assert (backend.uri, backend.endpoint) == (f"langchain/openai:tiny-vl?base_url={server.url}", server.url)
    assert judged(backend, sample, store).label == "Wrong Action"
    assert server.seen[1]["messages"][: len(server.seen[0]["messages"])] == server.seen[0]["messages"]
    options = {name: value for name, value in server.seen[0].items() if name not in ("messages", "model")}
    assert options == {"temperature": 0.0, "seed": 0, "stream": False}
    wired = {"id": "c0", "type": "function", "function": {"name": "zoom_in", "arguments": json.dumps(ZOOM)}}
    script = (says(None, tool_calls=[wired], finish="tool_calls"), says(final("Wrong Action")))
    native = judged(bench.backend("langchain", *script), sample, store, tool_protocol="native")
    assert (native.label, native.turns) == ("Wrong Action", 1)
    assert [m["role"] for m in bench.server.seen[1]["messages"]] == ["user", "assistant", "tool", "user", "user"]
    reply = bench.ask("langchain", fails(400, "temperature is fixed", param="temperature"), says("fine without"))
    assert (reply.text, reply.sent["dropped"], reply.usage.input_tokens) == ("fine without", ["temperature"], 11)
    assert ["temperature" in body for body in bench.server.seen] == [True, False]
    reply = bench.ask("langchain", says('{"answer": "B"}'), request=HELD)
    assert json.loads(reply.text) == {"answer": "B"} and reply.usage.output_tokens
    form = {"name": "answer", "strict": True, "schema": {**SCHEMA, "additionalProperties": False}}
    assert bench.server.seen[0]["response_format"] == {"type": "json_schema", "json_schema": form}


def test_a_real_chat_model_fails_by_our_errors_and_shows_no_key(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    for act, kind in ((fails(429, f"slow down {CANARY}"), RateLimited), (fails(500, CANARY), Unavailable)):
        backend = bench.backend("langchain", act)
        with pytest.raises(kind) as caught:
            backend.complete(HELLO, STORE)
        # The SDK's own retries are off.
        assert len(bench.server.seen) == 1
        assert CANARY not in "".join(traceback.format_exception(caught.value))
    bench.server.__exit__(None, None, None)
    with pytest.raises(Unavailable, match="refused"):
        backend.complete(HELLO, STORE)
