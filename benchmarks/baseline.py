"""How often the pixel baseline is right, on drawn edits whose labels are known.

    python -m benchmarks.baseline                 # 400 held-out scenes, the real road: prompt, loop, tools, parser

The held-out family shares no object kind, background, layout, style or instruction template with the one that the rules
were made on.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks.scenes import EDIT_TYPES, FamilyName, Scene, draw
from editloupe import Judge, load_sample
from editloupe.data.images import RGB
from editloupe.protocols.dlebench.protocol import Mode

LABELS: Mapping[str, tuple[str, ...]] = {
    "instruction_following": ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution"),
    "visual_consistency": ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"),
}
FIRST_SEED = 10_000

_NAMES = {"instruction_following": "Instruction Following", "visual_consistency": "Visual Consistency"}
_GROUNDS = ("textured", "plain")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One criterion of one scene: what is true, and what was answered; `label` is None where the status is not ok."""

    criterion: str
    edit_type: str
    plain: bool
    truth: str
    label: str | None
    status: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """The outcomes of one criterion, counted.

    right, asked: of all scenes asked about, answered or not.   constant: share of the most frequent true label, which is
    what answering always the same would reach.   counts: (truth, label or status) → scenes.
    """

    criterion: str
    right: int
    asked: int
    constant: float
    constant_label: str
    counts: Mapping[tuple[str, str], int]
    statuses: Mapping[str, int]

    @property
    def accuracy(self) -> float:
        """0..1; a scene without a label counts as not right."""
        return self.right / self.asked


def measure(n: int, *, family: FamilyName = "held_out", first_seed: int = FIRST_SEED, mode: Mode = "tool") -> list[Outcome]:
    """Draw and judge `n` scenes, both criteria each."""
    judge = Judge("baseline", mode=mode)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        made = pool.map(
            lambda seed: _judged(judge, draw(seed, family=family), Path(folder) / str(seed)), _seeds(first_seed, n)
        )
        return [outcome for outcomes in made for outcome in outcomes]


def tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """One table a criterion."""
    return [_table(criterion, [o for o in outcomes if o.criterion == criterion]) for criterion in LABELS]


def report(outcomes: Sequence[Outcome], *, family: str, first_seed: int, mode: str) -> str:
    """All tables as Markdown."""
    n = len(outcomes) // len(LABELS)
    blocks = [
        f"{n} scenes of the family `{family}`, seeds {first_seed} to {first_seed + n - 1}, {mode} mode, both criteria each."
    ]
    blocks += [_markdown(table) for table in tables(outcomes)]
    blocks.append(_by_group(outcomes))
    return "\n\n".join(blocks)


def _seeds(first: int, n: int) -> range:
    return range(first, first + n)


def _judged(judge: Judge, scene: Scene, stem: Path) -> list[Outcome]:
    source, edited = stem.with_suffix(".source.png"), stem.with_suffix(".edited.png")
    _save(scene.source, source)
    _save(scene.edited, edited)
    findings = judge.judge(load_sample(source, edited, scene.instruction, edit_type=scene.edit_type))
    source.unlink()
    edited.unlink()
    return [
        Outcome(
            criterion=f.metric,
            edit_type=scene.edit_type,
            plain=scene.plain,
            truth=scene.labels[f.metric],
            label=f.label,
            status=f.status,
        )
        for f in findings
    ]


def _save(image: RGB, path: Path) -> None:
    Image.fromarray(np.ascontiguousarray(image)).save(path, compress_level=1)


def _table(criterion: str, outcomes: Sequence[Outcome]) -> Table:
    truths = Counter(o.truth for o in outcomes)
    label, most = truths.most_common(1)[0]
    return Table(
        criterion=criterion,
        right=sum(o.label == o.truth for o in outcomes),
        asked=len(outcomes),
        constant=most / len(outcomes),
        constant_label=label,
        counts=Counter((o.truth, o.label or o.status) for o in outcomes),
        statuses=Counter(o.status for o in outcomes),
    )


def _markdown(table: Table) -> str:
    columns = list(LABELS[table.criterion])
    columns += sorted({answer for _, answer in table.counts} - set(columns))
    unlabelled = table.asked - table.statuses.get("ok", 0)
    lines = [
        f"**{_NAMES[table.criterion]}**: {table.right} of {table.asked} right, {table.accuracy:.1%}. Always answering "
        f"“{table.constant_label}” would be right in {table.constant:.1%}. Without a label: {unlabelled}.",
        "",
        "| true ↓ answered → | " + " | ".join(columns) + " | recall |",
        "|---|" + "---:|" * (len(columns) + 1),
    ]
    for truth in LABELS[table.criterion]:
        row = [table.counts.get((truth, answer), 0) for answer in columns]
        recall = f"{table.counts.get((truth, truth), 0) / sum(row):.0%}" if sum(row) else "–"
        lines.append(f"| {truth} | " + " | ".join(map(str, row)) + f" | {recall} |")
    return "\n".join(lines)


def _by_group(outcomes: Sequence[Outcome]) -> str:
    lines = ["| scenes | n | " + " | ".join(f"{name} right" for name in _NAMES.values()) + " |", "|---|---:|---:|---:|"]
    groups = [(edit_type, [o for o in outcomes if o.edit_type == edit_type]) for edit_type in EDIT_TYPES]
    groups += [(f"on a {ground} ground", [o for o in outcomes if o.plain == (ground == "plain")]) for ground in _GROUNDS]
    for name, of_group in groups:
        shares = [[o.label == o.truth for o in of_group if o.criterion == criterion] for criterion in LABELS]
        if of_group:
            cells = " | ".join(f"{np.mean(right):.1%}" for right in shares)
            lines.append(f"| {name} | {len(shares[0])} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of the pixel baseline on drawn edits with known labels.")
    parser.add_argument("-n", type=int, default=400, help="scenes to draw (400)")
    parser.add_argument("--family", choices=("held_out", "dev"), default="held_out")
    parser.add_argument("--mode", choices=("tool", "plain"), default="tool")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help=f"first seed ({FIRST_SEED})")
    options = parser.parse_args()
    outcomes = measure(options.n, family=options.family, first_seed=options.seed, mode=options.mode)
    text = report(outcomes, family=options.family, first_seed=options.seed, mode=options.mode)
    print(text)


if __name__ == "__main__":
    main()
