"""Scores of single samples whose means are the paper's Tables 4, 9 and 10, or 11 and 12 of its second judge.

The paper publishes no score of a sample. `unicbench_scores.csv` (and `unicbench_second_judge.csv`, of Qwen2.5-VL-72B) has
its printed means and, for each task, how many samples stand behind them (the whole number for which mean times count is
whole for every metric at once). From these:

- IF, NC, VQ and RA: the sum over a task is the whole number that the printed mean comes of, so that the cells of Table 4
  follow from counts and sums alone;
- Overall: how far samples lie from their means is chosen so that the mean of geometric means is the printed one. A sum of
  printed cells is off by their rounding, at most 0.00005, and so the target of a model is moved within that to hit Table 4.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from editloupe.answers import Number
from editloupe.findings import Finding
from editloupe.protocols.unicbench.tables import TASKS
from editloupe.values import Sample
from tests.protocols.said import edit, finding

METRICS = {
    "IF": "instruction_following", "NC": "non_edit_consistency", "VQ": "visual_quality", "RA": "reasoning_accuracy",
}  # fmt: skip
ASKED = dict(zip(TASKS, (250, 350, 250, 250), strict=True))
HALF = 0.00005


@cache
def published(judge: str = "scores") -> dict[tuple[str, str], dict[str, Mapping[str, str]]]:
    """(language, model) → task, or "All" for Table 4 → what is printed, and `judged`."""
    found: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    with (Path(__file__).parent / f"unicbench_{judge}.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found.setdefault((line["language"], line["model"]), {})[line["task"]] = line
    return found


def overalls(cells: Mapping[str, Mapping[str, str]]) -> dict[str, float]:
    """The mean of geometric means by task: what is printed, moved within its rounding so that Table 4 comes out."""
    printed = {task: float(cells[task]["Overall"]) for task in TASKS}
    if "All" not in cells:
        return printed
    count = {task: int(cells[task]["judged"]) for task in TASKS}
    off = float(cells["All"]["Overall"]) - sum(printed[t] * count[t] for t in TASKS) / sum(count.values())
    move = min(max(off, -0.98 * HALF), 0.98 * HALF)
    assert abs(off - move) < 0.98 * HALF
    return {task: value + move for task, value in printed.items()}


def scores(means: Sequence[float], overall: float, count: int) -> np.ndarray:
    """count×metrics numbers from 0 to 10 of these means, the mean of whose geometric means is `overall`."""
    sums = [round(mean * count) for mean in means]
    assert all(abs(total / count - mean) <= HALF + 1e-9 for total, mean in zip(sums, means, strict=True))
    # As far apart as they can lie: 10 or 0 but for one, each metric's zeros behind the one's before.
    apart, begin = np.zeros((count, len(sums))), 0
    for k, total in enumerate(sums):
        column = np.minimum(10.0, np.maximum(0.0, total - 10.0 * np.arange(count)))[::-1]
        apart[:, k] = np.roll(column, begin)
        begin += int((column < 10).sum())
    even = np.array(sums) / count
    near, far = 0.0, 1.0
    for _ in range(60):
        mid = (near + far) / 2
        mixed = (1 - mid) * even + mid * apart
        reached = float((mixed.prod(axis=1) ** (1 / len(sums))).mean())
        near, far = (mid, far) if reached > overall else (near, mid)
    assert abs(reached - overall) < 1e-9, (means, overall, reached)
    return mixed


def edits(language: str, model: str, judge: str = "scores") -> Iterator[tuple[Sample, list[Finding]]]:
    """The 1,100 samples of a model in a language with their findings; outputs beyond `judged` are missing."""
    cells = published(judge)[language, model]
    target = overalls(cells)
    for number, task in enumerate(TASKS):
        shorts = [short for short in METRICS if cells[task][short]]
        count = int(cells[task]["judged"])
        found = scores([float(cells[task][short]) for short in shorts], target[task], count)
        for place in range(ASKED[task]):
            there, subtask = place < count, f"{task} {place // 50}"
            extra = {"task": task, "subtask": subtask, "language": language, "reasoning_points": ["?"]}
            about = {"image": f"{number}-{place}", "editor": model, "edit_type": subtask, "extra": extra}
            sample = edit(f"{number}-{place}.{language}", edited=there, **about)
            said = [Number(value=float(one)) for one in found[place]] if there else ["missing_output"] * len(shorts)
            yield sample, [finding(sample, METRICS[short], one) for short, one in zip(shorts, said, strict=True)]
