"""Work at once, in a pool of the caller's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from editloupe.runs.executors import at_once


def test_what_waits_in_a_pool_is_not_begun_after_a_failure():
    begun: list[int] = []
    go = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        go.wait(5)
        if item == 0:
            raise OSError("the disk is full")
        return item

    items = iter(range(6))

    def take() -> int | None:
        item = next(items, None)
        if item is None:
            go.set()
        return item

    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="the disk is full"):
        list(at_once(work, take, width=7, pool=pool))
    # The thread of the pool may have taken one more before the failure was seen.
    assert len(begun) <= 2
