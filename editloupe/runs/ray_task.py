"""What runs on a Ray cluster: each `Answerer` answers questions, and the one `Gate` owns what all of them share.

An answerer opens the run's setup once. Before each call of a task, and each attempt, it asks the gate, and
tells it afterwards what came of it. So there is one ledger for the run, and one limit, one patience and one first call for
each endpoint. What the gate granted to a task that was lost is given back.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, cast

import cv2

from editloupe.backends import langsmith
from editloupe.backends.base import LMM
from editloupe.backends.limits import ConnectionLimit, FirstCall, Seen, limit_of, stand_in
from editloupe.backends.prices import Prices
from editloupe.backends.stopping import sleep, stopping
from editloupe.chat import Usage
from editloupe.config import RunConfig
from editloupe.cores import use_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.errors import BackendError, ConfigError, EditLoupeError, Interrupted, RateLimited, Unavailable
from editloupe.findings import Finding
from editloupe.runs.budget import Ledger, Metered, RunBudget
from editloupe.runs.differences import RunSpec
from editloupe.runs.setup import Setup, open_setup, weights_of
from editloupe.runs.worker import Worker, tool_cache_of
from editloupe.tools.cache import ToolCache
from editloupe.values import Json
from editloupe.version import VERSION

ENDED: Final = "the run has ended; this task goes on from here next time"
_NOTHING: Final = "", "", ()
"""For the ledger."""


def named(backend: LMM) -> LMM:
    """Return what the ledger must know of a backend, as a value that crosses to the gate: a stranger's object may not."""
    traits = replace(backend.traits, image_tokens=None)
    kept = SimpleNamespace(uri=backend.uri, endpoint=backend.endpoint, version=backend.version, traits=traits)
    return cast(LMM, kept)


class Gate:
    """Grants the calls of a run and counts them. Ray calls each method in a thread of its own.

    connections: endpoint → how many at once; None learns it.
    """

    def __init__(
        self, budget: RunBudget, prices: Prices, backends: Sequence[LMM], connections: Mapping[str, int | None]
    ) -> None:
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._ledger = Ledger(budget=budget, prices=prices, stop=self._stop)
        self._backends = {backend.uri: backend for backend in backends}
        self._first = {backend.uri: FirstCall() for backend in backends}
        # Who holds something → what ends it; None for one that is gone.
        self._held: dict[str, list[AbstractContextManager[None]] | None] = {}
        for endpoint, count in connections.items():
            if count is not None:
                limit_of(endpoint).fix(count)

    def look(self, *, stop: bool) -> tuple[dict[str, Any], dict[str, Seen]]:
        """Return what was spent, and what the endpoints take.   stop: whether the run is to stop."""
        if stop:
            self._stop.set()
        return self._ledger.counted(), {one.endpoint: limit_of(one.endpoint).seen() for one in self._backends.values()}

    def grant(self, holder: str, uri: str) -> bool:
        """Wait until a call is granted. Return whether the backend has answered before. Raises what `Ledger.call` does."""
        self._hold(holder, self._granted(self._backends[uri]))
        return self._first[uri].answered

    def connect(self, holder: str, endpoint: str, patience_s: float) -> None:
        """Wait for a connection to an endpoint. Raises Interrupted."""
        self._hold(holder, limit_of(endpoint).call(patience_s=patience_s))

    def again(self, endpoint: str) -> None:
        """Take note that a call is made again."""
        limit_of(endpoint).again()

    def trouble_s(self, endpoint: str) -> float:
        """Return for how long the endpoint has answered nobody: clocks of two machines tell different times."""
        now = time.monotonic()
        return now - limit_of(endpoint).trouble_since(now)

    def leave(self, holder: str, error: Exception | None, counted: tuple[str, str, Any]) -> None:
        """Give back what was granted last.

        error: how it failed.   counted: a method of the ledger that takes note of it first, the backend, and what it takes.
        """
        method, uri, given = counted
        if method:
            getattr(self._ledger, method)(self._backends[uri], *given)
        with self._lock:
            held = self._held.get(holder)
            last = held.pop() if held else None
        if last is not None:
            last.__exit__(type(error) if error else None, error, None)

    def end(self, holder: str) -> None:
        """Give back all that a lost task held."""
        with self._lock:
            held, self._held[holder] = self._held.get(holder), None
        for manager in reversed(held or []):
            manager.__exit__(Interrupted, Interrupted(ENDED), None)

    @contextmanager
    def _granted(self, backend: LMM) -> Iterator[None]:
        with self._ledger.call(backend), self._first[backend.uri].turn(), limit_of(backend.endpoint).asking():
            yield

    def _hold(self, holder: str, manager: AbstractContextManager[None]) -> None:
        with stopping(self._stop):
            manager.__enter__()
        with self._lock:
            if (held := self._held.setdefault(holder, [])) is not None:
                return held.append(manager)
        # It was lost while it waited.
        manager.__exit__(Interrupted, lost := Interrupted(ENDED), None)
        raise lost


def told(setup: Setup, mark: Path, *, tools: bool) -> dict[str, Any]:
    """Return what a process must know of a run.

    mark: a file in the run folder, of the gate's name.   tools: whether tasks may call them.
    """
    return {
        "editloupe": VERSION,
        "folder": str(Path.cwd()),
        "mark": str(mark),
        "config": setup.config.model_dump(mode="json"),
        "protocols": {role: one.spec.tool_protocol for role, one in setup.respondents.items()},
        "identity": _identity(setup),
        "tools": tools,
    }


Raised: TypeAlias = tuple[type[EditLoupeError], str]
"""What was raised: kind and message."""


class Answerer:
    """A process of the cluster, which answers several tasks at once. Ray calls each method in a thread of its own.

    told: of the function of this name.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        import ray

        # By its name: a handle among the arguments is nothing by which Ray promises to start the process again.
        self._gate = ray.get_actor(Path(told["mark"]).name)
        self._told, self._lock, self._stop = told, threading.Lock(), threading.Event()
        self._worker: Worker | None = None
        self._here = threading.local()
        """`holder`: names the thread's task to the gate.   `told`: what the gate may not have heard yet.   `counted`: what
        the ledger is to know of the call that ends next."""

    def open(self) -> Raised | None:
        """Open the run's setup. Return what hinders it."""
        try:
            self._opened()
        except EditLoupeError as error:
            return type(error), str(error)
        return None

    def stop(self) -> None:
        """Let tasks end where they wait; calls under way are finished."""
        self._stop.set()

    def run_task(self, holder: str, job: bytes) -> tuple[Finding | Raised, tuple[int, int]]:
        """Answer one task. Return its finding, or what it raised; and how many calls of tools ran, and had equal ones.

        holder: names this attempt to the gate.   job: the pickled task, repeat and sample.
        """
        self._here.holder, self._here.told, self._here.counted = holder, [], _NOTHING
        task, repeat, sample = pickle.loads(job)
        try:
            worker = self._opened()
            assert worker.run is not None
            cache = ToolCache(tool_cache_of(worker.run), device=weights_of(worker.setup.config).device, shared=True)
            worker = replace(worker, samples={} if sample is None else {sample.key: sample}, cache=cache)
            finding = worker.run_task(task, repeat=repeat)
            self._heard()
        except EditLoupeError as error:
            return (type(error), str(error)), (0, 0)
        if worker.setup.config.langsmith:
            langsmith.flush()  # nobody says when the process ends
        return finding, (cache.ran, cache.hits)

    def ask(self, method: str, *given: Any) -> Any:
        """Ask the gate. Raises what it does, and Interrupted where it is gone."""
        self._heard()
        return self._got(getattr(self._gate, method).remote(*given))

    @contextmanager
    def held(self, method: str, *given: Any) -> Iterator[Any]:
        """Hold what a method of the gate grants to this thread's task."""
        granted = self.ask(method, self._here.holder, *given)
        ended: Exception | None = Interrupted(ENDED)
        try:
            yield granted
            ended = None
        except BackendError as error:
            ended = _plain(error)
            raise
        finally:
            counted, self._here.counted = self._here.counted, _NOTHING
            # Nobody waits until the gate has heard: a reply is then recorded at once.
            self._here.told.append(self._gate.leave.remote(self._here.holder, ended, counted))
            if ended is not None:
                self._heard()

    def count(self, method: str, uri: str, *given: Any) -> None:
        """Let a method of the ledger take note of the call under way when it ends."""
        self._here.counted = method, uri, given

    def _heard(self) -> None:
        told, self._here.told = self._here.told, []
        self._got(told)

    def _got(self, asked: Any) -> Any:
        import ray

        try:
            return ray.get(asked)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError:
            raise Interrupted(ENDED) from None

    def _opened(self) -> Worker:
        with self._lock:
            if self._worker is None:
                setup, run = _opened(self._told), Path(self._told["mark"]).parent.parent
                # Ray has reserved one for it.
                use_cores(1)
                cv2.setNumThreads(1)
                for one in setup.respondents.values():
                    stand_in(one.backend.endpoint, _Connections(one.backend.endpoint, self))
                setup = setup.with_backends(lambda backend: Metered(backend, cast(Ledger, _Grants(self))))
                images = ImageStore(run / "blobs", cache_bytes=CACHE_BYTES // 4)
                self._worker = Worker(setup=setup, images=images, run=run, stop=self._stop)
            return self._worker


def _opened(told: Mapping[str, Any]) -> Setup:
    """Return the run's setup. Raises ConfigError that says what is not as it is where the run was started."""
    where = f"on {socket.gethostname()}"
    if (theirs := told["editloupe"]) != (ours := VERSION):
        raise ConfigError(f"{where} editloupe is {ours}, and {theirs} where the run was started; install the same version")
    config = RunConfig.model_validate(told["config"])
    for path in map(Path, filter(None, (told["folder"], told["mark"], config.path, *config.edited.values()))):
        if not (Path(told["folder"]) / path).exists():
            raise ConfigError(f"{where} there is no {path}; the working folder, the data and --out must be shared by all")
    os.chdir(told["folder"])
    setup = open_setup(config)
    settled = {
        role: replace(one, spec=replace(one.spec, tool_protocol=told["protocols"][role]))
        for role, one in setup.respondents.items()
    }
    setup = replace(setup, respondents=settled)
    if differing := RunSpec(identity=_identity(setup)).differs_from(RunSpec(identity=told["identity"])):
        said = "; ".join(f"{name} is {ours!r} here and {theirs!r} there" for name, ours, theirs in differing)
        raise ConfigError(f"{where} it is not as it is where the run was started: {said}")
    if told["tools"]:
        setup.toolbox.prepare()
    return setup


def _identity(setup: Setup) -> dict[str, Json]:
    """Return what must be the same in all processes of a run."""
    judges = {role: one.spec.to_json() for role, one in setup.respondents.items()}
    found: dict[str, Json] = json.loads(json.dumps({**setup.spec.identity, "judges": judges}))
    return found


class _Grants:
    """The gate's ledger, as an answerer sees it."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    @contextmanager
    def call(self, backend: LMM) -> Iterator[None]:
        with self._answerer.held("grant", backend.uri) as answered:
            # A process that is new must not take an endpoint for one that has never answered.
            if answered and (known := getattr(backend, "has_answered", None)) is not None:
                known()
            yield

    def spend(self, backend: LMM, usage: Usage, guess: Usage | None) -> None:
        self._answerer.count("spend", backend.uri, usage, guess)

    def refuse(self, backend: LMM, error: BackendError) -> None:
        self._answerer.count("refuse", backend.uri, _plain(error))


class _Connections(ConnectionLimit):
    """The gate's limit of an endpoint's connections, as an answerer sees it. Who is granted a call asks (`asking`)."""

    def __init__(self, endpoint: str, answerer: Answerer) -> None:
        super().__init__()
        self._endpoint, self._answerer = endpoint, answerer

    def again(self) -> None:
        self._answerer.ask("again", self._endpoint)

    def trouble_since(self, now: float) -> float:
        return now - float(self._answerer.ask("trouble_s", self._endpoint))

    @contextmanager
    def call(
        self,
        clock: Callable[[], float] | None = None,
        wait: Callable[[float], None] = sleep,
        *,
        patience_s: float = math.inf,
    ) -> Iterator[None]:
        with self._answerer.held("connect", self._endpoint, patience_s):
            yield


def _plain(error: BackendError) -> BackendError:
    """Return the same failure as an error that any process can read: a stranger's subclass may be one that none can."""
    kind = next((kind for kind in (RateLimited, Unavailable) if isinstance(error, kind)), BackendError)
    given = {name: getattr(error, name) for name in ("status", "retry_after_s", "for_all", "lost", "how")}
    return kind(str(error), **given)
