"""A comparison as tables, plots of who agrees with whom, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from editloupe.figures import render
from editloupe.figures.columns import DIMENSIONS, Dimension
from editloupe.figures.compare import Comparison, Cost, Disagreement, JudgePair, JudgeSummary
from editloupe.figures.escape import safe
from editloupe.figures.people import Averages, GroupAgreement, MetricAgreement, RightMoreOften
from editloupe.figures.write import table_files, write_files
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.significance import Significance
from editloupe.stats.table import NONE, Cell, Column, HeatPlot, Row, Table, estimated, listed, words
from editloupe.values import Json

TITLES: Final[Mapping[str, tuple[str, str]]] = {
    "exact": ("Exact match", "Exact"),
    "kappa": ("Cohen κ", "Cohen κ"),
    "weighted_kappa": ("Cohen κ, quadratic", "Quadratic κ"),
    "alpha_nominal": ("Krippendorff α, nominal", "α, nominal"),
    "alpha_ordinal": ("Krippendorff α, ordinal", "α, ordinal"),
    "alpha_interval": ("Krippendorff α, interval", "α, interval"),
    "spearman": ("Spearman ρ", "Spearman ρ"),
    "pearson": ("Pearson r", "Pearson r"),
    "kendall": ("Kendall τ-b", "Kendall τ-b"),
    "mae": ("Mean absolute error", "MAE"),
    "bias": ("Mean difference", "Leniency"),
    "accuracy": ("Accuracy, good or not", "Accuracy"),
    "f1": ("F1 of good", "F1"),
    "fleiss_kappa": ("Fleiss κ", "Fleiss κ"),
    "rater_vs_others": ("Rater vs. others, ρ", "Rater vs. others"),
}
"""Figure → (name, name of a column)."""
_HUMAN: Final = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman", "mae", "bias")
_SHOWN: Final = 12
_BEST: Final = {
    "weighted_kappa": "quadratic κ of the labels",
    "kappa": "Cohen's κ of the answers",
    "spearman": "Spearman's ρ of the values",
}
"""The figure that says most of a metric's agreement: of ordered labels, of names, or of numbers."""


def tables(found: Comparison, *, whole: bool = True) -> Iterator[Table]:
    """Yield the tables, those that a reader needs first at the front.

    whole: also labels of each two judges, and all that can be said of each judge beside people.
    """
    if found.summaries:
        yield standing_table(found.summaries, {metric: short for metric, (_, short) in found.titles.items()})
    if found.pairs:
        yield _pairs(found)
    if found.human_agreement:
        yield _human(found)
    if tests := [(one, other, test) for one in found.human_agreement for other, test in one.versus.items()]:
        yield _versus(found, tests)
    if found.raters:
        yield alphas_table(found.raters)
    if found.costs:
        yield _costs(found)
    for pair in found.pairs:
        if pair.labels and (whole or len(found.judges) == 2):
            short, first, second = found.titles[pair.criterion][1], _number(found, pair.first), _number(found, pair.second)
            title = f"{short} labels: {pair.second} in rows, {pair.first} in columns"
            yield _confusion(f"labels-{short}-{first}-{second}", pair.labels, pair.confusion, title)
    if whole or not found.pairs:
        for one in found.human_agreement or found.raters:
            yield from _agreement(one, found.bootstrap.level)
    if found.disagreements:
        yield _disagreements(found, len(found.disagreements) if whole else _SHOWN)


def write_comparison(found: Comparison, folder: Path) -> list[Path]:
    """Write compare.md, compare.json, a CSV a table and an SVG a plot. Raises StorageError."""
    whole = [("compare.md", markdown(found)), ("compare.json", render.json_text(found.to_json()))]
    return write_files([*whole, *table_files(tables(found))], folder)


def markdown(found: Comparison) -> str:
    """Return all tables as one document."""
    notes = [f"> {safe(note)}\n" for note in found.notes]
    return "\n".join(["# Judges compared\n", *notes, *(render.markdown(table) for table in tables(found))])


def standing_table(found: Sequence[JudgeSummary], shorts: Mapping[str, str]) -> Table:
    """Return each judge's means, on its own coverage and on what all judged.   shorts: metric → short name."""
    return listed(
        "judges",
        "Judges side by side",
        found,
        {
            "Judge": lambda s: s.judge,
            "": lambda s: shorts[s.criterion],
            "Mean": lambda s: estimated(s.mean, digits=1),
            "Mean, all judged": lambda s: _figure(s.common, "common", digits=1, counts=True),
            "Entropy": lambda s: Cell(value=s.label_entropy_bits, name="label_entropy_bits", digits=2),
            "Not judged": lambda s: words(", ".join(f"{k} {n}" for k, n in s.statuses.items()) or NONE, name="statuses"),
        },
        keys=lambda s: {"judge": s.judge, "criterion": s.criterion},
        fixed=2,
        caption="Means 0 to 100 with 95 % intervals (judged/asked): each judge's own, and on the samples that every judge "
        "with any verdict could judge. Entropy of its labels in bits: 0 where it always says the same.",
    )


def _pairs(found: Comparison) -> Table:
    names = [n for n in TITLES if n != "bias" and any(n in pair.figures for pair in found.pairs)]
    table = listed(
        "pairs",
        "Pairs of judges",
        found.pairs,
        {
            "First / second": lambda p: f"{_number(found, p.first)} / {_number(found, p.second)}",
            "": lambda p: found.titles[p.criterion][1],
            "n": lambda p: Cell(value=p.common, name="common"),
            **{TITLES[n][1]: partial(_of, n) for n in names},
            "First − second": lambda p: _figure(p.difference, "difference", digits=1, signed=True),
            "p": lambda p: _p(p.test),
        },
        keys=lambda p: {"first": p.first, "second": p.second, "criterion": p.criterion},
        fixed=2,
        at_once=8,
        caption="On the samples that both judged, with 95 % intervals. First − second: mean difference of scores 0 to 100, "
        "positive where the first is the more lenient; p: Wilcoxon's signed-rank test of the differences of source "
        f"images, corrected by Holm for all rows.{_whys(p.test for p in found.pairs)}",
    )
    return replace(table, plots=tuple(_heat(found, metric) for metric in {p.criterion: None for p in found.pairs}))


def _heat(found: Comparison, metric: str) -> HeatPlot:
    """Who agrees with whom, as a picture: 0 to 100 stands for agreement of 0 to 1, and below 0 as 0."""
    own = [pair for pair in found.pairs if pair.criterion == metric]
    figure = next(name for name in _BEST if name in own[0].figures)
    cells: dict[tuple[str, str], float | None] = {}
    for pair in own:
        value = pair.figures[figure].value
        cells[pair.first, pair.second] = cells[pair.second, pair.first] = None if value is None else 100 * max(0.0, value)
    return HeatPlot(
        name=f"agreement-{metric.replace('_', '-')}",
        title=f"{found.titles[metric][0]}: who agrees with whom, {_BEST[figure]} × 100",
        names=tuple(judge.name for judge in found.judges),
        cells=cells,
    )


def _human(found: Comparison) -> Table:
    rated = any(one.rating for one in found.human_agreement)
    wanted = ("pearson", "spearman", "kendall") if rated else _HUMAN
    names = [n for n in wanted if any(n in one.all.figures for one in found.human_agreement)]
    return listed(
        "people",
        f"{'Correlations of metrics and ratings' if rated else 'Judges and people'} ({found.human})",
        found.human_agreement,
        {
            "Judge": lambda one: one.judge or "",
            "": lambda one: one.short if one.rating is None else f"{one.short} and {one.rating}",
            "Judged": lambda one: _counts(next(iter(one.all.figures.values()))),
            **{TITLES[n][1]: partial(_of, n) for n in names},
        },
        keys=_keys,
        fixed=2,
        at_once=9,
        caption="On the samples with a human label. MAE and leniency (mean judge − people) in the metric's unit. With "
        "--full each judge's figures by edit type and editor, beside what people reach among themselves.",
    )


def _versus(found: Comparison, tests: Sequence[tuple[MetricAgreement, str, RightMoreOften]]) -> Table:
    return listed(
        "people-versus",
        "Which of two judges is right more often",
        tests,
        {
            "First / second": lambda t: f"{_number(found, t[0].judge or '')} / {_number(found, t[1])}",
            "": lambda t: t[0].short,
            "First alone": lambda t: Cell(value=t[2].right_alone, name="first_right_alone"),
            "Second alone": lambda t: Cell(value=t[2].other_right_alone, name="second_right_alone"),
            "p": lambda t: _p(t[2]),
        },
        keys=lambda t: {"first": t[0].judge, "second": t[1], "criterion": t[0].criterion},
        fixed=2,
        caption="Right: people's label; counts of samples. p: exact sign-flip permutation test, which flips all edits of a "
        "source image together (McNemar's exact test where each has one edit), corrected by Holm for all rows."
        f"{_whys(test for *_, test in tests)}",
    )


def alphas_table(found: Sequence[MetricAgreement]) -> Table:
    """Return Krippendorff's alpha of people among themselves by edit type, a column a metric; DLEBench's Table 2."""

    def cell(one: MetricAgreement, kind: str) -> Cell:
        group = next((g for g in one.by.get("edit_type", ()) if g.name == kind), one.all if kind == "Overall" else None)
        among = {} if group is None else group.ceiling
        return estimated(among.get("alpha_ordinal") or among.get("alpha_nominal"), interval_digits=2, why=True)

    columns: dict[str, Callable[[str], Cell | str]] = {"Edit type": lambda kind: words(kind, strong=kind == "Overall")}
    for one in found:
        level = "ordinal" if "alpha_ordinal" in one.all.ceiling else "nominal"
        columns[f"{one.short}, α {level}"] = partial(cell, one)
    types = dict.fromkeys(group.name for one in found for group in one.by.get("edit_type", ()))
    caption = "In brackets: items that two people or more rated, of those that anyone rated."
    title, keys = "Krippendorff's α by edit type", lambda kind: {"edit_type": kind}
    return listed("raters", title, (*types, "Overall"), columns, keys=keys, caption=caption)


def _costs(found: Comparison) -> Table:
    def tokens(name: str, c: Cost) -> Cell:
        count = getattr(c.usage, name)
        each = NONE if count is None or not c.verdicts else f"{count / c.verdicts:,.0f}"
        return Cell(value=each, name="", more={name: count})

    def dollars(name: str, c: Cost) -> Cell:
        value = getattr(c, name)
        return Cell(value="unknown" if value is None else f"{value:.4g}", name="", more={name: value})

    with_people = any(c.agreeing is not None for c in found.costs)
    columns: dict[str, Callable[[Cost], Cell | str]] = {
        "Judge": lambda c: f"{_number(found, c.judge)} {c.judge}",
        "Verdicts": lambda c: Cell(
            value=c.verdicts, name="verdicts", more={"findings": c.findings, "agreeing": c.agreeing}
        ),
        "Input": partial(tokens, "input_tokens"),
        "Output": partial(tokens, "output_tokens"),
        "of images": partial(tokens, "image_tokens"),
        "USD": partial(dollars, "cost_usd"),
        "USD a verdict": partial(dollars, "cost_a_verdict_usd"),
        **({"USD an agreeing one": partial(dollars, "cost_an_agreeing_verdict_usd")} if with_people else {}),
        "Seconds": lambda c: Cell(value=c.seconds_median, name="seconds_median", digits=2),
        "Turns": lambda c: Cell(value=c.turns_mean, name="turns_mean", digits=1),
    }
    caption = (
        "Tokens a verdict, findings without a label included in what they cost; seconds: median of a finding; turns: mean "
        "with tool calls."
    )
    return listed(
        "costs", "What the verdicts took", found.costs, columns, keys=lambda c: {"judge": c.judge}, caption=caption
    )


def _confusion(name: str, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> Table:
    """Return counts by label; equal labels stand out."""

    def count(column: int, row: int) -> Cell:
        return words(str(counts[row][column]), strong=row == column)

    columns: dict[str, Callable[[int], Cell | str]] = {"": lambda row: labels[row]}
    columns |= {head: partial(count, place) for place, head in enumerate((*labels, "none"))}
    return listed(name, title, range(len(labels)), columns)


def _disagreements(found: Comparison, most: int) -> Table:
    names = list(dict.fromkeys(name for d in found.disagreements for name in d.labels))
    more = len(found.disagreements) - most

    def label(name: str, d: Disagreement) -> Cell:
        return words(d.labels.get(name, NONE), name=f"label of {name}")

    def place(d: Disagreement) -> Cell:
        return words(", ".join(filter(None, (d.sample, f"turn {d.turn}" if d.turn else "", d.part))), name="sample")

    return listed(
        "disagreements",
        f"Where {'judges' if found.judges else 'raters'} disagree, the furthest apart first",
        found.disagreements[:most],
        {
            "Sample": place,
            "": lambda d: found.titles[d.criterion][1],
            "Apart": lambda d: words(f"{d.spread:.4g}", name="spread"),
            **{name: partial(label, name) for name in names},
        },
        keys=lambda d: {"criterion": d.criterion},
        fixed=3,
        caption=f"Apart: 0 to 100, or in the unit of a metric without bounds.{f' … and {more} more.' if more > 0 else ''}",
    )


def _agreement(found: MetricAgreement, level: float) -> Iterator[Table]:
    """Yield all tables of one judge and people, or of people among themselves, on one metric."""
    who = f"{found.judge} and people" if found.judge else "People among themselves"
    if found.judge:
        yield _all_figures(found, "figures", f"{found.title}: {who}, {found.named_raters}", level)
    if found.averages is not None:
        yield _averages(found, found.averages)
    if found.all.ceiling:
        yield _all_figures(found, "ceiling", f"{found.title}: people among themselves, {found.named_raters}", level)
    for dimension, groups in found.by.items():
        yield _by(found, dimension, groups, f"{found.title}: {who}, by {DIMENSIONS[dimension].lower()}")
    if found.judge and found.scale is not None:
        title = f"{found.title}: people's labels in rows, {found.judge}'s in columns"
        yield _confusion("labels", found.scale.names, found.confusion, title)


def _keys(found: MetricAgreement) -> dict[str, Json]:
    return {"judge": found.judge, "criterion": found.criterion, **({"rating": found.rating} if found.rating else {})}


def _all_figures(found: MetricAgreement, which: str, title: str, level: float) -> Table:
    """A row a figure: value, interval or why there is none, judged of asked, adjusted value. Files have those of groups."""
    judged = which == "figures"
    groups = [("", found.all), *((dimension, group) for dimension, some in found.by.items() for group in some)]
    head = ("Figure", "Value", f"{100 * level:g} % interval", "Judged", *(["Adjusted"] if judged else []))
    rows = []
    for figure, one in getattr(found.all, which).items():
        keys: dict[str, Json] = {**_keys(found), "between": "judge and people" if judged else "people"}
        records = [
            {**keys, "dimension": dimension, "group": group.name, "figure": figure, **own[figure].to_json()}
            for dimension, group in groups
            if figure in (own := getattr(group, which))
        ]
        inside = "" if one.low is None else f"{one.low:.3f} to {one.high:.3f}"
        value, rest = ("undefined", one.why) if one.value is None else (f"{one.value:z.4f}", inside)
        adjusted = ["" if one.adjusted is None else f"{one.adjusted:z.4f}"] if judged else []
        texts = (TITLES[figure][0], value, rest, f"{one.judged}/{one.asked}", *adjusted)
        rows.append(Row(cells=tuple(map(words, texts)), records=tuple(records), dim=one.value is None))
    return Table(
        name=f"{'figures' if judged else 'people'}-{found.criterion}".replace("_", "-"),
        title=title,
        # The column of intervals may hold a reason, which may be broken.
        columns=tuple(Column(title=text, words=place in (0, 2)) for place, text in enumerate(head)),
        rows=tuple(rows),
        fixed=len(head),
        caption="\n".join(found.notes),
    )


def _averages(found: MetricAgreement, averages: Averages) -> Table:
    out = {(group, why): None for missing in averages.left_out.values() for group, why in missing.items()}
    return listed(
        f"averages-{found.criterion}".replace("_", "-"),
        f"{found.title}: average over editors ({averages.how})",
        averages.figures.items(),
        {
            "Figure": lambda line: TITLES[line[0]][0],
            "Average": lambda line: estimated(line[1], digits=4, interval_digits=3, name="value", why=True),
            "Editors": lambda line: f"{averages.groups - len(averages.left_out[line[0]])} of {averages.groups}",
        },
        keys=lambda line: {**_keys(found), "dimension": averages.over, "average": averages.how, "figure": line[0]},
        caption=" ".join(f"Left out: {group} ({why})." for group, why in out),
    )


def _by(found: MetricAgreement, dimension: Dimension, some: Sequence[GroupAgreement], title: str) -> Table:
    """A row a group: its main figures, or those of people where there is no judge."""
    which = "figures" if found.judge else "ceiling"
    all_names = getattr(found.all, which)
    names = [n for n in ("spearman", "weighted_kappa", "kappa", "accuracy", "exact", "mae") if n in all_names][:4]

    def figure(name: str, group: GroupAgreement) -> Cell:
        return estimated(getattr(group, which)[name], interval_digits=2, counts=False, why=True)

    head = DIMENSIONS[dimension]
    columns: dict[str, Callable[[GroupAgreement], Cell | str]] = {head: lambda group: group.name}
    columns["Judged" if found.judge else "Rated"] = lambda group: _counts(next(iter(getattr(group, which).values())))
    columns |= {TITLES[name][0]: partial(figure, name) for name in names or all_names}
    return listed(f"{found.criterion}-by-{dimension}".replace("_", "-"), title, some, columns)


def _number(found: Comparison, name: str) -> int:
    return [judge.name for judge in found.judges].index(name) + 1


def _counts(found: Estimate) -> Cell:
    return Cell(value=f"{found.judged}/{found.asked}", name="", more={"judged": found.judged, "asked": found.asked})


def _of(name: str, line: JudgePair | MetricAgreement) -> Cell:
    """A figure of a line; the main ones stand with their interval."""
    figures = line.figures if isinstance(line, JudgePair) else line.all.figures
    cell = _figure(figures.get(name), name, signed=name == "bias")
    main = name in ("weighted_kappa", "bias") or (name == "spearman" and "exact" not in figures)
    return cell if main else replace(cell, low=None, high=None, bounds=None)


def _figure(found: Estimate | None, name: str, *, digits: int = 2, signed: bool = False, counts: bool = False) -> Cell:
    """A figure with its interval; "undefined" if it was wanted and has no value."""
    cell = estimated(
        found, digits=digits, interval_digits=digits, signed=signed, counts=counts, name=name,
        bounds=(f"{name}_low", f"{name}_high"),
    )  # fmt: skip
    undefined = found is not None and found.value is None and not counts
    return replace(cell, note="undefined") if undefined else cell


def _whys(tests: Iterable[Significance]) -> str:
    """Why some tests have no p, each reason once."""
    reasons = dict.fromkeys(test.why for test in tests if test.why)
    return f" No p: {'; '.join(reasons)}." if reasons else ""


def _p(test: Significance) -> Cell:
    p = test.p if test.p_holm is None else test.p_holm
    shown = words("<0.001") if p is not None and p < 0.001 else Cell(value=p, digits=3)
    return replace(shown, name="", more={"p": test.p, "p_holm": test.p_holm, "n": test.n, "why": test.why or None})
