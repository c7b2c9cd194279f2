"""Any LangChain chat model: by name through `init_chat_model`, or an instance of one's own.

langchain/PROVIDER:MODEL                              what langchain's init_chat_model makes of "PROVIDER:MODEL"
langchain/PROVIDER:MODEL?base_url=http://HOST/v1      for model classes that take one

    Judge(LangChainLMM(ChatOpenAI(model="gpt-4.1", max_retries=0)))

Further parameters are `timeout_s`, `boxes` and `max_image_side` (docs/backends.md). Keys are read by the model's own class.
The messages are translated here, the replies and errors in editloupe/backends/langchain_reply.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import SecretStr

from editloupe.backends import langchain_reply as reading
from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits, parse_uri
from editloupe.backends.endpoint import Endpoint, Parameters, is_loopback, read_parameters
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.keys import HIDDEN, scrub
from editloupe.backends.langsmith import decided, tracing
from editloupe.backends.legacy_words import REFUSES, REPLY_BOUND
from editloupe.backends.openai import OPENAI
from editloupe.backends.openai_wire import read_reply, redirected
from editloupe.backends.payload import ImageURL, ImageURLs, Scrub, cleaned, move_pictures, one_line
from editloupe.backends.remote import ParameterRefused, Remote
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.transport import bounded
from editloupe.chat import DEFAULT_SEED, ImagePart, Message, Part, Reply, Request, Sampling
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, Rejected
from editloupe.values import Json, digest

_PARAMETERS = ("base_url", "boxes", "max_image_side", "timeout_s")

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "seed": ("seed",),
    "max_tokens": ("max_tokens", "max_output_tokens", "num_predict", "max_completion_tokens"),
}
"""Our names for sampling, and the fields under which LangChain's model classes hold them; the first one found is set."""
_DEFAULTS: Final[Mapping[str, Json]] = {"seed": DEFAULT_SEED, "max_tokens": None}
"""What is asked for by default. A model of the caller's own may have been made with something else."""
_NONE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("openai", "azure", "google_genai", "google_vertexai", "groq", "mistral", "xai"), "none"),
    **dict.fromkeys(("deepseek", "fireworks", "together"), "none"),
    "anthropic": {"type": "none"},
}
"""Provider (as LangChain names it in traces) → how its bind_tools says that tools are named and must not be called."""
_TAKES_SCHEMA: Final = frozenset({"openai", "azure", "google_genai"})
"""Providers whose classes put `response_format` with a JSON Schema on the wire."""
_NAMED: Final = {
    "temperature": r"\btemperature\b",
    "top_p": r"\btop_p\b",
    "seed": r"\bseed\b",
    "max_tokens": r"\bmax_(completion_|output_)?tokens\b",
    "answer_schema": r"(?i:response[_ ](format|mime.type|json.schema))",
}
"""Our name of what a model may refuse → how its refusal names it."""
_KEY_VARIABLE = re.compile(r"(API_?KEY|_TOKEN|_SECRET|SECRET_ACCESS_KEY|PASSWORD)$")


def open_backend(uri: BackendURI, *, policy: RetryPolicy = retry.DEFAULT_POLICY) -> LangChainLMM:
    """Open the backend behind `langchain/PROVIDER:MODEL`. Nothing is sent yet.

    Raises ConfigError: no provider or model, an unknown parameter, a missing package or key.
    """
    provider, colon, model = uri.model.partition(":")
    if not provider or not colon or not model:
        raise ConfigError(
            f"backend {str(uri)!r}: expected langchain/PROVIDER:MODEL, for example langchain/anthropic:claude-sonnet-4-5"
        )
    read = read_parameters(uri, known=_PARAMETERS)
    chat, close = _init(uri, provider, model, read)
    lasting = {} if read.base_url is None else {"base_url": read.base_url}
    traits = replace(traits_of(chat), boxes=read.boxes, max_image_side=read.max_image_side)
    name = str(replace(uri, params=lasting)).partition("/")[2]
    # What its class has set was not asked for.
    return LangChainLMM(
        chat, name=name, traits=traits, own_settings=False, address=read.base_url, policy=policy, close=close
    )


def _init(uri: BackendURI, provider: str, model: str, read: Parameters) -> tuple[BaseChatModel, Callable[[], None]]:
    """Return the chat model, without retries of its own if its class allows it, and what closes it. Raises ConfigError."""
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        package = f"langchain-{provider.replace('_', '-')}"
        raise ConfigError(
            f"backend langchain/{provider}:{model} needs the package langchain and the one of its provider: "
            f"pip install langchain {package}"
        ) from error
    where = f"backend langchain/{provider}:{model}"

    def make(**options: Any) -> BaseChatModel:
        try:
            made = init_chat_model(model, model_provider=provider, **options)
        except ImportError as error:
            raise ConfigError(f"{where}: {error}") from error
        except Exception as error:  # noqa: BLE001
            # Whatever a provider's class raises for a missing key or an option it does not know.
            words = one_line(_scrubber()(str(error)))
            raise ConfigError(f"{where} cannot be made: {words}") from None if words != str(error) else error
        if not isinstance(made, BaseChatModel):
            raise ConfigError(f"{where}: init_chat_model gave a {type(made).__name__}, not a chat model")
        return made

    options: dict[str, Any] = {} if read.base_url is None else {"base_url": read.base_url}
    draft = make(**options)
    kind = type(draft)
    for name, wanted in (("base_url", read.base_url is not None), ("timeout", "timeout_s" in uri.params)):
        if wanted and not _takes(kind, name):
            hint = "; leave timeout_s out" if name == "timeout" else ""
            raise ConfigError(f"{where}: {kind.__name__} takes no {name}{hint}")
    options |= {name: value for name, value in (("timeout", read.timeout_s), ("max_retries", 0)) if _takes(kind, name)}
    if not (_takes(kind, "http_client") and any(base.__module__.startswith("langchain_openai.") for base in kind.__mro__)):
        return make(**options), lambda: None
    http = _http_client(uri, draft, read)
    # The class refuses a proxy beside a client; ours has it.
    return make(**options, http_client=http, openai_proxy=None), http.close


def _http_client(uri: BackendURI, model: BaseChatModel, read: Parameters) -> Any:
    """Return the HTTP client for a class over OpenAI's SDK: an answer is bounded and read as with `openai/…`.

    What is no whole answer fails here, by our own errors: the class would fail in its own ways, or go on with half of it.
    """
    import openai

    url = _endpoint(model)
    endpoint = Endpoint(
        **vars(read),
        provider=OPENAI,
        uri=uri,
        url=url,
        place=url,
        key="",
        key_hint="check the key that the model's class reads",
    )

    def check(path: str, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        location = headers.get("location")
        if 300 <= status < 400 and location:
            raise redirected(status, location, endpoint)
        if status == 200 and path.endswith("/chat/completions"):
            read_reply(body, {}, endpoint)

    proxy = getattr(model, "openai_proxy", None) or None
    client = bounded(openai.DefaultHttpxClient, endpoint, check=check)
    return client(trust_env=not is_loopback(url), follow_redirects=False, proxy=proxy)


def _takes(kind: type[BaseChatModel], name: str) -> bool:
    return any(name in (field, info.alias) for field, info in kind.model_fields.items())


class LangChainLMM(Remote):
    """A LangChain chat model as a backend. Thread-safe as far as the model is, which LangChain's own are.

    model: any `BaseChatModel`. Give it `max_retries=0`: its own retries cannot be seen from here, and multiply ours.
    name: what the judge's identity calls it, such as "openai:gpt-4.1"; without it the class, the model's name and a digest
    of the parameters that the model says identify it.   traits: what the model can do, where that is known better:
    `replace(traits_of(model), tool_result_images=True)`, or `boxes="pixels"`.   own_settings: a seed and a bound of the
    reply that the model was made with stand above editloupe's defaults.   address: to which a connection is tried before a
    run; None tries none.   close: closes its connections.

    Raises TypeError where `model` is no chat model, ConfigError for a name that cannot stand in a URI.
    """

    def __init__(
        self,
        model: BaseChatModel,
        *,
        name: str | None = None,
        traits: Traits | None = None,
        own_settings: bool = True,
        address: str | None = None,
        policy: RetryPolicy = retry.DEFAULT_POLICY,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        if not isinstance(model, BaseChatModel):
            raise TypeError(f"expected a LangChain chat model (BaseChatModel), found {type(model).__name__}")
        if name is not None and (not name.strip() or not name.isprintable() or " " in name):
            raise ConfigError(f"the name {name!r} cannot stand in a URI: expected printable characters without blanks")
        self._scrub, self._own_settings = _scrubber(model), own_settings
        # What LangChain keeps of earlier answers would be given out as a new one.
        self._model = model.model_copy(update={"cache": False})
        self._model_name = self._scrub(_model_name(model))
        traits = traits or traits_of(model)
        traits = replace(traits, image_tokens=traits.image_tokens or image_tokens_of(self._model_name))
        own = self._scrub(name) if name else _own_name(model, self._model_name, self._scrub)
        uri = parse_uri(f"langchain/{own}")
        super().__init__(uri, _endpoint(model), traits, address=address, close=close, policy=policy)
        self._image_urls = ImageURLs(self.traits.image_policy)
        self._set: dict[tuple[Sampling, frozenset[str]], BaseChatModel] = {}

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have, by LangChain's profile of the model; None where it has none."""
        profile = self._model.profile
        limit = profile.get("max_input_tokens") if profile else None
        return limit if isinstance(limit, int) and limit > 0 else None

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Reply]:
        spoken = request.messages if self.traits.tool_result_images else move_pictures(request.messages)
        messages = [_as_langchain(m, lambda ref: self._image_urls.of(images, ref), self.uri) for m in spoken]
        return lambda refused: self._asked(request, messages, refused)

    def _asked(self, request: Request, messages: Sequence[BaseMessage], refused: frozenset[str]) -> Reply:
        model, sent = self._prepared(request, refused)
        runnable, choice = self._with_tools(model, request)
        if request.answer_schema is not None and "answer_schema" not in refused:
            sent["answer_schema"] = dict(request.answer_schema)
            form = {"name": "answer", "schema": sent["answer_schema"], "strict": True}
            runnable = runnable.bind(response_format={"type": "json_schema", "json_schema": form})
        try:
            with tracing(None if decided() else False):
                found = runnable.invoke(list(messages))
        except Exception as error:  # noqa: BLE001 - each provider's library raises its own
            filtered = reading.filtered_reply(error, sent, self._scrub)
            if filtered is not None:
                return filtered
            ours = reading.backend_error(error, self._where, self._scrub)
            name = _refused_parameter(ours, sent)
            if name is not None:
                raise ParameterRefused(name) from None
            raise ours from reading.cleaned_cause(error, self._scrub)
        if not isinstance(found, AIMessage):
            raise Rejected(f"{self._where}: answered with a {type(found).__name__}; expected an AIMessage")
        if choice is not None:
            sent["tool_choice"] = choice
        return reading.reply_of(found, sent=sent, by=self.uri, scrub=self._scrub)

    @property
    def _where(self) -> str:
        return self.uri if self.endpoint in self.uri else f"{self.uri} ({self.endpoint})"

    def _prepared(self, request: Request, refused: frozenset[str]) -> tuple[BaseChatModel, dict[str, Json]]:
        """Return the model with the request's sampling, and what to record of that.

        Sampling is set on a copy of the model and not with the call: a class takes what it has a field for, and only that.
        """
        sampling = request.sampling
        set_: dict[str, Json] = {}
        update: dict[str, Json] = {}
        lacking: list[Json] = []
        for ours, value in sampling.to_json().items():
            field = _field(self._model, ours)
            if field is None:
                lacking += [ours] if value is not None else []
                continue
            own = getattr(self._model, field)
            if value is None or (self._own_settings and value == _DEFAULTS.get(ours) and own is not None):
                # What the model was made with is on the wire where nothing else was asked for.
                value = own
            if ours not in refused:
                set_ |= {ours: value} if value is not None else {}
                update[field] = value
            elif ours != "max_tokens":
                # The bound of the model's class stays: some must have one.
                update[field] = None
        with self._lock:
            model = self._set.get((sampling, refused))
            if model is None:
                model = self._set[sampling, refused] = self._model.model_copy(update=update)
        sent: dict[str, Json] = {"model": self._model_name, **set_}
        further = _identifying(model, self._scrub)
        if further:
            sent["model_parameters"] = further
        return model, sent | ({"dropped": lacking} if lacking else {})

    def _with_tools(self, model: BaseChatModel, request: Request) -> tuple[Any, str | None]:
        """Return the model with the request's tools bound, and the tool choice as it was sent; None without tools."""
        if not request.tools:
            return model, None
        tools = [{"type": "function", "function": tool.to_json()} for tool in request.tools]
        if request.calls_allowed:
            return model.bind_tools(tools), "auto"
        none = _NONE.get(_traced_as(model).get("ls_provider", ""))
        if none is None:
            return model.bind_tools(tools), "auto (this model's class is not known to take none)"
        return model.bind_tools(tools, tool_choice=none), "none"


# Request → messages


def _as_langchain(message: Message, image_url: ImageURL, by: str) -> BaseMessage:
    """Return LangChain's message with standard content blocks. by: the backend whose own `carry` is given back."""
    content: Any = message.text if len(message.parts) <= 1 and not message.images else _blocks(message.parts, image_url)
    if message.role == "system":
        return SystemMessage(content=content)
    if message.role == "user":
        return HumanMessage(content=content)
    if message.role == "tool":
        content = content if message.images else message.text
        return ToolMessage(content=content, tool_call_id=message.tool_call_id or "")
    calls: list[Any] = [
        {"type": "tool_call", "id": c.id, "name": c.name, "args": dict(c.arguments)} for c in message.tool_calls
    ]
    return AIMessage(tool_calls=calls, **(reading.carried(message, by) or {"content": content}))


def _blocks(parts: tuple[Part, ...], image_url: ImageURL) -> list[dict[str, str]]:
    blocks = []
    for part in parts:
        if isinstance(part, ImagePart):
            head, _, data = image_url(part.image).partition(",")
            media_type = head.removeprefix("data:").removesuffix(";base64")
            blocks.append({"type": "image", "base64": data, "mime_type": media_type})
        else:
            blocks.append({"type": "text", "text": part.text})
    return blocks


# What is known of a model


def traits_of(model: BaseChatModel) -> Traits:
    """Return what a model can do, as far as its class tells."""
    name = _scrubber(model)(_model_name(model))
    return Traits(
        describes=f"{name or type(model).__name__} over LangChain's {type(model).__name__}",
        native_tools=type(model).bind_tools is not BaseChatModel.bind_tools,
        constrains_schema=_traced_as(model).get("ls_provider") in _TAKES_SCHEMA,
        sampling=tuple(ours for ours in _FIELDS if _field(model, ours) is not None),
    )


def _field(model: BaseChatModel, ours: str) -> str | None:
    """Return the field of the model that holds this sampling parameter; None where its class has none."""
    known = type(model).model_fields
    return next((name for name in _FIELDS[ours] if name in known), None)


def _traced_as(model: BaseChatModel) -> Mapping[str, Any]:
    try:
        return model._get_ls_params()
    except Exception as error:
        raise ConfigError(f"{type(model).__name__} does not say what it is: {type(error).__name__}") from error


def _model_name(model: BaseChatModel) -> str:
    values = (getattr(model, name, None) for name in ("model_name", "model", "model_id", "deployment_name"))
    found = next((value for value in values if isinstance(value, str) and value), None)
    return found or str(_traced_as(model).get("ls_model_name") or "")


def _endpoint(model: BaseChatModel) -> str:
    """Return where the model answers, without credentials: the client's own address where it has one."""
    own = getattr(getattr(model, "root_client", None), "base_url", None)
    for value in (own, *(getattr(model, name, None) for name in _ADDRESSES)):
        url = urlsplit(str(value or ""))
        if url.scheme in ("http", "https") and url.hostname:
            port = f":{url.port}" if url.port else ""
            return f"{url.scheme}://{url.hostname}{port}{url.path.rstrip('/')}"
    return f"LangChain's {type(model).__name__}, at its own address"


_ADDRESSES = ("base_url", "openai_api_base", "anthropic_api_url", "azure_endpoint", "endpoint", "endpoint_url")


def _identifying(model: BaseChatModel, scrub: Scrub) -> dict[str, Json]:
    """Return what the model says identifies it, beyond its name and the sampling, without secrets."""
    ours = {"model", "model_name", "stream", "streaming", *(field for fields in _FIELDS.values() for field in fields)}
    # How long we wait and how often we ask do not change who judges.
    params = {
        name: value
        for name, value in model._identifying_params.items()
        if name not in ours and not re.search("timeout|retries", name) and value not in (None, {}, [])
    }
    found = cleaned(params, scrub)
    assert isinstance(found, dict)
    return {k: HIDDEN if _KEY_VARIABLE.search(k.upper()) and v else v for k, v in found.items()}


def _own_name(model: BaseChatModel, model_name: str, scrub: Scrub) -> str:
    plain = re.sub(r"[?#\s]", "_", model_name)
    name = type(model).__name__ + (f":{plain}" if plain else "")
    # Two models of one name that think differently hard, or sample otherwise, are two judges. The temperature is ours.
    own = {ours: getattr(model, _field(model, ours) or "", None) for ours in _FIELDS if ours != "temperature"}
    further = _identifying(model, scrub) | {ours: value for ours, value in own.items() if value is not None}
    return f"{name}?params={digest(further)[:12]}" if further else name


def _refused_parameter(error: BackendError, sent: Mapping[str, Json]) -> str | None:
    """Return the name of a parameter that was sent and that the model says it does not take."""
    words = str(error)
    if not isinstance(error, Rejected) or error.status not in (400, 422):
        return None
    if "max_tokens" in sent and REPLY_BOUND.search(words):
        return "max_tokens"
    named = (name for name, pattern in _NAMED.items() if name in sent and re.search(pattern, words))
    return next(named, None) if REFUSES.search(words) else None


def _scrubber(model: BaseChatModel | None = None) -> Scrub:
    """Return what takes keys out of a text: the environment's usual variables', and the model's own secret fields."""
    found = [value.strip() for name, value in os.environ.items() if _KEY_VARIABLE.search(name.upper())]
    if model is not None:
        found += [value.get_secret_value() for value in vars(model).values() if isinstance(value, SecretStr)]
    return partial(scrub, keys=tuple(sorted(set(found))))
