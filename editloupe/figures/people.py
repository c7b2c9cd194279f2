"""A judge's column beside people's ratings, and people among themselves: every figure, overall and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from editloupe.data.human import NO_RATER
from editloupe.errors import ConfigError
from editloupe.figures.columns import DIMENSIONS, Dimension, HumanLabels, JudgeColumn, Key, RatedItem, groups
from editloupe.figures.readings import MetricReading
from editloupe.scores import Metric
from editloupe.stats.agreement import Cells, LabelScale, Paired, confusion, correlation, figures
from editloupe.stats.bootstrap import (
    DRAWING,
    Averaging,
    Drawing,
    Estimate,
    Floats,
    Undefined,
    average,
    average_each,
    in_order,
    interval,
)
from editloupe.stats.raters import Panel, ceiling, rater_vs_others
from editloupe.stats.significance import Significance
from editloupe.stats.weighted import CORRELATIONS
from editloupe.values import Serialisable, is_empty

_NAMED: Final = 6
"""Raters that a title or a message names."""


@dataclass(frozen=True, kw_only=True)
class PeopleOptions:
    """How agreement with people is summed up."""

    how: Averaging = "fisher"
    """Average of the correlations of groups."""
    over: Dimension | None = None
    """The groups to average over; None for none."""
    good: str | None = None
    """The label from which on an item is good."""
    drawing: Drawing = DRAWING


@dataclass(frozen=True, kw_only=True)
class GroupAgreement(Serialisable):
    """The figures of some of the items."""

    name: str
    figures: Mapping[str, Estimate]
    """Judge and people; empty for people among themselves."""
    ceiling: Mapping[str, Estimate]
    """People among themselves; empty if nobody shares an item."""


@dataclass(frozen=True, kw_only=True)
class Averages(Serialisable):
    """Correlations of groups, averaged."""

    over: Dimension
    how: Averaging
    groups: int
    figures: Mapping[str, Estimate]
    """By name, with rater_vs_others for people among themselves."""
    left_out: Mapping[str, Mapping[str, str]]
    """Figure → group → why it has none."""


@dataclass(frozen=True, kw_only=True)
class RightMoreOften(Significance):
    """Sign-flip permutation test by source image of two judges against people: who is right where one alone is."""

    right_alone: int
    """Samples on which the judge alone is right."""
    other_right_alone: int
    """Samples on which the other one alone is right."""


@dataclass(frozen=True, kw_only=True)
class MetricAgreement(Serialisable):
    """One judge and people on one metric; or people among themselves."""

    judge: str | None
    """None for people among themselves."""
    people: str
    """Where the labels are from."""
    criterion: str
    """The metric's id."""
    rating: Annotated[str | None, Field(exclude_if=lambda rating: rating is None)] = None
    """What people rated on a scale of its own; None where they rated the metric itself."""
    title: str
    short: Annotated[str, Field(exclude=True)]
    raters: tuple[str, ...]
    all: GroupAgreement
    by: Mapping[Dimension, tuple[GroupAgreement, ...]]
    """Dimension → groups."""
    averages: Averages | None = None
    confusion: tuple[tuple[int, ...], ...] = ()
    """Counts by people's label (rows) and the judge's (columns), worst first; the last column is "not judged". Empty
    without a closed set of labels.
    """
    versus: Annotated[Mapping[str, RightMoreOften], Field(exclude_if=is_empty)] = field(default_factory=dict)
    """Other judge → who is right more often."""
    notes: tuple[str, ...]
    """What was left out, and why."""
    scale: Annotated[LabelScale | None, Field(exclude=True)]

    @property
    def named_raters(self) -> str:
        """ "2 raters (anna, ben)"."""
        return _raters(self.raters)


def agreement(
    judge: JudgeColumn,
    items: Mapping[Key, RatedItem],
    people: HumanLabels,
    metric: Metric | str,
    options: PeopleOptions | None = None,
    *,
    rating: str | None = None,
) -> MetricAgreement:
    """Return all that can be said of one metric. `items` and `people` come from `columns.join`.

    metric: its labels and values bind both sides; or a name, and the scale is what the values show: text is compared by
    equality only, numbers are labels too if few different ones occur.
    rating: what of people's ratings is compared, numbers on a scale of their own, so that there are correlations alone;
    None for their ratings of the metric.
    With several raters, correlations and errors take people's mean, figures on labels their most frequent label; an item
    without one (a draw) counts as not labelled there. Raises ConfigError for an `options.good` that is no label.
    """
    options = options or PeopleOptions()
    name = metric if isinstance(metric, str) else metric.id
    ratings = [people.ratings.get(key, {}).get(rating or name, {}) for key in items]
    answers = [judge.of(name).get(key) for key in items]
    reading = MetricReading(answers, ratings, metric, options.good, one_scale=rating is None)
    beside = _Beside(list(items.values()), reading, options)
    found = beside.agreement(judge.name, people.source, metric)
    notes, scale, averages = list(reading.notes), reading.ruler.scale, None
    if len(beside.raters) > 1 and not found.all.ceiling:
        notes.append(f"{name}: {len(beside.raters)} raters share no item, so that there is no ceiling")
    if options.over is not None and reading.ruler.ordered:
        averages = beside.averages(options.over)
    return replace(
        found,
        rating=rating,
        title=found.title if rating is None else f"{found.title} and people's {rating}",
        averages=averages,
        confusion=() if scale is None else tuple(map(tuple, confusion(beside.labels, scale))),
        notes=tuple(notes),
    )


def among_people(
    people: HumanLabels, metrics: Sequence[Metric | str], options: PeopleOptions | None = None
) -> tuple[MetricAgreement, ...]:
    """Return how far people agree among themselves on the metrics. A metric: its labels bind the ratings; a name: what the
    values show.

    Of each figure, asked are the items that anyone rated, and judged those that the figure can use. DLEBench's Table 2 has
    alpha by edit type, times 100. It does not say at which level; here all three are given.
    """
    found = []
    for metric in metrics:
        name = metric if isinstance(metric, str) else metric.id
        rated = {key: given for key in people.items if (given := people.ratings.get(key, {}).get(name))}
        reading = MetricReading([None] * len(rated), list(rated.values()), metric)
        items = [people.items[key] for key in rated]
        beside = _Beside(items, reading, options or PeopleOptions(), judged=False)
        one = beside.agreement(None, people.source, metric)
        notes = list(reading.unread)
        if not one.all.ceiling["alpha_nominal"].judged:
            notes.append(f"{name}: {_raters(beside.raters)}, and no item that two people rated")
        found.append(replace(one, notes=tuple(notes)))
    return tuple(found)


def check_raters(found: Sequence[MetricAgreement], advice: str) -> None:
    """Raise ConfigError if there is no metric with an item that two people rated. advice: what to do about one rater."""
    if any(one.all.ceiling["alpha_nominal"].judged for one in found):
        return
    raters = tuple(dict.fromkeys(name for one in found for name in one.raters))
    source = found[0].people if found else "the table"
    if len(raters) > 1:
        raise ConfigError(
            f"{source}: {_raters(raters)} rated no item in common, so that there is nothing to compare; "
            "expected items that two people or more rated by the same criterion"
        )
    who = "no rater is named" if raters == (NO_RATER,) else f"{_raters(raters)} only"
    raise ConfigError(f"{source}: {who}, and agreement between people needs two; {advice}")


class _Beside:
    """The two readings as arrays, cut into groups.   judged: False for people among themselves."""

    def __init__(
        self, items: Sequence[RatedItem], reading: MetricReading, options: PeopleOptions, *, judged: bool = True
    ) -> None:
        self.items, self.reading, self.options, self.judged = items, reading, options, judged
        self.sources = [item.source for item in items]
        self.raters = tuple(dict.fromkeys(rater for found in reading.ratings for rater in found))
        self.means = Paired.of(reading.scores, reading.means, self.sources)
        scale = reading.ruler.scale
        self.labels = self.means
        if scale is not None:
            self.labels = Paired.of(reading.scores, reading.labels, self.sources).on(scale)

    def agreement(self, judge: str | None, source: str, metric: Metric | str) -> MetricAgreement:
        """Return the figures, overall and by each dimension that has several groups.   source: of people's labels."""
        names = (metric,) * 3 if isinstance(metric, str) else (metric.id, metric.name, metric.short)
        by = {dimension: self.members(dimension) for dimension in DIMENSIONS}
        return MetricAgreement(
            judge=judge,
            people=source,
            criterion=names[0],
            title=names[1],
            short=names[2],
            raters=self.raters,
            all=self.group("all", range(len(self.items))),
            by={
                dimension: tuple(self.group(name, members) for name, members in found.items())
                for dimension, found in by.items()
                if len(found) > 1
            },
            notes=(),
            scale=self.reading.ruler.scale,
        )

    def members(self, dimension: Dimension) -> dict[str, list[int]]:
        """Group → places of its items, of those that people rated."""
        rated = [i for i, ratings in enumerate(self.reading.ratings) if ratings]
        found = groups([self.items[i] for i in rated], dimension)
        return {name: [rated[place] for place in places] for name, places in found.items()}

    def group(self, name: str, members: Sequence[int]) -> GroupAgreement:
        """Return the figures of the items at these places."""
        ruler, drawing = self.reading.ruler, self.options.drawing
        found: Mapping[str, Estimate] = {}
        among: dict[str, Estimate] = {}
        if self.judged:
            pairs = self.means.at(members), self.labels.at(members)
            found = figures(*pairs, ruler.scale, good=ruler.good, one_scale=ruler.one_scale, drawing=drawing)
        if not self.judged or any(len(r) > 1 for r in self.reading.ratings):
            among = ceiling(self._panel(members), ordered=ruler.ordered, how=self.options.how, drawing=drawing)
        if not self.judged:
            among.pop("rater_vs_others", None)
        return GroupAgreement(name=name, figures=found, ceiling=among)

    def averages(self, over: Dimension) -> Averages:
        """Return the correlations of groups, averaged; those of people are of the groups in which the judge has one.

        All groups are resampled together, since one source image may have edits in each.
        """
        found: dict[str, Estimate] = {}
        left_out: dict[str, dict[str, str]] = {}
        members, frame, how = self.members(over), in_order(self.sources), self.options.how
        for name in CORRELATIONS:
            found[name], left_out[name] = self._averaged(name, members)
        out = left_out["spearman"]
        own = {
            name: rater_vs_others(self._panel(places), how, self.options.drawing, frame)
            for name, places in members.items()
            if name not in out
        }
        judged, asked = (sum(getattr(e, count) for e, _ in own.values()) for count in ("judged", "asked"))
        if judged:
            base = Estimate(value=None, judged=judged, asked=asked, clusters=len(frame))
            values = [(e.value, row) for e, row in own.values() if e.value is not None]
            found["rater_vs_others"] = self._average(
                [value for value, _ in values], [row for _, row in values if row is not None], base
            )
            why = {name: own[name][0].why if name in own else "the judge has no correlation there" for name in members}
            left_out["rater_vs_others"] = {name: reason for name, reason in why.items() if reason}
        return Averages(over=over, how=how, groups=len(members), figures=found, left_out=left_out)

    def _averaged(self, name: str, members: Mapping[str, Sequence[int]]) -> tuple[Estimate, dict[str, str]]:
        found, rows, why, used = list[float](), list[Floats](), dict[str, str](), set[object]()
        judged = asked = 0
        for group, places in members.items():
            pair = self.means.at(places).in_order()
            asked += pair.asked
            try:
                found.append(correlation(name, pair))
            except Undefined as error:
                why[group] = str(error)
                continue
            judged += int(pair.both.sum())
            used |= {c for c, k in zip(pair.clusters, pair.both, strict=True) if k}
            rows.append(Cells(pair, in_order(self.sources)).resampled(CORRELATIONS[name], self.options.drawing))
        base = Estimate(value=None, judged=judged, asked=asked, clusters=len(used))
        return self._average(found, rows if len(used) > 1 else [], base), why

    def _average(self, found: Sequence[float], rows: Sequence[Floats], base: Estimate) -> Estimate:
        """The average of values, with an interval from their resamples."""
        how, level = self.options.how, self.options.drawing.level
        try:
            value = average(found, how)
        except Undefined as error:
            return replace(base, why=str(error))
        low, high = interval(average_each(np.stack(rows), how), level=level) if rows else (None, None)
        return replace(base, value=value, low=low, high=high)

    def _panel(self, members: Sequence[int]) -> Panel:
        return Panel.of([self.reading.ratings[i] for i in members], [self.sources[i] for i in members])


def _raters(names: Sequence[str]) -> str:
    named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} rater{'s' * (len(names) != 1)}" + (f" ({named})" if names else "")
