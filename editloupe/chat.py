"""The provider-free conversation: messages, tool specifications and calls, one request and its reply. Frozen, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from editloupe.values import Count, ImageRef, Json, Serializable, digest, is_empty

ChatRole: TypeAlias = Literal["system", "user", "assistant", "tool"]
Finish: TypeAlias = Literal["stop", "length", "tools", "refusal", "filter"]
_Sparse: Final = Field(exclude_if=is_empty)
"""A field that JSON leaves out where it is empty, so that hashes of older conversations stay what they were."""
_Given: Final = Field(exclude_if=lambda value: value is None)
"""A field that JSON leaves out where it is None."""


@dataclass(frozen=True, kw_only=True)
class TextPart(Serializable):
    """A piece of text."""

    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, kw_only=True)
class ImagePart(Serializable):
    """An image under the name that the conversation uses for it ("Original Image", "Crop 2")."""

    image: ImageRef
    alias: str
    type: Literal["image"] = "image"


Part: TypeAlias = Annotated[TextPart | ImagePart, Field(discriminator="type")]


@dataclass(frozen=True, kw_only=True)
class ToolSpec(Serializable):
    """A tool as it is offered to a model."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    """The JSON Schema of its arguments."""


@dataclass(frozen=True, kw_only=True)
class ToolCall(Serializable):
    """One call that a model asked for."""

    id: str
    name: str
    arguments: Mapping[str, Json]
    """As the model wrote them, not validated yet."""


@dataclass(frozen=True, kw_only=True)
class MalformedCall(Serializable):
    """What looked like a call and is none."""

    raw: str
    error: str
    """Why, in words that the model can act on."""


@dataclass(frozen=True, kw_only=True)
class Message(Serializable):
    """One message."""

    role: ChatRole
    parts: tuple[Part, ...]
    tool_calls: Annotated[tuple[ToolCall, ...], _Sparse] = ()
    """Of an assistant's message."""
    tool_call_id: Annotated[str | None, _Sparse] = None
    """Of a tool's message, in the native protocol only."""
    carry: Annotated[Json, _Given] = None
    """What a provider wants back as it gave it, such as signatures of its thoughts; None where there is nothing."""

    @classmethod
    def of_text(cls, role: ChatRole, text: str) -> Message:
        return cls(role=role, parts=(TextPart(text=text),))

    @property
    def text(self) -> str:
        """The text parts, one after another."""
        return "\n".join(p.text for p in self.parts if isinstance(p, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        return tuple(p for p in self.parts if isinstance(p, ImagePart))


def message_hash(message: Message, parent: str | None) -> str:
    """Return the digest of a message and of everything before it: equal hashes mean equal conversations up to here."""
    return digest({"message": message.to_json(), "parent": parent})


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage(Serializable):
    """Tokens of one or several calls; None where the provider did not say. Values add up with `+`."""

    input_tokens: Annotated[Count | None, _Sparse] = None
    output_tokens: Annotated[Count | None, _Sparse] = None
    image_tokens: Annotated[Count | None, _Sparse] = None
    cached_tokens: Annotated[Count | None, _Sparse] = None
    reasoning_tokens: Annotated[Count | None, _Sparse] = None
    batch_input_tokens: Annotated[Count | None, _Sparse] = None
    """Those of the input tokens that a batch took, at half the price."""
    batch_output_tokens: Annotated[Count | None, _Sparse] = None

    def __add__(self, other: Usage) -> Usage:
        return Usage.total_of((self, other))

    @classmethod
    def total_of(cls, usages: Iterable[Usage]) -> Usage:
        """Return the sum of usages; of none, that of which nothing is known."""
        total: dict[str, int] = {}
        for usage in usages:
            for name in cls.__slots__:
                if (count := getattr(usage, name)) is not None:
                    total[name] = total.get(name, 0) + count
        return cls(**total)

    @property
    def total(self) -> int:
        """Input plus output tokens as far as they are known."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)


DEFAULT_SEED: Final = 0


@dataclass(frozen=True, kw_only=True)
class Sampling(Serializable):
    """What is asked for. The reply records what was really sent.

    None leaves a parameter to the provider. What a model does not take is left off and named in `Reply.sent["dropped"]`.
    """

    temperature: float | None = 0.0
    top_p: float | None = None
    seed: int | None = DEFAULT_SEED
    max_tokens: int | None = None
    """Of one reply, hidden thoughts included. None sends no bound: the server has its own."""

    def of_repeat(self, repeat: int) -> Sampling:
        """Return the same with a seed of its own for each repeat (from 0): the seed plus the repeat's number."""
        return self if self.seed is None or not repeat else replace(self, seed=self.seed + repeat)


@dataclass(frozen=True, kw_only=True)
class Request(Serializable):
    """One call to a model."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    """Offered natively; empty with the text protocol."""
    sampling: Sampling = field(default_factory=Sampling)
    calls_allowed: Annotated[bool, Field(exclude_if=bool)] = True
    """False where tools are offered, so that the conversation's beginning stays what it was, and must not be called any
    more."""
    answer_schema: Annotated[Mapping[str, Json] | None, _Given] = None
    """The JSON Schema of which the answer's whole text must be an instance, for a backend that can hold to one
    (`Traits.constrains_schema`)."""
    top_logprobs: Annotated[int | None, _Given] = None
    """How many of the most probable tokens at each place of the reply are asked for, with their probabilities
    (`Reply.tokens`). A backend that gives none (`Traits.gives_logprobs`) names this in `Reply.sent["dropped"]`."""

    def key(self) -> str:
        """Return the SHA-256 of the canonical JSON, images by digest: the base of replay and cache keys."""
        return digest(self.to_json())


@dataclass(frozen=True, kw_only=True)
class Token(Serializable):
    """One token of a reply, and what could have stood in its place."""

    text: str
    logprob: float
    """Natural logarithm of its probability."""
    top: tuple[tuple[str, float], ...] = ()
    """(text, logprob) of the most probable tokens of this place, which need not hold the chosen one."""


@dataclass(frozen=True, kw_only=True)
class Reply(Serializable):
    """What a model answered."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    malformed_calls: tuple[MalformedCall, ...] = ()
    finish: Finish = "stop"
    """Why it stopped."""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The name that the endpoint answered with."""
    fingerprint: Annotated[str, _Sparse] = ""
    """What the endpoint said of the state it runs in (OpenAI's `system_fingerprint`); "" where nothing. Under one name a
    model may change."""
    raw: Json = None
    """The provider's own payload, kept for the trace."""
    sent: Mapping[str, Json] = field(default_factory=dict)
    """The parameters that were really on the wire."""
    carry: Annotated[Json, _Given] = None
    """Goes into the assistant's message."""
    logprob: Annotated[float | None, _Sparse] = None
    """Natural logarithm of the text's probability; None where the provider did not give it."""
    tokens: Annotated[tuple[Token, ...], _Sparse] = ()
    """What the model wrote, token by token, where `Request.top_logprobs` asked for it; `raw` does not repeat it. Boxes are
    in the model's own convention, and a thought or a mark of the server may stand among them."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of what was asked for and left off, such as "answer_schema" or "seed"."""
        names = self.sent.get("dropped")
        return tuple(map(str, names)) if isinstance(names, list) else ()

    @property
    def empty_because(self) -> str:
        """Why there is neither a text nor a call, in words: the reason to stop, and whether only thought came."""
        reason: str = self.finish
        match self.raw:
            case {"choices": [{"finish_reason": str(told)}, *_]} if told:
                reason = told  # the provider's own word
        return f"it is empty (finish reason {reason}{'; only reasoning came' if self.reasoning.strip() else ''})"
