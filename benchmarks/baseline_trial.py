"""The pixel baseline on trial: edits whose truth is known, drawn ones and ones made from photographs.

    python -m benchmarks.baseline_trial                         # drawn scenes
    python -m benchmarks.baseline_trial --data FOLDER           # and photographs
    python -m benchmarks.baseline_trial --data FOLDER --write   # and put the tables into docs/baseline.md

The road is a user's: `editloupe build probes`, `editloupe judge --protocol probes`, and the figures of `editloupe trial`.
Modes take turns on the same probes. FOLDER has the photographs of `TARGETS`, anywhere below it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import cv2

from benchmarks.pages import put
from editloupe.backends.prices import read_prices
from editloupe.build.probes.trial import JudgeTrial, MetricTrial, Trial, put_on_trial
from editloupe.build.probes.trial_tables import threshold_text
from editloupe.data.probes import AREAS, FAILURES
from editloupe.reports.judged import read_judged
from editloupe.stats.bootstrap import Estimate, ends

MODES: Final = ("tool", "plain")
COUNT: Final = 640
"""Probes that are planned. About 5 % are refused for want of room in a scene, so that 600 are left."""
OF_PHOTOGRAPHS: Final = 320
"""The same, of photographs: they have few targets."""
SEED: Final = 0
NONE: Final = "–"

TARGETS: Final[Mapping[str, Sequence[tuple[str, tuple[float, float, float, float]]]]] = {
    "signicade.jpg": [("sandwich board", (0.5176, 0.5, 0.5388, 0.5486))],
    "vending_machine.jpg": [("vending machine", (0.5264, 0.7586, 0.5533, 0.8206))],
    "blackmug.jpg": [("mug", (0.5135, 0.5069, 0.578, 0.595))],
    "re-005-aurora.jpg": [("white plate", (232, 147, 376, 265))],
    "re-006-aurora.jpg": [("shoe", (85, 245, 138, 344)), ("red towel", (251, 269, 385, 399))],
    "re-008-aurora.jpg": [("toy orca", (361, 200, 423, 289)), ("boat shoe", (68, 320, 125, 425))],
    "re-011-aurora.jpg": [("blue shoe", (364, 75, 417, 173)), ("white sneaker", (395, 173, 431, 241))],
    "re-013-aurora.jpg": [
        ("gift box", (25, 152, 160, 286)),
        ("white ring", (25, 349, 128, 454)),
        ("flip-flop", (405, 284, 467, 389)),
    ],
    "re-014-aurora.jpg": [("straw hat", (354, 317, 476, 445))],
    "re-016-aurora.jpg": [
        ("bowl", (152, 212, 250, 301)),
        ("white tile", (317, 262, 392, 329)),
        ("blue towel", (274, 152, 346, 231)),
        ("toy train", (327, 339, 423, 375)),
    ],
    "re-017-aurora.jpg": [("bowl", (276, 236, 365, 325)), ("laptop", (238, 133, 312, 224))],
    "re-203-aurora.jpeg": [("mug", (550, 343, 670, 451))],
}
"""Photograph → its targets: name, and box as x0, y0, x1, y1 in px, or in shares of the sides where none is above 1."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A set of probes, and the baseline's trial on it, one judge a mode in the order of `MODES`."""

    name: str
    """As tables call it: "drawn"."""
    trial: Trial
    built: tuple[float, float]
    """Wall and CPU seconds of building."""
    judged: Sequence[float]
    """CPU seconds of judging, one a mode."""

    @property
    def probes(self) -> int:
        return self.trial.judges[0].probes


def measure(name: str, path: str, folder: Path, *, count: int, seed: int, modes: Sequence[str]) -> Measured:
    """Build probes of `path` below `folder`, and put the baseline on trial in each of the modes."""
    probes = folder / name
    built = _command("build", "probes", path, "--count", str(count), "--seed", str(seed), "--out", str(probes))
    print(f"{name}: built in {built[0]:.0f} s, {built[1]:.0f} s of CPU", file=sys.stderr)
    runs, judged = [], []
    for mode in modes:
        runs.append(folder / f"{name}-{mode}")
        # The pixel baseline, which may abstain.
        judging = ("--protocol", "probes", "--mode", mode, "--fail-on-error", "1", "--out", str(runs[-1]))
        judged.append(_command("judge", str(probes), *judging)[1])
        print(f"{name}: judged in {judged[-1]:.0f} s of CPU, mode {mode}", file=sys.stderr)
    trial = put_on_trial(read_judged(runs, same_metrics=False), prices=read_prices(None))
    return Measured(name=name, trial=trial, built=built, judged=judged)


def photographs(data: Path, folder: Path) -> Path:
    """Write an ImageFolder of the photographs of `TARGETS` that lie below `data`. Exits where one is missing."""
    known = {path.name: path for path in sorted(data.rglob("*"), reverse=True) if _is_source(path)}
    missing = [name for name in TARGETS if name not in known]
    if missing:
        raise SystemExit(f"--data {data}: expected the photographs of benchmarks.baseline_trial.TARGETS; missing {missing}")
    folder.mkdir(parents=True)
    rows = []
    for name, targets in TARGETS.items():
        shutil.copyfile(known[name], folder / name)
        for number, (target, box) in enumerate(targets):
            row = {"id": f"{Path(name).stem}-{number}", "source_file_name": name, "target_name": target, "bbox": box}
            rows.append({**row, "bbox_format": "unit" if max(box) <= 1 else "xyxy"})
    (folder / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder


def report(sets: Sequence[Measured]) -> str:
    """Return three tables as Markdown: all figures; failure × area of the first set; what was answered instead."""
    first = sets[0]
    blocks = [
        " ".join(_set(one) for one in sets)
        + f" Seconds of one core, with {len(os.sched_getaffinity(0))} cores and OpenCV {cv2.__version__}.",
        _figures(sets),
        "In percent, with intervals of 95 % in which the probes of one scene are one cluster (judged/asked).",
        f"By failure and area, {first.name} scenes, tool mode: right of judged.",
        _cells(sets),
        "What was answered in place of the truth, tool mode, plain probes: right of asked.",
        _instead(sets),
    ]
    return "\n\n".join(blocks)


def _is_source(path: Path) -> bool:
    return path.name in TARGETS and path.parent.name != "edited"


def _command(*words: str) -> tuple[float, float]:
    """Run editloupe. Return wall and CPU seconds. Exits with its message where it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "editloupe", *words], capture_output=True, text=True)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"editloupe {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _set(one: Measured) -> str:
    judge = one.trial.judges[0]
    each = ", ".join(
        f"{seconds / one.probes:.2f} s in {j.mode}" for j, seconds in zip(one.trial.judges, one.judged, strict=True)
    )
    scenes = max(m.accuracy.clusters for m in judge.metrics)
    return (
        f"{one.name.capitalize()}: {judge.probes} probes, {judge.plain} of them plain, of {scenes} scenes; built in "
        f"{one.built[1]:.0f} s ({one.built[0]:.0f} s of wall time); judged in {each} mode a probe."
    )


def _figures(sets: Sequence[Measured]) -> str:
    judges = [(one, judge) for one in sets for judge in one.trial.judges]
    lines = _head("", [f"{one.name}, {judge.mode}" for one, judge in judges])
    per_metric = (
        ("accuracy", lambda m: _share(m.accuracy)),
        ("most frequent truth", _constant),
        ("accuracy, small targets", lambda m: _share(m.small)),
        ("detection threshold", lambda m: threshold_text(m.threshold)),
        ("leniency", lambda m: _share(m.leniency, signed=True)),
    )
    for title, of in per_metric:
        for index, short in enumerate(_shorts(sets[0].trial)):
            lines.append(_row(f"{short}, {title}", [of(judge.metrics[index]) for _, judge in judges]))
    for title, figure, signed in (
        ("changed by nuisances", "nuisance", False),
        ("changed by swapped order", "order", False),
        ("injection success", "injection", True),
    ):
        lines.append(_row(title, [_share(judge.figures[figure], signed=signed) for _, judge in judges]))
    for metric, short in zip(sets[0].trial.titles, _shorts(sets[0].trial), strict=True):
        cells = [_against_plain(one.trial, judge, metric) for one, judge in judges]
        lines.append(_row(f"{short}, accuracy less that of the plain mode", cells))
    lines.append(_row("not judged", [_missing(judge) for _, judge in judges]))
    return "\n".join(lines)


def _cells(sets: Sequence[Measured]) -> str:
    first = sets[0].trial.judges[0]
    areas = [f"{100 * area:g} %" for area in AREAS]
    lines = _head("failure | ", [*areas, *(f"{one.name}, all" for one in sets)])
    for failure in FAILURES:
        for index, short in enumerate(_shorts(sets[0].trial)):
            metric = first.metrics[index]
            if failure not in metric.by_failure:
                continue
            by_area = {cell.area: cell.accuracy for cell in metric.cells if cell.failure == failure}
            cells = [_count(by_area.get(area)) for area in AREAS]
            cells += [_share(one.trial.judges[0].metrics[index].by_failure.get(failure)) for one in sets]
            lines.append(_row(f"`{failure}` | {short}", cells))
    for index, short in enumerate(_shorts(sets[0].trial)):
        metric = first.metrics[index]
        cells = [_share(metric.by_area.get(f"{area:g}"), of=False) for area in AREAS]
        cells += [_share(one.trial.judges[0].metrics[index].accuracy) for one in sets]
        lines.append(_row(f"all | {short}", cells))
    return "\n".join(lines)


def _instead(sets: Sequence[Measured]) -> str:
    lines = _head("truth", [part for one in sets for part in (f"{one.name}: right", "instead")])
    for metric, labels in sets[0].trial.levels.items():
        for truth in labels:
            cells = []
            for one in sets:
                found = _metric(one.trial.judges[0], metric).confusion.get(truth, {})
                others = sorted(((-n, said) for said, n in found.items() if said != truth))
                cells += [f"{found.get(truth, 0)}/{sum(found.values())}"]
                cells += [", ".join(f"{said} {-n}" for n, said in others) or NONE]
            lines.append(_row(truth, cells))
    return "\n".join(lines)


def _head(first: str, columns: Sequence[str]) -> list[str]:
    names = first.count("|") + 1
    return [f"| {first} | {' | '.join(columns)} |", "|" + "---|" * names + "---:|" * len(columns)]


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _shorts(trial: Trial) -> Iterator[str]:
    return (short for _, short in trial.titles.values())


def _metric(judge: JudgeTrial, metric: str) -> MetricTrial:
    return next(m for m in judge.metrics if m.metric == metric)


def _share(found: Estimate | None, *, signed: bool = False, of: bool = True) -> str:
    """Return a share in percent with its interval. of: also with judged/asked."""
    if found is None or found.value is None:
        return NONE
    plus = "+" if signed else ""
    low, high = ends(found.interval)
    inside = "" if low is None or high is None else f" [{100 * low:{plus}.0f}, {100 * high:{plus}.0f}]"
    return f"{100 * found.value:{plus}.0f}{inside}" + (f" ({found.judged}/{found.asked})" if of else "")


def _count(found: Estimate | None) -> str:
    """Return how many were right of how many judged."""
    return NONE if found is None or found.value is None else f"{round(found.value * found.judged)}/{found.judged}"


def _constant(metric: MetricTrial) -> str:
    """Return the most frequent truth, in percent: what always answering it would reach."""
    counts = {truth: sum(said.values()) for truth, said in metric.confusion.items()}
    label = max(counts, key=lambda truth: counts[truth], default=None)
    return NONE if label is None else f"{100 * counts[label] / sum(counts.values()):.0f} ({label})"


def _against_plain(trial: Trial, judge: JudgeTrial, metric: str) -> str:
    found = next((t for t in trial.tools if t.tool == judge.judge and t.metric == metric), None)
    return NONE if found is None else _share(found.difference, signed=True)


def _missing(judge: JudgeTrial) -> str:
    statuses = ", ".join(f"{status} {n}" for status, n in judge.unjudged.items())
    return f"{statuses or 0} of {judge.asked}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with the photographs of TARGETS")
    parser.add_argument("--count", type=int, default=COUNT, help=f"drawn probes that are planned ({COUNT})")
    parser.add_argument("--of-photographs", type=int, default=OF_PHOTOGRAPHS, help=f"the same ({OF_PHOTOGRAPHS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all that is drawn ({SEED})")
    parser.add_argument("--modes", default=",".join(MODES), help=f"the first in all tables ({','.join(MODES)})")
    parser.add_argument("--keep", type=Path, help="keep probes and runs in this new folder")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/baseline.md")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.keep is not None:
            folder = options.keep
            folder.mkdir(parents=True)
        sources = [("drawn", "drawn", options.count)]
        if options.data is not None:
            path = photographs(options.data, folder / "originals")
            sources.append(("photographs", str(path), options.of_photographs))
        modes = options.modes.split(",")
        text = report([measure(name, path, folder, count=n, seed=options.seed, modes=modes) for name, path, n in sources])
    print(text)
    if options.write:
        put("baseline.md", "measured trial", text)


if __name__ == "__main__":
    main()
