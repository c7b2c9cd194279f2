"""Each failure of an endpoint becomes one of our errors within the time-out, says what to do, and shows no key: one that a
server echoes is taken out in every spelling, and nothing else is."""

from __future__ import annotations

import base64
import html
import json
import re
import time
import traceback
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from langchain_core.messages import AIMessage

from editloupe.backends import transport
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Message, Request
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from tests.backends import gemini_server, openai_server
from tests.backends.conftest import CANARY, HELLO, STORE, Bench, everything
from tests.backends.gemini_server import retry_info
from tests.backends.loopback import Act, hangs, resets_mid_body, sends, trickles
from tests.backends.openai_server import fails, says
from tests.backends.test_langchain import HTTPishError, lmm

Rows = list[tuple[Act, type[BackendError], str]]
LIMITS = "The input token count (1054016) exceeds the maximum number of tokens allowed (1048576)."
PER_DAY = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]}
PAGE = f"<html>{CANARY}</html>".encode()
SLOW = "within 0.2 s"


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
        late = "&timeout_s=0.2" if words == SLOW else ""
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


KEY = "sk-Zz/c+4=~5ea5e11e5?7f3d"
SAID = Request(messages=(*HELLO.messages, Message.of_text("assistant", "hello")))


def in_base64(before: str, behind: str = "", encode: Callable[[bytes], bytes] = base64.b64encode) -> str:
    return encode(f"{before}{KEY}{behind}".encode()).decode()


SPELT = {
    "percent": quote(KEY, safe=""),
    "percent, every character": "".join(f"%{ord(c):02x}" for c in KEY),
    "percent twice": quote(quote(KEY, safe=""), safe=""),
    "base64": in_base64(""),
    "base64 of user:key": in_base64("user:"),
    "base64, URL-safe": in_base64("a?", "?", base64.urlsafe_b64encode),
    "base64 in percent": quote(in_base64("a"), safe=""),
    "JSON": KEY.replace("/", "\\/"),
    "JSON, every character": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "HTML, some characters": KEY.replace("/", "&sol;").replace("-", "&#x2D;").replace("=", "&equals;"),
    "HTML in HTML": "".join(f"&amp;#{ord(c)};" for c in KEY),
    "a zero-width space behind each character": "".join(f"{c}\u200b" for c in KEY)[:-1],
    "zero-width spaces in escapes": "".join(f"{c}\\u200b&#8203;" for c in KEY[:-1]) + KEY[-1],
    "base64 in lines": "\r\n".join(re.findall(".{1,10}", in_base64(""))),
}


def readings(text: str) -> list[str]:
    """The text, also as a page shows it, and the bytes behind each of its base64 words."""
    shown = html.unescape(html.unescape(text))
    found = [text, "".join(c for c in shown if unicodedata.category(c) not in ("Cc", "Cf"))]
    for word in "".join(c if c.isalnum() or c in "+/-_" else " " for c in text).split():
        data = word.replace("-", "+").replace("_", "/").encode()
        found += [base64.b64decode(data[: len(data) // 4 * 4]).decode("latin-1")]
    return found


def test_no_spelling_of_the_key_is_in_a_reply_or_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name, spelt in SPELT.items():
        words, failure = f"asked with {spelt}, thanks", f"no {spelt} here"
        echo = says(words, usage={"note": [spelt]})
        call = {"name": spelt, "id": spelt, "args": {spelt: spelt}, "type": "tool_call"}
        message = AIMessage(content=words, tool_calls=[call], additional_kwargs={"echo": spelt})
        for backend in (
            bench.backend("openai", echo, fails(500, failure), key=KEY),
            lmm(message, HTTPishError(500, failure), api_key=KEY),
        ):
            reply = backend.complete(HELLO, STORE)
            with pytest.raises(BackendError) as caught:
                backend.complete(SAID, STORE)
            # The key alone is replaced where it stands as it is; a text that spells it in escapes is as a whole.
            assert reply.text == "***" or (reply.text[:11], reply.text[-8:]) == ("asked with ", ", thanks"), name
            cause = getattr(caught.value.__cause__, "__dict__", "")
            for text in (json.dumps(reply.to_json()), f"{''.join(traceback.format_exception(caught.value))} {cause}"):
                assert "***" in text and spelt not in text, name
                assert not any(part in reading for reading in readings(text) for part in (KEY, KEY[4:-4])), name
