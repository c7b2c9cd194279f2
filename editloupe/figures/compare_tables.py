"""A comparison as sentences, tables, plots of who agrees with whom, and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from editloupe.figures import render
from editloupe.figures.compare import Comparison, Cost, Disagreement, JudgePair
from editloupe.figures.escape import safe
from editloupe.figures.people import MetricAgreement
from editloupe.figures.people_tables import agreement_tables, alphas_table
from editloupe.figures.report import table_files, write_files
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.significance import Significance
from editloupe.stats.table import NONE, Cell, HeatPlot, Table, estimated, listed, words
from editloupe.values import Json

_SHORT: Final[Mapping[str, str]] = {
    "exact": "Exact", "kappa": "Cohen κ", "weighted_kappa": "Quadratic κ", "alpha_nominal": "α, nominal",
    "alpha_ordinal": "α, ordinal", "spearman": "Spearman ρ", "pearson": "Pearson r", "kendall": "Kendall τ-b", "mae": "MAE",
    "bias": "Leniency",
}  # fmt: skip
_PAIRS: Final = ("exact", "kappa", "weighted_kappa", "alpha_nominal", "alpha_ordinal", "spearman", "pearson", "mae")
_HUMAN: Final = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman", "pearson", "kendall", "mae", "bias")
_WITH_INTERVAL: Final = ("weighted_kappa", "bias")
_SHOWN: Final = 12
_BEST: Final = {
    "weighted_kappa": "quadratic κ of the labels",
    "kappa": "Cohen's κ of the answers",
    "spearman": "Spearman's ρ of the values",
}
"""The figure that says most of a metric's agreement: of ordered labels, of names, or of numbers."""


def answers(found: Comparison) -> Iterator[str]:
    """Yield what a reader asks first, in sentences: how far judges agree, who is lenient, who is nearer to people, where
    they are furthest apart, what a verdict costs."""
    for metric in _metrics(found):
        short, name = found.titles[metric][1], _best(found, metric)
        yield f"{short}: {_alike(found, metric, name)}"
        means = [(s.common.value, s.judge) for s in found.summaries if s.criterion == metric and s.common.value is not None]
        if len(means) > 1 and max(means)[0] != min(means)[0]:
            (high, mild), (low, strict) = max(means), min(means)
            yield f"{short}: on what all judged, {mild} has the highest mean ({high:.1f}), {strict} the lowest ({low:.1f})."
        people = [
            (figure.value, one.judge or "")
            for one in found.human_agreement
            if one.criterion == metric and (figure := one.all.figures.get(name)) and figure.value is not None
        ]
        if people:
            ranked = "; ".join(f"{judge} {value:.2f}" for value, judge in sorted(people, reverse=True))
            yield f"{short}: near to people, by the {_BEST[name]}: {ranked}."
    for d in found.disagreements[:3]:
        labels = "; ".join(f"{judge.name} {d.labels[judge.name]}" for judge in found.judges if judge.name in d.labels)
        yield f"{found.titles[d.criterion][1]}: {d.spread:.4g} apart on {_place(d)}: {labels}."
    if prices := [(c.judge, c.cost_a_verdict_usd) for c in found.costs if c.cost_a_verdict_usd]:
        yield "A verdict costs: " + "; ".join(f"{judge} {price:.3g} USD" for judge, price in prices) + "."


def _alike(found: Comparison, metric: str, name: str) -> str:
    """How far the judges agree on a metric, as a sentence."""
    pairs = [(figure.value, p) for p in _of(found, metric) if (figure := p.figures[name]).value is not None]
    if not pairs:
        return "how far the judges agree is not defined here."
    (most, like), (least, unlike) = (end(pairs, key=lambda one: one[0]) for end in (max, min))
    if len(pairs) == 1:
        return f"{like.first} and {like.second} agree to {most:.2f} ({_BEST[name]}; samples: {like.common:,})."
    if f"{most:.2f}" == f"{least:.2f}":
        return f"all pairs of judges agree to {most:.2f}, by the {_BEST[name]}."
    return (
        f"most alike are {like.first} and {like.second} ({most:.2f}), least {unlike.first} and {unlike.second} "
        f"({least:.2f}), by the {_BEST[name]}."
    )


def tables(found: Comparison, *, whole: bool = True) -> Iterator[Table]:
    """Yield the tables, those that a reader needs first at the front.

    whole: also labels of each two judges, and all that can be said of each judge beside people.
    """
    if found.summaries:
        yield _summaries(found)
    if found.pairs:
        yield _pairs(found)
    if found.human_agreement:
        yield _human(found)
        if any(agreement.versus for agreement in found.human_agreement):
            yield _versus(found)
    if found.raters:
        yield alphas_table(found.raters)
    if found.costs:
        yield _costs(found)
    for pair in found.pairs:
        if pair.labels and (whole or len(found.judges) == 2):
            yield _confusion(found, pair)
    if whole or not found.pairs:
        for one in found.human_agreement or found.raters:
            yield from agreement_tables(one, found.bootstrap.level)
    if found.disagreements:
        yield _disagreements(found, len(found.disagreements) if whole else _SHOWN)


def write_comparison(found: Comparison, folder: Path) -> list[Path]:
    """Write compare.md, compare.json, a CSV a table and an SVG a plot. Raises StorageError."""
    whole = [("compare.md", markdown(found)), ("compare.json", render.json_text(found.to_json()))]
    return write_files([*whole, *table_files(tables(found))], folder, kind="compare")


def markdown(found: Comparison) -> str:
    """Return all tables as one document."""
    notes = [f"> {safe(note)}\n" for note in found.notes]
    return "\n".join(["# Judges compared\n", *notes, *(render.markdown(table) for table in tables(found))])


def _metrics(found: Comparison) -> list[str]:
    return list(dict.fromkeys(pair.criterion for pair in found.pairs))


def _of(found: Comparison, metric: str) -> list[JudgePair]:
    return [pair for pair in found.pairs if pair.criterion == metric]


def _best(found: Comparison, metric: str) -> str:
    return next(name for name in _BEST if name in _of(found, metric)[0].figures)


def _summaries(found: Comparison) -> Table:
    return listed(
        "judges",
        "Judges",
        found.summaries,
        {
            "Judge": lambda s: f"{_number(found, s.judge)} {s.judge}",
            "": lambda s: found.titles[s.criterion][1],
            "Mean": lambda s: estimated(s.mean, digits=1),
            "Mean, all judged": lambda s: _figure(s.common, "common", digits=1, interval_digits=1, counts=True),
            "Entropy": lambda s: Cell(value=s.label_entropy_bits, name="label_entropy_bits", digits=2),
            "Not judged": lambda s: words(", ".join(f"{k} {n}" for k, n in s.statuses.items()) or NONE, name="statuses"),
        },
        keys=lambda s: {"judge": s.judge, "criterion": s.criterion},
        fixed=2,
        caption="Means 0 to 100 with 95 % intervals (judged/asked): each judge's own, and on the samples that every judge "
        "with any verdict could judge. Entropy of its labels in bits: 0 where it always says the same.",
    )


def _pairs(found: Comparison) -> Table:
    names = [n for n in _PAIRS if any(n in pair.figures for pair in found.pairs)]
    if any("weighted_kappa" in pair.figures for pair in found.pairs):
        names = [n for n in names if n not in ("alpha_nominal", "pearson", "mae")]
    table = listed(
        "pairs",
        "Pairs of judges",
        found.pairs,
        {
            "First / second": lambda p: _both(found, p.first, p.second),
            "": lambda p: found.titles[p.criterion][1],
            "n": lambda p: Cell(value=p.common, name="common"),
            **{_SHORT[n]: partial(_of_pair, n) for n in names},
            "First − second": lambda p: _figure(p.difference, "difference", digits=1, interval_digits=1, signed=True),
            "p": lambda p: _p(p.test),
        },
        keys=lambda p: {"first": p.first, "second": p.second, "criterion": p.criterion},
        fixed=2,
        at_once=8,
        caption="On the samples that both judged, with 95 % intervals. First − second: mean difference of scores 0 to 100, "
        "positive where the first is the more lenient; p: Wilcoxon's signed-rank test of the differences of source "
        f"images, corrected by Holm for all rows.{_whys(p.test for p in found.pairs)}",
    )
    return replace(table, plots=tuple(_heat(found, metric) for metric in _metrics(found)))


def _heat(found: Comparison, metric: str) -> HeatPlot:
    """Who agrees with whom, as a picture: 0 to 100 stands for agreement of 0 to 1, and below 0 as 0."""
    names, figure = tuple(judge.name for judge in found.judges), _best(found, metric)
    cells: dict[tuple[str, str], tuple[float | None, int, int]] = {}
    for pair in _of(found, metric):
        value = pair.figures[figure].value
        cell = (None if value is None else 100 * max(0.0, value), pair.common, pair.common)
        cells[pair.first, pair.second] = cells[pair.second, pair.first] = cell
    return HeatPlot(
        name=f"agreement-{metric.replace('_', '-')}",
        title=f"{found.titles[metric][0]}: who agrees with whom, {_BEST[figure]} × 100",
        rows=names,
        columns=names,
        columns_title="",
        cells=tuple(tuple(cells.get((one, other)) for other in names) for one in names),
    )


def _human(found: Comparison) -> Table:
    names = [n for n in _HUMAN if any(n in one.all.figures for one in found.human_agreement)]
    if len(names) > len(_HUMAN) - 2:
        names = [n for n in names if n not in ("pearson", "kendall")]

    def judged(one: MetricAgreement) -> Cell:
        first = next(iter(one.all.figures.values()))
        return Cell(value=f"{first.judged}/{first.asked}", name="", more={"judged": first.judged, "asked": first.asked})

    rated = any(one.rating for one in found.human_agreement)
    return listed(
        "people",
        f"{'Correlations of metrics and ratings' if rated else 'Judges and people'} ({found.human})",
        found.human_agreement,
        {
            "Judge": lambda one: _numbered(found, one.judge or ""),
            "": lambda one: one.short if one.rating is None else f"{one.short} and {one.rating}",
            "Judged": judged,
            **{_SHORT[n]: partial(_of_people, n) for n in names},
        },
        keys=lambda one: {"judge": one.judge, "criterion": one.criterion, **({"rating": one.rating} if one.rating else {})},
        fixed=2,
        at_once=9,
        caption="On the samples with a human label. MAE and leniency (mean judge − people) in the metric's unit. With "
        "--full each judge's figures by edit type, target area and editor, beside what people reach among themselves.",
    )


def _versus(found: Comparison) -> Table:
    tests = [(one, other, test) for one in found.human_agreement for other, test in one.versus.items()]
    return listed(
        "people-versus",
        "Which of two judges is right more often",
        tests,
        {
            "First / second": lambda t: _both(found, t[0].judge or "", t[1]),
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


def _costs(found: Comparison) -> Table:
    people = any(cost.agreeing is not None for cost in found.costs)

    def tokens(c: Cost, name: str) -> Cell:
        count = getattr(c.usage, name)
        each = NONE if count is None or not c.verdicts else f"{count / c.verdicts:,.0f}"
        return Cell(value=each, name="", more={name: count})

    def dollars(value: float | None, name: str, **more: Json) -> Cell:
        return Cell(value="unknown" if value is None else f"{value:.4g}", name="", more={name: value, **more})

    return listed(
        "costs",
        "What the verdicts took",
        found.costs,
        {
            "Judge": lambda c: f"{_number(found, c.judge)} {c.judge}",
            "Verdicts": lambda c: Cell(value=c.verdicts, name="verdicts", more={"findings": c.findings}),
            "Input": lambda c: tokens(c, "input_tokens"),
            "Output": lambda c: tokens(c, "output_tokens"),
            "of images": lambda c: tokens(c, "image_tokens"),
            "USD": lambda c: dollars(c.cost_usd, "cost_usd"),
            "USD a verdict": lambda c: dollars(c.cost_a_verdict_usd, "cost_a_verdict_usd", agreeing=c.agreeing),
            **(
                {"USD an agreeing one": lambda c: dollars(c.cost_an_agreeing_verdict_usd, "cost_an_agreeing_verdict_usd")}
                if people
                else {}
            ),
            "Seconds": lambda c: Cell(value=c.seconds_median, name="seconds_median", digits=2),
            "Turns": lambda c: Cell(value=c.turns_mean, name="turns_mean", digits=1),
        },
        keys=lambda c: {"judge": c.judge},
        caption="Tokens a verdict, findings without a label included in what they cost; seconds: median of a finding; "
        "turns: mean with tool calls.",
    )


def _confusion(found: Comparison, pair: JudgePair) -> Table:
    short = found.titles[pair.criterion][1]

    def count(place: int, row: tuple[str, tuple[int, ...]]) -> Cell:
        return Cell(value=row[1][place])

    return listed(
        f"labels-{short}-{_number(found, pair.first)}-{_number(found, pair.second)}",
        f"{short} labels: {pair.second} in rows, {pair.first} in columns",
        zip(pair.labels, pair.confusion, strict=True),
        {
            "": lambda row: row[0],
            **{name: partial(count, place) for place, name in enumerate((*pair.labels, "none"))},
        },
    )


def _disagreements(found: Comparison, most: int) -> Table:
    judges = [judge.name for judge in found.judges]
    names = judges or list(dict.fromkeys(name for d in found.disagreements for name in d.labels))
    more = len(found.disagreements) - most

    def label(name: str, d: Disagreement) -> Cell:
        return words(d.labels.get(name, NONE), name=f"label of {name}")

    return listed(
        "disagreements",
        f"Where {'judges' if judges else 'raters'} disagree, the furthest apart first",
        found.disagreements[:most],
        {
            "Sample": lambda d: words(_place(d), name="sample"),
            "": lambda d: found.titles[d.criterion][1],
            "Apart": lambda d: words(f"{d.spread:.4g}", name="spread"),
            **{name: partial(label, name) for name in names},
        },
        keys=lambda d: {"criterion": d.criterion},
        fixed=3,
        caption=f"Apart: 0 to 100, or in the unit of a metric without bounds.{f' … and {more} more.' if more > 0 else ''}",
    )


def _place(d: Disagreement) -> str:
    return ", ".join(filter(None, (d.sample, f"turn {d.turn}" if d.turn else "", d.part)))


def _number(found: Comparison, name: str) -> int:
    return [judge.name for judge in found.judges].index(name) + 1


def _numbered(found: Comparison, name: str) -> str:
    """The number of a judge; the name of a table of scores."""
    known = [judge.name for judge in found.judges]
    return str(known.index(name) + 1) if name in known else name


def _both(found: Comparison, first: str, second: str) -> str:
    return f"{_number(found, first)} / {_number(found, second)}"


def _of_pair(name: str, pair: JudgePair) -> Cell:
    return _of_figures(name, pair.figures)


def _of_people(name: str, one: MetricAgreement) -> Cell:
    return _of_figures(name, one.all.figures)


def _of_figures(name: str, figures: Mapping[str, Estimate]) -> Cell:
    """A figure; the main ones stand with their interval."""
    main = name in _WITH_INTERVAL or (name == "spearman" and "exact" not in figures)
    return _figure(figures.get(name), name, shown=main)


def _figure(
    found: Estimate | None, name: str, *, digits: int = 2, interval_digits: int = 2, signed: bool = False,
    counts: bool = False, shown: bool = True,
) -> Cell:  # fmt: skip
    """A figure; "undefined" if it was wanted and has no value.   shown: with its interval."""
    cell = estimated(
        found, digits=digits, interval_digits=interval_digits, signed=signed or name == "bias", counts=counts, name=name,
        bounds=(f"{name}_low", f"{name}_high"),
    )  # fmt: skip
    if not shown:
        return replace(cell, low=None, high=None, bounds=None)
    if found is not None and found.value is None and not counts:
        return replace(cell, note="undefined")
    return cell


def _whys(tests: Iterable[Significance]) -> str:
    """Why some tests have no p, each reason once."""
    reasons = dict.fromkeys(test.why for test in tests if test.why)
    return f" No p: {'; '.join(reasons)}." if reasons else ""


def _p(test: Significance) -> Cell:
    p = test.p if test.p_holm is None else test.p_holm
    shown = words("<0.001") if p is not None and p < 0.001 else Cell(value=p, digits=3)
    return replace(shown, name="", more={"p": test.p, "p_holm": test.p_holm, "n": test.n, "why": test.why or None})
