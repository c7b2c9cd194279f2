"""What backends over HTTP share: who they are, box dialects out and in, retries, the limit of connections."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from editloupe.backends import boxes, retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import connect_to
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.limits import limit_of
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.values import Json


class ParameterRefused(Exception):
    """The model does not take a parameter that was sent: it is asked again without it.

    name: of `Sampling`, "answer_schema" or "top_logprobs".   lasting: False where another conversation may be asked with
    it again.
    """

    def __init__(self, name: str, *, lasting: bool = True) -> None:
        self.name, self.lasting = name, lasting


class Remote(ABC):
    """A model behind an address. Thread-safe; HTTP clients are shared.

    uri: provider, model and address; with the box dialect and the image limit of `traits` it is the judge's identity.
    place: what is shown and recorded as the endpoint.   address: to which `reach` connects; None for none.   close: closes
    the connections.   tool_images: where the pictures of a tool's message stand on the wire, for `Reply.sent`.
    """

    version = ""

    def __init__(
        self,
        uri: BackendURI,
        place: str,
        traits: Traits,
        *,
        address: str | None = None,
        close: Callable[[], None] = lambda: None,
        tool_images: str = "",
        policy: RetryPolicy = retry.DEFAULT_POLICY,
    ) -> None:
        params = dict(uri.params)
        if traits.boxes != boxes.DEFAULT:
            params["boxes"] = traits.boxes
        if traits.max_image_side is not None:
            params["max_image_side"] = str(traits.max_image_side)
        if traits.bare_replies:
            params["replies"] = "bare"
        self._uri, self.endpoint = replace(uri, params=params), place
        self.traits = traits if traits.image_tokens else replace(traits, image_tokens=image_tokens_of(uri.model))
        in_place = "in the tool's message" if traits.tool_result_images else "in a user's message behind it"
        self._tool_images = tool_images or in_place
        self._address, self._policy, self._lock = address, policy, threading.Lock()
        self._refused: frozenset[str] = frozenset()
        self._close = weakref.finalize(self, close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        """Provider, model, base_url, box dialect and image limit: what the judge's identity rests on."""
        return str(self._uri)

    def close(self) -> None:
        """Close the connections. Happens by itself when the backend is no longer used."""
        self._close()

    def reach(self) -> None:
        """Connect once to the address, and send nothing. Raises Unavailable where nobody takes the connection."""
        if self._address is not None:
            connect_to(self._address)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`, retried as the policy says; `sent["attempts"]` counts.

        Raises BackendError where the endpoint fails, ImageError where an image cannot be encoded.
        """
        sizes = boxes.sizes_of(request, self.traits.image_policy)
        ask = self._ready(boxes.outgoing(request, self.traits.boxes, sizes), images)
        limit = limit_of(self.endpoint)
        reply, attempts = retry.call(lambda: self._negotiated(request, ask), policy=self._policy, limit=limit)
        sent: dict[str, Json] = {**reply.sent, "attempts": attempts}
        if any(message.role == "tool" and message.images for message in request.messages):
            sent["tool_images"] = self._tool_images
        return boxes.incoming(
            replace(reply, sent=sent), self.traits.boxes, sizes, answer=boxes.answer_image(request, sizes)
        )

    def _negotiated(self, request: Request, ask: Callable[[frozenset[str]], Reply]) -> Reply:
        """Return one answer, without the parameters that this model refuses. Lasting refusals are remembered."""
        can = {"answer_schema": self.traits.constrains_schema, "top_logprobs": self.traits.gives_logprobs}
        now = frozenset(name for name, able in can.items() if not able)
        while True:
            refused = self._refused | now
            try:
                reply = ask(refused)
                break
            except ParameterRefused as refusal:
                now |= {refusal.name}
                if refusal.lasting:
                    with self._lock:
                        self._refused |= {refusal.name}
        asked = [name for name, value in request.sampling.to_json().items() if value is not None]
        asked += [name for name in can if getattr(request, name) is not None]
        if not reply.tokens:
            # Some servers take the parameter and do nothing.
            refused |= {"top_logprobs"}
        left = reply.sent.get("dropped", ())
        dropped: list[Json] = [name for name in asked if name in refused or (isinstance(left, list) and name in left)]
        return replace(reply, sent={**reply.sent, "dropped": dropped}) if dropped else reply

    @abstractmethod
    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Reply]:
        """Make once what all attempts at a request share, and return a function that asks once.

        It is given the names of the parameters to leave out, and raises ParameterRefused for a further one.
        """
