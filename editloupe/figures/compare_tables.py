"""A comparison as tables, as plots of who agrees with whom, and as files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.figures import plots, render
from editloupe.figures.columns import DIMENSIONS
from editloupe.figures.compare import GROUPED, Comparison, Disagreement, JudgePair
from editloupe.figures.escape import safe
from editloupe.figures.people_tables import agreement_tables, alphas_table, figure_record, pair_table
from editloupe.figures.report import write_files
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.significance import Significance
from editloupe.stats.table import NONE, Cell, HeatPlot, Row, Table, estimated, numbers, words
from editloupe.values import Json

_SHORT: Final[Mapping[str, str]] = {
    "exact": "Exact",
    "kappa": "Cohen κ",
    "weighted_kappa": "Quadratic κ",
    "alpha_nominal": "α, nominal",
    "alpha_ordinal": "α, ordinal",
    "spearman": "Spearman ρ",
    "pearson": "Pearson r",
    "kendall": "Kendall τ-b",
    "mae": "MAE",
    "bias": "Leniency",
}
_PAIRS: Final = ("kappa", "weighted_kappa", "alpha_nominal", "alpha_ordinal", "spearman", "pearson", "mae")
_HUMAN: Final = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman", "pearson", "kendall", "mae", "bias")
_WITH_INTERVAL: Final = ("weighted_kappa", "bias")
_SHOWN: Final = 12


def answers(found: Comparison) -> Iterator[str]:
    """Yield what a reader asks first, in sentences: how far judges agree, who is lenient, who is nearer to people, where
    they are furthest apart, what a verdict costs."""
    for metric in _metrics(found):
        short, name = _title(found, metric), _best(found, metric)
        alike = sorted(
            ((figure.value, pair) for pair in found.pairs if pair.criterion == metric and (figure := pair.figures.get(name))
             and figure.value is not None),
            key=lambda one: -one[0],
        )  # fmt: skip
        if not alike:
            yield f"{short}: how far the judges agree is not defined here."
        elif len(alike) == 1:
            ((value, pair),) = alike
            how = f"{_PLOTTED[name]}; samples: {pair.common:,}"
            yield f"{short}: {pair.first} and {pair.second} agree to {value:.2f} ({how})."
        else:
            (most, like), (least, unlike) = alike[0], alike[-1]
            yield (
                f"{short}: all pairs of judges agree to {most:.2f}, by the {_PLOTTED[name]}."
                if f"{most:.2f}" == f"{least:.2f}"
                else f"{short}: most alike are {like.first} and {like.second} ({most:.2f}), least {unlike.first} and "
                f"{unlike.second} ({least:.2f}), by the {_PLOTTED[name]}."
            )
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
            yield f"{short}: near to people, by the {_PLOTTED[name]}: {ranked}."
    for d in found.disagreements[:3]:
        labels = "; ".join(f"{judge.name} {d.labels[judge.name]}" for judge in found.judges if judge.name in d.labels)
        yield f"{_title(found, d.criterion)}: {d.spread:.4g} apart on {_place(d)}: {labels}."
    if prices := [(c.judge, c.cost_a_verdict_usd) for c in found.costs if c.cost_a_verdict_usd]:
        yield "A verdict costs: " + "; ".join(f"{judge} {price:.3g} USD" for judge, price in prices) + "."


def tables(found: Comparison, *, whole: bool = True) -> Iterator[Table]:
    """Yield the tables, those that a reader needs first at the front.

    whole: also those by edit type and area, and all that can be said of each judge beside people.
    """
    level = found.bootstrap.level
    if found.summaries:
        yield _summaries(found)
    for metric in _metrics(found):
        yield _matrix(found, metric)
    if found.pairs:
        yield _pairs(found)
    if found.human_agreement:
        yield _human(found)
        if any(agreement.versus for agreement in found.human_agreement):
            yield _versus(found)
        if any(one.rating for one in found.human_agreement):
            yield pair_table(found.human_agreement, level)
    if found.raters:
        yield alphas_table(found.raters)
    if found.costs:
        yield _costs(found)
    for pair in found.pairs:
        if pair.labels and (whole or len(found.judges) == 2):
            yield _confusion(found, pair)
    if whole:
        yield from (_grouped(found, d) for d in GROUPED if any(d in pair.by for pair in found.pairs))
    if whole or not found.pairs:
        for one in found.human_agreement or found.raters:
            yield from agreement_tables(one, level)
    if found.disagreements:
        yield _disagreements(found, len(found.disagreements) if whole else _SHOWN)


def write_comparison(found: Comparison, folder: Path) -> list[Path]:
    """Write compare.md, compare.json, a CSV a table and an SVG a plot. Raises StorageError."""
    return write_files(_files(found), folder, kind="compare")


def markdown(found: Comparison) -> str:
    """Return all tables as one document."""
    notes = [f"> {safe(note)}\n" for note in found.notes]
    return "\n".join(["# Judges compared\n", *notes, *(render.markdown(table) for table in tables(found))])


def _files(found: Comparison) -> Iterator[tuple[str, str]]:
    yield "compare.md", markdown(found)
    yield "compare.json", render.json_text(found.to_json())
    for table in tables(found):
        if records := table.records():
            yield f"{table.name}.csv", render.records_csv(records)
        for plot in table.plots if plots.available() else ():
            yield f"{plot.name}.svg", plots.draw(plot)


_PLOTTED: Final = {
    "weighted_kappa": "quadratic κ of the labels",
    "kappa": "Cohen's κ of the answers",
    "spearman": "Spearman's ρ of the values",
}


def _best(found: Comparison, metric: str) -> str:
    """The figure that says most of a metric's agreement: of ordered labels, of names, or of numbers."""
    names = next(pair.figures for pair in found.pairs if pair.criterion == metric)
    return next(name for name in _PLOTTED if name in names)


def matrix_of(found: Comparison, metric: str, figure: str) -> list[list[float | None]]:
    """Return the figure of every two judges, None on the diagonal and where there is none."""
    table: list[list[float | None]] = [[None] * len(found.judges) for _ in found.judges]
    for pair in found.pairs:
        if pair.criterion == metric and figure in pair.figures:
            i, j = _number(found, pair.first) - 1, _number(found, pair.second) - 1
            table[i][j] = table[j][i] = pair.figures[figure].value
    return table


def _metrics(found: Comparison) -> list[str]:
    return list(dict.fromkeys(pair.criterion for pair in found.pairs))


def _summaries(found: Comparison) -> Table:
    rows = []
    for s in found.summaries:
        why = ", ".join(f"{status} {n}" for status, n in s.statuses.items())
        name = f"{_number(found, s.judge)} {s.judge}"
        entropy = Cell(value=s.label_entropy_bits, digits=2)
        head = (words(name), words(_title(found, s.criterion)))
        means = (estimated(mean, digits=1) for mean in (s.mean, s.common))
        cells = (*head, *means, entropy, words(why or NONE))
        record = {"judge": s.judge, "criterion": s.criterion, **_fields("mean", s.mean)}
        record |= {"judged": s.mean.judged, "asked": s.mean.asked}
        record |= {**_fields("common", s.common), "label_entropy_bits": s.label_entropy_bits, "statuses": why}
        rows.append(Row(cells=cells, records=(record,)))
    return numbers(
        "judges",
        "Judges",
        ("Judge", "", "Mean", "Mean, all judged", "Entropy", "Not judged"),
        rows,
        fixed=2,
        caption=(
            "Means 0 to 100 with 95 % intervals (judged/asked): each judge's own, and on the samples that every judge "
            "with any verdict could judge. Entropy of its labels in bits: 0 where it always says the same."
        ),
    )


def _matrix(found: Comparison, metric: str) -> Table:
    names = [judge.name for judge in found.judges]
    above = _best(found, metric)
    below = "exact" if above != "spearman" else "mae"
    upper, lower = matrix_of(found, metric, above), matrix_of(found, metric, below)
    rows = []
    for i, name in enumerate(names):
        cells = [Cell(value=(upper if i < j else lower)[i][j], digits=2) for j in range(len(names))]
        cells[i] = words("·")
        rows.append(Row(cells=(words(f"{i + 1} {name}"), *cells), records=()))
    what = _PLOTTED[above].split(" of ")[0]
    share = "the share of equal labels" if below == "exact" else "the mean absolute error"
    table = numbers(
        f"agreement-{metric.replace('_', '-')}",
        f"{found.titles[metric][0]}: agreement",
        ("", *(str(i + 1) for i in range(len(names)))),
        rows,
        caption=f"Above the diagonal {what}, below it {share}, on the samples that both judged.",
    )
    return replace(table, plots=(_heat(found, metric, above),))


def _heat(found: Comparison, metric: str, figure: str) -> HeatPlot:
    """Who agrees with whom, as a picture: 0 to 100 stands for agreement of 0 to 1, and below 0 as 0."""
    names = tuple(judge.name for judge in found.judges)
    common = {(pair.first, pair.second): pair.common for pair in found.pairs if pair.criterion == metric}
    squares = matrix_of(found, metric, figure)
    cells = []
    for i, first in enumerate(names):
        row: list[tuple[float | None, int, int] | None] = []
        for j, second in enumerate(names):
            count = common.get((first, second)) or common.get((second, first)) or 0
            value = squares[i][j]
            row.append(None if i == j else (None if value is None else 100 * max(0.0, value), count, count))
        cells.append(tuple(row))
    return HeatPlot(
        name=f"agreement-{metric.replace('_', '-')}",
        title=f"{found.titles[metric][0]}: who agrees with whom, {_PLOTTED[figure]} × 100",
        rows=names,
        columns=names,
        columns_title="",
        cells=tuple(cells),
    )


def _pairs(found: Comparison) -> Table:
    names = [n for n in _PAIRS if any(n in pair.figures for pair in found.pairs)]
    if any("weighted_kappa" in pair.figures for pair in found.pairs):
        names = [n for n in names if n not in ("alpha_nominal", "pearson", "mae")]
    rows = []
    for p in found.pairs:
        cells = (
            words(_both(found, p.first, p.second)),
            words(_title(found, p.criterion)),
            words(str(p.common)),
            *(_figure(p.figures, name) for name in names),
            estimated(p.difference, digits=1, signed=True, counts=False),
            _p(p.test),
        )
        record: dict[str, Json] = {"first": p.first, "second": p.second, "criterion": p.criterion, "common": p.common}
        record |= {**_fields("difference", p.difference), **p.test.to_json()}
        for name, figure in p.figures.items():
            record |= _fields(name, figure)
        rows.append(Row(cells=cells, records=(record,)))
    return numbers(
        "pairs",
        "Pairs of judges",
        ("First / second", "", "n", *(_SHORT[n] for n in names), "First − second", "p"),
        rows,
        fixed=3,
        at_once=8,
        caption=(
            "On the samples that both judged, with 95 % intervals. First − second: mean difference of scores 0 to 100, "
            "positive where the first is the more lenient; p: Wilcoxon's signed-rank test of the differences of source "
            f"images, corrected by Holm for all rows.{_whys(p.test for p in found.pairs)}"
        ),
    )


def _human(found: Comparison) -> Table:
    names = [n for n in _HUMAN if any(n in one.all.figures for one in found.human_agreement)]
    if len(names) > len(_HUMAN) - 2:
        names = [n for n in names if n not in ("pearson", "kendall")]
    rows = []
    for one in found.human_agreement:
        figures, judge = one.all.figures, one.judge or ""
        first = next(iter(figures.values()))
        head = (words(_numbered(found, judge)), words(one.rating or one.short))
        cells = (*head, words(f"{first.judged}/{first.asked}"), *(_figure(figures, name) for name in names))
        rows.append(_figures_row(cells, {"judge": judge, "criterion": one.criterion}, figures))
    return numbers(
        "people",
        f"Judges and people ({found.human})",
        ("Judge", "", "Judged", *(_SHORT[n] for n in names)),
        rows,
        fixed=3,
        at_once=8,
        caption=(
            "On the samples with a human label. MAE and leniency (mean judge − people) in the metric's unit. With --full "
            "each judge's figures by edit type, target area and editor, beside what people reach among themselves."
        ),
    )


def _versus(found: Comparison) -> Table:
    rows = []
    tests: list[Significance] = []
    for one in found.human_agreement:
        for other, test in one.versus.items():
            counts = (Cell(value=test.right_alone), Cell(value=test.other_right_alone))
            head = (words(_both(found, one.judge or "", other)), words(one.short))
            record: dict[str, Json] = {"first": one.judge, "second": other, "criterion": one.criterion}
            record |= {"first_right_alone": test.right_alone, "second_right_alone": test.other_right_alone}
            record |= {"p": test.p, "p_holm": test.p_holm, "n": test.n, "why": test.why or None}
            rows.append(Row(cells=(*head, *counts, _p(test)), records=(record,)))
            tests.append(test)
    return numbers(
        "people-versus",
        "Which of two judges is right more often",
        ("First / second", "", "First alone", "Second alone", "p"),
        rows,
        fixed=2,
        caption=(
            "Right: people's label; counts of samples. p: exact sign-flip permutation test, which flips all edits of a "
            "source image together (McNemar's exact test where each has one edit), corrected by Holm for all rows."
            f"{_whys(tests)}"
        ),
    )


def _costs(found: Comparison) -> Table:
    tools = list(dict.fromkeys(name for cost in found.costs for name in cost.tools))
    people = any(cost.agreeing is not None for cost in found.costs)
    rows = []
    for c in found.costs:
        usage, each = c.usage, c.verdicts
        tokens = (usage.input_tokens, usage.output_tokens, usage.image_tokens)
        agreeing = [_dollars(c.cost_an_agreeing_verdict_usd)] if people else []
        cells = (
            words(f"{_number(found, c.judge)} {c.judge}"),
            Cell(value=c.verdicts),
            *(words(NONE if count is None or not each else f"{count / each:,.0f}") for count in tokens),
            words("unknown" if c.cost_usd is None else f"{c.cost_usd:.4g}"),
            _dollars(c.cost_a_verdict_usd),
            *agreeing,
            Cell(value=c.seconds_median, digits=2),
            Cell(value=c.turns_mean, digits=1),
            *(Cell(value=c.tools.get(name, 0)) for name in tools),
        )
        record = {name: value for name, value in c.to_json().items() if name not in ("usage", "tools")}
        record |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        record |= {"image_tokens": usage.image_tokens, **{f"calls of {name}": c.tools.get(name, 0) for name in tools}}
        rows.append(Row(cells=cells, records=(record,)))
    head = ("Judge", "Verdicts", "Input", "Output", "of images", "USD", "USD a verdict")
    return numbers(
        "costs",
        "What the verdicts took",
        (*head, *(["USD an agreeing one"] if people else []), "Seconds", "Turns", *tools),
        rows,
        caption=(
            "Tokens a verdict, findings without a label included in what they cost; seconds: median of a finding; turns: "
            "mean with tool calls; then how often each tool was called."
        ),
    )


def _confusion(found: Comparison, pair: JudgePair) -> Table:
    short = _title(found, pair.criterion)
    rows = [
        Row(cells=(words(name), *(Cell(value=n) for n in counts)), records=())
        for name, counts in zip(pair.labels, pair.confusion, strict=True)
    ]
    return numbers(
        f"labels-{short}-{_number(found, pair.first)}-{_number(found, pair.second)}",
        f"{short} labels: {pair.second} in rows, {pair.first} in columns",
        ("", *pair.labels, "none"),
        rows,
    )


def _grouped(found: Comparison, dimension: str) -> Table:
    title = DIMENSIONS[dimension]  # type: ignore[index]
    rows = []
    names = list(dict.fromkeys(n for p in found.pairs for fs in p.by.get(dimension, {}).values() for n in fs))
    for pair in found.pairs:
        for group, figures in pair.by.get(dimension, {}).items():
            head = (_both(found, pair.first, pair.second), _title(found, pair.criterion), group)
            count = next(iter(figures.values())).judged
            cells = (*map(words, (*head, str(count))), *(_estimate(figures.get(name)) for name in names))
            keys = {"first": pair.first, "second": pair.second, "criterion": pair.criterion, dimension: group}
            rows.append(_figures_row(cells, keys, figures))
    return numbers(
        f"pairs-by-{dimension.replace('_', '-')}",
        f"Pairs of judges, by {title.lower()}",
        ("First / second", "", title, "n", *(_SHORT[name] for name in names)),
        rows,
        fixed=3,
    )


def _disagreements(found: Comparison, most: int) -> Table:
    judges = [judge.name for judge in found.judges]
    names = judges or list(dict.fromkeys(name for d in found.disagreements for name in d.labels))
    rows = []
    for d in found.disagreements[:most]:
        name = _place(d)
        cells = (name, _title(found, d.criterion), f"{d.spread:.4g}", *(d.labels.get(name, NONE) for name in names))
        record: dict[str, Json] = {"sample": name, "criterion": d.criterion, "spread": d.spread}
        record |= {f"label of {n}": v for n, v in d.labels.items()}
        rows.append(Row(cells=tuple(map(words, cells)), records=(record,)))
    more = len(found.disagreements) - len(rows)
    return numbers(
        "disagreements",
        f"Where {'judges' if judges else 'raters'} disagree, the furthest apart first",
        ("Sample", "", "Apart", *names),
        rows,
        fixed=3,
        caption=f"Apart: 0 to 100, or in the unit of a metric without bounds.{f' … and {more} more.' if more else ''}",
    )


def _place(d: Disagreement) -> str:
    return ", ".join(filter(None, (d.sample, f"turn {d.turn}" if d.turn else "", d.part)))


def _figures_row(cells: Sequence[Cell], keys: Mapping[str, Json], figures: Mapping[str, Estimate]) -> Row:
    """A row with a record a figure."""
    records = ({**keys, "figure": name, **figure_record(figure)} for name, figure in figures.items())
    return Row(cells=tuple(cells), records=tuple(records))


def _number(found: Comparison, name: str) -> int:
    return [judge.name for judge in found.judges].index(name) + 1


def _numbered(found: Comparison, name: str) -> str:
    """The number of a judge; the name of a table of scores."""
    known = [judge.name for judge in found.judges]
    return str(known.index(name) + 1) if name in known else name


def _title(found: Comparison, metric: str) -> str:
    return found.titles[metric][1]


def _both(found: Comparison, first: str, second: str) -> str:
    return f"{_number(found, first)} / {_number(found, second)}"


def _whys(tests: Iterable[Significance]) -> str:
    """Why some tests have no p, each reason once."""
    reasons = dict.fromkeys(test.why for test in tests if test.why)
    return f" No p: {'; '.join(reasons)}." if reasons else ""


def _fields(name: str, found: Estimate) -> dict[str, Json]:
    """A figure and its interval in a line of a file."""
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _estimate(found: Estimate | None, *, digits: int = 2, signed: bool = False) -> Cell:
    """A figure with its interval; "undefined" if it was wanted and has no value."""
    if found is not None and found.value is None:
        return words("undefined")
    return estimated(found, digits=digits, interval_digits=digits, signed=signed, counts=False)


def _figure(figures: Mapping[str, Estimate], name: str) -> Cell:
    """One of a row's figures: the main ones with their interval."""
    found = figures.get(name)
    if name in _WITH_INTERVAL or (name == "spearman" and "exact" not in figures):
        return _estimate(found, signed=name == "bias")
    return Cell(value=None if found is None else found.value, digits=2)


def _dollars(value: float | None) -> Cell:
    return words(NONE if value is None else f"{value:.3g}")


def _p(test: Significance) -> Cell:
    p = test.p if test.p_holm is None else test.p_holm
    return words("<0.001") if p is not None and p < 0.001 else Cell(value=p, digits=3)
