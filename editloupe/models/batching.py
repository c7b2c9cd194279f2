"""Networks that load once and run in micro-batches: calls that come from many samples at about the same time run as one.

`run` is any function over a list, and it raises MemoryError where the list is too long. torch is imported when called.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from editloupe.errors import ToolError
from editloupe.models.devices import Device, import_torch, open_device
from editloupe.models.weights import Weights
from editloupe.values import Json

In = TypeVar("In")
Out = TypeVar("Out")

WINDOW_S: Final = 0.01
"""Seconds that the first call of a batch waits for others."""
_MOST_WAITING: Final = 256
"""Items; a further caller waits for room."""
_NO_MEMORY: Final = re.compile(r"can't allocate memory|not enough memory|out of memory", re.IGNORECASE)
"""How torch words a refused allocation where it raises a plain RuntimeError: the CPU's allocator, then older drivers."""
_Job: TypeAlias = tuple[In, Future[Out]]
"""One item on its way, and where its caller waits."""


class Batcher(Generic[In, Out]):
    """Gathers items from many threads for `window_s`, runs them together, and gives each caller its own result or error.

    run: takes a list of items and returns as many results, in order. It is called from one thread at a time.
    key: items with different keys never share a batch, for example pictures of different sizes.
    max_batch: most items in one `run`.

    A batch that does not fit into memory is split in halves, down to one item. An item that does not fit alone is a
    ToolError of its own caller. Any other exception makes the items of the batch run one by one, so that it reaches the
    right caller. The worker is a daemon thread that starts with the first item.
    """

    def __init__(
        self,
        run: Callable[[list[In]], Sequence[Out]],
        *,
        name: str,
        key: Callable[[In], Hashable] = lambda _: None,
        max_batch: int = 8,
        window_s: float = WINDOW_S,
    ) -> None:
        self.name, self.max_batch, self.window_s = name, max_batch, window_s
        self._run, self._key = run, key
        self._queue: queue.Queue[_Job[In, Out]] = queue.Queue(_MOST_WAITING)
        self._worker: threading.Thread | None = None
        self._lock = threading.Lock()

    def __call__(self, item: In) -> Out:
        """Return the result of one item. Raises what `run` raises for it; ToolError where it does not fit into memory."""
        return self.map([item])[0]

    def map(self, items: Iterable[In]) -> list[Out]:
        """Return the results of several items, which may share batches with those of other threads.

        Raises as a call does.
        """
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name=f"batch-{self.name}", daemon=True)
                self._worker.start()
        futures: list[Future[Out]] = []
        for item in items:
            futures.append(Future())
            self._queue.put((item, futures[-1]))
        wait(futures)
        return [future.result() for future in futures]

    def _work(self) -> None:
        while True:
            jobs, until = [self._queue.get()], time.monotonic() + self.window_s
            while len(jobs) < self.max_batch:
                try:
                    jobs.append(self._queue.get(timeout=max(0.0, until - time.monotonic())))
                except queue.Empty:
                    break
            groups: dict[Hashable, list[_Job[In, Out]]] = {}
            for job in jobs:
                groups.setdefault(self._key(job[0]), []).append(job)
            for group in groups.values():
                self._answer(group)

    def _answer(self, jobs: list[_Job[In, Out]]) -> None:
        """Run one batch, in parts where it must be; every job is done afterward."""
        failed: Exception
        try:
            results = self._run([item for item, _ in jobs])
            if len(results) != len(jobs):
                raise RuntimeError(f"{self.name}: {len(jobs)} items gave {len(results)} results")
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to a caller, who raises it; the worker lives on
            failed = error
        else:
            for (_, future), result in zip(jobs, results, strict=True):
                future.set_result(result)
            return
        # Outside the handler: what the failed batch held is free before its parts are tried.
        too_large = str(failed) if isinstance(failed, MemoryError) else None
        if len(jobs) == 1:
            told = f"{self.name} ran out of memory on this picture alone ({too_large}); ask for a smaller part of the image"
            jobs[0][1].set_exception(failed if too_large is None else ToolError(told))
            return
        del failed
        step = 1 if too_large is None else (len(jobs) + 1) // 2
        for start in range(0, len(jobs), step):
            self._answer(jobs[start : start + step])


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A network in memory."""

    model: Any
    """A module of torch, on `device`."""
    device: Device


L = TypeVar("L", bound=LoadedModel)


_ONE_LOADS: Final = threading.Lock()
"""Two threads that import transformers at once can find half of it, and its log levels are the process's."""


class Network(ABC, Generic[In, Out, L]):
    """A network that loads with the first call, or by `prepare`, and runs in batches. Called from several threads.

    name: of the batcher's thread, for messages.   device: a name as `open_device` takes it.   key: as Batcher has it.
    gpu_batch: most items in a batch on a GPU. On a CPU it is 1: one item keeps every core busy, and more only take more
    memory.
    """

    def __init__(self, name: str, device: str, *, key: Callable[[In], Hashable], gpu_batch: int) -> None:
        self._device = device
        self._loading = threading.Lock()
        self._loaded: L | None = None
        self._batcher: Batcher[In, Out] = Batcher(self._fitted, name=name, key=key, max_batch=gpu_batch)

    def prepare(self) -> None:
        """Load now. Raises ConfigError where weights are damaged, unsafe or unknown, or the device is not there."""
        self._ready()

    @property
    def loaded_on(self) -> Device | None:
        """Where the network is; None before it is loaded."""
        return None if self._loaded is None else self._loaded.device

    def computed(self) -> dict[str, Json]:
        """Return device, precision and versions, for the trace. Loads the network where that has not happened."""
        return self._ready().device.facts()

    def _ready(self) -> L:
        with self._loading:
            if self._loaded is None:
                with _ONE_LOADS:
                    self._loaded = self._load(open_device(self._device))
                if self._loaded.device.name == "cpu":
                    self._batcher.max_batch = 1
            return self._loaded

    def _fitted(self, items: list[In]) -> list[Out]:
        """Run one batch. Raises MemoryError, as `Batcher` wants it, where torch runs out of memory."""
        torch, loaded = import_torch(), self._ready()
        try:
            with torch.inference_mode():
                return self._run(loaded, items)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not (isinstance(error, torch.OutOfMemoryError) or _NO_MEMORY.search(str(error))):
                raise
            message = str(error).partition("\n")[0]
        # Outside the handler, so that nothing holds the tensors of the failed attempt any longer.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise MemoryError(message)

    @abstractmethod
    def _load(self, device: Device) -> L:
        """Load the network. Raises ConfigError."""

    @abstractmethod
    def _run(self, loaded: L, items: list[In]) -> list[Out]:
        """Run one batch, without gradients."""


class SavedNetwork(Network[In, Out, L]):
    """A network from a folder that transformers saved, or from a file that it can be made of.

    title: the family's name in words.   batches: key and gpu_batch, as Network has them.
    """

    def __init__(self, weights: Weights, title: str, device: str, **batches: Any) -> None:
        self.weights = weights
        self.name = f"{title} ({weights.identity})"
        self.version = f"{weights.family} {weights.identity}"
        super().__init__(title, device, **batches)

    def computed(self) -> dict[str, Json]:
        import transformers

        return {**super().computed(), "transformers": transformers.__version__}
