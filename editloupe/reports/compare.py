"""Judges compared: do two of them agree, which is the more lenient, what each costs, and which is nearer to people.

Two judges are compared on the samples that both could judge; each one's coverage stands beside. Nothing here asks a model.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

import numpy as np

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.imaging.targets import area_name, relative_area
from editloupe.protocols.repeats import entropy_of
from editloupe.reports.judged import Judged
from editloupe.scores import Metric, Score
from editloupe.stats import bootstrap as estimate
from editloupe.stats.agreement import (
    Figure,
    Paired,
    Scale,
    confusion,
    correlations,
    errors,
    label_figures,
)
from editloupe.stats.bootstrap import DRAWING, Drawing, Estimate
from editloupe.values import Json, sample_key

SAME: Final = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman", "bias")
"""The figures of a pair of judges."""

GROUPED: Final = ("exact", "weighted_kappa")
"""Those that are also given by edit type and by target area."""

_LEAST_TESTED: Final = 6
"""Source images that differ: with fewer, no outcome of the signed-rank test is below 0.05."""


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test of no difference.   n: what it rests on.   corrected: p by Holm over all tests of its table; None with p."""

    p: float | None
    n: int
    why: str = ""
    corrected: float | None = None

    def to_json(self) -> dict[str, Json]:
        return {"p": self.p, "p_holm": self.corrected, "n": self.n, "why": self.why or None}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two judges on one criterion.

    figures: on the samples that both judged; `bias` is the mean of first − second in the rubric's units.
    difference: mean of first − second, 0..100, with its interval.   test: Wilcoxon's signed ranks of the differences of
    source images.   confusion: counts by the second's label (rows) and the first's, worst first; the last column holds
    those that only the second judged.   by: dimension → group → figures.
    """

    first: str
    second: str
    criterion: str
    common: int
    figures: Mapping[str, Figure]
    difference: Estimate
    test: Test
    confusion: tuple[tuple[int, ...], ...]
    by: Mapping[str, Mapping[str, Mapping[str, Figure]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {
            "first": self.first,
            "second": self.second,
            "criterion": self.criterion,
            "common": self.common,
            "figures": {name: figure.to_json() for name, figure in self.figures.items()},
            "difference": self.difference.to_json(),
            "test": self.test.to_json(),
            "confusion": [list(row) for row in self.confusion],
            "by": {
                dimension: {name: {n: f.to_json() for n, f in figures.items()} for name, figures in groups.items()}
                for dimension, groups in self.by.items()
            },
        }


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One judge on one criterion, on its own coverage.

    mean: 0..100.   common: the mean of the samples that all judges with any verdict could judge.   entropy: of its labels,
    in bits, 0 where it always says the same; None without a label.   statuses: what it could not judge, by status.
    """

    judge: str
    criterion: str
    mean: Estimate
    common: Estimate
    entropy: float | None
    statuses: Mapping[str, int]

    def to_json(self) -> dict[str, Json]:
        return {
            "judge": self.judge,
            "criterion": self.criterion,
            "mean": self.mean.to_json(),
            "common": self.common.to_json(),
            "label_entropy_bits": self.entropy,
            "statuses": dict(self.statuses),
        }


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What one judge's verdicts took.

    verdicts: findings with a label.   usage: of all findings, those without a label included.   cost: USD, None where the
    price is not known or the endpoint did not tell the tokens of every finding.   seconds: median of a finding.
    turns: mean of turns with tool calls.   tools: how often each was called.   agreeing: verdicts that are people's label;
    None without people.
    """

    judge: str
    verdicts: int
    findings: int
    usage: Usage
    cost: float | None
    seconds: float | None
    turns: float | None
    tools: Mapping[str, int]
    agreeing: int | None = None

    @property
    def cost_a_verdict(self) -> float | None:
        return self.cost / self.verdicts if self.cost is not None and self.verdicts else None

    @property
    def cost_an_agreeing(self) -> float | None:
        """The price of a verdict that people agree with."""
        return self.cost / self.agreeing if self.cost is not None and self.agreeing else None

    def to_json(self) -> dict[str, Json]:
        return {
            "judge": self.judge,
            "verdicts": self.verdicts,
            "findings": self.findings,
            "usage": self.usage.to_json(),
            "cost_usd": self.cost,
            "cost_a_verdict_usd": self.cost_a_verdict,
            "agreeing": self.agreeing,
            "cost_an_agreeing_verdict_usd": self.cost_an_agreeing,
            "seconds_median": self.seconds,
            "turns_mean": self.turns,
            "tools": dict(self.tools),
        }


@dataclass(frozen=True, kw_only=True)
class Nearness:
    """One judge and people on one criterion.

    figures: on the samples that have a human label.   versus: other judge → McNemar's exact test of who is right more
    often, with (right alone, other right alone).
    """

    judge: str
    criterion: str
    figures: Mapping[str, Figure]
    versus: Mapping[str, tuple[Test, int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {
            "judge": self.judge,
            "criterion": self.criterion,
            "figures": {name: figure.to_json() for name, figure in self.figures.items()},
            "versus": {
                name: {**test.to_json(), "right_alone": ours, "other_right_alone": theirs}
                for name, (test, ours, theirs) in self.versus.items()
            },
        }


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """One sample on which judges differ: labels by judge, and how far they are apart, 0..1 of the scale."""

    sample: str
    criterion: str
    labels: Mapping[str, str]
    spread: float

    def to_json(self) -> dict[str, Json]:
        return {
            "sample": self.sample,
            "criterion": self.criterion,
            "labels": dict(self.labels),
            "spread": self.spread,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that `editloupe compare` tells.   people: where human labels are from, "" without."""

    judges: tuple[Judged, ...]
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    efforts: tuple[Effort, ...]
    nearness: tuple[Nearness, ...]
    disagreements: tuple[Disagreement, ...]
    drawing: Drawing
    people: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "judges": [
                {"name": j.name, "backend": j.backend, "judge_id": j.judge_id, "mode": j.mode, "run": str(j.folder)}
                for j in self.judges
            ],
            "bootstrap": self.drawing.to_json(),
            "standings": [s.to_json() for s in self.standings],
            "pairs": [p.to_json() for p in self.pairs],
            "efforts": [e.to_json() for e in self.efforts],
            "people": self.people or None,
            "nearness": [n.to_json() for n in self.nearness],
            "disagreements": [d.to_json() for d in self.disagreements],
            "notes": list(self.notes),
        }


People = Mapping[tuple[str, str, str], str | float]
"""(editor, sample id, criterion) → the label that people gave, or the value of one."""


def compare(
    judges: Sequence[Judged], *, prices: Prices, people: People | None = None, drawing: Drawing = DRAWING
) -> Comparison:
    """Judges of one rubric over the same samples.

    Raises ConfigError: fewer than two judges, two of one name, samples whose content differs between runs, no sample in
    common.
    """
    if len(judges) < 2:
        raise ConfigError(
            "one judge only; name several runs, or a run that several judges have judged (judge --backend A --backend B)"
        )
    twice = next((name for name, n in Counter(j.name for j in judges).items() if n > 1), None)
    if twice is not None:
        raise ConfigError(f"two judges are called {twice}; name each judge once, under a name of its own")
    _check_same_data(judges)
    criteria = [c for c in judges[0].metrics.metrics if any(c.id in j.criteria for j in judges)]
    scores = [{(s.metric, sample_key(s.editor, s.sample_id)): s for s in j.scores} for j in judges]
    standings, pairs, nearness = [], [], []
    notes = []
    for judge, own in zip(judges, scores, strict=True):
        if not any(s.value is not None for s in own.values()):
            notes.append(f"{judge.name} has no verdict at all; it is listed and takes part in nothing")
    for criterion in criteria:
        keys = list(dict.fromkeys(key for own in scores for key in own if key[0] == criterion.id))
        # A judge without any verdict would leave no sample that all judged.
        told = [any((s := own.get(k)) is not None and s.value is not None for k in keys) for own in scores]
        able = [own for own, some in zip(scores, told, strict=True) if some]
        all_judged = [
            k for k in keys if able and all((s := own.get(k)) is not None and s.value is not None for own in able)
        ]
        for judge, own, some in zip(judges, scores, told, strict=True):
            standings.append(_standing(judge, criterion, own, keys, all_judged if some else (), drawing))
            if not some and any(s.value is not None for s in own.values()):
                notes.append(f"{judge.name} has no verdict on {criterion.short}; what all judged is told without it there")
        for (a, own_a), (b, own_b) in combinations(zip(judges, scores, strict=True), 2):
            pairs.append(_pair(a, b, criterion, own_a, own_b, keys, drawing))
        if people is not None:
            nearness += _nearness(judges, scores, criterion, keys, people, drawing)
    corrected = _holm([p.test for p in pairs])
    pairs = [replace(p, test=t) for p, t in zip(pairs, corrected, strict=True)]
    return Comparison(
        judges=tuple(judges),
        standings=tuple(standings),
        pairs=tuple(pairs),
        efforts=tuple(_effort(j, prices, people) for j in judges),
        nearness=tuple(_corrected(nearness)),
        disagreements=tuple(_disagreements(judges, scores, criteria)),
        drawing=drawing,
        notes=tuple(notes),
    )


def _check_same_data(judges: Sequence[Judged]) -> None:
    content: dict[str, tuple[str, Judged]] = {}
    for judge in judges:
        # Samples that differ, by the name of the judge whose run has them otherwise.
        parted: dict[str, tuple[Judged, list[str]]] = {}
        for key, sample in judge.samples.items():
            known, other = content.setdefault(key, (sample.content, judge))
            if known != sample.content:
                parted.setdefault(other.name, (other, []))[1].append(key)
        if not parted:
            continue
        other, differing = next(iter(parted.values()))
        named = ", ".join(differing[:5]) + (f" and {len(differing) - 5} more" if len(differing) > 5 else "")
        raise ConfigError(
            f"{other.folder} and {judge.folder} judged different data: {named} differ in image, instruction or "
            "targets; compare runs over the same folder"
        )
    common = set.intersection(*(set(j.samples) for j in judges))
    if not common:
        told = "; ".join(f"{j.folder} has {', '.join(list(j.samples)[:3])}, …" for j in judges)
        raise ConfigError(f"the judges have no sample in common: {told}")


def _standing(
    judge: Judged,
    criterion: Metric,
    own: Mapping[tuple[str, str], Score],
    keys: Sequence[tuple[str, str]],
    common: Sequence[tuple[str, str]],
    drawing: Drawing,
) -> Standing:
    mine = [own[k] for k in keys if k in own]
    labels = Counter(s.label for s in mine if s.label is not None)
    return Standing(
        judge=judge.name,
        criterion=criterion.id,
        mean=_mean(judge, mine, drawing),
        common=_mean(judge, [own[k] for k in common], drawing),
        entropy=entropy(list(labels.values())),
        statuses=Counter(s.missing for s in mine if s.missing is not None),
    )


def _mean(judge: Judged, scores: Sequence[Score], drawing: Drawing) -> Estimate:
    return estimate.mean(
        [s.normalised for s in scores],
        [judge.cluster(s) for s in scores],
        resamples=drawing.resamples,
        level=drawing.level,
        seed=drawing.seed,
    )


def entropy(counts: Sequence[int]) -> float | None:
    """Shannon's entropy of counts in bits; None where there are none."""
    return entropy_of(counts) if sum(counts) else None


def _pair(
    a: Judged,
    b: Judged,
    criterion: Metric,
    own_a: Mapping[tuple[str, str], Score],
    own_b: Mapping[tuple[str, str], Score],
    keys: Sequence[tuple[str, str]],
    drawing: Drawing,
) -> Pair:
    both = [k for k in keys if k in own_a and k in own_b]
    clusters = [a.cluster(own_a[k]) for k in both]
    paired = Paired.of([own_a[k].value for k in both], [own_b[k].value for k in both], clusters, names=(a.name, b.name))
    scale = scale_of(criterion)
    on_scale = _on_scale(paired, scale)
    figures = {**correlations(paired, drawing), **errors(paired, drawing), **label_figures(on_scale, scale, drawing)}
    normalised = [(own_a[k].normalised, own_b[k].normalised) for k in both]
    differences = [None if x is None or y is None else x - y for x, y in normalised]
    groups: dict[str, dict[str, list[int]]] = {"edit_type": {}, "area": {}}
    for index, key in enumerate(both):
        sample = a.samples.get(key[1])
        groups["edit_type"].setdefault(own_a[key].edit_type, []).append(index)
        area = None if sample is None else relative_area(sample)
        groups["area"].setdefault("(no box)" if area is None else area_name(area), []).append(index)
    by = {
        dimension: {name: _grouped(on_scale, scale, members, drawing) for name, members in found.items()}
        for dimension, found in groups.items()
        if len(found) > 1
    }
    return Pair(
        first=a.name,
        second=b.name,
        criterion=criterion.id,
        common=int(paired.both.sum()),
        figures={name: figures[name] for name in SAME if name in figures},
        difference=estimate.mean(
            differences, clusters, resamples=drawing.resamples, level=drawing.level, seed=drawing.seed
        ),
        test=signed_ranks(differences, clusters),
        confusion=tuple(map(tuple, confusion(on_scale, scale))),
        by=by,
    )


def _grouped(paired: Paired, scale: Scale, members: Sequence[int], drawing: Drawing) -> dict[str, Figure]:
    keep = np.zeros(len(paired.x), dtype=bool)
    keep[list(members)] = True
    figures = label_figures(paired.where(keep), scale, drawing)
    return {name: figures[name] for name in GROUPED if name in figures}


def scale_of(criterion: Metric) -> Scale:
    """A criterion's labels, worst first."""
    return Scale(
        values=tuple(float(level.value) for level in criterion.levels),
        names=tuple(level.name for level in criterion.levels),
    )


def _on_scale(paired: Paired, scale: Scale) -> Paired:
    """Only values that are labels: a median of repeats may lie between two."""
    x, y = (np.where(np.isin(values, scale.values), values, np.nan) for values in (paired.x, paired.y))
    return Paired(x=x, y=y, clusters=paired.clusters, names=paired.names)


def signed_ranks(differences: Sequence[float | None], clusters: Sequence[str]) -> Test:
    """Wilcoxon's signed-rank test, two-sided, of the mean difference of each source image.

    Edits of one source are not independent, their means are. No p with fewer than 6 source images that differ.
    """
    by_cluster: dict[str, list[float]] = {}
    for difference, cluster in zip(differences, clusters, strict=True):
        if difference is not None:
            by_cluster.setdefault(cluster, []).append(difference)
    means = [round(math.fsum(found) / len(found), 9) for found in by_cluster.values()]
    moved = [m for m in means if m]
    if len(moved) < _LEAST_TESTED:
        why = f"{len(moved)} of {len(means)} source images differ; {_LEAST_TESTED} are needed"
        return Test(p=None, n=len(means), why=why)
    from scipy.stats import wilcoxon  # 0.3 s, and most commands need none of it

    return Test(p=float(wilcoxon(moved).pvalue), n=len(moved))


def mcnemar(first_alone: int, second_alone: int) -> Test:
    """McNemar's exact test of two judges' right answers: a binomial test of those on which one alone is right."""
    n = first_alone + second_alone
    if not n:
        return Test(p=None, n=0, why="they are right on the same samples")
    from scipy.stats import binomtest  # as above

    return Test(p=float(binomtest(first_alone, n).pvalue), n=n)


def _holm(tests: Sequence[Test]) -> list[Test]:
    """Each with its p corrected for how many tests there are (Holm's step-down)."""
    order = sorted((t.p, i) for i, t in enumerate(tests) if t.p is not None)
    found = list(tests)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        found[index] = replace(tests[index], corrected=highest)
    return found


def _nearness(
    judges: Sequence[Judged],
    scores: Sequence[Mapping[tuple[str, str], Score]],
    criterion: Metric,
    keys: Sequence[tuple[str, str]],
    people: People,
    drawing: Drawing,
) -> list[Nearness]:
    scale = scale_of(criterion)
    truth = {}
    for key in keys:
        score = next(own[key] for own in scores if key in own)
        given = people.get((score.editor, score.sample_id, criterion.id))
        value = _label_value(criterion, given)
        if value is not None:
            truth[key] = value
    found = []
    right: list[dict[tuple[str, str], bool]] = []
    for judge, own in zip(judges, scores, strict=True):
        rated = [k for k in truth if k in own]
        values = [own[k].value for k in rated]
        right.append({k: v == truth[k] for k, v in zip(rated, values, strict=True) if v is not None})
        paired = Paired.of(
            values, [truth[k] for k in rated], [judge.cluster(own[k]) for k in rated], (judge.name, "people")
        )
        figures = {**correlations(paired, drawing), **errors(paired, drawing)}
        figures |= label_figures(_on_scale(paired, scale), scale, drawing)
        found.append(Nearness(judge=judge.name, criterion=criterion.id, figures=figures))
    out = []
    for i, near in enumerate(found):
        versus = {}
        for j, other in enumerate(found):
            if i < j:
                both = right[i].keys() & right[j].keys()
                ours = sum(right[i][k] and not right[j][k] for k in both)
                theirs = sum(right[j][k] and not right[i][k] for k in both)
                nothing = Test(p=None, n=0, why="no sample that both judged")
                versus[other.judge] = (mcnemar(ours, theirs) if both else nothing, ours, theirs)
        out.append(replace(near, versus=versus))
    return out


def _label_value(criterion: Metric, given: str | float | None) -> float | None:
    if given is None:
        return None
    for level in criterion.levels:
        if given in (level.name, float(level.value)):
            return float(level.value)
    return None


def _corrected(nearness: Sequence[Nearness]) -> list[Nearness]:
    tests = [(i, name) for i, near in enumerate(nearness) for name in near.versus]
    corrected = _holm([nearness[i].versus[name][0] for i, name in tests])
    found = [dict(near.versus) for near in nearness]
    for (i, name), test in zip(tests, corrected, strict=True):
        _, ours, theirs = found[i][name]
        found[i][name] = (test, ours, theirs)
    return [replace(near, versus=versus) for near, versus in zip(nearness, found, strict=True)]


def _effort(judge: Judged, prices: Prices, people: People | None) -> Effort:
    usage = sum((f.usage for f in judge.findings), Usage())
    asked = [f for f in judge.findings if f.trace is not None]
    agreeing = None
    if people is not None:
        agreeing = sum(
            s.value is not None
            and s.value == _label_value(judge.metrics.metric(s.metric), people.get((s.editor, s.sample_id, s.metric)))
            for s in judge.scores
        )
    return Effort(
        judge=judge.name,
        verdicts=sum(s.value is not None for s in judge.scores),
        findings=len(judge.findings),
        usage=usage,
        cost=None if judge.untold else prices.of_uri(judge.backend, usage),
        seconds=float(np.median([f.seconds for f in asked])) if asked else None,
        turns=float(np.mean([f.turns for f in asked])) if asked else None,
        tools=tool_calls(judge),
        agreeing=agreeing,
    )


def tool_calls(judge: Judged) -> dict[str, int]:
    """How often each tool was called, from the traces; a trace that cannot be read counts nothing."""
    counts: Counter[str] = Counter()
    for finding in judge.findings:
        if finding.trace is None or not finding.turns:
            continue
        try:
            text = (judge.folder / finding.trace).read_bytes()
        except OSError:
            continue
        for line in text.splitlines():
            # Parsing every line of every trace would take minutes in a large run.
            if b'"kind":"tool_call"' in line:
                try:
                    counts[str(json.loads(line)["call"]["name"])] += 1
                except (ValueError, KeyError, TypeError):
                    continue
    return dict(counts.most_common())


def _disagreements(
    judges: Sequence[Judged],
    scores: Sequence[Mapping[tuple[str, str], Score]],
    criteria: Sequence[Metric],
) -> list[Disagreement]:
    """Samples on which two judges or more gave different labels, the furthest apart first."""
    found = []
    for criterion in criteria:
        for key in dict.fromkeys(k for own in scores for k in own if k[0] == criterion.id):
            given = {
                j.name: own[key]
                for j, own in zip(judges, scores, strict=True)
                if key in own and own[key].normalised is not None
            }
            values = [s.normalised for s in given.values() if s.normalised is not None]
            if len(values) > 1 and max(values) > min(values):
                labels = {name: s.label or f"{s.value:g}" for name, s in given.items()}
                spread = round((max(values) - min(values)) / 100, 6)
                found.append(Disagreement(sample=key[1], criterion=criterion.id, labels=labels, spread=spread))
    return sorted(found, key=lambda d: -d.spread)
