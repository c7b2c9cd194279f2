"""`check_backend`: every adapter here passes, and what breaks the contract is named."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.base import open_backend, parse_uri
from editloupe.backends.langchain import LangChainLMM, traits_of
from editloupe.backends.openai import open_backend as open_openai
from editloupe.backends.recorded import open_backend as open_recorded
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.scripted import ScriptedLMM
from editloupe.backends.vllm import open_backend as open_vllm
from editloupe.chat import Reply, Request, Token, Usage
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import Unavailable
from editloupe.testing import check_backend
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.backends.test_langchain import CANARY, HTTPishError, ScriptedChat
from tests.conftest import final
from tests.setups import open_with, run_over

ONCE = RetryPolicy(attempts=1)


def test_the_baseline_and_a_script_keep_the_contract() -> None:
    check_backend(lambda: open_backend("baseline"))
    check_backend(ScriptedLMM(lambda request: "Green", native_tools=True))


@pytest.mark.parametrize(("open_", "name", "status"), [(open_openai, "openai", 401), (open_vllm, "vllm", 500)])
def test_chat_completions_keep_the_contract(open_: Any, name: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{name.upper()}_API_KEY", CANARY)
    asked = {"id": "c0", "type": "function", "function": {"name": "zoom_in", "arguments": '{"target_image": "A"}'}}

    def answers(handler: Any, body: Any) -> None:
        offered = body.get("tools") and body["messages"][-1]["role"] == "user" and len(body["messages"]) == 1
        told = '{"colour": "Green"}' if "response_format" in body else f"a square, {CANARY}"
        (says(None, tool_calls=[asked], finish="tool_calls") if offered else says(told))(handler, body)

    vllm = name == "vllm"
    with OpenAIServer(answers, key=CANARY, vllm=vllm) as server, OpenAIServer(fails(status, CANARY), vllm=vllm) as broken:
        failing = open_(parse_uri(f"{name}/tiny-vl?base_url={broken.url}"), policy=ONCE)
        uri = parse_uri(f"{name}/tiny-vl?base_url={server.url}&max_image_side=200")
        reply = check_backend(lambda: open_(uri, policy=ONCE), failing=failing, secrets=[CANARY])
        failing.close()
    assert (server.complaints, reply.text) == ([], "a square, ***")


@pytest.mark.skipif(importlib.util.find_spec("google.genai") is None, reason="the extra 'google' is not installed")
def test_google_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    from editloupe.backends.google import open_backend as open_google
    from tests.backends import gemini_server
    from tests.backends.gemini_server import GeminiServer

    monkeypatch.setenv("GOOGLE_API_KEY", CANARY)
    zoom = gemini_server.call("zoom_in", signature="c2lnbmF0dXJl", target_image="Edited Image")

    def answers(handler: Any, body: Any) -> None:
        if body.get("tools") and len(body["contents"]) == 1:
            gemini_server.says(zoom)(handler, body)
        elif "responseJsonSchema" in body["generationConfig"]:
            gemini_server.says('{"colour": "Green"}')(handler, body)
        else:
            gemini_server.says(f"a square, {CANARY}")(handler, body)

    fault = gemini_server.fails(400, f"API key not valid: {CANARY}")
    with GeminiServer(answers, key=CANARY) as server, GeminiServer(fault) as broken:
        failing = open_google(parse_uri(f"google/tiny-gemini?base_url={broken.url}"), policy=ONCE)
        reply = check_backend(
            lambda: open_google(parse_uri(f"google/tiny-gemini?base_url={server.url}"), policy=ONCE),
            failing=failing,
            secrets=[CANARY],
        )
        failing.close()
    assert (server.complaints, reply.text) == ([], "a square, ***")


def test_langchain_keeps_the_contract() -> None:
    model = ScriptedChat(script=[f"a square, {CANARY}"], api_key=CANARY)
    check_backend(
        # It keeps to no schema, whatever it is asked for.
        lambda: LangChainLMM(model, traits=replace(traits_of(model), constrains_schema=False)),
        failing=LangChainLMM(ScriptedChat(script=[HTTPishError(500, CANARY)], api_key=CANARY), policy=ONCE),
        secrets=[CANARY],
    )


@pytest.mark.skipif(
    importlib.util.find_spec("langchain") is None or importlib.util.find_spec("langchain_openai") is None,
    reason="langchain and langchain-openai are not installed (pip install langchain langchain-openai)",
)
def test_langchains_own_openai_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    from editloupe.backends.langchain import open_backend as open_langchain

    monkeypatch.setenv("OPENAI_API_KEY", CANARY)

    def answers(handler: Any, body: Any) -> None:
        says('{"colour": "Green"}' if "response_format" in body else "a square")(handler, body)

    with OpenAIServer(answers, key=CANARY) as server, OpenAIServer(fails(500, CANARY)) as broken:
        check_backend(
            open_langchain(parse_uri(f"langchain/openai:tiny-vl?base_url={server.url}"), policy=ONCE),
            failing=open_langchain(parse_uri(f"langchain/openai:tiny-vl?base_url={broken.url}"), policy=ONCE),
            secrets=[CANARY],
        )
    assert server.complaints == []


def test_a_recording_keeps_the_contract_for_what_it_holds(edits: Callable[..., Path], tmp_path: Path) -> None:
    live = ScriptedLMM([final("Wrong Action")])
    setup = open_with(backend=live, criteria=("if",))
    run_over(setup, edits(1), tmp_path / "run", config={})
    images = ImageStore(tmp_path / "run" / "blobs")
    uri = parse_uri(f"recorded/{tmp_path / 'run'}")
    check_backend(lambda: open_recorded(uri), request=live.requests[0], images=images)
    with pytest.raises(AssertionError, match="did not answer: NotRecorded"):
        check_backend(open_recorded(uri))


class Broken(ScriptedLMM):
    """An LMM with one fault, which `complete_` puts in."""

    def __init__(self, fault: Callable[[Request, ImageStore], Reply], **traits: Any) -> None:
        super().__init__(["ok"])
        self._fault = fault
        self.traits = replace(self.traits, **traits)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        return self._fault(request, images)


def once_at_a_time() -> Callable[[Request, ImageStore], Reply]:
    lock, together = threading.Lock(), threading.Barrier(2, timeout=1)
    calls: list[int] = []

    def fault(request: Request, images: ImageStore) -> Reply:
        calls.append(1)
        if len(calls) == 1:
            return Reply(text="ok")
        try:
            together.wait()
        except threading.BrokenBarrierError:
            return Reply(text="ok")
        if not lock.acquire(blocking=False):
            raise RuntimeError("two at once")
        return Reply(text="ok")

    return fault


def takes_gifs(request: Request, images: ImageStore) -> Reply:
    for part in request.messages[0].images:
        images.encoded(part.image, ImagePolicy(formats=("image/png", "image/gif")))
    return Reply(text="ok")


def silent_about_the_schema(request: Request, images: ImageStore) -> Reply:
    sampling = {n: v for n, v in request.sampling.to_json().items() if v is not None}
    return Reply(text="ok", sent={"model": "m", **sampling})


def spelling(text: str, *top: float) -> Callable[[Request, ImageStore], Reply]:
    tokens = (Token(text=text, logprob=-1, top=tuple(("ok", value) for value in top)),)
    return lambda request, images: Reply(text="ok", tokens=tokens)


def boom(request: Request, images: ImageStore) -> Reply:
    raise KeyError("choices")


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (Broken(lambda r, i: "ok"), "must return a Reply, found str"),  # type: ignore[arg-type, return-value]
        (Broken(lambda r, i: Reply(text="ok", raw={"x": float("nan")})), "cannot be written to a trace"),
        (Broken(lambda r, i: Reply(text="ok", finish="done")), "reply.finish must be one of"),  # type: ignore[arg-type]
        (Broken(lambda r, i: Reply(text="ok", usage=Usage(input_tokens=-1))), "usage.input_tokens must be a count"),
        (Broken(lambda r, i: Reply(text="ok"), is_lmm=True), "must name the model"),
        (Broken(lambda r, i: Reply(text="ok", sent={"model": "m"}), is_lmm=True), "temperature was asked for"),
        (Broken(lambda r, i: Reply(text=CANARY)), "its reply shows a secret"),
        (Broken(lambda r, i: Reply(text="ok"), constrains_schema=True), "expected JSON by the schema, found 'ok'"),
        (Broken(spelling("an"), gives_logprobs=True), "the tokens 'an' do not hold the reply's text"),
        (Broken(spelling("ok", 0.5), gives_logprobs=True), "at most 0, found 0.5"),
        (Broken(silent_about_the_schema, is_lmm=True), r"a schema was asked for.*sent\['dropped'\] must name it"),
        (Broken(lambda r, i: Reply(text="ok"), image_formats=("image/jpeg",)), "must have image/png"),
        (Broken(lambda r, i: Reply(text="ok"), sampling=("heat",)), r"traits.sampling names \['heat'\]"),
        (Broken(takes_gifs), r"took images as \['image/gif'\]"),
        (Broken(boom), "did not answer: KeyError"),
        (Broken(once_at_a_time()), "did not answer: RuntimeError"),
        (ScriptedLMM(["ok"], name=f"x{CANARY}"), "uri shows a secret"),
        (ScriptedLMM(["ok"], name="x?b=1&a=2"), "must be canonical"),
        (ScriptedLMM(["ok"], name="x?api_key=1"), "its uri is none"),
    ],
)  # fmt: skip
def test_a_broken_backend_is_named_with_its_fault(backend: ScriptedLMM, message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check_backend(backend, secrets=[CANARY])
    assert CANARY not in str(caught.value)


def test_a_failing_endpoint_raises_our_errors_only() -> None:
    fine = ScriptedLMM(["ok"])
    check_backend(fine, failing=ScriptedLMM(lambda r: Unavailable("gone")))
    with pytest.raises(AssertionError, match="must raise BackendError, found KeyError"):
        check_backend(fine, failing=Broken(boom))
    with pytest.raises(AssertionError, match="shows a secret"):
        check_backend(fine, failing=ScriptedLMM(lambda r: Unavailable(CANARY)), secrets=[CANARY])
    with pytest.raises(AssertionError, match="did not fail"):
        check_backend(fine, failing=ScriptedLMM(["ok"]))
