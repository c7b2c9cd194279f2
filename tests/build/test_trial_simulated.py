"""Judges with planted error rates get them back: through the statistics many times, and through the whole road."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.trial import SHARED, Coverage, simulate
from editloupe import Judge, load_samples
from editloupe.data.probes import AREAS, probe_digest
from tests.build.probe_runs import LABELS, probe, truth_of
from tests.conftest import final, pngs
from tests.reports.runs import IF, VC, Row

RIGHT = {
    "flawless": (0.95, 0.95, 0.95, 0.95, 0.95, 0.95),
    "wrong_colour": (0.1, 0.2, 0.6, 0.9, 0.95, 1.0),
    "no_edit": (0.7, 0.8, 0.9, 1.0, 1.0, 1.0),
}
"""Failure → planted probability of a right verdict at each of `AREAS`."""


def check(found: dict[str, Coverage]) -> None:
    """Hold coverages against 95 %: where there are thousands of intervals as it is, else with the binomial's tolerance."""
    for kind, one in found.items():
        # The number of independent intervals is that of simulations, at least. A share of held ones that is 95 % lies
        # below 95 % less 2.75 standard deviations with a probability of 0.3 %.
        tolerance = 2.75 * (0.95 * 0.05 / one.stated) ** 0.5 if one.stated < 1000 else 0.0
        assert one.share >= 0.95 - tolerance, (kind, one.held, one.stated)


def test_intervals_hold_planted_rates_and_thresholds() -> None:
    check(simulate(simulations=30, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.0, SHARED])
def test_intervals_hold_planted_rates_and_thresholds_in_200_simulations(shared: float) -> None:
    found = simulate(simulations=200, seed=2, shared=shared)
    check(found)
    assert found["accuracy, cells of failure × area"].share >= 0.95
    assert found["threshold by failure"].share >= 0.95


@pytest.fixture
def folder(tmp_path: Path) -> tuple[Path, list[Row]]:
    """A folder of edits that says which probe each is, 8 of each failure and area; the pictures do not matter."""
    rows = [probe(f"{f}-{k}-{i}", f, area) for f in RIGHT for k, area in enumerate(AREAS) for i in range(8)]
    data = tmp_path / "data"
    data.mkdir()
    for name, picture in zip(("source.png", "edited.png"), pngs(0, spots=1), strict=True):
        (data / name).write_bytes(picture)
    names = {"source_file_name": "source.png", "edited_file_name": "edited.png"}
    hashes = {column: hashlib.sha256((data / name).read_bytes()).hexdigest() for column, name in names.items()}
    lines: list[dict[str, Any]] = [
        {"id": row["id"], **names, "instruction": f"Do what {row['id']} says.", "probe": row["extra"]["probe"]}
        for row in rows
    ]
    for line in lines:
        line["probe"]["digest"] = probe_digest(line, hashes)
    (data / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return data, rows


def judged(data: Path, rows: list[Row], out: Path, seed: int) -> Path:
    """A run of a judge that is right as often as planted, and else says a label of its own."""
    rng = np.random.default_rng(seed)
    answers = {}
    for row in rows:
        known = row["extra"]["probe"]
        for metric, truth in truth_of(row).items():
            right = rng.random() < RIGHT[known["failure"]][AREAS.index(known["area"])]
            others = [label for label in LABELS[metric] if label != truth]
            answers[row["id"], metric] = truth if right else others[int(rng.integers(len(others)))]

    def judge(messages: Any) -> str:
        asked = "\n".join(part["text"] for m in messages for part in m["content"] if part["type"] == "text")
        id_ = re.findall(r"Do what (\S+) says", asked)[-1]
        return final(answers[id_, IF if "Localization Failure" in asked else VC])

    with Judge(judge, protocol="probes", mode="plain", out=out) as one:
        one.judge_all(load_samples(data))
    return out


@pytest.mark.slow
def test_a_judge_with_planted_rates_gets_them_back_from_its_run(
    folder: tuple[Path, list[Row]], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
) -> None:
    data, rows = folder
    held = stated = thresholds = 0
    for seed in range(3):
        run = judged(data, rows, tmp_path / f"run{seed}", seed)
        code, told, err = editloupe("trial", run, "--format", "json")
        assert code == 0, err
        (judge,) = json.loads(told)["judges"]
        assert (judge["probes"], judge["unjudged"], judge["asked"]) == (len(rows), {}, 2 * len(rows))
        for metric in judge["metrics"]:
            for cell in metric["cells"]:
                interval = cell["accuracy"]["interval"]
                held += interval["low"] <= RIGHT[cell["failure"]][AREAS.index(cell["area"])] <= interval["high"]
                stated += 1
            limit = metric["thresholds"]["wrong_colour"]
            # Planted: 60 % at 0.3 %, 90 % at 1 %.
            thresholds += (limit["low"] or 0) <= 0.003 and (limit["high"] or 1) >= 0.01
    assert stated == 3 * 2 * len(RIGHT) * len(AREAS)
    # Of 108 exact intervals fewer than 98 would hold with a probability of 2 %, were their coverage 95 % and no more.
    assert held >= 98 and thresholds >= 5
