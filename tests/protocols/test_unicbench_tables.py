"""UnicBench's tables: the paper's Tables 4, 9 and 10 from counts and sums, coverage, and the common subset."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from editloupe.findings import Finding
from editloupe.protocols.unicbench.tables import TASKS
from editloupe.stats.table import Row, Table
from editloupe.values import Sample
from tests.guards.doors import tables
from tests.protocols.unicbench_published import METRICS, edits, published

SHORTS = (*METRICS, "Overall")


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


def check(made: dict[str, Table], models: Sequence[tuple[str, str]], judge: str = "scores") -> tuple[int, int]:
    """Compare each cell with the paper's, to 4 decimals. Return how many of Table 4 and of those by task there were."""
    whole = by_task = 0
    table = made["by-editor"]
    found = {(row.keys["language"], row.keys["editor"]): cells(table, row) for row in table.rows}
    for key in models:
        printed = published(judge)[key]
        judged = sum(int(printed[task]["judged"]) for task in TASKS)
        assert found[key]["Judged"] == f"{judged}/1100"
        for short in SHORTS if "All" in printed else ():
            assert found[key][short] == printed["All"][short], (key, short)
            whole += 1
    table = made["by-task"]
    for row in table.rows:
        printed = published(judge)[str(row.keys["language"]), str(row.keys["editor"])][str(row.keys["task"])]
        shown = cells(table, row)
        for short in SHORTS:
            assert shown[short] == (printed[short] or "–"), (row.keys, short)
            by_task += bool(printed[short])
        assert shown["Judged"].split("/")[0] == printed["judged"]
    return whole, by_task


@pytest.mark.slow
def test_all_cells_of_tables_4_9_and_10_come_out_to_four_decimals() -> None:
    models = list(published())
    assert len(models) == 20
    found = report([one for model in models for one in edits(*model)])
    # Table 4 has 12 models in English and 7 in Chinese, Tables 9 and 10 have 13 and 7: each 17 cells.
    assert check(found, models) == (95, 340)


@pytest.mark.slow
def test_all_cells_of_tables_11_and_12_come_out_to_four_decimals() -> None:
    models = list(published("second_judge"))
    # Without the two editors of Table 11 whose means fit no whole number of samples: 11 and 7 models, each 17 cells.
    assert len(models) == 18
    made = [one for model in models for one in edits(*model, "second_judge")]
    assert check(report(made), models, "second_judge") == (0, 306)
