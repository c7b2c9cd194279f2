"""UnicBench's tables: the paper's Tables 11 and 12 from counts and sums. Tables 4, 9 and 10 stand in `tests/guards`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from editloupe.findings import Finding
from editloupe.stats.table import Row, Table
from editloupe.values import Sample
from tests.guards.doors import tables
from tests.protocols.unicbench_published import METRICS, edits, published


def report(made: Sequence[tuple[Sample, list[Finding]]]) -> dict[str, Table]:
    """The tables of a report on these findings, by name."""
    return tables("unicbench", samples=[sample for sample, _ in made], findings=[one for _, of in made for one in of])


def cells(table: Table, row: Row) -> dict[str, str]:
    """Column → what is shown, the interval left out."""
    shown = {}
    for column, cell in zip(table.columns, row.cells, strict=True):
        number = isinstance(cell.value, float)
        shown[column.title] = f"{cell.value:.{cell.digits}f}" if number else cell.text
    return shown


@pytest.mark.slow
def test_all_cells_of_tables_11_and_12_come_out_to_four_decimals() -> None:
    models = list(published("second_judge"))
    # Without the two editors of Table 11 whose means fit no whole number of samples: 11 and 7 models, each 17 cells.
    assert len(models) == 18
    made = report([one for model in models for one in edits(*model, "second_judge")])
    compared = 0
    for row in made["by-task"].rows:
        keys = row.keys
        printed = published("second_judge")[str(keys["language"]), str(keys["editor"])][str(keys["task"])]
        shown = cells(made["by-task"], row)
        for short in (*METRICS, "Overall"):
            assert shown[short] == (printed[short] or "–"), (keys, short)
            compared += bool(printed[short])
        assert shown["Judged"].split("/")[0] == printed["judged"]
    assert compared == 306
