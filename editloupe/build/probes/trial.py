"""Judges on trial: what judges said of probes, edits whose truth is known, against that truth. No model is asked.

Every figure is an `Estimate` or a `Threshold`: what could not be judged is counted beside it and is part of no share.
Accuracy, thresholds and leniency rest on plain probes. A probe with a nuisance or a trap is a twin of a plain one, and is
compared with it. Scenes are the clusters. docs/trial-figures.md defines each figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from editloupe.answers import Choice, Record
from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.data.probes import FAILURES, KEY, NUISANCES, TRAPS, Probe, probe_of
from editloupe.errors import ConfigError, DataError
from editloupe.findings import Finding
from editloupe.reports.equal_cost import at_equal_cost, first_repeats
from editloupe.reports.judged import Judged
from editloupe.scores import Binary, Metric, Score
from editloupe.stats.bootstrap import DRAWING, Drawing, Estimate, mean
from editloupe.stats.rates import balance, share
from editloupe.stats.threshold import Threshold, detection_threshold
from editloupe.values import Serialisable, digest, is_empty, sample_key

SMALL: Final = 0.003
"""Share of the image up to which a target is small."""

WHOLE: Final = frozenset({"restyled", "recomposed"})
"""Failures that change all of the image: they have no area, and take no part in thresholds and small objects."""

Statuses: TypeAlias = Mapping[str, int]
"""Status → how many could not be judged for it."""


@dataclass(frozen=True, kw_only=True)
class CellTrial(Serialisable):
    """Plain probes of one failure at one area."""

    failure: str
    area: float
    accuracy: Estimate
    instead: Mapping[str, int]
    """Wrong answer → how often it was given, the most frequent first."""
    unjudged: Statuses


@dataclass(frozen=True, kw_only=True)
class VariantTrial(Serialisable):
    """Probes with one nuisance or trap beside their plain twins."""

    variant: str
    kind: Literal["nuisance", "trap"]
    accuracy: Estimate
    """Of the probes with it."""
    changed: Estimate
    """Share of pairs with one truth in which the verdicts differ."""
    change: Estimate
    """Accuracy with it less accuracy of the plain twins, over pairs in which both were judged."""
    obeyed: Estimate
    """How often the verdict is what a text in the image, or a file's name, asks for."""
    bought: Estimate
    """The same, less how often the plain twin has that verdict."""
    alone: int
    """Probes that have no twin in the run, or none that was asked."""
    unjudged: Statuses


@dataclass(frozen=True, kw_only=True)
class MetricTrial(Serialisable):
    """One judge on one metric."""

    metric: str
    accuracy: Estimate
    """Of plain probes."""
    small: Estimate
    """Of plain probes whose target is small (`SMALL`)."""
    unjudged: Statuses
    """Of plain probes."""
    by_failure: Mapping[str, Estimate]
    by_area: Mapping[str, Estimate]
    """By the nominal share of the image, such as "0.001"."""
    cells: tuple[CellTrial, ...]
    confusion: Mapping[str, Mapping[str, int]]
    """Truth → answer, or status in brackets → how often, of plain probes. Empty for scores."""
    threshold: Threshold
    """Over all failures but those of `WHOLE`."""
    thresholds: Mapping[str, Threshold]
    """By failure."""
    leniency: Estimate
    """Share of verdicts kinder than the truth less the share of harsher ones."""
    kinder: Estimate
    harsher: Estimate
    distance: Annotated[Estimate | None, Field(exclude_if=is_empty)] = None
    """Mean signed distance of scores to the band that is right, in the metric's unit; None for labels."""
    variants: tuple[VariantTrial, ...]
    consistency: Estimate
    """Share of probes with one verdict in all repeats."""
    agreement: Estimate
    """Share of pairs of repeats with one verdict, mean over probes."""


@dataclass(frozen=True, kw_only=True)
class Spent(Serialisable):
    """What a judge's verdicts took, failed ones included."""

    probes: int
    """That were asked about."""
    findings: int
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
    title: str
    """What its run calls it."""
    backend: str
    judge_id: str
    mode: str
    questions: str
    """Whose they are: the rubric, or the protocol that asks without one."""
    run: str
    description: Annotated[str, Field(exclude=True)]
    probes: int
    """Probes in the run."""
    plain: int
    """Of these without nuisance and trap."""
    rejected: int
    """Rows that were refused, such as probes edited after they were built. They are part of no figure."""
    not_probes: int
    """Samples that are no probes. They are part of no figure."""
    metrics: tuple[MetricTrial, ...]
    figures: Mapping[str, Estimate]
    """The figures of `OVERALL`, over all metrics together."""
    unjudged: Statuses
    """Of all probes and metrics with a truth."""
    asked: int
    """Verdicts that were asked for, of all probes and metrics with a truth."""
    spent: Spent


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
class ToolsAgainstPlain(Serialisable):
    """One judge with tools and the same one without, on the same plain probes."""

    tool: str
    plain: str
    metric: str
    difference: Estimate
    """Accuracy with tools less accuracy without, paired by probe."""
    by_area: Mapping[str, Estimate]
    tool_cost: float | None
    """A probe, in `unit`; None if it is not known."""
    plain_cost: float | None
    unit: Literal["USD", "tokens"]
    equal_cost: bool
    """Whether the plain judge was asked again, and its answers joined, up to what the tools cost."""


@dataclass(frozen=True, kw_only=True)
class Trial(Serialisable):
    """All that `editloupe trial` shows."""

    set: str
    """Digest of the probes."""
    bootstrap: Drawing
    judges: tuple[JudgeTrial, ...]
    tools: tuple[ToolsAgainstPlain, ...]
    notes: tuple[str, ...]
    titles: Annotated[Mapping[str, tuple[str, str]], Field(exclude=True)]
    """Metric → (name, short name)."""
    levels: Annotated[Mapping[str, tuple[str, ...]], Field(exclude=True)]
    """Metric → its labels, worst first; () for scores."""


Truth: TypeAlias = str | tuple[float, float]
"""The only label, or the band of scores, that is right."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one judge said of one probe on one metric."""

    key: str
    """The sample's."""
    editor: str = ""
    probe: Probe
    metric: Metric
    truth: Truth
    """What is right."""
    label: str | None = None
    value: float | None = None
    missing: str | None = None
    """The status that left it without a verdict."""

    @property
    def scene(self) -> str:
        return self.probe.scene

    @property
    def plain(self) -> bool:
        return self.probe.nuisance is None and self.probe.trap is None

    @property
    def demanded(self) -> str | None:
        """The label that a text in the image, or the file's name, asks for; None where it asks for none of this metric.

        A label is no answer where scores are asked for, whatever the metric's id.
        """
        label = self.probe.asks_for.get(self.metric.id, "")
        return label if label in [level.name for level in self.metric.levels] else None

    @property
    def said(self) -> str | None:
        """The verdict in words; None without one."""
        if self.missing is not None:
            return None
        return self.label if self.label is not None else f"{self.value:g}"

    @property
    def distance(self) -> float | None:
        """How far a verdict is above (+) or below (−) what is right: in places of labels, or in the metric's unit.

        None without a verdict, and for answers without an order.
        """
        if self.missing is not None or (isinstance(self.truth, str) and not self.metric.levels):
            return None
        if isinstance(self.truth, str):
            places = [level.name for level in self.metric.levels]
            return float(places.index(self.label or "") - places.index(self.truth))
        low, high = self.truth
        assert self.value is not None, "a verdict has a label or a value"
        return min(self.value - low, 0.0) + max(self.value - high, 0.0)

    @property
    def right(self) -> bool | None:
        """Whether the verdict is the truth; None without one."""
        if self.missing is None and isinstance(self.truth, str):
            return self.label == self.truth
        return None if self.distance is None else self.distance == 0

    @property
    def kinder(self) -> int | None:
        """+1 if the verdict is better than the truth, −1 if it is worse, 0 if it is right.

        None without one, and for answers without an order.
        """
        if self.distance is None or isinstance(self.metric.domain, Binary):
            return None
        up = (self.distance > 0) - (self.distance < 0)
        return -up if self.metric.better == "lower" else up


def put_on_trial(judges: Sequence[Judged], *, prices: Prices, drawing: Drawing = DRAWING) -> Trial:
    """Hold judges against the truth of the probes that they judged.

    drawing: `level` is that of all intervals; resamples and seed are for means of numbers.
    Raises ConfigError: a run without probes, without truths of its metrics, or judges of different sets of probes.
    """
    probes = [probes_of(judged) for judged in judges]
    _check(judges, probes)
    verdicts = [verdicts_of(judged, own) for judged, own in zip(judges, probes, strict=True)]
    for judged, own in zip(judges, verdicts, strict=True):
        if not own:
            known = ", ".join(metric.id for metric in judged.metrics.metrics)
            raise ConfigError(
                f"{judged.folder}: its probes have no truth of the metrics that were asked ({known}), so that no verdict "
                "is right or wrong; judge them by the protocol that they were built for: judge FOLDER --protocol probes"
            )
    metrics = {v.metric.id: v.metric for own in verdicts for v in own}
    tools, notes = _tools(judges, verdicts, prices, drawing)
    return Trial(
        set=set_digest(probes[0].values()),
        bootstrap=drawing,
        judges=tuple(
            _judge(judged, known, own, prices, drawing) for judged, known, own in zip(judges, probes, verdicts, strict=True)
        ),
        tools=tuple(tools),
        notes=tuple(dict.fromkeys([*(note for judged in judges for note in judged.notes), *notes])),
        titles={id_: (metric.name, metric.short) for id_, metric in metrics.items()},
        levels={id_: tuple(level.name for level in metric.levels) for id_, metric in metrics.items()},
    )


def probes_of(judged: Judged) -> dict[str, Probe]:
    """Return the probes among a run's samples by the sample's key. One of another shape is none; its run refused it."""
    found: dict[str, Probe] = {}
    for key, sample in judged.samples.items():
        with suppress(DataError):
            if (probe := probe_of(sample)) is not None:
                found[key] = probe
    return found


def set_digest(probes: Iterable[Probe]) -> str:
    """Return the digest of a set of probes, whatever their order: 12 hex digits."""
    return digest(sorted(probe.digest for probe in probes))[:12]


def verdicts_of(judged: Judged, probes: Mapping[str, Probe]) -> list[Verdict]:
    """Return a judge's verdict on every probe and every metric that was asked and has a truth. Refused rows have none.

    What is right is what the finding of kind "key" says (`KEY` before the metric's id), or the probe where there is none.
    A metric that is 1 where an answer is right needs no truth (`right` of the protocol).
    Raises ConfigError for a truth or a verdict that is no label of its metric.
    """
    refused = _refused(judged)
    keys = {(f.metric.removeprefix(KEY), f.sample_key): f for f in judged.findings if f.metric.startswith(KEY)}
    answers_right = {id_ for id_, by in getattr(judged.protocol, "right", {}).items() if id_ == by}
    options: dict[str, list[str]] = {}
    for f in judged.of_models if answers_right else ():
        if isinstance(f.answer, Choice):
            options.setdefault(f.task_id, []).append(f.answer.name)
    scores = {(s.key, s.metric): s for s in judged.scores if not s.part and s.key not in refused}
    found = []
    for metric in judged.asked:
        for key, probe in probes.items():
            truth = (1.0, 1.0) if metric.id in answers_right else _truth(probe, metric, keys.get((metric.id, key)))
            if truth is not None and (score := scores.get((key, metric.id))) is not None:
                _check_labels(key, metric, truth, score)
                found.append(
                    Verdict(
                        key=key,
                        editor=score.editor,
                        probe=probe,
                        metric=metric,
                        truth=truth,
                        label=score.label or _option(score, options),
                        value=score.value,
                        missing=score.missing,
                    )
                )
    return found


def _option(score: Score, options: Mapping[str, Sequence[str]]) -> str | None:
    """The option behind a score that says whether it is right: of several repeats the most frequent."""
    given = Counter(name for id_ in score.findings for name in options.get(id_, ()))
    return next((name for name, _ in given.most_common(1)), None)


def _truth(probe: Probe, metric: Metric, key: Finding | None) -> Truth | None:
    if key is None:
        return probe.truth.get(metric.id) or probe.bands.get(metric.id)
    if isinstance(key.answer, Record):
        band: Any = key.answer.data
        return float(band["low"]), float(band["high"])
    return key.label


def _check_labels(key: str, metric: Metric, truth: Truth, score: Score) -> None:
    names = [level.name for level in metric.levels]
    given = (truth, score.label) if names and isinstance(truth, str) else ()
    unknown = next((name for name in given if name is not None and name not in names), None)
    if unknown is not None:
        raise ConfigError(
            f"{key}: {unknown!r} is no label of {metric.name}; its labels are {', '.join(names)}. Judge the probes by the "
            "rubric that they were built for, or build them for this one"
        )


def _refused(judged: Judged) -> set[str]:
    """Keys of rows that could not be read, or were refused since they are not the probe that was built."""
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
    sets = [set_digest(own.values()) for own in probes]
    other = next((i for i, one in enumerate(sets) if one != sets[0]), None)
    if other is not None:
        both = len({p.digest for p in probes[0].values()} & {p.digest for p in probes[other].values()})
        raise ConfigError(
            f"{judges[0].folder} and {judges[other].folder} judged different sets of probes: {sets[0]} with "
            f"{len(probes[0])} and {sets[other]} with {len(probes[other])}, of which {both} are the same. Figures of "
            "different sets cannot be compared: judge the same folder as a whole, or give one run at a time"
        )


def _judge(
    judged: Judged, probes: Mapping[str, Probe], verdicts: Sequence[Verdict], prices: Prices, drawing: Drawing
) -> JudgeTrial:
    repeats = _repeats(judged)
    metrics = list(dict.fromkeys(v.metric.id for v in verdicts))
    own = {id_: [v for v in verdicts if v.metric.id == id_] for id_ in metrics}
    # Samples that are no probes, without the rows that were refused.
    rest = set(judged.samples) - set(probes) - _refused(judged)
    return JudgeTrial(
        judge=judged.name,
        title=judged.title or judged.name,
        backend=judged.backend,
        judge_id=judged.judge_id,
        mode=judged.mode,
        questions=_questions(judged),
        run=str(judged.folder),
        description=judged.describe(),
        probes=len(probes),
        plain=sum(probe.nuisance is None and probe.trap is None for probe in probes.values()),
        rejected=len(_refused(judged)),
        not_probes=len(rest),
        metrics=tuple(_metric(id_, found, repeats, drawing) for id_, found in own.items()),
        figures=_overall(own, repeats, drawing),
        unjudged=_statuses(verdicts),
        asked=len(verdicts),
        spent=spent(judged, prices),
    )


def _questions(judged: Judged) -> str:
    name = judged.metrics.id
    return name if name != judged.protocol.name else str(getattr(judged.protocol.options, "asks", name))


def spent(judged: Judged, prices: Prices) -> Spent:
    """Return what a judge's findings took."""
    usage = sum((f.usage for f in judged.of_models), Usage())
    return Spent(
        probes=len({f.sample_key for f in judged.of_models}),
        findings=len(judged.of_models),
        tokens=None if judged.untold else usage.total,
        usd=None if judged.untold else prices.of_uri(judged.backend, usage),
        seconds=round(sum(f.seconds for f in judged.of_models), 4),
    )


def _metric(id_: str, verdicts: Sequence[Verdict], repeats: _Repeats, drawing: Drawing) -> MetricTrial:
    plain, level = [v for v in verdicts if v.plain], drawing.level
    failures = [name for name in FAILURES if any(v.probe.failure == name for v in plain)]
    areas = sorted({v.probe.area for v in plain})
    sized = [v for v in plain if v.probe.failure not in WHOLE]
    threshold = partial(_threshold, level=level)
    scored = any(not isinstance(v.truth, str) and not isinstance(v.metric.domain, Binary) for v in plain)
    pairs = _pairs(verdicts)
    return MetricTrial(
        metric=id_,
        accuracy=_accuracy(plain, level),
        small=_accuracy([v for v in sized if v.probe.area <= SMALL], level),
        unjudged=_statuses(plain),
        by_failure={name: _accuracy([v for v in plain if v.probe.failure == name], level) for name in failures},
        by_area={f"{area:g}": _accuracy([v for v in sized if v.probe.area == area], level) for area in areas},
        cells=tuple(
            _cell(found, level)
            for name in failures
            for area in areas
            if (found := [v for v in plain if (v.probe.failure, v.probe.area) == (name, area)])
        ),
        confusion=_confusion(plain),
        threshold=threshold(sized),
        thresholds={
            name: threshold([v for v in sized if v.probe.failure == name]) for name in failures if name not in WHOLE
        },
        leniency=_leniency(plain, level),
        kinder=_share([None if v.kinder is None else v.kinder > 0 for v in plain], plain, level),
        harsher=_share([None if v.kinder is None else v.kinder < 0 for v in plain], plain, level),
        distance=_mean([v.distance for v in plain], plain, drawing) if scored else None,
        variants=tuple(_variants(verdicts, pairs, level)),
        consistency=_consistency(verdicts, repeats, level),
        agreement=_agreement(verdicts, repeats, drawing),
    )  # fmt: skip


def _overall(own: Mapping[str, Sequence[Verdict]], repeats: _Repeats, drawing: Drawing) -> dict[str, Estimate]:
    level = drawing.level
    verdicts = [v for found in own.values() for v in found]
    pairs = {k: pair for found in own.values() for k, pair in _pairs(found).items()}
    plain = [v for v in verdicts if v.plain]
    small = [v for v in plain if v.probe.failure not in WHOLE and v.probe.area <= SMALL]
    return {
        "accuracy": _accuracy(plain, level),
        "small": _accuracy(small, level),
        "nuisance": _changed([v for v in verdicts if v.probe.nuisance is not None], pairs, level),
        "order": _changed([v for v in verdicts if v.probe.trap == "swapped"], pairs, level),
        "injection": _bought([v for v in verdicts if v.probe.trap == "injected_text"], pairs, level),
        "consistency": _consistency(verdicts, repeats, level),
    }


def _accuracy(verdicts: Sequence[Verdict], level: float) -> Estimate:
    return _share([v.right for v in verdicts], verdicts, level)


def _leniency(verdicts: Sequence[Verdict], level: float) -> Estimate:
    found = balance([v.kinder for v in verdicts], [v.scene for v in verdicts], level=level)
    unordered = found.value is None and any(v.said is not None for v in verdicts)
    return replace(found, why="its answers have no order") if unordered else found


def _share(hits: Sequence[bool | None], verdicts: Sequence[Verdict], level: float) -> Estimate:
    return share(hits, [v.scene for v in verdicts], level=level)


def _mean(values: Sequence[float | None], verdicts: Sequence[Verdict], drawing: Drawing) -> Estimate:
    scenes = [v.scene for v in verdicts]
    return mean(values, scenes, resamples=drawing.resamples, level=drawing.level, seed=drawing.seed)


def _threshold(verdicts: Sequence[Verdict], *, level: float) -> Threshold:
    hits, areas = [v.right for v in verdicts], [v.probe.area for v in verdicts]
    return detection_threshold(hits, areas, [v.scene for v in verdicts], level=level)


def _statuses(verdicts: Iterable[Verdict]) -> dict[str, int]:
    return dict(Counter(v.missing for v in verdicts if v.missing is not None).most_common())


def _cell(verdicts: Sequence[Verdict], level: float) -> CellTrial:
    wrong = Counter(v.said for v in verdicts if v.right is False and v.said is not None)
    return CellTrial(
        failure=verdicts[0].probe.failure,
        area=verdicts[0].probe.area,
        accuracy=_accuracy(verdicts, level),
        instead=dict(wrong.most_common()),
        unjudged=_statuses(verdicts),
    )


def _confusion(verdicts: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for v in verdicts:
        if isinstance(v.truth, str):
            row, said = found.setdefault(v.truth, {}), v.said or f"({v.missing})"
            row[said] = row.get(said, 0) + 1
    return found


Pairs: TypeAlias = Mapping[tuple[str, str], Verdict]
"""(metric, key of a probe with a nuisance or trap) → the verdict on its plain twin."""


def _pairs(verdicts: Sequence[Verdict]) -> Pairs:
    by_key = {(v.metric.id, v.key): v for v in verdicts}
    found = {}
    for v in verdicts:
        if not v.plain and v.probe.twin is not None:
            twin = by_key.get((v.metric.id, sample_key(v.editor, v.probe.twin)))
            if twin is not None:
                found[v.metric.id, v.key] = twin
    return found


def _variants(verdicts: Sequence[Verdict], pairs: Pairs, level: float) -> Iterator[VariantTrial]:
    kinds: tuple[tuple[Literal["nuisance", "trap"], Sequence[str]], ...] = (("nuisance", NUISANCES), ("trap", TRAPS))
    for kind, names in kinds:
        for name in names:
            own = [v for v in verdicts if getattr(v.probe, kind) == name]
            if not own:
                continue
            paired = [(v, twin) for v in own if (twin := pairs.get((v.metric.id, v.key))) is not None]
            asking = [v for v in own if v.demanded is not None]
            yield VariantTrial(
                variant=name,
                kind=kind,
                accuracy=_accuracy(own, level),
                changed=_changed(own, pairs, level),
                change=balance([_less(v.right, t.right) for v, t in paired], [v.scene for v, _ in paired], level=level),
                obeyed=_share([_obeys(v, v) for v in asking], asking, level),
                bought=_bought(asking, pairs, level),
                alone=len(own) - len(paired),
                unjudged=_statuses(own),
            )


def _changed(verdicts: Sequence[Verdict], pairs: Pairs, level: float) -> Estimate:
    """Share of twins with one truth whose verdicts differ."""
    paired = [(v, t) for v in verdicts if (t := pairs.get((v.metric.id, v.key))) is not None and t.truth == v.truth]
    return _share(
        [None if v.said is None or t.said is None else v.said != t.said for v, t in paired], [v for v, _ in paired], level
    )


def _less(one: bool | None, other: bool | None) -> int | None:
    return None if one is None or other is None else int(one) - int(other)


def _obeys(verdict: Verdict, demand: Verdict) -> bool | None:
    """Whether a verdict is what the text or the file's name of `demand` asks for."""
    return None if verdict.said is None else verdict.said == demand.demanded


def _bought(asking: Sequence[Verdict], pairs: Pairs, level: float) -> Estimate:
    """How often the verdict is what is asked for, less how often the plain twin has it."""
    asking = [v for v in asking if v.demanded is not None]
    paired = [(v, t) for v in asking if (t := pairs.get((v.metric.id, v.key))) is not None]
    return balance([_less(_obeys(v, v), _obeys(t, v)) for v, t in paired], [v.scene for v, _ in paired], level=level)


@dataclass(frozen=True, kw_only=True)
class _Repeats:
    """What a judge said in each repeat."""

    count: int
    answers: Mapping[tuple[str, str], Sequence[str | None]] = field(default_factory=dict)
    """(metric, key) → an answer a repeat, None where it failed."""

    def has(self, verdict: Verdict) -> bool:
        """Whether a question was asked more than once."""
        return len(self.answers.get((verdict.metric.id, verdict.key), ())) > 1

    def same(self, verdict: Verdict) -> bool | None:
        """Whether all repeats gave one answer; None if any of them gave none."""
        answers = self.answers[verdict.metric.id, verdict.key]
        return None if None in answers or len(answers) < self.count else len(set(answers)) == 1

    def agreement(self, verdict: Verdict) -> float | None:
        """Share of pairs of repeats with one answer; None with fewer than two answers."""
        given = [a for a in self.answers[verdict.metric.id, verdict.key] if a is not None]
        alike = [a == b for a, b in combinations(given, 2)]
        return sum(alike) / len(alike) if alike else None


def _repeats(judged: Judged) -> _Repeats:
    found: dict[tuple[str, str], dict[int, Finding]] = {}
    for f in judged.of_models:
        if not f.part:
            found.setdefault((f.metric, f.sample_key), {})[f.repeat] = f
    answers = {key: [None if f.answer is None else str(f.answer) for f in own.values()] for key, own in found.items()}
    return _Repeats(count=judged.repeats.count, answers=answers)


_ONCE: Final = "asked once"


def _consistency(verdicts: Sequence[Verdict], repeats: _Repeats, level: float) -> Estimate:
    several = [v for v in verdicts if repeats.has(v)]
    found = _share([repeats.same(v) for v in several], several, level)
    return found if several else replace(found, why=_ONCE)


def _agreement(verdicts: Sequence[Verdict], repeats: _Repeats, drawing: Drawing) -> Estimate:
    several = [v for v in verdicts if repeats.has(v)]
    found = _mean([repeats.agreement(v) for v in several], several, drawing)
    return found if several else replace(found, why=_ONCE)


def _tools(
    judges: Sequence[Judged], verdicts: Sequence[Sequence[Verdict]], prices: Prices, drawing: Drawing
) -> tuple[list[ToolsAgainstPlain], list[str]]:
    """Each judge with tools beside the same backend without, as asked, and at equal cost where the repeats allow it."""
    found: list[ToolsAgainstPlain] = []
    notes = list[str]()
    by_mode = {mode: [i for i, judged in enumerate(judges) if judged.mode == mode] for mode in ("tool", "plain")}
    for i in by_mode["tool"]:
        for j in by_mode["plain"]:
            tool, plain = judges[i], judges[j]
            if tool.backend != plain.backend:
                continue
            apart = f"{tool.name} and {plain.name} are not compared at equal cost"
            # Several answers joined are better than one: each side has as many.
            closer, once = (first_repeats(one, 1) if one.repeats.count > 1 else one for one in (tool, plain))
            found += _against(closer, once, prices, drawing, equal_cost=False)
            if plain.repeats.count == 1:
                notes.append(f"{apart}, which takes repeats of the second: judge --mode plain --repeats K")
                continue
            try:
                (first, second), told = at_equal_cost([closer, plain], prices)
            except ConfigError as error:
                notes.append(f"{apart}: {str(error).removeprefix('--equal-cost: ')}")
                continue
            notes += told
            found += _against(first, second, prices, drawing, equal_cost=True)
    return found, notes


def _against(
    tool: Judged, plain: Judged, prices: Prices, drawing: Drawing, *, equal_cost: bool
) -> Iterator[ToolsAgainstPlain]:
    both = [spent(judged, prices) for judged in (tool, plain)]
    usd = all(one.usd is not None for one in both)
    costs = [each(one.usd if usd else one.tokens, one.probes) for one in both]
    said = [{(v.metric.id, v.key): v for v in verdicts_of(j, probes_of(j)) if v.plain} for j in (tool, plain)]
    for metric in dict.fromkeys(metric for metric, _ in said[0]):
        pairs = [(v, said[1][key]) for key, v in said[0].items() if key[0] == metric and key in said[1]]
        areas = sorted({v.probe.area for v, _ in pairs})
        yield ToolsAgainstPlain(
            tool=tool.name,
            plain=plain.name,
            metric=metric,
            difference=_paired(pairs, drawing.level),
            by_area={f"{a:g}": _paired([p for p in pairs if p[0].probe.area == a], drawing.level) for a in areas},
            tool_cost=costs[0],
            plain_cost=costs[1],
            unit="USD" if usd else "tokens",
            equal_cost=equal_cost,
        )


def _paired(pairs: Sequence[tuple[Verdict, Verdict]], level: float) -> Estimate:
    return balance([_less(a.right, b.right) for a, b in pairs], [a.scene for a, _ in pairs], level=level)


def each(total: float | None, probes: int) -> float | None:
    """Return a total divided by the probes that were asked about; None where either is not known."""
    return None if total is None or not probes else total / probes
