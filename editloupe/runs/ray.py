"""A run's questions on a Ray cluster, each a task of Ray's, for `--executor ray`.

What runs on the cluster is `ray_task`: processes that answer into the shared run folder, and one actor that owns the ledger
and each endpoint's limit. A task that is lost with its process or its machine is submitted again. The driver alone writes
findings.
"""

from __future__ import annotations

import importlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import wait
from pathlib import Path
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
from editloupe.runs.ray_task import Gate, Named, run_task, told
from editloupe.runs.setup import Setup
from editloupe.tasks import Task
from editloupe.values import Sample

SHARE: Final = 1 / 16
"""Of a core, for a task that mostly waits for an endpoint. One whose judge runs in its process asks for a whole core."""
LOST_ON_A_TASK: Final = 5
"""Losses of the same task after which it gets a finding that says so."""
REACH_S: Final = 10.0
"""To connect in the look before Ray itself connects, which waits for minutes."""
_START: Final = "start one with `ray start --head`, and other machines' with `ray start --address=HOST:6379`"


class Cluster:
    """The Ray cluster that RAY_ADDRESS names, or one that is started on this machine. Close it in the end.

    Raises MissingExtra, and ConfigError where there is no cluster, where no machine of it has what a task asks for, and for
    a backend that is an object.
    """

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if any(not isinstance(judge.backend, str | None) for judge in (config.judge, *config.role.values())):
            raise ConfigError("a backend that is an object cannot go to another process; name it by its URI")
        self._setup, self._ray, self._closed = setup, _imported(), threading.Event()
        computes = any(one.backend.endpoint == "in process" for one in setup.respondents.values())
        self._asked = {"CPU": 1 if computes else SHARE, "GPU": config.ray_gpus}
        self._mark: Path | None = None
        self._under_way: dict[str, Any] = {}
        self.tool_calls: tuple[int, int] = (0, 0)
        """Calls of tools that ran, and that were answered from equal ones."""
        self._lock, self._ours = threading.Lock(), not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray)
        try:
            self.places = _places(self._ray, {kind: amount for kind, amount in self._asked.items() if amount})
            """How many tasks have room at once."""
        except ConfigError:
            self.close()
            raise

    def open(self, setup: Setup, run: Path, ledger: Ledger, samples: Mapping[str, Sample], *, tools: bool) -> None:
        """Get ready for `run_task`.

        ledger: gets what the calls take.   samples: by key, for remarks on how large their targets are sent.
        tools: whether tasks may call tools, whose weights are then loaded before a process's first task.
        """
        ray, self._setup, self._ledger, self._samples = self._ray, setup, ledger, samples
        self._images = ImageStore(run / "blobs")
        self._mark = run.resolve() / "cache" / f"ray-{secrets.token_hex(8)}"
        files.write_whole(self._mark, b"", below=run)
        # What it counts must outlive any machine but this one. Two calls of a task may wait there: its own, and one of an
        # attempt that was lost.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        gate = ray.remote(Gate).options(num_cpus=0, max_concurrency=2 * self.places + 32, scheduling_strategy=here)
        backends = [Named.of(one.backend) for one in setup.respondents.values()]
        fixed = {setup.backend.endpoint: setup.config.max_connections}
        self._gate = gate.remote(ledger.budget, ledger.prices, backends, fixed)
        self._told = ray.put(told(setup, self._mark, tools=tools))
        self._task = ray.remote(run_task).options(
            num_cpus=self._asked["CPU"], num_gpus=self._asked["GPU"], max_retries=0, scheduling_strategy="SPREAD"
        )
        self.look()
        self._watching = threading.Thread(target=self._watch, daemon=True, name="ray watches")
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
        why, lost = "", self._ray.exceptions
        for _ in range(LOST_ON_A_TASK):
            holder = secrets.token_hex(8)
            try:
                outcome, (ran, hits) = self._waited(holder, job)
            except lost.RayTaskError as error:
                raise ConfigError(f"a task failed on the cluster: {first_words(error.cause)}") from error
            except lost.RayError as error:
                self._gate.end.remote(holder)
                why = first_words(error)
                continue
            with self._lock:
                self.tool_calls = self.tool_calls[0] + ran, self.tool_calls[1] + hits
            if isinstance(outcome, Finding):
                return outcome
            kind, text = outcome
            raise kind.__new__(kind, text)
        judge_id = self._setup.judge_of(task).id
        reason = f"{LOST_ON_A_TASK} processes were lost while they answered this, the last one because {why}"
        return Finding.of(task, judge_id=judge_id, repeat=repeat, status="tool_failed", reason=reason, ending="fault")

    def seen(self) -> Seen:
        """Return what the judge's endpoint took, as of the last look."""
        return self._seen

    def look(self) -> None:
        """Bring the ledger and `seen` up to date, and let the cluster know of a stop."""
        try:
            counted, seen = self._ray.get(self._gate.look.remote(stop=self._ledger.stop.is_set()))
        except self._ray.exceptions.RayError as error:
            self._ledger.refused = f"the Ray cluster is gone ({first_words(error)})"
            self._closed.set()
            return
        self._seen: Seen = seen[self._setup.backend.endpoint]
        self._ledger.follow(counted)

    def close(self) -> None:
        """End what is under way, and leave the cluster, unless this process was in it before."""
        self._closed.set()
        if self._mark is not None:
            self._watching.join()
            self._mark.unlink(missing_ok=True)
            for ref in list(self._under_way.values()):
                self._ray.cancel(ref, force=True)
            self._ray.kill(self._gate)
        if self._ours:
            self._ray.shutdown()

    def _waited(self, holder: str, job: bytes) -> Any:
        ref = self._under_way[holder] = self._task.remote(self._gate, self._told, holder, job)
        try:
            future = ref.future()
            while not wait([future], LOOK_S).done:
                if self._closed.is_set():
                    raise Interrupted("the run has ended; this task goes on from here next time")
            return future.result()
        finally:
            del self._under_way[holder]

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            self.look()


def _places(ray: Any, asked: Mapping[str, float]) -> int:
    """Return how many tasks have room at once. Raises ConfigError where none has."""
    nodes = [(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
    places = sum(min(int(has.get(kind, 0) / amount) for kind, amount in asked.items()) for _, has in nodes)
    if not places:
        wants = " and ".join(f"{amount:g} {kind}" for kind, amount in asked.items())
        found = [f"{name} has " + ", ".join(f"{has.get(kind, 0):g} {kind}" for kind in asked) for name, has in nodes]
        raise ConfigError(
            f"--executor ray: each task asks for {wants}, which no machine of the cluster has ({'; '.join(found)}); lower "
            "--ray-gpus, or add a machine that has them"
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
    host, _, port = address.rpartition(":")
    if host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except ValueError:
            raise ConfigError(f"RAY_ADDRESS {address!r}: expected HOST:PORT, such as 10.0.0.1:6379, or auto") from None
        except OSError as error:
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
