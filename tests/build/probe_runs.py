"""Runs over probes, written by hand: what is right, and what a judge with planted error rates says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from editloupe.protocols.probes.probe import AREAS
from editloupe.values import digest
from tests.figures.runs import IF, VC, Row, finding, sample, write_run

TRUTHS: Final[Mapping[str, Mapping[str, str]]] = {
    "flawless": {IF: "Flawless Execution", VC: "Perfect Consistency"},
    "wrong_colour": {IF: "Wrong Action", VC: "Perfect Consistency"},
    "over_modification": {IF: "Over Modification", VC: "Perfect Consistency"},
    "no_edit": {IF: "Localization Failure", VC: "Perfect Consistency"},
    "one_collateral": {IF: "Flawless Execution", VC: "Single Anomaly"},
    "restyled": {VC: "Scene Collapse"},
}
"""Failure → what is right."""


def probe(
    id: str,
    failure: str = "wrong_colour",
    area: float = 0.01,
    *,
    scene: str = "",
    of: str | None = None,
    asks_for: Mapping[str, str] | None = None,
    truth: Mapping[str, str] | None = None,
    **kind: str,
) -> Row:
    """A line of samples.jsonl. of: the plain twin.   kind: nuisance or trap."""
    row = sample(id, source=scene or id, edit_type="Change Color")
    row["extra"] = {
        "probe": {
            "truth": dict(TRUTHS[failure] if truth is None else truth),
            "failure": failure,
            "area": area,
            "area_found": area,
            "twin": of,
            "asks_for": dict(asks_for or {}),
            "scene": scene or id,
            "maker": "test 1",
            "seed": 0,
            "digest": digest(["probe", id, failure, area]),
            **kind,
        }
    }
    return row


def truth_of(row: Row) -> dict[str, str]:
    """What is right of a probe."""
    found: dict[str, str] = row["extra"]["probe"]["truth"]
    return found


def said(row: Row, given: str | Mapping[str, str] = "", *, repeat: int = 0, **more: Any) -> list[Row]:
    """Findings on a probe. given: the answer to each question, by metric where they differ; "" for the truth."""
    return [
        finding(
            row,
            (given.get(metric, "") if isinstance(given, Mapping) else given) or truth,
            criterion=metric,
            repeat=repeat,
            **more,
        )
        for metric, truth in truth_of(row).items()
    ]


def run_of(folder: Path, findings: Mapping[str, Sequence[Row]], rows: Sequence[Row], **more: Any) -> Path:
    """A run over probes. findings: judge → its findings."""
    return write_run(folder, rows, findings, **more)


def full_set(each: int = 4, failures: Sequence[str] = tuple(TRUTHS)) -> list[Row]:
    """Plain probes of every failure at every area, as many of each, each of a scene of its own."""
    return [probe(f"{failure}-{area:g}-{i}", failure, area) for failure in failures for area in AREAS for i in range(each)]
