"""What people look at before a row of a built set counts: its box, its texts, its reference image (`dlebench-review`).

Reproduced:
- the two inspections (paper, 3.1): the box and the texts; the reference by the criteria of section 4.1, in the place of an
  edited image. Where people disagree, the row waits.

Differs:
- the wording of the questions is ours; corrections are questions of their own, asked where the texts are wrong.

Not covered:
- a corrected box: a row with a wrong one is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from editloupe.answers import FreeText
from editloupe.build.dlebench import texts
from editloupe.build.engine import IMAGE
from editloupe.build.people import Correction, Review, RowQuestion
from editloupe.imaging.targets import without_boxes
from editloupe.prompts import render
from editloupe.protocols.dlebench.protocol import PAPER, PROMPT
from editloupe.protocols.dlebench.tables import edit_type_name
from editloupe.replies import one_line
from editloupe.rubrics import Criterion, load_rubric
from editloupe.tasks import Recipe
from editloupe.values import Box, Sample

BEST: Final = {"instruction_following": "Flawless Execution", "visual_consistency": "Perfect Consistency"}
"""Criterion → the label with which a reference passes."""
_NAMES: Final = ("Original Image", "Edited Image")
_CORRECTED: Final = {
    "instruction": "instruction",
    "source_caption": "caption before the edit",
    "reference_caption": "caption after the edit",
}


class DLEBenchReview(Review):
    """Four questions about each row of a built set, and three for better texts where the texts are wrong."""

    name = "dlebench-review"
    paper = PAPER
    source = "3.1"
    builder = "dlebench"
    needs = "a reference image and a box for each row"
    corrected = "texts"
    read_elsewhere = frozenset(_CORRECTED)

    def __init__(self, options: Any = None, **more: Any) -> None:
        rubric = load_rubric("dlebench")
        self.questions = (
            RowQuestion(
                id="box",
                name="The box encloses the target",
                short="Box",
                prompt=partial(_page, "box"),
                views=lambda row: (_close(row),),
                fault="the box does not enclose the target",
            ),
            RowQuestion(
                id="texts",
                name="Instruction and captions belong together",
                short="Texts",
                prompt=partial(_page, "texts"),
                views=_both,
                fault="the texts are wrong, and nobody has corrected them",
            ),
            *(_of_reference(rubric.criterion(name), best) for name, best in BEST.items()),
        )
        self.corrections = tuple(
            Correction(id=id_, prompt=partial(_page, "correction", which=which), views=_both, answer=FreeText(max_words=80))
            for id_, which in _CORRECTED.items()
        )
        super().__init__(options, **more)

    def seen(self, row: Sample) -> str:
        """Return the digest of the reference; "" for a row without one or without a box."""
        return "" if row.reference is None or without_boxes([row]) else row.reference.sha256


def _of_reference(criterion: Criterion, best: str) -> RowQuestion:
    def prompt(row: Sample) -> str:
        instruction = one_line(row.instruction)
        return render(PROMPT, criterion=criterion, instruction=instruction, images=list(_NAMES), focus=None)

    return RowQuestion(
        id=criterion.id,
        name=f"{criterion.name} of the reference",
        short=criterion.short,
        prompt=prompt,
        views=partial(_pair, concerns=criterion.concerns),
        answer=criterion.answer(),
        levels=tuple(reversed(criterion.labels)),
        concerns=criterion.concerns,
        passes=best,
        otherwise="again",
    )


def _page(name: str, row: Sample, **more: str) -> str:
    said = {one: one_line(str(row.extra.get(one) or "")) for one in ("question", "answer", "wrong", *_CORRECTED)}
    said |= {"instruction": one_line(row.instruction), "edit_type": edit_type_name(row.edit_type)}
    target = one_line(row.targets[0].name or "")
    return render(f"build/dlebench/review_{name}", boxes=len(_boxes(row)), target=target, **said, **more)


def _boxes(row: Sample) -> list[Box]:
    return [target.boxes["source"] for target in row.targets]


def _image(row: Sample) -> Recipe:
    return Recipe(alias=IMAGE, origin=row.source)


def _close(row: Sample) -> Recipe:
    return texts.close_up(row.source, _boxes(row))


def _both(row: Sample) -> Sequence[Recipe]:
    return _image(row), _close(row)


def _pair(row: Sample, *, concerns: str | None) -> Sequence[Recipe]:
    """Return the image and its reference: of the target a close-up without marks, else the whole."""
    assert row.reference is not None
    pair = zip(_NAMES, (row.source, row.reference), strict=True)
    if concerns != "target":
        return [Recipe(alias=alias, origin=image) for alias, image in pair]
    close = _close(row)
    # A reference has the size of its image: the place is the same.
    params = {"size": close.params["size"]}
    return [Recipe(alias=alias, origin=image, op="crop", region=close.region, params=params) for alias, image in pair]
