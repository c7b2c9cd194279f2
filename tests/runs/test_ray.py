"""Workers on a Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe.config import RunConfig
from editloupe.errors import ConfigError, WorkerError
from editloupe.runs import cluster as clusters
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.runs.verify import verify
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer
from tests.runs.test_kill import findings
from tests.runs.test_workers import looks_then_answers, paid, run

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]
ray: Any = pytest.importorskip("ray", reason="NOT RUN: ray is not installed (pip install 'editloupe[ray]')")

Edits = Callable[..., Path]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without cores, where the command runs, and two nodes with two cores each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.nodes = [made.add_node(num_cpus=2) for _ in range(2)]
    made.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def test_workers_on_a_cluster_find_what_one_process_finds_and_a_lost_node_loses_nothing(
    cluster: Any, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    started: list[int] = []
    start = clusters.Cluster.start

    def counted(self: clusters.Cluster, address: Any, key: bytes, number: int) -> clusters.ClusterTask:
        started.append(number)
        return start(self, address, key, number)

    monkeypatch.setattr(clusters.Cluster, "start", counted)

    def act(handler: Handler, body: Body) -> None:
        with lock:
            if len(server.seen) == 15:
                cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        # A worker ends some time after its node.
        time.sleep(0.2)
        looks_then_answers(handler, body)

    lock, folder, before = threading.Lock(), edits(20), signal.getsignal(signal.SIGTERM)
    with OpenAIServer(looks_then_answers, model="m") as server:
        alone = run(server, folder, tmp_path / "alone")
        calls = paid(server)
        server.seen.clear()
        server.script[:] = [act]
        outcome = run(server, folder, tmp_path / "run", workers=2, executor="ray", concurrency=4)
    assert server.complaints == []
    assert (len(cluster.nodes), outcome.failed, alone.failed) == (1, 0, 0)
    assert started == [0, 1, 2]
    assert findings(tmp_path / "run") == findings(tmp_path / "alone")
    assert [part.wrong for part in verify(tmp_path / "run")] == [[]] * 5
    again = paid(server)
    assert set(again) == set(calls)
    # A worker with two tasks was on the node that was lost.
    assert sum(again.values()) - len(again) <= 2
    assert "raylet" not in capsys.readouterr().out
    assert not ray.is_initialized() and signal.getsignal(signal.SIGTERM) is before


def test_a_worker_that_differs_breaks_the_run_with_its_reason(cluster: Any, edits: Edits, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("editloupe.__version__", "9.9")
    config = RunConfig.make(path=edits(2), workers=1, executor="ray")
    with pytest.raises(ConfigError, match=r"editloupe is .* here and 9\.9 where the run was started"):
        drive(open_setup(config), tmp_path / "run")


def test_a_cluster_that_starts_no_worker_any_more_breaks_the_run(
    cluster: Any, edits: Edits, tmp_path: Path, monkeypatch: Any
):
    def act(handler: Handler, body: Body) -> None:
        with lock:
            if cluster.nodes:
                monkeypatch.setattr(clusters.Cluster, "start", lost)
                for _ in range(2):
                    cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        # A worker ends some time after its node.
        time.sleep(0.3)
        looks_then_answers(handler, body)

    def lost(*_: object) -> Any:
        raise ConnectionError("the head is gone")

    lock = threading.Lock()
    with OpenAIServer(act, model="m") as server, pytest.raises(WorkerError, match="cannot be replaced: the head is gone"):
        run(server, edits(20), tmp_path / "run", workers=1, executor="ray", concurrency=1)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://10.0.0.1:10001", "start it on a machine of the cluster"),
        ("127.0.0.1:PORT", r"no connection .*ray start --head"),
        ("10.0.0.1:port", "expected HOST:PORT"),
        ("auto", r"no Ray cluster at auto .*ray start --head"),
    ],
)
def test_an_address_without_a_cluster_is_told_within_seconds(
    address: str, told: str, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", address.replace("PORT", str(taken.getsockname()[1])))
        config, began = RunConfig.make(path=edits(1), workers=1, executor="ray"), time.monotonic()
        with pytest.raises(ConfigError, match=told):
            drive(open_setup(config), tmp_path / "run")
    assert time.monotonic() - began < 12
    assert not (tmp_path / "run").exists()
