"""How much was judged of what was asked, and the samples on which editors can be compared. No I/O."""

from __future__ import annotations

from editloupe.stats.pivot import Rows
from editloupe.stats.table import Cell


def coverage(rows: Rows) -> Cell:
    """Return "1038/1100": samples that were judged on every metric that they were asked, of all."""
    samples = {row["sample"] for row in rows}
    whole = len(samples) - len({row["sample"] for row in rows if row["value"] is None})
    return Cell(
        value=f"{whole}/{len(samples)}" if samples else None, name="", more={"judged": whole, "asked": len(samples)}
    )


def on_common(rows: Rows) -> tuple[Rows, bool] | None:
    """Return the rows of the samples that every editor has judged on every metric, and whether any has judged more.

    None for fewer than two editors.
    """
    asked: dict[str, set[str]] = {}
    for row in rows:
        asked.setdefault(row["editor"], set()).add(row["sample"])
    if len(asked) < 2:
        return None
    lost = {(row["editor"], row["sample"]) for row in rows if row["value"] is None}
    whole = {editor: {one for one in samples if (editor, one) not in lost} for editor, samples in asked.items()}
    shared = set.intersection(*whole.values())
    return [row for row in rows if row["sample"] in shared], any(samples != shared for samples in whole.values())
