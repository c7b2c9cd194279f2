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

from editloupe.backends import payload
from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import Said, parse_answer
from editloupe.backends.payload import JsonObject, at, count, items_at, text_at
from editloupe.chat import Finish, ImagePart, Message, Reply, Request, TextPart, Token, Usage
from editloupe.errors import Unavailable
from editloupe.values import ImageRef, Json, compact_bytes, finite

OLD_NAME: Final = "max_tokens by its old name"
"""What a model refuses that takes `max_completion_tokens` only."""
_NEW_NAME: Final = "max_completion_tokens"
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in ("temperature", "top_p", "seed", "max_tokens")},
    "answer_schema": ("response_format", "json_schema", "schema", "structured_output", "grammar"),
    "top_logprobs": ("top_logprobs", "logprobs"),
    "tools": ("tools", "tool_choice"),
}
"""Our name of what an endpoint may refuse → its field on the wire, and how else a refusal may name it."""
BASE_URL_HINT: Final = "base_url is the address under which /chat/completions lies (it mostly ends in /v1)"
# Of this process alone, so that no text of a user, a model or an image can hold it.
_GAP: Final = f"image-{secrets.token_hex(16)}-"
_GAPS: Final = re.compile(_GAP.encode() + b"([0-9a-f]{64})")


# Request → wire


def parameters_of(model: str, request: Request, refused: frozenset[str]) -> dict[str, Json]:
    """Return everything of a request but its messages. refused: what the model does not take, OLD_NAME among it."""
    wire: dict[str, Json] = {"model": model, **payload.sampling_of(request, refused)}
    if OLD_NAME in refused and "max_tokens" in wire:
        wire[_NEW_NAME] = wire.pop("max_tokens")
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
    messages = request.messages if tool_images else payload.move_pictures(request.messages)
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
    Raises BackendError where it is no whole answer, says itself that it failed (Failed), or holds no message.
    """
    answer = parse_answer(body, endpoint, BASE_URL_HINT, answered=answered)
    choice = at(answer, "choices", 0)
    message = at(choice, "message")
    if not isinstance(message, Mapping):
        raise Unavailable(f"{endpoint.where}: answered without a message; expected choices[0].message")
    reason = str(at(choice, "finish_reason") or "stop").lower()
    if reason in ("error", "abort"):
        raise Unavailable(f"{endpoint.where}: the server broke the answer off (finish_reason {reason!r})")
    asked = [
        (item, at(item, "function", "name"), at(item, "function", "arguments")) for item in items_at(message, "tool_calls")
    ]
    calls, malformed = payload.calls_of(asked, endpoint.scrub)
    refusal, listed = text_at(message, "refusal"), items_at(choice, "logprobs", "content")
    blocks = "".join(text_at(block, "text") for block in items_at(message, "content"))
    return Reply(
        text=refusal or text_at(message, "content") or blocks,
        reasoning=text_at(message, "reasoning_content") or text_at(message, "reasoning"),
        tool_calls=calls,
        malformed_calls=malformed,
        finish="refusal" if refusal else _finish(reason, called=bool(calls or malformed)),
        usage=_usage(answer.get("usage")),
        model=text_at(answer, "model"),
        fingerprint=text_at(answer, "system_fingerprint"),
        raw=payload.without_tokens(answer, "choices", "logprobs") if tokens else answer,
        sent=sent,
        logprob=_logprob(listed),
        tokens=payload.whole_tokens(_tokens(listed), endpoint.scrub) if tokens else (),
    )


def _finish(reason: str, *, called: bool) -> Finish:
    """Return why the answer ended. Servers that were told in words which tool to call say "stop"."""
    if any(word in reason for word in ("length", "max", "limit")):
        return "length"
    if reason == "content_filter":
        return "filter"
    return "tools" if called or reason in ("tool_calls", "function_call") else "stop"


def _logprob(tokens: list[Any]) -> float | None:
    """Return the natural logarithm of the answer's probability: its tokens' added up. None where one is missing."""
    known = [value for token in tokens if (value := finite(at(token, "logprob"))) is not None]
    return math.fsum(known) if known and len(known) == len(tokens) else None


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
    model = str(sent["model"])
    if "max_tokens" in sent and told.names((_NEW_NAME,), model):
        return frozenset({OLD_NAME})
    found = told.refuses({**_NAMES, "max_tokens": (_NEW_NAME,)} if _NEW_NAME in sent else _NAMES, sent)
    return found or frozenset({"tools"} if unused and "tools" in sent and told.names(("tool",), model) else ())
