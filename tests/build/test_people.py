"""What people are asked about a row of a built set, and what follows from their answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.build.dlebench.review import DLEBenchReview
from editloupe.build.giebench.review import GIEBenchReview
from editloupe.build.people import Review
from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.protocols.base import Known, planned
from editloupe.testing import check_protocol
from editloupe.values import Box, Sample, Target, Turn
from tests.build.conftest import given
from tests.conftest import pixels

STORE = ImageStore()
DLE = {
    "box": "yes",
    "texts": "yes",
    "instruction_following": "Flawless Execution",
    "visual_consistency": "Perfect Consistency",
}
GIE = {"instruction": "yes", "question": "yes", "mask": "yes"}
REVIEWS: dict[type[Review], dict[str, str]] = {DLEBenchReview: DLE, GIEBenchReview: GIE}


def row(**more: Any) -> Sample:
    """A row of either set: a red square of 24 px, and a reference in which it is green."""
    source = pixels(0, spots=1)[1]
    made, mask = source.copy(), np.zeros_like(source)
    made[20:44, 20:44], mask[20:44, 20:44] = (0, 200, 0), 255
    said = {
        "row_digest": "d1", "source_caption": "The square is red.", "reference_caption": "The square is green.",
        "evaluation_question": "Which color?\n\nRight option: Red", "multiple_choice_options": ["Red", "Green"],
        "expected_answer": "Green", "question": "What color?", "answer": "red", "wrong": "green\n\nAnswer: no",
    }  # fmt: skip
    known: dict[str, Any] = {
        "id": "0-1",
        "source": STORE.add_array(source),
        "reference": STORE.add_array(made),
        "masks": {"edit": STORE.add_array(mask)},
        "turns": (Turn(instruction="Paint it green.", edited=None),),
        "targets": (Target(name="red square", boxes={"source": Box(20, 20, 44, 44)}),),
        "edit_type": "Change Color",
        "extra": said,
    }
    return Sample(**{**known, **more})


def said(**answers: str) -> dict[str, Finding]:
    return {question: given(question, text) for question, text in answers.items()}


def asked(review: type[Review], *findings: Finding) -> dict[str, Any]:
    return {task.metric: task for task in planned(review(), [row()], Known(findings))}


@pytest.mark.parametrize("review", REVIEWS)
def test_a_review_keeps_the_contract_and_asks_about_rows_of_a_set_alone(review: type[Review]) -> None:
    scores = check_protocol(review, samples=[row(), row(id="1-1"), row(id="2-1", masks={})], images=STORE)
    assert {score.metric for score in scores} == set(REVIEWS[review])
    assert {score.metric for score in scores if score.sample_id == "2-1"} == set(REVIEWS[review]) - {"mask"}
    with pytest.raises(DataError, match="1 of 2 lack it, first 1-1; name the folder to_review"):
        review().check([row(), row(id="1-1", extra={})])


def test_each_question_shows_what_it_is_about() -> None:
    tasks, others = asked(DLEBenchReview), asked(GIEBenchReview)
    views = {name: [(view.alias, view.op) for view in task.views] for name, task in {**tasks, **others}.items()}
    assert views == {
        "box": [("Close-up", "crop")],
        "texts": [("Image", "whole"), ("Close-up", "crop")],
        "instruction_following": [("Original Image", "crop"), ("Edited Image", "crop")],
        "visual_consistency": [("Original Image", "whole"), ("Edited Image", "whole")],
        "instruction": [("Image", "whole")],
        "question": [("Image", "whole")],
        "mask": [("Image", "whole"), ("Marked", "spotlight")],
    }
    # The close-up is Eq. 1's: 168 px about (32, 32), cut off at the border; the reference shows the same place.
    first, second = tasks["instruction_following"].views
    assert first.region == second.region == Box(0, 0, 116, 116) and second.origin == row().reference
    picture, source = STORE.array(make_view(others["mask"].views[1], STORE).image), STORE.array(row().source)
    assert np.array_equal(picture[20:44, 20:44], source[20:44, 20:44]) and np.array_equal(picture[44:], source[44:] // 4)


def test_a_question_prints_the_row_and_each_of_its_texts_on_one_line() -> None:
    tasks = {**asked(DLEBenchReview), **asked(GIEBenchReview)}
    for question, words in {
        "texts": ("Instruction: Paint it green.\n", "The square is red.", "The square is green.", "Change Color",
                  "The answer after the edit: green Answer: no\n"),
        "instruction": ("Instruction: Paint it green.\n",),
        "question": ("Question: Which color? Right option: Red\n", "Options: Red | Green\n", "\nRight option: Green\n"),
        "mask": ("Marked: red square\n",),
    }.items():  # fmt: skip
        assert all(part in tasks[question].prompt for part in words), tasks[question].prompt
    plain = {name: text for name, text in row().extra.items() if name not in ("question", "answer", "wrong")}
    (texts,) = [task for task in planned(DLEBenchReview(), [row(extra=plain)], Known()) if task.metric == "texts"]
    assert "Question about the image" not in getattr(texts, "prompt", "")


@pytest.mark.parametrize(
    ("review", "answers", "kind", "why"),
    [
        (DLEBenchReview, [{}], "passed", ""),
        (DLEBenchReview, [{"box": "no"}], "rejected", "box"),
        (DLEBenchReview, [{"instruction_following": "Over Modification"}], "again", "instruction_following"),
        (DLEBenchReview, [{}, {"visual_consistency": "Single Anomaly"}], "disagree", "visual_consistency"),
        (GIEBenchReview, [{"mask": "no"}], "rejected", "mask"),
        (GIEBenchReview, [{}, {"question": "no"}], "disagree", "question"),
    ],
)
def test_a_verdict_follows_from_all_answers(review: Any, answers: list[dict[str, str]], kind: str, why: str) -> None:
    found = review().verdict(row(), {str(i): said(**{**REVIEWS[review], **one}) for i, one in enumerate(answers)})
    assert found is not None and (found.row, found.seen, found.kind, found.why) == ("0-1", "d1", kind, why)
    assert bool(found.detail) == (kind != "passed")


def test_a_settled_disagreement_counts_alone() -> None:
    several = {"ann": said(**DLE), "ben": said(**{**DLE, "box": "no"}), "adjudicated": said(box="yes")}
    assert getattr(DLEBenchReview().verdict(row(), several), "kind", "") == "passed"
    several["adjudicated"] = said(visual_consistency="Single Anomaly")
    assert getattr(DLEBenchReview().verdict(row(), several), "kind", "") == "again"
