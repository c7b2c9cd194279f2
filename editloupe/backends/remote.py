"""What backends over HTTP share: who they are, box dialects out and in, retries, the limit of connections."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from editloupe.backends import boxes, retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.limits import limit_of
from editloupe.backends.payload import moves_pictures
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.values import Json


class Remote(ABC):
    """A model behind an address. Thread-safe; one HTTP client is shared.

    uri: the judge's identity.   place: what is shown and recorded as the endpoint.   close: closes the
    connections.   tool_images: where the pictures of a tool's message stand on the wire, for `Reply.sent`.
    """

    version = ""

    def __init__(
        self,
        uri: BackendURI,
        place: str,
        traits: Traits,
        *,
        close: Callable[[], None],
        tool_images: str,
        policy: RetryPolicy,
        sleep: Callable[[float], None],
    ) -> None:
        self._uri, self.endpoint = uri, place
        self.traits = traits if traits.image_tokens else replace(traits, image_tokens=image_tokens_of(uri.model))
        self._tool_images = tool_images
        self._policy, self._sleep = policy, sleep
        self._lock = threading.Lock()
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

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`, retried as the policy says; `sent["attempts"]` counts.

        Raises BackendError where the endpoint fails, ImageError where an image cannot be encoded.
        """
        dropped: list[Json] = []
        if request.answer_schema is not None and not self.traits.constrains_schema:
            request, dropped = replace(request, answer_schema=None), ["answer_schema"]
        sizes = boxes.sizes_of(request, max_side=self.traits.max_image_side)
        attempt = self._ready(boxes.outgoing(request, self.traits.boxes, sizes), images)
        limit = limit_of(self.endpoint)
        reply, attempts = retry.call(attempt, policy=self._policy, limit=limit, sleep=self._sleep)
        sent: dict[str, Json] = {**reply.sent, "attempts": attempts}
        if dropped:
            already = sent.get("dropped")
            sent["dropped"] = [*(already if isinstance(already, list) else []), *dropped]
        if moves_pictures(request):
            sent["tool_images"] = self._tool_images
        return boxes.incoming(replace(reply, sent=sent), self.traits.boxes, sizes)

    @abstractmethod
    def _ready(self, request: Request, images: ImageStore) -> Callable[[], Reply]:
        """Make once what all attempts at a request share, and return a function that tries once."""
