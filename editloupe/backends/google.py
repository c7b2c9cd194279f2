"""Gemini over the official `google-genai` SDK.

google/MODEL                                        https://generativelanguage.googleapis.com
google/MODEL?base_url=http://127.0.0.1:8080         a gateway, or a server of your own, that speaks the same protocol

Further parameters: `env`, `timeout_s`, `boxes` and `max_image_side` (docs/backends.md).
How requests, replies and errors are translated stands in editloupe/backends/google_wire.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends import google_wire as wire
from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import Endpoint, Provider, is_loopback, read_endpoint
from editloupe.backends.failures import Failed, is_filtered
from editloupe.backends.remote import ParameterRefused, Remote
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.transport import bounded
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, MissingExtra

if TYPE_CHECKING:
    from google import genai

GOOGLE: Final = Provider(
    traits=Traits(
        describes="over google-genai at {place}",
        native_tools=True,
        tool_result_images=True,
        constrains_schema=True,
        gives_logprobs=True,
    ),
    base_url="https://generativelanguage.googleapis.com",
    base_url_variable="GOOGLE_GEMINI_BASE_URL",
    # The SDK's own.
    key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
)


def open_backend(uri: BackendURI, *, policy: RetryPolicy = retry.DEFAULT_POLICY) -> GoogleBackend:
    """Open the backend behind `google/MODEL`. Nothing is sent yet.

    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    if set(uri.model) & set("?#%\\ ") or ".." in uri.model:
        raise ConfigError(f"backend google: {uri.model!r} cannot be a model's name; expected one such as gemini-2.5-pro")
    endpoint = read_endpoint(uri, GOOGLE)
    try:
        from google import genai
        from google.genai import types
    except ImportError as error:
        raise MissingExtra("backend 'google'", "google") from error
    # The SDK's client is httpx's up to 2 and httpx2's from 3 on.
    library: Any = importlib.import_module("httpx" if int(genai.__version__.partition(".")[0]) < 3 else "httpx2")

    # A proxy from the environment has no business between us and a server on this machine. A redirect would take the key.
    http = bounded(library.Client, endpoint)(trust_env=not is_loopback(endpoint.url), follow_redirects=False)
    client = genai.Client(
        api_key=endpoint.key or "none",
        # Said, or the environment may turn the client to another service.
        vertexai=False,
        http_options=types.HttpOptions(
            base_url=endpoint.url,
            api_version="v1beta",
            timeout=max(1, round(1000 * endpoint.timeout_s)),
            httpx_client=http,
        ),
    )
    return GoogleBackend(endpoint, client, http, policy=policy)


class GoogleBackend(Remote):
    """A Gemini model."""

    def __init__(self, endpoint: Endpoint, client: genai.Client, http: Any, *, policy: RetryPolicy) -> None:
        super().__init__(
            endpoint.uri,
            endpoint.url,
            endpoint.traits,
            address=endpoint.url,
            close=http.close,
            tool_images="beside the function responses, in the same content",
            policy=policy,
        )
        self._client, self._at = client, endpoint

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Reply]:
        policy = self.traits.image_policy
        system, contents = wire.contents_of(request, lambda ref: images.encoded(ref, policy))
        return lambda refused: self._asked(request, system, contents, refused)

    def _asked(self, request: Request, system: Any, contents: list[Any], refused: frozenset[str]) -> Reply:
        model = self._uri.model
        sent, config = wire.config_of(model, request, system, refused)
        try:
            answer = self._client.models.generate_content(model=model, contents=contents, config=config)
        except Failed as error:
            if is_filtered(error.told):
                return Reply(text=error.told.shown, finish="filter", sent=sent)
            if names := wire.refused(error.told, sent):
                raise ParameterRefused(*names) from error
            pictures = sum(len(message.images) for message in request.messages)
            raise wire.failure_of(error.told, self._at, pictures=pictures, answered=self._first.answered) from error
        except BackendError:
            raise
        except Exception as error:
            # What the SDK raises is no closed list: its own errors, those of two HTTP libraries, pydantic's.
            raise wire.backend_error(error, self._at) from error
        response = answer.sdk_http_response
        body = (response.body if response else None) or ""
        wanted = request.top_logprobs is not None
        return wire.read_reply(body.encode("utf-8", "replace"), sent, self._at, tokens=wanted)
