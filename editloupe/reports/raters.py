"""People among themselves, without a judge: Krippendorff's alpha and Fleiss' kappa of raters, overall and by group.

DLEBench's Table 2 has alpha by edit type, times 100. It does not say at which level; here all three are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from editloupe.data.human import NO_RATER
from editloupe.errors import ConfigError
from editloupe.reports.align import AlignOptions, figure_record, people_table
from editloupe.reports.columns import DIMENSIONS, Dimension, HumanLabels, groups
from editloupe.reports.pages import Agreement, TableSection
from editloupe.reports.readings import MetricReading
from editloupe.scores import Metric
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.raters import Panel, ceiling
from editloupe.stats.table import Row, Table, estimated, numbers, words
from editloupe.values import Json, Serialisable

_SHORT: Final = {
    "fleiss_kappa": "Fleiss κ",
    "alpha_nominal": "α nominal",
    "alpha_ordinal": "α ordinal",
    "alpha_interval": "α interval",
}
_NAMED: Final = 6
"""Raters that a title or a message names."""


@dataclass(frozen=True, kw_only=True)
class RaterGroup(Serialisable):
    """The raters' agreement on some of the items."""

    name: str
    figures: Mapping[str, Estimate]
    """By name. `asked`: items that anyone rated; `judged`: those that the figure can use."""


@dataclass(frozen=True, kw_only=True)
class RatersOnMetric(Serialisable):
    """The raters' agreement on one metric."""

    criterion: str
    """The metric's id."""
    title: str
    raters: tuple[str, ...]
    all: RaterGroup
    by: Mapping[Dimension, tuple[RaterGroup, ...]]
    """Dimension → groups."""
    notes: tuple[str, ...]
    """What was left out, and why."""
    short: Annotated[str, Field(exclude=True)]


@dataclass(frozen=True, kw_only=True)
class RaterAgreement(Agreement):
    """People among themselves on every metric that they rated."""

    criteria: tuple[RatersOnMetric, ...]

    @property
    def caption(self) -> str:
        """How to read the figures."""
        drawing = self.bootstrap
        return (
            "In brackets, and as Rated: items that a figure can use (two raters or more), of those that anyone rated. "
            f"Intervals: bootstrap over source images, {drawing.resamples} resamples, seed {drawing.seed}."
        )

    def sections(self) -> Iterator[TableSection]:
        """Yield alpha of all metrics by edit type, then the tables of each metric."""
        yield TableSection(title="Agreement between raters", tables=(self._alphas(),))
        for one in self.criteria:
            by = [_by(DIMENSIONS[dimension], found) for dimension, found in one.by.items()]
            figures = people_table(one.all.figures, len(one.raters), self.bootstrap.level)
            yield TableSection(title=f"{one.title}: {_raters(one.raters)}", notes=one.notes, tables=(figures, *by))

    def records(self) -> Iterator[dict[str, Json]]:
        """Yield one record a figure, with the columns of a judge's."""
        for one in self.criteria:
            for dimension, group in [("", one.all), *((d, g) for d, found in one.by.items() for g in found)]:
                head: dict[str, Json] = {"judge": None, "criterion": one.criterion, "between": "people"}
                head |= {"dimension": dimension, "group": group.name}
                for name, figure in group.figures.items():
                    yield {**head, "figure": name, **figure_record(figure)}

    def _alphas(self) -> Table:
        """Alpha by edit type, a column a metric; the paper's Table 2."""
        ordinal = {one.criterion: "alpha_ordinal" in one.all.figures for one in self.criteria}
        levels = {name: "alpha_ordinal" if ordered else "alpha_nominal" for name, ordered in ordinal.items()}
        found = {one.criterion: {g.name: g.figures for g in one.by.get("edit_type", ())} for one in self.criteria}
        types = list(dict.fromkeys(name for own in found.values() for name in own))
        shown = [(name, {criterion: own.get(name) for criterion, own in found.items()}) for name in types]
        shown.append(("Overall", {one.criterion: one.all.figures for one in self.criteria}))
        heads = {one.criterion: f"{one.short}, {_SHORT[levels[one.criterion]]}" for one in self.criteria}
        rows, gaps = [], _Gaps()
        for name, own in shown:
            alphas = {criterion: None if f is None else f[levels[criterion]] for criterion, f in own.items()}
            gaps.add(name, {heads[criterion]: alpha for criterion, alpha in alphas.items()})
            cells = (estimated(alpha, interval_digits=2) for alpha in alphas.values())
            rows.append(Row(cells=(words(name, strong=name == "Overall"), *cells)))
        caption = "\n".join(["As DLEBench's Table 2, which gives alpha times 100.", *gaps.lines])
        return numbers("raters", "Krippendorff's α by edit type", ("Edit type", *heads.values()), rows, caption=caption)


_NAME_RATERS: Final = (
    "name raters in a column rater, in the names of columns (if_anna, if_ben) with --rubric, or with --columns "
    "CRITERION@RATER=COLUMN"
)
"""What to do about a table with one rater."""


def agreement_between_raters(
    people: HumanLabels,
    metrics: Sequence[Metric | str],
    options: AlignOptions | None = None,
    *,
    advice: str = _NAME_RATERS,
) -> RaterAgreement:
    """Return how far people agree on the metrics. A metric: its labels bind the ratings; a name: what the values show.

    advice: what to do where there is one rater only.   Raises ConfigError if no metric has an item that two people rated.
    """
    options = options or AlignOptions()
    found = tuple(_on_metric(people, metric, options) for metric in metrics)
    raters = tuple(dict.fromkeys(name for one in found for name in one.raters))
    if not any(one.all.figures["alpha_nominal"].judged for one in found):
        if len(raters) > 1:
            raise ConfigError(
                f"{people.source}: {_raters(raters)} rated no item in common, so that there is nothing to compare; "
                "expected items that two people or more rated by the same criterion"
            )
        who = "no rater is named" if raters == (NO_RATER,) else f"{_raters(raters)} only"
        raise ConfigError(f"{people.source}: {who}, and agreement between people needs two; {advice}")
    return RaterAgreement(people=people.source, criteria=found, bootstrap=options.drawing, notes=people.notes)


def _on_metric(people: HumanLabels, metric: Metric | str, options: AlignOptions) -> RatersOnMetric:
    name, title, short = (metric,) * 3 if isinstance(metric, str) else (metric.id, metric.name, metric.short)
    ratings = {key: people.ratings.get(key, {}).get(name, {}) for key in people.items}
    items = [people.items[key] for key, given in ratings.items() if given]
    reading = MetricReading([None] * len(items), [given for given in ratings.values() if given], metric)

    def group(name: str, places: Sequence[int]) -> RaterGroup:
        panel = Panel.of([reading.ratings[i] for i in places], [items[i].source for i in places])
        found = ceiling(panel, ordered=reading.ruler.ordered, how=options.how, drawing=options.drawing)
        return RaterGroup(name=name, figures=found)

    whole = group("all", range(len(items)))
    raters = tuple(dict.fromkeys(rater for given in reading.ratings for rater in given))
    notes = [*reading.unread, *(f"{name}: {text}" for text in reading.adjudicated)]
    if not whole.figures["alpha_nominal"].judged:
        notes.append(f"{name}: {_raters(raters)}, and no item that two people rated")
    return RatersOnMetric(
        criterion=name,
        title=title,
        short=short,
        raters=raters,
        all=whole,
        by={
            dimension: tuple(group(name, places) for name, places in found.items())
            for dimension in DIMENSIONS
            if len(found := groups(items, dimension)) > 1
        },
        notes=tuple(notes),
    )


def _by(title: str, found: Sequence[RaterGroup]) -> Table:
    names = [name for name in _SHORT if name in found[0].figures]
    rows, gaps = [], _Gaps()
    for group in found:
        gaps.add(group.name, {_SHORT[name]: group.figures[name] for name in names})
        alpha = group.figures["alpha_nominal"]
        cells = (estimated(group.figures[name], interval_digits=2, counts=False) for name in names)
        rows.append(Row(cells=(words(group.name), words(f"{alpha.judged}/{alpha.asked}"), *cells)))
    return numbers(
        f"raters-by-{title.lower().replace(' ', '-')}",
        f"By {title.lower()}",
        (title, "Rated", *(_SHORT[name] for name in names)),
        rows,
        caption="\n".join(gaps.lines),
    )


class _Gaps:
    """Why figures of a table have no value, each reason once."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], list[str]] = {}

    def add(self, group: str, figures: Mapping[str, Estimate | None]) -> None:
        """Add the figures of a row, by their column."""
        for column, figure in figures.items():
            if figure is not None and figure.why:
                self._groups.setdefault((figure.why, column), []).append(group)

    @property
    def lines(self) -> list[str]:
        """Return "COLUMNS: REASON (GROUPS)", columns that lack the same groups together."""
        columns: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (why, column), found in self._groups.items():
            columns.setdefault((why, tuple(found)), []).append(column)
        return [f"{', '.join(names)}: {why} ({', '.join(found)})" for (why, found), names in columns.items()]


def _raters(names: Sequence[str]) -> str:
    """ "2 raters (anna, ben)"."""
    named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} rater{'s' * (len(names) != 1)}" + (f" ({named})" if names else "")
