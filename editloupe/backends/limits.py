"""The gate of one endpoint, shared by all callers in the process: how many calls are under way, and when none may be."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from editloupe.backends.stopping import LOOK_S, check_stop, sleep
from editloupe.errors import BackendError, RateLimited

START: Final = 8
MOST: Final = 64
REMEMBERED_S: Final = 60.0
"""How long a backend that has never answered, and refuses every request, is not asked again."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an endpoint takes, and has refused, at one moment."""

    limit: int
    """How many calls may be under way now."""
    under_way: int
    opens_in_s: float
    """Seconds until calls may begin again, where the endpoint named a wait; else 0."""
    throttled: int
    """How often the endpoint refused a call for its rate."""
    retried: int
    """How often a call was made again, for whatever reason."""


class ConnectionLimit:
    """The connections of one endpoint: they double with each wave of answers until a call is refused for its rate.

    Then they halve, at most once a wave, and grow by one a wave. Where the endpoint names a wait, all callers pause until
    then. One goes alone at first; each answer lets half a call more go beside it.
    """

    def __init__(self, *, start: int = START, most: int = MOST) -> None:
        self._limit, self._most = float(start), most
        self._fixed, self._doubling = False, True
        self._under_way = 0
        self._halved_at = self._opens_at = -math.inf
        self._width = math.inf
        """Calls at once since the last pause."""
        self._trouble_since: float | None = None
        self._asking = 0
        """Callers that ask, or wait to ask again."""
        self._free = threading.Condition()
        self.throttled = 0
        """How often the endpoint refused a call for its rate."""
        self.retried = 0
        """How often a call was made again, for whatever reason."""

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return max(1, int(min(self._limit, self._width)))

    @property
    def under_way(self) -> int:
        """How many calls are under way now."""
        return self._under_way

    def seen(self) -> Seen:
        """Return how things are now."""
        return Seen(
            limit=self.limit,
            under_way=self._under_way,
            opens_in_s=max(0.0, self._opens_at - time.monotonic()),
            throttled=self.throttled,
            retried=self.retried,
        )

    def again(self) -> None:
        """Take note that a call is made again."""
        with self._free:
            self.retried += 1

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Take note of one who asks until it has an answer or gives up: with the last of them, a trouble ends."""
        with self._free:
            self._asking += 1
        try:
            yield
        finally:
            with self._free:
                self._asking -= 1
                self._trouble_since = self._trouble_since if self._asking else None

    def trouble_since(self, now: float) -> float:
        """Return since when the endpoint has answered nobody; `now` where this failure is the first."""
        with self._free:
            self._trouble_since = now if self._trouble_since is None else self._trouble_since
            return self._trouble_since

    def fix(self, connections: int) -> None:
        """Set the limit, 1 or more, for good, whatever the endpoint says."""
        self._limit, self._fixed = float(connections), True

    @contextmanager
    def fixed(self, connections: int | None) -> Iterator[None]:
        """Set the limit for a while; afterward it is what it was before. None changes nothing."""
        before = self._limit, self._fixed
        if connections is not None:
            self.fix(connections)
        try:
            yield
        finally:
            if connections is not None:
                self._limit, self._fixed = before

    @contextmanager
    def call(
        self,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = sleep,
        *,
        patience_s: float = math.inf,
    ) -> Iterator[None]:
        """Make one call to the endpoint: wait for its turn, and learn from how it ends.

        clock, wait: tell seconds and let them pass.   patience_s: a longer wait that the endpoint names holds nobody back.
        Raises Interrupted once the run is to stop.
        """
        full = self._enter(clock, wait)
        began = clock()
        try:
            yield
        except BackendError as error:
            with self._free:
                self._failed(error, began, clock(), patience_s)
            raise
        else:
            with self._free:
                self._answered(full=full)
        finally:
            with self._free:
                self._under_way -= 1
                self._free.notify()

    def _enter(self, clock: Callable[[], float], wait: Callable[[float], None]) -> bool:
        """Wait for a place. Return whether the limit is used up by this call."""
        waited = False
        while True:
            with self._free:
                while self._under_way >= self.limit:
                    waited = True
                    self._free.wait(LOOK_S)
                    check_stop()
                left = self._opens_at - clock()
                if left <= 0:
                    self._under_way += 1
                    return waited or self._under_way >= self.limit
            wait(left)

    def _failed(self, error: BackendError, began: float, now: float, patience_s: float) -> None:
        if isinstance(error, RateLimited):
            self.throttled += 1
            # Calls of before the last change say nothing of the limit that is.
            if not self._fixed and began >= self._halved_at:
                self._limit, self._doubling, self._halved_at = max(1.0, self._limit / 2), False, now
        if error.retry_after_s and error.retry_after_s <= patience_s:
            self._opens_at, self._width = max(self._opens_at, now + error.retry_after_s), 1.0

    def _answered(self, *, full: bool) -> None:
        self._trouble_since = None
        self._width = self._width + 0.5 if self._width < self._limit else math.inf
        if full and not self._fixed:
            # One more for each answer is twice as many with each wave of them.
            self._limit = min(self._most, self._limit + (1.0 if self._doubling else 1 / self._limit))


class FirstCall:
    """Lets one call of a backend go alone until one was answered: a refusal of all requests then costs one. Thread-safe."""

    def __init__(self) -> None:
        self.answered = False
        self._alone = False
        self._free = threading.Condition()
        self._refused: tuple[float, BackendError] | None = None

    def forget(self) -> None:
        """Let the next call be asked, whatever the last one was refused for."""
        self._refused = None

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Yield whether this call goes alone. Raises Interrupted, and anew the refusal of all requests before it."""
        if self.answered:
            yield False
            return
        with self._free:
            while self._alone:
                self._free.wait(LOOK_S)
                check_stop()
            if self._refused and time.monotonic() < self._refused[0] + REMEMBERED_S:
                raise copy.copy(self._refused[1])
            alone = self._alone = not self.answered
        try:
            yield alone
            self.answered = True
        except BackendError as error:
            if alone:
                self._refused = (time.monotonic(), error) if error.for_all else None
            raise
        finally:
            if alone:
                with self._free:
                    self._alone = False
                    self._free.notify_all()


_LIMITS: dict[str, ConnectionLimit] = {}
_MAKING = threading.Lock()


def limit_of(endpoint: str) -> ConnectionLimit:
    """Return the limit of an endpoint, one for the whole process: several backends at one address share it."""
    with _MAKING:
        return _LIMITS.setdefault(endpoint, ConnectionLimit())
