"""CLIP direction of an edit: the texts of each type, and which images are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from editloupe.protocols.edival.chain import Chain
from editloupe.protocols.edival.direction import DirectionOptions, captions, plan_direction, score_direction
from editloupe.protocols.edival.instructions import EDIT_TYPES, Edit
from tests.measures.test_consistency import flat
from tests.protocols.edival_answers import STORE, answered, chain_sample
from tests.protocols.test_edival_consistency import pools

CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"edit_type": "subject_add", "new": "bench"}, "a photo", "a photo of bench"),
    (
        {"edit_type": "subject_add", "new": "bench", "position": "left", "reference": "tree"},
        "a photo of tree",
        "a photo of bench to the left of tree",
    ),
    ({"edit_type": "subject_remove", "target": "cup"}, "a photo of cup", "a photo"),
    ({"edit_type": "subject_replace", "target": "cup", "new": "jar"}, "a photo of cup", "a photo of jar"),
    ({"edit_type": "color_alter", "target": "cup", "new": "red"}, "a photo of cup", "a photo of red cup"),
    ({"edit_type": "material_alter", "target": "cup", "new": "wood"}, "a photo of cup", "a photo of cup made of wood"),
    ({"edit_type": "text_change", "new": "LAMB"}, "a photo", "a photo with the text 'LAMB'"),
    (
        {"edit_type": "text_change", "target": "shirt", "old_text": "A", "new": "B"},
        "a photo of shirt with the text 'A'",
        "a photo of shirt with the text 'B'",
    ),
    (
        {"edit_type": "position_change", "target": "cup", "position": "above", "reference": "jar"},
        "a photo of cup and jar",
        "a photo of cup above jar",
    ),
    ({"edit_type": "count_change", "target": "cup", "count": 4}, "a photo of cup", "a photo of 4 cup"),
    ({"edit_type": "background_change", "new": "park"}, "a photo", "a photo with park in the background"),
]


def test_each_type_of_edit_has_its_texts() -> None:
    for edit, before, after in CASES:
        assert captions(Edit(**edit)) == (before, after)
    assert {edit["edit_type"] for edit, _, _ in CASES} == set(EDIT_TYPES)


ON = DirectionOptions(direction=True)


class Fixed:
    """Vectors by which every edit has the direction of its texts but for the second, which has none."""

    def get(self, kind: str) -> Any:
        images = lambda pictures, _: [picture.mean((0, 1)).astype(np.float32) for picture in pictures]  # noqa: E731
        texts = lambda said: [np.array([1, len(s), 0], np.float32) for s in said]  # noqa: E731
        return {"clip": images, "clip_text": texts}[kind]


def test_an_edit_is_compared_from_the_image_before_it_to_the_one_after() -> None:
    edits = (Edit(edit_type="color_alter", target="cup", new="red"), Edit(edit_type="subject_remove", target="cup"))
    after = (pools(["cup"], []), pools(["cup"], []))
    images = [flat(1, 0, 0), flat(0, 1, 0), flat(0, 1, 0)]
    chain = Chain(mode="multipass", edits=edits, pools=after)
    sample = chain_sample(chain, *images)
    known, tasks = answered(lambda known: plan_direction("edival", sample, chain, known, ON), Fixed())
    shown = [[int(STORE.array(view.origin)[0, 0, 0]) for view in task.views] for task in tasks]
    assert shown == [[1, 0], [0, 0]]
    first, second = score_direction(sample, chain, known, ON)
    assert (first.turn, first.part, first.dims) == (1, "", {"edit_type": "color_alter", "mode": "multipass", "turns": 1})
    assert first.value is not None and -1 <= first.value <= 1
    assert second.missing == "not_defined" and "the two images have one vector" in second.reason
    # Of one prompt, each edit is compared from the base image to the output.
    chain = Chain(mode="singlepass", edits=edits, pools=after)
    sample = chain_sample(chain, *images[:2])
    known, tasks = answered(lambda known: plan_direction("edival", sample, chain, known, ON), Fixed())
    assert [task.about.part for task in tasks] == ["instruction 1", "instruction 2"]
    assert [score.dims["turns"] for score in score_direction(sample, chain, known, ON)] == [2, 2]
