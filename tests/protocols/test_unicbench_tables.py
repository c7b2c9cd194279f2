"""UnicBench's tables: the paper's Tables 4, 9 and 10 from counts and sums, coverage, and the common subset."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from editloupe.findings import Finding
from editloupe.protocols.unicbench.terms import TASKS
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


def test_a_models_rows_are_the_papers_to_four_decimals_and_say_how_much_was_judged() -> None:
    model = ("en", "GPT-Image-1")
    found = report(list(edits(*model)))
    # 5 cells of Table 4; 3 tasks with 4 and Reasoning Editing with 5 of Table 9.
    assert check(found, [model]) == (5, 17)
    assert cells(found["by-editor"], found["by-editor"].rows[0]) == {
        "Language": "English", "Editor": "GPT-Image-1",
        "IF": "9.1551", "NC": "7.8449", "VQ": "8.6830", "RA": "8.3392", "Overall": "8.3546", "Judged": "1038/1100",
    }  # fmt: skip
    for said in ("IF and NC both count extra edits", "geometric mean of the columns (Jensen)", "Judged: samples"):
        assert said in found["by-editor"].caption
    # Jensen: 8.3546 lies below (9.1551 · 7.8449 · 8.6830)^(1/3) = 8.5437 for the three that all samples have.
    assert 8.3546 < (9.1551 * 7.8449 * 8.6830) ** (1 / 3)
    (counts,) = found["judged"].rows
    assert {name: cells(found["judged"], counts)[name] for name in ("IF", "RA", "Overall", *TASKS)} == {
        "IF": "1038/1100", "RA": "227/250", "Overall": "1038/1100",
        "Attribute Editing": "235/250", "Object Editing": "335/350", "Scene Editing": "241/250",
        "Reasoning Editing": "227/250",
    }  # fmt: skip
    assert len(found["by-subtask"].rows) == 22
    # One editor is compared with nobody.
    assert not {"by-editor-common", "by-task-common"} & set(found)
    assert all("mode" not in table.title for table in found.values())


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
