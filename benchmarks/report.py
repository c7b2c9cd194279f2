"""What `editloupe report` takes on a whole DLEBench: time, CPU and memory.

    python -m benchmarks.report                   # 2 editors × 1,889 samples of made findings, 3 rounds, the middle one
    python -m benchmarks.report --write           # and put the line into docs/dlebench.md

Areas are log-normal and edit types as frequent as the paper's (Figure 4, Table 2); labels are drawn at random.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.pages import compiled_once, put
from editloupe.answers import Label
from editloupe.config import RunConfig
from editloupe.data.samples import Loaded
from editloupe.findings import Finding
from editloupe.protocols.dlebench.tables import EDIT_TYPES
from editloupe.rubrics import load_rubric
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore
from editloupe.values import Box, ImageRef, Sample, Target, Turn, digest

SAMPLES = 1889
EDITORS = ("alpha", "beta")
FREQUENCIES = (84, 699, 455, 23, 577, 47, 24)
WIDTH, HEIGHT = 2000, 1500


def write_run(folder: Path, *, samples: int = SAMPLES, seed: int = 0) -> None:
    """A run folder of the pixel baseline with made findings of both criteria, 1 % of them without a label."""
    rng, rubric = random.Random(seed), load_rubric("dlebench")
    setup = open_setup(RunConfig())
    loaded = Loaded(format="made", samples=tuple(_samples(rng, samples)), rejected=())
    with closing(RunStore.begin(folder, setup.spec, setup.entries(), loaded, config={})) as store:
        for sample in loaded.samples:
            for criterion in rubric.criteria:
                level = rng.choice(criterion.levels)
                judged = rng.random() > 0.01
                finding = Finding(
                    task_id=digest([sample.editor, sample.id, criterion.id]),
                    judge_id=setup.judge.id,
                    repeat=0,
                    sample_id=sample.id,
                    editor=sample.editor,
                    metric=criterion.id,
                    status="ok" if judged else "unparsed",
                    answer=Label(name=level.name, value=level.value) if judged else None,
                    reason="Seen, and found as the label says. " * 8,
                )
                store.add_findings([finding])


def _samples(rng: random.Random, samples: int) -> Iterator[Sample]:
    for editor in EDITORS:
        for number in range(samples):
            side = min(1400.0, math.sqrt(10 ** rng.gauss(-2.6, 0.5) * WIDTH * HEIGHT))
            yield Sample(
                id=f"s{number}",
                editor=editor,
                # Two edits share a source image.
                source=_image(f"source {number // 2}"),
                turns=(Turn(instruction="Do it.", edited=_image(f"{editor} {number}")),),
                edit_type=rng.choices(EDIT_TYPES, FREQUENCIES)[0],
                targets=(Target(boxes={"source": Box(10, 10, 10 + side, 10 + side)}),),
            )


def _image(name: str) -> ImageRef:
    return ImageRef(sha256=digest(name), width=WIDTH, height=HEIGHT, media_type="image/png")


def measure(folder: Path) -> tuple[float, float, float]:
    """Return seconds, seconds of CPU and peak MB of one `editloupe report` in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "editloupe", "report", str(folder)]
    with subprocess.Popen(
        command, env=compiled_once(folder.parent), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"editloupe report ended with exit code {process.returncode}")
    unit = 1024 if sys.platform != "darwin" else 1
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        write_run(folder, samples=options.samples)
        rounds = [measure(folder) for _ in range(options.rounds)]
    seconds, cpu, peak = map(statistics.median, zip(*rounds, strict=True))
    line = (
        f"{len(EDITORS)} editors × {options.samples:,} samples: {seconds:.1f} s, {cpu:.1f} s of it CPU, "
        f"{peak:.0f} MB at the most, one process."
    )
    print(line)
    if options.write:
        put("dlebench.md", "report", line)


if __name__ == "__main__":
    main()
