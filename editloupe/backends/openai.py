"""Chat completions over the official `openai` SDK: OpenAI itself and every server that speaks its protocol.

openai/MODEL                                        https://api.openai.com/v1
openai/MODEL?base_url=http://127.0.0.1:8000/v1      any compatible server, such as a served Qwen-VL

Further parameters: `env` (the variable that holds the key; `none` sends no key) and `timeout_s` (of one attempt).
One translation each way: `Request` → wire, wire → `Reply`, foreign errors → BackendError.
"""

from __future__ import annotations

import base64
import email.utils
import functools
import importlib
import ipaddress
import json
import math
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import (
    Finish,
    ImagePart,
    MalformedCall,
    Message,
    Part,
    Reply,
    Request,
    TextPart,
    ToolCall,
    ToolSpec,
    Usage,
)
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import BackendError, ConfigError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import ImageRef, Json

if TYPE_CHECKING:
    import openai

Object: TypeAlias = Mapping[str, Json]

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE: Final = "OPENAI_API_KEY"
DEFAULT_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""

IMAGE_TEXT_BYTES: Final = 256 * 2**20
"""Base64 text kept for the turns to come; beyond it the longest unused goes first."""

_PARAMETERS = ("base_url", "env", "timeout_s")

_REPLACEMENTS: Final[Mapping[str, str | None]] = {
    "temperature": None,
    "top_p": None,
    "seed": None,
    # OpenAI's reasoning models take the second name only, many compatible servers the first only.
    "max_tokens": "max_completion_tokens",
}
"""Parameters that some models refuse, and what is sent instead."""

_REFUSES_PARAMETER = re.compile(r"support|only the default|not allowed|deprecated", re.IGNORECASE)

# OpenAI and vLLM say "maximum context length", newer vLLM "maximum model length", llama.cpp "context size".
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (context|model) length|context (length|size|window)"
    r"|prompt is too long|input is too long",
    re.IGNORECASE,
)

_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "filter",
}

_IMAGE_DATA = re.compile(r"(data:image/[\w.+-]+;base64,)[A-Za-z0-9+/=]{16,}")
_SHORTEST_SECRET = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""


def open_backend(
    uri: BackendURI, *, policy: RetryPolicy = retry.DEFAULT_POLICY, sleep: Callable[[float], None] = time.sleep
) -> OpenAIBackend:
    """The backend behind `openai/MODEL`. Nothing is sent yet.

    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected openai/MODEL")
    unknown = sorted(set(uri.params) - set(_PARAMETERS))
    if unknown:
        raise ConfigError(
            f"backend {uri.provider}/{uri.model}: unknown parameter {', '.join(map(repr, unknown))}; "
            f"known: {', '.join(_PARAMETERS)}"
        )
    params = dict(uri.params)
    if "base_url" not in params and os.environ.get("OPENAI_BASE_URL"):
        # The SDK's own variable. It becomes a part of the URI, so that a run says where its images went.
        params["base_url"] = os.environ["OPENAI_BASE_URL"]
    if "base_url" in params:
        params["base_url"] = _checked_base_url(params["base_url"])
    timeout_s = _checked_timeout(params.get("timeout_s"))
    endpoint = params.get("base_url", DEFAULT_BASE_URL)
    key = _key(params.get("env", DEFAULT_KEY_VARIABLE), endpoint, named="env" in params)
    try:
        import openai
    except ImportError as error:
        raise ConfigError("backend 'openai' needs the package openai: pip install 'openai>=2.30,<4'") from error
    client = openai.OpenAI(
        api_key=key.value or "none",
        base_url=endpoint,
        max_retries=0,
        timeout=openai.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
        # A proxy from the environment has no business between us and a server on this machine.
        http_client=openai.DefaultHttpxClient(trust_env=False) if _is_loopback(endpoint) else None,
    )
    # How long we wait and which key pays do not change who judges: with a longer time-out a run goes on, not anew.
    lasting = {name: value for name, value in params.items() if name == "base_url"}
    canonical = BackendURI(provider=uri.provider, model=uri.model, params=lasting)
    return OpenAIBackend(canonical, endpoint, key, client, timeout_s=timeout_s, policy=policy, sleep=sleep)


class OpenAIBackend:
    """A model behind a chat completions endpoint. Thread-safe; one HTTP client is shared."""

    def __init__(
        self,
        uri: BackendURI,
        endpoint: str,
        key: _Key,
        client: openai.OpenAI,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        policy: RetryPolicy = retry.DEFAULT_POLICY,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._uri, self._endpoint, self._key, self._client = uri, endpoint, key, client
        self._timeout_s, self._policy, self._sleep = timeout_s, policy, sleep
        self._traits = Traits(describes=f"{uri.model} over chat completions at {endpoint}")
        self._image_urls = _ImageURLs(ImagePolicy(formats=self._traits.image_formats, max_side=self._traits.max_image_side))
        self._lock = threading.Lock()
        self._dropped: frozenset[str] = frozenset()
        self._close = weakref.finalize(self, client.close)

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.uri!r})"

    @property
    def uri(self) -> str:
        """Provider, model and base_url: what the judge's identity rests on."""
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
        messages = [_wire_message(m, functools.partial(self._image_urls.of, images)) for m in request.messages]
        outcome = retry.call(lambda: self._negotiated(request, messages), policy=self._policy, sleep=self._sleep)
        return replace(outcome.value, sent={**outcome.value.sent, "attempts": outcome.attempts})

    def _negotiated(self, request: Request, messages: list[Object]) -> Reply:
        """One answer, without the parameters that this model turns out to refuse. Remembered: it is asked once."""
        import openai

        while True:
            dropped = self._dropped
            sent = _wire_parameters(self._uri.model, request, dropped)
            try:
                body = self._post({**sent, "messages": messages})
                break
            except openai.APIStatusError as error:
                refused = _refused_parameter(error, sent)
                if refused is None:
                    raise self._translated(error) from error
                with self._lock:
                    self._dropped |= {refused}
            except (openai.OpenAIError, _http_error()) as error:
                raise self._translated(error) from error
        gone: list[Json] = [n for n, v in request.sampling.to_json().items() if v is not None and _left_out(n, dropped)]
        return _reply(self._payload(body), sent={**sent, "dropped": gone} if gone else sent)

    def _post(self, wire: dict[str, Json]) -> bytes:
        """The answer's bytes. Raises the SDK's and its HTTP library's errors, and Unavailable."""
        deadline = time.monotonic() + self._timeout_s
        chunks, size = [], 0
        # Read in pieces because the client's own time-out starts anew with every byte: a server that sends a blank now
        # and then to keep the connection would hold a worker for ever.
        create = cast("Any", self._client.chat.completions.with_streaming_response.create)
        with create(**wire) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"{self._where()}: no whole answer within {self._timeout_s:g} s ({size:,} bytes so far)"
                    )
                if size > MAX_REPLY_BYTES:
                    raise Rejected(f"{self._where()}: the answer is longer than {MAX_REPLY_BYTES:,} bytes")
        return b"".join(chunks)

    def _payload(self, body: bytes) -> Object:
        """The answer as an object without the key, image data and text that is not Unicode."""
        try:
            # RecursionError: a few kB of "[" are enough.
            payload = _cleaned(_loads(body), self._key)
        except (ValueError, RecursionError) as error:
            if body.lstrip()[:1] == b"<":
                raise Rejected(f"{self._where()}: answered with a web page, not JSON; {_BASE_URL_HINT}") from error
            raise Unavailable(f"{self._where()}: the answer ({len(body):,} bytes) is not whole JSON: {error}") from error
        if not isinstance(payload, Mapping):
            raise Unavailable(f"{self._where()}: expected a JSON object, found {str(payload)[:80]!r}")
        # Some gateways report a failure with HTTP 200 and an error in place of the answer.
        error_body = payload.get("error")
        if error_body and not payload.get("choices"):
            code = error_body.get("code") if isinstance(error_body, Mapping) else None
            raise self._failure(code if isinstance(code, int) and 400 <= code < 600 else 502, error_body)
        return payload

    def _translated(self, error: Exception) -> BackendError:
        """The SDK's or the HTTP library's error as ours. `error` is cleaned in place, since it becomes the cause."""
        import openai

        if isinstance(error, openai.APIError):
            error.message = _clean_text(error.message, self._key)
            try:
                error.body = _cleaned(_as_json(error.body), self._key)
            except RecursionError:
                error.body = None
        error.args = tuple(_clean_text(str(a), self._key) for a in error.args)
        if isinstance(error, openai.APIStatusError):
            return self._failure(error.status_code, error.body, retry_after_s=_retry_after_s(error.response.headers))
        cause = error.__cause__ or error
        kind, said = type(cause).__name__, self._key.scrub(str(cause))
        if "ConnectTimeout" in kind:
            return Unavailable(f"{self._where()}: no connection within {min(CONNECT_TIMEOUT_S, self._timeout_s):g} s")
        if isinstance(error, openai.APITimeoutError) or "Timeout" in kind:
            return Unavailable(f"{self._where()}: no answer within {self._timeout_s:g} s")
        if isinstance(error, openai.APIConnectionError | _http_error()):
            return Unavailable(f"{self._where()}: the connection failed ({kind}: {said})")
        return Rejected(f"{self._where()}: {kind}: {said}")

    def _failure(self, status: int, body: object, *, retry_after_s: float | None = None) -> BackendError:
        """A failed answer as one of ours, with what to do about it."""
        said, code = _said(body), _code(body)
        message = f"{self._where()}: HTTP {status}" + (f", {said}" if said else "")
        if status == 429 and code == "insufficient_quota":
            return Rejected(f"{message}; the account has no quota left, waiting does not help", status=status)
        if status == 429:
            return RateLimited(message, status=status, retry_after_s=retry_after_s)
        if status == 408 or status >= 500:
            return Unavailable(message, status=status, retry_after_s=retry_after_s)
        if status in (400, 413, 422) and _CONTEXT.search(f"{code} {said}"):
            return ContextTooLong(message, status=status)
        if status in (401, 403):
            return Rejected(f"{message}; {self._key.hint}", status=status)
        if status in (404, 405) or status < 400:
            return Rejected(f"{message}; check the model's name, and that {_BASE_URL_HINT}", status=status)
        return Rejected(message, status=status)

    def _where(self) -> str:
        return f"{self._endpoint}, model {self._uri.model!r}"


_BASE_URL_HINT = "base_url is the address under which /chat/completions lies (it mostly ends in /v1)"


# Request → wire


def _wire_parameters(model: str, request: Request, dropped: frozenset[str]) -> dict[str, Json]:
    """Everything of a request but its messages."""
    wire: dict[str, Json] = {"model": model}
    for name, value in request.sampling.to_json().items():
        wire_name = _REPLACEMENTS[name] if name in dropped else name
        if value is not None and wire_name is not None:
            wire[wire_name] = value
    if request.tools:
        wire["tools"] = [_wire_tool(tool) for tool in request.tools]
    return wire


def _left_out(name: str, dropped: frozenset[str]) -> bool:
    return name in dropped and _REPLACEMENTS[name] is None


def _wire_message(message: Message, image_url: Callable[[ImageRef], str]) -> Object:
    wire: dict[str, Json] = {"role": message.role, "content": _wire_content(message.parts, image_url)}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _wire_content(parts: tuple[Part, ...], image_url: Callable[[ImageRef], str]) -> Json:
    """Blocks in the order of the parts; one text alone is a plain string, which every server takes for every role."""
    if not parts:
        return None
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [
        {"type": "image_url", "image_url": {"url": image_url(part.image)}}
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.text}
        for part in parts
    ]


def _wire_tool(tool: ToolSpec) -> Object:
    return {"type": "function", "function": tool.to_json()}


class _ImageURLs:
    """Images as data URIs; the base64 text of each is made once and used again in every later turn. Thread-safe."""

    def __init__(self, policy: ImagePolicy, *, limit_bytes: int = IMAGE_TEXT_BYTES) -> None:
        self._policy, self._limit_bytes = policy, limit_bytes
        self._lock = threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0

    def of(self, images: ImageStore, ref: ImageRef) -> str:
        with self._lock:
            if ref.sha256 in self._texts:
                self._texts.move_to_end(ref.sha256)
                return self._texts[ref.sha256]
        encoded = images.encoded(ref, self._policy)
        text = f"data:{encoded.media_type};base64,{base64.b64encode(encoded.data).decode('ascii')}"
        with self._lock:
            if ref.sha256 not in self._texts:
                self._texts[ref.sha256] = text
                self._bytes += len(text)
            while self._bytes > self._limit_bytes and len(self._texts) > 1:
                self._bytes -= len(self._texts.popitem(last=False)[1])
        return text


# wire → Reply


def _reply(payload: Object, *, sent: Object) -> Reply:
    """Raises Unavailable where the answer holds no message, or says itself that it was broken off."""
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise Unavailable(f"model {sent['model']!r} answered without a message; expected choices[0].message")
    reason = choice.get("finish_reason")
    if reason in ("error", "abort"):
        raise Unavailable(f"model {sent['model']!r}: the server broke the answer off (finish_reason {reason!r})")
    calls, malformed = _calls(message.get("tool_calls"))
    refusal = message.get("refusal")
    finish: Finish = _FINISHES.get(str(reason), "stop")
    if finish == "stop" and (calls or malformed):
        # Servers that were told which tool to call say "stop".
        finish = "tools"
    if isinstance(refusal, str) and refusal:
        finish = "refusal"
    model = payload.get("model")
    return Reply(
        text=refusal if finish == "refusal" and isinstance(refusal, str) else _content_text(message.get("content")),
        reasoning=_first_text(message, "reasoning_content", "reasoning"),
        tool_calls=calls,
        malformed_calls=malformed,
        finish=finish,
        usage=_usage(payload.get("usage")),
        model=model if isinstance(model, str) else "",
        raw=payload,
        sent=sent,
    )


def _content_text(content: Json) -> str:
    """A string, or the text of a list of blocks; anything else is no text."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(b["text"]) for b in blocks if isinstance(b, Mapping) and isinstance(b.get("text"), str))


def _first_text(message: Object, *names: str) -> str:
    return next((v for v in (message.get(name) for name in names) if isinstance(v, str) and v), "")


def _calls(value: Json) -> tuple[tuple[ToolCall, ...], tuple[MalformedCall, ...]]:
    calls: list[ToolCall] = []
    malformed: list[MalformedCall] = []
    for number, item in enumerate(value if isinstance(value, list) else [], 1):
        function = item.get("function") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            malformed.append(MalformedCall(raw=json.dumps(item), error="a tool call needs a function with a name"))
            continue
        arguments = function.get("arguments")
        try:
            # No text at all is how some servers write a call without arguments.
            parsed = _cleaned(_loads(arguments or "{}"), _NO_KEY) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError) as error:
            malformed.append(MalformedCall(raw=str(arguments), error=f"the arguments are not JSON: {error}"))
            continue
        if not isinstance(parsed, Mapping):
            malformed.append(MalformedCall(raw=json.dumps(arguments), error="the arguments are not a JSON object"))
            continue
        calls.append(ToolCall(id=str(item.get("id") or f"call_{number}"), name=str(function["name"]), arguments=parsed))
    return tuple(calls), tuple(malformed)


def _usage(value: Json) -> Usage:
    usage = value if isinstance(value, Mapping) else {}
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        image_tokens=_count(prompt, "image_tokens"),
        cached_tokens=_count(prompt, "cached_tokens"),
        reasoning_tokens=_count(completion, "reasoning_tokens"),
    )


def _count(usage: Json, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _loads(text: str | bytes) -> Json:
    """JSON whose numbers are all finite: what is not, stays the text that it was. Raises ValueError, RecursionError."""
    return cast("Json", json.loads(text, parse_constant=str, parse_float=_finite))


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _clean_text(text: str, key: _Key) -> str:
    return _IMAGE_DATA.sub(r"\1…", key.scrub(text.encode("utf-8", "replace").decode("utf-8")))


def _cleaned(value: Json, key: _Key) -> Json:
    """The same JSON without the key, with image data cut, and with half surrogate pairs (no valid UTF-8) replaced."""
    if isinstance(value, str):
        return _clean_text(value, key)
    if isinstance(value, Mapping):
        return {_clean_text(name, key): _cleaned(item, key) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_cleaned(item, key) for item in value]
    return value


# Foreign errors


@functools.cache
def _http_error() -> type[Exception]:
    """The base error of the HTTP library below the SDK (httpx in openai 2, httpx2 in openai 3).

    The SDK translates what fails before the answer's first byte; what fails after it comes as it is.
    """
    import openai

    library = openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]
    return cast("type[Exception]", importlib.import_module(library).HTTPError)


def _refused_parameter(error: openai.APIStatusError, sent: Object) -> str | None:
    """The name of a parameter that was sent, that the model says it does not take, and that we can do without."""
    name = error.param
    if error.status_code != 400 or name not in _REPLACEMENTS or name not in sent:
        return None
    return name if _REFUSES_PARAMETER.search(f"{error.code} {_said(error.body)}") else None


def _error_body(body: object) -> object:
    inner = body.get("error") if isinstance(body, Mapping) else None
    return inner if inner else body


def _said(body: object) -> str:
    """What the endpoint says about its failure: one line of at most 400 characters."""
    inner = _error_body(body)
    if isinstance(inner, Mapping):
        inner = inner.get("message") or inner.get("detail") or json.dumps(_as_json(inner))
    text = "" if inner is None else " ".join(str(inner).split())
    return text if len(text) <= 400 else text[:399] + "…"


def _code(body: object) -> str:
    inner = _error_body(body)
    return str(inner.get("code") or inner.get("type") or "") if isinstance(inner, Mapping) else ""


def _as_json(body: object) -> Json:
    """A decoded body as the JSON that it is."""
    return cast("Json", body) if isinstance(body, Mapping | list | str | int | float | None) else str(body)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The endpoint's wish in seconds: `retry-after-ms`, or `Retry-After` as seconds or as a date; None where unreadable."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            value = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            return value
    try:
        when = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())


# The URI's parts


class _Key:
    """A key that does not show itself: `scrub` takes it out of texts, repr hides it.

    value: "" where no key is sent.   hint: what to do where the endpoint refuses it.
    """

    def __init__(self, value: str, hint: str) -> None:
        self.value, self.hint = value, hint

    def __repr__(self) -> str:
        return "<key>" if self.value else "<no key>"

    def scrub(self, text: str) -> str:
        return text.replace(self.value, "***") if len(self.value) >= _SHORTEST_SECRET else text


_NO_KEY: Final = _Key("", "")


def _key(variable: str, endpoint: str, *, named: bool) -> _Key:
    """The key for an endpoint. Raises ConfigError where one is needed and missing, or cannot be a key."""
    if variable == "none":
        return _Key("", "no key was sent (env=none); name the variable that holds it with ?env=NAME")
    value = os.environ.get(variable, "").strip()
    if value:
        # The HTTP library's own complaint about such a header would show the key.
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ConfigError(f"the key in environment variable {variable} holds blanks or characters that are not ASCII")
        return _Key(value, f"check the key in environment variable {variable}")
    if not named and _is_loopback(endpoint):
        return _Key("", f"no key was sent; set environment variable {variable}, or name another with ?env=NAME")
    raise ConfigError(
        f"backend openai needs a key for {endpoint}: set environment variable {variable}, or name the variable that holds "
        "it with ?env=NAME (?env=none where the server asks for none)"
    )


def _checked_base_url(text: str) -> str:
    """The URL without its last slash. The message does not repeat it where it may hold a password."""
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname, url.port
    except ValueError as error:
        raise ConfigError(f"base_url cannot be read as a URL: {error}") from None
    if "@" in text:
        raise ConfigError("base_url holds credentials; keys come from the environment (?env=NAME), never from a URL")
    if url.scheme not in ("http", "https") or not host or port == 0 or not text.isprintable():
        raise ConfigError(f"base_url {text!r}: expected http://HOST:PORT/v1 or https://HOST/v1")
    if url.query or url.fragment:
        raise ConfigError("base_url has a query or a fragment; expected scheme, host and path only")
    return url.geturl().rstrip("/")


def _checked_timeout(text: str | None) -> float:
    if text is None:
        return DEFAULT_TIMEOUT_S
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise ConfigError(f"timeout_s={text!r}: expected a number of seconds above 0")
    return value


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
