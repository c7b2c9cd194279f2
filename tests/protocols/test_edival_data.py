"""What EdiVal reads of a sample: the grammar of its instructions, the chain in its columns, boxes given and recorded."""

from __future__ import annotations

import ast
import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.answers import answer_from_json
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.protocols.base import Known
from editloupe.protocols.edival.chain import Chain, Pools, columns, read_chain
from editloupe.protocols.edival.instructions import EDIT_TYPES, Edit, parse_edit
from editloupe.protocols.edival.sights import Eyes, Sight, Unsettled, detect
from editloupe.tasks import Measure
from editloupe.values import Box, ImageRef, Sample, Turn

FILE = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "edival" / "instructions_first_40_images.csv"
BASE, FIRST, SECOND = (
    ImageRef(sha256=c * 64, width=w, height=100, media_type="image/png") for c, w in (("0", 200), ("1", 400), ("2", 200))
)
SENTENCES = {
    "Add [bench] on the [left] of [white wall]": Edit(
        edit_type="subject_add", new="bench", position="left", reference="white wall"
    ),
    "Add [waterhole]": Edit(edit_type="subject_add", new="waterhole"),
    "Remove [glass cup]": Edit(edit_type="subject_remove", target="glass cup"),
    "Replace [black shirt] with [sweater]": Edit(edit_type="subject_replace", target="black shirt", new="sweater"),
    "Change the color of [red shirt] to [blue]": Edit(edit_type="color_alter", target="red shirt", new="blue"),
    "Change the material of [fish] to [glass]": Edit(edit_type="material_alter", target="fish", new="glass"),
    "Replace the text '[IT'S A]' on [shirt] with '[BAMBOO]'": Edit(
        edit_type="text_change", old_text="IT'S A", target="shirt", new="BAMBOO"
    ),
    "Add text '[WILD]' on the image": Edit(edit_type="text_change", new="WILD"),
    "Change the position of [cup] to [below] of [jar]": Edit(
        edit_type="position_change", target="cup", position="below", reference="jar"
    ),
    "Change the count of [button] to [3]": Edit(edit_type="count_change", target="button", count=3),
    "Change the background to [park]": Edit(edit_type="background_change", new="park"),
}
CHAIN = Chain(
    mode="multipass",
    edits=(Edit(edit_type="subject_remove", target="cup"), Edit(edit_type="background_change", new="park", keep=("jar",))),
    pools=(
        Pools(ever=("cup", "jar"), unchanged=("jar",), available=("jar",), background_kept=True),
        Pools(ever=("cup", "jar"), unchanged=("jar",), available=(), background_kept=False),
    ),
)


def sample(*edited: ImageRef | None, **more: Any) -> Sample:
    return Sample(id="7", source=BASE, turns=tuple(Turn(instruction="x", edited=one) for one in edited), **more)


def test_a_sentence_is_taken_apart_and_put_together_again():
    for text, edit in SENTENCES.items():
        assert parse_edit(edit.edit_type, text) == edit
        assert parse_edit(edit.edit_type, f' "{text}."') == edit == parse_edit(edit.edit_type, f'""{text}""')
        assert (edit.sentence(brackets=True), edit.sentence()) == (text, re.sub(r"[\[\]]", "", text))
    # The objects to keep stand in the plain sentence alone.
    bracketed, plain = "Change the background to [park]", "Change the background to park, remain the red mug, jar unchanged"
    edit = parse_edit("background_change", bracketed, plain)
    assert edit.keep == ("red mug", "jar") and edit.sentence() == plain and edit.sentence(brackets=True) == bracketed
    assert parse_edit("background_change", bracketed, "Change the background to park").keep == ()


@pytest.mark.skipif(not FILE.is_file(), reason="the sample of the instructions is not here (../shared/data/benchmarks)")
def test_every_row_of_the_benchmarks_sample_is_read():
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    seen = set()
    for row in rows:
        types, bracketed, plain = (
            ast.literal_eval(row[name])[-1] for name in ("task_type", "format_instructions", "instructions")
        )
        edit = parse_edit(types, bracketed, plain)
        assert edit.sentence(brackets=True) == bracketed.strip('"').removesuffix(".")
        assert edit.sentence() == plain.strip('"').removesuffix(".")
        seen.add(edit.edit_type)
    assert len(rows) == 120 and seen == set(EDIT_TYPES)


def test_a_chain_is_read_as_it_was_written_and_columns_that_hold_none_are_told():
    one = replace(CHAIN, mode="singlepass")
    assert read_chain(sample(FIRST, SECOND, extra=columns(CHAIN))) == CHAIN
    assert read_chain(sample(FIRST, extra=columns(one))) == one
    assert [CHAIN.turn(i) for i in (0, 1)] == [1, 2] and [one.turn(i) for i in (0, 1)] == [1, 1]
    for extra, said in (
        ({"mode": "both"}, "column 'mode' holds 'both'; expected multipass or singlepass"),
        ({"all_objects": None}, "column 'all_objects' holds None; expected a list of names for each edit"),
        ({"task_type": ["subject_remove"]}, "found 1 of task_type, 2 of format_instructions"),
        ({"instructions": ["a", 2]}, "column 'instructions', item 1 holds 2; expected a list of texts"),
        ({"unchanged_objects": [["a"], "b"]}, "column 'unchanged_objects', item 1 holds 'b'; expected a list of names"),
        ({"bg_consistency": [True, "no"]}, "column 'bg_consistency', item 1 holds 'no'; expected a list of true and false"),
        ({"task_type": ["subject_remove", "paint"]}, "sample '7': unknown edit type 'paint'"),
        ({"mode": "singlepass"}, "one turn for all"),
    ):
        with pytest.raises(DataError, match=said):
            read_chain(sample(FIRST, SECOND, extra={**columns(CHAIN), **extra}))


def found(task: Measure, answer: Any = None, status: Any = "ok") -> Finding:
    given = None if answer is None else answer_from_json(answer)
    return Finding.of(task, judge_id="j", repeat=0, status=status, ending="measure", answer=given)


def seen(chain: Sample, turn: int, phrase: str, *given: Finding) -> list[Sight]:
    (sights,) = Eyes(protocol="edival", sample=chain, known=Known(given)).see((turn, phrase))
    return sights


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
    # What is seen is in fractions, and nothing seen is not unknown.
    box = {"box": [100, 200, 300, 400], "score": 0.5, "label": "cup"}
    answers = [{"kind": "record", "data": {"phrase": "red cup", "detections": boxes}} for boxes in ([box], [])]
    sight = Sight(box=Box(0.1, 0.2, 0.3, 0.4), score=0.5, label="cup")
    assert [seen(chain, 1, "Red cup", found(task, answer)) for answer in answers] == [[sight], []]
    number = found(task, {"kind": "number", "value": 1})
    for given, status in (
        ((), "not judged yet"),
        ((found(task, status="tool_failed"),), "tool_failed"),
        ((number,), "input_error"),
    ):
        with pytest.raises(Unsettled) as unsettled:
            seen(chain, 1, "red cup", *given)
        assert unsettled.value.status == status
