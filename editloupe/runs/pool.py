"""CPU work in processes: calls of tools and measures that compute, as pure functions of pictures and arguments.

Only the call crosses; the cache, the numbers of crops and the trace stay in the parent. Pictures go by their digests
through the run's folder of blobs, and as the bytes of their files where they lie in no folder. What cannot be pickled or
holds a network is called in a thread of the parent.
"""

from __future__ import annotations

import io
import pickle
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from queue import LifoQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from editloupe.cores import computing, usable_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.errors import EditLoupeError, MeasureError, ProcessLost
from editloupe.findings import Observation
from editloupe.measures.base import Measured, Models, measured, open_measure
from editloupe.runs.processes import GRACE_S, OneProcess
from editloupe.tools.base import Tool, Toolbox, ToolContext
from editloupe.values import ImageRef, Json, View

if TYPE_CHECKING:
    # Its models take a tenth of a second, which each new process would wait for.
    from editloupe.config import RunConfig

_AFTER_S: Final = 1.0
"""Seconds of work in threads before the command line starts processes unasked: as long as their start takes."""
_LARGEST: Final = 2**16
"""Bytes of a pickled tool. A larger one holds weights."""


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
        self._all = [OneProcess() for _ in range(processes)]
        self._free: LifoQueue[OneProcess] = LifoQueue()
        for process in self._all:
            self._free.put(process)
        self._left_s, self._share = after_s, CACHE_BYTES // processes
        self._tools: dict[int, tuple[Tool, Tool]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for process in self._all:
            process.begin_end()
        until = time.monotonic() + GRACE_S
        for process in self._all:
            process.end_by(until)

    def tools(self, box: Toolbox) -> Toolbox:
        """Return the same tools, those that compute called in processes where they can be."""
        return replace(box, tools={name: self._crossing(tool) for name, tool in box.tools.items()})

    def _crossing(self, tool: Tool) -> Tool:
        with self._lock:
            if id(tool) not in self._tools:
                crosses = getattr(tool, "computes", False) and _portable((tool, tool.Args))
                self._tools[id(tool)] = tool, cast(Tool, _Crossing(tool, self)) if crosses else tool
            return self._tools[id(tool)][1]

    def measured(
        self, name: str, args: Mapping[str, Json], views: Mapping[str, View], images: ImageStore, models: Models
    ) -> Measured:
        """Return what a measure says of these images. Raises as `measures.base.measured`, and ImageError."""
        measure = open_measure(name)
        call = partial(measured_here, name, dict(args), dict(views), images)
        if measure.needs or getattr(measure, "kind", "measure") != "measure" or not _portable(measure):
            return measured_here(name, args, views, images, models)
        try:
            return cast(Measured, self.run(f"the measure {name}", call, images))
        except ProcessLost as lost:
            raise MeasureError(str(lost), status="tool_failed") from lost

    def run(self, what: str, call: partial[Any], images: ImageStore) -> Any:
        """Return what the call returns, and raise what it raises.

        images: the one store among its arguments.   what: names the call in messages.
        Raises ProcessLost where its process dies twice.
        """
        if self._left_s > 0:
            began = time.monotonic()
            with computing():
                value = call()
            self._left_s -= time.monotonic() - began
            return value
        sent, named = written(call)
        folder = images.folder if images.writes else None
        pictures = {ref.sha256: images.data(ref) for ref in named if folder is None or images.path(ref) is None}
        if folder is None:
            # A view may name the picture that it hides.
            pictures |= images.in_memory()
        process = self._free.get()
        try:
            answer = process.call(what, _answered, sent, folder, pictures, self._share)
        finally:
            self._free.put(process)
        outcome, made = pickle.loads(answer)
        for data in made:
            images.add_bytes(data)
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


# In the process


@cache
def _store(folder: Path, cache_bytes: int) -> ImageStore:
    """Return the store of a folder, with the images that it has decoded: the next call is often about the same pair."""
    return ImageStore(folder, cache_bytes=cache_bytes)


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


def _answered(sent: bytes, folder: Path | None, pictures: Mapping[str, bytes], cache_bytes: int) -> bytes:
    """Return what a call returns or raises, and the files of the pictures that it made where there is no folder."""
    images = ImageStore(folder) if folder is None or pictures else _store(folder, cache_bytes)
    for data in pictures.values():
        images.add_bytes(data)
    try:
        outcome = _Reader(sent, images).load()()
    except Exception as error:  # noqa: BLE001 - it is raised in the parent
        outcome = Raised.of(error)
    return written((outcome, [data for sha256, data in images.in_memory().items() if sha256 not in pictures]))[0]
