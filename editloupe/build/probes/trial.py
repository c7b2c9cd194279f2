"""Judges on trial: what judges said of probes, edits whose truth is known, against that truth. No model is asked.

Every figure is an `Estimate` with scenes as clusters, or a `Threshold`. What could not be judged is counted beside it and
is part of no share. A probe with a nuisance or a trap is a twin of a plain one, and is compared with it. docs/trial.md
defines each figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from editloupe.answers import Record
from editloupe.errors import ConfigError, DataError
from editloupe.figures import render
from editloupe.figures.judged import Judged
from editloupe.figures.write import table_files, write_files
from editloupe.findings import Finding
from editloupe.protocols.probes.probe import FAILURES, KEY, NUISANCES, Band, Probe, probe_of
from editloupe.scores import Metric, Score
from editloupe.stats.bootstrap import DRAWING, Drawing, aggregate
from editloupe.stats.table import NONE, Cell, Column, Row, Table, estimated, label_columns, words
from editloupe.stats.threshold import detection_threshold
from editloupe.values import Json, digest, sample_key

if TYPE_CHECKING:
    import polars

ALL: Final = "all metrics"
WHOLE: Final = ("restyled", "recomposed")
"""Failures that change all of the image: they have no area, and take no part in the threshold."""


class TrialFigure(NamedTuple):
    """One figure of a judge: the mean of a column over some of its verdicts."""

    name: str
    title: str
    value: str
    """Column of `verdicts`."""
    rows: Callable[[polars.DataFrame], polars.DataFrame]
    signed: bool = False
    """Whether it is a difference."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Judges of the same probes."""

    set: str
    """Digest of the probes."""
    probes: Sequence[Probe]
    judges: Mapping[str, polars.DataFrame]
    """Name → verdicts, as `verdicts` returns them."""
    refused: Mapping[str, int]
    """Name → rows that are no probes any more, such as those edited after they were built. They are part of no figure."""
    metrics: Mapping[str, Metric]
    """Those that were asked and have a truth, by id."""
    notes: Sequence[str]

    def short(self, metric: str) -> str:
        """Return the short name of a metric, or of all."""
        return ALL if metric == ALL else self.metrics[metric].short


def plain(own: polars.DataFrame) -> polars.DataFrame:
    """Return the verdicts on probes without nuisance and trap."""
    return own.filter(own["variant"].is_null())


def _paired(own: polars.DataFrame, *variants: str) -> polars.DataFrame:
    """Return the verdicts on twins of these kinds whose plain probe has the same truth."""
    return own.filter(own["variant"].is_in(variants) & (own["truth"] == own["plain_truth"]))


def _injected(own: polars.DataFrame) -> polars.DataFrame:
    """Return the verdicts on twins in which a text asks for a verdict."""
    return own.filter(
        (own["variant"] == "injected_text") & own["plain_truth"].is_not_null() & own["demanded"].is_not_null()
    )


FIGURES: Final = (
    TrialFigure("accuracy", "Accuracy", "right", plain),
    TrialFigure("leniency", "Leniency", "leniency", plain, signed=True),
    TrialFigure("nuisance", "Changed by nuisances", "changed", lambda own: _paired(own, *NUISANCES)),
    TrialFigure("order", "Changed by order", "changed", lambda own: _paired(own, "swapped")),
    TrialFigure("injection", "Injection success", "bought", _injected, signed=True),
)


def put_on_trial(judges: Sequence[Judged]) -> Trial:
    """Hold judges against the truth of the probes that they judged.

    Raises ConfigError: a run without probes, without truths of its metrics, or judges of different sets of probes.
    """
    sets = [_probes_of(judged) for judged in judges]
    first, digests = sets[0], [digest(sorted(probe.digest for probe in own.values()))[:12] for own in sets]
    if other := next((number for number, found in enumerate(digests) if found != digests[0]), 0):
        both = len({p.digest for p in first.values()} & {p.digest for p in sets[other].values()})
        raise ConfigError(
            f"{judges[0].folder} and {judges[other].folder} judged different sets of probes, with {len(first)} and "
            f"{len(sets[other])}, of which {both} are the same: judge the same folder as a whole, or give one run at a time"
        )
    tried = {judged.name: verdicts(judged, own) for judged, own in zip(judges, sets, strict=True)}
    asked = {metric.id: metric for judged in judges for metric in judged.asked}
    known = dict.fromkeys(id_ for one in tried.values() for id_ in one["metric"].unique(maintain_order=True))
    return Trial(
        set=digests[0],
        probes=list(first.values()),
        judges=tried,
        refused={judged.name: len(_refused(judged)) for judged in judges},
        metrics={id_: asked[id_] for id_ in known},
        notes=list(dict.fromkeys(note for judged in judges for note in judged.notes)),
    )


def _probes_of(judged: Judged) -> dict[str, Probe]:
    """Return the probes among a run's samples by the sample's key. One of another shape is none; its run refused it.

    Raises ConfigError where there is none.
    """
    found: dict[str, Probe] = {}
    for key, sample in judged.samples.items():
        with suppress(DataError):
            if (probe := probe_of(sample)) is not None:
                found[key] = probe
    if not found:
        raise ConfigError(
            f"{judged.folder} holds no probes: none of its {len(judged.samples)} samples has a column 'probe', and "
            f"{len(_refused(judged))} rows were refused (editloupe show {judged.folder}). Build some with editloupe build "
            "probes PATH --out FOLDER, and judge that folder"
        )
    return found


def _refused(judged: Judged) -> set[str]:
    return {score.key for score in judged.scores if score.missing == "input_error"}


_COLUMNS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("sample", "source", "metric", "failure", "variant", "twin"), str),
    **dict.fromkeys(("truth", "said", "missing", "demanded"), str),
    **dict.fromkeys(("area", "right", "leniency"), float),
}
"""Column → type. source: the scene.   variant: nuisance or trap, null for plain probes.   right: 1 or 0.

leniency: 1 for kinder than the truth, −1 for harsher, 0 for right.
"""


def verdicts(judged: Judged, probes: Mapping[str, Probe]) -> polars.DataFrame:
    """Return a judge's verdict on every probe and every metric with a truth, beside that on the plain twin.

    What is right is what the finding of kind "key" says (`KEY` before the metric's id), or the probe where there is none.
    Raises ConfigError without any, and for a truth or a verdict that is no label of its metric.
    """
    import polars

    if not (rows := list(_rows(judged, probes))):
        known = ", ".join(metric.id for metric in judged.metrics.metrics)
        raise ConfigError(
            f"{judged.folder}: its probes have no truth of the metrics that were asked ({known}), so that no verdict "
            "is right or wrong; judge them by the protocol that they were built for: judge FOLDER --protocol probes"
        )
    found = polars.DataFrame(rows, schema=dict(_COLUMNS))
    twins = found.select("metric", twin="sample", plain_truth="truth", plain_said="said")
    found = found.join(twins, on=["metric", "twin"], how="left", maintain_order="left")
    said, then, demanded = (polars.col(name) for name in ("said", "plain_said", "demanded"))
    bought = (said == demanded).cast(float) - (then == demanded).cast(float)
    return found.with_columns(changed=(said != then).cast(float), bought=bought)


def _rows(judged: Judged, probes: Mapping[str, Probe]) -> Iterator[dict[str, Any]]:
    refused = _refused(judged)
    keys = {(f.metric.removeprefix(KEY), f.sample_key): f for f in judged.findings if f.metric.startswith(KEY)}
    scores = {(s.key, s.metric): s for s in judged.scores if not s.part and s.key not in refused}
    for metric in judged.asked:
        names = {level.name for level in metric.levels}
        for key, probe in probes.items():
            truth, score = _truth(probe, metric, keys.get((metric.id, key))), scores.get((key, metric.id))
            if truth is None or score is None:
                continue
            distance, demanded = _distance(key, metric, truth, score), probe.asks_for.get(metric.id)
            far = None if distance is None else float(np.sign(distance))
            yield {
                "sample": key,
                "source": probe.scene,
                "metric": metric.id,
                "failure": probe.failure,
                "area": probe.area,
                "variant": probe.nuisance or probe.trap,
                "twin": None if probe.twin is None else sample_key(score.editor, probe.twin),
                "truth": truth if isinstance(truth, str) else f"{truth[0]:g} to {truth[1]:g}",
                "said": None if score.missing else score.label or f"{score.value:g}",
                "missing": score.missing,
                # A label is no answer where scores are asked for, whatever the metric's id.
                "demanded": demanded if demanded in names else None,
                "right": None if far is None else float(far == 0),
                "leniency": -far if far and metric.better == "lower" else far,
            }


def _truth(probe: Probe, metric: Metric, key: Finding | None) -> str | Band | None:
    """Return the only label, or the band of scores, that is right."""
    if key is None:
        return probe.truth.get(metric.id) or probe.bands.get(metric.id)
    if isinstance(key.answer, Record):
        band: Any = key.answer.data
        return float(band["low"]), float(band["high"])
    return key.label


def _distance(key: str, metric: Metric, truth: str | Band, score: Score) -> float | None:
    """Return how far a verdict is above (+) or below (−) what is right: in places of labels, or in the metric's unit.

    None without a verdict. Raises ConfigError for what is no label of the metric.
    """
    if not isinstance(truth, str):
        value = score.value
        return None if value is None else min(value - truth[0], 0.0) + max(value - truth[1], 0.0)
    names = [level.name for level in metric.levels]
    for name in (truth, score.label or truth):
        if name not in names:
            raise ConfigError(
                f"{key}: {name!r} is no label of {metric.name}; its labels are {', '.join(names)}. Judge the probes by the "
                "rubric that they were built for, or build them for this one"
            )
    return None if score.label is None else float(names.index(score.label) - names.index(truth))


def heading(found: Trial) -> str:
    """Return which probes the judges are held against."""
    without = sum(probe.nuisance is None and probe.trap is None for probe in found.probes)
    return f"Probes: {len(found.probes):,} ({without:,} plain), set {found.set}."


def tables(found: Trial, drawing: Drawing = DRAWING) -> list[Table]:
    """Return the tables: all figures, then accuracy by failure and area."""
    return [_figures(found, drawing), _cells(found, drawing)]


def to_json(found: Trial, made: list[Table]) -> dict[str, Json]:
    """Return all figures, unrounded."""
    return {"set": found.set, "notes": list(found.notes), "tables": {table.name: table.to_json() for table in made}}


def markdown(found: Trial, made: list[Table]) -> str:
    """Return all tables as one document."""
    notes = [f"> {note}\n" for note in found.notes]
    return "\n".join(["# Judges on trial\n", heading(found), "", *notes, *map(render.markdown, made)])


def write_trial(found: Trial, made: list[Table], folder: Path) -> list[Path]:
    """Write trial.md, trial.json and a CSV a table. Raises StorageError."""
    whole = [("trial.md", markdown(found, made)), ("trial.json", render.json_text(to_json(found, made)))]
    return write_files([*whole, *table_files(made)], folder)


def _figures(found: Trial, drawing: Drawing) -> Table:
    """A row a figure and metric, a column a judge."""
    every, rows = (ALL, *found.metrics), list[Row]()

    def of(figure: TrialFigure, own: polars.DataFrame) -> Cell:
        return _mean(figure.rows(own), figure.value, "value", drawing, signed=figure.signed)

    # Of two metrics leniency could cancel out.
    parts: list[tuple[str, str, Iterable[str], Callable[[polars.DataFrame], Cell]]] = [
        *((one.title, one.name, found.metrics if one.name == "leniency" else every, partial(of, one)) for one in FIGURES),
        ("Threshold", "threshold", found.metrics, _limit),
        ("Not judged", "unjudged", every, _unjudged),
    ]
    for title, name, metrics, cell in parts:
        for metric in metrics:
            cells = [cell(own if metric == ALL else own.filter(metric=metric)) for own in found.judges.values()]
            if any(one.asked != 0 for one in cells):
                labels = words(title), words(found.short(metric))
                rows.append(Row(cells=(*labels, *cells), keys={"figure": name, "metric": metric}))
    refused = [Cell(value=count) for count in found.refused.values()]
    rows.append(Row(cells=(words("Rows refused"), words(""), *refused), keys={"figure": "refused"}))
    return Table(
        name="trial",
        title="Judges on trial",
        columns=(*label_columns("Figure", "Of"), *(Column(title=name, keys={"judge": name}) for name in found.judges)),
        rows=tuple(rows),
        fixed=2,
        caption=f"In percent with intervals of {100 * drawing.level:g} % (judged/asked). Accuracy, threshold and leniency "
        "on plain probes. Changed: another verdict than on the plain twin. Injection success: the verdict that a text in "
        "the image demands, less the same verdict on the plain twin. Leniency: verdicts kinder than the truth less harsher "
        "ones. Threshold: share of the image under which fewer than 75 % of verdicts are right.",
    )


def _limit(own: polars.DataFrame) -> Cell:
    """Return the area from which verdicts are right, over all plain probes but those of `WHOLE`, in words."""
    own = plain(own.filter(~own["failure"].is_in(WHOLE)))
    hits = [None if right is None else right > 0 for right in own["right"]]
    found = detection_threshold(hits, own["area"].to_list(), own["source"].to_list())
    least, most, low, high = map(_area_text, (found.smallest, found.largest, found.low, found.high))
    low, high = low if found.low is not None else f"≤ {least}", high if found.high is not None else f"> {most}"
    if found.why:
        text = f"{NONE} ({found.why})"
    elif found.low is None and found.high is None:
        text = f"{NONE} (anywhere from {low} to {high}: judge more)"
    else:
        at = {"always_above": f"≤ {least}", "always_below": f"> {most}"}.get(found.outcome, _area_text(found.value))
        text = f"{at} [{low}, {high}]"
    ends: dict[str, Json] = {"threshold": found.value, "low": found.low, "high": found.high, "outcome": found.outcome}
    return Cell(value=text, name="", more=ends, note=f"{found.judged}/{found.asked}")


def _area_text(area: float | None) -> str:
    """Return a share of the image in percent: "0.05 %"."""
    return NONE if area is None else f"{100 * area:.2g} %"


def _unjudged(own: polars.DataFrame) -> Cell:
    statuses = dict(sorted(Counter(own["missing"].drop_nulls()).items()))
    told = ", ".join(f"{status} {count:,}" for status, count in statuses.items())
    return Cell(value=sum(statuses.values()), note=f"of {len(own):,}" + (f": {told}" if told else ""), more={**statuses})


def _cells(found: Trial, drawing: Drawing) -> Table:
    """A row a judge, metric and failure, a column an area."""
    areas = sorted({area for own in found.judges.values() for area in plain(own)["area"]})
    rows = []
    for (judge, all_), metric in product(found.judges.items(), found.metrics):
        own = plain(all_.filter(metric=metric))
        for failure in [name for name in FAILURES if name in set(own["failure"])]:
            of = own.filter(failure=failure)
            parts = [*(of.filter(of["area"] == area) for area in areas), of]
            cells = [_mean(part, "right", "accuracy", drawing) for part in parts]
            labels = map(words, (judge, found.short(metric), failure.replace("_", " ")))
            keys: dict[str, Json] = {"judge": judge, "metric": metric, "failure": failure}
            rows.append(Row(cells=(*labels, *cells), keys=keys))
    by_area = [Column(title=_area_text(area), keys={"area": area}) for area in areas]
    return Table(
        name="trial-failures",
        title="Accuracy by failure and area",
        columns=(*label_columns("Judge", "Of", "Failure"), *by_area, Column(title="All areas", keys={"area": None})),
        rows=tuple(rows),
        fixed=3,
        at_once=7,
        caption="In percent of plain probes (judged/asked).",
    )


def _mean(own: polars.DataFrame, value: str, name: str, drawing: Drawing, *, signed: bool = False) -> Cell:
    """A share in percent."""
    found = aggregate(own, value=value, drawing=drawing)[()]
    bounds = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    return estimated(found, scale=100, digits=1, interval_digits=0, name=name, bounds=bounds, signed=signed, why=True)
