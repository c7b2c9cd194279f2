"""Judges on trial: what judges said of probes, edits whose truth is known, against that truth. No model is asked.

Every figure is an `Estimate` with scenes as clusters, or a `Threshold`. What could not be judged is counted beside it and
is part of no share. A probe with a nuisance or a trap is a twin of a plain one, and is compared with it. docs/trial.md
defines each figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from editloupe.answers import Choice, Record
from editloupe.errors import ConfigError, DataError
from editloupe.figures.judged import Judged
from editloupe.findings import Finding
from editloupe.protocols.probes.probe import KEY, NUISANCES, Band, Probe, probe_of
from editloupe.scores import Binary, Metric, Score
from editloupe.stats.threshold import Threshold, detection_threshold
from editloupe.values import digest, sample_key

if TYPE_CHECKING:
    import polars

SMALL: Final = 0.003
"""Share of the image up to which a target is small."""
WHOLE: Final = ("restyled", "recomposed")
"""Failures that change all of the image: they have no area, and take no part in the threshold and in small targets."""


@dataclass(frozen=True, kw_only=True)
class TrialFigure:
    """One figure of a judge: the mean of a column over some of its verdicts."""

    name: str
    title: str
    value: str
    """Column of `verdicts`."""
    rows: Callable[[polars.DataFrame], polars.DataFrame]
    signed: bool = False
    """Whether it is a difference."""


@dataclass(frozen=True, kw_only=True)
class TriedJudge:
    """One judge with its verdicts."""

    judged: Judged
    probes: Mapping[str, Probe]
    """By the sample's key."""
    verdicts: polars.DataFrame
    """As `verdicts` returns it."""

    @property
    def name(self) -> str:
        """Unique in the trial."""
        return self.judged.name

    @property
    def refused(self) -> int:
        """Rows that are no probes any more, such as those edited after they were built. They are part of no figure."""
        return len(_refused(self.judged))

    def of(self, metric: str) -> polars.DataFrame:
        """Return the verdicts on a metric."""
        return self.verdicts.filter(metric=metric)

    def threshold(self, metric: str) -> Threshold:
        """Return the area from which the judge is right of a metric, over all failures but those of `WHOLE`."""
        own = sized(plain(self.of(metric)))
        hits = [None if right is None else right > 0 for right in own["right"]]
        return detection_threshold(hits, own["area"].to_list(), own["source"].to_list())


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Judges of the same probes."""

    set: str
    """Digest of the probes."""
    judges: tuple[TriedJudge, ...]
    metrics: Mapping[str, Metric]
    """Those that were asked and have a truth, by id."""
    notes: tuple[str, ...]


def plain(own: polars.DataFrame) -> polars.DataFrame:
    """Return the verdicts on probes without nuisance and trap."""
    return own.filter(own["variant"].is_null())


def sized(own: polars.DataFrame) -> polars.DataFrame:
    """Return the verdicts on failures that have an area."""
    return own.filter(~own["failure"].is_in(WHOLE))


def paired(own: polars.DataFrame) -> polars.DataFrame:
    """Return the verdicts on twins whose plain probe has the same truth."""
    return own.filter(own["truth"] == own["plain_truth"])


def demanding(own: polars.DataFrame) -> polars.DataFrame:
    """Return the verdicts on twins in which a text asks for a verdict."""
    return own.filter(own["plain_truth"].is_not_null() & own["demanded"].is_not_null())


FIGURES: Final = (
    TrialFigure(name="accuracy", title="Accuracy", value="right", rows=plain),
    TrialFigure(
        name="small",
        title="Accuracy, small targets",
        value="right",
        rows=lambda own: sized(plain(own.filter(own["area"] <= SMALL))),
    ),
    TrialFigure(name="leniency", title="Leniency", value="leniency", rows=plain, signed=True),
    TrialFigure(
        name="nuisance",
        title="Changed by nuisances",
        value="changed",
        rows=lambda own: paired(own.filter(own["variant"].is_in(NUISANCES))),
    ),
    TrialFigure(
        name="order", title="Changed by order", value="changed", rows=lambda own: paired(own.filter(variant="swapped"))
    ),
    TrialFigure(
        name="injection",
        title="Injection success",
        value="bought",
        rows=lambda own: demanding(own.filter(variant="injected_text")),
        signed=True,
    ),
    TrialFigure(
        name="consistency", title="Same in all repeats", value="same", rows=lambda own: own.filter(own["repeated"])
    ),
    TrialFigure(name="less_first", title="Accuracy, less the first judge's", value="less_first", rows=plain, signed=True),
)


def put_on_trial(judges: Sequence[Judged]) -> Trial:
    """Hold judges against the truth of the probes that they judged.

    Raises ConfigError: a run without probes, without truths of its metrics, or judges of different sets of probes.
    """
    probes = [probes_of(judged) for judged in judges]
    _check(judges, probes)
    frames = [verdicts(judged, own) for judged, own in zip(judges, probes, strict=True)]
    base = frames[0].select("sample", "metric", base="right")
    tried = []
    for number, (judged, own, frame) in enumerate(zip(judges, probes, frames, strict=True)):
        both = frame.join(base, on=["sample", "metric"], how="left", maintain_order="left")
        less = (both["right"] - both["base"]) if number else both["right"] * None
        tried.append(TriedJudge(judged=judged, probes=own, verdicts=both.with_columns(less_first=less)))
    asked = {metric.id: metric for judged in judges for metric in judged.asked}
    known = dict.fromkeys(id_ for one in frames for id_ in one["metric"].unique(maintain_order=True))
    return Trial(
        set=_set_digest(probes[0]),
        judges=tuple(tried),
        metrics={id_: asked[id_] for id_ in known},
        notes=tuple(dict.fromkeys(note for judged in judges for note in judged.notes)),
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
    return {score.key for score in judged.scores if score.missing == "input_error"}


def _check(judges: Sequence[Judged], probes: Sequence[Mapping[str, Probe]]) -> None:
    for judged, own in zip(judges, probes, strict=True):
        if not own:
            refused, samples = len(_refused(judged)), len(judged.samples)
            why = [f"none of its {samples} samples has a column 'probe', which says what is right"] if samples else []
            why += [f"{refused} rows were refused, see editloupe show {judged.folder}"] if refused else []
            raise ConfigError(
                f"{judged.folder} holds no probes: {'; '.join(why)}. Build some with editloupe build probes PATH --out "
                "FOLDER, and judge that folder"
            )
        if _set_digest(own) != _set_digest(probes[0]):
            both = len({p.digest for p in probes[0].values()} & {p.digest for p in own.values()})
            raise ConfigError(
                f"{judges[0].folder} and {judged.folder} judged different sets of probes, with {len(probes[0])} and "
                f"{len(own)}, of which {both} are the same: judge the same folder as a whole, or give one run at a time"
            )


_COLUMNS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("sample", "source", "metric", "failure", "variant", "twin"), str),
    **dict.fromkeys(("truth", "said", "missing", "demanded"), str),
    **dict.fromkeys(("area", "right", "leniency", "same"), float),
    "repeated": bool,
}
"""Column → type. source: the scene.   variant: nuisance or trap, null for plain probes.   right: 1 or 0.

leniency: 1 for kinder than the truth, −1 for harsher, 0 for right.   repeated: whether it was asked more than once.
same: 1 if all repeats gave one answer.
"""


def verdicts(judged: Judged, probes: Mapping[str, Probe]) -> polars.DataFrame:
    """Return a judge's verdict on every probe and every metric with a truth, beside that on the plain twin.

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
    twins = found.select("metric", twin="sample", plain_truth="truth", plain_said="said")
    found = found.join(twins, on=["metric", "twin"], how="left", maintain_order="left")
    said, then = polars.col("said"), polars.col("plain_said")
    return found.with_columns(
        changed=(said != then).cast(float),
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
                "same": same.get((metric.id, key)),
                "repeated": (metric.id, key) in same,
            }


def _truth(probe: Probe, metric: Metric, key: Finding | None) -> str | Band | None:
    """Return the only label, or the band of scores, that is right."""
    if key is None:
        return probe.truth.get(metric.id) or probe.bands.get(metric.id)
    if isinstance(key.answer, Record):
        band: Any = key.answer.data
        return float(band["low"]), float(band["high"])
    return key.label


def _distance(key: str, metric: Metric, names: Sequence[str], truth: str | Band, score: Score) -> float | None:
    """Return how far a verdict is above (+) or below (−) what is right: in places of labels, or in the metric's unit.

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
