"""A judge beside people's ratings, and people among themselves: every figure, overall and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from editloupe.errors import ConfigError
from editloupe.figures.columns import DIMENSIONS, Dimension, JudgeColumn, PeopleSaid
from editloupe.figures.readings import MetricReading
from editloupe.scores import Metric
from editloupe.stats.agreement import LabelScale, Paired, confusion, figures, resampled_correlation
from editloupe.stats.bootstrap import DRAWING, Averaging, Drawing, Estimate, Floats, Undefined, averaged, in_order
from editloupe.stats.raters import Panel, ceiling, rater_vs_others
from editloupe.stats.significance import Significance
from editloupe.stats.weighted import CORRELATIONS
from editloupe.values import Serializable, is_empty

_NAMED: Final = 6
"""Raters that a title or a message names."""


@dataclass(frozen=True, kw_only=True)
class PeopleOptions:
    """How agreement with people is summed up."""

    how: Averaging = "fisher"
    """Average of the correlations of groups."""
    over_editors: bool = False
    """Also average the correlations of editors."""
    drawing: Drawing = DRAWING


@dataclass(frozen=True, kw_only=True)
class GroupAgreement(Serializable):
    """The figures of some of the items."""

    name: str
    figures: Mapping[str, Estimate]
    """Judge and people; empty for people among themselves."""
    ceiling: Mapping[str, Estimate]
    """People among themselves; empty if nobody shares an item."""


@dataclass(frozen=True, kw_only=True)
class Averages(Serializable):
    """Correlations of editors, averaged."""

    over: Dimension = "editor"
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
class MetricAgreement(Serializable):
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
    judge: JudgeColumn | None,
    people: PeopleSaid,
    metric: Metric | str,
    options: PeopleOptions | None = None,
    *,
    rating: str | None = None,
) -> MetricAgreement:
    """Return all that can be said of one judge and people, or (without a judge) of people, on one metric.

    people: under the judge's keys (`columns.join`).   metric: its labels and values bind both sides; or a name, and the
    scale is what the values show: text is compared by equality only, numbers are labels too if few different ones occur.
    rating: what of people's ratings is compared, numbers on a scale of their own, so that there are correlations alone;
    None for their ratings of the metric.
    With several raters, correlations and errors take people's mean, figures on labels their most frequent label; an item
    without one (a draw) counts as not labeled there. Among people asked are the items that anyone rated, and judged those
    that the figure can use.
    """
    options = options or PeopleOptions()
    names = (metric,) * 3 if isinstance(metric, str) else (metric.id, metric.name, metric.short)
    beside = _Beside(judge, people, metric, options, rating)
    whole, reading = beside.group("all", range(len(beside.sources))), beside.reading
    notes, scale = list(reading.notes), reading.ruler.scale
    if judge is not None and reading.drawn:
        items = f"{reading.drawn} item{'s' * (reading.drawn != 1)}"
        notes.append(f"{names[0]}: {items} without a most frequent human label, left out of figures on labels")
    return MetricAgreement(
        judge=None if judge is None else judge.name,
        people=people.name,
        criterion=names[0],
        rating=rating,
        title=names[1] if rating is None else f"{names[1]} and people's {rating}",
        short=names[2],
        raters=reading.raters,
        all=whole,
        by={
            dimension: tuple(beside.group(name, members) for name, members in groups.items())
            for dimension, groups in beside.groups.items()
            if len(groups) > 1
        },
        averages=beside.averages() if judge is not None and options.over_editors and reading.ruler.ordered else None,
        confusion=() if judge is None or scale is None else tuple(map(tuple, confusion(beside.labels, scale))),
        notes=tuple(notes),
        scale=scale,
    )


def check_raters(found: Sequence[MetricAgreement], advice: str) -> None:
    """Raise ConfigError if there is no metric with an item that two people rated. advice: what to do about one rater."""
    if any(one.all.ceiling["alpha_nominal"].judged for one in found):
        return
    raters = tuple(dict.fromkeys(name for one in found for name in one.raters))
    source = found[0].people if found else "the table"
    raise ConfigError(
        f"{source}: {_raters(raters)}, and no item that two of them rated by one criterion, so that there is nothing to "
        f"compare; {advice}"
    )


class _Beside:
    """The two readings of the items that people rated, as arrays, cut into groups."""

    def __init__(
        self,
        judge: JudgeColumn | None,
        people: PeopleSaid,
        metric: Metric | str,
        options: PeopleOptions,
        rating: str | None,
    ) -> None:
        name = metric if isinstance(metric, str) else metric.id
        rated = people.of(rating or name)
        answers = {} if judge is None else judge.of(name)
        items = [people.items[key] for key in rated]
        self.judged, self.options, self.rating = judge is not None, options, rating
        self.sources = [item.source for item in items]
        given = [answers.get(key) for key in rated]
        self.reading = MetricReading(given, list(rated.values()), metric, one_scale=rating is None)
        scale = self.reading.ruler.scale
        self.means = Paired.of(self.reading.scores, self.reading.means, self.sources)
        self.labels = self.means
        if scale is not None:
            self.labels = Paired.of(self.reading.scores, self.reading.labels, self.sources).on(scale)
        self.groups: dict[Dimension, dict[str, list[int]]] = {}
        """Dimension → group → places of its items; a dimension without any name has no groups."""
        kinds, editors = [item.edit_type for item in items], [editor for editor, *_ in rated]
        for dimension in DIMENSIONS:
            found: dict[str, list[int]] = {}
            for place, group in enumerate(editors if dimension == "editor" else kinds):
                if self.reading.ratings[place]:
                    found.setdefault(group or "(none)", []).append(place)
            self.groups[dimension] = found if found.keys() != {"(none)"} else {}

    def group(self, name: str, members: Sequence[int]) -> GroupAgreement:
        """Return the figures of the items at these places."""
        ruler, drawing = self.reading.ruler, self.options.drawing
        found: Mapping[str, Estimate] = {}
        among: dict[str, Estimate] = {}
        if self.judged:
            pairs = self.means.at(members), self.labels.at(members)
            found = figures(*pairs, ruler.scale, good=ruler.good, one_scale=self.rating is None, drawing=drawing)
        if not self.judged or any(len(r) > 1 for r in self.reading.ratings):
            among = ceiling(self._panel(members), ordered=ruler.ordered, how=self.options.how, drawing=drawing)
        if not self.judged:
            among.pop("rater_vs_others", None)
        return GroupAgreement(name=name, figures=found, ceiling=among)

    def averages(self) -> Averages:
        """Return the correlations of editors, averaged; those of people are of the groups in which the judge has one.

        All groups are resampled together, since one source image may have edits in each.
        """
        members, every, how, drawing = self.groups["editor"], in_order(self.sources), self.options.how, self.options.drawing
        pairs = {group: self.means.at(places).in_order() for group, places in members.items()}
        found: dict[str, Estimate] = {}
        left_out: dict[str, dict[str, str]] = {}
        for name in CORRELATIONS:
            known, why = dict[str, tuple[float, Floats]](), left_out.setdefault(name, {})
            for group, pair in pairs.items():
                try:
                    known[group] = resampled_correlation(name, pair, every, drawing)
                except Undefined as error:
                    why[group] = str(error)
            used = [pairs[group] for group in known]
            clusters = {one for pair in used for one, both in zip(pair.clusters, pair.both, strict=True) if both}
            judged, asked = sum(int(pair.both.sum()) for pair in used), sum(pair.asked for pair in pairs.values())
            base = Estimate(value=None, judged=judged, asked=asked, clusters=len(clusters))
            found[name], _ = averaged([*known.values()], base, how, level=drawing.level)
        own = {
            name: rater_vs_others(self._panel(places), how, drawing, every)
            for name, places in members.items()
            if name not in left_out["spearman"]
        }
        judged, asked = (sum(getattr(one, count) for one, _ in own.values()) for count in ("judged", "asked"))
        if judged:
            base = Estimate(value=None, judged=judged, asked=asked, clusters=len(every))
            there = [(one.value, row) for one, row in own.values() if one.value is not None and row is not None]
            found["rater_vs_others"], _ = averaged(there, base, how, level=drawing.level)
            reasons = {name: own[name][0].why if name in own else "the judge has no correlation there" for name in members}
            left_out["rater_vs_others"] = {name: reason for name, reason in reasons.items() if reason}
        return Averages(how=how, groups=len(members), figures=found, left_out=left_out)

    def _panel(self, members: Sequence[int]) -> Panel:
        return Panel.of([self.reading.ratings[i] for i in members], [self.sources[i] for i in members])


def _raters(names: Sequence[str]) -> str:
    named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} rater{'s' * (len(names) != 1)}" + (f" ({named})" if names else "")
