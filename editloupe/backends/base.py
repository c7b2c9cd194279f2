"""What a backend is: `LMM.complete(request, images) -> Reply`, opened from a URI. Synchronous; executors bring threads.

provider/model?key=value        split at the first "/"; `provider:model` is accepted and means the same
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl, quote

from editloupe import plugins
from editloupe.backends.image_tokens import ImageTokens
from editloupe.chat import Reply, Request
from editloupe.config import OWN_BACKEND
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, Rejected, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a backend can do. Nobody asks which provider it is."""

    describes: str
    """One line for reports, such as "pixel baseline, not an LMM"."""
    is_lmm: bool = True
    """False for the embedded baseline."""
    live: bool = True
    """False where no model is asked and nothing is spent, as with recorded answers."""
    native_tools: bool = False
    """Whether it takes `Request.tools` and answers with tool calls."""
    tool_result_images: bool = False
    """Whether a tool's message may hold pictures on the wire. Where it may not, the adapter sends them in a user's message
    behind it and says so in `Reply.sent["tool_images"]`."""
    constrains_schema: bool = False
    """Whether it keeps to `Request.answer_schema`. Where it does not, the schema is left off and named in
    `Reply.sent["dropped"]`."""
    gives_logprobs: bool = False
    """Whether it answers `Request.top_logprobs` with `Reply.tokens`. Where it does not, they are left off and named in
    `Reply.sent["dropped"]`."""
    bare_replies: bool = False
    """Whether the model was trained to answer alone: its whole reply is the answer, or the last line where it chooses from
    a list. It is told of no tags and no tools, and is not reminded."""
    image_formats: tuple[str, ...] = ("image/png", "image/jpeg")
    """Media types that are sent as they are."""
    max_image_side: int | None = None
    """Longest side in px; longer images are reduced. None for no limit."""
    max_image_bytes: int | None = None
    """Bytes of one image as sent; None for no limit. A larger one is refused before it is sent."""
    max_images: int | None = None
    """Images in one request; None for no limit. More are refused before they are sent."""
    boxes: str = "thousandths"
    """How the model writes boxes: a name of `editloupe.backends.boxes.DIALECTS`. Everything recorded is in thousandths, x
    first."""
    sampling: tuple[str, ...] = ("temperature", "top_p", "seed", "max_tokens")
    """The fields of `Sampling` that are sent. What else is asked for is dropped and named in `Reply.sent`."""
    image_tokens: ImageTokens | None = None
    """The formula by which an image's tokens are estimated; None where none is known."""

    @property
    def image_policy(self) -> ImagePolicy:
        """How images are encoded for it."""
        return ImagePolicy(formats=self.image_formats, max_side=self.max_image_side)


class LMM(Protocol):
    """A large multimodal model, or what stands in for one."""

    @property
    def uri(self) -> str:
        """Canonical URI, without secrets."""

    @property
    def endpoint(self) -> str:
        """Where it answers: a URL without credentials, or "in process"."""

    @property
    def version(self) -> str:
        """Of the code that answers, where it is ours; "" for a remote model."""

    @property
    def traits(self) -> Traits: ...

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`. Raises BackendError, and only that, where the endpoint fails."""


def checked_lmm(value: object) -> LMM:
    """Return a backend as it is. Raises ConfigError if it is none, which says what is missing."""
    if isinstance(value, type):
        raise ConfigError(f"backend {value.__name__}: expected an object, found a class; make one: {value.__name__}(…)")
    missing = [name for name in ("uri", "endpoint", "version", "traits", "complete") if not hasattr(value, name)]
    if missing:
        raise ConfigError(f"backend of class {type(value).__name__} has no {', '.join(missing)}; expected {OWN_BACKEND}")
    lmm = cast(LMM, value)
    if not isinstance(lmm.traits, Traits):
        raise ConfigError(
            f"backend {lmm.uri}: traits is a {type(lmm.traits).__name__}; expected editloupe.backends.base.Traits, such as "
            'Traits(describes="my model")'
        )
    return lmm


def checked_reply(value: object, uri: str, *, by: str = "complete(request, images)") -> Reply:
    """Return what a backend answered. Raises Rejected, for all requests, if it is no Reply with a text.

    by: what returned it, for the message.
    """
    if isinstance(value, Reply) and isinstance(value.text, str):
        return value
    found = f"a Reply whose text is a {type(value.text).__name__}" if isinstance(value, Reply) else type(value).__name__
    expected = 'expected the reply\'s text in an editloupe.chat.Reply, such as Reply(text="…")'
    raise Rejected(f"backend {uri}: {by} returned {found}; {expected}", for_all=True)


@dataclass(frozen=True, kw_only=True)
class BackendURI:
    """A backend's address, taken apart."""

    provider: str
    model: str = ""
    params: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        query = "&".join(f"{k}={quote(v, safe='/:')}" for k, v in sorted(self.params.items()))
        return self.provider + (f"/{self.model}" if self.model else "") + (f"?{query}" if query else "")


def wait_at_most(backend: LMM, patience_s: float) -> None:
    """Let a backend wait so long for an endpoint that answers nobody, if it has a method `wait_at_most` for that."""
    getattr(backend, "wait_at_most", lambda seconds: None)(patience_s)


def takes_tools(backend: LMM) -> bool:
    """Return whether the endpoint of a backend with native tools takes them, if it has a method `takes_tools` that asks."""
    return bool(getattr(backend, "takes_tools", lambda: True)())


def reach(backend: LMM) -> None:
    """Try the address of a backend once, without a request, if it has a method `reach` for that. Raises Unavailable."""
    getattr(backend, "reach", lambda: None)()


NOT_LMMS = ("baseline", "scripted")
"""Providers of this package that are no LMM and cost nothing, for readers of a trace that holds no more than a URI."""
_OF_PATHS: Final = ("recorded", "scripted", "transformers")
"""Backends whose model, and whose parameter `base`, may be a path."""
_KEY: Final = re.compile(r"(^|[/:=])(sk-[\w-]{16,}|AIza[\w-]{30,}|gsk_\w{20,}|xai-\w{20,}|hf_\w{20,})")
"""How keys of OpenAI and Anthropic, Google, Groq, xAI and Hugging Face begin."""
_SECRET: Final = re.compile("key|token|secret|password|credential", re.IGNORECASE)


@lru_cache(maxsize=4096)
def parse_uri(text: str) -> BackendURI:
    """Parse a URI. Raises ConfigError for an empty provider and for anything that looks like a secret."""
    address, _, query = text.strip().partition("?")
    provider, model = (*re.split("[/:]", address, maxsplit=1), "")[:2]
    if not provider:
        raise ConfigError(f"backend {text!r} names no provider; expected provider/model, for example baseline")
    params = dict(parse_qsl(query, keep_blank_values=True))
    secret = next(filter(_SECRET.search, params), "")
    if secret or (provider not in _OF_PATHS and _KEY.search(text.strip())):
        # Its text is not repeated: it would stand in a terminal, and in what reads it.
        what = f"has a parameter {secret!r}" if secret else "holds what looks like a key"
        raise ConfigError(f"the backend URI {what}: keys come from the environment, never from a URI (docs/backends.md)")
    return BackendURI(provider=provider, model=model, params=params)


def check_parameters(uri: BackendURI, known: Sequence[str]) -> None:
    """Raise ConfigError for a parameter that is not among the known ones."""
    if unknown := sorted(set(uri.params) - set(known)):
        named = f"unknown parameter {', '.join(map(repr, unknown))}"
        hint = did_you_mean(unknown[0], known)
        raise ConfigError(f"backend {uri.provider}/{uri.model}: {named}; {hint}known: {', '.join(known)}")


def settled(uri: str) -> str:
    """Return the same backend for any working folder: a path in the URI becomes absolute. Raises ConfigError."""
    parsed = parse_uri(uri)

    def absolute(name: str) -> str:
        path = Path(name).expanduser()
        return str(path.absolute()) if name and path.exists() else name

    if parsed.provider not in _OF_PATHS:
        return uri
    params = {name: absolute(value) if name == "base" else value for name, value in parsed.params.items()}
    return str(replace(parsed, model=absolute(parsed.model), params=params))


def open_backend(uri: str) -> LMM:
    """Open the backend behind a URI. Raises UnknownPlugin, or ConfigError from the backend's own factory."""
    parsed = parse_uri(uri)
    factory: Any = plugins.load("backends", parsed.provider)
    return checked_lmm(factory(parsed))
