"""OpenAI's chat completions as bytes and objects: `Request` → wire, wire → `Reply`, a foreign error → BackendError.

Translation only: nothing here sends, waits, remembers or reads the environment. The client, its key, what is asked again
and which parameters a model refuses are editloupe/backends/openai.py's.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import Said, failure, said
from editloupe.backends.payload import (
    ImageURL,
    JsonObject,
    Scrub,
    at,
    clean_text,
    cleaned,
    count,
    items_at,
    loads,
    move_pictures,
    parse_answer,
    sampling_of,
    text_at,
    whole_tokens,
)
from editloupe.chat import (
    Finish,
    ImagePart,
    MalformedCall,
    Message,
    Part,
    Reply,
    Request,
    TextPart,
    Token,
    ToolCall,
    Usage,
)
from editloupe.errors import BackendError, Rejected, Unavailable
from editloupe.values import ImageRef, Json, compact_bytes, finite

if TYPE_CHECKING:
    import openai

_FINISHES: Final[Mapping[str, Finish]] = {
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "filter",
}
OLD_NAME: Final = "max_tokens by its old name"
"""What a model refuses that takes `max_completion_tokens` only."""
_OURS: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "response_format": "answer_schema",
    "logprobs": "top_logprobs",
    "top_logprobs": "top_logprobs",
    "tools": "tools",
    "tool_choice": "tools",
}
"""The wire's name of what an endpoint may refuse → ours."""
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "response_format": ("json_schema", "schema", "structured_output", "grammar")
}
"""Names under which what stands inside a parameter is refused."""
_BASE_URL_HINT = "base_url is the address under which /chat/completions lies (it mostly ends in /v1)"


# Request → wire


def parameters_of(model: str, request: Request, refused: frozenset[str]) -> dict[str, Json]:
    """Return everything of a request but its messages. refused: what the model does not take, OLD_NAME among it."""
    wire: dict[str, Json] = {"model": model, **sampling_of(request, refused)}
    if OLD_NAME in refused and "max_tokens" in wire:
        wire["max_completion_tokens"] = wire.pop("max_tokens")
    if request.tools:
        wire["tools"] = [{"type": "function", "function": tool.to_json()} for tool in request.tools]
        wire["tool_choice"] = "auto" if request.calls_allowed else "none"
    if request.top_logprobs is not None and "top_logprobs" not in refused:
        wire |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.answer_schema is not None and "answer_schema" not in refused:
        wire["response_format"] = response_format(request.answer_schema)
    return wire


def response_format(schema: JsonObject) -> dict[str, Json]:
    """Return what holds an answer to a JSON Schema. Each object must be closed, and all its properties required."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": True}}


def pieces_of(
    request: Request, image_url: Callable[[ImageRef], bytes], *, tool_images: bool = False, image_ids: bool = False
) -> list[bytes]:
    """Return the messages as JSON in pieces, the URLs of images among them: what is long is neither read nor escaped.

    tool_images: whether the endpoint takes pictures in a tool's message. Where it does not, `move_pictures` moves them.
    image_ids: whether each picture carries its digest as `uuid`, by which the server knows it again.
    """
    urls: dict[str, bytes] = {}

    def gap(ref: ImageRef) -> str:
        if ref.sha256 not in urls:
            urls[ref.sha256] = image_url(ref)
        return f"{_GAP}{ref.sha256}"

    messages = request.messages if tool_images else move_pictures(request.messages)
    # Every second piece is the digest that stood behind a gap's mark.
    pieces = _GAPS.split(compact_bytes([_wire_message(message, gap, image_ids) for message in messages]))
    pieces[1::2] = [urls[digest.decode()] for digest in pieces[1::2]]
    return pieces


def body_of(parameters: JsonObject, pieces: Sequence[bytes]) -> bytes:
    """Return the body: what one `json.dumps` of it all would give."""
    return b"".join([compact_bytes(parameters)[:-1], b',"messages":', *pieces, b"}"])


# Of this process alone, so that no text of a user, a model or an image can hold it.
_GAP: Final = f"image-{secrets.token_hex(16)}-"
_GAPS: Final = re.compile(_GAP.encode() + b"([0-9a-f]{64})")


def _wire_message(message: Message, image_url: ImageURL, image_ids: bool) -> JsonObject:
    wire: dict[str, Json] = {"role": message.role, "content": _wire_content(message.parts, image_url, image_ids)}
    if message.role == "tool" and not message.images:
        # One plain string: lists of blocks in a tool's message are what the fewest servers take.
        wire["content"] = message.text
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _wire_content(parts: tuple[Part, ...], image_url: ImageURL, image_ids: bool) -> Json:
    """Return blocks in the order of the parts, or a plain string for one text, which every server takes for every role."""
    if not parts:
        return None
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, ImagePart):
            id_ = {"uuid": part.image.sha256} if image_ids else {}
            blocks.append({"type": "image_url", "image_url": {"url": image_url(part.image)}, **id_})
        else:
            blocks.append({"type": "text", "text": part.text})
    return blocks


# wire → Reply


def read_reply(body: bytes, sent: JsonObject, endpoint: Endpoint, *, tokens: bool = False) -> Reply:
    """Parse the answer into a Reply for the trace: without the key, image data and text that is not Unicode.

    tokens: whether the reply is to hold its tokens; they are then left out of `raw`.
    Raises BackendError where it is no whole answer, holds no message, or says itself that it failed or was broken off.
    """
    payload = parse_answer(body, endpoint, _BASE_URL_HINT)
    if payload.get("error"):
        # Beside choices too: what stands there is not whole.
        code = at(payload, "error", "code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        raise failure(said(status, payload, {}), endpoint, hint=_BASE_URL_HINT)
    choice = at(payload, "choices", 0)
    message = at(choice, "message")
    if not isinstance(message, Mapping):
        raise Unavailable(f"{endpoint.where}: answered without a message; expected choices[0].message")
    reason = str(at(choice, "finish_reason") or "stop")
    if reason in ("error", "abort"):
        raise Unavailable(f"{endpoint.where}: the server broke the answer off (finish_reason {reason!r})")
    calls = [_call(item, n, endpoint.scrub) for n, item in enumerate(items_at(message, "tool_calls"), 1)]
    cut = any(word in reason.lower() for word in ("length", "max", "limit"))
    finish: Finish = "length" if cut else _FINISHES.get(reason, "stop")
    if finish == "stop" and calls:
        # Servers that were words which tool to call say "stop".
        finish = "tools"
    refusal = text_at(message, "refusal")
    blocks = items_at(message, "content")
    listed = items_at(choice, "logprobs", "content")
    if tokens:
        choices: list[Json] = [{name: value for name, value in choice.items() if name != "logprobs"}]
        payload = {**payload, "choices": [*choices, *items_at(payload, "choices")[1:]]}
    return Reply(
        text=refusal or text_at(message, "content") or "".join(text_at(block, "text") for block in blocks),
        reasoning=text_at(message, "reasoning_content") or text_at(message, "reasoning"),
        tool_calls=tuple(call for call in calls if isinstance(call, ToolCall)),
        malformed_calls=tuple(call for call in calls if isinstance(call, MalformedCall)),
        finish="refusal" if refusal else finish,
        usage=_usage(payload.get("usage")),
        model=text_at(payload, "model"),
        fingerprint=text_at(payload, "system_fingerprint"),
        raw=payload,
        sent=sent,
        logprob=_logprob(listed),
        tokens=whole_tokens(_tokens(listed), endpoint.scrub) if tokens else (),
    )


def _logprob(tokens: list[Any]) -> float | None:
    """Return the natural logarithm of the answer's probability: its tokens' added up. None where one is missing."""
    values = [at(token, "logprob") for token in tokens]
    known = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return math.fsum(known) if known and len(known) == len(values) else None


def _tokens(listed: list[Any]) -> Iterator[Token | None]:
    """Yield the tokens; None for one that cannot be read. A sign that is parted among tokens stands in its last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for item in listed:
        text, octets, logprob = at(item, "token"), at(item, "bytes"), finite(at(item, "logprob"))
        with suppress(TypeError, ValueError):
            text = decoder.decode(bytes(octets)) if isinstance(octets, list) else text
        top = [(at(other, "token"), finite(at(other, "logprob"))) for other in items_at(item, "top_logprobs")]
        known = tuple((word, value) for word, value in top if isinstance(word, str) and value is not None)
        yield None if logprob is None or not isinstance(text, str) else Token(text=text, logprob=logprob, top=known)


def _call(item: Json, number: int, scrub: Scrub) -> ToolCall | MalformedCall:
    name, arguments = at(item, "function", "name"), at(item, "function", "arguments")
    if not isinstance(name, str):
        return MalformedCall(raw=json.dumps(item), error="a tool call needs a function with a name")
    try:
        # No text at all is how some servers write a call without arguments.
        parsed = cleaned(loads(arguments or "{}"), scrub) if isinstance(arguments, str) else arguments
    except ValueError as error:
        return MalformedCall(raw=arguments, error=f"the arguments are not JSON: {error}")
    if not isinstance(parsed, Mapping):
        return MalformedCall(raw=json.dumps(arguments), error="the arguments are not a JSON object")
    return ToolCall(id=str(at(item, "id") or f"call_{number}"), name=name, arguments=parsed)


def _usage(usage: Json) -> Usage:
    prompt = at(usage, "prompt_tokens_details")
    image_tokens = count(prompt, "image_tokens")
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        # vLLM counts by kind of input: {"image": 1024}.
        image_tokens=count(prompt, "multimodal_tokens", "image") if image_tokens is None else image_tokens,
        cached_tokens=count(prompt, "cached_tokens"),
        reasoning_tokens=count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


# Foreign error → BackendError


def told_of(error: openai.APIStatusError, endpoint: Endpoint) -> Said:
    """Return a failed answer, taken apart and without the key."""
    return said(error.status_code, clean_body(error, endpoint), error.response.headers)


def clean_body(error: openai.APIStatusError, endpoint: Endpoint) -> Json:
    """Return the whole body of a failed answer, without the key: parsed where it is JSON, else its text."""
    try:
        return cleaned(loads(error.response.content), endpoint.scrub)
    except (ValueError, RecursionError):
        return clean_text(error.response.text[:4000], endpoint.scrub)


def refused(told: Said, sent: JsonObject) -> frozenset[str]:
    """Return what a failed answer names of the parameters that were sent and can be left out, by our names."""
    if not 400 <= told.status < 500 or told.status in (401, 402, 407, 408, 413, 429):
        return frozenset()
    inside = {inner: name for name, inners in _FIELDS.items() if name in sent for inner in inners}
    own = (str(sent["model"]), str(sent["model"]).rpartition("/")[2])
    found = told.names([*(name for name in _OURS if name in sent), "max_completion_tokens", *inside], own=own)
    if "max_tokens" in sent and "max_completion_tokens" in found:
        return frozenset({OLD_NAME})
    named = {inside.get(name, name) for name in found}
    return frozenset(_OURS[name] for name in named if name in sent)


def backend_error(error: Exception, endpoint: Endpoint) -> BackendError:
    """Return an error of the SDK without an answer as one of ours. It is cleaned of the key in place: it is the cause."""
    import openai

    if isinstance(error.__cause__, BackendError):
        # Up to 2 the SDK wraps whatever its HTTP client raises.
        ours, error.__cause__ = error.__cause__, None
        return ours
    clean_error(error, endpoint)
    cause = error.__cause__ or error
    kind = type(cause).__name__
    if isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIConnectionError) and "Timeout" not in kind:
        return Rejected(f"{endpoint.where}: {kind}: {endpoint.scrub(str(cause))}")
    return endpoint.unreachable(cause)


def status_error(
    error: openai.APIStatusError, told: Said, endpoint: Endpoint, *, pictures: int, answered: bool
) -> BackendError:
    """Return a failed answer as one of our errors. The SDK's is cleaned of the key in place: it is the cause."""
    clean_error(error, endpoint)
    location = error.response.headers.get("location")
    if 300 <= error.status_code < 400 and location:
        return redirected(error.status_code, location, endpoint)
    return failure(told, endpoint, pictures=pictures, answered=answered, hint=_BASE_URL_HINT)


def clean_error(error: Exception, endpoint: Endpoint) -> None:
    """Take the key out of an error of the SDK."""
    for name in ("message", "body"):
        if hasattr(error, name):
            setattr(error, name, _clean(getattr(error, name), endpoint))
    error.args = tuple(clean_text(str(a), endpoint.scrub) for a in error.args)


def redirected(status: int, location: str, endpoint: Endpoint) -> Rejected:
    """Return the error for an answer that sends to another address."""
    location = clean_text(location, endpoint.scrub)
    return Rejected(
        f"{endpoint.where}: HTTP {status} sends to another address, {location}, and is not followed; {_BASE_URL_HINT}",
        status=status,
        for_all=True,
    )


def _clean(body: object, endpoint: Endpoint) -> Json:
    """Return a failed answer's body without the key; None where it is nested too deep to be read."""
    try:
        return cleaned(body, endpoint.scrub)
    except RecursionError:
        return None
