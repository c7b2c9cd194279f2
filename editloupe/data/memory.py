"""What was made last, so that equal calls share their work."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Memory(Generic[Made]):
    """Values by key, up to `most` bytes; the last one is kept in any case. One thread makes a value, others wait for it.

    size: returns the bytes of a value.
    """

    def __init__(self, most: int, size: Callable[[Made], int]) -> None:
        self.most, self._size = most, size
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._kept: OrderedDict[Hashable, Made] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the value of a key, which is made where it is not kept."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._kept:
                    self._making.pop(key, None)
                    self._kept.move_to_end(key)
                    return self._kept[key]
            made = make()
            with self._lock:
                self._making.pop(key, None)
                self._kept[key] = made
                self._bytes += self._size(made)
                while len(self._kept) > 1 and self._bytes > self.most:
                    self._bytes -= self._size(self._kept.popitem(last=False)[1])
            return made
