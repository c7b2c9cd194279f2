"""Agreement as a person reads it: tables for terminal and Markdown, and rows for CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.reports.align import Alignment, Averages, Group
from editloupe.reports.sheets import Page, Section, Sheet
from editloupe.stats.bootstrap import Drawing, Estimate
from editloupe.values import Json

FIGURES: Final[Mapping[str, str]] = {
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

_DIMENSIONS: Final = {"edit_type": "Edit type", "area": "Target area", "editor": "Editor"}
_AVERAGES: Final = {"fisher": "Fisher's z", "mean": "plain mean", "tanh-mean": "tanh of the mean"}
_BRIEF: Final = ("spearman", "weighted_kappa", "kappa", "kendall")
_SHORT: Final = {"spearman": "Spearman ρ", "weighted_kappa": "Quadratic κ", "kappa": "Cohen κ", "kendall": "Kendall τ-b"}


@dataclass(frozen=True, kw_only=True)
class Report:
    """One judge's agreement with people.

    judge: who, in words.   people: where the labels are from.   notes: on the tables as a whole.
    """

    judge: str
    people: str
    alignments: tuple[Alignment, ...]
    drawing: Drawing
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "judge": self.judge,
            "people": self.people,
            "bootstrap": self.drawing.to_json(),
            "notes": list(self.notes),
            "criteria": [a.to_json() for a in self.alignments],
        }


def page(report: Report) -> Page:
    """All tables of a report."""
    return Page(
        heading=f"Judge: {report.judge}; people: {report.people}",
        notes=report.notes,
        sections=tuple(
            Section(title=_title(a), notes=a.notes, sheets=tuple(sheets(a, report.drawing))) for a in report.alignments
        ),
        caption=caption(report.drawing),
    )


def csv_text(reports: Sequence[Report]) -> str:
    """One row a figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = "value", "low", "high", "judged", "asked", "clusters", "adjusted", "why"
    writer.writerow(["judge", "criterion", "between", "dimension", "group", "figure", *names])
    for report in reports:
        for alignment in report.alignments:
            for place in _figures(alignment):
                writer.writerow([report.judge, alignment.criterion, *place])
    return text.getvalue()


def sheets(alignment: Alignment, drawing: Drawing) -> Iterator[Sheet]:
    """All tables of one criterion."""
    inside = f"{100 * drawing.level:g} % interval"
    columns = ("Figure", "Value", inside, "Judged", "Adjusted")
    rows = [row(FIGURES[name], f.estimate, f.adjusted) for name, f in alignment.whole.figures.items()]
    yield Sheet(title="Judge and people", columns=columns, rows=tuple(rows))
    if alignment.averages is not None:
        yield from _averages(alignment.averages, columns[:-1])
    if alignment.whole.ceiling:
        title = f"People among themselves ({alignment.raters} raters)"
        among = [row(FIGURES[name], e)[:-1] for name, e in alignment.whole.ceiling.items()]
        yield Sheet(title=title, columns=("Figure", "Value", inside, "Rated"), rows=tuple(among))
    for dimension, groups in alignment.by.items():
        yield _by(_DIMENSIONS[dimension], groups)
    if alignment.confusion is not None and alignment.scale is not None:
        scale = alignment.scale
        numbers = tuple(f"{value:g}" for value in scale.values) if scale.ordered else scale.names
        names = [
            n if n == name or not scale.ordered else f"{n} {name}" for n, name in zip(numbers, scale.names, strict=True)
        ]
        yield Sheet(
            title="Labels: people's in rows, the judge's in columns",
            columns=("", *numbers, "none"),
            rows=tuple((name, *map(str, row)) for name, row in zip(names, alignment.confusion, strict=True)),
            strong=frozenset((i, i + 1) for i in range(len(names))),
        )


def _averages(averages: Averages, columns: tuple[str, ...]) -> Iterator[Sheet]:
    rows = []
    for name, estimate in averages.figures.items():
        missing = averages.left_out[name]
        used = averages.groups - len(missing)
        rows.append((*row(FIGURES[name], estimate)[:-1], f"{used} of {averages.groups}"))
    over = {"editor": "editors", "edit_type": "edit types", "area": "target areas"}[averages.over]
    yield Sheet(
        title=f"Average over {over} ({_AVERAGES[averages.how]})",
        columns=(*columns, over.capitalize()),
        rows=tuple(rows),
    )
    groups: dict[tuple[str, str], list[str]] = {}
    for name, missing in averages.left_out.items():
        for group, why in missing.items():
            groups.setdefault((group, why), []).append(FIGURES[name])
    if groups:
        told = [(group, ", ".join(names), why) for (group, why), names in groups.items()]
        yield Sheet(title="Left out of the averages", columns=("", "Figures", "Because"), rows=tuple(told), words=(0, 1, 2))


def _by(title: str, groups: Sequence[Group]) -> Sheet:
    brief = [name for name in _BRIEF if name in groups[0].figures][:2]
    share = "exact" if "exact" in groups[0].figures else "mae"
    rows = []
    for group in groups:
        first = group.figures[brief[0]].estimate
        cells = [brief_of(group.figures[name].estimate) for name in brief]
        rows.append((group.name, f"{first.judged}/{first.asked}", *cells, _number(group.figures[share].estimate.value)))
    columns = (title, "Judged", *(_SHORT[name] for name in brief), "Exact" if share == "exact" else "MAE")
    why: dict[str, list[str]] = {}
    for group in groups:
        for name in brief:
            if group.figures[name].estimate.why:
                why.setdefault(f"{_SHORT[name]}: {group.figures[name].estimate.why}", []).append(group.name)
    note = "\n".join(f"{what} ({', '.join(names)})" for what, names in why.items())
    return Sheet(title=f"By {title.lower()}", columns=columns, rows=tuple(rows), note=note)


def row(name: str, estimate: Estimate, adjusted: float | None = None) -> tuple[str, ...]:
    """A figure's name, value, interval or why there is no value, judged of asked, adjusted value."""
    inside = "" if estimate.interval is None else f"{estimate.interval.low:.3f} to {estimate.interval.high:.3f}"
    value = "undefined" if estimate.value is None else f"{estimate.value:z.4f}"
    return (
        name,
        value,
        estimate.why if estimate.value is None else inside,
        f"{estimate.judged}/{estimate.asked}",
        "" if adjusted is None else f"{adjusted:z.4f}",
    )


def brief_of(estimate: Estimate) -> str:
    """ "0.43 [0.31,0.55]"."""
    inside = estimate.interval
    return _number(estimate.value) + ("" if inside is None else f" [{inside.low:.2f},{inside.high:.2f}]")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _figures(alignment: Alignment) -> Iterator[list[str | float | int | None]]:
    def told(e: Estimate, adjusted: float | None = None) -> list[str | float | int | None]:
        low, high = (None, None) if e.interval is None else (e.interval.low, e.interval.high)
        return [e.value, low, high, e.judged, e.asked, e.clusters, adjusted, e.why or None]

    places = [("", alignment.whole), *((dimension, g) for dimension, groups in alignment.by.items() for g in groups)]
    for dimension, group in places:
        for name, figure in group.figures.items():
            yield ["judge and people", dimension, group.name, name, *told(figure.estimate, figure.adjusted)]
        for name, estimate in group.ceiling.items():
            yield ["people", dimension, group.name, name, *told(estimate)]
    if alignment.averages is not None:
        for name, estimate in alignment.averages.figures.items():
            who = "people" if name == "rater_vs_others" else "judge and people"
            average = f"average ({alignment.averages.how})"
            yield [who, alignment.averages.over, average, name, *told(estimate)]


def _title(alignment: Alignment) -> str:
    return f"{alignment.title}: {alignment.raters} rater" + ("" if alignment.raters == 1 else "s")


def caption(drawing: Drawing) -> str:
    return (
        "Judged: items with a score, of those with a human label. Adjusted: the same with the unjudged against the judge. "
        f"Intervals: bootstrap over source images, {drawing.resamples} resamples, seed {drawing.seed}."
    )
