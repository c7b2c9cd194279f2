"""Ask again what may succeed later: how long an endpoint is waited for, and what ends at once.

Waited for are 429, 503, 529 and broken connections, until the endpoint has answered nobody for `patience_s`: an answer to
any caller begins the time anew. Other failures that may pass (another 5xx, half an answer, none in time, no connection) are
tried a few times. What the endpoint names as a wait holds for all its callers (`limits.ConnectionLimit`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from editloupe.backends import stopping
from editloupe.backends.limits import ConnectionLimit
from editloupe.config import DEFAULT_PATIENCE_S
from editloupe.errors import BackendError, RateLimited

T = TypeVar("T")
OVERLOADED: Final = (429, 503, 529)
"""HTTP statuses that say that it is too much."""
LONGEST_S: Final = 30.0
"""Ceiling of every wait that the endpoint does not name."""
_SHORT_S: Final = 0.5
"""A named wait below this one, such as 0 or a moment that has passed, does not shorten our own."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds of one call."""

    patience_s: float = DEFAULT_PATIENCE_S
    """How long an endpoint may answer nobody. 0 waits for nothing."""
    attempts: int = 5
    """In all, of a call whose failures are not waited for with patience. 1 asks once, whatever comes."""
    sleep: Callable[[float], None] | None = field(default=None, repr=False, compare=False)
    """How the seconds are waited, for tests; the policy's own clock goes on by what was not really waited."""
    _skipped_s: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def now(self) -> float:
        """Return seconds, never going back."""
        return time.monotonic() + sum(self._skipped_s)

    def wait(self, seconds: float) -> None:
        """Wait. Raises Interrupted as soon as the run is to stop."""
        if self.sleep is None:
            stopping.sleep(seconds)
            return
        began = time.monotonic()
        self.sleep(seconds)
        stopping.check_stop()
        self._skipped_s.append(max(0.0, seconds - (time.monotonic() - began)))


DEFAULT_POLICY: Final = RetryPolicy()


def call(
    fn: Callable[[], T],
    *,
    policy: RetryPolicy = DEFAULT_POLICY,
    limit: ConnectionLimit | None = None,
    final: Callable[[BackendError], bool] = lambda error: False,
) -> tuple[T, int]:
    """Call `fn` until it returns. Return its value and the number of attempts.

    limit: each attempt waits for its turn there; the sleep between two holds no place.   final: whether a failure that may
    pass ends the call all the same.
    Raises the last BackendError where it is final, or the policy is used up; Interrupted once the run is to stop.
    """
    limit = limit or ConnectionLimit()
    with limit.asking():
        return _until_answered(fn, policy, limit, final)


def _until_answered(
    fn: Callable[[], T], policy: RetryPolicy, limit: ConnectionLimit, final: Callable[[BackendError], bool]
) -> tuple[T, int]:
    began, attempt, fleeting = policy.now(), 0, 0
    while True:
        attempt += 1
        try:
            with limit.call(policy.now, policy.wait, patience_s=policy.patience_s):
                return fn(), attempt
        except BackendError as error:
            stopping.check_stop()
            if not error.retryable or error.for_all or final(error) or policy.attempts == 1 or policy.patience_s == 0:
                raise
            patient = error.status in OVERLOADED or isinstance(error, RateLimited) or error.how == "broken"
            fleeting += not patient
            named = error.retry_after_s
            ours = named is None or named < _SHORT_S
            wait = max(named or 0.0, _backoff_s(error, attempt)) if ours else named or 0.0
            since = limit.trouble_since(policy.now())
            over = ""
            if fleeting >= policy.attempts:
                over = f"{fleeting} failures that do not say that waiting helps"
            elif policy.now() + wait - since > policy.patience_s:
                what = f"asks to wait {named:,.0f} s" if named and not ours else "has answered nobody for so long"
                over = f"the endpoint {what}, and the patience is {policy.patience_s:g} s (--set patience=…)"
            if over:
                error.for_all = patient or error.how == "unreached"
                tries = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                error.args = (f"{error} (gave up after {tries} in {policy.now() - began:.0f} s: {over})",)
                raise
            limit.again()
            if ours:
                policy.wait(wait)


def _backoff_s(error: BackendError, attempt: int) -> float:
    """Return the seconds to wait after attempt `attempt` (from 1): full jitter below a ceiling that doubles each time.

    The first ceiling is 1 s where the endpoint has too much to do or is not there, and a quarter of that elsewhere.
    """
    first = 1.0 if error.how == "unreached" or error.status in OVERLOADED else 0.25
    return random.random() * min(LONGEST_S, first * 2.0 ** min(attempt - 1, 16))
