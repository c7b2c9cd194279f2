"""Make the list of what an answer places: each item with its box, what was said of it, and how it is shown.

No protocol is known here; shapes are. A JSON answer lists items with `box`. What another question says of item 3 is a
finding about the part "WORD 3" that was planned from that answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from editloupe.answers import Choice
from editloupe.findings import Finding
from editloupe.scores import NOT_JUDGED, Binary, Metric, Score
from editloupe.values import Json, finite
from editloupe.viewer.marks import Mark
from editloupe.viewer.rows import OwnScore, question_name, score_words, short_answer

Told: TypeAlias = Literal["yes", "no", "mixed", "open"]
"""Of an item: yes, no, both by several judges or repeats, or not known."""

SIGNS: Final[Mapping[Told, str]] = {"yes": "✓", "no": "✗", "mixed": "±", "open": "?"}
"""So that colour alone says nothing."""

_NAMES: Final = ("label", "name", "object", "phrase")
_SURE: Final = ("confidence", "score")
_COUNTED: Final = re.compile(r"(.+) (\d{1,6})")
DROPPED: Final = "dropped"
"""The list of entries that were not read, in an answer that has one."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item with a box in the lists of a JSON answer."""

    number: int
    """From 1, over all lists of the answer."""
    op: str = ""
    """What happened there, for example "ADD"; "" for an item that only is there."""
    name: str = ""
    """The first of its `label`, `name`, `object` and `phrase`."""
    sure: float | None = None
    """Its `confidence` or `score`."""
    box: tuple[float, ...]
    """[x0, y0, x1, y1] in thousandths, as given."""
    image: str | None = None
    """Alias of the picture that it names."""

    @property
    def words(self) -> str:
        """Its op and name, or its number, with its confidence."""
        named = " ".join(filter(None, (self.op, self.name))) or str(self.number)
        return named if self.sure is None else f"{named} {self.sure:.2f}"


@dataclass(frozen=True, kw_only=True)
class ListedAnswer:
    """What one question says of an item."""

    name: str
    """Of the question."""
    words: str
    verdict: str = ""
    """Id of the verdict to read more in; "" for a score."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ListedItem:
    """An item as the page lists it."""

    item: Item
    mark: Mark | None
    """Its box on an image; None for one that cannot be drawn."""
    told: Told | None
    """None where no question is about the items."""
    said: tuple[ListedAnswer, ...] = ()

    @property
    def sign(self) -> str:
        return "" if self.told is None else SIGNS[self.told]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The list of one answer."""

    entries: tuple[ListedItem, ...]
    question: str = ""
    """Name of the question that decides the colours; "" where none is asked about the items."""

    def count(self, told: Told) -> int:
        """Return how many items have this verdict."""
        return sum(entry.told == told for entry in self.entries)


class ListedVerdict(Protocol):
    """What is read here of one verdict on a sample (`viewer.sample.SampleVerdict`)."""

    id: str
    name: str
    metric: str
    part: str
    task_id: str
    fork: str
    finding: Finding | None
    rests: tuple[str, ...] | None
    items: tuple[Item, ...]
    marks: list[Mark]


def items(data: Json) -> Iterator[Item]:
    """Yield the items with a box in the lists of a JSON answer. `box` is in thousandths."""
    lists = [v for k, v in data.items() if isinstance(v, list) and k != DROPPED] if isinstance(data, Mapping) else [data]
    found = [item for one in lists if isinstance(one, list) for item in one]
    for number, item in enumerate(found, start=1):
        box = item.get("box") if isinstance(item, Mapping) else None
        numbers = [finite(v) for v in box] if isinstance(box, list) else []
        if not isinstance(item, Mapping) or len(numbers) != 4 or None in numbers:
            continue
        op, image = item.get("op"), item.get("image")
        yield Item(
            number=number,
            op=op if isinstance(op, str) else "",
            name=next((str(item[key]) for key in _NAMES if item.get(key)), ""),
            sure=next((v for key in _SURE if (v := finite(item.get(key))) is not None), None),
            box=tuple(v for v in numbers if v is not None),
            image=image if isinstance(image, str) else None,
        )


def dropped(data: Json) -> list[tuple[str, str]]:
    """Return (entry, why) of what an answer's list `dropped` says was not read."""
    listed = data.get(DROPPED) if isinstance(data, Mapping) else None
    found = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    return [(str(one.get("entry", "")), str(one.get("why", ""))) for one in found]


def counted(part: str) -> str | None:
    """Return WORD of a part "WORD 3"; None for another part."""
    found = _COUNTED.fullmatch(part)
    return found[1] if found else None


def listings(
    found: Sequence[ListedVerdict], scores: Sequence[OwnScore], metrics: Mapping[str, Metric]
) -> dict[str, Listing]:
    """Return the lists of a sample's answers by the id of their verdict, with what was said of each item.

    scores: all of the sample.
    """
    return {verdict.id: _listing(verdict, found, scores, metrics) for verdict in found if verdict.items}


def _listing(
    verdict: ListedVerdict, found: Sequence[ListedVerdict], scores: Sequence[OwnScore], metrics: Mapping[str, Metric]
) -> Listing:
    last = verdict.items[-1].number
    # What could not be asked has no trace, and does not say what it was planned from: then there must be one list alone.
    alone = sum(bool(v.items) and not v.fork for v in found) == 1
    about = [
        v
        for v in found
        if v.finding is not None
        and _number(v.part, last) is not None
        and (alone if v.rests is None else verdict.task_id in v.rests)
    ]
    parts = {v.part for v in about}
    # What a score says of items stands for the findings that it is made from.
    rows = [score for _, score in scores if score.part in parts and score.missing != NOT_JUDGED]
    binary = [m for m in metrics.values() if isinstance(m.domain, Binary)]
    deciding = next((m.id for m in binary if any(score.metric == m.id for score in rows)), "")
    deciding = deciding or next((v.metric for v in about if v.finding and _yes_no(v.finding) is not None), "")
    question = question_name(deciding, metrics) if deciding else ""
    entries = []
    for item in verdict.items:
        own = [v for v in about if _number(v.part, last) == item.number]
        values = [s.value for s in rows if s.metric == deciding and _number(s.part, last) == item.number]
        if not values:
            values = [_yes_no(v.finding) for v in own if v.finding and v.metric == deciding]
        entries.append(
            ListedItem(
                item=item,
                mark=next((m for m in verdict.marks if m.kind == "found" and m.item == item.number), None),
                told=_told(values) if about else None,
                said=tuple(sorted(_said(own, rows, item.number, last, metrics), key=lambda said: said.name != question)),
            )
        )
    return Listing(entries=tuple(entries), question=question)


def _said(
    own: Sequence[ListedVerdict], rows: Sequence[Score], number: int, last: int, metrics: Mapping[str, Metric]
) -> Iterator[ListedAnswer]:
    for v in own:
        assert v.finding is not None
        yield ListedAnswer(name=v.name, words=short_answer(v.finding), verdict=v.id, reason=v.finding.reason)
    asked = {v.metric for v in own}
    for score in rows:
        domain = metrics[score.metric].domain if score.metric in metrics else None
        if score.metric not in asked and isinstance(domain, Binary) and _number(score.part, last) == number:
            words = score_words(score) if score.value is None else "yes" if score.value else "no"
            yield ListedAnswer(name=question_name(score.metric, metrics), words=words, reason=score.reason)


def _number(part: str, last: int) -> int | None:
    """Return N of a part "WORD N" that counts up to `last` items; None for another part."""
    found = _COUNTED.fullmatch(part)
    number = int(found[2]) if found else 0
    return number if 1 <= number <= last else None


def _yes_no(finding: Finding) -> float | None:
    """Return 1 for the choice yes, 0 for no; None for anything else."""
    answer = finding.answer
    return {"yes": 1.0, "no": 0.0}.get(answer.name) if isinstance(answer, Choice) else None


def _told(values: Sequence[float | None]) -> Told:
    known = {value >= 0.5 for value in values if value is not None}
    return "open" if not known else "mixed" if len(known) == 2 else "yes" if True in known else "no"
