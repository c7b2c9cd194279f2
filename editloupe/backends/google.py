"""Gemini over the official `google-genai` SDK.

google/MODEL                                        https://generativelanguage.googleapis.com
google/MODEL?base_url=http://127.0.0.1:8080         a gateway, or a server of your own, that speaks the same protocol

Further parameters: `env` (the variable that holds the key; `none` sends no key), `timeout_s` (of one attempt) and `boxes`
(how the model writes boxes; editloupe/backends/boxes.py). How requests, replies and errors are translated stands in
editloupe/backends/google_wire.py.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends import boxes, retry
from editloupe.backends import google_wire as wire
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import Key, Site, checked_base_url, checked_timeout, is_loopback
from editloupe.backends.limits import limit_of
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Reply, Request
from editloupe.data.images import EncodedImage, ImagePolicy, ImageStore
from editloupe.errors import BackendError, ConfigError, MissingExtra, Rejected, Unavailable
from editloupe.values import ImageRef, Json

if TYPE_CHECKING:
    from google import genai

DEFAULT_BASE_URL: Final = "https://generativelanguage.googleapis.com"
KEY_VARIABLES: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
"""Where the key is looked for, in this order: the SDK's own."""

CONNECT_TIMEOUT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""

_PARAMETERS = ("base_url", "boxes", "env", "timeout_s")
_API_VERSION = "v1beta"


def open_backend(
    uri: BackendURI, *, policy: RetryPolicy = retry.DEFAULT_POLICY, sleep: Callable[[float], None] = time.sleep
) -> GoogleBackend:
    """The backend behind `google/MODEL`. Nothing is sent yet.

    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected google/MODEL")
    if set(uri.model) & set("?#%\\ ") or ".." in uri.model:
        raise ConfigError(f"backend google: {uri.model!r} cannot be a model's name; expected one such as gemini-2.5-pro")
    unknown = sorted(set(uri.params) - set(_PARAMETERS))
    if unknown:
        raise ConfigError(
            f"backend {uri.provider}/{uri.model}: unknown parameter {', '.join(map(repr, unknown))}; "
            f"known: {', '.join(_PARAMETERS)}"
        )
    params = dict(uri.params)
    if "base_url" not in params and os.environ.get("GOOGLE_GEMINI_BASE_URL"):
        # The SDK's own variable. It becomes a part of the URI, so that a run says where its images went.
        params["base_url"] = os.environ["GOOGLE_GEMINI_BASE_URL"]
    if "base_url" in params:
        params["base_url"] = checked_base_url(params["base_url"], example="http://HOST:PORT or https://HOST")
    dialect = boxes.checked(params.get("boxes", boxes.DEFAULT))
    timeout_s = checked_timeout(params.get("timeout_s"))
    endpoint = params.get("base_url", DEFAULT_BASE_URL)
    key = _key(params.get("env"), endpoint)
    try:
        from google import genai
        from google.genai import types
    except ImportError as error:
        raise MissingExtra("backend 'google'", "google") from error
    site = Site(
        where=f"{endpoint}, model {uri.model!r}",
        timeout_s=timeout_s,
        connect_s=min(CONNECT_TIMEOUT_S, timeout_s),
        key_hint=key.hint,
        scrub=key.scrub,
    )
    # A proxy from the environment has no business between us and a server on this machine.
    http = _http_client(site, direct=is_loopback(endpoint))
    client = genai.Client(
        api_key=key.value or "none",
        # Said, or the environment may turn the client to another service.
        vertexai=False,
        http_options=types.HttpOptions(
            base_url=endpoint, api_version=_API_VERSION, timeout=max(1, round(1000 * timeout_s)), httpx_client=http
        ),
    )
    # How long we wait and which key pays do not change who judges: with a longer time-out a run goes on, not anew.
    lasting = {name: value for name, value in params.items() if name == "base_url"}
    if dialect != boxes.DEFAULT:
        lasting["boxes"] = dialect
    canonical = BackendURI(provider=uri.provider, model=uri.model, params=lasting)
    return GoogleBackend(canonical, endpoint, site, client, http, dialect=dialect, policy=policy, sleep=sleep)


class GoogleBackend:
    """A Gemini model. Thread-safe; one HTTP client is shared."""

    def __init__(
        self,
        uri: BackendURI,
        endpoint: str,
        site: Site,
        client: genai.Client,
        http: Any,
        *,
        dialect: str,
        policy: RetryPolicy,
        sleep: Callable[[float], None],
    ) -> None:
        self._uri, self._endpoint, self._site, self._client = uri, endpoint, site, client
        self._policy, self._sleep = policy, sleep
        self._traits = Traits(
            describes=f"{uri.model} over google-genai at {endpoint}",
            native_tools=True,
            tool_result_images=True,
            boxes=dialect,
        )
        self._images = ImagePolicy(formats=self._traits.image_formats, max_side=self._traits.max_image_side)
        self._lock = threading.Lock()
        self._dropped: frozenset[str] = frozenset()
        self._close = weakref.finalize(self, http.close)

    def __repr__(self) -> str:
        return f"GoogleBackend({self.uri!r})"

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
        spoken = boxes.outgoing(request, self._traits.boxes, sizes)

        def encoded(ref: ImageRef) -> EncodedImage:
            return images.encoded(ref, self._images)

        system, contents = wire.contents_of(spoken, encoded)
        outcome = retry.call(
            lambda: self._negotiated(spoken, system, contents),
            policy=self._policy,
            limit=limit_of(self._endpoint),
            sleep=self._sleep,
        )
        sent: dict[str, Json] = {**outcome.value.sent, "attempts": outcome.attempts}
        if any(message.role == "tool" and message.images for message in request.messages):
            sent["tool_images"] = "beside the function responses, in the same content"
        return boxes.incoming(replace(outcome.value, sent=sent), self._traits.boxes, sizes)

    def _negotiated(self, request: Request, system: Any, contents: list[Any]) -> Reply:
        """One answer, without the parameters that this model turns out to refuse. Remembered: it is asked once."""
        while True:
            dropped = self._dropped
            sent, config = wire.config_of(self._uri.model, request, system, dropped)
            try:
                body = self._post(contents, config)
                break
            except Rejected as error:
                name = wire.refused_parameter(error, sent)
                if name is None:
                    raise
                with self._lock:
                    self._dropped |= {name}
        asked = {name for name, value in request.sampling.to_json().items() if value is not None}
        missing: list[Json] = [name for name in wire.SAMPLING if name in asked & dropped]
        return wire.read_reply(body, {**sent, "dropped": missing} if missing else sent, self._site)

    def _post(self, contents: list[Any], config: Any) -> bytes:
        """The answer's bytes, as they came. Raises BackendError."""
        try:
            answer = self._client.models.generate_content(model=self._uri.model, contents=contents, config=config)
        except BackendError:
            raise
        except Exception as error:
            # What the SDK raises is no closed list: its own errors, those of two HTTP libraries, pydantic's.
            raise wire.backend_error(error, self._site) from error
        response = answer.sdk_http_response
        return ((response.body if response else None) or "").encode("utf-8", "replace")


def _http_client(site: Site, *, direct: bool) -> Any:
    """The HTTP client that the SDK sends through: every answer is read within one time and one size.

    The SDK's own time-out starts anew with every byte: a server that sends a blank now and then to keep the connection
    would hold a worker for ever. A failed answer is translated here, before the SDK makes an error of it that holds the
    request, and in it the key. Redirects are not followed: the key would go with them.
    """
    from google import genai

    # The SDK's client is httpx's up to 2 and httpx2's from 3 on.
    library: Any = importlib.import_module("httpx" if int(genai.__version__.partition(".")[0]) < 3 else "httpx2")

    class Bounded(library.Client):  # type: ignore[misc]
        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            deadline = time.monotonic() + site.timeout_s
            request.extensions["timeout"] = library.Timeout(site.timeout_s, connect=site.connect_s).as_dict()
            response = super().send(request, stream=True, **options)
            chunks, size = [], 0
            try:
                for chunk in response.iter_bytes():
                    chunks.append(chunk)
                    size += len(chunk)
                    if time.monotonic() > deadline:
                        told = f"no whole answer within {site.timeout_s:g} s ({size:,} bytes so far)"
                        raise Unavailable(f"{site.where}: {told}")
                    if size > MAX_REPLY_BYTES:
                        raise Rejected(f"{site.where}: the answer is longer than {MAX_REPLY_BYTES:,} bytes")
            finally:
                response.close()
            body = b"".join(chunks)
            if response.status_code != 200:
                raise wire.failure(response.status_code, body, response.headers, site)
            return library.Response(200, headers=_plain(response.headers), content=body, request=request)

    return Bounded(trust_env=not direct, follow_redirects=False)


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a body that is no longer packed."""
    return {
        n: v for n, v in headers.items() if n.lower() not in ("content-encoding", "content-length", "transfer-encoding")
    }


def _key(variable: str | None, endpoint: str) -> Key:
    """The key for an endpoint. Raises ConfigError where one is needed and missing, or cannot be a key."""
    if variable == "none":
        return Key("", "no key was sent (env=none); name the variable that holds it with ?env=NAME")
    if variable is not None and not variable.isidentifier():
        # It may be the key itself, so it is not repeated.
        raise ConfigError("env names the environment variable that holds the key, such as env=MY_KEY; it is not the key")
    variables = KEY_VARIABLES if variable is None else (variable,)
    for name in variables:
        value = os.environ.get(name, "").strip()
        if value:
            # The HTTP library's own complaint about such a header would show the key.
            if not value.isascii() or not value.isprintable() or " " in value:
                raise ConfigError(f"the key in environment variable {name} holds blanks or characters that are not ASCII")
            return Key(value, f"check the key in environment variable {name}")
    where = " or ".join(variables)
    if variable is None and is_loopback(endpoint):
        return Key("", f"no key was sent; set environment variable {where}, or name another with ?env=NAME")
    raise ConfigError(
        f"backend google needs a key for {endpoint}: set environment variable {where}, or name the variable that holds "
        "it with ?env=NAME (?env=none where the server asks for none)"
    )
