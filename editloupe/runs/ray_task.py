"""What runs on a Ray cluster: each `Answerer` answers questions, and the one `Gate` asks the endpoints for all of them.

So there is one ledger for the run, and one limit, one patience and one first call for each endpoint; and a reply that came
for a process that was lost is there for the next one. A model that computes in process does so in the answerer; the gate
counts its calls.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import cv2

from editloupe.backends import langsmith
from editloupe.backends.base import LMM
from editloupe.backends.limits import Seen, limit_of
from editloupe.backends.prices import Prices
from editloupe.backends.stopping import stopping
from editloupe.chat import Reply, Request
from editloupe.config import RunConfig
from editloupe.cores import use_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.errors import BackendError, ConfigError, EditLoupeError, Interrupted
from editloupe.findings import Finding
from editloupe.runs.budget import Ledger, Metered, RunBudget
from editloupe.runs.differences import RunSpec
from editloupe.runs.pool import Raised, written
from editloupe.runs.setup import Setup, open_setup, weights_of
from editloupe.runs.worker import Worker, tool_cache_of
from editloupe.tools.cache import ToolCache
from editloupe.values import Json
from editloupe.version import VERSION

ENDED: Final = "the run has ended; this task goes on from here next time"


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


class Gate:
    """Asks the endpoints of a run, and counts what that takes. Ray calls each method in a thread of its own.

    told: of the function of this name.
    """

    def __init__(self, told: Mapping[str, Any], budget: RunBudget, prices: Prices) -> None:
        self._told, self._stop, self._lock = told, threading.Event(), threading.Lock()
        self._ledger = Ledger(budget=budget, prices=prices, stop=self._stop)
        self._last: dict[str, tuple[str, Future[Reply | Raised]]] = {}
        """Task → its last request and the reply, which is there for a process that takes over the task."""

    def open(self) -> Raised | None:
        """Open the run's setup. Return what hinders it."""
        try:
            setup = _opened({**self._told, "tools": False})
        except EditLoupeError as error:
            return Raised.of(error)
        self._images, self._limit = ImageStore(_run_of(self._told) / "blobs"), limit_of(setup.backend.endpoint)
        self._backends = {role: Metered(one.backend, self._ledger) for role, one in setup.respondents.items()}
        if setup.config.max_connections is not None:
            self._limit.fix(setup.config.max_connections)
        return None

    def look(self, *, stop: bool) -> tuple[dict[str, Any], Seen]:
        """Return what was spent, and what the judge's endpoint takes.   stop: whether the run is to stop."""
        if stop:
            self._stop.set()
        return self._ledger.counted(), self._limit.seen()

    def complete(self, task: str, role: str, sent: bytes) -> Reply | Raised:
        """Return the reply to a pickled request of a task, or what was raised instead."""
        request: Request = pickle.loads(sent)
        key, reply = request.key(), Future[Reply | Raised]()
        with self._lock:
            before = self._last.get(task)
            if again := before is not None and before[0] == key:
                reply = before[1]
            self._last[task] = key, reply
        if not again:
            try:
                with stopping(self._stop):
                    reply.set_result(self._backends[role].complete(request, self._images))
            except Exception as error:  # noqa: BLE001 - it is raised where the question is answered
                reply.set_result(Raised.of(error))
        return reply.result()

    def ended(self, task: str) -> None:
        """Forget a task."""
        with self._lock:
            self._last.pop(task, None)

    def count(self, role: str, sent: bytes, reply: Reply | Raised) -> None:
        """Take note of a call that an answerer made itself."""
        if isinstance(reply, Reply):
            self._backends[role].count(pickle.loads(sent), reply)
        elif isinstance(error := reply.made(), BackendError):
            self._backends[role].refuse(error)


class Answerer:
    """A process of the cluster, which answers several tasks at once. Ray calls each method in a thread of its own.

    told: of the function of this name.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        import ray

        # By its name: a handle among the arguments is nothing by which Ray promises to start the process again.
        self._gate = ray.get_actor(Path(told["mark"]).name)
        self._told, self._lock, self._stop = told, threading.Lock(), threading.Event()
        self._worker: Worker | None = None
        self._here = threading.local()
        """`task`: names the thread's task to the gate."""

    def open(self) -> Raised | None:
        """Open the run's setup. Return what hinders it."""
        try:
            self._opened()
        except EditLoupeError as error:
            return Raised.of(error)
        return None

    def stop(self) -> None:
        """Let tasks end where they wait; calls under way are finished."""
        self._stop.set()

    def run_task(self, name: str, job: bytes) -> tuple[Finding | Raised, tuple[int, int]]:
        """Answer one task. Return its finding, or what it raised; and how many calls of tools ran, and had equal ones.

        name: names the task to the gate.   job: the pickled task, repeat and sample.
        """
        self._here.task = name
        task, repeat, sample = pickle.loads(job)
        try:
            worker = self._opened()
            assert worker.run is not None
            cache = ToolCache(tool_cache_of(worker.run), device=weights_of(worker.setup.config).device)
            worker = replace(worker, samples={} if sample is None else {sample.key: sample}, cache=cache)
            finding = worker.run_task(task, repeat=repeat)
        except EditLoupeError as error:
            return Raised.of(error), (0, 0)
        if worker.setup.config.langsmith:
            langsmith.flush()  # nobody says when the process ends
        return finding, (cache.ran, cache.hits)

    def _opened(self) -> Worker:
        with self._lock:
            if self._worker is None:
                setup, run = _opened(self._told), _run_of(self._told)
                # Ray has reserved one for it.
                use_cores(1)
                cv2.setNumThreads(1)
                respondents = {
                    role: replace(one, backend=_Asked(role, one.backend, self._gate, self._here))
                    for role, one in setup.respondents.items()
                }
                images = ImageStore(run / "blobs", cache_bytes=CACHE_BYTES // 4)
                setup = replace(setup, respondents=respondents)
                self._worker = Worker(setup=setup, images=images, run=run, stop=self._stop)
            return self._worker


class _Asked:
    """A backend as an answerer has it: the gate asks it, or counts the calls of one that computes here."""

    def __init__(self, role: str, backend: LMM, gate: Any, here: threading.local) -> None:
        self._role, self._backend, self._gate, self._here = role, backend, gate, here
        self.uri, self.endpoint = backend.uri, backend.endpoint
        self.version, self.traits = backend.version, backend.traits

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the reply. Raises what the backend raises, and Interrupted where the gate is gone."""
        sent, _ = written(request)
        if self.endpoint != "in process":
            reply: Reply = _got(self._gate.complete.remote(self._here.task, self._role, sent))
            return reply
        try:
            reply = self._backend.complete(request, images)
        except BackendError as error:
            _got(self._gate.count.remote(self._role, sent, Raised.of(error)))
            raise
        _got(self._gate.count.remote(self._role, sent, reply))
        return reply


def _got(asked: Any) -> Any:
    """Return what the gate answers, and raise what it raised."""
    import ray

    try:
        found = ray.get(asked)
    except ray.exceptions.RayError:
        raise Interrupted(ENDED) from None
    if isinstance(found, Raised):
        raise found.made()
    return found


def _run_of(told: Mapping[str, Any]) -> Path:
    return Path(told["mark"]).parent.parent


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
