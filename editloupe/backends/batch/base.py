"""What a batch endpoint takes and gives: files of questions, a line each under an id, and answers in any order.

A provider's dialect is a `Batches`; its backend, an `InBatches`, turns a request into the body of a line and the body of
an answer into a Reply by the same code as a live call.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

from editloupe.backends import boxes, retry
from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import Failed, failed, failure
from editloupe.backends.limits import limit_of
from editloupe.backends.remote import ParameterRefused, Remote
from editloupe.backends.transport import unhurried
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.values import ImageRef, digest

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one file may hold."""

    lines: int
    bytes: int
    tokens: int = 2_500_000
    """Of input, estimated. A bound of ours: providers have one for all files of an account, by its tier."""

    SHARE: ClassVar[float] = 0.9
    """How much of `bytes` is used."""

    def hold(self, lines: int, size: int, tokens: int) -> bool:
        """Return whether a file may be so large."""
        return lines <= self.lines and size <= self.SHARE * self.bytes and tokens <= self.tokens

    def files(self, lines: int, size: int, tokens: int) -> int:
        """Return how many files hold so many lines, bytes and tokens."""
        return max(ceil(lines / self.lines), ceil(size / (self.SHARE * self.bytes)), ceil(tokens / self.tokens))


@dataclass(frozen=True, kw_only=True)
class BatchAnswer:
    """A line of a file of answers."""

    id: str
    status: int
    """HTTP status; 0 where the question was not asked: it is expired, or the batch was cancelled."""
    body: bytes = b""
    """What a live call would have been answered."""

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, kw_only=True)
class BatchState:
    """How far a batch is."""

    kind: Literal["open", "ended", "rejected"]
    """Rejected: the file as a whole; nothing of it was asked."""
    words: str = ""
    """The provider's name of it, and its reason."""
    answers: bytes = b""
    """The lines of answers, once it has ended."""
    full: bool = False
    """Rejected since too much is under way: the file is good, and may be taken later."""


class Batches(Protocol):
    """A batch endpoint. Each method but `size` and `answer` may call the provider, and raises BackendError."""

    limits: Limits

    def line(self, id: str, request: Request, images: ImageStore) -> bytes:
        """Return a question as a line. Raises BackendError and ImageError."""

    def size(self, request: Request, images: ImageStore) -> int:
        """Return the bytes of a question's line, without a call."""

    def answer(self, line: bytes) -> BatchAnswer:
        """Read a line of a file of answers. Raises ValueError for what is none."""

    def send(self, path: Path, token: str, since: float) -> str:
        """Send a file and return the batch's id.   token: by which `find` knows it.   since: as for `find`."""

    def find(self, token: str, since: float) -> str | None:
        """Return the id of a batch that was sent with this token, after `since` (epoch, in s); None if none was."""

    def state(self, id: str, questions: Sequence[str]) -> BatchState:
        """Return how far a batch of these questions is."""


def question_id(backend: str, request: Request) -> str:
    """Return the id of a question: the hash of the request, images by their digests, and of who is asked.

    A repeat has its own seed, and with it its own id, also where the seed is left off on the wire.
    """
    return digest({"backend": backend, "request": request.to_json()})


class InBatches(Remote):
    """A model behind a provider's SDK, which has batches. The SDK carries bytes; they are made and read here.

    hint: what a message says of the address.
    """

    def __init__(
        self, endpoint: Endpoint, *, hint: str, close: Callable[[], None], policy: retry.RetryPolicy, tool_images: str = ""
    ) -> None:
        super().__init__(
            endpoint.uri, endpoint.url, endpoint.traits,
            at=endpoint, hint=hint, address=endpoint.url, close=close, tool_images=tool_images, policy=policy,
        )  # fmt: skip
        self._at: Endpoint = endpoint

    @abstractmethod
    def batches(self, folder: Path) -> Batches:
        """Return its batch endpoint. Raises ConfigError where there is none.

        folder: of the run's batches, for what is to be known at the next invocation.
        """

    @abstractmethod
    def _body(
        self, request: Request, images: ImageStore, refused: frozenset[str], picture: Callable[[ImageRef], object] | None
    ) -> bytes:
        """Return the body by which a request is asked, without what is refused."""

    def _ours(self, call: Callable[[], T]) -> T:
        """Return what a call of the SDK returns. Raises BackendError for whatever it raises: Failed for a failure."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - no closed list: the SDK's own errors, those of its HTTP library, pydantic's
            # The error itself does not go on: it holds the request, and the key.
            raise self._at.ours(error) from None

    @property
    def refused(self) -> frozenset[str]:
        """What the endpoint is asked without."""
        return self._refused

    def leave_off(self, names: frozenset[str]) -> None:
        """Ask without what was refused at an earlier invocation."""
        self._remember(names)

    def body_of(self, request: Request, images: ImageStore, picture: Callable[[ImageRef], object] | None = None) -> bytes:
        """Return the body by which a request is asked. Raises BackendError and ImageError.

        picture: returns what stands for an image, where it is not sent in line.
        """
        self._check_pictures(request, images)
        return self._body(boxes.outgoing(request, self.traits), images, self._refused | self._unable, picture)

    def reply_of(self, request: Request, answer: BatchAnswer, left_off: frozenset[str] = frozenset()) -> Reply | None:
        """Return the reply that an answer holds. Raises BackendError as a live call does.

        None where it refuses a parameter: the question is to be asked again, without it.
        left_off: what it was asked without.
        """
        asked = boxes.outgoing(request, self.traits)
        refused = left_off | self._unable

        def told() -> bytes:
            if not answer.good:
                raise failed(answer.status, answer.body, {}, self._at.scrub)
            return answer.body

        try:
            reply = self._replied(asked, refused, told, answered=True)
        except ParameterRefused as refusal:
            self._remember(refusal.names)
            return None
        return self._received(self._without(request, reply, refused), request)

    def called(self, call: Callable[[], T]) -> T:
        """Return what a call of the batch endpoint returns, retried as a live call is. Raises BackendError."""

        def once() -> T:
            try:
                with unhurried():
                    return self._ours(call)
            except Failed as error:
                hint = "the address has batches"
                raise failure(error.told, self._at, answered=False, hint=hint) from None

        return retry.call(once, policy=self._policy, limit=limit_of(self.endpoint))[0]

    def created(self, create: Callable[[], str], find: Callable[[], str | None]) -> str:
        """Return what a call makes, which is made once: an answer that was lost on its way may have been a batch."""
        attempts = 0

        def once() -> str:
            nonlocal attempts
            attempts += 1
            return (find() if attempts > 1 else None) or create()

        return self.called(once)
