"""The one retry policy: what may succeed later is asked again, a few times, with waits that spread callers out."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, TypeVar

from editloupe.backends.limits import ConnectionLimit
from editloupe.backends.stopping import go_on, pause
from editloupe.errors import BackendError, RateLimited

T = TypeVar("T")
_TOO_MUCH = (503, 529)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds of one call. All times are in seconds."""

    attempts: int = 5
    """In all, the first one included."""
    base_s: float = 1.0
    """Ceiling of the first wait where the endpoint says that it is too much (429, 503, 529). It doubles with every further
    one."""
    lost_base_s: float = 0.25
    """The same for other failures: a lost connection, half an answer, none in time, another 5xx. There is no load to be
    taken off the endpoint."""
    max_wait_s: float = 30.0
    """Ceiling of every wait."""
    total_s: float = 300.0
    """No attempt starts later than this after the first one. One that runs is not cut short."""
    sleep: Callable[[float], None] = field(default=pause, repr=False, compare=False)
    """How the seconds are waited."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"a retry policy needs at least 1 attempt, found {self.attempts}")

    def wait_s(self, attempt: int, fraction: float, *, lost: bool = False) -> float:
        """Return the seconds to wait after failure `attempt` (from 1). Full jitter: `fraction` (0..1) of the ceiling."""
        base_s = min(self.base_s, self.lost_base_s) if lost else self.base_s
        # The exponent is bounded because 2.0**1024 overflows; no ceiling is that far away.
        return fraction * min(self.max_wait_s, base_s * 2.0 ** min(attempt - 1, 64))


DEFAULT_POLICY: Final = RetryPolicy()


def call(
    fn: Callable[[], T],
    *,
    policy: RetryPolicy = DEFAULT_POLICY,
    limit: ConnectionLimit | None = None,
    rng: Callable[[], float] = random.random,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[T, int]:
    """Call `fn` until it returns. Return its value and the number of attempts.

    Raises the last BackendError, with the attempts made, where the policy is used up; Interrupted, without a further
    attempt, once whoever asks was told to stop.

    Only errors that say `retryable` are tried again, a 400 never is. An endpoint's own `retry_after_s` is the shortest
    wait; one that does not fit into what is left of `total_s` is not slept through, the error is raised at once.
    limit: each attempt waits for its turn there; the sleep between two holds no place.   rng: 0 <= x < 1.
    clock: seconds, never going back.
    """
    start = clock()
    for attempt in range(1, policy.attempts + 1):
        try:
            with nullcontext() if limit is None else limit.call():
                go_on()
                return fn(), attempt
        except BackendError as error:
            if not error.retryable:
                raise
            lost = not isinstance(error, RateLimited) and error.status not in _TOO_MUCH
            wait = max(policy.wait_s(attempt, rng(), lost=lost), error.retry_after_s or 0.0)
            elapsed = clock() - start
            if attempt == policy.attempts or elapsed + wait > policy.total_s:
                summary = f"gave up after {attempt} {'attempt' if attempt == 1 else 'attempts'} in {elapsed:.0f} s"
                if attempt < policy.attempts and error.retry_after_s and elapsed + error.retry_after_s > policy.total_s:
                    summary += (
                        f": the endpoint asks to wait {error.retry_after_s:,.0f} s, and a call has {policy.total_s:g} s"
                    )
                error.args = (f"{error} ({summary})",)
                raise
            if limit is not None:
                limit.again()
            policy.sleep(wait)
    raise AssertionError("unreachable: the last attempt returns or raises")
