"""A trial of judges as sentences, tables and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.build.probes.trial import OVERALL, SMALL, JudgeTrial, MetricTrial, Trial, each
from editloupe.reports import plots, render
from editloupe.reports.report import write_files
from editloupe.stats.bootstrap import Estimate, ends
from editloupe.stats.table import NONE, Cell, Column, HeatPlot, RadarPlot, Row, Table, estimated, numbers, words
from editloupe.stats.threshold import Threshold
from editloupe.values import Json

SPOKEN: Final = 10
"""Sentences of `answers`, at most."""

_VARIANTS: Final[Mapping[str, str]] = {
    "jpeg": "JPEG",
    "resize": "resize",
    "tone": "tone",
    "injected_text": "injected text",
    "file_name": "file name",
    "swapped": "swapped order",
    "equal_pair": "equal pair",
    "unrelated_pair": "unrelated pair",
    "look_alike": "look-alike",
}


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


def answers(found: Trial) -> list[str]:
    """Return what a reader asks first, in at most `SPOKEN` sentences: of several judges less of each."""
    tools = [
        f"{one.tool} against {one.plain}{' at equal cost' if one.equal_cost else ''}, {found.titles[one.metric][1]}: "
        f"accuracy {_percent(one.difference, signed=True)}."
        for one in sorted(found.tools, key=lambda one: not one.equal_cost)
        if one.difference.value is not None
    ][:4]
    each = max(1, (SPOKEN - len(tools)) // len(found.judges))
    return [*(line for judge in found.judges for line in _told(found, judge)[:each]), *tools][:SPOKEN]


def _told(found: Trial, judge: JudgeTrial) -> list[str]:
    """What is said of one judge, the most important first."""
    right = "; ".join(f"{_short(found, m)} {_percent(m.accuracy)}" for m in judge.metrics)
    missing = sum(judge.unjudged.values())
    failed = (
        f"; not judged, of all probes: {missing:,} of {judge.asked:,} ({_by_status(judge.unjudged)})" if missing else ""
    )
    refused = f"; rows refused: {judge.rejected:,}" if judge.rejected else ""
    limits = "; ".join(f"{_short(found, m)} {threshold_text(m.threshold)}" for m in judge.metrics)
    lines = [
        f"{judge.judge}: accuracy on plain probes {right}{failed}{refused}.",
        f"{judge.judge}: area under which fewer than 75 % are right: {limits}.",
    ]
    figures = judge.figures
    told = [
        f"{title} {_percent(figures[name], signed=name == 'injection')}"
        for name, title in (
            ("nuisance", "verdicts changed by nuisances"),
            ("order", "by swapped order"),
            ("injection", "injection success"),
            ("consistency", "same in all repeats"),
        )
        if figures[name].value is not None
    ]
    if told:
        lines.append(f"{judge.judge}: {', '.join(told)}.")
    lenient = [m for m in judge.metrics if m.leniency.value is not None]
    if lenient:
        each_one = "; ".join(f"{_short(found, m)} {_percent(m.leniency, signed=True)}" for m in lenient)
        lines.append(f"{judge.judge}: leniency, verdicts kinder than the truth less harsher ones: {each_one}.")
    for m in judge.metrics:
        scored = [(e.value, name) for name, e in m.by_failure.items() if e.value is not None]
        if len({value for value, _ in scored}) > 1:
            (low, worst), (high, best) = min(scored), max(scored)
            lines.append(
                f"{judge.judge}, {_short(found, m)}: best on {_name(best)} ({100 * high:.0f} %), worst on {_name(worst)} "
                f"({100 * low:.0f} %)."
            )
    return lines


def tables(found: Trial, *, whole: bool = True) -> Iterator[Table]:
    """Yield the tables, those that a reader needs first at the front. whole: also by failure and area, and labels."""
    yield _judges(found)
    yield _criteria(found)
    if any(m.variants for judge in found.judges for m in judge.metrics):
        yield _variants(found)
    if found.tools:
        yield _tools(found)
    for judge in found.judges:
        for m in judge.metrics:
            yield _cells(found, judge, m)
            if whole:
                if any(cell.instead or cell.unjudged for cell in m.cells):
                    yield _instead(found, judge, m)
                if m.confusion:
                    yield _confusion(found, judge, m)
    if whole:
        yield _thresholds(found)


def write_trial(found: Trial, folder: Path) -> list[Path]:
    """Write trial.md, trial.json, a CSV a table and an SVG a plot. Raises StorageError."""
    return write_files(_files(found), folder, kind="trial")


def _files(found: Trial) -> Iterator[tuple[str, str]]:
    made = list(tables(found))
    yield "trial.md", markdown(found)
    yield "trial.json", render.json_text(found.to_json())
    for table in made:
        yield f"{table.name}.csv", render.records_csv(table.records())
        for plot in table.plots:
            yield f"{plot.name}.svg", plots.draw(plot)


def markdown(found: Trial) -> str:
    """Return all of it as Markdown."""
    said = [f"- {line}" for line in answers(found)]
    notes = [f"> {note}\n" for note in found.notes]
    return "\n".join(["# Judges on trial\n", heading(found), "", *said, "", *notes, *map(render.markdown, tables(found))])


def heading(found: Trial) -> str:
    """Return which probes the judges are held against."""
    first = found.judges[0]
    return f"Probes: {first.probes:,} ({first.plain:,} plain), set {found.set}."


def _judges(found: Trial) -> Table:
    """A row a figure, a column a judge: beside the radar."""
    overall = {
        (name, title): [_rate(judge.figures[name], "value", signed=name == "injection") for judge in found.judges]
        for name, title in OVERALL.items()
    }
    by_metric = [{m.metric: m for m in judge.metrics} for judge in found.judges]
    leniency = {
        (f"leniency_{id_}", f"Leniency, {found.titles[id_][1]}"): [
            _rate(own[id_].leniency if id_ in own else None, "value", signed=True) for own in by_metric
        ]
        for id_ in dict.fromkeys(id_ for own in by_metric for id_ in own)
    }
    figures = overall | leniency
    spends = [judge.spent for judge in found.judges]
    figures |= {
        ("unjudged", "Not judged"): [
            Cell(value=sum(j.unjudged.values()), note=_unjudged(j.unjudged, j.asked)) for j in found.judges
        ],
        ("rejected", "Rows refused"): [Cell(value=judge.rejected) for judge in found.judges],
        ("tokens", "Tokens a probe"): [Cell(value=each(s.tokens, s.probes), digits=0) for s in spends],
        ("usd", "USD a probe"): [Cell(value=each(s.usd, s.probes), digits=5) for s in spends],
        ("seconds", "Seconds a probe"): [Cell(value=each(s.seconds, s.probes), digits=2) for s in spends],
    }
    rows = [Row(cells=(words(title), *cells), keys={"figure": name}) for (name, title), cells in figures.items()]
    return Table(
        name="trial-judges",
        title="Judges on trial",
        columns=(
            Column(title="Figure", words=True),
            *(Column(title=judge.judge, keys={"judge": judge.judge}) for judge in found.judges),
        ),
        rows=tuple(rows),
        caption=(
            f"All metrics together but leniency, in percent with intervals of {100 * found.bootstrap.level:g} % "
            f"(judged/asked). Accuracy and leniency on plain probes; small targets: up to {area_text(SMALL)} of the image. "
            "Changed: another verdict than on the plain twin. Injection success: the verdict that a text in the image "
            "demands, less the same verdict on the plain twin. Leniency: verdicts kinder than the truth less harsher ones."
        ),
        plots=(radar(found),),
    )


def _criteria(found: Trial) -> Table:
    rows = []
    for judge in found.judges:
        for m in judge.metrics:
            cells = (
                words(judge.judge),
                words(_short(found, m)),
                _rate(m.accuracy, "accuracy"),
                _rate(m.small, "small"),
                _limit(m.threshold),
                _rate(m.leniency, "leniency", signed=True),
                _rate(m.kinder, "kinder"),
                _rate(m.harsher, "harsher"),
                *([] if m.distance is None else [estimated(m.distance, signed=True, name="distance", counts=False)]),
                _rate(m.consistency, "consistency"),
                _rate(m.agreement, "agreement"),
                Cell(value=sum(m.unjudged.values()), name="unjudged", note=_unjudged(m.unjudged, m.accuracy.asked)),
            )
            rows.append(Row(cells=cells, keys={"judge": judge.judge, "metric": m.metric}))
    distance = ("Distance",) if any(m.distance is not None for judge in found.judges for m in judge.metrics) else ()
    wide = max((len(row.cells) for row in rows), default=0)
    rows = [row if len(row.cells) == wide else _with_gap(row) for row in rows]
    head = ("Judge", "", "Accuracy", "Small targets", "Threshold", "Leniency", "Kinder", "Harsher", *distance)
    return numbers(
        "trial-metrics",
        "By metric",
        (*head, "Same in all repeats", "Repeats agree", "Not judged"),
        rows,
        fixed=2,
        at_once=4,
        caption=(
            "On plain probes, in percent (judged/asked). Threshold: share of the image under which fewer than 75 % of "
            "verdicts are right; failures that change the whole image have no part in it."
            + (" Distance: of scores to the band that is right, in the unit of the metric." if distance else "")
        ),
    )


def _with_gap(row: Row) -> Row:
    """A row of a metric with labels, beside metrics with scores: without a distance."""
    return replace(row, cells=(*row.cells[:8], Cell(name="distance"), *row.cells[8:]))


def _variants(found: Trial) -> Table:
    rows = [
        Row(
            cells=(
                words(judge.judge),
                words(_short(found, m)),
                words(_VARIANTS.get(v.variant, v.variant)),
                _rate(v.accuracy, "accuracy"),
                _rate(v.changed, "changed"),
                _rate(v.change, "change", signed=True),
                _rate(v.obeyed, "obeyed") if v.obeyed.asked else Cell(name=""),
                _rate(v.bought, "bought", signed=True) if v.obeyed.asked else Cell(name=""),
                Cell(value=v.alone, name="alone"),
                words(_by_status(v.unjudged) or NONE, name="unjudged"),
            ),
            keys={"judge": judge.judge, "metric": m.metric, "variant": v.variant},
        )
        for judge in found.judges
        for m in judge.metrics
        for v in m.variants
    ]
    return numbers(
        "trial-variants",
        "Nuisances and traps",
        (
            "Judge",
            "",
            "Probes with",
            "Accuracy",
            "Changed",
            "Accuracy, less plain",
            "Obeyed",
            "Obeyed, less plain",
            "No twin",
            "Not judged",
        ),
        rows,
        fixed=3,
        caption=(
            "In percent (judged/asked). Changed: another verdict than on the plain twin, where both have one truth. "
            "Accuracy, less plain: with it less that of the twins. Obeyed: the verdict is what the text in the image "
            "or the file's name asks for; less plain: less the same verdict on the plain twins."
        ),
    )


def _tools(found: Trial) -> Table:
    areas = list(dict.fromkeys(area for one in found.tools for area in one.by_area))
    rows = [
        Row(
            cells=(
                words(f"{one.tool} − {one.plain}"),
                words(found.titles[one.metric][1]),
                words("equal" if one.equal_cost else "as asked", name="cost"),
                _rate(one.difference, "difference", signed=True),
                Cell(value=one.tool_cost, name="tool_cost", digits=5 if one.unit == "USD" else 0, note=one.unit),
                Cell(value=one.plain_cost, name="plain_cost", digits=5 if one.unit == "USD" else 0, note=one.unit),
                *(_rate(one.by_area.get(area), f"area {area}", signed=True) for area in areas),
            ),
            keys={"tool": one.tool, "plain": one.plain, "metric": one.metric},
        )
        for one in found.tools
    ]
    return numbers(
        "trial-tools",
        "Tools against plain",
        ("Tool − plain", "", "Cost", "Accuracy", "Tool, a probe", "Plain, a probe", *(area_text(float(a)) for a in areas)),
        rows,
        fixed=3,
        caption=(
            "Differences of accuracy in points, paired by plain probe, in all and by area (judged/asked). Equal cost: as "
            "many of the plain judge's repeats count as the judge with tools spends, joined as the run says."
        ),
    )


def _cells(found: Trial, judge: JudgeTrial, m: MetricTrial) -> Table:
    areas = list(dict.fromkeys(cell.area for cell in sorted(m.cells, key=lambda c: c.area)))
    by_place = {(cell.failure, cell.area): cell for cell in m.cells}
    rows = []
    for failure, all_areas in m.by_failure.items():
        own = [by_place.get((failure, area)) for area in areas]
        cells = (None if cell is None else cell.accuracy for cell in own)
        rows.append(
            Row(
                cells=(words(_name(failure)), *(_rate(c, "accuracy") for c in cells), _rate(all_areas, "accuracy")),
                keys={"failure": failure},
            )
        )
    columns = (
        Column(title="Failure", words=True),
        *(Column(title=area_text(area), keys={"area": area}) for area in areas),
        Column(title="All areas", keys={"area": None}),
    )
    return Table(
        name=f"trial-cells-{_number(found, judge)}-{m.metric.replace('_', '-')}",
        title=f"{judge.judge}, {_title(found, m)}: accuracy by failure and area",
        columns=columns,
        rows=tuple(rows),
        at_once=7,
        caption="In percent of plain probes (judged/asked), with intervals.",
        keys={"judge": judge.judge, "metric": m.metric},
        plots=(heat(found, judge, m),),
    )


def _instead(found: Trial, judge: JudgeTrial, m: MetricTrial) -> Table:
    rows = [
        Row(
            cells=(
                words(_name(cell.failure)),
                words(area_text(cell.area)),
                Cell(value=cell.accuracy.judged, name="judged"),
                words(", ".join(f"{label} {n}" for label, n in cell.instead.items()) or NONE, name="instead"),
                words(_by_status(cell.unjudged) or NONE, name="unjudged"),
            ),
            keys={"failure": cell.failure, "area": cell.area},
        )
        for cell in m.cells
        if cell.instead or cell.unjudged
    ]
    return Table(
        name=f"trial-instead-{_number(found, judge)}-{m.metric.replace('_', '-')}",
        title=f"{judge.judge}, {_title(found, m)}: what was answered in place of the truth",
        columns=(
            *(Column(title=title, words=True) for title in ("Failure", "Area")),
            Column(title="Judged"),
            *(Column(title=title, words=True) for title in ("Answered instead", "Not judged")),
        ),
        rows=tuple(rows),
        fixed=2,
        caption="Plain probes; cells in which all was right are left out.",
        keys={"judge": judge.judge, "metric": m.metric},
    )


def _confusion(found: Trial, judge: JudgeTrial, m: MetricTrial) -> Table:
    labels = found.levels[m.metric] or tuple(dict.fromkeys(said for own in m.confusion.values() for said in own))
    failed = [said for own in m.confusion.values() for said in own if said not in labels]
    head = [*labels, *dict.fromkeys(failed)]
    rows = [
        Row(
            cells=(words(truth), *(Cell(value=m.confusion[truth].get(said, 0), name=said) for said in head)),
            keys={"truth": truth},
        )
        for truth in sorted(m.confusion, key=lambda t: labels.index(t) if t in labels else 0)
    ]
    return numbers(
        f"trial-confusion-{_number(found, judge)}-{m.metric.replace('_', '-')}",
        f"{judge.judge}, {_title(found, m)}: truth in rows, verdicts in columns",
        ("Truth", *head),
        rows,
        caption="Plain probes. In brackets: what could not be judged, by status.",
        keys={"judge": judge.judge, "metric": m.metric},
    )


def _thresholds(found: Trial) -> Table:
    rows = [
        Row(
            cells=(words(judge.judge), words(_short(found, m)), words(name), _limit(limit)),
            keys={"judge": judge.judge, "metric": m.metric, "failure": failure},
        )
        for judge in found.judges
        for m in judge.metrics
        for failure, name, limit in (
            ("all", "all", m.threshold), *((f, _name(f), limit) for f, limit in m.thresholds.items())
        )
    ]  # fmt: skip
    return numbers(
        "trial-thresholds",
        "Detection thresholds by failure",
        ("Judge", "", "Failure", "Threshold"),
        rows,
        fixed=3,
        caption=(
            "Share of the image under which fewer than 75 % of verdicts are right, with its interval (judged/asked). Its "
            "ends are areas that were asked."
        ),
    )


AXES: Final[Mapping[str, str]] = {
    "small": "Small targets",
    "fairness": "Fairness",
    "nuisance": "Nuisance stability",
    "order": "Order stability",
    "injection": "Injection resistance",
    "consistency": "Consistency",
}
"""Axes of the radar behind those of the metrics' accuracy."""


def axes(judge: JudgeTrial, name: str) -> float | None:
    """Return a figure on an axis of the radar, 0 (worst) to 100 (best); None where the judge has none."""
    if name == "fairness":
        lenient = [abs(m.leniency.value) for m in judge.metrics if m.leniency.value is not None]
        return 100 * (1 - sum(lenient) / len(lenient)) if lenient else None
    value = judge.figures[name].value
    if value is None:
        return None
    if name in ("nuisance", "order", "injection"):
        return 100 * (1 - max(0.0, value))
    return 100 * value


def radar(found: Trial) -> RadarPlot:
    """Return the radar of all judges: accuracy a metric, then `AXES`."""
    metrics = list(dict.fromkeys(m.metric for judge in found.judges for m in judge.metrics))
    series = []
    for judge in found.judges:
        own = {m.metric: m.accuracy.value for m in judge.metrics}
        right = [None if (value := own.get(id_)) is None else 100 * value for id_ in metrics]
        series.append((judge.judge, (*right, *(axes(judge, name) for name in AXES))))
    return RadarPlot(
        name="trial-radar",
        title="Judges on trial: 100 is best on every axis",
        axes=(*(f"Accuracy {found.titles[id_][1]}" for id_ in metrics), *AXES.values()),
        series=tuple(series),
    )


def heat(found: Trial, judge: JudgeTrial, m: MetricTrial) -> HeatPlot:
    """Return accuracy by failure and area as a picture."""
    areas = sorted({cell.area for cell in m.cells})
    by_place = {(cell.failure, cell.area): cell.accuracy for cell in m.cells}

    def square(failure: str, area: float) -> tuple[float | None, int, int] | None:
        cell = by_place.get((failure, area))
        return None if cell is None else (None if cell.value is None else 100 * cell.value, cell.judged, cell.asked)

    return HeatPlot(
        name=f"trial-heat-{_number(found, judge)}-{m.metric.replace('_', '-')}",
        title=f"{judge.judge}, {_title(found, m)}: accuracy in percent",
        rows=tuple(_name(failure) for failure in m.by_failure),
        columns=tuple(area_text(area) for area in areas),
        columns_title="Target area, share of the image",
        cells=tuple(tuple(square(failure, area) for area in areas) for failure in m.by_failure),
    )


def _rate(found: Estimate | None, name: str, *, signed: bool = False) -> Cell:
    """A share in percent."""
    if found is None or not found.asked:
        return Cell(name=name, bounds=("low", "high"), judged=0, asked=0, why="" if found is None else found.why)
    low, high = (None if end is None else 100 * end for end in ends(found.interval))
    return Cell(
        value=None if found.value is None else 100 * found.value,
        name=name,
        digits=1,
        signed=signed,
        low=low,
        high=high,
        interval_digits=0,
        bounds=("low", "high") if name == "value" else (f"{name}_low", f"{name}_high"),
        judged=found.judged,
        asked=found.asked,
        why=found.why,
    )


def _limit(found: Threshold) -> Cell:
    more: dict[str, Json] = {"threshold_outcome": found.outcome, "threshold": found.value}
    more |= {"threshold_low": found.low, "threshold_high": found.high}
    return Cell(value=threshold_text(found), name="", more=more, note=f"{found.judged}/{found.asked}")


def _unjudged(statuses: Mapping[str, int], asked: int) -> str:
    return f"of {asked:,}" + (f": {_by_status(statuses)}" if statuses else "")


def _by_status(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{status} {n:,}" for status, n in statuses.items())


def _percent(found: Estimate, *, signed: bool = False) -> str:
    if found.value is None:
        return f"{NONE} ({found.why})"
    plus = "+" if signed else ""
    low, high = ends(found.interval)
    inside = "" if low is None or high is None else f" [{100 * low:{plus}.0f}, {100 * high:{plus}.0f}]"
    return f"{100 * found.value:{plus}.0f} %{inside}"


def _name(failure: str) -> str:
    return failure.replace("_", " ")


def _short(found: Trial, m: MetricTrial) -> str:
    return found.titles[m.metric][1]


def _title(found: Trial, m: MetricTrial) -> str:
    return found.titles[m.metric][0]


def _number(found: Trial, judge: JudgeTrial) -> int:
    return found.judges.index(judge) + 1
