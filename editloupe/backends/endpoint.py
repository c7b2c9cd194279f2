"""Where a backend answers, as a URI's parameters say it: address, key, time-out. Shared by all that speak HTTP."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from editloupe.errors import ConfigError

DEFAULT_TIMEOUT_S: Final = 120.0

_SHORTEST_SECRET = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a translation must know of the endpoint.

    where: the head of every message ("https://…/v1, model 'm'").   timeout_s, connect_s: of one attempt, and of its
    connection.   key_hint: what to do where the key is refused.   scrub: takes the key out of a text.   hints: (pattern of
    what the server says when it refuses, what to do about it).
    """

    where: str
    timeout_s: float
    connect_s: float
    key_hint: str
    scrub: Callable[[str], str]
    hints: tuple[tuple[re.Pattern[str], str], ...] = ()


class Key:
    """A key that does not show itself: `scrub` takes it out of texts, repr hides it.

    value: "" where no key is sent.   hint: what to do where the endpoint refuses it.
    """

    def __init__(self, value: str, hint: str) -> None:
        self.value, self.hint = value, hint

    def __repr__(self) -> str:
        return "<key>" if self.value else "<no key>"

    def scrub(self, text: str) -> str:
        return text.replace(self.value, "***") if len(self.value) >= _SHORTEST_SECRET else text


def key_of(variable: str, wanted: str, *, needed: bool) -> Key:
    """The key in a variable. wanted: says for what, where it is missing.

    Raises ConfigError where it is needed and missing, or cannot be a key.
    """
    if variable == "none":
        return Key("", "no key was sent (env=none); name the variable that holds it with ?env=NAME")
    if not variable.isidentifier():
        # It may be the key itself, so it is not repeated.
        raise ConfigError("env names the environment variable that holds the key, such as env=MY_KEY; it is not the key")
    value = os.environ.get(variable, "").strip()
    if value:
        # The HTTP library's own complaint about such a header would show the key.
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ConfigError(f"the key in environment variable {variable} holds blanks or characters that are not ASCII")
        return Key(value, f"check the key in environment variable {variable}")
    if not needed:
        return Key("", f"no key was sent; set environment variable {variable}, or name another with ?env=NAME")
    raise ConfigError(
        f"{wanted}: set environment variable {variable}, or name the variable that holds it with ?env=NAME "
        "(?env=none where the server asks for none)"
    )


def checked_base_url(text: str, *, example: str = "http://HOST:PORT/v1 or https://HOST/v1") -> str:
    """The URL without its last slash. The message does not repeat it where it may hold a password."""
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname, url.port
    except ValueError as error:
        raise ConfigError(f"base_url cannot be read as a URL: {error}") from None
    if "@" in text:
        raise ConfigError("base_url holds credentials; keys come from the environment (?env=NAME), never from a URL")
    if url.scheme not in ("http", "https") or not host or port == 0 or not text.isprintable():
        raise ConfigError(f"base_url {text!r}: expected {example}")
    if url.query or url.fragment:
        raise ConfigError("base_url has a query or a fragment; expected scheme, host and path only")
    return url.geturl().rstrip("/")


def checked_timeout(text: str | None) -> float:
    """The seconds of a URI's `timeout_s`, DEFAULT_TIMEOUT_S where there is none. Raises ConfigError."""
    if text is None:
        return DEFAULT_TIMEOUT_S
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise ConfigError(f"timeout_s={text!r}: expected a number of seconds above 0")
    return value


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
