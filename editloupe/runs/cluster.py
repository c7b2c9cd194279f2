"""A run's workers on a Ray cluster, each a task of Ray's that lasts as long as the run."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from editloupe.errors import ConfigError, MissingExtra, first_words
from editloupe.runs.workers import Address, work

REACH_S: Final = 10.0
"""To connect in the look before Ray itself connects, which waits for minutes."""
_START: Final = "start one with `ray start --head`, and other machines' with `ray start --address=HOST:6379`"


class Cluster:
    """Starts workers as tasks of the Ray cluster that RAY_ADDRESS names, or that runs on this machine.

    gpus: reserved for each.   Raises MissingExtra, and ConfigError where there is no cluster.
    """

    shares = False

    def __init__(self, gpus: float) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("--executor ray", "ray") from error
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(ray)
        self.host: str = ray.util.get_node_ip_address()
        self._work = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0, max_calls=1, scheduling_strategy="SPREAD")(work)

    def start(self, address: Address, key: bytes, number: int) -> ClusterTask:
        """Start one. Raises what Ray raises."""
        return ClusterTask(self._ray, self._work.remote(address, key, number))

    def close(self) -> None:
        """Leave the cluster, unless this process was in it before."""
        if self._ours:
            self._ray.shutdown()


class ClusterTask:
    """A worker on the cluster. It may wait until there is room for it."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task = ray, task

    def ended(self) -> str | None:
        return self._within(0)

    def end(self, within_s: float) -> str | None:
        why = self._within(within_s)
        if why is None:
            with suppress(Exception):  # whatever Ray says of a node that is gone
                self._ray.cancel(self._task, force=True)
        return why

    def _within(self, seconds: float) -> str | None:
        done, _ = self._ray.wait([self._task], timeout=seconds)
        if not done:
            return None
        try:
            self._ray.get(self._task)
        except Exception as error:  # noqa: BLE001 - Ray raises what the task raised, or why it was lost
            return f"its Ray task failed: {first_words(error)}"
        return "its Ray task ended"


def _connect(ray: Any) -> None:
    """Raises ConfigError, within REACH_S where nobody answers at RAY_ADDRESS."""
    address = os.environ.get("RAY_ADDRESS", "").strip()
    if address.startswith("ray://"):
        raise ConfigError(
            f"RAY_ADDRESS {address}: workers must reach the command, which they cannot through a Ray client; start it on a "
            "machine of the cluster, with RAY_ADDRESS=auto"
        )
    host, _, port = address.rpartition(":")
    if host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except ValueError:
            raise ConfigError(f"RAY_ADDRESS {address!r}: expected HOST:PORT, such as 10.0.0.1:6379, or auto") from None
        except OSError as error:
            raise ConfigError(f"RAY_ADDRESS {address}: no connection ({first_words(error)}); {_START}") from error
    # Ray's own handlers would end a run that the user stops.
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"no Ray cluster at {address or 'this machine'} ({first_words(error)}); {_START}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    # Of a node that is lost Ray prints the log to standard output, where a run's JSON goes. It has no option for that.
    ray._private.worker._worker_logs_enabled = False
