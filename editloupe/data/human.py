"""Human labels: which metric and which rater a column's name means, and what a label is worth on a metric's scale.

A loader keeps what a column says (`if_anna` of `human_if_anna`). Where the metrics are known, when a run is opened or a
table is read, every name becomes the metric's id, so that `human_if`, `human_instruction_following` and a column "IF" are
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

from editloupe.answers import LabelRule, fold
from editloupe.scores import Binary, Metric

T = TypeVar("T")

Rating: TypeAlias = str | int | float
Ratings: TypeAlias = Mapping[str, Mapping[str, Rating]]
"""By metric, then by rater."""
Known: TypeAlias = Callable[[str], str | None]
"""The metric that a name means; None if it means none."""
NO_RATER: Final = "human"
"""The rater of a column that names none."""
ADJUDICATED: Final = "adjudicated"
"""The rater of labels that settle a disagreement. Such a label stands for people's, and is no further vote."""
_TURN: Final = re.compile(r"turn([1-9][0-9]{0,3})_(.+)", re.IGNORECASE)
_YES_NO: Final = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def human_column(name: str) -> tuple[str, str] | None:
    """Return (metric, rater) of a column `human_<metric>[__<rater>]`; None for any other column.

    Without a double underscore the whole is the metric and the rater is "human", until the metrics are known (`named`).
    """
    rest = name.removeprefix("human_")
    if rest == name or not rest.strip("_"):
        return None
    metric, _, rater = rest.partition("__")
    return (metric, rater) if metric and rater else (rest, NO_RATER)


def turn_and_metric(name: str) -> tuple[int, str]:
    """Return (2, "if") for "turn2_if", and (0, name) for a rating of the sample as a whole."""
    match = _TURN.fullmatch(name)
    return (int(match[1]), match[2]) if match else (0, name)


def of_turn(turn: int, metric: str) -> str:
    """Return the name under which a sample holds the ratings of one of its turns; 0 for the sample as a whole."""
    return f"turn{turn}_{metric}" if turn else metric


def names_of(metrics: Iterable[Metric | str]) -> Known:
    """Return a look-up of metrics by id, name or short name, whatever the case and the dashes."""
    names: dict[str, str] = {}
    for metric in metrics:
        words = (metric,) if isinstance(metric, str) else (metric.id, metric.name, metric.short)
        names |= {fold(word): words[0] for word in words}
    return lambda name: names.get(fold(name))


def metric_and_rater(column: str, known: Known) -> tuple[str, str] | None:
    """Return what `human_if_anna`, `if_anna`, `anna_if` and `if` mean: ("instruction_following", "anna" or "human")."""
    human = human_column(column)
    if human is not None and (metric := known(human[0])) is not None:
        return metric, human[1]
    rest = column.removeprefix("human_")
    if (metric := known(rest)) is not None:
        return metric, NO_RATER
    for cut in re.finditer(r"_+", rest):
        before, after = rest[: cut.start()], rest[cut.end() :]
        if after and (metric := known(before)) is not None:
            return metric, after
        if before and (metric := known(after)) is not None:
            return metric, before
    return None


def named(ratings: Ratings, known: Known) -> dict[str, dict[str, Rating]]:
    """Return a sample's ratings under the ids of the metrics; a name that means none stays as it is.

    If two columns give one rater's label of one metric, the second stands under the rater's name with the column's.
    """
    found: dict[str, dict[str, Rating]] = {}
    for name, by_rater in ratings.items():
        turn, rest = turn_and_metric(name)
        metric, part = metric_and_rater(rest, known) or (rest, NO_RATER)
        own = found.setdefault(of_turn(turn, metric), {})
        for rater, rating in by_rater.items():
            who = rater if part == NO_RATER else part if rater == NO_RATER else f"{part} {rater}"
            own[who if who not in own else f"{who} ({name})"] = rating
    return found


def settled(by_rater: Mapping[str, T]) -> Mapping[str, T]:
    """Return the adjudicated rating alone where there is one; else all."""
    return {ADJUDICATED: by_rater[ADJUDICATED]} if ADJUDICATED in by_rater else by_rater


def value_on(metric: Metric, rating: Rating) -> float | None:
    """Return a label's value, by name or alias, or a number within the metric's bounds; None for anything else."""
    if isinstance(rating, str):
        return (_YES_NO if isinstance(metric.domain, Binary) else _label_values(metric.levels)).get(fold(rating))
    bounds = metric.domain.bounds
    return float(rating) if bounds is None or bounds[0] <= rating <= bounds[1] else None


@lru_cache(maxsize=64)
def _label_values(levels: tuple[LabelRule, ...]) -> Mapping[str, float]:
    """Return folded name or alias → value. A name that two labels share means neither."""
    values: dict[str, set[float]] = {}
    for level in levels:
        for name in (level.name, *level.aliases):
            values.setdefault(fold(name), set()).add(float(level.value))
    return {name: found.pop() for name, found in values.items() if len(found) == 1}
