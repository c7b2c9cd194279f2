"""A run's questions on a Ray cluster, for `--executor ray`.

`Cluster` is the driver's side, in one process. On the cluster, each `Answerer` is a process with a core that answers tasks
into the shared run folder, and the one `Gate`, beside the driver, asks the endpoints for all of them: there is one ledger,
and one limit, one patience and one first call for each endpoint. A task that is lost with its process or its machine is
given to another one, which finds the reply that came meanwhile at the gate. The driver alone writes findings.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import pickle
import secrets
import signal
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import cv2

from editloupe import files
from editloupe.backends import langsmith
from editloupe.backends.base import LMM
from editloupe.backends.limits import Seen, limit_of
from editloupe.backends.prices import Prices
from editloupe.backends.stopping import LOOK_S, stopping
from editloupe.chat import Reply, Request
from editloupe.config import RunConfig
from editloupe.cores import usable_cores, use_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.errors import ConfigError, EditLoupeError, Interrupted, MissingExtra, first_words
from editloupe.findings import Finding
from editloupe.runs.budget import Ledger, Metered, RunBudget
from editloupe.runs.judges import RunSpec, differences
from editloupe.runs.pool import Raised, keep_all, written
from editloupe.runs.setup import Setup, open_setup
from editloupe.runs.worker import Worker, tool_cache
from editloupe.tasks import Task
from editloupe.values import Json, Sample
from editloupe.version import VERSION

ENDED: Final = "the run has ended; this task goes on from here next time"
PER_CORE: Final = 8
"""Tasks at once in a process while there are cores for more processes: tasks mostly wait for an endpoint."""
LOST_ON_A_TASK: Final = 5
"""Losses of the same task after which it gets a finding that says so."""
REACH_S: Final = 10.0
"""To connect in the look before Ray itself connects, which waits for minutes."""
_START: Final = "start one with `ray start --head`, and other machines' with `ray start --address=HOST:6379`"


class Cluster:
    """The Ray cluster that RAY_ADDRESS names, or one that is started on this machine. Close it in the end.

    Raises MissingExtra, and ConfigError where there is no cluster, where no machine of it has what a process asks for, and
    for a backend that is an object.
    """

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if any(not isinstance(judge.backend, str | None) for judge in (config.judge, *config.role.values())):
            raise ConfigError("a backend that is an object cannot go to another process; name it by its URI")
        self._setup, self._ray, self._closed = setup, _imported(), threading.Event()
        self._mark: Path | None = None
        self._processes: list[Any] = []
        self._seats: SimpleQueue[tuple[Any, Future[Any]]] = SimpleQueue()
        """Processes that can take one more task, each with what came of its opening."""
        self.tool_calls: tuple[int, int] = (0, 0)
        """Calls of tools that ran, and that were answered from equal ones."""
        self._lock, self._ours = threading.Lock(), not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray)
        try:
            self.places = _places(self._ray, {"CPU": 1, **({"GPU": config.ray_gpus} if config.ray_gpus else {})})
            """How many processes have room."""
        except ConfigError:
            self.close()
            raise

    def open(
        self, setup: Setup, run: Path, ledger: Ledger, samples: Mapping[str, Sample], *, width: int, tools: bool
    ) -> None:
        """Start processes, and get ready for `run_task`.

        ledger: gets what the calls take.   samples: by key, whose pictures are kept.
        width: tasks at once.   tools: whether tasks may call tools, whose weights are then loaded first.
        """
        in_process = [one.backend for one in setup.respondents.values() if one.backend.endpoint == "in process"]
        if ledger.budget.max_tokens is not None and any(backend.traits.is_lmm for backend in in_process):
            raise ConfigError(
                "--executor ray: tokens of a model that runs in its processes are not counted; bound it by --set "
                "run_seconds=… in place of run_tokens"
            )
        ray, self._setup, self._ledger, self._samples = self._ray, setup, ledger, samples
        self._images = ImageStore(run / "blobs")
        self._mark = run.resolve() / "cache" / f"ray-{secrets.token_hex(8)}"
        files.write_whole(self._mark, b"", below=run)
        known = told(setup, self._mark, tools=tools)
        # What it counts must outlive any machine but this one. Two calls of a task may wait there: its own, and one of an
        # attempt that was lost.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        gate = ray.remote(Gate).options(
            name=self._mark.name, num_cpus=0, max_concurrency=2 * width + 32, scheduling_strategy=here
        )
        self._gate = gate.remote(known, ledger.budget, ledger.prices)
        opening = self._gate.open.remote().future()
        count = min(self.places, width if setup.backend.endpoint == "in process" else math.ceil(width / PER_CORE))
        seats = math.ceil(width / count)
        process = ray.remote(Answerer).options(
            num_cpus=1,
            num_gpus=setup.config.ray_gpus,
            max_restarts=-1,
            # Beside its tasks it is opened, once for each of them, and told to stop.
            max_concurrency=2 * seats + 1,
            scheduling_strategy="SPREAD",
        )
        self._processes = [process.remote(known) for _ in range(count)]
        for one in self._processes * seats:
            self._offer(one)
        self._watching = threading.Thread(target=self._watch, daemon=True, name="ray watches")
        _check_open(opening)
        self.look()
        self._watching.start()

    def run_task(self, task: Task, *, repeat: int) -> Finding:
        """Return the finding of a task, which the cluster answers. Any thread may call it.

        Raises Interrupted once the run is to stop, ConfigError for a machine that differs from this one, and what the task
        raised.
        """
        job, named = written((task, repeat, self._samples.get(task.about.key)))
        keep_all(self._images, (image for image in named if image.data is not None))
        why, name = "", f"{task.id}.{repeat}"
        for _ in range(LOST_ON_A_TASK):
            process, opening = self._seat()
            lost = False
            try:
                _check_open(opening)
                outcome, (ran, hits) = self._waited(process.run_task.remote(name, job).future())
            except self._ray.exceptions.RayTaskError as error:
                raise ConfigError(f"a task failed on the cluster: {first_words(error.cause)}") from error
            except self._ray.exceptions.RayError as error:
                why, lost = first_words(error), True
                continue
            finally:
                if lost:
                    self._offer(process)
                else:
                    self._seats.put((process, opening))
            self._gate.ended.remote(name)
            with self._lock:
                self.tool_calls = self.tool_calls[0] + ran, self.tool_calls[1] + hits
            if isinstance(outcome, Finding):
                return outcome
            raise outcome.made()
        judge_id = self._setup.judge_of(task).id
        reason = f"{LOST_ON_A_TASK} processes were lost while they answered this, the last one because {why}"
        return Finding.of(task, judge_id=judge_id, repeat=repeat, status="tool_failed", reason=reason, ending="fault")

    def seen(self) -> Seen:
        """Return what the judge's endpoint took, as of the last look."""
        return self._seen

    def look(self) -> None:
        """Bring the ledger and `seen` up to date, and let the cluster know of a stop."""
        stop = self._ledger.stop.is_set()
        if stop:
            for process in self._processes:
                process.stop.remote()
        try:
            counted, seen = self._ray.get(self._gate.look.remote(stop=stop))
        except self._ray.exceptions.RayError as error:
            self._ledger.refused = f"the Ray cluster is gone ({first_words(error)})"
            self._closed.set()
            return
        self._seen: Seen = seen
        self._ledger.follow(counted)

    def close(self) -> None:
        """End what is under way, and leave the cluster, unless this process was in it before."""
        self._closed.set()
        if self._mark is not None:
            if self._watching.is_alive():
                self._watching.join()
            self._mark.unlink(missing_ok=True)
            for actor in (*self._processes, self._gate):
                self._ray.kill(actor)
        if self._ours:
            self._ray.shutdown()

    def _offer(self, process: Any) -> None:
        """Give a process one more task once it is open."""
        # Ray makes this call again for as long as it starts the process again.
        opening: Future[Any] = process.open.options(max_task_retries=-1).remote().future()
        opening.add_done_callback(lambda opened: self._seats.put((process, opened)))

    def _seat(self) -> tuple[Any, Future[Any]]:
        """Wait for a process that can take a task."""
        while True:
            with suppress(Empty):
                return self._seats.get(timeout=LOOK_S)
            if self._closed.is_set() or self._ledger.stop.is_set():
                raise Interrupted(ENDED)

    def _waited(self, future: Future[Any]) -> Any:
        while not wait([future], LOOK_S).done:
            if self._closed.is_set():
                raise Interrupted(ENDED)
        return future.result()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            self.look()


def _check_open(opening: Future[Any]) -> None:
    """Raise what hinders a process."""
    try:
        hindered = opening.result()
    except Exception as error:
        raise ConfigError(f"a process cannot be started on the cluster: {first_words(error)}") from error
    if hindered is not None:
        raise hindered.made()


def _places(ray: Any, asked: Mapping[str, float]) -> int:
    """Return how many processes have room. Raises ConfigError where none has."""
    nodes = [(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
    places = sum(min(int(has.get(kind, 0) / amount) for kind, amount in asked.items()) for _, has in nodes)
    if not places:
        wants = " and ".join(f"{amount:g} {kind}" for kind, amount in asked.items())
        found = [f"{name} has " + ", ".join(f"{has.get(kind, 0):g} {kind}" for kind in asked) for name, has in nodes]
        raise ConfigError(
            f"--executor ray: each process asks for {wants}, which no machine of the cluster has ({'; '.join(found)}); "
            "lower --set ray_gpus=…, or add a machine that has them"
        )
    return places


def _imported() -> Any:
    try:
        importlib.import_module("ray.util.scheduling_strategies")
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtra("--executor ray", "ray") from error


def _connect(ray: Any) -> None:
    """Join a cluster, or start one. Raises ConfigError, within REACH_S where nobody answers at RAY_ADDRESS."""
    address = os.environ.get("RAY_ADDRESS", "").strip()
    if address:
        # Ray's own `auto` is not taken: it waits for a quarter of an hour where a cluster of this machine was killed.
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"RAY_ADDRESS {address!r}: expected HOST:PORT, such as 10.0.0.1:6379")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except (OSError, OverflowError) as error:
            raise ConfigError(f"RAY_ADDRESS {address}: no connection ({first_words(error)}); {_START}") from error
    # A cluster of one's own tells nobody outside that it was started.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's own handlers would end a run that the user stops.
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    # Ray's own default would first wait for minutes for a cluster of this machine that was killed.
    own = {} if address else {"num_cpus": usable_cores(), "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="error", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"no Ray cluster at {address or 'this machine'} ({first_words(error)}); {_START}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    # Of a node that is lost Ray prints the log to standard output, where a run's JSON goes. It has no option for that.
    ray._private.worker._worker_logs_enabled = False


# On the cluster


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
            cache = tool_cache(worker.setup, worker.run)
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
                # One that computes is asked here: nothing is waited or paid for.
                respondents = {
                    role: one
                    if one.backend.endpoint == "in process"
                    else replace(one, backend=_Asked(role, one.backend, self._gate, self._here))
                    for role, one in setup.respondents.items()
                }
                images = ImageStore(run / "blobs", cache_bytes=CACHE_BYTES // 4)
                setup = replace(setup, respondents=respondents)
                self._worker = Worker(setup=setup, images=images, run=run, stop=self._stop)
            return self._worker


class _Asked:
    """A backend behind an address, as an answerer has it: the gate asks it."""

    def __init__(self, role: str, backend: LMM, gate: Any, here: threading.local) -> None:
        self._role, self._gate, self._here = role, gate, here
        self.uri, self.endpoint = backend.uri, backend.endpoint
        self.version, self.traits = backend.version, backend.traits

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the reply. Raises what the backend raises, and Interrupted where the gate is gone."""
        import ray

        try:
            found: Reply | Raised = ray.get(self._gate.complete.remote(self._here.task, self._role, written(request)[0]))
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
    if differing := differences(RunSpec(identity=told["identity"]), RunSpec(identity=_identity(setup))):
        raise ConfigError(f"{where} it is not as it is where the run was started: {differing}")
    if told["tools"]:
        setup.toolbox.prepare()
    return setup


def _identity(setup: Setup) -> dict[str, Json]:
    """Return what must be the same in all processes of a run."""
    judges = {role: one.spec.to_json() for role, one in setup.respondents.items()}
    found: dict[str, Json] = json.loads(json.dumps({**setup.spec.identity, "judges": judges}))
    return found
