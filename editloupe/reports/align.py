"""A judge's column beside people's ratings: every figure of agreement, overall and by group, as values and as tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from editloupe.reports.columns import DIMENSIONS, Dimension, HumanLabels, Item, JudgeColumn, Key, groups
from editloupe.reports.pages import Agreement, TableSection
from editloupe.reports.readings import MetricReading
from editloupe.scores import Metric
from editloupe.stats.agreement import Cells, Figure, LabelScale, Paired, confusion, correlation, figures
from editloupe.stats.bootstrap import (
    DRAWING,
    Aggregate,
    Drawing,
    Estimate,
    Floats,
    Undefined,
    aggregate,
    aggregate_each,
    ends,
    interval,
)
from editloupe.stats.raters import Panel, ceiling, rater_vs_others
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, numbers, words
from editloupe.stats.weighted import CORRELATIONS
from editloupe.values import Json, Serialisable

TITLES: Final[Mapping[str, str]] = {
    "spearman": "Spearman ρ",
    "kendall": "Kendall τ-b",
    "pearson": "Pearson r",
    "mae": "Mean absolute error",
    "bias": "Mean difference",
    "exact": "Exact match",
    "kappa": "Cohen κ",
    "weighted_kappa": "Cohen κ, quadratic",
    "alpha_nominal": "Krippendorff α, nominal",
    "alpha_ordinal": "Krippendorff α, ordinal",
    "alpha_interval": "Krippendorff α, interval",
    "accuracy": "Accuracy, good or not",
    "f1": "F1 of good",
    "fleiss_kappa": "Fleiss κ",
    "rater_vs_others": "Rater vs. others, ρ",
}
_AVERAGES: Final = {"fisher": "Fisher's z", "mean": "plain mean", "tanh-mean": "tanh of the mean"}
_BRIEF: Final = ("spearman", "weighted_kappa", "kappa", "kendall")
_YES_OR_NO: Final = ("kappa", "f1", "pearson")
"""Shown beside accuracy where there are two labels."""
_PAIRED: Final = ("pearson", "spearman", "kendall")
"""Shown of a metric and ratings on a scale of their own."""
_PLURALS: Final = {"editor": "editors", "edit_type": "edit types", "area": "target areas"}


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """How agreement is summed up."""

    how: Aggregate = "fisher"
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
    figures: Mapping[str, Figure]
    """Judge and people."""
    ceiling: Mapping[str, Estimate]
    """People among themselves; empty if nobody shares an item."""


@dataclass(frozen=True, kw_only=True)
class Averages(Serialisable):
    """Correlations of groups, averaged."""

    over: Dimension
    how: Aggregate
    groups: int
    figures: Mapping[str, Estimate]
    """By name, with rater_vs_others for people among themselves."""
    left_out: Mapping[str, Mapping[str, str]]
    """Figure → group → why it has none."""


@dataclass(frozen=True, kw_only=True)
class Confusion(Serialisable):
    """Counts by people's label (rows) and the judge's (columns), worst first; the last column is "not judged"."""

    columns: tuple[str | None, ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class MetricAgreement(Serialisable):
    """One judge and people on one metric."""

    criterion: str
    """The metric's id."""
    rating: Annotated[str | None, Field(exclude_if=lambda rating: rating is None)] = None
    """What people rated on a scale of its own; None where they rated the metric itself."""
    title: str
    raters: int
    all: GroupAgreement
    by: Mapping[Dimension, tuple[GroupAgreement, ...]]
    """Dimension → groups."""
    averages: Averages | None
    confusion: Confusion | None
    """None without a closed set of labels."""
    notes: tuple[str, ...]
    """What was left out, and why."""
    scale: Annotated[LabelScale | None, Field(exclude=True)]


@dataclass(frozen=True, kw_only=True)
class JudgeAgreement(Agreement):
    """One judge and people on every metric that both have."""

    criteria: tuple[MetricAgreement, ...]

    def sections(self) -> Iterator[TableSection]:
        """Yield the tables of each metric; before them one of all that are paired with ratings of another name."""
        if paired := [a for a in self.criteria if a.rating is not None]:
            yield TableSection(title="Metrics and ratings", tables=(pair_table(paired, self.bootstrap.level),))
        for a in self.criteria:
            title = f"{a.title}: {a.raters} rater" + ("" if a.raters == 1 else "s")
            yield TableSection(title=title, notes=a.notes, tables=tuple(tables(a, self.bootstrap.level)))

    def records(self) -> Iterator[dict[str, Json]]:
        """Yield one record a figure."""
        for a in self.criteria:
            head: dict[str, Json] = {"judge": self.judge, "criterion": a.criterion}
            if any(one.rating is not None for one in self.criteria):
                head["rating"] = a.rating
            for dimension, group in [("", a.all), *((d, g) for d, some in a.by.items() for g in some)]:
                place: dict[str, Json] = {"dimension": dimension, "group": group.name}
                for between, found in (("judge and people", group.figures), ("people", group.ceiling)):
                    for name, figure in found.items():
                        yield {**head, "between": between, **place, "figure": name, **figure_record(figure)}
            if a.averages is None:
                continue
            for name, figure in a.averages.figures.items():
                who = "people" if name == "rater_vs_others" else "judge and people"
                place = {"dimension": a.averages.over, "group": f"average ({a.averages.how})"}
                yield {**head, "between": who, **place, "figure": name, **figure_record(figure)}


def figure_record(found: Estimate) -> dict[str, Json]:
    """Return a figure's fields in a line of a file."""
    low, high = ends(found.interval)
    adjusted = found.adjusted if isinstance(found, Figure) else None
    counts: dict[str, Json] = {"judged": found.judged, "asked": found.asked, "clusters": found.clusters}
    return {"value": found.value, "low": low, "high": high, **counts, "adjusted": adjusted, "why": found.why or None}


def align(
    judge: JudgeColumn,
    items: Mapping[Key, Item],
    people: HumanLabels,
    metric: Metric | str,
    options: AlignOptions | None = None,
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
    options = options or AlignOptions()
    name = metric if isinstance(metric, str) else metric.id
    answers = judge.of(name)
    ratings = [people.ratings.get(key, {}).get(rating or name, {}) for key in items]
    reading = MetricReading([answers.get(key) for key in items], ratings, metric, options.good, one_scale=rating is None)
    frames = _Frames(list(items.values()), reading, options)
    whole = frames.group("all", range(len(items)))
    by = {
        dimension: tuple(frames.group(group, members) for group, members in found.items())
        for dimension in DIMENSIONS
        if len(found := frames.members(dimension)) > 1
    }
    averages = None
    if options.over is not None and reading.ruler.ordered:
        averages = frames.averages(options.over, frames.members(options.over))
    raters = len({rater for found in reading.ratings for rater in found})
    notes = list(reading.notes)
    if raters > 1 and not whole.ceiling:
        notes.append(f"{name}: {raters} raters share no item, so that there is no ceiling")
    scale = reading.ruler.scale
    counts = None
    if scale is not None:
        counts = Confusion(columns=(*scale.names, None), rows=tuple(map(tuple, confusion(frames.labels, scale))))
    title = metric if isinstance(metric, str) else metric.name
    return MetricAgreement(
        criterion=name,
        rating=rating,
        title=title if rating is None else f"{title} and people's {rating}",
        scale=scale,
        all=whole,
        by=by,
        averages=averages,
        confusion=counts,
        raters=raters,
        notes=tuple(notes),
    )


class _Frames:
    """The two readings as arrays, cut into groups."""

    def __init__(self, items: Sequence[Item], reading: MetricReading, options: AlignOptions) -> None:
        self.items, self.reading, self.options = items, reading, options
        self.sources = [item.source for item in items]
        self.means = Paired.of(reading.scores, reading.means, self.sources)
        scale = reading.ruler.scale
        self.labels = self.means
        if scale is not None:
            self.labels = Paired.of(reading.scores, reading.labels, self.sources).on(scale)

    def members(self, dimension: Dimension) -> dict[str, list[int]]:
        """Group → places of its items, of those that people rated."""
        rated = [i for i, ratings in enumerate(self.reading.ratings) if ratings]
        found = groups([self.items[i] for i in rated], dimension)
        return {name: [rated[place] for place in places] for name, places in found.items()}

    def group(self, name: str, members: Sequence[int]) -> GroupAgreement:
        """The figures of the items at these places."""
        ruler, drawing = self.reading.ruler, self.options.drawing
        found = figures(
            self.means.at(members),
            self.labels.at(members),
            ruler.scale,
            good=ruler.good,
            one_scale=ruler.one_scale,
            drawing=drawing,
        )
        among: Mapping[str, Estimate] = {}
        if any(len(r) > 1 for r in self.reading.ratings):
            among = ceiling(self._panel(members), ordered=ruler.ordered, how=self.options.how, drawing=drawing)
        return GroupAgreement(name=name, figures=found, ceiling=among)

    def averages(self, over: Dimension, members: Mapping[str, Sequence[int]]) -> Averages:
        """The correlations of groups, averaged."""
        found: dict[str, Estimate] = {}
        left_out: dict[str, dict[str, str]] = {}
        for name in CORRELATIONS:
            found[name], left_out[name] = self._averaged(name, members)
        among, why = self._among_people(members, set(left_out["spearman"]))
        if among.judged:
            found["rater_vs_others"], left_out["rater_vs_others"] = among, why
        return Averages(over=over, how=self.options.how, groups=len(members), figures=found, left_out=left_out)

    def _averaged(self, name: str, members: Mapping[str, Sequence[int]]) -> tuple[Estimate, dict[str, str]]:
        """All groups are resampled together, since one source image may have edits in each."""
        found: list[float] = []
        rows: list[Floats] = []
        why: dict[str, str] = {}
        used: set[Hashable] = set()
        judged = asked = 0
        for group, places in members.items():
            pair = self.means.at(places)
            asked += pair.asked
            try:
                found.append(correlation(name, pair))
            except Undefined as error:
                why[group] = str(error)
                continue
            judged += int(pair.both.sum())
            used |= {c for c, k in zip(pair.clusters, pair.both, strict=True) if k}
            rows.append(Cells(pair, self._frame).resampled(CORRELATIONS[name], self.options.drawing))
        base = Estimate(value=None, judged=judged, asked=asked, clusters=len(used))
        return self._average(found, rows if len(used) > 1 else [], base), why

    def _among_people(self, members: Mapping[str, Sequence[int]], out: set[str]) -> tuple[Estimate, dict[str, str]]:
        """Each rater with the others, averaged over raters and then over groups, both times in the same way.

        out: groups in which the judge has no correlation; the ceiling is that of the others, so that the two compare.
        """
        found = {
            group: rater_vs_others(self._panel(places), self.options.how, self.options.drawing, self._frame)
            for group, places in members.items()
            if group not in out
        }
        values = [e.value for e, _ in found.values() if e.value is not None]
        rows = [row for e, row in found.values() if e.value is not None and row is not None]
        base = Estimate(
            value=None,
            judged=sum(e.judged for e, _ in found.values()),
            asked=sum(e.asked for e, _ in found.values()),
            clusters=len(self._frame),
        )
        why = {group: found[group][0].why if group in found else "the judge has no correlation there" for group in members}
        return self._average(values, rows, base), {group: reason for group, reason in why.items() if reason}

    def _average(self, found: Sequence[float], rows: Sequence[Floats], base: Estimate) -> Estimate:
        """The average of values, with an interval from their resamples."""
        how, level = self.options.how, self.options.drawing.level
        try:
            inside = interval(aggregate_each(np.stack(rows), how), level=level) if rows else None
            return replace(base, value=aggregate(found, how), interval=inside)
        except Undefined as error:
            return replace(base, why=str(error))

    @property
    def _frame(self) -> tuple[Hashable, ...]:
        """The source images that are drawn."""
        return tuple(dict.fromkeys(self.sources))

    def _panel(self, members: Sequence[int]) -> Panel:
        return Panel.of([self.reading.ratings[i] for i in members], [self.sources[i] for i in members])


# ---- Tables ----------------------------------------------------------------------------------------------------------


def tables(found: MetricAgreement, level: float) -> Iterator[Table]:
    """Yield all tables of one metric."""
    inside = f"{100 * level:g} % interval"
    yield figure_table("figures", "Judge and people", {TITLES[n]: f for n, f in found.all.figures.items()}, level)
    if found.averages is not None:
        yield from _averages(found.averages, inside)
    if found.all.ceiling:
        yield people_table(found.all.ceiling, found.raters, level)
    for dimension, title in DIMENSIONS.items():
        if dimension in found.by:
            two = found.scale is not None and len(found.scale.values) == 2
            yield _by(title, found.by[dimension], _PAIRED if found.rating is not None else _YES_OR_NO if two else None)
    if found.confusion is not None and found.scale is not None:
        yield confusion_table(found.scale, found.confusion.rows, "Labels: people's in rows, the judge's in columns")


def figure_table(name: str, title: str, found: Mapping[str, Figure], level: float) -> Table:
    """Return a table of figures by title: value, interval or why there is none, judged of asked, adjusted value."""
    columns = ("Figure", "Value", f"{100 * level:g} % interval", "Judged", "Adjusted")
    return _table(name, title, columns, [_figure_row(title, figure) for title, figure in found.items()])


def pair_table(found: Sequence[MetricAgreement], level: float) -> Table:
    """Return a table with a line for each metric and what of people's ratings it is held against."""
    rows = [
        Row(
            cells=(
                words(a.criterion, name="criterion"),
                words(a.rating or a.criterion, name="rating"),
                *(
                    estimated(a.all.figures.get(name), digits=4, interval_digits=2, counts=False, name=name, bounds=None)
                    for name in _PAIRED
                ),
                words(f"{figure.judged}/{figure.asked}"),
            )
        )
        for a in found
        for figure in [a.all.figures["spearman"]]
    ]
    head = ("Metric", "People's", *(TITLES[name] for name in _PAIRED), "Judged")
    caption = f"With {100 * level:g} % intervals."
    return numbers("pairs", "Correlations of metrics and ratings", head, rows, fixed=2, caption=caption)


def people_table(found: Mapping[str, Estimate], raters: int, level: float) -> Table:
    """Return a table of people's agreement among themselves: value, interval or why there is none, items."""
    rows = [_figure_row(TITLES[name], figure)[:-1] for name, figure in found.items()]
    columns = ("Figure", "Value", f"{100 * level:g} % interval", "Rated")
    return _table("people", f"People among themselves ({raters} raters)", columns, rows)


def confusion_table(scale: LabelScale, counts: Sequence[Sequence[int]], title: str) -> Table:
    """Return counts by label; equal labels stand out."""
    short = tuple(f"{value:g}" for value in scale.values) if scale.ordered else scale.names
    names = [n if n == name or not scale.ordered else f"{n} {name}" for n, name in zip(short, scale.names, strict=True)]
    rows = [
        Row(cells=(words(name), *(words(str(n), strong=i == j) for j, n in enumerate(counts[i]))))
        for i, name in enumerate(names)
    ]
    return numbers("labels", title, ("", *short, "none"), rows)


def _table(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> Table:
    """A table of words and figures; the third of five columns may hold a reason, which may be broken."""
    return Table(
        name=name,
        title=title,
        columns=tuple(Column(title=c, words=i == 0 or c.endswith("interval")) for i, c in enumerate(columns)),
        rows=tuple(Row(cells=tuple(map(words, row)), dim="undefined" in row) for row in rows),
        fixed=len(columns),
        caption=caption,
    )


def _figure_row(title: str, found: Estimate) -> tuple[str, ...]:
    inside = "" if found.interval is None else f"{found.interval.low:.3f} to {found.interval.high:.3f}"
    adjusted = found.adjusted if isinstance(found, Figure) else None
    return (
        title,
        "undefined" if found.value is None else f"{found.value:z.4f}",
        found.why if found.value is None else inside,
        f"{found.judged}/{found.asked}",
        "" if adjusted is None else f"{adjusted:z.4f}",
    )


def _averages(found: Averages, inside: str) -> Iterator[Table]:
    over = _PLURALS[found.over]
    rows = []
    groups: dict[tuple[str, str], list[str]] = {}
    for name, estimate in found.figures.items():
        missing = found.left_out[name]
        rows.append((*_figure_row(TITLES[name], estimate)[:-1], f"{found.groups - len(missing)} of {found.groups}"))
        for group, why in missing.items():
            groups.setdefault((group, why), []).append(TITLES[name])
    title = f"Average over {over} ({_AVERAGES[found.how]})"
    yield _table("averages", title, ("Figure", "Value", inside, "Judged", over.capitalize()), rows)
    if groups:
        lines = [Row(cells=(words(g), words(", ".join(names)), words(why))) for (g, why), names in groups.items()]
        yield numbers("left-out", "Left out of the averages", ("", "Figures", "Because"), lines, fixed=3)


def side_by_side(found: Sequence[JudgeAgreement]) -> Iterator[Table]:
    """Yield a table for each metric of two labels that several judges have: every judge by edit type, then overall."""
    by_metric: dict[str, list[tuple[str, MetricAgreement]]] = {}
    for one in found:
        for a in one.criteria:
            if "accuracy" in a.all.figures and a.scale is not None and len(a.scale.values) == 2:
                by_metric.setdefault(a.criterion, []).append((one.judge or "", a))
    for metric, judges in by_metric.items():
        if len(judges) < 2:
            continue
        groups: dict[str, list[tuple[str, GroupAgreement]]] = {}
        for name, a in judges:
            for group in a.by.get("edit_type", ()):
                groups.setdefault(group.name, []).append((name, group))
        groups["all"] = [(name, a.all) for name, a in judges]
        yield Table(
            name=f"side-by-side-{metric}",
            title=f"{judges[0][1].title}: judges side by side",
            columns=(
                *label_columns("Edit type", "Judge"),
                *(Column(title=TITLES[name].split(",")[0]) for name in ("accuracy", *_YES_OR_NO)),
            ),
            rows=tuple(
                Row(
                    cells=(
                        words(group),
                        words(name),
                        estimated(of.figures["accuracy"], digits=4, interval_digits=2),
                        *(estimated(of.figures[f], digits=4, interval_digits=2, counts=False) for f in _YES_OR_NO),
                    ),
                    strong=group == "all",
                )
                for group, members in groups.items()
                for name, of in members
            ),
            fixed=2,
            caption="Each judge on what it has judged of people's labels (judged/asked), with intervals.",
        )


def _by(title: str, found: Sequence[GroupAgreement], names: Sequence[str] | None = None) -> Table:
    """A row a group. names: of the figures; None for the main ones that there are."""
    brief = list(names or [name for name in _BRIEF if name in found[0].figures][:2])
    share = next((name for name in ("exact", "mae") if name in found[0].figures), None)
    heads = {name: TITLES[name] if name != "weighted_kappa" else "Quadratic κ" for name in brief}
    rows = []
    why: dict[str, list[str]] = {}
    for group in found:
        first = group.figures[brief[0]]
        cells = [_brief(group.figures[name]) for name in brief]
        shared = () if share is None else (Cell(value=group.figures[share].value, digits=2).text,)
        rows.append((group.name, f"{first.judged}/{first.asked}", *cells, *shared))
        for name in brief:
            if reason := group.figures[name].why:
                why.setdefault(f"{heads[name]}: {reason}", []).append(group.name)
    columns = (title, "Judged", *heads.values(), *({"exact": ("Exact",), "mae": ("MAE",)}.get(share or "", ())))
    caption = "\n".join(f"{what} ({', '.join(names)})" for what, names in why.items())
    return _table(f"by-{title.lower().replace(' ', '-')}", f"By {title.lower()}", columns, rows, caption)


def _brief(found: Estimate) -> str:
    """ "0.43 [0.31,0.55]"."""
    inside = "" if found.interval is None else f" [{found.interval.low:.2f},{found.interval.high:.2f}]"
    return "–" if found.value is None else f"{found.value:.2f}{inside}"
