"""A run in a process of its own, made to be killed: `python -m tests.runs.killed_run EDITS OUT LOG PROCESSES`.

Every model call is written to LOG (and synced) before it is answered, so that what was paid for can be counted.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from tests.conftest import LOOK, final
from tests.setups import open_with, run_over

LABELS = ("Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure")
CONCURRENCY = 2


def main(edits: str, out: str, log: str, processes: str) -> None:
    """Judge IF of `edits` into `out`, with the tool in so many processes."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def script(request: Request) -> str:
        os.write(descriptor, request.key().encode() + b"\n")
        os.fsync(descriptor)
        time.sleep(0.01)
        turn = sum(m.role == "assistant" for m in request.messages)
        number = int(request.key()[:8], 16)
        return LOOK if turn == 0 else final(LABELS[number % 4])

    setup = open_with(backend=ScriptedLMM(script, name="counted"), criteria=("if",), processes=int(processes))
    run_over(setup, Path(edits), Path(out), config={"path": edits}, concurrency=CONCURRENCY)


if __name__ == "__main__":
    main(*sys.argv[1:])
