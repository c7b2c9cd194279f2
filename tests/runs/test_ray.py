"""Runs on a Ray cluster of two nodes, both on this machine: the same findings, one owner of all limits, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.prices import ModelPrice, Prices
from editloupe.config import RunConfig
from editloupe.errors import ConfigError
from editloupe.runs.budget import RunBudget
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.runs.verify import verify
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says, serving
from tests.conftest import LOOK, Edits, final
from tests.runs.test_kill import findings

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]
ray: Any = pytest.importorskip("ray", reason="NOT RUN: ray is not installed (pip install 'editloupe[ray]')")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, where the command runs, and two nodes with a core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def serve() -> Iterator[Callable[..., OpenAIServer]]:
    with serving() as start:
        yield start


def looks_then_answers(handler: Handler, body: Body) -> None:
    """Calls a tool, reads the observation, and answers by the number in the instruction."""
    asked_before = any(message["role"] == "assistant" for message in body["messages"])
    texts = "".join(part.get("text", "") for part in body["messages"][0]["content"])
    number = int(texts.partition("Make square ")[2].partition(" ")[0])
    says(final(("Wrong Action", "Flawless Execution")[number % 2]) if asked_before else LOOK)(handler, body)


def config_of(edits: Path, server: OpenAIServer | None = None, **given: Any) -> RunConfig:
    judge = {} if server is None else {"backend": f"openai/m?base_url={server.url}&env=none"}
    return RunConfig.make(path=edits, judge=judge, option={"criteria": ["if"]}, **{"executor": "ray", **given})


def run(server: OpenAIServer, edits: Path, out: Path, *, budget: RunBudget | None = None, **given: Any) -> Outcome:
    config = config_of(edits, server, **{"concurrency": 12, **given})
    prices = Prices(by_name={"m": ModelPrice(input=2.0, output=10.0)}, file=Path("prices.toml"))
    return drive(open_setup(config), out, config=config.to_options(), budget=budget, prices=prices)


def is_sound(out: Path) -> bool:
    return not any(part.wrong for part in verify(out))


def paid(server: OpenAIServer) -> Counter[str]:
    return Counter(json.dumps(body, sort_keys=True) for body in server.seen)


def labels(out: Path) -> dict[object, object]:
    """Label by sample; judges at different addresses have other ids."""
    return {row["sample_id"]: row["label"] for row in findings(out).values()}


def processes_of_tasks() -> list[int]:
    """Ids of Ray's processes that answer tasks, by their titles."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_bytes().startswith(b"ray::Answerer"):
                found.append(int(line.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://10.0.0.1:10001", "no connection"),
        ("127.0.0.1:PORT", r"no connection .*ray start --head"),
        ("10.0.0.1:port", "expected HOST:PORT"),
        ("auto", "expected HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_told_within_seconds(
    address: str, told: str, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", address.replace("PORT", str(taken.getsockname()[1])))
        began = time.monotonic()
        with pytest.raises(ConfigError, match=told):
            drive(open_setup(config_of(edits(1))), tmp_path / "run")
    assert time.monotonic() - began < 12
    assert not (tmp_path / "run").exists()


def test_a_cluster_finds_what_one_process_finds(cluster: Any, serve: Any, edits: Edits, tmp_path: Path):
    server, folder, before = serve(looks_then_answers), edits(8), signal.getsignal(signal.SIGTERM)
    alone = run(server, folder, tmp_path / "alone", executor="local")
    calls = paid(server)
    server.seen.clear()
    outcome = run(server, folder, tmp_path / "run")
    assert findings(tmp_path / "run") == findings(tmp_path / "alone")
    assert paid(server) == calls and set(calls.values()) == {1}
    assert outcome.ledger.calls == alone.ledger.calls == 16
    assert outcome.ledger.usage == alone.ledger.usage
    assert (outcome.ledger.cost, outcome.failed) == (pytest.approx(alone.ledger.cost), 0)
    assert outcome.tool_calls == alone.tool_calls
    assert is_sound(tmp_path / "run")
    assert list((tmp_path / "run" / "cache").glob("ray-*")) == []
    # How a run is made is no part of what it is, and nothing is left to ask.
    again = run(server, folder, tmp_path / "run", executor="local")
    assert (again.reused, again.ledger.calls) == (8, 0)
    assert not ray.is_initialized() and signal.getsignal(signal.SIGTERM) is before


def test_a_rate_is_learned_once(cluster: Any, serve: Any, edits: Edits, tmp_path: Path):
    def act(handler: Handler, body: Body) -> None:
        with lock:
            busy.append(body)
            most.append(len(busy))
            refused = len(server.seen) == 10
        time.sleep(0.1)
        with lock:
            busy.remove(body)
        (slow_down if refused else looks_then_answers)(handler, body)

    slow_down = fails(429, "slow down", headers={"Retry-After": "1"})
    lock, busy, most = threading.Lock(), list[Body](), list[int]()
    server = serve(act)
    outcome = run(server, edits(12), tmp_path / "run", concurrency=5, max_connections=3)
    assert outcome.failed == 0
    assert max(most) == 3
    assert any("for their rate once" in note for note in outcome.notes), outcome.notes
    assert len(server.seen) == 25


def test_money_is_not_overspent(cluster: Any, serve: Any, edits: Edits, tmp_path: Path):
    server, folder = serve(looks_then_answers), edits(8)
    outcome = run(server, folder, tmp_path / "run", concurrency=5, budget=RunBudget(max_cost=0.0004))
    # 0.000052 USD an answer: 8 calls.
    assert outcome.interrupted and outcome.ledger.reason.startswith("cost: 0.0004")
    assert 8 <= len(server.seen) == outcome.ledger.calls <= 9
    again = run(server, folder, tmp_path / "run")
    assert (again.failed, set(paid(server).values()), len(server.seen)) == (0, {1}, 16)


def test_a_backend_that_refuses_all_is_asked_once(cluster: Any, serve: Any, edits: Edits, tmp_path: Path):
    server = serve(fails(401, "no such key"))
    outcome = run(server, edits(6), tmp_path / "run")
    assert "no such key" in outcome.ledger.refused
    assert len(server.seen) == 1


def test_a_killed_process_loses_nothing_and_pays_nothing_twice(cluster: Any, serve: Any, edits: Edits, tmp_path: Path):
    killed: list[int] = []

    def act(handler: Handler, body: Body) -> None:
        with lock:
            if len(killed) < 2 and len(server.seen) >= (8, 18)[len(killed)]:
                os.kill(pid := processes_of_tasks()[0], signal.SIGKILL)
                killed.append(pid)
        time.sleep(0.05)
        looks_then_answers(handler, body)

    lock, folder = threading.Lock(), edits(12)
    calm, server = serve(looks_then_answers), serve(act)
    run(calm, folder, tmp_path / "calm", executor="local")
    # A place that was not given back would be the only one.
    outcome = run(server, folder, tmp_path / "killed", max_connections=1)
    assert (len(killed), outcome.failed, len(outcome.findings)) == (2, 0, 12)
    assert labels(tmp_path / "killed") == labels(tmp_path / "calm")
    assert is_sound(tmp_path / "killed")
    calls = paid(server)
    # A reply that was under way reaches the process that goes on.
    assert len(calls) == sum(calls.values()) == 24


def test_a_task_that_ends_every_process_is_a_finding(
    cluster: Any, serve: Any, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("editloupe.runs.ray.LOST_ON_A_TASK", 2)

    def act(handler: Handler, body: Body) -> None:
        if "Make square 1 " in json.dumps(body):
            for pid in processes_of_tasks():
                os.kill(pid, signal.SIGKILL)
        looks_then_answers(handler, body)

    outcome = run(serve(act), edits(3), tmp_path / "run", concurrency=1)
    found = {f.sample_id: (f.status, f.ending) for f in outcome.findings}
    assert found.pop("s01") == ("tool_failed", "fault")
    assert set(found.values()) == {("ok", "answer")}
    (reason,) = [f.reason for f in outcome.findings if f.status != "ok"]
    assert reason.startswith("2 processes were lost while they answered this, the last one because ")


def test_a_stop_ends_what_is_under_way_and_the_same_command_goes_on(cluster: Any, serve: Any, edits: Edits, tmp_path: Path):
    def act(handler: Handler, body: Body) -> None:
        if len(server.seen) == 6:
            stop.set()
        time.sleep(0.3)
        looks_then_answers(handler, body)

    server, folder, stop = serve(act), edits(12), threading.Event()
    config = config_of(folder, server, concurrency=4)
    stopped = drive(open_setup(config), tmp_path / "run", stop=stop)
    assert stopped.interrupted and len(stopped.findings) < 12
    again = drive(open_setup(config), tmp_path / "run")
    assert (again.failed, len(again.findings)) == (0, 12)
    # What was in flight is waited for, and kept.
    assert set(paid(server).values()) == {1}


def test_what_the_cluster_does_not_have_is_refused_before_anything_waits(cluster: Any, edits: Edits, tmp_path: Path):
    folder = edits(1)
    for gpus, told in (
        (2, r"each process asks for 1 CPU and 2 GPU, .*has 1 CPU, 0 GPU.*lower --set ray_gpus=…"),
        (0.5, "asks for 1 CPU and 0.5 GPU"),
    ):
        with pytest.raises(ConfigError, match=told):
            drive(open_setup(config_of(folder, ray_gpus=gpus)), tmp_path / "run")
        assert not (tmp_path / "run").exists() and not ray.is_initialized()


def test_a_machine_that_differs_ends_the_run_with_the_reason(
    cluster: Any, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = edits(1)
    for name, value, told in (
        ("VERSION", "9.9", r"on .* editloupe is .*, and 9\.9 where the run was started"),
        ("Path.cwd", lambda: Path("/no/such"), "there is no /no/such; the working folder"),
        ("_identity", lambda setup: {"protocol": "dice"}, "--protocol: was dice, is dlebench"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"editloupe.runs.ray.{name}", value)
            with pytest.raises(ConfigError, match=told):
                drive(open_setup(config_of(folder)), tmp_path / "run")


def test_a_lost_node_loses_nothing(cluster: Any, serve: Any, edits: Edits, tmp_path: Path, capsys: Any):
    def act(handler: Handler, body: Body) -> None:
        with lock:
            if len(server.seen) == 15:
                cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        # A process ends some time after its node.
        time.sleep(0.2)
        looks_then_answers(handler, body)

    lock, folder = threading.Lock(), edits(16)
    server = serve(act)
    outcome = run(server, folder, tmp_path / "run")
    assert (len(cluster.nodes), outcome.failed, len(outcome.findings)) == (1, 0, 16)
    assert is_sound(tmp_path / "run")
    calls = paid(server)
    assert len(calls) == sum(calls.values()) == 32
    assert "raylet" not in capsys.readouterr().out
