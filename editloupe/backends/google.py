"""Gemini over the official `google-genai` SDK.

google/MODEL                                        https://generativelanguage.googleapis.com
google/MODEL?base_url=http://127.0.0.1:8080         a gateway, or a server of your own, that speaks the same protocol

Further parameters stand in docs/backends.md; how requests and replies are translated, in editloupe/backends/google_wire.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from editloupe.backends import google_wire, payload, retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import Endpoint, Provider, is_loopback, read_endpoint
from editloupe.backends.failures import Failed, failure, is_filtered
from editloupe.backends.remote import ParameterRefused, Remote
from editloupe.backends.transport import bounded
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, MissingExtra, Rejected

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


def open_backend(uri: BackendURI, *, policy: retry.RetryPolicy = retry.DEFAULT_POLICY) -> GoogleBackend:
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
    most_ms = max(1, round(1000 * endpoint.timeout_s))
    options = types.HttpOptions(base_url=endpoint.url, api_version="v1beta", timeout=most_ms, httpx_client=http)
    # vertexai is said, or the environment may turn the client to another service.
    client = genai.Client(api_key=endpoint.key or "none", vertexai=False, http_options=options)
    return GoogleBackend(endpoint, client, http, policy=policy)


class GoogleBackend(Remote):
    """A Gemini model."""

    def __init__(self, endpoint: Endpoint, client: Any, http: Any, *, policy: retry.RetryPolicy) -> None:
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
        system, contents = google_wire.contents_of(request, lambda ref: images.encoded(ref, self.traits.image_policy))
        return lambda refused: self._asked(request, system, contents, refused)

    def _asked(self, request: Request, system: Any, contents: list[Any], refused: frozenset[str]) -> Reply:
        model, where = self._uri.model, self._at
        sent, config = google_wire.config_of(model, request, system, refused)
        tokens, answered = request.top_logprobs is not None, self._first.answered
        try:
            answer = self._client.models.generate_content(model=model, contents=contents, config=config)
            body = (answer.sdk_http_response.body if answer.sdk_http_response else None) or ""
            return google_wire.read_reply(body.encode("utf-8", "replace"), sent, where, tokens=tokens, answered=answered)
        except Failed as error:
            if is_filtered(error.told):
                return Reply(text=error.told.shown, finish="filter", sent=sent)
            if names := google_wire.refused(error.told, sent):
                raise ParameterRefused(*names) from error
            hint = google_wire.ADDRESS_HINT
            raise failure(error.told, where, request=request, answered=answered, hint=hint) from error
        except BackendError:
            raise
        except Exception as error:
            # What the SDK raises is no closed list: its own errors, those of two HTTP libraries, pydantic's.
            error.args = tuple(payload.clean_text(str(one), where.scrub) for one in error.args)
            if type(error).__module__.startswith("http"):
                raise where.unreachable(error) from error
            words = payload.one_line(f"{type(error).__name__}: {where.scrub(str(error))}")
            raise Rejected(f"{where.where}: the SDK refuses the request ({words})") from error
