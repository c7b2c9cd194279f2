"""OpenAI's chat completions as bytes and objects: `Request` → wire, wire → `Reply`, what a refusal names.

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
from typing import Any, Final

from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import Failed, Said, said
from editloupe.backends.payload import (
    JsonObject,
    Scrub,
    at,
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
from editloupe.chat import Finish, ImagePart, MalformedCall, Message, Reply, Request, TextPart, Token, ToolCall, Usage
from editloupe.errors import Unavailable
from editloupe.values import ImageRef, Json, compact_bytes, finite

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
_SCHEMA_FIELDS: Final = ("json_schema", "schema", "structured_output", "grammar")
"""Names under which what stands in `response_format` is refused."""
BASE_URL_HINT: Final = "base_url is the address under which /chat/completions lies (it mostly ends in /v1)"
# Of this process alone, so that no text of a user, a model or an image can hold it.
_GAP: Final = f"image-{secrets.token_hex(16)}-"
_GAPS: Final = re.compile(_GAP.encode() + b"([0-9a-f]{64})")


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
        # Each object must be closed, and all its properties required.
        held: JsonObject = {"name": "answer", "schema": dict(request.answer_schema), "strict": True}
        wire["response_format"] = {"type": "json_schema", "json_schema": held}
    return wire


def pieces_of(
    request: Request, image_url: Callable[[ImageRef], bytes], *, tool_images: bool, image_ids: bool
) -> list[bytes]:
    """Return the messages as JSON in pieces, the URLs of images among them: what is long is neither read nor escaped.

    tool_images: whether the endpoint takes pictures in a tool's message. Where it does not, `move_pictures` moves them.
    image_ids: whether each picture carries its digest as `uuid`, by which the server knows it again.
    """
    messages = request.messages if tool_images else move_pictures(request.messages)
    urls = {part.image.sha256: image_url(part.image) for message in messages for part in message.images}
    # Every second piece is the digest that stood behind a gap's mark.
    pieces = _GAPS.split(compact_bytes([_wire_message(message, image_ids=image_ids) for message in messages]))
    pieces[1::2] = [urls[digest.decode()] for digest in pieces[1::2]]
    return pieces


def body_of(parameters: JsonObject, pieces: Sequence[bytes]) -> bytes:
    """Return the body: what one `json.dumps` of it all would give."""
    return b"".join([compact_bytes(parameters)[:-1], b',"messages":', *pieces, b"}"])


def _wire_message(message: Message, *, image_ids: bool) -> JsonObject:
    """Return a message with a gap's mark for each picture's URL. A text alone is a string, which every server takes."""
    blocks: list[Json] = []
    for part in message.parts:
        if isinstance(part, ImagePart):
            digest = part.image.sha256
            id_ = {"uuid": digest} if image_ids else {}
            blocks.append({"type": "image_url", "image_url": {"url": f"{_GAP}{digest}"}, **id_})
        else:
            blocks.append({"type": "text", "text": part.text})
    one_text = len(message.parts) == 1 and isinstance(message.parts[0], TextPart)
    plain = one_text or (message.role == "tool" and not message.images)
    wire: dict[str, Json] = {"role": message.role, "content": message.text if plain else blocks or None}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


# wire → Reply


def read_reply(body: bytes, sent: JsonObject, endpoint: Endpoint, *, tokens: bool = False, answered: bool = False) -> Reply:
    """Parse the answer into a Reply for the trace: without the key, image data and text that is not Unicode.

    tokens: whether the reply is to hold its tokens; they are then left out of `raw`.   answered: whether the endpoint has
    answered before.
    Raises Failed where it says itself that it failed, else BackendError: it is no whole answer, holds no message, or was
    broken off.
    """
    payload = parse_answer(body, endpoint, BASE_URL_HINT, answered=answered)
    if payload.get("error"):
        # Beside choices too: what stands there is not whole.
        raise Failed(said(_status_in(payload["error"]), payload, {}), payload)
    choice = at(payload, "choices", 0)
    message = at(choice, "message")
    if not isinstance(message, Mapping):
        raise Unavailable(f"{endpoint.where}: answered without a message; expected choices[0].message")
    reason = str(at(choice, "finish_reason") or "stop")
    if reason in ("error", "abort"):
        raise Unavailable(f"{endpoint.where}: the server broke the answer off (finish_reason {reason!r})")
    calls = [_call(item, n, endpoint.scrub) for n, item in enumerate(items_at(message, "tool_calls"), 1)]
    refusal, listed = text_at(message, "refusal"), items_at(choice, "logprobs", "content")
    blocks = "".join(text_at(block, "text") for block in items_at(message, "content"))
    if tokens:
        choices: list[Json] = [{name: value for name, value in choice.items() if name != "logprobs"}]
        payload = {**payload, "choices": [*choices, *items_at(payload, "choices")[1:]]}
    return Reply(
        text=refusal or text_at(message, "content") or blocks,
        reasoning=text_at(message, "reasoning_content") or text_at(message, "reasoning"),
        tool_calls=tuple(call for call in calls if isinstance(call, ToolCall)),
        malformed_calls=tuple(call for call in calls if isinstance(call, MalformedCall)),
        finish="refusal" if refusal else _finish(reason.lower(), called=bool(calls)),
        usage=_usage(payload.get("usage")),
        model=text_at(payload, "model"),
        fingerprint=text_at(payload, "system_fingerprint"),
        raw=payload,
        sent=sent,
        logprob=_logprob(listed),
        tokens=whole_tokens(_tokens(listed), endpoint.scrub) if tokens else (),
    )


def _status_in(error: Json) -> int:
    """Return the HTTP status that an error in an answer with 200 names, by number or as a fault of the request."""
    named = [str(at(error, name) or "") for name in ("code", "status", "type")]
    numbers = (int(text) for text in named if text.isdecimal() and len(text) == 3)
    by_word = 400 if any(word in text.casefold() for text in named for word in ("invalid", "filter")) else 502
    return next((number for number in numbers if 400 <= number < 600), by_word)


def _finish(reason: str, *, called: bool) -> Finish:
    """Return why the answer ended. Servers that were told in words which tool to call say "stop"."""
    if any(word in reason for word in ("length", "max", "limit")):
        return "length"
    if reason == "content_filter":
        return "filter"
    return "tools" if called or reason in ("tool_calls", "function_call") else "stop"


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


def refused(told: Said, sent: JsonObject, *, unused: bool = False) -> frozenset[str]:
    """Return what a failed answer names of the parameters that were sent and can be left out, by our names.

    unused: whether the conversation holds no call yet, so that a word on a tool means that any are sent.
    """
    if not 400 <= told.status < 500 or told.status in (401, 402, 407, 408, 413, 429):
        return frozenset()
    inside = _SCHEMA_FIELDS if "response_format" in sent else ()
    own = (str(sent["model"]), str(sent["model"]).rpartition("/")[2])
    found = told.names([*(name for name in _OURS if name in sent), "max_completion_tokens", *inside], own=own)
    if not found and unused and "tools" in sent and told.names(("tool",), own=own):
        return frozenset({"tools"})
    if "max_tokens" in sent and "max_completion_tokens" in found:
        return frozenset({OLD_NAME})
    named = {"response_format" if name in inside else name for name in found}
    return frozenset(_OURS[name] for name in named if name in sent)
