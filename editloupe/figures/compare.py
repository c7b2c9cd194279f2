"""Judges beside each other and beside people: do they agree, which is more lenient, what does each cost.

Two judges are compared on the samples that both could judge; each one's coverage stands beside. Nothing here asks a model.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, compress
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Final

from pydantic import Field

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.figures.columns import Answer, Item, JudgeColumn, Key, PeopleSaid, join, key_of, with_facts
from editloupe.figures.human_labels import labels_in, read_human
from editloupe.figures.judged import Judged
from editloupe.figures.people import MetricAgreement, PeopleOptions, RightMoreOften, agreement
from editloupe.figures.readings import MetricReading, ruler
from editloupe.protocols.repeats import entropy_of
from editloupe.scores import Metric
from editloupe.stats.agreement import Paired, confusion, figures
from editloupe.stats.bootstrap import Drawing, Estimate, mean
from editloupe.stats.significance import Significance, holm, sign_flips, signed_ranks
from editloupe.values import Serializable, is_empty, sample_key

_ORDERED: Final = ("exact", "kappa", "weighted_kappa", "alpha_ordinal", "spearman", "bias")
_UNORDERED: Final = ("exact", "kappa", "alpha_nominal")
_NUMBERS: Final = ("spearman", "pearson", "mae", "bias")


@dataclass(frozen=True, kw_only=True)
class ComparedJudge(Serializable):
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
class JudgeSummary(Serializable):
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
class JudgePair(Serializable):
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
class Cost(Serializable):
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
class Disagreement(Serializable):
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

    @classmethod
    def of(cls, key: Key, criterion: str, labels: Mapping[str, str], values: Sequence[float]) -> Disagreement:
        """Return what was said of one item.   values: where the labels stand, one for each or some."""
        spread = min(round(max(values) - min(values), 6), sys.float_info.max)
        sample = sample_key(*key[:2])
        return cls(sample=sample, turn=key[2], part=key[3], criterion=criterion, labels=labels, spread=spread)


@dataclass(frozen=True, kw_only=True)
class Comparison(Serializable):
    """All that `editloupe compare` shows."""

    judges: tuple[ComparedJudge, ...] = ()
    bootstrap: Drawing
    summaries: tuple[JudgeSummary, ...] = ()
    pairs: tuple[JudgePair, ...] = ()
    costs: tuple[Cost, ...] = ()
    human: str | None
    """Where human labels are from; None without."""
    human_agreement: tuple[MetricAgreement, ...] = ()
    """Each judge beside people on each metric that they rated."""
    raters: tuple[MetricAgreement, ...] = ()
    """People among themselves on each metric; () where no two of them rated one item."""
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[str, ...] = ()
    titles: Annotated[Mapping[str, tuple[str, str]], Field(exclude=True)] = field(default_factory=dict)
    """Metric → (name, short name)."""


@dataclass(frozen=True, kw_only=True)
class Rated:
    """People's ratings of what judges judged."""

    labels: PeopleSaid
    """Under the judges' keys."""
    column: JudgeColumn
    """People as one judge: the label that most raters gave; of numbers without labels, the mean."""
    ratings: Mapping[str, str] = field(default_factory=dict)
    """Metric's id → what of people's ratings it is held against; empty where they rated the metrics themselves."""


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
    items = _items(judges)
    more = tuple(dict.fromkeys(ratings.values()))
    if human is not None:
        people, name = read_human(human, metrics, columns or {}, more), human.name
    else:
        samples = {key: sample for judge in reversed(judges) for key, sample in judge.samples.items()}
        said = [given for judge in judges for given in judge.people]
        scores = [one for judge in judges for one in judge.people_scores]
        people, name = labels_in(samples.values(), metrics, "the samples", more, said, scores), "the samples' own columns"
        if not people.ratings:
            return None, people.notes
    if unknown := next((rating for rating in more if rating not in people.ratings), None):
        rated = ", ".join(people.ratings) or "nothing that is named"
        raise ConfigError(f"--pair {unknown}: no rating in {people.name} has this name; rated there: {rated}")
    folders = list(dict.fromkeys(str(judge.folder) for judge in judges))
    where = f"the run{'s' if len(folders) > 1 else ''} {' and '.join(folders)}"
    people = join(items, people, where=where, closed=True)
    answers: dict[str, dict[Key, Answer]] = {}
    for metric in metrics:
        given = people.of(metric.id)
        reading = MetricReading([None] * len(given), list(given.values()), metric)
        scale = reading.ruler.scale
        # Options are kept as words: a judge may have chosen one that no person chose.
        worded = scale is not None and not metric.levels
        for key, value in zip(given, reading.means if scale is None else reading.labels, strict=True):
            if value is not None:
                answers.setdefault(metric.id, {})[key] = scale.name(value) if worded and scale is not None else value
    column = JudgeColumn(name=name, items=people.items, answers=answers)
    return Rated(labels=people, column=column, ratings=ratings), people.notes


def _items(judges: Sequence[Judged]) -> Mapping[Key, Item]:
    """What judges were asked about, as the first of them knows it."""
    found = dict(judges[0].column.items)
    for judge in judges[1:]:
        found |= {key: item for key, item in judge.column.items.items() if key not in found}
    return found


def compare(
    judges: Sequence[Judged],
    *,
    prices: Prices,
    people: Rated | None = None,
    options: PeopleOptions | None = None,
    criteria: Sequence[Metric] | None = None,
) -> Comparison:
    """Compare judges of one protocol over the same samples, with each other and with people.

    options: how agreement with people is summed up, and how intervals are drawn.   criteria: the metrics that are held
    against people's ratings; None for all that they rated.
    Raises ConfigError: one judge and no people, two judges of one name, samples whose content differs between runs, no
    sample in common.
    """
    options = options or PeopleOptions()
    _check(judges, people)
    metrics = [m for m in judges[0].metrics.metrics if any(m.id in judge.criteria for judge in judges)]
    truth = None if people is None else people.column
    compared = [_Compared(judges, metric, truth, options.drawing) for metric in metrics]
    pairs = [pair for one in compared for pair in one.pairs()]
    human, among = list[MetricAgreement](), list[MetricAgreement]()
    if people is not None:
        held = _held(people, metrics, criteria)
        versus = {} if people.ratings else {one.metric.id: one.right_more_often() for one in compared}
        for judge in judges:
            for metric in held:
                one = agreement(judge.column, people.labels, metric, options, rating=people.ratings.get(metric.id))
                human.append(replace(one, versus=versus.get(metric.id, {}).get(judge.name, {})))
        human = _corrected(human)
        facts = with_facts(people.labels, {k: s for j in judges for k, s in j.samples.items()}, judges[0].protocol)
        among = [one for m in held if (one := agreement(None, facts, m, options)).all.ceiling["alpha_nominal"].judged]
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
        costs=tuple(_cost(i, judge, compared, prices, people=people is not None) for i, judge in enumerate(judges)),
        human=None if people is None else people.column.name,
        human_agreement=tuple(human),
        raters=tuple(among),
        disagreements=tuple(_furthest_first(d for one in compared for d in one.disagreements())),
        titles={m.id: (m.name, m.short) for m in metrics},
    )  # fmt: skip


def standing(judges: Sequence[Judged], drawing: Drawing) -> list[JudgeSummary]:
    """Return how judges of one protocol stand side by side, on the metrics that all of them were asked.

    Raises ConfigError as `compare`, or if they have no metric in common.
    """
    _check(judges, None)
    metrics = [m for m in judges[0].asked if all(m.id in judge.criteria for judge in judges)]
    if not metrics:
        raise ConfigError("no metric was judged by all of them")
    return [s for metric in metrics for s in _Compared(judges, metric, None, drawing).summaries()]


def _furthest_first(found: Iterable[Disagreement]) -> list[Disagreement]:
    return sorted(found, key=lambda d: (-d.spread, d.sample, d.turn, d.part))


def raters_apart(people: PeopleSaid, metrics: Sequence[Metric | str]) -> list[Disagreement]:
    """Return the items on which two raters or more said different things, the furthest apart first."""
    found = []
    for metric in metrics:
        name = metric if isinstance(metric, str) else metric.id
        given = people.of(name)
        reading = MetricReading([None] * len(given), list(given.values()), metric)
        scale = reading.ruler.scale
        # A number may lie between two labels.
        known = {} if scale is None else dict(zip(scale.values, scale.names, strict=True))
        for key, rated in zip(given, reading.ratings, strict=True):
            if len(set(rated.values())) > 1:
                labels = {rater: known.get(value, f"{value:g}") for rater, value in rated.items()}
                placed = [None if isinstance(metric, str) else metric.normalize(value) for value in rated.values()]
                shown = [v if place is None else place for place, v in zip(placed, rated.values(), strict=True)]
                found.append(Disagreement.of(key, name, labels, shown))
    return _furthest_first(found)


class _Compared:
    """One metric: the judges' scores and people's labels by what they are about, all lists in one order."""

    def __init__(self, judges: Sequence[Judged], metric: Metric, people: JudgeColumn | None, drawing: Drawing) -> None:
        self.metric, self.drawing, self.names = metric, drawing, [judge.name for judge in judges]
        scores = [{key_of(s): s for s in judge.scores if s.metric == metric.id} for judge in judges]
        labels: Mapping[Key, Answer] = {} if people is None else people.of(metric.id)
        said = [judge.column.of(metric.id) for judge in judges]
        self.ruler = ruler(metric, [answer for own in said for answer in own.values()], labels.values())
        self.keys = list(dict.fromkeys(key for own in scores for key in own))
        self.scores = [[own.get(key) for key in self.keys] for own in scores]
        items = _items(judges)
        self.sources = [items[key].source for key in self.keys]
        self.values = [[self.ruler.read(own.get(key)) for key in self.keys] for own in said]
        self.truth = [self.ruler.read(labels.get(key)) for key in self.keys]
        self.asked = [[place for place, score in enumerate(own) if score is not None] for own in self.scores]
        """The places at which each judge was asked."""
        # On 0 to 100, or the value of a metric without bounds.
        of = attrgetter("value" if metric.domain.bounds is None else "normalized")
        self.shown: list[list[float | None]] = [[None if s is None else of(s) for s in own] for own in self.scores]

    def summaries(self) -> Iterator[JudgeSummary]:
        """Yield each judge on its own."""
        # A judge without a verdict on this metric would leave no sample that all judged.
        able = [any(value is not None for value in own) for own in self.shown]
        judged = zip(*compress(self.shown, able), strict=True)
        common = [place for place, values in enumerate(judged) if None not in values]
        for judge, name in enumerate(self.names):
            own = [score for score in self.scores[judge] if score is not None]
            labels = Counter(score.label for score in own if score.label is not None)
            yield JudgeSummary(
                judge=name,
                criterion=self.metric.id,
                mean=self._mean(self.shown[judge], self.asked[judge]),
                common=self._mean(self.shown[judge], common if able[judge] else ()),
                label_entropy_bits=entropy_of(labels.values()) if labels else None,
                statuses=Counter(score.missing for score in own if score.missing is not None),
            )

    def pairs(self) -> Iterator[JudgePair]:
        """Yield each two judges."""
        scale = self.ruler.scale
        wanted = _NUMBERS if scale is None else _ORDERED if scale.ordered else _UNORDERED
        for a, b in combinations(range(len(self.names)), 2):
            other, names = set(self.asked[b]), (self.names[a], self.names[b])
            both = [place for place in self.asked[a] if place in other]
            sources = [self.sources[place] for place in both]
            x, y = ([self.values[i][place] for place in both] for i in (a, b))
            pair = Paired.of(x, y, sources, names)
            found = figures(pair, scale=scale, drawing=self.drawing)
            shown = [(self.shown[a][place], self.shown[b][place]) for place in both]
            differences = [None if one is None or two is None else one - two for one, two in shown]
            yield JudgePair(
                first=names[0],
                second=names[1],
                criterion=self.metric.id,
                common=int(pair.both.sum()),
                figures={name: found[name] for name in wanted},
                difference=mean(differences, sources, drawing=self.drawing),
                test=signed_ranks(differences, sources),
                confusion=() if scale is None else tuple(map(tuple, confusion(pair.on(scale), scale))),
                labels=() if scale is None else scale.names,
            )

    def right_more_often(self) -> dict[str, dict[str, RightMoreOften]]:
        """Return who of each two judges is right more often, people's label being right: judge → other judge → test."""
        right = [
            [None if None in (value, truth) else value == truth for value, truth in zip(own, self.truth, strict=True)]
            for own in self.values
        ]
        found: dict[str, dict[str, RightMoreOften]] = {name: {} for name in self.names}
        for i, j in combinations(range(len(self.names)), 2):
            both = [(a - b, k) for a, b, k in zip(right[i], right[j], self.sources, strict=True) if None not in (a, b)]  # type: ignore[operator]
            outcomes = [outcome for outcome, _ in both]
            test = sign_flips(outcomes, [source for _, source in both])
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
        for place, shown in enumerate(zip(*self.shown, strict=True)):
            known = [value for value in shown if value is not None]
            if len(known) < 2 or (self.ruler.ordered and max(known) == min(known)):
                continue
            scores = zip(self.names, (own[place] for own in self.scores), strict=True)
            labels = {name: s.label or f"{s.value:g}" for name, s in scores if s is not None and s.value is not None}
            # Two options may be wrong alike.
            if max(known) > min(known) or len(set(labels.values())) > 1:
                yield Disagreement.of(self.keys[place], self.metric.id, labels, known)

    def agreeing(self, judge: int) -> int:
        """Return how many answers of a judge are people's."""
        return sum(value == truth for value, truth in zip(self.values[judge], self.truth, strict=True) if truth is not None)

    def _mean(self, values: Sequence[float | None], places: Sequence[int]) -> Estimate:
        return mean([values[p] for p in places], [self.sources[p] for p in places], drawing=self.drawing)


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
    # The judges of one run share its samples.
    by_run = {id(judge.samples): judge for judge in judges}
    for judge in by_run.values() if len(by_run) > 1 else ():
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
    return [m for m in metrics if (people.labels.of(m.id) if criteria is None else m in criteria)]


def _corrected(found: Sequence[MetricAgreement]) -> list[MetricAgreement]:
    """With every test corrected for how many there are."""
    tests = iter(holm([test for one in found for test in one.versus.values()]))
    return [
        replace(one, versus={name: replace(test, p_holm=next(tests).p_holm) for name, test in one.versus.items()})
        for one in found
    ]


def _cost(number: int, judge: Judged, compared: Sequence[_Compared], prices: Prices, *, people: bool) -> Cost:
    usage = Usage.total_of(f.usage for f in judge.of_models)
    asked = [f for f in judge.of_models if f.trace is not None]
    cost = None if judge.untold else prices.of_uri(judge.backend, usage)
    verdicts = len({f.question for f in judge.of_models if f.status == "ok"})
    agreeing = sum(one.agreeing(number) for one in compared) if people else None
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
