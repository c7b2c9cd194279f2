"""A run's questions on a Ray cluster, for `--executor ray`.

What runs on the cluster is `ray_task`: processes with a core each that answer into the shared run folder, and one actor
beside the driver that asks the endpoints. A task that is lost with its process or its machine is given to another one. The
driver alone writes findings.
"""

from __future__ import annotations

import importlib
import math
import os
import secrets
import signal
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from editloupe import files
from editloupe.backends.limits import Seen
from editloupe.backends.stopping import LOOK_S
from editloupe.cores import usable_cores
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, Interrupted, MissingExtra, first_words
from editloupe.findings import Finding
from editloupe.runs.budget import Ledger
from editloupe.runs.pool import written
from editloupe.runs.ray_task import ENDED, Answerer, Gate, told
from editloupe.runs.setup import Setup
from editloupe.tasks import Task
from editloupe.values import Sample

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
        for image in named:
            if image.data is not None:
                self._images.keep(image)  # its bytes are at hand in this process alone
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
