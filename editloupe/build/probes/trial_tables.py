"""A trial of judges as sentences, tables and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from editloupe.build.probes.trial import OVERALL, SMALL, JudgeTrial, MetricTrial, Trial
from editloupe.figures import plots, render
from editloupe.figures.report import drawable, write_files
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.table import NONE, Cell, Column, HeatPlot, RadarPlot, Row, Table, label_columns, numbers, words
from editloupe.stats.threshold import Threshold
from editloupe.values import Json

_SIGNED: Final = ("injection", "leniency", "less_first", "change", "bought")
_AXES: Final = {
    "small": "Small targets",
    "nuisance": "Nuisance stability",
    "order": "Order stability",
    "injection": "Injection resistance",
    "consistency": "Consistency",
}
"""Axes of the radar behind those of the metrics' accuracy and fairness."""
_VARIANT: Final = {
    "accuracy": "Accuracy",
    "changed": "Changed",
    "change": "Accuracy, less plain",
    "bought": "Obeyed, less plain",
}


def heading(found: Trial) -> str:
    """Return which probes the judges are held against."""
    first = found.judges[0]
    return f"Probes: {first.probes:,} ({first.plain:,} plain), set {found.set}."


def answers(found: Trial) -> list[str]:
    """Return what a reader asks first of each judge, in two sentences."""
    lines = []
    for judge in found.judges:
        right = "; ".join(f"{_short(found, m)} {_rate(m.figures['accuracy'], '').text} %" for m in judge.metrics)
        missing = sum(judge.unjudged.values())
        failed = f"; not judged: {missing:,} of {judge.asked:,} ({_by_status(judge.unjudged)})" if missing else ""
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


def tables(found: Trial, *, whole: bool = True) -> Iterator[Table]:
    """Yield the tables, those that a reader needs first at the front. whole: also labels."""
    yield drawable(_judges(found))
    yield _metrics(found)
    if any(m.variants for judge in found.judges for m in judge.metrics):
        yield _variants(found)
    for number, judge in enumerate(found.judges, start=1):
        for m in judge.metrics:
            yield drawable(_cells(found, judge, m, number))
            if whole and m.confusion:
                yield _confusion(found, judge, m, number)


def write_trial(found: Trial, folder: Path) -> list[Path]:
    """Write trial.md, trial.json, a CSV a table and an SVG a plot. Raises StorageError."""
    return write_files(_files(found), folder, kind="trial")


def _files(found: Trial) -> Iterator[tuple[str, str]]:
    yield "trial.md", markdown(found)
    yield "trial.json", render.json_text(found.to_json())
    for table in tables(found):
        yield f"{table.name}.csv", render.records_csv(table.records())
        for plot in table.plots:
            yield f"{plot.name}.svg", plots.draw(plot)


def markdown(found: Trial) -> str:
    """Return all of it as Markdown."""
    said, notes = [f"- {line}" for line in answers(found)], [f"> {note}\n" for note in found.notes]
    return "\n".join(["# Judges on trial\n", heading(found), "", *said, "", *notes, *map(render.markdown, tables(found))])


def _judges(found: Trial) -> Table:
    """A row a figure, a column a judge: beside the radar."""
    rows: dict[tuple[str, str], list[Estimate | None]] = {
        (name, title): [j.figures[name] for j in found.judges] for name, title in OVERALL.items()
    }
    rows["less_first", "Accuracy, less the first judge's"] = [j.figures.get("less_first") for j in found.judges]
    for metric, (_, short) in found.titles.items():
        own = [next((m for m in j.metrics if m.metric == metric), None) for j in found.judges]
        rows[f"leniency_{metric}", f"Leniency, {short}"] = [None if m is None else m.figures["leniency"] for m in own]
    lines = [
        Row(
            cells=(words(title), *(_rate(one, "value", signed=name.startswith(_SIGNED)) for one in own)),
            keys={"figure": name},
        )
        for (name, title), own in rows.items()
        if any(one is not None and one.asked for one in own) or name in OVERALL
    ]
    for name, title, cells in (
        ("unjudged", "Not judged", [Cell(value=sum(j.unjudged.values()), note=_of(j)) for j in found.judges]),
        ("rejected", "Rows refused", [Cell(value=j.rejected) for j in found.judges]),
        ("tokens", "Tokens a probe", [_each(j.spent.tokens, j, 0) for j in found.judges]),
        ("usd", "USD a probe", [_each(j.spent.usd, j, 5) for j in found.judges]),
        ("seconds", "Seconds a probe", [_each(j.spent.seconds, j, 2) for j in found.judges]),
    ):
        lines.append(Row(cells=(words(title), *cells), keys={"figure": name}))
    return Table(
        name="trial-judges",
        title="Judges on trial",
        columns=(*label_columns("Figure"), *(Column(title=j.judge, keys={"judge": j.judge}) for j in found.judges)),
        rows=tuple(lines),
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
    return RadarPlot(
        name="trial-radar", title="Judges on trial: 100 is best on every axis", axes=names, series=tuple(series)
    )


def _metrics(found: Trial) -> Table:
    heads = {"accuracy": "Accuracy", "small": "Small targets", "leniency": "Leniency", "consistency": "Same in all repeats"}
    several = any("distance" in m.figures for judge in found.judges for m in judge.metrics)
    rows = []
    for judge in found.judges:
        for m in judge.metrics:
            rates = [_rate(m.figures[name], name, signed=name in _SIGNED) for name in heads]
            far = m.figures.get("distance")
            distance = [Cell(value=None if far is None else far.value, name="distance", digits=2, signed=True)]
            lost = Cell(value=sum(m.unjudged.values()), name="unjudged", note=_by_status(m.unjudged))
            head = (words(judge.judge), words(_short(found, m)))
            cells = (*head, *rates, _limit(m.threshold), *(distance if several else []), lost)
            rows.append(Row(cells=cells, keys={"judge": judge.judge, "metric": m.metric}))
    return numbers(
        "trial-metrics",
        "By metric",
        ("Judge", "", *heads.values(), "Threshold", *(["Distance"] if several else []), "Not judged"),
        rows,
        fixed=2,
        at_once=4,
        caption=(
            "On plain probes, in percent (judged/asked). Threshold: share of the image under which fewer than 75 % of "
            "verdicts are right; failures that change the whole image have no part in it."
            + (" Distance: of scores to the band that is right, in the unit of the metric." if several else "")
        ),
    )


def _variants(found: Trial) -> Table:
    rows = [
        Row(
            cells=(
                words(judge.judge),
                words(_short(found, m)),
                words(name.replace("_", " ")),
                *(_rate(own[one], one, signed=one in _SIGNED) for one in _VARIANT),
            ),
            keys={"judge": judge.judge, "metric": m.metric, "variant": name},
        )
        for judge in found.judges
        for m in judge.metrics
        for name, own in m.variants.items()
    ]
    return numbers(
        "trial-variants",
        "Nuisances and traps",
        ("Judge", "", "Probes with", *_VARIANT.values()),
        rows,
        fixed=3,
        caption=(
            "In percent (judged/asked). Changed: another verdict than on the plain twin, where both have one truth. "
            "Accuracy, less plain: with it less that of the twins. Obeyed: the verdict is what the text in the image "
            "or the file's name asks for, less the same verdict on the plain twins."
        ),
    )


def _cells(found: Trial, judge: JudgeTrial, m: MetricTrial, number: int) -> Table:
    areas = sorted({area for own in m.cells.values() for area in own}, key=float)
    name = f"{number}-{m.metric.replace('_', '-')}"
    squares = [[own.get(area) for area in areas] for own in m.cells.values()]
    return Table(
        name=f"trial-cells-{name}",
        title=f"{judge.judge}, {found.titles[m.metric][0]}: accuracy by failure and area",
        columns=(
            *label_columns("Failure"),
            *(Column(title=area_text(float(area)), keys={"area": float(area)}) for area in areas),
            Column(title="All areas", keys={"area": None}),
        ),
        rows=tuple(
            Row(
                cells=(words(failure.replace("_", " ")), *(_rate(c, "accuracy") for c in (*own, m.by_failure[failure]))),
                keys={"failure": failure},
            )
            for failure, own in zip(m.cells, squares, strict=True)
        ),
        at_once=7,
        caption="In percent of plain probes (judged/asked), with intervals.",
        keys={"judge": judge.judge, "metric": m.metric},
        plots=(
            HeatPlot(
                name=f"trial-heat-{name}",
                title=f"{judge.judge}, {found.titles[m.metric][0]}: accuracy in percent",
                rows=tuple(failure.replace("_", " ") for failure in m.cells),
                columns=tuple(area_text(float(area)) for area in areas),
                columns_title="Target area, share of the image",
                cells=tuple(
                    tuple(None if c is None else (_hundred(c.value), c.judged, c.asked) for c in own) for own in squares
                ),
            ),
        ),
    )


def _confusion(found: Trial, judge: JudgeTrial, m: MetricTrial, number: int) -> Table:
    head = sorted({said for own in m.confusion.values() for said in own}, key=lambda said: (said.startswith("("), said))
    rows = [
        Row(
            cells=(words(truth), *(Cell(value=own.get(said, 0), name=said) for said in head)),
            keys={"truth": truth},
        )
        for truth, own in m.confusion.items()
    ]
    return numbers(
        f"trial-confusion-{number}-{m.metric.replace('_', '-')}",
        f"{judge.judge}, {found.titles[m.metric][0]}: truth in rows, verdicts in columns",
        ("Truth", *head),
        rows,
        caption="Plain probes. In brackets: what could not be judged, by status.",
        keys={"judge": judge.judge, "metric": m.metric},
    )


def _rate(found: Estimate | None, name: str, *, signed: bool = False) -> Cell:
    """A share in percent."""
    if found is None:
        return Cell(name=name)
    return Cell(
        value=_hundred(found.value),
        name=name,
        digits=1,
        signed=signed,
        low=_hundred(found.low),
        high=_hundred(found.high),
        interval_digits=0,
        bounds=("low", "high") if name == "value" else (f"{name}_low", f"{name}_high"),
        judged=found.judged,
        asked=found.asked,
        why=found.why,
    )


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _limit(found: Threshold) -> Cell:
    more: dict[str, Json] = {"threshold_outcome": found.outcome, "threshold": found.value}
    more |= {"threshold_low": found.low, "threshold_high": found.high}
    return Cell(value=threshold_text(found), name="", more=more, note=f"{found.judged}/{found.asked}")


def _each(total: float | None, judge: JudgeTrial, digits: int) -> Cell:
    probes = judge.spent.probes
    return Cell(value=None if total is None or not probes else total / probes, digits=digits)


def _of(judge: JudgeTrial) -> str:
    return f"of {judge.asked:,}" + (f": {_by_status(judge.unjudged)}" if judge.unjudged else "")


def _by_status(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{status} {n:,}" for status, n in statuses.items())


def _short(found: Trial, m: MetricTrial) -> str:
    return found.titles[m.metric][1]
