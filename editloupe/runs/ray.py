"""A Ray cluster that computes, for `--executor ray`: tools, measures, and backends that run in a process.

A call goes there as it goes to a process of this machine (`runs.pool`), its pictures through the run folder, which all
machines share. The driver alone asks endpoints, holds the conversations and writes the run. A process or a machine that is
lost costs its calls, which Ray makes again elsewhere, and no answer of an endpoint.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import cv2

from editloupe import files
from editloupe.backends.base import LMM, open_backend
from editloupe.backends.stopping import LOOK_S, check_stop
from editloupe.chat import Reply, Request
from editloupe.config import RunConfig
from editloupe.cores import usable_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.data.run_file import NAME
from editloupe.errors import BackendError, ConfigError, Interrupted, MissingExtra, ProcessLost, first_words
from editloupe.runs.pool import Pool, answered
from editloupe.version import VERSION

LOST_ON_A_CALL: Final = 5
"""Losses of the processes that run the same call after which it has failed."""
REACH_S: Final = 10.0
"""To connect in the look before Ray itself connects, which waits for minutes."""
_START: Final = "start one with `ray start --head`, and other machines' with `ray start --address=HOST:6379`"


class Cluster(Pool):
    """The Ray cluster that RAY_ADDRESS names, or one that is started on this machine. Close it in the end.

    Raises MissingExtra, and ConfigError where there is no cluster, where no machine of it has what a process asks for, and
    for a backend that is an object.
    """

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        if any(not isinstance(judge.backend, str | None) for judge in (config.judge, *config.role.values())):
            raise ConfigError("a backend that is an object cannot go to another process; name it by its URI")
        self._ray, self._closed = _imported(), threading.Event()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray)
        asked = {"CPU": 1, **({"GPU": config.ray_gpus} if config.ray_gpus else {})}
        try:
            self.places = _places(self._ray, asked)
        except ConfigError:
            self.close()
            raise
        self._remote = self._ray.remote(num_cpus=1, num_gpus=config.ray_gpus)(computed)

    def placed(self, backend: LMM) -> LMM:
        """Return a backend that computes as one that is asked on the cluster; any other as it is."""
        return _Placed(backend, self) if backend.endpoint == "in process" else backend

    def check(self, run: Path) -> None:
        """Raise ConfigError for a machine that has another version of editloupe, or that does not share the run folder."""
        told = VERSION, run.resolve() / NAME, files.read_bytes(run / NAME)
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        look = self._ray.remote(num_cpus=0)(hindered)
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        looks = [look.options(scheduling_strategy=affinity(node, soft=False)).remote(*told) for node in nodes]
        try:
            found = self._ray.get(looks)
        except self._ray.exceptions.RayError as error:
            raise ConfigError(f"a process cannot be started on the cluster: {first_words(error)}") from error
        if problem := next(filter(None, found), ""):
            raise ConfigError(problem)

    def close(self) -> None:
        """End what is under way, and leave the cluster, unless this process was in it before."""
        self._closed.set()
        if self._ours:
            self._ray.shutdown()

    def _called(self, what: str, sent: bytes, folder: Path) -> bytes:
        check_stop()
        call = self._remote.options(max_retries=LOST_ON_A_CALL - 1).remote(sent, folder.resolve())
        while not self._closed.is_set():
            try:
                found: bytes = self._ray.get(call, timeout=LOOK_S)
                return found
            except self._ray.exceptions.GetTimeoutError:
                continue
            except self._ray.exceptions.RayTaskError as error:
                raise ProcessLost(f"{what} cannot run on the cluster: {first_words(error.cause)}") from error
            except self._ray.exceptions.RayError as error:
                lost = f"{LOST_ON_A_CALL} processes that ran {what} were lost"
                raise ProcessLost(f"{lost}, the last one because {first_words(error)}") from error
        with suppress(self._ray.exceptions.RayError):
            self._ray.cancel(call, force=True)
        raise Interrupted("the run has ended; this task goes on from here next time")


class _Placed:
    """A backend that computes: it is opened and asked on the cluster."""

    def __init__(self, backend: LMM, cluster: Cluster) -> None:
        self._cluster = cluster
        self.uri, self.endpoint = backend.uri, backend.endpoint
        self.version, self.traits = backend.version, backend.traits

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the reply. Raises what the backend raises, and BackendError where its process is lost."""
        call = partial(asked_there, self.uri, self.version, Path.cwd(), request, images)
        try:
            reply: Reply = self._cluster.run(self.uri, call, images)
        except ProcessLost as lost:
            raise BackendError(str(lost)) from lost
        return reply


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


def hindered(version: str, run_file: Path, content: bytes) -> str:
    """Return why this machine cannot compute for a run; "" where it can.

    version: of editloupe, where the run was started.   run_file: its run.json, which holds `content` there.
    """
    where = f"on {socket.gethostname()}"
    if version != VERSION:
        return f"{where} editloupe is {VERSION}, and {version} where the run was started; install the same version"
    try:
        shared = files.read_bytes(run_file) == content
    except OSError:
        shared = False
    return "" if shared else f"{where} there is no {run_file.parent} of this run; --out must be shared by all machines"


def computed(sent: bytes, folder: Path) -> bytes:
    """Make a pickled call, and return what it returns or raises.   folder: of its pictures."""
    # Ray has reserved one core for it.
    cv2.setNumThreads(1)
    return answered(sent, folder, CACHE_BYTES // 4)


def asked_there(uri: str, version: str, folder: Path, request: Request, images: ImageStore) -> Reply:
    """Return the reply of a backend that computes in this process.

    folder: to which paths in the URI are relative.   Raises ConfigError for a model of another version.
    """
    os.chdir(folder)
    backend = _opened(uri)
    if backend.version != version:
        raise ConfigError(
            f"on {socket.gethostname()} {uri} is of version {backend.version!r}, and {version!r} where the run was started"
        )
    return backend.complete(request, images)


@cache
def _opened(uri: str) -> LMM:
    return open_backend(uri)
