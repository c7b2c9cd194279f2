"""What a whole run may spend, and what it has spent: counted with each answer, so that a run stops within a call of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from editloupe.backends.base import LMM, checked_reply
from editloupe.backends.prices import Prices
from editloupe.backends.token_estimate import estimate_usage, lacks_usage
from editloupe.chat import Reply, Request, Usage
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, Interrupted, Rejected
from editloupe.values import Json

LOST_IN_A_ROW: Final = 5
"""Calls whose connection fails in the same way before nothing more is asked. The attempts within a call are not counted."""
_COUNTED: Final = ("calls", "usage", "calls_without_usage", "estimated", "cost", "reason", "refused")


@dataclass(frozen=True, kw_only=True)
class RunBudget:
    """Limits of one invocation to a run; None means none."""

    max_tokens: int | None = None
    """Input and output of all calls, estimated if the endpoint gives no usage."""
    max_seconds: float | None = None
    """Wall time."""
    max_cost: float | None = None
    """In USD; a price must be known."""

    @classmethod
    def of(cls, config: RunConfig) -> RunBudget:
        """Return the limits that a config names."""
        return cls(max_tokens=config.max_run_tokens, max_seconds=config.max_run_seconds, max_cost=config.max_cost)

    def check(self, backend: LMM, prices: Prices) -> None:
        """Raise ConfigError for a budget in money if nothing has a price: it would never be reached."""
        if self.max_cost is not None and not prices.known(backend):
            raise ConfigError(
                f"--max-cost: no price is known for {backend.uri}; {prices.advice()}, or set a limit: --set run_tokens=…"
            )

    def after(self, ledger: Ledger, seconds: float) -> RunBudget:
        """Return what is left when an invocation has spent so much; never less than nothing."""
        cost = ledger.cost or 0.0
        return RunBudget(
            max_tokens=None if self.max_tokens is None else max(0, self.max_tokens - ledger.tokens),
            max_seconds=None if self.max_seconds is None else max(0.0, self.max_seconds - seconds),
            max_cost=None if self.max_cost is None else max(0.0, self.max_cost - cost),
        )

    @property
    def used_up(self) -> bool:
        """Whether a limit is 0."""
        return 0 in (self.max_tokens, self.max_seconds, self.max_cost)


@dataclass
class Ledger:
    """Adds up what a run's calls cost, and sets `stop` when the budget is used up. Thread-safe."""

    budget: RunBudget
    prices: Prices
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    """As the endpoint reports it."""
    calls_without_usage: int = 0
    """Calls whose input or output tokens the endpoint does not report."""
    estimated: Usage = field(default_factory=Usage)
    """What these calls took by `backends.token_estimate`."""
    cost: float | None = 0.0
    """In USD, of reported and estimated tokens; None if a price, or the tokens of a call, cannot be known."""
    reason: str = ""
    """Which budget ended the run; "" while none has."""
    refused: str = ""
    """Why nothing more is asked: what the backend said when it refused all requests (`BackendError.for_all`), or how the
    connection failed; "" while there is no such reason."""

    def __post_init__(self) -> None:
        self._lock = threading.Condition()
        self._under_way = 0
        # Of one call so far, in tokens and USD; None before the first has ended.
        self._largest: tuple[int, float] | None = None
        # Endpoint → (how the connection failed last, how often so in a row).
        self._lost: dict[str, tuple[str, int]] = {}
        self._began = self.clock()
        # Calls whose tokens are neither reported nor estimated.
        self._unknowable = 0

    @property
    def tokens(self) -> int:
        """Input and output of all calls: what counts against a budget."""
        return self.usage.total + self.estimated.total

    @contextmanager
    def call(self, backend: LMM) -> Iterator[None]:
        """Grant one call. It waits while those under way, each as large as the largest so far, would leave it nothing.

        Raises Rejected if the backend has refused for good, Interrupted once the run is to stop.
        """
        with self._lock:
            while not (self.refused or self.reason or self.stop.is_set() or self._leaves_something(backend)):
                self._lock.wait(0.2)  # nobody notifies of a stop
            if self.refused:
                raise Rejected(f"not asked any more: {self.refused}", for_all=True)
            if self.stop.is_set() or self.reason:
                raise Interrupted("the run was asked to stop; this task goes on from here next time")
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._lock.notify_all()

    def spend(self, backend: LMM, usage: Usage, guess: Usage | None) -> None:
        """Count one answer.

        usage: as the endpoint reports it.   guess: what it does not report; None if that cannot be estimated.
        """
        price = None if guess is None else self.prices.of(backend, usage + guess)
        with self._lock:
            self._lost.pop(backend.endpoint, None)
            self.calls += 1
            tokens, cost = self._largest or (0, 0.0)
            self._largest = max(tokens, usage.total + (guess or Usage()).total), max(cost, price or 0.0)
            self.usage += usage
            self.calls_without_usage += lacking(backend, usage)
            self.estimated += guess or Usage()
            self._unknowable += guess is None
            self.cost = None if self.cost is None or price is None else self.cost + price
            self._check_limits(backend)

    def refuse(self, backend: LMM, error: BackendError) -> None:
        """Take note of a call that failed in all its attempts.

        An endpoint that has answered may do so again: then a 404 or a 403 ends nothing, but a refused key, an empty account
        and patience that is at its end do. LOST_IN_A_ROW calls end all if the connection failed in the same way each time,
        without an answer between them.
        """
        with self._lock:
            self._largest = self._largest or (0, 0.0)
            lost, times = self._lost.get(backend.endpoint, ("", 0))
            times = times + 1 if error.lost == lost else 1
            self._lost[backend.endpoint] = (error.lost, times)
            passing = self.calls and not error.retryable and error.status in (None, 403, 404, 405)
            if self.refused:
                return
            if error.for_all and not passing:
                self.refused = str(error)
            elif error.lost and times >= LOST_IN_A_ROW:
                self.refused = f"{times} calls in a row found no connection; {error}"

    def check_time(self) -> None:
        """Set `stop` if time is up."""
        with self._lock:
            self._check_limits()

    def counted(self) -> dict[str, Any]:
        """Return what was counted, for `follow` in another process."""
        with self._lock:
            return {name: getattr(self, name) for name in _COUNTED}

    def follow(self, counted: Mapping[str, Any]) -> None:
        """Take over what the ledger of another process has counted, and stop where it stops."""
        with self._lock:
            for name, value in counted.items():
                if value or name not in ("reason", "refused"):
                    setattr(self, name, value)
            if self.reason:
                self.stop.set()

    def to_json(self) -> dict[str, Json]:
        """Return what was spent as JSON."""
        return {
            "calls": self.calls,
            "usage": self.usage.to_json(),
            "calls_without_usage": self.calls_without_usage,
            "estimated": self.estimated.to_json(),
            "cost_usd": self.cost,
            "stopped": self.reason or None,
            "refused": self.refused or None,
        }

    def _leaves_something(self, backend: LMM) -> bool:
        limits = self.budget.max_tokens, self.budget.max_cost
        if limits == (None, None) or not self._under_way or not backend.traits.live:
            return True
        if self._largest is None:
            return False
        used = (
            spent + self._under_way * most
            for spent, most in zip((self.tokens, self.cost or 0.0), self._largest, strict=True)
        )
        return all(limit is None or one < limit for one, limit in zip(used, limits, strict=True))

    def _check_limits(self, backend: LMM | None = None) -> None:
        if self.reason:
            return
        budget, seconds = self.budget, self.clock() - self._began
        about = "about " if self.calls_without_usage else ""
        if budget.max_tokens is not None and self.tokens >= budget.max_tokens:
            self.reason = f"tokens: {about}{self.tokens:,} of {budget.max_tokens:,} used"
        elif budget.max_cost is not None and self.cost is not None and self.cost >= budget.max_cost:
            self.reason = f"cost: {about}{self.cost:.4g} of {budget.max_cost:g} USD used"
        elif budget.max_seconds is not None and seconds >= budget.max_seconds:
            self.reason = f"time: {seconds:.0f} of {budget.max_seconds:g} s used"
        elif self._unknowable and (budget.max_tokens, budget.max_cost) != (None, None):
            self.reason = (
                "a limit of tokens or money cannot be kept: the endpoint tells no usage, and no rule is known for the "
                f"tokens of images of {backend.uri if backend else 'this model'}; --set run_seconds=… can"
            )
        elif budget.max_cost is not None and self.cost is None:
            self.reason = f"cost: no price is known for an answer that came; {self.prices.advice()}"
        if self.reason:
            self.stop.set()


def lacking(backend: LMM, usage: Usage) -> bool:
    """Return whether an endpoint should have reported tokens and has not."""
    return backend.traits.is_lmm and lacks_usage(usage)


class Metered:
    """A backend whose calls are granted, and whose answers are counted."""

    def __init__(self, backend: LMM, ledger: Ledger) -> None:
        self._backend, self._ledger = backend, ledger
        self.uri, self.endpoint = backend.uri, backend.endpoint
        self.version, self.traits = backend.version, backend.traits

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the backend's reply, counted. Raises what `Ledger.call` raises."""
        with self._ledger.call(self._backend):
            try:
                reply = checked_reply(self._backend.complete(request, images), self.uri)
            except BackendError as error:
                self._ledger.refuse(self._backend, error)
                raise
            if self.traits.live:
                guess = estimate_usage(request, reply, self.traits) if lacking(self._backend, reply.usage) else Usage()
                self._ledger.spend(self._backend, reply.usage, guess)
        return reply
