"""People look through a built set: questions from a list, what follows from the answers, and how it gets into the building.

The samples of a review are rows of a set that `editloupe build` wrote into `to_review/`. What people answer goes back with
`--review RUN`: the verdicts travel with the sample of the row's image, and hold for the row as it was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

from editloupe.answers import YES_NO, AnswerSpec, Choice, Label
from editloupe.build.shown import boxes_of, target_name
from editloupe.data.human import settled
from editloupe.data.rows import Loaded
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.replies import one_line
from editloupe.runs.store import RunStore
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import Recipe, Task
from editloupe.values import Json, Sample, Serializable

REVIEW: Final = "review"
"""Column of a sample with the verdicts on its rows. It is there, if only as an empty list, where people were asked."""
SEEN: Final = "row_digest"
"""Column of a built row: digest of what people see of it."""
TO_REVIEW: Final = "to_review"
"""Folder of a built set: an ImageFolder of the rows that nobody has passed."""

Said: TypeAlias = Mapping[str, Mapping[str, Finding]]
"""Rater → what they said of one row, by question, in the order of raters."""


@dataclass(frozen=True, kw_only=True)
class RowVerdict(Serializable):
    """What people say of a row as they saw it."""

    row: str
    """Its id: the image's, a hyphen, and which row of the image it is."""
    seen: str
    """Digest of what they saw. Of anything else nobody has said a word."""
    kind: Literal["passed", "rejected", "again", "disagree"]
    """again: what they saw is to be made again.   disagree: one says this, one that, and nobody has settled it."""
    why: str = ""
    """What it did not pass, or what they disagree on: the id of a question."""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class RowQuestion:
    """One question about a row."""

    metric: Metric
    """What is scored of it: yes or no, or the labels of a criterion."""
    views: Callable[[Sample], Sequence[Recipe]]
    """Of a row."""
    prompt: Callable[[Sample], str] | None = None
    """Returns the prompt for a row. None: the template `review_ID` is filled with the columns of the row."""
    answer: AnswerSpec = YES_NO
    passes: str = "yes"
    """The label with which the row passes."""
    otherwise: Literal["rejected", "again"] = "rejected"
    """What becomes of the row with another one."""
    asked: Callable[[Sample], bool] = lambda sample: True
    """Whether a row has it."""

    @property
    def id(self) -> str:
        """Of its metric."""
        return self.metric.id


def holds(id_: str, name: str, short: str, source: str) -> Metric:
    """Return the metric of a question by yes or no: 1 where it holds."""
    return Metric(id=id_, name=name, short=short, domain=Binary(), source=source)


class Review(BaseProtocol):
    """The questions of a list about each row."""

    outputs = False
    Options = Options
    builder: ClassVar[str]
    """The command whose rows they are; its templates lie in the folder of this name."""
    columns: ClassVar[Sequence[str]] = ()
    """Columns of a row that the templates print beside instruction, edit_type, target and the number of boxes."""
    questions: Sequence[RowQuestion]

    def __init__(self, options: Any = None, **more: Any) -> None:
        super().__init__(options, **more)
        self.metrics = tuple(one.metric for one in self.questions)

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for samples that are no rows of a set."""
        if bare := [sample.key for sample in samples if not sample.extra.get(SEEN)]:
            raise DataError(
                f"a review needs rows of a built set (column {SEEN}); {len(bare)} of {len(samples)} lack it, first "
                f"{bare[0]}; name the folder {TO_REVIEW} of a set that `editloupe build {self.builder}` wrote"
            )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the questions about each row."""
        for sample in group:
            for one in self._of(sample):
                prompt = one.prompt(sample) if one.prompt else self._page(one, sample)
                yield self.question(one.id, sample, prompt, one.answer, one.views(sample), tools=())

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return 1 for yes and 0 for no, and the value of a label."""
        for sample in group:
            for one in self._of(sample):
                answer = known.answer(one.id, sample)
                if isinstance(answer, Label | Choice):
                    value = answer.value if isinstance(answer, Label) else float(answer.name == "yes")
                    yield Score(sample_id=sample.id, editor=sample.editor, metric=one.id, value=value, label=answer.name)
                else:
                    yield self.missing(one.id, sample, known)

    def verdict(self, row: Sample, said: Said) -> RowVerdict | None:
        """Return what people say of a row; None where a question is open and nothing speaks against the row.

        A row passes if somebody said so of each question, and nobody otherwise. Where people disagree it waits until that
        is settled.   row: as it was shown.
        """
        answers = {one.id: counted(one.id, said) for one in self.questions}
        found = RowVerdict(row=row.id, seen=str(row.extra[SEEN]), kind="passed")
        notes = "; ".join(dict.fromkeys(one.reason for several in answers.values() for one in several if one.reason))
        split = None
        for one in self._of(row):
            labels = [finding.label for finding in answers[one.id]]
            worse = [label for label in labels if label != one.passes]
            if worse and len(worse) < len(labels):
                detail = notes or f"people disagree on {one.id}"
                split = split or replace(found, kind="disagree", why=one.id, detail=detail)
            elif worse:
                return replace(found, kind=one.otherwise, why=one.id, detail=notes or f"{one.metric.name}: {worse[0]}")
        return split or (found if all(answers[one.id] for one in self._of(row)) else None)

    def _of(self, sample: Sample) -> list[RowQuestion]:
        """Return the questions that a row has."""
        return [one for one in self.questions if one.asked(sample)]

    def _page(self, one: RowQuestion, row: Sample) -> str:
        """Return a question in words. What comes from the row stays on one line."""
        said = {name: _text(row.extra.get(name)) for name in self.columns}
        said |= {"instruction": one_line(row.instruction), "edit_type": one_line(row.edit_type or "")}
        target = one_line(target_name(row))
        return render(f"build/{self.builder}/review_{one.id}", target=target, boxes=len(boxes_of(row)), **said)


def _text(value: Json) -> str:
    """Return what a column says on one line; the parts of a list apart from each other."""
    parts = value if isinstance(value, list | tuple) else [value]
    return " | ".join(one_line(str(part)) for part in parts if part is not None)


def counted(question: str, said: Said) -> list[Finding]:
    """Return the answers to a question that count: the settled one alone where there is one."""
    answers = {rater: one[question] for rater, one in said.items() if question in one and one[question].answer is not None}
    return list(settled(answers).values())


def with_reviews(loaded: Loaded, runs: Iterable[RunStore], review: Review) -> Loaded:
    """Return images with the verdicts on their rows, as far as the rows are theirs.   runs: in which people answered."""
    shown: dict[tuple[str, Json], tuple[Sample, dict[str, dict[str, Finding]]]] = {}
    for store in runs:
        for given in store.people.values():
            row = store.samples.get(given.finding.sample_key)
            if row is not None and (seen := row.extra.get(SEEN)):
                _, said = shown.setdefault((row.id, seen), (row, {}))
                said.setdefault(given.rater, {})[given.finding.metric] = given.finding
    of_image: dict[str, list[Json]] = {}
    for row, said in shown.values():
        if (found := review.verdict(row, said)) is not None:
            of_image.setdefault(found.row.rpartition("-")[0], []).append(found.to_json())
    samples = [replace(one, extra={**one.extra, REVIEW: of_image.get(one.id, [])}) for one in loaded.samples]
    return replace(loaded, samples=tuple(samples))


def verdicts_of(sample: Sample) -> dict[tuple[str, str], RowVerdict]:
    """Return the verdicts on a sample's rows, by row id and the digest of what was seen."""
    found = [RowVerdict.from_json(one) for one in cast("Sequence[Any]", sample.extra.get(REVIEW, ()))]
    return {(one.row, one.seen): one for one in found}
