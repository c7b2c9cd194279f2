"""A function of yours as a backend: messages in, the reply's text out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from PIL import Image

from editloupe.backends.base import LMM, Traits, checked_reply
from editloupe.chat import ImagePart, Message, Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.values import Json, source_digest

Chat: TypeAlias = Sequence[Mapping[str, Any]]
"""As `transformers` takes them: {"role": …, "content": [{"type": "text", "text": …}, {"type": "image", "image": PIL}]}."""


class FunctionLMM:
    """Answers by a function of the conversation, which gives the reply's text or a `Reply`.

    The function may be called from several threads. Sampling options do not reach it, and are named as dropped.
    """

    endpoint = "in process"

    def __init__(self, function: Callable[[Chat], str | Reply], *, name: str = "") -> None:
        self._function = function
        self._name = name or getattr(function, "__qualname__", type(function).__qualname__)
        self.uri, self.version = f"function/{self._name}", source_digest(function)
        self.traits = Traits(describes=f"the Python function {self._name}", sampling=())

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return what the function says. What it raises becomes a BackendError in the loop.

        Raises Rejected for what is neither a text nor a `Reply`.
        """
        said: object = self._function([_message(message, images) for message in request.messages])
        if not isinstance(said, str):
            return checked_reply(said, self.uri, by="the function")
        asked = {**vars(request.sampling), "answer_schema": request.answer_schema}
        dropped: list[Json] = [name for name, value in asked.items() if value is not None]
        return Reply(text=said, model=self._name, sent={"model": self._name, "dropped": dropped})


def as_lmm(backend: str | LMM | Callable[[Chat], str | Reply] | None) -> str | LMM | None:
    """Return a backend as it is, and a function as one."""
    if callable(backend) and not inspect.isclass(backend) and not hasattr(backend, "complete"):
        try:
            inspect.signature(backend).bind([])
        except TypeError as error:
            name = getattr(backend, "__qualname__", backend)
            raise ConfigError(f"backend {name}: a function takes the messages and nothing else; {error}") from error
        except ValueError:
            pass  # a function without a signature, such as one of C
        return FunctionLMM(backend)
    return cast("str | LMM | None", backend)


def _message(message: Message, images: ImageStore) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": [
            {"type": "image", "image": Image.fromarray(images.array(part.image)), "name": part.alias}
            if isinstance(part, ImagePart)
            else {"type": "text", "text": part.text}
            for part in message.parts
        ],
    }
