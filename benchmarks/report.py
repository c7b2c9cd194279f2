"""What `editloupe report` takes on a whole DLEBench: time and memory.

    python -m benchmarks.report                   # 2 editors × 1,889 samples of made findings, 3 rounds, the middle one
    python -m benchmarks.report --write           # and put the line into docs/dlesetup.md

Areas are log-normal and edit types as frequent as the paper's (Figure 4, Table 2); labels are drawn at random.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pages import put
from editloupe.answers import Label
from editloupe.chat import Sampling
from editloupe.findings import Finding, JudgeSpec
from editloupe.protocols.dlebench.protocol import EDIT_TYPES, Options
from editloupe.rubrics import load_rubric
from editloupe.tasks import Budget
from editloupe.values import Box, ImageRef, Sample, Target, Turn, digest

SAMPLES = 1889
EDITORS = ("alpha", "beta")
FREQUENCIES = (84, 699, 455, 23, 577, 47, 24)
WIDTH, HEIGHT = 2000, 1500


def write_run(folder: Path, *, samples: int = SAMPLES, seed: int = 0) -> None:
    """A run folder with made findings of both criteria, 1 % of them without a label."""
    rng, rubric = random.Random(seed), load_rubric("dlebench")
    judge = JudgeSpec(
        backend="openai/made",
        endpoint="made",
        sampling=Sampling(),
        tool_protocol="text",
        image_policy="made",
        prompts="made",
        rubric=rubric.digest,
        tools={},
    )
    identity = {
        "protocol": "dlebench",
        "mode": "tool",
        "rubric": rubric.digest,
        "budget": Budget().to_json(),
        "options": Options().to_json(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    info = {
        "schema": 1,
        "identity": identity,
        "record": {"editloupe": "made", "rubric": rubric.to_json()},
        "judges": {judge.id: judge.to_json()},
    }
    (folder / "run.json").write_text(json.dumps(info), encoding="utf-8")
    rows, findings = [], []
    for editor in EDITORS:
        for number in range(samples):
            side = min(1400.0, math.sqrt(10 ** rng.gauss(-2.6, 0.5) * WIDTH * HEIGHT))
            sample = Sample(
                id=f"s{number}",
                editor=editor,
                # Two edits share a source image.
                source=_image(f"source {number // 2}"),
                turns=(Turn(instruction="Do it.", edited=_image(f"{editor} {number}")),),
                edit_type=rng.choices(EDIT_TYPES, FREQUENCIES)[0],
                targets=(Target(boxes={"source": Box(10, 10, 10 + side, 10 + side)}),),
            )
            rows.append(sample.to_json())
            for criterion in rubric.criteria:
                level = rng.choice(criterion.levels)
                judged = rng.random() > 0.01
                made = Finding(
                    task_id=digest([editor, number, criterion.id]),
                    judge_id=judge.id,
                    repeat=0,
                    sample_id=sample.id,
                    editor=editor,
                    criterion=criterion.id,
                    status="ok" if judged else "unparsed",
                    answer=Label(name=level.name, value=level.value) if judged else None,
                    reason="Seen, and found as the label says. " * 8,
                )
                findings.append(made.to_json())
    for name, lines in (("samples.jsonl", rows), ("findings.jsonl", findings)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _image(name: str) -> ImageRef:
    return ImageRef(sha256=digest(name), width=WIDTH, height=HEIGHT, media_type="image/png")


def measure(folder: Path) -> tuple[float, float]:
    """Seconds and peak MB of one `editloupe report` in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "editloupe", "report", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"editloupe report ended with exit code {process.returncode}")
    unit = 1024 if sys.platform != "darwin" else 1
    return time.perf_counter() - began, _peak(used) * unit / 1e6


def _peak(used: resource.struct_rusage) -> float:
    return float(used.ru_maxrss)


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
    seconds = statistics.median(s for s, _ in rounds)
    peak = statistics.median(m for _, m in rounds)
    line = f"{len(EDITORS)} editors × {options.samples:,} samples: {seconds:.1f} s, {peak:.0f} MB at the most, one process."
    print(line)
    if options.write:
        put("dlesetup.md", "report", line)


if __name__ == "__main__":
    main()
