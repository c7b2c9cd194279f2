"""A run's tasks in several processes: the same findings, one owner of all limits, and nothing lost with a worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import editloupe as package
from editloupe import cores
from editloupe.backends.prices import ModelPrice, Prices
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, WorkerError
from editloupe.runs import workers
from editloupe.runs.budget import Ledger, RunBudget
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.runs.verify import verify
from tests.backends.loopback import Act, Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says
from tests.conftest import LOOK, final
from tests.runs.test_kill import findings

Edits = Callable[..., Path]


@pytest.fixture
def serve() -> Iterator[Callable[..., OpenAIServer]]:
    """Starts a server of the model "m"; in the end, it may have seen no request that breaks the protocol."""
    servers: list[OpenAIServer] = []

    def start(act: Act) -> OpenAIServer:
        servers.append(OpenAIServer(act, model="m").__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)
    assert [c for s in servers for c in s.complaints] == []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process ids of the workers, in the order of their start."""
    begun: list[int] = []
    start = workers.Local.start

    def recorded(self: workers.Local, *given: Any) -> workers.LocalProcess:
        process = start(self, *given)
        begun.append(process._process.pid)
        return process

    monkeypatch.setattr(workers.Local, "start", recorded)
    return begun


def looks_then_answers(handler: Handler, body: Body) -> None:
    """Calls a tool, reads the observation, and answers by the number in the instruction."""
    asked_before = any(message["role"] == "assistant" for message in body["messages"])
    label = ("Wrong Action", "Flawless Execution")[number_of(body) % 2]
    says(final(label) if asked_before else LOOK)(handler, body)


def number_of(body: Body) -> int:
    """The number of the sample that a request is about."""
    texts = "".join(part.get("text", "") for part in body["messages"][0]["content"])
    return int(texts.partition("Make square ")[2].partition(" ")[0])


def run(server: OpenAIServer, edits: Path, out: Path, *, budget: RunBudget | None = None, **given: Any) -> Outcome:
    config = RunConfig.make(
        path=edits, judge={"backend": f"openai/m?base_url={server.url}&env=none"}, option={"criteria": ["if"]}, **given
    )
    prices = Prices(by_name={"m": ModelPrice(input=2.0, output=10.0)}, file=Path("prices.toml"))
    return drive(open_setup(config), out, config=config.to_options(), budget=budget, prices=prices)


def paid(server: OpenAIServer) -> Counter[str]:
    return Counter(json.dumps(body, sort_keys=True) for body in server.seen)


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except OSError:
        return True


def children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def test_two_workers_find_what_one_process_finds(serve: Any, edits: Edits, tmp_path: Path, started: list[int]):
    server, folder = serve(looks_then_answers), edits(10)
    alone = run(server, folder, tmp_path / "alone")
    calls = paid(server)
    server.seen.clear()
    outcome = run(server, folder, tmp_path / "run", workers=2)
    assert len(set(started)) == 2 and os.getpid() not in started
    assert findings(tmp_path / "run") == findings(tmp_path / "alone")
    assert paid(server) == calls and set(calls.values()) == {1}
    assert (outcome.ledger.calls, outcome.ledger.usage) == (alone.ledger.calls, alone.ledger.usage)
    assert (outcome.failed, outcome.tool_calls) == (0, alone.tool_calls)
    assert [part.wrong for part in verify(tmp_path / "run")] == [[]] * 5
    assert all(gone(pid) for pid in started)
    assert list((tmp_path / "run" / "cache").glob("workers-*")) == []
    # How a run is made is no part of what it is, and nothing is left to ask.
    again = run(server, folder, tmp_path / "run")
    assert (again.reused, again.ledger.calls) == (10, 0)


def test_a_worker_killed_in_the_middle_loses_nothing_and_pays_twice_what_was_in_flight(
    serve: Any, edits: Edits, tmp_path: Path, started: list[int]
):
    kills = [9, 22]

    def act(handler: Handler, body: Body) -> None:
        with lock:
            if kills and len(server.seen) >= kills[0]:
                kills.pop(0)
                os.kill(started[-1], signal.SIGKILL)
        time.sleep(0.02)
        looks_then_answers(handler, body)

    lock = threading.Lock()
    calm, server, folder = serve(looks_then_answers), serve(act), edits(20)
    run(calm, folder, tmp_path / "calm")
    outcome = run(server, folder, tmp_path / "killed", workers=2, concurrency=4)
    assert (len(started), kills) == (4, [])
    assert outcome.failed == 0
    assert labels(tmp_path / "killed") == labels(tmp_path / "calm")
    assert [part.wrong for part in verify(tmp_path / "killed")] == [[]] * 5
    calls = paid(server)
    assert len(calls) == 40
    # Two tasks at once in each of the two that were killed.
    assert sum(calls.values()) - len(calls) <= 4


def labels(out: Path) -> dict[object, object]:
    """Label by sample; judges at different addresses have other ids."""
    return {row["sample_id"]: row["label"] for row in findings(out).values()}


@pytest.mark.slow
def test_a_limit_of_money_holds_within_one_call_a_worker(serve: Any, edits: Edits, tmp_path: Path):
    def act(handler: Handler, body: Body) -> None:
        time.sleep(0.05)
        looks_then_answers(handler, body)

    server = serve(act)
    outcome = run(server, edits(20), tmp_path / "run", workers=2, concurrency=16, budget=RunBudget(max_cost=0.001))
    # 0.000052 USD an answer: 20 calls.
    assert outcome.interrupted and outcome.ledger.reason
    assert 20 <= len(server.seen) == outcome.ledger.calls <= 22
    again = run(server, tmp_path / "edits", tmp_path / "run", workers=2)
    assert (again.failed, set(paid(server).values())) == (0, {1})


def test_a_backend_that_refuses_all_is_asked_no_more_by_any_worker(serve: Any, edits: Edits, tmp_path: Path):
    server = serve(fails(401, "no such key"))
    outcome = run(server, edits(12), tmp_path / "run", workers=2, concurrency=2)
    assert "no such key" in outcome.ledger.refused
    assert len(server.seen) <= 2 and len(outcome.findings) <= 2


@pytest.mark.slow
def test_the_endpoints_rate_is_learnt_once_for_all_workers(serve: Any, edits: Edits, tmp_path: Path):
    def act(handler: Handler, body: Body) -> None:
        most.append(under_way := len(busy) + 1)
        busy.append(under_way)
        time.sleep(0.3)
        busy.pop()
        looks_then_answers(handler, body)

    busy: list[int] = []
    most: list[int] = []
    server = serve(act)
    outcome = run(server, edits(12), tmp_path / "run", workers=2, max_connections=3)
    assert outcome.failed == 0
    assert max(most) == 3


@pytest.mark.slow
def test_a_task_that_ends_every_worker_is_a_finding_and_stops_no_other(
    serve: Any, edits: Edits, tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "LOST_ON_A_TASK", 2)

    def act(handler: Handler, body: Body) -> None:
        if number_of(body) == 1 and deadly:
            os.kill(started[-1], signal.SIGKILL)
        looks_then_answers(handler, body)

    deadly, server = [True], serve(act)
    outcome = run(server, edits(4), tmp_path / "run", workers=1, concurrency=1)
    found = {f.sample_id: (f.status, f.ending) for f in outcome.findings}
    assert found.pop("s01") == ("tool_failed", "fault")
    assert set(found.values()) == {("ok", "answer")}
    (reason,) = [f.reason for f in outcome.findings if f.status != "ok"]
    assert reason == "2 workers were lost while they answered this, the last one because it was ended by signal 9"
    deadly.clear()
    again = run(server, tmp_path / "edits", tmp_path / "run", workers=1)
    assert (again.failed, again.reused) == (0, 3)


def test_three_workers_lost_before_any_is_ready_break_the_run_with_the_reason(
    serve: Any, edits: Edits, tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "_PROGRAM", "raise SystemExit('no such library here')")
    server = serve(looks_then_answers)
    with pytest.raises(WorkerError, match=r"3 workers .* before any was ready, .*exit code 1: no such library here"):
        run(server, edits(3), tmp_path / "run", workers=1)
    assert (len(started), server.seen) == (3, [])


def test_workers_end_with_their_parent_and_ignore_ctrl_c(serve: Any, edits: Edits, tmp_path: Path):
    release = threading.Event()

    def act(handler: Handler, body: Body) -> None:
        release.wait(30)
        looks_then_answers(handler, body)

    server = serve(act)
    words = ["judge", str(edits(6)), "--backend", f"openai/m?base_url={server.url}&env=none", "--workers", "2"]
    command = [sys.executable, "-m", "editloupe", *words, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(server.seen) >= 6)
    children = children_of(process.pid)
    assert len(children) == 2
    for pid in children:
        os.kill(pid, signal.SIGINT)
    time.sleep(0.3)
    assert not any(map(gone, children))
    process.kill()
    process.wait()
    try:
        until(lambda: all(map(gone, children)), seconds=10)
    finally:
        release.set()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"editloupe": "9.9"}, rf"editloupe is {package.__version__} here and 9\.9 where the run was started"),
        ({"folder": "/no/such"}, "the working folder /no/such is not here"),
        ({"mark": "workers-0"}, "the run folder .* is not here, or another one"),
        ({"run": "/no/such"}, "the run folder /no/such is not here"),
        ({"config": {"path": "/no/such"}}, "the data /no/such are not here"),
        ({"identity": {"protocol": "dice"}}, "protocol is 'dlebench' here and 'dice' there"),
    ],
)
def test_a_worker_says_what_is_not_as_at_the_parent(changed: dict[str, Any], told: str, edits: Edits, tmp_path: Path):
    setup = open_setup(RunConfig(path=edits(1)))
    ledger: Any = None
    crew = workers.Crew(workers.Local(), setup, tmp_path, ledger, count=1, seats=1, tools=False)
    (tmp_path / "cache").mkdir()
    crew._mark.touch()
    assert workers._opened(crew._opening, threading.Event()).run == tmp_path
    opening = dict(crew._opening)
    for name, value in changed.items():
        opening[name] = {**opening[name], **value} if isinstance(value, dict) else value  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=told):
        workers._opened(opening, threading.Event())


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_workers_of_one_machine_share_its_cores_and_its_memory_for_images(
    count: int, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cores, "_free", cores._free)
    setup, ledger = (
        open_setup(RunConfig(path=edits(1))),
        Ledger(budget=RunBudget(), prices=Prices(), stop=threading.Event()),
    )
    crew = workers.Crew(workers.Local(), setup, tmp_path, ledger, count=count, seats=1, tools=False)
    (tmp_path / "cache").mkdir()
    crew._mark.touch()
    with_share = workers._opened(crew._opening, threading.Event())
    assert with_share.images.cache_bytes == 2**28 // count
    # One core at the least.
    assert cores._free.qsize() == max(1, cores.usable_cores() // count)


def test_a_worker_that_differs_breaks_the_run_at_once(
    serve: Any, edits: Edits, tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(package, "__version__", "9.9")
    with pytest.raises(ConfigError, match=r"a worker on .*: editloupe is .* here and 9\.9 where the run was started"):
        run(serve(looks_then_answers), edits(3), tmp_path / "run", workers=2)
    assert len(started) == 2


def test_who_does_not_know_the_key_gets_no_task(edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "_PROGRAM", "import time; time.sleep(60)")
    setup = open_setup(RunConfig(path=edits(1)))
    ledger = Ledger(budget=RunBudget(), prices=Prices(), stop=threading.Event())
    with workers.Crew(workers.Local(), setup, tmp_path, ledger, count=1, seats=1, tools=False) as crew:
        address = crew._listening.getsockname()[:2]
        with pytest.raises(Exception, match="digest sent was rejected"):
            workers._join(address, b"a guess", 0, "seat")
        with socket.create_connection(address) as peer:
            peer.settimeout(5)
            assert b"CHALLENGE" in peer.recv(1000)
            peer.sendall(b"\0\0\0\x04oops")
            assert b"FAILURE" in peer.recv(1000) and peer.recv(1000) == b""
        assert not crew._free


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"executor": "ray"}, "--executor ray needs --workers N"),
        ({"workers": 2, "worker_gpus": 1.0}, "--worker-gpus needs --executor ray"),
        ({"workers": 0}, "workers"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], told: str):
    with pytest.raises(ConfigError, match=told):
        RunConfig.make(**given)


def test_a_backend_that_is_an_object_is_refused_before_anything_is_spent(edits: Edits, tmp_path: Path):
    from editloupe.backends.scripted import ScriptedLMM

    config = RunConfig.make(path=edits(1), judge={"backend": ScriptedLMM([])}, workers=2)
    with pytest.raises(ConfigError, match="an object cannot go to another process; name it by its URI"):
        drive(open_setup(config), tmp_path / "run")
    assert not (tmp_path / "run").exists()
