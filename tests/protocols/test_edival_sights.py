"""What is seen in a picture of a chain: by the detector, or by boxes that the data gives."""

from __future__ import annotations

from typing import Any

import pytest

from editloupe.answers import answer_from_json
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.measures.base import run_measure
from editloupe.protocols.base import Known
from editloupe.protocols.edival.sights import Sight, detect, looked, sights_of
from editloupe.tasks import Measure
from editloupe.values import Box, ImageRef, Sample, Target, Turn

BASE, FIRST, SECOND = (
    ImageRef(sha256=c * 64, width=w, height=100, media_type="image/png") for c, w in (("0", 200), ("1", 400), ("2", 200))
)


def sample(*edited: ImageRef | None, **more: Any) -> Sample:
    return Sample(id="7", source=BASE, turns=tuple(Turn(instruction="x", edited=one) for one in edited), **more)


def seen(known: Known, chain: Sample, turn: int, phrase: str) -> list[Sight] | None:
    finding = looked(known, chain, turn, phrase)
    return None if finding is None else sights_of(finding)


def found(task: Measure, answer: Any = None, status: Any = "ok") -> Finding:
    return Finding.of(task, judge_id="j", repeat=0, status=status, ending="measure", answer=answer)


def test_a_picture_is_searched_once_whatever_the_spelling_of_the_phrase():
    chain = sample(FIRST, None)
    task = detect("edival", chain, 1, " Red  Cup. ")
    assert task.id == detect("edival", chain, 1, "red cup").id
    assert (task.measure, task.about.turn, task.about.part) == ("detections", 1, "after: red cup")
    assert task.args == {"phrase": "red cup", "box_threshold": 0.25, "text_threshold": 0.25}
    assert [view.origin for view in task.views] == [FIRST]
    base = detect("edival", chain, 0, "red cup")
    assert (base.about.turn, base.about.part, base.views[0].origin) == (0, "base: red cup", BASE)
    gone = detect("edival", chain, 2, "cup")
    assert gone.blocked == ("missing_output", "the image after turn 2 is missing") and gone.views == ()


def test_sights_are_in_fractions_and_nothing_seen_is_not_unknown():
    chain = sample(FIRST)
    task = detect("edival", chain, 1, "cup")

    def after(*given: Finding) -> list[Sight] | None:
        return seen(Known(given), chain, 1, "Cup")

    def record(*boxes: Any) -> Finding:
        return found(task, answer_from_json({"kind": "record", "data": {"phrase": "cup", "detections": list(boxes)}}))

    box = {"box": [100, 200, 300, 400], "score": 0.5, "label": "cup"}
    assert after(record(box)) == [Sight(box=Box(0.1, 0.2, 0.3, 0.4), score=0.5, label="cup")]
    assert after(record()) == []
    failed, other = found(task, status="tool_failed"), found(task, answer_from_json({"kind": "number", "value": 1}))
    assert after() is after(failed) is after(other) is None
    assert looked(Known(), chain, 1, "cup") is None and looked(Known([failed]), chain, 1, "cup") is not None


def test_given_boxes_are_findings_of_the_key_and_no_detector_is_asked():
    boxes = [{"Red cup": [[20, 10, 60, 50], [0, 0, 20, 10]], "hat": []}, None, {"red cup": []}]
    chain = sample(FIRST, SECOND, extra={"boxes": boxes})
    asked = ((0, "hat"), (0, "red cup"), (2, "red cup"), (0, "jar"), (1, "red cup"))
    tasks = [detect("edival", chain, turn, phrase) for turn, phrase in asked]
    assert [task.measure for task in tasks] == ["key"] * 3 + ["detections"] * 2 and not any(t.views for t in tasks[:3])
    known = Known(found(task, run_measure("key", task.args, {})) for task in tasks[:3])
    # 20 of 200 px is 0.1 of the width, 10 of 100 px is 0.1 of the height.
    first, second = seen(known, chain, 0, "red cup") or []
    assert list(first.box) == pytest.approx([0.1, 0.1, 0.3, 0.5]) and list(second.box) == pytest.approx([0, 0, 0.1, 0.1])
    assert first.score == second.score == 1.0
    assert seen(known, chain, 2, "red cup") == seen(known, chain, 0, "hat") == []


def test_boxes_of_targets_count_for_the_base_image_and_the_last_output():
    target = Target(name="Cup", boxes={"source": Box(20, 10, 60, 50), "edited": Box(40, 10, 80, 50)})
    nameless = Target(boxes={"source": Box(0, 0, 9, 9)})
    chain = sample(FIRST, SECOND, targets=(target, nameless))
    assert [detect("edival", chain, turn, "cup").measure for turn in (0, 1, 2)] == ["key", "detections", "key"]
    answer: Any = detect("edival", chain, 2, "cup").args["answer"]
    assert answer["data"]["detections"][0]["box"] == [200, 100, 400, 500]


def test_an_output_that_is_the_base_image_has_the_boxes_of_that():
    boxes: Any = [{"cup": [[20, 10, 60, 50]]}, {"cup": []}]
    target = Target(name="jar", boxes={"source": Box(0, 0, 20, 10), "edited": Box(40, 10, 80, 50)})
    null, other = (sample(image, extra={"boxes": boxes}, targets=(target,)) for image in (BASE, SECOND))
    for phrase in ("cup", "jar"):
        base = detect("edival", null, 0, phrase).args
        assert detect("edival", null, 1, phrase).args == base != detect("edival", other, 1, phrase).args


def test_given_boxes_that_cannot_be_read_are_told():
    for boxes, said in (
        ({"cup": []}, "needs a list with an item for each of its 2 pictures, the base image first; found a dict"),
        ([None], "found 1"),
        ([[], None], "item 0: expected an object from a name to its boxes, or null; found"),
        ([{"cup": None}, None], "item 0, 'cup': expected a list of boxes"),
        ([{"cup": [[1, 2, 3]]}, None], "item 0, 'cup': expected boxes"),
        ([{"cup": [[5, 5, 1, 1]]}, None], "empty or inverted"),
        ([{"cup": [[0, 0, 900, 50]]}, None], "reaches outside the image of 200×100 px"),
    ):
        with pytest.raises(DataError, match=f"sample '7': column 'boxes'.*{said}"):
            detect("edival", sample(FIRST, extra={"boxes": boxes}), 0, "cup")
