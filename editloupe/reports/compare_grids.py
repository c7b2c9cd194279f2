"""A comparison as tables, and as plots of who agrees with whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from editloupe.reports.compare import Comparison, Effort, Pair, Test
from editloupe.reports.grid import Grid, Row
from editloupe.stats.agreement import Figure
from editloupe.stats.bootstrap import Estimate
from editloupe.values import Json

_TITLES: Mapping[str, str] = {
    "exact": "Exact",
    "kappa": "Cohen κ",
    "weighted_kappa": "Quadratic κ",
    "alpha_ordinal": "α, ordinal",
    "spearman": "Spearman ρ",
    "bias": "Leniency",
}
_DIMENSIONS = {"edit_type": "edit type", "area": "target area"}
_SHOWN = 12


def grids(found: Comparison, *, whole: bool = True) -> Iterator[Grid]:
    """Every table, those that a reader needs first at the front. whole: also those by edit type and area."""
    yield _standings(found)
    for criterion in _criteria(found):
        yield _matrix(found, criterion)
    yield _pairs(found)
    if found.nearness:
        yield _nearness(found)
        if any(near.versus for near in found.nearness):
            yield _versus(found)
    yield _efforts(found)
    for pair in found.pairs:
        if whole or len(found.judges) == 2:
            yield _confusion(found, pair)
    if whole:
        for dimension in ("edit_type", "area"):
            if any(dimension in pair.by for pair in found.pairs):
                yield _grouped(found, dimension)
    if found.disagreements:
        yield _disagreements(found, len(found.disagreements) if whole else _SHOWN)


def _criteria(found: Comparison) -> list[str]:
    return list(dict.fromkeys(pair.criterion for pair in found.pairs))


def _short(found: Comparison, criterion: str) -> str:
    return found.judges[0].metrics.metric(criterion).short


def _standings(found: Comparison) -> Grid:
    rows = []
    for s in found.standings:
        why = ", ".join(f"{status} {n}" for status, n in s.statuses.items()) or "–"
        entropy = "–" if s.entropy is None else f"{s.entropy:.2f}"
        name = f"{_number(found, s.judge)} {s.judge}"
        cells = (name, _short(found, s.criterion), _mean(s.mean), _mean(s.common), entropy, why)
        rows.append(Row(cells=cells))
    return Grid(
        name="judges",
        title="Judges",
        head=("Judge", "", "Mean", "Mean, all judged", "Entropy", "Not judged"),
        rows=tuple(rows),
        fixed=2,
        caption=(
            "Means 0 to 100 with 95 % intervals (judged/asked): each judge's own, and on the samples that every judge "
            "with any verdict could judge. Entropy of its labels in bits: 0 where it always says the same."
        ),
        records=tuple(s.to_json() for s in found.standings),
    )


def _matrix(found: Comparison, criterion: str) -> Grid:
    names = [j.name for j in found.judges]
    value = {(p.first, p.second): p for p in found.pairs if p.criterion == criterion}
    rows = []
    for i, row in enumerate(names):
        cells = []
        for j, column in enumerate(names):
            pair = value.get((row, column)) or value.get((column, row))
            if i == j or pair is None:
                cells.append("" if i != j else "·")
            else:
                name = "weighted_kappa" if i < j else "exact"
                cells.append(_plain(pair.figures.get(name)))
        rows.append(Row(cells=(f"{i + 1} {row}", *cells)))
    title = found.judges[0].metrics.metric(criterion).name
    return Grid(
        name=f"agreement-{criterion.replace('_', '-')}",
        title=f"{title}: agreement",
        head=("", *(str(i + 1) for i in range(len(names)))),
        rows=tuple(rows),
        caption="Above the diagonal quadratic κ, below it the share of equal labels, on the samples that both judged.",
    )


def _pairs(found: Comparison) -> Grid:
    rows = []
    for p in found.pairs:
        cells = [
            _plain(p.figures.get("kappa")),
            _figure(p.figures.get("weighted_kappa")),
            _plain(p.figures.get("alpha_ordinal")),
            _plain(p.figures.get("spearman")),
        ]
        rows.append(
            Row(
                cells=(
                    _both(found, p.first, p.second),
                    _short(found, p.criterion),
                    str(p.common),
                    *cells,
                    _difference(p.difference),
                    _p(p.test),
                )
            )
        )
    return Grid(
        name="pairs",
        title="Pairs of judges",
        head=("First / second", "", "n", "Cohen κ", "Quadratic κ", "α, ordinal", "Spearman ρ", "First − second", "p"),
        rows=tuple(rows),
        fixed=3,
        caption=(
            "On the samples that both judged, with 95 % intervals. First − second: mean difference of scores 0 to 100, "
            "positive where the first is the more lenient; p: Wilcoxon's signed-rank test of the differences of source "
            f"images, corrected by Holm for all rows.{_whys(p.test for p in found.pairs)}"
        ),
        records=tuple(_pair_record(p) for p in found.pairs),
    )


def _nearness(found: Comparison) -> Grid:
    rows, records = [], []
    for near in found.nearness:
        names = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman")
        cells = [(_figure if name == "weighted_kappa" else _plain)(near.figures.get(name)) for name in names]
        error, bias = (near.figures.get(name) for name in ("mae", "bias"))
        judged = next(iter(near.figures.values())).estimate
        told = f"{judged.judged}/{judged.asked}"
        rows.append(
            Row(
                cells=(
                    f"{_number(found, near.judge)}",
                    _short(found, near.criterion),
                    told,
                    *cells,
                    _plain(error),
                    _figure(bias, signed=True),
                )
            )
        )
        records += [
            {"judge": near.judge, "criterion": near.criterion, "figure": name, **figure.to_json()}
            for name, figure in near.figures.items()
        ]
    return Grid(
        name="people",
        title=f"Judges and people ({found.people})" if found.people else "Judges and people",
        head=("Judge", "", "Judged", "Exact", "Cohen κ", "Quadratic κ", "α, ordinal", "Spearman ρ", "MAE", "Leniency"),
        rows=tuple(rows),
        fixed=3,
        caption=(
            "On the samples with a human label. MAE and leniency (mean judge − people) in the rubric's units. "
            "`editloupe align` tells more of one judge."
        ),
        records=tuple(records),
    )


def _versus(found: Comparison) -> Grid:
    rows, records = [], []
    tests: list[Test] = []
    for near in found.nearness:
        for other, (test, ours, theirs) in near.versus.items():
            short = _short(found, near.criterion)
            rows.append(Row(cells=(_both(found, near.judge, other), short, str(ours), str(theirs), _p(test))))
            tests.append(test)
            records.append(
                {
                    "first": near.judge,
                    "second": other,
                    "criterion": near.criterion,
                    "first_right_alone": ours,
                    "second_right_alone": theirs,
                    **test.to_json(),
                }
            )
    return Grid(
        name="people-versus",
        title="Which of two judges is right more often",
        head=("First / second", "", "First alone", "Second alone", "p"),
        rows=tuple(rows),
        fixed=2,
        caption=(
            "Right: people's label. p: McNemar's exact test of the samples on which one alone is right, corrected by Holm; "
            f"it takes samples as independent, which edits of one source image are not quite.{_whys(tests)}"
        ),
        records=tuple(records),
    )


def _efforts(found: Comparison) -> Grid:
    tools = list(dict.fromkeys(name for e in found.efforts for name in e.tools))
    people = any(e.agreeing is not None for e in found.efforts)
    rows = []
    for e in found.efforts:
        cells = [
            str(e.verdicts),
            _tokens(e.usage.input_tokens, e),
            _tokens(e.usage.output_tokens, e),
            _tokens(e.usage.image_tokens, e),
            "unknown" if e.cost is None else f"{e.cost:.4g}",
            "–" if e.cost_a_verdict is None else f"{e.cost_a_verdict:.3g}",
            *(["–" if e.cost_an_agreeing is None else f"{e.cost_an_agreeing:.3g}"] if people else []),
            "–" if e.seconds is None else f"{e.seconds:.2f}",
            "–" if e.turns is None else f"{e.turns:.1f}",
            *(str(e.tools.get(name, 0)) for name in tools),
        ]
        rows.append(Row(cells=(f"{_number(found, e.judge)} {e.judge}", *cells)))
    return Grid(
        name="effort",
        title="What the verdicts took",
        head=(
            "Judge",
            "Verdicts",
            "Input",
            "Output",
            "of images",
            "USD",
            "USD a verdict",
            *(["USD an agreeing one"] if people else []),
            "Seconds",
            "Turns",
            *tools,
        ),
        rows=tuple(rows),
        caption=(
            "Tokens a verdict, findings without a label included in what they cost; seconds: median of a finding; turns: "
            "mean with tool calls; then how often each tool was called."
        ),
        records=tuple(e.to_json() for e in found.efforts),
    )


def _confusion(found: Comparison, pair: Pair) -> Grid:
    levels = [level.name for level in found.judges[0].metrics.metric(pair.criterion).levels]
    rows = [Row(cells=(name, *(str(n) for n in counts))) for name, counts in zip(levels, pair.confusion, strict=True)]
    return Grid(
        name=f"labels-{_short(found, pair.criterion)}-{_number(found, pair.first)}-{_number(found, pair.second)}",
        title=f"{_short(found, pair.criterion)} labels: {pair.second} in rows, {pair.first} in columns",
        head=("", *levels, "none"),
        rows=tuple(rows),
    )


def _grouped(found: Comparison, dimension: str) -> Grid:
    rows, records = [], []
    for pair in found.pairs:
        for name, figures in pair.by.get(dimension, {}).items():
            kappa, exact = figures.get("weighted_kappa"), figures.get("exact")
            common = 0 if exact is None else exact.estimate.judged
            told = (_both(found, pair.first, pair.second), _short(found, pair.criterion), name)
            rows.append(Row(cells=(*told, str(common), _figure(exact), _figure(kappa))))
            for title, figure in figures.items():
                records.append(
                    {
                        "first": pair.first,
                        "second": pair.second,
                        "criterion": pair.criterion,
                        dimension: name,
                        "figure": title,
                        **figure.to_json(),
                    }
                )
    return Grid(
        name=f"pairs-by-{dimension.replace('_', '-')}",
        title=f"Pairs of judges, by {_DIMENSIONS[dimension]}",
        head=("First / second", "", _DIMENSIONS[dimension].capitalize(), "n", "Exact", "Quadratic κ"),
        rows=tuple(rows),
        fixed=3,
        records=tuple(records),
    )


def _disagreements(found: Comparison, most: int) -> Grid:
    shown = found.disagreements[:most]
    names = [j.name for j in found.judges]
    rows = [Row(cells=(d.sample, _short(found, d.criterion), *(d.labels.get(name, "–") for name in names))) for d in shown]
    more = len(found.disagreements) - len(shown)
    records: list[Mapping[str, Json]] = [
        {
            "sample": d.sample,
            "criterion": d.criterion,
            "spread": d.spread,
            **{f"label of {n}": v for n, v in d.labels.items()},
        }
        for d in shown
    ]
    return Grid(
        name="disagreements",
        title="Where judges disagree, the furthest apart first",
        head=("Sample", "", *names),
        rows=tuple(rows),
        fixed=2,
        caption=f"… and {more} more." if more else "",
        records=tuple(records),
    )


def _number(found: Comparison, name: str) -> int:
    return [j.name for j in found.judges].index(name) + 1


def _both(found: Comparison, first: str, second: str) -> str:
    return f"{_number(found, first)} / {_number(found, second)}"


def _whys(tests: Iterable[Test]) -> str:
    """Why some tests have no p, each reason once."""
    reasons = dict.fromkeys(test.why for test in tests if test.why)
    return f" No p: {'; '.join(reasons)}." if reasons else ""


def _pair_record(pair: Pair) -> dict[str, Json]:
    record: dict[str, Json] = {
        "first": pair.first,
        "second": pair.second,
        "criterion": pair.criterion,
        "common": pair.common,
        "difference": pair.difference.value,
        "difference_low": None if pair.difference.interval is None else pair.difference.interval.low,
        "difference_high": None if pair.difference.interval is None else pair.difference.interval.high,
        **pair.test.to_json(),
    }
    for name, figure in pair.figures.items():
        e = figure.estimate
        record |= {
            name: e.value,
            f"{name}_low": None if e.interval is None else e.interval.low,
            f"{name}_high": None if e.interval is None else e.interval.high,
        }
    return record


def _tokens(count: int | None, effort: Effort) -> str:
    return "–" if count is None or not effort.verdicts else f"{count / effort.verdicts:,.0f}"


def _mean(found: Estimate) -> str:
    if found.value is None:
        return f"– ({found.judged}/{found.asked})"
    inside = "" if found.interval is None else f" [{found.interval.low:.1f}, {found.interval.high:.1f}]"
    return f"{found.value:.1f}{inside} ({found.judged}/{found.asked})"


def _difference(found: Estimate) -> str:
    if found.value is None:
        return "–"
    inside = "" if found.interval is None else f" [{found.interval.low:+z.1f}, {found.interval.high:+z.1f}]"
    return f"{found.value:+z.1f}{inside}"


def _figure(figure: Figure | None, *, signed: bool = False) -> str:
    if figure is None or figure.estimate.value is None:
        return "undefined" if figure is not None else "–"
    e = figure.estimate
    inside = "" if e.interval is None else f" [{e.interval.low:.2f}, {e.interval.high:.2f}]"
    return (f"{e.value:+z.2f}" if signed else f"{e.value:.2f}") + inside


def _plain(figure: Figure | None) -> str:
    return "–" if figure is None or figure.estimate.value is None else f"{figure.estimate.value:.2f}"


def _p(test: Test) -> str:
    p = test.p if test.corrected is None else test.corrected
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def matrix_of(found: Comparison, criterion: str, figure: str = "weighted_kappa") -> list[list[float | None]]:
    """The figure of every two judges, None on the diagonal and where there is none: for a plot."""
    names = [j.name for j in found.judges]
    table: list[list[float | None]] = [[None] * len(names) for _ in names]
    for (i, a), (j, b) in combinations(enumerate(names), 2):
        for pair in found.pairs:
            if (pair.first, pair.second, pair.criterion) == (a, b, criterion) and figure in pair.figures:
                table[i][j] = table[j][i] = pair.figures[figure].estimate.value
    return table
