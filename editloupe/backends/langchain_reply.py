"""LangChain's side of an answer: AIMessage → Reply, what a provider wants back, a foreign error → BackendError.

Translation only: nothing here sends, waits, remembers or reads the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage

from editloupe.backends import legacy_words as payload
from editloupe.backends.endpoint import TOO_LONG_ADVICE, UNREACHABLE_ADVICE
from editloupe.backends.legacy_words import NO_VISION
from editloupe.backends.payload import Scrub
from editloupe.chat import Finish, MalformedCall, Message, Reply, ToolCall, Usage
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import Json

_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop", "end_turn": "stop", "stop_sequence": "stop", "completed": "stop", "eos_token": "stop",
    "length": "length", "max_tokens": "length", "max_output_tokens": "length", "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tools", "tool_use": "tools", "function_call": "tools",
    "content_filter": "filter", "content_filtered": "filter", "safety": "filter", "recitation": "filter",
    "blocklist": "filter", "prohibited_content": "filter", "spii": "filter", "image_safety": "filter",
    "guardrail_intervened": "filter",
    "refusal": "refusal",
}  # fmt: skip
"""The words of the usual providers, in lower case."""
_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")

_OWN_KEYS = ("refusal", "parsed", "token_usage", "reasoning_content", "tool_calls")
"""Of additional_kwargs: what is read into the reply, and no provider asks to have back."""
_TOO_LONG = re.compile(r"too many (input )?tokens|input token count|exceeds? the (maximum|context)", re.IGNORECASE)
_NO_CONNECTION = 0
_UNREADABLE = re.compile(
    r"JSONDecodeError|UnicodeDecodeError|RecursionError|KeyError|IndexError|null value for 'choices'"
    r"|ValueError: Unexpected response type(?!.*'<)"
)
"""How classes fail at an answer that is cut, no JSON, or without a message."""
_LIKE: Final = (
    (re.compile(r"RateLimit|ResourceExhausted|Throttl|TooManyRequests", re.IGNORECASE), 429),
    (re.compile(r"Connect"), _NO_CONNECTION),
    (
        re.compile(
            r"Timeout|TimedOut|Connect|Unavailable|InternalServer|Overloaded|DeadlineExceeded|RemoteProtocol|ReadError"
            r"|WriteError|NetworkError|ModelAPIError",
            re.IGNORECASE,
        ),
        503,
    ),
    (re.compile(r"Authentication|PermissionDenied|Unauthorized|Forbidden|AccessDenied", re.IGNORECASE), 401),
)
"""(names of an error's classes, the HTTP status that it is like) where it has none."""


# AIMessage → Reply


def reply_of(message: AIMessage, *, sent: Mapping[str, Json], by: str, scrub: Scrub) -> Reply:
    """Translate the answer into a Reply for the trace: without keys, image data and what is no JSON."""
    metadata: Mapping[str, Any] = message.response_metadata

    def clean(text: str) -> str:
        return payload.clean_text(text, scrub)

    arguments: list[Any] = [payload.cleaned(c["args"], scrub) for c in message.tool_calls]
    calls = tuple(
        ToolCall(id=clean(str(c["id"] or f"call_{n}")), name=clean(c["name"]), arguments=given)
        for n, (c, given) in enumerate(zip(message.tool_calls, arguments, strict=True), 1)
    )
    malformed = tuple(
        MalformedCall(
            raw=clean(str(c.get("args") or c.get("name") or "")),
            error=f"the arguments of {clean(c.get('name') or 'the call')} are not a JSON object",
        )
        for c in message.invalid_tool_calls
    )
    text, finish = clean(str(message.text)), _finish(metadata)
    if finish == "stop" and (calls or malformed):
        finish = "tools"
    # Gemini's reason for answering nothing, which its class keeps beside an empty message.
    blocked = payload.at(metadata, "prompt_feedback", "block_reason")
    if blocked and not text:
        text, finish = f"the provider blocked the prompt ({scrub(str(getattr(blocked, 'name', blocked)))})", "filter"
    if refusal := _refusal(message):
        text, finish = clean(refusal), "refusal"
    return Reply(
        text=text,
        reasoning=clean(_reasoning(message)),
        tool_calls=calls,
        malformed_calls=malformed,
        finish=finish,
        usage=_usage(message.usage_metadata),
        model=scrub(payload.text_at(metadata, "model_name") or payload.text_at(metadata, "model")),
        fingerprint=scrub(payload.text_at(metadata, "system_fingerprint")),
        raw=payload.cleaned(message.model_dump(), scrub),
        sent=sent,
        carry=_carry(message, by, scrub),
    )


def _finish(metadata: Mapping[str, Any]) -> Finish:
    said = next((metadata[name] for name in _REASONS if isinstance(metadata.get(name), str)), None)
    # OpenAI's responses tell nothing where all is well.
    said = said or payload.at(metadata, "incomplete_details", "reason")
    return _FINISHES.get(str(said).rpartition(".")[2].lower(), "stop")


def _refusal(message: AIMessage) -> str:
    blocks = payload.items_at(message.content)
    found = (payload.text_at(block, "refusal") for block in blocks if payload.at(block, "type") == "refusal")
    return payload.text_at(message.additional_kwargs, "refusal") or next(found, "")


def _reasoning(message: AIMessage) -> str:
    """Return the thoughts that the provider shows; "" where it shows none."""
    found = [b["reasoning"] for b in message.content_blocks if b["type"] == "reasoning" and b.get("reasoning")]
    return "\n".join(found) or payload.text_at(message.additional_kwargs, "reasoning_content")


def _usage(usage: object) -> Usage:
    return Usage(
        input_tokens=payload.count(usage, "input_tokens"),
        output_tokens=payload.count(usage, "output_tokens"),
        cached_tokens=payload.count(usage, "input_token_details", "cache_read"),
        reasoning_tokens=payload.count(usage, "output_token_details", "reasoning"),
    )


def filtered_reply(error: Exception, sent: Mapping[str, Json], scrub: Scrub) -> Reply | None:
    """Return the Reply for a 400 that refuses the prompt for its content; None for any other error."""
    for one in _chain(error):
        body = getattr(one, "body", None)
        if _status(one) == 400 and payload.FILTERED.search(payload.error_code(body)):
            text = payload.clean_text(payload.said(body), scrub)
            return Reply(text=text, finish="filter", raw=payload.cleaned(body, scrub), sent=sent)
    return None


# What the provider wants back


def _carry(message: AIMessage, by: str, scrub: Scrub) -> Json:
    """Return the provider's own blocks and keywords (signed thoughts), where the plain reply does not hold them."""
    blocks = message.content if isinstance(message.content, list) else []
    plain = all(isinstance(b, str) or (b.get("type") == "text" and set(b) <= {"type", "text", "index"}) for b in blocks)
    further = {k: v for k, v in message.additional_kwargs.items() if k not in _OWN_KEYS and v}
    if plain and not further:
        return None
    kept = {k: message.response_metadata[k] for k in ("model_provider", "output_version") if k in message.response_metadata}
    return {
        "langchain": {
            "by": by,
            "calls": [payload.clean_text(str(c["id"] or f"call_{n}"), scrub) for n, c in enumerate(message.tool_calls, 1)],
            "content": payload.cleaned(message.content, scrub, cut_images=False),
            "additional_kwargs": payload.cleaned(further, scrub, cut_images=False),
            "response_metadata": payload.cleaned(kept, scrub),
            "id": message.id,
        }
    }


def carried(message: Message, by: str) -> dict[str, Any] | None:
    """Return what an AIMessage is made of so that the provider gets its own back; None where there is nothing of `by`."""
    carry = payload.at(message.carry, "langchain")
    if payload.at(carry, "by") != by:
        return None
    # A call may have been given an id of its own since; the blocks that name it follow.
    renamed = dict(zip(payload.items_at(carry, "calls"), (c.id for c in message.tool_calls), strict=False))
    kept = {name: _renamed(carry[name], renamed) for name in ("content", "additional_kwargs", "response_metadata")}
    return {**kept, "id": carry.get("id")}


def _renamed(value: Any, names: Mapping[Any, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {names.get(k, k): _renamed(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return value


# Foreign error → BackendError


def backend_error(error: Exception, where: str, scrub: Scrub) -> BackendError:
    """Return any error of a provider's library as one of ours: by its HTTP status, else by the names of its classes."""
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, BackendError):
            # Of our HTTP client, in whatever the SDK made of it.
            one.args = tuple(scrub(str(a)) for a in one.args)
            return one
    status = next(filter(None, map(_status, chain)), None)
    words = scrub(_words(chain))
    names = " ".join(kind.__name__ for e in chain for kind in type(e).__mro__ if kind not in Exception.__mro__)
    message = f"{where}: " + (f"HTTP {status}, " if status else f"{type(error).__name__}: ") + words
    headers = [getattr(getattr(e, "response", None), "headers", None) for e in chain]
    waits = (payload.retry_after_s(found) for found in headers if isinstance(found, Mapping))
    retry_after_s = next(filter(None, waits), None)
    if "ContextOverflow" in names or (
        status in (None, 400, 413, 422) and (payload.TOO_LONG.search(words) or _TOO_LONG.search(words))
    ):
        return ContextTooLong(f"{message}; {TOO_LONG_ADVICE}", status=status)
    if "insufficient_quota" in words:
        return Rejected(f"{message}; the account has no quota left, waiting does not help", status=status, for_all=True)
    like = status or next((number for pattern, number in _LIKE if pattern.search(names)), 400)
    if like == 429:
        return RateLimited(message, status=status, retry_after_s=retry_after_s)
    if like == _NO_CONNECTION:
        return Unavailable(f"{message}; {UNREACHABLE_ADVICE}", lost=words)
    if like == 408 or like >= 500:
        return Unavailable(message, status=status, retry_after_s=retry_after_s)
    if like in (401, 403):
        advice, for_all = "check the key that the provider's class reads", not payload.FLAGGED.search(words)
        return Rejected(f"{message}; {advice}", status=status, for_all=for_all)
    if NO_VISION[0].search(words):
        return Rejected(f"{message}; {NO_VISION[1]}", status=status)
    if status == 404:
        return Rejected(f"{message}; check the model's name and the address", status=status, for_all=True)
    if status is None and _UNREADABLE.search(f"{names}: {words}"):
        return Unavailable(f"{message}; the answer is not whole, or not as the model's class expects it")
    return Rejected(message, status=status)


def cleaned_cause(error: Exception, scrub: Scrub) -> Exception | None:
    """Return the error as a cause whose text shows no key, cleaned in place; None where it cannot be cleaned."""
    for one in _chain(error):
        if isinstance(one, BackendError):
            # It stands in the chain itself, and says what happened.
            return None
        one.args = tuple(scrub(a) if isinstance(a, str) else a for a in one.args)
        for name in ("message", "body"):
            value = getattr(one, name, None)
            if isinstance(value, str | Mapping):
                try:
                    setattr(one, name, payload.cleaned(value, scrub))
                except AttributeError:
                    return None
        if any(scrub(text) != text for text in (str(one), repr(one), *getattr(one, "__notes__", ()))):
            return None
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and each error that it comes from."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < 16:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    named = [getattr(error, name, None) for name in ("status_code", "http_status", "code", "status")]
    # Amazon's is in a dict.
    of_response = (getattr(response, "status_code", None), payload.at(response, "ResponseMetadata", "HTTPStatusCode"))
    for value in (*named[:2], *of_response, *named[2:]):
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            return int(value)
    return None


def _words(chain: list[BaseException]) -> str:
    """Return what the provider says on one line: its body's message where it has one, else the error's text."""
    body = next((b for e in chain if (b := getattr(e, "body", None))), None)
    if body is not None:
        code = payload.error_code(body)
        said = payload.said(body)
        return said if not code or code in said else f"{said} ({code})"
    text = next((t for e in chain if (t := " ".join(str(e).split()))), "")
    if len(chain) > 1 and len(text) < 40:
        # "Connection error." alone says nothing.
        last = chain[-1]
        text = f"{text} ({type(last).__name__}: {' '.join(str(last).split())})"
    return payload.one_line(text)
