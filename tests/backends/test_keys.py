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

from editloupe.chat import Message, Request
from editloupe.errors import BackendError
from tests.backends.conftest import HELLO, STORE, Bench
from tests.backends.openai_server import fails, says
from tests.backends.test_langchain import HTTPishError, lmm

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


def test_words_in_escapes_that_are_no_key_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    words = "R&amp;D, 5 &lt; 6 &#8203;&copy; a\u200bb\n"
    words += f"100%25 sure: C:\\u0041 \\/ {quote(KEY[:-1], safe='')} {base64.b64encode(KEY[1:].encode()).decode()[:20]}"
    assert bench.ask("openai", says(words), key=KEY).text == words
