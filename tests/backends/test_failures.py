"""Each failure of an endpoint becomes one of our errors within the time-out, says what to do, and shows no key."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from editloupe.backends import transport
from editloupe.backends.retry import RetryPolicy
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from tests.backends import gemini_server, openai_server
from tests.backends.conftest import CANARY, HELLO, STORE, Bench, everything
from tests.backends.gemini_server import retry_info
from tests.backends.loopback import Act, hangs, resets_mid_body, sends, trickles

Rows = list[tuple[Act, type[BackendError], str]]
LIMITS = "The input token count (1054016) exceeds the maximum number of tokens allowed (1048576)."
PER_DAY = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]}
PAGE = f"<html>{CANARY}</html>".encode()
SLOW = "within 0.5 s"


def of_both(fails: Callable[..., Act], says: Callable[..., Act]) -> Rows:
    """What either protocol shares. fails, says: how its server does it."""
    return [
        (fails(503, f"overloaded {CANARY}"), Unavailable, "HTTP 503, overloaded ***"),
        (fails(400, f"bad field {CANARY}"), Rejected, "HTTP 400, bad field"),
        (fails(403, "not yours"), Rejected, "check the key in environment variable MY_VARIABLE"),
        (sends(b'{"error": {"message": "upstream", "code": 429}}'), RateLimited, "upstream"),
        (sends(b"[" * 100_000), Unavailable, "is not whole JSON"),
        (sends(b"[]"), Unavailable, "expected a JSON object"),
        (resets_mid_body, Unavailable, "the connection failed"),
        (hangs, Unavailable, SLOW),
        (trickles, Unavailable, SLOW),
        (says("x" * 200_000), Rejected, "longer than 150,000 bytes"),
    ]


OPENAI: Rows = [
    (sends(b'{"detail": "Not Found"}', status=404), Rejected, "Not Found"),
    (sends(b"Bad Gateway", status=502, content_type="text/plain"), Unavailable, "Bad Gateway"),
    (sends(b'{"a":' * 700 + b"1" + b"}" * 700, status=400), Rejected, "HTTP 400"),
    (sends(b"<html>hello</html>", content_type="text/html"), Rejected, "mostly ends in /v1"),
    (openai_server.says("half", finish="abort"), Unavailable, "broke the answer off"),
]
GOOGLE: Rows = [
    (gemini_server.fails(429, f"slow {CANARY}", retry_info("17.5s")), RateLimited, "HTTP 429, slow"),
    (gemini_server.fails(429, "used up", PER_DAY, retry_info("9s")), Rejected, "check the account"),
    (gemini_server.fails(404, "no such model"), Rejected, "check the model's name"),
    (gemini_server.fails(400, LIMITS), ContextTooLong, "1048576"),
    (sends(b'[{"error": {"message": "listed", "code": 500}}]', status=500), Unavailable, "HTTP 500, listed"),
    (sends(PAGE, status=404, content_type="text/html"), Rejected, "without that path"),
    (sends(json.dumps(gemini_server.answer({"text": CANARY})).encode()[:-20]), Unavailable, "is not whole JSON"),
    (sends(b'{"candidates": []}'), Unavailable, "without a candidate"),
]


@pytest.mark.parametrize(("provider", "own"), [("openai", OPENAI), ("google", GOOGLE)])
def test_each_failure_becomes_one_of_our_errors_and_shows_no_key(
    provider: str, own: Rows, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider == "google":
        pytest.importorskip("google.genai", reason="the extra 'google' is not installed")
    monkeypatch.setenv("MY_VARIABLE", CANARY)
    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", 150_000)
    server: Any = gemini_server if provider == "google" else openai_server
    for act, kind, words in (*of_both(server.fails, server.says), *own):
        late = "&timeout_s=0.5" if words == SLOW else ""
        backend = bench.backend(provider, act, query=f"&env=MY_VARIABLE{late}", key=CANARY)
        began = time.monotonic()
        with pytest.raises(BackendError) as caught:
            backend.complete(HELLO, STORE)
        assert type(caught.value) is kind and words in str(caught.value), words
        assert time.monotonic() - began < 15, words
        assert f"{bench.server.url}, model '{bench.server.model}'" in str(caught.value), words
        assert (caught.value.retry_after_s == 17.5) == ("slow" in words)
        assert CANARY not in everything(caught.value) + str(vars(backend)) + repr(backend), words


def redirects(status: int, to: str) -> Act:
    return lambda handler, request: handler.answer(status, b"", {"Location": to})


@pytest.mark.parametrize("provider", ["openai", "google", "langchain"])
def test_a_redirect_is_not_followed(provider: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"google": "google.genai", "langchain": "langchain_openai"}.get(provider, "json")
    pytest.importorskip(package, reason=f"{package} is not installed")
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, CANARY)
    other = bench.serve("openai", openai_server.says("I am another server"))
    for status in (301, 302, 307, 308):
        act = redirects(status, f"{other.url}/chat/completions")
        with pytest.raises(Rejected, match=f"{status}.*{other.url}"):
            bench.ask(provider, act, policy=RetryPolicy(attempts=3))
        assert (len(bench.server.seen), other.seen) == (1, [])
