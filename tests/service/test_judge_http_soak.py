"""The service under load: 64 clients for a minute at a slow backbone, in a process of its own whose memory is watched."""

from __future__ import annotations

import http.client
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from editloupe.runs.store import RunStore
from tests.service.loopback_judge import IF_LABELS, edit
from tests.service.test_judge_http import command

CLIENTS = 64
SECONDS = 60.0
MOST_GROWTH_MB = 60.0
"""From a warm service on; one that kept every sample and finding would pass it at this rate within minutes."""

SERVER = """
import random, time
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


def resident_mb(pid: int) -> float:
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_no_answer_is_lost_or_crossed_memory_stays_and_it_stops_cleanly(tmp_path: Path):
    run, stop, statuses, answered = tmp_path / "run", threading.Event(), Counter[str](), set[int]()
    words = ("--out", str(run), "--backend", "scripted/x", "--concurrency", "24", "--max-queue", "30")
    with command(*words, code=SERVER) as (process, service), ThreadPoolExecutor(CLIENTS) as pool:

        def asks(client: int) -> None:
            chosen, turn = random.Random(client), 0
            while not stop.is_set():
                # One in four is asked by many at once.
                number = chosen.randrange(50) if chosen.random() < 0.25 else 1000 + client + CLIENTS * turn
                turn += 1
                try:
                    code, _, said = service.ask("/v1/judge", edit(number, id=f"{client}-{turn}"))
                except (OSError, http.client.HTTPException) as error:
                    statuses[type(error).__name__] += 1
                    continue
                statuses[str(code)] += 1
                if code == 200:
                    (finding,) = said["findings"]
                    assert (said["id"], finding["label"], finding["reason"]) == (
                        f"{client}-{turn}", IF_LABELS[number % 4], f"this is mug {number}",
                    )  # fmt: skip
                    answered.add(number)
                else:
                    time.sleep(0.2)

        clients = [pool.submit(asks, number) for number in range(CLIENTS)]
        memory = []
        for _ in range(7):
            time.sleep(SECONDS / 7)
            memory.append(resident_mb(process.pid))
        # Told to stop in the middle of it: what is under way is answered.
        before = Counter(statuses)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=40)
        stop.set()
        for one in clients:
            one.result(60)
    assert set(before) <= {"200", "503"} and before["200"] > 500, before
    assert before["503"] > 0, "64 clients at 54 places: some must have been told to come back"
    assert memory[-1] - memory[1] < MOST_GROWTH_MB, memory
    assert process.returncode == 0 and "Traceback" not in told, told
    # After the signal a client meets an answer, a 503 or a closed door; nothing else.
    assert set(statuses) <= {
        "200", "503", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "RemoteDisconnected",
    }  # fmt: skip
    # Every answer is in the run, with its trace, and every verdict of the run has reached a client.
    store = RunStore.read(run)
    assert not store.problems and all((run / str(f.trace)).is_file() for f in store.current())
    judged = {finding.sample_id for finding in store.current()}
    told_of = {sample.instruction for key, sample in store.samples.items() if key in judged}
    assert told_of == {f"Paint mug {number} blue." for number in answered} and len(judged) > 400
