"""Agreement with people, and of people among themselves, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from editloupe.figures.columns import DIMENSIONS
from editloupe.figures.people import Averages, GroupAgreement, MetricAgreement
from editloupe.stats.agreement import LabelScale
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.table import Cell, Column, Row, Table, estimated, numbers, words
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
    title = f"{found.title}: {who}, {found.named_raters}"
    if found.judge:
        yield _figures(f"figures-{found.criterion}", title, found, "figures", level)
    if found.averages is not None:
        yield from _averages(found, found.averages, level)
    if found.all.ceiling:
        among = f"{found.title}: people among themselves, {found.named_raters}"
        yield _figures(f"people-{found.criterion}", among, found, "ceiling", level)
    for dimension in DIMENSIONS:
        if dimension in found.by:
            yield _by(found, DIMENSIONS[dimension], found.by[dimension])
    if found.judge and found.scale is not None:
        yield confusion_table(
            found.scale, found.confusion, f"{found.title}: people's labels in rows, {found.judge}'s in columns"
        )


def alphas_table(found: Sequence[MetricAgreement]) -> Table:
    """Return Krippendorff's alpha of people among themselves by edit type, a column a metric; DLEBench's Table 2."""
    heads, rows, gaps = dict[str, str](), list[Row](), dict[tuple[str, str], list[str]]()
    for one in found:
        name = "alpha_ordinal" if "alpha_ordinal" in one.all.ceiling else "alpha_nominal"
        heads[one.criterion] = f"{one.short}, α {name.removeprefix('alpha_')}"
    types = list(dict.fromkeys(group.name for one in found for group in one.by.get("edit_type", ())))
    for kind in (*types, "Overall"):
        cells = []
        for one in found:
            group = next((g for g in one.by.get("edit_type", ()) if g.name == kind), one.all if kind == "Overall" else None)
            alpha = None if group is None else group.ceiling.get("alpha_ordinal") or group.ceiling["alpha_nominal"]
            if alpha is not None and alpha.why:
                gaps.setdefault((alpha.why, heads[one.criterion]), []).append(kind)
            cells.append(estimated(alpha, interval_digits=2))
        rows.append(Row(cells=(words(kind, strong=kind == "Overall"), *cells), keys={"edit_type": kind}))
    whys = [f"{head}: {why} ({', '.join(kinds)})" for (why, head), kinds in gaps.items()]
    caption = "\n".join(["In brackets: items that two people or more rated, of those that anyone rated.", *whys])
    return numbers("raters", "Krippendorff's α by edit type", ("Edit type", *heads.values()), rows, caption=caption)


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
    return numbers("metrics-and-ratings", "Correlations of metrics and ratings", head, rows, fixed=2, caption=caption)


def confusion_table(scale: LabelScale, counts: Sequence[Sequence[int]], title: str) -> Table:
    """Return counts by label; equal labels stand out."""
    short = tuple(f"{value:g}" for value in scale.values) if scale.ordered else scale.names
    names = [n if n == name or not scale.ordered else f"{n} {name}" for n, name in zip(short, scale.names, strict=True)]
    rows = [
        Row(cells=(words(name), *(words(str(n), strong=i == j) for j, n in enumerate(counts[i]))), records=())
        for i, name in enumerate(names)
    ]
    return numbers("labels", title, ("", *short, "none"), rows)


def figure_record(found: Estimate) -> dict[str, Json]:
    """Return a figure's fields in a line of a file."""
    counts: dict[str, Json] = {"judged": found.judged, "asked": found.asked, "clusters": found.clusters}
    ends: dict[str, Json] = {"value": found.value, "low": found.low, "high": found.high}
    return {**ends, **counts, "adjusted": found.adjusted, "why": found.why or None}


def _figures(name: str, title: str, found: MetricAgreement, which: str, level: float) -> Table:
    """A row a figure: value, interval or why there is none, judged of asked, adjusted value. Files have those of groups."""
    columns = ("Figure", "Value", f"{100 * level:g} % interval", "Judged", "Adjusted")[: 5 if which == "figures" else 4]
    rows = []
    for figure, estimate in getattr(found.all, which).items():
        groups = [("", found.all), *((dimension, group) for dimension, some in found.by.items() for group in some)]
        records: list[dict[str, Json]] = [
            {
                "judge": found.judge,
                "criterion": found.criterion,
                **({"rating": found.rating} if found.rating else {}),
                "between": "judge and people" if which == "figures" else "people",
                "dimension": dimension,
                "group": group.name,
                "figure": figure,
                **figure_record(getattr(group, which)[figure]),
            }
            for dimension, group in groups
            if figure in getattr(group, which)
        ]
        rows.append(_figure_row(TITLES[figure], estimate, len(columns), records))
    return _table(name, title, columns, rows, caption="\n".join(found.notes))


def _figure_row(title: str, found: Estimate, columns: int, records: Sequence[Mapping[str, Json]] = ()) -> Row:
    inside = "" if found.low is None else f"{found.low:.3f} to {found.high:.3f}"
    texts = (
        title,
        "undefined" if found.value is None else f"{found.value:z.4f}",
        found.why if found.value is None else inside,
        f"{found.judged}/{found.asked}",
        "" if found.adjusted is None else f"{found.adjusted:z.4f}",
    )
    return Row(cells=tuple(map(words, texts[:columns])), records=tuple(records), dim=found.value is None)


def _table(name: str, title: str, columns: Sequence[str], rows: Sequence[Row], caption: str = "") -> Table:
    """A table of words and figures; a column of intervals may hold a reason, which may be broken."""
    return Table(
        name=name.replace("_", "-"),
        title=title,
        columns=tuple(Column(title=c, words=i == 0 or c.endswith("interval")) for i, c in enumerate(columns)),
        rows=tuple(rows),
        fixed=len(columns),
        caption=caption,
    )


def _averages(found: MetricAgreement, averages: Averages, level: float) -> Iterator[Table]:
    over = _PLURALS[averages.over]
    rows = []
    groups: dict[tuple[str, str], list[str]] = {}
    for name, estimate in averages.figures.items():
        missing = averages.left_out[name]
        record: dict[str, Json] = {"judge": found.judge, "criterion": found.criterion, "figure": name}
        record["dimension"] = averages.over
        record |= {"group": f"average ({averages.how})", **figure_record(estimate)}
        row = _figure_row(TITLES[name], estimate, 4, [record])
        shown = words(f"{averages.groups - len(missing)} of {averages.groups}")
        rows.append(Row(cells=(*row.cells, shown), records=row.records, dim=row.dim))
        for group, why in missing.items():
            groups.setdefault((group, why), []).append(TITLES[name])
    title = f"{found.title}: average over {over} ({_AVERAGES[averages.how]})"
    columns = ("Figure", "Value", f"{100 * level:g} % interval", "Judged", over.capitalize())
    yield _table(f"averages-{found.criterion}", title, columns, rows)
    if groups:
        lines = [Row(cells=(words(g), words(", ".join(names)), words(why))) for (g, why), names in groups.items()]
        yield numbers("left-out", "Left out of the averages", ("", "Figures", "Because"), lines, fixed=3)


def _by(found: MetricAgreement, title: str, some: Sequence[GroupAgreement]) -> Table:
    """A row a group: the main figures that there are, and why some have no value."""
    which, names = "figures", tuple(name for name in _BRIEF if name in found.all.figures)[:2]
    if not found.judge:
        which, names = "ceiling", tuple(found.all.ceiling)
    elif found.rating is not None:
        names = _PAIRED
    elif found.scale is not None and len(found.scale.values) == 2:
        names = tuple(name for name in _YES_OR_NO if name in found.all.figures)
    share = next((name for name in ("exact", "mae") if name in found.all.figures), None)
    names = (*names, *([share] if share and share not in names else []))
    rows, why = [], dict[str, list[str]]()
    for group in some:
        own: Mapping[str, Estimate] = getattr(group, which)
        first = own[names[0]]
        cells = [estimated(own[name], interval_digits=2, counts=False) for name in names]
        rows.append(Row(cells=(words(group.name), Cell(value=f"{first.judged}/{first.asked}"), *cells), records=()))
        for name in names:
            if reason := own[name].why:
                why.setdefault(f"{TITLES[name]}: {reason}", []).append(group.name)
    return numbers(
        f"{found.criterion}-by-{title}".lower().replace(" ", "-").replace("_", "-"),
        f"{found.title}{f': {found.judge} and people' if found.judge else ': people among themselves'}, by {title.lower()}",
        (title, "Judged" if found.judge else "Rated", *(TITLES[name] for name in names)),
        rows,
        caption="\n".join(f"{what} ({', '.join(groups)})" for what, groups in why.items()),
    )
