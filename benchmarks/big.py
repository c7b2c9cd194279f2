"""How long the commands take on a large run, and how much memory they hold.

    python -m benchmarks.big                          # 100,200 findings, some minutes
    python -m benchmarks.big --samples 835            # 5,010 findings
    python -m benchmarks.big --write                  # and put the table into benchmarks/README.md

The run is made (`benchmarks.judged_runs`): two editors, three judges, two metrics, no traces. `merge` joins its halves.
`judge` continues a finished run of as many findings over a folder of small images, where nothing is left to ask. `view` is
timed from the start of the command to its list of runs and to the matrix of the run with all rows. Each command runs in a
process of its own, once, after one on a small run that compiles what it imports.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.judged_runs import make
from benchmarks.pages import compiled_once, options, show, table
from editloupe.answers import Label
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.findings import Finding
from editloupe.runs.schedule import Schedule
from editloupe.runs.selection import selected
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore

_PAIRS = 500
"""Different pairs of files in the folder of edits."""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--samples", type=int, default=8350, help="of each editor; six findings a sample and editor")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(compiled_once(Path(scratch)))
        # On a small run first: what the commands import is then compiled, as in an installed package.
        for name, samples in (("small", 20), ("large", args.samples)):
            rows = _rows(Path(scratch) / name, samples)
    head = f"{12 * args.samples:,} findings, {os.cpu_count()} shared cores; each command once, in a process of its own."
    cells = [(name, f"{seconds:.1f}", f"{cpu:.1f}", f"{peak:.0f}") for name, (seconds, cpu, peak) in rows]
    text = table(("command", "seconds:", "CPU seconds:", "peak MB:"), cells)
    show("big", f"{head}\n\n{text}", write=args.write)


def _rows(folder: Path, samples: int) -> list[tuple[str, tuple[float, float, float]]]:
    """Each command with its seconds, CPU seconds and peak MB."""
    run = make(folder / "run", samples=samples, editors=2)
    halves = [_half(run, folder / name, editor) for name, editor in (("a", "editor-a"), ("b", "editor-b"))]
    edits, judged = _finished(folder, 6 * samples)
    return [
        ("`show RUN`", _timed("show", run)),
        ("`show RUN SAMPLE`", _timed("show", run, _first(run))),
        ("`report RUN`", _timed("report", run)),
        ("`compare RUN`", _timed("compare", run)),
        ("`export --findings`", _timed("export", run, "--findings", folder / "findings.csv")),
        ("`merge`, two halves", _timed("merge", folder / "whole", *halves)),
        ("`judge`, nothing left to ask", _timed("judge", edits, "--out", judged)),
        ("`verify`", _timed("verify", run)),
        ("`view`, to its first page", _viewed(run, "index.html")),
        ("`view`, to all rows", _viewed(run, "index.html", "rows.json")),
    ]


_LAUNCH = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
began = time.perf_counter()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(child, 0)
cpu = used.ru_utime + used.ru_stime
print(time.perf_counter() - began, cpu, used.ru_maxrss, os.waitstatus_to_exitcode(status), file=sys.stderr)
"""
"""Runs a command and tells seconds, CPU seconds, peak memory and exit code. A child's peak is never below that of the
process that started it, so this one is small."""


def _timed(*words: object) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak MB of a command."""
    command = [sys.executable, "-m", "editloupe", *map(str, words)]
    done = subprocess.run(
        [sys.executable, "-S", "-c", _LAUNCH, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, cpu, peak, code = done.stderr.splitlines()[-1].split()
    if code != "0":
        raise SystemExit(f"editloupe {words[0]} ended with {code}: {done.stderr[-300:]}")
    print(f"{words[0]}: {float(seconds):.1f} s, {float(cpu):.1f} s CPU, {_mb(int(peak)):.0f} MB", file=sys.stderr)
    return float(seconds), float(cpu), _mb(int(peak))


def _mb(peak: int) -> float:
    return peak * (1024 if sys.platform != "darwin" else 1) / 1e6


def _viewed(run: Path, *pages: str) -> tuple[float, float, float]:
    """Seconds from the start of `editloupe view` until these pages are there, CPU seconds and peak MB of the server."""
    began = time.perf_counter()
    command = [sys.executable, "-S", "-c", _LAUNCH, sys.executable, "-m", "editloupe", "view", str(run), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        url = process.stdout.readline().split(" at ")[1].split()[0]
        for page in pages:
            with urllib.request.urlopen(f"{url}{page}", timeout=600) as answer:
                answer.read()
        seconds = time.perf_counter() - began
        # The server ends by it; the launcher, which does not listen, tells.
        os.killpg(process.pid, signal.SIGTERM)
        _, cpu, peak, _ = process.stderr.read().splitlines()[-1].split()
    print(f"view, {' and '.join(pages)}: {seconds:.1f} s, {cpu} s CPU", file=sys.stderr)
    return seconds, float(cpu), _mb(int(peak))


def _half(run: Path, shard: Path, editor: str) -> Path:
    """A shard that holds what a run holds of one editor."""
    shutil.copytree(run, shard, ignore=shutil.ignore_patterns("run.lock"))
    for name in ("samples.jsonl", "findings.jsonl"):
        lines = (run / name).read_bytes().splitlines(keepends=True)
        (shard / name).write_bytes(b"".join(line for line in lines if json.loads(line)["editor"] == editor))
    return shard


def _first(run: Path) -> str:
    with (run / "samples.jsonl").open() as file:
        sample = json.loads(file.readline())
    return f"{sample['editor']}/{sample['id']}"


def _finished(folder: Path, samples: int) -> tuple[Path, Path]:
    """A folder of edits, and a run of the pixel baseline in which every question about it has an answer that was made."""
    edits, run = folder / "edits", folder / "judged"
    (edits / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(_PAIRS):
        for side in ("source", "edited"):
            Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(edits / f"images/{i}-{side}.png")
    with (edits / "metadata.jsonl").open("w", encoding="utf-8") as file:
        for i in range(samples):
            files = {f"{side}_file_name": f"images/{i % _PAIRS}-{side}.png" for side in ("source", "edited")}
            file.write(json.dumps({"id": f"s{i}", **files, "instruction": f"Edit {i}."}) + "\n")
    config = RunConfig(path=edits)
    setup = open_setup(config)
    loaded = selected(config, ImageStore(run / "blobs", writes=False))
    with closing(RunStore.begin(run, setup.spec, setup.entries(), loaded)) as store:
        best = {"instruction_following": "Flawless Execution", "visual_consistency": "Perfect Consistency"}
        said = partial(Finding.of, judge_id=setup.judge.id, repeat=0, status="ok", ending="answer")
        places = Schedule(setup.protocol, loaded.samples, setup.repeats, lambda task, repeat: None).ready
        tasks = [place.task for place in places]
        store.add_findings([said(task, answer=Label(name=best[task.metric], value=4.0)) for task in tasks])
    return edits, run


if __name__ == "__main__":
    main()
