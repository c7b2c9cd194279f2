"""Any LangChain chat model: `langchain/PROVIDER:MODEL` by `init_chat_model`, or an instance of one's own.

Judge(LangChainLMM(ChatOpenAI(model="gpt-4.1", max_retries=0)))

Messages, tools, structured output and usage are LangChain's own; keys are read by the model's class.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import SecretStr

from editloupe.backends import failures, payload, retry
from editloupe.backends.base import BackendURI, Traits, parse_uri
from editloupe.backends.endpoint import TOO_LONG_ADVICE, UNREACHABLE_ADVICE, read_parameters
from editloupe.backends.keys import scrub
from editloupe.backends.langsmith import tracing
from editloupe.backends.remote import Remote
from editloupe.chat import Finish, ImagePart, Message, Reply, Request, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ContextTooLong, Rejected, Unavailable
from editloupe.values import Json, digest

_MOST: Final = ("max_tokens", "max_output_tokens", "num_predict", "max_completion_tokens")
_FIELDS: Final = {"temperature": ("temperature",), "top_p": ("top_p",), "seed": ("seed",), "max_tokens": _MOST}
"""Our names for sampling, and the fields under which LangChain's classes hold them; the first one found is set."""
_ENDS: Final[Mapping[Finish, str]] = {
    "length": "length|max_.*tokens|context_window",
    "filter": "filter|safety|recitation|blocklist|prohibited|spii|guardrail",
    "refusal": "refusal",
}
"""What is in the providers' finish reasons, in lower case; any other one is a whole answer."""
_KEY_VARIABLE: Final = re.compile(r"(API_?KEY|_TOKEN|_SECRET|SECRET_ACCESS_KEY|PASSWORD)$")


def open_backend(uri: BackendURI, *, policy: retry.RetryPolicy = retry.DEFAULT_POLICY) -> LangChainLMM:
    """Open the backend behind `langchain/PROVIDER:MODEL`. Nothing is sent yet.

    Raises ConfigError: no provider or model, an unknown parameter, a missing package or key.
    """
    provider, _, model = uri.model.partition(":")
    where = f"backend {uri.provider}/{uri.model}"
    if not provider or not model:
        raise ConfigError(f"{where}: expected langchain/PROVIDER:MODEL, for example langchain/anthropic:claude-sonnet-4-5")
    read = read_parameters(uri, known=("base_url", "boxes", "max_image_side", "timeout_s"))
    place: dict[str, Any] = {"base_url": read.base_url} if read.base_url else {}
    try:
        from langchain.chat_models import init_chat_model

        # Made twice: what else it can be told is known by its class.
        fields = type(init_chat_model(model, model_provider=provider, **place)).model_fields
        known = {*fields, *(info.alias for info in fields.values())}
        bounds = {name: value for name, value in (("timeout", read.timeout_s), ("max_retries", 0)) if name in known}
        chat: BaseChatModel = init_chat_model(model, model_provider=provider, **place, **bounds)
    except Exception as error:  # noqa: BLE001 - whatever a class raises for a missing package or key, or an option
        needs = f"its package (pip install langchain langchain-{provider.replace('_', '-')}) and its key"
        told = payload.one_line(_scrubber()(str(error)))
        raise ConfigError(f"{where} cannot be made: {told}; it needs {needs}") from None
    if place.keys() - known:
        raise ConfigError(f"{where}: its class takes no base_url; leave that parameter out")
    if (client := getattr(getattr(chat, "root_client", None), "_client", None)) is not None:
        # OpenAI's own client would follow a redirect, pictures and all.
        client.follow_redirects = False
    traits = replace(traits_of(chat), boxes=read.boxes, max_image_side=read.max_image_side)
    name = f"{uri.model}?base_url={read.base_url}" if read.base_url else uri.model
    return LangChainLMM(chat, name=name, traits=traits, address=read.base_url, policy=policy)


class LangChainLMM(Remote):
    """A LangChain chat model as a backend. Thread-safe as far as the model is, which LangChain's own are.

    model: any `BaseChatModel`. Give it `max_retries=0`: its own retries cannot be seen from here, and multiply ours.
    name: what the judge's identity calls it, such as "openai:gpt-4.1"; without it the class, the model's name and a digest
    of its other parameters.   traits: where what it can do is known better than by `traits_of(model)`.   address: of its
    server, to which a connection is tried before a run.
    Raises TypeError where `model` is no chat model.
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
        self._scrub = _scrubber(model)
        # What LangChain keeps of earlier answers would be given out as a new one.
        self._model = model.model_copy(update={"cache": False})
        uri = parse_uri(f"langchain/{self._scrub('_'.join((name or _own_name(model)).split()))}")
        place = address or f"LangChain's {type(model).__name__}, at its own address"
        super().__init__(uri, place, traits or traits_of(model), address=address, policy=policy)
        self._image_urls = payload.ImageURLs(self.traits.image_policy)

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], AIMessage]:
        spoken = request.messages if self.traits.tool_result_images else payload.move_pictures(request.messages)
        messages = convert_to_messages([self._message(message, images) for message in spoken])
        return partial(self._answer, request, messages)

    def _message(self, message: Message, images: ImageStore) -> dict[str, Any]:
        """Return the message in the form that LangChain converts for any class."""
        blocks: list[Any] = [
            {"type": "image_url", "image_url": {"url": self._image_urls.ascii(images, part.image).decode("ascii")}}
            if isinstance(part, ImagePart)
            else part.to_json()
            for part in message.parts
        ]
        calls = [{"id": call.id, "name": call.name, "args": dict(call.arguments)} for call in message.tool_calls]
        content = blocks if message.images else message.text
        more = {"tool_calls": calls or None, "tool_call_id": message.tool_call_id}
        return {"role": message.role, "content": content, **more}

    def _sampled(self, request: Request, refused: frozenset[str]) -> BaseChatModel:
        """Return a copy of the model with the request's sampling. What is not asked for stays."""
        wanted, fields = payload.sampling_of(request, set()), _fields(self._model)
        # A refused bound is left to the class: some must have one.
        asked = (fields.keys() & wanted.keys()) - ({"max_tokens"} & refused)
        return self._model.model_copy(update={fields[n]: None if n in refused else wanted[n] for n in asked})

    def _sent(self, request: Request, refused: frozenset[str]) -> dict[str, Json]:
        model, fields = self._sampled(request, refused), _fields(self._model)
        sent: dict[str, Json] = {"model": self._scrub(_model_name(model))}
        sent |= {ours: value for ours, field in fields.items() if (value := getattr(model, field)) is not None}
        dropped: list[Json] = [ours for ours in payload.sampling_of(request, set()) if ours not in fields]
        if request.tools:
            choice = "auto" if request.calls_allowed or "tool_choice" in refused else "none"
            sent |= {"tools": [tool.to_json() for tool in request.tools], "tool_choice": choice}
            # No class takes a schema beside tools in the same way as another.
            dropped += ["answer_schema"] if request.answer_schema else []
        elif request.answer_schema is not None and "answer_schema" not in refused:
            sent["answer_schema"] = dict(request.answer_schema)
        return {**sent, **({"dropped": dropped} if dropped else {})}

    def _answer(self, request: Request, messages: list[BaseMessage], refused: frozenset[str]) -> AIMessage:
        sent: Any = self._sent(request, refused)
        asked: Any = self._sampled(request, refused)
        try:
            if "tools" in sent:
                tools = [{"type": "function", "function": tool} for tool in sent["tools"]]
                asked = asked.bind_tools(tools, **({"tool_choice": "none"} if sent["tool_choice"] == "none" else {}))
            elif schema := sent.get("answer_schema"):
                strict = {"strict": True} if "strict" in inspect.signature(asked.with_structured_output).parameters else {}
                asked = asked.with_structured_output({"title": "answer", **schema}, include_raw=True, **strict)
            # Inside the loop's graph it is decided whether traces are sent.
            with tracing(None if var_child_runnable_config.get() else False):
                found = asked.invoke(messages)
        except Exception as error:  # noqa: BLE001 - each provider's library raises its own
            raise self._failed(error) from None
        message, parsed = (found["raw"], found["parsed"]) if isinstance(found, Mapping) else (found, None)
        if isinstance(parsed, Mapping) and not message.text:
            # A class that takes the answer as a call of a tool with the schema.
            message = message.model_copy(update={"content": json.dumps(parsed), "tool_calls": []})
        return AIMessage(**payload.cleaned(message.model_dump(), self._scrub, cut_images=False))  # type: ignore[arg-type]

    def _parsed(self, answer: Any, request: Request, sent: dict[str, Json], *, answered: bool) -> Reply:
        return replace(_reply(answer), raw=payload.cleaned(answer.model_dump(), self._scrub), sent=sent)

    def _failed(self, error: Exception) -> BackendError:
        """Return an error of any provider's library as one of ours."""
        # Most classes raise what their own library raised, or put it behind an error of their own.
        chain = [one for one in (error, error.__cause__ or error.__context__) if one is not None]
        found = next((one for one in chain if _status(one)), error)
        status, body = _status(found), getattr(found, "body", None)
        words = body or "; ".join(dict.fromkeys(f"{type(one).__name__}: {one}" for one in chain))
        headers = getattr(getattr(found, "response", None), "headers", {})
        told = failures.said(status or 0, payload.cleaned(words, self._scrub), headers)
        message = f"{self._at.where}: {told.shown}"
        if any(isinstance(one, ContextOverflowError) for one in chain):
            return ContextTooLong(f"{message}; {TOO_LONG_ADVICE}", status=status)
        kinds = " ".join(f"{type(one).__module__[:4]}.{type(one).__name__}" for one in chain)
        if status is None and ("http" in kinds or any(isinstance(one, OSError | json.JSONDecodeError) for one in chain)):
            how: Any = "unreached" if "Connect" in kinds else "late" if "Timeout" in kinds else "broken"
            return Unavailable(f"{message}; {UNREACHABLE_ADVICE}", lost=told.shown, how=how)
        return failures.Failed(told, payload.cleaned(body, self._scrub))

    def _named(self, failed: failures.Failed, request: Request, refused: frozenset[str]) -> frozenset[str]:
        told, sent = failed.told, self._sent(request, refused)
        ours = failures.failure(told, self._at, request=request, answered=self._first.answered)
        named = told.refuses({**_FIELDS, "tools": ("tools",)}, sent)
        # In whatever words the schema or the forbidden tools are refused, it is asked once more without.
        if not named and type(ours) is Rejected and not ours.for_all and told.status in (0, 400, 404, 422):
            named = frozenset(name for name in ("answer_schema", "tool_choice") if sent.get(name) not in (None, "auto"))
        return named


def _reply(message: AIMessage) -> Reply:
    metadata, usage = message.response_metadata, message.usage_metadata
    refusal = message.additional_kwargs.get("refusal")
    ends = [metadata.get(name) for name in ("finish_reason", "stop_reason", "stopReason", "done_reason")]
    said = " ".join(str(end) for end in (*ends, payload.at(metadata, "incomplete_details", "reason")) if end).lower()
    finish = next((end for end, names in _ENDS.items() if re.search(names, said)), None)
    thoughts = [str(block.get("reasoning")) for block in message.content_blocks if block["type"] == "reasoning"]
    asked = ((call, call["name"], call["args"]) for call in (*message.tool_calls, *message.invalid_tool_calls))
    calls, malformed = payload.calls_of(asked, str)
    return Reply(
        text=refusal or str(message.text),
        reasoning="\n".join(thoughts),
        tool_calls=calls,
        malformed_calls=malformed,
        finish="refusal" if refusal else finish or ("tools" if calls or malformed else "stop"),
        usage=Usage(
            input_tokens=payload.count(usage, "input_tokens"),
            output_tokens=payload.count(usage, "output_tokens"),
            cached_tokens=payload.count(usage, "input_token_details", "cache_read"),
            reasoning_tokens=payload.count(usage, "output_token_details", "reasoning"),
        ),
        model=str(metadata.get("model_name") or metadata.get("model") or ""),
    )


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, wherever its library keeps it."""
    response = getattr(error, "response", None)
    named = [getattr(at, name, None) for at in (error, response) for name in ("status_code", "code")]
    found = (*named, payload.at(response, "ResponseMetadata", "HTTPStatusCode"))
    return next((int(number) for number in found if isinstance(number, int) and 300 <= number < 600), None)


def traits_of(model: BaseChatModel) -> Traits:
    """Return what a model can do, as far as its class tells."""
    binds = type(model).bind_tools is not BaseChatModel.bind_tools
    return Traits(
        describes=f"{_scrubber(model)(_model_name(model))} over LangChain's {type(model).__name__}".strip(),
        native_tools=binds,
        constrains_schema=binds or type(model).with_structured_output is not BaseChatModel.with_structured_output,
        sampling=tuple(_fields(model)),
    )


def _fields(model: BaseChatModel) -> dict[str, str]:
    """Return our name of a sampling parameter → the field of the model's class that holds it."""
    known = type(model).model_fields
    return {ours: next(n for n in names if n in known) for ours, names in _FIELDS.items() if known.keys() & {*names}}


def _model_name(model: BaseChatModel) -> str:
    found = (getattr(model, name, None) for name in ("model_name", "model", "model_id"))
    return next((name for name in found if isinstance(name, str)), "")


def _own_name(model: BaseChatModel) -> str:
    """Return class and model, with a digest of what else identifies it: two that think otherwise are two judges."""
    ours = re.compile("model|model_name|temperature|seed|.*timeout|max_retries|stream|streaming")
    other = {name: repr(value) for name, value in model._identifying_params.items() if not ours.fullmatch(name) and value}
    name = f"{type(model).__name__}:{re.sub(r'[?#]|[^!-~]', '_', _model_name(model))}".rstrip(":")
    return f"{name}?params={digest(other)[:12]}" if other else name


def _scrubber(model: BaseChatModel | None = None) -> payload.Scrub:
    """Return what takes keys out of a text: the environment's usual variables', and the model's own secret fields."""
    found = [value.strip() for name, value in os.environ.items() if _KEY_VARIABLE.search(name.upper())]
    own = [] if model is None else [v.get_secret_value() for v in vars(model).values() if isinstance(v, SecretStr)]
    return partial(scrub, keys=tuple(sorted({*found, *own})))
