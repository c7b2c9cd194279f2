"""What people say of the rows of a built set, and how it gets back into the building. Pure.

A builder with `review` turns what people said of a row into a verdict. The verdicts travel with the sample of the row's
image, and hold for the row as it was seen: a row that was made anew has not been looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, cast

from editloupe.data.human import settled
from editloupe.data.rows import Loaded
from editloupe.findings import Finding
from editloupe.protocols.builders import Reviewed
from editloupe.values import Json, Sample, Serialisable

REVIEW: Final = "review"
"""Column of a sample with the verdicts on its rows. It is there, if only as an empty list, where people were asked."""

TO_REVIEW: Final = "to_review"
"""Folder of a built set: an ImageFolder of the rows that nobody has passed."""

Said: TypeAlias = Mapping[str, Mapping[str, Finding]]
"""Rater → what they said of one row, by question, in the order of raters."""


@dataclass(frozen=True, kw_only=True)
class Verdict(Serialisable):
    """What people say of a row as they saw it."""

    row: str
    """Its id: the image's, a hyphen, and which row of the image it is."""
    seen: str
    """Digest of what they saw. Of anything else nobody has said a word."""
    kind: Literal["passed", "rejected", "again"]
    """again: what they saw is to be made again."""
    why: str = ""
    """What it did not pass: the id of a question."""
    detail: str = ""
    corrections: Mapping[str, str] = field(default_factory=dict)
    """Better texts, by the ids of the questions for them."""


def counted(question: str, said: Said) -> list[Finding]:
    """Return the answers to a question that count: the settled one alone where there is one."""
    answers = {rater: one[question] for rater, one in said.items() if question in one and one[question].answer is not None}
    return list(settled(answers).values())


def open_note(waiting: int, *, looked: bool, protocol: str) -> str:
    """Return what to do about rows that nobody has passed.

    looked: whether people were asked about the set.   protocol: by which they are.
    """
    who = "Nobody has yet" if looked else "No person has"
    rows = "1 row" if waiting == 1 else f"{waiting:,} rows"
    return (
        f"{who} looked through {rows} ({TO_REVIEW}). People answer {protocol} about them; --review RUN takes what they say."
    )


def with_reviews(
    loaded: Loaded,
    reviews: Sequence[Reviewed],
    *,
    seen: Callable[[Sample], str],
    verdict: Callable[[Sample, Said], Verdict | None],
) -> Loaded:
    """Return images with the verdicts on their rows, as far as the rows are theirs.

    seen: returns the digest of what a row shows.   verdict: returns what follows from all that was said of a row.
    """
    shown: dict[tuple[str, str], list[Reviewed]] = {}
    for one in reviews:
        shown.setdefault((one.sample.id, seen(one.sample)), []).append(one)
    of_image: dict[str, list[Verdict]] = {}
    for several in shown.values():
        found = verdict(several[0].sample, {one.rater: one.said for one in several})
        if found is not None:
            of_image.setdefault(found.row.rpartition("-")[0], []).append(found)
    return replace(loaded, samples=tuple(with_verdicts(sample, of_image.get(sample.id, ())) for sample in loaded.samples))


def with_verdicts(sample: Sample, verdicts: Iterable[Verdict]) -> Sample:
    """Return a sample with the verdicts on its rows."""
    listed: list[Json] = [one.to_json() for one in verdicts]
    return replace(sample, extra={**sample.extra, REVIEW: listed})


def verdicts_of(sample: Sample) -> dict[tuple[str, str], Verdict]:
    """Return the verdicts on a sample's rows, by row id and the digest of what was seen."""
    listed = cast("Sequence[Any]", sample.extra.get(REVIEW, ()))
    found = [Verdict.from_json(one) for one in listed]
    return {(one.row, one.seen): one for one in found}
