"""Chat completions over the official `openai` SDK: OpenAI itself and every server that speaks its protocol.

openai/MODEL                                        https://api.openai.com/v1
openai/MODEL?base_url=http://127.0.0.1:8000/v1      any compatible server, such as a served Qwen-VL

Further parameters: `env`, `timeout_s`, `boxes` and `max_image_side` (docs/backends.md).
How requests, replies and errors are translated stands in editloupe/backends/openai_wire.py.
"""

from __future__ import annotations

import importlib
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends import openai_wire as wire
from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.direct import Connection
from editloupe.backends.endpoint import Endpoint, Provider, bounded, is_loopback, proxied, read_endpoint, read_whole
from editloupe.backends.payload import REFUSES, REPLY_BOUND, TOO_LONG, ImageURLs, error_body, said
from editloupe.backends.remote import ParameterRefused, Remote
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, Rejected
from editloupe.values import Json

if TYPE_CHECKING:
    import openai

_DROPPABLE: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    # OpenAI's reasoning models take the second name only, many compatible servers the first only.
    "max_tokens": wire.OLD_NAME,
    "max_completion_tokens": "max_tokens",
    "response_format": "answer_schema",
    "logprobs": "top_logprobs",
    "top_logprobs": "top_logprobs",
}
"""The wire's name of what some models refuse → what to ask without."""


def _extras(request: Request) -> dict[str, Json]:
    """Return the field that holds the schema of the answer."""
    return {"response_format": wire.response_format(request.answer_schema)} if request.answer_schema is not None else {}


@dataclass(frozen=True, kw_only=True)
class Service(Provider):
    """What differs between services that speak this protocol."""

    extras: Callable[[Request], dict[str, Json]] = _extras
    """The fields of the body that hold the answer to a list or a schema."""
    image_ids: bool = False
    """Whether images carry their digest as `uuid`."""


OPENAI: Final = Service(
    traits=Traits(
        describes="over chat completions at {place}", native_tools=True, constrains_schema=True, gives_logprobs=True
    ),
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variables=("OPENAI_API_KEY",),
)


def open_backend(
    uri: BackendURI, *, service: Service = OPENAI, place: str | None = None, policy: RetryPolicy = retry.DEFAULT_POLICY
) -> OpenAIBackend:
    """Open the backend behind `openai/MODEL`, or behind another service's URI. Nothing is sent yet.

    place: what is shown and recorded as the endpoint of a server whose base_url is new with every start; the base_url is
    then no part of the URI.
    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    endpoint = read_endpoint(uri, service, place=place)
    try:
        import openai
    except ImportError as error:
        raise ConfigError(f"backend {uri.provider!r} needs the package openai: pip install 'openai>=2.30,<4'") from error
    # A proxy from the environment has no business between us and a server on this machine. A redirect would take
    # the pictures elsewhere.
    trust_env = not is_loopback(endpoint.url)
    # The SDK's client is httpx's up to 2 and httpx2's from 3 on.
    library: Any = importlib.import_module("httpx" if int(openai.__version__.partition(".")[0]) < 3 else "httpx2")
    address = library.URL(f"{endpoint.url}/chat/completions")
    through_proxy = proxied(endpoint.url)
    # Reading the certificates takes longer than a call: once for all clients, and not where nothing is encrypted.
    encrypted = address.scheme == "https" or through_proxy
    certificates = library.create_ssl_context(trust_env=trust_env) if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    http_client = bounded(openai.DefaultHttpxClient, endpoint)
    http = partial(http_client, verify=certificates, trust_env=trust_env, follow_redirects=False)
    sdk = openai.OpenAI(api_key=endpoint.key or "none", base_url=endpoint.url, max_retries=0, http_client=http())
    headers = {name: text for name, text in {**sdk.default_headers, **sdk.auth_headers}.items() if isinstance(text, str)}

    def new_client() -> Client:
        return Client(
            sdk=sdk,
            library=library,
            http=http() if through_proxy else None,
            direct=None if through_proxy else connection_to(address, endpoint, certificates),
            address=address,
            headers=headers,
        )

    return OpenAIBackend(endpoint, ClientPool(new_client), service=service, policy=policy)


@dataclass(frozen=True, kw_only=True)
class Client:
    """One connection's worth of client, for one caller at a time."""

    sdk: openai.OpenAI
    """One for all callers: it is asked for the list of models, and for no completion."""
    library: Any
    """httpx2 or httpx."""
    http: Any
    """The HTTP client by which completions go through a proxy; None where there is none."""
    direct: Connection | None
    """What completions are asked over without a proxy."""
    address: Any
    """Where completions are asked, a URL of the library."""
    headers: Mapping[str, str]
    """What the SDK sends with each request, the key included."""

    def post(self, body: Sequence[bytes]) -> bytes:
        """Post JSON as the SDK does, and return the body of the answer. body: in pieces.

        Below the SDK, which walks through all messages by their types with `chat.completions.create`, and prepares each
        request anew with `post`: that costs as much as sending it. Raises openai.APIStatusError, what the HTTP library and
        `Connection.post` raise, and BackendError of `read_whole`.
        """
        import openai

        if self.direct is None:
            answer = self.http.post(self.address, content=b"".join(body), headers=self.headers)
        else:
            given = self.direct.post(body, self.headers)
            if 200 <= given.status < 300:
                return given.content
            asked = self.library.Request("POST", self.address)
            answer = self.library.Response(given.status, headers=given.headers, content=given.content, request=asked)
        if answer.is_success:
            return bytes(answer.content)
        said = answer.text.strip()
        with suppress(ValueError, RecursionError):
            said = json.loads(said)
        raise openai.APIStatusError(f"HTTP {answer.status_code}", response=answer, body=error_body(said))

    def close(self) -> None:
        """Close the connections."""
        self.sdk.close()
        for own in (self.http, self.direct):
            if own is not None:
                own.close()


def connection_to(address: Any, endpoint: Endpoint, certificates: ssl.SSLContext) -> Connection:
    """Return a connection to a URL of the HTTP library, which knows how host and path are written on the wire."""
    tls = address.scheme == "https"
    return Connection(
        address.raw_host.decode("ascii"),
        address.port or (443 if tls else 80),
        address.raw_path.decode("ascii"),
        certificates=certificates if tls else None,
        connect_s=endpoint.connect_s,
        timeout_s=endpoint.timeout_s,
        read_whole=lambda chunks, began: read_whole(chunks, endpoint, began),
    )


class ClientPool:
    """HTTP clients for many threads, as many as calls were ever under way at once. make: a new one. Thread-safe.

    One client for all of them has one lock around its connections, and asks the kernel under it, with each call, which of
    them the server has closed. At 64 calls at once threads spent two thirds of their time waiting for that lock.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._all: list[Client] = []
        self._idle: list[Client] = []

    @contextmanager
    def borrow(self) -> Iterator[Client]:
        """Lend a client to one caller: the one used last, whose connection is the least likely to be stale."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            client = self._make()
            with self._lock:
                self._all.append(client)
        try:
            yield client
        finally:
            with self._lock:
                self._idle.append(client)

    def close(self) -> None:
        """Close all, those in use included."""
        with self._lock:
            for client in self._all:
                client.close()


class OpenAIBackend(Remote):
    """A model behind a chat completions endpoint."""

    def __init__(self, endpoint: Endpoint, clients: ClientPool, *, service: Service, policy: RetryPolicy) -> None:
        super().__init__(
            endpoint.uri, endpoint.place, endpoint.traits, address=endpoint.url, close=clients.close, policy=policy
        )
        self._service, self._clients, self._at = service, clients, endpoint
        self._image_urls = ImageURLs(self.traits.image_policy)

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have; None where the endpoint's list of models does not say.

        Raises BackendError.
        """
        import openai

        try:
            with self._clients.borrow() as client:
                listed = client.sdk.models.list().data or []
        except ValueError as error:
            raise Rejected(f"{self._at.where}: /models is not JSON") from error
        except openai.OpenAIError as error:
            raise wire.backend_error(error, self._at) from error
        found = next((model.model_extra or {} for model in listed if model.id == self._uri.model), {})
        # vLLM's name, then those of gateways.
        limits = (found.get(name) for name in ("max_model_len", "context_length", "context_window"))
        return next((n for n in limits if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Reply]:
        pieces = wire.pieces_of(
            request,
            lambda ref: self._image_urls.ascii(images, ref),
            tool_images=self.traits.tool_result_images,
            image_ids=self._service.image_ids,
        )
        return lambda refused: self._asked(request, pieces, refused)

    def _asked(self, request: Request, pieces: list[bytes], refused: frozenset[str]) -> Reply:
        import openai

        known = wire.parameters_of(self._uri.model, request, refused)
        extras = {} if "answer_schema" in refused else self._service.extras(request)
        if "top_logprobs" in refused:
            extras = {name: value for name, value in extras.items() if _DROPPABLE.get(name) != "top_logprobs"}
        sent = {**known, **extras}
        try:
            with self._clients.borrow() as client:
                body = client.post(wire.body_of(known, pieces, extras))
        except BackendError:
            raise
        except openai.APIStatusError as error:
            _raise_refusal(error, sent)
            filtered = wire.filtered_reply(error, sent, self._at)
            if filtered is not None:
                return filtered
            raise wire.backend_error(error, self._at) from error
        except Exception as error:  # whatever the HTTP library meets
            raise wire.backend_error(error, self._at) from error
        return wire.read_reply(body, sent, self._at, tokens=request.top_logprobs is not None)


def _raise_refusal(error: openai.APIStatusError, sent: Mapping[str, Json]) -> None:
    """Raise ParameterRefused if the model does not take a parameter that was sent, and that we can do without.

    Some servers do not say under `param` which it is, but in their words alone.
    """
    message = said(error.body)
    # OpenAI answers 403 where a reasoning model is asked for probabilities.
    if error.status_code not in (400, 422) and not (
        error.status_code == 403 and "logprobs" in sent and "logprobs" in message
    ):
        return
    bounded = "max_tokens" in sent or "max_completion_tokens" in sent
    if bounded and REPLY_BOUND.search(message):
        # Without a bound the server takes its own. It may be that only this conversation leaves no more of the context.
        raise ParameterRefused("max_tokens", lasting=not TOO_LONG.search(message))
    words = f"{error.code} {message}"
    if REFUSES.search(words):
        for name in (n for n in sent if n in _DROPPABLE):
            if name == error.param or (not error.param and re.search(rf"\b{name}\b", words)):
                raise ParameterRefused(_DROPPABLE[name])
