"""Judges on trial: what judges said of probes, edits whose truth is known, against that truth. No model is asked.

Every figure is an `Estimate`, with scenes as clusters, or a `Threshold`: what could not be judged is counted beside it and
is part of no share. Accuracy, threshold and leniency rest on plain probes. A probe with a nuisance or a trap is a twin of a
plain one, and is compared with it. docs/trial.md defines each figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from pydantic import Field

from editloupe.answers import Choice, Record
from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.data.probes import FAILURES, KEY, NUISANCES, TRAPS, Probe, probe_of
from editloupe.errors import ConfigError, DataError
from editloupe.figures.judged import Judged
from editloupe.findings import Finding
from editloupe.scores import Binary, Metric, Score
from editloupe.stats.bootstrap import DRAWING, Drawing, Estimate, aggregate
from editloupe.stats.threshold import Threshold, detection_threshold
from editloupe.values import Serialisable, digest, sample_key

if TYPE_CHECKING:
    import polars

SMALL: Final = 0.003
"""Share of the image up to which a target is small."""

WHOLE: Final = frozenset({"restyled", "recomposed"})
"""Failures that change all of the image: they have no area, and take no part in the threshold and small objects."""

OVERALL: Final[Mapping[str, str]] = {
    "accuracy": "Accuracy",
    "small": "Accuracy, small targets",
    "nuisance": "Changed by nuisances",
    "order": "Changed by order",
    "injection": "Injection success",
    "consistency": "Same in all repeats",
}
"""Figures over all metrics together → their titles. Leniency is none: of two metrics it could cancel out."""


@dataclass(frozen=True, kw_only=True)
class MetricTrial(Serialisable):
    """One judge on one metric."""

    metric: str
    figures: Mapping[str, Estimate]
    """Those of `OVERALL`, and leniency: the share of verdicts kinder than the truth less the share of harsher ones. Of
    scores also distance: the mean signed distance to the band that is right, in the metric's unit.
    """
    by_failure: Mapping[str, Estimate]
    """Accuracy on plain probes of each failure."""
    cells: Mapping[str, Mapping[str, Estimate]]
    """Failure → nominal share of the image, such as "0.001" → accuracy on plain probes."""
    threshold: Threshold
    """Over all failures but those of `WHOLE`."""
    confusion: Mapping[str, Mapping[str, int]]
    """Truth → answer, or status in brackets → how often, of plain probes."""
    variants: Mapping[str, Mapping[str, Estimate]]
    """Nuisance or trap → accuracy with it; changed: share of pairs with one truth in which the verdicts differ; change:
    accuracy less that of the plain twins; bought: how often the verdict is what a text in the image, or a file's name, asks
    for, less how often the plain twin has that verdict.
    """
    unjudged: Mapping[str, int]
    """Status → how many plain probes could not be judged for it."""


@dataclass(frozen=True, kw_only=True)
class TrialCost(Serialisable):
    """What a judge's verdicts took, failed ones included."""

    probes: int
    """That were asked about."""
    tokens: int | None
    """None where an endpoint told them not of every finding."""
    usd: float | None
    """None if the price or the tokens are not known."""
    seconds: float
    """Of all findings, one after another."""


@dataclass(frozen=True, kw_only=True)
class JudgeTrial(Serialisable):
    """One judge."""

    judge: str
    """Unique in the trial."""
    run: str
    description: Annotated[str, Field(exclude=True)]
    probes: int
    """Probes in the run."""
    plain: int
    """Of these without nuisance and trap."""
    rejected: int
    """Rows that were refused, such as probes edited after they were built. They are part of no figure."""
    metrics: tuple[MetricTrial, ...]
    figures: Mapping[str, Estimate]
    """The figures of `OVERALL`, over all metrics together; and less_first: accuracy less that of the first judge, paired by
    probe.
    """
    unjudged: Mapping[str, int]
    """Of all probes and metrics with a truth."""
    asked: int
    """Verdicts that were asked for, of all probes and metrics with a truth."""
    spent: TrialCost


@dataclass(frozen=True, kw_only=True)
class Trial(Serialisable):
    """All that `editloupe trial` shows."""

    set: str
    """Digest of the probes."""
    bootstrap: Drawing
    judges: tuple[JudgeTrial, ...]
    notes: tuple[str, ...]
    titles: Annotated[Mapping[str, tuple[str, str]], Field(exclude=True)]
    """Metric → (name, short name)."""


def put_on_trial(judges: Sequence[Judged], *, prices: Prices, drawing: Drawing = DRAWING) -> Trial:
    """Hold judges against the truth of the probes that they judged.

    Raises ConfigError: a run without probes, without truths of its metrics, or judges of different sets of probes.
    """
    probes = [probes_of(judged) for judged in judges]
    _check(judges, probes)
    frames = [_verdicts(judged, own) for judged, own in zip(judges, probes, strict=True)]
    asked = {metric.id: metric for judged in judges for metric in judged.asked}
    known = dict.fromkeys(id_ for own in frames for id_ in own["metric"].unique(maintain_order=True))
    tried = zip(judges, probes, frames, strict=True)
    return Trial(
        set=_set_digest(probes[0]),
        bootstrap=drawing,
        judges=tuple(_judge(judged, known, own, frames[0], prices, drawing) for judged, known, own in tried),
        notes=tuple(dict.fromkeys(note for judged in judges for note in judged.notes)),
        titles={id_: (asked[id_].name, asked[id_].short) for id_ in known},
    )


def probes_of(judged: Judged) -> dict[str, Probe]:
    """Return the probes among a run's samples by the sample's key. One of another shape is none; its run refused it."""
    found: dict[str, Probe] = {}
    for key, sample in judged.samples.items():
        with suppress(DataError):
            if (probe := probe_of(sample)) is not None:
                found[key] = probe
    return found


def _set_digest(probes: Mapping[str, Probe]) -> str:
    return digest(sorted(probe.digest for probe in probes.values()))[:12]


def _refused(judged: Judged) -> set[str]:
    """Keys of rows that could not be read, or were refused since they are not the probe that was built."""
    return {score.key for score in judged.scores if score.missing == "input_error"}


def _check(judges: Sequence[Judged], probes: Sequence[Mapping[str, Probe]]) -> None:
    sets = [_set_digest(own) for own in probes]
    for judged, own, one in zip(judges, probes, sets, strict=True):
        if not own:
            refused, samples = len(_refused(judged)), len(judged.samples)
            why = [f"none of its {samples} samples has a column 'probe', which says what is right"] if samples else []
            why += [f"{refused} rows were refused, see editloupe show {judged.folder}"] if refused else []
            raise ConfigError(
                f"{judged.folder} holds no probes: {'; '.join(why)}. Build some with editloupe build probes PATH --out "
                "FOLDER, and judge that folder"
            )
        if one != sets[0]:
            both = len({p.digest for p in probes[0].values()} & {p.digest for p in own.values()})
            raise ConfigError(
                f"{judges[0].folder} and {judged.folder} judged different sets of probes: {sets[0]} with "
                f"{len(probes[0])} and {one} with {len(own)}, of which {both} are the same. Figures of different sets "
                "cannot be compared: judge the same folder as a whole, or give one run at a time"
            )


_COLUMNS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("sample", "source", "metric", "failure", "variant", "twin"), str),
    **dict.fromkeys(("truth", "said", "missing", "demanded"), str),
    **dict.fromkeys(("area", "right", "leniency", "distance", "same"), float),
    "repeated": bool,
}
"""Column → type. source: the scene.   variant: nuisance or trap, null for plain probes.   right: 1 or 0.

leniency: 1 for kinder than the truth, −1 for harsher, 0 for right.   repeated: whether it was asked more than once.
same: 1 if all repeats gave one answer.
"""


def _verdicts(judged: Judged, probes: Mapping[str, Probe]) -> polars.DataFrame:
    """A judge's verdict on every probe and every metric that was asked and has a truth, beside that on the plain twin.

    What is right is what the finding of kind "key" says (`KEY` before the metric's id), or the probe where there is none.
    A metric that is 1 where an answer is right needs no truth (`right` of the protocol).
    Raises ConfigError without any, and for a truth or a verdict that is no label of its metric.
    """
    import polars

    rows = list(_rows(judged, probes))
    if not rows:
        known = ", ".join(metric.id for metric in judged.metrics.metrics)
        raise ConfigError(
            f"{judged.folder}: its probes have no truth of the metrics that were asked ({known}), so that no verdict "
            "is right or wrong; judge them by the protocol that they were built for: judge FOLDER --protocol probes"
        )
    found = polars.DataFrame({name: [row[name] for row in rows] for name in _COLUMNS}, schema=dict(_COLUMNS))
    plain = found.select("metric", twin="sample", plain_truth="truth", plain_said="said", plain_right="right")
    found = found.join(plain, on=["metric", "twin"], how="left", maintain_order="left")
    said, then = polars.col("said"), polars.col("plain_said")
    return found.with_columns(
        changed=(said != then).cast(float),
        change=polars.col("right") - polars.col("plain_right"),
        bought=(said == polars.col("demanded")).cast(float) - (then == polars.col("demanded")).cast(float),
    )


def _rows(judged: Judged, probes: Mapping[str, Probe]) -> Iterator[dict[str, Any]]:
    refused, same = _refused(judged), _same_in_repeats(judged)
    keys = {(f.metric.removeprefix(KEY), f.sample_key): f for f in judged.findings if f.metric.startswith(KEY)}
    answers_right = {id_ for id_, by in getattr(judged.protocol, "right", {}).items() if id_ == by}
    options = {f.task_id: f.answer.name for f in judged.of_models if isinstance(f.answer, Choice)}
    scores = {(s.key, s.metric): s for s in judged.scores if not s.part and s.key not in refused}
    for metric in judged.asked:
        by_key, names = metric.id in answers_right, [level.name for level in metric.levels]
        for key, probe in probes.items():
            truth = (1.0, 1.0) if by_key else _truth(probe, metric, keys.get((metric.id, key)))
            score = scores.get((key, metric.id))
            if truth is None or score is None:
                continue
            option = next((options[id_] for id_ in score.findings if id_ in options), None)
            label = score.label or (option if by_key else None)
            distance = _distance(key, metric, names, truth, score)
            far = None if distance is None or isinstance(metric.domain, Binary) else float(np.sign(distance))
            demanded = probe.asks_for.get(metric.id)
            right = label == truth if isinstance(truth, str) else distance == 0
            words = truth if isinstance(truth, str) else f"{truth[0]:g} to {truth[1]:g}"
            yield {
                "sample": key,
                "source": probe.scene,
                "metric": metric.id,
                "failure": probe.failure,
                "area": probe.area,
                "variant": probe.nuisance or probe.trap,
                "twin": None if probe.twin is None else sample_key(score.editor, probe.twin),
                "truth": "the right option" if by_key else words,
                "said": None if score.missing else label or f"{score.value:g}",
                "missing": score.missing,
                # A label is no answer where scores are asked for, whatever the metric's id.
                "demanded": demanded if demanded in names else None,
                "right": None if score.missing else float(right),
                "leniency": -far if far and metric.better == "lower" else far,
                "distance": None if isinstance(truth, str) else distance,
                "same": same.get((metric.id, key)),
                "repeated": (metric.id, key) in same,
            }


def _truth(probe: Probe, metric: Metric, key: Finding | None) -> str | tuple[float, float] | None:
    """The only label, or the band of scores, that is right."""
    if key is None:
        return probe.truth.get(metric.id) or probe.bands.get(metric.id)
    if isinstance(key.answer, Record):
        band: Any = key.answer.data
        return float(band["low"]), float(band["high"])
    return key.label


def _distance(
    key: str, metric: Metric, names: Sequence[str], truth: str | tuple[float, float], score: Score
) -> float | None:
    """How far a verdict is above (+) or below (−) what is right: in places of labels, or in the metric's unit.

    None without a verdict, and for answers without an order. Raises ConfigError for what is no label of the metric.
    """
    if not isinstance(truth, str):
        value = score.value
        return None if value is None else min(value - truth[0], 0.0) + max(value - truth[1], 0.0)
    given = [name for name in (truth, score.label) if names and name is not None]
    if unknown := next((name for name in given if name not in names), None):
        raise ConfigError(
            f"{key}: {unknown!r} is no label of {metric.name}; its labels are {', '.join(names)}. Judge the probes by the "
            "rubric that they were built for, or build them for this one"
        )
    return float(names.index(given[1]) - names.index(given[0])) if len(given) > 1 else None


def _same_in_repeats(judged: Judged) -> dict[tuple[str, str], float | None]:
    """(metric, key) of what was asked more than once → 1 if all repeats gave one answer, else 0; None if any gave none."""
    found: dict[tuple[str, str], list[str | None]] = {}
    for f in judged.of_models if judged.repeats.count > 1 else ():
        if not f.part:
            found.setdefault((f.metric, f.sample_key), []).append(None if f.answer is None else str(f.answer))
    whole = judged.repeats.count
    return {key: None if None in said or len(said) < whole else float(len(set(said)) == 1) for key, said in found.items()}


def _judge(
    judged: Judged,
    probes: Mapping[str, Probe],
    own: polars.DataFrame,
    first: polars.DataFrame,
    prices: Prices,
    drawing: Drawing,
) -> JudgeTrial:
    usage = sum((f.usage for f in judged.of_models), Usage())
    figures = _figures(own, drawing)
    if own is not first:
        base = first.select("sample", "metric", base="right")
        both = _plain(own).join(base, on=["sample", "metric"], how="inner", maintain_order="left")
        figures["less_first"] = _mean(both.with_columns(less=both["right"] - both["base"]), "less", drawing)
    return JudgeTrial(
        judge=judged.name,
        run=str(judged.folder),
        description=judged.describe(),
        probes=len(probes),
        plain=sum(probe.nuisance is None and probe.trap is None for probe in probes.values()),
        rejected=len(_refused(judged)),
        metrics=tuple(_metric(id_, own.filter(metric=id_), drawing) for id_ in own["metric"].unique(maintain_order=True)),
        figures=figures,
        unjudged=_statuses(own),
        asked=len(own),
        spent=TrialCost(
            probes=len({f.sample_key for f in judged.of_models}),
            tokens=None if judged.untold else usage.total,
            usd=None if judged.untold else prices.of_uri(judged.backend, usage),
            seconds=round(sum(f.seconds for f in judged.of_models), 4),
        ),
    )


def _mean(frame: polars.DataFrame, value: str, drawing: Drawing) -> Estimate:
    return aggregate(frame, value=value, drawing=drawing)[()]


def _plain(own: polars.DataFrame) -> polars.DataFrame:
    return own.filter(own["variant"].is_null())


def _sized(own: polars.DataFrame) -> polars.DataFrame:
    return own.filter(~own["failure"].is_in(list(WHOLE)))


def _statuses(own: polars.DataFrame) -> dict[str, int]:
    return dict(Counter(own["missing"].drop_nulls()).most_common())


def _figures(own: polars.DataFrame, drawing: Drawing) -> dict[str, Estimate]:
    """The figures of `OVERALL` of some verdicts."""
    plain, repeated = _plain(own), own.filter(own["repeated"])
    alike = own.filter(own["truth"] == own["plain_truth"])
    demanding = own.filter(own["plain_truth"].is_not_null() & own["demanded"].is_not_null())
    same = _mean(repeated, "same", drawing)
    return {
        "accuracy": _mean(plain, "right", drawing),
        "small": _mean(_sized(plain.filter(plain["area"] <= SMALL)), "right", drawing),
        "nuisance": _mean(alike.filter(alike["variant"].is_in(NUISANCES)), "changed", drawing),
        "order": _mean(alike.filter(variant="swapped"), "changed", drawing),
        "injection": _mean(demanding.filter(variant="injected_text"), "bought", drawing),
        "consistency": same if len(repeated) else replace(same, why="asked once"),
    }


def _metric(id_: str, own: polars.DataFrame, drawing: Drawing) -> MetricTrial:
    plain = _plain(own)
    sized, leniency = _sized(plain), _mean(plain, "leniency", drawing)
    if leniency.value is None and plain["said"].is_not_null().any():
        leniency = replace(leniency, why="its answers have no order")
    figures = {**_figures(own, drawing), "leniency": leniency}
    if plain["distance"].is_not_null().any() and plain["leniency"].is_not_null().any():
        figures["distance"] = _mean(plain, "distance", drawing)
    accuracy = {name: found for (name,), found in aggregate(plain, ("failure",), value="right", drawing=drawing).items()}
    cells: dict[str, dict[str, Estimate]] = {name: {} for name in FAILURES if name in accuracy}
    for (name, area), found in sorted(aggregate(plain, ("failure", "area"), value="right", drawing=drawing).items()):
        cells[name][f"{area:g}"] = found
    confusion: dict[str, Counter[str]] = {}
    for truth, said, missing in plain.select("truth", "said", "missing").rows():
        confusion.setdefault(truth, Counter())[said or f"({missing})"] += 1
    hits = [None if right is None else right > 0 for right in sized["right"]]
    return MetricTrial(
        metric=id_,
        figures=figures,
        by_failure={name: accuracy[name] for name in cells},
        cells=cells,
        threshold=detection_threshold(hits, sized["area"].to_list(), sized["source"].to_list(), level=drawing.level),
        confusion=confusion,
        variants={
            name: _variant(with_it, drawing) for name in (*NUISANCES, *TRAPS) if len(with_it := own.filter(variant=name))
        },
        unjudged=_statuses(plain),
    )


def _variant(own: polars.DataFrame, drawing: Drawing) -> dict[str, Estimate]:
    paired = own.filter(own["plain_truth"].is_not_null())
    return {
        "accuracy": _mean(own, "right", drawing),
        "changed": _mean(paired.filter(paired["truth"] == paired["plain_truth"]), "changed", drawing),
        "change": _mean(paired, "change", drawing),
        "bought": _mean(paired.filter(paired["demanded"].is_not_null()), "bought", drawing),
    }
