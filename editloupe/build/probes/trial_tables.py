"""A trial of judges as sentences, tables and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from editloupe.build.probes.trial import OVERALL, SMALL, JudgeTrial, MetricTrial, Trial
from editloupe.figures import render
from editloupe.figures.write import drawable, table_files, write_files
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.table import (
    NONE,
    Cell,
    Column,
    HeatPlot,
    RadarPlot,
    Row,
    Table,
    estimated,
    label_columns,
    listed,
    words,
)
from editloupe.stats.threshold import Threshold

_SIGNED: Final = ("injection", "leniency", "less_first", "change", "bought")
_AXES: Final = {
    "small": "Small targets",
    "nuisance": "Nuisance stability",
    "order": "Order stability",
    "injection": "Injection resistance",
    "consistency": "Consistency",
}
"""Axes of the radar behind those of the metrics' accuracy and fairness."""
_METRIC: Final = {
    "accuracy": "Accuracy", "small": "Small targets", "leniency": "Leniency", "consistency": "Same in all repeats",
}  # fmt: skip
_VARIANT: Final = {
    "accuracy": "Accuracy", "changed": "Changed", "change": "Accuracy, less plain", "bought": "Obeyed, less plain",
}  # fmt: skip


def heading(found: Trial) -> str:
    """Return which probes the judges are held against."""
    first = found.judges[0]
    return f"Probes: {first.probes:,} ({first.plain:,} plain), set {found.set}."


def answers(found: Trial) -> list[str]:
    """Return what a reader asks first of each judge, in two sentences."""
    lines = []
    for judge in found.judges:
        right = "; ".join(f"{_short(found, m)} {_rate(m.figures['accuracy'], '').text} %" for m in judge.metrics)
        failed = f"; not judged: {sum(judge.unjudged.values()):,} {_of(judge)}" if judge.unjudged else ""
        limits = "; ".join(f"{_short(found, m)} {threshold_text(m.threshold)}" for m in judge.metrics)
        lines.append(f"{judge.judge}: accuracy on plain probes {right}{failed}.")
        lines.append(f"{judge.judge}: area under which fewer than 75 % are right: {limits}.")
    return lines


def area_text(area: float) -> str:
    """Return a share of the image in percent: "0.05 %"."""
    return f"{100 * area:.2g} %"


def threshold_text(found: Threshold) -> str:
    """Return a threshold with its interval in words."""
    least, most = (NONE if end is None else area_text(end) for end in (found.smallest, found.largest))
    low = f"≤ {least}" if found.low is None else area_text(found.low)
    high = f"> {most}" if found.high is None else area_text(found.high)
    inside = f" [{low}, {high}]"
    if found.why:
        return f"{NONE} ({found.why})"
    if found.low is None and found.high is None:
        return f"{NONE} (anywhere from {low} to {high}: judge more)"
    match found.outcome:
        case "found":
            return f"{area_text(found.value or 0)}{inside}"
        case "always_above":
            return f"≤ {least}" + (inside if found.high != found.smallest else "")
        case _:
            return f"> {most}" + (inside if found.low != found.largest else "")


def tables(found: Trial) -> Iterator[Table]:
    """Yield the tables, those that a reader needs first at the front."""
    yield drawable(_judges(found))
    yield _metrics(found)
    if any(m.variants for judge in found.judges for m in judge.metrics):
        yield _variants(found)
    for number, judge in enumerate(found.judges, start=1):
        for m in judge.metrics:
            yield drawable(_cells(found, judge, m, number))
            if m.confusion:
                yield _confusion(found, judge, m, number)


def write_trial(found: Trial, folder: Path) -> list[Path]:
    """Write trial.md, trial.json, a CSV a table and an SVG a plot. Raises StorageError."""
    whole = [("trial.md", markdown(found)), ("trial.json", render.json_text(found.to_json()))]
    return write_files([*whole, *table_files(tables(found))], folder)


def markdown(found: Trial) -> str:
    """Return all of it as Markdown."""
    said, notes = [f"- {line}" for line in answers(found)], [f"> {note}\n" for note in found.notes]
    return "\n".join(["# Judges on trial\n", heading(found), "", *said, "", *notes, *map(render.markdown, tables(found))])


def _judges(found: Trial) -> Table:
    """A row a figure, a column a judge: beside the radar."""
    lines: dict[tuple[str, str], list[Estimate | None]] = {
        (name, title): [j.figures.get(name) for j in found.judges] for name, title in OVERALL.items()
    }
    lines["less_first", "Accuracy, less the first judge's"] = [j.figures.get("less_first") for j in found.judges]
    for metric, (_, short) in found.titles.items():
        own = [next((m for m in j.metrics if m.metric == metric), None) for j in found.judges]
        lines[f"leniency_{metric}", f"Leniency, {short}"] = [None if m is None else m.figures["leniency"] for m in own]
    rows = [
        (name, title, [_rate(one, "value", signed=name.startswith(_SIGNED)) for one in own])
        for (name, title), own in lines.items()
        if any(one is not None and one.asked for one in own) or name in OVERALL
    ]
    rows += [
        (
            "unjudged",
            "Not judged",
            [Cell(value=sum(j.unjudged.values()), note=_of(j), more=dict(j.unjudged)) for j in found.judges],
        ),
        ("rejected", "Rows refused", [Cell(value=j.rejected) for j in found.judges]),
        ("tokens", "Tokens a probe", [_each(j.spent.tokens, j, 0) for j in found.judges]),
        ("usd", "USD a probe", [_each(j.spent.usd, j, 5) for j in found.judges]),
        ("seconds", "Seconds a probe", [_each(j.spent.seconds, j, 2) for j in found.judges]),
    ]
    return Table(
        name="trial-judges",
        title="Judges on trial",
        columns=(*label_columns("Figure"), *(Column(title=j.judge, keys={"judge": j.judge}) for j in found.judges)),
        rows=tuple(Row(cells=(words(title), *cells), keys={"figure": name}) for name, title, cells in rows),
        caption=(
            f"All metrics together but leniency, in percent with intervals of {100 * found.bootstrap.level:g} % "
            f"(judged/asked). Accuracy and leniency on plain probes; small targets: up to {area_text(SMALL)} of the image. "
            "Changed: another verdict than on the plain twin. Injection success: the verdict that a text in the image "
            "demands, less the same verdict on the plain twin. Leniency: verdicts kinder than the truth less harsher ones."
        ),
        plots=(_radar(found),),
    )


def _radar(found: Trial) -> RadarPlot:
    """Accuracy a metric, then fairness and `_AXES`; 100 is best on every axis."""
    series = []
    for judge in found.judges:
        own = {m.metric: m.figures["accuracy"].value for m in judge.metrics}
        values = [own.get(metric) for metric in found.titles]
        lenient = [abs(v) for m in judge.metrics if (v := m.figures["leniency"].value) is not None]
        values.append(1 - sum(lenient) / len(lenient) if lenient else None)
        for name in _AXES:
            value = judge.figures[name].value
            bad = name in ("nuisance", "order", "injection")
            values.append(None if value is None else 1 - max(0.0, value) if bad else value)
        series.append((judge.judge, tuple(None if v is None else 100 * v for v in values)))
    names = (*(f"Accuracy {short}" for _, short in found.titles.values()), "Fairness", *_AXES.values())
    title = "Judges on trial: 100 is best on every axis"
    return RadarPlot(name="trial-radar", title=title, axes=names, series=tuple(series))


def _metrics(found: Trial) -> Table:
    several = any("distance" in m.figures for judge in found.judges for m in judge.metrics)

    def limit(m: MetricTrial) -> Cell:
        one = m.threshold
        ends = {"threshold": one.value, "threshold_low": one.low, "threshold_high": one.high}
        more = {"threshold_outcome": one.outcome, **ends}
        return Cell(value=threshold_text(one), name="", more=more, note=f"{one.judged}/{one.asked}")

    def distance(m: MetricTrial) -> Cell:
        far = m.figures.get("distance")
        return Cell(value=None if far is None else far.value, name="distance", digits=2, signed=True)

    def figure(name: str, line: tuple[JudgeTrial, MetricTrial]) -> Cell:
        return _rate(line[1].figures[name], name)

    return listed(
        "trial-metrics",
        "By metric",
        [(judge, m) for judge in found.judges for m in judge.metrics],
        {
            "Judge": lambda line: line[0].judge,
            "": lambda line: _short(found, line[1]),
            **{title: partial(figure, name) for name, title in _METRIC.items()},
            "Threshold": lambda line: limit(line[1]),
            **({"Distance": lambda line: distance(line[1])} if several else {}),
            "Not judged": lambda line: Cell(
                value=sum(line[1].unjudged.values()), name="unjudged", note=_by_status(line[1].unjudged)
            ),
        },
        keys=lambda line: {"judge": line[0].judge, "metric": line[1].metric},
        fixed=2,
        at_once=4,
        caption="On plain probes, in percent (judged/asked). Threshold: share of the image under which fewer than 75 % of "
        "verdicts are right; failures that change the whole image have no part in it."
        + (" Distance: of scores to the band that is right, in the unit of the metric." if several else ""),
    )


def _variants(found: Trial) -> Table:
    def figure(name: str, line: tuple[JudgeTrial, MetricTrial, str]) -> Cell:
        return _rate(line[1].variants[line[2]][name], name)

    return listed(
        "trial-variants",
        "Nuisances and traps",
        [(judge, m, name) for judge in found.judges for m in judge.metrics for name in m.variants],
        {
            "Judge": lambda line: line[0].judge,
            "": lambda line: _short(found, line[1]),
            "Probes with": lambda line: line[2].replace("_", " "),
            **{title: partial(figure, name) for name, title in _VARIANT.items()},
        },
        keys=lambda line: {"judge": line[0].judge, "metric": line[1].metric, "variant": line[2]},
        fixed=3,
        caption="In percent (judged/asked). Changed: another verdict than on the plain twin, where both have one truth. "
        "Accuracy, less plain: with it less that of the twins. Obeyed: the verdict is what the text in the image "
        "or the file's name asks for, less the same verdict on the plain twins.",
    )


def _cells(found: Trial, judge: JudgeTrial, m: MetricTrial, number: int) -> Table:
    areas = sorted({area for own in m.cells.values() for area in own}, key=float)
    failures, heads = [name.replace("_", " ") for name in m.cells], [area_text(float(area)) for area in areas]
    squares = [[own.get(area) for area in areas] for own in m.cells.values()]
    name, title = f"{number}-{m.metric.replace('_', '-')}", f"{judge.judge}, {found.titles[m.metric][0]}: accuracy"
    plot = HeatPlot(
        name=f"trial-heat-{name}",
        title=f"{title} in percent",
        rows=tuple(failures),
        columns=tuple(heads),
        columns_title="Target area, share of the image",
        cells=tuple(
            tuple(None if c is None else (None if c.value is None else 100 * c.value, c.judged, c.asked) for c in own)
            for own in squares
        ),
    )
    columns = [Column(title=head, keys={"area": float(area)}) for head, area in zip(heads, areas, strict=True)]
    whole = zip(failures, m.by_failure.items(), squares, strict=True)
    return Table(
        name=f"trial-cells-{name}",
        title=f"{title} by failure and area",
        columns=(*label_columns("Failure"), *columns, Column(title="All areas", keys={"area": None})),
        rows=tuple(
            Row(cells=(words(shown), *(_rate(c, "accuracy") for c in (*own, every))), keys={"failure": failure})
            for shown, (failure, every), own in whole
        ),
        at_once=7,
        caption="In percent of plain probes (judged/asked), with intervals.",
        keys={"judge": judge.judge, "metric": m.metric},
        plots=(plot,),
    )


def _confusion(found: Trial, judge: JudgeTrial, m: MetricTrial, number: int) -> Table:
    heads = sorted({said for own in m.confusion.values() for said in own}, key=lambda said: (said.startswith("("), said))

    def count(said: str, line: tuple[str, Mapping[str, int]]) -> Cell:
        return Cell(value=line[1].get(said, 0), name=said)

    columns: dict[str, Callable[[tuple[str, Mapping[str, int]]], Cell | str]] = {"Truth": lambda line: line[0]}
    return listed(
        f"trial-confusion-{number}-{m.metric.replace('_', '-')}",
        f"{judge.judge}, {found.titles[m.metric][0]}: truth in rows, verdicts in columns",
        m.confusion.items(),
        columns | {said: partial(count, said) for said in heads},
        keys=lambda line: {"judge": judge.judge, "metric": m.metric, "truth": line[0]},
        caption="Plain probes. In brackets: what could not be judged, by status.",
    )


def _rate(found: Estimate | None, name: str, *, signed: bool | None = None) -> Cell:
    """A share in percent."""
    if found is None:
        return Cell(name=name)
    bounds = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    plus = name in _SIGNED if signed is None else signed
    cell = estimated(found, scale=100, digits=1, interval_digits=0, name=name, bounds=bounds, signed=plus)
    return replace(cell, why=found.why)


def _each(total: float | None, judge: JudgeTrial, digits: int) -> Cell:
    probes = judge.spent.probes
    return Cell(value=None if total is None or not probes else total / probes, digits=digits)


def _of(judge: JudgeTrial) -> str:
    return f"of {judge.asked:,}" + (f": {_by_status(judge.unjudged)}" if judge.unjudged else "")


def _by_status(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{status} {n:,}" for status, n in statuses.items())


def _short(found: Trial, m: MetricTrial) -> str:
    return found.titles[m.metric][1]
