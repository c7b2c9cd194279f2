"""Gemini over the official `google-genai` SDK.

google/MODEL                                        https://generativelanguage.googleapis.com
google/MODEL?base_url=http://127.0.0.1:8080         a gateway, or a server of your own, that speaks the same protocol

Further parameters stand in docs/backends.md. Answers are read from their bytes: what the SDK makes of them has no place for
fields that it does not know.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from editloupe.backends import payload, retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.batch.base import Batches, InBatches
from editloupe.backends.endpoint import Endpoint, Provider, is_loopback, read_endpoint
from editloupe.backends.failures import Failed, parse_answer
from editloupe.backends.payload import at, count, items_at, text_at
from editloupe.backends.transport import bounded
from editloupe.chat import Finish, ImagePart, MalformedCall, Message, Part, Reply, Request, Token, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, MissingExtra, Unavailable
from editloupe.values import ImageRef, Json, compact_bytes, finite

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
_ADDRESS_HINT: Final = "base_url is the address under which /v1beta/models lies, without that path"
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


class GoogleBackend(InBatches):
    """A Gemini model."""

    def __init__(self, endpoint: Endpoint, client: Any, http: Any, *, policy: retry.RetryPolicy) -> None:
        place = "beside the function responses, in the same content"
        super().__init__(endpoint, hint=_ADDRESS_HINT, close=http.close, policy=policy, tool_images=place)
        self._client = client

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], bytes]:
        system, contents = _contents(request, partial(_parts, images=images, traits=self.traits))
        model = self._uri.model

        def ask(refused: frozenset[str]) -> bytes:
            config = _config(model, request, refused)[1]
            config |= {"system_instruction": system, "should_return_http_response": True}
            call = partial(self._client.models.generate_content, model=model, contents=contents, config=config)
            response = self._ours(call).sdk_http_response
            return ((response and response.body) or "").encode("utf-8", "replace")

        return ask

    def batches(self, folder: Path) -> Batches:
        """Return the batch endpoint."""
        from editloupe.backends.batch.google import GoogleBatches

        return GoogleBatches(self, self._client, self._uri.model, folder)

    def _body(
        self, request: Request, images: ImageStore, refused: frozenset[str], picture: Callable[[ImageRef], object] | None
    ) -> bytes:
        system, contents = _contents(request, partial(_parts, images=images, traits=self.traits, picture=picture))
        return compact_bytes(_rest(system, contents, _config(self._uri.model, request, refused)[1]))

    def _sent(self, request: Request, refused: frozenset[str]) -> dict[str, Json]:
        return _config(self._uri.model, request, refused)[0]

    def _parsed(self, answer: Any, request: Request, sent: dict[str, Json], *, answered: bool) -> Reply:
        found = parse_answer(answer, self._at, _ADDRESS_HINT, answered=answered)
        return _reply(found, sent, self._at, tokens=request.top_logprobs is not None)

    def _named(self, failed: Failed, request: Request, refused: frozenset[str]) -> frozenset[str]:
        names = failed.told.refuses(_NAMES, self._sent(request, refused))
        # "Function calling with a response mime type": the schema is what can be left out.
        return names - {"tools"} if "answer_schema" in names else names


# Request → wire


def _config(model: str, request: Request, refused: frozenset[str]) -> tuple[dict[str, Json], dict[str, Any]]:
    """Return (what is recorded as sent, by the SDK's fields; the SDK's config of a request)."""
    sent: dict[str, Json] = {_NAMES[name][0]: value for name, value in payload.sampling_of(request, refused).items()}
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
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
    return {"model": model, **sent}, config


def _contents(request: Request, parts_of: Callable[[Iterable[Part]], list[Any]]) -> tuple[Any, list[Any]]:
    """Return (system instruction or None, the conversation). Roles alternate: neighbors of one side become one content.

    In a content that answers calls the function responses stand first, then their pictures under their names, then what
    else is said: the API takes no picture inside a response of the models before Gemini 3.
    """
    from google.genai import types

    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    system = [part for m in request.messages if m.role == "system" for part in parts_of(m.parts)]
    spoken = [m for m in request.messages if m.role != "system"]
    contents = []
    for own, turn in groupby(spoken, key=lambda message: message.role == "assistant"):
        messages = list(turn)
        if own:
            parts = [part for message in messages for part in _own_parts(message, parts_of)]
        else:
            answers = [message for message in messages if message.role == "tool"]
            parts = [_response(message, names) for message in answers]
            parts += [part for m in answers for part in parts_of(payload.named_pictures(m))]
            parts += [part for m in messages if m.role != "tool" for part in parts_of(m.parts)]
        # The API refuses a content that has nothing in it.
        contents.append({"role": "model" if own else "user", "parts": parts or [{"text": "(nothing)"}]})
    # Made once for all attempts.
    return {"parts": system} if system else None, [types.Content.model_validate(content) for content in contents]


def _rest(system: Any, contents: list[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request in the names of the API's reference, which a line of a batch is read by."""
    from google.genai import types

    shown: Any = {"mode": "json", "by_alias": True, "exclude_none": True}
    tools = ("tools", "tool_config", "automatic_function_calling")
    rest: dict[str, Any] = {"contents": [content.model_dump(**shown) for content in contents]}
    rest["generationConfig"] = types.GenerationConfig.model_validate(
        {name: value for name, value in config.items() if name not in tools}
    ).model_dump(**shown)
    if system is not None:
        rest["systemInstruction"] = types.Content.model_validate(system).model_dump(**shown)
    if "tools" in config:
        rest["tools"] = [types.Tool.model_validate(tool).model_dump(**shown) for tool in config["tools"]]
        rest["toolConfig"] = types.ToolConfig.model_validate(config["tool_config"]).model_dump(**shown)
    return rest


def _parts(
    parts: Iterable[Part], *, images: ImageStore, traits: Traits, picture: Callable[[ImageRef], Any] | None = None
) -> list[Any]:
    """Return parts.   picture: returns what names an image; None to send its bytes."""

    def shown(ref: ImageRef) -> Any:
        if picture is not None:
            return picture(ref)
        one = images.encoded(ref, traits.image_policy)
        return {"inline_data": {"mime_type": one.media_type, "data": one.data}}

    texts_and_images = (p for p in parts if isinstance(p, ImagePart) or p.text)
    return [shown(p.image) if isinstance(p, ImagePart) else {"text": p.text} for p in texts_and_images]


def _own_parts(message: Message, parts_of: Callable[[Iterable[Part]], list[Any]]) -> list[Any]:
    """Return the model's own message, as it came where it was signed: a signature holds for its own part only."""
    from google.genai import types

    calls = [{"functionCall": {"id": c.id, "name": c.name, "args": dict(c.arguments)}} for c in message.tool_calls]
    kept = items_at(message.carry, "parts")
    if sum("functionCall" in part for part in kept) != len(calls) or not kept:
        return parts_of(message.parts) + [types.Part.model_validate(call) for call in calls]
    signed = [part | calls.pop(0) if "functionCall" in part else part for part in kept]
    return [types.Part.model_validate_json(json.dumps(part)) for part in signed]


def _response(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    id_ = message.tool_call_id or ""
    output = "\n".join(part.text for part in payload.texts_without(message, "Pictures behind the tools' results"))
    return {"function_response": {"id": id_, "name": names.get(id_, ""), "response": {"output": output}}}


# wire → Reply


def _reply(answer: payload.JsonObject, sent: payload.JsonObject, endpoint: Endpoint, *, tokens: bool) -> Reply:
    """Return the answer as a Reply for the trace. tokens: whether it is to hold its tokens; `raw` then leaves them out.

    Raises Unavailable where there is neither a candidate nor the reason why there is none.
    """
    candidate, blocked = at(answer, "candidates", 0), at(answer, "promptFeedback", "blockReason")
    if not candidate and not blocked:
        raise Unavailable(f"{endpoint.where}: answered without a candidate; expected candidates[0].content")
    parts = [part for part in items_at(candidate, "content", "parts") if isinstance(part, Mapping)]
    thoughts = [part for part in parts if part.get("thought") is True]
    # A thought goes back only for its signature's sake.
    kept = [part for part in parts if part not in thoughts or "thoughtSignature" in part]
    text = "".join(text_at(part, "text") for part in parts if part not in thoughts)
    reason, words = text_at(candidate, "finishReason") or "STOP", text_at(candidate, "finishMessage")
    asked = [part["functionCall"] for part in parts if part.get("functionCall") is not None]
    # None is how a call without arguments is written.
    named = [(one, at(one, "name"), {} if at(one, "args") is None else one["args"]) for one in asked]
    calls, malformed = payload.calls_of(named, endpoint.scrub)
    if _BAD_CALL.search(reason):
        malformed += (MalformedCall(raw=words or text, error=f"the call could not be read as one ({reason})"),)
    finish: Finish = "length" if reason == "MAX_TOKENS" else "tools" if calls or malformed else "stop"
    if blocked and not candidate:
        finish, text = "filter", f"the provider blocked the prompt ({blocked})"
    elif _FILTERED.search(reason):
        finish, text = "filter", text or f"the provider cut the reply off ({reason})" + (f": {words}" if words else "")
    return Reply(
        text=text,
        reasoning="".join(text_at(part, "text") for part in thoughts),
        tool_calls=calls,
        malformed_calls=malformed,
        finish=finish,
        usage=_usage(answer.get("usageMetadata")),
        model=text_at(answer, "modelVersion"),
        raw=payload.without_tokens(answer, "candidates", "logprobsResult") if tokens else answer,
        sent=sent,
        carry={"parts": kept} if any("thoughtSignature" in part for part in kept) else None,
        tokens=payload.whole_tokens(_tokens(at(candidate, "logprobsResult")), endpoint.scrub) if tokens else (),
    )


def _tokens(result: Json) -> Iterator[Token | None]:
    """Yield the tokens of a reply; None for one that cannot be read."""
    for number, chosen in enumerate(items_at(result, "chosenCandidates")):
        likely = [chosen, *items_at(result, "topCandidates", number, "candidates")]
        # JSON of this API leaves out what is 0: the logarithm of a certainty.
        read = [(text_at(one, "token"), finite(at(one, "logProbability") or 0)) for one in likely]
        (text, logprob), *others = read
        top = tuple((word, value) for word, value in others if word and value is not None)
        yield Token(text=text, logprob=logprob, top=top) if text and logprob is not None else None


def _usage(value: Json) -> Usage:
    told, thought = count(value, "candidatesTokenCount"), count(value, "thoughtsTokenCount")
    details = [entry for entry in items_at(value, "promptTokensDetails") if at(entry, "modality") == "IMAGE"]
    return Usage(
        input_tokens=count(value, "promptTokenCount"),
        # The API counts thoughts apart; ours are a part of the output, as with other providers.
        output_tokens=None if told is None and thought is None else (told or 0) + (thought or 0),
        image_tokens=sum(count(entry, "tokenCount") or 0 for entry in details) if details else None,
        cached_tokens=count(value, "cachedContentTokenCount"),
        reasoning_tokens=thought,
    )
