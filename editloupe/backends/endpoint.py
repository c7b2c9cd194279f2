"""Where a backend answers, as a URI's parameters say it: address, key, time-out. Shared by all that speak HTTP."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI
from editloupe.errors import ConfigError, Rejected, Unavailable

DEFAULT_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""
SMALLEST_SIDE_PX: Final = 64
"""A smaller `max_image_side` is a mistake: nothing of an edit would be visible."""
_SHORTEST_SECRET = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""
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


@dataclass(frozen=True, kw_only=True)
class EndpointInfo:
    """What a translation must know of the endpoint."""

    where: str
    """The head of every message, such as "https://…/v1, model 'm'"."""
    timeout_s: float
    """Seconds of one attempt."""
    connect_s: float
    """Seconds to connect, within `timeout_s`."""
    key_hint: str
    """What to do where the key is refused."""
    scrub: Callable[[str], str]
    """Takes the key out of a text."""
    hints: tuple[tuple[re.Pattern[str], str], ...] = ()
    """(pattern of what the server says when it refuses, what to do about it)."""

    def advice(self, words: str) -> str:
        """Return what to do about a refusal in these words; "" where nothing is known."""
        return next((hint for pattern, hint in (*self.hints, NO_VISION) if pattern.search(words)), "")


class APIKey:
    """A key that does not show itself: `scrub` takes it out of texts, repr hides it.

    value: "" where no key is sent.   hint: what to do where the endpoint refuses it.
    """

    def __init__(self, value: str, hint: str) -> None:
        self.value, self.hint = value, hint

    def __repr__(self) -> str:
        return "<key>" if self.value else "<no key>"

    def scrub(self, text: str) -> str:
        return text.replace(self.value, "***") if len(self.value) >= _SHORTEST_SECRET else text


@dataclass(frozen=True, kw_only=True)
class Address:
    """A backend's URI, read."""

    uri: BackendURI
    """The judge's identity: provider, model, base_url, box dialect and image limit."""
    endpoint: str
    """Where requests go."""
    dialect: str
    """How the model writes boxes."""
    max_image_side: int | None
    """Longest side in px; None for no limit."""
    key: APIKey
    info: EndpointInfo


PARAMETERS: Final = ("base_url", "boxes", "env", "max_image_side", "timeout_s")


def read_address(
    uri: BackendURI,
    *,
    base_url: str,
    base_url_variable: str | None,
    example: str,
    key_variables: Sequence[str],
    key_needed: bool = True,
    hints: tuple[tuple[re.Pattern[str], str], ...] = (),
    lasting_base_url: bool = True,
) -> Address:
    """Read where a URI leads, with its key.

    base_url: where the provider answers unless the URI or the environment's `base_url_variable` says so.   example: of a
    base_url, for messages.   key_variables: looked into in this order, unless the URI's `env` names one.   key_needed: for
    an address that is not this machine's.   lasting_base_url: False for a server whose address is new with every start.
    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected {uri.provider}/MODEL")
    unknown = sorted(set(uri.params) - set(PARAMETERS))
    if unknown:
        raise ConfigError(
            f"backend {uri.provider}/{uri.model}: unknown parameter {', '.join(map(repr, unknown))}; "
            f"known: {', '.join(PARAMETERS)}"
        )
    params = dict(uri.params)
    elsewhere = os.environ.get(base_url_variable) if base_url_variable else None
    if "base_url" not in params and elsewhere:
        # The SDK's own variable. It becomes a part of the URI, so that a run says where its images went.
        params["base_url"] = elsewhere
    if "base_url" in params:
        params["base_url"] = checked_base_url(params["base_url"], example=example)
    dialect = boxes.checked(params.get("boxes", boxes.DEFAULT))
    max_image_side = checked_side(params.get("max_image_side"))
    timeout_s = checked_timeout(params.get("timeout_s"))
    endpoint = params.get("base_url", base_url)
    variables = (params["env"],) if "env" in params else tuple(key_variables)
    needed = "env" in params or (key_needed and not is_loopback(endpoint))
    key = key_of(variables, f"backend {uri.provider} needs a key for {endpoint}", needed=needed)
    # How long we wait and which key pays do not change who judges: with a longer time-out a run goes on, not anew.
    lasting = {name: value for name, value in params.items() if name == "base_url" and lasting_base_url}
    if dialect != boxes.DEFAULT:
        lasting["boxes"] = dialect
    if max_image_side is not None:
        lasting["max_image_side"] = str(max_image_side)
    return Address(
        uri=BackendURI(provider=uri.provider, model=uri.model, params=lasting),
        endpoint=endpoint,
        dialect=dialect,
        max_image_side=max_image_side,
        key=key,
        info=EndpointInfo(
            where=f"{endpoint}, model {uri.model!r}",
            timeout_s=timeout_s,
            connect_s=min(CONNECT_TIMEOUT_S, timeout_s),
            key_hint=key.hint,
            scrub=key.scrub,
            hints=hints,
        ),
    )


def bounded(
    client_class: type, info: EndpointInfo, *, check: Callable[[int, bytes, Mapping[str, str]], None] | None = None
) -> type:
    """Return a subclass of an HTTP client (httpx, or httpx2 with the same methods) that bounds each answer.

    The client's own time-out starts anew with every byte: a server that sends a blank now and then to keep the connection
    would hold a worker indefinitely. Here an answer is read whole within `info.timeout_s` and `MAX_REPLY_BYTES`. A later or
    longer one raises BackendError.

    check: is called with status, body and headers of each answer; what it raises goes to the caller.
    """
    timeout = {"connect": info.connect_s, **dict.fromkeys(("read", "write", "pool"), info.timeout_s)}

    class Bounded(client_class):  # type: ignore[misc]
        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            began = time.monotonic()
            request.extensions["timeout"] = timeout
            response = super().send(request, stream=True, **options)
            try:
                body = _read_whole(response.iter_bytes(), info, began=began)
            finally:
                response.close()
            if check is not None:
                check(response.status_code, body, response.headers)
            # The body is no longer packed.
            packed = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
            return type(response)(response.status_code, headers=headers, content=body, request=response.request)

    return Bounded


def _read_whole(chunks: Iterable[bytes], info: EndpointInfo, *, began: float) -> bytes:
    read, size = [], 0
    for chunk in chunks:
        read.append(chunk)
        size += len(chunk)
        if time.monotonic() > began + info.timeout_s:
            raise Unavailable(f"{info.where}: no whole answer within {info.timeout_s:g} s ({size:,} bytes so far)")
        if size > MAX_REPLY_BYTES:
            raise Rejected(f"{info.where}: the answer is longer than {MAX_REPLY_BYTES:,} bytes")
    return b"".join(read)


def key_of(variables: Sequence[str], wanted: str, *, needed: bool) -> APIKey:
    """Return the key in the first variable that holds one.

    wanted: what the key is for; the message begins with it.

    Raises ConfigError where it is needed and missing, or cannot be a key.
    """
    if list(variables) == ["none"]:
        return APIKey("", "no key was sent (env=none); name the variable that holds it with ?env=NAME")
    for variable in variables:
        if not variable.isidentifier():
            # It may be the key itself, so it is not repeated.
            raise ConfigError(
                "env names the environment variable that holds the key, such as env=MY_KEY; it is not the key"
            )
        value = os.environ.get(variable, "").strip()
        if value:
            # The HTTP library's own complaint about such a header would show the key.
            if not value.isascii() or not value.isprintable() or " " in value:
                raise ConfigError(
                    f"the key in environment variable {variable} holds blanks or characters that are not ASCII"
                )
            return APIKey(value, f"check the key in environment variable {variable}")
    where = " or ".join(variables)
    if not needed:
        return APIKey("", f"no key was sent; set environment variable {where}, or name another with ?env=NAME")
    raise ConfigError(
        f"{wanted}: set environment variable {where}, or name the variable that holds it with ?env=NAME "
        "(?env=none where the server asks for none)"
    )


def checked_base_url(text: str, *, example: str = "http://HOST:PORT/v1 or https://HOST/v1") -> str:
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


def checked_timeout(text: str | None) -> float:
    """Return the seconds of a URI's `timeout_s`, DEFAULT_TIMEOUT_S where there is none. Raises ConfigError."""
    if text is None:
        return DEFAULT_TIMEOUT_S
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise ConfigError(f"timeout_s={text!r}: expected a number of seconds above 0")
    return value


def checked_side(text: str | None) -> int | None:
    """Return the px of a URI's `max_image_side`; None where there is none. Raises ConfigError."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= SMALLEST_SIDE_PX):
        raise ConfigError(
            f"max_image_side={text!r}: expected px of the longest side, a whole number from {SMALLEST_SIDE_PX}"
        )
    return int(text)


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
