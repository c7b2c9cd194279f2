"""DICE's tables: figures worked by hand, what is left out and counted, and the paper's Tables 1 and 3."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from editloupe.protocols.base import BaseProtocol
from editloupe.protocols.dice.tables import Detector, tables
from editloupe.scores import Binary, Interval, Metric, Score
from editloupe.stats.table import Table
from tests.guards.doors import tables as tables_of

UNIT = Interval(low=0, high=1)
METRICS = (
    *(Metric(id=id_, domain=Binary()) for id_ in ("correct", "no_change", "coherence", "coherence_right")),
    *(Metric(id=id_, domain=UNIT) for id_ in ("unwanted", "detected", "given")),
    *(Metric(id=id_, domain=Interval(low=-1, high=1)) for id_ in ("clip_i_none", "clip_t_coherent")),
)
HERE = Path(__file__).parent

Box = tuple[int, int, int, int]
WHOLE, LEFT, RIGHT = (0, 0, 100, 100), (0, 0, 50, 100), (50, 0, 100, 100)
"""In hundredths of the sides."""


def report(scores: Iterable[Score], detector: Detector = "lmm", **more: Any) -> dict[str, Table]:
    """The tables of a report on these scores, by name. more: of `tables`."""

    class Scored(BaseProtocol):
        """A protocol with these tables."""

        name = "dice-tables"
        metrics = METRICS

    Scored.tables = tables(detector, **more)
    return tables_of(Scored(), scores=scores)


def score(
    metric: str, sample: str = "0", value: float | None = 1.0, *, editor: str = "a", part: str = "", **dims: Any
) -> Score:
    missing = None if value is not None else "refused"
    dims = {"edit_type": None, **dims}
    return Score(sample_id=sample, editor=editor, metric=metric, value=value, missing=missing, part=part, dims=dims)


def area(metric: str, number: int, op: str, box: Box, sample: str = "0", value: float | None = 1.0, **dims: Any) -> Score:
    x0, y0, x1, y1 = (v / 100 for v in box)
    dims = {"op": op, "object": "", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "width": 200, "height": 100, **dims}
    part = f"{'area' if metric == 'given' else 'difference'} {number}"
    return score(metric, sample, value, part=part, **dims)


def figures(table: Table) -> dict[tuple[object, ...], object]:
    """(row keys, column keys) → the figure unrounded."""
    return {
        (*row.keys.values(), *column.keys.values()): cell.value
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if column.keys
    }


# ---- Editors ---------------------------------------------------------------------------------------------------------


def edits(editor: str, correct: int, unwanted: float, no_change: int, of: int = 200, **dims: Any) -> list[Score]:
    """Scores of images: the first ones have a coherent difference, the last ones none; all have the same unwanted share."""
    made = []
    for i in range(of):
        sample = str(i)
        made += [
            score("correct", sample, float(i < correct), editor=editor, **dims),
            score("unwanted", sample, unwanted, editor=editor),
            score("no_change", sample, float(i >= of - no_change), editor=editor),
        ]
    return made


def published(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_papers_editors_have_its_figures() -> None:
    """200 images an editor that give the printed percentages."""
    lines = published("dice_editors.csv")
    made = [
        s
        for line in lines
        for s in edits(
            line["editor"],
            round(2 * float(line["dice_correct_edits"])),
            float(line["dice_unwanted_edits"]) / 100,
            round(2 * float(line["dice_no_change"])),
        )
    ]
    found = figures(report(made)["editors"])
    for line in lines:
        for metric, column in (("correct", "correct_edits"), ("unwanted", "unwanted_edits"), ("no_change", "no_change")):
            assert found[line["editor"], metric, "judge"] == pytest.approx(float(line[f"dice_{column}"]))


# ---- Detection -------------------------------------------------------------------------------------------------------


def sure(confidence: float) -> dict[str, Any]:
    return {"confidence": confidence, "confidence_source": "logprob"}


FOUND = [
    score("no_change", value=0.0),
    area("given", 1, "ADD", LEFT, coherent=1),
    area("given", 2, "REMOVE", RIGHT, coherent=0),
    area("detected", 1, "EDIT", WHOLE, **sure(0.9)),
    area("detected", 2, "ADD", LEFT, **sure(0.6)),
    area("detected", 3, "EDIT", RIGHT, **sure(0.7)),
]
"""Of 200×100 px. By confidence: the whole, the right, the left half."""


def test_average_precision_with_and_without_the_op() -> None:
    table = report(FOUND)["detection"]
    found = figures(table)
    # The whole has an IoU of exactly .50 with either half, and takes the later given one at .50. There then the right half
    # is wrong and the left one right: 1, 1/2, 2/3; the best precision is 1 up to a recall of .5 and 2/3 above: 51 and 50 of
    # 101. From .55 on the whole is wrong: 0, 1/2, 2/3, so 2/3 throughout.
    low, high = (51 + 50 * 2 / 3) / 101, 2 / 3
    assert found["logprob", "agnostic", "AP50"] == pytest.approx(100 * low)
    assert found["logprob", "agnostic", "AP75"] == pytest.approx(100 * high)
    assert found["logprob", "agnostic", "AP"] == pytest.approx(100 * (low + 9 * high) / 10)
    # Without confidences in the detector's order: whole, left, right. At .50 the whole takes the right half, the left one
    # is right, the right one wrong: 1, 1, 2/3.
    assert found["none", "agnostic", "AP50"] == pytest.approx(100.0)
    # By op: ADD is found, REMOVE is not, EDIT is not there.
    assert found["none", "aware", "AP"] == pytest.approx(50.0)
    assert (found["none", "aware", "AP_ADD"], found["none", "aware", "AP_REM"]) == (pytest.approx(100.0), 0.0)
    assert found["none", "aware", "AP_EDIT"] is None
    # 100×100 px: larger than 96².
    assert found["none", "agnostic", "AP_M"] is None and found["none", "agnostic", "AP_L"] is not None
    assert [cell.text for cell in table.rows[0].cells[:4]] == ["logprob", "1/1", "3", "2"]
