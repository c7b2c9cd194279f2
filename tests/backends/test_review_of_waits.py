"""What must not end a run, and what must not be asked without end: a clock that is not waited for."""

from __future__ import annotations

import time
from email.utils import formatdate
from unittest.mock import Mock

import pytest

from editloupe.backends import openai
from editloupe.backends.base import parse_uri
from editloupe.backends.failures import said, wait_in
from editloupe.backends.limits import ConnectionLimit
from editloupe.backends.retry import RetryPolicy, call
from editloupe.chat import Message, Request, Sampling
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, RateLimited, Unavailable
from tests.backends.loopback import Act, sends
from tests.backends.openai_server import OpenAIServer, fails, says

HELLO = Request(messages=(Message.of_text("user", "hello"),), sampling=Sampling(max_tokens=500))
STORE, AT_ONCE = ImageStore(), RetryPolicy(sleep=lambda seconds: None)
PASSED = formatdate(time.time() - 60, usegmt=True)
NOTHING: list[dict[str, str]] = [{"Retry-After": "0"}, {"Retry-After": PASSED}, {"x-ratelimit-reset-requests": "1ms"}]
PAGE = sends(b"<html>one moment</html>", content_type="text/html")


def opened(server: OpenAIServer, policy: RetryPolicy = AT_ONCE) -> openai.OpenAIBackend:
    return openai.open_backend(parse_uri(f"openai/tiny-vl?base_url={server.url}"), policy=policy)


@pytest.mark.parametrize("headers", NOTHING)
def test_a_wait_of_nothing_is_no_leave_to_ask_without_end(headers: dict[str, str]) -> None:
    slept: list[float] = []
    with OpenAIServer(fails(429, headers=headers)) as server, pytest.raises(RateLimited, match="patience is 60 s"):
        opened(server, RetryPolicy(patience_s=60, sleep=slept.append)).complete(HELLO, STORE)
    assert 4 <= len(server.seen) <= 30 and max(slept) > 2


def test_a_trouble_ends_with_the_last_who_asks() -> None:
    limit, policy = ConnectionLimit(), RetryPolicy(attempts=2, patience_s=60, sleep=lambda seconds: None)
    failures: list[BackendError] = [Unavailable("half"), Unavailable("half"), RateLimited("slow", retry_after_s=1)]

    def fn() -> str:
        if failures:
            raise failures.pop(0)
        return "here"

    with pytest.raises(Unavailable, match="gave up after 2 attempts"):
        call(fn, policy=policy, limit=limit)
    policy.wait(3600)
    assert call(fn, policy=policy, limit=limit) == ("here", 2), "an hour later the trouble is no longer one"


@pytest.mark.parametrize("lost", [fails(404), fails(302, headers={"Location": "http://127.0.0.1:9/sorry"}), PAGE])
def test_once_answered_one_lost_page_ends_nothing(lost: Act) -> None:
    with OpenAIServer(says("one"), lost, says("two"), lost) as server:
        backend = opened(server)
        assert [backend.complete(HELLO, STORE).text for _ in range(2)] == ["one", "two"]
        with pytest.raises(Unavailable, match="gave up after 5 attempts") as caught:
            backend.complete(HELLO, STORE)
        assert not caught.value.for_all


def test_one_long_conversation_takes_the_bound_from_no_other() -> None:
    full = "the maximum context length is 8192 tokens; 9000 were asked for (8500 in messages, 500 as max_tokens)"
    with OpenAIServer(fails(400, full), says("one"), says("two")) as server:
        backend = opened(server)
        assert backend.complete(HELLO, STORE).sent["dropped"] == ["max_tokens"]
        assert "dropped" not in backend.complete(HELLO, STORE).sent
    assert [body.get("max_tokens") for body in server.seen] == [500, None, 500]


def test_the_list_of_models_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Mock(return_value={})
    monkeypatch.setattr(openai.OpenAIBackend, "_listed", listed)
    with OpenAIServer(fails(503)) as server:
        backend = opened(server, RetryPolicy(patience_s=0))
        for _ in range(3):
            with pytest.raises(Unavailable):
                backend.complete(HELLO, STORE)
    assert (len(server.seen), listed.call_count) == (3, 1)


@pytest.mark.parametrize(("text", "whole_s", "cut_s"), [("1 s " * 100_000, 100_000, 1000), ("1" * 400_000, None, None)])
def test_a_long_text_is_read_in_no_time(text: str, whole_s: float | None, cut_s: float | None) -> None:
    began = time.process_time()
    assert (wait_in(text), said(429, {"error": {"message": text}}, {}).wait_s) == (whole_s, cut_s)
    assert time.process_time() - began < 5
