"""What people look at before a row of a built set counts: its instruction, its question, its mask (`giebench-review`).

Reproduced:
- people look through all rows before they count (paper, section 3.1).

Differs:
- what people are asked: the paper does not say.

Not covered:
- better texts and better masks: a row that is wrong is dropped.
"""

from __future__ import annotations

from editloupe.build.people import Review, RowQuestion
from editloupe.build.shown import image, marked
from editloupe.protocols.giebench.protocol import PAPER
from editloupe.protocols.giebench.questions import KEY, OPTIONS, QUESTION


class GIEBenchReview(Review):
    """Two questions about each row of a built set, and one about its mask where it has one."""

    name, builder = "giebench-review", "giebench"
    paper, source = PAPER, "3.1"
    columns = (QUESTION, OPTIONS, KEY)
    of_some = frozenset({"mask"})
    questions = (
        RowQuestion(
            id="instruction", name="The instruction can be given", short="Instruction", views=lambda row: [image(row)]
        ),
        RowQuestion(id="question", name="The question tests the edit", short="Question", views=lambda row: [image(row)]),
        RowQuestion(
            id="mask",
            name="The mask is the place of the edit",
            short="Mask",
            views=lambda row: [image(row), marked(row)],
            asked=lambda row: "edit" in row.masks,
        ),
    )
