"""Answers of judges and people as numbers on one scale: a metric's, or the one that the values show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.answers import fold
from editloupe.data.human import value_on
from editloupe.errors import ConfigError
from editloupe.figures.columns import Answer, Ratings
from editloupe.scores import Binary, Metric
from editloupe.stats.agreement import DECIMALS, LabelScale

MOST_LABELS: Final = 10
"""Numbers without a metric count as labels if judge and people use the same, or whole ones, and no more than these."""

YES_OR_NO: Final = LabelScale(values=(0.0, 1.0), names=("no", "yes"), ordered=False)
"""Of a metric of yes and no, and of numbers that are all 0 or 1."""


@dataclass(frozen=True, kw_only=True)
class Ruler:
    """How one metric's answers are read."""

    scale: LabelScale | None
    """The labels; None for numbers without labels."""
    number: Callable[[float | str], float | None]
    """An answer's place on the scale; None if it has none."""

    @property
    def good(self) -> float | None:
        """The better of two labels; None if nothing divides the scale."""
        return self.scale.values[1] if self.scale is not None and len(self.scale.values) == 2 else None

    @property
    def ordered(self) -> bool:
        """Whether more than equality counts."""
        return self.scale is None or self.scale.ordered

    def read(self, answer: Answer) -> float | None:
        """Return an answer's place on the scale."""
        return None if answer is None else self.number(round(answer, DECIMALS) if isinstance(answer, float) else answer)


def ruler(metric: Metric | str, ours: Iterable[Answer], theirs: Iterable[Answer] = (), *, one_scale: bool = True) -> Ruler:
    """Return how the answers of judges (`ours`) and people (`theirs`) are read.

    metric: its labels bind both; or a name, and the scale is what the values show.   one_scale: False for ratings on a
    scale of their own, where all are numbers without labels.
    Raises ConfigError for numbers and words that nothing says how to compare.
    """
    if not one_scale:
        return Ruler(scale=None, number=_number if isinstance(metric, str) else lambda answer: _on(metric, answer))
    if isinstance(metric, str):
        return _shown_by(metric, ours, theirs)
    scale = None
    if metric.levels:
        values, names = zip(*((float(level.value), level.name) for level in metric.levels), strict=True)
        scale = LabelScale(values=values, names=names)
    elif isinstance(metric.domain, Binary):
        words = [answer for answer in (*ours, *theirs) if isinstance(answer, str)]
        if any(value_on(metric, word) is None for word in words):
            # Options whose order means nothing: two wrong answers are not the same answer.
            return _words(words)
        scale = YES_OR_NO
    return Ruler(scale=scale, number=lambda answer: value_on(metric, answer))


def _number(answer: float | str) -> float | None:
    return None if isinstance(answer, str) else answer


def _on(metric: Metric, answer: float | str) -> float | None:
    """A label's value; a number as it is, on whatever scale."""
    return value_on(metric, answer) if isinstance(answer, str) else answer


class MetricReading:
    """One judge's answers and people's ratings of the same items, as numbers; what is no label is left out and counted."""

    def __init__(
        self, answers: Sequence[Answer], rated: Sequence[Ratings], metric: Metric | str, *, one_scale: bool = True
    ) -> None:
        """Read the items' answers and ratings, one each.   one_scale: as for `ruler`, whose errors it raises."""
        given = [value for ratings in rated for value in ratings.values()]
        self.ruler = ruler(metric, answers, given, one_scale=one_scale)
        scale, unknown = self.ruler.scale, Counter[str]()

        def read(answer: Answer, whose: str) -> float | None:
            found = self.ruler.read(answer)
            if answer is not None and found is None:
                unknown[f"{whose} {answer!r}" if isinstance(answer, str) else f"{whose} {answer:g}"] += 1
            return found

        self.scores = [read(answer, "the judge's") for answer in answers]
        self.ratings = [{rater: v for rater, a in r.items() if (v := read(a, "people's")) is not None} for r in rated]
        self.means = [sum(r.values()) / len(r) if r else None for r in self.ratings]
        """People's mean of each item; None without a rating."""
        self.labels = [_most_frequent(r, scale) for r in self.ratings]
        self.raters = tuple(dict.fromkeys(rater for ratings in self.ratings for rater in ratings))
        self.notes: list[str] = []
        """What was left out, and why."""
        if unknown:
            name = metric if isinstance(metric, str) else metric.id
            text = ", ".join(f"{what} ({n})" for what, n in unknown.most_common(6)) + (", …" if len(unknown) > 6 else "")
            expected = "" if scale is None else f"; its labels are {', '.join(scale.names)}"
            self.notes.append(f"{name}: no label of the metric and left out: {text}{expected}")

    @property
    def drawn(self) -> int:
        """How many rated items have no most frequent label, and so no part in figures on labels."""
        both = zip(self.ratings, self.labels, strict=True)
        return 0 if self.ruler.scale is None else sum(bool(rated) and label is None for rated, label in both)


def _most_frequent(ratings: Mapping[str, float], scale: LabelScale | None) -> float | None:
    """The one label that more raters gave than any other; None for a draw, and for ratings between labels."""
    if scale is None or not ratings:
        return None
    counts = Counter(ratings.values()).most_common(2)
    draw = len(counts) > 1 and counts[0][1] == counts[1][1]
    return counts[0][0] if not draw and counts[0][0] in scale.values else None


def _shown_by(name: str, ours: Iterable[Answer], theirs: Iterable[Answer]) -> Ruler:
    """What the values themselves show."""
    judged, rated = (
        {v if isinstance(v, str) else round(float(v), DECIMALS) for v in given if v is not None} for given in (ours, theirs)
    )
    given = judged | rated
    words, numbers = sorted(v for v in given if isinstance(v, str)), sorted(v for v in given if not isinstance(v, str))
    if words and numbers:
        raise ConfigError(
            f"{name} holds numbers and words ({', '.join(map(repr, words[:4]))}), and nothing says how they go together; "
            "expected one kind, or a rubric that names the labels (--rubric)"
        )
    if words:
        return _words(words)
    # Labels are what both choose from; a judge's 0.37 beside people's 0, 0.5 and 1 is none.
    closed = (judged <= rated or all(n.is_integer() for n in numbers)) and 0 < len(numbers) <= MOST_LABELS
    scale = LabelScale(values=tuple(numbers), names=tuple(f"{v:g}" for v in numbers)) if closed else None
    return Ruler(scale=YES_OR_NO if numbers and {*numbers} <= {*YES_OR_NO.values} else scale, number=_number)


def _words(words: Iterable[str]) -> Ruler:
    """Words without an order."""
    labels = {fold(word): word for word in sorted(words)}
    codes = {folded: float(i) for i, folded in enumerate(sorted(labels))}
    scale = LabelScale(values=tuple(codes.values()), names=tuple(labels[folded] for folded in codes), ordered=False)
    return Ruler(scale=scale, number=lambda answer: codes.get(fold(str(answer))))
