"""What people look at before a row of a built set counts: its box, its texts, its reference image (`dlebench-review`).

Reproduced: the two inspections (paper, 3.1), of the box and the texts, and of the reference by the criteria of section 4.1,
in the place of an edited image. Where people disagree, the row waits.
Differs: the wording is ours; a row with a wrong box or wrong texts is rejected, where the paper's people correct it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from editloupe.build.people import Review, RowQuestion, holds
from editloupe.build.shown import PAIR, close_up_of, image, pair
from editloupe.prompts import render
from editloupe.protocols.dlebench.protocol import PAPER, PROMPT
from editloupe.replies import one_line
from editloupe.rubrics import Criterion, load_rubric
from editloupe.scores import Levels, Metric
from editloupe.values import Sample

SOURCE: Final = "3.1"


class DLEBenchReview(Review):
    """Four questions about each row of a built set."""

    name, builder, paper = "dlebench-review", "dlebench", PAPER
    columns = ("question", "answer", "wrong", "source_caption", "reference_caption")

    def __init__(self, options: Any = None, **more: Any) -> None:
        criterion = load_rubric("dlebench").criterion
        both, texts = (lambda row: [image(row), close_up_of(row)]), "Instruction and captions belong together"
        self.questions = (
            RowQuestion(
                metric=holds("box", "The box encloses the target", "Box", SOURCE), views=lambda row: [close_up_of(row)]
            ),
            RowQuestion(metric=holds("texts", texts, "Texts", SOURCE), views=both),
            _of_reference(criterion("instruction_following"), passes="Flawless Execution"),
            _of_reference(criterion("visual_consistency"), passes="Perfect Consistency"),
        )
        super().__init__(options, **more)


def _of_reference(criterion: Criterion, *, passes: str) -> RowQuestion:
    """Return the question for a criterion, with the label that a reference needs; with another one it is made again."""

    def prompt(row: Sample) -> str:
        instruction = one_line(row.instruction)
        return render(PROMPT, criterion=criterion, instruction=instruction, images=list(PAIR), focus=None)

    return RowQuestion(
        metric=Metric(
            id=criterion.id,
            name=f"{criterion.name} of the reference",
            short=criterion.short,
            domain=Levels(levels=tuple(reversed(criterion.labels))),
            concerns=criterion.concerns,
            source=SOURCE,
        ),
        prompt=prompt,
        views=partial(pair, of_target=criterion.concerns == "target"),
        answer=criterion.answer(),
        passes=passes,
        otherwise="again",
    )
