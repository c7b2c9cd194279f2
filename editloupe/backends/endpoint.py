"""Where a backend answers, as a URI's parameters say it: address, key, time-out. Shared by all that speak HTTP."""

from __future__ import annotations

import ipaddress
import math
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, Queue
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI, Replies, Traits, check_parameters, replies_of
from editloupe.backends.keys import scrub
from editloupe.errors import ConfigError, Unavailable

DEFAULT_TIMEOUT_S: Final = 120.0
MOST_TIMEOUT_S: Final = 86_400
"""A day; far longer ones are more than a socket takes."""
CONNECT_TIMEOUT_S: Final = 4.0
"""To connect, in the look before a run too: a mistyped host is told within 5 s."""
SMALLEST_SIDE_PX: Final = 64
"""A smaller `max_image_side` is a mistake: nothing of an edit would be visible."""
TOO_LONG_ADVICE: Final = (
    "the conversation does not fit: lower --max-turns, reduce images with ?max_image_side=PX, or take a longer context"
)
UNREACHABLE_ADVICE: Final = "check the address, and that a server answers there"

PARAMETERS: Final = (
    "base_url", "boxes", "env", "image_formats", "max_image_bytes", "max_image_side", "max_images", "replies", "timeout_s",
)  # fmt: skip
FORMATS: Final = ("png", "jpeg")
"""What every server decodes; others are sent as PNG unless the URI allows them."""
EXAMPLE: Final = "http://HOST:PORT/v1 or https://HOST/v1"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A URI's parameters, checked."""

    base_url: str | None
    boxes: str
    """How the model writes boxes."""
    env: str | None
    """The environment variable that holds the key, or "none"."""
    image_formats: tuple[str, ...] = tuple(f"image/{name}" for name in FORMATS)
    """Media types that are sent as they are."""
    max_image_bytes: int | None = None
    """Bytes of one image as sent; None for what the endpoint is known to take."""
    max_image_side: int | None
    """Longest side in px; None for what the endpoint is known to take."""
    max_images: int | None = None
    """Images in one request; None for what the endpoint is known to take."""
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
        image_formats=_formats(params.get("image_formats")),
        max_image_bytes=whole_number(uri, "max_image_bytes", 1000, "bytes of one image"),
        max_image_side=max_image_side(uri),
        max_images=whole_number(uri, "max_images", 1, "images in one request"),
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


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What a provider's own address takes of pictures, as its maker publishes; None where nothing is said."""

    images: int | None = None
    """In one request."""
    bytes: int | None = None
    """Of one image."""
    side: int | None = None
    """Px of the longer side; longer images are reduced to it."""


_TAKES: Final[Mapping[str, Pictures]] = {
    "api.openai.com": Pictures(images=500, bytes=50_000_000),
    "generativelanguage.googleapis.com": Pictures(images=3000, bytes=15_000_000),
    "api.anthropic.com": Pictures(images=100, bytes=3_750_000, side=8000),
}
"""Host → what it takes. Anthropic's 5 MB and Google's 20 MB are counted in base64."""


def pictures_of(url: str) -> Pictures:
    """Return what an address takes of pictures: nothing is known of servers of one's own."""
    return _TAKES.get(urlsplit(url).hostname or "", Pictures())


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
        takes = pictures_of(self.url)
        return replace(
            self.provider.traits,
            describes=describes,
            boxes=self.boxes,
            image_formats=self.image_formats,
            max_image_bytes=self.max_image_bytes or takes.bytes,
            max_image_side=self.max_image_side or takes.side,
            max_images=self.max_images or takes.images,
            bare_replies=self.replies == "bare",
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

    def unreachable(self, error: BaseException) -> Unavailable:
        """Return an error of the HTTP library as ours."""
        kind = type(error).__name__
        if "ConnectTimeout" in kind:
            return Unavailable(f"{self.where}: no connection within {self.connect_s:g} s", lost=kind, how="unreached")
        if "Timeout" in kind:
            return Unavailable(f"{self.where}: no whole answer within {self.timeout_s:g} s", how="late")
        words = f"{kind}: {self.scrub(str(error))}"
        return Unavailable(
            f"{self.where}: the connection failed ({words}); {UNREACHABLE_ADVICE}",
            lost=words,
            how="unreached" if "ConnectError" in kind else "broken",
        )


def read_endpoint(uri: BackendURI, provider: Provider) -> Endpoint:
    """Read where a URI leads, with its key.

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
    lasting = {name: uri.params[name] for name in ("image_formats",) if name in uri.params}
    lasting |= {"base_url": read.base_url} if read.base_url is not None else {}
    uri = replace(uri, params=lasting)
    return Endpoint(**vars(read), provider=provider, uri=uri, url=url, place=url, key=key, key_hint=key_hint)


def connect_to(url: str) -> None:
    """Open a connection to an address and close it again. Nothing is sent.

    Where the environment names a proxy for the address, nothing is tried: the proxy would be reached, and not the server.
    Raises Unavailable where nothing takes the connection within CONNECT_TIMEOUT_S, the search for its name included.
    """
    if proxied(url):
        return
    parts = urlsplit(url)
    address = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    ended: Queue[OSError | None] = Queue()

    def look() -> None:
        try:
            socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
            ended.put(None)
        except OSError as error:
            ended.put(error)

    # In a thread, since nothing else bounds the search for a name.
    threading.Thread(target=look, daemon=True).start()
    try:
        error = ended.get(timeout=CONNECT_TIMEOUT_S + 0.3)
    except Empty:
        error = TimeoutError()
    if error is None:
        return
    words = f"within {CONNECT_TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else f"({error.strerror or error})"
    raise Unavailable(
        f"{url}: no connection {words}; {UNREACHABLE_ADVICE}", lost=words, how="unreached", for_all=True
    ) from error


def proxied(url: str) -> bool:
    """Return whether the environment names a proxy for an address."""
    parts = urlsplit(url)
    return (
        not is_loopback(url)
        and bool({parts.scheme, "all"} & getproxies().keys())
        and not proxy_bypass(parts.hostname or "")
    )


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
    return whole_number(uri, "max_image_side", SMALLEST_SIDE_PX, "px of the longest side")


def whole_number(uri: BackendURI, name: str, least: int, what: str) -> int | None:
    """Return a parameter that is a whole number; None where it is not given. Raises ConfigError."""
    text = uri.params.get(name)
    if text is None:
        return None
    # Python turns no text of thousands of digits into a number, and no image is that large.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):
        raise ConfigError(f"{name}={text[:40]!r}: expected {what}, a whole number from {least}")
    return int(text)


def _formats(text: str | None) -> tuple[str, ...]:
    names = FORMATS if text is None else tuple(dict.fromkeys(text.lower().replace("jpg", "jpeg").split(",")))
    if unknown := sorted(set(names) - {"png", "jpeg", "webp", "gif"}):
        raise ConfigError(f"image_formats={text!r}: {unknown[0]!r} is unknown; expected some of png,jpeg,webp,gif")
    return tuple(f"image/{name}" for name in names)


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
