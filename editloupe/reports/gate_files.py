"""The outcome of a gate as a table, and as Markdown for a job's summary."""

from __future__ import annotations

from collections.abc import Sequence

from editloupe.reports.escape import safe
from editloupe.reports.gate import Checked
from editloupe.reports.grid import Grid, Row, markdown


def grid(checked: Sequence[Checked], title: str) -> Grid:
    """Return the outcome as a table. The judge is named where there are several."""
    several = len({one.judge for one in checked}) > 1
    head = (*(["Judge"] if several else []), "Requirement", "Found", "Result", "Rests on")
    rows = [
        Row(
            cells=(
                *([one.judge] if several else []),
                one.name,
                "–" if one.verdict == "undefined" else one.found,
                one.verdict if one.verdict == "passed" else one.verdict.upper(),
                one.figure.rests if one.figure.value is not None else one.figure.why,
            )
        )
        for one in checked
    ]
    return Grid(name="gate", title=title, head=head, rows=tuple(rows), fixed=len(head))


def summary(checked: Sequence[Checked], title: str) -> str:
    """Return Markdown for a job's summary."""
    return markdown(grid(checked, safe(title)))
