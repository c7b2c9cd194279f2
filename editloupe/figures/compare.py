"""Judges' columns beside each other and beside people's: do they agree, which is more lenient, what does each cost.

Two judges are compared on the samples that both could judge; each one's coverage stands beside. Nothing here asks a model.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Final

from pydantic import Field

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.figures.columns import (
    Answer,
    HumanLabels,
    JudgeColumn,
    Key,
    RatedItem,
    column_of,
    editors_of,
    join,
    key_of,
    rated_editors,
    with_facts,
)
from editloupe.figures.human_labels import labels_in, read_human
from editloupe.figures.judged import Judged
from editloupe.figures.people import MetricAgreement, PeopleOptions, RightMoreOften, agreement, among_people
from editloupe.figures.readings import MetricReading, ruler
from editloupe.protocols.repeats import entropy_of
from editloupe.scores import Metric, Score
from editloupe.stats.agreement import Paired, confusion, figures
from editloupe.stats.bootstrap import Drawing, Estimate, mean
from editloupe.stats.significance import Significance, holm, sign_flips, signed_ranks
from editloupe.values import Serialisable, is_empty, sample_key

_ORDERED: Final = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman", "bias")
_UNORDERED: Final = ("exact", "kappa", "alpha_nominal")
_NUMBERS: Final = ("spearman", "pearson", "mae", "bias")


@dataclass(frozen=True, kw_only=True)
class ComparedJudge(Serialisable):
    """Who is compared."""

    name: str
    backend: str
    judge_id: str
    mode: str
    run: str
    """The run's folder."""
    description: Annotated[str, Field(exclude=True)]
    """All of that in words."""


@dataclass(frozen=True, kw_only=True)
class JudgeSummary(Serialisable):
    """One judge on one metric, on its own coverage."""

    judge: str
    criterion: str
    mean: Estimate
    """0 to 100, or in the unit of a metric without bounds."""
    common: Estimate
    """The same on the samples that all judges with any verdict could judge."""
    label_entropy_bits: float | None
    """0 if it always says the same; None without a label."""
    statuses: Mapping[str, int]
    """What it could not judge, by status."""


@dataclass(frozen=True, kw_only=True)
class JudgePair(Serialisable):
    """Two judges on one metric, on the samples that both judged."""

    first: str
    second: str
    criterion: str
    common: int
    figures: Mapping[str, Estimate]
    """By name; `bias` is the mean of first − second in the metric's unit."""
    difference: Estimate
    """Mean of first − second, 0 to 100 or in the unit of a metric without bounds."""
    test: Significance
    """Wilcoxon's signed ranks of the differences of source images."""
    confusion: tuple[tuple[int, ...], ...]
    """Counts by the second's label (rows) and the first's, worst first; the last column holds those that only the second
    judged. Empty for numbers without labels.
    """
    labels: Annotated[tuple[str, ...], Field(exclude=True)]


@dataclass(frozen=True, kw_only=True)
class Cost(Serialisable):
    """What one judge's verdicts took."""

    judge: str
    verdicts: int
    """Questions that it answered, each once, however many scores are made of it. Measures ask none."""
    findings: int
    usage: Usage
    """Of all findings, those without an answer included."""
    cost_usd: float | None
    """None if the price is not known or the endpoint did not tell the tokens of every finding."""
    cost_a_verdict_usd: float | None
    agreeing: int | None
    """Verdicts that are people's label; None without people."""
    cost_an_agreeing_verdict_usd: float | None
    seconds_median: float | None
    """Of a finding."""
    turns_mean: float | None
    """Turns with tool calls."""


@dataclass(frozen=True, kw_only=True)
class Disagreement(Serialisable):
    """One sample on which judges differ, or raters where people are compared among themselves."""

    sample: str
    """The sample's key."""
    turn: Annotated[int, Field(exclude_if=lambda turn: not turn)] = 0
    part: Annotated[str, Field(exclude_if=is_empty)] = ""
    criterion: str
    labels: Mapping[str, str]
    """By judge, or by rater."""
    spread: float
    """How far they are apart, 0 to 100, or in the unit of a metric without bounds."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Serialisable):
    """All that `editloupe compare` shows."""

    judges: tuple[ComparedJudge, ...]
    bootstrap: Drawing
    summaries: tuple[JudgeSummary, ...]
    pairs: tuple[JudgePair, ...]
    costs: tuple[Cost, ...]
    human: str | None
    """Where human labels are from; None without."""
    human_agreement: tuple[MetricAgreement, ...]
    """Each judge beside people on each metric that they rated."""
    raters: tuple[MetricAgreement, ...] = ()
    """People among themselves on each metric; () where no two of them rated one item."""
    disagreements: tuple[Disagreement, ...]
    notes: tuple[str, ...]
    titles: Annotated[Mapping[str, tuple[str, str]], Field(exclude=True)]
    """Metric → (name, short name)."""


@dataclass(frozen=True, kw_only=True)
class Rated:
    """People's ratings of what judges judged."""

    items: Mapping[Key, RatedItem]
    labels: HumanLabels
    """Under the keys of `items`."""
    column: JudgeColumn
    """People as one judge: the label that most raters gave; of numbers without labels, the mean."""
    ratings: Mapping[str, str] = field(default_factory=dict)
    """Metric's id → what of people's ratings it is held against; empty where they rated the metrics themselves."""

    @property
    def name(self) -> str:
        """Where the labels are from."""
        return self.column.name


def rated_by_people(
    judges: Sequence[Judged],
    human: Path | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    ratings: Mapping[str, str] | None = None,
) -> tuple[Rated | None, tuple[str, ...]]:
    """Return people's ratings of the judges' samples, and notes; None without any.

    human: a table; None for the labels that the runs' samples carry.   columns: role → column, if names do not say it.
    ratings: as `Rated.ratings`.   Raises ConfigError if the table does not fit the samples.
    """
    metrics, ratings = judges[0].metrics.metrics, ratings or {}
    items = {key: item for judge in reversed(judges) for key, item in column_of(judge).items.items()}
    more = tuple(dict.fromkeys(ratings.values()))
    if human is not None:
        people, name = read_human(human, metrics, columns or {}, more), human.name
    else:
        samples = {key: sample for judge in reversed(judges) for key, sample in judge.samples.items()}
        said = [given for judge in judges for given in judge.people]
        scores = [one for judge in judges for one in judge.people_scores]
        people = labels_in(samples.values(), metrics, "the samples", more, people=said, scores=scores)
        name = "the samples' own columns"
        if not people.ratings:
            return None, people.notes
    if unknown := next((rating for rating in more if rating not in people.metrics), None):
        rated = ", ".join(people.metrics) or "nothing that is named"
        raise ConfigError(f"--pair {unknown}: no rating in {people.source} has this name; rated there: {rated}")
    if {key[0] for key in people.items} == {""} and all(key[1] in {k[0] for k in items} for key in people.items):
        # A table that rates editors themselves.
        column = JudgeColumn(name=name, items={})
        return Rated(items=items, labels=people, column=column, ratings=ratings), people.notes
    folders = list(dict.fromkeys(str(judge.folder) for judge in judges))
    where = f"the run{'s' if len(folders) > 1 else ''} {' and '.join(folders)}"
    items, people = join(items, people, where=where, closed=True)
    column, notes = _majority(items, people, metrics, name)
    return Rated(items=items, labels=people, column=column, ratings=ratings), (*people.notes, *notes)


def _majority(
    items: Mapping[Key, RatedItem], people: HumanLabels, metrics: Sequence[Metric], name: str
) -> tuple[JudgeColumn, list[str]]:
    """People as one judge, and what of their ratings could not be used."""
    answers: dict[str, dict[Key, Answer]] = {}
    notes: list[str] = []
    for metric in metrics:
        rated = [people.ratings.get(key, {}).get(metric.id, {}) for key in items]
        reading = MetricReading([None] * len(rated), rated, metric)
        notes += reading.notes
        scale = reading.ruler.scale
        found = reading.means if scale is None else reading.labels
        # Options are kept as words: a judge may have chosen one that no person chose.
        name_of = (lambda v: v) if scale is None or metric.levels else scale.name
        answers[metric.id] = {key: name_of(v) for key, v in zip(items, found, strict=True) if v is not None}
    return JudgeColumn(name=name, items=items, answers=answers), notes


def compare(
    judges: Sequence[Judged],
    *,
    prices: Prices,
    people: Rated | None = None,
    options: PeopleOptions | None = None,
    criteria: Sequence[Metric] | None = None,
    by_editor: bool = False,
) -> Comparison:
    """Compare judges of one protocol over the same samples, with each other and with people.

    options: how agreement with people is summed up, and how intervals are drawn.   criteria: the metrics that are held
    against people's ratings; None for all that they rated.   by_editor: hold editors' means against them, not samples.
    Raises ConfigError: one judge and no people, two judges of one name, samples whose content differs between runs, no
    sample in common.
    """
    options = options or PeopleOptions()
    _check(judges, people)
    metrics = [m for m in judges[0].metrics.metrics if any(m.id in judge.criteria for judge in judges)]
    columns = [column_of(judge) for judge in judges]
    truth = None if people is None or by_editor else people.column
    compared = [_Compared(judges, columns, metric, truth, options.drawing) for metric in metrics]
    pairs = [pair for one in compared for pair in one.pairs()]
    human, among = list[MetricAgreement](), tuple[MetricAgreement, ...]()
    if people is not None:
        held = _held(people, metrics, criteria)
        human = [one for column in columns for one in _beside_people(column, people, held, options, by_editor=by_editor)]
        versus = {} if people.ratings else {one.metric.id: one.right_more_often() for one in compared}
        human = [replace(one, versus=versus.get(one.criterion, {}).get(one.judge or "", {})) for one in human]
        facts = with_facts(people.labels, {k: s for j in judges for k, s in j.samples.items()}, judges[0].protocol)
        among = tuple(one for one in among_people(facts, held, options) if one.all.ceiling["alpha_nominal"].judged)
    return Comparison(
        judges=tuple(
            ComparedJudge(
                name=judge.name, backend=judge.backend, judge_id=judge.judge_id, mode=judge.mode, run=str(judge.folder),
                description=judge.describe(),
            )
            for judge in judges
        ),
        bootstrap=options.drawing,
        summaries=tuple(summary for one in compared for summary in one.summaries()),
        pairs=tuple(replace(p, test=test) for p, test in zip(pairs, holm([p.test for p in pairs]), strict=True)),
        costs=tuple(_cost(i, judge, compared, prices, truth) for i, judge in enumerate(judges)),
        human=None if people is None else people.name,
        human_agreement=tuple(_corrected(human)),
        raters=among,
        disagreements=tuple(furthest_first([d for one in compared for d in one.disagreements()])),
        notes=(*_remarks(judges), *(note for one in compared for note in one.notes())),
        titles={m.id: (m.name, m.short) for m in metrics},
    )  # fmt: skip


def furthest_first(found: Sequence[Disagreement]) -> list[Disagreement]:
    """Return disagreements by their distance, the largest first.

    Of equal ones, the sample comes first on which judges are apart on more metrics, then the one with the larger sum of
    distances over its metrics, then the first by name. The viewer's pages sort in the same way.
    """
    of_sample: dict[str, list[Disagreement]] = {}
    for one in found:
        of_sample.setdefault(one.sample, []).append(one)
    metrics = {sample: len({d.criterion for d in own}) for sample, own in of_sample.items()}
    sums = {sample: sum(d.spread for d in own) for sample, own in of_sample.items()}
    return sorted(found, key=lambda d: (-d.spread, -metrics[d.sample], -sums[d.sample], d.sample, d.turn, d.part))


def raters_apart(people: HumanLabels, metrics: Sequence[Metric | str]) -> list[Disagreement]:
    """Return the items on which two raters or more said different things, the furthest apart first."""
    found = []
    for metric in metrics:
        name = metric if isinstance(metric, str) else metric.id
        items = [key for key, ratings in people.ratings.items() if ratings.get(name)]
        reading = MetricReading([None] * len(items), [people.ratings[key][name] for key in items], metric)
        scale = reading.ruler.scale
        for key, rated in zip(items, reading.ratings, strict=True):
            if len(set(rated.values())) < 2:
                continue
            placed = [None if isinstance(metric, str) else metric.normalise(v) for v in rated.values()]
            shown = [v if place is None else place for place, v in zip(placed, rated.values(), strict=True)]
            # A number may lie between two labels.
            labels = {r: scale.name(v) if scale is not None and v in scale.values else f"{v:g}" for r, v in rated.items()}
            found.append(_disagreement(key, name, labels, shown))
    return furthest_first(found)


def _disagreement(key: Key, criterion: str, labels: Mapping[str, str], values: Sequence[float]) -> Disagreement:
    spread = min(round(max(values) - min(values), 6), sys.float_info.max)
    sample = sample_key(*key[:2])
    return Disagreement(sample=sample, turn=key[2], part=key[3], criterion=criterion, labels=labels, spread=spread)


class _Compared:
    """One metric: the judges' scores and people's labels by what they are about."""

    def __init__(
        self,
        judges: Sequence[Judged],
        columns: Sequence[JudgeColumn],
        metric: Metric,
        people: JudgeColumn | None,
        drawing: Drawing,
    ) -> None:
        self.metric, self.drawing, self.names = metric, drawing, [judge.name for judge in judges]
        self.sources = {key: item.source for column in reversed(columns) for key, item in column.items.items()}
        self.scores = [{key_of(s): s for s in judge.scores if s.metric == metric.id} for judge in judges]
        self.keys = list(dict.fromkeys(key for own in self.scores for key in own))
        labels = {} if people is None else people.of(metric.id)
        answers = [answer for column in columns for answer in column.of(metric.id).values()]
        self.ruler = ruler(metric, answers, labels.values())
        self.values = [{k: self.ruler.read(a) for k, a in column.of(metric.id).items()} for column in columns]
        self.truth = {k: v for k in self.keys if (v := self.ruler.read(labels.get(k))) is not None}
        # A judge without a verdict on this metric would leave no sample that all judged.
        self.able = [any(score.value is not None for score in own.values()) for own in self.scores]
        self.elsewhere = [any(score.value is not None for score in judge.scores) for judge in judges]

    def notes(self) -> Iterator[str]:
        """Yield judges that have no verdict on this metric alone."""
        for name, able, elsewhere in zip(self.names, self.able, self.elsewhere, strict=True):
            if not able and elsewhere:
                yield f"{name} has no verdict on {self.metric.short}; the means of what all judged leave it out there"

    def summaries(self) -> Iterator[JudgeSummary]:
        """Yield each judge on its own."""
        able = [own for own, some in zip(self.scores, self.able, strict=True) if some]
        common = [k for k in self.keys if able and all(k in own and own[k].value is not None for own in able)]
        for name, own, some in zip(self.names, self.scores, self.able, strict=True):
            mine = [k for k in self.keys if k in own]
            both = common if some else []
            labels = Counter(label for k in mine if (label := own[k].label) is not None)
            yield JudgeSummary(
                judge=name,
                criterion=self.metric.id,
                mean=self._mean([self._shown(own[k]) for k in mine], mine),
                common=self._mean([self._shown(own[k]) for k in both], both),
                label_entropy_bits=entropy_of(labels.values()) if labels else None,
                statuses=Counter(missing for k in mine if (missing := own[k].missing) is not None),
            )

    def pairs(self) -> Iterator[JudgePair]:
        """Yield each two judges."""
        scale = self.ruler.scale
        wanted = _NUMBERS if scale is None else _ORDERED if scale.ordered else _UNORDERED
        for a, b in combinations(range(len(self.names)), 2):
            both = [k for k in self.keys if k in self.scores[a] and k in self.scores[b]]
            sources, names = [self.sources[k] for k in both], (self.names[a], self.names[b])
            x, y = ([self.values[i].get(k) for k in both] for i in (a, b))
            pair = Paired.of(x, y, sources, names)
            found = figures(pair, scale=scale, drawing=self.drawing)
            shown = [(self._shown(self.scores[a][k]), self._shown(self.scores[b][k])) for k in both]
            differences = [None if one is None or two is None else one - two for one, two in shown]
            yield JudgePair(
                first=names[0],
                second=names[1],
                criterion=self.metric.id,
                common=int(pair.both.sum()),
                figures={name: found[name] for name in wanted},
                difference=self._mean(differences, both),
                test=signed_ranks(differences, sources),
                confusion=() if scale is None else tuple(map(tuple, confusion(pair.on(scale), scale))),
                labels=() if scale is None else scale.names,
            )

    def right_more_often(self) -> dict[str, dict[str, RightMoreOften]]:
        """Return who of each two judges is right more often, people's label being right: judge → other judge → test."""
        right = [
            {k: value == truth for k, truth in self.truth.items() if k in own and (value := values.get(k)) is not None}
            for own, values in zip(self.scores, self.values, strict=True)
        ]
        found: dict[str, dict[str, RightMoreOften]] = {name: {} for name in self.names}
        for i, j in combinations(range(len(self.names)), 2):
            both = [k for k in right[i] if k in right[j]]
            outcomes = [right[i][k] - right[j][k] for k in both]
            test = sign_flips(outcomes, [self.sources[k] for k in both])
            found[self.names[i]][self.names[j]] = RightMoreOften(
                p=test.p,
                n=test.n,
                why=test.why if both else "no sample that both judged",
                right_alone=outcomes.count(1),
                other_right_alone=outcomes.count(-1),
            )
        return found

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield the samples on which two judges or more gave different answers."""
        for key in self.keys:
            given = {name: own[key] for name, own in zip(self.names, self.scores, strict=True) if key in own}
            given = {name: score for name, score in given.items() if score.value is not None}
            shown = [value for score in given.values() if (value := self._shown(score)) is not None]
            labels = {name: score.label or f"{score.value:g}" for name, score in given.items()}
            # Two options may be wrong alike.
            if len(shown) > 1 and (max(shown) > min(shown) or (not self.ruler.ordered and len(set(labels.values())) > 1)):
                yield _disagreement(key, self.metric.id, labels, shown)

    def agreeing(self, judge: int) -> int:
        """Return how many answers of a judge are people's."""
        return sum(self.values[judge].get(k) == v for k, v in self.truth.items())

    def _shown(self, score: Score) -> float | None:
        """A score on 0 to 100; the value of a metric without bounds."""
        return score.value if self.metric.domain.bounds is None else score.normalised

    def _mean(self, values: Sequence[float | None], keys: Sequence[Key]) -> Estimate:
        return mean(values, [self.sources[k] for k in keys], drawing=self.drawing)


def _remarks(judges: Sequence[Judged]) -> Iterator[str]:
    """Yield who has no verdict at all, and a note if not all judges were asked for their answers in the same form."""
    for judge in judges:
        if all(score.value is None for score in judge.scores):
            yield f"{judge.name} has no verdict at all; it is listed and takes part in nothing"
    forms = {judge.name: judge.answer_form for judge in judges if judge.answer_form}
    if len({form == "tags" for form in forms.values()}) > 1:
        listed = "; ".join(f"{name}: {form}" for name, form in forms.items())
        yield f"asked for their answers in different forms ({listed}); --set answers=tags asks all judges alike"


def _check(judges: Sequence[Judged], people: Rated | None) -> None:
    """Raise ConfigError where there is nothing to compare, or judges of other data."""
    if len(judges) < 2 and people is None:
        raise ConfigError(
            "one judge only, and no people's labels; name several runs, a run that several judges have judged (judge "
            "--backend A --backend B), or people's labels with --human FILE"
        )
    if twice := next((name for name, n in Counter(j.name for j in judges).items() if n > 1), None):
        raise ConfigError(f"two judges are called {twice}; name each judge once, under a name of its own")
    content: dict[str, tuple[str, Judged]] = {}
    for judge in judges:
        known = {key: content.setdefault(key, (sample.content, judge)) for key, sample in judge.samples.items()}
        parted = [(other, key) for key, (found, other) in known.items() if found != judge.samples[key].content]
        if parted:
            other = parted[0][0]
            differing = [key for whose, key in parted if whose is other]
            named = ", ".join(differing[:5]) + (f" and {len(differing) - 5} more" if len(differing) > 5 else "")
            raise ConfigError(
                f"{other.folder} and {judge.folder} judged different data: {named} differ in image, instruction or "
                "targets; compare runs over the same folder"
            )
    if not set.intersection(*(set(j.samples) for j in judges)):
        text = "; ".join(f"{j.folder} has {', '.join(list(j.samples)[:3])}, …" for j in judges)
        raise ConfigError(f"the judges have no sample in common: {text}")


def _held(people: Rated, metrics: Sequence[Metric], criteria: Sequence[Metric] | None) -> list[Metric]:
    """The metrics that are held against people's ratings: those that are paired, named, or rated."""
    if people.ratings:
        return [m for m in metrics if m.id in people.ratings]
    rated = {name for ratings in people.labels.ratings.values() for name, given in ratings.items() if given}
    return [m for m in metrics if (m.id in rated if criteria is None else m in criteria)]


def _beside_people(
    column: JudgeColumn, people: Rated, metrics: Sequence[Metric], options: PeopleOptions, *, by_editor: bool
) -> Iterator[MetricAgreement]:
    """Yield the agreement of one judge with people on each metric."""
    items, labels = people.items, people.labels
    held: Sequence[Metric | str] = metrics
    if by_editor:
        named = {editor for editor, *_ in column.items} - {""}
        if len(named) < 2:
            raise ConfigError(
                f"--unit editor: expected edits of two named editors or more, found {len(named)} in {column.name}"
            )
        column = editors_of(column)
        items, labels = join(column.items, rated_editors(labels), where=column.name, closed=True)
        # A mean, or a rank, need not be a value of the metric's own scale.
        held = [metric.id for metric in metrics]
    for one, metric in zip(held, metrics, strict=True):
        yield agreement(column, items, labels, one, options, rating=people.ratings.get(metric.id))


def _corrected(found: Sequence[MetricAgreement]) -> list[MetricAgreement]:
    """With every test corrected for how many there are."""
    tests = iter(holm([test for one in found for test in one.versus.values()]))
    return [
        replace(one, versus={name: replace(test, p_holm=next(tests).p_holm) for name, test in one.versus.items()})
        for one in found
    ]


def _cost(number: int, judge: Judged, compared: Sequence[_Compared], prices: Prices, people: JudgeColumn | None) -> Cost:
    usage = sum((f.usage for f in judge.of_models), Usage())
    asked = [f for f in judge.of_models if f.trace is not None]
    cost = None if judge.untold else prices.of_uri(judge.backend, usage)
    verdicts = len({f.question for f in judge.of_models if f.status == "ok"})
    agreeing = None if people is None else sum(one.agreeing(number) for one in compared)
    return Cost(
        judge=judge.name,
        verdicts=verdicts,
        findings=len(judge.of_models),
        usage=usage,
        cost_usd=cost,
        cost_a_verdict_usd=cost / verdicts if cost is not None and verdicts else None,
        agreeing=agreeing,
        cost_an_agreeing_verdict_usd=cost / agreeing if cost is not None and agreeing else None,
        seconds_median=median(f.seconds for f in asked) if asked else None,
        turns_mean=fmean(f.turns for f in asked) if asked else None,
    )
