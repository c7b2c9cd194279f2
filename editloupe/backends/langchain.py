"""Any LangChain chat model: `langchain/PROVIDER:MODEL` by `init_chat_model`, or an instance of one's own.

Judge(LangChainLMM(ChatOpenAI(model="gpt-4.1", max_retries=0)))

Messages, tools, structured output and usage are LangChain's own; keys are read by the model's class.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages, message_to_dict, messages_from_dict
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import SecretStr

from editloupe.backends import payload, retry
from editloupe.backends.base import BackendURI, Traits, parse_uri
from editloupe.backends.endpoint import TOO_LONG_ADVICE, UNREACHABLE_ADVICE, read_parameters
from editloupe.backends.keys import scrub
from editloupe.backends.langsmith import tracing
from editloupe.backends.remote import ParameterRefused, Remote
from editloupe.chat import Finish, ImagePart, MalformedCall, Message, Reply, Request, ToolCall, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import Json, digest

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in ("temperature", "top_p", "seed")},
    "max_tokens": ("max_tokens", "max_output_tokens", "num_predict", "max_completion_tokens"),
}
"""Our names for sampling, and the fields under which LangChain's classes hold them; the first one found is set."""
_ENDS: Final[Mapping[Finish, re.Pattern[str]]] = {
    "length": re.compile("length|max_.*tokens|context_window"),
    "tools": re.compile("tool|function"),
    "filter": re.compile("filter|safety|recitation|blocklist|prohibited|spii|guardrail"),
    "refusal": re.compile("refusal"),
}
"""What is in the providers' finish reasons, in lower case; any other one is a whole answer."""
_HINTS: Final = {401: "check the key that the provider's class reads", 402: "the account has no money left",
                 403: "check the key that the provider's class reads", 404: "check the model's name and the address"}  # fmt: skip
"""HTTP status that holds for every request → what to do about it."""
_KEY_VARIABLE = re.compile(r"(API_?KEY|_TOKEN|_SECRET|SECRET_ACCESS_KEY|PASSWORD)$")


def open_backend(uri: BackendURI, **policy: Any) -> LangChainLMM:
    """Open `langchain/PROVIDER:MODEL`. Nothing is sent yet.   policy: of `LangChainLMM`.

    Raises ConfigError: no provider or model, an unknown parameter, a missing package or key.
    """
    provider, _, model = uri.model.partition(":")
    where = f"backend {uri.provider}/{uri.model}"
    if not provider or not model:
        raise ConfigError(f"{where}: expected langchain/PROVIDER:MODEL, for example langchain/anthropic:claude-sonnet-4-5")
    read = read_parameters(uri, known=("base_url", "boxes", "max_image_side", "timeout_s"))

    def make(**options: Any) -> Any:
        try:
            from langchain.chat_models import init_chat_model

            return init_chat_model(model, model_provider=provider, **options)
        except ImportError as error:
            packages = f"langchain langchain-{provider.replace('_', '-')}"
            raise ConfigError(f"{where} needs a package: pip install {packages} ({error})") from error
        except Exception as error:  # noqa: BLE001 - whatever a class raises for a missing key, or an option
            raise ConfigError(f"{where} cannot be made: {payload.one_line(_scrubber()(str(error)))}") from None

    options: dict[str, Any] = {} if read.base_url is None else {"base_url": read.base_url}
    kind = type(make(**options))
    known = {name for field, info in kind.model_fields.items() for name in (field, info.alias)}
    if options.keys() - known:
        raise ConfigError(f"{where}: {kind.__name__} takes no base_url; leave that parameter out")
    options |= {name: value for name, value in (("timeout", read.timeout_s), ("max_retries", 0)) if name in known}
    if "openai_proxy" in known:
        import openai

        # OpenAI's own client would follow a redirect, pictures and all.
        options["http_client"] = openai.DefaultHttpxClient(follow_redirects=False)
    chat = make(**options)
    traits = replace(traits_of(chat), boxes=read.boxes, max_image_side=read.max_image_side)
    name = str(replace(uri, params={k: v for k, v in uri.params.items() if k == "base_url"})).partition("/")[2]
    return LangChainLMM(chat, name=name, traits=traits, address=read.base_url, **policy)


class LangChainLMM(Remote):
    """A LangChain chat model as a backend. Thread-safe as far as the model is, which LangChain's own are.

    model: any `BaseChatModel`. Give it `max_retries=0`: its own retries cannot be seen from here, and multiply ours.
    name: what the judge's identity calls it, such as "openai:gpt-4.1"; without it the class, the model's name and a digest
    of its other parameters.   traits: what the model can do, where that is known better than by `traits_of(model)`.
    address: to which a connection is tried before a run; None tries none.
    Raises TypeError where `model` is no chat model, ConfigError for a name that cannot stand in a URI.
    """

    def __init__(
        self,
        model: BaseChatModel,
        *,
        name: str | None = None,
        traits: Traits | None = None,
        address: str | None = None,
        policy: retry.RetryPolicy = retry.DEFAULT_POLICY,
    ) -> None:
        if not isinstance(model, BaseChatModel):
            raise TypeError(f"expected a LangChain chat model (BaseChatModel), found {type(model).__name__}")
        if name is not None and (not name.strip() or not name.isprintable() or " " in name):
            raise ConfigError(f"the name {name!r} cannot stand in a URI: expected printable characters without blanks")
        self._scrub = _scrubber(model)
        # What LangChain keeps of earlier answers would be given out as a new one.
        self._model = model.model_copy(update={"cache": False})
        uri = parse_uri(f"langchain/{self._scrub(name or _own_name(model))}")
        super().__init__(uri, _endpoint(model), traits or traits_of(model), address=address, policy=policy)
        self._image_urls = payload.ImageURLs(self.traits.image_policy)

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have, by LangChain's profile of the model; None where it has none."""
        return (self._model.profile or {}).get("max_input_tokens") or None

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Reply]:
        spoken = request.messages if self.traits.tool_result_images else payload.move_pictures(request.messages)
        messages = [self._message(message, images) for message in spoken]
        return lambda refused: self._asked(request, messages, refused)

    def _message(self, message: Message, images: ImageStore) -> BaseMessage:
        """Return the message as it came from this model, else as LangChain reads it."""
        calls = [{"id": c.id, "name": c.name, "args": dict(c.arguments)} for c in message.tool_calls]
        if payload.at(message.carry, "langchain", "by") == self.uri:
            (own,) = messages_from_dict([payload.at(message.carry, "langchain", "message")])
            if isinstance(own, AIMessage) and [c["id"] for c in own.tool_calls] == [c["id"] for c in calls]:
                return own
        content: Any = message.text
        if message.images:
            content = [
                self._picture(part, images) if isinstance(part, ImagePart) else part.to_json() for part in message.parts
            ]
        read = {"role": message.role, "content": content, **({"tool_calls": calls} if calls else {})}
        return convert_to_messages(
            [read | ({"tool_call_id": message.tool_call_id or ""} if read["role"] == "tool" else {})]
        )[0]

    def _picture(self, part: ImagePart, images: ImageStore) -> dict[str, str]:
        media_type, _, data = self._image_urls.of(images, part.image).removeprefix("data:").partition(";base64,")
        return {"type": "image", "base64": data, "mime_type": media_type}

    def _asked(self, request: Request, messages: list[BaseMessage], refused: frozenset[str]) -> Reply:
        model, sent = self._sampled(request, refused)
        asked: Any = model
        try:
            if request.tools:
                # No class takes a schema beside tools in the same way as another.
                choice = "auto" if request.calls_allowed or "tool_choice" in refused else "none"
                tools = [{"type": "function", "function": tool.to_json()} for tool in request.tools]
                asked = model.bind_tools(tools, **({} if choice == "auto" else {"tool_choice": choice}))
                sent["tool_choice"] = choice
                sent["dropped"] += ["answer_schema"] if request.answer_schema else []
            elif request.answer_schema is not None and "answer_schema" not in refused:
                sent["answer_schema"] = schema = dict(request.answer_schema)
                strict = {"strict": True} if "strict" in inspect.signature(model.with_structured_output).parameters else {}
                asked = model.with_structured_output({"title": "answer", **schema}, include_raw=True, **strict)
            # Inside the loop's graph it is decided whether traces are sent.
            with nullcontext() if var_child_runnable_config.get() else tracing(False):
                found = asked.invoke(messages)
        except Exception as error:  # noqa: BLE001 - each provider's library raises its own
            return self._failed(error, sent)
        message, parsed = (found["raw"], found["parsed"]) if isinstance(found, Mapping) else (found, None)
        if isinstance(parsed, Mapping) and not message.text:
            # A class that takes the answer as a call of a tool with the schema.
            message = message.model_copy(update={"content": json.dumps(parsed), "tool_calls": []})
        message = AIMessage(**payload.cleaned(message.model_dump(), self._scrub, cut_images=False))  # type: ignore[arg-type]
        raw = payload.cleaned(message.model_dump(), self._scrub)
        return replace(_reply(message), raw=raw, sent=sent, carry=_carry(message, self.uri))

    def _sampled(self, request: Request, refused: frozenset[str]) -> tuple[BaseChatModel, dict[str, Any]]:
        """Return a copy of the model with the request's sampling, and what to record. What is not asked for stays."""
        wanted = {ours: value for ours, value in request.sampling.to_json().items() if value is not None}
        fields = {ours: field for ours in _FIELDS if (field := _field(self._model, ours))}
        # A refused bound is left to the class: some must have one.
        update = {fields[ours]: None if ours in refused else wanted[ours] for ours in fields if ours in wanted}
        model = self._model.model_copy(
            update={k: v for k, v in update.items() if (k, v) != (fields.get("max_tokens"), None)}
        )
        set_ = {ours: value for ours, field in fields.items() if (value := getattr(model, field)) is not None}
        name = self._scrub(_model_name(model))
        return model, {"model": name, **set_, "dropped": [ours for ours in wanted if ours not in fields]}

    def _failed(self, error: Exception, sent: Mapping[str, Json]) -> Reply:
        """Return the Reply for a prompt refused for its content. Raises ParameterRefused, or the error as one of ours."""
        chain = list(_chain(error))
        status, body = (
            next(filter(None, map(_status, chain)), None),
            next((b for e in chain if (b := _of(e, "body"))), None),
        )
        code = payload.error_code(body)
        words = payload.said(body) or payload.one_line("; ".join(dict.fromkeys(f"{type(e).__name__}: {e}" for e in chain)))
        words = self._scrub(words)
        if status == 400 and payload.FILTERED.search(code):
            return Reply(text=words, finish="filter", raw=payload.cleaned(body, self._scrub), sent=sent)
        message = f"{self.uri} ({self.endpoint}): " + (f"HTTP {status}, " if status else "") + words
        wait_s = next(
            (s for e in chain if (s := payload.retry_after_s(_of(e, "response", "headers") or {})) is not None), None
        )
        if any(isinstance(one, ContextOverflowError) for one in chain) or status == 413:
            raise ContextTooLong(f"{message}; {TOO_LONG_ADVICE}", status=status) from None
        if status in _HINTS or code == "insufficient_quota":
            raise Rejected(
                f"{message}; {_HINTS[status if status in _HINTS else 402]}", status=status, for_all=True
            ) from None
        if status == 429:
            raise RateLimited(message, status=status, retry_after_s=wait_s) from None
        if status == 408 or (status or 0) >= 500:
            raise Unavailable(message, status=status, retry_after_s=wait_s) from None
        if status is None and any(isinstance(e, OSError) or type(e).__module__.startswith("http") for e in chain):
            raise Unavailable(f"{message}; {UNREACHABLE_ADVICE}", lost=words) from None
        named = [ours for ours in sent for name in _FIELDS.get(ours, ()) if re.search(rf"\b{name}\b", words)]
        # In whatever words the schema or the forbidden tools are refused, it is asked once more without.
        named += [name for name in ("answer_schema", "tool_choice") if sent.get(name) not in (None, "auto")]
        if named:
            raise ParameterRefused(named[0], lasting=status is not None) from None
        raise Rejected(message, status=status) from None


def _reply(message: AIMessage) -> Reply:
    """Return what the model said. raw, sent and carry are left to fill in."""
    metadata, kwargs, usage = message.response_metadata, message.additional_kwargs, message.usage_metadata
    said = next((s for n in ("finish_reason", "stop_reason", "stopReason", "done_reason") if (s := metadata.get(n))), None)
    said = str(said or payload.at(metadata, "incomplete_details", "reason") or "").lower()
    finish: Finish = next((end for end, names in _ENDS.items() if names.search(said)), "stop")
    if finish == "stop" and (message.tool_calls or message.invalid_tool_calls):
        finish = "tools"
    return Reply(
        text=kwargs.get("refusal") or str(message.text),
        reasoning="\n".join(str(b.get("reasoning")) for b in message.content_blocks if b["type"] == "reasoning"),
        tool_calls=tuple(
            ToolCall(id=c["id"] or f"call_{n}", name=c["name"], arguments=c["args"])
            for n, c in enumerate(message.tool_calls, 1)
        ),
        malformed_calls=tuple(
            MalformedCall(raw=c["args"] or "", error=f"the arguments of {c['name']} are not a JSON object")
            for c in message.invalid_tool_calls
        ),
        finish="refusal" if kwargs.get("refusal") else finish,
        usage=Usage(
            input_tokens=payload.count(usage, "input_tokens"),
            output_tokens=payload.count(usage, "output_tokens"),
            cached_tokens=payload.count(usage, "input_token_details", "cache_read"),
            reasoning_tokens=payload.count(usage, "output_token_details", "reasoning"),
        ),
        model=str(metadata.get("model_name") or metadata.get("model") or ""),
        fingerprint=str(metadata.get("system_fingerprint") or ""),
    )


def _carry(message: AIMessage, by: str) -> Json:
    """Return what the provider wants back as it came, such as signed thoughts; None where plain text holds it all."""
    if isinstance(message.content, str) and not any(message.additional_kwargs.values()):
        return None
    return {"langchain": {"by": by, "message": message_to_dict(message)}}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, and each error that it comes from."""
    for _ in range(16):
        if error is not None:
            yield error
            error = error.__cause__ or error.__context__


def _of(error: object, *names: str) -> Any:
    for name in names:
        error = error.get(name) if isinstance(error, Mapping) else getattr(error, name, None)
    return error


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, wherever its library keeps it."""
    places = [(*at, name) for at in ((), ("response",)) for name in ("status_code", "code", "status")]
    found = [_of(error, *place) for place in (*places, ("response", "ResponseMetadata", "HTTPStatusCode"))]
    return next((int(n) for n in found if isinstance(n, int) and 300 <= n < 600), None)


def traits_of(model: BaseChatModel) -> Traits:
    """Return what a model can do, as far as its class tells."""
    binds = type(model).bind_tools is not BaseChatModel.bind_tools
    return Traits(
        describes=f"{_scrubber(model)(_model_name(model))} over LangChain's {type(model).__name__}".strip(),
        native_tools=binds,
        constrains_schema=binds or type(model).with_structured_output is not BaseChatModel.with_structured_output,
        sampling=tuple(ours for ours in _FIELDS if _field(model, ours) is not None),
    )


def _field(model: BaseChatModel, ours: str) -> str | None:
    """Return the field of the model that holds this sampling parameter; None where its class has none."""
    return next((name for name in _FIELDS[ours] if name in type(model).model_fields), None)


def _model_name(model: BaseChatModel) -> str:
    return next((n for at in ("model_name", "model", "model_id") if isinstance(n := getattr(model, at, None), str)), "")


def _endpoint(model: BaseChatModel) -> str:
    """Return where the model answers, as far as it says so without credentials."""
    names = ("base_url", "openai_api_base", "anthropic_api_url", "azure_endpoint", "endpoint_url")
    urls = (_of(model, "root_client", "base_url"), *(_of(model, name) for name in names))
    known = (str(url).rstrip("/") for url in urls if str(url).startswith("http") and "@" not in str(url))
    return next(known, f"LangChain's {type(model).__name__}, at its own address")


def _own_name(model: BaseChatModel) -> str:
    """Return class, model and a digest of what else the model says identifies it: two that think otherwise are two judges."""
    plain = {
        "model",
        "model_name",
        "temperature",
        "seed",
        "timeout",
        "request_timeout",
        "max_retries",
        "stream",
        "streaming",
    }
    other = {k: repr(v) for k, v in model._identifying_params.items() if k not in plain and v not in (None, {}, [])}
    name = f"{type(model).__name__}:{re.sub(r'[?#]|[^!-~]', '_', _model_name(model))}".rstrip(":")
    return f"{name}?params={digest(other)[:12]}" if other else name


def _scrubber(model: BaseChatModel | None = None) -> payload.Scrub:
    """Return what takes keys out of a text: the environment's usual variables', and the model's own secret fields."""
    found = [value.strip() for name, value in os.environ.items() if _KEY_VARIABLE.search(name.upper())]
    own = [] if model is None else [v.get_secret_value() for v in vars(model).values() if isinstance(v, SecretStr)]
    return partial(scrub, keys=tuple(sorted({*found, *own})))
