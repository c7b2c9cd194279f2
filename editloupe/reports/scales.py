"""Labels and numbers of a judge and of people, brought onto one scale: a rubric's, or the one that the values show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from editloupe.errors import ConfigError
from editloupe.parsing import fold
from editloupe.scores import Metric
from editloupe.stats.agreement import DECIMALS, Scale

_NAMED: Final = 6
MOST_LABELS: Final = 10
"""Numbers without a rubric count as labels where judge and people use the same, or whole ones, and no more than these."""


_Found: TypeAlias = tuple[Scale | None, Callable[[float | str], float | None], float | None]
"""The scale, what a rating is on it (None: nothing), and from which value on it is good."""


class Reading:
    """One criterion's scores and ratings as numbers on one scale; what is no label of it is left out and counted.

    raw: the judge's score of each item.   rated: people's ratings of each, by rater.   good: as the user wrote it.

    scores: None where the judge has none.   ratings: by rater.   labels: people's most frequent label.
    good: the value from which on an item is good; None where nothing divides the scale.
    """

    def __init__(
        self,
        raw: Sequence[float | str | None],
        rated: Sequence[Mapping[str, float | str]],
        criterion: Metric | str,
        good: str | None,
    ) -> None:
        name = criterion if isinstance(criterion, str) else criterion.id
        self.notes: list[str] = []
        if isinstance(criterion, str):
            self.scale, number, self.good = _scale_of(raw, [v for r in rated for v in r.values()], name, good)
        else:
            self.scale, number, self.good = _scale_in(criterion, good)
        self.ordered = self.scale is None or self.scale.ordered
        unknown: dict[tuple[str, str], int] = {}

        def read(value: float | str | None, whose: str) -> float | None:
            value = round(value, DECIMALS) if isinstance(value, float) else value
            found = None if value is None else number(value)
            if value is not None and found is None:
                key = whose, f"{value:g}" if isinstance(value, float) else repr(value)
                unknown[key] = unknown.get(key, 0) + 1
            return found

        self.scores = [read(value, "the judge's") for value in raw]
        self.ratings = [
            {rater: found for rater, v in r.items() if (found := read(v, "people's")) is not None} for r in rated
        ]
        if unknown:
            told = ", ".join(f"{whose} {value} ({n})" for (whose, value), n in list(unknown.items())[:_NAMED])
            told += f" and {len(unknown) - _NAMED} others" if len(unknown) > _NAMED else ""
            expected = "" if self.scale is None else f"; its labels are {', '.join(self.scale.names)}"
            self.notes.append(f"{name}: no label of the rubric and left out: {told}{expected}")
        self.labels = [_most_frequent(r, self.scale) for r in self.ratings]
        drawn = sum(label is None and bool(r) for label, r in zip(self.labels, self.ratings, strict=True))
        if drawn and self.scale is not None:
            self.notes.append(
                f"{name}: {_n(drawn, 'item')} without a most frequent human label, left out of figures on labels"
            )
        between = 0 if self.scale is None else sum(s is not None and s not in self.scale.values for s in self.scores)
        if between:
            self.notes.append(
                f"{name}: {_n(between, 'score')} of the judge between two labels, left out of figures on labels"
            )
        alone = sum(s is not None and not r for s, r in zip(self.scores, self.ratings, strict=True))
        if alone:
            self.notes.append(f"{name}: {_n(alone, 'judged item')} without a human rating")

    @property
    def means(self) -> list[float | None]:
        return [sum(r.values()) / len(r) if r else None for r in self.ratings]


def _most_frequent(ratings: Mapping[str, float], scale: Scale | None) -> float | None:
    """The one label that more raters gave than any other; None for a draw, and for ratings between labels."""
    if scale is None or not ratings:
        return None
    counts = Counter(ratings.values()).most_common(2)
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return None
    return counts[0][0] if counts[0][0] in scale.values else None


def _scale_in(criterion: Metric, good: str | None) -> _Found:
    """A rubric's labels: by name or alias; numbers anywhere between the lowest and the highest value."""
    names: dict[str, set[float]] = {}
    for level in criterion.levels:
        for name in (level.name, *level.aliases):
            names.setdefault(fold(name), set()).add(float(level.value))
    low, high = criterion.levels[0].value, criterion.levels[-1].value

    def number(value: float | str) -> float | None:
        if isinstance(value, str):
            found = names.get(fold(value), set())
            return next(iter(found)) if len(found) == 1 else None
        return value if low <= value <= high else None

    scale = Scale(
        values=tuple(float(level.value) for level in criterion.levels), names=tuple(x.name for x in criterion.levels)
    )
    threshold = scale.values[1] if len(scale.values) == 2 else None
    if good is not None:
        threshold = number(_typed(good))
        if threshold is None:
            raise ConfigError(f"--good-from {good!r} is no label of {criterion.id}: {', '.join(scale.names)}")
    return scale, number, threshold


def _scale_of(scores: Sequence[float | str | None], ratings: Sequence[float | str], name: str, good: str | None) -> _Found:
    """What the values themselves show."""
    theirs = {round(v, DECIMALS) if isinstance(v, float) else v for v in ratings}
    ours = {round(v, DECIMALS) if isinstance(v, float) else v for v in scores if v is not None}
    given = ours | theirs
    words = sorted(v for v in given if isinstance(v, str))
    if words and len(words) < len(given):
        told = ", ".join(map(repr, words[:4])) + (", …" if len(words) > 4 else "")
        raise ConfigError(
            f"{name} holds numbers and words ({told}), and nothing says how they go together; expected one kind, "
            "or a rubric that names the labels (--rubric)"
        )
    if words:
        labels = {fold(word): word for word in words}
        if good is not None and fold(good) not in labels:
            raise ConfigError(f"--good-from {good!r} is no label of {name}: {', '.join(labels.values())}")
        # The good label is put last, so that "at least good" means this label.
        order = sorted(labels, key=lambda folded: (good is not None and folded == fold(good), folded))
        codes = {folded: float(i) for i, folded in enumerate(order)}
        scale = Scale(
            values=tuple(codes.values()),
            names=tuple(labels[folded] for folded in order),
            ordered=False,
        )
        return scale, lambda value: codes.get(fold(str(value))), None if good is None else codes[fold(good)]
    numbers = sorted(float(v) for v in given)
    threshold = numbers[1] if len(numbers) == 2 else None
    if good is not None:
        wanted = _typed(good)
        if isinstance(wanted, str):
            raise ConfigError(f"--good-from {good!r}: {name} has numbers; expected the number from which on it is good")
        threshold = wanted
    # Labels are what both choose from; a judge's 0.37 beside people's 0, 0.5 and 1 is none.
    same = ours <= theirs or all(n.is_integer() for n in numbers)
    closed = same and 0 < len(numbers) <= MOST_LABELS
    found = Scale(values=tuple(numbers), names=tuple(f"{v:g}" for v in numbers)) if closed else None
    return found, lambda value: value if isinstance(value, float) else None, threshold


def _typed(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _n(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
