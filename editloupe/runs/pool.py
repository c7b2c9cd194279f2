"""CPU work in processes: calls of tools and measures that compute, as pure functions of pictures and arguments.

Only the call crosses; the cache, the numbers of crops and the trace stay in the parent. Pictures go by their digests
through a folder, the run's or one of the pool. What cannot be pickled or holds a network is called in a thread.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from queue import LifoQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import cv2

from editloupe.backends.stopping import check_stop
from editloupe.cores import computing, usable_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.errors import EditLoupeError, ImageError, Interrupted, MeasureError, ProcessLost
from editloupe.findings import Observation
from editloupe.measures.base import Measured, Models, measured, open_measure
from editloupe.tools.base import Tool, Toolbox, ToolContext
from editloupe.values import ImageRef, Json, View

if TYPE_CHECKING:
    # Its models take a tenth of a second, which each new process would wait for.
    from editloupe.config import RunConfig

_AFTER_S: Final = 1.0
"""Seconds of work in threads before the command line starts processes unasked: as long as their start takes."""
_LARGEST: Final = 2**16
"""Bytes of a pickled tool. A larger one holds weights."""
_GRACE_S: Final = 1.0
"""Seconds that a call under way has once a run ends."""
_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
"""What a terminal and a service manager send to all processes of a run. The parent ends the others."""


def pool_of(config: RunConfig, *, unasked: bool = False) -> Pool | None:
    """Return the pool for a run; None for threads alone.

    unasked: whether processes are started without the config's `processes`, by a run that has work for them.
    """
    count = config.processes or (usable_cores() if unasked else 1)
    if count == 1 or config.executor == "ray":
        return None
    return Pool(count, after_s=0.0 if config.processes else _AFTER_S)


class Pool:
    """Processes for what computes. Called from any thread; close it in the end.

    after_s: seconds of work that is done in threads before the first process starts.
    """

    def __init__(self, processes: int, *, after_s: float = 0.0) -> None:
        self._all = [_OneProcess() for _ in range(processes)]
        self._free: LifoQueue[_OneProcess] = LifoQueue()
        for process in self._all:
            self._free.put(process)
        self._left_s, self._share = after_s, CACHE_BYTES // processes

    @cached_property
    def folder(self) -> Path:
        """Where pictures may lie that no run keeps; it goes with the pool."""
        return Path(tempfile.mkdtemp(prefix="editloupe-"))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for process in self._all:
            process.begin_end()
        until = time.monotonic() + _GRACE_S
        for process in self._all:
            process.end_by(until)
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)

    def tools(self, box: Toolbox) -> Toolbox:
        """Return the same tools, those that compute called in processes where they can be."""
        crossing = {
            name: cast(Tool, _Crossing(tool, self))
            for name, tool in box.tools.items()
            if getattr(tool, "computes", False) and _portable((tool, tool.Args))
        }
        return replace(box, tools={**box.tools, **crossing})

    def measured(
        self, name: str, args: Mapping[str, Json], views: Mapping[str, View], images: ImageStore, models: Models
    ) -> Measured:
        """Return what a measure says of these images. Raises as `measures.base.measured`, and ImageError."""
        measure = open_measure(name)
        if measure.needs or getattr(measure, "kind", "measure") != "measure" or not _portable(measure):
            return measured_here(name, args, views, images, models)
        call = partial(measured_here, name, dict(args), dict(views), images)
        try:
            return cast(Measured, self.run(f"the measure {name}", call, images))
        except ProcessLost as lost:
            raise MeasureError(str(lost), status="tool_failed") from lost

    def run(self, what: str, call: partial[Any], images: ImageStore) -> Any:
        """Return what the call returns, and raise what it raises.

        images: the one store among its arguments; without a folder, the call is made here.   what: names it in messages.
        Raises ProcessLost where its process dies twice.
        """
        if self._left_s > 0 or images.folder is None or not images.writes:
            began = time.monotonic()
            with computing():
                value = call()
            self._left_s -= time.monotonic() - began
            return value
        sent, named = written(call)
        keep_all(images, named)
        process = self._free.get()
        try:
            outcome = pickle.loads(process.call(what, sent, images.folder, self._share))
        finally:
            self._free.put(process)
        if isinstance(outcome, Raised):
            raise outcome.made()
        return outcome


class _Crossing:
    """A tool that is called in a process. The thread that calls it waits, and holds no core."""

    computes: ClassVar[bool] = False

    def __init__(self, tool: Tool, pool: Pool) -> None:
        self._tool, self._pool = tool, pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        found: Observation = self._pool.run(self._tool.name, partial(self._tool, args, context), context.images)
        return found


def measured_here(
    name: str, args: Mapping[str, Json], views: Mapping[str, View], images: ImageStore, models: Models | None = None
) -> Measured:
    """Return what a measure says of these images, in this process. Raises as `measures.base.measured`, and ImageError."""
    return measured(name, args, {alias: images.array(view.image) for alias, view in views.items()}, models)


def _portable(thing: object) -> bool:
    """Return whether another process can be given a thing: locks, lambdas and what a notebook defines cannot."""
    try:
        data = pickle.dumps(thing)
    except Exception:  # noqa: BLE001 - whatever a stranger's class raises, it stays here
        return False
    return len(data) <= _LARGEST and b"__main__" not in data


# What crosses


class _ImageFreePickler(pickle.Pickler):
    """Leaves out the image store, since each process has its own, and notes which images are named."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.named: set[ImageRef] = set()

    def persistent_id(self, thing: object) -> str | None:
        return "images" if isinstance(thing, ImageStore) else None

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, ImageRef):
            return NotImplemented
        self.named.add(thing)
        # What reads an image's bytes may be a lambda.
        return (thing if thing.data is None else replace(thing, data=None)).__reduce_ex__(pickle.HIGHEST_PROTOCOL)


class _Reader(pickle.Unpickler):
    """Puts this process's store in its place."""

    def __init__(self, data: bytes, images: ImageStore) -> None:
        super().__init__(io.BytesIO(data))
        self._images = images

    def persistent_load(self, pid: object) -> ImageStore:
        return self._images


def written(thing: object) -> tuple[bytes, set[ImageRef]]:
    """Return a thing pickled, and the images that it names, whose bytes are left out."""
    writer = _ImageFreePickler(file := io.BytesIO())
    writer.dump(thing)
    return file.getvalue(), writer.named


def keep_all(images: ImageStore, named: Iterable[ImageRef]) -> None:
    """Put pictures into the folder from which another process reads them. What is gone is missed there."""
    for ref in named:
        with suppress(ImageError):
            images.keep(ref)


@dataclass(frozen=True, kw_only=True)
class Raised:
    """What a call raised, as a value that any process can read: a stranger's class may be one that none can."""

    kind: type[EditLoupeError] | str
    """The nearest kind of error of ours; the name of its class for any other error."""
    text: str
    state: Mapping[str, Any]
    """What an error of ours says beside its text, such as a status."""
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Raised:
        """Return an error as a value."""
        ours = next((kind for kind in type(error).__mro__ if kind.__module__ == EditLoupeError.__module__), None)
        state = {name: value for name, value in vars(error).items() if isinstance(value, bool | int | float | str | None)}
        trace = "".join(traceback.format_exception(error))
        return cls(kind=ours or type(error).__name__, text=str(error), state=state if ours else {}, trace=trace)

    def made(self) -> Exception:
        """Return the error to raise."""
        if isinstance(self.kind, str):
            other: Exception = type(self.kind, (Exception,), {})(self.text)
            other.add_note(self.trace)
            return other
        error = self.kind.__new__(self.kind, self.text)
        vars(error).update(self.state)
        return error


# Processes


class _OneProcess:
    """A process for one caller at a time: started with its first call, replaced when it dies, gone with its parent."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._context = _Context()
        self._closed = False
        self._changing = threading.Lock()
        """Held while the process is started, replaced or given up: none is started behind the end."""

    def call(self, what: str, *given: Any) -> bytes:
        """Return what `_answered` returns there. A call whose process dies is made once more, in a new process.

        Raises ProcessLost where that dies too, and Interrupted once the run is to stop.
        """
        code = None
        for _ in range(2):
            check_stop()
            with self._changing:
                if self._pool is not None and not all(process.is_alive() for process in self._context.processes):
                    self._end()  # it died between two calls: none is lost
                if self._closed:
                    raise Interrupted("the run has ended")
                self._pool = self._pool or ProcessPoolExecutor(1, mp_context=self._context, initializer=_begin)
                called = self._pool.submit(_answered, *given)
            try:
                return called.result()
            except (BrokenProcessPool, CancelledError):
                with self._changing:
                    if self._closed:
                        raise Interrupted("the run has ended") from None
                    code = self._end()
        killed = code is not None and code < 0
        died = f"was killed (exit code {code}, perhaps out of memory)" if killed else f"ended with exit code {code}"
        raise ProcessLost(f"the process that ran {what} {died}")

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

    def _end(self) -> int | None:
        """Clear away a process that died, and return its exit code."""
        if self._pool is not None:
            # Waits for the thread that collects the exit code.
            self._pool.shutdown()
        code = next((process.exitcode for process in self._context.processes), None)
        self._pool, self._context = None, _Context()
        return code


class _Process(SpawnProcess):
    """A process that does not run the parent's script, and that no signal of a terminal ends while it starts."""

    starting: ClassVar[threading.Lock] = threading.Lock()

    def start(self) -> None:
        """Start it."""
        with self.starting:
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


@cache
def _store(folder: Path, cache_bytes: int) -> ImageStore:
    """Return the store of a folder, with the images that it has decoded: the next call is often about the same pair."""
    return ImageStore(folder, cache_bytes=cache_bytes)


def _answered(sent: bytes, folder: Path, cache_bytes: int) -> bytes:
    """Return what a call returns or raises."""
    try:
        outcome = _Reader(sent, _store(folder, cache_bytes)).load()()
    except Exception as error:  # noqa: BLE001 - it is raised in the parent
        outcome = Raised.of(error)
    return written(outcome)[0]
