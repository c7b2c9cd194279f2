"""Runs to look at and to measure with: three scripted judges over drawn edits. No model is asked.

    python -m benchmarks.judged_runs OUT [--samples 40] [--editors 2]

Verdicts are drawn from a seeded generator: judges agree on most samples, differ on some and fail on a few. Findings go
through the run's store, without traces, so that thousands of samples take seconds.
"""

from __future__ import annotations

import argparse
import io
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw

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
    store = RunStore.begin(
        folder,
        setup.spec,
        [JudgeEntry(judge=j) for j in judges],
        Loaded(format="drawn", samples=tuple(loaded), rejected=()),
    )
    with closing(store):
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
    human = (
        {"instruction_following": {"people": chance.choice(("Flawless Execution", "Wrong Action"))}} if n % 5 == 0 else {}
    )
    return Sample(
        id=f"edit-{n:04}",
        dataset="drawn",
        editor=editor,
        source=source,
        turns=(
            Turn(instruction=f"Make the {name} at the lower left of the scene green and keep all else.", edited=edited),
        ),
        targets=(Target(name=name, boxes={"source": box}),) if n % 9 else (),
        edit_type=TYPES[n % len(TYPES)],
        human=human,
    )


def _pair(images: ImageStore, n: int) -> tuple[ImageRef, ImageRef, Box, str]:
    """A scene of shapes, the same with one of them in another color, and where that one is."""
    chance = random.Random(n)
    width, height = _SIZE
    scene = Image.linear_gradient("L").resize(_SIZE).convert("RGB")
    scene = Image.blend(scene, Image.new("RGB", _SIZE, tuple(chance.randrange(60, 255) for _ in range(3))), 0.7)
    draw = ImageDraw.Draw(scene)
    for _ in range(14):
        x, y, r = chance.randrange(width), chance.randrange(height), chance.randrange(12, 60)
        draw.ellipse((x - r, y - r, x + r, y + r), fill=tuple(chance.randrange(255) for _ in range(3)))
    x, y, side = chance.randrange(40, width - 120), chance.randrange(40, height - 120), chance.choice((18, 28, 44, 70))
    box, name = (x, y, x + side, y + side), chance.choice(("square tile", "crate", "window"))
    refs = []
    for color in ("#c0392b", "#2e9e5b"):
        ImageDraw.Draw(scene).rectangle(box, fill=color, outline="#222")
        out = io.BytesIO()
        scene.save(out, "PNG")
        refs.append(images.add_bytes(out.getvalue()))
    return refs[0], refs[1], Box(*map(float, box)), name


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--samples", type=int, default=40)
    options.add_argument("--editors", type=int, choices=(1, 2), default=2)
    given = options.parse_args()
    print(make(given.out, samples=given.samples, editors=given.editors))


if __name__ == "__main__":
    main()
