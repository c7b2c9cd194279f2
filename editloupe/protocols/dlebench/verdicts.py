"""What people say of a row that was built, and what follows from it (paper, 3.1, Human Verification). Pure.

A row passes if somebody said so of its box, its texts and its reference, and nobody said otherwise. The strictest answer of
several people counts, unless their disagreement was settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from editloupe.answers import Text
from editloupe.findings import Finding
from editloupe.tags import one_line
from editloupe.values import Json, Sample, Serialisable

BOX: Final = "box"
TEXTS: Final = "texts"
FOLLOWS: Final = "instruction_following"
KEEPS: Final = "visual_consistency"
"""Ids of the questions. The last two are the rubric's criteria."""
BEST: Final = {FOLLOWS: "Flawless Execution", KEEPS: "Perfect Consistency"}
"""The label with which a reference passes."""
SETTLED: Final = "adjudicated"
"""The rater under whose name a disagreement is settled."""
CORRECTIONS: Final = ("instruction", "source_caption", "reference_caption")
"""Ids of the questions for better texts, asked where the texts are wrong; each may be left unanswered."""
REVIEW: Final = "review"
"""Column of a sample with the verdicts on its rows. It is there, if only as an empty list, where people were asked."""


@dataclass(frozen=True, kw_only=True)
class Verdict(Serialisable):
    """What people say of a row as they saw it."""

    row: str
    """Its id."""
    reference: str
    """SHA-256 of the reference that they saw. Another reference has not been looked at."""
    kind: Literal["passed", "rejected", "again"]
    """again: the reference is to be made again."""
    why: str = ""
    """What it did not pass: the id of a question."""
    detail: str = ""
    corrections: Mapping[str, str] = field(default_factory=dict)
    """Better texts, by `CORRECTIONS`."""


def verdict(sample: Sample, said: Mapping[str, Mapping[str, Finding]]) -> Verdict | None:
    """Return what people say of a row; None where a question is open and nothing speaks against the row.

    sample: the row as it was shown.   said: rater → what they said, by question, in the order of raters.
    """
    if sample.reference is None:
        return None
    answers = {name: _counted(name, said) for name in (BOX, TEXTS, FOLLOWS, KEEPS, *CORRECTIONS)}
    labels = {name: [one.label for one in answers[name]] for name in (BOX, TEXTS, FOLLOWS, KEEPS)}
    texts = {name: [one.answer.text for one in answers[name] if isinstance(one.answer, Text)] for name in CORRECTIONS}
    # Of several corrections the last one counts.
    corrections = {name: one_line(found[-1]) for name, found in texts.items() if found}
    found = Verdict(row=sample.id, reference=sample.reference.sha256, kind="passed", corrections=corrections)
    notes = "; ".join(dict.fromkeys(one.reason for several in answers.values() for one in several if one.reason))
    if "no" in labels[BOX]:
        return replace(found, kind="rejected", why=BOX, detail=notes or "the box does not enclose the target")
    if "no" in labels[TEXTS] and not corrections:
        return replace(
            found, kind="rejected", why=TEXTS, detail=notes or "the texts are wrong, and nobody has corrected them"
        )
    for name, best in BEST.items():
        if worse := [label for label in labels[name] if label != best]:
            return replace(found, kind="again", why=name, detail=notes or f"the reference is {worse[0]}")
    return found if all(labels.values()) else None


def _counted(question: str, said: Mapping[str, Mapping[str, Finding]]) -> list[Finding]:
    """Return the answers to a question that count: the settled one alone where there is one."""
    answers = {rater: one[question] for rater, one in said.items() if question in one and one[question].answer is not None}
    return [answers[SETTLED]] if SETTLED in answers else list(answers.values())


def with_verdicts(sample: Sample, verdicts: Iterable[Verdict]) -> Sample:
    """Return a sample with the verdicts on its rows."""
    listed: list[Json] = [one.to_json() for one in verdicts]
    return replace(sample, extra={**sample.extra, REVIEW: listed})


def verdicts_of(sample: Sample) -> dict[tuple[str, str], Verdict]:
    """Return the verdicts on a sample's rows, by row id and the reference's SHA-256."""
    listed = cast("Sequence[Any]", sample.extra.get(REVIEW, ()))
    found = [Verdict.from_json(one) for one in listed]
    return {(one.row, one.reference): one for one in found}
