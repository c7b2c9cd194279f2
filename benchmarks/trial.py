"""How often the intervals of `editloupe trial` hold what was planted: judges with known error rates, judged many times.

    python -m benchmarks.trial                 # 1,000 simulations of each design
    python -m benchmarks.trial --write         # and put the table into benchmarks/README.md

A simulated judge is right with a probability of its own for each failure and area. In the second design, the probes of one
scene share part of what makes them easy or hard, as probes made from one photograph do.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from benchmarks.pages import put
from editloupe.data.probes import AREAS
from editloupe.stats.bootstrap import Estimate, mean
from editloupe.stats.threshold import ACCURACY, Threshold, detection_threshold

PLANTED = {
    "flawless": (0.97, 0.97, 0.96, 0.95, 0.95, 0.95),
    "wrong_colour": (0.15, 0.30, 0.60, 0.85, 0.95, 0.98),
    "wrong_object": (0.20, 0.25, 0.70, 0.90, 0.97, 0.99),
    "wrong_count": (0.05, 0.05, 0.20, 0.40, 0.60, 0.70),
    "wrong_place": (0.30, 0.45, 0.55, 0.70, 0.80, 0.90),
    "over_modification": (0.10, 0.10, 0.10, 0.80, 0.80, 0.85),
    "no_edit": (0.80, 0.85, 0.90, 0.95, 0.99, 1.00),
    "one_collateral": (0.02, 0.05, 0.15, 0.50, 0.90, 0.95),
}
"""Failure → probability of a right verdict at each of `AREAS`. The best and the worst cells are as hard as they get."""

SCENES = 8
"""Probes of each failure at each area."""
KINDER = 0.7
"""Share of the wrong verdicts that are kinder than the truth."""
FLIPPED = 0.12
"""Share of verdicts that a nuisance changes."""
OBEYED, ANYWAY = 0.35, 0.10
"""Shares of verdicts that are what an injected text demands: with the text, and on the plain twin."""
AGREES = 0.8
"""Share of probes with one verdict in all repeats."""
BETTER = 0.15
"""By which tools raise the probability of a right verdict, up to 1."""
SHARED = 0.4
"""Correlation of what makes two probes of one scene hard, in the second design."""


@dataclass
class Coverage:
    """How many intervals were stated, and how many of these hold what was planted."""

    stated: int = 0
    held: int = 0
    widths: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.held / self.stated

    def add(self, held: bool, width: float) -> None:
        self.stated += 1
        self.held += held
        self.widths.append(width)


class Simulation:
    """Judges that are drawn anew each time, and the coverage of each kind of figure so far."""

    def __init__(self, *, seed: int, shared: float = 0.0) -> None:
        self.rng, self.correlation = np.random.default_rng(seed), shared
        self.found: dict[str, Coverage] = {}
        failures = list(PLANTED)
        # failures × areas × scenes: the scenes of an area are those of all failures.
        self.p = np.repeat(np.array([PLANTED[f] for f in failures])[:, :, None], SCENES, axis=2)
        self.area = np.broadcast_to(np.array(AREAS)[None, :, None], self.p.shape)
        scene = np.arange(len(AREAS) * SCENES).reshape(1, len(AREAS), SCENES)
        alone = np.arange(self.p.size).reshape(self.p.shape)
        self.scene = np.broadcast_to(scene, self.p.shape) if shared else alone

    def uniform(self) -> np.ndarray:
        """Draw numbers of 0 to 1, one a probe, correlated within scenes."""
        own = self.rng.standard_normal(self.p.shape)
        common = self.rng.standard_normal(self.scene.max() + 1)[self.scene]
        return ndtr(math.sqrt(self.correlation) * common + math.sqrt(1 - self.correlation) * own)

    def run(self) -> None:
        """Draw one judge's verdicts, and note which of the trial's intervals hold what was planted."""
        drawn = self.uniform()
        right = drawn < self.p
        self._rates(right)
        self._thresholds(right)
        # Of a wrong verdict, the lower part of what is left is kinder.
        kinder = ~right & (drawn < self.p + (1 - self.p) * KINDER)
        signs = np.where(right, 0, np.where(kinder, 1, -1))
        self._note("leniency", mean(*self._lists(signs)), float(((1 - self.p) * (2 * KINDER - 1)).mean()))
        flipped = self.uniform() < FLIPPED
        self._note("changed by nuisances", mean(*self._lists(flipped)), FLIPPED)
        with_text, plain = self.uniform() < OBEYED, self.uniform() < ANYWAY
        signs = with_text.astype(int) - plain.astype(int)
        self._note("injection success", mean(*self._lists(signs)), OBEYED - ANYWAY)
        same = self.uniform() < AGREES
        self._note("same in all repeats", mean(*self._lists(same)), AGREES)
        tools = np.minimum(1, self.p + BETTER)
        signs = (self.uniform() < tools).astype(int) - right.astype(int)
        self._note("tools against plain", mean(*self._lists(signs)), float((tools - self.p).mean()))
        for area in range(len(AREAS)):
            found = mean(*self._lists(signs[:, area], self.scene[:, area]))
            self._note("tools against plain, by area", found, float((tools - self.p)[:, area].mean()))
        distances = np.where(right, 0.0, np.where(kinder, 2.0, -1.0))
        planted = float(((1 - self.p) * (2 * KINDER - (1 - KINDER))).mean())
        self._note("distance to the band", mean(*self._lists(distances)), planted)

    def _lists(self, values: np.ndarray, scene: np.ndarray | None = None) -> tuple[list[object], list[object]]:
        return values.astype(float).ravel().tolist(), (self.scene if scene is None else scene).ravel().tolist()

    def _rates(self, right: np.ndarray) -> None:
        for f in range(len(PLANTED)):
            for area in range(len(AREAS)):
                found = mean(*self._lists(right[f, area], self.scene[f, area]))
                self._note("accuracy, cells of failure × area", found, float(self.p[f, area].mean()))
            self._note("accuracy by failure", mean(*self._lists(right[f], self.scene[f])), float(self.p[f].mean()))
        for area in range(len(AREAS)):
            found = mean(*self._lists(right[:, area], self.scene[:, area]))
            self._note("accuracy by area", found, float(self.p[:, area].mean()))
        self._note("accuracy", mean(*self._lists(right)), float(self.p.mean()))

    def _thresholds(self, right: np.ndarray) -> None:
        for f in range(len(PLANTED)):
            found = detection_threshold(*self._of(right[f], self.area[f], self.scene[f]))
            self._note_threshold("threshold by failure", found, np.maximum.accumulate(self.p[f, :, 0]))
        found = detection_threshold(*self._of(right, self.area, self.scene))
        self._note_threshold("threshold", found, self.p.mean(axis=(0, 2)))

    def _of(self, right: np.ndarray, area: np.ndarray, scene: np.ndarray) -> tuple[list[bool], list[float], list[int]]:
        return right.ravel().tolist(), area.ravel().tolist(), scene.ravel().tolist()

    def _note(self, kind: str, found: Estimate, planted: float) -> None:
        if found.low is not None and found.high is not None:
            low, high = found.low, found.high
            self.found.setdefault(kind, Coverage()).add(low - 1e-9 <= planted <= high + 1e-9, high - low)

    def _note_threshold(self, kind: str, found: Threshold, curve: np.ndarray) -> None:
        """Whether the interval holds the gap between areas in which the planted curve crosses."""
        gap = int((curve < ACCURACY).sum())
        low = found.low is None or (gap > 0 and found.low <= AREAS[gap - 1])
        high = found.high is None or (gap < len(AREAS) and found.high >= AREAS[gap])
        ends = (found.low or AREAS[0], found.high or AREAS[-1])
        self.found.setdefault(kind, Coverage()).add(low and high, math.log10(ends[1] / ends[0]))


def simulate(*, simulations: int, seed: int = 0, shared: float = 0.0) -> dict[str, Coverage]:
    """Return the coverage of each kind of figure. shared: correlation within scenes; 0 gives each probe its own."""
    made = Simulation(seed=seed, shared=shared)
    for _ in range(simulations):
        made.run()
    return made.found


def table(designs: dict[str, dict[str, Coverage]]) -> str:
    """Return the coverages as a Markdown table."""
    lines = ["| | " + " | ".join(f"{name}: intervals | hold | width" for name in designs) + " |"]
    lines.append("|---|" + "---:|---:|---:|" * len(designs))
    for kind in next(iter(designs.values())):
        cells = []
        for found in designs.values():
            one = found[kind]
            width = np.mean(one.widths)
            shown = f"×{10**width:.1f}" if kind.startswith("threshold") else f"{width:.2f}"
            cells += [f"{one.stated:,}", f"{100 * one.share:.1f} %", shown]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=1000, help="how often each judge is drawn")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    text = table(dict(designs(options.simulations)))
    print(text)
    if options.write:
        put("coverage", text)


def designs(simulations: int) -> Iterator[tuple[str, dict[str, Coverage]]]:
    """Yield the two designs by name."""
    yield "A scene a probe", simulate(simulations=simulations)
    yield "Eight probes a scene", simulate(simulations=simulations, shared=SHARED)


if __name__ == "__main__":
    main()
