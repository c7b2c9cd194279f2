"""`transformers/FOLDER`: a local model that answers in this process, behind the same Request and Reply as any other."""

from __future__ import annotations

from typing import Any, Final

from PIL import Image
from PIL.Image import Resampling

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.chat import Message, Part, Reply, Request, TextPart
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.models.chat.network import Answer, ChatNetwork, Turn
from editloupe.values import Json

ENDPOINT: Final = "in process"


class TransformersLMM:
    """A local model of images and text. Thread-safe: one answer is written at a time.

    network: the copy of the weights, which several backends may share.   boxes: how the model writes boxes, a name of
    `editloupe.backends.boxes.DIALECTS`.   max_image_side: px; None for no limit.
    repetition_penalty: divides the scores of tokens that stand in the conversation already; 1 is none.
    bare_replies: whether the model was trained to answer alone, without tags.
    """

    endpoint = ENDPOINT

    def __init__(
        self,
        network: ChatNetwork,
        *,
        boxes: str = boxes.DEFAULT,
        max_image_side: int | None = None,
        repetition_penalty: float = 1.0,
        bare_replies: bool = False,
    ) -> None:
        self.network, self._penalty = network, repetition_penalty
        self.version = network.weights.version
        self.traits = Traits(
            describes=f"{network.name} with transformers, in this process",
            max_image_side=max_image_side,
            boxes=boxes,
            bare_replies=bare_replies,
            gives_logprobs=True,
            image_tokens=image_tokens_of(network.weights.model.path.name),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        """Provider, the weights' name with their digest, and what changes an answer; no path."""
        traits, params = self.traits, {}
        if traits.boxes != boxes.DEFAULT:
            params["boxes"] = traits.boxes
        if self.network.dtype != "auto":
            params["dtype"] = self.network.dtype
        if traits.max_image_side is not None:
            params["max_image_side"] = str(traits.max_image_side)
        if self._penalty != 1:
            params["repetition_penalty"] = f"{self._penalty:g}"
        if traits.bare_replies:
            params["replies"] = "bare"
        return str(BackendURI(provider="transformers", model=self.network.name, params=params))

    def reach(self) -> None:
        """Load the weights now, so that a fault in them is found before a run. Raises ConfigError."""
        self.network.prepare()

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have; None where the model's config does not say."""
        return self.network.context

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`. The first call loads the weights.

        Raises BackendError where this conversation cannot be answered, ConfigError where the weights cannot be loaded,
        ImageError where an image cannot be read.
        """
        policy = self.traits.image_policy
        sizes = boxes.sizes_of(request, policy)
        asked = boxes.outgoing(request, self.traits.boxes, sizes)
        messages = [self._message(message, images, policy) for message in asked.messages]
        answer = self.network(
            Turn(
                messages=messages,
                sampling=request.sampling,
                repetition_penalty=self._penalty,
                top_logprobs=request.top_logprobs,
            )
        )
        reply = Reply(
            text=answer.text,
            finish="length" if answer.is_cut else "stop",
            usage=answer.usage,
            model=self.network.name,
            raw=self.network.computed(),
            sent=self._sent(request, answer),
            tokens=answer.tokens,
        )
        return boxes.incoming(reply, self.traits.boxes, sizes, answer=boxes.answer_image(request, sizes))

    def _sent(self, request: Request, answer: Answer) -> dict[str, Json]:
        """Return what was asked of the model, and under `dropped` what was not."""
        sampling = request.sampling
        sent: dict[str, Json] = {"model": self.network.name, "temperature": sampling.temperature or 0.0}
        if sampling.top_p is not None:
            sent["top_p"] = sampling.top_p
        if sampling.seed is not None:
            sent["seed"] = sampling.seed
        sent["max_tokens"] = answer.max_tokens
        if request.top_logprobs is not None:
            sent["top_logprobs"] = request.top_logprobs
        if self._penalty != 1:
            sent["repetition_penalty"] = self._penalty
        dropped: list[Json] = []
        if sampling.max_tokens is not None and answer.max_tokens < sampling.max_tokens:
            dropped.append("max_tokens")
        dropped += [name for name in ("tools", "choices", "answer_schema") if getattr(request, name) not in (None, ())]
        return {**sent, "dropped": dropped} if dropped else sent

    def _message(self, message: Message, images: ImageStore, policy: ImagePolicy) -> dict[str, Any]:
        """Return a message as a chat template takes it. A tool's words are a user's: few templates know more roles."""
        role = "user" if message.role == "tool" else message.role
        return {"role": role, "content": [self._part(part, images, policy) for part in message.parts]}

    def _part(self, part: Part, images: ImageStore, policy: ImagePolicy) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": self.network.plain(part.text)}
        picture = Image.fromarray(images.array(part.image))
        size = policy.size(*picture.size)
        return {"type": "image", "image": picture if size == picture.size else picture.resize(size, Resampling.LANCZOS)}
