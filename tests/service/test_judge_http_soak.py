"""The service under load: 64 clients for a minute at a slow backbone, in a process of its own whose memory is watched."""

from __future__ import annotations

import http.client
import itertools
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs.store import RunStore
from tests.service.loopback_judge import IF_LABELS, Client, edit
from tests.service.test_judge_http import command

CLIENTS = 64
SECONDS = 60.0
MOST_GROWTH_MB = 60.0
"""From a warm service on; one that kept every sample and finding would pass it at this rate within minutes."""

SERVER = """
import random, sys, time
from pathlib import Path
from editloupe.backends import scripted
from tests.service.loopback_judge import by_number

class Slow(scripted.ScriptedLMM):
    def complete(self, request, images):
        time.sleep(random.uniform(0.02, 0.2))
        self.requests.clear()
        return super().complete(request, images)

scripted.open_backend = lambda uri: Slow(by_number)
from editloupe.cli import main
main()
"""


class Clients:
    """Threads that ask for edits of their own, and some for shared ones, and check each answer."""

    def __init__(self, service: Client) -> None:
        self.service = service
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.statuses: Counter[str] = Counter()
        self.wrong: list[object] = []
        self.answered: set[int] = set()
        self.threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def _ask(self, client: int) -> None:
        chosen = random.Random(client)
        for turn in itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count()):
            # One in four is asked by many at once.
            number = chosen.randrange(50) if chosen.random() < 0.25 else 1000 + client + CLIENTS * turn
            name, said = f"{client}-{turn}", {}
            try:
                code, _, said = self.service.ask("/v1/judge", edit(number, id=name))
                status = str(code)
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
            with self.lock:
                self.statuses[status] += 1
                if status == "200":
                    self.answered.add(number)
                    self.wrong += [] if _belongs(said, number, name) else [(number, name, said)]
            time.sleep(0 if status == "200" else 0.2)


def _belongs(said: dict[str, Any], number: int, name: str) -> bool:
    """Return whether an answer is one to this question."""
    (finding,) = said["findings"]
    label = (finding["label"], finding["reason"]) == (IF_LABELS[number % 4], f"this is mug {number}")
    return said["id"] == name and label and said["reward"]["value"] == pytest.approx(number % 4 / 3 * 100)


def resident_mb(pid: int) -> float:
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_no_answer_is_lost_or_crossed_memory_stays_and_it_stops_cleanly(tmp_path: Path):
    run = tmp_path / "run"
    words = ("--out", str(run), "--backend", "scripted/x", "--concurrency", "24", "--max-queue", "30")
    with command(*words, code=SERVER) as (process, service):
        clients = Clients(service)
        for thread in clients.threads:
            thread.start()
        time.sleep(SECONDS / 4)
        memory = [resident_mb(process.pid)]
        for _ in range(6):
            time.sleep(SECONDS / 8)
            memory.append(resident_mb(process.pid))
        # Told to stop in the middle of it: what is under way is answered.
        before = clients.statuses.copy()
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=40)
        clients.stop.set()
        for thread in clients.threads:
            thread.join(timeout=60)
    assert not clients.wrong, clients.wrong[:3]
    assert set(before) <= {"200", "503"} and before["200"] > 500, before
    assert before["503"] > 0, "64 clients at 54 places: some must have been told to come back"
    assert memory[-1] - memory[0] < MOST_GROWTH_MB, memory
    assert process.returncode == 0 and "Traceback" not in told, told
    # After the signal a client meets an answer, a 503 or a closed door; nothing else.
    closed = {"ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "RemoteDisconnected"}
    assert set(clients.statuses) <= {"200", "503"} | closed
    # Every answer is in the run, with its trace, and every verdict of the run has reached a client.
    store = RunStore.read(run)
    assert not store.problems
    assert all((run / str(f.trace)).is_file() for f in store.current())
    assert len(store.current()) == len({f.task_id for f in store.findings.values()})
    judged = {finding.sample_id for finding in store.current()}
    told_of = {sample.instruction for key, sample in store.samples.items() if key in judged}
    assert told_of == {f"Paint mug {number} blue." for number in clients.answered}
    assert clients.statuses["200"] >= len(judged) > 400
