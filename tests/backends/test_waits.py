"""How an endpoint is waited for: patience, pauses that all callers share, who goes first, what Ctrl-C ends, and what must
neither end a run nor be asked without end."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, Sample
from editloupe.backends import openai
from editloupe.backends.base import parse_uri
from editloupe.backends.failures import said, wait_in
from editloupe.backends.limits import ConnectionLimit
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.stopping import stopping
from editloupe.errors import Interrupted, RateLimited, Rejected, Unavailable
from tests.backends.conftest import HELLO, STORE, Bench
from tests.backends.loopback import Act, Body, resets_mid_body
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.conftest import final, pixels

Run = Callable[..., tuple[int, str, str]]


def asked(bench: Bench, *script: Act, **policy: Any) -> Any:
    """What one question to a new server comes to: its reply or its error."""
    try:
        return bench.ask("openai", *script, policy=RetryPolicy(**policy))
    except (Unavailable, RateLimited) as error:
        return error


# What servers name as a wait


def test_waits_are_read_in_forms_that_the_table_of_answers_has_not_and_in_no_time() -> None:
    now = time.time()
    headers: list[tuple[dict[str, str], float | None]] = [
        ({"retry-after-ms": "2500", "retry-after": "3"}, 2.5),
        ({"retry-after": formatdate(now + 20, usegmt=True)}, 20),
        ({"x-ratelimit-reset": str(int(now * 1000) + 30_000)}, 30),
        ({"x-ratelimit-reset": str(int(now) + 30)}, 30),
        ({"anthropic-ratelimit-tokens-reset": formatdate(now + 20)}, 20),
        ({"ratelimit-reset": "12"}, 12),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
    ]
    for given, seconds in headers:
        assert said(429, {}, given).wait_s == (None if seconds is None else pytest.approx(seconds, abs=1.1)), given
    assert (wait_in("2 minutes and 5 seconds"), wait_in("30000 tokens")) == (pytest.approx(125), None)
    began = time.process_time()
    # Of a failure's body the first 4,000 characters are read.
    for text, whole_s, cut_s in (("1 s " * 100_000, 100_000, 1000), ("1" * 400_000, None, None)):
        assert (wait_in(text), said(429, {"error": {"message": text}}, {}).wait_s) == (whole_s, cut_s)
    assert time.process_time() - began < 5


# One caller


def test_patience_begins_anew_with_an_answer_and_ends_with_a_word_on_it(bench: Bench) -> None:
    slept: list[float] = []
    reply = asked(bench, fails(429), fails(503), resets_mid_body, fails(529), says("at last"), sleep=slept.append)
    assert (reply.text, reply.sent["attempts"], len(bench.server.seen)) == ("at last", 5, 5)
    error = asked(bench, fails(429), patience_s=60, sleep=slept.append)
    assert isinstance(error, RateLimited) and error.for_all, "nobody else need ask"
    assert "answered nobody for so long, and the patience is 60 s (--set patience=…)" in str(error)
    assert len(bench.server.seen) > 3


def test_what_waiting_does_not_help_is_not_waited_for(bench: Bench) -> None:
    for act in (fails(429, headers={"Retry-After": "1"}), fails(503), fails(500), resets_mid_body):
        slept: list[float] = []
        error = asked(bench, act, patience_s=0, sleep=slept.append)
        assert (isinstance(error, Unavailable | RateLimited), len(bench.server.seen), slept) == (True, 1, [])
    error = asked(bench, fails(429, headers={"Retry-After": "3600"}), sleep=slept.append)
    assert "asks to wait 3,600 s, and the patience is 600 s" in str(error)
    assert (error.for_all, len(bench.server.seen), slept) == (True, 1, [])
    # What does not say that waiting helps is tried five times.
    error = asked(bench, fails(500), sleep=slept.append)
    assert ("gave up after 5 attempts" in str(error), error.for_all, len(bench.server.seen)) == (True, False, 5)
    # Full jitter below 0.25, 0.5, 1 and 2 s.
    assert all(0 <= s <= most for s, most in zip(slept, (0.25, 0.5, 1, 2), strict=True))


def test_refused_connections_end_at_once_before_the_first_answer_and_after_five_in_a_row_later(bench: Bench) -> None:
    slept: list[float] = []
    backend = bench.backend("openai", says("here"), query="&timeout_s=5", policy=RetryPolicy(sleep=slept.append))
    backend.complete(HELLO, STORE)
    bench.server.__exit__(None, None, None)
    with pytest.raises(Unavailable, match=r"gave up after 5 attempts") as caught:
        backend.complete(HELLO, STORE)
    assert (caught.value.for_all, len(slept)) == (True, 4)
    fresh = bench.open(backend.uri, policy=RetryPolicy(sleep=slept.append))
    with pytest.raises(Unavailable, match=r"no connection \(Connection refused\)") as caught:
        fresh.complete(HELLO, STORE)
    assert (caught.value.for_all, len(slept)) == (True, 4)


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
def test_a_mistyped_address_is_told_within_five_seconds(host: str, editloupe: Run, edits: Callable[..., Path]) -> None:
    uri = f"openai/m?base_url=http://{host}/v1&env=none"
    began = time.monotonic()
    [[finding, *_], *_] = Judge(uri, mode="plain").judge_all([Sample.from_images(*pixels(1, spots=1), "x")] * 3)
    assert (finding.status, time.monotonic() - began < 5) == ("backend_failed", True)
    assert "check the address" in finding.reason
    began = time.monotonic()
    code, said_, told = editloupe("judge", edits(3), "--backend", uri, "--mode", "plain")
    assert (code, time.monotonic() - began < 5) == (1, True)
    assert (said_ + told).count("check the address") == 1


# All callers


def limited(number: int, per_s: float, *, in_body: bool) -> Act:
    """A server that answers so many requests in each window, and names the wait to all others."""
    lock, answered = threading.Lock(), deque[float]()

    def act(handler: Any, request: Body) -> None:
        with lock:
            now = time.monotonic()
            while answered and answered[0] <= now - per_s:
                answered.popleft()
            left = 0.0 if len(answered) < number else answered[0] + per_s - now
            if not left:
                answered.append(now)
        if not left:
            says(final("Flawless Execution"))(handler, request)
        elif in_body:
            fails(429, f"Limit reached. Please try again in {left:.3f}s.")(handler, request)
        else:
            fails(429, "slow down", headers={"retry-after-ms": f"{1000 * left:.0f}"})(handler, request)

    return act


@pytest.mark.parametrize(("number", "per_s", "in_body"), [(1, 0.05, True), (10, 0.4, False)])
def test_sixteen_samples_at_a_limited_rate_are_all_judged(number: int, per_s: float, in_body: bool) -> None:
    source, edited = pixels(1, spots=1)
    samples = [Sample.from_images(source, edited, f"Add square {n}.") for n in range(16)]
    with OpenAIServer(limited(number, per_s, in_body=in_body), model="m") as server:
        judge = Judge(f"openai/m?base_url={server.url}", mode="plain", criteria="if", patience=60)
        found = judge.judge_all(samples, concurrency=8)
    assert Counter(finding.status for [finding] in found) == {"ok": 16}
    # Whoever is told to wait waits for all: about one refusal a pause, and not one a caller.
    assert len(server.seen) < 16 * 3


def test_a_named_wait_holds_all_callers_and_they_come_back_one_by_one() -> None:
    now = [0.0]
    limit = ConnectionLimit()

    def wait(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(RateLimited), limit.call(lambda: now[0], wait):
        raise RateLimited("slow", retry_after_s=7)
    assert limit.limit == 1
    with limit.call(lambda: now[0], wait):
        assert now[0] == 7
    for _ in range(2):
        with limit.call(lambda: now[0], wait):
            pass
    assert limit.limit == 2
    with pytest.raises(RateLimited), limit.call(lambda: now[0], wait, patience_s=600):
        raise RateLimited("tomorrow", retry_after_s=3600)
    assert limit.limit == 2, "nobody waits for so long"


class UnderWay:
    """Counts how many are at it at once, now and at most."""

    def __init__(self) -> None:
        self.most, self._now, self._lock = 0, 0, threading.Lock()

    def __enter__(self) -> int:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            return self._now

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


def test_until_one_is_answered_calls_go_alone_and_a_refusal_for_all_costs_one() -> None:
    def act(handler: Any, request: Body) -> None:
        with under_way:
            time.sleep(0.05)
        (says("ok") if ok else fails(401, "no such key"))(handler, request)

    for ok in (False, True):
        under_way = UnderWay()
        with OpenAIServer(act) as server, ThreadPoolExecutor(8) as pool:
            backend = openai.open_backend(parse_uri(f"openai/tiny-vl?base_url={server.url}"))
            ends = [pool.submit(backend.complete, HELLO, STORE) for _ in range(8)]
            kinds = Counter(type(end.exception()) for end in ends)
            backend.close()
        if ok:
            assert (len(server.seen), kinds, under_way.most > 1) == (8, {type(None): 8}, True)
        else:
            assert (len(server.seen), kinds) == (1, {Rejected: 8})


# The connections of an endpoint


def crowd(limit: ConnectionLimit, calls: int, *, room: int) -> int:
    """Make calls from 32 threads, of which the endpoint answers `room` at once. Return how many were under way at most."""
    under_way = UnderWay()

    def one(number: int) -> None:
        with suppress(RateLimited), limit.call():
            with under_way as now:
                time.sleep(0.004)
            if now > room:
                raise RateLimited("too many", status=429)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(calls)))
    return under_way.most


def test_connections_double_while_all_is_well_and_halve_where_calls_are_refused() -> None:
    limit = ConnectionLimit(start=2, most=16)
    assert (crowd(limit, 200, room=1000), limit.limit) == (16, 16)
    limit = ConnectionLimit(start=8, most=64)
    crowd(limit, 600, room=6)
    assert 0 < limit.throttled < 150, "32 connections without a limit would have refused half"
    assert limit.limit <= 12
    limit = ConnectionLimit()
    limit.fix(3)
    assert (crowd(limit, 60, room=1), limit.limit, limit.under_way) == (3, 3, 0)


# Ctrl-C


def test_ctrl_c_ends_a_wait_at_once_and_a_call_in_flight_is_not_asked_again(bench: Bench) -> None:
    stop = threading.Event()

    def waits(handler: Any, request: Body) -> None:
        threading.Timer(0.05, stop.set).start()
        fails(429, headers={"Retry-After": "300"})(handler, request)

    def is_stopped(handler: Any, request: Body) -> None:
        stop.set()
        fails(500)(handler, request)

    for act in (waits, is_stopped):
        stop.clear()
        began = time.monotonic()
        with stopping(stop), pytest.raises(Interrupted):
            bench.ask("openai", act, policy=RetryPolicy())
        assert (len(bench.server.seen), time.monotonic() - began < 30) == (1, True)
