"""Work at once, in a pool of the caller's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from editloupe.runs.executors import at_once


def test_what_waits_in_a_pool_is_not_begun_after_a_failure():
    begun: list[int] = []
    all_taken, failure_seen = threading.Event(), threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            all_taken.wait(5)
            raise OSError("the disk is full")
        failure_seen.wait(5)
        return item

    items = iter(range(6))

    def take() -> int | None:
        item = next(items, None)
        if item is None:
            all_taken.set()
        return item

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(OSError, match="the disk is full"):
            list(at_once(work, take, width=7, pool=pool))
        failure_seen.set()
    # The thread of the pool takes one more before the failure is seen.
    assert len(begun) <= 2
