"""A judge's scores beside people's ratings: joined by item, and every figure of agreement, overall and by group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from editloupe.imaging.targets import AREAS, area_name
from editloupe.reports.ratings import Key
from editloupe.reports.scales import Reading
from editloupe.scores import Metric
from editloupe.stats.agreement import (
    Cells,
    Figure,
    Paired,
    Scale,
    confusion,
    correlation,
    correlations,
    errors,
    good_figures,
    label_figures,
)
from editloupe.stats.bootstrap import (
    DRAWING,
    Aggregate,
    Drawing,
    Estimate,
    Floats,
    Undefined,
    aggregate,
    aggregate_each,
    interval,
)
from editloupe.stats.raters import Panel, ceiling, rater_vs_others
from editloupe.stats.weighted import CORRELATIONS
from editloupe.values import Json

Dimension: TypeAlias = Literal["editor", "edit_type", "area"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One edit.

    source: what shares an image shares it.   area: of the targets, 0..1 of the image.
    scores: the judge's, by criterion; None where it was asked and has none.   ratings: criterion → rater → rating.
    """

    key: Key
    source: Hashable
    edit_type: str | None = None
    area: float | None = None
    scores: Mapping[str, float | str | None] = field(default_factory=dict)
    ratings: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Options:
    """how: average of groups' correlations.   over: the groups; None for none.   good: from which label on is good."""

    how: Aggregate = "fisher"
    over: Dimension | None = None
    good: str | None = None
    drawing: Drawing = DRAWING


@dataclass(frozen=True, kw_only=True)
class Group:
    """The figures of some of the items.

    figures: judge and people.   ceiling: people among themselves; empty where nobody shares an item.
    """

    name: str
    figures: Mapping[str, Figure]
    ceiling: Mapping[str, Estimate]

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "figures": {name: figure.to_json() for name, figure in self.figures.items()},
            "ceiling": {name: estimate.to_json() for name, estimate in self.ceiling.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Averages:
    """Correlations of groups, averaged.

    figures: by name, with rater_vs_others for the people.   groups: how many there are.
    left_out: figure → group → why it has none.
    """

    over: Dimension
    how: Aggregate
    groups: int
    figures: Mapping[str, Estimate]
    left_out: Mapping[str, Mapping[str, str]]

    def to_json(self) -> dict[str, Json]:
        return {
            "over": self.over,
            "how": self.how,
            "groups": self.groups,
            "figures": {name: estimate.to_json() for name, estimate in self.figures.items()},
            "left_out": {name: dict(groups) for name, groups in self.left_out.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """One criterion.

    by: dimension → groups.   confusion: as `agreement.confusion`; None without a closed set of labels.
    raters: how many there are.   notes: what was left out, and why.
    """

    criterion: str
    title: str
    scale: Scale | None
    whole: Group
    by: Mapping[str, tuple[Group, ...]]
    averages: Averages | None
    confusion: tuple[tuple[int, ...], ...] | None
    raters: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Json]:
        labels = None if self.scale is None else [*self.scale.names, None]
        return {
            "criterion": self.criterion,
            "title": self.title,
            "raters": self.raters,
            "all": self.whole.to_json(),
            "by": {dimension: [group.to_json() for group in groups] for dimension, groups in self.by.items()},
            "averages": None if self.averages is None else self.averages.to_json(),
            "confusion": None if self.confusion is None else {"columns": labels, "rows": [list(r) for r in self.confusion]},
            "notes": list(self.notes),
        }


def align(entries: Sequence[Entry], criterion: Metric | str, options: Options | None = None) -> Alignment:
    """Everything that can be said of one criterion.

    criterion: of a rubric, whose labels and values then bind both sides; or a name, and the scale is what the values show:
    text is compared by equality only, numbers are labels too where few different ones occur.
    With several raters, correlations and errors take people's mean, figures on labels their most frequent label; an item
    without one (a draw) counts as not labelled there. Raises ConfigError for an `options.good` that is no label.
    """
    options = options or Options()
    name = criterion if isinstance(criterion, str) else criterion.id
    reading = Reading(
        [entry.scores.get(name) for entry in entries],
        [entry.ratings.get(name, {}) for entry in entries],
        criterion,
        options.good,
    )
    frames = _Frames(entries, reading, options)
    whole = frames.group("all", list(range(len(entries))))
    by = {
        dimension: tuple(frames.group(group, members) for group, members in groups.items())
        for dimension in ("edit_type", "area", "editor")
        if len(groups := _members(entries, reading, dimension)) > 1
    }
    averages = None
    if options.over is not None and reading.ordered:
        averages = frames.averages(options.over, _members(entries, reading, options.over))
    raters = len({rater for ratings in reading.ratings for rater in ratings})
    apart = (
        [f"{name}: {raters} raters share no item, so that there is no ceiling"] if raters > 1 and not whole.ceiling else []
    )
    return Alignment(
        criterion=name,
        title=criterion if isinstance(criterion, str) else criterion.name,
        scale=reading.scale,
        whole=whole,
        by=by,
        averages=averages,
        confusion=None if reading.scale is None else tuple(map(tuple, confusion(frames.labels, reading.scale))),
        raters=raters,
        notes=(*reading.notes, *apart),
    )


class _Frames:
    """The two readings as arrays, cut into groups."""

    def __init__(self, entries: Sequence[Entry], reading: Reading, options: Options) -> None:
        self.reading, self.options = reading, options
        self.sources = [entry.source for entry in entries]
        self.means = Paired.of(reading.scores, reading.means, self.sources)
        known = set() if reading.scale is None else set(reading.scale.values)
        on_scale = [s if s in known else None for s in reading.scores]
        self.labels = Paired.of(on_scale, reading.labels, self.sources)

    def group(self, name: str, members: Sequence[int]) -> Group:
        drawing = self.options.drawing
        keep = self._mask(members)
        figures: dict[str, Figure] = {}
        scale = self.reading.scale
        if self.reading.ordered:
            figures |= correlations(self.means.where(keep), drawing)
            figures |= errors(self.means.where(keep), drawing)
        if scale is not None:
            figures |= label_figures(self.labels.where(keep), scale, drawing)
        if self.reading.good is not None:
            readings = self.means if scale is None else self.labels
            figures |= good_figures(readings.where(keep), self.reading.good, drawing)
        panel = self._panel(members)
        among: Mapping[str, Estimate] = {}
        if any(len(r) > 1 for r in self.reading.ratings):
            among = ceiling(panel, ordered=self.reading.ordered, how=self.options.how, drawing=drawing)
        return Group(name=name, figures=figures, ceiling=among)

    def averages(self, over: Dimension, groups: Mapping[str, Sequence[int]]) -> Averages:
        figures: dict[str, Estimate] = {}
        left_out: dict[str, dict[str, str]] = {}
        for name in CORRELATIONS:
            figures[name], left_out[name] = self._averaged(name, groups)
        figures["rater_vs_others"], left_out["rater_vs_others"] = self._among_people(groups, set(left_out["spearman"]))
        if not figures["rater_vs_others"].judged:
            del figures["rater_vs_others"], left_out["rater_vs_others"]
        return Averages(over=over, how=self.options.how, groups=len(groups), figures=figures, left_out=left_out)

    def _averaged(self, name: str, groups: Mapping[str, Sequence[int]]) -> tuple[Estimate, dict[str, str]]:
        """All groups are resampled together, since one source image may have edits in each."""
        found: list[float] = []
        rows: list[Floats] = []
        why: dict[str, str] = {}
        used: list[Hashable] = []
        judged = asked = 0
        frame = tuple(dict.fromkeys(self.sources))
        for group, members in groups.items():
            pair = self.means.where(self._mask(members))
            asked += pair.asked
            try:
                found.append(correlation(name, pair))
            except Undefined as error:
                why[group] = str(error)
                continue
            judged += int(pair.both.sum())
            used += [c for c, k in zip(pair.clusters, pair.both, strict=True) if k]
            cells = Cells(pair, frame)
            rows.append(cells.resampled(CORRELATIONS[name], self.options.drawing))
        clusters = len(set(used))
        inside = None
        if clusters > 1:
            inside = interval(aggregate_each(np.stack(rows), self.options.how), level=self.options.drawing.level)
        base = Estimate(value=None, judged=judged, asked=asked, clusters=clusters, interval=inside)
        return _average(found, self.options.how, base), why

    def _among_people(self, groups: Mapping[str, Sequence[int]], out: set[str]) -> tuple[Estimate, dict[str, str]]:
        """Each rater with the others, averaged over raters and then over groups, both times in the same way.

        out: groups in which the judge has no correlation; the ceiling is that of the others, so that the two compare.
        """
        how, drawing = self.options.how, self.options.drawing
        frame = tuple(dict.fromkeys(self.sources))
        found = {
            group: rater_vs_others(self._panel(members), how, drawing, frame)
            for group, members in groups.items()
            if group not in out
        }
        values = [e.value for e, _ in found.values() if e.value is not None]
        rows = [row for e, row in found.values() if e.value is not None and row is not None]
        base = Estimate(
            value=None,
            judged=sum(e.judged for e, _ in found.values()),
            asked=sum(e.asked for e, _ in found.values()),
            clusters=len(frame),
            interval=interval(aggregate_each(np.stack(rows), how), level=drawing.level) if rows else None,
        )
        why = {group: found[group][0].why if group in found else "the judge has no correlation there" for group in groups}
        return _average(values, how, base), {group: reason for group, reason in why.items() if reason}

    def _mask(self, members: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        keep = np.zeros(len(self.sources), dtype=bool)
        keep[list(members)] = True
        return keep

    def _panel(self, members: Sequence[int]) -> Panel:
        return Panel.of([self.reading.ratings[i] for i in members], [self.sources[i] for i in members])


def _average(found: Sequence[float], how: Aggregate, base: Estimate) -> Estimate:
    try:
        return replace(base, value=aggregate(found, how))
    except Undefined as error:
        return replace(base, interval=None, why=str(error))


def _members(entries: Sequence[Entry], reading: Reading, dimension: str) -> dict[str, list[int]]:
    """Group → indices of its items, of those that people rated."""
    found: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        if not reading.ratings[i]:
            continue
        if dimension == "area":
            name = "(no area)" if entry.area is None else area_name(entry.area)
        else:
            name = (entry.key[0] if dimension == "editor" else entry.edit_type) or "(none)"
        found.setdefault(name, []).append(i)
    if dimension == "area":
        if set(found) == {"(no area)"}:
            return {}
        order = [name for _, name in AREAS]
        return dict(sorted(found.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order)))
    return {} if set(found) == {"(none)"} else found
