"""Let people give their own label and a note on a sample's page, and take what they send as a human finding of the run.

A form stands for a question that a judge was asked; its widget follows from what may be answered.
"""

from __future__ import annotations

import datetime
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from editloupe.answers import Answer, AnswerSpec, FreeText, LabelRule, Labels, OneOf, Scale
from editloupe.errors import DataError, ReplyError
from editloupe.findings import Finding
from editloupe.runs import people
from editloupe.runs.people import MOST_NOTE, check_name, options_of, read_reply
from editloupe.scores import Binary, Interval, Levels, Metric
from editloupe.viewer.reader import RunReader, RunSample
from editloupe.viewer.rows import tone
from editloupe.viewer.sample import SampleVerdict

MOST_BYTES: Final = 65_536
"""Of what a page sends."""
_LISTED: Final = 11
"""Steps of a scale of whole numbers that are buttons; a longer one is a field."""


@dataclass(frozen=True, kw_only=True)
class Rating:
    """Who may give labels on a served site."""

    rater: str
    """The person's name."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """What a page of this server sends along; pages of other sites cannot read it."""

    def __post_init__(self) -> None:
        check_name(self.rater)


@dataclass(frozen=True, kw_only=True)
class Form:
    """What one person may say of one question."""

    metric: str
    turn: int
    part: str
    name: str
    scope: str
    spec: AnswerSpec
    options: tuple[tuple[str, str], ...]
    """(answer, colour class) of each; () for a field to write in."""
    own: bool
    """Whether it is a metric of the protocol."""
    item: bool
    """Whether it is about one item of a list."""
    given: people.Given | None
    """What this person said last."""
    task_id: str
    role: str

    @property
    def said(self) -> str:
        """What the widget shows: the answer given last; "" for none."""
        answer = self.given.finding.answer if self.given is not None else None
        return "" if answer is None else str(answer)


def forms(verdicts: Sequence[SampleVerdict], sample: RunSample, metrics: Mapping[str, Metric], rater: str) -> list[Form]:
    """Return a form for each question of a sample that a person can answer as well: metrics first."""
    given = {g.finding.question[0:1] + g.finding.question[3:]: g for g in sample.people if g.rater == rater}
    found: dict[tuple[str, int, str], Form] = {}
    for verdict in verdicts:
        finding, metric = verdict.finding, metrics.get(verdict.metric)
        spec = None if verdict.fork or finding is None else _spec(verdict, metric)
        if spec is None or finding is None or (finding.metric, finding.turn, finding.part) in found:
            continue
        key = finding.metric, finding.turn, finding.part
        found[key] = Form(
            metric=finding.metric, turn=finding.turn, part=finding.part, name=verdict.name, scope=verdict.scope,
            spec=spec, options=tuple(_options(spec, metric)), own=metric is not None, item=bool(verdict.of_item),
            given=given.get(key), task_id=finding.task_id, role=finding.role,
        )  # fmt: skip
    return sorted(found.values(), key=lambda form: (not form.own, form.item))


def take(data: Any, offered: Sequence[Form], sample: RunSample, reader: RunReader, rater: str) -> people.Given:
    """Store what a page sent, and return it.

    data: metric, turn, part, answer (a text; None to take a label back, or where the person cannot tell) and note.
    Raises DataError for an answer that the question does not take, StorageError.
    """
    if not isinstance(data, Mapping):
        raise DataError("expected a JSON object with metric, turn, part, answer and note")
    place, said, note = (
        tuple(data.get(name) for name in ("metric", "turn", "part")),
        data.get("answer"),
        data.get("note", ""),
    )
    form = next((form for form in offered if (form.metric, form.turn, form.part) == place), None)
    if form is None:
        raise DataError(f"the sample has no question {place!r} that a person can answer")
    if not isinstance(note, str) or len(note) > MOST_NOTE:
        raise DataError(f"note: expected a text of at most {MOST_NOTE:,} characters")
    answer = None if said is None else _answer(said, form)
    finding = Finding(
        task_id=form.task_id,
        judge_id=people.person(rater).id,
        repeat=0,
        sample_id=sample.id,
        editor=sample.editor,
        turn=form.turn,
        part=form.part,
        metric=form.metric,
        role=form.role,
        status="abstained" if answer is None else "ok",
        answer=answer,
        ending="answer",
        reason=note.strip(),
    )
    given = people.Given(
        finding=finding,
        rater=rater,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        of_metric=people.of_metric(finding, reader.info.metrics()),
    )
    people.add(reader.folder, given)
    reader.refresh(now=True)
    return given


def _answer(said: object, form: Form) -> Answer:
    """Raises DataError."""
    if not isinstance(said, str):
        words = ", ".join(options_of(form.spec))
        raise DataError(f"answer: expected {f'one of {words}' if words else 'a text'}, found {said!r}")
    try:
        return read_reply(form.spec, said)
    except ReplyError as error:
        raise DataError(f"answer: {error}") from error


def _spec(verdict: SampleVerdict, metric: Metric | None) -> AnswerSpec | None:
    """What a person may answer: what the judge was asked for, on the metric's scale; None for a measure and for boxes."""
    finding, ask = verdict.finding, verdict.ask
    if verdict.measure is not None or finding is None or finding.role == "measure" or finding.status == "missing_output":
        return None
    own = None if metric is None else _of_metric(metric)
    if ask is None:
        return own
    if isinstance(ask.answer, Labels | OneOf):
        return ask.answer
    if isinstance(ask.answer, Scale):
        bounds = None if metric is None else metric.domain.bounds
        return ask.answer if bounds in (None, (ask.answer.low, ask.answer.high)) else own
    # Of boxes and records the metric's own scale, where it has one.
    return own or (ask.answer if isinstance(ask.answer, FreeText) else None)


def _of_metric(metric: Metric) -> AnswerSpec | None:
    match metric.domain:
        case Levels(levels=levels):
            return Labels(labels=tuple(reversed(levels)))
        case Interval(low=low, high=high):
            return Scale(low=low, high=high)
        case Binary():
            return OneOf(options=("yes", "no"))
    return None


def _options(spec: AnswerSpec, metric: Metric | None) -> Iterator[tuple[str, str]]:
    rules: Sequence[LabelRule] = spec.labels if isinstance(spec, Labels) else ()
    if rules:
        for rule in rules:
            yield rule.name, tone(metric, rule.value) if metric is not None else "tone-plain"
        return
    if isinstance(spec, OneOf):
        yield from ((option, "tone-plain") for option in spec.options if option != spec.abstain)
    if isinstance(spec, Scale) and spec.whole and spec.high - spec.low <= _LISTED:
        for number in range(math.ceil(spec.low), math.floor(spec.high) + 1):
            yield str(number), tone(metric, number) if metric is not None else "tone-plain"
