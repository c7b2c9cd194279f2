"""OpenAI's chat completions as bytes and objects: `Request` → wire, wire → `Reply`, a foreign error → BackendError.

Translation only: nothing here sends, waits, remembers or reads the environment. The client, its key, what is asked again
and which parameters a model refuses are editloupe/backends/openai.py's.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from editloupe.backends.endpoint import TOO_LONG_ADVICE, UNREACHABLE_ADVICE, EndpointInfo
from editloupe.backends.payload import (
    FILTERED,
    FLAGGED,
    TOO_LONG,
    ImageURL,
    JsonObject,
    clean_text,
    cleaned,
    count,
    error_code,
    loads,
    move_pictures,
    parse_answer,
    retry_after_s,
    said,
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
    ToolCall,
    Usage,
)
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import ImageRef, Json

_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "filter",
}


_BASE_URL_HINT = "base_url is the address under which /chat/completions lies (it mostly ends in /v1)"


# Request → wire


def parameters_of(model: str, request: Request, renamed: Mapping[str, str | None]) -> dict[str, Json]:
    """Return everything of a request but its messages.

    renamed: parameter → the name that this model wants, None to leave it out.
    """
    wire: dict[str, Json] = {"model": model}
    for name, value in request.sampling.to_json().items():
        wire_name = renamed.get(name, name)
        if value is not None and wire_name is not None:
            wire[wire_name] = value
    if request.tools:
        wire["tools"] = [{"type": "function", "function": tool.to_json()} for tool in request.tools]
        wire["tool_choice"] = "auto" if request.calls_allowed else "none"
    return wire


def response_format(schema: JsonObject) -> dict[str, Json]:
    """Return what holds an answer to a JSON Schema. Each object must be closed, and all its properties required."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": True}}


def messages_of(request: Request, image_url: ImageURL, *, tool_images: bool = False, image_ids: bool = False) -> list[Json]:
    """Return the conversation.

    tool_images: whether the endpoint takes pictures in a tool's message. Where it does not, `move_pictures` moves them.
    image_ids: whether each picture carries its digest as `uuid`, by which the server knows it again.
    """
    messages = request.messages if tool_images else move_pictures(request.messages)
    return [_wire_message(message, image_url, image_ids) for message in messages]


class Spliced:
    """Messages as JSON text, with a gap for each image: what is long is neither read nor escaped again in every turn.

    The bytes are those of one `json.dumps` of the whole.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    @classmethod
    def of(cls, make: Callable[[ImageURL], list[Json]], image_url: Callable[[ImageRef], bytes]) -> Spliced:
        """Return what `make` writes with the image URLs that it is given, with those of `image_url` in their place."""
        urls: dict[str, bytes] = {}

        def gap(ref: ImageRef) -> str:
            if ref.sha256 not in urls:
                urls[ref.sha256] = image_url(ref)
            return f"{_GAP}{ref.sha256}"

        # Every second piece is the digest that stood behind a gap's mark.
        pieces = _GAPS.split(_json(make(gap)))
        pieces[1::2] = [urls[digest.decode()] for digest in pieces[1::2]]
        return cls(pieces)

    def within(self, before: JsonObject, behind: JsonObject) -> bytes:
        """Return a body that holds `before`, "messages", and `behind`."""
        parts = [_json(before)[:-1], b"," if before else b"", b'"messages":', *self._pieces]
        return b"".join([*parts, b"," + _json(behind)[1:] if behind else b"}"])


# Of this process alone, so that no text of a user, a model or an image can hold it.
_GAP: Final = f"image-{secrets.token_hex(16)}-"
_GAPS: Final = re.compile(_GAP.encode() + b"([0-9a-f]{64})")


def _json(value: Json) -> bytes:
    """Write JSON as the SDK does. Half a surrogate pair, which JSON allows and UTF-8 does not, becomes its escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


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
    return [
        {
            "type": "image_url",
            "image_url": {"url": image_url(part.image)},
            **({"uuid": part.image.sha256} if image_ids else {}),
        }
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.text}
        for part in parts
    ]


# wire → Reply


def read_reply(body: bytes, sent: JsonObject, info: EndpointInfo) -> Reply:
    """Parse the answer into a Reply for the trace: without the key, image data and text that is not Unicode.

    Raises BackendError where it is no whole answer, holds no message, or says itself that it failed or was broken off.
    """
    payload = _payload(body, info)
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise Unavailable(f"{info.where}: answered without a message; expected choices[0].message")
    reason = choice.get("finish_reason")
    if reason in ("error", "abort"):
        raise Unavailable(f"{info.where}: the server broke the answer off (finish_reason {reason!r})")
    calls, malformed = _calls(message.get("tool_calls"), info.scrub)
    finish: Finish = _FINISHES.get(str(reason), "stop")
    if finish == "stop" and (calls or malformed):
        # Servers that were words which tool to call say "stop".
        finish = "tools"
    text, refusal = _content_text(message.get("content")), message.get("refusal")
    if isinstance(refusal, str) and refusal:
        text, finish = refusal, "refusal"
    thoughts = (message.get("reasoning_content"), message.get("reasoning"))
    model, fingerprint = payload.get("model"), payload.get("system_fingerprint")
    return Reply(
        text=text,
        reasoning=next((v for v in thoughts if isinstance(v, str) and v), ""),
        tool_calls=calls,
        malformed_calls=malformed,
        finish=finish,
        usage=_usage(payload.get("usage")),
        model=model if isinstance(model, str) else "",
        fingerprint=fingerprint if isinstance(fingerprint, str) else "",
        raw=payload,
        sent=sent,
        logprob=_logprob(choice.get("logprobs")),
    )


def _logprob(value: Json) -> float | None:
    """Return the natural logarithm of the answer's probability: its tokens' added up. None where one is missing."""
    tokens = value.get("content") if isinstance(value, Mapping) else None
    if not isinstance(tokens, list) or not tokens:
        return None
    values = [t.get("logprob") if isinstance(t, Mapping) else None for t in tokens]
    known = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return math.fsum(known) if len(known) == len(values) else None


def _payload(body: bytes, info: EndpointInfo) -> JsonObject:
    payload = parse_answer(body, info, _BASE_URL_HINT)
    # Some gateways report a failure with HTTP 200 and an error in place of the answer.
    error_body = payload.get("error")
    if error_body and not payload.get("choices"):
        code = error_body.get("code") if isinstance(error_body, Mapping) else None
        raise _failure(code if isinstance(code, int) and 400 <= code < 600 else 502, error_body, info)
    return payload


def _content_text(content: Json) -> str:
    """Return a string, or the text of a list of blocks; anything else is no text."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(b["text"]) for b in blocks if isinstance(b, Mapping) and isinstance(b.get("text"), str))


def _calls(value: Json, scrub: Callable[[str], str]) -> tuple[tuple[ToolCall, ...], tuple[MalformedCall, ...]]:
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
            parsed = cleaned(loads(arguments or "{}"), scrub) if isinstance(arguments, str) else arguments
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
    # vLLM counts by kind of input: {"image": 1024}.
    by_kind = prompt.get("multimodal_tokens") if isinstance(prompt, Mapping) else None
    image_tokens = count(prompt, "image_tokens")
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        image_tokens=count(by_kind, "image") if image_tokens is None else image_tokens,
        cached_tokens=count(prompt, "cached_tokens"),
        reasoning_tokens=count(completion, "reasoning_tokens"),
    )


# Foreign error → BackendError


def backend_error(error: Exception, info: EndpointInfo) -> BackendError:
    """Return an error of the SDK as one of ours. It is cleaned of the key in place, since it becomes the cause."""
    import openai

    if isinstance(error.__cause__, BackendError):
        # Up to 2 the SDK wraps whatever its HTTP client raises.
        ours, error.__cause__ = error.__cause__, None
        return ours

    if isinstance(error, openai.APIError):
        error.message = clean_text(error.message, info.scrub)
        try:
            error.body = cleaned(cast("Json", error.body), info.scrub)
        except RecursionError:
            error.body = None
    error.args = tuple(clean_text(str(a), info.scrub) for a in error.args)
    if isinstance(error, openai.APIStatusError):
        return _failure(error.status_code, error.body, info, retry_after_s=retry_after_s(error.response.headers))
    cause = error.__cause__ or error
    kind, words = type(cause).__name__, info.scrub(str(cause))
    if "ConnectTimeout" in kind:
        return Unavailable(f"{info.where}: no connection within {info.connect_s:g} s")
    if "Timeout" in kind:
        return Unavailable(f"{info.where}: no answer within {info.timeout_s:g} s")
    if isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIConnectionError):
        return Rejected(f"{info.where}: {kind}: {words}")
    return Unavailable(f"{info.where}: the connection failed ({kind}: {words}); {UNREACHABLE_ADVICE}")


def filtered_reply(error: Exception, sent: JsonObject, info: EndpointInfo) -> Reply | None:
    """Return the Reply for a 400 that refuses the prompt for its content; None for any other error."""
    import openai

    if not isinstance(error, openai.APIStatusError) or error.status_code != 400:
        return None
    if not FILTERED.search(error_code(error.body)):
        return None
    try:
        raw = cleaned(cast("Json", error.body), info.scrub)
    except RecursionError:
        raw = None
    return Reply(text=clean_text(said(error.body), info.scrub), finish="filter", raw=raw, sent=sent)


def _failure(status: int, body: object, info: EndpointInfo, *, retry_after_s: float | None = None) -> BackendError:
    """Return a failed answer as one of our errors, with what to do about it."""
    words, code = said(body), error_code(body)
    message = f"{info.where}: HTTP {status}" + (f", {words}" if words else "")
    if status == 429 and code == "insufficient_quota":
        return Rejected(f"{message}; the account has no quota left, waiting does not help", status=status, for_all=True)
    if status == 429:
        return RateLimited(message, status=status, retry_after_s=retry_after_s)
    if status == 408 or status >= 500:
        return Unavailable(message, status=status, retry_after_s=retry_after_s)
    if status in (400, 413, 422) and TOO_LONG.search(f"{code} {words}"):
        return ContextTooLong(f"{message}; {TOO_LONG_ADVICE}", status=status)
    if status in (401, 403):
        # Some gateways refuse a single prompt with a 403.
        return Rejected(f"{message}; {info.key_hint}", status=status, for_all=not FLAGGED.search(words))
    if advice := info.advice(words):
        return Rejected(f"{message}; {advice}", status=status)
    if status in (404, 405) or status < 400:
        return Rejected(f"{message}; check the model's name, and that {_BASE_URL_HINT}", status=status, for_all=True)
    return Rejected(message, status=status)
