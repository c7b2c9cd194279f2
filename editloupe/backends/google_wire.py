"""Gemini's generateContent as objects of the SDK and bytes: `Request` → wire, wire → `Reply`, a failure → BackendError.

Translation only: nothing here sends, waits, remembers or reads the environment. The client, its key and what is asked
again are editloupe/backends/google.py's.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from editloupe.backends.endpoint import TOO_LONG_ADVICE, UNREACHABLE_ADVICE, EndpointInfo
from editloupe.backends.payload import (
    REPLY_BOUND,
    JsonObject,
    clean_text,
    cleaned,
    count,
    loads,
    one_line,
    parse_answer,
    retry_after_s,
)
from editloupe.chat import Finish, ImagePart, MalformedCall, Message, Reply, Request, TextPart, ToolCall, Usage
from editloupe.data.images import EncodedImage
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import ImageRef, Json

if TYPE_CHECKING:
    from google.genai import types

Encoded: TypeAlias = Callable[[ImageRef], EncodedImage]

SAMPLING: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
    "max_tokens": "maxOutputTokens",
}
"""Our name of a parameter → the wire's."""
_SCHEMA: Final = "responseJsonSchema"

NOTHING_SAID: Final = "(nothing)"
"""Stands for an assistant's message without text and calls: the API refuses a content that has nothing in it."""
_FINISHES: Final[Mapping[str, Finish]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "MODEL_ARMOR": "filter",
    "IMAGE_SAFETY": "filter",
    "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter",
}
_BAD_CALLS: Final[Mapping[str, str]] = {
    "MALFORMED_FUNCTION_CALL": "the call could not be read as one: write its arguments as the tool's schema says",
    "MALFORMED_RESPONSE": "the reply could not be read",
    "UNEXPECTED_TOOL_CALL": "a tool was called where none may be called",
    "TOO_MANY_TOOL_CALLS": "too many calls in one reply",
}
DROPPABLE: Final = {
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "top_p": re.compile(r"\btop[_ ]?p\b", re.IGNORECASE),
    "seed": re.compile(r"\bseed\b", re.IGNORECASE),
    "max_tokens": REPLY_BOUND,
    # Several models take no schema beside function declarations.
    "answer_schema": re.compile(r"response[_ ]?(mime[_ ]?type|json[_ ]?schema|schema)|json mode", re.IGNORECASE),
}
"""Our name of what a model may refuse and we can do without → how its refusal names it."""
_REFUSES_PARAMETER = re.compile(r"support|not enabled|not allowed|deprecated", re.IGNORECASE)
_CONTEXT = re.compile(
    r"token count.{0,40}exceeds|exceeds the maximum number of tokens|context (window|length)|"
    r"(request|payload).{0,40}(too large|size exceeds)",
    re.IGNORECASE,
)
_ADDRESS_HINT = "base_url is the address under which /v1beta/models lies, without that path"


# Request → wire


def config_of(model: str, request: Request, system: Any, dropped: frozenset[str]) -> tuple[dict[str, Json], Any]:
    """Return (what is recorded as sent, under the wire's names; the SDK's GenerateContentConfig)."""
    from google.genai import types

    values = {n: v for n, v in request.sampling.to_json().items() if v is not None and n not in dropped}
    sent: dict[str, Json] = {"model": model, **{SAMPLING[name]: value for name, value in values.items()}}
    config = types.GenerateContentConfig(
        system_instruction=system,
        temperature=cast("float | None", values.get("temperature")),
        top_p=cast("float | None", values.get("top_p")),
        seed=cast("int | None", values.get("seed")),
        max_output_tokens=cast("int | None", values.get("max_tokens")),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        # The answer as it came: what the SDK makes of it has no place for fields that it does not know.
        should_return_http_response=True,
    )
    if request.answer_schema is not None and "answer_schema" not in dropped:
        config.response_mime_type = "application/json"
        config.response_json_schema = sent[_SCHEMA] = dict(request.answer_schema)
    if request.tools:
        config.tools = [
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(
                        name=t.name, description=t.description, parameters_json_schema=dict(t.parameters)
                    )
                    for t in request.tools
                ]
            )
        ]
        mode = types.FunctionCallingConfigMode.AUTO if request.calls_allowed else types.FunctionCallingConfigMode.NONE
        config.tool_config = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode=mode))
        sent["tools"] = [tool.to_json() for tool in request.tools]
        sent["functionCallingMode"] = mode.value
    return sent, config


def contents_of(request: Request, encoded: Encoded) -> tuple[types.Content | None, list[types.Content]]:
    """Return (system instruction or None, the conversation). Roles alternate: neighbours of one side become one content.

    In a content that answers calls the function responses stand first, then their pictures under their names, then what
    else is said: the API takes no picture inside a response of the models before Gemini 3.
    """
    from google.genai import types

    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    system: list[types.Part] = []
    turns: list[tuple[str, list[Message]]] = []
    for message in request.messages:
        if message.role == "system":
            system += _parts(message, encoded)
            continue
        role = "model" if message.role == "assistant" else "user"
        if turns and turns[-1][0] == role:
            turns[-1][1].append(message)
        else:
            turns.append((role, [message]))
    contents = []
    for role, messages in turns:
        if role == "model":
            parts = [part for message in messages for part in _said(message, encoded)]
        else:
            answers = [message for message in messages if message.role == "tool"]
            parts = [_response(message, names) for message in answers]
            parts += [part for message in answers for part in _pictures(message, encoded)]
            parts += [part for message in messages if message.role != "tool" for part in _parts(message, encoded)]
        contents.append(types.Content(role=role, parts=parts or [types.Part(text=NOTHING_SAID)]))
    return types.Content(role="user", parts=system) if system else None, contents


def _parts(message: Message, encoded: Encoded) -> list[types.Part]:
    from google.genai import types

    return [
        _inline(part, encoded) if isinstance(part, ImagePart) else types.Part(text=part.text)
        for part in message.parts
        if isinstance(part, ImagePart) or part.text
    ]


def _inline(part: ImagePart, encoded: Encoded) -> types.Part:
    from google.genai import types

    image = encoded(part.image)
    return types.Part(inline_data=types.Blob(mime_type=image.media_type, data=image.data))


def _said(message: Message, encoded: Encoded) -> list[types.Part]:
    """Return the model's own message, as it came where it was signed: a signature holds for its own part only."""
    from google.genai import types

    signed = message.carry.get("parts") if isinstance(message.carry, Mapping) else None
    calls = list(message.tool_calls)
    if isinstance(signed, Sequence) and not isinstance(signed, str):
        return [part for item in signed if isinstance(item, Mapping) for part in _as_it_came(item, calls)]
    parts = _parts(message, encoded)
    parts += [types.Part(function_call=_call(call)) for call in calls]
    return parts


def _as_it_came(item: JsonObject, calls: list[ToolCall]) -> list[types.Part]:
    """Return a part of `Reply.carry`. Calls are taken from `calls` in their order: those that will be answered."""
    from google.genai import types

    text, signature = item.get("text"), item.get("thoughtSignature")
    part = types.Part(
        text=text if isinstance(text, str) else None,
        thought=True if item.get("thought") is True else None,
        thought_signature=_bytes(signature) if isinstance(signature, str) else None,
    )
    if item.get("call") is True:
        if not calls:
            return []
        part.function_call = _call(calls.pop(0))
    return [part]


def _call(call: ToolCall) -> types.FunctionCall:
    from google.genai import types

    return types.FunctionCall(id=call.id, name=call.name, args=dict(call.arguments))


def _response(message: Message, names: Mapping[str, str]) -> types.Part:
    from google.genai import types

    id_ = message.tool_call_id or ""
    aliases = [image.alias for image in message.images]
    labels = {f"{alias}:" for alias in aliases}
    lines = [p.text for p in message.parts if isinstance(p, TextPart) and p.text not in labels]
    if aliases:
        lines.append(f"Pictures behind the tools' results: {', '.join(aliases)}.")
    name = names.get(id_, "")
    return types.Part(function_response=types.FunctionResponse(id=id_, name=name, response={"output": "\n".join(lines)}))


def _pictures(message: Message, encoded: Encoded) -> list[types.Part]:
    from google.genai import types

    return [part for p in message.images for part in (types.Part(text=f"{p.alias}:"), _inline(p, encoded))]


def _bytes(text: str) -> bytes:
    """Decode base64 of either alphabet, with or without its padding."""
    plain = text.replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


# wire → Reply


def read_reply(body: bytes, sent: JsonObject, info: EndpointInfo) -> Reply:
    """Parse the answer into a Reply for the trace: without the key, image data and text that is not Unicode.

    Raises BackendError where it is no whole answer, or holds neither a candidate nor the reason why there is none.
    """
    payload = _payload(body, info)
    model = payload.get("modelVersion")
    common: dict[str, Any] = {
        "usage": _usage(payload.get("usageMetadata")),
        "model": model if isinstance(model, str) else "",
        "raw": payload,
        "sent": sent,
    }
    candidates = payload.get("candidates")
    candidate = candidates[0] if isinstance(candidates, list) and candidates else None
    if not isinstance(candidate, Mapping):
        feedback = payload.get("promptFeedback")
        blocked = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
        if blocked:
            return Reply(text=f"the provider blocked the prompt ({blocked})", finish="filter", **common)
        raise Unavailable(f"{info.where}: answered without a candidate; expected candidates[0].content")
    reason = str(candidate.get("finishReason") or "STOP")
    words = str(candidate.get("finishMessage") or "")
    if reason == "MISSING_THOUGHT_SIGNATURE":
        raise Rejected(f"{info.where}: the model misses the signature of an earlier thought; {words}".rstrip("; "))
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    read = _Parts()
    for part in parts if isinstance(parts, list) else []:
        read.add(part)
    if reason in _BAD_CALLS:
        read.malformed.append(MalformedCall(raw=words or read.text, error=_BAD_CALLS[reason]))
    finish: Finish = _FINISHES.get(reason, "stop")
    if finish == "stop" and (read.calls or read.malformed):
        finish = "tools"
    text = read.text
    if finish == "filter" and not text:
        text = f"the provider cut the reply off ({reason})" + (f": {words}" if words else "")
    return Reply(
        text=text,
        reasoning=read.reasoning,
        tool_calls=tuple(read.calls),
        malformed_calls=tuple(read.malformed),
        finish=finish,
        carry={"parts": read.kept} if read.signed else None,
        **common,
    )


class _Parts:
    """The parts of a reply, sorted. kept: what goes back with the conversation where a part is signed."""

    def __init__(self) -> None:
        self.text, self.reasoning, self.signed = "", "", False
        self.calls: list[ToolCall] = []
        self.malformed: list[MalformedCall] = []
        self.kept: list[Json] = []

    def add(self, part: Json) -> None:
        if not isinstance(part, Mapping):
            return
        kept: dict[str, Json] = {}
        text, signature = part.get("text"), _signature(part.get("thoughtSignature"))
        if isinstance(text, str):
            if part.get("thought") is True:
                self.reasoning += text
            else:
                self.text += text
            kept["text"] = text
        if part.get("functionCall") is not None and self._call(part["functionCall"]):
            kept["call"] = True
        if signature is not None:
            self.signed = True
            kept["thoughtSignature"] = signature
        # A thought goes back only for its signature's sake.
        if part.get("thought") is True:
            kept["thought"] = True
        if kept and (part.get("thought") is not True or signature is not None):
            self.kept.append(kept)

    def _call(self, call: Json) -> bool:
        """Take in a call. Return True if it can be answered."""
        name = call.get("name") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(name, str) or not name:
            self.malformed.append(MalformedCall(raw=json.dumps(call), error="a tool call needs a name"))
            return False
        arguments = call.get("args")
        if arguments is None:
            # How a call without arguments is written.
            arguments = {}
        if not isinstance(arguments, Mapping):
            error = "the arguments are not a JSON object"
            self.malformed.append(MalformedCall(raw=json.dumps(arguments), error=error))
            return False
        id_ = str(call.get("id") or f"call_{len(self.calls) + 1}")
        self.calls.append(ToolCall(id=id_, name=name, arguments=arguments))
        return True


def _signature(value: Json) -> str | None:
    """Return a signature that is base64, else None: another could not be sent back."""
    if not isinstance(value, str) or not value:
        return None
    try:
        _bytes(value)
    except (binascii.Error, ValueError):
        return None
    return value


def _payload(body: bytes, info: EndpointInfo) -> JsonObject:
    payload = parse_answer(body, info, _ADDRESS_HINT)
    if payload.get("error") and not payload.get("candidates"):
        # Some gateways report a failure with HTTP 200 and an error in place of the answer.
        code = _error(payload).get("code")
        raise failure(code if isinstance(code, int) and 400 <= code < 600 else 502, body, {}, info)
    return payload


def _usage(value: Json) -> Usage:
    said, thought = count(value, "candidatesTokenCount"), count(value, "thoughtsTokenCount")
    details = value.get("promptTokensDetails") if isinstance(value, Mapping) else None
    pictures = [
        count(entry, "tokenCount")
        for entry in (details if isinstance(details, list) else [])
        if isinstance(entry, Mapping) and entry.get("modality") == "IMAGE"
    ]
    counted = [count for count in pictures if count is not None]
    return Usage(
        input_tokens=count(value, "promptTokenCount"),
        # The API counts thoughts apart; ours are a part of the output, as with other providers.
        output_tokens=None if said is None and thought is None else (said or 0) + (thought or 0),
        image_tokens=sum(counted) if counted else None,
        cached_tokens=count(value, "cachedContentTokenCount"),
        reasoning_tokens=thought,
    )


# Failure → BackendError


def failure(status: int, body: bytes, headers: Mapping[str, str], info: EndpointInfo) -> BackendError:
    """Return a failed answer as one of our errors, with what to do about it."""
    try:
        error = _error(cleaned(loads(body), info.scrub))
        message, listed = error.get("message"), error.get("details")
        words = message if isinstance(message, str) else ""
        details = [d for d in listed if isinstance(d, Mapping)] if isinstance(listed, list) else []
    except (ValueError, RecursionError):
        words, details = clean_text(body[:2000].decode("utf-8", "replace"), info.scrub), []
    if words.lstrip().startswith("<"):
        words = "(a web page)"
    words = one_line(words)
    message = f"{info.where}: HTTP {status}" + (f", {words}" if words else "")
    if status == 429:
        if any("PerDay" in json.dumps(d) for d in details):
            return Rejected(
                f"{message}; the day's quota is used up, waiting a little does not help", status=status, for_all=True
            )
        return RateLimited(message, status=status, retry_after_s=_delay_s(details, headers))
    if status == 408 or status >= 500:
        return Unavailable(message, status=status, retry_after_s=_delay_s(details, headers))
    if status in (400, 413) and _CONTEXT.search(words):
        return ContextTooLong(f"{message}; {TOO_LONG_ADVICE}", status=status)
    reasons = {str(d.get("reason")) for d in details}
    if status in (401, 403) or reasons & {"API_KEY_INVALID", "API_KEY_EXPIRED"} or "API key" in words:
        return Rejected(f"{message}; {info.key_hint}", status=status, for_all=True)
    if advice := info.advice(words):
        return Rejected(f"{message}; {advice}", status=status)
    if status in (404, 405) or status < 400:
        return Rejected(f"{message}; check the model's name, and that {_ADDRESS_HINT}", status=status, for_all=True)
    return Rejected(message, status=status)


def refused_parameter(error: Rejected, sent: JsonObject) -> str | None:
    """Return the name of a parameter that was sent, that the model refuses, and that we can do without."""
    # Behind the address and the model's name, which may be anything.
    _, _, words = str(error).partition("HTTP 400")
    if error.status != 400:
        return None
    if SAMPLING["max_tokens"] in sent and REPLY_BOUND.search(words):
        return "max_tokens"
    if not _REFUSES_PARAMETER.search(words):
        return None
    wire_names = {**SAMPLING, "answer_schema": _SCHEMA}
    return next((n for n, named in DROPPABLE.items() if wire_names[n] in sent and named.search(words)), None)


def backend_error(error: Exception, info: EndpointInfo) -> BackendError:
    """Return an error of the SDK or its HTTP library as one of ours. It is cleaned of the key in place: it is the cause."""
    error.args = tuple(clean_text(str(a), info.scrub) for a in error.args)
    library, kind, words = type(error).__module__.partition(".")[0], type(error).__name__, info.scrub(str(error))
    if library not in ("httpx", "httpx2", "httpcore", "httpcore2"):
        return Rejected(f"{info.where}: the SDK refuses the request ({kind}: {' '.join(words.split())[:400]})")
    if "ConnectTimeout" in kind:
        return Unavailable(f"{info.where}: no connection within {info.connect_s:g} s")
    if "Timeout" in kind:
        return Unavailable(f"{info.where}: no answer within {info.timeout_s:g} s")
    return Unavailable(f"{info.where}: the connection failed ({kind}: {words}); {UNREACHABLE_ADVICE}")


def _error(payload: Json) -> JsonObject:
    """Return the error's object: under "error", in a list of one, or the payload itself."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if not isinstance(payload, Mapping):
        return {"message": str(payload)[:400]}
    inner = payload.get("error", payload)
    return inner if isinstance(inner, Mapping) else {"message": str(inner)}


def _delay_s(details: Sequence[JsonObject], headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds that the endpoint asks for: RetryInfo's "17.5s", or `Retry-After`; None for neither."""
    for detail in details:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(detail.get("retryDelay", "")))
        if match:
            return float(match[1])
    return retry_after_s(headers)
