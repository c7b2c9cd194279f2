"""Gemini's generateContent as objects of the SDK and bytes: `Request` → wire, wire → `Reply`, a failure → BackendError.

Translation only: nothing here sends, waits, remembers or reads the environment. The client, its key and what is asked
again are editloupe/backends/google.py's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import Said, failure, said
from editloupe.backends.payload import (
    JsonObject,
    at,
    clean_text,
    count,
    items_at,
    named_pictures,
    one_line,
    parse_answer,
    sampling_of,
    text_at,
    texts_without,
    whole_tokens,
)
from editloupe.chat import Finish, ImagePart, MalformedCall, Message, Part, Reply, Request, Token, ToolCall, Usage
from editloupe.data.images import EncodedImage
from editloupe.errors import BackendError, Rejected, Unavailable
from editloupe.values import ImageRef, Json, finite

if TYPE_CHECKING:
    from google.genai import types

Encoded: TypeAlias = Callable[[ImageRef], EncodedImage]
WirePart: TypeAlias = dict[str, Any]
"""A part as the SDK's `types.Part` reads it."""

SAMPLING: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
    "max_tokens": "maxOutputTokens",
}
"""Our name of a parameter → the wire's."""
_SCHEMA: Final = "responseJsonSchema"
_LOGPROBS: Final = "responseLogprobs"

NOTHING_SAID: Final = "(nothing)"
"""Stands for an assistant's message without text and calls: the API refuses a content that has nothing in it."""
_FINISHES: Final[Mapping[str, Finish]] = {
    "STOP": "stop", "MAX_TOKENS": "length",
    "SAFETY": "filter", "RECITATION": "filter", "BLOCKLIST": "filter", "PROHIBITED_CONTENT": "filter", "SPII": "filter",
    "MODEL_ARMOR": "filter", "IMAGE_SAFETY": "filter", "IMAGE_PROHIBITED_CONTENT": "filter", "IMAGE_RECITATION": "filter",
}  # fmt: skip
_BAD_CALLS: Final[Mapping[str, str]] = {
    "MALFORMED_FUNCTION_CALL": "the call could not be read as one: write its arguments as the tool's schema says",
    "MALFORMED_RESPONSE": "the reply could not be read",
    "UNEXPECTED_TOOL_CALL": "a tool was called where none may be called",
    "TOO_MANY_TOOL_CALLS": "too many calls in one reply",
}
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **{ours: (ours, wire) for ours, wire in SAMPLING.items()},
    "max_tokens": ("max_output_tokens",),
    # Several models take no schema beside function declarations.
    "answer_schema": ("response_mime_type", "response_json_schema", "response_schema"),
    "top_logprobs": ("logprobs", "response_logprobs"),
    "tools": ("tools", "function_declarations", "function_calling"),
}
"""Our name of what a model may refuse and we can do without → how a refusal names it, in either spelling."""
_ADDRESS_HINT = "base_url is the address under which /v1beta/models lies, without that path"


# Request → wire


def config_of(model: str, request: Request, system: Any, refused: frozenset[str]) -> tuple[dict[str, Json], Any]:
    """Return (what is recorded as sent, under the wire's names; the SDK's GenerateContentConfig)."""
    from google.genai import types

    values = sampling_of(request, refused)
    sent: dict[str, Json] = {"model": model, **{SAMPLING[name]: value for name, value in values.items()}}
    config: dict[str, Any] = {
        **{"max_output_tokens" if name == "max_tokens" else name: value for name, value in values.items()},
        "system_instruction": system,
        "automatic_function_calling": {"disable": True},
        # The answer as it came: what the SDK makes of it has no place for fields that it does not know.
        "should_return_http_response": True,
    }
    if request.answer_schema is not None and "answer_schema" not in refused:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = sent[_SCHEMA] = dict(request.answer_schema)
    if request.top_logprobs is not None and "top_logprobs" not in refused:
        config |= {"response_logprobs": True, "logprobs": request.top_logprobs}
        sent |= {_LOGPROBS: True, "logprobs": request.top_logprobs}
    if request.tools:
        declared = [
            {"name": t.name, "description": t.description, "parameters_json_schema": dict(t.parameters)}
            for t in request.tools
        ]
        mode = "AUTO" if request.calls_allowed else "NONE"
        config["tools"] = [{"function_declarations": declared}]
        config["tool_config"] = {"function_calling_config": {"mode": mode}}
        sent["tools"] = [tool.to_json() for tool in request.tools]
        sent["functionCallingMode"] = mode
    return sent, types.GenerateContentConfig.model_validate(config)


def contents_of(request: Request, encoded: Encoded) -> tuple[types.Content | None, list[types.Content]]:
    """Return (system instruction or None, the conversation). Roles alternate: neighbours of one side become one content.

    In a content that answers calls the function responses stand first, then their pictures under their names, then what
    else is said: the API takes no picture inside a response of the models before Gemini 3.
    """
    from google.genai import types

    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    system = [part for m in request.messages if m.role == "system" for part in _parts(m.parts, encoded)]
    spoken = [m for m in request.messages if m.role != "system"]
    contents = []
    for own, turn in groupby(spoken, key=lambda message: message.role == "assistant"):
        messages = list(turn)
        if own:
            parts = [part for message in messages for part in _said(message, encoded)]
        else:
            answers = [message for message in messages if message.role == "tool"]
            parts = [_response(message, names) for message in answers]
            parts += [part for m in answers for part in _parts(named_pictures(m), encoded)]
            parts += [part for m in messages if m.role != "tool" for part in _parts(m.parts, encoded)]
        contents.append({"role": "model" if own else "user", "parts": parts or [{"text": NOTHING_SAID}]})
    instruction = types.Content.model_validate({"role": "user", "parts": system}) if system else None
    return instruction, [types.Content.model_validate(content) for content in contents]


def _parts(parts: Iterable[Part], encoded: Encoded) -> list[WirePart]:
    found: list[WirePart] = []
    for part in parts:
        if isinstance(part, ImagePart):
            image = encoded(part.image)
            found.append({"inline_data": {"mime_type": image.media_type, "data": image.data}})
        elif part.text:
            found.append({"text": part.text})
    return found


def _said(message: Message, encoded: Encoded) -> list[WirePart]:
    """Return the model's own message, as it came where it was signed: a signature holds for its own part only."""
    signed = at(message.carry, "parts")
    calls: list[WirePart] = [
        {"function_call": {"id": call.id, "name": call.name, "args": dict(call.arguments)}} for call in message.tool_calls
    ]
    if not isinstance(signed, Sequence) or isinstance(signed, str):
        return _parts(message.parts, encoded) + calls
    parts: list[WirePart] = []
    for item in signed:
        # Calls in their order: those that will be answered.
        part = {} if at(item, "call") is not True else calls.pop(0) if calls else None
        if isinstance(item, Mapping) and part is not None:
            text, signature = at(item, "text"), at(item, "thoughtSignature")
            part |= {"text": text} if isinstance(text, str) else {}
            part |= {"thought": True} if at(item, "thought") is True else {}
            part |= {"thought_signature": _bytes(signature)} if isinstance(signature, str) else {}
            parts.append(part)
    return parts


def _response(message: Message, names: Mapping[str, str]) -> WirePart:
    id_ = message.tool_call_id or ""
    output = "\n".join(part.text for part in texts_without(message, "Pictures behind the tools' results"))
    return {"function_response": {"id": id_, "name": names.get(id_, ""), "response": {"output": output}}}


def _bytes(text: str) -> bytes:
    """Decode base64 of either alphabet, with or without its padding."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))


# wire → Reply


def read_reply(body: bytes, sent: JsonObject, endpoint: Endpoint, *, tokens: bool = False) -> Reply:
    """Parse the answer into a Reply for the trace: without the key, image data and text that is not Unicode.

    tokens: whether the reply is to hold its tokens; they are then left out of `raw`.
    Raises BackendError where it is no whole answer, or holds neither a candidate nor the reason why there is none.
    """
    payload = parse_answer(body, endpoint, _ADDRESS_HINT)
    if payload.get("error"):
        code = at(payload, "error", "code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        raise failure(said(status, payload, {}), endpoint, hint=_ADDRESS_HINT)
    common: dict[str, Any] = {
        "usage": _usage(payload.get("usageMetadata")),
        "model": text_at(payload, "modelVersion"),
        "raw": payload,
        "sent": sent,
    }
    candidate = at(payload, "candidates", 0)
    if not isinstance(candidate, Mapping):
        blocked = at(payload, "promptFeedback", "blockReason")
        if blocked:
            return Reply(text=f"the provider blocked the prompt ({blocked})", finish="filter", **common)
        raise Unavailable(f"{endpoint.where}: answered without a candidate; expected candidates[0].content")
    reason = str(candidate.get("finishReason") or "STOP")
    words = str(candidate.get("finishMessage") or "")
    if reason == "MISSING_THOUGHT_SIGNATURE":
        raise Rejected(f"{endpoint.where}: the model misses the signature of an earlier thought; {words}".rstrip("; "))
    parts = [part for part in items_at(candidate, "content", "parts") if isinstance(part, Mapping)]
    text = "".join(text_at(part, "text") for part in parts if part.get("thought") is not True)
    calls: list[ToolCall] = []
    malformed: list[MalformedCall] = []
    # What goes back with the conversation where a part is signed.
    kept: list[dict[str, Json]] = []
    for part in parts:
        call = None if part.get("functionCall") is None else _call(part["functionCall"], len(calls) + 1)
        if isinstance(call, ToolCall):
            calls.append(call)
        elif call is not None:
            malformed.append(call)
        back: dict[str, Json] = {"text": part["text"]} if isinstance(part.get("text"), str) else {}
        back |= {"call": True} if isinstance(call, ToolCall) else {}
        back |= {"thoughtSignature": part["thoughtSignature"]} if _is_signature(part.get("thoughtSignature")) else {}
        if part.get("thought") is not True:
            kept += [back] if back else []
        elif "thoughtSignature" in back:
            # A thought goes back only for its signature's sake.
            kept.append({**back, "thought": True})
    if reason in _BAD_CALLS:
        malformed.append(MalformedCall(raw=words or text, error=_BAD_CALLS[reason]))
    finish: Finish = _FINISHES.get(reason, "stop")
    if finish == "stop" and (calls or malformed):
        finish = "tools"
    if finish == "filter" and not text:
        text = f"the provider cut the reply off ({reason})" + (f": {words}" if words else "")
    if tokens:
        bare: dict[str, Json] = {name: value for name, value in candidate.items() if name != "logprobsResult"}
        common["raw"] = {**payload, "candidates": [bare, *items_at(payload, "candidates")[1:]]}
        common["tokens"] = whole_tokens(_tokens(at(candidate, "logprobsResult")), endpoint.scrub)
    return Reply(
        text=text,
        reasoning="".join(text_at(part, "text") for part in parts if part.get("thought") is True),
        tool_calls=tuple(calls),
        malformed_calls=tuple(malformed),
        finish=finish,
        carry={"parts": kept} if any("thoughtSignature" in part for part in kept) else None,
        **common,
    )


def _tokens(result: Json) -> Iterator[Token | None]:
    """Yield the tokens of a reply; None for one that cannot be read."""
    tops = items_at(result, "topCandidates")
    for number, chosen in enumerate(items_at(result, "chosenCandidates")):
        (text, logprob), *_ = _probable([chosen])
        others = items_at(tops, number, "candidates")
        known = tuple((word, value) for word, value in _probable(others) if isinstance(word, str) and value is not None)
        yield None if logprob is None or not isinstance(text, str) else Token(text=text, logprob=logprob, top=known)


def _probable(candidates: Sequence[Any]) -> list[tuple[Any, float | None]]:
    # JSON of this API leaves out what is 0: the logarithm of a certainty.
    return [(at(item, "token"), finite(at(item, "logProbability") or 0)) for item in candidates]


def _call(call: Json, number: int) -> ToolCall | MalformedCall:
    # None is how a call without arguments is written.
    name, arguments = text_at(call, "name"), {} if at(call, "args") is None else at(call, "args")
    if not name:
        return MalformedCall(raw=json.dumps(call), error="a tool call needs a name")
    if not isinstance(arguments, Mapping):
        return MalformedCall(raw=json.dumps(arguments), error="the arguments are not a JSON object")
    return ToolCall(id=str(at(call, "id") or f"call_{number}"), name=name, arguments=arguments)


def _is_signature(value: Json) -> bool:
    """Return whether this is base64, and not empty: anything else could not be sent back."""
    try:
        return isinstance(value, str) and value != "" and _bytes(value) is not None
    except ValueError:
        return False


def _usage(value: Json) -> Usage:
    said, thought = count(value, "candidatesTokenCount"), count(value, "thoughtsTokenCount")
    details = [entry for entry in items_at(value, "promptTokensDetails") if at(entry, "modality") == "IMAGE"]
    pictures = [tokens for entry in details if (tokens := count(entry, "tokenCount")) is not None]
    return Usage(
        input_tokens=count(value, "promptTokenCount"),
        # The API counts thoughts apart; ours are a part of the output, as with other providers.
        output_tokens=None if said is None and thought is None else (said or 0) + (thought or 0),
        image_tokens=sum(pictures) if pictures else None,
        cached_tokens=count(value, "cachedContentTokenCount"),
        reasoning_tokens=thought,
    )


# Failure → BackendError


def failure_of(told: Said, endpoint: Endpoint, *, pictures: int, answered: bool) -> BackendError:
    """Return a failed answer as one of our errors, with what to do about it."""
    return failure(told, endpoint, pictures=pictures, answered=answered, hint=_ADDRESS_HINT)


def refused(told: Said, sent: JsonObject) -> frozenset[str]:
    """Return what a failed answer names of the parameters that were sent and can be left out, by our names."""
    if told.status != 400:
        return frozenset()
    wire_names = {**SAMPLING, "answer_schema": _SCHEMA, "top_logprobs": _LOGPROBS, "tools": "tools"}
    given = {name: _NAMES[name] for name, wire in wire_names.items() if wire in sent}
    found = told.names([spelt for names in given.values() for spelt in names], own=(str(sent["model"]),))
    names = {name for name, spelt in given.items() if found & set(spelt)}
    # "Function calling with a response mime type": the schema is what can be left out.
    return frozenset(names - {"tools"} if "answer_schema" in names else names)


def backend_error(error: Exception, endpoint: Endpoint) -> BackendError:
    """Return an error of the SDK or its HTTP library as one of ours. It is cleaned of the key in place: it is the cause."""
    error.args = tuple(clean_text(str(a), endpoint.scrub) for a in error.args)
    if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
        return endpoint.unreachable(error)
    words = one_line(endpoint.scrub(str(error)))
    return Rejected(f"{endpoint.where}: the SDK refuses the request ({type(error).__name__}: {words})")
