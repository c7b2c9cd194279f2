"""A judge on trial: the questions of another protocol about probes, edits whose truth is known, and who is right.

Beside each question stands its truth, a finding of kind "key": the label, or the band of scores, that is right. Whether a
verdict is right is a score of its own, from which `editloupe trial` makes its figures.

Reproduced: no paper. What is asked, and how, is that of the protocol that asks (`asks`). A metric whose truth people could
dispute has a verdict, and nobody is right or wrong about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, model_validator

from editloupe.answers import Answer, Choice, Record
from editloupe.errors import DataError
from editloupe.protocols.base import BaseProtocol, Group, Known, Options, make_protocol
from editloupe.protocols.probes.probe import AREAS, FAILURES, KEY, Probe, other_images, probe_of
from editloupe.scores import Binary, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Budget, Measure, Status, Task
from editloupe.values import Json, Sample

Asks: TypeAlias = Literal["dlebench", "unicbench"]

RIGHT: Final = "right_"
"""Before the id of a metric: whether the verdict on it is right."""
DIMS: Final = ("failure", "area", "nuisance", "trap", "twin", "scene")
"""Fields of a probe by which tables group."""


class ProbesOptions(Options):
    """What a run may set: `asks`, and every option of the protocol that it names."""

    model_config = ConfigDict(extra="allow")
    free: ClassVar[frozenset[str]] = frozenset({"criteria"})
    """Options that may differ from invocation to invocation of one run."""
    asks: Asks = "dlebench"
    """Protocol that asks. All of its options are options here too: editloupe list protocols NAME."""
    mode: str | None = None
    """How it asks: tool, plain, or oracle of dlebench. Default: that of the protocol that asks."""

    @model_validator(mode="before")
    @classmethod
    def _read_by_who_asks(cls, data: Any) -> Any:
        """Return the options with all those of the protocol that asks, as it reads them. Raises ConfigError."""
        asks = data.get("asks", cls.model_fields["asks"].default)
        if asks not in get_args(Asks):
            return data
        # A run records null for an option that may differ from invocation to invocation.
        given = {name: value for name, value in data.items() if name != "asks" and value is not None}
        return {"asks": asks, **make_protocol(asks, given).options.model_dump(mode="json")}


class Probes(BaseProtocol):
    """The questions of one protocol, each beside its truth.

    Raises ConfigError for options that the protocol that asks does not take.
    """

    name = "probes"
    Options = ProbesOptions

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given: dict[str, Json] = self.options.model_dump(mode="json")
        name = str(given.pop("asks"))
        asker: Any = make_protocol(name, given, tools=tools, budget=budget)
        self.asker = asker
        """The protocol that asks."""
        self.tools = asker.tools
        self.of_some = frozenset({*asker.of_some, *(RIGHT + id_ for id_ in asker.of_some)})  # type: ignore[misc]
        self.edit_type_name = getattr(self.asker, "edit_type_name", str)
        asked = {criterion.id for criterion in getattr(self.asker, "criteria", ())}
        self.keyed: dict[str, Metric] = {m.id: m for m in self.asker.metrics if m.id in asked}
        """Metrics whose truth stands in the probes."""
        rights = [
            Metric(
                id=RIGHT + m.id, name=f"{m.name} is right", short=f"{m.short} right", domain=Binary(), concerns=m.concerns
            )
            for m in self.keyed.values()
        ]
        self.metrics = [*self.asker.metrics, *rights]
        self.tables = [
            _table(dim, tuple(metric.id for metric in rights), order)
            for dim, order in (("failure", FAILURES), ("area", AREAS), ("nuisance", ()), ("trap", ()))
        ]

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError if no sample is a probe, and where the protocol that asks cannot ask."""
        if samples and all(sample.extra.get("probe") is None for sample in samples):
            raise DataError(
                f"no sample is a probe ({samples[0].key} has no column 'probe'); expected a folder that editloupe build "
                "probes made, or another protocol for these data (--protocol)"
            )
        self.asker.check(samples)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return what the protocol asks, and the truth of each question once it is known what is asked."""
        truths = {sample.key: _probe(sample) for sample in group}
        keys = set[tuple[str, str]]()
        for task in self.asker.plan(group, known):
            probe = truths[task.about.key]
            blocked: tuple[Status, str] | None = ("input_error", probe) if isinstance(probe, str) else task.blocked
            yield replace(task, protocol=self.name, blocked=blocked)
            if task.metric in self.keyed and (task.about.key, task.metric) not in keys and not isinstance(probe, str):
                keys.add((task.about.key, task.metric))
                yield from self._key(task.about, self.keyed[task.metric], probe)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the scores of the protocol that asks, and of each that has a key whether it is right."""
        by_key = {sample.key: sample for sample in group}
        for score in self.asker.score(group, known):
            sample = by_key[score.key]
            score = replace(score, dims={**score.dims, **_dims(sample)})
            yield score
            if score.metric in self.keyed:
                yield self._right(score, sample, known)

    def _key(self, about: About, metric: Metric, probe: Probe) -> Iterable[Measure]:
        """Yield the truth of a metric, about the sample as a whole; nothing where the probe does not say it."""
        truth, band = probe.truth.get(metric.id), probe.bands.get(metric.id)
        answer: Answer | None = None
        blocked: tuple[Status, str] | None = None
        if metric.levels:
            names = [level.name for level in metric.levels]
            if truth is None:
                return
            if truth in names:
                # Without its value: a rubric that counts labels in another way has the same truths.
                answer = Choice(name=truth)
            else:
                blocked = ("input_error", f"the truth {truth!r} is no label of {metric.name}: {', '.join(names)}")
        else:
            if band is None:
                return
            answer = Record(data={"low": band[0], "high": band[1]})
        whole, args = About(sample_id=about.sample_id, editor=about.editor), dict[str, Json]()
        if answer is not None:
            args["answer"] = answer.to_json()
        yield self.measurement(KEY + metric.id, whole, "key", args=args, blocked=blocked)

    def _right(self, score: Score, sample: Sample, known: Known) -> Score:
        """Return 1 where the verdict is the truth, 0 where it is not, and why there is neither."""
        key = known.finding(KEY + score.metric, sample)
        made = replace(score, metric=RIGHT + score.metric, value=None, label=None, parts=(), missing="not_defined")
        if score.value is None:
            return replace(made, missing=score.missing)
        if key is None:
            return replace(made, reason=f"the probe says no truth of {score.metric}")
        if key.answer is None:
            return replace(made, missing=key.status, reason=key.reason)
        right = _agrees(score, key.answer)
        return replace(made, value=float(right), missing=None, reason="", findings=(*score.findings, key.task_id))


def _agrees(score: Score, truth: Answer) -> bool:
    if isinstance(truth, Choice):
        return score.label == truth.name
    assert isinstance(truth, Record) and score.value is not None
    band: Any = truth.data
    return bool(band["low"] <= score.value <= band["high"])


def _probe(sample: Sample) -> Probe | str:
    """Return what is known of a probe, or why it cannot be judged."""
    try:
        probe = probe_of(sample)
    except DataError as error:
        return str(error)
    if probe is None:
        return "the sample is no probe: it has no column 'probe'"
    return other_images(probe, sample) or probe


def _dims(sample: Sample) -> dict[str, str | int | float | None]:
    probe = _probe(sample)
    return {} if isinstance(probe, str) else {name: getattr(probe, name) for name in DIMS}


def _table(dim: str, metrics: tuple[str, ...], order: Sequence[str | float]) -> TableSpec:
    # Means and not percents, since the means of all metrics at the end of a run are of the first table's kind.
    title, name = f"Share of right verdicts by {dim}", f"right-by-{dim}"
    return TableSpec(title=title, metrics=metrics, rows=dim, order=tuple(map(str, order)), name=name)
