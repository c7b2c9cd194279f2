"""Calls from many threads run together, and each gets its own result or error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from editloupe.errors import ToolError
from editloupe.models.batching import Batcher


class Squares:
    """Squares numbers, and remembers in which batches. `fits`: more items than that do not fit into memory."""

    def __init__(self, *, fits: int = 1000) -> None:
        self.batches: list[list[int]] = []
        self.fits = fits
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, items: list[int]) -> list[int]:
        self.gate.wait(5)
        self.batches.append(items)
        if len(items) > self.fits or -1 in items:
            raise MemoryError("2 GiB more than there is")
        if 99 in items:
            raise ValueError("ninety-nine")
        return [i * i for i in items]


def batcher(run: Callable[[list[int]], list[int]], **options: object) -> Batcher[int, int]:
    return Batcher(run, name="squares", **options)  # type: ignore[arg-type]


def ask(made: Batcher[int, int], items: list[int]) -> list[int | Exception]:
    """Each item from a thread of its own."""

    def one(item: int) -> int | Exception:
        try:
            return made(item)
        except (ToolError, ValueError, RuntimeError) as error:
            return error

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(one, items))


def test_calls_of_one_moment_share_a_batch_and_each_gets_its_own_result() -> None:
    run = Squares()
    made = batcher(run, max_batch=8, window_s=30)
    assert ask(made, list(range(8))) == [i * i for i in range(8)]
    assert len(run.batches) == 1


def test_items_with_different_keys_never_share_a_batch() -> None:
    run = Squares()
    made = batcher(run, key=lambda i: i % 2, window_s=0.2)
    assert made.map(range(6)) == [0, 1, 4, 9, 16, 25]
    assert sorted(map(sorted, run.batches)) == [[0, 2, 4], [1, 3, 5]]


def test_a_batch_that_does_not_fit_is_split_until_it_does() -> None:
    run = Squares(fits=2)
    made = batcher(run, window_s=0.2)
    assert made.map(range(8)) == [i * i for i in range(8)]
    # 8 → 4 → 2 + 2, and again for the other half.
    assert [len(b) for b in run.batches] == [8, 4, 2, 2, 4, 2, 2]


def test_an_item_that_does_not_fit_alone_is_its_own_callers_error() -> None:
    made = batcher(Squares(), window_s=0.2)
    given = ask(made, [2, -1, 3])
    assert (given[0], given[2]) == (4, 9)
    assert isinstance(given[1], ToolError)
    assert "squares ran out of memory on this picture alone (2 GiB more than there is)" in str(given[1])
    # So is any other exception: it reaches nobody else.
    given = ask(made, [2, 99, 3])
    assert (given[0], given[2]) == (4, 9)
    assert isinstance(given[1], ValueError)
    # The worker lives on.
    assert made(5) == 25
