"""The connection limit: it grows while an endpoint keeps up and gives way when it does not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from editloupe.backends.limits import ConnectionLimit, limit_of
from editloupe.errors import RateLimited


class Endpoint:
    """Answers in `seconds`; refuses what goes beyond `room` calls at once. most: the most that were under way."""

    def __init__(self, *, room: int = 1000, seconds: float = 0.01) -> None:
        self.room, self.seconds = room, seconds
        self.now = self.most = self.refused = 0
        self._lock = threading.Lock()

    def __call__(self, limit: ConnectionLimit) -> None:
        try:
            with limit.call():
                with self._lock:
                    self.now += 1
                    self.most = max(self.most, self.now)
                    over = self.now > self.room
                    self.refused += over
                try:
                    time.sleep(self.seconds)
                    if over:
                        raise RateLimited("too many", status=429)
                finally:
                    with self._lock:
                        self.now -= 1
        except RateLimited:
            pass


def asked(limit: ConnectionLimit, endpoint: Endpoint, calls: int, *, threads: int = 32) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: endpoint(limit), range(calls)))


def test_it_never_lets_more_through_than_its_limit_and_doubles_while_all_is_well():
    limit, endpoint = ConnectionLimit(start=2, most=16), Endpoint()
    asked(limit, endpoint, 2, threads=8)
    assert endpoint.most <= 2
    asked(limit, endpoint, 200)
    # 2 → 4 → 8 → 16 takes waves of 2, 4 and 8 answers.
    assert limit.limit == 16
    assert endpoint.most <= 16


def test_calls_that_do_not_use_the_limit_do_not_raise_it():
    limit, endpoint = ConnectionLimit(start=4, most=16), Endpoint(seconds=0)
    for _ in range(50):
        endpoint(limit)
    assert limit.limit == 4


def test_a_refusal_halves_it_and_it_settles_near_what_the_endpoint_takes():
    limit, endpoint = ConnectionLimit(start=8, most=64), Endpoint(room=6, seconds=0.004)
    asked(limit, endpoint, 600)
    assert limit.throttled == endpoint.refused > 0
    assert limit.limit <= 12
    # Far fewer than the half that 32 connections without a limit would have refused.
    assert endpoint.refused < 150


def test_a_refusal_now_and_then_does_not_bring_it_down():
    limit, number, counting = ConnectionLimit(start=8, most=64), [0], threading.Lock()

    def call(_: int) -> None:
        with counting:
            number[0] += 1
            refused = number[0] % 12 == 0
        try:
            with limit.call():
                time.sleep(0.002)
                if refused:
                    raise RateLimited("not now", status=429)
        except RateLimited:
            pass

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(call, range(720)))
    # One in twelve is under the fifth at which it halves, and under the tenth at which it stops to grow.
    assert limit.throttled == 60
    assert limit.limit > 16


def test_refusals_of_one_wave_count_once():
    limit = ConnectionLimit(start=8, most=64)
    together = threading.Barrier(8)

    def refused() -> None:
        with limit.call():
            together.wait()
            raise RateLimited("too many", status=429)

    with ThreadPoolExecutor(8) as pool:
        ends = [future.exception() for future in [pool.submit(refused) for _ in range(8)]]
    assert all(isinstance(end, RateLimited) for end in ends)
    assert (limit.limit, limit.throttled) == (4, 8)


def test_answers_that_become_slow_lower_it():
    now = [0.0]
    limit = ConnectionLimit(start=4, most=4, clock=lambda: now[0])

    def answer(seconds: float) -> None:
        with limit.call():
            now[0] += seconds

    for _ in range(4):
        answer(1.0)
    assert limit.limit == 4
    for _ in range(4):
        answer(3.5)
    assert limit.limit == 3


def test_fixed_it_stays_whatever_the_endpoint_says():
    limit = ConnectionLimit()
    limit.fix(3)
    endpoint = Endpoint(room=1, seconds=0.002)
    asked(limit, endpoint, 60)
    assert limit.limit == 3
    assert endpoint.most == 3


def test_an_error_gives_the_place_back():
    limit = ConnectionLimit(start=1, most=1)

    def broken() -> None:
        with limit.call():
            raise RuntimeError("broken")

    for _ in range(3):
        with pytest.raises(RuntimeError):
            broken()
    with limit.call():
        pass


def test_backends_at_one_endpoint_share_a_limit():
    assert limit_of("http://one.example/v1") is limit_of("http://one.example/v1")
    assert limit_of("http://one.example/v1") is not limit_of("http://two.example/v1")
