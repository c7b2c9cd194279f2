"""A comparison as files: Markdown, JSON, a CSV a table, an SVG a plot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from editloupe.reports import grid, plots
from editloupe.reports.compare import Comparison
from editloupe.reports.compare_grids import grids, matrix_of
from editloupe.reports.report import write_files


def write_comparison(found: Comparison, folder: Path) -> list[Path]:
    """Every file below `folder`. Raises StorageError."""
    return write_files(_files(found), folder, kind="compare")


def _files(found: Comparison) -> Iterator[tuple[str, str]]:
    tables = list(grids(found))
    yield "compare.md", "\n".join(["# Judges compared\n", *(grid.markdown(g) for g in tables)])
    yield "compare.json", json.dumps(found.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    for table in tables:
        if table.records:
            yield f"{table.name}.csv", grid.csv_text(table)
    names = [j.name for j in found.judges]
    for criterion in dict.fromkeys(pair.criterion for pair in found.pairs):
        title = f"{found.judges[0].metrics.metric(criterion).name}: who agrees with whom"
        text = plots.matrix(names, matrix_of(found, criterion), title=title, what="quadratic κ of the labels")
        yield f"agreement-{criterion.replace('_', '-')}.svg", text
