"""Work at once: what begins when, and what comes before a failure."""

from __future__ import annotations

import threading
import time

import pytest

from editloupe.runs.executors import Stop, together


def test_the_next_item_begins_while_results_are_looked_at():
    begun = [threading.Event() for _ in range(3)]
    items = iter(range(3))

    def work(item: int) -> int:
        begun[item].set()
        return item

    batches = together(work, lambda: next(items, None), width=1)
    assert next(batches) == [0]
    # Nobody has asked for another result yet.
    assert begun[1].wait(5) and not begun[2].is_set()
    assert [result for batch in batches for result in batch] == [1, 2]


def test_what_ended_before_a_failure_is_handed_out_and_nothing_begins_after_it():
    items = iter(range(3))

    def work(item: int) -> int:
        if item == 1:
            raise RuntimeError("no room")
        return item

    batches = together(work, lambda: next(items, None), width=1)
    assert next(batches) == [0]
    with pytest.raises(RuntimeError, match="no room"):
        next(batches)
    assert next(items) == 2


def test_a_stop_that_waits_no_longer_leaves_what_is_under_way() -> None:
    stop, late = Stop(), threading.Event()
    items = iter([0.0, 30.0])

    def work(seconds: float) -> float:
        late.wait(seconds)
        return seconds

    batches = together(work, lambda: next(items, None), width=2, stop=stop)
    assert next(batches) == [0.0]
    began = time.monotonic()
    stop.within(0.3)
    assert list(batches) == []
    assert 0.3 <= time.monotonic() - began < 5
    late.set()
