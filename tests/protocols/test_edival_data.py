"""What EdiVal reads of a sample: the grammar of its instructions, the chain in its columns, boxes given and recorded."""

from __future__ import annotations

import re

from editloupe.protocols.edival.instructions import Edit, parse_edit

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
