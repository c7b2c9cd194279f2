"""How many calls are under way at one endpoint, and when none may be: one object for all callers in the process.

The number grows while the endpoint keeps up, and halves when it says that it does not. Where it names a wait, all callers
pause until then, and come back one after another.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_high
from typing import Final

from editloupe.backends.stopping import LOOK_S, check_stop, sleep
from editloupe.errors import BackendError, RateLimited

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
    After a pause one call goes alone; each two answers at the width that there is let one more go beside them.
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
        self._opens_at = 0.0
        self._width: float | None = None
        """Calls at once since the last pause; None where it holds nobody back any more."""
        self._trouble_since: float | None = None
        self.throttled = 0
        """How often the endpoint refused a call for its rate."""
        self.retried = 0
        """How often a call was made again, for whatever reason."""

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return max(1, int(self._limit if self._width is None else min(self._limit, self._width)))

    @property
    def under_way(self) -> int:
        """How many calls are under way now."""
        return self._under_way

    def again(self) -> None:
        """Take note that a call is made again."""
        with self._free:
            self.retried += 1

    def trouble_since(self, now: float) -> float:
        """Return since when the endpoint has answered nobody; `now` where this failure is the first."""
        with self._free:
            if self._trouble_since is None:
                self._trouble_since = now
            return self._trouble_since

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
    def call(
        self,
        clock: Callable[[], float] | None = None,
        wait: Callable[[float], None] = sleep,
        *,
        patience_s: float = math.inf,
    ) -> Iterator[None]:
        """Make one call to the endpoint: wait for its turn, and learn from how it ends.

        clock, wait: tell seconds and let them pass.   patience_s: a longer wait that the endpoint names holds nobody back.
        Raises Interrupted once the run is to stop.
        """
        clock = clock or self._clock
        self._enter(clock, wait)
        began = clock()
        try:
            yield
        except BackendError as error:
            if isinstance(error, RateLimited):
                self._refused(began)
            if error.retry_after_s and error.retry_after_s <= patience_s:
                self._pause(clock() + error.retry_after_s)
            raise
        else:
            self._kept_up(began, clock())
        finally:
            with self._free:
                self._under_way -= 1
                self._free.notify()

    def _enter(self, clock: Callable[[], float], wait: Callable[[float], None]) -> None:
        while True:
            with self._free:
                while self._under_way >= self.limit:
                    self._full = True
                    self._free.wait(LOOK_S)
                    check_stop()
                left = self._opens_at - clock()
                if left <= 0:
                    self._under_way += 1
                    self._full = self._full or self._under_way >= self.limit
                    return
            wait(left)

    def _pause(self, until: float) -> None:
        """Let nobody call before then, and one alone at first."""
        with self._free:
            self._opens_at = max(self._opens_at, until)
            self._width = 1.0

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

    def _kept_up(self, began: float, now: float) -> None:
        with self._free:
            self._trouble_since = None
            if self._width is not None:
                self._width += 0.5 / int(self._width)
                self._width = self._width if self._width < self._limit else None
                self._free.notify_all()
            self._seconds.append(now - began)
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
