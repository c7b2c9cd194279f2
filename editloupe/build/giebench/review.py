"""What people look at before a row of a built set counts: its instruction, its question, its mask (`giebench-review`).

Reproduced:
- people look through all rows before they count (paper, section 3.1).

Differs:
- what people are asked: the paper does not say.

Not covered:
- better texts and better masks: a row that is wrong is dropped.
"""

from __future__ import annotations

from typing import Final

from editloupe.build.people import Review, RowQuestion, holds
from editloupe.build.shown import image, marked
from editloupe.protocols.giebench.protocol import PAPER
from editloupe.protocols.giebench.questions import KEY, OPTIONS, QUESTION

SOURCE: Final = "3.1"


class GIEBenchReview(Review):
    """Two questions about each row of a built set, and one about its mask where it has one."""

    name, builder, paper = "giebench-review", "giebench", PAPER
    columns = (QUESTION, OPTIONS, KEY)
    of_some = frozenset({"mask"})
    questions = (
        RowQuestion(
            metric=holds("instruction", "The instruction can be given", "Instruction", SOURCE),
            views=lambda row: [image(row)],
        ),
        RowQuestion(
            metric=holds("question", "The question tests the edit", "Question", SOURCE), views=lambda row: [image(row)]
        ),
        RowQuestion(
            metric=holds("mask", "The mask is the place of the edit", "Mask", SOURCE),
            views=lambda row: [image(row), marked(row)],
            asked=lambda row: "edit" in row.masks,
        ),
    )
