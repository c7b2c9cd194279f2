"""How many calls are under way at one endpoint: more while it keeps up, half as many when it says that it does not."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_high
from typing import Final

from editloupe.backends.stopping import go_on
from editloupe.errors import RateLimited

START: Final = 8
MOST: Final = 64
_WAVES_SEEN = 4
_REFUSED = 0.2
"""Share of refused calls above which the limit halves. One that comes now and then costs its own retry; halving for each
would bring an endpoint that always refuses one call in ten down to one connection."""
_SEEN = 16
"""So many calls are looked at, or a wave if that is more, before a share of them says something."""
_SLOWER = 3.0
"""Times the usual answer's seconds from which an endpoint counts as overloaded. Answers differ by their length alone by a
factor of two."""


class ConnectionLimit:
    """The connections of one endpoint, shared by all threads: additive increase, multiplicative decrease.

    The limit doubles with each wave of answers (as many as the limit) that used all of it and saw few refusals; once it has
    fallen, it grows by one a wave (of at least 16). It halves where more than a fifth of the calls is refused for their
    rate, and falls by a quarter where answers have become three times as slow as they were at the limit's start; both at
    most once a wave. `fix` sets it for good, `fixed` for a while.
    """

    def __init__(self, *, start: int = START, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._most, self._clock = float(start), most, clock
        self._fixed = False
        self._doubling = True
        self._under_way = 0
        self._full = False
        self._answered = 0
        self._ended = self._refused_lately = 0
        self._changed_at = clock()
        self._usual: float | None = None
        self._seconds: deque[float] = deque(maxlen=_WAVES_SEEN * most)
        self._free = threading.Condition()
        self.throttled = 0
        """How often the endpoint refused a call for its rate."""
        self.retried = 0
        """How often a call was made again, for whatever reason."""

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return max(1, int(self._limit))

    @property
    def under_way(self) -> int:
        """How many calls are under way now."""
        return self._under_way

    def again(self) -> None:
        """Take note that a call is made again."""
        with self._free:
            self.retried += 1

    def fix(self, connections: int) -> None:
        """Set the limit, 1 or more, for good, whatever the endpoint says."""
        with self._free:
            self._limit, self._fixed = float(connections), True
            self._free.notify_all()

    @contextmanager
    def fixed(self, connections: int | None) -> Iterator[None]:
        """Set the limit for a while; afterwards it is what it was before. None changes nothing."""
        if connections is None:
            yield
            return
        before = self._limit, self._fixed
        self.fix(connections)
        try:
            yield
        finally:
            with self._free:
                self._limit, self._fixed = before
                self._free.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Make one call to the endpoint: wait for its turn, and learn from how it ends."""
        with self._free:
            while self._under_way >= self.limit:
                self._full = True
                self._free.wait(0.2)  # nobody notifies of a stop
                go_on()
            self._under_way += 1
            self._full = self._full or self._under_way >= self.limit
        began = self._clock()
        try:
            yield
        except RateLimited:
            self._refused(began)
            raise
        else:
            self._kept_up(began)
        finally:
            with self._free:
                self._under_way -= 1
                self._free.notify()

    def _refused(self, began: float) -> None:
        with self._free:
            self.throttled += 1
            # Calls of before the last change say nothing of the limit that is.
            if self._fixed or began < self._changed_at:
                return
            self._refused_lately += 1
            if self._refused_lately > _REFUSED * max(self.limit, _SEEN):
                self._doubling = False
                self._change(self._limit / 2)
            else:
                self._end()

    def _kept_up(self, began: float) -> None:
        with self._free:
            self._seconds.append(self._clock() - began)
            self._answered += 1
            self._end()
            if self._fixed or self._answered < (self.limit if self._doubling else max(self.limit, _SEEN)):
                return
            recent = median_high(list(self._seconds)[-self._answered :])
            if self._usual is None:
                self._usual = recent
            if recent > _SLOWER * max(self._usual, 0.05) and self.limit > 1:
                self._doubling = False
                self._change(self._limit * 0.75)
            elif self._full and self._refused_lately <= _REFUSED / 2 * max(self.limit, _SEEN):
                self._change(self._limit * 2 if self._doubling else self._limit + 1)
                self._free.notify_all()
            else:
                self._answered = 0

    def _end(self) -> None:
        """Count a call that ended without a change."""
        self._ended += 1
        if self._ended >= max(self.limit, _SEEN):
            self._ended = self._refused_lately = 0

    def _change(self, limit: float) -> None:
        self._limit = min(float(self._most), max(1.0, limit))
        self._ended = self._refused_lately = 0
        self._changed_at, self._answered, self._full = self._clock(), 0, False


_LIMITS: dict[str, ConnectionLimit] = {}
_MAKING = threading.Lock()


def limit_of(endpoint: str) -> ConnectionLimit:
    """Return the limit of an endpoint, one for the whole process: several backends at one address share it."""
    with _MAKING:
        return _LIMITS.setdefault(endpoint, ConnectionLimit())


def stand_in(endpoint: str, limit: ConnectionLimit) -> None:
    """Let another limit stand for an endpoint in this process, such as one that asks another process."""
    with _MAKING:
        _LIMITS[endpoint] = limit
