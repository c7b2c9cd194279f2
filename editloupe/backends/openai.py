"""Chat completions over the official `openai` SDK: OpenAI itself and every server that speaks its protocol.

openai/MODEL                                        https://api.openai.com/v1
openai/MODEL?base_url=http://127.0.0.1:8000/v1      any compatible server, such as a served Qwen-VL

Further parameters: `env` (the variable that holds the key; `none` sends no key), `timeout_s` (of one attempt), `boxes`
(how the model writes boxes; editloupe/backends/boxes.py) and `max_image_side` (px; longer images are reduced).
How requests, replies and errors are translated stands in editloupe/backends/openai_wire.py.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends import openai_wire as wire
from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.client_pool import ClientPool
from editloupe.backends.endpoint import Address, bounded, is_loopback, read_address
from editloupe.backends.payload import REPLY_BOUND, TOO_LONG, ImageURLs, said
from editloupe.backends.remote import Remote
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, Rejected
from editloupe.values import Json

if TYPE_CHECKING:
    import openai

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_REPLACEMENTS: Final[Mapping[str, str | None]] = {
    "temperature": None,
    "top_p": None,
    "seed": None,
    # OpenAI's reasoning models take the second name only, many compatible servers the first only.
    "max_tokens": "max_completion_tokens",
    "response_format": None,
}
"""Parameters that some models refuse, and what is sent instead."""
_REFUSES_PARAMETER = re.compile(
    r"support|only the default|not allowed|not permitted|deprecated|unknown|unrecognized|unexpected|extra_forbidden",
    re.IGNORECASE,
)


def _traits(model: str, endpoint: str) -> Traits:
    return Traits(describes=f"{model} over chat completions at {endpoint}", native_tools=True, constrains_schema=True)


def _extras(request: Request) -> dict[str, Json]:
    """Return the field that holds the schema of the answer."""
    if request.answer_schema is None:
        return {}
    return {"response_format": wire.response_format(request.answer_schema)}


@dataclass(frozen=True, kw_only=True)
class Service:
    """What differs between services that speak this protocol."""

    base_url: str = DEFAULT_BASE_URL
    """Where it answers unless the URI says so."""
    base_url_variable: str | None = "OPENAI_BASE_URL"
    """An environment variable that stands above `base_url`."""
    key_variable: str = DEFAULT_KEY_VARIABLE
    """The environment variable that holds the key."""
    key_needed: bool = True
    """Whether an address that is not this machine's needs a key."""
    traits: Callable[[str, str], Traits] = _traits
    """(model, endpoint) → traits."""
    extras: Callable[[Request], dict[str, Json]] = _extras
    """The fields of the body that hold the answer to a list or a schema."""
    image_ids: bool = False
    """Whether images carry their digest as `uuid`."""
    hints: tuple[tuple[re.Pattern[str], str], ...] = ()
    """(pattern of what the server says when it refuses, what to do about it)."""


OPENAI: Final = Service()


def open_backend(
    uri: BackendURI,
    *,
    service: Service = OPENAI,
    place: str | None = None,
    policy: RetryPolicy = retry.DEFAULT_POLICY,
    sleep: Callable[[float], None] = time.sleep,
) -> OpenAIBackend:
    """Open the backend behind `openai/MODEL`, or behind another service's URI. Nothing is sent yet.

    place: what is shown and recorded as the endpoint of a server whose base_url is new with every start; the base_url is
    then no part of the URI.
    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    address = read_address(
        uri,
        base_url=service.base_url,
        base_url_variable=service.base_url_variable,
        example="http://HOST:PORT/v1 or https://HOST/v1",
        key_variables=(service.key_variable,),
        key_needed=service.key_needed,
        hints=service.hints,
        lasting_base_url=place is None,
    )
    try:
        import openai
    except ImportError as error:
        raise ConfigError(f"backend {uri.provider!r} needs the package openai: pip install 'openai>=2.30,<4'") from error
    # A proxy from the environment has no business between us and a server on this machine.
    trust_env = not is_loopback(address.endpoint)
    # The SDK's client is httpx's up to 2 and httpx2's from 3 on.
    library: Any = importlib.import_module("httpx" if int(openai.__version__.partition(".")[0]) < 3 else "httpx2")
    # Reading the certificates takes longer than a call: once for all clients.
    certificates = library.create_ssl_context(trust_env=trust_env)
    http_client = bounded(openai.DefaultHttpxClient, address.info)

    def new_client() -> openai.OpenAI:
        return openai.OpenAI(
            api_key=address.key.value or "none",
            base_url=address.endpoint,
            max_retries=0,
            http_client=http_client(verify=certificates, trust_env=trust_env),
        )

    return OpenAIBackend(
        address, place or address.endpoint, ClientPool(new_client), service=service, policy=policy, sleep=sleep
    )


class OpenAIBackend(Remote):
    """A model behind a chat completions endpoint."""

    def __init__(
        self,
        address: Address,
        place: str,
        clients: ClientPool[openai.OpenAI],
        *,
        service: Service = OPENAI,
        policy: RetryPolicy,
        sleep: Callable[[float], None],
    ) -> None:
        traits = service.traits(address.uri.model, place)
        traits = replace(traits, boxes=address.dialect, max_image_side=address.max_image_side)
        tool_images = "in the tool's message" if traits.tool_result_images else "in a user's message behind it"
        super().__init__(
            address.uri, place, traits, close=clients.close, tool_images=tool_images, policy=policy, sleep=sleep
        )
        self._service, self._clients, self._info = service, clients, address.info
        self._image_urls = ImageURLs(traits.image_policy)
        self._renamed: Mapping[str, str | None] = {}

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have; None where the endpoint's list of models does not say.

        Raises BackendError.
        """
        import openai

        try:
            with self._clients.borrow() as client:
                listed = client.models.list().data or []
        except ValueError as error:
            raise Rejected(f"{self._info.where}: /models is not JSON") from error
        except openai.OpenAIError as error:
            raise wire.backend_error(error, self._info) from error
        found = next((model.model_extra or {} for model in listed if model.id == self._uri.model), {})
        # vLLM's name, then those of gateways.
        limits = (found.get(name) for name in ("max_model_len", "context_length", "context_window"))
        return next((n for n in limits if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)

    def _ready(self, request: Request, images: ImageStore) -> Callable[[], Reply]:
        messages = wire.Spliced.of(
            lambda image_url: wire.messages_of(
                request, image_url, tool_images=self.traits.tool_result_images, image_ids=self._service.image_ids
            ),
            lambda ref: self._image_urls.ascii(images, ref),
        )
        return lambda: self._negotiated(request, messages)

    def _negotiated(self, request: Request, messages: wire.Spliced) -> Reply:
        """Return one answer, without the parameters that this model refuses. Refusals are remembered."""
        import openai

        unbounded: dict[str, None] = {}
        while True:
            renamed = {**self._renamed, **unbounded}
            known = wire.parameters_of(self._uri.model, request, renamed)
            extras = {n: value for n, value in self._service.extras(request).items() if renamed.get(n, n) is not None}
            sent = {**known, **extras}
            try:
                body = self._post(messages.within(known, extras))
                break
            except openai.OpenAIError as error:
                if isinstance(error, openai.APIStatusError) and _refuses_bound(error, sent):
                    unbounded = {"max_tokens": None}
                    if not TOO_LONG.search(said(error.body)):
                        # The model's own bound, and not what this conversation leaves of the context.
                        with self._lock:
                            self._renamed = {**self._renamed, **unbounded}
                    continue
                name = _refused_parameter(error, sent) if isinstance(error, openai.APIStatusError) else None
                filtered = wire.filtered_reply(error, sent, self._info) if name is None else None
                if filtered is not None:
                    return filtered
                if name is None:
                    raise wire.backend_error(error, self._info) from error
                with self._lock:
                    self._renamed = {**self._renamed, name: None if name in self._renamed else _REPLACEMENTS[name]}
        asked = (name for name, value in request.sampling.to_json().items() if value is not None)
        dropped: list[Json] = [name for name in asked if renamed.get(name, name) is None]
        if request.answer_schema is not None and "response_format" in renamed:
            dropped.append("answer_schema")
        return wire.read_reply(body, {**sent, "dropped": dropped} if dropped else sent, self._info)

    def _post(self, body: bytes) -> bytes:
        """Return the answer's bytes. Raises openai.OpenAIError, and BackendError for an answer too late or too long."""
        with self._clients.borrow() as client:
            # As bytes and by the general method: `chat.completions.create` walks through all messages by their types with
            # each call, which costs more than all the rest of a turn.
            return client.post("/chat/completions", cast_to=bytes, content=body)


def _refuses_bound(error: openai.APIStatusError, sent: Mapping[str, Json]) -> bool:
    """Return True if the reply was bounded higher than the server takes. Without a bound it takes its own."""
    bounded = "max_tokens" in sent or "max_completion_tokens" in sent
    return bounded and error.status_code in (400, 422) and bool(REPLY_BOUND.search(said(error.body)))


def _refused_parameter(error: openai.APIStatusError, sent: Mapping[str, Json]) -> str | None:
    """Return our name of a parameter that was sent, that the model does not take, and that we can do without.

    Some servers do not say under `param` which it is, but in their words alone.
    """
    words = f"{error.code} {said(error.body)}"
    if error.status_code not in (400, 422) or not _REFUSES_PARAMETER.search(words):
        return None
    here = {"max_tokens" if name == "max_completion_tokens" else name: name for name in sent}
    named = [ours for ours, name in here.items() if ours in _REPLACEMENTS and name == error.param]
    if not named and not error.param:
        named = [n for n, name in here.items() if n in _REPLACEMENTS and re.search(rf"\b{name}\b", words)]
    return named[0] if named else None
