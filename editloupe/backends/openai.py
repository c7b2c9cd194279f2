"""Chat completions over the official `openai` SDK: OpenAI itself and every server that speaks its protocol.

openai/MODEL                                        https://api.openai.com/v1
openai/MODEL?base_url=http://127.0.0.1:8000/v1      any compatible server, such as a served Qwen-VL

Further parameters: `env` (the variable that holds the key; `none` sends no key), `timeout_s` (of one attempt) and `boxes`
(how the model writes boxes; editloupe/backends/boxes.py).
How requests, replies and errors are translated stands in editloupe/backends/openai_wire.py.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from editloupe.backends import boxes, retry
from editloupe.backends import openai_wire as wire
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import Site, checked_base_url, checked_timeout, is_loopback, key_of
from editloupe.backends.limits import limit_of
from editloupe.backends.payload import ImageURLs, moves_pictures, said
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Reply, Request
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, Rejected, Unavailable
from editloupe.values import Json

if TYPE_CHECKING:
    import openai

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE: Final = "OPENAI_API_KEY"
CONNECT_TIMEOUT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""


_PARAMETERS = ("base_url", "boxes", "env", "timeout_s")

_REPLACEMENTS: Final[Mapping[str, str | None]] = {
    "temperature": None,
    "top_p": None,
    "seed": None,
    # OpenAI's reasoning models take the second name only, many compatible servers the first only.
    "max_tokens": "max_completion_tokens",
}
"""Parameters that some models refuse, and what is sent instead."""

_REFUSES_PARAMETER = re.compile(r"support|only the default|not allowed|deprecated", re.IGNORECASE)


def _traits(model: str, endpoint: str) -> Traits:
    return Traits(describes=f"{model} over chat completions at {endpoint}", native_tools=True)


def _nothing_more(request: Request) -> dict[str, Json]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Service:
    """What differs between services that speak this protocol.

    base_url: where it answers unless the URI says so.   base_url_variable: an environment variable above that.
    key_variable: holds the key.   key_needed: for an address that is not this machine's.   traits: of (model, endpoint).
    extras: fields of the body that the SDK does not know.   image_ids: images carry their digest as `uuid`.
    hints: (pattern of what the server says when it refuses, what to do about it).
    """

    base_url: str = DEFAULT_BASE_URL
    base_url_variable: str | None = "OPENAI_BASE_URL"
    key_variable: str = DEFAULT_KEY_VARIABLE
    key_needed: bool = True
    traits: Callable[[str, str], Traits] = _traits
    extras: Callable[[Request], dict[str, Json]] = _nothing_more
    image_ids: bool = False
    hints: tuple[tuple[re.Pattern[str], str], ...] = ()


OPENAI: Final = Service()


def open_backend(
    uri: BackendURI,
    *,
    service: Service = OPENAI,
    place: str | None = None,
    policy: RetryPolicy = retry.DEFAULT_POLICY,
    sleep: Callable[[float], None] = time.sleep,
) -> OpenAIBackend:
    """The backend behind `openai/MODEL`, or behind another service's URI. Nothing is sent yet.

    place: what is told and recorded as the endpoint of a server whose base_url is new with every start; the base_url is
    then no part of the URI.
    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected {uri.provider}/MODEL")
    unknown = sorted(set(uri.params) - set(_PARAMETERS))
    if unknown:
        raise ConfigError(
            f"backend {uri.provider}/{uri.model}: unknown parameter {', '.join(map(repr, unknown))}; "
            f"known: {', '.join(_PARAMETERS)}"
        )
    params = dict(uri.params)
    elsewhere = os.environ.get(service.base_url_variable) if service.base_url_variable else None
    if "base_url" not in params and elsewhere:
        # The SDK's own variable. It becomes a part of the URI, so that a run says where its images went.
        params["base_url"] = elsewhere
    if "base_url" in params:
        params["base_url"] = checked_base_url(params["base_url"])
    dialect = boxes.checked(params.get("boxes", boxes.DEFAULT))
    timeout_s = checked_timeout(params.get("timeout_s"))
    endpoint = params.get("base_url", service.base_url)
    needed = "env" in params or (service.key_needed and not is_loopback(endpoint))
    key = key_of(
        params.get("env", service.key_variable), f"backend {uri.provider} needs a key for {endpoint}", needed=needed
    )
    try:
        import openai
    except ImportError as error:
        raise ConfigError(f"backend {uri.provider!r} needs the package openai: pip install 'openai>=2.30,<4'") from error
    site = Site(
        where=f"{endpoint}, model {uri.model!r}",
        timeout_s=timeout_s,
        connect_s=min(CONNECT_TIMEOUT_S, timeout_s),
        key_hint=key.hint,
        scrub=key.scrub,
        hints=service.hints,
    )
    client = openai.OpenAI(
        api_key=key.value or "none",
        base_url=endpoint,
        max_retries=0,
        timeout=openai.Timeout(site.timeout_s, connect=site.connect_s),
        # A proxy from the environment has no business between us and a server on this machine.
        http_client=openai.DefaultHttpxClient(trust_env=False) if is_loopback(endpoint) else None,
    )
    # How long we wait and which key pays do not change who judges: with a longer time-out a run goes on, not anew.
    lasting = {name: value for name, value in params.items() if name == "base_url" and place is None}
    if dialect != boxes.DEFAULT:
        lasting["boxes"] = dialect
    canonical = BackendURI(provider=uri.provider, model=uri.model, params=lasting)
    return OpenAIBackend(
        canonical, place or endpoint, site, client, service=service, dialect=dialect, policy=policy, sleep=sleep
    )


class OpenAIBackend:
    """A model behind a chat completions endpoint. Thread-safe; one HTTP client is shared."""

    def __init__(
        self,
        uri: BackendURI,
        endpoint: str,
        site: Site,
        client: openai.OpenAI,
        *,
        dialect: str = boxes.DEFAULT,
        service: Service = OPENAI,
        policy: RetryPolicy,
        sleep: Callable[[float], None],
    ) -> None:
        self._uri, self._endpoint, self._site, self._client = uri, endpoint, site, client
        self._service, self._policy, self._sleep = service, policy, sleep
        self._traits = replace(service.traits(uri.model, endpoint), boxes=dialect)
        self._image_urls = ImageURLs(ImagePolicy(formats=self._traits.image_formats, max_side=self._traits.max_image_side))
        self._lock = threading.Lock()
        self._renamed: Mapping[str, str | None] = {}
        self._close = weakref.finalize(self, client.close)

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.uri!r})"

    @property
    def uri(self) -> str:
        """Provider, model, base_url and box dialect: what the judge's identity rests on."""
        return str(self._uri)

    @property
    def endpoint(self) -> str:
        return self._endpoint

    @property
    def version(self) -> str:
        return ""

    @property
    def traits(self) -> Traits:
        return self._traits

    def close(self) -> None:
        """Close the connections. Happens by itself when the backend is no longer used."""
        self._close()

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`, retried as the policy says; `sent["attempts"]` counts.

        Raises BackendError where the endpoint fails, ImageError where an image cannot be encoded.
        """
        sizes = boxes.sizes_of(request, max_side=self._traits.max_image_side)
        request = boxes.outgoing(request, self._traits.boxes, sizes)
        in_place = self._traits.tool_result_images
        messages = wire.messages_of(
            request,
            lambda ref: self._image_urls.of(images, ref),
            tool_images=in_place,
            image_ids=self._service.image_ids,
        )
        outcome = retry.call(
            lambda: self._negotiated(request, messages),
            policy=self._policy,
            limit=limit_of(self._endpoint),
            sleep=self._sleep,
        )
        sent: dict[str, Json] = {**outcome.value.sent, "attempts": outcome.attempts}
        if moves_pictures(request):
            sent["tool_images"] = "in the tool's message" if in_place else "in a user's message behind it"
        return boxes.incoming(replace(outcome.value, sent=sent), self._traits.boxes, sizes)

    def context_limit(self) -> int | None:
        """Tokens that one conversation may have, where the endpoint's list of models tells; None where it does not.

        Raises BackendError.
        """
        try:
            listed = self._client.models.list().data or []
        except ValueError as error:
            raise Rejected(f"{self._site.where}: /models is not JSON") from error
        except wire.foreign_errors() as error:
            raise wire.backend_error(error, self._site) from error
        found = next((model.model_extra or {} for model in listed if model.id == self._uri.model), {})
        # vLLM's name, then those of gateways.
        told = (found.get(name) for name in ("max_model_len", "context_length", "context_window"))
        return next((n for n in told if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)

    def _negotiated(self, request: Request, messages: list[Json]) -> Reply:
        """One answer, without the parameters that this model turns out to refuse. Remembered: it is asked once."""
        import openai

        while True:
            renamed = self._renamed
            known, extras = wire.parameters_of(self._uri.model, request, renamed), self._service.extras(request)
            sent = {**known, **extras}
            try:
                body = self._post({**known, "messages": messages, **extras})
                break
            except wire.foreign_errors() as error:
                name = _refused_parameter(error, sent) if isinstance(error, openai.APIStatusError) else None
                filtered = wire.filtered_reply(error, sent, self._site) if name is None else None
                if filtered is not None:
                    return filtered
                if name is None:
                    raise wire.backend_error(error, self._site) from error
                with self._lock:
                    self._renamed = {**self._renamed, name: _REPLACEMENTS[name]}
        asked = (name for name, value in request.sampling.to_json().items() if value is not None)
        dropped: list[Json] = [name for name in asked if renamed.get(name, name) is None]
        return wire.read_reply(body, {**sent, "dropped": dropped} if dropped else sent, self._site)

    def _post(self, body: dict[str, Json]) -> bytes:
        """The answer's bytes. Raises `wire.foreign_errors`, and BackendError for an answer that is too late or too long."""
        deadline = time.monotonic() + self._site.timeout_s
        chunks, size = [], 0
        # Read in pieces because the client's own time-out starts anew with every byte: a server that sends a blank now
        # and then to keep the connection would hold a worker for ever.
        # The SDK's way to an endpoint without a method of its own: the method for this one walks through all messages by
        # their types with each call, which costs more than all the rest of a turn. What the header asks for is what
        # `with_streaming_response` asks for.
        asked = {"headers": {"X-Stainless-Raw-Response": "stream"}}
        post = cast("Any", self._client.post)
        with closing(post("/chat/completions", cast_to=object, body=body, options=asked)) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if time.monotonic() > deadline:
                    told = f"no whole answer within {self._site.timeout_s:g} s ({size:,} bytes so far)"
                    raise Unavailable(f"{self._site.where}: {told}")
                if size > MAX_REPLY_BYTES:
                    raise Rejected(f"{self._site.where}: the answer is longer than {MAX_REPLY_BYTES:,} bytes")
        return b"".join(chunks)


def _refused_parameter(error: openai.APIStatusError, sent: Mapping[str, Json]) -> str | None:
    """The name of a parameter that was sent, that the model says it does not take, and that we can do without."""
    name = error.param
    if error.status_code != 400 or name not in _REPLACEMENTS or name not in sent:
        return None
    return name if _REFUSES_PARAMETER.search(f"{error.code} {said(error.body)}") else None


# The URI's parts
