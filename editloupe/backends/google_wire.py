"""Gemini's generateContent: `Request` → objects of the SDK, an answer's bytes → `Reply`. Nothing here sends or waits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, TypeAlias

from editloupe.backends import payload
from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import Said, parse_answer
from editloupe.chat import Finish, ImagePart, MalformedCall, Message, Part, Reply, Request, Token, ToolCall, Usage
from editloupe.data.images import EncodedImage
from editloupe.errors import Unavailable
from editloupe.values import ImageRef, Json, finite

Encoded: TypeAlias = Callable[[ImageRef], EncodedImage]
ADDRESS_HINT: Final = "base_url is the address under which /v1beta/models lies, without that path"

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in ("temperature", "top_p", "seed")},
    "max_tokens": ("max_output_tokens",),
    # Several models take no schema beside function declarations.
    "answer_schema": ("response_json_schema", "response_mime_type", "response_schema"),
    "top_logprobs": ("logprobs", "response_logprobs"),
    "tools": ("tools", "function_declarations", "function_calling"),
}
"""Our name of what a model may refuse and we can do without → the SDK's field, and how else a refusal may name it."""
_FILTERED: Final = re.compile("SAFETY|RECITATION|BLOCKLIST|PROHIBITED|SPII|MODEL_ARMOR")
_BAD_CALL: Final = re.compile("MALFORMED|TOOL_CALL")


# Request → wire


def config_of(model: str, request: Request, system: Any, refused: frozenset[str]) -> tuple[dict[str, Json], Any]:
    """Return (what is recorded as sent, by the SDK's fields; the SDK's GenerateContentConfig)."""
    from google.genai import types

    sent: dict[str, Json] = {_NAMES[name][0]: value for name, value in payload.sampling_of(request, refused).items()}
    config: dict[str, Any] = {
        "system_instruction": system,
        "automatic_function_calling": {"disable": True},
        # The answer as it came: what the SDK makes of it has no place for fields that it does not know.
        "should_return_http_response": True,
    }
    if request.answer_schema is not None and "answer_schema" not in refused:
        config["response_mime_type"] = "application/json"
        sent["response_json_schema"] = dict(request.answer_schema)
    if request.top_logprobs is not None and "top_logprobs" not in refused:
        sent |= {"response_logprobs": True, "logprobs": request.top_logprobs}
    config |= sent
    if request.tools:
        functions = [
            {"name": t.name, "description": t.description, "parameters_json_schema": dict(t.parameters)}
            for t in request.tools
        ]
        mode = "AUTO" if request.calls_allowed else "NONE"
        calling = {"function_calling_config": {"mode": mode}}
        config |= {"tools": [{"function_declarations": functions}], "tool_config": calling}
        sent |= {"tools": [tool.to_json() for tool in request.tools], "function_calling_mode": mode}
    return {"model": model, **sent}, types.GenerateContentConfig.model_validate(config)


def contents_of(request: Request, encoded: Encoded) -> tuple[Any, list[Any]]:
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
            parts += [part for m in answers for part in _parts(payload.named_pictures(m), encoded)]
            parts += [part for m in messages if m.role != "tool" for part in _parts(m.parts, encoded)]
        # The API refuses a content that has nothing in it.
        contents.append({"role": "model" if own else "user", "parts": parts or [{"text": "(nothing)"}]})
    instruction = types.Content.model_validate({"role": "user", "parts": system}) if system else None
    return instruction, [types.Content.model_validate(content) for content in contents]


def _parts(parts: Iterable[Part], encoded: Encoded) -> list[Any]:
    found = [encoded(part.image) if isinstance(part, ImagePart) else part.text for part in parts]
    return [
        {"text": one} if isinstance(one, str) else {"inline_data": {"mime_type": one.media_type, "data": one.data}}
        for one in found
        if one
    ]


def _said(message: Message, encoded: Encoded) -> list[Any]:
    """Return the model's own message, as it came where it was signed: a signature holds for its own part only."""
    from google.genai import types

    calls = [{"functionCall": {"id": c.id, "name": c.name, "args": dict(c.arguments)}} for c in message.tool_calls]
    kept = payload.items_at(message.carry, "parts")
    if sum("functionCall" in part for part in kept) != len(calls) or not kept:
        return _parts(message.parts, encoded) + [types.Part.model_validate(call) for call in calls]
    signed = [part | calls.pop(0) if "functionCall" in part else part for part in kept]
    return [types.Part.model_validate_json(json.dumps(part)) for part in signed]


def _response(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    id_ = message.tool_call_id or ""
    output = "\n".join(part.text for part in payload.texts_without(message, "Pictures behind the tools' results"))
    return {"function_response": {"id": id_, "name": names.get(id_, ""), "response": {"output": output}}}


# wire → Reply


def read_reply(
    body: bytes, sent: payload.JsonObject, endpoint: Endpoint, *, tokens: bool = False, answered: bool = False
) -> Reply:
    """Parse the answer into a Reply for the trace: without the key, image data and text that is not Unicode.

    tokens: whether the reply is to hold its tokens; they are then left out of `raw`.   answered: whether the endpoint has
    answered before.
    Raises BackendError where it is no whole answer, or holds neither a candidate nor the reason why there is none.
    """
    answer = parse_answer(body, endpoint, ADDRESS_HINT, answered=answered)
    usage, model = _usage(answer.get("usageMetadata")), payload.text_at(answer, "modelVersion")
    common: dict[str, Any] = {"usage": usage, "model": model, "raw": answer, "sent": sent}
    candidate = payload.at(answer, "candidates", 0)
    if not isinstance(candidate, Mapping):
        if blocked := payload.at(answer, "promptFeedback", "blockReason"):
            return Reply(text=f"the provider blocked the prompt ({blocked})", finish="filter", **common)
        raise Unavailable(f"{endpoint.where}: answered without a candidate; expected candidates[0].content")
    reason, words = str(candidate.get("finishReason") or "STOP"), str(candidate.get("finishMessage") or "")
    parts = [part for part in payload.items_at(candidate, "content", "parts") if isinstance(part, Mapping)]
    text = "".join(payload.text_at(part, "text") for part in parts if part.get("thought") is not True)
    asked = [part["functionCall"] for part in parts if part.get("functionCall") is not None]
    # None is how a call without arguments is written.
    named = [(one, payload.at(one, "name"), {} if payload.at(one, "args") is None else one["args"]) for one in asked]
    calls = payload.calls_of(named, endpoint.scrub)
    if _BAD_CALL.search(reason):
        calls.append(MalformedCall(raw=words or text, error=f"the call could not be read as one ({reason})"))
    if tokens:
        common["raw"] = payload.without_tokens(answer, "candidates", "logprobsResult")
        common["tokens"] = payload.whole_tokens(_tokens(payload.at(candidate, "logprobsResult")), endpoint.scrub)
    finish: Finish = "length" if reason == "MAX_TOKENS" else "tools" if calls else "stop"
    if _FILTERED.search(reason):
        finish, text = "filter", text or f"the provider cut the reply off ({reason})" + (f": {words}" if words else "")
    # A thought goes back only for its signature's sake.
    kept = [part for part in parts if part.get("thought") is not True or "thoughtSignature" in part]
    return Reply(
        text=text,
        reasoning="".join(payload.text_at(part, "text") for part in parts if part.get("thought") is True),
        tool_calls=tuple(call for call in calls if isinstance(call, ToolCall)),
        malformed_calls=tuple(call for call in calls if isinstance(call, MalformedCall)),
        finish=finish,
        carry={"parts": kept} if any("thoughtSignature" in part for part in kept) else None,
        **common,
    )


def _tokens(result: Json) -> Iterator[Token | None]:
    """Yield the tokens of a reply; None for one that cannot be read."""
    for number, chosen in enumerate(payload.items_at(result, "chosenCandidates")):
        likely = [chosen, *payload.items_at(result, "topCandidates", number, "candidates")]
        # JSON of this API leaves out what is 0: the logarithm of a certainty.
        read = [(payload.text_at(one, "token"), finite(payload.at(one, "logProbability") or 0)) for one in likely]
        (text, logprob), *others = read
        top = tuple((word, value) for word, value in others if word and value is not None)
        yield Token(text=text, logprob=logprob, top=top) if text and logprob is not None else None


def _usage(value: Json) -> Usage:
    told, thought = payload.count(value, "candidatesTokenCount"), payload.count(value, "thoughtsTokenCount")
    details = [
        entry for entry in payload.items_at(value, "promptTokensDetails") if payload.at(entry, "modality") == "IMAGE"
    ]
    pictures = [payload.count(entry, "tokenCount") or 0 for entry in details]
    return Usage(
        input_tokens=payload.count(value, "promptTokenCount"),
        # The API counts thoughts apart; ours are a part of the output, as with other providers.
        output_tokens=None if told is None and thought is None else (told or 0) + (thought or 0),
        image_tokens=sum(pictures) if pictures else None,
        cached_tokens=payload.count(value, "cachedContentTokenCount"),
        reasoning_tokens=thought,
    )


def refused(told: Said, sent: payload.JsonObject) -> frozenset[str]:
    """Return what a failed answer names of the parameters that were sent and can be left out, by our names."""
    names = told.refuses(_NAMES, sent)
    # "Function calling with a response mime type": the schema is what can be left out.
    return names - {"tools"} if "answer_schema" in names else names
