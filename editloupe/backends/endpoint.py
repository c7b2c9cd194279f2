"""Where a backend answers, as a URI's parameters say it: address, key, time-out. Shared by all that speak HTTP."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from editloupe.backends.base import BackendURI, Traits, check_parameters
from editloupe.backends.boxes import DEFAULT as DEFAULT_BOXES
from editloupe.backends.boxes import checked as checked_boxes
from editloupe.backends.keys import scrub
from editloupe.errors import BackendError, ConfigError, Rejected, Unavailable

CONNECT_TIMEOUT_S: Final = 4.0
"""To connect, in the look before a run too: a mistyped host is told within 5 s."""
TOO_LONG_ADVICE: Final = (
    "the conversation does not fit: lower --max-turns, reduce images with ?max_image_side=PX, or take a longer context"
)
UNREACHABLE_ADVICE: Final = "check the address, and that a server answers there"


def _base_url(text: str) -> str:
    """Return the URL without its last slash. The message does not repeat it where it may hold a password."""
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname, url.port
    except ValueError as error:
        raise ConfigError(f"base_url cannot be read as a URL: {error}") from None
    if "@" in text:
        raise ConfigError("base_url holds credentials; keys come from the environment (?env=NAME), never from a URL")
    if url.scheme not in ("http", "https") or not host or port == 0 or not text.isprintable():
        raise ConfigError(f"base_url {text!r}: expected http://HOST:PORT or https://HOST, with the path that the API has")
    if url.query or url.fragment:
        raise ConfigError("base_url has a query or a fragment; expected scheme, host and path only")
    return url.geturl().rstrip("/")


def _media_types(text: str) -> tuple[str, ...]:
    """Return "png,jpg" as media types."""
    return tuple(dict.fromkeys(f"image/{name}" for name in text.lower().replace("jpg", "jpeg").split(",")))


MediaType = Literal["image/png", "image/jpeg", "image/webp", "image/gif"]


class Parameters(BaseModel):
    """A URI's parameters. A field's description says what is expected."""

    model_config = ConfigDict(frozen=True)

    base_url: Annotated[str, AfterValidator(_base_url)] | None = None
    boxes: Annotated[str, AfterValidator(checked_boxes)] = DEFAULT_BOXES
    """How the model writes boxes."""
    env: str | None = None
    """The environment variable that holds the key, or "none"."""
    image_formats: Annotated[
        tuple[MediaType, ...], BeforeValidator(_media_types), Field(description="some of png,jpeg,webp,gif")
    ] = ("image/png", "image/jpeg")
    """Media types that are sent as they are; every server decodes PNG and JPEG."""
    max_image_bytes: int | None = Field(None, ge=1000, le=10**9, description="bytes of one image, a whole number from 1000")
    max_image_side: int | None = Field(None, ge=64, le=10**9, description="px of the longest side, a whole number from 64")
    """None for what the endpoint is known to take, as with the other two. Below 64 nothing of an edit would be visible."""
    max_images: int | None = Field(None, ge=1, le=10**9, description="images in one request, a whole number from 1")
    replies: Literal["tags", "bare"] = Field(
        "tags", description="tags, or bare for a model that was trained to answer alone (Traits.bare_replies)"
    )
    timeout_s: float = Field(
        120.0, gt=0, le=86_400, allow_inf_nan=False, description="a number of seconds above 0, at most 86,400"
    )
    """Seconds of one attempt."""


def read_parameters(uri: BackendURI, *, known: Sequence[str] = tuple(Parameters.model_fields)) -> Parameters:
    """Check a URI's parameters; of the known ones, those that are no field are left to the caller. Raises ConfigError."""
    check_parameters(uri, known)
    try:
        return Parameters.model_validate(uri.params)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        expected = Parameters.model_fields[name].description
        raise ConfigError(f"{name}={uri.params[name][:40]!r}: expected {expected}") from None


def max_image_side(uri: BackendURI) -> int | None:
    """Return the longest side in px that a URI allows; None for no limit. Raises ConfigError."""
    given = {name: value for name, value in uri.params.items() if name == "max_image_side"}
    return read_parameters(replace(uri, params=given)).max_image_side


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Where a provider answers, and what its models can do."""

    traits: Traits
    """`describes` stands behind the model's name, and may hold {place}."""
    base_url: str
    """Where it answers unless the URI says so."""
    base_url_variable: str | None = None
    """An environment variable that stands above `base_url`."""
    key_variables: tuple[str, ...]
    """Environment variables that may hold the key, in this order, unless the URI's `env` names one."""
    key_needed: bool = True
    """Whether an address that is not this machine's needs a key."""
    image_ids: bool = False
    """Whether images carry their digest as `uuid` on the wire of chat completions."""
    batches: bool = True
    """Whether its server has a batch endpoint."""


_TAKES: Final[Mapping[str, Mapping[str, Any]]] = {
    "api.openai.com": {"max_images": 500, "max_image_bytes": 50_000_000},
    "generativelanguage.googleapis.com": {"max_images": 3000, "max_image_bytes": 15_000_000},
    "api.anthropic.com": {"max_images": 100, "max_image_bytes": 3_750_000, "max_image_side": 8000},
}
"""Host → what it takes of pictures, as its maker publishes; nothing is known of servers of one's own.

Anthropic's 5 MB and Google's 20 MB are counted in base64.
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who is asked, as messages on failures say it."""

    where: str
    """The head of every message, such as "https://…/v1, model 'm'"."""
    key_hint: str = "check the key that the provider's class reads"
    """What to do where the key is refused."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(Place):
    """A backend's URI, read."""

    provider: Provider
    traits: Traits
    """What the model can do."""
    timeout_s: float
    """Seconds of one attempt."""
    uri: BackendURI
    """Provider, model, and base_url where it is a part of the judge's identity."""
    url: str
    """Where requests go; shown and recorded as the endpoint."""
    key: str = field(repr=False)
    """The key; "" where none is sent."""

    @property
    def connect_s(self) -> float:
        """Seconds to connect, within `timeout_s`."""
        return min(CONNECT_TIMEOUT_S, self.timeout_s)

    def scrub(self, text: str) -> str:
        """Take the key out of a text, however it is spelled there."""
        return scrub(text, (self.key,))

    def ours(self, error: Exception) -> BackendError:
        """Return an error of an SDK as one of ours. Some wrap whatever their HTTP client raises."""
        cause = error.__cause__ or error
        for one in (error, cause):
            if isinstance(one, BackendError):
                if one is cause:
                    # The two would hold each other, and with them a backend.
                    error.__cause__ = None
                return one
            if type(one).__module__.startswith("http"):
                return self.unreachable(one)
        return Rejected(f"{self.where}: the SDK refuses the request ({type(cause).__name__}: {self.scrub(str(cause))})")

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
    elsewhere = os.environ.get(provider.base_url_variable or "")
    if "base_url" not in uri.params and elsewhere:
        # The SDK's own variable. It becomes a part of the URI, so that a run says where its images went.
        uri = replace(uri, params={**uri.params, "base_url": elsewhere})
    params = read_parameters(uri)
    url = params.base_url or provider.base_url
    key, key_hint = _key(uri, params, provider, url)
    # How long we wait and which key pays do not change who judges: with a longer time-out a run goes on, not anew.
    lasting = {name: uri.params[name] for name in ("image_formats",) if name in uri.params}
    lasting |= {"base_url": params.base_url} if params.base_url is not None else {}
    limits = {name: getattr(params, name) for name in ("max_images", "max_image_bytes", "max_image_side")}
    given = {name: most for name, most in limits.items() if most is not None}
    traits = replace(
        provider.traits,
        describes=f"{uri.model} {provider.traits.describes.format(place=url)}",
        boxes=params.boxes,
        image_formats=params.image_formats,
        bare_replies=params.replies == "bare",
        **{**_TAKES.get(urlsplit(url).hostname or "", {}), **given},
    )
    uri, seconds = replace(uri, params=lasting), params.timeout_s
    where = f"{url}, model {uri.model!r}"
    return Endpoint(
        where=where, key_hint=key_hint, provider=provider, traits=traits, timeout_s=seconds, uri=uri, url=url, key=key
    )


def _key(uri: BackendURI, params: Parameters, provider: Provider, url: str) -> tuple[str, str]:
    """Return the key in the first variable that holds one, and what to do where it is refused. Raises ConfigError."""
    if params.env == "none":
        return "", "no key was sent (env=none); name the variable that holds it with ?env=NAME"
    if params.env is not None and not params.env.isidentifier():
        # It may be the key itself, so it is not repeated.
        raise ConfigError("env names the environment variable that holds the key, such as env=MY_KEY; it is not the key")
    variables = provider.key_variables if params.env is None else (params.env,)
    for variable, value in ((name, os.environ.get(name, "").strip()) for name in variables):
        # The HTTP library's own complaint about such a header would show the key.
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ConfigError(f"the key in environment variable {variable} holds blanks or characters that are not ASCII")
        if value:
            return value, f"check the key in environment variable {variable}"
    where = " or ".join(variables)
    if params.env is None and (is_loopback(url) or not provider.key_needed):
        return "", f"no key was sent; set environment variable {where}, or name another with ?env=NAME"
    raise ConfigError(
        f"backend {uri.provider} needs a key for {url}: set environment variable {where}, or name the variable that holds "
        "it with ?env=NAME (?env=none where the server asks for none)"
    )


def connect_to(url: str) -> None:
    """Open a connection to an address and close it again. Nothing is sent.

    Where the environment names a proxy for the address, nothing is tried: the proxy would be reached, and not the server.
    Raises Unavailable where nothing takes the connection within CONNECT_TIMEOUT_S, the search for its name included.
    """
    parts = urlsplit(url)
    proxied = bool({parts.scheme, "all"} & getproxies().keys()) and not proxy_bypass(parts.hostname or "")
    if proxied and not is_loopback(url):
        return
    address = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    connected: Future[None] = Future()

    def connect() -> None:
        try:
            socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
            connected.set_result(None)
        except OSError as error:
            connected.set_exception(error)

    # In a thread, since nothing else bounds the search for a name.
    threading.Thread(target=connect, daemon=True).start()
    try:
        connected.result(timeout=CONNECT_TIMEOUT_S + 0.3)
    except OSError as error:
        words = f"within {CONNECT_TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else f"({error.strerror or error})"
        told = f"{url}: no connection {words}; {UNREACHABLE_ADVICE}"
        raise Unavailable(told, lost=words, how="unreached", for_all=True) from error


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
