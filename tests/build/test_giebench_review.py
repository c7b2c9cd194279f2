"""What people are asked about a row of a built set, and what follows from their answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.answers import Choice
from editloupe.build.giebench.masks import reduced
from editloupe.build.giebench.review import GIEBenchReview
from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.protocols.base import Known, planned
from editloupe.testing import check_protocol
from editloupe.values import Sample, Turn
from tests.conftest import pixels

STORE = ImageStore()


def row(**more: Any) -> Sample:
    """A row of a set: a red square of 24 px, which shall become green."""
    source = pixels(0, spots=1)[1]
    mask = np.zeros_like(source)
    mask[20:44, 20:44] = 255
    given: dict[str, Any] = {
        "id": "0-1",
        "source": STORE.add_array(source),
        "masks": {"edit": STORE.add_array(mask)},
        "turns": (Turn(instruction="Paint it green.", edited=None),),
        "edit_type": "Color Change",
        "extra": {
            "row_digest": "d1",
            "target_name": "red square",
            "evaluation_question": "Which color?",
            "multiple_choice_options": ["Red", "Green"],
            "expected_answer": "Green",
        },
    }
    return Sample(**{**given, **more})


def test_the_protocol_keeps_the_contract() -> None:
    samples = [row(), row(id="1-1"), row(id="2-1", masks={})]
    scores = check_protocol(GIEBenchReview, samples=samples, images=STORE)
    assert {score.metric for score in scores} == {"instruction", "question", "mask"}
    assert {score.metric for score in scores if score.sample_id == "2-1"} == {"instruction", "question"}


def test_each_question_shows_what_it_is_about() -> None:
    tasks = {task.metric: task for task in planned(GIEBenchReview(), [row()], Known())}
    texts = {name: getattr(task, "prompt", "") for name, task in tasks.items()}
    assert "Instruction: Paint it green." in texts["instruction"] and "Options: Red | Green" in texts["question"]
    assert "Right option: Green" in texts["question"] and "Marked: red square" in texts["mask"]
    assert [view.alias for view in tasks["question"].views] == ["Image"]
    _, marked = tasks["mask"].views
    picture = STORE.array(make_view(marked, STORE).image)
    source = STORE.array(row().source)
    assert np.array_equal(picture[20:44, 20:44], source[20:44, 20:44])
    assert np.array_equal(picture[44:], source[44:] // 4)


def test_text_of_the_data_stays_on_its_line() -> None:
    asked = row(extra={**row().extra, "evaluation_question": "Which color?\n\nRight option: Red"})
    (task,) = [one for one in planned(GIEBenchReview(), [asked], Known()) if one.metric == "question"]
    assert "\nRight option: Red" not in getattr(task, "prompt", "")


def test_a_row_whose_question_cannot_be_asked_says_so() -> None:
    broken = row(extra={**row().extra, "multiple_choice_options": ["Red"]})
    (task,) = [one for one in planned(GIEBenchReview(), [broken], Known()) if one.metric == "question"]
    assert task.blocked is not None and task.blocked[0] == "input_error" and "expected 2 to" in task.blocked[1]


def test_samples_that_are_no_rows_cannot_be_reviewed() -> None:
    with pytest.raises(DataError, match="1 of 2 lack one, first 1-1; name the folder to_review"):
        GIEBenchReview().check([row(), row(id="1-1", extra={})])


def said(**answers: str) -> dict[str, Finding]:
    return {
        metric: Finding(
            task_id="t", judge_id="j", repeat=0, sample_id="0-1", editor="", metric=metric, status="ok",
            answer=Choice(name=text),
        )
        for metric, text in answers.items()
    }  # fmt: skip


GOOD = {"instruction": "yes", "question": "yes", "mask": "yes"}


@pytest.mark.parametrize(
    ("answers", "kind", "why"),
    [
        ([{}], "passed", ""),
        *(([{name: "no"}], "rejected", name) for name in GOOD),
        ([{}, {"question": "no"}], "disagree", "question"),
    ],
)
def test_a_verdict_follows_from_all_answers(answers: list[dict[str, str]], kind: str, why: str) -> None:
    found = GIEBenchReview().verdict(row(), {str(i): said(**{**GOOD, **one}) for i, one in enumerate(answers)})
    assert found is not None and (found.row, found.seen, found.kind, found.why) == ("0-1", "d1", kind, why)
    assert bool(found.detail) == (kind != "passed")


def test_an_open_question_leaves_the_row_open_unless_something_speaks_against_it() -> None:
    assert (
        GIEBenchReview().verdict(row(), {"ann": said(instruction="yes", mask="yes")}) is None
        and GIEBenchReview().verdict(row(), {}) is None
    )
    assert getattr(GIEBenchReview().verdict(row(), {"ann": said(mask="no")}), "kind", "") == "rejected"
    # A row without a mask needs no word on it.
    bare = row(masks={})
    assert getattr(GIEBenchReview().verdict(bare, {"ann": said(instruction="yes", question="yes")}), "kind", "") == "passed"
    several = {"ann": said(**GOOD), "ben": said(**{**GOOD, "mask": "no"}), "adjudicated": said(mask="yes")}
    assert getattr(GIEBenchReview().verdict(row(), several), "kind", "") == "passed"


@pytest.mark.parametrize(
    ("height", "width", "pixel", "cells"),
    [
        # Two px of 10 are 0.4 cells of 2: the first. The pixel 5 begins the second half.
        (10, 10, (1, 5), (0, 1)),
        # One px of three reaches from 2/3 to 4/3 of a cell: both touch it.
        (3, 3, (1, 0), (slice(0, 2), 0)),
        # An image smaller than the grid: its one pixel is all cells.
        (1, 1, (0, 0), (slice(0, 2), slice(0, 2))),
    ],
)
def test_a_reduced_mask_has_every_cell_that_is_touched(height: int, width: int, pixel: Any, cells: Any) -> None:
    mask = np.zeros((height, width), dtype=bool)
    mask[pixel] = True
    expected = np.zeros((2, 2), dtype=bool)
    expected[cells] = True
    assert np.array_equal(reduced(mask, side=2), expected)
