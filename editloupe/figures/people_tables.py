"""Agreement with people, and of people among themselves, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from editloupe.figures.columns import DIMENSIONS, Dimension
from editloupe.figures.people import Averages, GroupAgreement, MetricAgreement
from editloupe.stats.agreement import LabelScale
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.table import Cell, Column, Row, Table, estimated, listed, numbers, words
from editloupe.values import Json

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
_YES_OR_NO: Final = ("accuracy", "kappa", "f1", "pearson")
"""Shown by group where there are two labels."""
_PAIRED: Final = ("pearson", "spearman", "kendall")
"""Shown of a metric and ratings on a scale of their own."""
_PLURALS: Final = {"editor": "editors", "edit_type": "edit types", "area": "target areas"}


def agreement_tables(found: MetricAgreement, level: float) -> Iterator[Table]:
    """Yield all tables of one metric."""
    who = f"{found.judge} and people" if found.judge else "People among themselves"
    if found.judge:
        yield _figures(found, "figures", f"{found.title}: {who}, {found.named_raters}", level)
    if found.averages is not None:
        yield from _averages(found, found.averages, level)
    if found.all.ceiling:
        yield _figures(found, "ceiling", f"{found.title}: people among themselves, {found.named_raters}", level)
    for dimension, groups in found.by.items():
        yield _by(found, dimension, groups, f"{found.title}: {who}, by {DIMENSIONS[dimension].lower()}")
    if found.judge and found.scale is not None:
        title = f"{found.title}: people's labels in rows, {found.judge}'s in columns"
        yield confusion_table(found.scale, found.confusion, title)


def alphas_table(found: Sequence[MetricAgreement]) -> Table:
    """Return Krippendorff's alpha of people among themselves by edit type, a column a metric; DLEBench's Table 2."""
    gaps: dict[tuple[str, str], list[str]] = {}
    heads = {
        one.criterion: f"{one.short}, α {'ordinal' if 'alpha_ordinal' in one.all.ceiling else 'nominal'}" for one in found
    }

    def cell(one: MetricAgreement, kind: str) -> Cell:
        group = next((g for g in one.by.get("edit_type", ()) if g.name == kind), one.all if kind == "Overall" else None)
        alpha = None if group is None else group.ceiling.get("alpha_ordinal") or group.ceiling["alpha_nominal"]
        if alpha is not None and alpha.why:
            gaps.setdefault((alpha.why, heads[one.criterion]), []).append(kind)
        return estimated(alpha, interval_digits=2)

    types = list(dict.fromkeys(group.name for one in found for group in one.by.get("edit_type", ())))
    rows = [
        Row(cells=(words(kind, strong=kind == "Overall"), *(cell(one, kind) for one in found)), keys={"edit_type": kind})
        for kind in (*types, "Overall")
    ]
    whys = [f"{head}: {why} ({', '.join(kinds)})" for (why, head), kinds in gaps.items()]
    caption = "\n".join(["In brackets: items that two people or more rated, of those that anyone rated.", *whys])
    return numbers("raters", "Krippendorff's α by edit type", ("Edit type", *heads.values()), rows, caption=caption)


def confusion_table(scale: LabelScale, counts: Sequence[Sequence[int]], title: str) -> Table:
    """Return counts by label; equal labels stand out."""
    short = tuple(f"{value:g}" for value in scale.values) if scale.ordered else scale.names
    names = [n if n == name or not scale.ordered else f"{n} {name}" for n, name in zip(short, scale.names, strict=True)]

    def count(column: int, row: int) -> Cell:
        return words(str(counts[row][column]), strong=row == column)

    columns: dict[str, Callable[[int], Cell | str]] = {"": lambda row: names[row]}
    columns |= {head: partial(count, place) for place, head in enumerate((*short, "none"))}
    return listed("labels", title, range(len(names)), columns)


def _figures(found: MetricAgreement, which: str, title: str, level: float) -> Table:
    """A row a figure: value, interval or why there is none, judged of asked, adjusted value. Files have those of groups."""
    judged = which == "figures"
    groups = [("", found.all), *((dimension, group) for dimension, some in found.by.items() for group in some)]
    rows = []
    for figure, estimate in getattr(found.all, which).items():
        keys: dict[str, Json] = {"judge": found.judge, "criterion": found.criterion}
        keys |= {"rating": found.rating} if found.rating else {}
        keys |= {"between": "judge and people" if judged else "people"}
        records = [
            {**keys, "dimension": dimension, "group": group.name, "figure": figure, **_record(own[figure])}
            for dimension, group in groups
            if figure in (own := getattr(group, which))
        ]
        adjusted = ["" if estimate.adjusted is None else f"{estimate.adjusted:z.4f}"] if judged else []
        rows.append(_row(TITLES[figure], estimate, adjusted, records))
    name = f"{'figures' if judged else 'people'}-{found.criterion}"
    return _table(name, title, level, ["Adjusted"] if judged else [], rows, "\n".join(found.notes))


def _averages(found: MetricAgreement, averages: Averages, level: float) -> Iterator[Table]:
    over = _PLURALS[averages.over]
    rows, groups = [], dict[tuple[str, str], list[str]]()
    for name, estimate in averages.figures.items():
        missing = averages.left_out[name]
        record: dict[str, Json] = {"judge": found.judge, "criterion": found.criterion, "figure": name}
        record |= {"dimension": averages.over, "group": f"average ({averages.how})", **_record(estimate)}
        rows.append(_row(TITLES[name], estimate, [f"{averages.groups - len(missing)} of {averages.groups}"], [record]))
        for group, why in missing.items():
            groups.setdefault((group, why), []).append(TITLES[name])
    title = f"{found.title}: average over {over} ({_AVERAGES[averages.how]})"
    out = [f"Left out: {group}, {', '.join(names)} ({why})." for (group, why), names in groups.items()]
    yield _table(f"averages-{found.criterion}", title, level, [over.capitalize()], rows, "\n".join(out))


def _row(title: str, found: Estimate, more: Iterable[str], records: Iterable[Mapping[str, Json]]) -> Row:
    inside = "" if found.low is None else f"{found.low:.3f} to {found.high:.3f}"
    value, rest = ("undefined", found.why) if found.value is None else (f"{found.value:z.4f}", inside)
    texts = (title, value, rest, f"{found.judged}/{found.asked}", *more)
    return Row(cells=tuple(map(words, texts)), records=tuple(records), dim=found.value is None)


def _record(found: Estimate) -> dict[str, Json]:
    """A figure's fields in a line of a file."""
    names = ("value", "low", "high", "judged", "asked", "clusters", "adjusted")
    return {**{name: getattr(found, name) for name in names}, "why": found.why or None}


def _table(name: str, title: str, level: float, more: Sequence[str], rows: Iterable[Row], caption: str) -> Table:
    """A table of words and figures; the column of intervals may hold a reason, which may be broken."""
    head = ("Figure", "Value", f"{100 * level:g} % interval", "Judged", *more)
    columns = tuple(Column(title=c, words=i in (0, 2)) for i, c in enumerate(head))
    name = name.replace("_", "-")
    return Table(name=name, title=title, columns=columns, rows=tuple(rows), fixed=len(head), caption=caption)


def _by(found: MetricAgreement, dimension: Dimension, some: Sequence[GroupAgreement], title: str) -> Table:
    """A row a group: the main figures that there are, and why some have no value."""
    which, names = "figures", tuple(name for name in _BRIEF if name in found.all.figures)[:2]
    if not found.judge:
        which, names = "ceiling", tuple(found.all.ceiling)
    elif found.rating is not None:
        names = _PAIRED
    elif found.scale is not None and len(found.scale.values) == 2:
        names = tuple(name for name in _YES_OR_NO if name in found.all.figures)
    names = (*names, *[name for name in ("exact", "mae") if name in found.all.figures and name not in names][:1])
    why: dict[str, list[str]] = {}
    for group in some:
        for name in names:
            if reason := getattr(group, which)[name].why:
                why.setdefault(f"{TITLES[name]}: {reason}", []).append(group.name)

    def counts(group: GroupAgreement) -> str:
        first: Estimate = getattr(group, which)[names[0]]
        return f"{first.judged}/{first.asked}"

    def figure(name: str, group: GroupAgreement) -> Cell:
        return estimated(getattr(group, which)[name], interval_digits=2, counts=False)

    head = DIMENSIONS[dimension]
    columns: dict[str, Callable[[GroupAgreement], Cell | str]] = {head: lambda group: group.name}
    columns |= {"Judged" if found.judge else "Rated": counts, **{TITLES[name]: partial(figure, name) for name in names}}
    name = f"{found.criterion}-by-{head}".lower().replace(" ", "-").replace("_", "-")
    caption = "\n".join(f"{what} ({', '.join(groups)})" for what, groups in why.items())
    return listed(name, title, some, columns, caption=caption)
