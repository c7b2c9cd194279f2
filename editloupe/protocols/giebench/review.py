"""What people look at before a row of a built set counts: its instruction, its question, its mask (`giebench-review`).

The samples are rows of a set that `editloupe build giebench` wrote into `to_review/`. What people answer goes back into the
builder with `--review RUN`.

Reproduced:
- people look through all rows before they count (paper, section 3.1).

Differs:
- what people are asked: the paper does not say.

Not covered:
- better texts and better masks: a row that is wrong is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from editloupe.answers import YES_NO, Choice
from editloupe.errors import DataError
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.protocols.giebench.edits import PROMPTS, WHOLE
from editloupe.protocols.giebench.protocol import PAPER
from editloupe.protocols.giebench.questions import Question, QuestionError, read_question
from editloupe.protocols.giebench.tables import edit_type_name
from editloupe.protocols.reviews import Said, Verdict, counted
from editloupe.replies import one_line
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask, Recipe, Task
from editloupe.values import Sample

INSTRUCTION: Final = "instruction"
QUESTION: Final = "question"
MASK: Final = "mask"
ASKED: Final = {
    INSTRUCTION: "The instruction can be given",
    QUESTION: "The question tests the edit",
    MASK: "The mask is the place of the edit",
}
"""Id of a question → what "yes" says."""
DIGEST: Final = "row_digest"
"""Column of a row: digest of what people look at."""


class GIEBenchReview(BaseProtocol):
    """Two questions about each row of a built set, and one about its mask where it has one."""

    name = "giebench-review"
    paper = PAPER
    Options = Options
    outputs = False
    of_some = frozenset({MASK})
    metrics = tuple(
        Metric(id=id_, name=name, short=id_.capitalize(), domain=Binary(), source="3.1") for id_, name in ASKED.items()
    )

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for samples that are no rows of a set."""
        bare = [sample.key for sample in samples if not isinstance(sample.extra.get(DIGEST), str)]
        if bare:
            raise DataError(
                f"a review needs rows of a built set; {len(bare)} of {len(samples)} are none, first {bare[0]}; name the "
                "folder to_review of a set that `editloupe build giebench` wrote"
            )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the questions about each row."""
        for sample in group:
            yield from self._asks(sample)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return 1 for yes and 0 for no."""
        for sample in group:
            for name in _asked_of(sample):
                answer = known.answer(name, sample)
                if isinstance(answer, Choice):
                    value = float(answer.name == "yes")
                    yield Score(sample_id=sample.id, editor=sample.editor, metric=name, value=value, label=answer.name)
                else:
                    yield self.missing(name, sample, known)

    def _asks(self, sample: Sample) -> Iterable[Ask]:
        image = Recipe(alias="Image", origin=sample.source)
        views, mask, question = {MASK: [image]}, sample.masks.get("edit"), _question(sample)
        if mask is not None:
            views[MASK].append(replace(image, alias="Marked", op="spotlight", params={"mask": mask.to_json()}))
        for name in _asked_of(sample):
            unusable = name == QUESTION and isinstance(question, str)
            texts = {
                "edit_type": edit_type_name(sample.edit_type),
                "instruction": one_line(sample.instruction),
                "target": one_line(str(sample.extra.get("target_name") or WHOLE)),
                **({} if isinstance(question, str) else _texts(question)),
            }
            yield Ask(
                protocol=self.name,
                metric=name,
                about=About.of(sample),
                prompt="" if unusable else render(PROMPTS / f"review_{name}.md", **texts),
                views=tuple(views.get(name, [image])),
                answer=YES_NO,
                budget=self.budget,
                blocked=("input_error", str(question)) if unusable else None,
            )


def _asked_of(sample: Sample) -> list[str]:
    return [name for name in ASKED if name != MASK or "edit" in sample.masks]


def _question(sample: Sample) -> Question | str:
    """Return a row's question, or why it cannot be asked."""
    try:
        return read_question(sample.extra)
    except QuestionError as error:
        return str(error)


def _texts(question: Question) -> dict[str, str]:
    return {
        "question": question.text,
        "options": " | ".join(question.options),
        "answer": question.options[question.key],
    }


def seen(row: Sample) -> str:
    """Return the digest of what people saw of a row."""
    return str(row.extra.get(DIGEST, ""))


def verdict(row: Sample, said: Said) -> Verdict | None:
    """Return what people say of a row; None where a question is open and nothing speaks against the row.

    A row passes if somebody said yes to each question, and nobody no. The strictest answer of several people counts, unless
    their disagreement was settled.   row: as it was shown.
    """
    answers = {name: counted(name, said) for name in _asked_of(row)}
    found = Verdict(row=row.id, seen=seen(row), kind="passed")
    for name, several in answers.items():
        if any(one.label == "no" for one in several):
            notes = "; ".join(dict.fromkeys(one.reason for one in several if one.reason))
            return replace(found, kind="rejected", why=name, detail=notes or f"people answered no: {ASKED[name].lower()}")
    return found if all(answers.values()) else None
