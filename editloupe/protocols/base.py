"""What a protocol is: which questions to ask, and how findings become scores. Both are pure functions.

A protocol is a class behind the entry point group `editloupe.protocols`. `BaseProtocol` spares it the parts that most
protocols do not need. docs/protocols.md has a complete example.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from editloupe import plugins
from editloupe.answers import Answer, AnswerSpec
from editloupe.config import Words, meant_one
from editloupe.errors import ConfigError, EditLoupeError, ProtocolError, did_you_mean
from editloupe.findings import Finding
from editloupe.imaging.views import OPS
from editloupe.protocols.repeats import Repeats, joined
from editloupe.rubrics import Rubric, RubricOption
from editloupe.scores import NOT_JUDGED, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import STATUSES, About, Ask, Budget, Measure, Recipe, Status, Task
from editloupe.values import ImageRef, Json, Sample

Group: TypeAlias = Sequence[Sample]
"""The samples that share source and instructions: usually one, several where several editors were given the same task."""

QuestionKey: TypeAlias = tuple[str, str, str, int, str]
"""(metric, editor, sample id, turn, part)."""

_FAILURES: Final = tuple(status for status in STATUSES if status != "ok")


class Options(BaseModel):
    """What a run may set of a protocol. A protocol derives its own model from this one.

    An option whose name Python keeps for itself, such as "if", is the alias of a field.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False, serialize_by_alias=True
    )
    gone: ClassVar[Mapping[str, Json]] = {}
    """Options that runs of older versions name → the value that means what is done now; with another they are unknown."""

    @model_validator(mode="before")
    @classmethod
    def _without_gone(cls, given: Any) -> Any:
        of_now = (lambda name: cls.gone.get(name, ...) != given[name]) if isinstance(given, Mapping) else None
        return given if of_now is None else {name: value for name, value in given.items() if of_now(name)}


def some_of(what: str, known: Collection[str]) -> AfterValidator:
    """Return the validator of an option that names some of these words. They come in this order.   what: one of them."""

    def checked(words: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := next((word for word in words if word not in known), None):
            raise ValueError(f"unknown {what} {unknown!r}; expected some of {', '.join(known)}")
        return tuple(word for word in known if word in words)

    return AfterValidator(checked)


class RubricOptions(Options):
    """The options of a protocol that asks by the criteria of a rubric."""

    free: ClassVar[frozenset[str]] = frozenset({"criteria"})
    """Options that may differ from invocation to invocation of one run."""
    mode: str = "tool"
    """tool: an agent with tools. plain: one look."""
    rubric: RubricOption = "dlebench"
    """A built-in rubric or your own .toml file."""
    criteria: Words | None = None
    """Comma-separated, such as if,vc. Default: all."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Where a protocol comes from."""

    title: str
    url: str = ""


class Known:
    """The findings of a group so far, by question: one a question, the repeats joined."""

    def __init__(self, findings: Iterable[Finding] = (), entropy: Mapping[str, float] | None = None) -> None:
        self._by_question = {finding.question: finding for finding in findings}
        self.entropy: Mapping[str, float] = entropy or {}
        """Task id → bits by which the answers of its repeats differ."""

        self.consulted = False
        """Whether anybody has looked at a finding. A plan that looks at none is not asked again."""
        self.read: set[str] = set()
        """The metrics whose findings somebody has looked for."""

    def finding(self, metric: str, about: About | Sample) -> Finding | None:
        """Return the finding on a question; None while there is none. A sample means the sample as a whole."""
        self.consulted = True
        self.read.add(metric)
        if isinstance(about, Sample):
            return self._by_question.get((metric, about.editor, about.id, 0, ""))
        return self._by_question.get((metric, about.editor, about.sample_id, about.turn, about.part))

    def answer(self, metric: str, about: About | Sample) -> Answer | None:
        """Return the answer to a question; None while there is none, and if the question could not be answered."""
        finding = self.finding(metric, about)
        return None if finding is None else finding.answer


class EvalProtocol(Protocol):
    """The contract. Everything but the class attributes may depend on the options."""

    name: ClassVar[str]
    """As the entry point has it."""
    Options: ClassVar[type[BaseModel]]
    """The model of the protocol's own options."""
    roles: ClassVar[Mapping[str, str]]
    """Role → what it does. "judge" is the usual one; a protocol without an LMM has none."""

    @property
    def options(self) -> Any:
        """The options that this instance was made with, an instance of `Options`."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """What `score` reports."""

    @property
    def tables(self) -> Sequence[TableSpec | Callable[..., Any]]:
        """What `editloupe report` shows, in this order; () for one table of all metrics."""

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError if these samples cannot be asked about. Called before anything is spent."""

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the tasks that can be asked now. Called again once findings of the group have arrived.

        Pure: the same samples and findings give the same tasks. Tasks that are known already may be returned again.
        """

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return a score for every sample and metric. A score without a value says why. Pure."""


class NoValue(Exception):
    """Nothing can be said yet, or at all: what status and reason say."""

    def __init__(self, status: str, reason: str = "") -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)

    @classmethod
    def of(cls, finding: Finding | None) -> NoValue:
        """Return why a finding says nothing; "not judged yet" where there is none."""
        return cls(NOT_JUDGED) if finding is None else cls(finding.status, finding.reason)


def _place(about: About | Sample) -> About:
    return About.of(about) if isinstance(about, Sample) else about


def score_of(metric: str, about: About | Sample, value: float | NoValue, **more: Any) -> Score:
    """Return a score with a value, or with status and reason why it has none.   more: its other fields."""
    place = {**vars(_place(about)), "metric": metric}
    if isinstance(value, NoValue):
        return Score(**place, value=None, missing=value.status, **{"reason": value.reason, **more})
    return Score(**place, value=value, **more)


def missing_output(sample: Sample) -> tuple[Status, str] | None:
    """Return what blocks a question about an edit that is not there; None where it is."""
    return None if sample.edited is not None else ("missing_output", "there is no edited image for this sample")


def whole(images: Mapping[str, ImageRef | None]) -> tuple[Recipe, ...]:
    """Return the views of images as they are, by their aliases, without those that are missing."""
    return tuple(Recipe(alias=alias, origin=image) for alias, image in images.items() if image is not None)


class BaseProtocol:
    """A protocol with the usual parts: options, tools and budget are kept, samples are not checked."""

    name: ClassVar[str] = ""
    paper: ClassVar[Paper | None] = None
    Options: ClassVar[type[BaseModel]] = Options
    roles: ClassVar[Mapping[str, str]] = {"judge": "answers the questions"}
    outputs: ClassVar[bool] = True
    """False for a protocol that looks at no edited image: the data may then have none."""
    offers_tools: ClassVar[bool] = True
    """False for a protocol whose questions are answered without tools, whatever the run offers."""
    deepest: ClassVar[int] = 8
    """How many questions may follow one from another's answer. A plan that goes on is taken for one without an end."""
    of_some: ClassVar[frozenset[str]] = frozenset()
    """Ids of metrics that only some samples have. The others get neither a question nor a score of them."""
    metrics: Sequence[Metric] = ()
    tables: Sequence[TableSpec | Callable[..., Any]] = ()

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        self.options: Any = self.Options() if options is None else options
        offered = self.offers_tools and getattr(self.options, "mode", "") != "plain"
        self.tools = tuple(tools) if offered else ()
        """Names of the tools that the run offers. None where the protocol has an option `mode` and it is plain."""

        self.budget = budget or Budget()
        """The run's budget of one task."""

    def check(self, samples: Sequence[Sample]) -> None:
        """Accept all samples."""

    def question(
        self, metric: str, about: About | Sample, prompt: str, answer: AnswerSpec, views: Sequence[Recipe] = (), **more: Any
    ) -> Ask:
        """Return a question of this protocol, within the run's budget.

        It offers the run's tools where it shows a picture.   more: other fields of the question.
        """
        fields: dict[str, Any] = {"tools": self.tools if views else (), "budget": self.budget, **more}
        place: dict[str, Any] = {"protocol": self.name, "metric": metric, "about": _place(about)}
        return Ask(**place, prompt=prompt, answer=answer, views=tuple(views), **fields)

    def measurement(self, metric: str, about: About | Sample, measure: str, **more: Any) -> Measure:
        """Return a task of this protocol that computes.   measure: its name.   more: other fields of the task."""
        return Measure(protocol=self.name, metric=metric, about=_place(about), measure=measure, **more)

    def measured(
        self, metric: str, about: About | Sample, known: Known, *, question: str | None = None, **more: Any
    ) -> Score:
        """Return the score of a metric that is the number of a finding; without a value where there is no number.

        question, more: as of `missing`.
        """
        finding = known.finding(question or metric, about)
        if finding is None or finding.answer is None or finding.answer.value is None:
            return self.missing(metric, about, known, question=question, **more)
        return score_of(metric, about, finding.answer.value, findings=(finding.task_id,), **more)

    def missing(
        self, metric: str, about: About | Sample, known: Known, *, question: str | None = None, **more: Any
    ) -> Score:
        """Return the score of a metric that has no value, with the status of the finding behind it.

        question: the metric of that finding, where the metric is made from another question.   more: fields of the score.
        """
        finding = known.finding(question or metric, about)
        why = NoValue.of(finding)
        none = NoValue("not_defined", why.reason) if why.status == "ok" else why
        ids = () if finding is None else (finding.task_id,)
        return score_of(metric, about, none, findings=ids, **more)


class RubricProtocol(BaseProtocol):
    """A protocol that asks by the criteria of a rubric.

    Raises ConfigError if none of them is chosen, and for one whose answers are of another kind.
    """

    Options: ClassVar[type[BaseModel]] = RubricOptions
    takes: ClassVar[Literal["levels", "scale"]] = "levels"
    """What its criteria have: labels, or a scale of numbers."""

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given: RubricOptions = self.options
        rubric: Rubric = given.rubric
        chosen = None if given.criteria is None else {rubric.criterion(c).id for c in given.criteria}
        self.criteria = [c for c in rubric.criteria if chosen is None or c.id in chosen]
        """Those of the rubric that are asked, in its order."""
        if not self.criteria:
            known = ", ".join(c.id for c in rubric.criteria)
            raise ConfigError(f"no criterion is chosen; rubric {rubric.id!r} has {known}")
        kinds = {"levels": "labels (levels)", "scale": "numbers (a scale)"}
        for criterion in self.criteria:
            has = "levels" if criterion.scale is None else "scale"
            if has != self.takes:
                raise ConfigError(
                    f"protocol {self.name!r} asks for {kinds[self.takes]}, and criterion {criterion.id!r} of rubric "
                    f"{rubric.id!r} has {kinds[has]}; name a rubric of that kind, or another protocol"
                )


def make_protocol(
    name: str,
    given: Mapping[str, Json] | None = None,
    *,
    tools: Sequence[str] = (),
    budget: Budget | None = None,
    recorded: bool = False,
) -> EvalProtocol:
    """Return a protocol by name with these options.

    Any protocol that asks takes the option `mode`: tool, or plain, which offers no tools.
    recorded: whether the options are those of a run that is read. What an older version's options said then goes unsaid.
    Raises UnknownPlugin, and ConfigError for options that do not fit and a class that is no protocol.
    """
    cls: Any = plugins.load("protocols", name)
    where = plugins.described("protocols", name)
    missing = [part for part in ("Options", "plan", "score", "metrics") if not hasattr(cls, part)]
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(missing)}; see docs/protocols.md")
    gone = getattr(cls.Options, "gone", ()) if recorded else ()
    given = {option: value for option, value in (given or {}).items() if option not in gone}
    if getattr(cls, "roles", ()) and "mode" in given and "mode" not in cls.Options.model_fields:
        if (mode := given.pop("mode")) not in ("tool", "plain"):
            raise ConfigError(f"{where}: option mode: expected tool or plain, found {mode!r}")
        tools = tools if mode == "tool" else ()
    try:
        options = cls.Options.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_explained(error, cls.Options)}") from error
    try:
        protocol: EvalProtocol = cls(options, tools=tools, budget=budget or Budget())
    except EditLoupeError:
        raise
    except Exception as error:
        raise ConfigError(f"{where} cannot be opened: {_raised(error, cls)}") from error
    if not protocol.metrics:
        raise ConfigError(f"{where} declares no metric; expected at least one editloupe.scores.Metric")
    ids = [metric.id for metric in protocol.metrics]
    if twice := next((id_ for id_ in ids if ids.count(id_) > 1), None):
        raise ConfigError(f"{where} declares the metric {twice!r} twice")
    return protocol


def planned(protocol: EvalProtocol, group: Group, known: Known, *, most: int = 100_000) -> list[Task]:
    """Return what a protocol plans for a group.

    most: `plan` is stopped after this many tasks and one more.
    Raises ProtocolError, which names package and place, if `plan` raises, asks one question in two ways, or plans a
    task that cannot be asked.
    """
    where = described(protocol)
    try:
        tasks = list(islice(protocol.plan(group, known), most + 1))
    except Exception as error:
        raise ProtocolError(f"{where} raised in plan: {_raised(error, type(protocol))}") from error
    if len(tasks) > most:
        raise ProtocolError(f"{where} plans without an end: more than {most:,} tasks for {len(group)} samples")
    keys = {sample.key for sample in group}
    found: dict[str, Task] = {}
    asked: dict[QuestionKey, str] = {}
    for task in tasks:
        if problem := _wrong(task, protocol, keys):
            raise ProtocolError(f"{where} planned {problem}")
        try:
            twice = task.id in found
        except Exception as error:
            raise ProtocolError(f"{where} planned a task that is no JSON ({task.metric}, {task.about}): {error}") from error
        if twice:
            raise ProtocolError(f"{where} planned the same task twice: {task.metric}, {task.about}")
        if asked.setdefault(task.question, task.id) != task.id:
            raise ProtocolError(
                f"{where} planned two different tasks for one question ({task.metric}, {task.about}); tell them apart by "
                "metric, turn or part"
            )
        found[task.id] = task
    return list(found.values())


def _wrong(task: object, protocol: EvalProtocol, keys: Collection[str]) -> str:
    """Return what is wrong with one planned task, behind "planned"; "" for nothing. keys: of the group's samples."""
    if not isinstance(task, Ask | Measure):
        return f"{task!r}; expected an Ask or a Measure"
    if task.protocol != protocol.name:
        return f"a task of the protocol {task.protocol!r}; expected {protocol.name!r}"
    if task.about.key not in keys:
        return f"a task about {task.about}, which is not in the group ({task.metric})"
    aliases = [view.alias for view in task.views]
    if twice := next((alias for alias in aliases if aliases.count(alias) > 1), None):
        return f"{_named(task)} with two views of the alias {twice!r}; a picture is known by its alias"
    for view in task.views:
        origin: object = view.origin
        if not isinstance(origin, ImageRef):
            return (
                f"{_named(task)} with the view {view.alias!r} of {origin!r}; expected a picture of the sample. Where an "
                "output is missing, plan the task with blocked=missing_output(sample)"
            )
    blocked: object = task.blocked
    if blocked is not None and not (isinstance(blocked, tuple) and len(blocked) == 2 and blocked[0] in _FAILURES):
        return f"{_named(task)} blocked as {blocked!r}; expected a reason behind one of {', '.join(_FAILURES)}"
    prompt: object = task.prompt if task.kind == "ask" else ""
    if not isinstance(prompt, str):
        return f"{_named(task)} with the prompt {prompt!r}; expected a text"
    if task.role != "measure" and task.role not in protocol.roles:
        return f"a task on the role {task.role!r}; it declares {', '.join(protocol.roles) or 'none'}"
    if task.kind == "measure" and task.measure not in plugins.names("measures"):
        return f"the measure {task.measure!r}; installed are {', '.join(plugins.names('measures'))}"
    if unknown := next((view.op for view in task.views if view.op not in OPS), None):
        return f"a view with the op {unknown!r}; known are {', '.join(OPS)}"
    return ""


def _named(task: Task) -> str:
    return f"a task ({task.metric}, {task.about})"


def groups(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Return the samples that share source and instructions together, in order of appearance."""
    found: dict[tuple[str, ...], list[Sample]] = {}
    for sample in samples:
        key = (*(image.sha256 for image in sample.sources), *(turn.instruction for turn in sample.turns))
        found.setdefault(key, []).append(sample)
    return list(found.values())


def rejected_scores(
    protocol: EvalProtocol, rows: Iterable[tuple[str, str, str | None]], metrics: Collection[str]
) -> list[Score]:
    """Return what stands instead of scores for rows of the data that could not be read: (editor, id, edit type) each.

    A protocol that has names of its own for edit types says so by `edit_type_name`.
    """
    named = getattr(protocol, "edit_type_name", str)
    return [
        Score(
            sample_id=id_,
            editor=editor,
            metric=metric,
            value=None,
            missing="input_error",
            dims={} if edit_type is None else {"edit_type": named(edit_type)},
        )
        for editor, id_, edit_type in rows
        for metric in metrics
    ]


def known_of(findings: Iterable[Finding], repeats: Repeats | None = None) -> Known:
    """Return findings by question, the repeats of a question joined."""
    counted = [(one.finding, one.entropy) for one in joined(findings, repeats or Repeats()) if one.finding is not None]
    entropy = {finding.task_id: bits for finding, bits in counted if bits is not None}
    return Known((finding for finding, _ in counted), entropy)


def scored(
    protocol: EvalProtocol, samples: Sequence[Sample], findings: Iterable[Finding], repeats: Repeats | None = None
) -> list[Score]:
    """Return the scores of all samples, in their order.

    If `score` raises or gives a wrong score, the group's scores are missing and say why. So is a score that it leaves out
    of a sample and a metric with findings.
    """
    by_sample: dict[str, list[Finding]] = {}
    for finding in findings:
        by_sample.setdefault(finding.sample_key, []).append(finding)
    scores: dict[str, list[Score]] = {sample.key: [] for sample in samples}
    faults: dict[str, str] = {}
    metrics = {metric.id: metric for metric in protocol.metrics}
    for group in groups(samples):
        known = known_of((f for sample in group for f in by_sample.get(sample.key, ())), repeats)
        try:
            found = group_scores(protocol, group, known)
        except ProtocolError as error:
            faults |= dict.fromkeys((sample.key for sample in group), str(error))
            continue
        for score in found:
            # Of several findings the one whose answers differ most.
            bits = [known.entropy[id_] for id_ in score.findings if id_ in known.entropy] if known.entropy else []
            value = None if score.value is None else metrics[score.metric].normalize(score.value)
            scores[score.key].append(replace(score, entropy=max(bits) if bits else None, normalized=value))
    given = {score.metric for of_one in scores.values() for score in of_one}
    for sample in samples:
        own, asked = scores[sample.key], {finding.metric for finding in by_sample.get(sample.key, ())}
        due = asked - {score.metric for score in own}
        if sample.key in faults:
            due = set(metrics)
        elif asked and not own and asked.isdisjoint(metrics):
            due = given  # it was asked in other words than metrics: what others have is expected of it
        if due.isdisjoint(metrics):
            continue
        reason = faults.get(sample.key, f"{described(protocol)} gave no score of it, not even a missing one")
        missing = partial(Score, value=None, missing="input_error", reason=reason, protocol_fault=True)
        own += [missing(sample_id=sample.id, editor=sample.editor, metric=metric) for metric in metrics if metric in due]
    return [score for sample in samples for score in scores[sample.key]]


def group_scores(protocol: EvalProtocol, group: Group, known: Known) -> list[Score]:
    """Return what a protocol scores of a group, every value a float on its metric's scale.

    Raises ProtocolError if `score` raises, or gives a score of another group, of a metric that is not declared, twice, or
    with a value that is no number on the metric's scale.
    """
    where = described(protocol)
    try:
        scores = list(protocol.score(group, known))
    except Exception as error:
        raise ProtocolError(f"{where} raised in score: {_raised(error, type(protocol))}") from error
    metrics, keys = {metric.id: metric for metric in protocol.metrics}, {sample.key for sample in group}
    found: dict[QuestionKey, Score] = {}
    for score in scores:
        if not isinstance(score, Score):
            raise ProtocolError(f"{where} gave {score!r} for a score; expected a Score")
        if score.metric not in metrics:
            raise ProtocolError(f"{where} gave a score of the metric {score.metric!r}, which is not declared")
        if score.key not in keys:
            raise ProtocolError(f"{where} gave a score of the sample {score.key!r}, which is not in the group")
        place = score.metric, score.sample_id, score.editor, score.turn, score.part
        if place in found:
            raise ProtocolError(f"{where} gave the score of {score.metric!r} for {_about(score)} twice")
        try:
            value = None if score.value is None else _on_scale(score.value, metrics[score.metric])
        except (ValueError, OverflowError) as error:
            raise ProtocolError(f"{where}: the score of {score.metric!r} for {_about(score)} {error}") from error
        found[place] = score if value is score.value else replace(score, value=value)
    return list(found.values())


def _about(score: Score) -> About:
    return About(sample_id=score.sample_id, editor=score.editor, turn=score.turn, part=score.part)


def _on_scale(value: object, metric: Metric) -> float:
    """Return the value as a float. Raises ValueError unless it is a finite number on the metric's scale."""
    if type(value) is not float and not isinstance(value, Real):
        raise ValueError(f"is {value!r}, which is no number")
    number, bounds = float(value), metric.domain.bounds
    if not math.isfinite(number):
        raise ValueError(f"is {number}; a score without a finite value says why it is missing")
    if bounds is None or bounds[0] <= number <= bounds[1]:
        return number
    # A mean of tens may come out as 10.000000000000002.
    inside = min(max(number, bounds[0]), bounds[1])
    if abs(number - inside) > 1e-9 * (bounds[1] - bounds[0]):
        raise ValueError(f"is {number}, outside {list(bounds)}")
    return float(inside)


def never_scored(protocol: EvalProtocol, scores: Iterable[Score]) -> list[str]:
    """Return the declared metrics of which no sample has a score, nor a reason for none. `scores` are of a whole run."""
    told = {score.metric for score in scores if score.missing != NOT_JUDGED}
    of_some = getattr(protocol, "of_some", ())
    return [metric.id for metric in protocol.metrics if metric.id not in told and metric.id not in of_some]


def looks_at_outputs(protocol: EvalProtocol) -> bool:
    """Return whether a protocol needs edited images, as it says by `outputs`."""
    return bool(getattr(protocol, "outputs", True))


def described(protocol: EvalProtocol) -> str:
    """Return "protocol 'toy' (toy-package 0.1)"."""
    try:
        return plugins.described("protocols", protocol.name)
    except KeyError:
        return f"protocol {protocol.name!r} ({type(protocol).__module__})"


def _raised(error: BaseException, protocol: type) -> str:
    """Return the exception with the line of the protocol's package that led to it: "KeyError: 'x' (toy.py, line 12)"."""
    package, place = protocol.__module__.partition(".")[0], ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            place = f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return f"{type(error).__name__}: {error}{place}"


def _explained(error: ValidationError, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in model.model_fields.items()]
    problems = []
    for problem in error.errors():
        name = ".".join(map(str, problem["loc"])) or "options"
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown option {name!r}; {did_you_mean(name, known)}it has: {', '.join(known) or 'none'}")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            problems.append(f"option {name}: {message}; found {problem.get('input')!r}{meant_one(problem)}")
    return "; ".join(problems)
