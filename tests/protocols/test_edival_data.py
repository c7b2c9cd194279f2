"""What EdiVal reads of a sample: the grammar of its instructions, the chain in its columns, boxes given and recorded."""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path

import pytest

from editloupe.protocols.edival.instructions import EDIT_TYPES, Edit, parse_edit

FILE = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "edival" / "instructions_first_40_images.csv"
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
