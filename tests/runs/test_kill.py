"""Kill −9 in the middle of a run, again and again: nothing is lost, nothing is paid twice but what was in flight.

As a program, a run that is made to be killed: `python -m tests.runs.test_kill EDITS OUT LOG PROCESSES`. Every model call
is written to LOG (and synced) before it is answered, so that what was paid for can be counted.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.runs.verify import verify
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from tests.conftest import LOOK, Edits, final
from tests.setups import open_with, run_over

SAMPLES, KILLS, CONCURRENCY = 60, 10, 2
LABELS = ("Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure")


def main(edits: str, out: str, log: str, processes: str) -> None:
    """Judge IF of `edits` into `out`, with the tool in so many processes."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def script(request: Request) -> str:
        os.write(descriptor, request.key().encode() + b"\n")
        os.fsync(descriptor)
        time.sleep(0.01)
        turn = sum(m.role == "assistant" for m in request.messages)
        return LOOK if turn == 0 else final(LABELS[int(request.key()[:8], 16) % 4])

    setup = open_with(backend=ScriptedLMM(script, name="counted"), criteria=("if",), processes=int(processes))
    run_over(setup, Path(edits), Path(out), config={"path": edits}, concurrency=CONCURRENCY)


def findings(out: Path) -> dict[str, dict[str, object]]:
    """By task, without what a clock decides: a kill can fall between a tool's cache and the trace of its observation."""
    rows = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    for row in rows:
        row["counts"].pop("cached_tools", None)
    return {row["task_id"]: {k: v for k, v in row.items() if k != "seconds"} for row in rows}


def recorded(out: Path) -> set[str]:
    """The requests whose replies lie in the traces."""
    # A process that died while it opened a trace leaves a file without one whole line, and so without a reply.
    begun = [path for path in sorted(out.glob("traces/*/*/*.jsonl")) if b"\n" in path.read_bytes()]
    traces = [read_trace(path) for path in begun]
    return {e.request_key for trace in traces for e in trace.events if isinstance(e, ModelCall)}


def start(edits: Path, out: Path, log: Path, *, processes: int = 2) -> subprocess.Popen[bytes]:
    """Start a run whose tool has processes of its own: they end with it."""
    command = [sys.executable, "-m", "tests.runs.test_kill", *map(str, (edits, out, log, processes))]
    return subprocess.Popen(command)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.slow
def test_a_run_that_is_killed_ten_times_ends_with_the_same_findings_and_pays_no_call_twice(edits: Edits, tmp_path: Path):
    folder, log = edits(SAMPLES), tmp_path / "calls.log"
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    assert start(folder, calm, tmp_path / "calm.log", processes=1).wait(timeout=120) == 0
    assert len(lines(tmp_path / "calm.log")) == 2 * SAMPLES

    dice = random.Random(7)
    for number in range(KILLS):
        before, known = len(lines(log)), recorded(killed) if killed.exists() else set()
        process = start(folder, killed, log)
        # Some die at any moment of their start; the others after a few calls, counted so that no machine is too fast.
        deadline = time.monotonic() + (dice.uniform(0.2, 2.5) if number % 3 == 0 else 60)
        enough = before + dice.randint(1, 8)
        while len(lines(log)) < enough and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.02))
        process.kill()
        process.wait()
        assert not known & set(lines(log)[before:]), "a reply that was recorded was asked for again"
    assert len(findings(killed)) < SAMPLES, "the kills came too late to prove anything"
    assert start(folder, killed, log).wait(timeout=120) == 0

    assert findings(killed) == findings(calm)
    assert not any(part.wrong for part in verify(killed))
    paid = Counter(lines(log))
    assert len(paid) == 2 * SAMPLES
    # Each kill can lose the calls in flight, one a thread, and no other call was made twice.
    assert sum(paid.values()) - len(paid) <= KILLS * CONCURRENCY


if __name__ == "__main__":
    main(*sys.argv[1:])
