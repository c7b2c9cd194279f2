"""The counts behind the paper's Tables 2 and 7, and samples that have them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from editloupe.answers import Choice
from editloupe.findings import Finding
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.values import Sample
from tests.protocols.said import edit, finding

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
            there, id_ = number < judged, f"{place}-{number}"
            # Both names of the merged type.
            kind = name if "/" not in name else "Scene Change" if number < 74 else "Background Change"
            sample = edit(id_, edited=there, editor=model, edit_type=kind, extra=columns)
            key = finding(sample, "key", Choice(name="Yes"), role="measure")
            answer = Choice(name="Yes" if number < right else "No") if there else "missing_output"
            yield sample, [key, finding(sample, "accuracy", answer)]
