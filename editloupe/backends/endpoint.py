"""Where a backend answers, as a URI's parameters say it: address, key, time-out. Shared by all that speak HTTP."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI, Replies, Traits, check_parameters, replies_of
from editloupe.backends.keys import scrub
from editloupe.errors import ConfigError, Rejected, Unavailable

DEFAULT_TIMEOUT_S: Final = 120.0
MOST_TIMEOUT_S: Final = 86_400
"""A day; far longer ones are more than a socket takes."""
CONNECT_TIMEOUT_S: Final = 10.0
LOOK_S: Final = 5.0
"""To connect in the look before a run."""
MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""
SMALLEST_SIDE_PX: Final = 64
"""A smaller `max_image_side` is a mistake: nothing of an edit would be visible."""
TOO_LONG_ADVICE: Final = (
    "the conversation does not fit: lower --max-turns, reduce images with ?max_image_side=PX, or take a longer context"
)
UNREACHABLE_ADVICE: Final = "check the address, and that a server answers there"

NO_VISION: Final = (
    # OpenAI's words, vLLM's, those of gateways, of servers that read text only, and Gemini's.
    re.compile(
        r"image_url is only supported|not a multimodal model|not support (multimodal|image)|support image input"
        r"|image input (is not|modality is not)|unknown variant `image_url`|content must be a string",
        re.IGNORECASE,
    ),
    "the model takes no images: name one that does, such as Qwen/Qwen3-VL-8B-Instruct (editloupe backends probe asks it)",
)
"""How servers say that a model takes no images, and what to do about it."""
PARAMETERS: Final = ("base_url", "boxes", "env", "max_image_side", "replies", "timeout_s")
EXAMPLE: Final = "http://HOST:PORT/v1 or https://HOST/v1"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A URI's parameters, checked."""

    base_url: str | None
    boxes: str
    """How the model writes boxes."""
    env: str | None
    """The environment variable that holds the key, or "none"."""
    max_image_side: int | None
    """Longest side in px; None for no limit."""
    replies: Replies
    """Whether the model answers between tags, or alone."""
    timeout_s: float
    """Seconds of one attempt."""


def read_parameters(uri: BackendURI, *, known: Sequence[str] = PARAMETERS, example: str = EXAMPLE) -> Parameters:
    """Check a URI's parameters. example: of a base_url, for messages.   Raises ConfigError, also for an unknown one."""
    check_parameters(uri, known)
    params = uri.params
    return Parameters(
        base_url=_base_url(params["base_url"], example) if "base_url" in params else None,
        boxes=boxes.checked(params.get("boxes", boxes.DEFAULT)),
        env=params.get("env"),
        max_image_side=max_image_side(uri),
        replies=replies_of(uri),
        timeout_s=_seconds(params.get("timeout_s", str(DEFAULT_TIMEOUT_S))),
    )


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Where a provider answers, and what its models can do."""

    traits: Traits
    """`describes` stands behind the model's name, and may hold {place}."""
    base_url: str
    """Where it answers unless the URI says so."""
    base_url_variable: str | None = None
    """An environment variable that stands above `base_url`."""
    example: str = EXAMPLE
    """Of a base_url, for messages."""
    key_variables: tuple[str, ...]
    """Environment variables that may hold the key, in this order, unless the URI's `env` names one."""
    key_needed: bool = True
    """Whether an address that is not this machine's needs a key."""
    hints: tuple[tuple[re.Pattern[str], str], ...] = ()
    """(pattern of what the server says when it refuses, what to do about it)."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(Parameters):
    """A backend's URI, read."""

    provider: Provider
    uri: BackendURI
    """Provider, model, and base_url where it is a part of the judge's identity."""
    url: str
    """Where requests go."""
    place: str
    """What is shown and recorded as the endpoint."""
    key: str = field(repr=False)
    """The key; "" where none is sent."""
    key_hint: str
    """What to do where the key is refused."""

    @property
    def traits(self) -> Traits:
        """What the model can do."""
        describes = f"{self.uri.model} {self.provider.traits.describes.format(place=self.place)}"
        bare = self.replies == "bare"
        return replace(
            self.provider.traits,
            describes=describes,
            boxes=self.boxes,
            max_image_side=self.max_image_side,
            bare_replies=bare,
        )

    @property
    def where(self) -> str:
        """The head of every message, such as "https://…/v1, model 'm'"."""
        return f"{self.url}, model {self.uri.model!r}"

    @property
    def connect_s(self) -> float:
        """Seconds to connect, within `timeout_s`."""
        return min(CONNECT_TIMEOUT_S, self.timeout_s)

    def scrub(self, text: str) -> str:
        """Take the key out of a text, however it is spelt there."""
        return scrub(text, (self.key,))

    def advice(self, words: str) -> str:
        """Return what to do about a refusal in these words; "" where nothing is known."""
        return next((hint for pattern, hint in (*self.provider.hints, NO_VISION) if pattern.search(words)), "")

    def unreachable(self, error: BaseException) -> Unavailable:
        """Return an error of the HTTP library as ours."""
        kind = type(error).__name__
        if "ConnectTimeout" in kind:
            return Unavailable(f"{self.where}: no connection within {self.connect_s:g} s", lost=kind)
        if "Timeout" in kind:
            return Unavailable(f"{self.where}: no answer within {self.timeout_s:g} s")
        words = f"{kind}: {self.scrub(str(error))}"
        return Unavailable(f"{self.where}: the connection failed ({words}); {UNREACHABLE_ADVICE}", lost=words)


def read_endpoint(uri: BackendURI, provider: Provider, *, place: str | None = None) -> Endpoint:
    """Read where a URI leads, with its key.

    place: what is shown instead of an address that is new with every start; the address is then no part of the URI.
    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected {uri.provider}/MODEL")
    elsewhere = os.environ.get(provider.base_url_variable) if provider.base_url_variable else None
    if "base_url" not in uri.params and elsewhere:
        # The SDK's own variable. It becomes a part of the URI, so that a run says where its images went.
        uri = replace(uri, params={**uri.params, "base_url": elsewhere})
    read = read_parameters(uri, example=provider.example)
    url = read.base_url or provider.base_url
    needed = read.env is not None or (provider.key_needed and not is_loopback(url))
    variables = (read.env,) if read.env is not None else provider.key_variables
    key, key_hint = _key(variables, f"backend {uri.provider}", url, needed)
    # How long we wait and which key pays do not change who judges: with a longer time-out a run goes on, not anew.
    lasting = {"base_url": read.base_url} if read.base_url is not None and place is None else {}
    uri = replace(uri, params=lasting)
    return Endpoint(**vars(read), provider=provider, uri=uri, url=url, place=place or url, key=key, key_hint=key_hint)


def connect_to(url: str) -> None:
    """Open a connection to an address and close it again. Nothing is sent.

    Where the environment names a proxy for the address, nothing is tried: the proxy would be reached, and not the server.
    Raises Unavailable where nothing takes the connection within LOOK_S.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if proxied(url):
        return
    try:
        socket.create_connection((host, port), timeout=LOOK_S).close()
    except TimeoutError as error:
        raise Unavailable(f"{url}: no connection within {LOOK_S:g} s; {UNREACHABLE_ADVICE}", lost="timeout") from error
    except OSError as error:
        words = error.strerror or str(error)
        raise Unavailable(f"{url}: no connection ({words}); {UNREACHABLE_ADVICE}", lost=words) from error


def proxied(url: str) -> bool:
    """Return whether the environment names a proxy for an address."""
    parts = urlsplit(url)
    return (
        not is_loopback(url)
        and bool({parts.scheme, "all"} & getproxies().keys())
        and not proxy_bypass(parts.hostname or "")
    )


def read_whole(chunks: Iterable[bytes], endpoint: Endpoint, began: float) -> bytes:
    """Return the body of an answer to a request that began then (`time.monotonic`).

    Raises Unavailable where it takes longer than `timeout_s`, Rejected where it is longer than `MAX_REPLY_BYTES`.
    """
    read = bytearray()
    for chunk in chunks:
        read += chunk
        if time.monotonic() > began + endpoint.timeout_s:
            raise Unavailable(
                f"{endpoint.where}: no whole answer within {endpoint.timeout_s:g} s ({len(read):,} bytes so far)"
            )
        if len(read) > MAX_REPLY_BYTES:
            raise Rejected(f"{endpoint.where}: the answer is longer than {MAX_REPLY_BYTES:,} bytes")
    return bytes(read)


def bounded(
    client_class: type, endpoint: Endpoint, *, check: Callable[[str, int, bytes, Mapping[str, str]], None] | None = None
) -> type:
    """Return a subclass of an HTTP client (httpx, or httpx2 with the same methods) that bounds each answer.

    The client's own time-out starts anew with every byte: a server that sends a blank now and then to keep the connection
    would hold a worker indefinitely. Here an answer is read whole within `timeout_s` and `MAX_REPLY_BYTES`; a later or
    longer one raises BackendError.

    check: is called with the path, the status, the body and the headers of each answer; what it raises goes to the caller.
    """
    timeout = {"connect": endpoint.connect_s, **dict.fromkeys(("read", "write", "pool"), endpoint.timeout_s)}

    class Bounded(client_class):  # type: ignore[misc]
        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            began = time.monotonic()
            request.extensions["timeout"] = timeout
            response = super().send(request, stream=True, **options)
            try:
                body = read_whole(response.iter_bytes(), endpoint, began)
            finally:
                response.close()
            if check is not None:
                check(request.url.path, response.status_code, body, response.headers)
            # The body is no longer packed.
            packed = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
            return type(response)(response.status_code, headers=headers, content=body, request=response.request)

    return Bounded


def _key(variables: Sequence[str], backend: str, url: str, needed: bool) -> tuple[str, str]:
    """Return (the key in the first variable that holds one, what to do where it is refused). Raises ConfigError."""
    if list(variables) == ["none"]:
        return "", "no key was sent (env=none); name the variable that holds it with ?env=NAME"
    for variable in variables:
        if not variable.isidentifier():
            # It may be the key itself, so it is not repeated.
            raise ConfigError(
                "env names the environment variable that holds the key, such as env=MY_KEY; it is not the key"
            )
        value = os.environ.get(variable, "").strip()
        # The HTTP library's own complaint about such a header would show the key.
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ConfigError(f"the key in environment variable {variable} holds blanks or characters that are not ASCII")
        if value:
            return value, f"check the key in environment variable {variable}"
    where = " or ".join(variables)
    if not needed:
        return "", f"no key was sent; set environment variable {where}, or name another with ?env=NAME"
    raise ConfigError(
        f"{backend} needs a key for {url}: set environment variable {where}, or name the variable that holds it with "
        "?env=NAME (?env=none where the server asks for none)"
    )


def _base_url(text: str, example: str) -> str:
    """Return the URL without its last slash. The message does not repeat it where it may hold a password."""
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


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MOST_TIMEOUT_S:
        raise ConfigError(f"timeout_s={text[:40]!r}: expected a number of seconds above 0, at most {MOST_TIMEOUT_S:,}")
    return value


def max_image_side(uri: BackendURI) -> int | None:
    """Return the longest side in px that a URI allows; None for no limit. Raises ConfigError."""
    text = uri.params.get("max_image_side")
    if text is None:
        return None
    # Python turns no text of thousands of digits into a number, and no image is that wide.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= SMALLEST_SIDE_PX):
        raise ConfigError(
            f"max_image_side={text[:40]!r}: expected px of the longest side, a whole number from {SMALLEST_SIDE_PX}"
        )
    return int(text)


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
