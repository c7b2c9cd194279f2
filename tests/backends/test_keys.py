"""A key that a server echoes is taken out in every spelling, and nothing else is."""

from __future__ import annotations

import base64
import html
import json
import re
import traceback
import unicodedata
from collections.abc import Callable
from urllib.parse import quote

import pytest
from langchain_core.messages import AIMessage

from editloupe.backends.base import parse_uri
from editloupe.backends.langchain import LangChainLMM
from editloupe.backends.openai import open_backend
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Message, Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.backends.test_langchain import HTTPishError, ScriptedChat

KEY = "sk-Zz/c+4=~5ea5e11e5?7f3d"
ONCE = RetryPolicy(attempts=1)
HELLO = Request(messages=(Message.of_text("user", "hello"),))


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


def holds_no_key(text: str) -> bool:
    return not any(part in reading for reading in readings(text) for part in (KEY, KEY[4:-4]))


def test_no_spelling_of_the_key_is_in_a_reply_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name, spelt in SPELT.items():
        echo = says(f"asked with {spelt}, thanks", usage={"note": [spelt]})
        with OpenAIServer(echo, fails(500, f"no {spelt} here"), key=KEY) as server:
            backend = open_backend(parse_uri(f"openai/tiny-vl?base_url={server.url}"), policy=ONCE)
            reply = backend.complete(HELLO, ImageStore())
            with pytest.raises(BackendError) as caught:
                backend.complete(HELLO, ImageStore())
            backend.close()
        check(name, spelt, reply, "".join(traceback.format_exception(caught.value)) + str(vars(caught.value.__cause__)))


def test_no_spelling_of_the_key_comes_through_langchain() -> None:
    def lmm(answer: object) -> LangChainLMM:
        return LangChainLMM(ScriptedChat(script=[answer], api_key=KEY), policy=ONCE)

    for name, spelt in SPELT.items():
        call = {"name": spelt, "id": spelt, "args": {spelt: spelt}, "type": "tool_call"}
        words = f"asked with {spelt}, thanks"
        message = AIMessage(content=words, tool_calls=[call], additional_kwargs={"echo": spelt})
        reply = lmm(message).complete(HELLO, ImageStore())
        with pytest.raises(BackendError) as caught:
            lmm(HTTPishError(500, f"no {spelt} here")).complete(HELLO, ImageStore())
        check(name, spelt, reply, "".join(traceback.format_exception(caught.value)))


def check(name: str, spelt: str, reply: Reply, shown: str) -> None:
    """The key alone is replaced where it stands as it is; a text that spells it in escapes is as a whole."""
    assert reply.text == "***" or (reply.text[:11], reply.text[-8:]) == ("asked with ", ", thanks"), name
    for text in (json.dumps(reply.to_json()), shown):
        assert "***" in text, name
        assert spelt not in text and holds_no_key(text), name


def test_words_in_escapes_that_are_no_key_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    words = "R&amp;D, 5 &lt; 6 &#8203;&copy; a\u200bb\n"
    words += f"100%25 sure: C:\\u0041 \\/ {quote(KEY[:-1], safe='')} {base64.b64encode(KEY[1:].encode()).decode()[:20]}"
    with OpenAIServer(says(words), key=KEY) as server:
        backend = open_backend(parse_uri(f"openai/tiny-vl?base_url={server.url}"), policy=ONCE)
        assert backend.complete(HELLO, ImageStore()).text == words
        backend.close()
