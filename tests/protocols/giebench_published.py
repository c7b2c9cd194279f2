"""The counts behind the paper's Tables 2 and 7, and samples that have them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from editloupe.answers import Choice
from editloupe.findings import Finding
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.values import ImageRef, Sample, Turn

Counts: TypeAlias = Mapping[str, tuple[str, int, int]]
"""Edit type, or "Overall" → what is printed, right answers, judged samples."""


def published() -> dict[tuple[str, str], dict[str, Counts]]:
    """(table, judge) → model → counts. Each printed share is that of whole numbers of samples."""
    found: dict[tuple[str, str], dict[str, dict[str, tuple[str, int, int]]]] = {}
    with (Path(__file__).parent / "giebench_accuracy.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            counts = found.setdefault((line["table"], line["judge"]), {}).setdefault(line["model"], {})
            counts[line["edit_type"]] = (line["printed"], int(line["correct"]), int(line["judged"]))
    return found  # type: ignore[return-value]


def edits(model: str, counts: Counts) -> Iterator[tuple[Sample, list[Finding]]]:
    """120 samples a type with what was found of them: some right, others wrong, and outputs beyond `judged` missing."""
    columns = {"evaluation_question": "?", "multiple_choice_options": ["Yes", "No"], "expected_answer": "Yes"}
    for place, name in enumerate(EDIT_TYPES):
        _, right, judged = counts[name]
        for number in range(120):
            source = ImageRef(sha256=f"{place:032}{number:032}", width=64, height=64, media_type="image/png")
            there = number < judged
            sample = Sample(
                id=f"{place}-{number}",
                editor=model,
                source=source,
                turns=(Turn(instruction="?", edited=source if there else None),),
                # Both names of the merged type.
                edit_type=name if "/" not in name else "Scene Change" if number < 74 else "Background Change",
                extra=columns,
            )
            of = partial(Finding, task_id=sample.id, judge_id="j", repeat=0, sample_id=sample.id, editor=model)
            key = of(metric="key", role="measure", status="ok", answer=Choice(name="Yes"))
            answer = Choice(name="Yes" if number < right else "No") if there else None
            yield sample, [key, of(metric="accuracy", status="ok" if there else "missing_output", answer=answer)]
