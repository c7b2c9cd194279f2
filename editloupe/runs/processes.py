"""One process that computes: started with its first call, replaced when it dies, and gone with its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Final

import cv2

from editloupe.backends.stopping import check_stop
from editloupe.errors import Interrupted, ProcessLost

_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
"""What a terminal and a service manager send to all processes of a run. The parent ends the others."""
GRACE_S: Final = 1.0
"""Seconds that a call under way has once a run ends."""
_starting: Final = threading.Lock()


class OneProcess:
    """A process for one caller at a time. Its calls are functions of a module, with arguments that can be pickled."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._context = _Context()
        self._closed = False
        self._changing = threading.Lock()
        """Held while the process is started, replaced or given up: none is started behind the end."""

    def call(self, what: str, function: Callable[..., bytes], *given: Any) -> bytes:
        """Return what the function returns there. A call whose process dies is made once more, in a new process.

        what: names the call in messages.   Raises ProcessLost where the new process dies too, Interrupted once the run is
        to stop, and what the function raises.
        """
        for again in (False, True):
            check_stop()
            with self._changing:
                called = self._started().submit(function, *given)
            try:
                return called.result()
            except (BrokenProcessPool, CancelledError):
                with self._changing:
                    if self._closed:
                        raise Interrupted("the run has ended") from None
                    code = self._end()
            if again:
                raise ProcessLost(f"the process that ran {what} {_words(code)}")
        raise AssertionError

    def begin_end(self) -> None:
        """Take no further call, and let the process end with the one that it is at."""
        with self._changing:
            self._closed = True
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    def end_by(self, until: float) -> None:
        """End the process at that time at the latest.   until: as `time.monotonic` tells it."""
        if self._pool is not None:
            for process in self._context.processes:
                process.join(max(0.0, until - time.monotonic()))
                process.kill()
            self._pool.shutdown()

    def _started(self) -> ProcessPoolExecutor:
        if self._closed:
            raise Interrupted("the run has ended")
        if self._pool is not None and not all(process.is_alive() for process in self._context.processes):
            # It died between two calls: none is lost.
            self._end()
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=self._context, initializer=_begin)
        return self._pool

    def _end(self) -> int | None:
        """Clear away a process that died, and return its exit code."""
        if self._pool is not None:
            # Waits for the thread that collects the exit code.
            self._pool.shutdown()
        code = next((process.exitcode for process in self._context.processes), None)
        self._pool, self._context = None, _Context()
        return code


def _words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed (exit code {code}, perhaps out of memory)"
    return f"ended with exit code {code}"


class _Process(SpawnProcess):
    """A process that does not run the parent's script, and that no signal of a terminal ends while it starts."""

    def start(self) -> None:
        """Start it."""
        with _starting:
            main = sys.modules["__main__"]
            # Spawning imports the script anew. One without a guard would judge a second time, and pay for it.
            sys.modules["__main__"] = ModuleType("__main__")
            # A child inherits what its parent's thread blocks.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                sys.modules["__main__"] = main


class _Context(SpawnContext):
    """Makes the processes, and knows them: an executor does not tell the exit code of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[_Process] = []

    def Process(self, *given: Any, **named: Any) -> _Process:  # type: ignore[override] # noqa: N802 - as the executor calls it
        self.processes.append(_Process(*given, **named))
        return self.processes[-1]


def _begin() -> None:
    """Prepare the new process: it ends with its parent alone, and computes on one core."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cv2.setNumThreads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
