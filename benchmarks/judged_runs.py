"""Runs to look at and to measure with: three scripted judges over drawn edits. No model is asked.

    python -m benchmarks.judged_runs OUT [--samples 40] [--editors 2]

Verdicts are drawn from a seeded generator: judges agree on most samples, differ on some and fail on a few. Findings go
through the run's store, without traces, so that thousands of samples take seconds.
"""

from __future__ import annotations

import argparse
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.drawing import KINDS, Thing, render, wall
from editloupe.answers import Label
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Usage
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded
from editloupe.findings import FAILURES, Evidence, Finding
from editloupe.protocols.repeats import Repeats
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.schedule import Schedule
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore
from editloupe.values import Box, ImageRef, Sample, Target, Turn

JUDGES: Final = ("openai/gpt-4.1", "vllm/Qwen/Qwen3-VL-32B?base_url=http://127.0.0.1:8000/v1", "google/gemini-2.5-pro")
TYPES: Final = ("Change Color", "Removal Object", "Replace Object", "Change Material", "Add Object", "Change Background")
_DRAWN: Final = 40
"""Different pairs of images; further samples share them."""
_SIZE: Final = (640, 480)


def make(folder: Path, *, samples: int, editors: int = 1, seed: int = 7) -> Path:
    """Write a run of `samples` samples a editor, each judged by three judges on two metrics."""
    chance = random.Random(seed)
    config = RunConfig(judge=JudgeConfig(backend=ScriptedLMM(["unused"], name="none")), option={"mode": "plain"})
    setup = open_setup(config)
    judges = [replace(setup.judge, backend=uri) for uri in JUDGES]
    images = ImageStore(folder / "blobs", writes=False)
    drawn = [_pair(images, n) for n in range(min(samples, _DRAWN))]
    loaded = [
        _sample(n, f"editor-{'ab'[e]}", *drawn[n % len(drawn)], chance) for n in range(samples) for e in range(editors)
    ]
    data = Loaded(format="drawn", samples=tuple(loaded), rejected=())
    with closing(RunStore.begin(folder, setup.spec, [JudgeEntry(judge=j) for j in judges], data)) as store:
        images.write()
        planned = Schedule(setup.protocol, loaded, Repeats(), lambda task, repeat: None).ready
        metrics = {metric.id: metric for metric in setup.protocol.metrics}
        by_key = {sample.key: sample for sample in loaded}
        found = []
        for task in (one.task for one in planned):
            levels = metrics[task.metric].levels
            truth = chance.choices(range(len(levels)), weights=(2, 1, 2, 5))[0]
            for number, judge in enumerate(judges):
                found.append(_finding(task, judge.id, levels, truth, number, by_key[task.about.key], chance))
        store.add_findings(found)
    return folder


def _finding(task, judge_id, levels, truth, number, sample, chance) -> Finding:  # type: ignore[no-untyped-def]
    usage = Usage(input_tokens=chance.randrange(900, 3000), output_tokens=chance.randrange(40, 400))
    more = {"usage": usage, "seconds": chance.uniform(0.8, 9.0), "turns": chance.randrange(0, 4)}
    if chance.random() < 0.02:
        status = chance.choice(sorted(FAILURES & {"unparsed", "refused", "backend_failed", "over_budget"}))
        return Finding.of(task, judge_id=judge_id, repeat=0, status=status, ending="backend", reason="drawn", **more)
    at = truth if chance.random() < 0.8 - 0.1 * number else chance.randrange(len(levels))
    evidence = (Evidence(image="Edited Image", box=sample.targets[0].boxes["source"]),) if sample.targets else ()
    label = Label(name=levels[at].name, value=levels[at].value)
    return Finding.of(
        task, judge_id=judge_id, repeat=0, status="ok", ending="answer", answer=label, evidence=evidence,
        reason="A drawn verdict: no model was asked.", **more,
    )  # fmt: skip


def _sample(n: int, editor: str, source: ImageRef, edited: ImageRef, box: Box, name: str, chance: random.Random) -> Sample:
    people = {"people": chance.choice(("Flawless Execution", "Wrong Action"))} if n % 5 == 0 else {}
    instruction = f"Make the {name} at the lower left of the scene green and keep all else."
    return Sample(
        id=f"edit-{n:04}",
        dataset="drawn",
        editor=editor,
        source=source,
        turns=(Turn(instruction=instruction, edited=edited),),
        targets=(Target(name=name, boxes={"source": box}),) if n % 9 else (),
        edit_type=TYPES[n % len(TYPES)],
        human={"instruction_following": people} if people else {},
    )


def _pair(images: ImageStore, n: int) -> tuple[ImageRef, ImageRef, Box, str]:
    """A scene of small things, the same with one of them in another color, and where that one is."""
    rng, (width, height) = np.random.default_rng(n), _SIZE
    kinds = [str(kind) for kind in rng.permutation([*KINDS])[:8]]
    things = [
        Thing(
            kind=kind, color=str(rng.choice(["blue", "orange", "purple", "brown"])), x=rng.uniform(60, width - 60),
            y=rng.uniform(60, height - 60), size=rng.uniform(18, 70), grain=place,
        )
        for place, kind in enumerate(kinds)
    ]  # fmt: skip
    ground, (*others, last) = wall(rng, width, height), things
    scenes = (render(ground, [*others, replace(last, color=color)]) for color in ("red", "green"))
    source, edited = map(images.add_array, scenes)
    return source, edited, Box(*map(float, last.box)), last.kind


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--samples", type=int, default=40)
    options.add_argument("--editors", type=int, choices=(1, 2), default=2)
    given = options.parse_args()
    print(make(given.out, samples=given.samples, editors=given.editors))


if __name__ == "__main__":
    main()
