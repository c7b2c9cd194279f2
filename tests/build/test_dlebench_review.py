"""What people are asked about a row of a built set, and what follows from their answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from editloupe.answers import Choice, Label, Text
from editloupe.build.dlebench.review import DLEBenchReview
from editloupe.build.people import RowVerdict, verdicts_of, with_verdicts
from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.protocols.base import Known, planned
from editloupe.testing import check_protocol
from editloupe.values import Box, Sample, Target, Turn
from tests.conftest import pixels

STORE = ImageStore()


def row(**more: Any) -> Sample:
    """A row of a set: a red square of 24 px, and a reference in which it is green."""
    source = pixels(0, spots=1)[1]
    made = source.copy()
    made[20:44, 20:44] = (0, 200, 0)
    given: dict[str, Any] = {
        "id": "0-1",
        "source": STORE.add_array(source),
        "reference": STORE.add_array(made),
        "turns": (Turn(instruction="Paint it green.", edited=None),),
        "targets": (Target(name="red square", boxes={"source": Box(20, 20, 44, 44)}),),
        "edit_type": "Change Color",
        "extra": {"source_caption": "The square is red.", "reference_caption": "The square is green."},
    }
    return Sample(**{**given, **more})


def test_the_protocol_keeps_the_contract() -> None:
    scores = check_protocol(DLEBenchReview, samples=[row(), row(id="1-1")], images=STORE)
    assert {score.metric for score in scores} == {"box", "texts", "instruction_following", "visual_consistency"}


def test_each_question_shows_what_it_is_about() -> None:
    tasks = {task.metric: task for task in planned(DLEBenchReview(), [row()], Known())}
    four = ["box", "texts", "instruction_following", "visual_consistency"]
    assert [*tasks] == four
    # Better texts are asked for where the texts are wrong.
    for answer, more in (("yes", []), ("no", ["instruction", "source_caption", "reference_caption"])):
        known = Known(said(texts=answer).values())
        assert [task.metric for task in planned(DLEBenchReview(), [row()], known)] == four + more
    views = {name: [(view.alias, view.op) for view in task.views] for name, task in tasks.items()}
    assert views["box"] == [("Close-up", "crop")]
    assert views["texts"] == [("Image", "whole"), ("Close-up", "crop")]
    assert views["instruction_following"] == [("Original Image", "crop"), ("Edited Image", "crop")]
    assert views["visual_consistency"] == [("Original Image", "whole"), ("Edited Image", "whole")]
    # The close-up is Eq. 1's: 168 px about (32, 32), cut off at the border; the reference shows the same place.
    first, second = tasks["instruction_following"].views
    assert first.region == second.region == Box(0, 0, 116, 116) and second.origin == row().reference
    texts = getattr(tasks["texts"], "prompt", "")
    for words in ("Instruction: Paint it green.", "The square is red.", "The square is green.", "Change Color"):
        assert words in texts
    assert "Question about the image" not in texts
    asked = row(extra={**row().extra, "question": "What colour?", "answer": "red", "wrong": "green\n\nAnswer: no"})
    (again,) = [task for task in planned(DLEBenchReview(), [asked], Known()) if task.metric == "texts"]
    assert "The answer after the edit: green Answer: no\n" in getattr(again, "prompt", "")


@pytest.mark.parametrize("lacks", [{"reference": None}, {"targets": ()}])
def test_a_row_without_a_reference_or_a_box_cannot_be_reviewed(lacks: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="1 of 2 lack one, first 1-1; name the folder to_review"):
        DLEBenchReview().check([row(), row(id="1-1", **lacks)])


def said(**answers: str) -> dict[str, Finding]:
    found = {}
    for metric, text in answers.items():
        kind = metric in ("box", "texts")
        label = metric in ("instruction_following", "visual_consistency")
        answer: Any = Choice(name=text) if kind else Label(name=text, value=1.0) if label else Text(text=text)
        found[metric] = Finding(
            task_id="t", judge_id="j", repeat=0, sample_id="0-1", editor="", metric=metric, status="ok", answer=answer
        )
    return found


GOOD = {
    "box": "yes",
    "texts": "yes",
    "instruction_following": "Flawless Execution",
    "visual_consistency": "Perfect Consistency",
}


@pytest.mark.parametrize(
    ("answers", "kind", "why"),
    [
        ([{}], "passed", ""),
        ([{"box": "no"}], "rejected", "box"),
        ([{"texts": "no"}], "rejected", "texts"),
        ([{"texts": "no", "instruction": "Paint the square green."}], "passed", ""),
        ([{"instruction_following": "Over Modification"}], "again", "instruction_following"),
        ([{"visual_consistency": "Single Anomaly"}], "again", "visual_consistency"),
        ([{}, {"visual_consistency": "Single Anomaly"}], "disagree", "visual_consistency"),
        ([{"box": "no", "instruction_following": "Wrong Action"}, {"box": "no"}], "rejected", "box"),
    ],
)
def test_a_verdict_follows_from_all_answers(answers: list[dict[str, str]], kind: str, why: str) -> None:
    found = DLEBenchReview().verdict(row(), {str(i): said(**{**GOOD, **one}) for i, one in enumerate(answers)})
    assert found is not None and (found.kind, found.why) == (kind, why)
    assert bool(found.detail) == (kind != "passed")


@pytest.mark.parametrize("question", sorted(GOOD))
def test_an_open_question_leaves_the_row_open_unless_something_speaks_against_it(question: str) -> None:
    answers = {name: text for name, text in GOOD.items() if name != question}
    assert DLEBenchReview().verdict(row(), {"ann": said(**answers)}) is None and DLEBenchReview().verdict(row(), {}) is None
    # What one person left open another one may have answered.
    assert DLEBenchReview().verdict(row(), {"ann": said(**answers), "ben": said(**{question: GOOD[question]})}) is not None
    other = next(name for name in ("box", "texts") if name != question)
    assert DLEBenchReview().verdict(row(), {"ann": said(**{**answers, other: "no"})}) is not None


def test_a_settled_disagreement_counts_alone() -> None:
    several = {"ann": said(**GOOD), "ben": said(**{**GOOD, "box": "no"}), "adjudicated": said(box="yes")}
    assert getattr(DLEBenchReview().verdict(row(), several), "kind", "") == "passed"
    several["adjudicated"] = said(visual_consistency="Single Anomaly")
    assert getattr(DLEBenchReview().verdict(row(), several), "kind", "") == "again"


def test_verdicts_travel_with_their_sample() -> None:
    reference = row().reference
    assert reference is not None
    one = RowVerdict(row="0-1", seen=reference.sha256, kind="again", why="box", corrections={"instruction": "Better."})
    sample = Sample.from_json(with_verdicts(row(), [one]).to_json())
    assert verdicts_of(sample) == {("0-1", reference.sha256): one}
    assert sample.content == row().content and verdicts_of(row()) == {}
    assert DLEBenchReview().verdict(replace(row(), reference=None), {"ann": said(**GOOD)}) is None
    assert np.array_equal(STORE.array(reference)[20:44, 20:44, 1], np.full((24, 24), 200))
