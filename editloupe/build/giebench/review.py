"""What people look at before a row of a built set counts: its instruction, its question, its mask (`giebench-review`).

Reproduced:
- people look through all rows before they count (paper, section 3.1).

Differs:
- what people are asked: the paper does not say.

Not covered:
- better texts and better masks: a row that is wrong is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from editloupe.build.engine import IMAGE
from editloupe.build.giebench.texts import WHOLE
from editloupe.build.people import Review, RowQuestion
from editloupe.errors import DataError
from editloupe.prompts import render
from editloupe.protocols.giebench.protocol import PAPER
from editloupe.protocols.giebench.questions import QuestionError, read_question
from editloupe.protocols.giebench.tables import edit_type_name
from editloupe.replies import one_line
from editloupe.tasks import Recipe
from editloupe.values import Sample

DIGEST: Final = "row_digest"
"""Column of a row: digest of what people look at."""


class GIEBenchReview(Review):
    """Two questions about each row of a built set, and one about its mask where it has one."""

    name = "giebench-review"
    paper = PAPER
    source = "3.1"
    builder = "giebench"
    needs = f"rows of a built set (column {DIGEST})"
    of_some = frozenset({"mask"})

    def __init__(self, options: Any = None, **more: Any) -> None:
        asked = {
            "instruction": ("The instruction can be given", _views, lambda row: True),
            "question": ("The question tests the edit", _views, lambda row: True),
            "mask": ("The mask is the place of the edit", _marked, lambda row: "edit" in row.masks),
        }
        self.questions = tuple(
            RowQuestion(
                id=id_,
                name=name,
                short=id_.capitalize(),
                prompt=partial(_page, id_),
                views=views,
                fault=f"people answered no: {name.lower()}",
                asked=of,
            )
            for id_, (name, views, of) in asked.items()
        )
        super().__init__(options, **more)

    def seen(self, row: Sample) -> str:
        """Return the digest of what people saw of a row; "" for what is no row of a set."""
        found = row.extra.get(DIGEST)
        return found if isinstance(found, str) else ""


def _views(row: Sample) -> Sequence[Recipe]:
    return [Recipe(alias=IMAGE, origin=row.source)]


def _marked(row: Sample) -> Sequence[Recipe]:
    params = {"mask": row.masks["edit"].to_json()}
    return [*_views(row), Recipe(alias="Marked", origin=row.source, op="spotlight", params=params)]


def _page(name: str, row: Sample) -> str:
    texts: Mapping[str, str] = {
        "edit_type": edit_type_name(row.edit_type),
        "instruction": one_line(row.instruction),
        "target": one_line(str(row.extra.get("target_name") or WHOLE)),
    }
    if name == "question":
        try:
            asked = read_question(row.extra)
        except QuestionError as error:
            raise DataError(str(error)) from error
        options, answer = " | ".join(asked.options), asked.options[asked.key]
        texts = {**texts, "question": asked.text, "options": options, "answer": answer}
    return render(f"build/giebench/review_{name}", **texts)
