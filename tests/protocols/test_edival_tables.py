"""EdiVal's tables: the paper's Tables 3, 8 to 14 and 17 to 19 from counts and means, ranks, missing parts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from editloupe.protocols.base import BaseProtocol
from editloupe.protocols.edival.tables import overall, tables
from editloupe.scores import Binary, Interval, Metric, Real, Score
from editloupe.stats.table import Table
from tests.guards.doors import tables as tables_of
from tests.protocols.edival_published import MODES, NAMES, WHOLE, counted, models, printed, published

UNIT = Interval(low=0, high=1)
METRICS = (
    *(Metric(id=id_, domain=Binary()) for id_ in ("instruction_following", "image_success")),
    Metric(id="content_consistency", domain=UNIT),
    *(Metric(id=id_, domain=Real() if id_ == "preference" else UNIT) for id_ in NAMES.values()),
    Metric(id="preference_change", domain=Real()),
)
CALLED = {"multipass": "multi-turn", "singlepass": "complex"}


class Scored(BaseProtocol):
    """A protocol with these tables; its scores are given."""

    name = "edival-tables"
    metrics = METRICS
    tables = tables()


def report(scores: Iterable[Score]) -> dict[str, Table]:
    """The tables of a report on these scores, by name."""
    return tables_of(Scored(), scores=scores)


def figures(table: Table) -> dict[tuple[object, ...], tuple[object, str]]:
    """(row keys, column keys) → the figure unrounded, and its text up to the first space."""
    found = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if column.keys and cell.name == "mean":
                found[(*row.keys.values(), *column.keys.values())] = cell.value, cell.text.split()[0]
    return found


SOME = ("GPT-Image-1", "UltraEdit", "IP2P")
"""Outputs missing, two sets of images, and neither."""
EACH = pytest.mark.parametrize("chosen", ["some", pytest.param("all", marks=pytest.mark.slow)])


@cache
def of_counts(chosen: str) -> dict[str, Table]:
    """The report on counted edits of some models or of all."""
    return report(made for mode in MODES for model in wanted(mode, chosen) for made in counted(model, mode))


def wanted(mode: str, chosen: str) -> list[str]:
    return [model for model in models(mode) if chosen == "all" or model in SOME]


@pytest.fixture(scope="module")
def of_cells() -> dict[str, Table]:
    return report(made for mode in MODES for model in models(mode) for made in printed(model, mode))


@EACH
@pytest.mark.parametrize(("mode", "cells"), [("multipass", 39), ("singlepass", 33)])
def test_image_success_is_the_papers_in_every_cell(chosen: str, mode: str, cells: int) -> None:
    found, compared = figures(of_counts(chosen)[f"{CALLED[mode]}-success"]), 0
    for model in wanted(mode, chosen):
        success = published()[MODES[mode][0], model]["image_success"]
        assert mode == "singlepass" or success == published()["3", model]["IF"]
        for edits, cell in enumerate(success, start=1):
            assert found[model, "image_success", edits][1] == cell, (model, edits)
            compared += 1
    assert compared == (cells if chosen == "all" else 9)


@EACH
@pytest.mark.parametrize(("mode", "within"), [("multipass", 0.01), ("singlepass", 0.015)])
def test_task_rates_follow_from_those_of_the_types(chosen: str, mode: str, within: float) -> None:
    by_type, whole = (figures(of_counts(chosen)[f"{CALLED[mode]}-{name}"]) for name in ("by-type", "success"))
    compared = 0
    for model in {*WHOLE} & {*wanted(mode, chosen)}:
        for kind, cells in published()[MODES[mode][1], model].items():
            for edits, cell in enumerate(cells, start=1):
                assert by_type[kind, model, "instruction_following", edits][1] == cell, (model, kind, edits)
        for edits, cell in enumerate(published()[MODES[mode][0], model]["task_rate"], start=1):
            rate = whole[model, "instruction_following", edits][0]
            assert rate == pytest.approx(float(cell), abs=within), (model, edits)
            compared += 1
    assert compared == (24 if chosen == "all" else 6)


def test_content_consistency_and_overall_are_the_papers_in_39_cells(of_cells: dict[str, Table]) -> None:
    found = figures(of_cells["multi-turn-overall"])
    compared = 0
    for model in models("multipass"):
        paper = published()["3", model]
        for edits in (1, 2, 3):
            success, kept, both = (float(paper[name][edits - 1]) for name in ("IF", "CC", "O"))
            # CC from Table 14, whose cells are rounded; O of the printed cells, as the paper has it.
            assert found[model, "content_consistency", edits][0] == pytest.approx(kept, abs=0.0101)
            assert overall(success, kept) == pytest.approx(both, abs=0.0051), (model, edits)
            assert found[model, "overall", edits][0] == pytest.approx(both, abs=0.0101), (model, edits)
            compared += 1
    assert compared == 39


@pytest.mark.parametrize("mode", MODES)
def test_consistency_and_quality_are_the_papers(of_cells: dict[str, Table], mode: str) -> None:
    for place, name in ((2, "consistency"), (3, "quality")):
        found, compared = figures(of_cells[f"{CALLED[mode]}-{name}"]), 0
        for model in models(mode):
            for figure, cells in published().get((MODES[mode][place], model), {}).items():
                for edits, cell in enumerate(cells, start=1):
                    assert found[model, NAMES[figure], edits][1] == cell, (model, figure, edits)
                    compared += 1
        assert compared >= 99
