"""What backends over HTTP share: who they are, box dialects out and in, what is negotiated, who goes first, retries."""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from editloupe.backends import boxes, retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import Place, connect_to
from editloupe.backends.failures import Failed, failure, is_filtered
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.limits import FirstCall, limit_of
from editloupe.backends.payload import items_at
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.stopping import check_stop
from editloupe.chat import Message, Reply, Request, Sampling, ToolSpec
from editloupe.data.images import ImageStore
from editloupe.errors import Rejected
from editloupe.values import ImageRef, Json

TOOLS: Final = "tools"
TOOL_IMAGES: Final = "tool_images"
_LEFT_OFF: Final = ("answer_schema", "top_logprobs")
_NO_TOOLS: Final = (
    "the endpoint takes no tools: use --set tool_protocol=text, or auto (vLLM takes them where it is started with "
    "--enable-auto-tool-choice --tool-call-parser NAME)"
)


class ParameterRefused(Exception):
    """The endpoint does not take what was sent: it is asked again without it.

    names: of `Sampling`, "answer_schema", "top_logprobs", TOOLS, TOOL_IMAGES (pictures in a tool's message), or a name of
    the adapter's own.
    """

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)


class Remote(ABC):
    """A model behind an address. Thread-safe; HTTP clients are shared.

    uri: provider, model and address; with the box dialect and the image limit of `traits` it is the judge's identity.
    place: what is shown and recorded as the endpoint.   at, hint: who failed, and what messages say of the address; None
    for the uri at its place.   address: to which `reach` connects; None for none.   close: closes
    the connections.   tool_images: where the pictures of a tool's message stand on the wire, for `Reply.sent`.
    """

    version = ""

    def __init__(
        self,
        uri: BackendURI,
        place: str,
        traits: Traits,
        *,
        at: Place | None = None,
        hint: str = "",
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
        self._tool_images = tool_images
        self._at, self._hint = at or Place(where=f"{self.uri} ({place})"), hint
        self._address, self._policy, self._lock = address, policy, threading.Lock()
        self._refused: frozenset[str] = frozenset()
        self._first = FirstCall()
        self._takes_tools: bool | None = None
        self._weighed: set[ImageRef] = set()
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

    def wait_at_most(self, patience_s: float) -> None:
        """Wait so long for an endpoint that answers nobody; 0 waits for nothing."""
        self._policy = replace(self._policy, patience_s=patience_s)

    def takes_tools(self) -> bool:
        """Return whether the endpoint takes tools. It is asked once, with one short question. Raises BackendError."""
        if self._takes_tools is not None:
            return self._takes_tools
        tool = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
        question = (Message.of_text("user", "Reply with the word ready."),)
        try:
            self.complete(Request(messages=question, tools=(tool,), sampling=Sampling(seed=None)), ImageStore())
        except Rejected:
            if TOOLS not in self._refused:
                raise
            self._first.forget()
        self._takes_tools = TOOLS not in self._refused
        return self._takes_tools

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`, retried as the policy says; `sent["attempts"]` counts.

        Raises BackendError where the endpoint fails, ImageError where an image cannot be encoded, Interrupted once the run
        is to stop.
        """
        self._check_pictures(request, images)
        asked = boxes.outgoing(request, self.traits)
        answer = self._ready(asked, images)
        with self._first.turn() as alone:
            if alone:
                self._look()
            reply, attempts = retry.call(
                lambda: self._negotiated(asked, answer),
                policy=self._policy,
                limit=limit_of(self.endpoint),
                final=lambda error: not self._first.answered and error.how in ("unreached", "late"),
            )
        return self._received(replace(reply, sent={**reply.sent, "attempts": attempts}), request)

    def _received(self, reply: Reply, request: Request) -> Reply:
        """Return a reply in our own convention of boxes, and with where pictures of tools stood."""
        sent: dict[str, Json] = dict(reply.sent)
        if any(message.role == "tool" and message.images for message in request.messages):
            inside = self.traits.tool_result_images and TOOL_IMAGES not in self._refused
            moved = "in the tool's message" if inside else "in a user's message behind it"
            sent["tool_images"] = self._tool_images or moved
        return boxes.incoming(replace(reply, sent=sent), request, self.traits)

    def _look(self) -> None:
        """Look at the endpoint before its first question. Raises BackendError where it cannot answer any."""
        self.reach()

    def _check_pictures(self, request: Request, images: ImageStore) -> None:
        """Raise Rejected for pictures that the endpoint is known not to take. Nothing is sent."""
        most, heaviest = self.traits.max_images, self.traits.max_image_bytes or math.inf
        shown = [part.image for message in request.messages for part in message.images]
        if most is not None and len(shown) > most:
            found, cure = f"{most} images in one request, found {len(shown)}", "lower --max-turns, or say ?max_images=N"
            raise Rejected(f"{self.uri} takes at most {found}; {cure} where it takes more")
        for ref in {*shown} - self._weighed if heaviest < math.inf else ():
            size = len(images.encoded(ref, self.traits.image_policy).data)
            if size > heaviest:
                cure = "reduce images with ?max_image_side=PX, or say ?max_image_bytes=N"
                told = f"images of at most {heaviest:,} bytes, found one of {size:,}"
                raise Rejected(f"{self.uri} takes {told}; {cure} where it takes more")
            self._weighed.add(ref)

    def _negotiated(self, request: Request, answer: Callable[[frozenset[str]], Any]) -> Reply:
        """Return one answer, without what this endpoint refuses. What helped to leave out is remembered."""
        unable = self._unable
        refused = self._refused | unable
        while True:
            if request.tools and TOOLS in refused:
                raise Rejected(f"{self.uri}: {_NO_TOOLS}", for_all=True)
            try:
                reply = self._replied(request, refused, partial(answer, refused), answered=self._first.answered)
                break
            except ParameterRefused as refusal:
                check_stop()
                if not refusal.names - refused:
                    named = ", ".join(sorted(refusal.names))
                    raise Rejected(f"{self.uri} refuses {named}, which was not sent") from refusal
                refused |= refusal.names
                self._remember(refusal.names & {TOOLS})
        self._remember(refused - unable)
        return self._without(request, reply, refused)

    @property
    def _unable(self) -> frozenset[str]:
        """What the model cannot do, and is not asked for."""
        can = {"answer_schema": self.traits.constrains_schema, "top_logprobs": self.traits.gives_logprobs}
        return frozenset(name for name, able in can.items() if not able)

    @staticmethod
    def _without(request: Request, reply: Reply, refused: frozenset[str]) -> Reply:
        """Return a reply that names what was asked for and left off."""
        wanted = {**request.sampling.to_json(), **{name: getattr(request, name) for name in _LEFT_OFF}}
        # Some servers take `top_logprobs` and do nothing.
        left = {*refused, *items_at(reply.sent, "dropped"), *([] if reply.tokens else ["top_logprobs"])}
        dropped: list[Json] = [name for name, value in wanted.items() if value is not None and name in left]
        return replace(reply, sent={**reply.sent, "dropped": dropped}) if dropped else reply

    @property
    def left_off(self) -> frozenset[str]:
        """What this endpoint refused and is asked without, by our names, such as "seed" or "answer_schema"."""
        return self._refused & {"answer_schema", "top_logprobs", *Sampling().to_json()}

    def _remember(self, names: frozenset[str]) -> None:
        with self._lock:
            self._refused |= names
            if TOOLS in names:
                self.traits = replace(self.traits, native_tools=False)

    @abstractmethod
    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Any]:
        """Make once what all attempts at a request share, and return a function that asks once, and returns the answer.

        It is given the names of what to leave out. It raises BackendError: Failed for a failed answer.
        """

    @abstractmethod
    def _sent(self, request: Request, refused: frozenset[str]) -> dict[str, Json]:
        """Return what is recorded of a request as sent."""

    @abstractmethod
    def _parsed(self, answer: Any, request: Request, sent: dict[str, Json], *, answered: bool) -> Reply:
        """Return the reply of an answer. Raises BackendError: Failed where a failure stands in it."""

    @abstractmethod
    def _named(self, failed: Failed, request: Request, refused: frozenset[str]) -> frozenset[str]:
        """Return what a failed answer refuses of what was sent and can be left out, by our names."""

    def _replied(self, request: Request, refused: frozenset[str], answer: Callable[[], Any], *, answered: bool) -> Reply:
        """Return the reply of an answer to a request without what is refused. Raises BackendError and ParameterRefused.

        answer: returns it, and may raise Failed.   answered: whether the endpoint has answered before.
        """
        sent = self._sent(request, refused)
        try:
            return self._parsed(answer(), request, sent, answered=answered)
        except Failed as error:
            if is_filtered(error.told):
                return Reply(text=error.told.shown, finish="filter", raw=error.raw, sent=sent)
            if names := self._named(error, request, refused):
                raise ParameterRefused(*names) from error
            raise failure(error.told, self._at, request=request, answered=answered, hint=self._hint) from error
